"""Deep CFR Fig. 2: Flop Hold'em, Deep CFR against card abstractions, by nodes touched."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.abstractions import (
    Contender,
    abstractions,
    at_nodes,
    by_nodes,
    draw_by_nodes,
    draw_tabular,
    judged,
    named,
)
from paper_figures.exploitability_curves import label_axis, unless_smoke
from paper_figures.fhp_curves import LABEL, UNIT, draw_references, sampling_error, what_is_drawn
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import as_ratio, difference, mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, below
from repro.figures.frame import curves, values

TITLE, GAME = "Deep CFR Fig. 2", "FHP"
SHOWS = "Deep CFR against card abstractions, by nodes touched"
_LONGER = "longer"
SWEEPS = (
    # 30,000 buckets, coarser, about as many as the later version's figure has clusters, and lossless.
    Sweep(
        "abstractions", "experiment=fhp_abstractions algorithm.buckets=100,1000,10000,30000,100000,null seed=range(3)",
        {
            "laptop": "algorithm.buckets=100,1000,30000,null", "gpu": "device=cpu",
            "smoke": "algorithm.buckets=10,null seed=range(1)",
        },
    ),
    # "Fast" and "slow"; with less time both have fewer traversals, and at night, where fits take hours, there is one.
    # Figure 5 has the same trainings, but for those of night, whose fits grow.
    Sweep(
        "deep_cfr", "experiment=fhp_deep_cfr algorithm.traversals=30000,2000000 seed=range(3)",
        {
            "laptop": "algorithm.traversals=10000,100000", "gpu": "algorithm.traversals=100000 device=cuda",
            "night": "algorithm.traversals=100000", "smoke": "algorithm.traversals=300,600 seed=range(1)",
        },
    ),
    # How low it gets in half as many iterations again.
    Sweep(
        _LONGER, "experiment=fhp_deep_cfr algorithm.traversals=100000 algorithm.iterations=240 seed=1",
        only=("night",), if_asked=("night",),
    ),
)  # fmt: skip
KEYS = ("algorithm.traversals",)

GOAL = 100.0
"""What longer runs are held against, in mbb/g: a goal of our own."""

_DEEP_COLOURS, _LONGER_COLOUR = ("#E69F00", "#D55E00"), "#CC79A7"


def deep_settings(data: pd.DataFrame) -> list[int]:
    """Deep CFR's traversals per iteration, ascending."""
    return values(_usual(data[data.readout == "deep_cfr"]), "traversals")


def deep(data: pd.DataFrame, traversals: int) -> pd.DataFrame:
    """`by_nodes` of Deep CFR with so many traversals per iteration; of longer runs `longer`."""
    return by_nodes(_usual(data), readout="deep_cfr", traversals=traversals)


def _usual(data: pd.DataFrame) -> pd.DataFrame:
    """The data without longer runs."""
    return data[data.sweep != _LONGER]


def longer(data: pd.DataFrame) -> pd.DataFrame:
    """The data of longer runs alone; no rows where there are none."""
    return data[data.sweep == _LONGER]


def _how_long(data: pd.DataFrame) -> str:
    return f"{data.step[data.metric == 'exploitability'].max():,} iterations"


def _how_many(data: pd.DataFrame) -> str:
    return _in_words(data.seed.nunique())


def _in_words(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """The paper's plot."""
    figure = Figure(figsize=(9.2, 4.8))
    axes: Axes = figure.subplots()
    draw_tabular(axes, data)
    for colour, traversals in zip(cycle(_DEEP_COLOURS), deep_settings(data), strict=False):
        runs = deep(data, traversals)
        draw_by_nodes(axes, runs, colour, f"Deep CFR, {traversals:,} traversals ({_in_words(len(runs))})")
    if not (late := longer(data)).empty:
        label = f"Deep CFR, {_how_long(late)} ({_how_many(late)})"
        draw_by_nodes(axes, by_nodes(late, readout="deep_cfr"), _LONGER_COLOUR, label)
    axes.set(xscale="log", yscale="log", xlabel="nodes touched", ylabel=LABEL)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    draw_references(axes, data)
    label_axis(axes.yaxis, data.value[data.metric == "exploitability"])
    error = sampling_error(data)
    sampled = f"\nDeep CFR is {error}." if error else ""
    axes.set_title(f"Flop Hold'em, scale: {data.scale.iloc[0]}. {what_is_drawn(data)}{sampled}", fontsize=9)
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    contenders = [Contender(f"Deep CFR ({t:,} traversals)", f"_{t}", deep(data, t)) for t in deep_settings(data)]
    late = longer(data)
    return [*judged(data, contenders, "Fig. 2"), _fast_is_efficient(data), *([] if late.empty else [_how_low(late)])]


def _how_low(data: pd.DataFrame) -> Claim:
    """Of longer runs; one alone decides nothing."""
    last = mean_ci(by_nodes(data, readout="deep_cfr").iloc[:, -1])
    return Claim(
        "how_low", f"Deep CFR is less than {GOAL:g} {UNIT} exploitable after {_how_long(data)}", "ours",
        unless_smoke(data, below(last, GOAL)), last, UNIT,
        note=f"on all flops; {_how_many(data)}; holds if below {GOAL:g}, a goal of our own",
    )  # fmt: skip


def _fast_is_efficient(data: pd.DataFrame) -> Claim:
    traversal_counts = deep_settings(data)
    statement = "Fewer traversals per iteration are more sample-efficient, but take more training"
    if len(traversal_counts) < 2:
        return Claim("fast_is_efficient", statement, "Sec. 6", NOT_TESTABLE, None, "", note="needs two settings")
    fast, slow = (deep(data, traversals) for traversals in (min(traversal_counts), max(traversal_counts)))
    nodes = float(str(fast.columns[-1]))
    if nodes < float(str(slow.columns[0])):
        note = "the slower setting has no evaluation at so few nodes"
        return Claim("fast_is_efficient", statement, "Sec. 6", NOT_TESTABLE, None, "", note=note)
    ratio = as_ratio(difference(np.log(fast.iloc[:, -1]), np.log(at_nodes(slow, nodes))))
    return Claim(
        "fast_is_efficient", statement, "Sec. 6", unless_smoke(data, below(ratio, 1)), ratio, "ratio",
        note=f"{min(traversal_counts):,} over {max(traversal_counts):,} traversals at {nodes:.2g} nodes, Welch's "
        "interval; holds if below 1",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The end of every curve, and what it cost, as Markdown."""
    usual, late = _usual(data), longer(data)
    rows: list[tuple[str, pd.DataFrame, dict[str, Any]]] = [
        *((f"Linear MCCFR, {named(b)}", usual, {"readout": "es_mccfr", "buckets": b}) for b in abstractions(data)),
        *(
            (f"Deep CFR, {t:,} traversals per iteration", usual, {"readout": "deep_cfr", "traversals": t})
            for t in deep_settings(data)
        ),
    ]
    if not late.empty:
        rows.append((f"Deep CFR, {_how_long(late)} ({_how_many(late)})", late, {"readout": "deep_cfr"}))
    lines = [
        f"| | nodes touched | exploitability [{UNIT}] | nodes per second, evaluation included | time per run |",
        "|---|---|---|---|---|",
    ]
    for name, of, where in rows:
        runs = by_nodes(of, **where)
        seconds = float(curves(of, "wall_seconds", **where).iloc[:, -1].mean())
        nodes = float(str(runs.columns[-1]))
        last = mean_ci(runs.iloc[:, -1])
        lines.append(f"| {name} | {nodes:.2e} | {last} | {nodes / seconds:,.0f} | {seconds:.0f} s |")
    return "\n".join(lines)
