"""Runs: what they leave, and that stopping them in any way changes nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import pytorch_lightning as pl
from omegaconf import OmegaConf

from repro.algorithms.deep_cfr import DeepCFR
from repro.evaluation import nash_conv
from repro.games import load
from repro.plans.planning import plan
from repro.policies import load_strategy
from repro.running import executing, lifetimes
from repro.running.measuring import Measuring
from repro.running.one_seed import Seed
from repro.stored.trained import Trained, load_portable
from repro.tracking import record as records
from repro.tracking.mlflow_runs import READOUT_TAG, MLflowRuns
from repro.tracking.record import RunRecord
from tests.helpers.commands import (
    SMALL,
    call,
    call_here,
    command,
    folder_of,
    in_a_child,
    only_folder,
    planned,
    results,
    tracked,
)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """One run that was never stopped, through the command line."""
    output = tmp_path_factory.mktemp("straight")
    done = call(*SMALL, f"output_dir={output}")
    assert done.returncode == 0, done.stderr
    return output


@pytest.mark.exhaustive
def test_a_run_is_tracked(straight):
    client, everything = tracked(straight)
    runs = {run.data.tags[READOUT_TAG]: run for run in everything}
    assert set(runs) == {"training", "sd_cfr", "deep_cfr"}
    for name in ("sd_cfr", "deep_cfr"):
        run = runs[name]
        assert run.data.tags["repro.key"] == runs["training"].data.tags["repro.key"]
        assert run.info.status == "FINISHED"
        assert run.data.params["algorithm"] == name
        assert run.data.params["game"] == "kuhn"
        assert run.data.params["seed"] == "0"
        assert run.data.params["algorithm.traversals"] == "200"
        assert run.data.tags["target.runs"] == "custom"
        assert {"git_commit", "git_dirty", "torch", "cpu"} <= run.data.tags.keys()
    costs = {"nash_conv", "exploitability", "player_updates", "nodes_touched", "wall_seconds"}
    assert costs <= runs["sd_cfr"].data.metrics.keys()
    assert runs["deep_cfr"].data.metrics.keys() - runs["sd_cfr"].data.metrics.keys() == {"loss/policy"}
    steps = [m.step for m in client.get_metric_history(runs["sd_cfr"].info.run_id, "exploitability")]
    assert steps == [5, 10, 15, 20, 25, 30]
    assert runs["sd_cfr"].data.metrics["player_updates"] == 60
    losses = client.get_metric_history(runs["training"].info.run_id, "loss/value")
    assert [m.step for m in losses] == list(range(1, 31))
    files = {f.path for f in client.list_artifacts(runs["training"].info.run_id)}
    assert {"config.yaml", "snapshot.pt"} <= files


@pytest.mark.exhaustive
def test_what_mlflow_shows_is_what_the_folder_holds(straight):
    client, everything = tracked(straight)
    data = results(straight, SMALL)
    for run in everything:
        stored = data[data.readout == run.data.tags[READOUT_TAG]]
        for metric, rows in stored.groupby("metric"):
            history = client.get_metric_history(run.info.run_id, str(metric))
            assert [(m.step, m.value) for m in history] == list(zip(rows.step, rows.value, strict=True))


def test_a_run_leaves_what_can_be_played(straight):
    folder = only_folder(straight)
    trained = Trained.open(straight, folder.name)
    assert trained.snapshots.iterations == [5, 10, 15, 20, 25, 30]
    config, snapshot = load_portable(folder / "snapshot.pt")
    assert config.algorithm == trained.config.algorithm
    assert [len(history) for history in snapshot.history["value"]] == [30, 30]
    game = load("kuhn")
    data = results(straight, SMALL)
    last = data[(data.readout == "sd_cfr") & (data.metric == "nash_conv")].value.iloc[-1]
    strategy = load_strategy(game, folder / "sd_cfr" / "strategy.csv")
    assert nash_conv(game, strategy) == pytest.approx(last, rel=1e-9)
    assert not list(folder.glob("*.ckpt")), "the memories serve no one any more"


@pytest.mark.exhaustive
def test_a_finished_run_is_skipped_and_force_runs_it_again(straight):
    before = results(straight, SMALL)
    again = call_here(*SMALL, f"output_dir={straight}")
    assert again.returncode == 0
    assert "skipped" in again.stderr
    forced = call_here(*SMALL, f"output_dir={straight}", "force=true")
    assert forced.returncode == 0
    assert "finished" in forced.stderr
    pd.testing.assert_frame_equal(results(straight, SMALL), before)
    assert len(tracked(straight)[1]) == 6, "what was done anew has runs of its own in MLflow"


@pytest.mark.exhaustive
def test_what_is_finished_is_told_before_lightning_is_imported(straight):
    """Which takes seconds, and so does SciPy's statistics."""
    words = [*SMALL, f"output_dir={straight}"]
    code = f"import sys; from repro import run; assert not run.main({words!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "skipped" in done.stderr
    assert not {"pytorch_lightning", "scipy.stats"} & set(done.stdout.split())


@pytest.mark.usefixtures("_with_database")
@pytest.mark.exhaustive
def test_killed_and_repeated_equals_never_stopped(straight, tmp_path):
    """SIGKILL at several points, in the same MLflow run, with the same numbers to the last bit."""
    overrides = (*SMALL, f"output_dir={tmp_path}", "checkpoint_every_seconds=0")
    for iteration in (1, 11, 23):
        process = subprocess.Popen(command(*overrides), stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            folders = list((tmp_path / "runs").glob("*"))
            if folders and records.read(folders[0]).iteration >= iteration:
                break
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert records.read(only_folder(tmp_path)).iteration >= iteration
    done = call(*overrides)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(results(tmp_path, SMALL), results(straight, SMALL))
    client, everything = tracked(tmp_path)
    assert len(everything) == 3, "every attempt continued the same MLflow runs"
    for run in everything:
        steps = [m.step for m in client.get_metric_history(run.info.run_id, "nodes_touched")]
        assert steps == sorted(set(steps)), "nothing is logged twice"


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_with_database")
def test_ctrl_c_leaves_a_run_that_can_be_continued(straight, tmp_path):
    overrides = (*SMALL, f"output_dir={tmp_path}", "checkpoint_every_seconds=0")
    # Where the tests run in the background the signal may be ignored, which a child would inherit.
    process = subprocess.Popen(
        command(*overrides), stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    while process.poll() is None and not list((tmp_path / "runs").glob("*/previous.ckpt")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert printed.endswith("interrupted; repeat the command to go on.\n")
    assert {run.info.status for run in tracked(tmp_path)[1]} == {"KILLED"}
    assert records.read(only_folder(tmp_path)).state == records.INTERRUPTED
    done = call(*overrides)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(results(tmp_path, SMALL), results(straight, SMALL))


@pytest.mark.usefixtures("_with_database")
@pytest.mark.exhaustive
def test_a_killed_command_takes_its_workers_along(tmp_path):
    slow = (*SMALL, "algorithm.iterations=30000", f"output_dir={tmp_path}")
    sweep = ("-m", *slow, "seed=0,1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    process = subprocess.Popen(command(*sweep), stderr=subprocess.DEVNULL)
    folder = folder_of(tmp_path, *slow, "seed=0")
    while process.poll() is None and records.read(folder).iteration < 2:
        time.sleep(0.05)
    process.kill()
    process.wait()
    time.sleep(lifetimes.LOOK_EVERY_SECONDS + 2)
    before = records.read(folder).iteration
    time.sleep(1)
    assert records.read(folder).iteration == before, "no worker is left that goes on"


@pytest.mark.usefixtures("_with_database")
@pytest.mark.exhaustive
def test_a_swept_choice_runs_as_planned(tmp_path):
    sweep = ("-m", "game=kuhn", "algorithm=cfr,dcfr", "algorithm.iterations=4", "algorithm.snapshot_every=2")
    done = call(*sweep, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", f"output_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    stored = [OmegaConf.load(path).algorithm for path in tmp_path.glob("runs/*/config.yaml")]
    assert sorted((a.name, a.iterations, a.snapshot_every) for a in stored) == [("cfr", 4, 2), ("dcfr", 4, 2)]
    assert not list((tmp_path / "commands").iterdir()), "a command's own files go with it"


def test_a_record_keeps_what_earlier_commands_left():
    record = RunRecord()
    record.taken_up("first")
    record.state, record.headline = records.FINISHED, "1 mA/g"
    record.taken_up("second")
    assert (record.state, record.headline) == (records.RUNNING, "1 mA/g")
    assert record.of("second") is record
    assert (record.of("first").state, record.of("first").headline) == (records.FINISHED, "1 mA/g")
    assert record.of("third") == RunRecord()
    for number in range(100):
        record.taken_up(str(number))
    assert record.of("first") == RunRecord(), "not for ever"
    assert record.of("98").state == records.RUNNING


def test_a_record_is_replaced_whole(tmp_path):
    running = RunRecord(state=records.RUNNING, iteration=3, iterations=10, seconds_per_iteration=2.0)
    records.write(tmp_path, running)
    assert records.read(tmp_path).remaining_seconds == 14.0
    for content in ('{"state": "run', "null", "[]", '{"earlier": 3'):
        (tmp_path / "run.json").write_text(content)
        assert records.read(tmp_path).state == records.DAMAGED
    (tmp_path / "run.json").write_text('{"state": "finished", "trained": true, "from_a_later_version": 1}')
    assert records.read(tmp_path).state == records.FINISHED


@pytest.mark.usefixtures("_with_database")
@pytest.mark.exhaustive
def test_a_run_that_other_commands_do_is_waited_for_and_not_done_again(tmp_path):
    overrides = (*SMALL, f"output_dir={tmp_path}")
    folder = folder_of(tmp_path, *SMALL)
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        waiting = [subprocess.Popen(command(*overrides), stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for process in waiting:
            assert process.stderr is not None
            while "is being done by another process" not in (line := process.stderr.readline()):
                assert line, "it ended"
        time.sleep(1)
        assert [process.poll() for process in waiting] == [None, None]
        assert [path.name for path in folder.iterdir()] == ["lock"], "nothing is done meanwhile"
    # Now one of them does it. The other, which takes the run up at once, leaves the first its result.
    tables = [process.communicate(timeout=60)[1] for process in waiting]
    assert [process.returncode for process in waiting] == [0, 0], tables
    assert sorted(state for table in tables for state in ("finished", "skipped") if state in table) == [
        "finished", "skipped",
    ]  # fmt: skip


@pytest.mark.usefixtures("_with_database")
@pytest.mark.exhaustive
def test_a_sweep_goes_on_when_one_run_fails(tmp_path):
    # The second run diverges, which only shows once it has started.
    done = call(
        "-m", *SMALL, "algorithm.value.learning_rate=0.001,1e20", "algorithm.value.clip_norm=1e30",
        "algorithm.iterations=2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", f"output_dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 1
    assert "finished" in done.stderr
    assert "diverged in iteration 1" in done.stderr
    states = sorted(records.read(folder).state for folder in (tmp_path / "runs").iterdir())
    assert states == ["failed", "finished"]
    trainings = [run for run in tracked(tmp_path)[1] if run.data.tags[READOUT_TAG] == "training"]
    assert sorted(run.info.status for run in trainings) == ["FAILED", "FINISHED"]
    assert any(run.data.tags.get("repro.message", "").startswith("iteration 1: the value network") for run in trainings)


@pytest.mark.parametrize(
    "moment", ["measuring the last iteration", "after the last iteration", "trained, not exported", "runs not closed"]
)
def test_killed_at_the_very_end(straight, tmp_path, monkeypatch, moment):
    """The windows between the last iteration and the end, each hit on purpose: nothing is trained again."""
    (run,) = plan([*SMALL, f"output_dir={tmp_path}"], multirun=False).runs
    with monkeypatch.context() as patched:
        if moment == "measuring the last iteration":
            patched.setattr(Measuring, "measure", _measure_or_die)
        elif moment == "after the last iteration":
            patched.setattr(pl.Trainer, "fit", _fit_and_die)
        elif moment == "trained, not exported":
            patched.setattr(Seed, "_leave_files", lambda *_: os._exit(9))
        else:
            patched.setattr(MLflowRuns, "finish", lambda *_: os._exit(9))
        code = in_a_child(lambda: executing.execute(run.configs, run.labels))
    assert code == 9
    trained = records.read(only_folder(tmp_path)).wall_seconds
    with monkeypatch.context() as patched:
        patched.setattr(DeepCFR, "advance", None)
        assert executing.execute(run.configs, run.labels) == records.FINISHED
    pd.testing.assert_frame_equal(results(tmp_path, SMALL), results(straight, SMALL))
    assert records.read(only_folder(tmp_path)).wall_seconds == trained > 0
    assert (only_folder(tmp_path) / "sd_cfr" / "strategy.csv").exists()
    assert "mA/g" in records.read(only_folder(tmp_path)).headline
    assert {r.info.status for r in tracked(tmp_path)[1]} == {"FINISHED"}
    assert executing.execute(run.configs, run.labels) == records.SKIPPED


_FIT, _MEASURE = pl.Trainer.fit, Measuring.measure


def _fit_and_die(*arguments, **keywords):
    _FIT(*arguments, **keywords)
    os._exit(9)


def _measure_or_die(measuring, snapshot):
    if snapshot.iteration == measuring.config.algorithm.iterations:
        os._exit(9)
    return _MEASURE(measuring, snapshot)


@pytest.mark.usefixtures("_with_database")
@pytest.mark.exhaustive
def test_a_store_that_is_gone_costs_nothing(tmp_path, request):
    """Trainings are never done again because MLflow does not know them; it is told what it lacks."""
    overrides = (*SMALL, f"output_dir={tmp_path}")
    assert call(*overrides).returncode == 0
    record = records.read(only_folder(tmp_path))
    trained = record.wall_seconds, record.cpu_seconds
    assert record.cpu_seconds > 0
    shutil.copy(request.getfixturevalue("_empty_database"), tmp_path / "mlflow.db")
    done = call(*overrides, "+algorithm.readouts.sd_cfr_9={kind: ensemble, capacity: 9}")
    assert done.returncode == 0, done.stderr
    record = records.read(only_folder(tmp_path))
    assert (record.wall_seconds, record.cpu_seconds) == trained
    client, everything = tracked(tmp_path)
    of = {run.data.tags[READOUT_TAG]: run for run in everything}
    assert set(of) == {"training", "sd_cfr", "deep_cfr", "sd_cfr_9"}
    for readout in ("sd_cfr", "sd_cfr_9"):
        assert len(client.get_metric_history(of[readout].info.run_id, "exploitability")) == 6
    assert len(client.get_metric_history(of["training"].info.run_id, "loss/value")) == 30


def test_a_run_that_is_interrupted_before_its_first_checkpoint_has_got_nowhere(tmp_path, monkeypatch):
    """Repeated, it begins anew; it must not look as if it went on."""

    def stopped(configs: object, of: object, folder: object, record: RunRecord, title: object) -> str:
        record.iteration, record.headline = 7, "100 mA/g"
        raise KeyboardInterrupt

    monkeypatch.setattr("repro.running.one_run.do", stopped)
    run = planned(*SMALL, f"output_dir={tmp_path}")
    with pytest.raises(KeyboardInterrupt):
        executing.execute(run.configs, run.labels)
    record = records.read(run.folder)
    assert (record.state, record.iteration, record.headline) == (records.INTERRUPTED, 0, "")
    assert "begins anew" in record.message
