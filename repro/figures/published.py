"""What is published: of every target its finding, and of each of its scales the verdicts and what they cost.

The report, the README's table and `make list` are made of this alone. It comes from the pages in `paper_figures/` and
from `claims.json` and `provenance.json` in `paper_figures/results/<target>-<scale>/`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.markup import escape

from paper_figures import claims as claims_of
from paper_figures import page
from paper_figures.claims import NOT_TESTABLE, VERDICTS, Claim
from repro.common import durable
from repro.common.errors import ReproError, told_as
from repro.figures.targets import ROOT, SCALES, module_of, targets

RESULTS = ROOT / "paper_figures" / "results"
README = ROOT / "README.md"
VERDICTS_PICTURE = ROOT / "paper_figures" / "verdicts.svg"
"""All verdicts at a glance, as the README shows them."""

SOURCES = ("SD-CFR", "Deep CFR", "D2CFR", "DEVN", "Kuhn")
"""What targets are of; each target's `TITLE` begins with one of them."""

_TABLE = re.compile(r"(<!-- targets -->\n).*?(<!-- end targets -->)", re.DOTALL)


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
    return claims_of.counted([verdict for verdict in result.after_holm if verdict is not None]) or "–"


def minutes_in_words(result: Result) -> str:
    return page.minutes_in_words(result.minutes)


def cost_in_words(result: Result) -> str:
    """Minutes of all trainings and, where it was recorded and is any, of evaluations: `22 + 58`."""
    beside = f" + {page.minutes_in_words(result.evaluating)}" if result.evaluating >= 1 else ""
    return minutes_in_words(result) + beside


def in_plain_words(markdown: str) -> str:
    """Markdown's text, for a terminal: without links and marks of code, and with brackets that are no markup."""
    return escape(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", ""))


def readme_table(every: Sequence[Target]) -> str:
    """The README's table of targets, at the most advanced scale that is published of each."""
    lines = [
        "| `make` | of | game | scale | claims | after Holm | minutes | we find |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for target in every:
        cells = [f"[{target.name}](paper_figures/{target.name}.md)", target.item, target.game]
        if target.results:
            first = target.results[0]
            cells += [first.scale, verdicts_in_words(first), corrected_in_words(first), cost_in_words(first)]
        else:
            cells += ["–"] * 4
        lines.append(f"| {' | '.join([*cells, _from_root(target.finding.headline)])} |")
    return "\n".join(lines) + "\n"


def totals_in_words(every: Sequence[Target]) -> str:
    """All verdicts at the most advanced scale that is published of each target, one by one and corrected."""
    results = [target.results[0] for target in every if target.results]
    verdicts = [verdict for result in results for verdict in result.verdicts]
    corrected = [verdict for result in results for verdict in result.after_holm if verdict is not None]
    return (
        f"Of {len(verdicts)} claims, {claims_of.counted(verdicts).replace(NOT_TESTABLE, 'not testable')}. With Holm's "
        f"correction for the many claims of a page, of the {len(corrected)} that have a p-value, "
        f"{claims_of.counted(corrected)}.\n"
    )


def _from_root(markdown: str) -> str:
    """Links of a page, as the README has them."""
    return re.sub(r"\]\((?![a-z]+:)([^)#]+)", r"](paper_figures/\1", markdown)


def with_table(readme: str, every: Sequence[Target]) -> str:
    """The README's text with its table of targets brought up to date.

    Raises:
        ReproError: it has no place for it.
    """
    if not _TABLE.search(readme):
        raise ReproError(f"{README} has no block '<!-- targets -->' ... '<!-- end targets -->' to fill in.")
    # Its rows are sentences: who reads on from the picture opens it.
    table = (
        f"<details>\n<summary>of each figure and table, one sentence</summary>\n\n{readme_table(every)}\n</details>\n"
    )
    block = f"{totals_in_words(every)}\n{table}"
    return _TABLE.sub(lambda match: match.group(1) + block + match.group(2), readme)


def refresh_readme() -> None:
    """Bring the README's table of targets up to date, and its picture of all verdicts."""
    from repro.report.verdicts import drawn  # noqa: PLC0415  (imports Matplotlib)

    every = published()
    durable.write(README, with_table(README.read_text(), every).encode())
    durable.write(VERDICTS_PICTURE, drawn(every))


def print_targets() -> None:
    """Print every target with what it shows, what we find, how many claims have which verdict, and what it took."""
    from rich.table import Table  # noqa: PLC0415

    from repro.tracking.progress import console  # noqa: PLC0415

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("make target", no_wrap=True)
    table.add_column("what it shows; what we find")
    table.add_column("scale", no_wrap=True)
    for short in ("held", "not", "open", "n.t."):
        table.add_column(short, justify="right", no_wrap=True)
    table.add_column("min", justify="right", no_wrap=True)
    for target in published():
        text = f"{target.item}, {target.game}: {target.shows}. [bold]{in_plain_words(target.finding.headline)}[/bold]"
        first = target.results[0] if target.results else None
        counts = [str(first.verdicts.count(verdict)) for verdict in VERDICTS] if first else [""] * len(VERDICTS)
        table.add_row(target.name, text, first.scale if first else "–", *counts, cost_in_words(first) if first else "")
    console(sys.stdout).print(table)
    print(
        "\nClaims that held, did not hold, are left open by their intervals, and are not testable, at the most advanced"
    )
    print("scale that is published; minutes of all trainings, one after another, + of evaluations where recorded.")
    print("`make report` has all claims and scales.")
