"""Deep CFR Fig. 2: Flop Hold'em, Deep CFR against card abstractions, by nodes touched."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import style
from paper_figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, Claim, above, below
from paper_figures.exploitability_curves import label_axis, unless_smoke
from paper_figures.fhp_curves import LABEL, UNIT, draw_references, sampling_error
from paper_figures.frame import curves, values
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, as_ratio, difference, digits, mean_ci

TITLE, GAME = "Deep CFR Fig. 2", "FHP"
SHOWS = "Deep CFR against card abstractions, by nodes touched"
SWEEPS = (
    # 30,000 buckets, coarser, about as many as the later version's figure has clusters, and lossless.
    Sweep(
        "abstractions", "experiment=fhp_abstractions algorithm.buckets=100,1000,10000,30000,100000,null seed=range(3)",
        {"laptop": "algorithm.buckets=100,1000,30000,null", "smoke": "algorithm.buckets=10,null seed=range(1)"},
    ),
    # "Fast" and "slow"; with less time both have fewer traversals. Figure 5 has the same trainings, but for those of
    # night, whose fits grow; there they are apart, so that either can be run first.
    Sweep(
        "deep_cfr", "experiment=fhp_deep_cfr algorithm.traversals=30000,2000000 seed=range(3)",
        {
            "laptop": "algorithm.traversals=10000,100000", "night": "algorithm.traversals=100000",
            "smoke": "algorithm.traversals=300,600 seed=range(1)",
        },
    ),
    Sweep("fast", "experiment=fhp_deep_cfr algorithm.traversals=30000 seed=range(3)", only=("night",)),
)  # fmt: skip

LOSSLESS = math.inf
"""Buckets of the abstraction that has one for every suit-isomorphism class."""

BUCKETS = 30_000
"""Of the abstraction that the paper compares Deep CFR with."""

COMPARABLE = 1.5
"""Up to which factor two exploitabilities are "comparable"; no number is the paper's, this is ours."""

_BUCKET_COLOURS = ("#999999", "#56B4E9", "#0072B2", "#000000")
_DEEP_COLOURS = ("#E69F00", "#D55E00", "#CC79A7")


def abstractions(data: pd.DataFrame) -> list[float]:
    """Numbers of buckets, coarsest first, lossless last."""
    return values(data, "buckets")


def compared(data: pd.DataFrame) -> tuple[list[float], float | None]:
    """The abstraction that Deep CFR is compared with, 30,000 buckets or the finest that has fewer, and coarser ones."""
    coarser = [buckets for buckets in abstractions(data) if buckets <= BUCKETS]
    return coarser[:-1], coarser[-1] if coarser else None


def deep_settings(data: pd.DataFrame) -> list[int]:
    """Deep CFR's traversals per iteration, ascending."""
    return values(data[data.readout == "deep_cfr"], "traversals")


def by_nodes(data: pd.DataFrame, **where: Any) -> pd.DataFrame:
    """Exploitability in mbb/g: `[seeds, mean numbers of nodes touched]`."""
    nodes = curves(data, "nodes_touched", **where).mean(axis=0)
    table = curves(data, "exploitability", **where)
    return table.set_axis(nodes[table.columns].to_list(), axis="columns")


def tabular(data: pd.DataFrame, buckets: float) -> pd.DataFrame:
    """`by_nodes` of Linear MCCFR on an abstraction."""
    return by_nodes(data, readout="es_mccfr", buckets=buckets)


def deep(data: pd.DataFrame, traversals: int) -> pd.DataFrame:
    """`by_nodes` of Deep CFR with so many traversals per iteration."""
    return by_nodes(data, readout="deep_cfr", traversals=traversals)


def _name(buckets: float) -> str:
    return "lossless" if buckets == LOSSLESS else f"{buckets:,} buckets"


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """The paper's plot."""
    figure = Figure(figsize=(9.2, 4.8))
    axes: Axes = figure.subplots()
    for colour, buckets in zip(cycle(_BUCKET_COLOURS), abstractions(data), strict=False):
        _curve(axes, tabular(data, buckets), colour, f"Linear MCCFR, {_name(buckets)}")
    for colour, traversals in zip(cycle(_DEEP_COLOURS), deep_settings(data), strict=False):
        _curve(axes, deep(data, traversals), colour, f"Deep CFR, {traversals:,} traversals")
    axes.set(xscale="log", yscale="log", xlabel="nodes touched", ylabel=LABEL)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    draw_references(axes, data)
    label_axis(axes.yaxis, data.value[data.metric == "exploitability"])
    error = sampling_error(data)
    sampled = f"\nDeep CFR is {error}." if error else ""
    axes.set_title(
        f"Flop Hold'em, scale: {data.scale.iloc[0]}. Mean with 95% CI, thin lines are runs.{sampled}", fontsize=9
    )
    figure.tight_layout()
    return figure


def _curve(axes: Axes, runs: pd.DataFrame, colour: str, label: str) -> None:
    style.curve(axes, [float(x) for x in runs.columns], runs.to_numpy(), colour=colour, label=label, floor=1.0)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    return [
        *_coarse_against_fine(data), *_fewer_nodes(data), *_comparable(data), *_ahead(data), _fast_is_efficient(data)
    ]  # fmt: skip


def _coarse_against_fine(data: pd.DataFrame) -> list[Claim]:
    """The coarsest against the finest at the first evaluation, and against whichever finer one is best at the last."""
    bucket_counts = abstractions(data)
    if len(bucket_counts) < 2:
        return []
    coarse, *finer = bucket_counts
    best = min(finer, key=lambda buckets: tabular(data, buckets).iloc[:, -1].mean())
    first = _log_ratio(data, coarse, finer[-1], 0)
    last = _log_ratio(data, coarse, best, -1)
    how = "log of the ratio of exploitabilities, Welch's interval"
    return [
        Claim(
            "coarse_first", "The coarser abstraction converges faster", "Fig. 2",
            unless_smoke(data, below(first, 0)), first, "log ratio",
            note=f"{_name(coarse)} against {_name(finer[-1])} at the first evaluation; {how}; holds if below 0",
        ),
        Claim(
            "coarse_last", "The coarser abstraction ends more exploitable", "Fig. 2",
            unless_smoke(data, above(last, 0)), last, "log ratio",
            note=f"{_name(coarse)} against {_name(best)}, the best of the finer ones, at the last evaluation; {how}; "
            "holds if above 0",
        ),
    ]  # fmt: skip


def _log_ratio(data: pd.DataFrame, a: float, b: float, evaluation: int) -> Estimate:
    first, second = (np.log(tabular(data, buckets).iloc[:, evaluation]) for buckets in (a, b))
    return difference(first, second)


def _nodes_to_reach(runs: pd.DataFrame, level: float) -> tuple[float, str]:
    """Nodes at which the mean curve first is at `level`, by interpolation of logarithms.

    The word beside it says if that is only a bound: `at most` if the first evaluation is lower already, `more than` if
    none is.
    """
    mean = runs.mean(axis=0)
    x, y = np.log(np.array(mean.index, float)), np.log(mean.to_numpy())
    reached = np.flatnonzero(y <= math.log(level))
    if not len(reached):
        return float(np.exp(x[-1])), "more than"
    i = int(reached[0])
    if i == 0:
        return float(np.exp(x[0])), "at most"
    return float(np.exp(np.interp(math.log(level), [y[i], y[i - 1]], [x[i], x[i - 1]]))), ""


def _fewer_nodes(data: pd.DataFrame) -> list[Claim]:
    if LOSSLESS not in abstractions(data):
        return []
    lossless = tabular(data, LOSSLESS)
    judged = (
        _fewer_nodes_than(lossless, traversals, deep(data, traversals), data) for traversals in deep_settings(data)
    )
    return [
        _unless_behind_coarser(data, claim, traversals)
        for claim, traversals in zip(judged, deep_settings(data), strict=True)
    ]


def _unless_behind_coarser(data: pd.DataFrame, claim: Claim, traversals: int) -> Claim:
    """A claim that held is not testable where a coarser abstraction is less exploitable at as many nodes: what Deep CFR
    is level with, or ahead of, is then behind the coarser one, too."""
    if claim.verdict != HELD:
        return claim
    runs = deep(data, traversals)
    nodes = float(str(runs.columns[-1]))
    for buckets in compared(data)[0]:
        bucketed = tabular(data, buckets)
        if not float(str(bucketed.columns[0])) <= nodes <= float(str(bucketed.columns[-1])):
            continue
        behind = difference(np.log(runs.iloc[:, -1]), np.log(_at(bucketed, nodes)))
        if above(behind, 0) == HELD:
            why = f"Deep CFR is {math.exp(behind.mean):.2g} times as exploitable as {_name(buckets)} at as many nodes"
            return replace(claim, verdict=NOT_TESTABLE, note=f"{claim.note}. {why}")
    return claim


def _fewer_nodes_than(lossless: pd.DataFrame, traversals: int, runs: pd.DataFrame, data: pd.DataFrame) -> Claim:
    """At least ten times the nodes: what the caption's "1-2 orders of magnitude" says at least."""
    used = float(str(runs.columns[-1]))
    needed = [_nodes_to_reach(lossless, level) for level in runs.iloc[:, -1]]
    bounds = {bound for _, bound in needed if bound}
    parts: dict[str, Any] = {
        "id": f"fewer_nodes_{traversals}",
        "statement": f"Deep CFR ({traversals:,} traversals) needs 1 to 2 orders of magnitude fewer nodes than lossless",
        "source": "Fig. 2", "unit": "times the nodes",
    }  # fmt: skip
    how = "nodes at which the mean of lossless has a run's final exploitability, over the run's; holds if above 10"
    if not bounds:
        ratio = mean_ci([nodes / used for nodes, _ in needed])
        return Claim(**parts, verdict=unless_smoke(data, above(ratio, 10)), measured=ratio, note=how)
    note = f"{how}; by run: " + ", ".join(f"{bound} {digits(nodes / used)}".strip() for nodes, bound in needed)
    if bounds == {"more than"} and min(nodes for nodes, _ in needed) > 10 * used:
        verdict = HELD
    elif bounds == {"at most"} and max(nodes for nodes, _ in needed) < 10 * used:
        verdict = DID_NOT_HOLD
    else:
        verdict = NOT_TESTABLE
    return Claim(**parts, verdict=unless_smoke(data, verdict), measured=None, note=note)


def _at(runs: pd.DataFrame, nodes: float) -> pd.Series:
    """Each run's exploitability at a number of nodes, by interpolation of logarithms."""
    x = np.log([float(c) for c in runs.columns])
    return runs.apply(lambda row: float(np.exp(np.interp(math.log(nodes), x, np.log(row.to_numpy(float))))), axis=1)


def _comparable(data: pd.DataFrame) -> list[Claim]:
    """Deep CFR against 30,000 buckets (or the finest that has fewer) at as many nodes."""
    buckets = compared(data)[1]
    if buckets is None:
        return []
    rule = math.log(COMPARABLE), f"log {COMPARABLE:g}, a margin of our own"
    return [
        _below_at_equal_nodes(
            data, traversals, buckets, rule, id=f"comparable_{traversals}", source="Fig. 2",
            statement=f"Deep CFR ({traversals:,} traversals) is comparable to {_name(buckets)} at as many nodes",
        )
        for traversals in deep_settings(data)
    ]  # fmt: skip


def _ahead(data: pd.DataFrame) -> list[Claim]:
    """Deep CFR with the most traversals against all abstractions but the lossless one, which has a claim of its own."""
    most = max(deep_settings(data))
    return [
        _below_at_equal_nodes(
            data, most, buckets, (0.0, "0"), id=f"ahead_{int(buckets)}", source="ours, after Fig. 2",
            statement=f"Deep CFR ({most:,} traversals) is less exploitable than {_name(buckets)} at as many nodes",
        )
        for buckets in abstractions(data)
        if buckets != LOSSLESS
    ]  # fmt: skip


def _below_at_equal_nodes(
    data: pd.DataFrame, traversals: int, buckets: float, rule: tuple[float, str], **about: Any
) -> Claim:
    """That the log of Deep CFR's last exploitability over an abstraction's after as many nodes is below a bound.

    Args:
        rule: the bound, and in words.
    """
    runs, bucketed = deep(data, traversals), tabular(data, buckets)
    nodes = float(str(runs.columns[-1]))
    if not float(str(bucketed.columns[0])) <= nodes <= float(str(bucketed.columns[-1])):
        note = f"{_name(buckets)} has no evaluation near {nodes:.2g} nodes"
        return Claim(**about, verdict=NOT_TESTABLE, measured=None, unit="log ratio", note=note)
    measured = difference(np.log(runs.iloc[:, -1]), np.log(_at(bucketed, nodes)))
    bound, words = rule
    note = (
        f"log of Deep CFR's exploitability over the abstraction's at {nodes:.2g} nodes, Welch's interval; holds if "
        f"below {words}"
    )
    verdict = unless_smoke(data, below(measured, bound))
    claim = Claim(**about, verdict=verdict, measured=measured, unit="log ratio", note=note)
    return _unless_behind_coarser(data, claim, traversals)


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
    ratio = as_ratio(difference(np.log(fast.iloc[:, -1]), np.log(_at(slow, nodes))))
    return Claim(
        "fast_is_efficient", statement, "Sec. 6", unless_smoke(data, below(ratio, 1)), ratio, "ratio",
        note=f"{min(traversal_counts):,} over {max(traversal_counts):,} traversals at {nodes:.2g} nodes, Welch's "
        "interval; holds if below 1",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The end of every curve, and what it cost, as Markdown."""
    rows: list[tuple[str, dict[str, Any]]] = [
        (f"Linear MCCFR, {_name(b)}", {"readout": "es_mccfr", "buckets": b}) for b in abstractions(data)
    ]
    rows += [
        (f"Deep CFR, {t:,} traversals per iteration", {"readout": "deep_cfr", "traversals": t})
        for t in deep_settings(data)
    ]
    lines = [
        f"| | nodes touched | exploitability [{UNIT}] | nodes per second, evaluation included | time per run |",
        "|---|---|---|---|---|",
    ]
    for name, where in rows:
        runs = by_nodes(data, **where)
        seconds = float(curves(data, "wall_seconds", **where).iloc[:, -1].mean())
        nodes = float(str(runs.columns[-1]))
        last = mean_ci(runs.iloc[:, -1])
        lines.append(f"| {name} | {nodes:.2e} | {last} | {nodes / seconds:,.0f} | {seconds:.0f} s |")
    return "\n".join(lines)
