"""Launching planned runs: one command's jobs, its progress, and its report.

Runs are launched through Hydra's launchers, which apply unchanged (`hydra/launcher=joblib`). A job is told the
number of its run in a file that the command has written, and does it (`repro.running.executing`).
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks  # what launchers are given has no public name
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from joblib.externals.loky.backend import resource_tracker  # it has no public name
from omegaconf import DictConfig
from rich.markup import escape
from rich.table import Table

from repro.common.errors import StorageError
from repro.common.importing import quicker_imports
from repro.common.stopping import hangups_held_back
from repro.config.composed import CONF
from repro.config.jobs import quoted
from repro.config.lightning import processes_of
from repro.config.schema import LATER
from repro.plans.naming import labels
from repro.plans.planned import Run
from repro.running.executing import execute, kept, note, without_force
from repro.running.lifetimes import COMMAND_PROCESS, LOOK_EVERY_SECONDS, this_process
from repro.running.plan_file import write_plan
from repro.running.workers import launched
from repro.shown.commands import make_ui_command, show_command, show_means
from repro.stored import leftovers
from repro.stored.results import is_done
from repro.stored.trained import folder_of
from repro.tracking import record as records
from repro.tracking.progress import Job, Watcher, console
from repro.tracking.record import DONE, ENDED, FAILED, INTERRUPTED, INVOCATION, RunRecord

if TYPE_CHECKING:
    from repro.tracking.store import Store  # it takes seconds to import

_MOST_LAUNCHES = 3


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
        with quicker_imports():
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
        os.environ[COMMAND_PROCESS] = this_process()

    def do(self, stages: Sequence[Sequence[Run]]) -> int:
        """Do runs, stage after stage; returns the exit status: 0, or 1 if one did not finish.

        Raises:
            KeyboardInterrupt: the command was; its runs are closed.
        """
        stages = [[replace(run, configs=without_force(run.configs)) for run in stage] for stage in stages]
        runs = [run for stage in stages for run in stage]
        jobs = [
            Job(label, run.folder, f"{run.config.game['name']} {run.config.algorithm.name}")
            for label, run in zip(labels(runs), runs, strict=True)
        ]
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
        links: list[str] = []
        with _lacks_told("a view"):
            links = show_command(self._client, self.invocation, runs)
        serve = make_ui_command(Path(runs[0].config.output_dir))
        for link in links:
            print(f"compare them in the MLflow UI ({serve}): {link}", file=sys.stderr)

    def show_means(self, runs: Sequence[Run]) -> None:
        """Leave in MLflow means over seeds of a sweep's runs, if it has several; once the runs of all are finished."""
        if self._client is None or len({config.seed for run in runs for config in run.configs}) < 2:
            return
        with _lacks_told("means"):
            show_means(self._client, self.invocation, runs)

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
        rest = []
        for run in runs:
            # What is finished is taken note of here: a worker takes seconds to start.
            if master is None or _needs_no_worker(run):
                execute(run.configs, run.labels, run.title)
            else:
                rest.append(run)
        if master is None or not rest:
            return
        path = Path(master.folder) / "plan.json"
        write_plan(rest, path)
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(master))
        launcher = Plugins.instance().instantiate_launcher(config=master, hydra_context=context, task_function=launched)
        if "joblib" in master.hydra.launcher._target_:
            # Joblib's tracker of resources lives through SIGINT and SIGTERM only; what misses it prints tracebacks.
            with hangups_held_back():
                resource_tracker.ensure_running()
        common = [f"plan={quoted(str(path))}", f"folder={quoted(master.folder)}"]
        launcher.launch([[*common, f"number={number}"] for number in range(len(rest))], initial_job_idx=0)

    def _close(self, runs: Sequence[Run]) -> None:
        """Say of the runs of processes that were ended from outside that they were; they can be continued."""
        until = time.monotonic() + 2 * LOOK_EVERY_SECONDS
        for run in runs:
            record = records.read(run.folder)
            if record.invocation != self.invocation or record.state in DONE:
                continue
            if record.state == records.RUNNING:
                record.state = INTERRUPTED
                record.message = kept(run.folder, record)
                note(run.folder, record)
            if self._client is not None:
                for config in run.configs:
                    leftovers.close_run(self._client, folder_of(config), until)


def _needs_no_worker(run: Run) -> bool:
    """Whether it is finished, and noting that neither waits for another command nor loads a game onto a GPU."""
    alone = processes_of(run.config) == 1 and run.config.device == "cpu"
    folders = {run.folder, *map(folder_of, run.configs)}
    return alone and not any(map(leftovers.is_held, folders)) and all(map(is_done, run.configs))


@contextmanager
def _lacks_told(what: str) -> Iterator[None]:
    """Warn of what MLflow cannot be given: the runs are done, and their records say so."""
    from mlflow.exceptions import MlflowException  # noqa: PLC0415  (MLflow takes seconds)

    try:
        yield
    except (StorageError, MlflowException) as error:
        print(f"warning: the MLflow UI lacks {what} of these runs: {error}", file=sys.stderr)


def _parallel(master: DictConfig | None) -> int:
    """How many runs are done at once (1 for launchers that do not say)."""
    jobs = 1 if master is None else master.hydra.launcher.get("n_jobs", 1)
    return (os.cpu_count() or 1) if jobs in (-1, None) else int(jobs)


def _reused(runs: Sequence[Run], last: Sequence[RunRecord]) -> dict[Path, str]:
    """By folder, of runs that were found finished, with which code they were made."""
    from repro.tracking.staleness import made_at  # noqa: PLC0415  (a command that reuses nothing does not need it)

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
        # While a run goes on, its message says what is being done.
        said = "" if record.state == records.RUNNING else record.message
        reason = _reason(interrupted)
        if interrupted is None or record.state != records.WAITING:  # Of what was not started its state says that.
            reason = f"did not finish: {reason}"
        why = said or (record.headline if good else reason)
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
