"""Checkpoints that survive being killed at any moment.

Written beside and renamed; the one before is kept. They hold tensors and plain Python only and are read with
`weights_only`, so that a file from elsewhere cannot run code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from repro.faults import writing
from repro.policies.snapshot import load_checked, load_mapped

_PAUSE_PER_WRITE = 20

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
SET_ASIDE = "unusable-*.ckpt"
"""Pattern of the names of those that are not continued from."""

TRAININGS, IS_LAST = "trainings", "is_last"
"""In a checkpoint: the keys of the trainings that it is of, and whether they are done with it."""


class Checkpoints(Checkpoint):
    """Save the trainer's state at the end of an iteration when enough time has passed, and after the last one.

    Args:
        folder: where `last.ckpt` and `previous.ckpt` live.
        trainings: keys of the trainings whose state this is.
        every_seconds: least time between two checkpoints. It stretches so that writing takes a twentieth of the time
            at most, because B^M grows with every iteration.
    """

    def __init__(self, folder: Path, trainings: Sequence[str], every_seconds: float) -> None:
        self._folder, self._trainings, self._every = folder, list(trainings), every_seconds
        self._saved = time.monotonic()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        is_last = trainer.current_epoch + 1 == trainer.max_epochs
        if is_last or trainer.should_stop or time.monotonic() - self._saved >= self._every:
            started = time.monotonic()
            self._save(trainer)
            self._saved = time.monotonic()
            self._every = max(self._every, _PAUSE_PER_WRITE * (self._saved - started)) if self._every else 0.0

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[TRAININGS] = self._trainings
        checkpoint[IS_LAST] = trainer.current_epoch + 1 == trainer.max_epochs

    def _save(self, trainer: pl.Trainer) -> None:
        beside, last = self._folder / "writing.ckpt", self._folder / LAST
        with writing(last, beside):
            trainer.save_checkpoint(beside)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
        if last.exists():
            last.replace(self._folder / PREVIOUS)
        beside.replace(last)


def kept(folder: Path) -> list[Path]:
    """The checkpoints that may be continued from, the newest first."""
    return [path for name in (LAST, PREVIOUS) if (path := folder / name).exists()]


def problem(path: Path, trainings: Sequence[str]) -> str:
    """Why these trainings cannot go on from a checkpoint, as far as the file tells; empty if it says nothing.

    Raises:
        OSError, MemoryError: the file is there and cannot be read now.
    """
    try:
        content, damaged = load_checked(path)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # A damaged file fails in as many ways as there are bytes.
        return f"cannot be read ({type(error).__name__})"
    if damaged is not None:
        return "is damaged (its checksum is wrong)"
    others = content.get(TRAININGS, list(trainings))
    return "" if others == list(trainings) else f"is of another training ({', '.join(map(str, others))})"


def trainings(folder: Path) -> set[str]:
    """Keys of the trainings that the checkpoints in a folder are of, as far as they can be read."""
    keys: set[str] = set()
    for path in folder.glob("*.ckpt"):
        with suppress(Exception):
            keys.update(map(str, load_mapped(path)[TRAININGS]))
    return keys


def newest(folder: Path) -> int | None:
    """The iteration of the newest checkpoint in a folder that can be read; None if there is none."""
    for path in kept(folder):
        with suppress(Exception):
            return int(load_mapped(path)["algorithm"]["iteration"])
    return None


def finished(folder: Path) -> list[str]:
    """Keys of the trainings whose last iteration is in a checkpoint, so that nothing is left to train."""
    for path in kept(folder):
        with suppress(Exception):  # One that cannot be read says of none that it is.
            content = load_mapped(path)
            if content[IS_LAST] and load_checked(path)[1] is None:
                return list(map(str, content[TRAININGS]))
    return []


def set_aside(path: Path) -> Path:
    """Keep a checkpoint that is not continued from under another name, until the training is finished."""
    numbered = (path.with_name(SET_ASIDE.replace("*", str(number))) for number in count(1))
    return path.rename(next(free for free in numbered if not free.exists()))
