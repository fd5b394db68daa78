"""What a finished output folder holds, and how two of them differ."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

_CLOCKS = ("wall_seconds",)
"""Metrics that no repetition has the same."""
_FLEETING = re.compile(r"(^|/)lock$|\.lock$|^mlflow\.db(-wal|-shm|-journal)?$|^artifacts/")
_RESULTS = re.compile(r"runs/[^/]+/(metrics|evaluations|.*/strateg)|figures/.*\.(csv|pdf|png)$|.*/claims\.json$")

PROBLEMS = ("difference", "lost params", "duplicate", "left over", "lost", "state", "artifacts")
"""Kinds of problems that a comparison finds; a duplicate is a step logged twice in MLflow."""


@dataclass(frozen=True)
class Traces:
    """What a command left.

    Attributes:
        results: file of results -> what it says, wall times aside.
        files: names of all files and, with a slash at the end, folders, locks and MLflow's own aside.
        params: (training, read-out) -> params of its run in MLflow.
        metrics: (training, read-out, metric, step) -> its values in MLflow.
        states: how many runs in MLflow have which status.
        artifacts: how many of which name.
    """

    results: dict[str, Any]
    files: frozenset[str]
    params: dict[tuple[str, str], frozenset[tuple[str, str]]]
    metrics: dict[tuple[str, ...], tuple[float, ...]]
    states: Counter[str]
    artifacts: Counter[str]

    @property
    def keys(self) -> set[str]:
        """Of the trainings."""
        return {key for key, _ in self.params}


def read(output: Path, last: bool = False) -> Traces:
    """Of an output folder, without the suite's own code.

    Args:
        last: look in MLflow only for what the records of the trainings name: what was done last.
    """
    files = {str(p.relative_to(output)): p for p in output.rglob("*") if p.is_file()}
    folders = {f"{p.relative_to(output)}/" for p in output.rglob("*") if p.is_dir()}
    results = {name: _results(path) for name, path in files.items() if _RESULTS.match(name)}
    records = [json.loads(path.read_text()) for path in output.glob("runs/*/run.json")] if last else []
    ids = {run for record in records for run in record["mlflow"].values()}
    params, metrics, states = _tracked(output / "mlflow.db", ids)
    logged = (path for name, path in files.items() if name.startswith("artifacts/"))
    artifacts = Counter(path.name for path in logged if not last or ids & set(path.parts))
    kept = frozenset(name for name in files.keys() | folders if not _FLEETING.search(name))
    return Traces(results, kept, params, metrics, states, artifacts)


def _results(path: Path) -> Any:
    if path.suffix == ".jsonl":
        return [_without_clocks(json.loads(line)[1]) for line in path.read_text().splitlines()]
    if path.name == "data.csv":
        data = pd.read_csv(path)
        return data[~data["metric"].isin(_CLOCKS)].to_csv()
    if path.suffix == ".json" and path.parent.name == "evaluations":
        return {step: _without_clocks(row) for step, row in json.loads(path.read_text())["rows"].items()}
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _without_clocks(row: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if name not in _CLOCKS}


def _tracked(database: Path, only: set[str]) -> tuple[dict[Any, Any], dict[Any, Any], Counter[str]]:
    connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)
    runs = dict(connection.execute("SELECT run_uuid, status FROM runs WHERE lifecycle_stage = 'active'"))
    runs = {run: state for run, state in runs.items() if state == "RUNNING" or not only or run in only}
    tags: dict[str, dict[str, str]] = {run: {} for run in runs}
    for run, key, value in connection.execute("SELECT run_uuid, key, value FROM tags"):
        if run in tags:
            tags[run][key] = value
    names = {run: (tags[run].get("repro.key", "?"), tags[run].get("repro.readout", "?")) for run in runs}
    params: dict[tuple[str, str], frozenset[tuple[str, str]]] = {name: frozenset() for name in names.values()}
    for run, key, value in connection.execute("SELECT run_uuid, key, value FROM params"):
        if run in names:
            params[names[run]] |= {(key, value)}
    metrics: dict[tuple[str, ...], tuple[float, ...]] = {}
    for run, key, step, value in connection.execute("SELECT run_uuid, key, step, value FROM metrics ORDER BY value"):
        if run in names:
            name = (*names[run], key, str(step))
            metrics[name] = (*metrics.get(name, ()), 0.0 if key in _CLOCKS else value)
    connection.close()
    return params, metrics, Counter(runs.values())


def differences(wanted: Traces, there: Traces) -> Iterator[tuple[str, str]]:
    """(kind of problem, what it is) for everything that is not as it was without a disturbance."""
    for name in sorted(wanted.results.keys() | there.results.keys()):
        if wanted.results.get(name) != there.results.get(name):
            yield "difference", f"{name} is not what the undisturbed run left"
    for name in sorted(there.files - wanted.files):
        yield "left over", name
    for name in sorted(wanted.files - there.files):
        yield "lost", name
    for run in sorted(wanted.params.keys() | there.params.keys()):
        if wanted.params.get(run) != there.params.get(run):
            yield "lost params", f"{run} in MLflow"
    for metric in sorted(wanted.metrics.keys() | there.metrics.keys()):
        expected, values = wanted.metrics.get(metric, ()), there.metrics.get(metric, ())
        if len(values) > len(expected):
            yield "duplicate", f"{metric} is logged {len(values)} times"
        elif values != expected:
            yield "difference", f"{metric} in MLflow is {values}, not {expected}"
    if wanted.states != there.states:
        yield "state", f"runs in MLflow are {dict(there.states)}, not {dict(wanted.states)}"
    if wanted.artifacts != there.artifacts:
        yield (
            "artifacts",
            f"{dict(there.artifacts - wanted.artifacts)} more, {dict(wanted.artifacts - there.artifacts)} fewer",
        )
