"""List runs: `python -m repro.runs [KEY | FIELD=VALUE ...]`; the words are those of `repro.stored.catalogue`.

The last written to is at the end.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import stoppable
from repro.tracking.folders import check_filter

if TYPE_CHECKING:
    from repro.stored.catalogue import Entry


def _result(entry: Entry) -> str:
    """A run's exploitability where that was measured, whatever was measured last; otherwise what was said last."""
    from repro.config.checks import game_for_checks  # noqa: PLC0415  (imports torch, which takes seconds)
    from repro.evaluation.measures import Exploitability  # noqa: PLC0415

    said, measured = entry.record.headline or entry.record.message, _exploitabilities(entry)
    if not measured:
        return said
    try:
        found = Exploitability().headline(game_for_checks(entry.config), measured)
    except ReproError as error:
        print(f"warning: {entry.key} is shown without its exploitability, which has no unit: {error}", file=sys.stderr)
        return said
    return said if found in said else found


def _exploitabilities(entry: Entry) -> dict[str, dict[str, float]]:
    """By read-out, the training's own before those that were added, the newest; the exact one if there is one.

    None of iterations that a training which is not finished will come to again.
    """
    from repro.evaluation.measures import Exploitability  # noqa: PLC0415  (likewise)
    from repro.tracking.rows import stored_evaluations  # noqa: PLC0415

    metric = Exploitability.HEADLINE
    newest: dict[str, tuple[tuple[int, float], float]] = {}
    for stored in stored_evaluations(entry.folder):
        kept = stored.rows if entry.record.trained else [step for step in stored.rows if step <= entry.record.iteration]
        last = max((step for step in kept if metric in stored.rows[step]), default=None)
        if last is None:
            continue
        boards, name = stored.about["evaluation"].get("boards"), stored.about["readout"]["name"]
        rank = (last, math.inf if boards is None else boards)
        newest[name] = max(newest.get(name, (rank, 0.0)), (rank, stored.rows[last][metric]))
    own = [name for name in entry.config.algorithm.readouts if name in newest]
    return {name: {metric: newest[name][1]} for name in [*own, *sorted(newest.keys() - set(own))]}


@stoppable("")
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, or 2 if the request was at fault."""
    parser = Parser(prog="python -m repro.runs", description=__doc__)
    parser.add_argument("words", metavar="KEY | FIELD=VALUE", nargs="*", help="which runs (default: all)")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="output folder (default: %(default)s)")
    options = parser.parse_intermixed_args(arguments)
    check_filter(options.output, options.words)
    return show(options.output, options.words)


def show(output: Path, words: Sequence[str]) -> int:
    """Print a line per run; returns the exit status.

    Raises:
        ReproError: there is no run that the words ask for.
    """
    from rich.table import Table  # noqa: PLC0415

    from repro.plans.naming import labels  # noqa: PLC0415
    from repro.plans.planned import Run  # noqa: PLC0415
    from repro.stored import catalogue  # noqa: PLC0415  (imports torch, which takes seconds)
    from repro.tracking.progress import console  # noqa: PLC0415

    found = sorted(catalogue.chosen(output, words), key=lambda entry: entry.record.updated)
    table = Table("key", "run", "state", "iteration", "minutes", "updated", "result", box=None)
    named = labels([Run([entry.config], {}, entry.record.title) for entry in found])
    for entry, label in zip(found, named, strict=True):
        record = entry.record
        minutes, reached = f"{record.wall_seconds / 60:.1f}", f"{record.iteration}/{entry.config.algorithm.iterations}"
        updated = (
            datetime.fromtimestamp(record.updated).astimezone().strftime("%Y-%m-%d %H:%M") if record.updated else ""
        )
        table.add_row(entry.key, label, entry.state, reached, minutes, updated, _result(entry))
    console(sys.stdout).print(table)
    print(f"{len(found)} run(s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
