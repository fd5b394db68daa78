"""What DCVN or DEVN predicts for a subgame of your own, beside the solver: `python -m repro.predict KEY ...`.

    python -m repro.predict KEY --board "Ah Kd 2c 7s 9h" --pot 4000 --ranges uniform --csv values.csv

Ranges are `uniform` or a CSV file with the columns `hand` (`AhKd`), `range_0` and `range_1`, weights of the players'
hands; hands that it does not list have none. The CSV file that is written has these columns and, of both players,
counterfactual values in % of the pot: predicted, solved, and the difference. Player 0 acts first.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from repro.common import tables
from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import stoppable
from repro.tracking.folders import existing_folder


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ReproError(f"{option} is {text!r}; it must be a number of chips.")
    return number


def run(options: argparse.Namespace) -> None:
    """Check everything, predict, tell.

    Raises:
        ReproError: the request is at fault.
    """
    if options.csv is not None:
        tables.check("--csv", options.csv)
    pot, tolerance = _number("--pot", options.pot), _number("--tolerance", options.tolerance)
    if not 0 < tolerance <= 1:
        raise ReproError(
            f"--tolerance is {options.tolerance}; it must be above 0 and at most 1, a fraction of the pot."
        )
    existing_folder(options.output, options.key)
    from repro.inside.predicted import (  # noqa: PLC0415  (imports torch and more, which takes seconds)
        open_readout,
        predict,
        read_subgame,
        tell,
    )

    trained, name, readout = open_readout(options.output, options.key, options.readout)
    subgame = read_subgame(readout.game, options.board, pot, options.ranges)
    prediction = predict(trained, readout, subgame, tolerance)
    tell(f"{name} of {options.key}", prediction)
    if options.csv is not None:
        tables.write(prediction.table(), options.csv)
        print(f"{len(prediction.table())} hands in {options.csv}")


@stoppable("")
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, or 2 if the request was at fault."""
    parser = Parser(
        prog="python -m repro.predict", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("key", metavar="KEY", help="a run of DCVN or DEVN, a folder in OUTPUT/runs")
    parser.add_argument("--board", required=True, help="four cards (turn) or five (river), as the run's subgames have")
    parser.add_argument("--pot", required=True, help="chips in the pot, half of them from each player")
    parser.add_argument("--ranges", default="uniform", help="uniform, or a CSV file (default: %(default)s)")
    parser.add_argument("--readout", default="", help="which of its read-outs (default: the first)")
    parser.add_argument("--tolerance", default="0.001", help="of the solver, a fraction of the pot (default: 0.001)")
    parser.add_argument("--csv", type=Path, help="write all hands to this file")
    parser.add_argument("--output", default="outputs", help="where runs are (default: %(default)s)")
    run(parser.parse_args(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
