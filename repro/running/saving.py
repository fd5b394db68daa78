"""Saves checkpoints while Lightning trains."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from repro.algorithms.ranks import Ranks
from repro.common.faults import writing
from repro.policies.snapshot import load_mapped, save_durably
from repro.running.lightning_modules import training_in
from repro.tracking.checkpoints import IS_LAST, LAST, PART, PARTS, PREVIOUS, TRAININGS, remove_parts

_PAUSE_PER_WRITE = 20


class Checkpoints(Checkpoint):
    """Save the trainer's state at the end of an iteration when enough time has passed, and after the last one.

    Args:
        folder: where `last.ckpt` and `previous.ckpt` live.
        trainings: keys of the trainings whose state this is.
        every_seconds: least time between two checkpoints. It stretches so that writing takes a twentieth of the time
            at most, because B^M grows with every iteration.

    Attributes:
        is_needed: whether training may yet have to go on from a checkpoint; not once it is noted that it is finished.
    """

    is_needed = True

    def __init__(self, folder: Path, trainings: Sequence[str], every_seconds: float) -> None:
        self._folder, self._trainings, self._every = folder, list(trainings), every_seconds
        self._saved = time.monotonic()
        self._parts: list[str] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.world_size > 1:
            begun = Ranks(trainer.global_rank, trainer.world_size).each(training_in(pl_module).iteration)
            if len(set(begun)) > 1:
                raise RuntimeError(f"processes go on from different iterations: {begun}")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        is_last = trainer.current_epoch + 1 == trainer.max_epochs
        is_due = is_last or trainer.should_stop or time.monotonic() - self._saved >= self._every
        is_due &= self.is_needed
        if trainer.world_size > 1:
            # The first one decides: it has the clock, and is asked to stop, and knows what is noted.
            is_due, trainer.should_stop = trainer.strategy.broadcast((is_due, trainer.should_stop))
        if is_due:
            started = time.monotonic()
            self.save(trainer)
            self._saved = time.monotonic()
            self._every = max(self._every, _PAUSE_PER_WRITE * (self._saved - started)) if self._every else 0.0

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[TRAININGS] = self._trainings
        checkpoint[IS_LAST] = trainer.current_epoch + 1 == trainer.max_epochs
        if self._parts:
            checkpoint[PARTS] = self._parts

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if PARTS in checkpoint:
            training_in(pl_module).restore_own(load_mapped(self._folder / checkpoint[PARTS][trainer.global_rank]))

    def save(self, trainer: pl.Trainer) -> None:
        """Save the trainer's state; of several processes, all of them must call this."""
        beside, last = self._folder / "writing.ckpt", self._folder / LAST
        if trainer.world_size > 1:
            self._save_part(trainer)
        if not trainer.is_global_zero:
            trainer.save_checkpoint(beside)  # The first process writes; this one lets it know that its part is there.
            return
        with writing(last, beside):
            trainer.save_checkpoint(beside)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
        if last.exists():
            last.replace(self._folder / PREVIOUS)
        beside.replace(last)
        remove_parts(self._folder)

    def _save_part(self, trainer: pl.Trainer) -> None:
        name = trainer.strategy.broadcast(uuid.uuid4().hex)
        self._parts = [f"{name}-{rank}{PART}" for rank in range(trainer.world_size)]
        save_durably(
            training_in(trainer.lightning_module).own_progress(), self._folder / self._parts[trainer.global_rank]
        )
