"""Checkpoints that survive being killed at any moment.

Written beside and renamed; the one before is kept. They hold tensors and plain Python only and are read with
`weights_only`, so that a file from elsewhere cannot run code.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint

from repro.faults import writing

_PAUSE_PER_WRITE = 20

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"


class Checkpoints(Checkpoint):
    """Save the trainer's state at the end of an iteration when enough time has passed, and after the last one.

    Args:
        folder: where `last.ckpt` and `previous.ckpt` live.
        every_seconds: least time between two checkpoints. It stretches so that writing takes a twentieth of the time
            at most, because B^M grows with every iteration.
    """

    def __init__(self, folder: Path, every_seconds: float) -> None:
        self._folder, self._every = folder, every_seconds
        self._saved = time.monotonic()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        is_last = trainer.current_epoch + 1 == trainer.max_epochs
        if is_last or trainer.should_stop or time.monotonic() - self._saved >= self._every:
            started = time.monotonic()
            self._save(trainer)
            self._saved = time.monotonic()
            self._every = max(self._every, _PAUSE_PER_WRITE * (self._saved - started)) if self._every else 0.0

    def _save(self, trainer: pl.Trainer) -> None:
        beside, last = self._folder / "writing.ckpt", self._folder / LAST
        with writing(last, beside):
            trainer.save_checkpoint(beside)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
        if last.exists():
            last.replace(self._folder / PREVIOUS)
        beside.replace(last)


def newest_readable(folder: Path) -> tuple[Path | None, str]:
    """The checkpoint to continue from, and a sentence if one had to be passed over.

    Returns:
        (path or None to start from the beginning, message or "").
    """
    passed_over: list[str] = []
    for name in (LAST, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # A truncated file fails in as many ways as there are bytes.
            passed_over.append(f"{path} cannot be read ({type(error).__name__})")
            continue
        return path, _sentence(passed_over, f"continuing from {name}")
    return None, _sentence(passed_over, "starting from the beginning")


def _sentence(passed_over: list[str], instead: str) -> str:
    return f"{' and '.join(passed_over)}; {instead}." if passed_over else ""
