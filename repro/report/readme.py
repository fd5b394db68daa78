"""The README's table of targets and its picture of all verdicts, from what is published."""

from __future__ import annotations

import re
from collections.abc import Sequence

from repro.common import durable
from repro.common.errors import ReproError
from repro.figures import claims as claims_of
from repro.figures.claims import NOT_TESTABLE
from repro.figures.published import Target, corrected_in_words, cost_in_words, published, verdicts_in_words
from repro.figures.targets import ROOT

README = ROOT / "README.md"


VERDICTS_PICTURE = ROOT / "paper_figures" / "verdicts.svg"
"""All verdicts at a glance, as the README shows them."""


_TABLE = re.compile(r"(<!-- targets -->\n).*?(<!-- end targets -->)", re.DOTALL)


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
        f"{claims_of.counted(corrected).replace(NOT_TESTABLE, 'not testable')}.\n"
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
