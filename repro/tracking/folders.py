"""Where runs are on the disk, by their keys: known without importing what they were trained with, which takes seconds.

Most commands about runs that there are look here first, so that a folder or a key that is not there is told at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean

CONFIG = "config.yaml"
"""What a run's folder has, and makes it one."""

PORTABLE = "snapshot.pt"
"""A training's last snapshot in one file, whatever its history."""

DATABASE = "mlflow.db"
"""The MLflow store in an output folder, an SQLite file."""

_FEW = 4
"""Keys that a sentence names."""


def run_folder(output_dir: str | Path, key: str) -> Path:
    """Where a training's record, snapshots, results and checkpoints are."""
    return Path(output_dir).absolute() / "runs" / key


def full_key(output_dir: str | Path, text: str) -> str:
    """The key of the run that a text abbreviates by its first digits; the text itself where no run begins so.

    Raises:
        ReproError: several runs do.
    """
    runs = run_folder(output_dir, "")
    if not re.fullmatch("[0-9a-f]{1,11}", text):
        return text
    keys = sorted(path.parent.name for path in runs.glob(f"{text}*/{CONFIG}"))
    if len(keys) > 1:
        raise ReproError(f"the key {text!r} is ambiguous in {runs}: {', '.join(keys[:_FEW])} begin so; add digits.")
    return keys[0] if keys else text


def is_of_a_run(folder: Path) -> bool:
    """Whether a folder is there, and a run's."""
    # `Path.is_file` fails where a name is longer than names may be.
    return os.path.isfile(folder / CONFIG)


def existing_folder(output_dir: str | Path, key: str) -> Path:
    """The folder of a run, by its key or by as many of its first digits as no other run has.

    Raises:
        ReproError: there is none, or there are several.
    """
    folder = run_folder(output_dir, full_key(output_dir, key))
    if not is_of_a_run(folder):
        runs = [path.parent.name for path in folder.parent.glob(f"*/{CONFIG}")]
        raise ReproError(
            f"in {Path(output_dir).absolute()} there is no run with the key {key!r}{did_you_mean(key, runs)}."
        )
    return folder


def check_filter(output_dir: str | Path, words: Sequence[str]) -> None:
    """Refuse a filter of `repro.stored.catalogue` that no run can meet, as far as folders tell.

    Raises:
        ReproError: there is no such output folder, or no run of a key, or the folder is said as a run names it.
    """
    refuse_output_dir(words)
    if not Path(output_dir).is_dir():
        raise ReproError(f"--output is {str(output_dir)!r}; there is no folder {Path(output_dir).absolute()}.")
    for key in keys_in(words):
        existing_folder(output_dir, key)


def keys_in(words: Sequence[str]) -> list[str]:
    """Those words of a filter that are keys."""
    return [word for word in words if "=" not in word]


def refuse_output_dir(words: Sequence[str]) -> None:
    """Refuse the key of a run by which its folder is named, where an option names it.

    Raises:
        ReproError: it is among the words.
    """
    if any(word.lstrip("+").startswith("output_dir=") for word in words):
        raise ReproError("output_dir is where the runs are, which here is said by --output FOLDER.")
