"""Measure finished runs again, or otherwise: `python -m repro.evaluate KEY [KEY ...] evaluation=... [KEY=VALUE ...]`.

Trains nothing: a read-out (`+algorithm.readouts.sd_cfr_20={kind: ensemble, capacity: 20}`), an opponent
(`evaluation=match +evaluation.match.opponents.nfsp=KEY`) or more boards (`evaluation.exploitability.boards=null`) are
measured on the snapshots that the runs left. KEY is the folder of a run in `outputs/runs/`.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace

from repro.errors import INTERRUPTED, ReproError
from repro.faults import disk_faults_told
from repro.launching import Command, prepare_output
from repro.planning import Run, measured_otherwise, union


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, 1 if a run could not be measured, 2 if the request was at fault."""
    parser = argparse.ArgumentParser(prog="python -m repro.evaluate", description=__doc__, allow_abbrev=False)
    parser.add_argument("keys", metavar="KEY | KEY=VALUE", nargs="+", help="finished runs, and what to measure")
    parser.add_argument("--output", default="outputs", help="output folder (default: %(default)s)")
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    try:
        options = parser.parse_args(arguments)
        return run(options.keys, options.output)
    except ReproError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


@disk_faults_told()
def run(words: Sequence[str], output: str) -> int:
    """Measure, and report; returns the exit status.

    Raises:
        ReproError: the request is at fault.
    """
    from repro.trained import Trained  # noqa: PLC0415  (torch takes a second, which a faulty request does not need)

    keys, overrides = [w for w in words if "=" not in w], [w for w in words if "=" in w]
    if not keys:
        raise ReproError(f"KEY is missing in {' '.join(words)!r}; name a finished run, a folder in {output}/runs.")
    runs = []
    for key in keys:
        trained = Trained.open(output, key)
        trained.check_finished()
        config = replace(measured_otherwise(trained.config, overrides), output_dir=output)
        runs.append(Run([config], trained.record.labels))
    command = Command(prepare_output(output), None, None)
    return command.do([union(runs)])


if __name__ == "__main__":
    sys.exit(main())
