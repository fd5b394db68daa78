"""A training's runs in MLflow, which mirror what its folder holds.

Experiment = game. One run per training and one per read-out, all with the same metric keys, so that the MLflow UI
overlays algorithms as they are. They are not nested: the UI's table hides what is below a run, and takes a training for
one of the runs wherever one of its read-outs is found. What belongs together has the same `repro.key`; targets, scales
and the command that asked for a training last are tags, too.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.entities import Run as MlflowRun  # `Run` is what a command does
from mlflow.exceptions import MlflowException
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from repro.common.errors import StorageError
from repro.tracking.record import RunRecord
from repro.tracking.store import Store

KEY_TAG = "repro.key"
READOUT_TAG = "repro.readout"
ATTEMPT_TAG = "repro.attempt"
RERUN_TAG = "repro.rerun"
"""The command that repeats a training."""
CURVE_TAG, CURVE_OF_TARGET = "repro.curve", "curve."
"""Whatever a run's name says but its seed, so that runs of one curve share it; as the newest command called it, and,
followed by a target's name, as that target does."""
_PARENT_TAG = "mlflow.parentRunId"
"""Of runs in stores of earlier versions, which nested them."""
INVOCATION_TAG = "repro.invocation"
"""The command that took the run up last."""
FIGURE_TAG = "repro.figure"
"""Target and scale of a figure's run."""
MEAN_TAG = "repro.mean"
"""Of what a run is the mean over seeds: target and scale, or `SWEEP` and a hash that names runs of a command."""
SWEEP = "sweep"
COST, NODES = "wall_seconds", "nodes_touched"
"""Metrics that curves are drawn against; the first one every run has at every step."""
_MESSAGE_TAG = "repro.message"
_LONGEST_TAG = 5000
MOST_RUNS = 50_000


class MLflowRuns:
    """One training in MLflow: a run of its own, `TRAINING`, and one per read-out.

    It mirrors what the training's folder holds, and catches up with it where it lags behind: after a kill, or in a
    store that is new.

    Args:
        experiment: id of the experiment.
        record: keeps the ids of the runs. Those that a kill kept out of it are found by its `attempt`, which must be on
            the disk already.
        key: the training's.
        names: read-out -> name of its run; `TRAINING` comes first.
        params: by read-out.
        tags: of every run.
        curves: read-out -> what its runs with other seeds share.
        renames: whether runs that there are get these names and curves, too.
        data: folder of stored data that the training reads or adds to; None if it makes its own.
    """

    is_told = True

    def __init__(
        self,
        client: Store,
        experiment: str,
        record: RunRecord,
        *,
        key: str,
        names: Mapping[str, str],
        params: Mapping[str, Mapping[str, Any]],
        tags: Mapping[str, str],
        curves: Mapping[str, str] | None = None,
        renames: bool = False,
        data: Path | None = None,
    ) -> None:
        self._client, self._last = client, dict.fromkeys(names, -1)
        self._ids: dict[str, str] = {}
        for readout, name in names.items():
            run = self._active_run(record.mlflow.get(readout)) or self._made_before(experiment, record.attempt, readout)
            if run is None:
                run_tags = {KEY_TAG: key, ATTEMPT_TAG: record.attempt, READOUT_TAG: readout}
                run = client.create_run(experiment, tags=run_tags, run_name=name)
            self._ids[readout] = record.mlflow[readout] = str(run.info.run_id)
            if renames and run.info.run_name != name:
                client.update_run(self._ids[readout], name=name)
            has_new_curve = curves and (renames or CURVE_TAG not in run.data.tags)
            curve = {CURVE_TAG: curves[readout]} if curves and has_new_curve else {}
            self._bring_up_to_date(readout, run, params[readout], {**tags, **curve})
            if data is not None and not (run.inputs and run.inputs.dataset_inputs):
                _tell_data(client, self._ids[readout], data)

    def _active_run(self, run_id: str | None) -> MlflowRun | None:
        """The run of an id; None if this store has none, or it was deleted in the UI."""
        run = get_run(self._client, run_id) if run_id else None
        return run if run is not None and run.info.lifecycle_stage == "active" else None

    def _made_before(self, experiment: str, attempt: str, readout: str) -> MlflowRun | None:
        """The run that a process made which was killed before it could note the id."""
        wanted = f"tags.`{ATTEMPT_TAG}` = '{attempt}' AND tags.`{READOUT_TAG}` = '{readout}'"
        runs = self._client.search_runs([experiment], wanted, max_results=1)
        return runs[0] if runs else None

    def _bring_up_to_date(
        self, readout: str, run: MlflowRun, params: Mapping[str, Any], tags: Mapping[str, str]
    ) -> None:
        run_id = self._ids[readout]
        lacking = [Param(key, str(value)) for key, value in params.items() if key not in run.data.params]
        changed = [RunTag(key, value) for key, value in tags.items() if run.data.tags.get(key) != value]
        if lacking or changed:
            self._client.log_batch(run_id, params=lacking, tags=changed)
        for tag in (_MESSAGE_TAG, _PARENT_TAG):
            if tag in run.data.tags:
                self._client.delete_tag(run_id, tag)
        if COST in run.data.metrics:
            self._last[readout] = max(m.step for m in self._client.get_metric_history(run_id, COST))

    @contextmanager
    def with_load(self) -> Iterator[None]:
        """Log meanwhile how busy the machine is, to the training's run."""
        run_id = next(iter(self._ids.values()))
        monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=self._client.uri)
        monitor.start()
        try:
            yield
        finally:
            monitor.finish()

    def begin(self) -> None:
        """Show that the training goes on."""
        for run_id in self._ids.values():
            self._client.update_run(run_id, status="RUNNING")

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags of every run."""
        for run_id in self._ids.values():
            self._client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])

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
        self._write(readout, lacking)
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


class MLflowLater:
    """In place of `MLflowRuns`, of a training whose folder alone is written, until a command collects it."""

    is_told = False

    def with_load(self) -> AbstractContextManager[None]:
        """Nobody is told; `repro.config.checks` refuses to ask for it."""
        return nullcontext()

    def begin(self) -> None:
        """Nobody is told."""

    def tag(self, tags: Mapping[str, str]) -> None:
        """Nobody is told."""

    def log(self, readout: str, metrics: Mapping[str, float], step: int) -> None:
        """Nobody is told."""

    def catch_up(self, readout: str, rows: Mapping[int, Mapping[str, float]]) -> None:
        """Nobody is told."""

    def artifact(self, readout: str, path: Path) -> None:
        """Nobody is told."""

    def finish(self, status: str, message: str = "") -> None:
        """Nobody is told."""


def _tell_data(client: Store, run_id: str, folder: Path) -> None:
    """Say in MLflow which stored data a run has."""
    told = {"run_id": run_id, "datasets": [_dataset(folder)]}
    try:
        client.log_inputs(**told)
    except MlflowException:
        # Of two processes that tell a store of the same data at once it refuses one, which then finds them there.
        client.log_inputs(**told)


def _dataset(folder: Path) -> DatasetInput:
    """Stored data as MLflow shows them: their name says what they are, and decides what is in them."""
    name, _, digest = folder.name.rpartition("-")
    source = json.dumps({"uri": f"{folder.parent.name}/{folder.name}"})  # The output folder can be moved.
    return DatasetInput(Dataset(name, digest, "local", source), [InputTag(MLFLOW_DATASET_CONTEXT, "training")])


def get_run(client: Store, run_id: str) -> MlflowRun | None:
    """The run of an id; None if this store has none."""
    try:
        run: MlflowRun = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
    return run


def call_as(
    client: Store, experiment: str, target: str, scale: str, curves: Mapping[tuple[str, str], tuple[str, str]]
) -> None:
    """Tag a target's runs with the curves that they are of; those of earlier versions are brought up to date.

    Args:
        curves: (key of a training, read-out) -> the curve, and the name of a run that has none.
    """
    of_target = f"tags.`target.{target}` = '{scale}'"
    for run in client.search_runs([experiment], of_target, max_results=MOST_RUNS):
        tags = run.data.tags
        known = curves.get((tags.get(KEY_TAG, ""), tags.get(READOUT_TAG, "")))
        if known is None:
            continue
        curve, name = known
        lacking = {CURVE_OF_TARGET + target: curve, CURVE_TAG: tags.get(CURVE_TAG, curve)}
        changed = [RunTag(tag, value) for tag, value in lacking.items() if tags.get(tag) != value]
        if changed:
            client.log_batch(run.info.run_id, tags=changed)
        if CURVE_TAG not in tags:
            client.update_run(run.info.run_id, name=name)
        if _PARENT_TAG in tags:
            client.delete_tag(run.info.run_id, _PARENT_TAG)


def last_attempt(client: Store, experiment: str, key: str) -> str:
    """The attempt of a training that was made last in an experiment; empty if there is none."""
    newest = ["attributes.start_time DESC"]
    runs = client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{key}'", max_results=1, order_by=newest)
    return str(runs[0].data.tags.get(ATTEMPT_TAG, "")) if runs else ""


def running(client: Store) -> dict[str, list[str]]:
    """Keys of the trainings that are shown as going on, with the ids of the runs that are."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    ids: dict[str, list[str]] = {}
    for run in client.search_runs(experiments, "attributes.status = 'RUNNING'", max_results=MOST_RUNS):
        if KEY_TAG in run.data.tags:
            ids.setdefault(run.data.tags[KEY_TAG], []).append(run.info.run_id)
    return ids


def close(client: Store, record: RunRecord) -> None:
    """Show that a training's process was ended from outside: KILLED; it can be continued."""
    with suppress(StorageError):  # MLflow only shows what the record says, and is told when the training goes on.
        for run_id in record.mlflow.values():
            run = get_run(client, run_id)
            if run is not None and run.info.status == "RUNNING":
                client.set_terminated(run_id, "KILLED")
