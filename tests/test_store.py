"""The tracking store: made once, told apart from other files, mirrored into whatever its state."""

from __future__ import annotations

import subprocess
import sys

import pytest

from repro.errors import ReproError
from repro.tracking.record import RunRecord
from repro.tracking.store import MLflowRuns, default_uri, experiment_id, open_store
from tests.helpers.commands import SMALL, call


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


def test_a_deleted_experiment_is_explained(tmp_path):
    client = open_store(default_uri(tmp_path))
    client.delete_experiment(experiment_id(client, "runs", tmp_path / "artifacts"))
    with pytest.raises(ReproError, match="'runs' was deleted; restore it"):
        experiment_id(client, "runs", tmp_path / "artifacts")


def test_an_output_folder_that_cannot_be_written_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    done = call(*SMALL, f"output_dir={file}/outputs")
    assert done.returncode == 2
    assert done.stderr.startswith("error: output_dir is ")
    assert "must be a folder that can be written" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    file = tmp_path / "mlflow.db"
    file.write_text("my thesis, the only copy")
    done = call(*SMALL, f"output_dir={tmp_path}")
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
    client, record = open_store(default_uri(tmp_path)), RunRecord()
    mirrored(client, record, {})
    ids = dict(record.mlflow)
    mirrored(client, record, {"game": "kuhn"})
    assert record.mlflow == ids, "the same runs"
    assert all(client.get_run(run_id).data.params == {"game": "kuhn"} for run_id in ids.values())


def test_a_store_that_lags_behind_catches_up_and_has_nothing_twice(tmp_path):
    client, record = open_store(default_uri(tmp_path)), RunRecord()
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
    client, record = open_store(default_uri(tmp_path)), RunRecord()
    mirrored(client, record, {})
    before = dict(record.mlflow)
    for run_id in before.values():
        client.delete_run(run_id)
    mirrored(client, record, {})
    assert not set(before.values()) & set(record.mlflow.values())
