"""Runs on other machines: an array of jobs does those that are not finished, and `collect` takes in what they leave.

Jobs are submitit's: an array of SLURM, or processes of this machine. Each does some of the runs, one after the other,
and goes on by itself when it is preempted or its time is over. No two machines write one SQLite file: a job writes the
folders of its runs alone (`tracking_uri=later`), and MLflow is told by whoever collects; a server that `tracking_uri`
names is told by the jobs. Nothing has to be returned, so the command that submits ends at once, and collecting looks at
folders.

    outputs/cluster/<time>-<id>/plan.json   the submitted runs
                                jobs.json   id of each job -> keys of the trainings that it does
                                jobs/       submitit's: what a job is told, and its logs
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from rich.markup import escape
from rich.table import Table

from repro.common import durable
from repro.common.errors import ReproError, told_as
from repro.common.stopping import asked_by, hangups_held_back, received, stop_if_asked, stopped_by_signals
from repro.config.checks import check_settings
from repro.config.keys import training_key
from repro.config.lightning import processes_of
from repro.config.schema import LATER
from repro.jobs.cluster_settings import ClusterConfig, settings_of
from repro.jobs.elsewhere import Elsewhere
from repro.jobs.launching import Command
from repro.jobs.needs import check_here, check_sizes
from repro.plans.naming import labels
from repro.plans.planned import Run, stages, union
from repro.running.executing import execute, without_force
from repro.running.lifetimes import COMMAND_PROCESS
from repro.running.plan_file import planned, write_plan
from repro.stored import leftovers
from repro.stored.output import prepare_output
from repro.stored.results import is_done, is_measured
from repro.tracking import record as records
from repro.tracking.progress import console
from repro.tracking.record import INVOCATION

FOLDER, PLAN, JOBS = "cluster", "plan.json", "jobs.json"
_WAIT_TO_BE_KILLED_SECONDS = 900
_GIB = 2**30
_CLOCKS_APART = 2.0
"""Seconds that the time of a process's start may be off."""


# -- a job -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Worker:
    """What submitit has a job do: some runs of a plan, those that are not finished, one after the other.

    Attributes:
        plan: the file.
        numbers: of the runs.
        invocation: id of the command that submitted them.
    """

    plan: str
    numbers: Sequence[int]
    invocation: str

    def __call__(self) -> None:
        from submitit import JobEnvironment  # noqa: PLC0415  (optional)

        os.environ.pop(COMMAND_PROCESS, None)  # The command that submitted it may end.
        os.environ[INVOCATION] = self.invocation
        preemption = signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
        try:
            with stopped_by_signals(), asked_by(preemption, signal.SIGTERM):
                for number in self.numbers:
                    stop_if_asked()
                    configs, of, title = planned(self.plan, number)
                    if not all(map(is_done, configs)):
                        execute(configs, of, title)
                return
        except KeyboardInterrupt:
            stopped = received()
        if stopped == preemption:
            signal.raise_signal(preemption)  # To submitit's own handler, which has the job queued again.
        if stopped == signal.SIGTERM and "SLURM_JOB_ID" in os.environ:
            # SLURM queues a job again that it has preempted, but not one that has ended by itself.
            time.sleep(_WAIT_TO_BE_KILLED_SECONDS)
        sys.exit(128 + stopped)

    def checkpoint(self) -> Any:
        """What the job does when it is queued again: the same, because what is finished is not repeated."""
        from submitit.helpers import DelayedSubmission  # noqa: PLC0415  (optional)

        return DelayedSubmission(self)


# -- submitting ------------------------------------------------------------------------------------------------------


def submit(runs: Sequence[Run], where: Elsewhere, jobs: int | None, again: str, config_dir: str | None = None) -> int:
    """Submit runs that are neither finished nor submitted; returns the exit status.

    Args:
        runs: of one command; those of them that need others which are not finished are left for later.
        jobs: that go on at once; None: of this machine as many as it has cores, and of a cluster as it has room for.
        again: what is typed before `--collect`.
        config_dir: a folder of further configurations, which may have clusters.

    Raises:
        ReproError: what is asked of the cluster is at fault, or cannot be asked of it.
    """
    settings = settings_of(where, config_dir)
    output = prepare_output(runs[0].config.output_dir, cleans=False)
    due, waiting = _due([_by_a_job(run, output) for run in runs])
    if due:
        if settings.executor == "local":
            check_here(due)
        elif settings.mem_gb is not None:  # Otherwise what jobs get is not known here.
            check_sizes(due, given=settings.mem_gb * _GIB)
    going = _going(_latest_jobs(output))
    is_going = [any(training_key(config) in going for config in run.configs) for run in due]
    due = [run for run, goes in zip(due, is_going, strict=True) if not goes]
    if any(is_going):
        print(f"{sum(is_going)} run(s) are submitted already")
    if due:
        folder, ids = _submitted(due, output, settings, where.on, jobs)
        ends = ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
        print(f"submitted {len(due)} run(s) in {len(ids)} job(s), {ends}; logs in {folder / 'jobs'}")
    elif not any(is_going):
        print("there is nothing to submit")
    if waiting:
        print(f"{len(waiting)} run(s) need what others leave; when that is there, {_repeat(runs)}")
    print(f"how far they are, and to take in what is finished: {again} --collect")
    return 0


def _by_a_job(run: Run, output: Path) -> Run:
    """A run as a job does it, wherever it starts: only a server is told of it at once.

    Raises:
        ReproError: it cannot be done so.
    """
    uri = run.config.tracking_uri or ""
    told = uri if uri.startswith(("http://", "https://")) else LATER
    configs = [replace(c, output_dir=str(output), tracking_uri=told) for c in run.configs]
    for config in configs:
        check_settings(config)
    return replace(run, configs=configs)


def _due(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Runs that are not finished: those that can begin now, and those that need others of them."""
    unfinished = [run for run in union(runs) if not all(is_done(c) and not c.force for c in run.configs)]
    first, *later = stages(unfinished) or [[]]
    return first, [run for stage in later for run in stage]


def _submitted(
    runs: Sequence[Run], output: Path, settings: ClusterConfig, on: str, jobs: int | None
) -> tuple[Path, Sequence[str]]:
    """Submit runs; their folder, and the jobs' ids."""
    invocation = uuid.uuid4().hex
    folder = output / FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{invocation[:6]}"
    try:
        executor = _executor(folder, settings, on, jobs, runs)
    except ReproError:
        shutil.rmtree(folder, ignore_errors=True)  # submitit makes it before it looks at what is asked.
        raise
    runs = [replace(run, configs=without_force(run.configs)) for run in runs]
    folder.mkdir(parents=True, exist_ok=True)
    write_plan(runs, folder / PLAN)
    room = len(runs) if settings.executor == "slurm" else os.cpu_count() or 1
    count = min(len(runs), settings.most_jobs or jobs or room)
    numbers = [range(len(runs))[k::count] for k in range(count)]
    with _refusals_told(on), hangups_held_back(), _output_kept(folder):
        with executor.batch():
            submitted = [executor.submit(Worker(str(folder / PLAN), list(own), invocation)) for own in numbers]
        ids = [str(job.job_id) for job in submitted]
    keys = [[training_key(config) for number in own for config in runs[number].configs] for own in numbers]
    about = {
        "executor": settings.executor, "host": socket.gethostname(), "submitted": time.time(),
        "jobs": dict(zip(ids, keys, strict=True)),
    }  # fmt: skip
    durable.write(folder / JOBS, json.dumps(about, indent=1).encode())
    return folder, ids


def _executor(folder: Path, settings: ClusterConfig, on: str, jobs: int | None, runs: Sequence[Run]) -> Any:
    try:
        from submitit import AutoExecutor  # noqa: PLC0415  (optional)
    except ImportError as error:
        raise ReproError(
            f"--on is {on!r}, which needs the package submitit: pip install -c constraints.txt -e '.[cluster]'"
        ) from error
    kind = settings.executor
    parameters = settings.parameters()
    if parameters["cpus_per_task"] is None:
        parameters["cpus_per_task"] = max(run.config.threads * processes_of(run.config) for run in runs)
    if parameters["gpus_per_node"] is None and any(run.config.device == "cuda" for run in runs):
        parameters["gpus_per_node"] = 1
    if kind == "slurm" and jobs is not None:
        parameters.setdefault("slurm_array_parallelism", jobs)
    with _refusals_told(on):
        executor = AutoExecutor(folder / "jobs", cluster=kind, **{f"{kind}_max_num_timeout": settings.max_num_timeout})
        executor.update_parameters(**parameters)
    return executor


@contextmanager
def _refusals_told(on: str) -> Iterator[None]:
    """Tell in one sentence what submitit, or the cluster, refuses."""
    with told_as(lambda error: f"--on is {on!r}; that was refused: {' '.join(str(error).split())}"):
        yield


@contextmanager
def _output_kept(folder: Path) -> Iterator[None]:
    """Within, processes that are started write to a file: they outlive this command, and whoever reads its output."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = [os.dup(descriptor) for descriptor in (1, 2)]
    with (folder / "submission.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, kept in zip((1, 2), before, strict=True):
                os.dup2(kept, descriptor)
                os.close(kept)


def _repeat(runs: Iterable[Run]) -> str:
    """What to do again; repeated with `force=true` it would begin anew what is finished."""
    forced = any(config.force for run in runs for config in run.configs)
    return f"repeat the command{' without force' if forced else ''}"


# -- parts -----------------------------------------------------------------------------------------------------------


def do_part(runs: Sequence[Run], part: tuple[int, int], jobs: int, again: str) -> int:
    """Do on this machine the k-th of n parts of the runs, those of them that can be; returns the exit status.

    The parts are of the same list on each machine, whatever is finished there.
    """
    output = prepare_output(runs[0].config.output_dir, cleans=False)
    every = [_by_a_job(run, output) for run in union(runs)]
    due, waiting = _due(every)
    k, n = part
    own = {run.key for run in every[k - 1 :: n]}
    mine = [run for run in due if run.key in own]
    left = sum(run.key in own for run in waiting)
    print(f"part {k} of {n}: {len(own)} run(s), {len(mine)} to be done now", flush=True)
    status = 0
    if mine:
        check_here(mine)
        launcher = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={jobs}"]
        # Other parts may go on on other machines, and a server be told of theirs, too.
        status = Command(output, mine[0].config.tracking_uri, launcher, closes=False).do([mine])
    if left:
        print(f"{left} run(s) of this part need others; when these are there, {_repeat(runs)}")
    print(f"to take in what is finished: {again} --collect")
    return status


# -- collecting ------------------------------------------------------------------------------------------------------


def collect(runs: Sequence[Run], again: str) -> int:
    """Tell MLflow of the trainings that are finished, and print how far the others are; returns how many these are.

    Args:
        again: as for `submit`.
    """
    output = prepare_output(runs[0].config.output_dir, cleans=False)
    every = [(run, replace(config, force=False)) for run in union(runs) for config in run.configs]
    trainings = [Run([config], run.labels, run.title) for run, config in every]
    going = _going(_latest_jobs(output))
    to_tell = [r for r in trainings if is_measured(r.config) and not is_done(r.config) and r.key not in going]
    if to_tell:
        command = Command(output, to_tell[0].config.tracking_uri, None, closes=False)
        command.do([to_tell])
        command.show(to_tell)
    missing = [run for run in trainings if not is_done(run.config)]
    there, now = len(trainings) - len(missing), sum(run not in missing for run in to_tell)
    print(f"{len(trainings)} training(s): {there} finished, {now} of them taken in now; {len(missing)} missing")
    if missing:
        _show(missing, output)
        print("what no job does is submitted again by the command that submitted it")
    return len(missing)


def _show(runs: Sequence[Run], output: Path) -> None:
    jobs = _latest_jobs(output)
    going = _going(jobs)
    table = Table("run", "key", "state", "iteration", "by which job, or why", box=None)
    for called, run in zip(labels(runs), runs, strict=True):
        record = records.read(run.folder)
        state, why = _state(run, jobs.get(run.key), going.get(run.key, ""))
        reached = f"{record.iteration}/{run.config.algorithm.iterations}"
        table.add_row(called, run.key, state, reached, escape(why))
    console(sys.stdout).print(table)


def _state(run: Run, job: Job | None, job_state: str) -> tuple[str, str]:
    """What became of a run that is not finished, and why, or which job has it."""
    record = records.read(run.folder)
    if is_measured(run.config):
        return records.FINISHED, "meanwhile, or not taken in"
    if leftovers.is_held(run.folder) or (record.state == records.RUNNING and job_state):
        return "running", f"job {job.id}" if job is not None and job_state else "another process"
    if job is not None and job_state:
        return "waiting", f"job {job.id} is {job_state}"
    log = f"job {job.id} has ended; its log: {job.log}" if job is not None else ""
    if record.state in (records.RUNNING, records.DAMAGED) or not record.message:
        state = records.INTERRUPTED if record.state == records.RUNNING else record.state
        return state, log
    return record.state, "; ".join(part for part in (record.message, log) if part)


@dataclass(frozen=True)
class Job:
    """A job that was submitted.

    Attributes:
        executor, host: submitit's kind, and the machine that submitted it.
        submitted: when, by that machine's clock, after it was started if it is a process.
        id: the cluster's, or that of a process.
        log: what it wrote, by then, to stderr.
    """

    executor: str
    host: str
    submitted: float
    id: str
    log: Path


def _latest_jobs(output: Path) -> dict[str, Job]:
    """Key of a training -> the job that it was given to last."""
    jobs: dict[str, Job] = {}
    for path in sorted((output / FOLDER).glob(f"*/{JOBS}")):
        about = json.loads(path.read_text())
        for job_id, keys in about["jobs"].items():
            log = path.parent / "jobs" / f"{job_id}_0_log.err"
            jobs.update(dict.fromkeys(keys, Job(about["executor"], about["host"], about["submitted"], job_id, log)))
    return jobs


def _going(jobs: Mapping[str, Job]) -> dict[str, str]:
    """Key of a training -> state of its job, of jobs that have not ended."""
    queued = _queued() if any(job.executor == "slurm" for job in jobs.values()) else {}
    states = {job: _local_state(job) if job.executor == "local" else queued.get(job.id, "") for job in jobs.values()}
    return {key: states[job] for key, job in jobs.items() if states[job]}


def _local_state(job: Job) -> str:
    if job.host != socket.gethostname() or not leftovers.is_alive(int(job.id)):
        return ""
    # Since then another process may have got its number.
    with suppress(psutil.NoSuchProcess):
        return "going on" if psutil.Process(int(job.id)).create_time() <= job.submitted + _CLOCKS_APART else ""
    return ""


def _queued() -> dict[str, str]:
    """Id of each of this user's jobs that SLURM has -> its state."""
    if shutil.which("squeue") is None:
        print("warning: there is no squeue here, so that what jobs do is not known", file=sys.stderr)
        return {}
    asked = ["squeue", "--me", "--noheader", "--array", "--format=%i %T"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise ReproError(f"squeue, which is asked what jobs do, fails: {' '.join(answer.stderr.split())}.")
    return {job_id: state.lower() for job_id, state in (line.split() for line in answer.stdout.splitlines())}
