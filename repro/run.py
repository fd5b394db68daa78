"""Train and evaluate: `python -m repro.run [-m] KEY=VALUE ...`.

One linear path. Before any work, every run that the command line asks for is composed and checked, the output folder
and the tracking store are tried, and the invocation's MLflow run is made. Then Hydra's launcher calls `execute` for
each: skip what is finished, continue what is not, train, log, and leave a status for the table at the end.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
import uuid
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import hydra
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from rich.table import Table

from repro.config import game_of, hyperparameters, register, result_config, run_key, settings, single_runs
from repro.errors import ReproError
from repro.tracking import status
from repro.tracking.progress import Job, Watcher, console

if TYPE_CHECKING:
    from mlflow import MlflowClient

CONF = Path(__file__).resolve().parents[1] / "conf"
_INVOCATION = "REPRO_INVOCATION"
_PARENT_RUN = "REPRO_PARENT_RUN"
COMMAND_PROCESS = "REPRO_COMMAND_PROCESS"
"""Environment variable: host and process id of the command that this process must not outlive."""
_SEED = re.compile("seed=(0|[1-9][0-9]*)")
_LOOK_EVERY_SECONDS = 1.0
_KEYS: dict[tuple[str, ...], str] = {}
"""Keys of referenced runs. A reference is resolved many times while its run is planned, and composing takes long."""

register()


# -- before any work -------------------------------------------------------------------------------------------------


def plan(overrides: Sequence[str], multirun: bool) -> list[DictConfig]:
    """Compose and check every run that a command line asks for.

    Raises:
        ReproError: one sentence about the first thing that is wrong.
    """
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            configs = _composed(_jobs(overrides, multirun))
        for config in configs:
            _check(config)
        _check_different(configs)
    except (HydraException, OmegaConfBaseException) as error:
        raise ReproError(_one_sentence(error)) from error
    except (ValueError, AssertionError) as error:
        # What Hydra raises for a choice that is no name, such as network=null, says neither key nor value.
        raise ReproError(f"bad configuration: {' '.join(overrides)}: {error}") from error
    return configs


def _composed(jobs: Sequence[Sequence[str]]) -> list[DictConfig]:
    """A configuration per job. Those that differ by `seed=NUMBER` alone are composed once, which takes time."""
    made: dict[tuple[str, ...], DictConfig] = {}
    configs = []
    for job in jobs:
        others = tuple(override for override in job if not _SEED.fullmatch(override))
        if others not in made:
            made[others] = compose("config", list(others), return_hydra_config=True)
        config = made[others].copy()
        for seed in filter(None, map(_SEED.fullmatch, job)):
            config.seed = int(seed[1])
        configs.append(config)
    return configs


def _jobs(overrides: Sequence[str], multirun: bool) -> list[list[str]]:
    """The overrides of each job, expanded as Hydra's basic sweeper does."""
    if not multirun:
        return [list(overrides)]
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # noqa: PLC0415  (heavy, sweeps only)

    parser, launched = OverridesParser.create(), _launched(overrides)
    forced = {new.partition("=")[0] for new, old in zip(launched, overrides, strict=True) if new != old}
    fixed = [o.input_line for o in parser.parse_overrides(launched) if not o.is_sweep_override()]
    master = compose("config", [line for line in fixed if line], return_hydra_config=True)
    swept = [f"{k}={v}" for k, v in (master.hydra.sweeper.get("params") or {}).items()]
    jobs = BasicSweeper.split_arguments(parser.parse_overrides([*swept, *launched]), None)[0]
    return [[o.removeprefix("++") if o.partition("=")[0] in forced else o for o in job] for job in jobs]


def _launched(overrides: Sequence[str]) -> list[str]:
    """What to give Hydra for the overrides of a sweep.

    Hydra composes what is not swept before it sweeps, and so without the choices of `algorithm=dcvn,devn`; a key below
    `algorithm` would be refused. Such a key is forced (`++`). The plan, which is made without, refuses it where it does
    not exist.
    """
    parsed = [OverridesParser.create().parse_override(line) for line in overrides]
    swept = tuple(f"{o.key_or_group}." for o in parsed if o.is_sweep_override())
    plain = [not (o.is_add() or o.is_force_add() or o.is_delete() or o.is_sweep_override()) for o in parsed]
    return [
        f"++{line}" if plain_ and o.key_or_group.startswith(swept) else line
        for line, o, plain_ in zip(overrides, parsed, plain, strict=True)
    ]


def _check_different(configs: Sequence[DictConfig]) -> None:
    """Refuse batched runs that would do the same seeds at once."""
    plain = [without_hydra(c) for c in configs]
    keys = [run_key(one) for c in plain for one in single_runs(c)]
    if len(set(keys)) < len(keys) and any(c.seeds is not None for c in plain):
        raise ReproError(
            f"seeds is {plain[0].seeds}, but of the {len(configs)} runs asked for several would do the same seed; "
            "where an experiment has seeds of its own, add seed=0."
        )


def _key_of(*overrides: str, _root_: DictConfig) -> str:
    """`${run_key:OVERRIDE,...}`: the key of another run, with the seed, device and threads of the run that asks."""
    asked = (*(f"{key}={_root_[key]}" for key in ("seed", "device", "threads")), *overrides)
    if asked not in _KEYS:
        composing = initialize_config_dir(str(CONF), version_base="1.3") if not GlobalHydra().is_initialized() else None
        with composing or nullcontext():
            _KEYS[asked] = run_key(without_hydra(compose("config", [*asked], return_hydra_config=True)))
    return _KEYS[asked]


def _register_resolver() -> None:
    OmegaConf.register_new_resolver("run_key", _key_of, replace=True)


_register_resolver()


def _check(config: DictConfig) -> None:
    checked = settings(without_hydra(config))
    game_of(checked)
    if checked.device == "cuda" and not torch.cuda.is_available():
        raise ReproError("device is 'cuda', but torch finds no GPU here; cpu always works.")


def without_hydra(config: DictConfig) -> DictConfig:
    """A composed configuration less Hydra's own node."""
    copy = config.copy()
    with open_dict(copy):
        copy.pop("hydra", None)
    return copy


def _one_sentence(error: BaseException) -> str:
    """Hydra explains itself over several lines; keep what names the key, the value and what is allowed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = error.__cause__
    if cause is not None and not isinstance(cause, ReproError):
        lines += [line.strip() for line in str(cause).splitlines() if line.strip()]
    drop = (
        "full_key:",
        "To append to your config",
        "Config search path",
        "provider=",
        "object_type=",
        "reference_type=",
        "Check that",
    )
    kept = [line for line in dict.fromkeys(lines) if not line.startswith(drop)]
    return "bad configuration: " + "; ".join(kept)


def prepare_output(output_dir: str) -> Path:
    """Make the output folder and try to write in it.

    Raises:
        ReproError: it cannot be written.
    """
    folder = Path(output_dir).absolute()
    probe = folder / f".write-test-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise ReproError(
            f"output_dir is {output_dir!r}; it must be a folder that can be written ({error.strerror})."
        ) from error
    return folder


def run_folder(output_dir: str | Path, key: str) -> Path:
    """Where a run's checkpoints, status and log are."""
    return Path(output_dir).absolute() / "runs" / key


# -- one run ---------------------------------------------------------------------------------------------------------


def execute(config: DictConfig) -> str:
    """Do one run and return the state it ended in. Never raises for a fault of one run: the status file tells it."""
    _end_with_the_command()
    # A launcher's worker has not run this module's top level.
    _register_resolver()
    config = without_hydra(config)
    key = run_key(config)
    folder = run_folder(config.output_dir, key)
    folder.mkdir(parents=True, exist_ok=True)
    # A batched run does the runs of its seeds, and nobody else may do one of them meanwhile.
    seeds = [run_folder(config.output_dir, run_key(one)) for one in single_runs(config)]
    with ExitStack() as stack:
        # All commands in the same order, so that no two wait for each other.
        for mine in sorted({folder, *seeds}):
            mine.mkdir(parents=True, exist_ok=True)
            if _take(stack.enter_context((mine / "lock").open("w")), mine.name):
                config.force = False  # It is new.
        return _execute_alone(config, key, folder)


def _take(lock: IO[str], key: str) -> bool:
    """Wait for a run if another process does it; afterwards it is finished, or to be continued. Whether one did."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"run {key} is being done by another process; waiting for it", file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return True
    return False


def _execute_alone(config: DictConfig, key: str, folder: Path) -> str:
    state = status.read(folder).taken_up(os.environ.get(_INVOCATION, ""))
    status.write(folder, state)
    try:
        from repro.training import train  # noqa: PLC0415  (imports Lightning and MLflow, which takes seconds)

        state.state = train(config, folder, state, os.environ.get(_PARENT_RUN) or None)
    except (KeyboardInterrupt, SystemExit):  # Lightning turns the first into the second.
        state.state, state.message = status.INTERRUPTED, "repeat the command to continue"
        status.write(folder, state)
        raise KeyboardInterrupt from None
    except ReproError as error:
        state.state, state.message = status.FAILED, str(error)
    except Exception as error:  # One failed run must not stop the others of a sweep.
        log = folder / "error.txt"
        log.write_text(traceback.format_exc())
        state.state, state.message = status.FAILED, f"{type(error).__name__}: {error} (traceback in {log})"
    status.write(folder, state)
    return state.state


def _end_with_the_command() -> None:
    """Let this worker process end when the command that started it on this machine is gone.

    A killed command cannot stop its workers; left alone they would go on beside those of the repeated command.
    """
    host, _, pid = os.environ.get(COMMAND_PROCESS, "").rpartition(":")
    if host != socket.gethostname() or int(pid) == os.getpid():
        return

    def look() -> None:
        while True:
            time.sleep(_LOOK_EVERY_SECONDS)
            try:
                os.kill(int(pid), 0)
            except ProcessLookupError:
                os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def _hydra_main(config: DictConfig) -> str:
    return execute(config)


# -- the command -----------------------------------------------------------------------------------------------------


def main() -> int:
    """Entry point; returns the exit status: 0, 1 if a run failed, 2 if the request was at fault."""
    from hydra._internal.utils import get_args_parser  # noqa: PLC0415

    # With this set, Hydra hands its exceptions on instead of printing and exiting.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    arguments, unknown = get_args_parser().parse_known_args()
    asks_only = arguments.help or arguments.hydra_help or arguments.cfg or arguments.info
    if asks_only or arguments.shell_completion or unknown:
        try:
            _hydra_main()
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            print(f"error: {_one_sentence(error)}", file=sys.stderr)
            return 2
        return 0
    try:
        return _run(arguments.overrides, arguments.multirun)
    except ReproError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; repeat the command to continue from the last checkpoints.", file=sys.stderr)
        return 130


def _run(overrides: list[str], multirun: bool) -> int:
    configs = plan(overrides, multirun)
    if multirun:
        launched = dict(zip(overrides, _launched(overrides), strict=True))
        sys.argv = [launched.get(argument, argument) for argument in sys.argv]
    first = configs[0]
    output = prepare_output(first.output_dir)
    _end_with_the_command()

    from repro.tracking.store import default_uri, experiment_id, open_store  # noqa: PLC0415

    client = open_store(first.tracking_uri or default_uri(output))
    experiment = experiment_id(client, first.target, output / "artifacts")
    invocation = uuid.uuid4().hex
    command = " ".join(["python -m repro.run", *(["-m"] if multirun else []), *overrides])
    parent = client.create_run(experiment, tags={"repro.command": command}, run_name=time.strftime("%Y-%m-%d %H:%M:%S"))
    os.environ[_INVOCATION], os.environ[_PARENT_RUN] = invocation, parent.info.run_id
    os.environ[COMMAND_PROCESS] = f"{socket.gethostname()}:{os.getpid()}"
    signal.signal(signal.SIGTERM, _interrupt)

    plain = [without_hydra(c) for c in configs]
    keys = [run_key(c) for c in plain]
    labels = _labels([result_config(c) for c in plain])
    jobs = [Job(label, run_folder(output, key)) for label, key in zip(labels, keys, strict=True)]
    print(f"{len(jobs)} run(s); files in {output}", file=sys.stderr)
    interrupted: BaseException | None = None
    with Watcher(jobs, invocation, _parallel(first)) as watcher:
        try:
            _hydra_main()
        except KeyboardInterrupt as error:
            interrupted = error
        except Exception as error:  # A launcher that lost a worker raises what it likes; the statuses tell the rest.
            interrupted = error
    failed = _report(jobs, watcher.statuses(), interrupted)
    if interrupted is not None:
        ours = [status.read(job.folder).invocation == invocation for job in jobs]
        mine = [c for c, own in zip(plain, ours, strict=True) if own]
        _close(client, experiment, [run_key(one) for c in mine for one in single_runs(c)])
    client.set_terminated(parent.info.run_id, "FAILED" if failed else "FINISHED")
    if isinstance(interrupted, KeyboardInterrupt):
        raise interrupted
    return 1 if failed else 0


def _close(client: MlflowClient, experiment: str, keys: Sequence[str]) -> None:
    """Mark the runs of workers that were ended from outside as KILLED; they can be continued."""
    from repro.tracking.store import find_runs  # noqa: PLC0415

    for key in keys:
        for run in find_runs(client, experiment, key).values():
            if run.info.status == "RUNNING":
                client.set_terminated(run.info.run_id, "KILLED")


def _labels(configs: Sequence[dict[str, Any]]) -> list[str]:
    """A name per run: game, algorithm, seed, and whatever else differs within the command."""
    flat = [{**hyperparameters(c), "seed": c.get("seed", c["seeds"])} for c in configs]
    always = ("game.name", "algorithm.name", "seed")
    # Keys that only some of the algorithms have say no more than the algorithm's name.
    keys = sorted(set.intersection(*(set(f) for f in flat)) - set(always))
    differ = [k for k in keys if len({str(f[k]) for f in flat}) > 1]
    return [
        " ".join([f"{f['game.name']} {f['algorithm.name']} seed={f['seed']}", *(f"{k}={f[k]}" for k in differ)])
        for f in flat
    ]


def _parallel(config: DictConfig) -> int:
    """How many runs the launcher does at once (1 for launchers that do not say)."""
    jobs = config.hydra.launcher.get("n_jobs", 1)
    return (os.cpu_count() or 1) if jobs in (-1, None) else int(jobs)


def _report(jobs: Sequence[Job], statuses: Sequence[status.Status], interrupted: BaseException | None) -> bool:
    """Print what became of each run; whether any did not finish."""
    table = Table("run", "key", "state", "result", box=None)
    failed = False
    for job, found in zip(jobs, statuses, strict=True):
        good = found.state in (status.FINISHED, status.SKIPPED)
        failed |= not good
        why = found.message or (found.headline if good else f"did not finish: {_reason(interrupted)}")
        state = "failed" if not good and interrupted is None else found.state
        table.add_row(job.label, job.folder.name, state, why)
    console(sys.stderr).print(table)
    return failed


def _reason(interrupted: BaseException | None) -> str:
    if isinstance(interrupted, KeyboardInterrupt):
        return "interrupted"
    return str(interrupted) if interrupted else "see the messages above"


if __name__ == "__main__":
    sys.exit(main())
