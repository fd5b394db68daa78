"""Commands in forked processes, and what is done to them while they run.

A disturbance is aimed at an *event*: a file opened for writing, renamed or removed below the output folder (seen
through Python's audit events), a call of MLflow's client, or a commit of its database. Events are named by what happens
and to what kind of file, so that the same aim finds its event in every repetition.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shlex
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import sqlalchemy
from mlflow import MlflowClient

import repro.running.training  # noqa: F401  (imported once, before processes are forked)
from repro import evaluate, figure
from repro import run as train

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
_MLFLOW = (
    "create_experiment", "create_run", "log_batch", "update_run", "set_terminated", "log_artifact", "delete_tag",
)  # fmt: skip
_PATIENCE_SECONDS = 240
_ORPHANS_SECONDS = 20

Act = Callable[[str], None]
"""Told the name of every event, before it happens."""
Whom = Literal["all", "itself", "another"]
Module = Literal["run", "figure", "evaluate"]
_MAINS: dict[Module, Callable[[], int]] = {"run": train.main, "figure": figure.main, "evaluate": evaluate.main}


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        status: its exit status; below 0 the signal that killed it.
        printed: on both streams.
        seconds: that it took.
        sent: whether it was sent a signal before it ended.
        orphans: whether processes of a killed command went on.
    """

    status: int
    printed: str
    seconds: float
    sent: bool
    orphans: bool

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL


# -- what is done ----------------------------------------------------------------------------------------------------


def nothing(event: str) -> None:
    """Leave it alone."""


def note_in(path: Path) -> Act:
    """Write down the names of all events."""
    # Opened before events are looked at.
    file = path.open("a", buffering=1)
    return lambda event: print(event, file=file)


def kill_at(name: str, occurrence: int) -> Act:
    """End the process, as the kernel would, before an event."""
    return _at(name, occurrence, lambda: os.kill(os.getpid(), signal.SIGKILL))


def full_from(name: str, occurrence: int) -> Act:
    """From an event on nothing can be written any more."""
    full = False

    def act(event: str) -> None:
        nonlocal full
        full = full or reached(event)
        if full and event.startswith("commit"):
            cause = sqlite3.OperationalError("database or disk is full")
            raise sqlalchemy.exc.OperationalError("COMMIT", {}, cause)
        if full and event.startswith(("open", "os.mkdir")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), event)

    reached = _counter(name, occurrence)
    return act


def _at(name: str, occurrence: int, do: Callable[[], None]) -> Act:
    reached = _counter(name, occurrence)

    def act(event: str) -> None:
        if reached(event):
            do()

    return act


def _counter(name: str, occurrence: int) -> Callable[[str], bool]:
    """Whether this is the event of that name and number, counted from 1."""
    seen = 0

    def reached(event: str) -> bool:
        nonlocal seen
        seen += event == name
        return event == name and seen == occurrence

    return reached


# -- doing it --------------------------------------------------------------------------------------------------------


def run(
    arguments: str,
    output: Path,
    act: Act | None = None,
    *,
    module: Module = "run",
    after: float = 0.0,
    number: int | None = None,
    whom: Whom = "all",
    file_size: int | None = None,
) -> Outcome:
    """Do a command in a process of its own.

    Args:
        arguments: of the command, as typed in a shell.
        act: what is done at events; None looks at none.
        module: which command of `repro`.
        after: seconds after the start when a signal is sent.
        number: of the signal; None sends none.
        whom: the signal is sent to: all processes, the command's own, or one of its others, as the kernel chooses one
            when memory is short.
        file_size: bytes that a file may have at most; writing more fails.
    """
    log = output.with_name(f"{output.name}.log")
    ready, begun = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(begun)
        where = f"output_dir={output}" if module == "run" else f"--output={output}"
        sys.argv = [f"repro.{module}", *shlex.split(arguments), where]
        _be(_MAINS[module], output, log, act, file_size)
    os.close(begun)
    os.read(ready, 1)  # Ends when the child, too, has closed the other end: it has a group of its own.
    os.close(ready)
    started = time.monotonic()
    sent = False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - started
        if ended:
            break
        if number is not None and not sent and seconds >= after:
            sent = _send(child, number, whom)
            number = number if whom == "another" and not sent else None
        if seconds > _PATIENCE_SECONDS:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.002)
    orphans = whom == "itself" and sent and not _all_end(child)
    _send(child, signal.SIGKILL, "all")
    return Outcome(os.waitstatus_to_exitcode(status), log.read_text(errors="replace"), seconds, sent, orphans)


def _send(leader: int, number: int, whom: Whom) -> bool:
    """Send a signal, if there is someone to receive it; whether there was."""
    if whom == "another":
        others = _others(leader)
        return bool(others) and _send(max(others), number, "itself")  # The newest does a run.
    try:
        (os.killpg if whom == "all" else os.kill)(leader, number)
    except ProcessLookupError:
        return False
    return True


def _others(leader: int) -> list[int]:
    """Ids of the processes of a group that do runs."""
    others = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_other = os.getpgid(int(path.name)) == leader != int(path.name)
            if is_other and b"LokyProcess" in (path / "cmdline").read_bytes():
                others.append(int(path.name))
        except (FileNotFoundError, ProcessLookupError):  # It has ended meanwhile.
            continue
    return others


def _all_end(leader: int) -> bool:
    """Whether the workers of a command that was killed end by themselves."""
    deadline = time.monotonic() + _ORPHANS_SECONDS
    while _others(leader):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _be(main: Callable[[], int], output: Path, log: Path, act: Act | None, file_size: int | None) -> None:
    """In the child: become the command, whose arguments are in `sys.argv`. Never returns."""
    status = 70
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        target = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        os.dup2(target, 1)
        os.dup2(target, 2)
        if act is not None:
            _look_at_events(output, act)
        if file_size is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        status = main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


# -- events ----------------------------------------------------------------------------------------------------------


def _look_at_events(output: Path, act: Act) -> None:
    """From now on tell `act` of every event in this process."""
    below, busy = f"{output}{os.sep}", False

    def tell(name: str) -> None:
        nonlocal busy
        if not busy:  # What acting itself does is no event.
            busy = True
            try:
                act(name)
            finally:
                busy = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        path = arguments[0] if arguments and event in ("open", *_CHANGES) else None
        if not isinstance(path, str | os.PathLike) or not os.fspath(path).startswith(below):
            return
        if event != "open" or (arguments[2] or 0) & _WRITING:
            tell(f"{event} {_shape(os.fspath(path).removeprefix(below))}")

    sys.addaudithook(hook)
    for name in _MLFLOW:
        setattr(MlflowClient, name, _told(getattr(MlflowClient, name), name, tell))
    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "commit", lambda _: tell("commit"))


def _told(method: Callable[..., Any], name: str, tell: Act) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **more: Any) -> Any:
        tell(f"before {name}")
        result = method(*arguments, **more)
        tell(f"after {name}")
        return result

    return wrapped


def _shape(path: str) -> str:
    """A file's name without what differs from run to run."""
    return re.sub(r"\d+", "#", re.sub(r"[0-9a-f]{12,}", "#", path))
