"""New measurements against published ones: number by number, and claim by claim.

On the same kind of machine, with the same versions, numbers must be the same in all the digits of a figure's CSV. On
another one rounding differs, and what is sampled with it: there a new run must lie within the spread of the published
seeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from paper_figures import frame
from paper_figures.claims import Claim
from repro.config.keys import flatten

SAME, WITHIN, DIFFERS, OPEN = "the same", "within the spread", "different", "of one run, which has no spread"
"""What becomes of a number."""

CLOCKS = ("wall_seconds",)
"""Metrics that no two runs share."""

_EXPECTED = 0.99
"""Share of further runs whose numbers the spread of the published seeds is to hold."""

_BY_CHANCE = 0.05
"""Share of numbers that may lie outside: one in a hundred is expected to, and numbers of one run go together."""

_ROUNDING = 1e-6
"""Relative difference that is rounding, where all published seeds have the same number."""

_NO_SETTINGS = (
    "algorithm.iterations", "algorithm.readouts.", "algorithm.module", "algorithm.schema", "game.module", "seed",
    "target", "scale",
)  # fmt: skip

_FACTS = ("cpu", "instructions", "gpu", "python", "torch", "numpy", "numba")
"""What numbers can depend on to the last bit, as provenance has it."""


def other_kind(published: Sequence[Mapping[str, Any]], here: Mapping[str, str]) -> list[str]:
    """In what this machine and its versions are of another kind than those that published runs were made with.

    Args:
        published: sweeps of a `provenance.json`; facts that none of them has are passed over.
        here: facts of this machine.
    """
    then = {fact: sorted({str(v) for sweep in published for v in sweep.get(fact, [])}) for fact in _FACTS}
    return [
        f"{fact} {', '.join(values)} there, {here[fact]} here"
        for fact, values in then.items()
        if values and values != [here[fact]]
    ]


def other_settings(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Hyperparameters that are others than they were, and such as only one side has: keys may have been renamed.

    Args:
        then, now: configurations of a training, as provenance has them; their lengths do not count.
    """
    before, after = (
        {key: value for key, value in flatten(config).items() if not key.startswith(_NO_SETTINGS)}
        for config in (then, now)
    )
    both = sorted(before.keys() & after.keys())
    changes = [f"{key} {before[key]} then, {after[key]} now" for key in both if before[key] != after[key]]
    for side, keys in (("then", before.keys() - after.keys()), ("now", after.keys() - before.keys())):
        if keys:
            changes.append(f"only {side} {', '.join(sorted(keys))}")
    return changes


def of_sweep(published: pd.DataFrame, name: str, algorithm: str) -> pd.DataFrame:
    """The published rows of a sweep, by its name; data whose only sweep has none, by the algorithm."""
    named = published[(published.sweep == name) & (published.algorithm == algorithm)]
    unnamed = (published.sweep == "").all()
    return published[published.algorithm == algorithm] if unnamed else named


def compared(published: pd.DataFrame, new: pd.DataFrame, alike: bool) -> pd.DataFrame:
    """Every number that published and new data have both.

    Args:
        published, new: as `paper_figures.frame` describes it, of a single sweep.
        alike: whether the machines are of the same kind.

    Returns:
        A row per number: `readout`, `seed`, `metric`, `step`, columns of swept keys, `value_published`, `value_new`,
        `low` and `high` (the spread of the published seeds; NaN if there is one) and `verdict`, one of the constants
        above. Rows that cannot be told apart are left out.
    """
    settings = [column for column in frame.swept(published) if column in frame.swept(new)]
    group = ["algorithm", "readout", *settings, "metric", "step"]
    then, now = (_keyed(data[~data.metric.isin(CLOCKS)], group) for data in (published, new))
    spread = then.groupby(group, sort=False).value.agg(["mean", "std", "count"]).reset_index()
    together = [each.drop_duplicates([*group, "seed"], keep=False) for each in (then, now)]
    columns = [*group, "seed", "value"]
    both = together[0][columns].merge(together[1][columns], on=[*group, "seed"], suffixes=("_published", "_new"))
    return _judged(both.merge(spread, on=group), alike)


def _keyed(data: pd.DataFrame, group: Sequence[str]) -> pd.DataFrame:
    """Settings as text, so that 100, 100.0 and "100" are one."""
    texts = {c: data[c].map(_text) for c in group if c not in ("metric", "step")}
    return data.assign(**texts)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float | np.number) else str(value)


def _judged(both: pd.DataFrame, alike: bool) -> pd.DataFrame:
    """With the spread of the published seeds, which is where 99 of 100 further runs are expected, and the verdicts."""
    several = both["count"] > 1
    quantile = stats.t.ppf((1 + _EXPECTED) / 2, both["count"].where(several) - 1)
    half = np.maximum(quantile * both["std"] * np.sqrt(1 + 1 / both["count"]), _ROUNDING * both["mean"].abs())
    both = both.assign(low=both["mean"] - half, high=both["mean"] + half)
    same = both.value_published.map("{:.8g}".format) == both.value_new.map("{:.8g}".format)
    inside = both.value_new.between(both.low, both.high)
    # Of one run the least that can be said is that rounding alone makes the difference.
    inside |= ~several & np.isclose(both.value_new, both.value_published, rtol=_ROUNDING, atol=0)
    beyond = [inside, ~several] if not alike else []
    names = [WITHIN, OPEN] if not alike else []
    verdict = np.select([same, *beyond], [SAME, *names], default=DIFFERS)
    return both.assign(verdict=verdict).drop(columns=["mean", "std", "count"])


def agree(both: pd.DataFrame, alike: bool) -> bool:
    """Whether numbers agree: on machines of the same kind all of them, on others all but as few as chance explains."""
    differing = (both.verdict == DIFFERS).mean()
    return bool(differing == 0 if alike else differing <= _BY_CHANCE)


def told(both: pd.DataFrame, most: int = 10) -> Iterator[str]:
    """Lines that say how many numbers agree, and of those that do not the first ones."""
    counts = both.verdict.value_counts()
    yield f"{len(both)} numbers: " + ", ".join(f"{counts[v]} {v}" for v in (SAME, WITHIN, DIFFERS, OPEN) if v in counts)
    # The earliest say most: what follows a first difference differs, too.
    wrong = both[both.verdict == DIFFERS].sort_values("step", kind="stable")
    apart = [c for c in wrong.columns if c not in _SHOWN and wrong[c].nunique() > 1]
    for _, row in wrong.head(most).iterrows():
        setting = "".join(f", {column} {row[column]}" for column in apart)
        yield (
            f"  {row.readout} {row.metric}{setting}, seed {row.seed}, iteration {row.step}: published "
            f"{row.value_published:.8g}, now {row.value_new:.8g}{_where(row)}"
        )
    if len(wrong) > most:
        yield f"  and {len(wrong) - most} more"


_SHOWN = ("algorithm", "readout", "metric", "seed", "step", "value_published", "value_new", "low", "high", "verdict")


def _where(row: Any) -> str:
    if not np.isfinite([row.low, row.high]).all():
        return ""
    side = "within" if row.low <= row.value_new <= row.high else "outside"
    return f" ({side} the spread of the published seeds, {row.low:.4g} to {row.high:.4g})"


# -- claims ----------------------------------------------------------------------------------------------------------


def verdicts(claims: Sequence[Claim]) -> dict[str, str]:
    """Of each claim what was found, by its id."""
    return {claim.id: str(claim.verdict) for claim in claims}


def published_verdicts(folder: Path) -> dict[str, str]:
    """The same of a `claims.json`."""
    return {claim["id"]: claim["verdict"] for claim in json.loads((folder / "claims.json").read_text())}


def differing(columns: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Claims that are not judged alike everywhere: of each the verdict in every column, "–" where it is not judged."""
    every = dict.fromkeys(claim for column in columns.values() for claim in column)
    found = {claim: [column.get(claim, "–") for column in columns.values()] for claim in every}
    return {claim: judged for claim, judged in found.items() if len(set(judged)) > 1}
