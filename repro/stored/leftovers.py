"""What processes that were killed have left behind, and who is alive: cleaned when the next command starts.

Whoever does a run, or is a command, holds the lock in its folder, and a lock goes with its process. So what says that
it is going on, and is not locked, is of a process that is gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repro.common import durable
from repro.common.errors import StorageError
from repro.tracking import checkpoints
from repro.tracking import record as records
from repro.tracking.folders import CONFIG, run_folder
from repro.tracking.record import INTERRUPTED, RUNNING

if TYPE_CHECKING:
    from repro.tracking.store import Store  # it takes seconds to import

LOCK = "lock"
"""Name of the file that whoever does a run holds, in the run's folder, and a command in its own."""
COMMANDS = "commands"

_LOOK_EVERY_SECONDS = 0.1

_BY_A_PROCESS = "*.writing-*[0-9]"
_UNFINISHED = (_BY_A_PROCESS, "writing.ckpt")
"""Names of files that are being written beside what they are to replace."""

_WITHOUT_LOCK = ("figures", "subgames")
"""Folders that several processes write in; each file has a lock while it is written."""
_NEEDED_UNTIL_FINISHED = ("*.ckpt", "*.part", "snapshots-unusable-*")
"""Names of what may yet be of use for a training that is not finished."""


# -- locks -----------------------------------------------------------------------------------------------------------


@contextmanager
def _if_free(folder: Path) -> Iterator[bool]:
    """Whether the process that a folder is of is gone; if so, no other one begins with it within."""
    with ExitStack() as stack:
        try:
            lock = stack.enter_context((folder / LOCK).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except OSError:  # It is locked, has just been removed, or is another user's.
            free = False
        yield free


def is_held(folder: Path) -> bool:
    """Whether a process does this run now. The lock is only looked at, and where there is none, none is made."""
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # There is none.
        return False
    return False


@contextmanager
def folder_of_a_command(output: Path, name: str) -> Iterator[Path]:
    """A folder for a command's own files, removed at its end, or, if it is killed, when another one starts."""
    with _commands(output) as commands:
        folder = commands / name
        folder.mkdir()
        lock = (folder / LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


@contextmanager
def _commands(output: Path) -> Iterator[Path]:
    """The folder of all commands, for one process at a time: a folder in it may not have its lock yet."""
    commands = output / COMMANDS
    commands.mkdir(exist_ok=True)
    with (output / f"{COMMANDS}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield commands


# -- files -----------------------------------------------------------------------------------------------------------


def clean(output: Path) -> None:
    """Remove files of commands that are gone; runs that they were doing are interrupted."""
    if not output.is_dir():
        return
    with _commands(output) as commands:
        for lock in list(commands.glob(f"*/{LOCK}")):
            folder = lock.parent
            with _if_free(folder) as free:
                if free:
                    shutil.rmtree(folder, ignore_errors=True)
    for folder in filter(Path.is_dir, (output / "runs").glob("*")):
        if records.read(folder).state == RUNNING or _are_useless(folder) or any(_unfinished(folder)):
            with _if_free(folder) as free:
                if free:
                    clean_run(folder)
    for path in (path for name in _WITHOUT_LOCK for path in (output / name).rglob(_BY_A_PROCESS)):
        if durable.is_abandoned(path):
            path.unlink(missing_ok=True)


def _unfinished(folder: Path) -> Iterator[Path]:
    """Files of a run that are, or were, being written."""
    return (path for path in folder.rglob("*writing*") if any(map(path.match, _UNFINISHED)))


def is_alive(process: int) -> bool:
    """Whether there is a process of this id on this machine, be it another user's, and it has not ended.

    One that has is still there until its parent has asked how: a parent that waits for whoever waits for this.
    """
    try:
        with suppress(PermissionError):
            os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # It has just gone, or the system has no such files.
        return not Path("/proc/self/stat").exists()
    return state != "Z"


def clean_run(folder: Path) -> None:
    """Remove what nobody needs of a run, by whoever holds its lock."""
    for path in list(_unfinished(folder)):
        path.unlink(missing_ok=True)
    remove_useless_checkpoints(folder)
    record = records.read(folder)
    if record.state == RUNNING:
        record.state, record.message = INTERRUPTED, "repeat the command to continue"
        records.write(folder, record)


def remove_useless_checkpoints(folder: Path) -> None:
    """Remove checkpoints of finished trainings: what can be played is in snapshots, the memories serve no one.

    With them go the snapshots that were set aside when there was no checkpoint to go on from.
    """
    if _are_useless(folder):
        for path in _kept_until_finished(folder):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _kept_until_finished(folder: Path) -> list[Path]:
    return [path for pattern in _NEEDED_UNTIL_FINISHED for path in folder.glob(pattern)]


def _are_useless(folder: Path) -> bool:
    """Whether there are checkpoints, and every training that they are of is finished."""
    if not _kept_until_finished(folder):
        return False
    keys = {folder.name}
    if not (folder / CONFIG).exists():
        # They are of several seeds, each of which has a folder of its own.
        keys = checkpoints.trainings(folder)
    return bool(keys) and all(records.read(folder.parent / key).trained for key in keys)


# -- MLflow ----------------------------------------------------------------------------------------------------------


def close_run(client: Store, folder: Path, until: float) -> None:
    """Show of a training whose process was ended from outside that it was KILLED, if no other one does it.

    Args:
        until: how long the process that was ended is waited for (`time.monotonic`): it may take a moment to go.
    """
    from repro.tracking import mlflow_runs  # noqa: PLC0415  (imports MLflow, which takes seconds)

    while True:
        with _if_free(folder) as free:
            if free:
                mlflow_runs.close(client, records.read(folder))
        if free or not folder.is_dir() or time.monotonic() > until:
            return
        time.sleep(_LOOK_EVERY_SECONDS)


def close_runs(client: Store, output: Path, is_own: bool) -> None:
    """Show of trainings that MLflow shows as going on, though their processes are gone, that they were KILLED.

    Args:
        is_own: whether the store has runs of this output folder only.
    """
    from repro.tracking import mlflow_runs  # noqa: PLC0415  (imports MLflow, which takes seconds)

    with suppress(StorageError):  # Only shown; whatever else the command does with the store tells of its fault.
        for key, run_ids in mlflow_runs.running(client).items():
            folder = run_folder(output, key)
            if not folder.is_dir():
                continue
            with _if_free(folder) as free:
                known = records.read(folder).mlflow.values()
                for run_id in run_ids if free else ():
                    if is_own or run_id in known:
                        client.set_terminated(run_id, "KILLED")
