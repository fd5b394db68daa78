"""The MLflow side: opening the store, and the runs that belong to one training run.

Experiment = game. One run per training, and under it one per read-out, all with the same metric keys, so that the
MLflow UI overlays algorithms as they are. Targets, scales and commands that asked for a training are tags of its runs.
"""

from __future__ import annotations

import fcntl
import logging
import math
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from repro.config.checks import TRAINING
from repro.errors import ReproError
from repro.tracking.record import RunRecord

KEY_TAG = "repro.key"
READOUT_TAG = "repro.readout"
_SQLITE = "sqlite:///"
_SQLITE_HEADER = b"SQLite format 3\0"
_MESSAGE_TAG = "repro.message"
_PARAMS_AT_ONCE, _METRICS_AT_ONCE = 100, 1000
_LONGEST_TAG = 5000
COST = "wall_seconds"
"""A metric that every run has at every step."""


def default_uri(output_dir: Path) -> str:
    """The SQLite file in the output folder, by absolute path."""
    return f"{_SQLITE}{output_dir.resolve() / 'mlflow.db'}"


def open_store(uri: str) -> MlflowClient:
    """Connect, creating an SQLite database where there is none.

    Raises:
        ReproError: the file is not an MLflow database, or the store cannot be reached.
    """
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if uri.startswith(_SQLITE):
        path = Path(uri.removeprefix(_SQLITE))
        if not path.is_absolute():
            raise ReproError(f"tracking_uri is {uri!r}; an SQLite file needs an absolute path (four slashes).")
        if path.exists():
            _check_sqlite(uri, path)
        else:
            _create_sqlite(path)
    return _connect(uri)


def _connect(uri: str) -> MlflowClient:
    try:
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
    except Exception as error:  # MLflow lets its back ends' many exception types through.
        reason = str(error).splitlines()[0]
        raise ReproError(f"tracking_uri is {uri!r}; it must name an MLflow store that can be opened ({reason}).") from (
            error
        )
    return client


def _create_sqlite(path: Path) -> None:
    """Make and migrate the database under another name, then rename it.

    Killed on the way, it leaves nothing that a later command trips over; of several processes one does it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        beside = path.with_name(f"{path.name}.new")
        for left_over in path.parent.glob(f"{beside.name}*"):
            left_over.unlink()
        _connect(f"{_SQLITE}{beside}")
        beside.rename(path)


def _check_sqlite(uri: str, path: Path) -> None:
    # Opened for writing, because SQLite may have to roll back what a killed process left in the middle of a commit.
    try:
        with path.open("rb") as file:
            header = file.read(len(_SQLITE_HEADER))
        if header != _SQLITE_HEADER:
            raise ReproError(f"tracking_uri is {uri!r}; the file there must be an MLflow database.")
        connection = sqlite3.connect(path)
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        connection.close()
    except (OSError, sqlite3.Error) as error:
        raise ReproError(f"tracking_uri is {uri!r}; the file there must be an MLflow database ({error}).") from error
    if "experiments" not in tables:
        raise ReproError(f"tracking_uri is {uri!r}; the file there is a database, but not an MLflow one.")


def experiment_id(client: MlflowClient, name: str, artifacts: Path) -> str:
    """The id of an experiment, made if there is none; its files go to `artifacts`.

    Raises:
        ReproError: the experiment was deleted in the UI.
    """
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return str(client.create_experiment(name, artifact_location=artifacts.resolve().as_uri()))
        except MlflowException:
            # Another process was faster.
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage != "active":
        raise ReproError(
            f"the MLflow experiment {name!r} was deleted; restore it with `mlflow experiments restore "
            f"--experiment-id {experiment.experiment_id}`, or choose another output_dir."
        )
    return str(experiment.experiment_id)


class MLflowRuns:
    """One training in MLflow: a run of its own, `TRAINING`, and below it one per read-out.

    It mirrors what the training's folder holds, and catches up with it where it lags behind: after a kill, or in a
    store that is new.

    Args:
        experiment: id of the experiment.
        record: keeps the ids of the runs.
        key: the training's.
        names: read-out -> name of its run; `TRAINING` comes first.
        params: by read-out.
        tags: of every run.

    Attributes:
        created: whether any run had to be made.
    """

    def __init__(
        self,
        client: MlflowClient,
        experiment: str,
        record: RunRecord,
        *,
        key: str,
        names: Mapping[str, str],
        params: Mapping[str, Mapping[str, Any]],
        tags: Mapping[str, str],
    ) -> None:
        self._client, self._last = client, dict.fromkeys(names, -1)
        self.created = False
        self._ids: dict[str, str] = {}
        for readout, name in names.items():
            run = self._active_run(record.mlflow.get(readout))
            if run is None:
                above = {"mlflow.parentRunId": self._ids[TRAINING]} if readout != TRAINING else {}
                run_tags = {KEY_TAG: key, READOUT_TAG: readout, **above}
                run = client.create_run(experiment, tags=run_tags, run_name=name)
                self.created = True
            self._ids[readout] = record.mlflow[readout] = str(run.info.run_id)
            self._bring_up_to_date(readout, run, params[readout], tags)

    def _active_run(self, run_id: str | None) -> Run | None:
        """The run of an id; None if this store has none, or it was deleted in the UI."""
        try:
            run = self._client.get_run(run_id) if run_id else None
        except MlflowException:
            return None
        return run if run is not None and run.info.lifecycle_stage == "active" else None

    def _bring_up_to_date(self, readout: str, run: Run, params: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        run_id = self._ids[readout]
        lacking = [Param(key, str(value)) for key, value in params.items() if key not in run.data.params]
        for start in range(0, len(lacking), _PARAMS_AT_ONCE):
            self._client.log_batch(run_id, params=lacking[start : start + _PARAMS_AT_ONCE])
        changed = [RunTag(key, value) for key, value in tags.items() if run.data.tags.get(key) != value]
        if changed:
            self._client.log_batch(run_id, tags=changed)
        if _MESSAGE_TAG in run.data.tags:
            self._client.delete_tag(run_id, _MESSAGE_TAG)
        if COST in run.data.metrics:
            self._last[readout] = max(m.step for m in self._client.get_metric_history(run_id, COST))

    def begin(self) -> None:
        """Show that the training goes on."""
        for run_id in self._ids.values():
            self._client.update_run(run_id, status="RUNNING")

    def log(self, readout: str, metrics: Mapping[str, float], step: int) -> None:
        """One batch of metrics; what MLflow has already, and values that are not finite, are left out."""
        if step <= self._last[readout]:
            return
        self._write(readout, self._metrics(metrics, step))
        self._last[readout] = step

    def catch_up(self, readout: str, rows: Mapping[int, Mapping[str, float]]) -> None:
        """Log what is known of a read-out and MLflow lacks."""
        run_id = self._ids[readout]
        lacking: list[Metric] = []
        for name in {name for metrics in rows.values() for name in metrics}:
            logged_steps = {metric.step for metric in self._client.get_metric_history(run_id, name)}
            lacking_steps = [step for step, metrics in rows.items() if name in metrics and step not in logged_steps]
            lacking += [m for step in lacking_steps for m in self._metrics({name: rows[step][name]}, step)]
        for start in range(0, len(lacking), _METRICS_AT_ONCE):
            self._write(readout, lacking[start : start + _METRICS_AT_ONCE])
        self._last[readout] = max([self._last[readout], *rows])

    def _metrics(self, metrics: Mapping[str, float], step: int) -> list[Metric]:
        now = int(time.time() * 1000)
        return [Metric(name, float(value), now, step) for name, value in metrics.items() if math.isfinite(value)]

    def _write(self, readout: str, metrics: list[Metric]) -> None:
        if metrics:
            self._client.log_batch(self._ids[readout], metrics=metrics)

    def artifact(self, readout: str, path: Path) -> None:
        """Attach a file."""
        self._client.log_artifact(self._ids[readout], str(path))

    def finish(self, status: str, message: str = "") -> None:
        """Close all runs: FINISHED, FAILED or KILLED (which can be continued)."""
        for run_id in reversed(self._ids.values()):
            if message:
                self._client.log_batch(run_id, tags=[RunTag(_MESSAGE_TAG, message[:_LONGEST_TAG])])
            self._client.set_terminated(run_id, status)


def close(client: MlflowClient, record: RunRecord) -> None:
    """Show that a training's process was ended from outside: KILLED; it can be continued."""
    for run_id in record.mlflow.values():
        if client.get_run(run_id).info.status == "RUNNING":
            client.set_terminated(run_id, "KILLED")
