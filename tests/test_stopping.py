"""SIGTERM and SIGHUP end every command as Ctrl-C does: its runs are closed, and can be continued."""

from __future__ import annotations

import math
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from repro import evaluate, figure, match, run
from repro.common import stopping
from repro.config.checks import _loaded, game_for_checks
from repro.evaluation.measures import Exploitability
from repro.plans.planned import Run
from repro.running import lifetimes, workers
from repro.running.plan_file import write_plan
from repro.running.saving import Checkpoints
from repro.stored import leftovers
from repro.tracking import provenance
from repro.tracking import record as records
from tests.helpers.cases import usually_first
from tests.helpers.commands import SMALL, command, executed, folder_of, key_of, only_folder, planned, results, tracked

SHORT = (*SMALL, "algorithm.iterations=10")
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture(autouse=True)
def _hang_ups_are_heard():
    """Also where the tests themselves were started with `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(autouse=True)
def _handlers_are_restored() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    # Where the tests run in the background it may be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before[0])
    assert [signal.getsignal(number) for number in SIGNALS] == before


def sent(number: int) -> Callable[..., None]:
    """A function that has this process stopped by a signal, and does not return before."""

    def send(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(5)
        raise AssertionError("it was not stopped")

    return send


@pytest.mark.slow
@pytest.mark.parametrize("number", usually_first(list(SIGNALS)))
def test_a_run_is_closed_and_can_be_continued(tmp_path, monkeypatch, capsys, number):
    overrides = [*SHORT, f"output_dir={tmp_path}", "checkpoint_every_seconds=0"]
    save = Checkpoints.save

    def saved(callback: Checkpoints, trainer: Any) -> None:
        save(callback, trainer)
        if trainer.current_epoch == 5:
            sent(number)()

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "save", saved)
        assert run.main(overrides) == SIGNALS[number]
    told = capsys.readouterr().err
    assert told.endswith("interrupted; repeat the command to go on.\n")
    assert "interrupted  the checkpoint of iteration 6 of 10 is kept; repeat the command to continue" in told
    record = records.read(only_folder(tmp_path))
    assert (record.state, record.iteration, record.trained) == (records.INTERRUPTED, 6, False)
    assert {run.info.status for run in tracked(tmp_path)[1]} == {"KILLED"}
    assert run.main(overrides) == 0
    steps = results(tmp_path, SHORT).query("metric == 'loss/value'").step
    assert steps.tolist() == list(range(1, 11))


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", SIGNALS)
def test_evaluations_are_closed(tmp_path, monkeypatch, capsys, number):
    assert executed(*SHORT, "evaluation=costs", f"output_dir={tmp_path}") == records.FINISHED
    monkeypatch.setattr(Exploitability, "measure", sent(number))
    arguments = [key_of(*SHORT), "evaluation=exploitability", "--output", str(tmp_path)]
    assert evaluate.main(arguments) == SIGNALS[number]
    assert "interrupted; repeat the command" in capsys.readouterr().err
    assert records.read(only_folder(tmp_path)).state == records.INTERRUPTED
    assert {run.info.status for run in tracked(tmp_path)[1]} == {"KILLED"}


@pytest.mark.parametrize("number", SIGNALS)
def test_making_figures_and_playing_matches_end(tmp_path, monkeypatch, capsys, number):
    monkeypatch.setattr(figure, "make", sent(number))
    monkeypatch.setattr(sys, "argv", ["figure", "figure1", "--output", str(tmp_path)])
    assert figure.main() == SIGNALS[number]
    monkeypatch.setattr(match, "play_match", sent(number))
    assert match.main(["kuhn", "uniform", "uniform"]) == SIGNALS[number]
    assert capsys.readouterr().err == ("interrupted; repeat the command to go on.\ninterrupted.\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_does_not_disturb_the_closing(number):
    closed = []

    @stopping.stoppable("")
    def main() -> int:
        assert not stopping.is_stopping()
        try:
            sent(number)()
        finally:
            for other in SIGNALS:
                os.kill(os.getpid(), other)
            closed.append(stopping.is_stopping())
        return 0

    assert main() == SIGNALS[number]
    assert closed == [True]
    assert not stopping.is_stopping()


def test_a_signal_that_got_lost_can_be_repeated(monkeypatch):
    """Should what the first one began not come to its end."""
    monkeypatch.setattr(stopping, "_AGAIN_AFTER_SECONDS", 0.0)

    @stopping.stoppable("")
    def main() -> int:
        with suppress(KeyboardInterrupt):
            sent(signal.SIGTERM)()
        sent(signal.SIGHUP)()
        return 0

    assert main() == 129


def test_a_command_that_is_to_outlive_its_terminal_does():
    """`nohup` has SIGHUP ignored."""

    @stopping.stoppable("")
    def main() -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        return 0

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert main() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


# -- workers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """This process as the worker of a launcher, with a command that is alive: does a run, and returns its state."""
    monkeypatch.setenv(lifetimes.COMMAND_PROCESS, f"{socket.gethostname()}:{os.getppid()}")
    monkeypatch.setenv(records.INVOCATION, "this command")
    monkeypatch.setattr(workers, "_interrupted", -math.inf)

    def do(*overrides: str) -> str:
        plan = tmp_path / "plan.json"
        write_plan([planned_in(tmp_path, *overrides)], plan)
        return workers.launched(DictConfig({"plan": str(plan), "number": 0}))

    return do


def planned_in(output: Path, *overrides: str) -> Run:
    return planned(*SHORT, f"output_dir={output}", "checkpoint_every_seconds=0", *overrides)


def after_some_iterations(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    save = Checkpoints.save

    def saved(callback: Checkpoints, trainer: Any) -> None:
        save(callback, trainer)
        if trainer.current_epoch == 3:
            what()

    monkeypatch.setattr(Checkpoints, "save", saved)


def test_a_run_whose_process_is_killed_fails_and_its_worker_goes_on(worker, tmp_path, monkeypatch, capfd):
    with monkeypatch.context() as patched:
        after_some_iterations(patched, lambda: os.kill(os.getpid(), signal.SIGKILL))
        assert worker() == records.FAILED
    record = records.read(only_folder(tmp_path))
    how = "its process was killed (signal 9; perhaps out of memory)"
    assert record.message == f"{how}; repeat the command to continue"
    assert f"run {only_folder(tmp_path).name}: {how}" in capfd.readouterr().err
    assert worker() == records.FINISHED
    assert results(tmp_path, SHORT).query("metric == 'loss/value'").step.tolist() == list(range(1, 11))


def test_a_run_whose_process_ends_otherwise_fails(worker, tmp_path, monkeypatch):
    after_some_iterations(monkeypatch, lambda: os._exit(3))
    assert worker() == records.FAILED
    assert records.read(only_folder(tmp_path)).message.startswith("its process ended with exit status 3")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_worker_that_is_stopped_closes_its_run(worker, tmp_path, monkeypatch, number):
    def stop_the_worker() -> None:
        os.kill(os.getppid(), number)
        time.sleep(5)

    after_some_iterations(monkeypatch, stop_the_worker)
    assert worker() == records.INTERRUPTED
    assert records.read(only_folder(tmp_path)).iteration == 4
    assert {run.info.status for run in tracked(tmp_path)[1]} == {"KILLED"}


def test_a_worker_that_was_stopped_begins_no_other_run_soon(worker, tmp_path, monkeypatch):
    started = time.monotonic()
    monkeypatch.setattr(workers, "_interrupted", started)
    monkeypatch.setattr(workers, "_PAUSE_SECONDS", 3600)
    with monkeypatch.context() as patched:
        # While it waits, so that what a busy machine takes until then does not matter.
        patched.setattr(time, "sleep", lambda _: os.kill(os.getpid(), signal.SIGTERM))
        assert worker() == records.WAITING
    assert not (tmp_path / "runs").exists()
    assert workers._interrupted > started
    monkeypatch.setattr(workers, "_PAUSE_SECONDS", 0.5)
    assert worker() == records.FINISHED, "the command was not stopped"


def test_what_takes_seconds_is_done_before_the_fork(tmp_path):
    (config,) = planned_in(tmp_path).configs
    workers._prepare_forks(config)
    assert "mlflow.store.tracking.sqlalchemy_store" in sys.modules
    before = provenance.code.cache_info().misses, _loaded.cache_info().misses
    provenance.code()
    game_for_checks(config)
    assert (provenance.code.cache_info().misses, _loaded.cache_info().misses) == before


def test_a_worker_whose_run_fails_says_what_the_run_says(worker, tmp_path):
    assert worker("algorithm.value.learning_rate=1e20", "algorithm.value.clip_norm=1e30") == records.FAILED
    assert "diverged in iteration 1" in records.read(only_folder(tmp_path)).message


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
@pytest.mark.parametrize(("number", "of_all"), [(signal.SIGTERM, False), (signal.SIGHUP, True), (signal.SIGINT, True)])
@pytest.mark.exhaustive
def test_a_sweep_is_closed(tmp_path, number, of_all):
    """By a signal to the command alone, and to all of its processes, as when a terminal is closed."""
    overrides = (*SMALL, "algorithm.iterations=3000", f"output_dir={tmp_path}", "checkpoint_every_seconds=0")
    sweep = ("-m", *overrides, "seed=range(4)", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    process = subprocess.Popen(command(*sweep), stderr=subprocess.PIPE, text=True, start_new_session=True)
    folders = [folder_of(tmp_path, *overrides, f"seed={seed}") for seed in range(2)]
    while process.poll() is None and not all(records.read(folder).iteration >= 3 for folder in folders):
        time.sleep(0.1)
    (os.killpg if of_all else os.kill)(process.pid, number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == SIGNALS[number], told
    assert told.endswith("interrupted; repeat the command to go on.\n")
    assert "Traceback" not in told
    assert "died" not in told
    assert [records.read(folder).state for folder in folders] == [records.INTERRUPTED] * 2
    assert len(re.findall(r"the checkpoint of iteration \d+ of 3000 is kept", told.replace("\n", " "))) == 2, told
    assert {run.info.status for run in tracked(tmp_path)[1]} == {"KILLED"}
    assert not list((tmp_path / "commands").iterdir())
    time.sleep(2 * lifetimes.LOOK_EVERY_SECONDS + 1)
    for folder in folders:
        with leftovers._if_free(folder) as free:
            assert free, "no process is left"


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_run_on_a_gpu_has_a_process_that_is_not_forked(worker, tmp_path, monkeypatch):
    """Here on the CPU, and only that it can be done."""
    monkeypatch.setattr(workers, "get_context", lambda _: multiprocessing.get_context("spawn"))
    assert worker() == records.FINISHED


@pytest.mark.parametrize("where", ["destructor", "callback"])
def test_a_signal_that_comes_where_python_drops_it_stops_a_moment_later(capsys, where):
    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    class Signals:
        if where == "destructor":
            __del__ = stop

    def work() -> None:
        with stopping.stopped_by_signals():
            signals = Signals()
            kept = weakref.ref(signals, stop) if where == "callback" else None
            del signals
            time.sleep(30)
            assert kept

    with pytest.raises(KeyboardInterrupt):
        work()
    assert stopping.received() == signal.SIGTERM
    assert not capsys.readouterr().err


def test_what_else_python_drops_is_told_as_ever(monkeypatch):
    told: list[object] = []

    def tell(dropped: Any) -> None:
        told.append(dropped.exc_type)

    monkeypatch.setattr(sys, "unraisablehook", tell)

    class Fails:
        def __del__(self) -> None:
            raise ValueError

    with stopping.stopped_by_signals():
        Fails()
    assert told == [ValueError]
    assert sys.unraisablehook is tell
