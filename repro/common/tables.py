"""Files that a user names for what a command finds: checked before any work, tables in the format of their ending."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from repro.common import durable
from repro.common.errors import ReproError

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".csv", ".csv.gz", ".parquet")


def check(flag: str, path: Path, endings: Sequence[str] = ENDINGS) -> None:
    """Whether a file of this name can be written.

    Args:
        flag: the option that names it.

    Raises:
        ReproError: its name has another ending, or its folder is not there or cannot be written.
    """
    folder = path.absolute().parent
    if not path.name.endswith(tuple(endings)):
        raise ReproError(f"{flag} is {str(path)!r}; its name must end in {', '.join(endings)}.")
    if not folder.is_dir():
        raise ReproError(f"{flag} is {str(path)!r}; there is no folder {folder}.")
    if path.is_dir() or not os.access(folder, os.W_OK):
        raise ReproError(f"{flag} is {str(path)!r}; it must be a file that can be written.")


def write(data: pd.DataFrame, path: Path) -> None:
    """A table to a file whose name has been checked."""
    content = io.BytesIO()
    if path.name.endswith(".parquet"):
        data.to_parquet(content, index=False)
    else:
        data.to_csv(content, index=False, compression="gzip" if path.name.endswith(".gz") else None)
    durable.write(path, content.getvalue(), sync=False)
