"""D2CFR Fig. 7: Leduc, how many play-outs a state value is made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claims import NOT_TESTABLE, Claim, below
from paper_figures.d2cfr_curves import LABEL, UNIT, draw_curves, late
from paper_figures.exploitability_curves import label_axis, unless_smoke
from paper_figures.frame import curves, values
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import mean_ci

TITLE, GAME = "D2CFR Fig. 7", "Leduc"
SHOWS = "D2CFR with different numbers of play-outs N: exploitability, policy loss"
SWEEPS = (
    # At laptop scale a tenth of the iterations.
    Sweep(
        "", "experiment=d2cfr_leduc algorithm.simulations=50,100,150,200,300,500,800,1000 seed=range(5)",
        {"laptop": "algorithm.iterations=100", "smoke": "algorithm.simulations=50,800 seed=range(2)"},
    ),
)  # fmt: skip

BEST = (800, 1000)
"""The numbers of play-outs that the text finds best in exploitability."""

LOW_LOSS = (300, 800)
"""And in policy loss."""


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
        _any_difference(data),
    ]


def _lowest(data: pd.DataFrame, metric: str, named: tuple[int, ...], name: str, unit: str) -> Claim:
    tables = by_simulations(data, metric)
    metric_name = {"exploitability": "exploitability", "loss/policy": "policy loss"}[metric]
    statement = f"N = {' and '.join(f'{n:,}' for n in named)} have the lowest {metric_name}"
    others = [n for n in tables if n not in named]
    if not others or not any(n in tables for n in named):
        return Claim(name, statement, "Fig. 7", NOT_TESTABLE, None, unit, note="not all of them were run")
    of_named = pd.concat([late(tables[n]) for n in named if n in tables], axis=1).mean(axis=1)
    of_others = pd.concat([late(tables[n]) for n in others], axis=1).mean(axis=1)
    measured = mean_ci(of_named - of_others)
    return Claim(
        name, statement, "Fig. 7", unless_smoke(data, below(measured, 0)), measured, unit,
        note="their mean minus that of the others, over the last quarter of the evaluations, paired by seed; holds if "
        "below 0",
    )  # fmt: skip


def _any_difference(data: pd.DataFrame) -> Claim:
    tables = by_simulations(data, "exploitability")
    few, many = min(tables), max(tables)
    measured = mean_ci(late(tables[many]) - late(tables[few]))
    return Claim(
        "more_is_better", f"N = {many:,} has a lower exploitability than N = {few:,}", "ours",
        unless_smoke(data, below(measured, 0)), measured, UNIT,
        note="paired by seed, over the last quarter of the evaluations; holds if below 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Exploitability and policy loss over the last quarter, and minutes, by number of play-outs, as Markdown."""
    lines = [f"| N | exploitability [{UNIT}] | policy loss | minutes per run |", "|---|---|---|---|"]
    parts = [by_simulations(data, metric) for metric in ("exploitability", "loss/policy", "wall_seconds")]
    for n in parts[0]:
        minutes = parts[2][n].iloc[:, -1].mean() / 60
        lines.append(f"| {n:,} | {mean_ci(late(parts[0][n]))} | {mean_ci(late(parts[1][n]))} | {minutes:.1f} |")
    return "\n".join(lines)
