"""D2CFR Fig. 6: Leduc, D2CFR with and without the rectification module: winnings and value loss."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from paper_figures import d2cfr_ablation as ablation
from paper_figures.d2cfr_ablation import Version, after, draw_ablation, lower_loss, ours, winnings
from paper_figures.d2cfr_curves import UNIT, apart
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.sweeps import Sweep, against
from repro.evaluation.statistics import mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, above, below, within
from repro.figures.frame import curves

TITLE, GAME = "D2CFR Fig. 6", "Leduc"
SHOWS = "D2CFR with and without rectification: winnings, value loss"
# Without rectification; and, ours, with the exact state values, which are play-outs without end.
_WITHOUT = "experiment=d2cfr_leduc algorithm.simulations=null"
# Ours: the weight of the play-outs clipped to [0, 1], which as printed is negative beyond iteration 99.
_CLIPPED = "experiment=d2cfr_leduc algorithm.mixing=clipped"
# The second reading: the values of actions that were sampled are rectified, not those that strategies are matched to.
_SAMPLES = "experiment=d2cfr_leduc algorithm.rectified=samples"
_SAME_TIME = "evaluation=[exploitability,match] evaluation.match.opponents_at=same"
_AGAINST_WITHOUT = against("without", f"{_WITHOUT} algorithm.rectification=none", "d2cfr")
SWEEPS = (
    Sweep("baselines", f"{_WITHOUT} algorithm.rectification=none,exact seed=range(5)", {"smoke": "seed=range(2)"}),
    Sweep("clipped", f"{_CLIPPED} seed=range(5)", {"smoke": "seed=range(2)"}),
    # Measured against those after the same iterations.
    Sweep("samples", f"{_SAMPLES} seed=range(5) {_SAME_TIME} {_AGAINST_WITHOUT}", {"smoke": "seed=range(2)"}),
    Sweep(
        "d2cfr",
        f"experiment=d2cfr_leduc seed=range(5) {_SAME_TIME} {_AGAINST_WITHOUT} "
        + against("exact", f"{_WITHOUT} algorithm.rectification=exact", "d2cfr")
        + " "
        + against("clipped", _CLIPPED, "d2cfr")
        + " "
        + against("samples", _SAMPLES, "d2cfr"),
        {"smoke": "seed=range(2)"},
    ),
    # Where the weight of play-outs is large, with many runs.
    Sweep("early_with", "experiment=d2cfr_leduc algorithm.iterations=100 seed=range(20)", only=("paper",)),
    Sweep(
        "early_without",
        f"{_WITHOUT} algorithm.rectification=none algorithm.iterations=100 seed=range(20)",
        only=("paper",),
    ),
)

WITH = Version("D2CFR with ReM", "#D55E00", ablation.FULL)
OTHERS = {
    "without": Version("D2CFR w/o ReM", "#0072B2", "baselines", {"rectification": "none"}),
    "exact": Version("exact state values (ours)", "#009E73", "baselines", {"rectification": "exact"}),
    "clipped": Version("weights clipped to [0, 1] (ours)", "#CC79A7", "clipped", like_full=True),
    "samples": Version("samples rectified (second reading)", "#E69F00", "samples"),
}
EARLY = "early_with", "early_without"

LEVEL = 20.0
"""Winnings in mA/g up to which two strategies count as equal: half of a win in the paper; the number is ours."""

_CLEAR = 0.9
"""The ratio of losses that a clear gap asks for; the number is ours."""


def draw(data: pd.DataFrame) -> Figure:
    """The paper's two plots."""
    return draw_ablation(data, WITH, _others(data), "loss/value", "training", "value loss (means of ten iterations)")


def _others(data: pd.DataFrame) -> dict[str, Version]:
    return {opponent: version for opponent, version in OTHERS.items() if version.was_run(data)}


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged in both readings of what is rectified, where both were run."""
    return [
        *_of_the_text(data, WITH, ""),
        *(_of_the_text(data, OTHERS["samples"], "samples_") if OTHERS["samples"].was_run(data) else ()),
        *ours(data, WITH, _others(data)),
        _early(data),
        *_early_losses(data),
    ]


def _of_the_text(data: pd.DataFrame, version: Version, prefix: str) -> list[Claim]:
    """What the text says of rectification, of one reading of it."""
    losses = version.curves(data, "loss/value", "training"), OTHERS["without"].curves(data, "loss/value", "training")
    reading, source = " (of the samples)" if prefix else "", "Sec. V.B.2, Fig. 6(b)"
    return [
        lower_loss(
            data, losses, (12, float("inf")), f"{prefix}lower_value_loss",
            f"The value loss with rectification{reading} is lower since iteration 12", source,
        ),
        lower_loss(
            data, losses, (20, 500), f"{prefix}gap_early",
            f"There is a clear gap from iteration 20 to 500{reading}", source, _CLEAR,
        ),
        _rises(data, version, prefix, reading),
        _level(data, version, prefix, reading),
    ]  # fmt: skip


def _rises(data: pd.DataFrame, version: Version, prefix: str, reading: str) -> Claim:
    name, source = f"{prefix}winnings_rise", "Sec. V.B.2, Fig. 6(a)"
    statement = f"The winnings{reading} increase from iteration 100 on"
    won = winnings(data, "without", version.sweep)
    before, later = after(won, 0, 100), after(won, 100, 200)
    if later.empty:
        return Claim(name, statement, source, NOT_TESTABLE, None, UNIT, note="no evaluation after it")
    growth = mean_ci(later.mean(axis=1) - before.mean(axis=1))
    return Claim(
        name, statement, source, unless_smoke(data, above(growth, 0)), growth, UNIT,
        note="mean of iterations 101 to 200 minus mean of the first 100, paired by seed; holds if above 0",
    )  # fmt: skip


def _level(data: pd.DataFrame, version: Version, prefix: str, reading: str) -> Claim:
    name, source = f"{prefix}level_after_200", "Sec. V.B.2, Fig. 6(a)"
    statement = f"After iteration 200 both win basically the same{reading}"
    later = after(winnings(data, "without", version.sweep), 200)
    if later.empty:
        return Claim(name, statement, source, NOT_TESTABLE, None, UNIT, note="no evaluation after it")
    won = mean_ci(later.mean(axis=1))
    return Claim(
        name, statement, source, unless_smoke(data, within(won, -LEVEL, LEVEL)), won, UNIT,
        note=f"mean of the evaluations after it; holds if its interval is within ±{LEVEL:.0f}, did not hold if outside",
    )  # fmt: skip


def _early(data: pd.DataFrame) -> Claim:
    """Where play-outs have weight."""
    name, statement = "less_exploitable_early", f"{WITH.name} is less exploitable than without in iterations 10 to 100"
    first, second = (curves(data, "exploitability", readout="d2cfr", sweep=sweep) for sweep in EARLY)
    if first.empty or second.empty:
        return Claim(name, statement, "ours", NOT_TESTABLE, None, UNIT, note="not run at this scale")
    measured = apart(first.mean(axis=1), second.mean(axis=1))
    return Claim(
        name,
        statement,
        "ours",
        unless_smoke(data, below(measured, 0)),
        measured,
        UNIT,
        note=f"mean of the evaluations there, {len(first)} runs each, Welch's interval; holds if below 0",
    )


def _early_losses(data: pd.DataFrame) -> list[Claim]:
    """The value loss before the iteration that the text names, and after it, of runs that the other claims are not of:
    among those it was seen that it may be lower."""
    seen = data[data.sweep == WITH.sweep].seed.unique()
    tables = (curves(data, "loss/value", readout="training", sweep=sweep) for sweep in EARLY)
    first, second = (table[~table.index.isin(seen)] for table in tables)
    if first.empty or second.empty:
        first, second = first.iloc[:0, :0], second.iloc[:0, :0]
    return [
        lower_loss(
            data, (first, second), window, f"lower_value_loss_{window[0]}_to_{window[1]}",
            f"The value loss with rectification is lower from iteration {window[0]} to {window[1]}, in further runs",
            "ours, after Sec. V.B.2",
        )
        for window in ((2, 11), (12, 100))
    ]  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Levels at the end, as Markdown."""
    return ablation.table(data, WITH, _others(data), "loss/value", "training")
