"""Runs that a cluster's jobs do: submitted, preempted, killed, completed, and collected once."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

# It configures logging when it is imported first; in the midst of a test that would close what absl writes to.
import submitit  # noqa: F401
import torch
import yaml

from repro import figure
from repro.estimates import outlook
from repro.jobs import cluster
from repro.jobs.cluster import Worker
from repro.jobs.launching import Command
from repro.plans.planning import plan
from repro.running.plan_file import write_plan
from repro.running.saving import Checkpoints
from repro.stored.results import is_done
from repro.tracking import checkpoints
from repro.tracking import record as records
from tests.helpers.commands import SMALL, call, call_here, executed, folder_of, key_of, planned, results, tracked
from tests.helpers.signals import signalling

ROOT = Path(__file__).resolve().parents[1]
QUICK = ("game=kuhn", "algorithm=cfr", "algorithm.iterations=4", "algorithm.snapshot_every=2")
SHORT = (*SMALL, "algorithm.iterations=10")
LATER = "tracking_uri=later"
TWO_AT_ONCE = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


def waited_for(output: Path) -> None:
    """Jobs of this machine that have ended."""
    until = time.monotonic() + 300
    while cluster._going(cluster._latest_jobs(output)):
        assert time.monotonic() < until, "jobs do not end"
        time.sleep(0.2)


def told(output: Path, *overrides: str) -> list[str]:
    """Keys of the trainings that MLflow shows as finished, once for each time."""
    runs = [run for run in tracked(output)[1] if run.data.tags.get("repro.readout") == "training"]
    return sorted(run.data.tags["repro.key"] for run in runs if run.info.status == "FINISHED")


# -- an array --------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_an_array_is_preempted_killed_completed_and_collected_once(tmp_path):
    """Seed 0 is preempted, and goes on by itself; seed 1 is killed, and is submitted again."""
    output, straight = tmp_path / "cluster", tmp_path / "here"
    signals = signalling("SIGUSR2", 5, tmp_path), signalling("SIGKILL", 5, tmp_path, of=1)
    every = "checkpoint_every_seconds=0"
    array = ("-m", *SHORT, "seed=0,1", f"output_dir={output}", *signals, every, *TWO_AT_ONCE)
    submitted = call(*array, "--on", "local")
    assert submitted.returncode == 0, submitted.stderr
    assert "submitted 2 run(s) in 2 job(s)" in submitted.stdout
    waited_for(output)
    assert not (output / "mlflow.db").exists(), "jobs write what is theirs alone"
    preempted, killed = (key_of(*SHORT, f"seed={seed}") for seed in (0, 1))
    log = next((output / "cluster").glob("*/jobs/*_0_log.out")).parent
    assert "Requeued job" in "".join(path.read_text() for path in log.glob("*.out"))

    partial = call_here(*array, "--collect")
    assert partial.returncode == 1
    assert "2 training(s): 1 finished, 1 of them taken in now; 1 missing" in partial.stdout
    assert f"{killed}  interrupted  4/10" in partial.stdout
    assert told(output) == [preempted]
    again = call(*array, "--on", "local")
    assert "submitted 1 run(s) in 1 job(s)" in again.stdout
    waited_for(output)

    for now in (1, 0):
        collected = call_here(*array, "--collect")
        assert collected.returncode == 0, collected.stdout
        assert f"2 training(s): 2 finished, {now} of them taken in now; 0 missing" in collected.stdout
        assert told(output) == sorted([preempted, killed])
    for seed in (0, 1):
        executed(*SHORT, f"seed={seed}", f"output_dir={straight}", LATER)
        of_seed = (*SHORT, f"seed={seed}")
        assert results(output, of_seed).equals(results(straight, of_seed))


# -- a job -----------------------------------------------------------------------------------------------------------


def does(output: Path, *overrides: str) -> int:
    """The exit status of a job that does a run, in this process; 0 if it returns."""
    run = planned(*overrides, f"output_dir={output}", LATER)
    output.mkdir(exist_ok=True)
    write_plan([run], output / "plan.json")
    try:
        Worker(str(output / "plan.json"), [0], "job")()
    except SystemExit as error:
        return int(str(error.code))
    return 0


@pytest.mark.exhaustive
def test_what_a_cluster_asks_for_is_done_after_a_checkpoint(tmp_path):
    """Lightning would take SIGTERM as the end of a batch, and Ctrl-C loses the iteration."""
    asked = signalling("SIGTERM", 5, tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    assert does(tmp_path / "out", *SHORT, asked, "checkpoint_every_seconds=600") == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
    folder = folder_of(tmp_path / "out", *SHORT)
    record = records.read(folder)
    assert (record.state, record.iteration) == (records.INTERRUPTED, 5)
    assert record.message.startswith("the checkpoint of iteration 5 of 10 is kept")
    assert checkpoints.newest(folder) == 5
    assert does(tmp_path / "out", *SHORT, asked) == 0
    assert executed(*SHORT, f"output_dir={tmp_path / 'straight'}", LATER) == records.FINISHED
    assert results(tmp_path / "out", SHORT).equals(results(tmp_path / "straight", SHORT))


def test_a_preempted_job_is_handed_to_submitit_when_its_checkpoint_is_written(tmp_path, monkeypatch):
    handed = []
    folder = folder_of(tmp_path / "out", *SHORT)
    before = signal.signal(signal.SIGUSR2, lambda *_: handed.append(checkpoints.newest(folder)))
    try:
        asked = signalling("SIGUSR2", 3, tmp_path)
        assert does(tmp_path / "out", *SHORT, asked, "checkpoint_every_seconds=600") == 128 + signal.SIGUSR2
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert handed == [3]


def test_where_no_iteration_would_be_lost_a_job_stops_at_once(tmp_path, monkeypatch):
    def asked(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        raise AssertionError("it was not stopped")

    monkeypatch.setattr("repro.running.one_run.game_of", asked)
    assert does(tmp_path, *QUICK) == 128 + signal.SIGTERM
    record = records.read(folder_of(tmp_path, *QUICK))
    assert (record.state, record.iteration) == (records.INTERRUPTED, 0)


def test_a_job_of_slurm_waits_to_be_killed(tmp_path, monkeypatch):
    """It would not be queued again if it ended by itself."""
    waits: list[float] = []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr("repro.running.one_run.game_of", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    does(tmp_path, *QUICK)
    assert waits == [cluster._WAIT_TO_BE_KILLED_SECONDS]


def test_a_signal_without_a_cluster_stops_at_once_as_ever(tmp_path, monkeypatch):
    saved: list[int] = []
    monkeypatch.setattr(Checkpoints, "save", lambda _, trainer: saved.append(trainer.current_epoch))
    asked = signalling("SIGTERM", 5, tmp_path)
    assert call_here(*SHORT, asked, f"output_dir={tmp_path}", "checkpoint_every_seconds=600").returncode == 143
    assert not saved


# -- told later ------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_what_is_told_later_is_told_once_with_all_that_is_measured(tmp_path):
    here = f"output_dir={tmp_path}"
    assert executed(*QUICK, here, LATER) == records.FINISHED
    assert executed(*QUICK, here, LATER) == records.SKIPPED
    assert not (tmp_path / "mlflow.db").exists()
    run = planned(*QUICK, here)
    assert is_done(planned(*QUICK, here, LATER).config)
    assert not is_done(run.config)
    (expected,) = outlook.outlooks([run], tmp_path)
    assert expected.state == outlook.TO_COLLECT
    assert cluster.collect([run], "") == 0
    assert is_done(run.config)
    assert told(tmp_path) == [run.key]
    client, runs = tracked(tmp_path)
    by_readout = {run.data.tags["repro.readout"]: run.info.run_id for run in runs}
    assert [m.step for m in client.get_metric_history(by_readout["cfr"], "exploitability")] == [2, 4]
    assert [file.path for file in client.list_artifacts(by_readout["cfr"])] == ["strategy.csv"]
    # More that is measured later is told later, in the same runs.
    more = (*QUICK, here, "evaluation=[exploitability,costs]")
    assert executed(*more, LATER) == records.FINISHED
    assert not is_done(planned(*more).config)
    assert cluster.collect([planned(*more)], "") == 0
    assert told(tmp_path) == [run.key]


def test_a_run_that_was_told_before_is_not_forgotten(tmp_path):
    here = f"output_dir={tmp_path}"
    assert executed(*QUICK, here) == records.FINISHED
    assert executed(*QUICK, here, LATER) == records.SKIPPED
    assert executed(*QUICK, here) == records.SKIPPED


# -- SLURM, as far as it is called -----------------------------------------------------------------------------------


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """In place of SLURM's commands: what is submitted is kept, and `queue` is what squeue prints."""
    folder = tmp_path / "bin"
    folder.mkdir()
    scripts = {
        "srun": "exit 1", "sbatch": f'cp "$1" {folder}/submitted; echo Submitted batch job 7',
        "squeue": f"cat {folder}/queue",
    }  # fmt: skip
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(stat.S_IRWXU)
    (folder / "queue").write_text("")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_an_array_of_slurm(tmp_path, slurm):
    output = tmp_path / "out"
    runs = ("-m", *QUICK, "seed=range(3)", f"output_dir={output}", *TWO_AT_ONCE)
    assert executed(*QUICK, "seed=1", f"output_dir={output}", LATER) == records.FINISHED
    on = ("--on", "slurm", "--cluster", "slurm_partition=long", "--cluster", "timeout_min=60", "--cluster", "name=null")
    submitted = call_here(*runs, *on, "--cluster", "slurm_constraint=zen4")
    assert submitted.returncode == 0, submitted.stderr
    assert "submitted 2 run(s) in 2 job(s), 7_0 to 7_1" in submitted.stdout
    script = (slurm / "submitted").read_text()
    asked = ("array=0-1%2", "time=60", "partition=long", "constraint=zen4", "signal=USR2@300", "cpus-per-task=1")
    for option in asked:
        assert f"#SBATCH --{option}\n" in script
    assert "account" not in script
    (slurm / "queue").write_text("7_0 PENDING\n7_1 RUNNING\n99 RUNNING\n")
    again = call_here(*runs, *on)
    assert "2 run(s) are submitted already" in again.stdout
    assert "submitted 2" not in again.stdout
    collected = call_here(*runs, "--collect")
    assert collected.returncode == 1
    first, last = (key_of(*QUICK, f"seed={seed}") for seed in (0, 2))
    assert f"{first}  waiting  0/4        job 7_0 is pending" in collected.stdout
    assert f"{last}  waiting  0/4        job 7_1 is running" in collected.stdout
    (slurm / "queue").write_text("")
    assert f"{first}  not started  0/4        job 7_0 has ended; its log:" in call_here(*runs, "--collect").stdout
    assert "submitted 2 run(s)" in call_here(*runs, *on).stdout


def test_how_many_of_an_array_go_on_at_once_is_slurms_affair_unless_it_is_said(tmp_path, slurm, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    runs = ("-m", *QUICK, "seed=range(3)", f"output_dir={tmp_path / 'out'}", "--on", "slurm")
    assert "submitted 3 run(s) in 3 job(s)" in call_here(*runs).stdout
    assert "#SBATCH --array=0-2%3\n" in (slurm / "submitted").read_text()
    assert "submitted 3 run(s) in 3 job(s)" in call_here(*runs, "--cluster", "slurm_array_parallelism=2").stdout
    assert "#SBATCH --array=0-2%2\n" in (slurm / "submitted").read_text()


def test_runs_on_gpus_are_submitted_and_collected_where_there_is_none(tmp_path, slurm, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    runs = (*QUICK, "device=cuda", f"output_dir={tmp_path / 'out'}")
    assert "device is 'cuda', but torch " in call_here(*runs).stderr
    assert "submitted 1 run(s)" in call_here(*runs, "--on", "slurm").stdout
    assert "#SBATCH --gpus-per-node=1\n" in (slurm / "submitted").read_text()
    assert "1 training(s): 0 finished" in call_here(*runs, "--collect").stdout


def test_runs_that_need_others_are_submitted_when_these_are_there(tmp_path, slurm):
    key = key_of(*QUICK)
    against = ("evaluation=match", f"+evaluation.match.opponents.other={key}", "evaluation.match.hands=100")
    runs = plan(["-m", *QUICK, "seed=0", f"output_dir={tmp_path}"][1:], multirun=True).runs
    needing = plan([*QUICK, "seed=1", *against, f"output_dir={tmp_path}"], multirun=False).runs
    due, waiting = cluster._due([*runs, *needing])
    assert ([run.config.seed for run in due], [run.config.seed for run in waiting]) == ([0], [1])
    assert executed(*QUICK, f"output_dir={tmp_path}") == records.FINISHED
    due, waiting = cluster._due([*runs, *needing])
    assert ([run.config.seed for run in due], waiting) == ([1], [])


# -- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_parts_do_everything_once_and_tell_nobody(tmp_path, monkeypatch):
    closes: list[bool] = []

    def here(output: Path, uri: str | None, _: object, **how: bool) -> Command:
        """In this process, without Hydra's launchers."""
        closes.append(how.get("closes", True))
        return Command(output, uri, None, **how)

    monkeypatch.setattr(cluster, "Command", here)
    runs = ("-m", *QUICK, "seed=range(3)", f"output_dir={tmp_path}")
    done: list[set[str]] = []
    for part, count in (("1/2", 2), ("2/2", 1)):
        told_of = call_here(*runs, "--part", part)
        assert told_of.returncode == 0, told_of.stderr
        assert f"part {part[0]} of 2: {count} run(s), {count} to be done now" in told_of.stdout
        done.append({path.name for path in (tmp_path / "runs").iterdir()})
    assert (len(done[0]), len(done[1])) == (2, 3)
    assert not (tmp_path / "mlflow.db").exists()
    assert call_here(*runs, "--collect").returncode == 0
    assert told(tmp_path) == sorted(done[1])
    averaged = [run for run in tracked(tmp_path)[1] if "repro.mean" in run.data.tags]
    assert {run.data.params["seeds"] for run in averaged} == {"3"}, "which differ by their seed alone"
    assert closes
    assert not any(closes), "what goes on on another machine is not taken for killed"


def test_the_file_for_skypilot_has_its_keys_and_does_a_part():
    file = yaml.safe_load((ROOT / "examples" / "skypilot.yaml").read_text())
    # https://docs.skypilot.co/en/latest/reference/yaml-spec.html
    assert set(file) <= {"name", "workdir", "num_nodes", "resources", "envs", "file_mounts", "setup", "run"}
    assert set(file["resources"]) <= {"infra", "accelerators", "cpus", "memory", "use_spot", "disk_size"}
    assert [set(mount) for mount in file["file_mounts"].values()] == [{"name", "mode"}]
    for line in (file["setup"], file["run"]):
        make = line.replace("make ", "make --dry-run ", 1)
        does = subprocess.run(
            ["sh", "-c", make], cwd=ROOT, env={**os.environ, **file["envs"]}, capture_output=True, text=True, check=True
        )
    assert "-m repro.figure figure3 --scale 'paper'" in does.stdout
    assert "--part '1/4'" in does.stdout


# -- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--on", "slrum", "--dry-run"], "Could not find 'cluster/slrum' (did you mean slurm?); there are local"),
        (["--on", "nowhere"], "Could not find 'cluster/nowhere'; there are local, slurm"),
        (["--on", "slurm"], 'that was refused: Could not detect "srun"'),
        (["--on", "local", "--cluster", "executor=pbs"], "executor is 'pbs'; it must be one of slurm, local"),
        (["--on", "local", "--cluster", "max_num_timeout=often"], "max_num_timeout is 'often'; it must be a whole"),
        (["--on", "local", "--cluster", "timeout_min=-5"], "timeout_min is -5; it must be at least 1."),
        (["--on", "local", "--cluster", "gpus_per_node=-1"], "gpus_per_node is -1; it must be at least 0."),
        (["--on", "local", "--cluster", "mem_gb=much"], "mem_gb is 'much'; it must be a number."),
        (["--on", "slurm", "--cluster", "timeout_mim=5", "--dry-run"], "(did you mean timeout_min?)."),
        (
            ["--on", "slurm", "--cluster", "slurm_mem_gb=-1", "--dry-run"],
            "slurm_mem_gb is -1; it must be given as mem_gb.",
        ),
        (["--on", "slurm", "--cluster", "slurm_nodes=2", "--dry-run"], "slurm_nodes is no key of a cluster; see conf/"),
        (["--on", "local", "--cluster", "nodes=2"], "nodes is no key of a cluster; see conf/cluster/slurm.yaml."),
        (["--on", "local", "system_metrics=true"], "system_metrics is true, which is told while a run goes on, but"),
        (["--on", "local", "--cluster", "mem_gb"], "++cluster.mem_gb is no KEY=VALUE"),
        (["--on", "local", "--collect"], "--on and --collect cannot be given together."),
        (["--cluster", "mem_gb=2"], "--cluster is 'mem_gb=2'; it says something of --on, which is not given."),
        (["--part", "0/4"], "--part is '0/4'; it must be K/N, from 1/N to N/N."),
        (["--part", "5/4"], "--part is '5/4'; it must be K/N, from 1/N to N/N."),
    ],
)
def test_faulty_requests(tmp_path, monkeypatch, options, sentence):
    monkeypatch.setenv("PATH", str(tmp_path))  # Where there is no SLURM.
    done = call_here(*QUICK, f"output_dir={tmp_path}", *options)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not (tmp_path / "runs").exists()
    assert not list(tmp_path.glob("cluster/*"))


def test_figures_are_refused_likewise(tmp_path, monkeypatch, capsys):
    for options, sentence in (
        (["--collect", "--force"], "--collect and --force cannot be given together"),
        (["--on", "local", "--plan"], "--plan, --draw and --publish do no runs"),
    ):
        monkeypatch.setattr(sys, "argv", ["figure", "figure1", "--output", str(tmp_path), *options])
        assert figure.main() == 2
        assert sentence in capsys.readouterr().err


def test_without_submitit_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    done = call_here(*QUICK, f"output_dir={tmp_path}", "--on", "local")
    assert (done.returncode, "needs the package submitit: pip install" in done.stderr) == (2, True)


def test_sizes_are_those_of_the_cluster(tmp_path, slurm):
    big = ("game=leduc", "algorithm=sd_cfr", "algorithm.value_capacity=100000000")
    asked = (*big, f"output_dir={tmp_path}", "--on", "slurm", "--cluster", "mem_gb=1")
    done = call_here(*asked)
    assert done.returncode == 2
    assert "a job is given 1 GiB" in done.stderr
