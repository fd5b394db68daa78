"""Faults from outside while runs are done: disks that are full, stores that fail, folders that are moved, kills."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import pytorch_lightning as pl
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.tracking._tracking_service import client
from mlflow.tracking._tracking_service.utils import _artifact_repos_cache

from repro.common import durable
from repro.jobs.launching import Command
from repro.plans.planned import Run
from repro.running import executing, training
from repro.running.one_seed import Seed
from repro.stored import leftovers
from repro.tracking import mlflow_runs, store
from repro.tracking import record as records
from repro.tracking.folders import run_folder
from repro.tracking.rows import TrainingRows
from tests.helpers.cases import usually_first
from tests.helpers.commands import SMALL, in_a_child, planned, results, tracked

SHORT = (*SMALL, "algorithm.iterations=6", "algorithm.snapshot_every=2", "checkpoint_every_seconds=0")


def run_of(output: Path, *overrides: str) -> Run:
    return planned(*SHORT, f"output_dir={output}", *overrides)


def execute(run: Run) -> str:
    return executing.execute(run.configs, run.labels)


def folder_of(run: Run) -> Path:
    return run_folder(run.config.output_dir, run.key)


@pytest.fixture(scope="module")
def straight(tmp_path_factory, _empty_database):
    """A run that never met a fault."""
    output = tmp_path_factory.mktemp("straight")
    (output / "mlflow.db").write_bytes(_empty_database.read_bytes())
    assert execute(run_of(output)) == records.FINISHED
    return results(output, SHORT)


def interrupt(run: Run, iteration: int) -> None:
    """Do a run until an iteration, as if Ctrl-C came then; the last checkpoint is that of the one before."""
    with pytest.MonkeyPatch.context() as patched:
        report = training.Reporting._report

        def stopped(self, model):
            report(self, model)
            if model.iteration == iteration:
                raise KeyboardInterrupt

        patched.setattr(training.Reporting, "_report", stopped)
        with pytest.raises(KeyboardInterrupt):
            execute(run)
    assert records.read(folder_of(run)).state == records.INTERRUPTED


@pytest.fixture
def began(monkeypatch):
    """The iterations after which trainings went on, in order."""
    iterations, begin = [], TrainingRows.begin

    def noted(self, iteration):
        iterations.append(iteration)
        begin(self, iteration)

    monkeypatch.setattr(TrainingRows, "begin", noted)
    return iterations


# -- disks -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no file that is always full")
@pytest.mark.exhaustive
def test_a_disk_that_is_full_at_any_file_interrupts_the_run(straight, tmp_path, capfd, monkeypatch):
    """Each file in turn is on a full disk; the run stops in order, and goes on where it was."""
    # What leads to the full disk would be taken for what a killed process has left.
    monkeypatch.setattr(leftovers, "_UNFINISHED", ())
    run = run_of(tmp_path)
    folder = folder_of(run)
    for name in (
        "config.yaml", "run.json", "snapshots/0000002.history.pt", "snapshots/0000004.pt", "metrics.jsonl",
        "snapshot.pt", "sd_cfr/strategy.csv",
    ):  # fmt: skip
        path = folder / name
        beside = durable.written_beside(path)
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.symlink_to("/dev/full")
        assert execute(run) == records.INTERRUPTED, records.read(folder).message
        if name == "run.json":
            # Not before its place is free again.
            assert records.read(folder).state in (records.INTERRUPTED, records.WAITING)
        else:
            record = records.read(folder)
            assert record.state == records.INTERRUPTED
            assert record.message.startswith(str(path)), record.message
            assert record.message.endswith("(No space left on device). Repeat the command to continue.")
        beside.unlink(missing_ok=True)
    assert not (folder / "error.txt").exists()
    assert "Traceback" not in capfd.readouterr().err
    assert execute(run) == records.FINISHED
    assert results(tmp_path, SHORT).equals(straight)


def test_a_run_that_cannot_begin_is_interrupted_and_not_failed(tmp_path, monkeypatch, capsys):
    run, path = run_of(tmp_path), tmp_path / "lock"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(leftovers, "clean_run", full)
        assert Command(tmp_path, None, None).do([[run]]) == 1
    told = capsys.readouterr().err
    assert f"{path} cannot be written (No space left on device)." in " ".join(told.split()), told
    assert records.read(folder_of(run)).state == records.INTERRUPTED
    assert "failed" not in told


@pytest.mark.exhaustive
def test_a_disk_that_is_full_at_a_checkpoint_interrupts_the_run(straight, tmp_path, monkeypatch, began):
    run = run_of(tmp_path)
    save = pl.Trainer.save_checkpoint

    def full(self, path, *arguments, **named):
        if self.current_epoch == 3:
            Path(path).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, path, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(pl.Trainer, "save_checkpoint", full)
        assert execute(run) == records.INTERRUPTED
    record = records.read(folder_of(run))
    assert f"{folder_of(run)}/last.ckpt cannot be written (No space left on device)." in record.message
    assert sorted(path.name for path in folder_of(run).glob("*ckpt*")) == ["last.ckpt", "previous.ckpt"]
    assert {r.info.status for r in tracked(tmp_path)[1]} == {"KILLED"}
    assert execute(run) == records.FINISHED
    assert began == [0, 3]
    assert results(tmp_path, SHORT).equals(straight)


@pytest.mark.exhaustive
def test_where_nothing_can_be_written_the_terminal_tells(tmp_path):
    run = run_of(tmp_path)
    interrupt(run, 3)
    terminal, printed = os.pipe()
    if (child := os.fork()) == 0:
        sys.stderr = os.fdopen(printed, "w")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
        with suppress(BaseException):
            print(execute(run), file=sys.stderr, flush=True)
        os._exit(0)
    os.close(printed)
    told = os.fdopen(terminal).read()
    os.waitpid(child, 0)
    assert f"{folder_of(run)}/run.json cannot be written (File too large)" in told
    assert told.endswith("interrupted\n")
    assert "Traceback" not in told
    assert records.read(folder_of(run)).state == records.INTERRUPTED
    assert execute(run) == records.FINISHED


# -- the tracking store ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", usually_first(["log_batch", "create_run", "set_terminated", "log_artifact", "update_run"])
)
def test_a_store_that_fails_interrupts_the_run(straight, tmp_path, monkeypatch, method):
    """No silent loss: the run stops, and what MLflow lacks is made up for."""
    run = run_of(tmp_path)
    answers, calls = getattr(MlflowClient, method), []

    def failing(self, *arguments, **named):
        calls.append(method)
        if len(calls) < (8 if method == "log_batch" else 2):
            return answers(self, *arguments, **named)
        cause = sqlite3.OperationalError("disk I/O error")
        cause.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise MlflowException("(sqlite3.OperationalError) disk I/O error\n[SQL: ...]") from cause

    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, method, failing)
        assert execute(run) == records.INTERRUPTED
    record = records.read(folder_of(run))
    assert record.message == (
        f"the MLflow database {tmp_path}/mlflow.db does not work (disk I/O error). Repeat the command to continue."
    )
    assert not (folder_of(run) / "error.txt").exists()
    assert execute(run) == records.FINISHED
    assert results(tmp_path, SHORT).equals(straight)
    check_mirrored(tmp_path, run)


def check_mirrored(output: Path, run: Run) -> None:
    """MLflow holds what the folder does, each step of each metric once, in one run per read-out."""
    client, everything = tracked(output)
    assert sorted(r.data.tags[mlflow_runs.READOUT_TAG] for r in everything) == ["deep_cfr", "sd_cfr", "training"]
    assert {r.info.status for r in everything} == {"FINISHED"}
    data = results(output, SHORT)
    for one in everything:
        assert one.data.params["algorithm.traversals"] == "200"
        stored = data[data.readout == one.data.tags[mlflow_runs.READOUT_TAG]]
        for metric, rows in stored.groupby("metric"):
            history = client.get_metric_history(one.info.run_id, str(metric))
            assert sorted((m.step, m.value) for m in history) == list(zip(rows.step, rows.value, strict=True)), metric
    with sqlite3.connect(output / "mlflow.db") as database:
        twice = "SELECT key, step FROM metrics GROUP BY run_uuid, key, step HAVING count(*) > 1"
        assert not database.execute(twice).fetchall()


@pytest.mark.exhaustive
def test_a_new_store_costs_nothing(straight, tmp_path, began):
    """Neither a mistyped address of the store nor a database that is gone makes an interrupted run begin anew."""
    run = run_of(tmp_path)
    interrupt(run, 3)
    interrupt(run_of(tmp_path, f"tracking_uri=sqlite:///{tmp_path}/mistyped.db"), 5)
    SqlAlchemyStore._engine_map.pop(store.default_uri(tmp_path)).dispose()
    (tmp_path / "mlflow.db").unlink()
    assert execute(run) == records.FINISHED
    assert began == [0, 2, 4]
    assert results(tmp_path, SHORT).equals(straight)
    check_mirrored(tmp_path, run)


@pytest.mark.exhaustive
def test_back_in_the_first_store_a_run_finds_its_runs_again(straight, tmp_path):
    run = run_of(tmp_path)
    interrupt(run, 3)
    interrupt(run_of(tmp_path, f"tracking_uri=sqlite:///{tmp_path}/mistyped.db"), 5)
    assert execute(run) == records.FINISHED
    check_mirrored(tmp_path, run)


# -- kills -----------------------------------------------------------------------------------------------------------


def killed(run: Run, patch) -> None:
    """Do a run in a process that is killed where `patch` says."""

    def does() -> None:
        with pytest.MonkeyPatch.context() as patched:
            patch(patched)
            execute(run)

    assert in_a_child(does) == 9


def dying(kind: type, name: str, calls: int, **changes):
    """A patch: the process is killed after a method was called so many times."""

    def patch(patched) -> None:
        method, left = getattr(kind, name), [calls]

        def called(*arguments, **named):
            answer = method(*arguments, **named)
            left[0] -= 1
            if not left[0]:
                os._exit(9)
            return answer

        patched.setattr(kind, name, called)
        for attribute, value in changes.items():
            patched.setattr(client, attribute, value)

    return patch


@pytest.mark.exhaustive
def test_a_killed_run_logs_no_step_twice(straight, tmp_path):
    run = run_of(tmp_path)
    # Between the training's part of an epoch and the read-outs', and between the epoch and its checkpoint.
    killed(run, dying(mlflow_runs.MLflowRuns, "log", 4))
    killed(run, dying(Seed, "measure", 2))
    # The store lags behind: it is emptied, and the run killed between two of MLflow's batches of what is made up for.
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("DELETE FROM metrics")
        database.execute("DELETE FROM latest_metrics")
    killed(run, dying(SqlAlchemyStore, "log_batch", 8, MAX_METRICS_PER_BATCH=2))
    killed(run, dying(Seed, "measure", 1))
    assert execute(run) == records.FINISHED
    check_mirrored(tmp_path, run)
    assert results(tmp_path, SHORT).equals(straight)


@pytest.mark.parametrize("stopped_in", usually_first([1, 3]))
def test_what_is_made_anew_is_said_to_be_made_with_what_made_it(tmp_path, stopped_in):
    """Code of an attempt of which nothing is left is not named, in MLflow neither; that of one gone on from is."""
    run = run_of(tmp_path)
    interrupt(run, stopped_in)
    record = records.read(folder_of(run))
    now = record.made_with["git_commit"]
    record.made_with["git_commit"] = ["0" * 40]
    records.write(folder_of(run), record)
    assert execute(run) == records.FINISHED
    expected = now if stopped_in == 1 else ["0" * 40, *now]
    assert records.read(folder_of(run)).made_with["git_commit"] == expected
    assert {of_run.data.tags["git_commit"] for of_run in tracked(tmp_path)[1]} == {", ".join(expected)}


# -- moved folders ---------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_moved_output_folder_goes_on_in_its_new_place(tmp_path, capfd):
    old, new = tmp_path / "old place", tmp_path / "new"
    finished = run_of(old, "seed=1")
    assert execute(finished) == records.FINISHED
    versus = ("evaluation=[exploitability,match]", f"+evaluation.match.opponents.other={finished.key}/sd_cfr")
    interrupt(run_of(old, *versus), 3)
    old.rename(new)
    _artifact_repos_cache.clear()  # A new process has none.
    assert execute(run_of(new, *versus)) == records.FINISHED
    more = ("seed=1", "+algorithm.readouts.sd_cfr_2={kind: ensemble, capacity: 2}")
    assert execute(run_of(new, *more)) == records.FINISHED
    assert not old.exists(), "the old place is not made again"
    assert f"MLflow's files were moved from {old}/artifacts to {new}/artifacts" in capfd.readouterr().err
    client, everything = tracked(new)
    assert len(everything) == 7
    for run in everything:
        assert run.info.artifact_uri.startswith(f"{new.as_uri()}/artifacts/")
        assert client.list_artifacts(run.info.run_id)
    with sqlite3.connect(new / "mlflow.db") as database:
        assert not [line for line in database.iterdump() if "old place" in line or "old%20place" in line]
    for file in new.rglob("*"):
        if file.is_file() and file.name != "mlflow.db":
            assert b"old place" not in file.read_bytes(), file
