"""What was measured, in files of a training's folder: metrics of the training itself, and of each evaluation.

Figures are drawn from these files; MLflow shows the same.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.common import durable
from repro.common.faults import writing
from repro.tracking import provenance
from repro.tracking.record import is_number, load_json

Metrics = dict[int, dict[str, float]]
"""Iteration -> name of a metric -> value."""

_STEP = re.compile(r"[0-9]{1,12}")


class TrainingRows:
    """`metrics.jsonl`: a line per epoch, with the training's own metrics."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metrics.jsonl"

    def begin(self, iteration: int) -> None:
        """Keep what is known of iterations up to this one, from which training goes on."""
        earlier = {step: metrics for step, metrics in self.read().items() if step <= iteration}
        durable.write(self._path, "".join(_line(step, metrics) for step, metrics in earlier.items()).encode())

    def append(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Add an epoch's; values that are not finite are left out."""
        with writing(self._path), self._path.open("a") as file:
            file.write(_line(iteration, metrics))

    def sync(self) -> None:
        """Wait until what was added is on the disk."""
        with writing(self._path), self._path.open("a") as file:
            os.fsync(file.fileno())

    def read(self, is_finished: bool = False) -> Metrics:
        """All of them. A line that a kill left half-written, or that holds anything else than an epoch, is none.

        Args:
            is_finished: whether the training is, in which case nothing writes such a line again, and they are told.
        """
        try:
            lines = self._path.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        rows = [row for row in map(_row, lines) if row is not None]
        if is_finished and (len(rows) < len(lines) or not rows):
            what = f"{len(lines) - len(rows)} of its lines are damaged" if lines else "it is gone or empty"
            print(f"warning: {self._path}: {what}; what they held is missing.", file=sys.stderr, flush=True)
        return dict(rows)


def _row(line: str) -> tuple[int, dict[str, float]] | None:
    """What `_line` wrote, or None."""
    try:
        step, metrics = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    return (step, metrics) if type(step) is int and _STEP.fullmatch(str(step)) and _are_metrics(metrics) else None


def _are_metrics(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def _line(step: int, metrics: Mapping[str, float]) -> str:
    return json.dumps([step, finite(metrics)]) + "\n"


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics less those that are not finite."""
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


@dataclass
class EvaluationRows:
    """`evaluations/<key>.json`: what one evaluation measured of one read-out, with what that was.

    Attributes:
        folder: the training's.
        key: the evaluation's.
        about: what was measured and how, for readers.
        rows: what is known.
        seconds: by iteration what measuring took, of each read-out that was measured in one go an equal share; rows of
            earlier versions have none.
        made_with: commits that measured, which may be later ones than those that trained.
        damaged: whether the file held anything else than rows, which are then not known.
    """

    folder: Path
    key: str
    about: Mapping[str, Any] = field(default_factory=dict)
    rows: Metrics = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    made_with: list[str] = field(default_factory=list)
    damaged: bool = False

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        content = load_json(self.path)
        given = content.get("rows") if isinstance(content, dict) else None
        rows = given if isinstance(given, dict) else {}
        self.rows = {int(i): m for i, m in rows.items() if _STEP.fullmatch(i) and m and _are_metrics(m)}
        taken = content.get("seconds") if isinstance(content, dict) else None
        taken = taken if isinstance(taken, dict) else {}
        self.seconds = {i: float(taken[str(i)]) for i in self.rows if is_number(taken.get(str(i)))}
        if isinstance(content, dict) and isinstance(content.get("made_with"), list):
            self.made_with = [str(commit) for commit in content["made_with"]]
        self.damaged = not isinstance(given, dict) or len(self.rows) < len(rows)

    @property
    def path(self) -> Path:
        return self.folder / "evaluations" / f"{self.key}.json"

    def add(self, iteration: int, metrics: Mapping[str, float], seconds: float) -> None:
        """Add or replace what was measured after an iteration in so many seconds, and write everything."""
        self.rows[iteration], self.seconds[iteration] = finite(metrics), round(seconds, 3)
        if provenance.commit() not in self.made_with:
            self.made_with.append(provenance.commit())
        self._write()

    def forget(self) -> None:
        """Take nothing of what the file holds for known. The file stays as it is."""
        self.rows, self.seconds, self.made_with, self.damaged = {}, {}, [], False

    def forget_after(self, iteration: int) -> None:
        """Drop what was measured of later iterations, which training will come to again."""
        earlier = {step: metrics for step, metrics in self.rows.items() if step <= iteration}
        if earlier != self.rows:
            self.rows = earlier
            self.seconds = {step: taken for step, taken in self.seconds.items() if step <= iteration}
            self.made_with = self.made_with if earlier else []
            self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        seconds, rows = (dict(sorted(each.items())) for each in (self.seconds, self.rows))
        content = {**self.about, "made_with": self.made_with, "seconds": seconds, "rows": rows}
        durable.write(self.path, json.dumps(content).encode())


def stored_evaluations(folder: Path) -> Iterator[EvaluationRows]:
    """What was measured of a training, a file each, `about` as the file has it; one that is damaged is told, and left
    out."""
    for path in sorted((folder / "evaluations").glob("*.json")):
        content = load_json(path)
        rows = EvaluationRows(folder, path.stem, content if isinstance(content, dict) else {})
        named = (rows.about.get(part) for part in ("readout", "evaluation"))
        if rows.damaged or not all(isinstance(part, dict) and "name" in part for part in named):
            print(f"warning: {path} is damaged; what it held is missing.", file=sys.stderr)
        else:
            yield rows
