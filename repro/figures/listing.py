"""All targets in a terminal: what they show, what was found, and what it took."""

from __future__ import annotations

import re
import sys

from rich.markup import escape

from repro.figures.claims import VERDICTS
from repro.figures.published import cost_in_words, published


def in_plain_words(markdown: str) -> str:
    """Markdown's text, for a terminal: without links and marks of code, and with brackets that are no markup."""
    return escape(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", ""))


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
