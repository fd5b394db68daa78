"""Write the report: `python -m repro.report`, or bring the README's table and picture up to date with `--readme`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from repro.common import durable
from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import stoppable

NAME = "report.html"


@stoppable("")
@faults_told
def main() -> int:
    """Entry point; exit status 2 for a faulty request, or published files that cannot be read."""
    parser = Parser(prog="python -m repro.report", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("outputs"), help=f"folder of {NAME} (default: outputs)")
    parser.add_argument("--readme", action="store_true", help="bring the README's table and picture up to date instead")
    return _answer(parser.parse_args())


def _answer(arguments: argparse.Namespace) -> int:
    if arguments.readme:
        from repro.report.readme import README, refresh_readme  # noqa: PLC0415  (as below)

        refresh_readme()
        print(f"the table of targets in {README} says what is published, and so does its picture")
        return 0
    if arguments.output == Path():
        raise ReproError("--output is ''; it must be the name of a folder.")
    file = write(arguments.output.absolute())
    print(f"{file} ({file.stat().st_size / 1e6:.1f} MB): open it in a browser, {file.as_uri()}")
    return 0


def write(folder: Path) -> Path:
    """Write the page into a folder, which is made if it is not there.

    Raises:
        ReproError: there can be no such folder, or what is published cannot be read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ReproError(
            f"--output is {str(folder)!r}; it must be a folder, and it, or one above it, is a file."
        ) from error
    except OSError as error:
        raise ReproError(f"--output is {str(folder)!r}, which cannot be made ({error.strerror}).") from error
    from repro.figures.published import published  # noqa: PLC0415  (imports pandas and more, which takes seconds)
    from repro.report.page import rendered  # noqa: PLC0415

    durable.write(folder / NAME, rendered(published(), folder).encode())
    return folder / NAME


if __name__ == "__main__":
    sys.exit(main())
