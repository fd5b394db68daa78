"""What figures of played matches share: winnings by run and iteration, with the errors that single matches have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from repro.evaluation.statistics import Estimate, bands
from repro.figures.claims import within
from repro.figures.frame import curves

UNIT = "mbb/g"
QUANTILE = 1.96
"""Half-width of a match's 95% interval over its standard error."""

ALIKE = 0.5
"""By how much of a margin in a paper ours may differ, either way, and be as large; the number is ours."""


# -- claims ----------------------------------------------------------------------------------------------------------


def as_large(measured: Estimate, paper: float, half: float) -> tuple[str, str]:
    """Verdict and note on "wins as much as the paper says", which is two-sided.

    Args:
        measured: what we measured, in the paper's unit.
        paper: the paper's mean, above 0.
        half: half of the paper's 95% interval.
    """
    beyond = _beyond(measured, paper, half)
    note = (
        f"ours minus the paper's {beyond}, with both intervals; holds if within {ALIKE:.0%} of the paper's, and does "
        "not if wholly outside"
    )
    return within(beyond, -ALIKE * paper, ALIKE * paper), note


def _beyond(measured: Estimate, paper: float, half: float) -> Estimate:
    """Ours minus the paper's number, which has an interval of its own."""
    mean, wide = measured.mean - paper, float(np.hypot(measured.high - measured.mean, half))
    return Estimate(mean, mean - wide, mean + wide, measured.n)


# -- from the data, and drawing --------------------------------------------------------------------------------------


def winnings(data: pd.DataFrame, opponent: str, **where: Any) -> pd.DataFrame:
    """What a read-out wins against an opponent: `[seeds, iterations]`; `where` as in `frame.curves`."""
    return curves(data, f"match/{opponent}/value", **where)


def errors(data: pd.DataFrame, opponent: str, **where: Any) -> pd.DataFrame:
    """Standard errors of `winnings`, from the hands played: `[seeds, iterations]`."""
    return curves(data, f"match/{opponent}/standard_error", **where)


def draw_runs(axes: Axes, won: pd.DataFrame, error: pd.DataFrame, colour: Any, name: str = "") -> None:
    """Every run dashed, with the intervals of its matches, and their mean with its interval over runs."""
    before = f"{name}, " if name else ""
    x = np.array([float(str(c)) for c in won.columns])
    # Runs side by side, so that their bars can be told apart.
    apart = 0.012 * (x.max() - x.min() if len(x) > 1 else 1.0)
    for i, seed in enumerate(won.index):
        axes.errorbar(
            x + apart * (i - (len(won) - 1) / 2), won.loc[seed], yerr=QUANTILE * error.loc[seed], color=colour,
            alpha=0.45, linewidth=0.9, linestyle="--", capsize=2,
            label=None if i else f"{before}runs, 95% CI over hands",
        )  # fmt: skip
    axes.plot(x, won.mean(axis=0), color=colour, linewidth=2, marker="o", label=f"{before}mean of {len(won)} runs")
    if len(won) > 1:
        band = bands(list(won.to_numpy()))
        label = f"{before}95% CI over runs"
        axes.fill_between(x, band["low"], band["high"], color=colour, alpha=0.15, linewidth=0, label=label)
    axes.set_xticks(x)
    axes.axhline(0, color="black", linewidth=0.8)
