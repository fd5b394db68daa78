"""Not in the paper: how DEVN's gain over DCVN, and what more layers gain, depend on how long networks learn."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN
from paper_figures.devn_sweeps import DATA
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import bands, digits, mean_ci
from repro.figures.claims import Claim
from repro.figures.frame import curves

TITLE, GAME = "DEVN, ours", "river subgames"
SHOWS = "DEVN against DCVN by the number of SGD steps"
SETTING, SWEEP = devn.BUCKETED[0], "steps"
SWEEPS = (
    DATA[1],
    # Setting I's networks of three and seven layers; at laptop scale five times as many epochs as table 6 has.
    Sweep(
        "steps", "experiment=devn algorithm=dcvn,devn network.layers=3,7 seed=range(3)",
        {"laptop": "algorithm.iterations=50", "smoke": "algorithm.iterations=4 seed=0"},
    ),
)  # fmt: skip

_LINES = {3: "-", 7: "--"}
"""Of networks with so many hidden layers."""
_SHADES = {3: "#009E73", 7: "#CC79A7"}
"""Of improvements with so many."""


def select(data: pd.DataFrame) -> pd.DataFrame:
    """The lowest losses so far over the epochs, what buckets cost, and losses in training."""
    metrics = ("best", "encoding_error", "predicting_zero", "loss/train", "loss/validation")
    return data[(data.sweep == SWEEP) & data.metric.isin(metrics)]


def best(data: pd.DataFrame, method: str, hidden: int, metric: str = "best") -> pd.DataFrame:
    """The lowest unbucketed loss so far: `[seeds, evaluated epochs]`."""
    return curves(data, metric, readout=method, **devn.of_network(SWEEP, method, hidden))


def by_heart(data: pd.DataFrame, method: str, hidden: int) -> pd.DataFrame:
    """Bucketed losses in validation, in units of those in training: `[seeds, epochs]`."""
    where = {"readout": "training", **devn.of_network(SWEEP, method, hidden)}
    return curves(data, "loss/validation", **where) / curves(data, "loss/train", **where)


def improvement(data: pd.DataFrame, hidden: int) -> pd.DataFrame:
    """By how much DEVN's loss is lower than DCVN's, in % of that, by seed and epoch."""
    lower: pd.DataFrame = devn.lower_by(*(best(data, method, hidden) for method in (DCVN, DEVN)))
    return lower


def paper_improvement(hidden: int) -> float:
    """The paper's, after 400 epochs of nine million turn subgames."""
    lower: float = devn.lower_by(*(SETTING.paper_loss(method, hidden) for method in (DCVN, DEVN)))
    return lower


def encoding_error(data: pd.DataFrame, method: str) -> float:
    """Of the validation subgames; all networks have the same."""
    return float(best(data, method, min(_LINES), "encoding_error").to_numpy()[0, 0])


def early(epochs: pd.Index) -> int:
    """The last evaluated epoch of the first fifth, or else the first that was evaluated."""
    return int(max([e for e in epochs if e <= epochs[-1] / 5], default=epochs[0]))


def after_first_tenth(epochs: pd.Index) -> pd.Index:
    """Without the first tenth, after which networks know next to nothing and intervals are wide."""
    return epochs[epochs >= epochs[-1] / 10]


def draw(data: pd.DataFrame) -> Figure:
    """Losses of both, and the improvement, by epochs."""
    figure = Figure(figsize=(10.0, 4.4))
    left, right = figure.subplots(1, 2)
    assert isinstance(left, Axes)
    assert isinstance(right, Axes)
    for method in (DCVN, DEVN):
        for hidden, line in _LINES.items():
            label = f"{devn.NAMES[method]}, {hidden} layers"
            _band(left, best(data, method, hidden), line, devn.COLOURS[method], label)
        left.axhline(
            encoding_error(data, method), linestyle=":", color=devn.COLOURS[method], linewidth=1,
            label=f"encoding error, {devn.NAMES[method]}",
        )  # fmt: skip
    for hidden, line in _LINES.items():
        gains = improvement(data, hidden)
        _band(right, gains[after_first_tenth(gains.columns)], line, _SHADES[hidden], f"{hidden} layers")
        right.axhline(
            paper_improvement(hidden), linestyle=line, color="black", linewidth=0.8,
            label=f"{hidden} layers: paper, turn, at the end",
        )  # fmt: skip
    encoding = devn.lower_by(*(encoding_error(data, method) for method in (DCVN, DEVN)))
    right.axhline(encoding, linestyle=":", color="black", linewidth=1, label="encoding errors")
    right.axhline(0, color="grey", linewidth=0.8)
    left.set(ylabel=f"lowest loss so far: RMSE ({devn.UNIT})", ylim=(0, None))
    right.set(ylabel="DEVN's loss below DCVN's (%)")
    every = best(data, DCVN, min(_LINES)).columns
    for axes, epochs in ((left, every), (right, after_first_tenth(every))):
        axes.set(xlabel="epochs", xscale="log")
        axes.set_xticks(_some(epochs))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    figure.suptitle(devn.title(data, f"What networks learn in more epochs, setting {devn.named(data, SETTING)}"))
    figure.tight_layout()
    return figure


def _band(axes: Axes, table_: pd.DataFrame, line: str, colour: str, label: str) -> None:
    band = bands(list(table_.to_numpy()))
    axes.plot(table_.columns, band["mean"], line, color=colour, label=label)
    if len(table_) > 1:
        axes.fill_between(table_.columns, band["low"], band["high"], color=colour, alpha=0.15, linewidth=0)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """None of the paper's: whether DEVN is better in the end, and whether learning longer favours it, and depth."""
    judged = []
    for hidden in _LINES:
        by_epoch = improvement(data, hidden)
        first, last = early(by_epoch.columns), by_epoch.columns[-1]
        measured = mean_ci(by_epoch[last])
        longer = mean_ci(by_epoch[last] - by_epoch[first])
        judged += [
            devn.claim_above_zero(
                data, f"lower_{hidden}", f"DEVN's unbucketed loss is below DCVN's after {last} epochs: {hidden} layers",
                measured, "%", "relative improvement, paired by seed; the paper's is of turn subgames",
                paper=paper_improvement(hidden),
            ),
            devn.claim_above_zero(
                data, f"longer_{hidden}",
                f"DEVN's improvement is larger after {last} epochs than after {first}: {hidden} layers", longer,
                "percentage points", "paired by seed",
            ),
        ]  # fmt: skip
    return judged + [_deeper(data, method) for method in (DCVN, DEVN)]


def _deeper(data: pd.DataFrame, method: str) -> Claim:
    few, many = min(_LINES), max(_LINES)
    shallow, deep = (best(data, method, n) for n in (few, many))
    last = shallow.columns[-1]
    measured = mean_ci(devn.lower_by(shallow[last], deep[last]))
    return devn.claim_above_zero(
        data, f"{method}_deeper",
        f"{many} layers have a lower loss than {few} after {last} epochs: {devn.NAMES[method]}", measured, "%",
        "relative improvement, paired by seed; the paper's is of turn subgames", "ours; Fig. 3",
        devn.lower_by(*(SETTING.paper_loss(method, n) for n in (few, many))),
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Lowest losses so far, at some epochs."""
    lines = [
        "| layers | epochs | DCVN | DEVN | DEVN, zero-sum | improvement [%] | validation loss / training loss: DCVN | "
        "DEVN |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for hidden in _LINES:
        gains = improvement(data, hidden)
        for epoch in _some(gains.columns):
            losses = " | ".join(str(mean_ci(best(data, m, hidden)[epoch])) for m in (DCVN, DEVN, devn.ZERO_SUM))
            ratios = " | ".join(str(mean_ci(by_heart(data, m, hidden)[epoch])) for m in (DCVN, DEVN))
            lines.append(f"| {hidden} | {epoch} | {losses} | {mean_ci(gains[epoch])} | {ratios} |")
    errors = [encoding_error(data, method) for method in (DCVN, DEVN)]
    both = " | ".join(f"{digits(x)}" for x in errors)
    lines.append(f"| – | encoding error | {both} | – | {digits(devn.lower_by(*errors))} | – | – |")
    note = (
        f"Lowest losses so far in {devn.UNIT}, the mean over subgames, and bucketed losses of the epoch, with 95% "
        f"intervals over seeds; {devn.predicting_zero(data, [SWEEP])}."
    )
    return "\n".join([*lines, "", note])


def _some(epochs: pd.Index) -> list[int]:
    """The last evaluated epoch, and those of its halves, fifths, tenths and so on."""
    last = int(epochs[-1])
    shown = {last // share for share in (1, 2, 5, 10, 20, 50, 100)}
    return [int(epoch) for epoch in epochs if epoch in shown]
