"""DEVN Table 2: bucketed losses of DCVN and DEVN in setting II."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_runs as devn
from paper_figures.claims import Claim, above, below
from paper_figures.devn_runs import DCVN, DEVN
from paper_figures.devn_sweeps import sweeps
from paper_figures.exploitability_curves import unless_smoke
from repro.evaluation.statistics import mean_ci

TITLE, GAME = "DEVN Table 2", "river subgames"
SHOWS = "bucketed training and validation losses, setting II"

SETTING = devn.BUCKETED[1]
SWEEPS = sweeps((1,), ("ii",))

PAPER = {
    DEVN: {2: (0.000796, 0.001270), 3: (0.000628, 0.001007), 5: (0.000534, 0.000830), 7: (0.000507, 0.000780)},
    DCVN: {2: (0.000746, 0.001093), 3: (0.000612, 0.000891), 5: (0.000540, 0.000761), 7: (0.000516, 0.000726)},
}
"""Training and validation losses by method and number of layers."""

CLOSE = 2.0
"""Validation losses are close to training losses up to this ratio; the number is ours, the paper's are up to 1.6."""


def select(data: pd.DataFrame) -> pd.DataFrame:
    """Losses at the epochs of the best networks."""
    return devn.bucketed_losses(data[data.sweep == SETTING.sweep])


def losses(data: pd.DataFrame, method: str, hidden: int) -> pd.DataFrame:
    """A row per seed, columns `train` and `validation`."""
    return devn.losses(data, SETTING.sweep, method, hidden)


def draw(data: pd.DataFrame) -> Figure:
    """Both losses by number of layers, one plot per method, since they are not comparable."""
    figure = Figure(figsize=(8.6, 3.8))
    for axes, method in zip(figure.subplots(1, 2), (DCVN, DEVN), strict=True):
        assert isinstance(axes, Axes)
        depths = devn.layers(data, SETTING)
        for which, marker in (("train", "o"), ("validation", "s")):
            estimates = [mean_ci(losses(data, method, n)[which]) for n in depths]
            devn.points(
                axes, depths, estimates, fmt=f"{marker}-", color=devn.COLOURS[method], label=which,
                markerfacecolor=devn.COLOURS[method] if which == "train" else "white",
            )  # fmt: skip
            column = 0 if which == "train" else 1
            axes.plot(
                depths, [PAPER[method][n][column] for n in depths], f"{marker}:", color="black", markersize=4,
                markerfacecolor="black" if which == "train" else "white", linewidth=1, label=f"{which}, paper",
            )  # fmt: skip
        axes.set(
            title=devn.NAMES[method], xlabel="hidden layers", xticks=depths, ylabel="Huber loss (pots²)", yscale="log"
        )
        devn.plain_numbers(axes.yaxis)
        axes.legend(fontsize=7)
    figure.suptitle(devn.title(data, f"Bucketed losses, setting {SETTING}"))
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """That losses decline with layers, and that training and validation losses are close."""
    judged = []
    for method in (DCVN, DEVN):
        few, many = devn.layers(data, SETTING)[0], devn.layers(data, SETTING)[-1]
        measured = mean_ci(devn.lower_by(losses(data, method, few).validation, losses(data, method, many).validation))
        paper_value = devn.lower_by(PAPER[method][few][1], PAPER[method][many][1])
        judged.append(
            Claim(
                f"{method}_layers", f"{many} layers have a lower validation loss than {few}: {devn.NAMES[method]}",
                "Table 2", unless_smoke(data, above(measured, 0)), measured, "%", paper_value,
                note="relative improvement, paired by seed; holds if above 0",
            )
        )  # fmt: skip
        tables = [losses(data, method, n) for n in devn.layers(data, SETTING)]
        ratios = [both.validation / both.train for both in tables]
        measured = mean_ci(devn.mean_over(ratios))
        paper_value = sum(validation / train for train, validation in PAPER[method].values()) / len(PAPER[method])
        judged.append(
            Claim(
                f"{method}_close", f"Training and validation losses are close to each other: {devn.NAMES[method]}",
                "Sec. 7", unless_smoke(data, below(measured, CLOSE)), measured, "validation / training", paper_value,
                note="the mean over numbers of layers; training losses are means over the epoch, while the network "
                "learns, which makes the ratio smaller; "
                f"holds if below {CLOSE:.0f}, a limit of ours",
            )
        )  # fmt: skip
    return judged


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The paper's table beside ours."""
    lines = [
        "| method | layers | training loss | validation loss | paper: training, validation |",
        "|---|---|---|---|---|",
    ]
    for method in (DEVN, DCVN):
        for hidden in devn.layers(data, SETTING):
            seed_losses = losses(data, method, hidden)
            paper_cells = ", ".join(f"{v:.6f}" for v in PAPER[method][hidden])
            lines.append(
                f"| {devn.NAMES[method]} | {hidden} | {mean_ci(seed_losses.train)} | "
                f"{mean_ci(seed_losses.validation)} | {paper_cells} |"
            )
    return "\n".join([*lines, "", f"Huber's loss, values in pots, with 95% intervals over seeds. {devn.OF_PAPER}"])
