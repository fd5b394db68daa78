"""Measure finished runs again, or otherwise: `python -m repro.evaluate KEY [KEY ...] evaluation=... [KEY=VALUE ...]`.

Trains nothing: a read-out (`+algorithm.readouts.sd_cfr_20={kind: ensemble, capacity: 20}`), an opponent
(`evaluation=match +evaluation.match.opponents.nfsp=KEY`) or more boards (`evaluation.exploitability.boards=null`) are
measured on the snapshots that the runs left. KEY is the folder of a run in `outputs/runs/`. `tracking_uri=...` as for
`python -m repro.run`.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace

from repro.errors import ReproError
from repro.faults import disk_faults_told
from repro.launching import Command, prepare_output
from repro.planned import Run, union
from repro.planning import measured_otherwise
from repro.stopping import CAN_BE_REPEATED, stoppable


@stoppable(CAN_BE_REPEATED)
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, 1 if a run could not be measured, 2 if the request was at fault."""
    parser = argparse.ArgumentParser(prog="python -m repro.evaluate", description=__doc__, allow_abbrev=False)
    parser.add_argument("keys", metavar="KEY | KEY=VALUE", nargs="*", help="finished runs, and what to measure")
    parser.add_argument("--output", default="outputs", help="output folder (default: %(default)s)")
    parser.add_argument("--config-dir", "-cd", help="a folder of further configurations, as for repro.run")
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    try:
        # Options may stand between keys and overrides.
        options = parser.parse_intermixed_args(arguments)
        return run(options.keys, options.output, options.config_dir)
    except ReproError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


@disk_faults_told()
def run(words: Sequence[str], output: str, config_dir: str | None = None) -> int:
    """Measure, and report; returns the exit status.

    Args:
        words: keys of finished runs, and overrides.
        output: the output folder.
        config_dir: a folder of further configurations.

    Raises:
        ReproError: the request is at fault.
    """
    from repro.trained import Trained  # noqa: PLC0415  (torch takes a second, which a faulty request does not need)

    keys, overrides = [w for w in words if "=" not in w], [w for w in words if "=" in w]
    if any(word.lstrip("+").startswith("output_dir=") for word in overrides):
        raise ReproError("output_dir is where the runs are, which here is said by --output FOLDER.")
    if not keys:
        raise ReproError(f"KEY is missing in {' '.join(words)!r}; name a finished run, a folder in {output}/runs.")
    runs = []
    for key in keys:
        trained = Trained.open(output, key)
        trained.check_finished()
        config = replace(measured_otherwise(trained.config, overrides, config_dir), output_dir=output)
        runs.append(Run([config], trained.record.labels))
    command = Command(prepare_output(output), runs[0].config.tracking_uri, None)
    return command.do([union(runs)])


if __name__ == "__main__":
    sys.exit(main())
