"""D2CFR Fig. 6: Leduc, D2CFR with and without the rectification module: winnings and value loss."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from paper_figures import d2cfr_ablation as ablation
from paper_figures.claims import NOT_TESTABLE, Claim, above, within
from paper_figures.d2cfr_ablation import Version, after, draw_ablation, lower_loss, ours, winnings
from paper_figures.d2cfr_curves import UNIT
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.sweeps import Sweep, against
from repro.evaluation.statistics import mean_ci

TITLE, GAME = "D2CFR Fig. 6", "Leduc"
SHOWS = "D2CFR with and without rectification: winnings, value loss"
# Without rectification; and, ours, with the exact state values, which are play-outs without end.
_WITHOUT = "experiment=d2cfr_leduc algorithm.simulations=null"
# Ours: the weight of the play-outs clipped to [0, 1], which as printed is negative beyond iteration 99.
_CLIPPED = "experiment=d2cfr_leduc algorithm.mixing=clipped"
SWEEPS = (
    Sweep("baselines", f"{_WITHOUT} algorithm.rectification=none,exact seed=range(5)", {"smoke": "seed=range(2)"}),
    Sweep("clipped", f"{_CLIPPED} seed=range(5)", {"smoke": "seed=range(2)"}),
    # Measured against those after the same iterations.
    Sweep(
        "d2cfr",
        "experiment=d2cfr_leduc seed=range(5) evaluation=[exploitability,match] evaluation.match.opponents_at=same "
        + against("without", f"{_WITHOUT} algorithm.rectification=none", "d2cfr")
        + " "
        + against("exact", f"{_WITHOUT} algorithm.rectification=exact", "d2cfr")
        + " "
        + against("clipped", _CLIPPED, "d2cfr"),
        {"smoke": "seed=range(2)"},
    ),
)

WITH = Version("D2CFR with ReM", "#D55E00", ablation.FULL)
OTHERS = {
    "without": Version("D2CFR w/o ReM", "#0072B2", "baselines", {"rectification": "none"}),
    "exact": Version("exact state values (ours)", "#009E73", "baselines", {"rectification": "exact"}),
    "clipped": Version("weights clipped to [0, 1] (ours)", "#CC79A7", "clipped", like_full=True),
}

LEVEL = 20.0
"""Winnings in mA/g up to which two strategies count as equal: half of a win in the paper; the number is ours."""

_CLEAR = 0.9
"""The ratio of losses that a clear gap asks for; the number is ours."""


def draw(data: pd.DataFrame) -> Figure:
    """The paper's two plots."""
    return draw_ablation(data, WITH, OTHERS, "loss/value", "training", "value loss (means of ten iterations)")


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    losses = WITH.curves(data, "loss/value", "training"), OTHERS["without"].curves(data, "loss/value", "training")
    source = "Sec. V.B.2, Fig. 6(b)"
    return [
        lower_loss(
            data, losses, (12, float("inf")), "lower_value_loss",
            "The value loss with rectification is lower since iteration 12", source,
        ),
        lower_loss(
            data, losses, (20, 500), "gap_early", "There is a clear gap from iteration 20 to 500", source, _CLEAR,
        ),
        _rises(data),
        _level(data),
        *ours(data, WITH, OTHERS),
    ]  # fmt: skip


def _rises(data: pd.DataFrame) -> Claim:
    statement, source = "The winnings increase from iteration 100 on", "Sec. V.B.2, Fig. 6(a)"
    won = winnings(data, "without")
    before, later = after(won, 0, 100), after(won, 100, 200)
    if later.empty:
        return Claim("winnings_rise", statement, source, NOT_TESTABLE, None, UNIT, note="no evaluation after it")
    growth = mean_ci(later.mean(axis=1) - before.mean(axis=1))
    return Claim(
        "winnings_rise", statement, source, unless_smoke(data, above(growth, 0)), growth, UNIT,
        note="mean of iterations 101 to 200 minus mean of the first 100, paired by seed; holds if above 0",
    )  # fmt: skip


def _level(data: pd.DataFrame) -> Claim:
    statement, source = "After iteration 200 both win basically the same", "Sec. V.B.2, Fig. 6(a)"
    later = after(winnings(data, "without"), 200)
    if later.empty:
        return Claim("level_after_200", statement, source, NOT_TESTABLE, None, UNIT, note="no evaluation after it")
    won = mean_ci(later.mean(axis=1))
    return Claim(
        "level_after_200", statement, source, unless_smoke(data, within(won, -LEVEL, LEVEL)), won, UNIT,
        note=f"mean of the evaluations after it; holds if its interval is within ±{LEVEL:.0f}, did not hold if outside",
    )  # fmt: skip


def table(data: pd.DataFrame) -> str:
    """Levels at the end, as Markdown."""
    return ablation.table(data, WITH, OTHERS, "loss/value", "training")
