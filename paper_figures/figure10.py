"""DEVN Fig. 2: learning curves of DEVN, and unbucketed losses and encoding errors of DEVN and DCVN."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN, Setting
from paper_figures.devn_sweeps import sweeps
from paper_figures.exploitability_curves import unless_smoke
from repro.evaluation.statistics import bands, digits, mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, above
from repro.figures.frame import curves

TITLE, GAME = "DEVN Fig. 2", "river and turn subgames"
SHOWS = "learning curves of DEVN; unbucketed losses and encoding errors by layers"
SWEEPS = sweeps((1, 2), ("i", "ii", "iii", "iv", "v"))

S1, S2, S3, S4, S5 = devn.BUCKETED
_LINES: dict[str, Literal["--", "-"]] = {DCVN: "--", DEVN: "-"}
_SHADES = {"i": "#56B4E9", "ii": "#0072B2", "iii": "#000000", "iv": "#0072B2", "v": "#000000"}
"""Of settings: colours; of methods: lines."""


def select(data: pd.DataFrame) -> pd.DataFrame:
    """Losses in setting II over the epochs, and in all settings those of the best networks."""
    in_two = data.sweep.isin((S2.sweep, f"fresh_{S2.name}"))
    losses = data[in_two & data.metric.isin(("loss/train", "loss/validation"))]
    return pd.concat([devn.of_settings(data), losses], ignore_index=True)


def draw(data: pd.DataFrame) -> Figure:
    """The paper's three plots; those of losses twice, ours above and the paper's below, each with encoding errors."""
    data = devn.of_all_seeds(data)
    figure = Figure(figsize=(15.0, 7.5))
    grid = figure.add_gridspec(2, 3, height_ratios=(3, 2))
    _curves(figure.add_subplot(grid[:, 0]), data)
    for number, settings in enumerate(((S1, S2, S3), (S4, S5)), start=1):
        above_ = figure.add_subplot(grid[0, number])
        below = figure.add_subplot(grid[1, number], sharex=above_)
        for i, setting in enumerate(settings):
            _losses(above_, data, setting, (i - (len(settings) - 1) / 2) * 0.15)
            _paper(below, setting)
        for axes in (above_, below):
            axes.set(ylabel=f"RMSE ({devn.UNIT})", xticks=devn.layers(data, settings[0]), ylim=(0, None))
        above_.set(title=f"dataset {number}: ours")
        below.set(title="paper's, turn", xlabel="hidden layers")
        _legend(below, data, settings)
    figure.suptitle(devn.title(data, "DEVN and DCVN: losses"))
    figure.tight_layout()
    return figure


def bucketed(data: pd.DataFrame, method: str, hidden: int, which: str) -> pd.DataFrame:
    """Bucketed losses (`train` or `validation`) in setting II: `[seeds, epochs]`."""
    return curves(data, f"loss/{which}", readout="training", **devn.of_network(S2.sweep, method, hidden))


def _curves(axes: Axes, data: pd.DataFrame) -> None:
    depths = devn.layers(data, S2)
    colours = colormaps["viridis"]([i / max(len(depths) - 1, 1) * 0.9 for i in range(len(depths))])
    for hidden, colour in zip(depths, colours, strict=True):
        for which, line in (("train", ":"), ("validation", "-")):
            table_ = bucketed(data, DEVN, hidden, which)
            band = bands(list(table_.to_numpy()))
            axes.plot(table_.columns, band["mean"], line, color=colour, label=f"{hidden} layers, {which}")
            if len(table_) > 1:
                axes.fill_between(table_.columns, band["low"], band["high"], color=colour, alpha=0.15, linewidth=0)
    axes.set(
        title=f"DEVN, setting {devn.named(data, S2)}",
        xlabel="epochs",
        ylabel="bucketed loss: Huber (pots²)",
        yscale="log",
    )
    devn.plain_numbers(axes.yaxis)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=7, ncols=2)


def _losses(axes: Axes, data: pd.DataFrame, setting: Setting, beside: float) -> None:
    depths, colour = devn.layers(data, setting), _SHADES[setting.name]
    for method, line in _LINES.items():
        estimates = [mean_ci(devn.by_seed(data, setting, method, n)) for n in depths]
        devn.points(
            axes, [n + beside for n in depths], estimates, fmt=f"o{line}", color=colour, capsize=2,
            label=f"{setting}: {devn.NAMES[method]}",
        )  # fmt: skip
        _encoding_error(axes, setting, method, devn.encoding_error(data, setting, method))


def _paper(axes: Axes, setting: Setting) -> None:
    """The paper's losses and encoding errors."""
    for method, line in _LINES.items():
        axes.plot(
            list(setting.paper), [setting.paper_loss(method, n) for n in setting.paper], f"D{line}",
            color=_SHADES[setting.name], markerfacecolor="white", markersize=4, linewidth=0.8,
            label=f"{setting}: {devn.NAMES[method]}, paper",
        )  # fmt: skip
        _encoding_error(axes, setting, method, setting.paper_error(method))


def _encoding_error(axes: Axes, setting: Setting, method: str, value: float) -> None:
    # Settings I and II have the same buckets, and the same error.
    if setting is not S1:
        axes.axhline(
            value, linestyle=_LINES[method], color=_SHADES[setting.name], linewidth=1,
            label=f"{setting}: encoding error, {devn.NAMES[method]}",
        )  # fmt: skip


def _legend(axes: Axes, data: pd.DataFrame, settings: Sequence[Setting]) -> None:
    """What colours, lines and markers mean, for both plots of a dataset."""
    handles = [Line2D([], [], color=_SHADES[s.name], linewidth=3, label=devn.named(data, s)) for s in settings]
    grey: dict[str, Any] = {"color": "grey", "markersize": 4}
    handles += [Line2D([], [], linestyle=line, label=devn.NAMES[m], **grey) for m, line in _LINES.items()]
    handles += [
        Line2D([], [], marker="o", linestyle="", label="ours", **grey),
        Line2D([], [], marker="D", linestyle="", markerfacecolor="white", label="paper", **grey),
        Line2D([], [], label=f"encoding error{' (I as II)' if S1 in settings else ''}", **grey),
    ]
    axes.legend(handles=handles, fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.25), handlelength=3)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """What the text reads from the figure.

    One that did not hold with networks that would have learned more is not testable.
    """
    data, judged = devn.judging(data), []
    for method in (DCVN, DEVN):
        judged += [
            *(_falls(data, method, which) for which in ("train", "validation")),
            _better(data, "wider", "wider layers lower the loss", method, S1, S2),
            _better(data, "finer", "twice the buckets lower the loss", method, S2, S3),
        ]
    for large in (S3, S2):
        judged += [_small_devn(data, large, hidden) for hidden in devn.layers(data, S1)]
    judged.append(_less_from_buckets(data))
    return judged


def _falls(data: pd.DataFrame, method: str, which: str) -> Claim:
    tables = [bucketed(data, method, hidden, which) for hidden in devn.layers(data, S2)]
    verdict, least = devn.all_above((devn.lower_by(t.iloc[:, 0], t.iloc[:, -1]) for t in tables), 0)
    return Claim(
        f"{method}_{which}_falls",
        f"{devn.NAMES[method]}'s bucketed loss declines: {which}, setting {devn.named(data, S2)}", "Fig. 2a, Sec. 7",
        unless_smoke(data, verdict), least, "%",
        note="from the first epoch to the last, the number of layers that decides; holds if all are above 0; how much "
        "is steep the paper does not say",
    )  # fmt: skip


def _improvements(data: pd.DataFrame, before: tuple[str, Setting], after: tuple[str, Setting]) -> list[pd.Series]:
    """In % of the loss before, by seed, for each number of layers."""
    return [
        devn.lower_by(*(devn.by_seed(data, setting, method, hidden) for method, setting in (before, after)))
        for hidden in devn.layers(data, before[1])
    ]


def _paper_improvements(before: tuple[str, Setting], after: tuple[str, Setting]) -> list[float]:
    return [
        devn.lower_by(*(setting.paper_loss(method, n) for method, setting in (before, after))) for n in before[1].paper
    ]


def _better(data: pd.DataFrame, name: str, change: str, method: str, before: Setting, after: Setting) -> Claim:
    verdict, least = devn.all_above(_improvements(data, (method, before), (method, after)), 0)
    claim = Claim(
        f"{method}_{name}",
        f"{change[0].upper()}{change[1:]} at every depth, {devn.NAMES[method]}: {devn.named(data, before)} to "
        f"{devn.named(data, after)}", "Fig. 2b",
        unless_smoke(data, verdict), least, "%", min(_paper_improvements((method, before), (method, after))),
        note="relative improvement, the number of layers that decides, paired by seed; holds if all are above 0",
    )  # fmt: skip
    return devn.unless_unfinished(
        data, claim, [(s.sweep, method, n) for s in (before, after) for n in devn.layers(data, s)]
    )


def _small_devn(data: pd.DataFrame, large: Setting, hidden: int) -> Claim:
    measured = mean_ci(devn.lower_by(devn.by_seed(data, large, DCVN, hidden), devn.by_seed(data, S1, DEVN, hidden)))
    paper_value = devn.lower_by(large.paper_loss(DCVN, hidden), S1.paper_loss(DEVN, hidden))
    more = "twice the buckets and layers twice as wide" if large is S3 else "as many buckets and layers twice as wide"
    claim = devn.claim_above_zero(
        data, f"small_devn_{large.name}_{hidden}",
        f"DEVN is better than DCVN with {more}, {hidden} layers: {devn.named(data, S1)} against "
        f"{devn.named(data, large)}", measured, "%",
        "relative improvement, paired by seed", "Fig. 2b" if large is S3 else "ours", paper_value,
    )  # fmt: skip
    return devn.unless_unfinished(data, claim, [(S1.sweep, DEVN, hidden), (large.sweep, DCVN, hidden)])


def _less_from_buckets(data: pd.DataFrame) -> Claim:
    def gain(before: Setting, after: Setting) -> pd.Series:
        improvements = (_improvements(data, (m, before), (m, after)) for m in (DCVN, DEVN))
        return devn.mean_over(chain.from_iterable(improvements))

    def paper(before: Setting, after: Setting) -> float:
        improvements = (_paper_improvements((m, before), (m, after)) for m in (DCVN, DEVN))
        return float(np.mean(list(chain.from_iterable(improvements))))

    name, statement = "less_from_buckets", "Twice the buckets gain less in dataset 2 than in dataset 1"
    paper_value = paper(S2, S3) - paper(S4, S5)
    if data.scale.iloc[0] != "paper":
        return Claim(
            name, statement, "Fig. 2c", NOT_TESTABLE, None, "percentage points", paper_value,
            note="here the datasets differ in deck and street, and in buckets per hand",
        )  # fmt: skip
    measured = mean_ci(gain(S2, S3) - gain(S4, S5))
    return Claim(
        name, statement, "Fig. 2c", above(measured, 0), measured, "percentage points", paper_value,
        note="the mean over methods and numbers of layers, paired by seed; holds if above 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Encoding errors, beside the lowest losses; all losses are in table 6."""
    data = devn.of_all_seeds(data)
    lines = [
        "| setting | method | encoding error | paper | lowest loss | with layers | paper |",
        "|---|---|---|---|---|---|---|",
    ]
    for setting in devn.BUCKETED:
        for method in (DCVN, DEVN):
            losses = {n: mean_ci(devn.by_seed(data, setting, method, n)) for n in devn.layers(data, setting)}
            best = min(losses, key=lambda n: losses[n].mean)
            paper_value = min(setting.paper_loss(method, n) for n in setting.paper)
            error = digits(devn.encoding_error(data, setting, method))
            lines.append(
                f"| {devn.named(data, setting)} | {devn.NAMES[method]} | {error} | "
                f"{setting.paper_error(method)} | {losses[best]} | {best} | {paper_value} |"
            )
    note = f"In {devn.UNIT}, of the validation subgames; losses with 95% intervals over seeds. {devn.OF_PAPER}"
    return "\n".join([*lines, "", note])
