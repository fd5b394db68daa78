"""Repeat recorded trainings and compare: `python -m repro.rerun KEY [KEY ...]`, in a folder of their own.

Each is trained from its own `config.yaml`, in `OUTPUT/reruns/KEY` or the folder given by `--to`, and measured at its
end as it was. Then all that both left is compared: metrics of the training, snapshots tensor by tensor, measurements.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import CAN_BE_REPEATED, stoppable
from repro.tracking.folders import existing_folder


def _key(text: str, output: str) -> str:
    """The whole key of a training that is there.

    Raises:
        ReproError: none is, which says how it is made where it is published.
    """
    try:
        return existing_folder(output, text).name
    except ReproError as error:
        from repro.figures.targets import may_be_published  # noqa: PLC0415  (no other answer needs these)

        if not may_be_published(text):
            raise
        from repro.figures.published import maker_of  # noqa: PLC0415

        raise ReproError(f"{error} {maker_of(text)}".rstrip()) from error


def run(keys: Sequence[str], output: str, to: str | None, force: bool = False) -> int:
    """Repeat, compare and tell; returns the exit status: 0 if all are the same to the last bit, else 1.

    Raises:
        ReproError: the request is at fault.
    """
    if to == "":
        raise ReproError("--to is ''; it must be the name of a folder.")
    if to is not None and len(keys) > 1:
        raise ReproError(f"--to is {to!r}; it takes one KEY, and there are {len(keys)}.")
    found = list(dict.fromkeys(_key(text, output) for text in keys))
    from repro.comparing.repeating import repeat  # noqa: PLC0415  (imports torch and more, which takes seconds)

    return repeat({key: Path(to or Path(output).absolute() / "reruns" / key) for key in found}, output, force)


@stoppable(CAN_BE_REPEATED)
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0 if all are the same, 1 if not or a run failed, 2 if at fault."""
    parser = Parser(prog="python -m repro.rerun", description=__doc__)
    parser.add_argument("keys", metavar="KEY", nargs="+", help="finished runs, folders in OUTPUT/runs")
    parser.add_argument("--to", metavar="FOLDER", help="output folder of the repetition")
    parser.add_argument("--output", default="outputs", help="where the runs are (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="repeat again what was repeated before")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    return run(options.keys, options.output, options.to, options.force)


if __name__ == "__main__":
    sys.exit(main())
