"""The output folder of a command: made, tried, and cleaned."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

from repro.common.errors import ReproError
from repro.stored import leftovers


def prepare_output(output_dir: str, cleans: bool = True) -> Path:
    """Make the output folder, try to write in it, and clean what commands that were killed have left there.

    Args:
        cleans: False where other machines may write: not every shared file system passes on who is alive there.

    Raises:
        ReproError: it cannot be written.
    """
    folder = Path(output_dir).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            if cleans:
                leftovers.clean(folder)
    except OSError as error:
        raise _not_writable(output_dir, error) from error
    return folder


def check_output(output_dir: Path) -> None:
    """Refuse an output folder that cannot be made, or written, and leave nothing there.

    Raises:
        ReproError: as `prepare_output`.
    """
    try:
        nearest = next(folder for folder in (output_dir, *output_dir.parents) if folder.exists())
        with TemporaryDirectory(dir=nearest):
            pass
    except OSError as error:
        raise _not_writable(str(output_dir), error) from error


def _not_writable(output_dir: str, error: OSError) -> ReproError:
    return ReproError(f"output_dir is {output_dir!r}; it must be a folder that can be written ({error.strerror}).")
