"""Encoding errors: what rows of table 4 are of, the paper's among them, and the statistics of shards of subgames."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import inf, isinf
from typing import Any

import pandas as pd

from repro.evaluation.statistics import Estimate, mean_ci
from repro.figures.frame import curves, swept

LABELS = {
    "turn": "turn",
    "turn_k_medians": "turn, k-medians",
    "turn_labels": "turn",
    "turn_ranges": "turn",
    "turn_large_pots": "turn, large pots (ours)",
    "river": "river (ours)",
    "river_small_pots": "river, all pots (ours)",
}
"""The sweeps, and what subgames they are of."""


OF_ACCURACY, OF_RANGES = ("turn_labels", "river_small_pots"), ("turn_ranges",)
"""Those that differ in the labels' accuracy and in the order of hands for ranges; the others do in buckets."""


METHODS = {"dcvn": ("DCVN", "#0072B2", -0.15), "devn": ("DEVN", "#D55E00", 0.15)}
"""Name, colour, and place beside the middle of a row."""


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


@dataclass(frozen=True)
class Setting:
    """What a row of ours is of.

    Attributes:
        sweep: one of `LABELS`.
        dataset: datasets are numbered from 1, as in the paper.
        buckets: how many, if the sweep differs in that: infinity for one of each description.
        tolerance: to what share of the pot labels are exact, if it differs in that.
        sorting: by what hands are sorted for ranges, and in what order equally strong ones are, if it differs in that.
    """

    sweep: str
    dataset: int
    buckets: float | None = None
    tolerance: float | None = None
    sorting: tuple[str, str] | None = None

    @classmethod
    def of(cls, row: Mapping[Hashable, Any]) -> Setting:
        """That of a row of the data."""
        sweep, dataset = row["sweep"], int(row["seed"]) + 1
        if sweep in OF_ACCURACY:
            return cls(sweep, dataset, tolerance=float(row["solver_tolerance"]))
        if sweep in OF_RANGES:
            return cls(sweep, dataset, sorting=(row["game_strength"], row["game_ties"]))
        count = float(row["buckets"])
        return cls(sweep, dataset, buckets=count if isinf(count) else int(count))

    @property
    def where(self) -> dict[str, Any]:
        """The columns in which the sweep differs, with this setting's values."""
        if self.tolerance is not None:
            return {"solver_tolerance": self.tolerance}
        if self.sorting is not None:
            return dict(zip(("game_strength", "game_ties"), self.sorting, strict=True))
        return {"buckets": self.buckets}

    @property
    def published(self) -> Row | None:
        """The paper's row, of turn subgames only."""
        if self.sweep != "turn":
            return None
        return next((row for row in PAPER if (row.dataset, row.buckets) == (self.dataset, self.buckets)), None)

    @property
    def name(self) -> str:
        """Unique, for claims."""
        values = "_".join("None" if value == inf else str(value) for value in self.where.values())
        return f"{self.sweep}_{self.dataset}_{values}"

    @property
    def difference(self) -> str:
        """What differs, in words."""
        if self.tolerance is not None:
            return f"labels to {100 * self.tolerance:g}%"
        if self.sorting is not None:
            strength, ties = (text.replace("_", " ") for text in self.sorting)
            return f"ranges by {strength}, ties {ties}"
        return "finest buckets" if self.buckets == inf else f"{self.buckets:,} buckets"

    def __str__(self) -> str:
        return f"{LABELS[self.sweep]}, dataset {self.dataset}, {self.difference}"


def settings(data: pd.DataFrame, sweep: str) -> list[Setting]:
    """The settings of a sweep, fewer buckets and rougher labels first, and ranges as in the others."""
    rows = data[data.sweep == sweep].drop_duplicates(["seed", *swept(data)])
    return sorted(
        map(Setting.of, rows.to_dict("records")),
        key=lambda s: (s.dataset, s.buckets or 0, -(s.tolerance or 0), _sorting(s)),
    )


def _sorting(setting: Setting) -> tuple[bool, bool]:
    """Whether strength, and the order of ties, are other than in the rest of the table."""
    strength, ties = setting.sorting or ("equity", "random")
    return strength != "equity", ties != "random"


def shards(data: pd.DataFrame, setting: Setting, metric: str) -> pd.DataFrame:
    """A metric of the shards of subgames: `[shards, read-outs]`."""
    where = {"sweep": setting.sweep, "seed": setting.dataset - 1, **setting.where}
    tables = {readout: curves(data, metric, readout=readout, **where) for readout in (*METHODS, "training")}
    return pd.DataFrame({readout: table_.iloc[0] for readout, table_ in tables.items() if len(table_)})


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


def error(data: pd.DataFrame, setting: Setting, method: str) -> Estimate:
    """Encoding error in % of the pot: the mean over subgames and players of their root mean square errors."""
    return jackknife(_left_out(shards(data, setting, "error"))[method])


def improvement(data: pd.DataFrame, setting: Setting) -> Estimate:
    """By how much DEVN's error is lower than DCVN's, in % of DCVN's."""
    means = _left_out(shards(data, setting, "error"))
    return jackknife(100 * (1 - means["devn"] / means["dcvn"]))


def pooled_improvement(data: pd.DataFrame, setting: Setting) -> Estimate:
    """The same of the root mean square error over all subgames."""
    means = _left_out(shards(data, setting, "squared_error"))
    return jackknife(100 * (1 - (means["devn"] / means["dcvn"]).pow(0.5)))
