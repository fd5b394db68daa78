"""DEVN Table 1: the error that buckets alone make, in counterfactual values (DCVN) and in expected values (DEVN)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_labels, devn_range
from paper_figures.devn_sweeps import FEW_LABELS, OF_LABELS
from paper_figures.encoding_errors import (
    LABELS,
    METHODS,
    OF_RANGES,
    PAPER,
    Row,
    Setting,
    _left_out,
    error,
    improvement,
    jackknife,
    pooled_improvement,
    settings,
    shards,
)
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, digits, mean_ci
from repro.figures.claims import Claim, above, all_of, within
from repro.figures.frame import curves
from repro.figures.page import folded

TITLE, GAME = "DEVN Table 1", "turn and river subgames"
SHOWS = "encoding error of buckets, in DCVN and DEVN; the range of counterfactual values"
_RIVERS = "experiment=encoding_error game=river_subgames algorithm.iterations=4000"
SWEEPS = (
    # Full-deck river subgames, which the paper does not have. Their hands have at most 1,981 different shares. At
    # laptop scale 5,000 subgames per dataset.
    Sweep(
        "river", f"{_RIVERS} algorithm.buckets=1000,null seed=0,1",
        {
            "laptop": "algorithm.iterations=20 algorithm.solver.tolerance=0.001",
            "smoke": "algorithm.iterations=1 algorithm.buckets=5,null",
        },
    ),
    # With all of DeepStack's pots, 200 chips and more, and labels of different accuracy; at laptop scale 2,000 of
    # them.
    Sweep(
        "river_small_pots",
        f"{_RIVERS} game.least_pot=200 algorithm.buckets=1000 algorithm.solver.tolerance=0.005,0.001,0.0002 seed=0",
        {
            "laptop": "algorithm.iterations=8",
            "smoke": "algorithm.iterations=1 algorithm.buckets=5 algorithm.solver.tolerance=0.1,0.05",
        },
    ),
    Sweep(
        "turn", "experiment=encoding_error algorithm.buckets=1000,2000,null seed=0,1",
        {"smoke": "algorithm.buckets=5,10,null"},
    ),
    # Of dataset 1, and buckets by k-medians under the earth mover's distance.
    Sweep(
        "turn_k_medians", "experiment=encoding_error algorithm.clustering=k_medians algorithm.buckets=1000,2000 seed=0",
        {"smoke": "algorithm.buckets=5,10"},
    ),
    # Labels of different accuracy; at laptop scale 200 subgames.
    Sweep(
        "turn_labels",
        "experiment=encoding_error algorithm.iterations=300 algorithm.buckets=1000 "
        "algorithm.solver.tolerance=0.005,0.001 seed=0",
        {
            "laptop": "algorithm.iterations=20",
            "smoke": "algorithm.iterations=2 algorithm.buckets=5 algorithm.solver.tolerance=0.1,0.05",
        },
    ),
    # Pots in the last of DeepStack's intervals; at laptop scale 300 subgames.
    Sweep(
        "turn_large_pots",
        "experiment=encoding_error game.least_pot=12000 algorithm.iterations=300 "
        "algorithm.buckets=1000,2000,null seed=0",
        {"laptop": "algorithm.iterations=30", "smoke": "algorithm.iterations=2 algorithm.buckets=5,10"},
    ),
    # Ranges over hands sorted in other ways; at laptop scale 200 subgames.
    Sweep(
        "turn_ranges",
        "experiment=encoding_error algorithm.iterations=300 algorithm.buckets=1000 game.strength=equity,made_hand "
        "game.ties=random,by_card seed=0",
        {
            "paper": "algorithm.solver.tolerance=0.005",
            "laptop": "algorithm.iterations=20",
            "smoke": "algorithm.iterations=2 algorithm.buckets=5",
        },
    ),
    # Every way to read the definition, on the same subgames; at laptop scale 40 of each of three datasets.
    Sweep(
        "turn_readings",
        "experiment=encoding_error algorithm.iterations=100 algorithm.buckets=1000 "
        "evaluation=[encoding_error,encoding_readings] seed=range(3)",
        {"laptop": "algorithm.iterations=4", "smoke": "algorithm.iterations=2 algorithm.buckets=5 seed=0"},
    ),
    # How far labels are from the same subgames solved further; at laptop scale 40.
    Sweep(
        "turn_label_errors",
        f"{OF_LABELS} seed=0",
        {
            "laptop": "game.name=turn_subgames algorithm.iterations=4 algorithm.snapshot_every=4 "
            "algorithm.solver.tolerance=0.005,0.001 evaluation.label_errors.truth=0.0001",
            "smoke": FEW_LABELS,
        },
    ),
    *devn_range.SWEEPS,
)  # fmt: skip


MEAN, OVER_ALL = "RMSE of a subgame, mean", "RMSE over all subgames"
"""How errors are averaged."""

READINGS = {
    "text": "as in the rest of this page",
    "players_together": "a root per subgame, over both players' hands",
    "all_together": "one root over all",
    "median": "the median of the roots",
    "in_chips": "roots in chips, in % of the mean pot",
    "pots_to_4000": "subgames with pots below 4,000 chips alone",
    "pots_to_12000": "with pots from 4,000 to 12,000",
    "pots_above": "with pots from 12,000",
    "errors_by_range": "errors weighted by a hand's probability",
    "errors_by_matchup": "errors weighted by its matchup",
    "means_by_range": "buckets' means weighted by probability",
    "means_by_matchup": "by matchup",
    "both_by_range": "errors and means by probability",
    "both_by_matchup": "errors and means by matchup",
    "half_precision": "without hands whose probability is 0 in 16 bits",
    "not_rare": "without hands below a probability of 0.0001",
    "diluted": "code: the board's hands count as zeros in the bucket of the strongest",
    "diluted_last": "code: or in the bucket of the weakest",
    "own_matchups": "code: matchups of the player's own range",
    "expected_values": "errors of EVs, for both",
    "predicted_values": "code: errors of CFVs for DCVN, of EVs for DEVN",
}
"""Of `repro.subgames.readings`, in words; "code": what the authors' public code does, or may be read to do."""
_OF_READINGS, _OF_LABEL_ERRORS = "turn_readings", "turn_label_errors"

MARGIN = 5.0
"""Percentage points up to which a relative improvement is "about" another; the number is ours."""


def draw(data: pd.DataFrame) -> Figure:
    """Errors of both methods, and the improvement, with the paper's numbers beside those of the turn."""
    figure = Figure(figsize=(11.0, 6.0))
    left, right = figure.subplots(1, 2, sharey=True)
    assert isinstance(left, Axes)
    assert isinstance(right, Axes)
    rows = [setting for sweep in LABELS for setting in settings(data, sweep)]
    for y, setting in enumerate(rows):
        published, first = setting.published, y == 0
        for method, (name, colour, beside) in METHODS.items():
            _point(left, y + beside, error(data, setting, method), colour, name if first else None)
            # The paper's dataset 2 has other cards: of that, only improvements can be compared.
            if published and published.dataset == 1:
                _paper(left, y + beside, getattr(published, method), colour, f"{name}, paper" if first else None)
        _point(right, y - 0.1, improvement(data, setting), "#009E73", MEAN if first else None)
        _point(right, y + 0.1, pooled_improvement(data, setting), "#999999", OVER_ALL if first else None)
        if published:
            _paper(right, y - 0.1, published.improvement, "#009E73", "paper" if first else None)
    left.set_yticks(range(len(rows)), [str(setting) for setting in rows])
    left.invert_yaxis()
    left.set(xlabel="encoding error (% of the pot)")
    right.set(xlabel="DEVN's improvement over DCVN (%)")
    left.set_xlim(left=0)
    right.axvline(0, color="black", linewidth=0.8)
    for axes in (left, right):
        axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.08))
    figure.suptitle(f"The error that buckets alone make, 95% CI over shards of subgames, scale: {data.scale.iloc[0]}")
    figure.tight_layout()
    return figure


def _point(axes: Axes, y: float, estimate: Estimate, colour: str, label: str | None) -> None:
    spread = [[estimate.mean - estimate.low], [estimate.high - estimate.mean]] if estimate.n > 1 else None
    axes.errorbar(estimate.mean, y, xerr=spread, fmt="o", color=colour, capsize=3, label=label)


def _paper(axes: Axes, y: float, value: float, colour: str, label: str | None) -> None:
    axes.plot(value, y, "D", color=colour, markerfacecolor="white", label=label)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """That DEVN's error is lower, by about as much as in the paper; that more buckets or finer labels lower errors.

    The paper's come first. That the error is lower is one claim for each row of the paper's, and one for all of ours,
    which have their subgames in common. The range of values is judged last.
    """
    judged, rows = [], []
    for sweep in LABELS:
        every = settings(data, sweep)
        # Its first row repeats one of the labels'.
        rows += every[1:] if sweep in OF_RANGES else every
        judged += [_gains_more(data, every[0], setting) for setting in every[1:] if setting.buckets is None]
        for before, after in pairwise(every):
            # The finest buckets are no number of buckets that somebody would choose, and ranges are not finer.
            if before.dataset == after.dataset and after.buckets != inf and after.sorting is None:
                judged += [_finer(data, before, after, method) for method in METHODS]
    judged += [claim for row in rows if row.published for claim in _improves(data, row, row.published)]
    own = [improvement(data, row) for row in rows if not row.published]
    name, everywhere = "DEVN's encoding error", "the row that decides; holds if all are above 0"
    judged += [
        _every(data, "ours_lower", f"{name} is below DCVN's in all {len(own)} rows of ours", own, everywhere),
        _every(
            data, "pooled", f"{name} over all subgames at once is below DCVN's in all {len(rows)} rows",
            [pooled_improvement(data, row) for row in rows], everywhere,
        ),
    ]  # fmt: skip
    return [*sorted(judged, key=lambda claim: claim.source != "Table 1"), *devn_range.claims(data)]


def _improves(data: pd.DataFrame, setting: Setting, published: Row) -> list[Claim]:
    measured, paper = improvement(data, setting), published.improvement
    return [
        Claim(
            f"{setting.name}_lower", f"DEVN's encoding error is below DCVN's: {setting}", "Table 1",
            unless_smoke(data, above(measured, 0)), measured, "%", note="relative improvement; holds if above 0",
        ),
        Claim(
            f"{setting.name}_margin",
            f"DEVN's encoding error is below DCVN's by about the paper's margin: {setting}", "Table 1",
            unless_smoke(data, within(measured, paper - MARGIN, paper + MARGIN)), measured, "%", paper,
            note=f"holds if the interval is within {MARGIN:.0f} points of the paper's, did not if outside",
        ),
    ]  # fmt: skip


def _every(data: pd.DataFrame, name: str, statement: str, estimates: Sequence[Estimate], note: str) -> Claim:
    """That all of several improvements are above 0; the one that decides is shown."""
    verdicts = [above(estimate, 0) for estimate in estimates]
    verdict = all_of(verdicts)
    decides = min((e for e, v in zip(estimates, verdicts, strict=True) if v == verdict), key=lambda e: e.mean)
    return Claim(
        name, statement, "ours", unless_smoke(data, verdict), decides, "%", note=f"relative improvement, {note}"
    )


def _finer(data: pd.DataFrame, before: Setting, after: Setting, method: str) -> Claim:
    errors = [_left_out(shards(data, setting, "error"))[method] for setting in (before, after)]
    measured = jackknife(errors[0] - errors[1])
    subject = after.difference[0].upper() + after.difference[1:]
    return Claim(
        f"{after.name}_{method}_finer",
        f"{subject} lower {METHODS[method][0]}'s encoding error: {LABELS[after.sweep]}, dataset {after.dataset}",
        "Table 1" if before.published else "ours", unless_smoke(data, above(measured, 0)), measured, "% of the pot",
        note=f"{before.difference} minus {after.difference}, the same subgames; holds if above 0",
    )  # fmt: skip


def _gains_more(data: pd.DataFrame, before: Setting, after: Setting) -> Claim:
    means = [_left_out(shards(data, setting, "error")) for setting in (before, after)]
    gains = [100 * (1 - mean["devn"] / mean["dcvn"]) for mean in means]
    measured = jackknife(gains[1] - gains[0])
    return Claim(
        f"{after.name}_gains",
        f"DEVN's improvement is larger with {after.difference} than with {before.difference}: {LABELS[after.sweep]}",
        "ours",
        unless_smoke(data, above(measured, 0)), measured, "percentage points",
        note="the same boards and pots; holds if above 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The paper's table and ours."""
    rows = [setting for sweep in LABELS for setting in settings(data, sweep)]
    paper = [row for row in rows if row.published]
    own = [row for row in rows if not row.published]
    parts = [
        "\n".join(_lines(data, paper)),
        folded(f"{len(own)} rows that the paper does not have", "\n".join(_lines(data, own))),
        "Errors in % of the pot, with 95% intervals over shards of subgames.",
        folded("every way to read the definition, on the same subgames", "\n".join(_readings(data)), always=True),
    ]
    if (data.sweep == _OF_LABEL_ERRORS).any():
        errors = devn_labels.table(data, {_OF_LABEL_ERRORS: "turns, dataset 1"})
        parts.append(folded("how accurate labels of turns are", errors, always=True))
    if ranges := devn_range.table(data):
        parts.append(folded("how far counterfactual values range", ranges, always=True))
    return "\n\n".join(parts)


def _lines(data: pd.DataFrame, rows: Sequence[Setting]) -> list[str]:
    lines = [
        "| subgames | how many | exploitability, at most [%] | DCVN | DEVN | improvement [%] | "
        "over all at once [%] | paper: DCVN, DEVN, improvement |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for setting in rows:
        published = setting.published
        paper_cells = f"{published.dcvn}, {published.devn}, {published.improvement}" if published else "–"
        errors = " | ".join(str(error(data, setting, method)) for method in METHODS)
        count, most = (shards(data, setting, m)["training"].max() for m in ("subgames", "exploitability/most"))
        lines.append(
            f"| {setting} | {count:,.0f} | {digits(most)} | {errors} | {improvement(data, setting)} | "
            f"{pooled_improvement(data, setting)} | {paper_cells} |"
        )
    return lines


def _readings(data: pd.DataFrame) -> list[str]:
    """Errors and DEVN's improvement in every reading of the encoding error, over seeds; the paper's first."""
    first = PAPER[0]
    lines = [
        "| the encoding error is | DCVN | DEVN | improvement [%] |",
        "|---|---|---|---|",
        f"| in the paper, dataset 1, 1,000 buckets | {first.dcvn} | {first.devn} | {first.improvement} |",
    ]
    for name, text in READINGS.items():
        of_methods = [_reading(data, name, method) for method in METHODS]
        if any(len(each) == 0 for each in of_methods):
            continue  # No subgame has such a pot.
        gains = 100 * (1 - of_methods[1] / of_methods[0])
        cells_ = " | ".join(str(mean_ci(each)) for each in (*of_methods, gains))
        lines.append(f"| {text} | {cells_} |")
    of_sweep = data[(data.sweep == _OF_READINGS) & (data.metric == "subgames") & (data.readout == "training")]
    note = (
        f"In % of the pot, with 95% intervals over {of_sweep.seed.nunique()} datasets of {of_sweep.value.max():.0f} "
        f"turn subgames with buckets of their own, {int(of_sweep.buckets.iloc[0]):,} each. Of a run of one's own: "
        "`python -m repro.evaluate KEY evaluation=encoding_readings`."
    )
    return [*lines, "", note]


def _reading(data: pd.DataFrame, name: str, method: str) -> pd.Series:
    """A reading of all subgames of a run, by seed."""
    table_ = curves(data, f"reading/{name}", sweep=_OF_READINGS, readout=method)
    return table_.iloc[:, -1] if len(table_) else pd.Series(dtype=float)
