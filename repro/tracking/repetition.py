"""What came of repeating the beginning of published runs, as `provenance.json` keeps it and pages tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

KEY = "repeated"
"""Under which a sweep of a `provenance.json` has it."""


@dataclass(frozen=True)
class Repetition:
    """How numbers of repeated runs and published ones agree.

    Attributes:
        commit: of the code that repeated them.
        seeds: which ones.
        iterations: with which the repeated runs ended, in ascending order.
        numbers: how many of each verdict of `repro.figures.agreement`; verdicts without numbers are left out.
        agrees: whether that is agreement, as `agreement.agree` judges it.
    """

    commit: str
    seeds: Sequence[int]
    iterations: Sequence[int]
    numbers: Mapping[str, int]
    agrees: bool

    @classmethod
    def kept(cls, sweep: Mapping[str, Any]) -> Repetition | None:
        """What a sweep of a `provenance.json` has of it; None if its runs were not repeated."""
        return cls(**sweep[KEY]) if KEY in sweep else None

    def to_keep(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    def __str__(self) -> str:
        seeds, ends = ", ".join(map(str, self.seeds)), " or ".join(map(str, self.iterations))
        numbers = ", ".join(f"{count} {verdict}" for verdict, count in self.numbers.items())
        return (
            f"repeated at commit {self.commit[:12]} (seed {seeds}, up to iteration {ends}; numbers: {numbers}), and "
            f"{'agreed' if self.agrees else '**did not agree**'}"
        )
