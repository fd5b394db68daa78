"""What was measured, in files of a training's folder: metrics of the training itself, and of each evaluation.

Figures are drawn from these files; MLflow shows the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.tracking.record import load_json, write_durably

Metrics = dict[int, dict[str, float]]
"""Iteration -> name of a metric -> value."""


class TrainingRows:
    """`metrics.jsonl`: a line per epoch, with the training's own metrics."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metrics.jsonl"

    def begin(self, iteration: int) -> None:
        """Keep what is known of iterations up to this one, from which training goes on."""
        earlier = {step: metrics for step, metrics in self.read().items() if step <= iteration}
        write_durably(self._path, "".join(_line(step, metrics) for step, metrics in earlier.items()), sync=True)

    def append(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Add an epoch's; values that are not finite are left out."""
        with self._path.open("a") as file:
            file.write(_line(iteration, metrics))

    def read(self) -> Metrics:
        """All of them. A line that a kill left half-written is none."""
        try:
            lines = self._path.read_text().splitlines()
        except OSError:
            return {}
        rows: Metrics = {}
        for line in lines:
            try:
                step, metrics = json.loads(line)
            except ValueError:
                continue
            rows[int(step)] = metrics
        return rows


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
    """

    folder: Path
    key: str
    about: Mapping[str, Any] = field(default_factory=dict)
    rows: Metrics = field(default_factory=dict)

    def __post_init__(self) -> None:
        content = load_json(self._path)
        if isinstance(content, dict):
            self.rows = {int(step): metrics for step, metrics in content.get("rows", {}).items()}

    @property
    def _path(self) -> Path:
        return self.folder / "evaluations" / f"{self.key}.json"

    def add(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Add or replace what was measured after an iteration, and write everything."""
        self.rows[iteration] = finite(metrics)
        self._write()

    def forget_after(self, iteration: int) -> None:
        """Drop what was measured of later iterations, which training will come to again."""
        earlier = {step: metrics for step, metrics in self.rows.items() if step <= iteration}
        if earlier != self.rows:
            self.rows = earlier
            self._write()

    def _write(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        content = {**self.about, "rows": dict(sorted(self.rows.items()))}
        write_durably(self._path, json.dumps(content), sync=True)
