"""DEVN Table 1: the error that buckets alone make, in counterfactual values (DCVN) and in expected values (DEVN)."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claims import DID_NOT_HOLD, HELD, UNDECIDED, Claim, above
from paper_figures.exploitability_curves import unless_smoke
from repro.evaluation.statistics import Estimate, mean_ci

TITLE, GAME = "DEVN Table 1", "turn and river subgames"
SHOWS = "encoding error of buckets, in DCVN and DEVN"

PARTS = {"turn": "turn", "river": "river (ours)", "river_precise": "river, precise labels (ours)"}
METHODS = {"dcvn": ("DCVN", "#0072B2", -0.15), "devn": ("DEVN", "#D55E00", 0.15)}
"""Name, colour, and place beside the middle of a row."""

MARGIN = 5.0
"""Percentage points up to which a relative improvement is "about" another; the number is ours."""


@dataclass(frozen=True)
class Row:
    """A row of the paper's table: encoding errors in % of the pot, the improvement in %."""

    dataset: int
    buckets: int
    dcvn: float
    devn: float
    improvement: float


PAPER = (
    Row(1, 1000, 2.782, 1.944, 30.11),
    Row(1, 2000, 2.634, 1.796, 31.83),
    Row(2, 1000, 4.006, 2.842, 29.05),
    Row(2, 2000, 3.887, 2.726, 29.86),
)


def _published(part: str, dataset: int, buckets: int) -> Row | None:
    """The paper's row, of turn subgames only."""
    same = (row for row in PAPER if part == "turn" and (row.dataset, row.buckets) == (dataset, buckets))
    return next(same, None)


def settings(data: pd.DataFrame, part: str) -> list[tuple[int, int]]:
    """(dataset, buckets) of a part; datasets are numbered from 1, as in the paper."""
    mine = data[data.part == part]
    found = {(int(seed) + 1, int(variant.split("=")[1])) for seed, variant in zip(mine.seed, mine.variant, strict=True)}
    return sorted(found)


def squares(data: pd.DataFrame, part: str, dataset: int, buckets: int) -> pd.DataFrame:
    """Mean squared errors in %^2 of the pot: a row per shard of subgames, a column per method."""
    chosen = data[
        (data.part == part) & (data.seed == dataset - 1) & (data.variant == f"algorithm.buckets={buckets}")
        & (data.metric == "squared_error")
    ]  # fmt: skip
    return chosen.pivot_table(index="step", columns="algorithm", values="value")


def jackknife(statistic: pd.Series) -> Estimate:
    """Of a statistic of all shards (index -1) and of all but each one: the former, with Student's t interval."""
    whole, without = statistic.loc[-1], statistic.drop(-1)
    n = len(without)
    if n == 1:
        return mean_ci([whole])
    pseudo = mean_ci(n * whole - (n - 1) * without)
    half = (pseudo.high - pseudo.low) / 2
    return Estimate(float(whole), float(whole - half), float(whole + half), n)


def _left_out(table: pd.DataFrame) -> pd.DataFrame:
    """Means of all shards (index -1), and of all but each one."""
    whole, n = table.mean(), len(table)
    without = (whole * n - table) / max(n - 1, 1)
    return pd.concat([whole.to_frame(-1).T, without])


def error(data: pd.DataFrame, part: str, dataset: int, buckets: int, method: str) -> Estimate:
    """Encoding error in % of the pot."""
    return jackknife(_left_out(squares(data, part, dataset, buckets))[method].pow(0.5))


def improvement(data: pd.DataFrame, part: str, dataset: int, buckets: int) -> Estimate:
    """By how much DEVN's error is lower than DCVN's, in % of DCVN's."""
    means = _left_out(squares(data, part, dataset, buckets))
    return jackknife(100 * (1 - (means["devn"] / means["dcvn"]).pow(0.5)))


def draw(data: pd.DataFrame) -> Figure:
    """Errors of both methods, and the improvement, with the paper's numbers beside those of the turn."""
    figure = Figure(figsize=(10.0, 4.4))
    left, right = figure.subplots(1, 2, sharey=True)
    assert isinstance(left, Axes)
    assert isinstance(right, Axes)
    rows = [(part, *setting) for part in PARTS for setting in settings(data, part)]
    for y, (part, dataset, buckets) in enumerate(rows):
        published = _published(part, dataset, buckets)
        for method, (name, colour, beside) in METHODS.items():
            _point(left, y + beside, error(data, part, dataset, buckets, method), colour, name if y == 0 else None)
            if published:
                _paper(left, y + beside, getattr(published, method), colour, f"{name}, paper" if y == 0 else None)
        _point(right, y, improvement(data, part, dataset, buckets), "#009E73", "ours" if y == 0 else None)
        if published:
            _paper(right, y, published.improvement, "#009E73", "paper" if y == 0 else None)
    left.set_yticks(range(len(rows)), [f"{PARTS[p]}, dataset {d}, {b:,} buckets" for p, d, b in rows])
    left.invert_yaxis()
    left.set(xlabel="encoding error (% of the pot)")
    right.set(xlabel="DEVN's improvement over DCVN (%)")
    left.set_xlim(left=0)
    right.axvline(0, color="black", linewidth=0.8)
    for axes in (left, right):
        axes.legend(fontsize=7)
    figure.suptitle(f"The error that buckets alone make, 95% CI over shards of subgames, scale: {data.scale.iloc[0]}")
    figure.tight_layout()
    return figure


def _point(axes: Axes, y: float, found: Estimate, colour: str, label: str | None) -> None:
    spread = [[found.mean - found.low], [found.high - found.mean]] if found.n > 1 else None
    axes.errorbar(found.mean, y, xerr=spread, fmt="o", color=colour, capsize=3, label=label)


def _paper(axes: Axes, y: float, value: float, colour: str, label: str | None) -> None:
    axes.plot(value, y, "D", color=colour, markerfacecolor="white", label=label)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """That DEVN's error is lower, and by about as much as in the paper; that more buckets lower both."""
    found = []
    for part in PARTS:
        for dataset, buckets in settings(data, part):
            found += _improves(data, part, dataset, buckets)
        found += [_more_buckets(data, part, dataset, method) for dataset in (1, 2) for method in METHODS]
    return found


def _improves(data: pd.DataFrame, part: str, dataset: int, buckets: int) -> list[Claim]:
    measured = improvement(data, part, dataset, buckets)
    where = f"{PARTS[part]}, dataset {dataset}, {buckets:,} buckets"
    name = f"{part}_{dataset}_{buckets}"
    source = "Table 1" if part == "turn" else "ours"
    published = _published(part, dataset, buckets)
    found = [
        Claim(
            f"{name}_lower", f"DEVN's encoding error is below DCVN's: {where}", source,
            unless_smoke(data, above(measured, 0)), measured, "%", note="relative improvement; holds if above 0",
        )
    ]  # fmt: skip
    if published:
        found.append(
            Claim(
                f"{name}_margin", f"DEVN's encoding error is below DCVN's by about the paper's margin: {where}", source,
                unless_smoke(data, _about(measured, published.improvement)), measured, "%", published.improvement,
                note=f"holds if the interval is within {MARGIN:.0f} points of the paper's, did not if outside",
            )
        )  # fmt: skip
    return found


def _about(measured: Estimate, paper: float) -> str:
    if measured.low > paper - MARGIN and measured.high < paper + MARGIN:
        return HELD
    return DID_NOT_HOLD if measured.low >= paper + MARGIN or measured.high <= paper - MARGIN else UNDECIDED


def _more_buckets(data: pd.DataFrame, part: str, dataset: int, method: str) -> Claim:
    few, many = (b for d, b in settings(data, part) if d == dataset)
    roots = [_left_out(squares(data, part, dataset, b))[method].pow(0.5) for b in (few, many)]
    measured = jackknife(roots[0] - roots[1])
    return Claim(
        f"{part}_{dataset}_{method}_more_buckets",
        f"{many:,} buckets lower {METHODS[method][0]}'s encoding error: {PARTS[part]}, dataset {dataset}",
        "Table 1" if part == "turn" else "ours", unless_smoke(data, above(measured, 0)), measured, "% of the pot",
        note=f"{few:,} minus {many:,}, the same subgames; holds if above 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The paper's table and ours."""
    lines = [
        "| subgames | dataset | buckets | how many | DCVN | DEVN | improvement [%] | paper: DCVN, DEVN, improvement |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for part, name in PARTS.items():
        for dataset, buckets in settings(data, part):
            published = _published(part, dataset, buckets)
            theirs = f"{published.dcvn}, {published.devn}, {published.improvement}" if published else "–"
            errors = " | ".join(str(error(data, part, dataset, buckets, method)) for method in METHODS)
            lines.append(
                f"| {name} | {dataset} | {buckets:,} | {_subgames(data, part, dataset):,} | {errors} | "
                f"{improvement(data, part, dataset, buckets)} | {theirs} |"
            )
    return "\n".join([*lines, "", "Errors in % of the pot, with 95% intervals over shards of subgames."])


def _subgames(data: pd.DataFrame, part: str, dataset: int) -> int:
    chosen = data[(data.part == part) & (data.seed == dataset - 1) & (data.metric == "subgames")]
    return int(chosen.value.max())
