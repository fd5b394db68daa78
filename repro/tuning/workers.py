"""Processes that do trials, some at once, each with a pipe to this one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from repro.tuning.trials import REPORT, STOPPED, Task, work

_NEEDED = ["repro.tuning.trials", "mlflow.store.tracking.sqlalchemy_store"]
"""Modules that take seconds to import: once, in the process that the others are forked from."""
_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class _Worker:
    task: Task
    process: BaseProcess
    pipe: Connection


class Workers:
    """At most so many processes, each of which does one task.

    Args:
        environment: variables that they get.
    """

    def __init__(self, most: int, environment: Mapping[str, str]) -> None:
        self._most, self._environment = most, dict(environment)
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(_NEEDED)
        self._workers: list[_Worker] = []

    @property
    def has_room(self) -> bool:
        return len(self._workers) < self._most

    @property
    def are_busy(self) -> bool:
        return bool(self._workers)

    def start(self, task: Task) -> None:
        """Do a task in a process of its own."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=work, args=(task, self._environment, theirs))
        process.start()
        # So that the pipe ends with the process.
        theirs.close()
        self._workers.append(_Worker(task, process, ours))

    def messages(self) -> Iterator[tuple[Task, Connection, tuple[Any, ...]]]:
        """What processes tell next, at least one: the task, where to answer a report, and the message."""
        ready = wait([worker.pipe for worker in self._workers])
        for worker in [worker for worker in self._workers if worker.pipe in ready]:
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                worker.process.join()
                message = STOPPED, f"its process ended with exit status {worker.process.exitcode}"
            if message[0] != REPORT:
                self._workers.remove(worker)
                worker.process.join()
            yield worker.task, worker.pipe, message

    def stop(self) -> None:
        """End all processes, as Ctrl-C does: what they trained can be continued."""
        for worker in self._workers:
            if worker.process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGTERM)
        for worker in self._workers:
            worker.pipe.close()
            worker.process.join(_PATIENCE_SECONDS)
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()
        self._workers = []
