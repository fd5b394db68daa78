"""Launching planned runs: one command's jobs, its progress, and its report.

Runs are launched through Hydra's launchers, which apply unchanged (`hydra/launcher=joblib`). A job is told the
number of its run in a file that the command has written, and does it (`execute`).
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, TYPE_CHECKING

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks  # what launchers are given has no public name
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from joblib.externals.loky.backend import resource_tracker  # it has no public name
from omegaconf import DictConfig
from rich.markup import escape
from rich.table import Table

from repro import durable, leftovers, stopping
from repro.config.keys import as_plain, from_plain
from repro.config.lightning import processes_of
from repro.config.schema import LATER, Config
from repro.errors import ReproError, StoppedEarlyError, StorageError
from repro.faults import disk_faults_told
from repro.planned import Run, labels
from repro.planning import CONF, quoted
from repro.stopping import hangups_held_back, stopped_by_signals
from repro.tracking import record as records
from repro.tracking.progress import Job, Watcher, console
from repro.tracking.record import DONE, ENDED, FAILED, INTERRUPTED, INVOCATION, RunRecord
from repro.trained import folder_of, record_of

if TYPE_CHECKING:
    from repro.tracking.store import Store  # it takes seconds to import

COMMAND_PROCESS = "REPRO_COMMAND_PROCESS"
"""Environment variable: host and process id of the command that this process must not outlive."""
LOOK_EVERY_SECONDS = 1.0
_MOST_LAUNCHES = 3
_PAUSE_SECONDS = 10.0
"""How long a worker that was interrupted begins no other run."""

_OF_RANKS = ("LOCAL_RANK", "RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that tell a process which of several it is; what has started the command may have set them."""

_interrupted = -math.inf
"""When this worker was, by `time.monotonic`."""


def prepare_output(output_dir: str, cleans: bool = True) -> Path:
    """Make the output folder, try to write in it, and clean what commands that were killed have left there.

    Args:
        cleans: False where other machines may write: not every shared file system passes on who is alive there.

    Raises:
        ReproError: it cannot be written.
    """
    folder = Path(output_dir).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            if cleans:
                leftovers.clean(folder)
    except OSError as error:
        raise ReproError(
            f"output_dir is {output_dir!r}; it must be a folder that can be written ({error.strerror})."
        ) from error
    return folder


# -- one run ---------------------------------------------------------------------------------------------------------


def launched(job: DictConfig) -> str:
    """What a launcher calls: do the run that the job names; returns its state.

    A launcher's worker has a process of its own for each run. Whatever kills that, such as a lack of memory, ends one
    run; if the worker were killed, its pool would end all.
    """
    if _command() in (None, os.getpid()):
        return execute(*planned(job.plan, job.number))
    return _in_a_child(job.plan, job.number)


def write_plan(runs: Sequence[Run], path: Path) -> None:
    """Leave runs in a file, where processes that do them find them by their numbers."""
    planned = [{"configs": [as_plain(c) for c in r.configs], "labels": dict(r.labels), "title": r.title} for r in runs]
    path.write_text(json.dumps(planned))


def planned(plan: str, number: int) -> tuple[list[Config], dict[str, str], str]:
    """What `execute` takes, of a run that `write_plan` left."""
    run = json.loads(Path(plan).read_text())[number]
    return [from_plain(plain) for plain in run["configs"]], run["labels"], run["title"]


def _in_a_child(plan: str, number: int) -> str:
    global _interrupted
    configs, of, _ = planned(plan, number)
    command = _command()
    # What has touched a GPU cannot be forked.
    forks = configs[0].device == "cpu"
    process = get_context("fork" if forks else "spawn").Process  # type: ignore[attr-defined]
    child = process(target=_as_a_child, args=(plan, number, f"{socket.gethostname()}:{os.getpid()}"))
    with stopped_by_signals():
        try:
            # If the command was stopped as well, it ends this worker meanwhile.
            time.sleep(max(0.0, _interrupted + _PAUSE_SECONDS - time.monotonic()))
            if forks:
                _prepare_forks(configs[0])
            child.start()
            while child.exitcode is None:
                child.join(LOOK_EVERY_SECONDS)
                if command is not None and not leftovers.is_alive(command):
                    child.kill()
                    os._exit(1)
        except KeyboardInterrupt:
            # This worker was stopped, and perhaps no other: what stops the command reaches the command itself.
            _interrupted = time.monotonic()
            if child.pid is not None:
                child.terminate()
                child.join()
    return _state_after(child.exitcode or 0, Run(configs, of).folder)


def _state_after(exit_code: int, folder: Path) -> str:
    """The state of a run whose process has ended; if it could not say so itself, that it has failed."""
    record = records.read(folder)
    if exit_code:
        how = how_it_ended(exit_code)
        print(f"run {folder.name}: {how}", file=sys.stderr, flush=True)
        if record.invocation == os.environ[INVOCATION] and record.state == records.RUNNING:
            record.state, record.message = FAILED, f"{how}; repeat the command to continue"
            _note(folder, record)
    return record.state


def _prepare_forks(config: Config) -> None:
    """Do once in a worker, and not in each of its children, what takes seconds."""
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401, PLC0415
    import torch  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    import repro.training  # noqa: F401, PLC0415
    from repro.config.checks import game_for_checks  # noqa: PLC0415
    from repro.tracking import provenance  # noqa: PLC0415

    provenance.code()
    provenance.versions()  # Not `hardware`, which touches a GPU.
    torch.set_num_threads(1)  # A child would wait for ever for threads that OpenMP has started before the fork.
    with threadpool_limits(1), suppress(Exception):  # What is wrong with the game, the run says.
        game_for_checks(config)


def _as_a_child(plan: str, number: int, worker: str) -> None:
    os.environ[COMMAND_PROCESS] = worker
    with suppress(KeyboardInterrupt), stopped_by_signals():  # The record says so.
        execute(*planned(plan, number))


def how_it_ended(exit_code: int) -> str:
    """What an exit status other than 0 says of a run's process."""
    if exit_code >= 0:
        return f"its process ended with exit status {exit_code}"
    memory = "; perhaps out of memory" if -exit_code == signal.SIGKILL else ""
    return f"its process was killed (signal {-exit_code}{memory})"


def execute(configs: Sequence[Config], of: Mapping[str, str], title: str = "") -> str:
    """Do one run and return the state it ended in. Never raises for a fault of one run: its record tells it.

    Args:
        configs: one per seed, `without_force`.
        of: target -> scale.
        title: of the run.
    """
    end_with_the_command()
    if processes_of(configs[0]) > 1:
        return _in_processes(Run(configs, of, title))
    return execute_here(configs, of, title)


def _in_processes(run: Run) -> str:
    """`execute` of a run that several processes do, of which this one is none: `repro.processes`."""
    with TemporaryDirectory(prefix="repro-") as folder:
        plan = Path(folder) / "plan.json"
        write_plan([run], plan)
        environment = {k: v for k, v in os.environ.items() if k not in _OF_RANKS} | {
            COMMAND_PROCESS: f"{socket.gethostname()}:{os.getpid()}", "OMP_NUM_THREADS": str(run.config.threads),
        }  # fmt: skip
        # What asks this process to stop is to ask that one: it finishes the iteration.
        asking = [number.name for number in stopping.asking()]
        process = subprocess.Popen([sys.executable, "-m", "repro.processes", str(plan), *asking], env=environment)
        try:
            process.wait()
        except KeyboardInterrupt:
            process.send_signal(stopping.received() if stopping.is_asked() else signal.SIGTERM)
            process.wait()
            raise
    return _state_after(process.returncode, run.folder)


def execute_here(configs: Sequence[Config], of: Mapping[str, str], title: str = "") -> str:
    """`execute`, by this process (of several, by the first one)."""
    folder = Run(configs, of).folder
    try:
        with disk_faults_told():
            return _execute_locked(configs, of, folder, title)
    except StorageError as error:
        print(f"run {folder.name} did not begin: {error}", file=sys.stderr, flush=True)
        return INTERRUPTED


def _execute_locked(configs: Sequence[Config], of: Mapping[str, str], folder: Path, title: str) -> str:
    # A run of several seeds does the runs of each, and nobody else may do one of them meanwhile; nor clean where the
    # checkpoints are that it may go on from, which are of fewer seeds perhaps.
    own = [folder_of(config) for config in configs]
    folders = {folder, *own}
    while True:
        with ExitStack() as stack:
            # All commands in the same order, so that no two wait for each other.
            for each in sorted(folders):
                each.mkdir(parents=True, exist_ok=True)
                _wait_for(stack.enter_context((each / leftovers.LOCK).open("w")), each.name)
            begun = [record for record in map(records.read, own) if record.checkpoints and not record.trained]
            needed = folders | {folder.parent / record.checkpoints for record in begun}
            if needed == folders:
                return _execute_alone(configs, of, folder, folders, title)
        folders = needed


def without_force(configs: Sequence[Config]) -> list[Config]:
    """The same configurations, of which those with `force` are noted in the trainings' folders as to begin anew.

    Whoever does such a training next begins it anew, and takes the note away: this command, another one that was waited
    for, or, if this one is stopped, whichever repeats it, with force or without.
    """
    for config in configs:
        if config.force:
            records.ask_anew(folder_of(config))
    return [replace(config, force=False) for config in configs]


def _wait_for(lock: IO[str], key: str) -> None:
    """Wait for a run if another process does it; afterwards it is finished, or to be continued."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"run {key} is being done by another process; waiting for it", file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def _execute_alone(
    configs: Sequence[Config], of: Mapping[str, str], folder: Path, locked: Iterable[Path], title: str
) -> str:
    fault: StorageError | None = None
    try:
        with disk_faults_told():
            for each in locked:
                leftovers.clean_run(each)
    except StorageError as error:
        fault = error
    record = record_of(folder, configs[0])
    record.taken_up(os.environ.get(INVOCATION, ""))
    try:
        with disk_faults_told():
            if fault is not None:
                raise fault
            records.write(folder, record)
            from repro.training import train  # noqa: PLC0415  (imports Lightning and MLflow, which takes seconds)

            record.state = train(configs, of, folder, record, title)
    except (KeyboardInterrupt, SystemExit):  # Lightning turns the first into the second.
        record.state, record.message = INTERRUPTED, f"{_kept(folder, record)}; repeat the command to continue"
        _note(folder, record)
        raise KeyboardInterrupt from None
    except StorageError as error:
        record.state, record.message = INTERRUPTED, f"{error} Repeat the command to continue."
    except StoppedEarlyError as error:
        record.state, record.message = INTERRUPTED, str(error)
    except ReproError as error:
        record.state, record.message = FAILED, str(error)
    except Exception as error:  # One failed run must not stop the others of a sweep.
        record.state, record.message = FAILED, f"{type(error).__name__}: {error} ({_kept_traceback(folder)})"
    _note(folder, record)
    return record.state


def _kept(folder: Path, record: RunRecord) -> str:
    """What is kept of a run that is interrupted."""
    from repro.tracking import checkpoints  # noqa: PLC0415  (imports Lightning, which takes seconds)

    if record.trained:
        return "its training is finished and kept"
    newest = checkpoints.newest(folder.parent / (record.checkpoints or folder.name))
    if newest is None:
        return "there was no checkpoint yet"
    return f"the checkpoint of iteration {newest} of {record.iterations} is kept"


def _note(folder: Path, record: RunRecord) -> None:
    """Write what became of a run; where the disk does not take it, say so on the terminal."""
    try:
        records.write(folder, record)
    except OSError as error:
        print(
            f"run {folder.name}: {record.state}; {record.message} Its record could not be written ({error.strerror}).",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def _kept_traceback(folder: Path) -> str:
    """Where the traceback of the current exception is: in a file of the run, or printed."""
    log = folder / "error.txt"
    try:
        durable.write(log, traceback.format_exc().encode(), sync=False)
    except OSError:
        traceback.print_exc()
        return "traceback above"
    return f"traceback in {log}"


@cache
def end_with_the_command() -> None:
    """Let this worker process end when the command that started it on this machine is gone.

    A killed command cannot stop its workers; left alone they would go on beside those of the repeated command.
    """
    command = _command()
    if command in (None, os.getpid()):
        return

    def look() -> None:
        while leftovers.is_alive(command):
            time.sleep(LOOK_EVERY_SECONDS)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def _command() -> int | None:
    """Id of the process that this one must not outlive; None if it is on another machine, or there is none."""
    host, _, pid = os.environ.get(COMMAND_PROCESS, "").rpartition(":")
    return int(pid) if host == socket.gethostname() else None


# -- a command's runs ------------------------------------------------------------------------------------------------


class Command:
    """One command: launches its runs, shows their progress, and reports.

    Args:
        output: the output folder.
        tracking_uri: of the MLflow store; None for the one in the output folder; `LATER`: none is told.
        launcher: overrides about Hydra's launcher; None: all runs are done in this process, one after the other.
        closes: whether to show runs of processes that are gone as ended, which relies on locks: not where they may go
            on on other machines.

    Raises:
        ReproError: the store cannot be opened.
    """

    def __init__(
        self, output: Path, tracking_uri: str | None, launcher: Sequence[str] | None, closes: bool = True
    ) -> None:
        from repro.tracking.store import default_uri, open_store  # noqa: PLC0415  (MLflow takes seconds)

        self._client: Store | None = None
        if tracking_uri != LATER:
            # Made before any job starts: several at once would race for it.
            self._client = open_store(tracking_uri or default_uri(output), tries_writing=True)
            if closes:
                leftovers.close_runs(self._client, output, tracking_uri is None)
        self._output, self._launcher = output, launcher
        self.invocation = uuid.uuid4().hex
        os.environ[INVOCATION] = self.invocation
        os.environ[COMMAND_PROCESS] = f"{socket.gethostname()}:{os.getpid()}"

    def do(self, stages: Sequence[Sequence[Run]]) -> int:
        """Do runs, stage after stage; returns the exit status: 0, or 1 if one did not finish.

        Raises:
            KeyboardInterrupt: the command was; its runs are closed.
        """
        stages = [[replace(run, configs=without_force(run.configs)) for run in stage] for stage in stages]
        runs = [run for stage in stages for run in stage]
        jobs = [Job(label, run.folder) for label, run in zip(labels(runs), runs, strict=True)]
        print(f"{len(jobs)} run(s); files in {self._output}", file=sys.stderr)
        interrupted: BaseException | None = None
        with self._hydra() as master, Watcher(jobs, self.invocation, _parallel(master)) as watcher:
            try:
                for stage in stages:
                    self._launch_until_done(stage, master)
            except KeyboardInterrupt as error:
                interrupted = error
            except Exception as error:  # A launcher that lost a worker raises what it likes; the records tell the rest.
                interrupted = error
        self._close(runs)
        last = watcher.records()
        if isinstance(interrupted, KeyboardInterrupt):
            with suppress(OSError):  # The terminal may be gone.
                report(jobs, last, interrupted)
            raise interrupted
        return 1 if report(jobs, last, interrupted, _reused(runs, last)) else 0

    def show(self, runs: Sequence[Run]) -> None:
        """Save a view of its runs in MLflow, and print links to it."""
        if self._client is None:
            print(f"MLflow was told nothing; the same command without tracking_uri={LATER} tells it", file=sys.stderr)
            return
        from mlflow.exceptions import MlflowException  # noqa: PLC0415  (MLflow takes seconds)

        from repro import ui  # noqa: PLC0415

        try:
            links = ui.show_command(self._client, self.invocation, runs)
        except (StorageError, MlflowException) as error:  # The runs are done, and their records say so.
            print(f"warning: the MLflow UI lacks a view of these runs: {error}", file=sys.stderr)
            return
        for link in links:
            print(f"compare them in the MLflow UI (make ui): {link}", file=sys.stderr)

    @contextmanager
    def _hydra(self) -> Iterator[DictConfig | None]:
        """What Hydra launches jobs with; None where they are done in this process."""
        if self._launcher is None:
            yield None
            return
        with (
            leftovers.folder_of_a_command(self._output, self.invocation) as folder,
            initialize_config_dir(str(CONF), version_base="1.3"),
        ):
            hydra = GlobalHydra.instance().hydra
            assert hydra is not None
            overrides = [*self._launcher, f"folder={quoted(str(folder))}", "plan=none", "number=0"]
            yield hydra.compose_config("launch", overrides, RunMode.MULTIRUN, with_log_configuration=False)

    def _launch_until_done(self, runs: Sequence[Run], master: DictConfig | None) -> None:
        """Launch runs; if a pool of workers breaks, those that it has not ended once more, and once more."""
        for attempt in range(_MOST_LAUNCHES):
            try:
                self._launch(runs, master)
            except BrokenExecutor as error:
                runs = [run for run in runs if not self._has_ended(run)]
                if not runs or attempt + 1 == _MOST_LAUNCHES:
                    raise
                lost = str(error).splitlines()[0]
                print(f"warning: {lost} {len(runs)} run(s) are launched again.", file=sys.stderr, flush=True)
            else:
                return

    def _has_ended(self, run: Run) -> bool:
        return records.read(run.folder).of(self.invocation).state in ENDED

    def _launch(self, runs: Sequence[Run], master: DictConfig | None) -> None:
        if master is None:
            for run in runs:
                execute(run.configs, run.labels, run.title)
            return
        path = Path(master.folder) / "plan.json"
        write_plan(runs, path)
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(master))
        launcher = Plugins.instance().instantiate_launcher(config=master, hydra_context=context, task_function=launched)
        if "joblib" in master.hydra.launcher._target_:
            # Joblib's tracker of resources lives through SIGINT and SIGTERM only; what misses it prints tracebacks.
            with hangups_held_back():
                resource_tracker.ensure_running()
        common = [f"plan={quoted(str(path))}", f"folder={quoted(master.folder)}"]
        launcher.launch([[*common, f"number={number}"] for number in range(len(runs))], initial_job_idx=0)

    def _close(self, runs: Sequence[Run]) -> None:
        """Say of the runs of processes that were ended from outside that they were; they can be continued."""
        until = time.monotonic() + 2 * LOOK_EVERY_SECONDS
        for run in runs:
            record = records.read(run.folder)
            if record.invocation != self.invocation or record.state in DONE:
                continue
            if record.state == records.RUNNING:
                record.state = INTERRUPTED
                _note(run.folder, record)
            if self._client is not None:
                for config in run.configs:
                    leftovers.close_run(self._client, folder_of(config), until)


def _parallel(master: DictConfig | None) -> int:
    """How many runs are done at once (1 for launchers that do not say)."""
    jobs = 1 if master is None else master.hydra.launcher.get("n_jobs", 1)
    return (os.cpu_count() or 1) if jobs in (-1, None) else int(jobs)


def _reused(runs: Sequence[Run], last: Sequence[RunRecord]) -> dict[Path, str]:
    """By folder, of runs that were found finished, with which code they were made."""
    from repro.staleness import made_at  # noqa: PLC0415  (a command that reuses nothing does not need it)

    found = [run for run, record in zip(runs, last, strict=True) if record.state == records.SKIPPED]
    trainings = [(run, config, records.read(folder_of(config))) for run in found for config in run.configs]
    told: dict[Path, str] = {}
    for (run, _, _), sentence in zip(trainings, made_at((c, r) for _, c, r in trainings), strict=True):
        told.setdefault(run.folder, sentence)
    return told


def report(
    jobs: Sequence[Job], last: Sequence[RunRecord], interrupted: BaseException | None,
    reused: Mapping[Path, str] | None = None,
) -> bool:  # fmt: skip
    """Print what became of each run; whether any did not finish.

    Args:
        reused: by a run's folder, with which code it was made that was found finished.
    """
    table = Table("run", "key", "state", "result", box=None)
    failed = False
    for job, record in zip(jobs, last, strict=True):
        good = record.state in DONE
        failed |= not good
        why = record.message or (record.headline if good else f"did not finish: {_reason(interrupted)}")
        # A run without a last word, though nothing has ended the command, is no state that anyone knows.
        state = FAILED if interrupted is None and record.state in (records.RUNNING, records.WAITING) else record.state
        made = (reused or {}).get(job.folder, "")
        table.add_row(job.label, job.folder.name, state, escape("; ".join(part for part in (why, made) if part)))
    console(sys.stderr).print(table)
    return failed


def _reason(interrupted: BaseException | None) -> str:
    if isinstance(interrupted, KeyboardInterrupt):
        return "interrupted"
    return str(interrupted) if interrupted else "see the messages above"
