"""New measurements against published ones: number by number, and claim by claim.

Where machine, versions, settings and code are known to be the same, numbers must be the same in eight digits, which
is finer than single precision. Elsewhere rounding differs, and what is sampled with it: there a new run must lie within
the spread of the published seeds, and where they have none, be the same but for rounding.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from repro.config.keys import flatten
from repro.figures import frame
from repro.figures.claims import Claim

SAME, DIFFERS = "the same", "different"
ROUNDING = "the same but for rounding"
WITHIN, OUTSIDE = "within the spread of the published seeds", "outside the spread of the published seeds"
OPEN = "not judged: two published seeds, whose spread says nothing"
"""What becomes of a number."""

VERDICTS = (SAME, ROUNDING, WITHIN, OUTSIDE, DIFFERS, OPEN)
"""All of them, best first."""

CLOCKS = ("wall_seconds",)
"""Metrics that no two runs share."""

_EXPECTED = 0.99
"""Share of further runs whose numbers the spread of the published seeds is to hold."""

_BY_CHANCE = 0.05
"""Share of many numbers that may lie outside a spread: one in 100 is expected to, and one run's go together."""

_ROUNDING = 1e-6
"""Relative difference that is rounding."""

_ZERO = 1e-12
"""And the absolute one, for numbers that would be 0."""

_DIGITS = 8
"""Significant digits in which numbers must be the same, where they must."""

_SEVERAL = 3
"""Seeds whose spread says something: of two, 99 of 100 further runs are expected within 78 standard deviations."""

_NO_SETTINGS = (
    "algorithm.iterations", "algorithm.readouts.", "algorithm.module", "algorithm.schema", "game.module", "seed",
    "target", "scale",
)  # fmt: skip

_FACTS = ("cpu", "instructions", "gpu", "python", "torch", "numpy", "numba", "scipy")
"""What numbers can depend on to the last bit, as provenance has it."""

_LATER_FACTS = ("cpu_flags", "blas", "compute_settings")
"""Likewise; provenance of earlier versions does not have them, and is not held against it."""


def other_kind(published: Mapping[str, Any], here: Mapping[str, str]) -> list[str]:
    """In what this machine and its versions are, or may be, of another kind than those of published runs.

    Args:
        published: a sweep of a `provenance.json`; facts that it does not have are not known.
        here: facts of this machine.
    """
    then = {fact: [str(v) for v in published.get(fact, [])] for fact in (*_FACTS, *_LATER_FACTS)}
    found = [
        f"{fact} {', '.join(values)} there, {here[fact]} here"
        for fact, values in then.items()
        if values and values != [here[fact]]
    ]
    unknown = [fact for fact, values in then.items() if not values and fact not in _LATER_FACTS]
    return [*found, f"unknown there: {', '.join(unknown)}"] if unknown else found


def provenance_of(name: str, config: Mapping[str, Any], provenance: Sequence[Mapping[str, Any]]) -> Any:
    """The one sweep of a `provenance.json` that has a name or, before there were names, is most like a configuration.

    Returns:
        A sweep's provenance; None where there is none, or several are as much alike.
    """
    alike = [p for p in provenance if p["config"]["algorithm"]["name"] == config["algorithm"]["name"]]
    alike = [p for p in alike if p.get("sweep") == name] or [p for p in alike if p.get("sweep") is None]
    # A sweep whose seeds were not all run together is there once for each time.
    alike = [p for p in alike if config.get("seed") in p.get("seeds", ())] or alike
    changes = [len(other_settings(p["config"], config)) for p in alike]
    best = [p for p, count in zip(alike, changes, strict=True) if count == min(changes)]
    return best[0] if len(best) == 1 else None


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


def compared(published: pd.DataFrame, new: pd.DataFrame, exact: bool) -> pd.DataFrame:
    """Every number that published and new data have both.

    Args:
        published, new: as `repro.figures.frame` describes it, of a single sweep.
        exact: whether they must be the same in eight digits.

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
    return _judged(both.merge(spread, on=group), exact)


def without_partner(published: pd.DataFrame, new: pd.DataFrame, both: pd.DataFrame) -> int:
    """How many published numbers of the new data's seeds and iterations were not compared."""
    asked = published.seed.isin(new.seed) & published.step.isin(new.step) & ~published.metric.isin(CLOCKS)
    return int(asked.sum()) - len(both)


def _keyed(data: pd.DataFrame, group: Sequence[str]) -> pd.DataFrame:
    """Settings as text, so that 100, 100.0 and "100" are one."""
    texts = {c: data[c].map(_text) for c in group if c not in ("metric", "step")}
    return data.assign(**texts)


def _text(value: object) -> str:
    try:
        return repr(float(str(value)))
    except ValueError:
        return str(value)


def _judged(both: pd.DataFrame, exact: bool) -> pd.DataFrame:
    """With the spread of the published seeds, which is where 99 of 100 further runs are expected, and the verdicts."""
    quantile = stats.t.ppf((1 + _EXPECTED) / 2, both["count"].where(both["count"] > 1) - 1)
    half = quantile * both["std"] * np.sqrt(1 + 1 / both["count"])
    both = both.assign(low=both["mean"] - half, high=both["mean"] + half)
    same = _same_digits(both.value_published, both.value_new)
    close = np.isclose(both.value_new, both.value_published, rtol=_ROUNDING, atol=_ZERO)
    inside = both.value_new.between(both.low, both.high)
    spread = both["std"] > _ROUNDING * both["mean"].abs()
    many = spread & (both["count"] >= _SEVERAL)
    if exact:
        verdict = np.where(same, SAME, DIFFERS)
    else:
        conditions = [same, close, many & inside, many, spread]
        verdict = np.select(conditions, [SAME, ROUNDING, WITHIN, OUTSIDE, OPEN], default=DIFFERS)
    return both.assign(verdict=verdict).drop(columns=["mean", "std", "count"])


def _same_digits(published: pd.Series, new: pd.Series) -> pd.Series:
    """Whether finite numbers differ by no more than half a unit of the published one's eighth digit.

    Formatting both would round the published one twice: 1.23456785 of a file may have been 1.2345678499.
    """
    exponent = np.floor(np.log10(published.abs().where(published != 0, 1.0)))
    half = 0.5 * 10.0 ** (exponent - (_DIGITS - 1))
    # A millionth of it is for the binary form of the decimals.
    return (new - published).abs() <= half.where(published != 0, 0.0) * (1 + 1e-6)


def agree(both: pd.DataFrame) -> bool | None:
    """Whether numbers agree: all of them, and as many with a spread as chance explains; None if none was judged."""
    judged = both[both.verdict != OPEN]
    if judged.empty:
        return None
    return not (judged.verdict == DIFFERS).any() and _outside(judged) <= _explained(len(_different(judged)))


def _different(numbers: pd.DataFrame) -> pd.DataFrame:
    """Without what is the same number again: read-outs with and without a cap are one until it is reached."""
    return numbers.drop_duplicates(["algorithm", "seed", "metric", "step", "value_published", "value_new"])


def _outside(judged: pd.DataFrame) -> int:
    return int((_different(judged).verdict == OUTSIDE).sum())


def _explained(numbers: int) -> float:
    """How many of so many numbers may lie outside: as many as in 99 of 100 runs do if each does by itself, or more,
    because those of a run do not."""
    return max(float(stats.binom.ppf(_EXPECTED, numbers, 1 - _EXPECTED)), _BY_CHANCE * numbers)


def told(both: pd.DataFrame, most: int = 10) -> Iterator[str]:
    """Lines that say how many numbers agree, and of those that do not the first ones."""
    counts = both.verdict.value_counts()
    other = len(both) - int(counts.get(SAME, 0))
    digits = f"{other} differ in digits" if other else "none differs in digits"
    yield f"{len(both)} numbers, {digits}: " + ", ".join(f"{counts[v]} {v}" for v in VERDICTS if v in counts)
    judged = both[both.verdict != OPEN]
    if outside := _outside(judged):
        different = len(_different(judged))
        yield (
            f"  of {different} different numbers {outside} outside, where chance explains "
            f"{math.floor(_explained(different))}"
        )
    # The earliest say most: what follows a first difference differs, too.
    wrong = _different(both[both.verdict.isin((DIFFERS, OUTSIDE))]).sort_values("step", kind="stable")
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
