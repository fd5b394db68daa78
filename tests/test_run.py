"""The command line: sweeps, tracking, resuming after SIGKILL, and what bad input is answered with."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from mlflow import MlflowClient
from omegaconf import OmegaConf

from repro import run, training
from repro.config import ReadoutConfig, run_key, settings
from repro.errors import ReproError
from repro.evaluation import nash_conv
from repro.games import load
from repro.policies import load_strategy
from repro.tracking import status
from repro.tracking.results import tidy
from repro.tracking.store import READOUT_TAG, TRAINING, TrackedRun, default_uri, experiment_id, find_runs, open_store

SMALL = (
    "game=kuhn", "algorithm=sd_cfr_and_deep_cfr", "algorithm.iterations=30", "algorithm.traversals=200",
    "algorithm.value.steps=30", "algorithm.value.batch_size=64", "algorithm.average.steps=20",
    "algorithm.average.batch_size=64", "algorithm.value_capacity=1000", "algorithm.strategy_capacity=1000",
    "algorithm.evaluate_every=5", "network.width=16",
)  # fmt: skip


def command(*overrides: str) -> list[str]:
    return [sys.executable, "-m", "repro.run", *overrides]


def call(*overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*overrides), capture_output=True, text=True, check=False, timeout=300)


def results(output: Path, overrides: tuple[str, ...]) -> pd.DataFrame:
    """Everything the runs logged, wall times aside."""
    keys = [run_key(run.without_hydra(c)) for c in run.plan([*overrides, f"output_dir={output}"], multirun=True)]
    client = open_store(default_uri(output))
    data = tidy(client, experiment_of(client), keys)
    return data[data.metric != "wall_seconds"].reset_index(drop=True)


def experiment_of(client: MlflowClient) -> str:
    found = client.get_experiment_by_name("runs")
    assert found is not None
    return str(found.experiment_id)


def only_folder(output: Path) -> Path:
    (folder,) = (output / "runs").iterdir()
    return folder


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """One run that was never stopped, through the command line."""
    output = tmp_path_factory.mktemp("straight")
    done = call(*SMALL, f"output_dir={output}")
    assert done.returncode == 0, done.stderr
    return output


@pytest.mark.slow
def test_a_run_is_tracked(straight):
    client = MlflowClient(default_uri(straight))
    everything = {r.info.run_id: r for r in client.search_runs([experiment_of(client)])}
    readouts = {r.data.tags[READOUT_TAG]: r for r in everything.values() if READOUT_TAG in r.data.tags}
    (parent,) = (r for r in everything.values() if READOUT_TAG not in r.data.tags)
    assert set(readouts) == {TRAINING, "sd_cfr", "deep_cfr"}
    assert readouts[TRAINING].data.tags["mlflow.parentRunId"] == parent.info.run_id
    for name in ("sd_cfr", "deep_cfr"):
        child = readouts[name]
        assert child.data.tags["mlflow.parentRunId"] == readouts[TRAINING].info.run_id
        assert child.info.status == "FINISHED"
        assert child.data.params["algorithm"] == name
        assert child.data.params["game"] == "kuhn"
        assert child.data.params["seed"] == "0"
        assert child.data.params["algorithm.traversals"] == "200"
        assert {"git_commit", "git_dirty", "torch", "cpu"} <= child.data.tags.keys()
    keys = {"nash_conv", "exploitability", "player_updates", "nodes_touched", "wall_seconds"}
    assert keys <= readouts["sd_cfr"].data.metrics.keys()
    assert readouts["deep_cfr"].data.metrics.keys() - readouts["sd_cfr"].data.metrics.keys() == {"loss/policy"}
    steps = [m.step for m in client.get_metric_history(readouts["sd_cfr"].info.run_id, "exploitability")]
    assert steps == [5, 10, 15, 20, 25, 30]
    assert readouts["sd_cfr"].data.metrics["player_updates"] == 60
    losses = client.get_metric_history(readouts[TRAINING].info.run_id, "loss/value")
    assert [m.step for m in losses] == list(range(1, 31))
    files = {f.path for f in client.list_artifacts(readouts[TRAINING].info.run_id)}
    assert {"config.yaml", "networks.pt"} <= files


@pytest.mark.slow
def test_artifacts_hold_the_networks_and_the_strategy(straight, tmp_path):
    client = MlflowClient(default_uri(straight))
    experiment = experiment_of(client)
    key = only_folder(straight).name
    runs = find_runs(client, experiment, key)
    path = client.download_artifacts(runs[TRAINING].info.run_id, "networks.pt", str(tmp_path))
    networks = torch.load(path, weights_only=True)
    assert [len(p) for p in networks["value"]] == [30, 30]
    path = client.download_artifacts(runs["sd_cfr"].info.run_id, "strategy.csv", str(tmp_path))
    game = load("kuhn")
    measured = runs["sd_cfr"].data.metrics["nash_conv"]
    assert nash_conv(game, load_strategy(game, path)) == pytest.approx(measured, rel=1e-9)
    with pytest.raises(ReproError, match="not a strategy for game kuhn"):
        load_strategy(load("kuhn", ranks=4), path)


@pytest.mark.slow
def test_a_finished_run_is_skipped_and_force_runs_it_again(straight):
    before = results(straight, SMALL)
    again = call(*SMALL, f"output_dir={straight}")
    assert again.returncode == 0
    assert "skipped" in again.stderr
    forced = call(*SMALL, f"output_dir={straight}", "force=true")
    assert forced.returncode == 0
    assert "finished" in forced.stderr
    pd.testing.assert_frame_equal(results(straight, SMALL), before)


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
def test_killed_and_repeated_equals_never_stopped(straight, tmp_path):
    """SIGKILL at several points, in the same MLflow run, with the same numbers to the last bit."""
    overrides = (*SMALL, f"output_dir={tmp_path}", "checkpoint_every_seconds=0")
    for iteration in (1, 11, 23):
        process = subprocess.Popen(command(*overrides), stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            folders = list((tmp_path / "runs").glob("*"))
            if folders and status.read(folders[0]).iteration >= iteration:
                break
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert status.read(only_folder(tmp_path)).iteration >= iteration
    done = call(*overrides)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(results(tmp_path, SMALL), results(straight, SMALL))
    client = MlflowClient(default_uri(tmp_path))
    experiment = experiment_of(client)
    trainings = client.search_runs([experiment], f"tags.`{READOUT_TAG}` = '{TRAINING}'")
    assert len(trainings) == 1, "every attempt continued the same MLflow run"


@pytest.mark.slow
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
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.endswith("interrupted; repeat the command to continue from the last checkpoints.\n")
    client = MlflowClient(default_uri(tmp_path))
    assert {r.info.status for r in find_runs(client, experiment_of(client), only_folder(tmp_path).name).values()} == {
        "KILLED"
    }
    done = call(*overrides)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(results(tmp_path, SMALL), results(straight, SMALL))


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
def test_a_killed_command_takes_its_workers_along(tmp_path):
    overrides = ("-m", *SMALL, "seed=0,1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", f"output_dir={tmp_path}")
    slow = "algorithm.iterations=30000"
    process = subprocess.Popen(command(*overrides, slow), stderr=subprocess.DEVNULL)
    seed_0 = run.plan([*SMALL, slow, "seed=0"], multirun=False)[0]
    folder = run.run_folder(tmp_path, run_key(run.without_hydra(seed_0)))
    while process.poll() is None and status.read(folder).iteration < 2:
        time.sleep(0.05)
    process.kill()
    process.wait()
    time.sleep(run._LOOK_EVERY_SECONDS + 2)
    before = status.read(folder).iteration
    time.sleep(1)
    assert status.read(folder).iteration == before, "no worker is left that goes on"


@pytest.mark.slow
def test_a_sweep_plans_what_its_runs_alone_would_be():
    def alone(*overrides: str) -> str:
        return run_key(run.without_hydra(run.plan([*SMALL, *overrides], multirun=False)[0]))

    planned = run.plan([*SMALL, "network.width=8,16", "seed=3,7", "device=cpu"], multirun=True)
    found = [run_key(run.without_hydra(config)) for config in planned]
    assert found == [alone(f"network.width={w}", f"seed={s}") for w in (8, 16) for s in (3, 7)]
    with pytest.raises(ReproError, match="seed"):
        run.plan([*SMALL, "seed=1,x"], multirun=True)


@pytest.mark.slow
def test_keys_of_a_swept_choice_can_be_given():
    """Hydra alone refuses them: they are not keys of the algorithm that is the default."""
    common = ["game=river_subgames", "algorithm.subgames=700", "algorithm.buckets=null", "seed=0,1"]
    planned = run.plan(["algorithm=dcvn,devn", *common], multirun=True)
    assert [(c.algorithm.name, c.seed) for c in planned] == [(n, s) for n in ("dcvn", "devn") for s in (0, 1)]
    assert {c.algorithm.subgames for c in planned} == {700}
    assert {c.algorithm.buckets for c in planned} == {None}
    for wrong in ("algorithm.subgamez=7", "algorithm.bucketz=null"):
        with pytest.raises(ReproError, match=r"subgamez|bucketz"):
            run.plan(["algorithm=dcvn,devn", wrong], multirun=True)
    # As they could be before: forced, or with blanks, quotes and references.
    for line, value in (
        ("++algorithm.buckets=Null", None), ("algorithm.buckets=NULL", None), ("algorithm.buckets= 800", 800),
        ("algorithm.buckets='${algorithm.batch_size}'", 100),
    ):  # fmt: skip
        planned = run.plan(["algorithm=dcvn,devn", "game=river_subgames", line], multirun=True)
        assert {c.algorithm.buckets for c in planned} == {value}, line
    # Of a key that is given several times the last counts, as without.
    for seeds in (["seed=1", "seed=2", "seed=1"], ["algorithm=dcvn,devn", "seed=1", "seed=2", "seed=1"]):
        assert {c.seed for c in run.plan(["game=river_subgames", "algorithm=dcvn", *seeds], multirun=True)} == {1}


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
def test_a_swept_choice_runs_as_planned(tmp_path):
    sweep = ("-m", "game=kuhn", "algorithm=cfr,dcfr", "algorithm.iterations=4")
    done = call(*sweep, "algorithm.evaluate_every=2", f"output_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    stored = [OmegaConf.load(path).algorithm for path in tmp_path.glob("runs/*/config.yaml")]
    assert sorted((a.name, a.iterations, a.evaluate_every) for a in stored) == [("cfr", 4, 2), ("dcfr", 4, 2)]
    done = call("-m", "seed=[1", f"output_dir={tmp_path}")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")


def test_a_status_keeps_what_earlier_commands_left():
    found = status.Status().taken_up("first")
    found.state, found.headline = status.FINISHED, "1 mA/g"
    found = found.taken_up("second")
    assert (found.state, found.headline, found.of("second")) == (status.RUNNING, "1 mA/g", found)
    assert (found.of("first").state, found.of("first").headline) == (status.FINISHED, "1 mA/g")
    assert found.of("third") == status.Status()
    for number in range(100):
        found = found.taken_up(str(number))
    assert found.of("first") == status.Status(), "not for ever"
    assert found.of("98").state == status.RUNNING


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
def test_a_run_that_other_commands_do_is_waited_for_and_not_done_again(tmp_path):
    overrides = (*SMALL, f"output_dir={tmp_path}")
    (config,) = run.plan(list(overrides), multirun=False)
    folder = run.run_folder(tmp_path, run_key(run.without_hydra(config)))
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        waiting = [subprocess.Popen(command(*overrides), stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for process in waiting:
            assert process.stderr is not None
            while "is being done by another process" not in (told := process.stderr.readline()):
                assert told, "it ended"
        time.sleep(1)
        assert [process.poll() for process in waiting] == [None, None]
        assert [path.name for path in folder.iterdir()] == ["lock"], "nothing is done meanwhile"
    # Now one of them does it. The other, which takes the run up at once, leaves the first its result.
    tables = [process.communicate(timeout=60)[1] for process in waiting]
    assert [process.returncode for process in waiting] == [0, 0], tables
    assert sorted(state for table in tables for state in ("finished", "skipped") if state in table) == [
        "finished", "skipped",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
def test_a_sweep_goes_on_when_one_run_fails(tmp_path):
    # The second run's batch is larger than what it collects, which only shows once it has started.
    done = call(
        "-m", *SMALL, "algorithm.value.batch_size=64,100000", "algorithm.iterations=2", "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2", f"output_dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 1
    assert "finished" in done.stderr
    assert "algorithm.value.batch_size is 100000, but only" in done.stderr
    states = sorted(status.read(folder).state for folder in (tmp_path / "runs").iterdir())
    assert states == ["failed", "finished"]
    client = MlflowClient(default_uri(tmp_path))
    trainings = client.search_runs([experiment_of(client)], f"tags.`{READOUT_TAG}` = '{TRAINING}'")
    assert sorted(r.info.status for r in trainings) == ["FAILED", "FINISHED"]
    assert any(r.data.tags.get("repro.message", "").startswith("iteration 1: algorithm") for r in trainings)


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
def test_a_truncated_checkpoint_falls_back_to_the_one_before(straight, tmp_path):
    overrides = (*SMALL, f"output_dir={tmp_path}", "checkpoint_every_seconds=0")
    process = subprocess.Popen(command(*overrides), stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and not list((tmp_path / "runs").glob("*/previous.ckpt")):
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    last = only_folder(tmp_path) / "last.ckpt"
    last.write_bytes(last.read_bytes()[:1000])
    done = call(*overrides)
    assert done.returncode == 0, done.stderr
    assert "last.ckpt cannot be read" in done.stdout + done.stderr
    assert "continuing from previous.ckpt" in done.stdout + done.stderr
    pd.testing.assert_frame_equal(results(tmp_path, SMALL), results(straight, SMALL))


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("game=chess", "Could not find 'game/chess'"),
        (
            "game.name=chess",
            "game 'chess' is unknown; the games are big_leduc, fhp, fhp5, fhp_limit, hnlh, hunl_pot, kuhn,",
        ),
        ("game.ranks=1", "game leduc: ranks is 1; at least 2"),
        ("game.ranks=many", "game leduc: ranks is 'many'; a whole number is needed"),
        ("game.ranls=4", "ranls"),
        ("algorithm.traversals=-5", "algorithm.traversals is -5; it must be at least 1."),
        ("algorithm.traversals=few", "algorithm.traversals"),
        ("algorithm.traversal=5", "traversal"),
        ("algorithm.value_capacity=0", "algorithm.value_capacity is 0; it must be at least 1."),
        ("algorithm.value.learning_rate=0", "algorithm.value.learning_rate is 0.0; it must be greater than 0."),
        ("algorithm.memory=list", "algorithm.memory is 'list'; it must be one of reservoir, aggregated."),
        ("algorithm.readouts.sd_cfr.capacity=0", "algorithm.readouts.sd_cfr.capacity is 0; it must be at least 1."),
        ("+algorithm.readouts.x={kind: ensembel}", "algorithm.readouts.x.kind is 'ensembel'; it must be one of"),
        ("+algorithm.readouts.x={kind: ensemble, cap: 3}", "it must be a mapping with the keys kind and capacity."),
        ("+algorithm.readouts.training={kind: ensemble}", "the name must be of a-z, 0-9 and _, and not 'training'."),
        ("+algorithm.readouts.x={kind: average_network, capacity: 3}", "only an ensemble has one."),
        ("network.layers=2", "network.layers is 2, but the architecture sd_cfr has a fixed depth"),
        ("network.card_width=64", "network.card_width is 64, but the architecture sd_cfr has no branches"),
        ("network.architecture=brown", "network.card_width has no value; the architecture brown needs"),
        ("algorithm=chess", "Could not find 'algorithm/chess'"),
        ("network.width=0", "network.width is 0; it must be at least 1."),
        ("algorithm=cfr network=fc", "network is fc, but the algorithm cfr has none"),
        ("network=null", "network=null"),
        ("game=null", "game=null"),
        ("algorithm=cfr network.width=3", "network.width=3"),
        ("+game.device=cuda", "game.device is 'cuda'"),
        ("algorithm=cfr algorithm.alpha=nan", "algorithm.alpha is nan; it must be from -10 to 10, or inf."),
        ("algorithm=cfr '+algorithm.readouts.x={kind: ensemble}'", "must be one of average, current"),
        ("seed=-1", "seed is -1; it must be at least 0."),
        ("device=tpu", "device is 'tpu'; it must be one of cpu, cuda."),
    ],
)
@pytest.mark.parametrize("multirun", [False, True])
def test_bad_configuration_is_refused_before_any_work(override, sentence, multirun):
    with pytest.raises(ReproError) as caught:
        run.plan(shlex.split(override) if override.startswith("algorithm=") else [override], multirun)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_read_out_can_be_added_on_the_command_line():
    added = "+algorithm.readouts.sd_cfr_20={kind: ensemble, capacity: 20}"
    config = settings(run.without_hydra(run.plan([added], multirun=False)[0]))
    assert config.algorithm.readouts["sd_cfr_20"] == ReadoutConfig("ensemble", 20)
    assert config.algorithm.readouts["sd_cfr"] == ReadoutConfig("ensemble")


@pytest.mark.slow
@pytest.mark.parametrize("left_behind", ["checkpoint after the last iteration", "read-out not closed"])
def test_killed_at_the_very_end(straight, tmp_path, monkeypatch, left_behind):
    """The windows between the last iteration and the end, each hit on purpose."""
    overrides = [*SMALL, f"output_dir={tmp_path}"]
    config = run.plan(overrides, multirun=False)[0]
    with monkeypatch.context() as patched:
        if left_behind == "read-out not closed":
            patched.setattr(TrackedRun, "finish", lambda *_: os._exit(9))
        else:
            patched.setattr(training, "_write_artifacts", lambda *_: os._exit(9))
        child = os.fork()
        if child == 0:
            run.execute(config)
            os._exit(0)
        _, code = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(code) == 9
    assert run.execute(config) == status.FINISHED
    pd.testing.assert_frame_equal(results(tmp_path, SMALL), results(straight, SMALL))
    assert (only_folder(tmp_path) / "sd_cfr" / "strategy.csv").exists()
    assert "mA/g" in status.read(only_folder(tmp_path)).headline
    assert run.execute(config) == status.SKIPPED


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.makes_a_database
def test_a_database_half_made_is_made_again(tmp_path):
    (tmp_path / "mlflow.db.new").write_bytes(b"SQLite format 3\0 and then the power went")
    assert open_store(default_uri(tmp_path)).search_experiments()


@pytest.mark.slow
def test_a_deleted_experiment_is_explained(tmp_path):
    client = open_store(default_uri(tmp_path))
    client.delete_experiment(experiment_id(client, "runs", tmp_path / "artifacts"))
    with pytest.raises(ReproError, match="'runs' was deleted; restore it"):
        experiment_id(client, "runs", tmp_path / "artifacts")


@pytest.mark.slow
def test_one_bad_value_in_a_sweep_stops_all_of_it_before_any_work(tmp_path):
    done = call("-m", *SMALL, "algorithm.traversals=200,-5", f"output_dir={tmp_path / 'never'}")
    assert done.returncode == 2
    assert done.stderr == "error: algorithm.traversals is -5; it must be at least 1.\n"
    assert not (tmp_path / "never").exists()


@pytest.mark.slow
def test_an_output_folder_that_cannot_be_written_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    done = call(*SMALL, f"output_dir={file}/outputs")
    assert done.returncode == 2
    assert done.stderr.startswith("error: output_dir is ")
    assert "must be a folder that can be written" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    file = tmp_path / "mlflow.db"
    file.write_text("my thesis, the only copy")
    done = call(*SMALL, f"output_dir={tmp_path}")
    assert done.returncode == 2
    assert "must be an MLflow database" in done.stderr
    assert done.stderr.count("\n") == 1
    assert file.read_text() == "my thesis, the only copy"


@pytest.mark.slow
def test_the_key_ignores_paths_and_nothing_else():
    def key(*overrides: str) -> str:
        return run_key(run.without_hydra(run.plan(overrides, multirun=False)[0]))

    assert key("output_dir=/tmp/a", "checkpoint_every_seconds=1", "force=true") == key()
    assert len({key(), key("seed=1"), key("algorithm.traversals=1501"), key("scale=other"), key("network=fc")}) == 5


def test_status_is_replaced_whole(tmp_path):
    status.write(tmp_path, status.Status(state=status.RUNNING, iteration=3, iterations=10, seconds_per_iteration=2.0))
    assert status.read(tmp_path).remaining_seconds == 14.0
    (tmp_path / "status.json").write_text('{"state": "run')
    assert status.read(tmp_path).state == status.WAITING
    (tmp_path / "status.json").write_text(json.dumps({"state": "finished", "from_a_later_version": 1}))
    assert status.read(tmp_path).state == status.FINISHED
