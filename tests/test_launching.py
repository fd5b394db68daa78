"""Commands and their workers: what is launched again, what is begun anew, and who waits for whom."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import pytest
from hydra.core.plugins import Plugins

from repro.common.errors import ReproError
from repro.jobs import launching
from repro.jobs.launching import Command
from repro.plans.planned import Run
from repro.plans.planning import plan
from repro.running.executing import execute, without_force
from repro.stored import leftovers
from repro.stored.results import is_done
from repro.stored.trained import Trained
from repro.tracking import record as records
from repro.tracking.progress import Job
from repro.tracking.record import RunRecord
from tests.helpers.cases import usually_first
from tests.helpers.commands import SMALL, command, executed, folder_of, killed_after, planned, results, tracked

QUICK = ("game=kuhn", "algorithm=cfr", "algorithm.iterations=4", "algorithm.snapshot_every=2")


# -- workers that are killed -----------------------------------------------------------------------------------------


def breaking(command: Command, monkeypatch: pytest.MonkeyPatch, times: int) -> list[list[str]]:
    """Let a command's launcher do the first run that it is given and break, some times; the keys that it is given."""
    launched: list[list[str]] = []
    launch = command._launch

    def broken(runs: Sequence[Run], master: Any) -> None:
        launched.append([run.key for run in runs])
        if len(launched) <= times:
            launch(runs[:1], master)
            raise BrokenExecutor("A worker was terminated.\nAnd so on.")
        launch(runs, master)

    monkeypatch.setattr(command, "_launch", broken)
    return launched


@pytest.mark.slow
@pytest.mark.parametrize(("times", "status"), usually_first([(1, 0), (2, 0), (3, 1)]))
def test_what_a_broken_pool_has_not_ended_is_launched_again(tmp_path, monkeypatch, capsys, times, status):
    runs = plan([*QUICK, "seed=range(5)", f"output_dir={tmp_path}"], multirun=True).runs
    keys = [run.key for run in runs]
    command = Command(tmp_path, None, None)
    launched = breaking(command, monkeypatch, times)
    assert command.do([runs]) == status
    assert launched == [keys, keys[1:], keys[2:]][: times + 1]
    told = capsys.readouterr().err
    assert told.count("warning: A worker was terminated. 4 run(s) are launched again.") == 1
    states = [records.read(tmp_path / "runs" / key).state for key in keys]
    assert states == [records.FINISHED] * (3 if status else 5) + [records.WAITING] * (2 if status else 0)
    assert len(re.findall(r"not started +A worker was terminated\.", told)) == (2 if status else 0)


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.1)


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.exhaustive
def test_no_worker_starts_for_what_is_finished(tmp_path, monkeypatch):
    runs = plan([*QUICK, "seed=range(2)", f"output_dir={tmp_path}"], multirun=True).runs
    assert Command(tmp_path, None, None).do([runs[:1]]) == 0
    given: list[int] = []

    class Launcher:
        def launch(self, jobs: Sequence[Sequence[str]], initial_job_idx: int) -> None:
            given.append(len(jobs))
            for run in runs[1:]:
                execute(run.configs, run.labels, run.title)

    monkeypatch.setattr(Plugins, "instantiate_launcher", lambda *_, **__: Launcher())
    with (runs[0].folder / leftovers.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not launching._needs_no_worker(runs[0]), "what another command does is waited for by a worker"
    for _ in range(2):
        command = Command(tmp_path, None, ["hydra/launcher=joblib"])
        assert command.do([runs]) == 0
        assert all(records.read(run.folder).of(command.invocation).state in records.ENDED for run in runs)
    assert given == [1]


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
@pytest.mark.exhaustive
def test_one_killed_run_and_one_killed_worker_stop_no_other(tmp_path):
    """As the kernel kills what takes too much memory. Its run is named; a worker's is launched again."""
    overrides = (*SMALL, "algorithm.iterations=120", f"output_dir={tmp_path}", "checkpoint_every_seconds=0")
    sweep = ("-m", *overrides, "seed=range(3)", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    log = tmp_path / "stderr"
    with log.open("w") as file:
        process = subprocess.Popen(command(*sweep), stderr=file)
    folders = [folder_of(tmp_path, *overrides, f"seed={seed}") for seed in range(3)]

    def doing() -> list[tuple[int, int]]:
        """Workers, and the processes that do their runs, when there are two of them."""
        pairs = [(worker, run) for worker in children(process.pid) for run in children(worker)]
        return pairs if sum(records.read(folder).iteration > 0 for folder in folders) == 2 else []

    wait_until(lambda: process.poll() is not None or len(doing()) == 2)
    (_, first), (worker, second) = doing()
    # It is not finished before its worker is killed, however slow this process is; then it ends itself.
    os.kill(second, signal.SIGSTOP)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: any(records.read(folder).state == records.FAILED for folder in folders))
    os.kill(worker, signal.SIGKILL)
    os.kill(second, signal.SIGCONT)
    status, told = process.wait(timeout=500), log.read_text()
    assert status == 1, told
    assert sorted(records.read(folder).state for folder in folders) == ["failed", "finished", "finished"], told
    assert told.count("its process was killed (signal 9; perhaps out of memory); repeat the command to continue") == 1
    assert told.count("run(s) are launched again") == 1, told
    assert sorted({run.info.status for run in tracked(tmp_path)[1]}) == ["FINISHED", "KILLED"]


# -- force -----------------------------------------------------------------------------------------------------------


def begun(output: Path, *overrides: str) -> int:
    """How often the run was begun: each time it gets runs of its own in MLflow."""
    key = planned(*overrides).key
    return len({run.data.tags["repro.attempt"] for run in tracked(output)[1] if run.data.tags["repro.key"] == key})


@pytest.mark.exhaustive
@pytest.mark.parametrize("by", ["without force", "with force"])
def test_a_forced_command_that_was_stopped_before_its_run_is_resumed(tmp_path, monkeypatch, by):
    """Whether a clock is set back meanwhile or not."""
    overrides = (*QUICK, f"output_dir={tmp_path}")
    assert executed(*overrides) == records.FINISHED
    forced = planned(*overrides, "force=true")
    command = Command(tmp_path, None, None)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(launching, "execute", stopped)
        with pytest.raises(KeyboardInterrupt):
            command.do([[forced]])
    assert not is_done(planned(*overrides).config)
    with pytest.raises(ReproError, match="is to be done anew"):
        Trained.open(tmp_path, forced.key).check_finished()
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert executed(*overrides, f"force={by == 'with force'}") == records.FINISHED
    assert begun(tmp_path, *overrides) == 2
    assert is_done(planned(*overrides).config)
    assert executed(*overrides) == records.SKIPPED


@pytest.mark.exhaustive
def test_a_forced_run_that_was_stopped_continues_without_force_and_begins_anew_with_it(tmp_path):
    overrides = (*SMALL, "algorithm.iterations=10", f"output_dir={tmp_path}")
    folder = folder_of(tmp_path, *overrides)
    assert executed(*overrides) == records.FINISHED
    before = results(tmp_path, overrides)
    killed_after(7, *overrides, "force=true")
    assert records.read(folder).iteration == 7
    killed_after(1, *overrides)
    assert records.read(folder).iteration == 8, "it went on"
    killed_after(1, *overrides, "force=true")
    assert records.read(folder).iteration == 1, "it began anew"
    assert sorted(path.name for path in folder.glob("*.ckpt")) == ["last.ckpt", "unusable-1.ckpt", "unusable-2.ckpt"]
    assert executed(*overrides) == records.FINISHED
    assert results(tmp_path, overrides).equals(before)
    assert begun(tmp_path, *overrides) == 3
    assert not list(folder.glob("*.ckpt"))


def test_what_another_command_has_begun_anew_since_is_not_begun_anew_again(tmp_path):
    overrides = (*QUICK, f"output_dir={tmp_path}")
    assert executed(*overrides) == records.FINISHED
    run = planned(*overrides, "force=true")
    configs = without_force(run.configs)
    # As if this command waited for one that does the run now, with force or without.
    assert executed(*overrides) == records.FINISHED
    assert execute(configs, run.labels) == records.SKIPPED
    assert begun(tmp_path, *overrides) == 2


@pytest.mark.exhaustive
def test_what_another_command_has_done_before_is_begun_anew(tmp_path):
    overrides = (*QUICK, f"output_dir={tmp_path}")
    for number in (1, 2, 3):
        assert executed(*overrides, "force=true") == records.FINISHED
        assert begun(tmp_path, *overrides) == number


def test_asking_for_a_run_anew_is_not_disturbed_by_who_does_it_now(tmp_path, monkeypatch):
    """Who has the run's lock removes whatever is being written in its folder."""
    folder = tmp_path / "runs" / "key"
    touch = Path.touch

    def touched(path: Path) -> None:
        touch(path)
        leftovers.clean_run(folder)

    monkeypatch.setattr(Path, "touch", touched)
    records.ask_anew(folder)
    assert records.is_asked_anew(folder)
    assert [path.name for path in folder.iterdir()] == ["anew"]


def test_what_looks_like_markup_in_a_message_is_told_as_it_is(tmp_path, capsys):
    record = RunRecord(state=records.FAILED, message="RuntimeError: [/pair.cc:537] Read error")
    assert launching.report([Job("a run", tmp_path)], [record], None)
    assert "[/pair.cc:537]" in capsys.readouterr().err


def test_what_a_run_did_when_it_ended_is_not_told_as_the_reason(tmp_path, capsys):
    record = RunRecord(state=records.RUNNING, iterations=9, message="measuring iteration 5")
    assert launching.report([Job("a run", tmp_path)], [record], KeyboardInterrupt())
    told = capsys.readouterr().err
    assert "did not finish: interrupted" in told
    assert "measuring" not in told
    assert launching.report([Job("a run", tmp_path)], [RunRecord()], KeyboardInterrupt())
    assert re.search(r"not started +interrupted", capsys.readouterr().err)
