"""Faults of the disks that runs are kept on: told in one sentence that names the file and the first cause."""

from __future__ import annotations

import errno
import functools
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TextIO

from repro.common.errors import ReproError, StorageError

P = ParamSpec("P")

_FULL_OR_READ_ONLY = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
_OTHERS = frozenset({errno.EIO, errno.ESTALE, errno.EACCES, errno.EPERM})


def causes(error: BaseException) -> list[BaseException]:
    """What an error came from, the first cause first, and itself."""
    chain: list[BaseException] = []
    before: BaseException | None = error
    while before is not None and before not in chain:
        chain.insert(0, before)
        before = before.__cause__ or (None if before.__suppress_context__ else before.__context__)
    return chain


def disk_fault(error: BaseException) -> StorageError | None:
    """The first fault of a disk that an error came from; None if there is none."""
    for cause in causes(error):
        if isinstance(cause, OSError) and cause.errno in _FULL_OR_READ_ONLY | _OTHERS:
            what = "written" if cause.errno in _FULL_OR_READ_ONLY else "read or written"
            file = cause.filename2 or cause.filename or "a file of the run"  # The second one is what a copy goes to.
            return StorageError(f"{file} cannot be {what} ({cause.strerror}).")
    return None


@contextmanager
def disk_faults_told() -> Iterator[None]:
    """Tell faults of a disk as such, and not whatever they led to.

    Raises:
        StorageError: there was one.
    """
    try:
        yield
    except ReproError:
        raise
    except Exception as error:
        fault = disk_fault(error)
        if fault is None:
            raise
        raise fault from error


@contextmanager
def writing(path: Path, beside: Path | None = None) -> Iterator[None]:
    """Let errors name the file that is being written, and leave nothing of what was begun `beside` it.

    A full disk must have room again for the record that says so.
    """
    try:
        yield
    except BaseException as error:
        for cause in causes(error):
            if isinstance(cause, OSError) and cause.filename is None:
                cause.filename = str(path)
        if beside is not None:
            beside.unlink(missing_ok=True)
        raise


def _nobody_reads(stream: TextIO) -> bool:
    """Whether what is written to is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def faults_told(main: Callable[P, int]) -> Callable[P, int]:
    """An entry point that prints what is wrong with a request, or with a disk, in one sentence, and returns 2 then.

    Where nobody reads its output any more, as after `| head`, it ends like other commands: silently, as by SIGPIPE.
    """

    @functools.wraps(main)
    def told(*arguments: P.args, **named: P.kwargs) -> int:
        try:
            with disk_faults_told():
                status = main(*arguments, **named)
                sys.stdout.flush()
                return status
        except BrokenPipeError:
            if not _nobody_reads(sys.stdout):
                raise
            # Python would flush at its end once more, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        except ReproError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2

    return told
