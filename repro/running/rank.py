"""One of the processes that do a training together: `python -m repro.running.rank PLAN` (`repro.running.processes`)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from lightning_fabric.plugins.environments.lightning import LightningEnvironment

from repro.common.errors import ReproError
from repro.common.stopping import asked_by, stopped_by_signals
from repro.running.executing import execute_here
from repro.running.lifetimes import COMMAND_PROCESS, end_with_the_command, this_process
from repro.running.plan_file import planned


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the only run of a plan (`repro.running.plan_file`), as one of its processes; returns the exit status.

    Args:
        arguments: the plan's file, and names of signals that ask for the end of a training, and do not stop it at once.
    """
    plan, *asking = sys.argv[1:] if arguments is None else arguments
    asked = [signal.Signals[name] for name in asking]
    rank = LightningEnvironment().local_rank()
    if rank:
        # The first process is told to stop, and ends the others.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *asked):
            signal.signal(number, signal.SIG_IGN)
    end_with_the_command()
    if not rank:
        # The others, which Lightning starts with this environment, end with this process.
        os.environ[COMMAND_PROCESS] = this_process()
    configs, of, title = planned(plan, 0)
    if rank:
        from repro.running.training import follow  # noqa: PLC0415  (takes seconds, of which signals know by now)

        with suppress(ReproError):  # What all processes meet, such as a fit that diverges, the first one tells.
            follow(configs[0], rank)
        return 0
    with suppress(KeyboardInterrupt), stopped_by_signals(), asked_by(*asked):  # The record says so.
        execute_here(configs, of, title)
    return 0


if __name__ == "__main__":
    sys.exit(main())
