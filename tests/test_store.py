"""The tracking store: made once, told apart from other files, mirrored into whatever its state."""

from __future__ import annotations

import importlib
import os
import socket
import sqlite3
import subprocess
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.environment_variables import MLFLOW_DISABLE_TELEMETRY
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST
from sqlalchemy import create_engine, text

import repro
from repro.common.errors import ReproError, StorageError
from repro.jobs.launching import Command
from repro.tracking import record as records
from repro.tracking import store
from repro.tracking.mlflow_runs import ATTEMPT_TAG, READOUT_TAG, MLflowRuns, _tell_data
from repro.tracking.record import RunRecord
from repro.tracking.store import Store, default_uri, experiment_id, open_store
from tests.helpers.commands import SMALL, call_here, executed


@pytest.mark.makes_a_database
def test_a_database_killed_in_the_middle_of_a_commit_recovers(tmp_path):
    """A rollback journal that a killed process left must not lock the user out."""
    uri = default_uri(tmp_path)
    open_store(uri)
    script = (
        "import sqlite3, os\n"
        f"c = sqlite3.connect({str(tmp_path / 'mlflow.db')!r}, isolation_level=None)\n"
        "c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN IMMEDIATE')\n"
        "c.execute('CREATE TABLE big (x)')\n"
        "c.executemany('INSERT INTO big VALUES (?)', [('y' * 5000,)] * 2000)\n"
        "os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    assert (tmp_path / "mlflow.db-journal").exists()
    assert open_store(uri).search_experiments()


@pytest.mark.makes_a_database
def test_a_database_half_made_is_made_again(tmp_path):
    (tmp_path / "mlflow.db.new").write_bytes(b"SQLite format 3\0 and then the power went")
    assert open_store(default_uri(tmp_path)).search_experiments()


@pytest.mark.makes_a_database
def test_only_while_a_database_is_made_commits_do_not_wait_for_the_disk(tmp_path, monkeypatch):
    connect, waits = store._connect, []

    def connected(uri):
        with create_engine(uri).connect() as connection:
            waits.append(connection.execute(text("PRAGMA synchronous")).scalar())
        return connect(uri)

    monkeypatch.setattr(store, "_connect", connected)
    open_store(default_uri(tmp_path))
    off, full = 0, 2
    assert waits == [off, full]


def test_a_deleted_experiment_is_explained(tmp_path):
    client = open_store(default_uri(tmp_path))
    client.delete_experiment(experiment_id(client, "runs", tmp_path / "artifacts"))
    with pytest.raises(ReproError, match="'runs' was deleted; restore it"):
        experiment_id(client, "runs", tmp_path / "artifacts")


def test_an_output_folder_that_cannot_be_written_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    done = call_here(*SMALL, f"output_dir={file}/outputs")
    assert done.returncode == 2
    assert done.stderr.startswith("error: output_dir is ")
    assert "must be a folder that can be written" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    file = tmp_path / "mlflow.db"
    file.write_text("my thesis, the only copy")
    done = call_here(*SMALL, f"output_dir={tmp_path}")
    assert done.returncode == 2
    assert "must be an MLflow database" in done.stderr
    assert done.stderr.count("\n") == 1
    assert file.read_text() == "my thesis, the only copy"


def mirrored(client, record: RunRecord, params: dict[str, str]) -> MLflowRuns:
    experiment = client.get_experiment_by_name("kuhn") or client.create_experiment("kuhn")
    experiment = experiment if isinstance(experiment, str) else experiment.experiment_id
    names = {"training": "training", "sd_cfr": "sd_cfr"}
    return MLflowRuns(
        client, experiment, record, key="k", names=names, params=dict.fromkeys(names, params), tags={"t": "1"}
    )


def history(client, record: RunRecord, readout: str, metric: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client.get_metric_history(record.mlflow[readout], metric)]


def test_params_that_a_kill_left_out_are_logged_later(tmp_path):
    client, record = open_store(default_uri(tmp_path)), RunRecord(attempt="a")
    mirrored(client, record, {})
    ids = dict(record.mlflow)
    mirrored(client, record, {"game": "kuhn"})
    assert record.mlflow == ids, "the same runs"
    assert all(client.get_run(run_id).data.params == {"game": "kuhn"} for run_id in ids.values())


def test_a_store_that_lags_behind_catches_up_and_has_nothing_twice(tmp_path):
    client, record = open_store(default_uri(tmp_path)), RunRecord(attempt="a")
    rows = {step: {"wall_seconds": float(step), "nash_conv": 1.0 / step} for step in range(1, 6)}
    runs = mirrored(client, record, {})
    runs.log("sd_cfr", rows[1], 1)
    runs.log("sd_cfr", rows[2], 2)
    resumed = mirrored(client, record, {})
    resumed.catch_up("sd_cfr", {step: metrics for step, metrics in rows.items() if step <= 3})
    resumed.log("sd_cfr", rows[3], 3)
    resumed.log("sd_cfr", rows[4], 4)
    assert history(client, record, "sd_cfr", "nash_conv") == [(step, 1.0 / step) for step in range(1, 5)]
    assert record.mlflow.keys() == {"training", "sd_cfr"}


def test_runs_deleted_in_the_ui_are_made_again(tmp_path):
    client, record = open_store(default_uri(tmp_path)), RunRecord(attempt="a")
    mirrored(client, record, {})
    before = dict(record.mlflow)
    for run_id in before.values():
        client.delete_run(run_id)
    mirrored(client, record, {})
    assert not set(before.values()) & set(record.mlflow.values())


class Killed(BaseException):
    """What a test raises where a process would be killed."""


class Dying(Store):
    """A store whose process is killed after a number of calls."""

    def __init__(self, client, calls: int) -> None:
        self._client, self._left = client, calls

    def __getattr__(self, name):
        def call(*arguments, **named):
            answer = getattr(self._client, name)(*arguments, **named)
            self._left -= 1
            if not self._left:
                raise Killed
            return answer

        return call


def test_a_kill_after_any_call_leaves_one_run_per_readout_with_all_params(tmp_path):
    client = open_store(default_uri(tmp_path))
    experiment = client.create_experiment("kuhn")
    params = {f"param_{number}": str(number) for number in range(150)}
    names = {"training": "training", "sd_cfr": "sd_cfr"}
    killed = []
    for calls in count(1):
        # Each process has a record of its own: one that is killed cannot note the runs that it made.
        begin = partial(
            MLflowRuns, experiment=experiment, key="k", names=names, params=dict.fromkeys(names, params),
            tags={"t": "1"},
        )  # fmt: skip
        try:
            begin(Dying(client, calls), record=RunRecord(attempt=str(calls)))
            killed.append(False)
        except Killed:
            killed.append(True)
        begin(client, record=RunRecord(attempt=str(calls)))
        runs = client.search_runs([experiment], f"tags.`{ATTEMPT_TAG}` = '{calls}'")
        assert sorted(run.data.tags[READOUT_TAG] for run in runs) == ["sd_cfr", "training"]
        assert all(run.data.params == params and run.data.tags["t"] == "1" for run in runs)
        if not killed[-1]:
            break
    assert len(killed) > 6, "searched, made, given params and tags, for both runs"


def test_what_is_done_anew_has_new_runs(tmp_path):
    client, record = open_store(default_uri(tmp_path)), RunRecord(attempt="first")
    mirrored(client, record, {})
    anew = RunRecord(attempt="second")
    mirrored(client, anew, {})
    assert not set(record.mlflow.values()) & set(anew.mlflow.values())


def locked(path) -> sqlite3.Connection:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    return other


def test_a_locked_database_is_waited_for(tmp_path, capsys):
    open_store(default_uri(tmp_path))
    other = locked(tmp_path / "mlflow.db")
    timer = Timer(1.0, other.rollback)
    timer.start()
    assert open_store(default_uri(tmp_path)).search_experiments()
    timer.join()
    assert f"waiting for the MLflow database {tmp_path}/mlflow.db" in capsys.readouterr().err


def test_a_database_that_stays_locked_is_told_as_such(tmp_path, monkeypatch):
    open_store(default_uri(tmp_path))
    monkeypatch.setattr(store, "PATIENCE_SECONDS", 0.1)
    other = locked(tmp_path / "mlflow.db")
    with pytest.raises(StorageError, match=r"mlflow\.db has been locked by another process for 0 seconds"):
        open_store(default_uri(tmp_path))
    other.close()


def test_a_database_that_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    open_store(default_uri(tmp_path))
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **given: connect(f"file:{path}?mode=ro", uri=True, **given))
    with pytest.raises(StorageError, match=r"mlflow\.db does not work \(attempt to write a readonly database\)"):
        Command(tmp_path, None, None)


def failing(*errors: tuple[str, int]):
    """A method of MLflow's client that fails as its database does, once per error, and then answers."""
    left = list(errors)

    def get_run(self, run_id):
        if not left:
            return run_id
        text, code = left.pop(0)
        cause = sqlite3.OperationalError(text)
        cause.sqlite_errorcode = code
        raise MlflowException(f"({text})\n[SQL: ...]") from cause

    return get_run


def test_a_database_that_fails_later_is_told_in_one_sentence(tmp_path, monkeypatch):
    client = open_store(default_uri(tmp_path))
    monkeypatch.setattr(store, "_LOOK_EVERY_SECONDS", 0.01)
    with pytest.raises(MlflowException, match="not found"):
        client.get_run("0" * 32)
    busy = ("database is locked", sqlite3.SQLITE_BUSY)
    monkeypatch.setattr(MlflowClient, "get_run", failing(*[busy] * 3))
    assert client.get_run("7") == "7"
    monkeypatch.setattr(MlflowClient, "get_run", failing(("database or disk is full", sqlite3.SQLITE_FULL)))
    with pytest.raises(StorageError, match=r"mlflow.db does not work \(database or disk is full\)\.$"):
        client.get_run("7")
    # When the run is closed after that, nothing is waited for.
    monkeypatch.setattr(MlflowClient, "get_run", failing(*[busy] * 100))
    with pytest.raises(StorageError, match="locked"):
        client.get_run("7")


def test_a_database_that_is_locked_does_not_keep_from_stopping(tmp_path, monkeypatch):
    client = open_store(default_uri(tmp_path))
    monkeypatch.setattr(store, "_LOOK_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(store, "_PATIENCE_WHEN_STOPPING_SECONDS", 0.1)
    monkeypatch.setattr(store, "is_stopping", lambda: True)
    monkeypatch.setattr(MlflowClient, "get_run", failing(*[("database is locked", sqlite3.SQLITE_BUSY)] * 1000))
    with pytest.raises(StorageError, match="locked"):
        client.get_run("7")


def test_two_runs_may_tell_of_the_same_data_at_once(tmp_path, monkeypatch):
    """As MLflow does, which looks for a dataset before it adds it, and has the database refuse the later of two."""
    client, tell = open_store(default_uri(tmp_path)), MlflowClient.log_inputs
    ours, theirs = (client.create_run("0").info.run_id for _ in range(2))
    refused = ["UNIQUE constraint failed: datasets.experiment_id, datasets.name, datasets.digest"]

    def told_meanwhile(self: MlflowClient, run_id: str, **named: Any) -> None:
        if refused:
            tell(self, theirs, **named)
            raise MlflowException(refused.pop(), error_code=BAD_REQUEST)
        tell(self, run_id, **named)

    monkeypatch.setattr(MlflowClient, "log_inputs", told_meanwhile)
    _tell_data(client, ours, tmp_path / "river-52-0123456789ab")
    for run_id in (ours, theirs):
        (used,) = client.get_run(run_id).inputs.dataset_inputs
        assert (used.dataset.name, used.dataset.digest) == ("river-52", "0123456789ab")
    assert not refused
    with pytest.raises(MlflowException, match="no run"):
        _tell_data(client, "no run", tmp_path / "river-52-0123456789ab")


def test_an_empty_file_is_no_obstacle(tmp_path):
    (tmp_path / "mlflow.db").touch()
    assert open_store(default_uri(tmp_path)).search_experiments()


def test_a_store_elsewhere_keeps_its_files_where_they_are_while_they_are_there(tmp_path, capsys):
    """Several output folders may share a store; it follows when the folder that it names is gone."""
    uri = f"sqlite:///{tmp_path}/shared.db"
    client = open_store(uri)
    first, second = tmp_path / "first" / "artifacts", tmp_path / "second" / "artifacts"

    def location(name: str) -> str:
        return str(client.get_experiment_by_name(name).artifact_location)

    experiment_id(client, "kuhn", first)
    run = client.create_run(experiment_id(client, "leduc", first)).info.run_id
    experiment_id(client, "leduc", second)
    assert location("leduc") == first.as_uri()
    first.parent.rename(second.parent)
    experiment_id(client, "leduc", second)
    assert location("leduc") == location("kuhn") == second.as_uri()
    assert client.get_run(run).info.artifact_uri == f"{second.as_uri()}/{run}/artifacts"
    assert capsys.readouterr().err.count("MLflow's files were moved from") == 1


def test_telemetry_is_off_unless_the_user_wants_it(monkeypatch):
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY")
    importlib.reload(repro)
    assert MLFLOW_DISABLE_TELEMETRY.get()
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")
    importlib.reload(repro)
    assert not MLFLOW_DISABLE_TELEMETRY.get()


@pytest.mark.parametrize(("given", "expected"), [({}, "true"), ({"MLFLOW_DISABLE_TELEMETRY": "false"}, "false")])
def test_make_turns_telemetry_off_for_the_ui_too(given, expected):
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_DISABLE_TELEMETRY"} | given
    show = "show:; @echo telemetry $$MLFLOW_DISABLE_TELEMETRY"
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        ["make", "--no-print-directory", f"--eval={show}", "show"],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env=environment,
    )
    assert done.stdout.strip() == f"telemetry {expected}"


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_told_soon_and_others_are_waited_for(monkeypatch):
    """Closed at once, and never answering; MLflow's own patience is more than a minute."""
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for port, reason in ((9, "Connection refused"), (silent.getsockname()[1], "timed out")):
            started = time.monotonic()
            opened = f"http://127.0.0.1:{port}'; it must name an MLflow store that can be opened \\({reason}\\)\\.$"
            with pytest.raises(ReproError, match=opened):
                open_store(f"http://127.0.0.1:{port}")
            assert time.monotonic() - started < 12
    assert "MLFLOW_HTTP_REQUEST_MAX_RETRIES" not in os.environ


@pytest.mark.exhaustive
def test_the_machines_load_is_shown_if_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.01")
    for name, asked in (("shown", "true"), ("not", "false")):
        words = [*SMALL, f"system_metrics={asked}"]
        assert executed(*words, f"output_dir={tmp_path / name}") == records.FINISHED
        client = MlflowClient(default_uri(tmp_path / name))
        runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
        assert any(key.startswith("system/") for run in runs for key in run.data.metrics) == (asked == "true")
