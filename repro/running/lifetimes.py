"""Processes of a command: those that end when it is gone, and how others have ended."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from functools import cache

from repro.stored import leftovers

COMMAND_PROCESS = "REPRO_COMMAND_PROCESS"
"""Environment variable: host and process id of the command that this process must not outlive."""

LOOK_EVERY_SECONDS = 1.0


def how_it_ended(exit_code: int) -> str:
    """What an exit status other than 0 says of a run's process."""
    if exit_code >= 0:
        return f"its process ended with exit status {exit_code}"
    memory = "; perhaps out of memory" if -exit_code == signal.SIGKILL else ""
    return f"its process was killed (signal {-exit_code}{memory})"


@cache
def end_with_the_command() -> None:
    """Let this worker process end when the command that started it on this machine is gone.

    A killed command cannot stop its workers; left alone they would go on beside those of the repeated command.
    """
    command = command_process()
    if command in (None, os.getpid()):
        return

    def look() -> None:
        while leftovers.is_alive(command):
            time.sleep(LOOK_EVERY_SECONDS)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def command_process() -> int | None:
    """Id of the process that this one must not outlive; None if it is on another machine, or there is none."""
    host, _, pid = os.environ.get(COMMAND_PROCESS, "").rpartition(":")
    return int(pid) if host == socket.gethostname() else None


def this_process() -> str:
    """What `COMMAND_PROCESS` is to others for this process."""
    return f"{socket.gethostname()}:{os.getpid()}"
