"""Progress of a command's runs: one bar each, how many are done, and an estimate for the whole command."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from repro.tracking.record import ENDED, FAILED, INTERRUPTED, RUNNING, RunRecord, read

_WIDTH_IN_A_FILE = 160

_LINE_EVERY_SECONDS = 30.0


def console(file: TextIO) -> Console:
    """A console as wide as the terminal, or of a fixed width where output goes to a file."""
    default = _Console(file=file)
    return default if default.is_terminal else _Console(file=file, width=_WIDTH_IN_A_FILE)


class _Console(Console):
    """One that leaves it to the command what becomes of output that nobody reads any more (`repro.common.faults`)."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704  (rich calls this while it handles the error)


@dataclass(frozen=True)
class Job:
    """A run as shown: its label, the folder its record is in, and of what kind it is.

    Those that wait are guessed to take as long as those of their kind that have begun.
    """

    label: str
    folder: Path
    kind: str = ""


class Watcher:
    """A thread that shows the runs' records until it is stopped.

    On a terminal it redraws bars; elsewhere (a log file, CI) it prints a line now and then.

    Args:
        jobs: all runs of the command.
        invocation: what other commands wrote counts as "not started".
        parallel: how many runs go on at once, for the estimate.
    """

    def __init__(self, jobs: Sequence[Job], invocation: str, parallel: int) -> None:
        self._jobs, self._invocation, self._parallel = list(jobs), invocation, max(1, parallel)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._console = console(sys.stderr)
        self._started = time.monotonic()

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def records(self) -> list[RunRecord]:
        """What this command last wrote of every job."""
        return [read(job.folder).of(self._invocation) for job in self._jobs]

    def _watch(self) -> None:
        if self._console.is_terminal:
            with Live(console=self._console, refresh_per_second=4, transient=False) as live:
                while not self._stop.wait(0.5):
                    live.update(self._table(self.records()))
                live.update(self._table(self.records()))
            return
        next_line = 0.0
        while not self._stop.wait(0.5):
            if time.monotonic() >= next_line:
                self._console.print(self._summary(self.records()), highlight=False, markup=False, soft_wrap=True)
                next_line = time.monotonic() + _LINE_EVERY_SECONDS

    def _table(self, records: list[RunRecord]) -> Table:
        table = Table.grid(padding=(0, 1))
        for job, record in zip(self._jobs, records, strict=True):
            if record.state == RUNNING:
                bar = ProgressBar(total=max(1, record.iterations), completed=record.iteration, width=24)
                remaining = record.remaining_seconds
                eta = f"{_duration(remaining)} left" if remaining is not None else "starting"
                iteration = f"{record.iteration}/{record.iterations}"
                table.add_row(job.label, bar, iteration, record.message or eta, record.headline)
            elif record.state in (FAILED, INTERRUPTED):
                table.add_row(job.label, Text(record.state, style="red"), "", "", record.message)
            elif record.state in ENDED:
                table.add_row(job.label, Text(record.state, style="green"), "", "", record.headline)
        grid = Table.grid()
        grid.add_row(table)
        grid.add_row(self._summary(records))
        return grid

    def _summary(self, records: list[RunRecord]) -> str:
        num_done = sum(s.state in ENDED for s in records)
        text = f"{_duration(time.monotonic() - self._started)} so far"
        if len(records) > 1:
            text = f"{num_done} of {len(records)} runs done, {text}"
        remaining, others = self._remaining(records)
        if remaining is not None and num_done < len(records):
            text += f", about {_duration(remaining)} left"
            text += f", not counting {others} run(s) whose like has not run yet" if others else ""
        running = [
            (j, s)
            for j, s in zip(self._jobs, records, strict=True)
            if s.state == RUNNING and (s.iteration or s.message)
        ]
        said = [(f"{j.label} {s.iteration}/{s.iterations}", s.headline, s.message) for j, s in running]
        detail = "; ".join(" ".join(filter(None, words)) for words in said)
        return f"{text} [{detail}]" if detail and not self._console.is_terminal else text

    def _remaining(self, records: list[RunRecord]) -> tuple[float | None, int]:
        """Seconds until all runs are done, waiting ones taken to be like those of their kind that have begun, and how
        many of kinds that have not are not in that."""
        begun: dict[str, list[RunRecord]] = {}
        for job, record in zip(self._jobs, records, strict=True):
            if record.seconds_per_iteration:
                begun.setdefault(job.kind, []).append(record)
        if not begun:
            return None, 0
        waiting = Counter(
            job.kind
            for job, record in zip(self._jobs, records, strict=True)
            if record.state not in ENDED and not record.seconds_per_iteration
        )
        whole = {kind: mean(s.seconds_per_iteration * s.iterations for s in alike) for kind, alike in begun.items()}
        rest = [s.remaining_seconds or 0.0 for alike in begun.values() for s in alike if s.state == RUNNING]
        seconds = sum(rest) + sum(waiting[kind] * typical for kind, typical in whole.items())
        others = sum(count for kind, count in waiting.items() if kind not in begun)
        if not seconds:
            # The last iterations are measured, or it is between stages, of which the next is of other kinds.
            return None, others
        return max(seconds, max(rest, default=0.0) * self._parallel) / self._parallel, others


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
