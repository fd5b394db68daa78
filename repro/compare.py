"""What differs between runs, and whether their results do: `python -m repro.compare A B`.

A and B are each a run's key, or several with commas between them, of seeds of one configuration; as many of a key's
digits do as no other run has. Or they are fields, those of `python -m repro.runs`: algorithm=sd_cfr,regret_unit=2.6.
Told are hyperparameters, code (the commits, and whether code that determines these runs differs between them, or has
changed since), versions and hardware, stored data that was learned from, and the results:

- of the same seeds, number by number at all iterations that both have: how many are the same in all digits, in how many
  digits the others agree at the least, and where they first differ;
- of several seeds on both sides, the difference of the means at the last common iteration, B minus A, with its 95%
  interval: of the differences seed by seed where both sides have the same seeds (paired), and Welch's otherwise; of
  different seeds, one on a side, the difference alone; metrics that are the same on both sides, seed by seed or
  throughout, are left out;
- of what both measured at no common iteration, the values at the end of each.

Read-outs of one name are compared; where either side has one alone, as CFR and CFR+ have, these two are, whatever their
names. Wall times are left out, and results of two games are not compared. Exit status 0 says that all numbers are the
same (or, of different seeds, nothing), 1 that some are not, or that no read-out was measured in the same way, at the
same iteration, on both sides.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from repro.common.arguments import Parser
from repro.common.errors import told_of
from repro.common.faults import faults_told
from repro.common.stopping import stoppable
from repro.tracking.folders import check_filter


@stoppable("")
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, 1 if results differ, 2 if the request was at fault."""
    parser = Parser(prog="python -m repro.compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("A", help="key of a run, several seeds: KEY,KEY, or what runs have: FIELD=VALUE,FIELD=VALUE")
    parser.add_argument("B", help="what it is compared with, likewise")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="output folder (default: %(default)s)")
    parser.add_argument(
        "--all",
        action="store_true",
        help="show metrics of the trainings themselves and each probability of a strategy, too",
    )
    options = parser.parse_args(arguments)
    for name in "AB":
        with told_of(name):
            check_filter(options.output, getattr(options, name).split(","))
    from repro.comparing.differences import side_of  # noqa: PLC0415  (imports torch and more, which takes seconds)
    from repro.comparing.told import compare  # noqa: PLC0415

    a, b = (side_of(options.output, name, getattr(options, name)) for name in "AB")
    return compare(a, b, options.all)


if __name__ == "__main__":
    sys.exit(main())
