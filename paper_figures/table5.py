"""DEVN Table 2 and Supplement Tables 1 to 5: bucketed losses of DCVN and DEVN in settings I to V."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN, Setting
from paper_figures.devn_sweeps import sweeps
from paper_figures.exploitability_curves import unless_smoke
from repro.evaluation.statistics import mean_ci
from repro.figures.claims import Claim, below

TITLE, GAME = "DEVN Table 2 and Supplement Tables 1 to 5", "river and turn subgames"
SHOWS = "bucketed training and validation losses, settings I to V"

SETTINGS = devn.BUCKETED
SWEEPS = sweeps((1, 2), ("i", "ii", "iii", "iv", "v"))

PAPER = {
    "i": {
        DEVN: {2: (0.001080, 0.001420), 3: (0.000887, 0.001173), 5: (0.000747, 0.001008), 7: (0.000707, 0.000949)},
        DCVN: {2: (0.000961, 0.001211), 3: (0.000801, 0.001025), 5: (0.000695, 0.000898), 7: (0.000659, 0.000835)},
    },
    "ii": {
        DEVN: {2: (0.000796, 0.001270), 3: (0.000628, 0.001007), 5: (0.000534, 0.000830), 7: (0.000507, 0.000780)},
        DCVN: {2: (0.000746, 0.001093), 3: (0.000612, 0.000891), 5: (0.000540, 0.000761), 7: (0.000516, 0.000726)},
    },
    "iii": {
        DEVN: {2: (0.000664, 0.001245), 3: (0.000533, 0.000997), 5: (0.000462, 0.000820), 7: (0.000436, 0.000760)},
        DCVN: {2: (0.000626, 0.001069), 3: (0.000526, 0.000872), 5: (0.000471, 0.000732), 7: (0.000452, 0.000695)},
    },
    "iv": {
        DEVN: {2: (0.002800, 0.004733), 3: (0.002272, 0.004050), 5: (0.001927, 0.003602), 7: (0.001864, 0.003295)},
        DCVN: {2: (0.002577, 0.003975), 3: (0.002191, 0.003471), 5: (0.001957, 0.003141), 7: (0.001865, 0.003007)},
    },
    "v": {
        DEVN: {2: (0.002353, 0.004889), 3: (0.001935, 0.004086), 5: (0.001668, 0.003467), 7: (0.001589, 0.003182)},
        DCVN: {2: (0.002146, 0.004075), 3: (0.001847, 0.003538), 5: (0.001650, 0.003077), 7: (0.001589, 0.002918)},
    },
}
"""Training and validation losses by setting, method and number of layers: the supplement's tables in order; its second
is the paper's Table 2."""


def paper_ratios(setting: Setting, method: str) -> list[float]:
    """Validation over training losses of the paper, by number of layers."""
    return [validation / train for train, validation in PAPER[setting.name][method].values()]


CLOSE = max(ratio for setting in SETTINGS for method in (DCVN, DEVN) for ratio in paper_ratios(setting, method))
"""Validation losses are close to training losses up to this ratio: the largest of those that the paper calls close."""


def select(data: pd.DataFrame) -> pd.DataFrame:
    """Losses at the epochs of the best networks."""
    of_settings = devn.of_all_seeds(data).sweep.isin([setting.sweep for setting in SETTINGS])
    return devn.bucketed_losses(data[of_settings])


def losses(data: pd.DataFrame, setting: Setting, method: str, hidden: int) -> pd.DataFrame:
    """A row per seed, columns `train` and `validation`."""
    return devn.losses(data, setting.sweep, method, hidden)


def draw(data: pd.DataFrame) -> Figure:
    """Both losses by number of layers: a column per setting, a row per method, since they are not comparable."""
    data = devn.of_all_seeds(data)
    figure = Figure(figsize=(14.0, 6.4))
    grid = figure.subplots(2, len(SETTINGS), sharex=True, sharey="row")
    for row, method in zip(grid, (DCVN, DEVN), strict=True):
        for axes, setting in zip(row, SETTINGS, strict=True):
            assert isinstance(axes, Axes)
            _plot(axes, data, setting, method)
        row[0].set(ylabel=f"{devn.NAMES[method]}: Huber loss (pots²)")
    for axes, setting in zip(grid[0], SETTINGS, strict=True):
        axes.set_title(devn.stacked(devn.named(data, setting)), fontsize=8)
    for axes in grid[1]:
        axes.set(xlabel="hidden layers")
    grid[0, 0].legend(fontsize=7)
    figure.suptitle(devn.title(data, "Bucketed losses"))
    figure.tight_layout()
    return figure


def _plot(axes: Axes, data: pd.DataFrame, setting: Setting, method: str) -> None:
    depths = devn.layers(data, setting)
    for column, (which, marker) in enumerate((("train", "o"), ("validation", "s"))):
        estimates = [mean_ci(losses(data, setting, method, n)[which]) for n in depths]
        devn.points(
            axes, depths, estimates, fmt=f"{marker}-", color=devn.COLOURS[method], label=which,
            markerfacecolor=devn.COLOURS[method] if which == "train" else "white",
        )  # fmt: skip
        axes.plot(
            depths, [PAPER[setting.name][method][n][column] for n in depths], f"{marker}:", color="black",
            markersize=4, markerfacecolor="black" if which == "train" else "white", linewidth=1,
            label=f"{which}, paper",
        )  # fmt: skip
    axes.set(xticks=depths, yscale="log")
    devn.plain_numbers(axes.yaxis)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """That losses decline with layers, and that training and validation losses are close.

    One that did not hold with networks that would have learned more is not testable.
    """
    data, judged = devn.judging(data), []
    for setting in SETTINGS:
        for method in (DCVN, DEVN):
            judged += [_declines(data, setting, method, which) for which in ("validation", "train")]
            judged.append(_close(data, setting, method))
    return judged


def _source(setting: Setting) -> str:
    number = SETTINGS.index(setting) + 1
    return "Table 2" if setting.name == "ii" else f"Supplement Table {number}"


def _declines(data: pd.DataFrame, setting: Setting, method: str, which: str) -> Claim:
    few, many = devn.layers(data, setting)[0], devn.layers(data, setting)[-1]
    measured = mean_ci(devn.lower_by(*(losses(data, setting, method, n)[which] for n in (few, many))))
    published, name = PAPER[setting.name][method], "training" if which == "train" else which
    claim = devn.claim_above_zero(
        data, f"{setting.name}_{method}_layers" + ("_train" if which == "train" else ""),
        f"{many} layers have a lower {name} loss than {few}: {devn.NAMES[method]}, setting "
        f"{devn.named(data, setting)}", measured, "%", "relative improvement, paired by seed", _source(setting),
        devn.lower_by(*(published[n][("train", "validation").index(which)] for n in (few, many))),
    )  # fmt: skip
    return devn.unless_unfinished(data, claim, [(setting.sweep, method, n) for n in (few, many)])


def _close(data: pd.DataFrame, setting: Setting, method: str) -> Claim:
    measured = mean_ci(devn.mean_over(_ratios(data, setting, method)))
    return Claim(
        f"{setting.name}_{method}_close",
        f"Training and validation losses are close to each other: {devn.NAMES[method]}, setting "
        f"{devn.named(data, setting)}", "Sec. 7" if setting.name == "ii" else "Supplement",
        unless_smoke(data, below(measured, CLOSE)), measured, "validation / training",
        float(np.mean(paper_ratios(setting, method))),
        note="the mean over numbers of layers; training losses are means over the epoch, while the network learns, "
        f"which makes the ratio smaller; holds if below {CLOSE:.2f}, the paper's largest of all settings",
    )  # fmt: skip


def _ratios(data: pd.DataFrame, setting: Setting, method: str) -> Iterator[pd.Series]:
    for hidden in devn.layers(data, setting):
        both = losses(data, setting, method, hidden)
        yield both.validation / both.train


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The paper's tables beside ours."""
    data = devn.of_all_seeds(data)
    lines = [
        "| setting | method | layers | training loss | validation loss | paper: training, validation |",
        "|---|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        for method in (DEVN, DCVN):
            for hidden in devn.layers(data, setting):
                seed_losses = losses(data, setting, method, hidden)
                paper_cells = ", ".join(f"{v:.6f}" for v in PAPER[setting.name][method][hidden])
                lines.append(
                    f"| {devn.named(data, setting)} | {devn.NAMES[method]} | {hidden} | "
                    f"{mean_ci(seed_losses.train)} | {mean_ci(seed_losses.validation)} | {paper_cells} |"
                )
    return "\n".join([*lines, "", f"Huber's loss, values in pots, with 95% intervals over seeds. {devn.OF_PAPER}"])
