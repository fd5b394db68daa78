"""Measurements of any runs as one tidy table: `python -m repro.export [KEY | FIELD=VALUE ...] --to runs.parquet`.

A row is one number. Columns, in this order:

- `key`, `game`, `algorithm`, `seed`, `state`; `commit`, that of the code that trained, several joined by a space;
- one column per hyperparameter, named after it without a leading `algorithm.` and with underscores for dots (as in
  figures' data, `repro/figures/frame.py`); null, which is no limit, is infinity in a column of numbers;
- `readout`, what was measured, or `training`; `evaluation`, by what, and `evaluation_key`, which tells apart
  evaluations of one name that measure something else (more boards, other opponents);
- `metric`, `step` (iteration), `value`; in metrics of a strategy hands are numbers, the lowest is 0, and actions are
  call and raise where a player checks and bets, too.

The words say which runs (`repro.stored.catalogue`): keys, or fields with their values. Without `--unfinished` only
finished trainings are taken. The ending of the file decides its kind: `.csv`, `.csv.gz` or `.parquet`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from repro.common import tables
from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import stoppable
from repro.figures import frame
from repro.stored import catalogue
from repro.stored.catalogue import Entry
from repro.stored.results import measurements
from repro.tracking.folders import check_filter

_ABOUT = ("key", "game", "algorithm", "seed", "state", "commit")
_MEASURED = ("readout", "evaluation", "evaluation_key", *frame.MEASURED)


def tidy(entries: Sequence[Entry]) -> pd.DataFrame:
    """Everything that was measured of trainings, as described above."""
    hyperparameters = [entry.hyperparameters for entry in entries]
    every = {key for flat in hyperparameters for key in flat} - {"game.name", "algorithm.name"}
    (columns,) = frame.hyperparameter_columns([hyperparameters], every)
    parts = [_of_run(entry, swept) for entry, swept in zip(entries, columns, strict=True)]
    data = pd.concat(parts, ignore_index=True)
    # Of whole numbers, also where runs lack the key, which would make floats of them.
    whole = {_named(name): "Int64" for name in columns[0] if _are_whole([swept[name] for swept in columns])}
    return data.astype(whole)


def _are_whole(values: Sequence[Any]) -> bool:
    """Whether a key's values are whole numbers, and some run has none."""
    given = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
    return 0 < len(given) < len(values) and all(type(value) is int for value in given)


def _named(name: str) -> str:
    """A hyperparameter's column: names that are those of other columns have more of themselves, `algorithm.seed`."""
    return f"algorithm_{name}" if name in _ABOUT else name


def _of_run(entry: Entry, hyperparameters: dict[str, Any]) -> pd.DataFrame:
    config, commits = entry.config, " ".join(entry.record.made_with.get("git_commit", []))
    of_run = entry.key, config.game["name"], config.algorithm.name, config.seed, entry.state, commits
    about = dict(zip(_ABOUT, of_run, strict=True))
    named = {_named(name): value for name, value in hyperparameters.items()}
    measured = pd.DataFrame(measurements(entry), columns=list(_MEASURED))
    settings = pd.DataFrame({**about, **named}, index=measured.index)
    return pd.concat([settings, measured], axis=1)


def run(words: Sequence[str], output: Path, to: Path, unfinished: bool) -> None:
    """Export what the words ask for.

    Raises:
        ReproError: nothing is, or the file cannot be.
    """
    check_filter(output, words)
    tables.check("--to", to)
    found = catalogue.chosen(output, words)
    taken = [entry for entry in found if unfinished or entry.is_finished]
    if not taken:
        raise ReproError(f"of {len(found)} run(s) none is finished; --unfinished exports what they have.")
    data = tidy(taken)
    tables.write(data, to)
    left = f", {len(found) - len(taken)} left out, which are not finished" if len(taken) < len(found) else ""
    print(f"{to}: {len(data):,} numbers of {len(taken)} run(s){left}")


@stoppable("")
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, or 2 if the request was at fault."""
    parser = Parser(prog="python -m repro.export", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("words", metavar="KEY | FIELD=VALUE", nargs="*", help="which runs (default: all)")
    parser.add_argument("--to", type=Path, help="file to write (default: runs.csv in the output folder)")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="output folder (default: %(default)s)")
    parser.add_argument("--unfinished", action="store_true", help="take runs that are not finished, too")
    options = parser.parse_intermixed_args(arguments)
    run(options.words, options.output, options.to or options.output / "runs.csv", options.unfinished)
    return 0


if __name__ == "__main__":
    sys.exit(main())
