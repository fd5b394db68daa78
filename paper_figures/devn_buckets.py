"""Not in the paper: DEVN's gain over DCVN with fewer buckets, which make more of the loss, and what foretells it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from paper_figures import devn_margin as margin
from paper_figures import devn_runs as devn
from paper_figures.devn_margin import Margin
from paper_figures.devn_runs import DCVN, DEVN
from paper_figures.devn_sweeps import DATA
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import digits, mean_ci
from repro.figures.claims import Claim, above, below, within
from repro.figures.frame import values

TITLE, GAME = "DEVN, ours", "river subgames"
SHOWS = "DEVN against DCVN with fewer buckets, beside what the parts of its margin foretell"

SWEEPS = (
    # The first quarter of table 6's data.
    Sweep("data_1", DATA[1].overrides, {"laptop": "algorithm.first=0"}),
    Sweep(
        "fewer_buckets", "experiment=devn algorithm=dcvn,devn network.layers=3 seed=range(3)",
        {
            "paper": "algorithm.buckets=40,80,160,320,1000",
            "laptop": "algorithm.buckets=10,20,40,80,250 algorithm.subgames=25000 algorithm.iterations=20",
            "smoke": "algorithm.buckets=4,10 seed=0",
        },
    ),
)  # fmt: skip

CLOSE = 1.0
"""Percentage points by which a gain may differ from the one foretold."""
SETTINGS = devn.BUCKETED[:3]
"""The paper's of the same dataset, shown beside."""


def select(data: pd.DataFrame) -> pd.DataFrame:
    """The networks at their best."""
    networks = data[data.sweep == "fewer_buckets"]
    return pd.concat([devn.best_epochs(networks), devn.bucketed_losses(networks)], ignore_index=True)


def _with(data: pd.DataFrame, buckets: int) -> pd.DataFrame:
    return data[data.buckets == buckets]


def _error(data: pd.DataFrame, method: str) -> float:
    """The encoding error, which networks with the same buckets have alike."""
    return float(devn.values(data, "fewer_buckets", method, "encoding_error").mean())


def found(data: pd.DataFrame, buckets: int) -> Margin:
    """The margin and its parts with so many buckets, by seed."""
    mine = _with(data, buckets)
    dcvn, devn_ = (devn.values(mine, "fewer_buckets", method) for method in (DCVN, DEVN))
    return Margin.of((dcvn, devn_), (_error(mine, DCVN), _error(mine, DEVN)))


def foretold(data: pd.DataFrame, buckets: int, same_buckets: bool = False) -> pd.Series:
    """The gain in %, by seed, that both gains with the most buckets make of the share with so many.

    Args:
        same_buckets: of the most buckets only the network's own gain is taken, that in the error is of so many.
    """
    here, most = found(data, buckets), found(data, values(data, "buckets")[-1])
    gain: pd.Series = 100 * Margin(here.share, (here if same_buckets else most).buckets, most.own).gain()
    return gain


# -- the picture -----------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """Losses and encoding errors by the number of buckets, and the gain by what share of DCVN's loss they make."""
    figure = Figure(figsize=(11.0, 4.4))
    left, right = figure.subplots(1, 2)
    assert isinstance(left, Axes)
    assert isinstance(right, Axes)
    _losses(left, data)
    _gains(right, data)
    figure.suptitle(devn.title(data, "DCVN and DEVN with fewer buckets"))
    figure.tight_layout()
    return figure


def _losses(axes: Axes, data: pd.DataFrame) -> None:
    numbers = values(data, "buckets")
    for method in (DCVN, DEVN):
        losses = [mean_ci(devn.values(_with(data, n), "fewer_buckets", method)) for n in numbers]
        devn.points(axes, numbers, losses, fmt="o-", color=devn.COLOURS[method], label=devn.NAMES[method])
        errors = [_error(_with(data, n), method) for n in numbers]
        axes.plot(numbers, errors, "s:", color=devn.COLOURS[method], label=f"{devn.NAMES[method]}, buckets alone")
    axes.set(xscale="log", xlabel="buckets", ylabel=f"error ({devn.UNIT})", ylim=(0, None))
    axes.set_xticks(numbers, [str(n) for n in numbers])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.legend(fontsize=7)


def _gains(axes: Axes, data: pd.DataFrame) -> None:
    numbers = values(data, "buckets")
    margins = [found(data, n) for n in numbers]
    shares = [float(np.mean(each.share)) for each in margins]
    gains = [mean_ci(100 * each.gain()) for each in margins]
    devn.points(axes, shares, gains, fmt="o", color="#0072B2", label="ours, river")
    for share, gain, number in zip(shares, gains, numbers, strict=True):
        axes.annotate(f"{number}", (share, gain.high), textcoords="offset points", xytext=(0, 4), ha="center", size=7)
    every = np.linspace(0, 1, 101)
    last = Margin(0.0, *(float(np.mean(part)) for part in (margins[-1].buckets, margins[-1].own)))
    axes.plot(
        every, 100 * last.gain(every), "-", color="#0072B2", linewidth=1,
        label=f"foretold by {numbers[-1]} buckets: {100 * last.buckets:.0f}% in theirs, {100 * last.own:.0f}% in the "
        "network's",
    )  # fmt: skip
    published = [margin.paper(setting, hidden) for setting in SETTINGS for hidden in setting.paper]
    axes.plot(
        [each.share for each in published], [100 * each.gain() for each in published], "D", color="black",
        markerfacecolor="white", markersize=4, label="paper, turn, settings I to III",
    )  # fmt: skip
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set(
        xlim=(0, 1), xlabel="share of buckets in DCVN's squared loss (small numbers: buckets)",
        ylabel="DEVN's loss below DCVN's (%)",
    )  # fmt: skip
    axes.legend(fontsize=7)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """That fewer buckets raise DEVN's gain, and by as much as gains with the most buckets foretell."""
    numbers = values(data, "buckets")
    few, most = numbers[0], numbers[-1]
    share = mean_ci(100 * (found(data, few).share - found(data, most).share))
    judged = [
        Claim(
            "share", f"Buckets make more of DCVN's squared loss if there are {few} than if {most}", "ours",
            unless_smoke(data, above(share, 0)), share, "percentage points", check=True,
            note="the sweep does what it is for; paired by seed; holds if above 0",
        ),
        _slope(data, numbers),
    ]  # fmt: skip
    for buckets in numbers[:-1]:
        whose = f"both gains with {most} make of the share"
        judged.append(_foretold(data, f"foretold_{buckets}", buckets, foretold(data, buckets), whose))
        whose = f"its own gain in their error and the network's with {most} make of the share"
        own = foretold(data, buckets, same_buckets=True)
        judged.append(_foretold(data, f"foretold_by_same_buckets_{buckets}", buckets, own, whose))
    return judged


def _foretold(data: pd.DataFrame, name: str, buckets: int, expected: pd.Series, whose: str) -> Claim:
    measured = mean_ci(100 * found(data, buckets).gain() - expected)
    return Claim(
        name, f"DEVN's gain with {buckets} buckets is what {whose}", "ours",
        unless_smoke(data, within(measured, -CLOSE, CLOSE)), measured, "percentage points",
        note=f"measured minus foretold ({digits(float(expected.mean()))}%), paired by seed; holds if wholly within "
        f"{CLOSE:g}, does not if wholly outside",
    )  # fmt: skip


def _slope(data: pd.DataFrame, numbers: list[int]) -> Claim:
    """Of the gain over the logarithm of the number of buckets, fitted seed by seed."""
    gains = pd.concat([100 * found(data, n).gain() for n in numbers], axis=1)
    slopes = np.polyfit(np.log2(numbers), gains.to_numpy().T, 1)[0]
    measured = mean_ci(slopes)
    return Claim(
        "slope", "DEVN's gain falls as there are more buckets", "ours", unless_smoke(data, below(measured, 0)),
        measured, "percentage points per doubling",
        note="slope of the relative improvement over the logarithm of their number, a seed at a time; holds if below 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Losses, encoding errors, and the parts of the margin, by number of buckets."""
    lines = [
        "| buckets | DCVN | DEVN | encoding error: DCVN | DEVN | share of buckets [%] | gain in their error [%] | gain "
        "in the network's own [%] | improvement [%] | foretold [%] | foretold by the same buckets' error [%] |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for buckets in values(data, "buckets"):
        mine, parts = _with(data, buckets), found(data, buckets)
        cells: list[object] = [mean_ci(devn.values(mine, "fewer_buckets", method)) for method in (DCVN, DEVN)]
        cells += [digits(_error(mine, method)) for method in (DCVN, DEVN)]
        cells += [mean_ci(100 * parts.share), digits(100 * float(np.mean(parts.buckets))), mean_ci(100 * parts.own)]
        cells += [
            mean_ci(100 * parts.gain()),
            mean_ci(foretold(data, buckets)),
            mean_ci(foretold(data, buckets, same_buckets=True)),
        ]
        lines.append(f"| {buckets} | {' | '.join(map(str, cells))} |")
    note = f"Errors in {devn.UNIT}, the mean over subgames, with 95% intervals over seeds."
    how_far = [f"| buckets | {devn.LEARNED} |", "|---|---|---|---|---|---|---|"]
    how_far += [f"| {n} | {devn.learned(_with(data, n), 'fewer_buckets')} |" for n in values(data, "buckets")]
    return "\n".join([*lines, "", note, "", *how_far, "", devn.HOW_FAR])
