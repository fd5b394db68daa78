"""What is published: of every target its finding, and of each of its scales the verdicts and what they cost.

The report, the README's table and `make list` are made of this alone. It comes from the pages in `paper_figures/` and
from `claims.json` and `provenance.json` in `paper_figures/results/<target>-<scale>/`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from repro.common.errors import told_as
from repro.figures import claims as claims_of
from repro.figures import page
from repro.figures.claims import NOT_TESTABLE, Claim
from repro.figures.targets import ROOT, SCALES, module_of, targets

RESULTS = ROOT / "paper_figures" / "results"

SOURCES = ("SD-CFR", "Deep CFR", "D2CFR", "DEVN", "Kuhn")
"""What targets are of; each target's `TITLE` begins with one of them."""


@dataclass(frozen=True)
class Result:
    """What is published of a target at one scale.

    Attributes:
        target: its name.
        scale: one of `repro.figures.targets.SCALES`.
        folder: where its files are.
        claims: all of them, checks included, in the order of `claims.json`.
        provenance: `provenance.json`.
    """

    target: str
    scale: str
    folder: Path
    claims: Sequence[Claim]
    provenance: Mapping[str, Any]

    @property
    def minutes(self) -> float:
        """What all its runs took, one after another, each once; what other targets share is counted in each."""
        return page.minutes(self.provenance["sweeps"])

    @property
    def evaluating(self) -> float:
        """Minutes of what was measured of them; 0 where that was not recorded of all."""
        return page.evaluation_minutes(self.provenance["sweeps"]) or 0.0

    @property
    def on_the_clock(self) -> bool:
        """Whether `minutes` are by the clock, at least of some runs, which other work on the machine makes longer."""
        return bool(page.on_the_clock(self.provenance["sweeps"]))

    @cached_property
    def verdicts(self) -> list[str]:
        """Of each claim that is no check, as judged one by one."""
        return [claim.verdict for claim in self.claims if not claim.check]

    @cached_property
    def after_holm(self) -> list[str | None]:
        """Of each claim, checks included: its verdict after Holm's correction, None where none is possible."""
        return claims_of.after_holm(self.claims)

    @property
    def picture(self) -> Path:
        return self.folder / f"{self.target}.png"


@dataclass(frozen=True)
class Target:
    """A figure or table, and what is published of it.

    Attributes:
        name: as `make` knows it.
        heading: of its page.
        item: which item of which source it is, e.g. "SD-CFR Fig. 2".
        game: what is played.
        shows: what it shows.
        finding: as its page opens.
        results: by scale, the most advanced one first; empty if there are none.
    """

    name: str
    heading: str
    item: str
    game: str
    shows: str
    finding: page.Finding
    results: Sequence[Result]

    @property
    def source(self) -> str:
        """One of `SOURCES`."""
        return next(source for source in SOURCES if self.item.startswith(source))


def published() -> list[Target]:
    """All targets, in the order of `targets`.

    Raises:
        ReproError: a page does not open with its finding, or published files are damaged.
    """
    return [_target(name) for name in targets()]


def _target(name: str) -> Target:
    module = module_of(name)
    scales = [scale for scale in reversed(SCALES) if (RESULTS / f"{name}-{scale}").is_dir()]
    results = [_result(name, scale) for scale in scales]
    return Target(name, page.heading(name), module.TITLE, module.GAME, module.SHOWS, page.finding(name), results)


def _result(target: str, scale: str) -> Result:
    folder = RESULTS / f"{target}-{scale}"
    with told_as(lambda error: f"{folder} holds no verdicts that can be read ({type(error).__name__}: {error})."):
        claims = claims_of.read(folder / "claims.json")
        return Result(target, scale, folder, claims, json.loads((folder / "provenance.json").read_text()))


def command_of(sweep: Mapping[str, Any]) -> str:
    """The command that repeats a published sweep with today's code.

    Args:
        sweep: of a `provenance.json`. Its `command` is one of the commit that made it; where that is no longer
            understood, `command_now` asks for the same.
    """
    return str(sweep.get("command_now", sweep["command"]))


def maker_of(key: str) -> str:
    """What makes the published run of this key, as a sentence; empty where there is none."""
    for target in published():
        for result in target.results:
            for sweep in result.provenance["sweeps"]:
                if key in page.names_of_runs(sweep):
                    return (
                        f"It is published, in {target.name} at scale {result.scale}; `{command_of(sweep)}` makes it, "
                        f"and `make verify TARGET={target.name} SCALE={result.scale}` repeats beginnings of such runs."
                    )
    return ""


# -- in words --------------------------------------------------------------------------------------------------------


def verdicts_in_words(result: Result) -> str:
    """How many claims there are of each verdict, e.g. "11 held, 6 undecided, 19 not testable"."""
    return claims_of.counted(result.verdicts).replace(NOT_TESTABLE, "not testable")


def corrected_in_words(result: Result) -> str:
    """As `verdicts_in_words`, with Holm's correction, of the claims that have a p-value; "–" if none has."""
    corrected = claims_of.counted([verdict for verdict in result.after_holm if verdict is not None])
    return corrected.replace(NOT_TESTABLE, "not testable") or "–"


def minutes_in_words(result: Result) -> str:
    return page.minutes_in_words(result.minutes)


def cost_in_words(result: Result) -> str:
    """Minutes of all trainings and, where it was recorded and is any, of evaluations: `22 + 58`."""
    beside = f" + {page.minutes_in_words(result.evaluating)}" if result.evaluating >= 1 else ""
    return minutes_in_words(result) + beside
