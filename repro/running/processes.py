"""One training by several processes of this machine: `trainer.devices=2`.

They are started, connected and stopped by Lightning's DDP. What each does of the training is in
`repro.algorithms.ranks`; only Deep CFR and SD-CFR know of it. The run as users and other commands meet it is that of
one process: the first one (rank 0) has its record, its lock, its snapshots, its evaluations and MLflow. The others
(`repro.running.training.follow`) traverse, keep their memories, take the same steps, write their parts of checkpoints
(`repro.tracking.checkpoints`), and wait while the first one measures.

DDP starts the other processes by repeating the command line of the first. So a command does such a run in a process of
its own, `python -m repro.running.rank PLAN`, which does nothing else.

Two things of DDP's are not used. Its wrapper around the module reduces the gradients that autograd leaves, while the
steps here are compiled or differentiated by hand, and leave one flat gradient, which the fit reduces in one piece. And
its loader of shares of a data set: every rank makes its own data.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher  # it has no public name

from repro.common.errors import ReproError
from repro.running.lifetimes import how_it_ended

_LONGEST_WAIT = timedelta(days=7)
"""Of the others while the first one measures. That a process is gone shows at once."""
_MOMENT = 2.0
"""Seconds."""


class Processes(DDPStrategy):
    """Lightning's DDP on the CPU, for modules that reduce their gradients themselves."""

    def __init__(self) -> None:
        super().__init__(
            cluster_environment=LightningEnvironment(), process_group_backend="gloo", timeout=_LONGEST_WAIT
        )
        self._stops: Any = None
        self._lost = ""

    def setup(self, trainer: pl.Trainer) -> None:
        """Note what SIGTERM does, before Lightning changes that."""
        self._stops = signal.getsignal(signal.SIGTERM)
        super().setup(trainer)

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        """Wait for all processes; of those that Lightning has, one comes right after it has changed what SIGTERM does.

        It would tell the others in the middle of whatever they reduce, and all would wait for ever.
        """
        if self._stops is not None:
            signal.signal(signal.SIGTERM, self._stops)
        super().barrier(*args, **kwargs)

    def configure_ddp(self) -> None:
        """Leave the module as it is."""

    def on_exception(self, exception: BaseException) -> None:
        """End the others, which would wait for what this process does not do any more."""
        super().on_exception(exception)
        if isinstance(self.launcher, _SubprocessScriptLauncher):
            # What fails in torch may fail because another one has, which then takes a moment to be gone.
            wait = _MOMENT if isinstance(exception, RuntimeError) else 0.0
            ended = [_ended(process, wait) for process in self.launcher.procs]
            how = (f"rank {rank}: {how_it_ended(status)}" for rank, status in enumerate(ended, 1) if status)
            self._lost = next(how, "")
            self.launcher.kill(signal.SIGKILL)
            # Lightning looks at them from time to time, and kills this process when one of them was.
            self.launcher.procs.clear()

    @contextmanager
    def losses_told(self) -> Iterator[None]:
        """Tell what another process has ended of, and not what this one's next reduction has made of that.

        Raises:
            ReproError: one has.
        """
        try:
            yield
        except RuntimeError as error:
            if self._lost:
                raise ReproError(f"{self._lost}; repeat the command to continue") from error
            raise


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit status of a process that ends within some time."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
