"""A paper's claim, judged on our data."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from repro.evaluation.statistics import Estimate

HELD, DID_NOT_HOLD, NOT_TESTABLE = "held", "did not hold", "not testable at this scale"


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


def judged(holds: bool) -> str:
    """The verdict of a test that could be made."""
    return HELD if holds else DID_NOT_HOLD


def write(claims: Sequence[Claim], path: Path) -> None:
    """`claims.json`: a list of objects; numbers that do not exist (an interval from one seed) are null."""

    def clean(value: object) -> object:
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    path.write_text(json.dumps([clean(asdict(c)) for c in claims], indent=2) + "\n")


def markdown(claims: Sequence[Claim]) -> str:
    """The claims as a Markdown table."""
    lines = ["| claim | paper | ours, mean [95% CI] | verdict |", "|---|---|---|---|"]
    for c in claims:
        ours = f"{c.measured} {c.unit}" if c.measured else "–"
        paper = f"{c.paper:g} {c.unit}" if c.paper is not None else "–"
        note = f" ({c.note})" if c.note else ""
        lines.append(f"| {c.statement} *({c.source})* | {paper} | {ours} | **{c.verdict}**{note} |")
    return "\n".join(lines)
