"""A paper's claim, judged on our data."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.common import durable
from repro.evaluation.statistics import Estimate, digits, holm, p_value

HELD, DID_NOT_HOLD, NOT_TESTABLE = "held", "did not hold", "not testable at this scale"
UNDECIDED = "undecided"
"""The interval over our runs includes both what the claim says and its opposite."""
VERDICTS = (HELD, DID_NOT_HOLD, UNDECIDED, NOT_TESTABLE)


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        id: short name, unique within the target.
        statement: what is claimed, in one sentence.
        source: where the paper says it.
        verdict: one of the constants above.
        measured: our number, with its interval over seeds; None where there is none.
        unit: of `measured`.
        paper: the paper's number in the same unit, if it gives one.
        note: how the verdict was reached, or why there is none.
        p: two-sided p-value of the opposite, where intervals decide; None is filled in from the verdict. What runs of
            this length cannot test has none, nor what the same data suggested; what was tested, and is not testable
            because of how that came out, keeps it: whether a test is counted among many must not depend on its outcome.
        check: whether this is no claim of a paper's but a check of the runs, which is not counted among many claims.
    """

    id: str
    statement: str
    source: str
    verdict: str
    measured: Estimate | None
    unit: str
    paper: float | None = None
    note: str = ""
    p: float | None = None
    check: bool = False

    def __post_init__(self) -> None:
        if self.p is None and isinstance(self.verdict, Verdict):
            object.__setattr__(self, "p", self.verdict.p)


class Verdict(str):
    """One of the constants above, as rules on an interval say it: it carries how sure it is.

    Attributes:
        p: the p-value that a claim with this verdict has; None if there is a single run, or all are equal.
    """

    __slots__ = ("p",)
    p: float | None

    def __new__(cls, verdict: str, p: float | None = None) -> Verdict:
        self = super().__new__(cls, verdict)
        self.p = p
        return self


def above(measured: Estimate, threshold: float) -> Verdict:
    """Verdict on "more than `threshold`": the whole interval must lie on one side, so one run decides nothing."""
    p = p_value(measured, threshold)
    if measured.low > threshold:
        return Verdict(HELD, p)
    return Verdict(DID_NOT_HOLD if measured.high <= threshold else UNDECIDED, p)


def below(measured: Estimate, threshold: float) -> Verdict:
    """Verdict on "less than `threshold`", likewise."""
    p = p_value(measured, threshold)
    if measured.high < threshold:
        return Verdict(HELD, p)
    return Verdict(DID_NOT_HOLD if measured.low >= threshold else UNDECIDED, p)


def within(measured: Estimate, low: float, high: float) -> Verdict:
    """Verdict on "from `low` to `high`": the whole interval must lie there, or wholly above or below."""
    both = [p for p in (p_value(measured, low), p_value(measured, high)) if p is not None]
    # Inside, both ends must be excluded; outside, the nearer one, which has the larger p-value, too.
    p = max(both, default=None)
    if low <= measured.low and measured.high <= high:
        return Verdict(HELD, p)
    return Verdict(DID_NOT_HOLD if measured.high < low or measured.low > high else UNDECIDED, p)


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Verdict on a claim that several intervals make: it holds if all hold, and does not if one does not.

    All of them must be sure for it to hold, so the largest p-value is the claim's; that one of so many does not can be
    chance as many times, so the smallest of those that do not is multiplied by their number (Bonferroni).
    """
    verdict = DID_NOT_HOLD if DID_NOT_HOLD in verdicts else HELD if set(verdicts) == {HELD} else UNDECIDED
    alike = [v.p for v in verdicts if v == verdict]
    known = [p for p in alike if p is not None]
    if verdict == DID_NOT_HOLD:
        return Verdict(verdict, min(1.0, len(verdicts) * min(known)) if known else None)
    return Verdict(verdict, max(known) if known and len(known) == len(alike) else None)


# -- many claims -----------------------------------------------------------------------------------------------------


def tally(claims: Sequence[Claim]) -> str:
    """How many claims held and how many did not, as judged one by one, and after Holm's correction for so many."""
    told = f"Judged one by one, {counted([c.verdict for c in claims if not c.check])}."
    corrected = [verdict for verdict in after_holm(claims) if verdict is not None]
    if not corrected:
        return f"{told} None of these claims has a p-value, so there is nothing to correct for their number."
    checks = " (checks of the runs are not counted)" if any(c.check for c in claims) else ""
    have = "has a p-value" if len(corrected) == 1 else "have a p-value"
    return (
        f"{told} {len(corrected)} of these claims {have}{checks}; with Holm's correction, which bounds the probability "
        f"of any error among them by 5%, {counted(corrected)}."
    )


def after_holm(claims: Sequence[Claim]) -> list[str | None]:
    """Each claim's verdict after Holm's correction for their number; None for checks, and where there is no p-value.

    A claim that is not testable because of how its test came out stays so, and its test counts.
    """
    tested = [c.p for c in claims if c.p is not None and not c.check]
    rejected = iter(holm(tested) if tested else [])
    corrected: list[str | None] = []
    for claim in claims:
        if claim.p is None or claim.check:
            corrected.append(None)
        else:
            stays = next(rejected) or claim.verdict == NOT_TESTABLE
            corrected.append(claim.verdict if stays else UNDECIDED)
    return corrected


def counted(verdicts: Sequence[str]) -> str:
    """How many there are of each verdict, in words."""
    counts = ((verdicts.count(verdict), verdict) for verdict in VERDICTS)
    return ", ".join(f"{count} {verdict}" for count, verdict in counts if count)


# -- files -----------------------------------------------------------------------------------------------------------


def write(claims: Sequence[Claim], path: Path) -> None:
    """`claims.json`: a list of objects; numbers that do not exist (an interval from one seed) are null."""

    def clean(value: object) -> object:
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    durable.write(path, (json.dumps([clean(asdict(c)) for c in claims], indent=2) + "\n").encode())


def read(path: Path) -> list[Claim]:
    """The claims of a `claims.json`."""

    def claim(fields: dict[str, Any]) -> Claim:
        measured = fields["measured"]
        if measured is not None:
            mean, low, high = (math.nan if measured[k] is None else measured[k] for k in ("mean", "low", "high"))
            measured = Estimate(mean, low, high, int(measured["n"]), measured.get("freedom"))
        return Claim(**{**fields, "measured": measured})

    return [claim(fields) for fields in json.loads(path.read_text())]


def markdown(claims: Sequence[Claim]) -> str:
    """The claims as a Markdown table; of verdicts that Holm's correction leaves undecided it says so."""
    lines = ["| claim | paper | ours, mean [95% CI] | verdict |", "|---|---|---|---|"]
    for c, corrected in zip(claims, after_holm(claims), strict=True):
        ours = f"{c.measured} {c.unit}" if c.measured else "–"
        paper = f"{digits(c.paper)} {c.unit}" if c.paper is not None else "–"
        note = f" ({c.note})" if c.note else ""
        lost = "" if corrected in (None, c.verdict) else ", undecided after Holm's correction"
        lines.append(f"| {c.statement} *({c.source})* | {paper} | {ours} | **{c.verdict}**{lost}{note} |")
    return "\n".join(lines)
