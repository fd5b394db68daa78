"""Deep CFR against card abstractions, by nodes touched: what Deep CFR's Fig. 2 claims, in whichever Flop Hold'em.

Curves are of exploitability in mbb/g, `[seeds, mean numbers of nodes touched]`. Runs of both share nothing, so that
intervals of differences are Welch's.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from paper_figures import style
from paper_figures.exploitability_curves import unless_smoke
from repro.evaluation.statistics import Estimate, difference, digits, mean_ci
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED, Claim, Verdict, above, below
from repro.figures.frame import curves, values

LOSSLESS = math.inf
"""Buckets of the abstraction that has one for every suit-isomorphism class."""

BUCKETS = 30_000
"""Of the abstraction that the paper compares Deep CFR with."""

COMPARABLE = 1.5
"""Up to which factor two exploitabilities are "comparable"; no number is the paper's, this is ours."""

_COLOURS = ("#999999", "#56B4E9", "#009E73", "#000000", "#882255", "#332288")
"""None of them an algorithm's of `paper_figures.style`, beside which these are drawn."""
_FROM = (1e3, 1e4, 3e4, 1e5, LOSSLESS)
"""Buckets from which on an abstraction has the next of these, so that one has the same colour at every scale."""


@dataclass(frozen=True)
class Contender:
    """Deep CFR in one setting.

    Attributes:
        name: as sentences say it.
        suffix: ends the identities of its claims.
        runs: its curves.
    """

    name: str
    suffix: str
    runs: pd.DataFrame

    @property
    def nodes(self) -> float:
        """Touched in all."""
        return float(str(self.runs.columns[-1]))


# -- from the data ---------------------------------------------------------------------------------------------------


def abstractions(data: pd.DataFrame) -> list[float]:
    """Numbers of buckets, coarsest first, lossless last; none where none was run."""
    return values(data[data.readout == "es_mccfr"], "buckets") if "buckets" in data else []


def compared(data: pd.DataFrame) -> float | None:
    """The abstraction that Deep CFR is compared with: 30,000 buckets, or the finest that has fewer."""
    return max((buckets for buckets in abstractions(data) if buckets <= BUCKETS), default=None)


def by_nodes(data: pd.DataFrame, **where: Any) -> pd.DataFrame:
    """The curves of a read-out; `where` names columns and values, as for `repro.figures.frame.curves`."""
    nodes = curves(data, "nodes_touched", **where).mean(axis=0)
    table = curves(data, "exploitability", **where)
    return table.set_axis(nodes[table.columns].to_list(), axis="columns")


def tabular(data: pd.DataFrame, buckets: float) -> pd.DataFrame:
    """`by_nodes` of Linear MCCFR on an abstraction."""
    return by_nodes(data, readout="es_mccfr", buckets=buckets)


def named(buckets: float) -> str:
    """An abstraction, in words."""
    return "lossless" if buckets == LOSSLESS else f"{buckets:,.0f} buckets"


def at_nodes(runs: pd.DataFrame, nodes: float) -> pd.Series:
    """Each run's exploitability at a number of nodes between its ends, by interpolation of logarithms."""
    x = np.log([float(c) for c in runs.columns])
    return runs.apply(lambda row: float(np.exp(np.interp(math.log(nodes), x, np.log(row.to_numpy(float))))), axis=1)


def draw_tabular(axes: Axes, data: pd.DataFrame) -> None:
    """A curve for each abstraction."""
    for buckets in abstractions(data):
        colour = _COLOURS[bisect(_FROM, buckets)]
        draw_by_nodes(axes, tabular(data, buckets), colour, f"Linear MCCFR, {named(buckets)}")


def draw_by_nodes(axes: Axes, runs: pd.DataFrame, colour: str, label: str) -> None:
    """One set of curves over nodes."""
    style.curve(axes, [float(x) for x in runs.columns], runs.to_numpy(), colour=colour, label=label, floor=1.0)


# -- claims ----------------------------------------------------------------------------------------------------------


def judged(data: pd.DataFrame, contenders: Sequence[Contender], source: str) -> list[Claim]:
    """The claims of Deep CFR's Fig. 2, and that Deep CFR is ahead.

    Args:
        contenders: at least one, by traversals, fewest first; the last is held against every abstraction.
        source: where the claims are from.
    """
    buckets, has_lossless = compared(data), LOSSLESS in abstractions(data)
    return [
        *_coarse_against_fine(data, source),
        *(_fewer_nodes_than_lossless(data, contender, source) for contender in contenders if has_lossless),
        *(_comparable(data, contender, buckets, source) for contender in contenders if buckets is not None),
        *_ahead(data, contenders[-1], source),
    ]


def _coarse_against_fine(data: pd.DataFrame, source: str) -> list[Claim]:
    """The coarsest against the finest at the first evaluation, and against whichever finer one is best at the last."""
    bucket_counts = abstractions(data)
    if len(bucket_counts) < 2:
        return []
    coarse, *finer = bucket_counts
    best = min(finer, key=lambda buckets: tabular(data, buckets).iloc[:, -1].mean())
    first = _log_ratio(data, coarse, finer[-1], 0)
    last = _log_ratio(data, coarse, best, -1)
    ends = above(last, 0)
    # The best of several is below the rest by chance, too: its p-value counts as many times (Bonferroni).
    p = None if ends.p is None else min(1.0, len(finer) * ends.p)
    ends = Verdict(UNDECIDED if ends == HELD and p is not None and p > 0.05 else ends, p)
    how = "log of the ratio of exploitabilities, Welch's interval"
    return [
        Claim(
            "coarse_first", "The coarser abstraction converges faster", source,
            unless_smoke(data, below(first, 0)), first, "log ratio",
            note=f"{named(coarse)} against {named(finer[-1])} at the first evaluation; {how}; holds if below 0",
        ),
        Claim(
            "coarse_last", "The coarser abstraction ends more exploitable", source,
            unless_smoke(data, ends), last, "log ratio",
            note=f"{named(coarse)} against {named(best)}, the best of the finer ones, at the last evaluation; {how}; "
            "holds if above 0, and the p-value times the number of finer ones, the best of which is taken, below 0.05",
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


def _fewer_nodes_than_lossless(data: pd.DataFrame, contender: Contender, source: str) -> Claim:
    """At least ten times the nodes: what the caption's "1-2 orders of magnitude" says at least."""
    lossless = tabular(data, LOSSLESS)
    needed = [_nodes_to_reach(lossless, level) for level in contender.runs.iloc[:, -1]]
    bounds = {bound for _, bound in needed if bound}
    parts: dict[str, Any] = {
        "id": f"fewer_nodes{contender.suffix}",
        "statement": f"{contender.name} needs 1 to 2 orders of magnitude fewer nodes than lossless",
        "source": source, "unit": "times the nodes",
    }  # fmt: skip
    how = "nodes at which the mean of lossless has a run's final exploitability, over the run's; holds if above 10"
    if not bounds:
        ratio = mean_ci([nodes / contender.nodes for nodes, _ in needed])
        claim = Claim(**parts, verdict=unless_smoke(data, above(ratio, 10)), measured=ratio, note=how)
        return _unless_behind_coarser(data, claim, contender, LOSSLESS)
    by_run = ", ".join(f"{bound} {digits(nodes / contender.nodes)}".strip() for nodes, bound in needed)
    if bounds == {"more than"} and min(nodes for nodes, _ in needed) > 10 * contender.nodes:
        verdict = HELD
    elif bounds == {"at most"} and max(nodes for nodes, _ in needed) < 10 * contender.nodes:
        verdict = DID_NOT_HOLD
    else:
        verdict = NOT_TESTABLE
    note = f"{how}; by run: {by_run}"
    claim = Claim(**parts, verdict=unless_smoke(data, verdict), measured=None, note=note)
    return _unless_behind_coarser(data, claim, contender, LOSSLESS)


def _comparable(data: pd.DataFrame, contender: Contender, buckets: float, source: str) -> Claim:
    """Deep CFR against `compared` at as many nodes; that it may be better is a claim of its own."""
    rule = math.log(COMPARABLE), f"log {COMPARABLE:g}, a margin of our own"
    times = f"at most {COMPARABLE:g} times as exploitable as"
    return _below_at_equal_nodes(
        data, contender, buckets, rule, id=f"comparable{contender.suffix}", source=source,
        statement=f"{contender.name} is {times} {named(buckets)} at as many nodes",
    )  # fmt: skip


def _ahead(data: pd.DataFrame, contender: Contender, source: str) -> list[Claim]:
    """Against all abstractions but the lossless one, which has a claim of its own."""
    return [
        _below_at_equal_nodes(
            data, contender, buckets, (0.0, "0"), id=f"ahead_{int(buckets)}", source=f"ours, after {source}",
            statement=f"{contender.name} is less exploitable than {named(buckets)} at as many nodes",
        )
        for buckets in abstractions(data)
        if buckets != LOSSLESS
    ]  # fmt: skip


def _below_at_equal_nodes(
    data: pd.DataFrame, contender: Contender, buckets: float, rule: tuple[float, str], **about: Any
) -> Claim:
    """That the log of Deep CFR's last exploitability over an abstraction's after as many nodes is below a bound.

    Args:
        rule: the bound, and in words.
    """
    measured = _behind(data, contender, buckets)
    if measured is None:
        note = _no_evaluation(contender, buckets)
        return Claim(**about, verdict=NOT_TESTABLE, measured=None, unit="log ratio", note=note)
    bound, words = rule
    note = (
        f"log of Deep CFR's exploitability over the abstraction's at {contender.nodes:.2g} nodes, Welch's interval; "
        f"holds if below {words}"
    )
    verdict = unless_smoke(data, below(measured, bound))
    claim = Claim(**about, verdict=verdict, measured=measured, unit="log ratio", note=note)
    return _unless_behind_coarser(data, claim, contender, buckets)


def _behind(data: pd.DataFrame, contender: Contender, buckets: float) -> Estimate | None:
    """Log of Deep CFR's last exploitability over an abstraction's after as many nodes, if it was measured around."""
    runs = tabular(data, buckets)
    if not float(str(runs.columns[0])) <= contender.nodes <= float(str(runs.columns[-1])):
        return None
    return difference(np.log(contender.runs.iloc[:, -1]), np.log(at_nodes(runs, contender.nodes)))


def _unless_behind_coarser(data: pd.DataFrame, claim: Claim, contender: Contender, than: float) -> Claim:
    """A claim about an abstraction that held is not testable where one that is coarser still is less exploitable than
    Deep CFR at as many nodes, or was not measured there: being level with the finer one, or ahead of it, may then say
    only that it has hardly been solved yet."""
    if claim.verdict != HELD:
        return claim
    for buckets in (buckets for buckets in abstractions(data) if buckets < than):
        behind = _behind(data, contender, buckets)
        if behind is None:
            why = _no_evaluation(contender, buckets)
        elif above(behind, 0) == HELD:
            why = f"Deep CFR is {math.exp(behind.mean):.2g} times as exploitable as {named(buckets)} at as many nodes"
        else:
            continue
        return replace(claim, verdict=NOT_TESTABLE, note=f"{claim.note}. {why}")
    return claim


def _no_evaluation(contender: Contender, buckets: float) -> str:
    return f"{named(buckets)} has no evaluation near {contender.nodes:.2g} nodes"
