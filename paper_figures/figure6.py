"""D2CFR Fig. 4: Leduc, exploitability of D2CFR, Deep CFR and SD-CFR."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import style
from paper_figures.d2cfr_curves import LABEL, NEARLY, UNIT, apart, draw_curves, how, late, share_below
from paper_figures.exploitability_curves import label_axis, unless_smoke
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import digits, mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, above, below
from repro.figures.frame import curves

TITLE, GAME = "D2CFR Fig. 4", "Leduc"
SHOWS = "exploitability of D2CFR, Deep CFR and SD-CFR"
SWEEPS = (
    Sweep("d2cfr", "experiment=d2cfr_leduc seed=range(5)", {"smoke": "seed=range(2)"}),
    Sweep("deep_cfr", "experiment=deep_cfr_leduc seed=range(5)", {"smoke": "seed=range(2)"}),
)

READOUTS = {"d2cfr": "D2CFR", "deep_cfr": "Deep CFR", "sd_cfr": "SD-CFR"}
_COLOURS = ("#009E73", style.COLOURS["deep_cfr"], style.COLOURS["sd_cfr"])

_CROSSING = 170
"""Iteration after which SD-CFR is below Deep CFR, says the text."""


def _exploitability(data: pd.DataFrame, readout: str) -> pd.DataFrame:
    """`[seeds, iterations]` in mA/g."""
    return curves(data, "exploitability", readout=readout)


def draw(data: pd.DataFrame) -> Figure:
    """The paper's plot, with intervals over runs."""
    figure = Figure(figsize=(6.4, 4.2))
    axes: Axes = figure.subplots()
    draw_curves(axes, {name: _exploitability(data, readout) for readout, name in READOUTS.items()}, _COLOURS)
    axes.set(ylabel=LABEL)
    label_axis(axes.yaxis, data.value[data.metric == "exploitability"])
    axes.set_title(f"Leduc, {data.seed.nunique()} runs, scale: {data.scale.iloc[0]}")
    axes.legend(fontsize=8)
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    faster, exception = "D2CFR converges faster than Deep CFR", "D2CFR is not below Deep CFR from iteration 110 to 120"
    before = f"SD-CFR is not below Deep CFR before iteration {_CROSSING}"
    return [
        _lower(data, "deep_cfr"), _lower(data, "sd_cfr"),
        _window(data, "faster_than_deep_cfr", faster, "Abstract", (0, 100), ("d2cfr", 1)),
        _nearly_everywhere(data),
        _window(data, "exception", exception, "Sec. V.B", (109, 120), ("d2cfr", -1)),
        _sd_cfr_after_crossing(data),
        _window(data, "sd_cfr_not_below", before, "Sec. V.B", (0, _CROSSING - 1), ("sd_cfr", -1)),
    ]  # fmt: skip


def _window(
    data: pd.DataFrame, name: str, statement: str, source: str, window: tuple[int, int], which: tuple[str, int]
) -> Claim:
    """That a curve is below Deep CFR's, or, with the sign -1, not, in the mean of the evaluations of a window."""
    readout, sign = which
    ours, deep_cfr = _exploitability(data, readout), _exploitability(data, "deep_cfr")
    then = [step for step in ours.columns if window[0] < float(str(step)) <= window[1]]
    if not then:
        return Claim(name, statement, source, NOT_TESTABLE, None, UNIT, note="no evaluation then")
    paired = readout == "sd_cfr"
    measured = apart(ours[then].mean(axis=1), deep_cfr[then].mean(axis=1), paired=paired)
    verdict = below(measured, 0) if sign > 0 else above(measured, 0)
    return Claim(
        name, statement, source, unless_smoke(data, verdict), measured, UNIT,
        note=f"{READOUTS[readout]} minus Deep CFR, mean of the evaluations from {window[0] + 1} to {window[1]}, "
        f"{how(paired=paired)}; holds if {'below' if sign > 0 else 'above'} 0",
    )  # fmt: skip


def _lower(data: pd.DataFrame, other: str) -> Claim:
    measured = apart(late(_exploitability(data, "d2cfr")), late(_exploitability(data, other)))
    return Claim(
        f"below_{other}", f"D2CFR reaches a lower exploitability than {READOUTS[other]}", "Sec. V.B, Fig. 4",
        unless_smoke(data, below(measured, 0)), measured, UNIT,
        note="difference over the last quarter of the evaluations, Welch's interval; holds if below 0",
    )  # fmt: skip


def _nearly_everywhere(data: pd.DataFrame) -> Claim:
    share, verdict = share_below(_exploitability(data, "d2cfr"), _exploitability(data, "deep_cfr"))
    return Claim(
        "nearly_everywhere", "D2CFR is below Deep CFR at nearly every iteration", "Sec. V.B, Fig. 4",
        unless_smoke(data, verdict), None, "",
        note=f"below at {share:.0%} of the evaluations, in the mean over seeds; {NEARLY:.0%} is asked for, by us, and "
        "decided if it is the same with every difference at either end of its 95% interval",
    )  # fmt: skip


def _sd_cfr_after_crossing(data: pd.DataFrame) -> Claim:
    difference = _exploitability(data, "sd_cfr") - _exploitability(data, "deep_cfr")
    after = [step for step in difference.columns if float(str(step)) > _CROSSING]
    statement, source = f"SD-CFR is below Deep CFR after iteration {_CROSSING}", "Sec. V.B"
    if not after:
        return Claim("sd_cfr_below", statement, source, NOT_TESTABLE, None, UNIT, note="no evaluation after it")
    measured = mean_ci(difference[after].mean(axis=1))
    return Claim(
        "sd_cfr_below", statement, source, unless_smoke(data, below(measured, 0)), measured, UNIT,
        note="mean difference of the evaluations after it, of the same value networks: paired by seed; holds if below "
        "0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------

_ROWS = 10


def table(data: pd.DataFrame) -> str:
    """Exploitability at some ten iterations, and the nodes that each algorithm touched, as Markdown."""
    tables = {name: _exploitability(data, readout) for readout, name in READOUTS.items()}
    lines = [f"| iteration | {' | '.join(f'{n} [{UNIT}]' for n in tables)} |", "|---|" + "---|" * len(tables)]
    steps = list(next(iter(tables.values())).columns)
    shown = steps[:: -max(1, len(steps) // _ROWS)][::-1]
    lines += [f"| {step} | {' | '.join(str(mean_ci(t[step])) for t in tables.values())} |" for step in shown]
    cost = ["| run | nodes touched |", "|---|---|"]
    for readout, name in READOUTS.items():
        nodes = curves(data, "nodes_touched", readout=readout).iloc[:, -1].mean()
        cost.append(f"| {name} | {digits(nodes)} |")
    return "\n".join(lines) + "\n\n" + "\n".join(cost)
