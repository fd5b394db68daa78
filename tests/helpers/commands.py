"""Commands of the suite as tests call them, and what their runs left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow import MlflowClient

from repro.config.keys import training_key
from repro.config.schema import Config
from repro.plans.planned import Run
from repro.plans.planning import plan
from repro.running.executing import execute, without_force
from repro.running.saving import Checkpoints
from repro.stored.results import measured_rows
from repro.tracking import record as records
from repro.tracking.folders import run_folder

SMALL = (
    "game=kuhn", "algorithm=sd_cfr_and_deep_cfr", "algorithm.iterations=30", "algorithm.traversals=200",
    "algorithm.value.steps=30", "algorithm.value.batch_size=64", "algorithm.average.steps=20",
    "algorithm.average.batch_size=64", "algorithm.value_capacity=1000", "algorithm.strategy_capacity=1000",
    "algorithm.snapshot_every=5", "network.width=16",
)  # fmt: skip
"""A training of a second or two."""


def command(*overrides: str, module: str = "run") -> list[str]:
    return [sys.executable, "-m", f"repro.{module}", *overrides]


def call(*overrides: str, module: str = "run") -> subprocess.CompletedProcess[str]:
    arguments = command(*overrides, module=module)
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=300)


def call_here(*overrides: str, module: str = "run") -> subprocess.CompletedProcess[str]:
    """The same in this process, which has imported already what takes a new one seconds."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = import_module(f"repro.{module}").main(overrides)
    return subprocess.CompletedProcess(overrides, status, out.getvalue(), err.getvalue())


def configs(*overrides: str, multirun: bool = True) -> list[Config]:
    """Of the runs that a command line asks for."""
    return [config for run in plan(overrides, multirun).runs for config in run.configs]


def planned(*overrides: str) -> Run:
    """The one run that a command line without `-m` asks for."""
    (run,) = plan(overrides, multirun=False).runs
    return run


def executed(*overrides: str) -> str:
    """The state that this run ended in, done in this process."""
    run = planned(*overrides)
    return execute(without_force(run.configs), run.labels)


def in_a_child(does: Callable[[], object]) -> int:
    """What a process ends with that does something: 0, 1 if it raises, -9 if it is killed."""
    child = os.fork()
    if child == 0:
        try:
            does()
            os._exit(0)
        finally:
            os._exit(1)  # Or this process would go on with the tests.
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def trained_seeds(output: Path) -> Path:
    """The folder, with three seeds of `SMALL` and one of it with fewer traversals."""
    for overrides in (["seed=0"], ["seed=1"], ["seed=2"], ["algorithm.traversals=150"]):
        assert executed(*SMALL, *overrides, f"output_dir={output}") == records.FINISHED
    return output


def killed_after(checkpoints: int, *overrides: str) -> None:
    """Do this run in a process that is killed when it has written so many checkpoints."""
    save, calls = Checkpoints.save, []

    def saved(*arguments: Any) -> None:
        save(*arguments)
        calls.append(arguments)
        if len(calls) == checkpoints:
            os.kill(os.getpid(), signal.SIGKILL)

    def killed() -> None:
        Checkpoints.save = saved  # type: ignore[method-assign,assignment]
        executed(*overrides, "checkpoint_every_seconds=0")

    assert in_a_child(killed) == -signal.SIGKILL


@cache
def key_of(*overrides: str) -> str:
    """A training's; composing its configuration takes a third of a second, and tests ask for the same ones often."""
    (config,) = configs(*overrides, multirun=False)
    return training_key(config)


def folder_of(output: Path, *overrides: str) -> Path:
    return run_folder(output, key_of(*overrides))


def results(output: Path, overrides: tuple[str, ...]) -> pd.DataFrame:
    """Everything that the runs measured, wall times aside."""
    rows = [
        (config.seed, *row)
        for config in configs(*overrides, f"output_dir={output}")
        for row in measured_rows(config)
        if row[1] != "wall_seconds"
    ]
    data = pd.DataFrame(rows, columns=["seed", "readout", "metric", "step", "value"])
    return data.sort_values(["seed", "readout", "metric", "step"], ignore_index=True)


def only_folder(output: Path) -> Path:
    (folder,) = (output / "runs").iterdir()
    return folder


def tracked(output: Path) -> tuple[MlflowClient, list]:
    """The MLflow client of an output folder, and all runs in it."""
    client = MlflowClient(f"sqlite:///{output / 'mlflow.db'}")
    return client, list(client.search_runs([e.experiment_id for e in client.search_experiments()]))
