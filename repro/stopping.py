"""Being stopped from outside: SIGTERM (`kill`, a machine that shuts down) and SIGHUP (a terminal that is closed) end a
command as Ctrl-C does, so that its runs are closed and can be continued.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec

P = ParamSpec("P")

CAN_BE_REPEATED = "repeat the command to continue from the last checkpoints"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_AFTER_SECONDS = 10.0
"""How long after a signal others are ignored, because the work is being closed.

Not for ever: Python drops what a signal raises where that happens in a destructor or a callback from C.
"""

_received = signal.SIGINT
"""The signal that raised the last KeyboardInterrupt, as far as is known."""
_stopped: float | None = None
"""When (`time.monotonic`) that was; None: it has not been."""


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
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _stopped = None


def _stop(number: int, frame: object) -> None:
    global _received, _stopped
    now = time.monotonic()
    if _stopped is None or now - _stopped >= _AGAIN_AFTER_SECONDS:
        _received, _stopped = signal.Signals(number), now
        raise KeyboardInterrupt


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
