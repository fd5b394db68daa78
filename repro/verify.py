"""Whether published data are still what the code gives: `python -m repro.verify figure1 --scale laptop`.

Repeats the first iterations of a published target's runs, of the first seed, in `verify/` of the output folder, and
compares what is measured with `paper_figures/results/`; `--record` keeps there what was found. Two flags run nothing,
for one target or all: `--claims` holds the published verdicts against those of today's rules on the published data, and
`--stale` lists whether code that determines the runs has changed since, and whether they were repeated, which with
`--refresh` is said on the pages, too.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import CAN_BE_REPEATED, stoppable
from repro.figures.targets import SCALES, Options, check_options, check_target, targets


@stoppable(CAN_BE_REPEATED)
@faults_told
def main() -> int:
    """Entry point; returns the exit status.

    It is 0 if all that was judged agrees, 1 if something does not, nothing was judged or a run failed, and 2 for a
    faulty request, such as what cannot be repeated.
    """
    parser = Parser(prog="python -m repro.verify", description=__doc__)
    parser.add_argument("target", nargs="?", help="a target that is published")
    parser.add_argument("--scale", help=f"{', '.join(SCALES)} (default: laptop; without runs: all)")
    parser.add_argument("--iterations", type=int, help="the most iterations to repeat (default: to the first measured)")
    parser.add_argument("--seeds", type=int, help="how many seeds to repeat (default: 1)")
    parser.add_argument("--sweep", action="append", help="only this one of the target; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once (default: cores)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="output folder")
    parser.add_argument("--record", action="store_true", help="keep what is found beside the published data")
    without = parser.add_mutually_exclusive_group()
    without.add_argument("--claims", action="store_true", help="run nothing; judge published data by today's rules")
    without.add_argument("--stale", action="store_true", help="run nothing; list what code has changed since")
    parser.add_argument(
        "--refresh", action="store_true", help="with --stale: bring what the pages say of it up to date"
    )
    arguments = parser.parse_args()
    return _answer(arguments)


def _answer(arguments: argparse.Namespace) -> int:
    target = arguments.target
    if target:
        check_target(target)
    scale = arguments.scale or "laptop"
    options = Options(scale, arguments.output.absolute(), arguments.jobs, arguments.device, force=False)
    check_options(options)
    if arguments.refresh and not arguments.stale:
        raise ReproError("--refresh goes with --stale, of which it says on the pages what is so.")
    if arguments.claims or arguments.stale:
        return _without_runs(arguments)
    if not target:
        raise ReproError("TARGET is missing; name what is to be verified, for example figure1.")
    for name in ("iterations", "seeds"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ReproError(f"--{name} is {value}; it must be at least 1.")
    if arguments.output == Path():
        raise ReproError("--output is ''; it must be the name of a folder.")
    seeds, sweeps = arguments.seeds or 1, arguments.sweep or ()
    from repro.comparing.shortening import Request  # noqa: PLC0415  (imports pandas and more, which takes seconds)
    from repro.comparing.verifying import verify  # noqa: PLC0415

    return verify(Request(target, options, arguments.iterations, seeds, sweeps, arguments.record))


def _without_runs(arguments: argparse.Namespace) -> int:
    """What is answered from published files alone; returns the exit status.

    Raises:
        ReproError: nothing is published that was asked for, or how runs are to be repeated was said.
    """
    for name in ("iterations", "seeds", "sweep", "record"):
        if getattr(arguments, name) is not None and getattr(arguments, name) is not False:
            raise ReproError(f"--{name} says how runs are repeated; --claims and --stale repeat none.")
    from repro.comparing import verifying  # noqa: PLC0415  (imports pandas and more, which takes seconds)

    published = verifying.published([arguments.target] if arguments.target else targets(), arguments.scale)
    if not published:
        at = f" at scale {arguments.scale}" if arguments.scale else ""
        raise ReproError(f"of {arguments.target or 'all targets'}, nothing is published{at}.")
    if arguments.claims:
        return verifying.verify_claims(published)
    verifying.list_stale(published)
    if arguments.refresh:
        verifying.refresh(published)
    return 0


if __name__ == "__main__":
    sys.exit(main())
