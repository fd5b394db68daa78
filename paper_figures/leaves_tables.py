"""What figure 13's page lists: exploitability and errors by leaves, what goes with what, and how exact labels are."""

from __future__ import annotations

import numpy as np
import pandas as pd

from paper_figures import devn_labels
from paper_figures.devn_runs import DCVN, DEVN, UNIT, ZERO_SUM
from paper_figures.leaves_played import (
    ERRORS,
    FRESH,
    HOW,
    LEAVES,
    NETWORKS,
    SAFE,
    UNSAFE,
    by_seed,
    correlations,
    correlations_apart,
    loss,
    present,
    turns,
)
from repro.evaluation.statistics import digits, mean_ci


def table(data: pd.DataFrame) -> str:
    """Exploitability and errors by leaves."""
    fresh = bool((data.sweep == "fresh").any())
    lines = [
        "| leaves | unsafe: mean | median | safe: mean | median | "
        + " | ".join(f"error {name}" for name in ERRORS.values())
        + " | loss |",
        "|---" * (6 + len(ERRORS)) + "|",
    ]
    for leaves, shown in present(data).items():
        cells = [shown.name]
        for metric in (UNSAFE, SAFE):
            median = digits(float(np.median(turns(data, leaves, metric))))
            cells += [str(mean_ci(by_seed(data, leaves, metric))), median]
        # A turn that no leaves were asked for has no errors of theirs.
        cells += [str(mean_ci(by_seed(data, leaves, m))) if leaves != "uniform" else "–" for m in ERRORS]
        losses = loss(data, leaves)
        lines.append("| " + " | ".join([*cells, str(mean_ci(losses)) if len(losses) else "–"]) + " |")
    notes = [
        f"All in {UNIT}, with 95% intervals over seeds, of which each has turns of its own; medians are over all "
        "turns. Errors per hand are of counterfactual values, in % of the river's pot, as losses on the validation "
        "rivers are, but of the rivers that the turn leads to; the others are of expected values, in % of the turn's "
        "pot, as exploitability is. Exact leaves have errors, too: unsafe re-solving finds another solution of a river "
        "than theirs, and both stop short.",
        f"With DEVN's leaves {' and '.join(_worse(data, metric) for metric in HOW)} than with DCVN's.",
        *_since(data),
        f"Errors of DEVN's leaves less those of DCVN's, paired by seed: {_errors_apart(data, DEVN, DCVN)}. Of those of "
        f"DEVN made zero-sum less DEVN's own: {_errors_apart(data, ZERO_SUM, DEVN)}."
        + (f" On fresh seeds, DEVN's less DCVN's: {_errors_apart(data, *FRESH.leaves[1::-1])}." if fresh else ""),
        *(_ranks(data, metric) for metric in HOW),
        *([_ranks_of_fresh(data)] if fresh else []),
    ]
    if (data.metric == "label_error").any():
        notes.append("\n".join(_labels(data)))
    return "\n".join([*lines, "", "\n\n".join(notes)])


_PUBLISHED_FIRST = 20
"""Turns of a seed whose results were published before the others were played."""


_APART = ((DEVN, DCVN), (ZERO_SUM, DEVN), (ZERO_SUM, DCVN))


def _ranks(data: pd.DataFrame, metric: str) -> str:
    """Which errors of the leaves go with exploitability: of networks by themselves, and between two of them."""
    names = {leaves: LEAVES[leaves].name for leaves in NETWORKS.leaves}
    heads = ["all three networks", *names.values(), *(f"{names[a]} less {names[b]}" for a, b in _APART)]
    lines = [
        f"Rank correlation with exploitability ({HOW[metric]}), over turns; of one network less another, that of the "
        "differences on the same turns. Intervals are Student's t of the seeds' correlations, and may reach beyond 1:",
        "",
        "| error | " + " | ".join(heads) + " |",
        "|---" * (1 + len(heads)) + "|",
    ]
    for error, name in ERRORS.items():
        alone = (NETWORKS.leaves, *((leaves,) for leaves in NETWORKS.leaves))
        found = [correlations(data, error, every, metric) for every in alone]
        found += [correlations_apart(data, error, *pair, metric) for pair in _APART]
        # Where all turns are alike there is no correlation.
        lines.append(f"| {name} | " + " | ".join(str(mean_ci(c)) if c.notna().all() else "–" for c in found) + " |")
    return "\n".join(lines)


def _ranks_of_fresh(data: pd.DataFrame) -> str:
    """What `_ranks` has of all three networks, and of DEVN less DCVN, of fresh seeds."""
    dcvn, devn_, _ = FRESH.leaves
    lines = [
        "The same of fresh seeds:",
        "",
        "| error | " + " | ".join(f"all three networks, {how} | DEVN less DCVN, {how}" for how in HOW.values()) + " |",
        "|---" * (1 + 2 * len(HOW)) + "|",
    ]
    for error, name in ERRORS.items():
        found = [
            mean_ci(correlation)
            for metric in HOW
            for correlation in (
                correlations(data, error, FRESH.leaves, metric), correlations_apart(data, error, devn_, dcvn, metric)
            )
        ]  # fmt: skip
        lines.append(f"| {name} | {' | '.join(map(str, found))} |")
    return "\n".join(lines)


def _errors_apart(data: pd.DataFrame, leaves: str, others: str) -> str:
    apart = {name: mean_ci(by_seed(data, leaves, e) - by_seed(data, others, e)) for e, name in ERRORS.items()}
    return ", ".join(f"{estimate} ({name})" for name, estimate in apart.items())


def _since(data: pd.DataFrame) -> list[str]:
    """How much more exploitable DEVN is than DCVN on the turns that no published result could lead to."""
    if turns(data, DCVN, UNSAFE).shape[1] <= _PUBLISHED_FIRST:
        return []
    told = []
    for leaves in (DEVN, ZERO_SUM):
        for metric, how in HOW.items():
            more = (turns(data, leaves, metric) - turns(data, DCVN, metric)).iloc[:, _PUBLISHED_FIRST:]
            told.append(f"{mean_ci(more.mean(axis=1))} ({LEAVES[leaves].name}, {how})")
    return [
        f"On the turns of each seed after the first {_PUBLISHED_FIRST} alone, play is more exploitable than with "
        f"DCVN's leaves by {', '.join(told)} points."
    ]


LABELS = {"data": "random", "met_data": "half of them rivers of play", "sharp_data": "random, solved further"}
"""Sweeps whose labels are measured."""


def _labels(data: pd.DataFrame) -> list[str]:
    """How accurate the networks' labels are, beside what the paper asks."""
    lines = [
        "Labels beside values of the same rivers solved on to 0.0005% of the pot: of the root mean square error over "
        "a river's hands, in % of the pot, the mean, and in how many rivers it is below 0.5 and 1. Of the equilibria "
        "of a river both are near the same one.",
        "",
        "| rivers | mean | below 0.5 [%] | below 1 [%] |",
        "|---|---|---|---|",
    ]
    for sweep, name in LABELS.items():
        of_sweep = data[data.sweep == sweep].groupby("metric").value.mean()
        if "label_error" in of_sweep:
            cells = [digits(float(of_sweep[f"label_error{key}"])) for key in ("", "/below_0.5", "/below_1")]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, f"| the paper's criterion | – | {devn_labels.ASKED[0]} | {devn_labels.ASKED[1]} |"]


def _worse(data: pd.DataFrame, metric: str) -> str:
    """In how many turns, and by how much in the median, DEVN's leaves are more exploitable than DCVN's."""
    more = (turns(data, DEVN, metric) - turns(data, DCVN, metric)).to_numpy()
    by = digits(float(np.median(more)))
    return f"{int((more > 0).sum())} of {more.size} turns ({HOW[metric]}; median difference {by}) are more exploitable"
