"""A paper's claim, judged on our data."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from repro import durable
from repro.evaluation.statistics import Estimate

HELD, DID_NOT_HOLD, NOT_TESTABLE = "held", "did not hold", "not testable at this scale"
UNDECIDED = "undecided"
"""The interval over our runs includes both what the claim says and its opposite."""


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        id: short name, unique within the target.
        statement: what is claimed, in one sentence.
        source: where the paper says it.
        verdict: one of the constants above.
        measured: our number, with its interval over seeds; None where not testable.
        unit: of `measured`.
        paper: the paper's number in the same unit, if it gives one.
        note: how the verdict was reached, or why there is none.
    """

    id: str
    statement: str
    source: str
    verdict: str
    measured: Estimate | None
    unit: str
    paper: float | None = None
    note: str = ""


def above(measured: Estimate, threshold: float) -> str:
    """Verdict on "more than `threshold`": the whole interval must lie on one side, so one run decides nothing."""
    if measured.low > threshold:
        return HELD
    return DID_NOT_HOLD if measured.high <= threshold else UNDECIDED


def below(measured: Estimate, threshold: float) -> str:
    """Verdict on "less than `threshold`", likewise."""
    if measured.high < threshold:
        return HELD
    return DID_NOT_HOLD if measured.low >= threshold else UNDECIDED


def within(measured: Estimate, low: float, high: float) -> str:
    """Verdict on "from `low` to `high`": the whole interval must lie there, or wholly above or below."""
    if low <= measured.low and measured.high <= high:
        return HELD
    return DID_NOT_HOLD if measured.high < low or measured.low > high else UNDECIDED


def write(claims: Sequence[Claim], path: Path) -> None:
    """`claims.json`: a list of objects; numbers that do not exist (an interval from one seed) are null."""

    def clean(value: object) -> object:
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    durable.write(path, (json.dumps([clean(asdict(c)) for c in claims], indent=2) + "\n").encode())


def markdown(claims: Sequence[Claim]) -> str:
    """The claims as a Markdown table."""
    lines = ["| claim | paper | ours, mean [95% CI] | verdict |", "|---|---|---|---|"]
    for c in claims:
        ours = f"{c.measured} {c.unit}" if c.measured else "–"
        paper = f"{c.paper:.3g} {c.unit}" if c.paper is not None else "–"
        note = f" ({c.note})" if c.note else ""
        lines.append(f"| {c.statement} *({c.source})* | {paper} | {ours} | **{c.verdict}**{note} |")
    return "\n".join(lines)
