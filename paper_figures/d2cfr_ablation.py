"""What D2CFR's two ablations share: winnings of D2CFR against versions of it without a part, and a loss of each.

Winnings are exact values of the two policy networks of the same iteration and the same seed, in both seatings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import matches, style
from paper_figures.d2cfr_curves import UNIT, apart, draw_curves, how, late, share_below
from paper_figures.exploitability_curves import unless_smoke
from repro.evaluation.statistics import as_ratio, mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, above, all_of, below
from repro.figures.frame import curves

_SHOWN_EVERY = 10
"""Iterations from one drawn point to the next, at least."""

FULL = "d2cfr"
"""The sweep of D2CFR with all its parts; its runs are measured against the others'."""


@dataclass(frozen=True)
class Version:
    """One of the versions that are compared.

    Attributes:
        name: in legends and tables.
        colour: of its curves.
        sweep: of its runs.
        where: columns of swept keys in which they differ from the other runs of the sweep, and their values.
        like_full: whether its training is D2CFR's of the same seed for a long while; they are paired then.
    """

    name: str
    colour: str
    sweep: str
    where: Mapping[str, Any] = field(default_factory=dict)
    like_full: bool = False

    def was_run(self, data: pd.DataFrame) -> bool:
        """Whether there are runs of it; published data may be older than a version."""
        return bool((data.sweep == self.sweep).any())

    def curves(self, data: pd.DataFrame, metric: str = "exploitability", readout: str = "d2cfr") -> pd.DataFrame:
        """A metric: `[seeds, iterations]`."""
        return curves(data, metric, readout=readout, sweep=self.sweep, **self.where)


def winnings(data: pd.DataFrame, opponent: str, sweep: str = FULL) -> pd.DataFrame:
    """What D2CFR, or runs of another sweep, win against a version after the same iteration: `[seeds, iterations]`."""
    return matches.winnings(data, opponent, readout="d2cfr", sweep=sweep)


def after(table: pd.DataFrame, iteration: int, until: float = float("inf")) -> pd.DataFrame:
    """The columns of later iterations, up to `until`."""
    return table[[step for step in table.columns if iteration < float(str(step)) <= until]]


def coarse(table: pd.DataFrame) -> pd.DataFrame:
    """What is measured after every iteration as means of ten; anything else as it is."""
    steps = table.columns.astype(float)
    if len(steps) < 2 or steps[1] - steps[0] >= _SHOWN_EVERY:
        return table
    return table.T.groupby(np.ceil(steps / _SHOWN_EVERY) * _SHOWN_EVERY).mean().T


def draw_ablation(
    data: pd.DataFrame, full: Version, opponents: Mapping[str, Version], metric: str, readout: str, label: str
) -> Figure:
    """The paper's two plots: winnings against each of the others, and a loss of all, by iteration."""
    figure = Figure(figsize=(10.0, 4.2))
    left, right = figure.subplots(1, 2)
    assert isinstance(left, Axes)
    for opponent, version in opponents.items():
        won = winnings(data, opponent)
        steps = [float(str(step)) for step in won.columns]
        style.curve(
            left, steps, won.to_numpy(), colour=version.colour, label=f"against {version.name}", floor=-float("inf")
        )
    left.axhline(0, color="black", linewidth=0.8)
    left.set(xlabel="CFR iteration (both players)", ylabel=f"winnings of {full.name} ({UNIT})")
    left.legend(fontsize=7)
    versions = [full, *opponents.values()]
    tables = {version.name: coarse(version.curves(data, metric, readout)) for version in versions}
    draw_curves(right, tables, [version.colour for version in versions], log=False)
    right.set(ylabel=label)
    right.set_ylim(bottom=0)
    right.legend(fontsize=7)
    # Other sweeps, which are not drawn, may have more.
    runs = data[data.sweep == FULL].seed.nunique()
    figure.suptitle(f"D2CFR in Leduc, {runs} runs each, scale: {data.scale.iloc[0]}")
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def wins_after(data: pd.DataFrame, opponent: str, iteration: int, statement: str, source: str) -> Claim:
    """That D2CFR wins at nearly all evaluations after an iteration, and in their mean."""
    name, later = f"wins_after_{iteration}", after(winnings(data, opponent), iteration)
    if later.empty:
        return Claim(name, statement, source, NOT_TESTABLE, None, UNIT, note="no evaluation after it")
    measured, (share, nearly) = mean_ci(later.mean(axis=1)), share_below(-later)
    return Claim(
        name, statement, source, unless_smoke(data, all_of([above(measured, 0), nearly])), measured, UNIT,
        note=f"mean of the evaluations after it; positive at {share:.0%} of them in the mean over seeds; holds if the "
        "mean is above 0 and so are nearly all",
    )  # fmt: skip


def lower_loss(
    data: pd.DataFrame, tables: tuple[pd.DataFrame, pd.DataFrame], window: tuple[int, float], id_: str, statement: str,
    source: str, ratio_below: float = 1.0,
) -> Claim:  # fmt: skip
    """That a loss is lower than another, of independent runs: at nearly all iterations of a window (from, until), and
    as a ratio in their mean.

    Args:
        ratio_below: for claims that say how much lower.
    """
    first, second = (after(table, window[0] - 1, window[1]) for table in tables)
    if first.empty:
        return Claim(id_, statement, source, NOT_TESTABLE, None, "ratio", note="no evaluation then")
    # Logarithms, so that iterations with large losses do not outweigh the others.
    ratio = as_ratio(apart(np.log(first).mean(axis=1), np.log(second).mean(axis=1)))
    share, nearly = share_below(first, ratio_below * second)
    return Claim(
        id_, statement, source, unless_smoke(data, all_of([below(ratio, ratio_below), nearly])), ratio, "ratio",
        note=f"geometric mean of the ratios then, Welch's interval; below {ratio_below:g} at {share:.0%} of the "
        f"iterations in the mean over seeds; holds if the mean is below {ratio_below:g} and so are nearly all",
    )  # fmt: skip


def ours(data: pd.DataFrame, full: Version, opponents: Mapping[str, Version]) -> list[Claim]:
    """What the paper does not show: exploitability, and winnings at the end, against every version."""
    judged = []
    for opponent, version in opponents.items():
        difference = apart(late(full.curves(data)), late(version.curves(data)), paired=version.like_full)
        won = mean_ci(late(winnings(data, opponent)))
        judged += [
            Claim(
                f"less_exploitable_than_{opponent}", f"{full.name} is less exploitable than {version.name}", "ours",
                unless_smoke(data, below(difference, 0)), difference, UNIT,
                note=f"difference over the last quarter of the evaluations, {how(paired=version.like_full)}; holds if "
                "below 0",
            ),
            Claim(
                f"beats_{opponent}", f"{full.name} beats {version.name}", "ours",
                unless_smoke(data, above(won, 0)), won, UNIT,
                note="winnings over the last quarter of the evaluations; holds if above 0",
            ),
        ]  # fmt: skip
    return judged


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame, full: Version, opponents: Mapping[str, Version], metric: str, readout: str) -> str:
    """Exploitability, loss and D2CFR's winnings over the last quarter, as Markdown."""
    kind = metric.removeprefix("loss/")
    lines = [
        f"| version | exploitability [{UNIT}] | {kind} loss | winnings of {full.name} against it [{UNIT}] |",
        "|---|---|---|---|",
    ]
    for opponent, version in {"": full, **opponents}.items():
        won = mean_ci(late(winnings(data, opponent))) if opponent else "–"
        losses = mean_ci(late(version.curves(data, metric, readout)))
        lines.append(f"| {version.name} | {mean_ci(late(version.curves(data)))} | {losses} | {won} |")
    return "\n".join([*lines, "", "Means over the last quarter of the evaluations, with 95% intervals over seeds."])
