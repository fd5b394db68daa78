"""Being stopped from outside: SIGTERM (`kill`, a machine that shuts down) and SIGHUP (a terminal that is closed) end a
command as Ctrl-C does, so that its runs are closed and can be continued.

A cluster's signals come early enough to be waited with: they *ask* (`asked_by`). A training goes on to the end of its
iteration and leaves a checkpoint; whatever else is done stops at once.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import ParamSpec

P = ParamSpec("P")

CAN_BE_REPEATED = "repeat the command to go on"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_AFTER_SECONDS = 10.0
"""How long after a signal others are ignored, because the work is being closed; not for ever, should that hang."""

_MOMENT = 0.05
"""Seconds after which a signal is sent again that Python has dropped."""

_received = signal.SIGINT
"""The signal that raised the last KeyboardInterrupt, as far as is known."""
_stopped: float | None = None
"""When (`time.monotonic`) that was; None: it has not been."""
_asking: Sequence[signal.Signals] = ()
"""Signals that ask, and do not stop a training at once."""
_asked: signal.Signals | None = None
"""The one that has."""
_iterating = False
"""Whether a training would lose the work of its iteration."""


def is_stopping() -> bool:
    """Whether a signal has stopped what this process does, which is being closed."""
    return _stopped is not None


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Within, SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread.

    Others that follow soon do not, for then the work is being closed.

    A signal that this process was started to ignore (`nohup`) stays ignored; and so are signals in other threads.
    """
    global _received, _stopped
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received, _stopped = signal.SIGINT, None
    before = {n: handler for n in _SIGNALS if (handler := signal.getsignal(n)) not in (None, signal.SIG_IGN)}
    for number in before:
        signal.signal(number, _stop)
    told_before, sys.unraisablehook = sys.unraisablehook, lambda dropped: _send_again(dropped, told_before)
    try:
        yield
    finally:
        sys.unraisablehook = told_before
        for number, handler in before.items():
            signal.signal(number, handler)
        _stopped = None


def _stop(number: int, frame: FrameType | None) -> None:
    global _received, _stopped
    del frame
    now = time.monotonic()
    if _stopped is None or now - _stopped >= _AGAIN_AFTER_SECONDS:
        _received, _stopped = signal.Signals(number), now
        raise KeyboardInterrupt


def _send_again(dropped: sys.UnraisableHookArgs, otherwise: Callable[[sys.UnraisableHookArgs], object]) -> None:
    """What Python does with what is raised in a destructor, or another callback from C, is to tell this and go on."""
    global _stopped
    if _stopped is None or dropped.exc_type is not KeyboardInterrupt:
        otherwise(dropped)
        return
    _stopped = None
    threading.Timer(_MOMENT, os.kill, (os.getpid(), _received)).start()


def received() -> signal.Signals:
    """The signal that stopped this process last; SIGINT if none has."""
    return _received


# -- asked to stop ---------------------------------------------------------------------------------------------------


@contextmanager
def asked_by(*numbers: signal.Signals) -> Iterator[None]:
    """Within, and within `stopped_by_signals` in the main thread, these signals ask a training to stop (`iterating`).

    Whatever else is done they stop at once.
    """
    global _asking, _asked
    before = {number: signal.signal(number, _ask) for number in numbers}
    _asking, _asked = numbers, None
    try:
        yield
    finally:
        _asking, _asked = (), None
        for number, handler in before.items():
            signal.signal(number, handler)


def _ask(number: int, frame: FrameType | None) -> None:
    global _asked
    _asked = signal.Signals(number)
    if not _iterating:
        _stop(number, frame)


@contextmanager
def iterating() -> Iterator[None]:
    """A training, which looks after each iteration whether it `is_asked` to stop, and then leaves a checkpoint.

    Raises:
        KeyboardInterrupt: at its end, if it was asked.
    """
    global _iterating
    _iterating = True
    try:
        yield
    finally:
        _iterating = False
    stop_if_asked()


def asking() -> Sequence[signal.Signals]:
    """Signals that ask and do not stop a training of this process at once."""
    return _asking


def is_asked() -> bool:
    """Whether a signal has asked this process to stop."""
    return _asked is not None


def stop_if_asked() -> None:
    """Stop now, where nothing is lost.

    Raises:
        KeyboardInterrupt: a signal has asked for it.
    """
    if _asked is not None:
        _stop(_asked, None)


def hear_again() -> None:
    """Take back the signals that ask from a library that has put its own handlers before ours."""
    for number in _asking:
        signal.signal(number, _ask)


@contextmanager
def hangups_held_back() -> Iterator[None]:
    """Within, SIGHUP does not reach this thread. Processes that it starts within never get it: they inherit that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stoppable(advice: str) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """An entry point that Ctrl-C, SIGTERM and SIGHUP end in one sentence and with the usual exit status.

    Args:
        advice: what can be done then; may be empty.
    """

    def decorated(main: Callable[P, int]) -> Callable[P, int]:
        @functools.wraps(main)
        def wrapped(*arguments: P.args, **options: P.kwargs) -> int:
            with stopped_by_signals():
                try:
                    return main(*arguments, **options)
                except KeyboardInterrupt:
                    with suppress(OSError):  # The terminal may be gone.
                        print(f"interrupted; {advice}." if advice else "interrupted.", file=sys.stderr)
                    return 128 + _received

        return wrapped

    return decorated
