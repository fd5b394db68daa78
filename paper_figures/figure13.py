"""Not in the paper: DCVN and DEVN judged by play, with their values at the leaves of turns.

All read-outs of a seed play the same turns, and those of another seed others, so that differences are paired by turn,
and intervals over seeds are of trainings and turns alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN, UNIT, ZERO_SUM, claim_above_zero
from paper_figures.devn_sweeps import BY_OWN_STEP
from paper_figures.leaves_played import (
    ERRORS,
    FRESH,
    HOW,
    LEAVES,
    NETWORKS,
    OF_HAND,
    OF_MATCHUP,
    OF_MET,
    OTHERS,
    SAFE,
    UNSAFE,
    Learned,
    by_seed,
    correlations,
    correlations_apart,
    loss,
    present,
    turns,
)
from paper_figures.leaves_tables import table
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim

__all__ = ["SWEEPS", "claims", "draw", "select", "table"]

TITLE, GAME = "DEVN, ours", "river and turn subgames"
SHOWS = "exploitability of play with DCVN's and DEVN's values at the leaves"

_LONG = ("laptop",)
"""Where what is varied beside the two methods takes longer than these."""

_NETWORKS = "experiment=leaves algorithm=dcvn,devn seed=range(5)"
_FEW = "algorithm.buckets=50"
_MET = "algorithm.met_in_play=0.5"
_SHARP = "algorithm.solver.tolerance=0.00005"
_LABELS = "evaluation=[label_errors] evaluation.label_errors.truth=0.000005"
_FEW_LABELS = "evaluation.label_errors.subgames=5"
_OWN_STEP = f"experiment=leaves algorithm=devn seed=range(5) {BY_OWN_STEP} evaluation.play.readouts=[devn_own_step]"
SWEEPS = (
    Sweep(
        "data",
        f"experiment=leaves_data seed=0 {_LABELS}",
        {"laptop": "algorithm.first=0,40", "night": "algorithm.first=0,100", "smoke": _FEW_LABELS},
    ),
    Sweep("networks", _NETWORKS, {"smoke": "seed=0"}),
    Sweep(
        "few_buckets",
        f"{_NETWORKS} algorithm.buckets=200",
        {"laptop": f"{_FEW} evaluation.play.turns=20", "night": _FEW, "smoke": "algorithm.buckets=5 seed=0"},
        if_asked=(*_LONG, "night"),
    ),
    Sweep("own_step", _OWN_STEP, {"smoke": "seed=0"}, only=("laptop", "smoke"), if_asked=_LONG),
    # Half of the rivers as play meets them: at the other scales hours of turns that are solved for their ranges.
    Sweep(
        "met_data", f"experiment=leaves_data seed=0 {_MET} {_LABELS}",
        {"laptop": "algorithm.first=0,40", "smoke": _FEW_LABELS},
        only=("laptop", "smoke"), if_asked=_LONG,
    ),
    Sweep("met", f"{_NETWORKS} {_MET}", {"smoke": "seed=0"}, only=("laptop", "smoke"), if_asked=_LONG),
    # The same rivers, solved until their labels are as exact as the paper asks.
    Sweep(
        "sharp_data", f"experiment=leaves_data seed=0 {_SHARP} {_LABELS}",
        {"laptop": "algorithm.first=0,40", "smoke": f"algorithm.solver.tolerance=0.01 {_FEW_LABELS}"},
        only=("laptop", "smoke"), if_asked=_LONG,
    ),
    Sweep(
        "sharp", f"{_NETWORKS} {_SHARP}", {"smoke": "algorithm.solver.tolerance=0.01 seed=0"},
        only=("laptop", "smoke"), if_asked=_LONG,
    ),
    Sweep("reference", "experiment=leaves_reference seed=range(5)", {"smoke": "seed=0"}),
    # Trainings and turns that came after the rules on them: what the others suggested is judged by these.
    Sweep(
        "fresh", "experiment=leaves algorithm=dcvn,devn seed=range(5,15)", only=("laptop",), if_asked=_LONG,
    ),
    # Whether it matters how long networks learn.
    Sweep("longer", f"{_NETWORKS} algorithm.iterations=60", only=("laptop",), if_asked=_LONG),
)  # fmt: skip


def select(data: pd.DataFrame) -> pd.DataFrame:
    """Play, and the networks' losses after the last epoch, which is the one that plays."""
    measured = data.metric.str.fullmatch(r"(unsafe|safe|error/\w+)(/turn_\d+)?|label_error.*")
    last = data.groupby(["sweep", "algorithm", "seed"]).step.transform("max")
    losses = data.metric.isin(("unbucketed", "predicting_zero")) & (data.step == last)
    return data[measured | losses].reset_index(drop=True)


# -- the picture -----------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """Exploitability by leaves; turn by turn, DEVN's against DCVN's; and against the error at the leaves."""
    figure = Figure(figsize=(14.0, 5.4))
    grid = figure.add_gridspec(1, 3, width_ratios=(4, 3, 3))
    left, middle, right = (figure.add_subplot(grid[0, i]) for i in range(3))
    rows = present(data)
    for y, (leaves, shown) in enumerate(rows.items()):
        for metric, beside, filled in ((UNSAFE, -0.12, True), (SAFE, 0.12, False)):
            estimate = mean_ci(by_seed(data, leaves, metric))
            spread = [[estimate.mean - estimate.low], [estimate.high - estimate.mean]] if estimate.n > 1 else None
            left.errorbar(
                estimate.mean, y + beside, xerr=spread, fmt="o" if filled else "s", color=shown.colour, capsize=3,
                markerfacecolor=shown.colour if filled else "white",
                label=f"rivers re-solved {HOW[metric]}" if y == 0 else None,
            )  # fmt: skip
    left.set_yticks(range(len(rows)), [shown.name for shown in rows.values()])
    left.invert_yaxis()
    left.set(xlabel=f"exploitability ({UNIT})", xscale="log", title="mean over turns, by leaves")
    if any(mean_ci(by_seed(data, leaves, metric)).low <= 0 for leaves in rows for metric in (UNSAFE, SAFE)):
        left.set_xlabel(f"exploitability ({UNIT}); an interval without a left end reaches below 0")
    devn.plain_numbers(left.xaxis)
    left.legend(fontsize=7)
    _turn_by_turn(middle, data)
    for leaves in (DCVN, DEVN, ZERO_SUM):
        x, y_ = (turns(data, leaves, metric).to_numpy().ravel() for metric in (OF_MATCHUP, UNSAFE))
        right.plot(_drawn(x), _drawn(y_), ".", color=LEAVES[leaves].colour, alpha=0.5, label=LEAVES[leaves].name)
    right.set(
        xscale="log", yscale="log", xlabel=f"error of values by matchup ({UNIT})",
        ylabel=f"exploitability ({UNIT}), unsafe; less is drawn at {_LEAST}",
        title="error and exploitability, turn by turn",
    )  # fmt: skip
    right.legend(fontsize=7)
    for axis in (middle.xaxis, middle.yaxis, right.yaxis):
        devn.plain_numbers(axis, (1.0,))
    devn.plain_numbers(right.xaxis)
    of_fresh = " (fresh: ten others)" if "fresh" in set(data.sweep) else ""
    figure.suptitle(devn.title(data[data.sweep != "fresh"], "Turns played with networks at the leaves") + of_fresh)
    figure.tight_layout()
    return figure


_LEAST = 0.01
"""What is less, in % of the pot, is drawn so."""


def _drawn(values: np.ndarray) -> np.ndarray:
    return np.maximum(values, _LEAST)


def _turn_by_turn(axes: Axes, data: pd.DataFrame) -> None:
    for metric, marker in ((UNSAFE, "o"), (SAFE, "s")):
        x, y = (_drawn(turns(data, leaves, metric).to_numpy().ravel()) for leaves in (DCVN, DEVN))
        axes.plot(
            x, y, marker, color="#0072B2", markersize=4, alpha=0.5, label=HOW[metric],
            markerfacecolor="#0072B2" if metric == UNSAFE else "white",
        )  # fmt: skip
    ends = [_LEAST, max(axes.get_xlim()[1], axes.get_ylim()[1])]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set(
        xscale="log", yscale="log", xlabel=f"with DCVN's leaves ({UNIT}; less is drawn at {_LEAST})",
        ylabel=f"with DEVN's leaves ({UNIT})", title="exploitability, turn by turn",
    )  # fmt: skip
    axes.legend(fontsize=7)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """The page says which rules were written before data were seen.

    None of the paper's: it measures errors only, from which it concludes that DEVN is to be preferred.
    """
    judged, sweeps = [_loss(data)], set(data.sweep)
    if "sharp" in sweeps:
        judged.append(_sharper_loss(data))
    for metric in (UNSAFE, SAFE):
        judged += _against_dcvn(data, NETWORKS, metric)
        judged.append(_better(data, "zero_sum", "DEVN's leaves play better if made zero-sum", DEVN, ZERO_SUM, metric))
        others = [learned for learned in OTHERS if learned.sweep in sweeps]
        for learned in others:
            judged += _against_dcvn(data, learned, metric)
        for learned in others:
            if learned.sweep in ("met", "sharp"):
                judged += _of_other_rivers(data, learned, metric)
        if FRESH in others:
            judged.append(_apart(data, metric))
        for method in (DCVN, DEVN):
            name = devn.NAMES[method]
            judged += [
                _better(data, f"{method}_checked", f"{name}'s leaves play better than checking down", "checked_down",
                        method, metric),
                _better(data, f"{method}_oracle", f"Buckets' exact values play better than {name}'s", method,
                        f"oracle_{method}", metric),
                _better(data, f"{method}_exact", f"Exact leaves play better than those of {name}'s buckets",
                        f"oracle_{method}", "exact", metric),
            ]  # fmt: skip
            if "few_buckets" in sweeps:
                more = f"{name}'s leaves play better with more buckets"
                judged.append(_better(data, f"{method}_buckets", more, f"few_{method}", method, metric))
    judged += [_safer(data, method) for method in (DCVN, DEVN)]
    judged += [_which_error(data, OF_MET, other, UNSAFE) for other in ERRORS if other != OF_MET]
    # Of errors by matchup and of those met in play one is judged already, the other way round.
    judged += [
        _by_matchup(data, other, metric)
        for metric in HOW
        for other in ERRORS
        if other != OF_MATCHUP and (other, metric) != (OF_MET, UNSAFE)
    ]
    return judged


def _against_dcvn(data: pd.DataFrame, learned: Learned, metric: str) -> list[Claim]:
    """Whether DEVN's leaves play better than DCVN's, as they are and made zero-sum, of the networks of one sweep."""
    dcvn, devn_, zero_sum = learned.leaves
    said, key = f", {learned.said}" if learned.said else "", learned.key
    judged = [_better(data, f"{key}devn", f"DEVN's leaves play better than DCVN's{said}", dcvn, devn_, metric)]
    if learned.also_zero_sum:
        made = f"DEVN's leaves, made zero-sum, play better than DCVN's{said}"
        judged.append(_better(data, f"{key}zero_sum_dcvn", made, dcvn, zero_sum, metric))
    return judged


def _of_other_rivers(data: pd.DataFrame, learned: Learned, metric: str) -> list[Claim]:
    """Whether networks play better that have learned from another dataset."""
    return [
        _better(
            data, f"{method}_{learned.sweep}",
            f"{devn.NAMES[method]}'s leaves play better if networks learn from {learned.said}",
            method, others, metric,
        )
        for method, others in zip((DCVN, DEVN), learned.leaves[:2], strict=True)
    ]  # fmt: skip


def _apart(data: pd.DataFrame, metric: str) -> Claim:
    """Which error goes with the networks' difference in play, judged by fresh seeds alone."""
    dcvn, devn_, _ = FRESH.leaves
    apart = [correlations_apart(data, error, devn_, dcvn, metric) for error in (OF_MATCHUP, OF_HAND)]
    return claim_above_zero(
        data, f"fresh_apart_{metric}",
        "Which of DEVN and DCVN plays a turn worse goes with errors by matchup more than with those per hand: "
        f"{HOW[metric]}, fresh seeds", mean_ci(apart[0] - apart[1]), "",
        "rank correlation, over turns, of the difference of errors with that in exploitability, of one error less "
        "of the other",
    )  # fmt: skip


def _better(data: pd.DataFrame, name: str, statement: str, worse: str, better: str, metric: str) -> Claim:
    # Fewer turns are played with fewer buckets.
    gains = (turns(data, worse, metric) - turns(data, better, metric)).dropna(axis="columns")
    gain = mean_ci(gains.mean(axis=1))
    note = f"exploitability of {LEAVES[worse].name} minus that of {LEAVES[better].name}, on the same turns"
    return claim_above_zero(data, f"{name}_{metric}", f"{statement}: {HOW[metric]}", gain, "points of the pot", note)


def _loss(data: pd.DataFrame) -> Claim:
    lower = mean_ci(devn.lower_by(loss(data, DCVN), loss(data, DEVN)))
    statement = "DEVN's unbucketed loss is below DCVN's"
    return claim_above_zero(data, "loss", statement, lower, "%", "relative improvement, paired by seed")


def _sharper_loss(data: pd.DataFrame) -> Claim:
    gains = [devn.lower_by(*(loss(data, of) for of in pair)) for pair in ((DCVN, DEVN), ("sharp_dcvn", "sharp_devn"))]
    statement = "What DEVN's loss is below DCVN's is more with sharper labels"
    note = "relative improvements, each beside its own labels, paired by seed"
    return claim_above_zero(data, "sharp_loss", statement, mean_ci(gains[1] - gains[0]), "percentage points", note)


def _safer(data: pd.DataFrame, method: str) -> Claim:
    gain = mean_ci(by_seed(data, method, UNSAFE) - by_seed(data, method, SAFE))
    statement = f"Safe re-solving is less exploitable than unsafe: {devn.NAMES[method]}"
    return claim_above_zero(
        data, f"{method}_safer", statement, gain, "points of the pot", "unsafe minus safe, the same turns"
    )


_OF = {OF_MET: "of the values that are met in play", OF_MATCHUP: "by matchup"}


def _which_error(data: pd.DataFrame, favourite: str, other: str, metric: str) -> Claim:
    name = f"which_{'error' if other == OF_HAND else other.removeprefix('error/')}"
    return _says_more(data, name, favourite, other, metric, NETWORKS.leaves)


def _by_matchup(data: pd.DataFrame, other: str, metric: str) -> Claim:
    """A claim that the data of one scale suggested, and that is judged there by seeds that ran afterwards, if any."""
    fresh = bool((data.sweep == "fresh").any())
    name = f"matchup_or_{other.removeprefix('error/')}_{metric}"
    claim = _says_more(data, name, OF_MATCHUP, other, metric, (FRESH if fresh else NETWORKS).leaves)
    if fresh:
        return replace(claim, statement=f"{claim.statement}, fresh seeds")
    if data.scale.iloc[0] == SUGGESTED_BY:
        return replace(claim, verdict=NOT_TESTABLE, p=None, note=f"{claim.note}; these data suggested it")
    return claim


def _says_more(data: pd.DataFrame, name: str, favourite: str, other: str, metric: str, leaves: Sequence[str]) -> Claim:
    more = mean_ci(correlations(data, favourite, leaves, metric) - correlations(data, other, leaves, metric))
    note = (
        f"rank correlation with exploitability, over turns and networks of a seed, less that of errors {ERRORS[other]}"
        + (", which are in % of the river's pot, not the turn's" if other == OF_HAND else "")
    )
    statement = f"Errors {_OF[favourite]} say more of play than errors {ERRORS[other]}: {HOW[metric]}"
    return claim_above_zero(data, name, statement, more, "", note)


SUGGESTED_BY = "laptop"
"""The scale whose data suggested that errors by matchup say the most."""
