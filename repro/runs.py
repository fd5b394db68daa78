"""List runs: `python -m repro.runs [KEY | FIELD=VALUE ...]`; the words are those of `repro.catalogue`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from repro import catalogue
from repro.arguments import Parser
from repro.faults import faults_told
from repro.planned import Run, labels
from repro.stopping import stoppable
from repro.tracking.progress import console


@stoppable("")
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, or 2 if the request was at fault."""
    parser = Parser(prog="python -m repro.runs", description=__doc__)
    parser.add_argument("words", metavar="KEY | FIELD=VALUE", nargs="*", help="which runs (default: all)")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="output folder (default: %(default)s)")
    options = parser.parse_intermixed_args(arguments)
    found = catalogue.chosen(options.output, options.words)
    table = Table("key", "run", "state", "iteration", "minutes", "result", box=None)
    named = labels([Run([entry.config], {}) for entry in found])
    for entry, label in zip(found, named, strict=True):
        record = entry.record
        minutes, reached = f"{record.wall_seconds / 60:.1f}", f"{record.iteration}/{entry.config.algorithm.iterations}"
        table.add_row(entry.key, label, entry.state, reached, minutes, record.headline or record.message)
    console(sys.stdout).print(table)
    print(f"{len(found)} run(s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
