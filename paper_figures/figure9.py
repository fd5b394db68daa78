"""D2CFR Fig. 7: Leduc, how many play-outs a state value is made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.d2cfr_curves import LABEL, UNIT, apart, draw_curves, late, share_below
from paper_figures.exploitability_curves import label_axis, unless_smoke
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, above, all_of, below
from repro.figures.frame import curves, values

TITLE, GAME = "D2CFR Fig. 7", "Leduc"
SHOWS = "D2CFR with different numbers of play-outs N: exploitability, policy loss"
SWEEPS = (
    # At paper scale three seeds, some hours of one core less; at laptop scale a tenth of the iterations.
    Sweep(
        "", "experiment=d2cfr_leduc algorithm.simulations=50,100,150,200,300,500,800,1000 seed=range(5)",
        {
            "paper": "seed=range(3)", "laptop": "algorithm.iterations=100",
            "smoke": "algorithm.simulations=50,800 seed=range(2)",
        },
    ),
)  # fmt: skip

BEST = (800, 1000)
"""The numbers of play-outs that the text finds best in exploitability."""

LOW_LOSS = (300, 800)
"""And in policy loss."""
_NAMES = {"exploitability": "exploitability", "loss/policy": "policy loss"}


def by_simulations(data: pd.DataFrame, metric: str) -> dict[int, pd.DataFrame]:
    """Curves of a metric by number of play-outs."""
    return {n: curves(data, metric, readout="d2cfr", simulations=n) for n in values(data, "simulations")}


def draw(data: pd.DataFrame) -> Figure:
    """The paper's two plots."""
    figure = Figure(figsize=(10.0, 4.2))
    left, right = figure.subplots(1, 2)
    for axes, metric, label in ((left, "exploitability", LABEL), (right, "loss/policy", "policy loss")):
        assert isinstance(axes, Axes)
        tables = {f"N = {n:,}": table for n, table in by_simulations(data, metric).items()}
        colours = list(colormaps["viridis"](np.linspace(0, 0.9, len(tables))))
        draw_curves(axes, tables, colours, log=axes is left)
        axes.set(ylabel=label)
    label_axis(left.yaxis, data.value[data.metric == "exploitability"])
    right.set_ylim(bottom=0)
    right.legend(fontsize=7)
    runs, scale = data.seed.nunique(), data.scale.iloc[0]
    figure.suptitle(f"D2CFR in Leduc, means over {runs} runs (intervals: see the table), scale: {scale}")
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    return [
        _lowest(data, "exploitability", BEST, "lowest_exploitability", UNIT),
        _lowest(data, "loss/policy", LOW_LOSS, "lowest_policy_loss", "loss"),
        _below_except(data, "exploitability", UNIT, 1000, (350, 680)),
        _below_except(data, "loss/policy", "loss", 300, (150, 550)),
        _above_then(data, "exploitability", UNIT, 1000, (350, 680)),
        _above_then(data, "loss/policy", "loss", 300, (150, 550)),
        _any_difference(data),
    ]


def _lowest(data: pd.DataFrame, metric: str, named: tuple[int, ...], name: str, unit: str) -> Claim:
    tables = by_simulations(data, metric)
    statement = f"N = {' and '.join(f'{n:,}' for n in named)} have the lowest {_NAMES[metric]}"
    others = [n for n in tables if n not in named]
    ran = [n for n in named if n in tables]
    if not others or not ran:
        return Claim(name, statement, "Fig. 7", NOT_TESTABLE, None, unit, note="not all of them were run")
    pairs = {(n, other): apart(late(tables[n]), late(tables[other])) for n in ran for other in others}
    verdict = all_of([below(difference, 0) for difference in pairs.values()])
    (n, other), worst = max(pairs.items(), key=lambda pair: pair[1].mean)
    return Claim(
        name, statement, "Fig. 7", unless_smoke(data, verdict), worst, unit,
        note=f"N = {n:,} minus N = {other:,}, the worst of {len(pairs)} pairs, over the last quarter of the "
        "evaluations, Welch's intervals; holds if every pair is below 0, and does not if one is above",
    )  # fmt: skip


def _with_800(data: pd.DataFrame, metric: str, other: int) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Curves with 800 play-outs and with another number; None if not both were run."""
    tables = by_simulations(data, metric)
    return (tables[800], tables[other]) if tables.keys() >= {800, other} else None


def _below_except(data: pd.DataFrame, metric: str, unit: str, other: int, exception: tuple[int, int]) -> Claim:
    """That 800 play-outs are better than another number but for some iterations."""
    pair, (first, last) = _with_800(data, metric, other), exception
    statement = f"N = 800 has a lower {_NAMES[metric]} than N = {other:,} except from iteration {first} to {last}"
    name = f"below_{other}_except"
    if pair is None:
        return Claim(name, statement, "Sec. V.B.2", NOT_TESTABLE, None, unit, note="not all of them were run")
    then = [step for step in pair[0].columns if not first <= float(str(step)) <= last]
    ours, theirs = (table[then] for table in pair)
    measured = apart(ours.mean(axis=1), theirs.mean(axis=1))
    share, nearly = share_below(ours, theirs)
    return Claim(
        name, statement, "Sec. V.B.2", unless_smoke(data, all_of([below(measured, 0), nearly])), measured, unit,
        note=f"mean of the other evaluations, Welch's interval; lower at {share:.0%} of them in the mean over seeds; "
        "holds if the mean is below 0 and so are nearly all",
    )  # fmt: skip


def _above_then(data: pd.DataFrame, metric: str, unit: str, other: int, exception: tuple[int, int]) -> Claim:
    """That 800 play-outs are worse than another number in the iterations that the text excepts."""
    pair, (first, last) = _with_800(data, metric, other), exception
    statement = f"N = 800 has a higher {_NAMES[metric]} than N = {other:,} from iteration {first} to {last}"
    if pair is None or float(str(pair[0].columns[-1])) < last:
        why = f"runs end before iteration {last}" if pair else "not all of them were run"
        return Claim(f"above_{other}_then", statement, "Sec. V.B.2", NOT_TESTABLE, None, unit, note=why)
    then = [step for step in pair[0].columns if first <= float(str(step)) <= last]
    measured = apart(*(table[then].mean(axis=1) for table in pair))
    return Claim(
        f"above_{other}_then", statement, "Sec. V.B.2", unless_smoke(data, above(measured, 0)), measured, unit,
        note="our reading of the exception; mean of these evaluations, Welch's interval; holds if above 0",
    )  # fmt: skip


def _any_difference(data: pd.DataFrame) -> Claim:
    tables = by_simulations(data, "exploitability")
    few, many = min(tables), max(tables)
    measured = apart(late(tables[many]), late(tables[few]))
    return Claim(
        "more_is_better", f"N = {many:,} has a lower exploitability than N = {few:,}", "ours",
        unless_smoke(data, below(measured, 0)), measured, UNIT,
        note="over the last quarter of the evaluations, Welch's interval; holds if below 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Exploitability and policy loss over the last quarter, by number of play-outs, as Markdown."""
    levels, losses = (by_simulations(data, metric) for metric in ("exploitability", "loss/policy"))
    rows = [f"| {n:,} | {mean_ci(late(levels[n]))} | {mean_ci(late(losses[n]))} |" for n in levels]
    return "\n".join([f"| N | exploitability [{UNIT}] | policy loss |", "|---|---|---|", *rows])
