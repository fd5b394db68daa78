"""The page: what is published, put into the template."""

from __future__ import annotations

import base64
import functools
import io
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup
from PIL import Image
from plotly.offline import get_plotlyjs
from scipy import stats

from repro.common.errors import told_as
from repro.evaluation.statistics import digits
from repro.figures import page
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED, Claim
from repro.figures.published import SOURCES, Result, Target, command_of, cost_in_words, minutes_in_words
from repro.figures.targets import ROOT, module_of
from repro.report.curves import AXES, curves_of
from repro.tracking import provenance

HERE = Path(__file__).parent

SIGNS = {HELD: "✓", DID_NOT_HOLD: "✕", UNDECIDED: "?", NOT_TESTABLE: "–"}
"""What tells verdicts apart without colours."""
CLASSES = {HELD: "held", DID_NOT_HOLD: "not", UNDECIDED: "undecided", NOT_TESTABLE: "untestable"}

_MOST_SEEDS = 40
"""Intervals are drawn of up to so many seeds."""


# -- claims ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A claim as the page shows it.

    Attributes:
        anchor: unique on the page.
        claim: as published.
        corrected: its verdict after Holm's correction, None where there is none.
    """

    anchor: str
    claim: Claim
    corrected: str | None

    @property
    def sign(self) -> str:
        return SIGNS[self.claim.verdict]

    @property
    def classes(self) -> str:
        """Verdict, how sure it is, and whether it is a check, as CSS has them."""
        sure = {"stays": "", "": "", "no longer decided": "weak"}.get(self.holm, "uncorrected")
        return " ".join(filter(None, [CLASSES[self.claim.verdict], sure, "check" if self.claim.check else ""]))

    @property
    def holm(self) -> str:
        """What Holm's correction leaves of a verdict that is one."""
        if self.claim.verdict not in (HELD, DID_NOT_HOLD):
            return ""
        if self.corrected is None:
            return "a check" if self.claim.check else "no p-value"
        return "stays" if self.corrected == self.claim.verdict else "no longer decided"

    @property
    def measured(self) -> str:
        return f"{self.claim.measured} {self.claim.unit}".strip() if self.claim.measured else "–"

    @property
    def paper(self) -> str:
        return f"{digits(self.claim.paper)} {self.claim.unit}".strip() if self.claim.paper is not None else "–"

    @property
    def p(self) -> str:
        return "" if self.claim.p is None else "< 0.0001" if self.claim.p < 1e-4 else f"{self.claim.p:.2g}"


def judged(result: Result) -> list[Judged]:
    """A result's claims, in their order."""
    anchors = (f"{result.target}-{result.scale}-{number}" for number in range(1, len(result.claims) + 1))
    return list(map(Judged, anchors, result.claims, result.after_holm))


def counts(verdicts: Sequence[str | None]) -> dict[str, int]:
    """Verdict -> how many, in the order of `SIGNS`."""
    there = Counter(verdicts)
    return {verdict: there[verdict] for verdict in SIGNS}


# -- text ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Links:
    """Addresses in the checkout, from where the page is written.

    Attributes:
        folder: where that is.
        names: of all targets, which have a place on the page.
    """

    folder: Path
    names: Sequence[str]

    def to(self, path: Path) -> str:
        return quote(Path(os.path.relpath(path, self.folder)).as_posix())

    def of_page(self, href: str) -> str:
        """Where a link on a target's page leads: other targets are on this page."""
        if re.match(r"[a-z]+:", href):
            return href
        file, _, _ = href.partition("#")
        name = file.removesuffix(".md")
        return f"#{name}" if name in self.names else self.to((page.PAGES / file).resolve())

    def markdown(self, text: str, *, inline: bool = False) -> Markup:
        """HTML of a page's Markdown."""
        reader = MarkdownIt("commonmark", {"html": False}).enable("table")
        tokens = reader.parseInline(text) if inline else reader.parse(text)
        for link in (child for token in tokens for child in token.children or [] if child.type == "link_open"):
            link.attrSet("href", self.of_page(str(link.attrGet("href"))))
        # The renderer escapes; it is the library's own.
        return Markup(reader.renderer.render(tokens, reader.options, {}))


# -- a target --------------------------------------------------------------------------------------------------------


def _picture(path: Path) -> str:
    """A picture as a data URI, without loss, in half the bytes.

    Raises:
        ReproError: it cannot be read.
    """
    content = io.BytesIO()
    unreadable = told_as(lambda error: f"{path} cannot be read as a picture ({error}); publish it again.")
    with unreadable, Image.open(path) as image:
        image.convert("RGB").save(content, "WEBP", lossless=True, quality=20, method=1)
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}"


def _made_with(sweep: Mapping[str, Any]) -> dict[str, Any]:
    """What a sweep was made with and what it took."""
    took, evaluating = [seconds / 60 for seconds in page.training_seconds(sweep)], page.evaluation_minutes([sweep])
    versions = ("python", "torch", "pytorch-lightning", "hydra-core", "mlflow", "numpy", "numba")
    return {
        "name": page.name_of(sweep),
        "command": command_of(sweep),
        "runs": len(took),
        "minutes": f"{sum(took):,.1f}",
        "evaluations": None if evaluating is None else f"{evaluating:,.1f}",
        "each": f"{min(took):.1f}" if min(took) == max(took) else f"{min(took):.1f} to {max(took):.1f}",
        "hardware": f"{', '.join(sweep['cpu'])}, {', '.join(sweep['cores'])} cores, GPU: {', '.join(sweep['gpu'])}",
        "threads": sweep["config"].get("threads", 1),
        "seeds": ", ".join(map(str, sweep["seeds"])),
        "commits": page.commits(sweep),
        "versions": ", ".join(f"{name} {', '.join(sweep[name])}" for name in versions if name in sweep),
    }


def _experiments(target: str) -> list[Path]:
    """The files of the experiments that a target's sweeps are made of today."""
    named = [re.search(r"\bexperiment=(\w+)", sweep.overrides) for sweep in module_of(target).SWEEPS]
    files = [ROOT / "conf" / "experiment" / f"{found.group(1)}.yaml" for found in named if found]
    return list(dict.fromkeys(file for file in files if file.is_file()))


def _context_of_result(result: Result, links: Links) -> dict[str, Any]:
    claims, sweeps = judged(result), result.provenance["sweeps"]
    return {
        "scale": result.scale,
        "anchor": f"{result.target}-{result.scale}",
        "claims": claims,
        "counts": counts(result.verdicts),
        "corrected": counts(result.after_holm),
        "lost": counts(_no_longer([result])),
        "tested": sum(verdict is not None for verdict in result.after_holm),
        "checks": sum(claim.check for claim in result.claims),
        "picture": _picture(result.picture),
        "curves": curves_of(result),
        "departures": [
            (name, [(key, *values) for key, values in keys.items()]) for name, keys in page.departures(sweeps)
        ],
        "sweeps": [_made_with(sweep) for sweep in sweeps],
        "minutes": minutes_in_words(result),
        "evaluations": page.minutes_in_words(result.evaluating) if result.evaluating >= 1 else "",
        "cost": cost_in_words(result),
        "on_the_clock": result.on_the_clock,
        "runs": sum(len(sweep["wall_seconds"]) for sweep in sweeps),
        "hardware": ", ".join(sorted({cpu for sweep in sweeps for cpu in (*sweep["cpu"], *sweep["gpu"])} - {"none"})),
        "drawn_on": result.provenance["drawn_on"],
        "files": [(path.name, links.to(path)) for path in sorted(result.folder.iterdir())],
    }


def _context_of(target: Target, links: Links) -> dict[str, Any]:
    return {
        "name": target.name,
        "heading": target.heading,
        "item": target.item,
        "source": target.source,
        "within": target.item.removeprefix(target.source).strip(" ,"),
        "game": target.game,
        "shows": target.shows,
        "finding": [(begin, links.markdown(text, inline=True)) for begin, text in target.finding.sentences.items()],
        "finding_scale": target.finding.scale,
        "choices": links.markdown(page.section(target.name, "Choices")),
        "page": links.to(page.page_of(target.name)),
        "configs": [(file.relative_to(ROOT).as_posix(), links.to(file)) for file in _experiments(target.name)],
        "results": [_context_of_result(result, links) for result in target.results],
    }


# -- the page --------------------------------------------------------------------------------------------------------


def rendered(every: Sequence[Target], folder: Path) -> str:
    """The page's HTML.

    Args:
        every: the targets, in the order of the page.
        folder: where it will be: links lead from there into the checkout.
    """
    links = Links(folder.absolute(), [target.name for target in every])
    contexts = [_context_of(target, links) for target in every]
    curves = {r["anchor"]: r["curves"] for context in contexts for r in context["results"] if r["curves"]}
    loader = jinja2.FileSystemLoader(HERE)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["plural"] = lambda count, word: f"{count:,} {word}{'' if count == 1 else 's'}"
    return environment.get_template("report.html.j2").render(
        by_source=[(s, [c for c in contexts if c["source"] == s]) for s in SOURCES],
        signs=SIGNS,
        classes=CLASSES,
        summary=_summary(every),
        totals=_totals(every),
        commit=(provenance.git("rev-parse", "--short=12", "HEAD") or "unknown").strip(),
        css=Markup((HERE / "report.css").read_text()),
        js=Markup((HERE / "report.js").read_text()),
        plotly=Markup(get_plotlyjs()),
        data=Markup(_for_a_script({"curves": curves, "axes": AXES, "quantiles": _quantiles()})),
    )


def _no_longer(results: Sequence[Result]) -> list[str]:
    """Verdicts that Holm's correction takes back."""
    both = [(claim, now) for result in results for claim, now in zip(result.claims, result.after_holm, strict=True)]
    return [claim.verdict for claim, now in both if now is not None and now != claim.verdict]


def _totals(every: Sequence[Target]) -> dict[str, Any]:
    """Over the most advanced published scale of each target."""
    first = [target.results[0] for target in every if target.results]
    return {
        "targets": len(every),
        "published": len(first),
        "counts": counts([verdict for result in first for verdict in result.verdicts]),
        "corrected": counts([verdict for result in first for verdict in result.after_holm]),
        "lost": counts(_no_longer(first)),
        "claims": sum(len(result.verdicts) for result in first),
        "tested": sum(verdict is not None for result in first for verdict in result.after_holm),
        "checks": sum(claim.check for result in first for claim in result.claims),
    }


def _summary(every: Sequence[Target]) -> list[tuple[str, dict[str, Any]]]:
    """The same by source."""
    return [(source, _totals([target for target in every if target.source == source])) for source in SOURCES]


@functools.cache
def _quantiles() -> list[float]:
    """Student's t of 95% intervals by the number of seeds less one, so that a browser can draw them."""
    return [0.0, *(round(float(stats.t.ppf(0.975, n)), 5) for n in range(1, _MOST_SEEDS))]


def _for_a_script(data: object) -> str:
    """JSON that nothing in it can end the script element it stands in."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
