"""Doing one run: here, in a child of a launcher's worker, or by several processes (`repro.running.processes`).

A command leaves its runs in a file (`write_plan`), where whoever is to do one finds it by its number. What becomes of
a run is in its record.
"""

from __future__ import annotations

import fcntl
import gc
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from omegaconf import DictConfig

from repro.common import durable, stopping
from repro.common.errors import ReproError, StoppedEarlyError, StorageError
from repro.common.faults import disk_faults_told
from repro.common.importing import quicker_imports
from repro.common.stopping import stopped_by_signals
from repro.config.keys import as_plain, from_plain
from repro.config.lightning import processes_of
from repro.config.schema import Config
from repro.plans.planned import Run
from repro.stored import leftovers
from repro.stored.trained import folder_of, record_of
from repro.tracking import checkpoints
from repro.tracking import record as records
from repro.tracking.record import FAILED, INTERRUPTED, INVOCATION, RunRecord

COMMAND_PROCESS = "REPRO_COMMAND_PROCESS"
"""Environment variable: host and process id of the command that this process must not outlive."""
LOOK_EVERY_SECONDS = 1.0
_PAUSE_SECONDS = 10.0
"""How long a worker that was interrupted begins no other run."""

_OF_RANKS = ("LOCAL_RANK", "RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that tell a process which of several it is; what has started the command may have set them."""

_interrupted = -math.inf
"""When this worker was, by `time.monotonic`."""


def launched(job: DictConfig) -> str:
    """What a launcher calls: do the run that the job names; returns its state.

    A launcher's worker has a process of its own for each run. Whatever kills that, such as a lack of memory, ends one
    run; if the worker were killed, its pool would end all.
    """
    if _command() in (None, os.getpid()):
        return execute(*planned(job.plan, job.number))
    return _in_a_child(job.plan, job.number)


def write_plan(runs: Sequence[Run], path: Path) -> None:
    """Leave runs in a file, where processes that do them find them by their numbers."""
    planned = [{"configs": [as_plain(c) for c in r.configs], "labels": dict(r.labels), "title": r.title} for r in runs]
    path.write_text(json.dumps(planned))


def planned(plan: str, number: int) -> tuple[list[Config], dict[str, str], str]:
    """What `execute` takes, of a run that `write_plan` left."""
    run = json.loads(Path(plan).read_text())[number]
    return [from_plain(plain) for plain in run["configs"]], run["labels"], run["title"]


def _in_a_child(plan: str, number: int) -> str:
    global _interrupted
    configs, of, _ = planned(plan, number)
    command = _command()
    # What has touched a GPU cannot be forked.
    forks = configs[0].device == "cpu"
    process = get_context("fork" if forks else "spawn").Process  # type: ignore[attr-defined]
    child = process(target=_as_a_child, args=(plan, number, f"{socket.gethostname()}:{os.getpid()}"))
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
    return _state_after(child.exitcode or 0, Run(configs, of).folder)


def _state_after(exit_code: int, folder: Path) -> str:
    """The state of a run whose process has ended; if it could not say so itself, that it has failed."""
    record = records.read(folder)
    if exit_code:
        how = how_it_ended(exit_code)
        print(f"run {folder.name}: {how}", file=sys.stderr, flush=True)
        if record.invocation == os.environ[INVOCATION] and record.state == records.RUNNING:
            record.state, record.message = FAILED, f"{how}; repeat the command to continue"
            note(folder, record)
    return record.state


def _prepare_forks(config: Config) -> None:
    """Do once in a worker, and not in each of its children, what takes seconds."""
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401, PLC0415
    import torch  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

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


def how_it_ended(exit_code: int) -> str:
    """What an exit status other than 0 says of a run's process."""
    if exit_code >= 0:
        return f"its process ended with exit status {exit_code}"
    memory = "; perhaps out of memory" if -exit_code == signal.SIGKILL else ""
    return f"its process was killed (signal {-exit_code}{memory})"


def execute(configs: Sequence[Config], of: Mapping[str, str], title: str = "") -> str:
    """Do one run and return the state it ended in. Never raises for a fault of one run: its record tells it.

    Args:
        configs: one per seed, `without_force`.
        of: target -> scale.
        title: of the run.
    """
    end_with_the_command()
    if processes_of(configs[0]) > 1:
        return _in_processes(Run(configs, of, title))
    return execute_here(configs, of, title)


def _in_processes(run: Run) -> str:
    """`execute` of a run that several processes do, of which this one is none: `repro.running.processes`."""
    with TemporaryDirectory(prefix="repro-") as folder:
        plan = Path(folder) / "plan.json"
        write_plan([run], plan)
        environment = {k: v for k, v in os.environ.items() if k not in _OF_RANKS} | {
            COMMAND_PROCESS: f"{socket.gethostname()}:{os.getpid()}", "OMP_NUM_THREADS": str(run.config.threads),
        }  # fmt: skip
        # What asks this process to stop is to ask that one: it finishes the iteration.
        asking = [number.name for number in stopping.asking()]
        process = subprocess.Popen(
            [sys.executable, "-m", "repro.running.processes", str(plan), *asking], env=environment
        )
        try:
            process.wait()
        except KeyboardInterrupt:
            process.send_signal(stopping.received() if stopping.is_asked() else signal.SIGTERM)
            process.wait()
            raise
    return _state_after(process.returncode, run.folder)


def execute_here(configs: Sequence[Config], of: Mapping[str, str], title: str = "") -> str:
    """`execute`, by this process (of several, by the first one)."""
    folder = Run(configs, of).folder
    try:
        with disk_faults_told():
            return _execute_locked(configs, of, folder, title)
    except StorageError as error:
        print(f"run {folder.name} did not begin: {error}", file=sys.stderr, flush=True)
        return INTERRUPTED
    finally:
        # A Trainer and what it trains refer to each other, and Python looks for such rings by their number, not by the
        # gigabytes that they hold, which the next run of this process needs.
        gc.collect()


def _execute_locked(configs: Sequence[Config], of: Mapping[str, str], folder: Path, title: str) -> str:
    # A run of several seeds does the runs of each, and nobody else may do one of them meanwhile; nor clean where the
    # checkpoints are that it may go on from, which are of fewer seeds perhaps.
    own = [folder_of(config) for config in configs]
    folders = {folder, *own}
    while True:
        with ExitStack() as stack:
            # All commands in the same order, so that no two wait for each other.
            for each in sorted(folders):
                each.mkdir(parents=True, exist_ok=True)
                _wait_for(stack.enter_context((each / leftovers.LOCK).open("w")), each.name)
            begun = [record for record in map(records.read, own) if record.checkpoints and not record.trained]
            needed = folders | {folder.parent / record.checkpoints for record in begun}
            if needed == folders:
                return _execute_alone(configs, of, folder, folders, title)
        folders = needed


def without_force(configs: Sequence[Config]) -> list[Config]:
    """The same configurations, of which those with `force` are noted in the trainings' folders as to begin anew.

    Whoever does such a training next begins it anew, and takes the note away: this command, another one that was waited
    for, or, if this one is stopped, whichever repeats it, with force or without.
    """
    for config in configs:
        if config.force:
            records.ask_anew(folder_of(config))
    return [replace(config, force=False) for config in configs]


def _wait_for(lock: IO[str], key: str) -> None:
    """Wait for a run if another process does it; afterwards it is finished, or to be continued."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"run {key} is being done by another process; waiting for it", file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def _execute_alone(
    configs: Sequence[Config], of: Mapping[str, str], folder: Path, locked: Iterable[Path], title: str
) -> str:
    fault: StorageError | None = None
    try:
        with disk_faults_told():
            for each in locked:
                leftovers.clean_run(each)
    except StorageError as error:
        fault = error
    record = record_of(folder, configs[0])
    record.taken_up(os.environ.get(INVOCATION, ""))
    try:
        with disk_faults_told():
            if fault is not None:
                raise fault
            records.write(folder, record)
            with quicker_imports():
                from repro.running.one_run import do  # noqa: PLC0415  (imports torch and MLflow, which takes seconds)

            record.state = do(configs, of, folder, record, title)
    except (KeyboardInterrupt, SystemExit):  # Lightning turns the first into the second.
        record.state, record.message = INTERRUPTED, kept(folder, record)
        if not record.trained:
            # Where it goes on when the command is repeated.
            record.iteration = _newest_checkpoint(folder, record) or 0
            record.headline = record.headline if record.iteration else ""
        note(folder, record)
        raise KeyboardInterrupt from None
    except StorageError as error:
        record.state, record.message = INTERRUPTED, f"{error} Repeat the command to continue."
    except StoppedEarlyError as error:
        record.state, record.message = INTERRUPTED, str(error)
    except ReproError as error:
        record.state, record.message = FAILED, str(error)
    except Exception as error:  # One failed run must not stop the others of a sweep.
        record.state, record.message = FAILED, f"{type(error).__name__}: {error} ({_kept_traceback(folder)})"
    note(folder, record)
    return record.state


def kept(folder: Path, record: RunRecord) -> str:
    """What is kept of a run that is interrupted, and what comes of repeating the command."""
    if record.trained:
        return "its training is finished and kept; repeat the command to continue"
    newest = _newest_checkpoint(folder, record)
    if newest is None:
        return "there was no checkpoint yet; repeated, it begins anew"
    return f"the checkpoint of iteration {newest} of {record.iterations} is kept; repeat the command to continue"


def _newest_checkpoint(folder: Path, record: RunRecord) -> int | None:
    return checkpoints.newest(folder.parent / (record.checkpoints or folder.name))


def note(folder: Path, record: RunRecord) -> None:
    """Write what became of a run; where the disk does not take it, say so on the terminal."""
    try:
        records.write(folder, record)
    except OSError as error:
        print(
            f"run {folder.name}: {record.state}; {record.message} Its record could not be written ({error.strerror}).",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def _kept_traceback(folder: Path) -> str:
    """Where the traceback of the current exception is: in a file of the run, or printed."""
    log = folder / "error.txt"
    try:
        durable.write(log, traceback.format_exc().encode(), sync=False)
    except OSError:
        traceback.print_exc()
        return "traceback above"
    return f"traceback in {log}"


@cache
def end_with_the_command() -> None:
    """Let this worker process end when the command that started it on this machine is gone.

    A killed command cannot stop its workers; left alone they would go on beside those of the repeated command.
    """
    command = _command()
    if command in (None, os.getpid()):
        return

    def look() -> None:
        while leftovers.is_alive(command):
            time.sleep(LOOK_EVERY_SECONDS)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def _command() -> int | None:
    """Id of the process that this one must not outlive; None if it is on another machine, or there is none."""
    host, _, pid = os.environ.get(COMMAND_PROCESS, "").rpartition(":")
    return int(pid) if host == socket.gethostname() else None
