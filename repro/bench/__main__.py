"""Speed of this suite beside OpenSpiel's: `python -m repro.bench [--output outputs/bench.json] [--quick]`.

With `--only subgames` and the like, the rows of that module of `repro/bench/` alone. With `--against COMMIT`,
iterations of Deep CFR beside those of another commit of this repository instead.

Both sides run in one process (two, beside a commit), on one thread, in turns (ours, peer, ours, peer, ...); numbers are
medians. The JSON file holds a list of `{"name", "ours", "peer", "unit", "ratio"}`. A ratio above 1 always means that
ours is better; the exceptions are `leduc_sgd_overhead`, whose ratio is the cost of everything around the SGD steps
(ours / peer, at best 1, wanted is at most 1.15), `leduc_d2cfr_iteration`, that of D2CFR over Deep CFR (wanted is at
most 3), and `leduc_sgd_step_floor`, that of an SGD step over those of its parts that no way to write it saves. One row,
`fhp_limit_rows_alike`, is about samples and not about time.

Most measurements are on Leduc; those of `repro.bench.holdem`, `repro.bench.traversals` and `repro.bench.subgames` are
on Hold'em, most of them beside plain ways to do the same, or beside what memory allows. What each one does is in the
docstring of its function, in `repro/bench/`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile

from rich.console import Console
from rich.table import Table

from repro.bench import against, d2cfr, deep_cfr, holdem, nfsp, subgames, tabular, traversals
from repro.bench.measure import FULL, QUICK, Effort, Row, one_thread
from repro.common import durable
from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import stoppable

PARTS: dict[str, Callable[[Effort], list[Row]]] = {
    "deep_cfr": deep_cfr.rows, "tabular": tabular.rows, "nfsp": nfsp.rows, "d2cfr": d2cfr.rows, "holdem": holdem.rows,
    "traversals": traversals.rows, "subgames": subgames.rows,
}  # fmt: skip
"""The modules with benchmarks."""


def run(effort: Effort, only: Sequence[str] = ()) -> list[Row]:
    """Benchmarks, one after the other: all, or those of some of `PARTS`.

    Raises:
        ReproError: OpenSpiel is not installed.
    """
    with one_thread():
        return [row for name in only or PARTS for row in PARTS[name](effort)]


def show(rows: Sequence[Row], effort: Effort) -> None:
    """Print the table and its notes."""
    table = Table(title=f"One thread, medians of {effort.repetitions} interleaved repetitions")
    table.add_column("name", no_wrap=True)
    for column in ("ours", "peer", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("unit")
    for row in rows:
        table.add_row(row.name, f"{row.ours:.4g}", f"{row.peer:.4g}", f"{row.ratio:.4g}", row.unit)
    console = Console()
    console.print(table)
    for row in rows:
        console.print(f"{row.name}: {row.note}", highlight=False)


def save(rows: Sequence[Row], path: Path) -> None:
    """Write the JSON file."""
    keys = ("name", "ours", "peer", "unit", "ratio")
    text = json.dumps([{key: getattr(row, key) for key in keys} for row in rows], indent=2)
    durable.write(path, f"{text}\n".encode())


@stoppable("")
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit status."""
    parser = Parser(prog="python -m repro.bench", description="Measure this suite beside OpenSpiel.")
    parser.add_argument("--output", type=Path, default=Path("outputs/bench.json"), help="JSON file to write")
    parser.add_argument("--against", metavar="COMMIT", help="measure iterations beside those of this commit instead")
    parser.add_argument("--quick", action="store_true", help="few repetitions: a minute or two, less reliable")
    parser.add_argument("--only", action="append", choices=PARTS, default=[], help="this part alone; may be repeated")
    options = parser.parse_args(arguments)
    effort = QUICK if options.quick else FULL
    prepare_output_file(options.output)
    rows = against.rows(effort, options.against) if options.against else run(effort, options.only)
    show(rows, effort)
    save(rows, options.output)
    return 0


def prepare_output_file(path: Path) -> None:
    """Make the output's folder, before minutes of measuring.

    Raises:
        ReproError: it cannot be made or written to, or the path is a folder.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ReproError(f"--output {path}: its folder cannot be made, or written to ({error.strerror}).") from error
    if path.is_dir():
        raise ReproError(f"--output {path} is a folder; a file name is needed.")


if __name__ == "__main__":
    sys.exit(main())
