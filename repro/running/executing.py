"""Doing one run: here, or by several processes (`repro.running.processes`). What becomes of it is in its record."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from repro.common import durable, stopping
from repro.common.errors import ReproError, StoppedEarlyError, StorageError
from repro.common.faults import disk_faults_told
from repro.common.importing import quicker_imports
from repro.config.lightning import processes_of
from repro.config.schema import Config
from repro.plans.planned import Run
from repro.running.lifetimes import COMMAND_PROCESS, end_with_the_command, how_it_ended, this_process
from repro.running.plan_file import write_plan
from repro.stored import leftovers
from repro.stored.trained import folder_of, record_of
from repro.tracking import checkpoints
from repro.tracking import record as records
from repro.tracking.record import FAILED, INTERRUPTED, INVOCATION, RunRecord

_OF_RANKS = ("LOCAL_RANK", "RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that tell a process which of several it is; what has started the command may have set them."""


def state_after(exit_code: int, folder: Path) -> str:
    """The state of a run whose process has ended; if it could not say so itself, that it has failed."""
    record = records.read(folder)
    if exit_code:
        how = how_it_ended(exit_code)
        print(f"run {folder.name}: {how}", file=sys.stderr, flush=True)
        if record.invocation == os.environ[INVOCATION] and record.state == records.RUNNING:
            record.state, record.message = FAILED, f"{how}; repeat the command to continue"
            note(folder, record)
    return record.state


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
            COMMAND_PROCESS: this_process(), "OMP_NUM_THREADS": str(run.config.threads),
        }  # fmt: skip
        # What asks this process to stop is to ask that one: it finishes the iteration.
        asking = [number.name for number in stopping.asking()]
        process = subprocess.Popen([sys.executable, "-m", "repro.running.rank", str(plan), *asking], env=environment)
        try:
            process.wait()
        except KeyboardInterrupt:
            process.send_signal(stopping.received() if stopping.is_asked() else signal.SIGTERM)
            process.wait()
            raise
    return state_after(process.returncode, run.folder)


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
