"""The record of one training: a small file in its folder that says what became of it, and the only one that does.

MLflow shows the same, and checkpoints are where a training continues from, but neither decides. Trainings may be done
in other processes or on other machines (launchers), so progress goes through this file, too.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from repro.common import durable

RUNNING, FINISHED, FAILED, SKIPPED = "running", "finished", "failed", "skipped"
WAITING, INTERRUPTED = "not started", "interrupted"
DAMAGED = "damaged"
"""State of a record whose file holds something else; its message says so."""

LOST = "lost"
"""An attempt that there was, and which one a damaged record does not say."""

_KEPT = 20
"""Commands whose last word on a training is kept."""

DONE = (FINISHED, SKIPPED)
"""States in which nothing is left to do."""
ENDED = (*DONE, FAILED, INTERRUPTED)
"""States in which no process does anything."""

INVOCATION = "REPRO_INVOCATION"
"""Environment variable: id of the command that this process does runs of."""

_FILE, _ANEW = "run.json", "anew"


@dataclass
class RunRecord:
    """State of one training, or of several that are done together as one run.

    Attributes:
        state: one of the constants above; `SKIPPED` is what a command says that found it finished.
        iteration, iterations: CFR iterations done and planned.
        seconds_per_iteration: of those to come, by what this process's took; 0 before the first.
        of_training: what the training itself says that matters most, in a few words; most say nothing.
        headline: that, and the newest value of the headline metric, with its name and unit, e.g. "sd_cfr 112 mA/g".
        message: why it failed or was interrupted, or what is being done beside training.
        invocation: id of the command that wrote this.
        updated: Unix time of the last write.
        earlier: state, headline and message that other commands left, by their ids, newest last.
        trained: whether its snapshots are complete.
        exported: whether its files are there for others to take along, and MLflow shows all that is measured.
        tables: of its strategies that people can read: read-out -> SHA-256 of its file as it was left; earlier versions
            have none.
        checkpoints: folder in outputs/runs whose checkpoints continue it: its own, or one of several seeds together.
        wall_seconds: time spent in training.
        cpu_seconds: of the processor's; 0 if it is not known, as of runs of earlier versions.
        labels: target -> scale, of all the invocations that asked for it.
        title: what the last of these that said anything said of its hyperparameters (`repro.plans.planned.Run`); of
            earlier versions none did.
        attempt: id that its runs in MLflow carry, by which they are found again; what is done anew has a new one.
        mlflow: name of a read-out, or "training" -> id of its MLflow run.
        made_with: code, versions and hardware of the processes that trained; where they differ, all values.
    """

    state: str = WAITING
    iteration: int = 0
    iterations: int = 0
    seconds_per_iteration: float = 0.0
    of_training: str = ""
    headline: str = ""
    message: str = ""
    invocation: str = ""
    updated: float = 0.0
    earlier: dict[str, list[str]] = field(default_factory=dict)
    trained: bool = False
    exported: bool = False
    tables: dict[str, str] = field(default_factory=dict)
    checkpoints: str = ""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    title: str = ""
    attempt: str = ""
    mlflow: dict[str, str] = field(default_factory=dict)
    made_with: dict[str, list[str]] = field(default_factory=dict)

    def of(self, invocation: str) -> RunRecord:
        """What a command wrote last, though others may have taken the training up since; "not started" if nothing."""
        if self.invocation == invocation:
            return self
        if invocation not in self.earlier:
            return RunRecord()
        state, headline, message = self.earlier[invocation]
        return RunRecord(state=state, headline=headline, message=message, invocation=invocation)

    def taken_up(self, invocation: str) -> None:
        """A command begins with this training."""
        if self.invocation:
            self.earlier[self.invocation] = [self.state, self.headline, self.message]
            self.earlier = dict(list(self.earlier.items())[-_KEPT:])
        self.state, self.message, self.invocation = RUNNING, "", invocation
        self.seconds_per_iteration = 0.0

    def note_made_with(self, facts: dict[str, str]) -> None:
        """Add what a process that trains is made of."""
        for name, value in facts.items():
            recorded = self.made_with.setdefault(name, [])
            if value not in recorded:
                recorded.append(value)

    @property
    def remaining_seconds(self) -> float | None:
        """Estimate for the rest of the training, None before the first iteration."""
        if not self.seconds_per_iteration:
            return None
        return self.seconds_per_iteration * (self.iterations - self.iteration)


_KINDS = get_type_hints(RunRecord)


def write(folder: Path, record: RunRecord, sync: bool = False) -> None:
    """Write the record, replacing it in one step so that a reader never sees half of it; `sync` as `durable.write`."""
    record.updated = time.time()
    durable.write(folder / _FILE, json.dumps(asdict(record), indent=1).encode(), sync)


def read(folder: Path) -> RunRecord:
    """The record in a training's folder; "not started" if there is none.

    If it is damaged, its state is `DAMAGED`, and of the rest whatever is as it should be is kept.
    """
    path = folder / _FILE
    if not is_there(folder):
        return RunRecord()
    content = load_json(path)
    given = content if isinstance(content, dict) else {}
    sound = {name: value for name, value in given.items() if name in _KINDS and _is(value, _KINDS[name])}
    if any(len(left) != 3 for left in sound.get("earlier", {}).values()):
        del sound["earlier"]
    record = RunRecord(**sound)
    if "trained" not in sound or len(sound) < len(given.keys() & _KINDS.keys()):
        record.state, record.message = DAMAGED, f"{path} is damaged: it is not the record of a run."
    return record


def is_there(folder: Path) -> bool:
    """Whether a training's folder has a record, be it damaged."""
    return (folder / _FILE).exists()


def _is(value: object, kind: Any) -> bool:
    """Whether what JSON holds is of an annotated type; numbers must be finite."""
    inside = get_args(kind)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(_is(part, inside[1]) for part in value.values())
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_is(part, inside[0]) for part in value)
    return is_number(value) if kind is float else type(value) is kind and (kind is not int or is_number(value))


def is_number(value: object) -> bool:
    """Whether what JSON holds is a finite number that a float can be."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def ask_anew(folder: Path) -> None:
    """Note that a training is to begin anew whatever was done before: whoever does it next does so."""
    folder.mkdir(parents=True, exist_ok=True)
    # Whoever does the training now, and cleans its folder, has the lock; this needs none.
    durable.touch(folder / _ANEW)


def is_asked_anew(folder: Path) -> bool:
    """Whether a training is to begin anew, and has not yet."""
    return (folder / _ANEW).exists()


def forget_asked_anew(folder: Path) -> None:
    """It has begun anew; from here on, it is continued."""
    (folder / _ANEW).unlink()


def load_json(path: Path) -> Any:
    """What a file holds; None if it cannot be read."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
