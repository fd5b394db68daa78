"""The MLflow side: opening the store, and the runs that belong to one training run.

Experiment = figure. A parent run is one invocation; under it one training run per (game, algorithm, seed); under that
one run per read-out, all with the same metric keys, so that the MLflow UI overlays algorithms as they are.
"""

from __future__ import annotations

import fcntl
import logging
import math
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from repro.errors import ReproError

KEY_TAG = "repro.key"
READOUT_TAG = "repro.readout"
TRAINING = "training"
"""Value of `READOUT_TAG` on the training run itself."""

_SQLITE = "sqlite:///"
_SQLITE_HEADER = b"SQLite format 3\0"
_MESSAGE_TAG = "repro.message"
_PARAMS_AT_ONCE = 100


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
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=artifacts.resolve().as_uri()))
        except MlflowException:
            # Another process was faster.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage != "active":
        raise ReproError(
            f"the MLflow experiment {name!r} was deleted; restore it with `mlflow experiments restore "
            f"--experiment-id {found.experiment_id}`, or choose another output_dir."
        )
    return str(found.experiment_id)


def find_runs(client: MlflowClient, experiment: str, key: str) -> dict[str, Run]:
    """The newest run of each read-out of a key (`TRAINING` included), whatever its state."""
    runs: dict[str, Run] = {}
    for run in client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{key}'", order_by=["attributes.start_time DESC"]):
        runs.setdefault(run.data.tags.get(READOUT_TAG, TRAINING), run)
    return runs


def find_finished(client: MlflowClient, key: str) -> Run | None:
    """The newest finished training run of a key, in whichever experiment."""
    every = [experiment.experiment_id for experiment in client.search_experiments()]
    wanted = f"tags.`{KEY_TAG}` = '{key}' AND tags.`{READOUT_TAG}` = '{TRAINING}' AND attributes.status = 'FINISHED'"
    found = client.search_runs(every, wanted, order_by=["attributes.start_time DESC"], max_results=1)
    return found[0] if found else None


def is_finished(runs: Mapping[str, Run], readouts: Iterable[str]) -> bool:
    """Whether the training run and all read-outs that it should have are FINISHED."""
    return all(name in runs and runs[name].info.status == "FINISHED" for name in (TRAINING, *readouts))


class TrackedRun:
    """The MLflow runs of one training run: `TRAINING` and one per read-out.

    Args:
        runs: those of `find_runs` to go on with; missing ones are created.
        algorithms: read-out name -> value of its `algorithm` param.
        params: flat params for every run; tags likewise.
        parent: id of the invocation's run, if any.
    """

    def __init__(
        self,
        client: MlflowClient,
        experiment: str,
        *,
        key: str,
        label: str,
        runs: Mapping[str, Run],
        algorithms: Mapping[str, str],
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        parent: str | None,
    ) -> None:
        self._client = client
        self._ids: dict[str, str] = {}
        for readout in (TRAINING, *(name for name in algorithms if name != TRAINING)):
            if readout in runs:
                run_id = self._continue(runs[readout], tags)
            else:
                above = parent if readout == TRAINING else self._ids[TRAINING]
                own = {**tags, KEY_TAG: key, READOUT_TAG: readout, **({"mlflow.parentRunId": above} if above else {})}
                created = client.create_run(experiment, tags=own, run_name=f"{algorithms[readout]} {label}")
                run_id = created.info.run_id
                self._log_params(run_id, {"algorithm": algorithms[readout], **params})
            self._ids[readout] = run_id

    def _continue(self, run: Run, tags: Mapping[str, str]) -> str:
        """Reopen a run; where it was begun with other code or elsewhere, its tags name both."""
        run_id = str(run.info.run_id)
        self._client.update_run(run_id, status="RUNNING")
        if _MESSAGE_TAG in run.data.tags:
            self._client.delete_tag(run_id, _MESSAGE_TAG)
        before = run.data.tags
        changed = {k: f"{before[k]}, {v}" for k, v in tags.items() if k in before and v not in before[k].split(", ")}
        if changed:
            self._client.log_batch(run_id, tags=[RunTag(k, v) for k, v in changed.items()])
        return run_id

    def _log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        entries = [Param(key, str(value)) for key, value in params.items()]
        for start in range(0, len(entries), _PARAMS_AT_ONCE):
            self._client.log_batch(run_id, params=entries[start : start + _PARAMS_AT_ONCE])

    def log(self, readout: str, metrics: Mapping[str, float], step: int) -> None:
        """One batch of metrics; values that are not finite are left out."""
        now = int(time.time() * 1000)
        finite = [Metric(k, float(v), now, step) for k, v in metrics.items() if math.isfinite(v)]
        self._client.log_batch(self._ids[readout], metrics=finite)

    def artifact(self, readout: str, path: Path) -> None:
        """Attach a file."""
        self._client.log_artifact(self._ids[readout], str(path))

    def finish(self, status: str, message: str = "") -> None:
        """Close all runs: FINISHED, FAILED or KILLED (which can be continued).

        The training run comes last: when it is FINISHED, its read-outs are.
        """
        for run_id in reversed(self._ids.values()):
            if message:
                self._client.log_batch(run_id, tags=[RunTag(_MESSAGE_TAG, message)])
            self._client.set_terminated(run_id, status)
