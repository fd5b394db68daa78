"""What the figures of D2CFR on Leduc share: drawn curves, and comparisons.

Runs are compared as independent ones, with Welch's interval: that two have the same seed makes them no more alike once
they have parted. Only where they share their value networks, as read-outs of one training do, are they paired by seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from paper_figures import style
from repro.evaluation.statistics import Estimate, difference, mean_ci, p_value
from repro.figures.claims import DID_NOT_HOLD, HELD, UNDECIDED, Verdict

UNIT = "mA/g"
LABEL = f"exploitability = NashConv / 2 ({UNIT})"

NEARLY = 0.95
"""Share of the evaluations that "nearly everywhere" asks for; the number is ours."""


_MOST_BANDS = 4
"""Intervals that are drawn over each other; of more curves than this only the means are."""


def late(table: pd.DataFrame, share: float = 0.25) -> pd.Series:
    """Mean over the last part of the evaluations, by seed: single evaluations of these curves jump."""
    count = max(1, round(share * table.shape[1]))
    return table.iloc[:, -count:].mean(axis=1)


def apart(first: pd.Series, second: pd.Series, *, paired: bool = False) -> Estimate:
    """Mean of `first` minus mean of `second`, by seed: of independent runs, or of `paired` ones."""
    return mean_ci(first - second) if paired else difference(first, second)


def how(*, paired: bool) -> str:
    """In notes: how `apart` compares."""
    return "paired by seed" if paired else "Welch's interval"


def share_below(first: pd.DataFrame, second: pd.DataFrame | None = None) -> tuple[float, Verdict]:
    """At which share of the evaluations the mean of `first` is lower, and whether that is nearly everywhere.

    *Held* or *did not hold* only if moving each difference of means to either end of its 95% interval would not change
    it. The p-value is of as many evaluations' differences as the verdict needs, for their number [Benjamini and Heller
    2008, "Screening for partial conjunction hypotheses", from Bonferroni's], which is stricter than the verdict.

    Args:
        first: `[seeds, iterations]`.
        second: of independent runs, at the same iterations; None: whether `first` is below 0.
    """
    each = [mean_ci(first[at]) if second is None else difference(first[at], second[at]) for at in first.columns]
    mean, half = np.array([e.mean for e in each]), np.array([e.high - e.mean for e in each])
    half = np.nan_to_num(half)
    least, most = float((mean + half < 0).mean()), float((mean - half < 0).mean())
    verdict = HELD if least >= NEARLY else DID_NOT_HOLD if most < NEARLY else UNDECIDED
    return float((mean < 0).mean()), Verdict(verdict, _of_nearly_all(each, verdict))


def _of_nearly_all(each: Sequence[Estimate], verdict: str) -> float | None:
    """The p-value of a verdict on nearly all of these differences; None where single ones have none."""
    needed = math.ceil(NEARLY * len(each))
    holds = verdict == HELD or (verdict == UNDECIDED and sum(e.mean < 0 for e in each) >= needed)
    # That it does not hold takes one more on the other side than may be there.
    needed = needed if holds else len(each) - needed + 1
    p_values = [p_value(e, 0) for e in each if (e.mean < 0) == holds]
    known = sorted(p for p in p_values if p is not None)
    if len(known) < len(p_values):
        return None
    return min(1.0, (len(each) - needed + 1) * known[needed - 1])


def draw_curves(axes: Axes, tables: Mapping[str, pd.DataFrame], colours: Sequence[Any], *, log: bool = True) -> None:
    """Every table by iteration: its mean, with its interval and single runs where they can be told apart."""
    few = len(tables) <= _MOST_BANDS
    for (name, table), colour in zip(tables.items(), colours, strict=True):
        steps = [float(str(step)) for step in table.columns]
        if few:
            style.curve(axes, steps, table.to_numpy(), colour=colour, label=name)
        else:
            axes.plot(steps, table.mean(axis=0), color=colour, linewidth=1.8, label=name)
    axes.set(xlabel="CFR iteration (both players)")
    if log:
        # Intervals of few seeds reach far down; what is drawn of the runs says how far the axis must.
        values = pd.concat([table.stack() if few else table.mean(axis=0) for table in tables.values()])
        axes.set(yscale="log", ylim=(0.7 * values.min(), 1.4 * values.max()))
