"""A launcher's workers, which have a process of its own for each run."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from multiprocessing import get_context

from omegaconf import DictConfig

from repro.common.importing import quicker_imports
from repro.common.stopping import stopped_by_signals
from repro.config.schema import Config
from repro.plans.planned import Run
from repro.running.executing import execute, state_after
from repro.running.lifetimes import COMMAND_PROCESS, LOOK_EVERY_SECONDS, command_process, this_process
from repro.running.plan_file import planned
from repro.stored import leftovers

_PAUSE_SECONDS = 10.0
"""How long a worker that was interrupted begins no other run."""

_interrupted = -math.inf
"""When this worker was, by `time.monotonic`."""


def launched(job: DictConfig) -> str:
    """What a launcher calls: do the run that the job names; returns its state.

    A launcher's worker has a process of its own for each run. Whatever kills that, such as a lack of memory, ends one
    run; if the worker were killed, its pool would end all.
    """
    if command_process() in (None, os.getpid()):
        return execute(*planned(job.plan, job.number))
    return _in_a_child(job.plan, job.number)


def _in_a_child(plan: str, number: int) -> str:
    global _interrupted
    configs, of, _ = planned(plan, number)
    command = command_process()
    # What has touched a GPU cannot be forked.
    forks = configs[0].device == "cpu"
    process = get_context("fork" if forks else "spawn").Process  # type: ignore[attr-defined]
    child = process(target=_as_a_child, args=(plan, number, this_process()))
    with stopped_by_signals():
        try:
            # If the command was stopped as well, it ends this worker meanwhile.
            time.sleep(max(0.0, _interrupted + _PAUSE_SECONDS - time.monotonic()))
            if forks:
                _prepare_forks(configs[0])
            child.start()
            while child.exitcode is None:
                child.join(LOOK_EVERY_SECONDS)
                if command is not None and not leftovers.is_alive(command):
                    child.kill()
                    os._exit(1)
        except KeyboardInterrupt:
            # This worker was stopped, and perhaps no other: what stops the command reaches the command itself.
            _interrupted = time.monotonic()
            if child.pid is not None:
                child.terminate()
                child.join()
    return state_after(child.exitcode or 0, Run(configs, of).folder)


def _prepare_forks(config: Config) -> None:
    """Do once in a worker, and not in each of its children, what takes seconds."""
    with quicker_imports():
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401, PLC0415
        import torch  # noqa: PLC0415
        from threadpoolctl import threadpool_limits  # noqa: PLC0415

        import repro.running.one_run  # noqa: PLC0415
        import repro.running.training  # noqa: F401, PLC0415
        from repro.config.checks import game_for_checks  # noqa: PLC0415
        from repro.tracking import provenance  # noqa: PLC0415

    provenance.code()
    provenance.versions()  # Not `hardware`, which touches a GPU.
    torch.set_num_threads(1)  # A child would wait for ever for threads that OpenMP has started before the fork.
    with threadpool_limits(1), suppress(Exception):  # What is wrong with the game, the run says.
        game_for_checks(config)


def _as_a_child(plan: str, number: int, worker: str) -> None:
    os.environ[COMMAND_PROCESS] = worker
    with suppress(KeyboardInterrupt), stopped_by_signals():  # The record says so.
        execute(*planned(plan, number))
