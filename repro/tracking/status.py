"""A small file per run that says how far it is: written by the run, read by whoever shows progress.

Runs may be other processes or other machines (launchers), so progress goes through files.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

RUNNING, FINISHED, FAILED, SKIPPED = "running", "finished", "failed", "skipped"
WAITING, INTERRUPTED = "not started", "interrupted"

_KEPT = 20
"""Commands whose last word on a run is kept."""


@dataclass
class Status:
    """State of one run.

    Attributes:
        state: one of the constants above.
        iteration, iterations: CFR iterations done and planned.
        seconds_per_iteration: mean over this process's iterations, 0 before the first.
        headline: newest value of the headline metric, with its name and unit, e.g. "sd_cfr 112 mA/g".
        message: why a run failed.
        invocation: id of the command that wrote this.
        updated: Unix time of the last write.
        earlier: state, headline and message that other commands left, by their ids, newest last.
    """

    state: str = WAITING
    iteration: int = 0
    iterations: int = 0
    seconds_per_iteration: float = 0.0
    headline: str = ""
    message: str = ""
    invocation: str = ""
    updated: float = 0.0
    earlier: dict[str, list[str]] = field(default_factory=dict)

    def of(self, invocation: str) -> Status:
        """What a command wrote last, though others may have taken the run up since; "not started" if nothing."""
        if self.invocation == invocation:
            return self
        if invocation not in self.earlier:
            return Status()
        state, headline, message = self.earlier[invocation]
        return Status(state=state, headline=headline, message=message, invocation=invocation)

    def taken_up(self, invocation: str) -> Status:
        """The status with which a command begins."""
        earlier = dict(self.earlier)
        if self.invocation:
            earlier[self.invocation] = [self.state, self.headline, self.message]
        kept = dict(list(earlier.items())[-_KEPT:])
        return Status(state=RUNNING, headline=self.headline, invocation=invocation, earlier=kept)

    @property
    def remaining_seconds(self) -> float | None:
        """Estimate for the rest of the run, None before the first iteration."""
        if not self.seconds_per_iteration:
            return None
        return self.seconds_per_iteration * (self.iterations - self.iteration)


def write(folder: Path, status: Status) -> None:
    """Write `status.json`, replacing it in one step so that a reader never sees half of it."""
    status.updated = time.time()
    beside = folder / f"status.json.{os.getpid()}"
    beside.write_text(json.dumps(asdict(status)))
    beside.replace(folder / "status.json")


def read(folder: Path) -> Status:
    """The status in a run's folder; "waiting" if there is none that can be read."""
    try:
        content = json.loads((folder / "status.json").read_text())
    except (OSError, ValueError):
        return Status()
    known = {f.name for f in fields(Status)}
    return Status(**{k: v for k, v in content.items() if k in known})
