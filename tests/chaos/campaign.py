"""Trials: one kind of run, disturbed in one way, then repeated until it ends, and compared."""

from __future__ import annotations

import json
import multiprocessing
import random
import re
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import traces, victims
from tests.chaos.kinds import KINDS, Kind
from tests.chaos.traces import Traces
from tests.chaos.victims import Outcome

_ROUNDS, _SWEEP_ROUNDS = 5, 2
"""Disturbances of one trial at most, before it may end; of a sweep, whose processes begin with seconds of imports."""
PROBLEMS = (*traces.PROBLEMS, "does not end", "status", "silence", "traceback", "others stopped", "orphans")
"""All kinds of problems."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = {130, 143, 129}
_CHECKED = re.compile(r"\.(pt|npz|npy|ckpt)$")
"""Files whose content is checked, so that a flipped bit must be noticed, or change nothing."""


@dataclass
class Report:
    """What was done, and what went wrong.

    Attributes:
        due: (kind, disturbance) that there are.
        done: (kind, disturbance) -> how often; of kills those that met a living process.
        problems: (kind, disturbance, kind of problem, what).
        minutes: that all took.
    """

    due: list[tuple[str, str]] = field(default_factory=list)
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    problems: list[tuple[str, str, str, str]] = field(default_factory=list)
    minutes: float = 0.0

    def count(self, disturbance: str) -> int:
        """How often one was done, over all kinds."""
        return sum(n for (_, d), n in self.done.items() if d.startswith(disturbance))

    def undone(self, once: bool = False) -> list[tuple[str, str]]:
        """What was not done yet; `once`: leaving out what was done to another kind of run."""
        return [(kind, d) for kind, d in self.due if not (self.count(d) if once else self.done[kind, d])]


@dataclass
class Undisturbed:
    """A kind of run as it is when nothing happens to it.

    Attributes:
        name, kind: of the run.
        arguments: of the command, then of what else it may be repeated with.
        start: a folder with what it needs, to be copied.
        traces: what it leaves.
        events: how often each event happens in it.
        seconds: that it takes.
    """

    name: str
    kind: Kind
    arguments: tuple[str, ...]
    start: Path
    traces: Traces
    events: Counter[str]
    seconds: float


def undisturbed(name: str, folder: Path, database: Path) -> Undisturbed:
    """Do a kind of run, and note what happens in it.

    Args:
        folder: a new one, to work in.
        database: an empty MLflow database, which takes long to make.
    """
    kind, start = KINDS[name], folder / "start"
    start.mkdir(parents=True)
    shutil.copy(database, start / "mlflow.db")
    for arguments in kind.before:
        _must_end(victims.run(arguments, start))
    whole, log = folder / "whole", folder / "events"
    shutil.copytree(start, whole)
    log.touch()
    only = next(iter(start.glob("runs/*")), start).name
    asked = tuple(arguments.replace("KEY", only) for arguments in (kind.arguments, *kind.also))
    outcome = victims.run(asked[0], whole, None if kind.sweep else victims.note_in(log), module=kind.module)
    _must_end(outcome)
    events = Counter(log.read_text().splitlines())
    return Undisturbed(name, kind, asked, start, traces.read(whole, kind.anew), events, outcome.seconds)


def _must_end(outcome: Outcome) -> None:
    if outcome.status != 0:
        raise RuntimeError(f"a run that nothing happened to ended with {outcome.status}:\n{outcome.printed}")


class Trials:
    """Disturbs one kind of run.

    Args:
        reference: the run as it should be.
        folder: a new one, to work in.
        report: is added to.
        dice: decides.
    """

    def __init__(self, reference: Undisturbed, folder: Path, report: Report, dice: random.Random) -> None:
        self._reference, self._folder, self._report, self._dice = reference, folder, report, dice
        self._number = 0
        # Every event's first occurrence is met before any other.
        self._aims = [(event, 1) for event in reference.events]
        dice.shuffle(self._aims)
        self._aims.reverse()
        report.due += [(self.name, disturbance) for disturbance in self.disturbances]

    @property
    def name(self) -> str:
        """Of the kind of run."""
        return self._reference.name

    @property
    def disturbances(self) -> dict[str, Callable[[], None]]:
        """Names of what can be done to this kind, most important first."""
        everywhere = {"kill at a moment": self.kill_at_a_moment, "signal": self.signal, "damaged file": self.damage}
        if self._reference.kind.sweep:
            return {
                "kill of a worker": self.kill_a_worker, "kill of the command": self.kill_the_command, **everywhere,
            }  # fmt: skip
        aimed = {"kill at an event": self.kill_at_an_event, "full disk": self.fill, "file too large": self.limit}
        return {**aimed, **everywhere, "locked database": self.lock}

    # -- kinds of disturbance

    def kill_at_an_event(self) -> None:
        """Kill just before something is written."""
        with self._trial("kill at an event") as output:
            for _ in range(_ROUNDS):
                outcome = self._disturbed("kill at an event", output, victims.kill_at(*self._aim()))
                if not outcome.killed:
                    break

    def kill_at_a_moment(self) -> None:
        """Kill whenever."""
        with self._trial("kill at a moment") as output:
            for _ in range(_SWEEP_ROUNDS if self._reference.kind.sweep else _ROUNDS):
                outcome = self._disturbed("kill at a moment", output, after=self._moment(), number=signal.SIGKILL)
                if not outcome.killed:
                    break

    def kill_a_worker(self) -> None:
        """Kill one process of several: the others' runs go on, and the command says which did not end."""
        with self._trial("kill of a worker") as output:
            how: dict[str, Any] = {"after": self._moment(), "number": signal.SIGKILL, "whom": "another"}
            outcome = self._disturbed("kill of a worker", output, **how)
            self._told("kill of a worker", outcome, "a worker was killed")
            ended = sum(json.loads(p.read_text())["state"] == "finished" for p in output.glob("runs/*/run.json"))
            if outcome.status == 1 and ended < len(self._reference.traces.keys) - 1:
                self._problem("kill of a worker", "others stopped", outcome.printed)

    def kill_the_command(self) -> None:
        """Kill the command and not its workers, which must end by themselves."""
        with self._trial("kill of the command") as output:
            how: dict[str, Any] = {"after": self._moment(), "number": signal.SIGKILL, "whom": "itself"}
            if self._disturbed("kill of the command", output, **how).orphans:
                self._problem("kill of the command", "orphans", "its workers went on without it")

    def signal(self) -> None:
        """Ask it to stop."""
        with self._trial("signal") as output:
            number = self._dice.choice(_SIGNALS)
            outcome = self._disturbed("signal", output, after=self._moment(), number=number)
            # Before the command has begun, a signal ends the process as it ends any other.
            if outcome.status not in {0, *_INTERRUPTED, -number}:
                self._problem("signal", "status", f"{number.name} ended with {outcome.status}: {outcome.printed}")

    def fill(self) -> None:
        """Nothing can be written from some event on."""
        with self._trial("full disk") as output:
            event, occurrence = self._aim()
            self._told("full disk", self._disturbed("full disk", output, victims.full_from(event, occurrence)), event)

    def limit(self) -> None:
        """Files may not grow beyond some size, as on a disk that fills up while they are written."""
        with self._trial("file too large") as output:
            # What it prints is a file, too, and must have room for a sentence.
            size = self._dice.choice((10_000, 30_000, 100_000, 700_000))
            outcome = self._disturbed("file too large", output, file_size=size)
            self._told("file too large", outcome, f"{size} bytes")

    def lock(self) -> None:
        """Another process holds MLflow's database for some seconds."""
        with self._trial("locked database") as output, _locked(output / "mlflow.db", self._dice.uniform(1, 5)):
            self._told("locked database", self._disturbed("locked database", output), "locked")

    def damage(self) -> None:
        """A file that a stopped or finished run left is damaged."""
        with self._trial("damaged file") as output:
            self._run(output, after=self._moment(1.3), number=signal.SIGKILL)
            files = sorted(p for p in output.rglob("*") if p.is_file() and "artifacts" not in p.parts)
            # Of a training's own metrics and its history there is nothing to make them again from: damaged lines are
            # left out, and without its history a training is refused.
            safe = re.compile(r"mlflow\.db.*|lock|metrics\.jsonl|.*\.history\.pt")
            path = self._dice.choice([p for p in files if not safe.fullmatch(p.name)] or [output / "x"])
            there = path.exists()
            before = path.read_bytes() if there else b""
            how = _damage(path, self._dice)
            outcome = self._disturbed("damaged file", output)
            self._told("damaged file", outcome, f"{path.relative_to(output)} {how}")
            if outcome.status or not there:
                # Refused in a sentence; without the file, or, if that is not made again, with a copy of it, it must go
                # on.
                path.unlink(missing_ok=True)
                if self._reference.kind.module == "evaluate" or path.parent.name == "snapshots":
                    path.write_bytes(before)

    # -- what they share

    def _aim(self) -> tuple[str, int]:
        if self._aims:
            return self._aims.pop()
        event = self._dice.choice(sorted(self._reference.events))
        return event, self._dice.randint(1, self._reference.events[event])

    def _moment(self, of: float = 1.0) -> float:
        return self._dice.uniform(0.0, of * self._reference.seconds)

    def _run(self, output: Path, act: victims.Act | None = None, again: bool = False, **how: Any) -> Outcome:
        arguments = self._dice.choice(self._reference.arguments) if again else self._reference.arguments[0]
        return victims.run(arguments, output, act, module=self._reference.kind.module, **how)

    def _disturbed(self, disturbance: str, output: Path, act: victims.Act | None = None, **how: Any) -> Outcome:
        outcome = self._run(output, act, **how)
        self._report.done[self._reference.name, disturbance] += (
            outcome.killed or outcome.sent or not disturbance.startswith("kill")
        )
        if "Traceback" in outcome.printed or any(p.stat().st_size for p in output.glob("runs/*/error.txt")):
            self._problem(disturbance, "traceback", outcome.printed)
        return outcome

    def _told(self, disturbance: str, outcome: Outcome, what: str) -> None:
        """A command that could not do its work must say so."""
        if outcome.status not in {0, 1, 2, *_INTERRUPTED}:
            self._problem(disturbance, "status", f"{what}: ended with {outcome.status}: {outcome.printed}")
        elif outcome.status and not outcome.printed.strip():
            self._problem(disturbance, "silence", f"{what}: ended with {outcome.status} and not a word")

    @contextmanager
    def _trial(self, disturbance: str) -> Iterator[Path]:
        """A folder to disturb runs in; afterwards the command is repeated, and what it leaves compared."""
        self._number += 1
        output = self._folder / f"{disturbance.replace(' ', '-')}-{self._number}"
        shutil.copytree(self._reference.start, output)
        before = len(self._report.problems)
        yield output
        outcome = self._run(output, again=True)
        if outcome.status != 0:
            self._problem(disturbance, "does not end", f"in {output}, with {outcome.status}: {outcome.printed}")
            return
        for kind, what in traces.differences(self._reference.traces, traces.read(output, self._reference.kind.anew)):
            self._problem(disturbance, kind, f"{what} (in {output})")
        if len(self._report.problems) == before:
            shutil.rmtree(output)
            output.with_name(f"{output.name}.log").unlink()

    def _problem(self, disturbance: str, kind: str, what: str) -> None:
        self._report.problems.append((self._reference.name, disturbance, kind, what))


@contextmanager
def _locked(database: Path, seconds: float) -> Iterator[None]:
    # In a process of its own: a forked one that inherits SQLite's note of a lock believes that it has it for ever.
    fork = multiprocessing.get_context("fork")
    held = fork.Event()

    def hold() -> None:
        connection = sqlite3.connect(database, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        held.set()
        time.sleep(seconds)
        connection.execute("ROLLBACK")
        connection.close()

    process = fork.Process(target=hold)
    process.start()
    held.wait()
    yield
    process.join()


def _damage(path: Path, dice: random.Random) -> str:
    """Damage a file in some way, and say how."""
    content = bytearray(path.read_bytes()) if path.exists() else bytearray()
    ways = ["cut", "emptied", "of NULs", "null", *(["flipped"] if _CHECKED.search(path.name) else [])]
    how = dice.choice(ways)
    if how == "flipped" and content:
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    changed: dict[str, bytes | bytearray] = {
        "cut": content[: dice.randrange(len(content) + 1)], "emptied": b"", "of NULs": bytes(len(content)),
        "null": b"null\n", "flipped": content,
    }  # fmt: skip
    path.write_bytes(changed[how])
    return how
