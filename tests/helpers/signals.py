"""A callback that signals its own process, as a cluster would, at a moment that does not depend on time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytorch_lightning as pl

from repro.running.lightning_modules import training_in


class SignalsItself(pl.Callback):
    """In an iteration of the run of one seed, a signal is sent to this process, once.

    Args:
        name: of the signal.
        of: the seed.
        seed: of the run.
        iteration: which one it is.
        once: a folder, which says afterwards that it has been sent.
    """

    def __init__(self, name: str, of: int, seed: int, iteration: int, once: str) -> None:
        self._signal, self._is_meant, self._iteration = signal.Signals[name], of == seed, iteration
        self._sent = Path(once, name)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: object) -> None:
        if self._is_meant and training_in(pl_module).iteration + 1 == self._iteration and not self._sent.exists():
            self._sent.touch()
            os.kill(os.getpid(), self._signal)


def signalling(name: str, iteration: int, once: Path, of: int = 0) -> str:
    """The override that has a run do that."""
    return (
        f"+trainer.callbacks.{name}={{_target_: {SignalsItself.__module__}.{SignalsItself.__name__}, "
        f"name: {name}, of: {of}, seed: '${{seed}}', iteration: {iteration}, once: '{once}'}}"
    )
