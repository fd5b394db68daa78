"""One trial: its trainings, what they are worth where the budget is spent, and the process that does them.

The process that does a trial talks to the one that has the study through a pipe: it tells what every point of the
budget was worth, and is answered whether to go on. Only the latter opens the study.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pytorch_lightning as pl

from repro.common.errors import ReproError
from repro.common.stopping import stopped_by_signals
from repro.config.schema import Config
from repro.running.executing import execute, without_force
from repro.running.lightning_modules import training_in
from repro.running.training import EndsEarly
from repro.stored.results import Results
from repro.stored.trained import folder_of
from repro.tracking import record as records
from repro.tracking.record import DONE, FAILED
from repro.tuning.config import ITERATION, BudgetConfig, ObjectiveConfig

REPORT, DONE_WITH, PRUNED, BROKE, STOPPED, FAULT = "report", "done", "pruned", "failed", "stopped", "fault"
"""What a process tells of a trial: a value at a point; or, last, its values, or why it ended otherwise."""


@dataclass(frozen=True)
class Task:
    """What a process does: trainings one after the other.

    Attributes:
        number: of the trial; None for trainings that are no trial, and never pruned.
        configs: one per seed.
        labels: tags of their runs in MLflow, target -> scale.
    """

    number: int | None
    configs: Sequence[Config]
    labels: Mapping[str, str]
    objective: ObjectiveConfig
    budget: BudgetConfig


# -- what a training is worth ----------------------------------------------------------------------------------------


def points(budget: BudgetConfig) -> list[float]:
    """Where a trial may be pruned, in the budget's metric; the last is its limit."""
    return [budget.limit * (point + 1) / budget.points for point in range(budget.points)]


def curve(config: Config, objective: ObjectiveConfig, budget: BudgetConfig) -> dict[int, float]:
    """Point -> value there, of the points that a training has come to and were not before its first evaluation.

    Raises:
        ReproError: evaluations measure no such metric.
    """
    spent, values = _measured(config, objective, budget)
    reached = {n: at for n, at in enumerate(points(budget)) if spent and spent[0] <= at <= spent[-1]}
    return {n: float(np.interp(at, spent, values)) for n, at in reached.items()}


def _measured(config: Config, objective: ObjectiveConfig, budget: BudgetConfig) -> tuple[list[float], list[float]]:
    """What of the budget's metric was spent at a training's evaluations, and what the objective's was there."""
    rows = Results(config, folder_of(config)).rows().get(objective.readout, {})
    for step, metrics in rows.items():
        wanted = [objective.metric, *([budget.metric] if budget.metric != ITERATION else [])]
        for name in (name for name in wanted if name not in metrics):
            raise ReproError(
                f"the metric {name} was not measured of {objective.readout} after iteration {step} of "
                f"{folder_of(config).name}; there are {', '.join(sorted(metrics))}."
            )
    spent = [step if budget.metric == ITERATION else metrics[budget.metric] for step, metrics in sorted(rows.items())]
    return [float(s) for s in spent], [metrics[objective.metric] for _, metrics in sorted(rows.items())]


def value_of(config: Config, objective: ObjectiveConfig, budget: BudgetConfig) -> float:
    """What a finished training is worth where the budget is spent.

    Raises:
        ReproError: it was not evaluated before and after.
    """
    found = curve(config, objective, budget)
    if budget.points - 1 not in found:
        spent, _ = _measured(config, objective, budget)
        at = f" (its evaluations are at {spent[0]:,.0f} to {spent[-1]:,.0f})" if spent else ""
        raise ReproError(
            f"budget.limit is {budget.limit:g} {budget.metric}, which the run {folder_of(config).name} was not "
            f"evaluated at or around{at}; give it more iterations, evaluate it earlier, or take another limit."
        )
    return found[budget.points - 1]


# -- the process -----------------------------------------------------------------------------------------------------


class Reports(EndsEarly):
    """Tells the study what a trial's trainings are worth, and stops them where it is answered so.

    Args:
        pipe: to the process that has the study.

    Attributes:
        fault: why nothing can be told; None if all can.
    """

    def __init__(self, task: Task, pipe: Connection) -> None:
        self._task, self._pipe = task, pipe
        self.fault: ReproError | None = None
        self._number, self._told = 0, set[int]()

    def begin(self, number: int) -> None:
        """The trial's training of this number comes next."""
        self._number, self._told = number, set()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if training_in(pl_module).is_due and not self.report():
            trainer.should_stop = True

    def report(self) -> bool:
        """Tell of the points that were come to since; whether the trial is to go on."""
        task = self._task
        try:
            found = curve(task.configs[self._number], task.objective, task.budget)
        except ReproError as error:
            # Raised here it would end the training, as one that failed.
            self.fault, self.reason = error, str(error)
            return False
        for point, value in found.items():
            if task.number is None or point in self._told or self.reason:
                continue
            self._told.add(point)
            self._pipe.send((REPORT, self._number * task.budget.points + point, value))
            if self._pipe.recv():
                self.reason = f"pruned: {task.objective.metric} was {value:.4g} at point {point + 1}"
        return not self.reason


_reports: Reports | None = None


def reports() -> Reports:
    """The callback of the trial that this process does: Lightning's Trainer takes callbacks by such names."""
    assert _reports is not None
    return _reports


def work(task: Task, environment: Mapping[str, str], pipe: Connection) -> None:
    """What a process does: the task's trainings; tells how they ended."""
    os.environ.update(environment)
    with suppress(KeyboardInterrupt), stopped_by_signals():
        try:
            pipe.send(_ended(task, pipe))
        except ReproError as error:
            pipe.send((FAULT, str(error)))


def _ended(task: Task, pipe: Connection) -> tuple[Any, ...]:
    """What is to be told of a task.

    Raises:
        ReproError: the study is at fault.
    """
    global _reports
    _reports = Reports(task, pipe)
    for number, config in enumerate(task.configs):
        _reports.begin(number)
        state = execute(without_force([_with_callback(config)]), task.labels)
        record = records.read(folder_of(config))
        if state in DONE:
            _reports.report()
        if _reports.fault is not None:
            raise _reports.fault
        if _reports.reason:
            return PRUNED, _reports.reason
        if state not in DONE:
            return BROKE if state == FAILED else STOPPED, record.message
    return DONE_WITH, [value_of(config, task.objective, task.budget) for config in task.configs]


def _with_callback(config: Config) -> Config:
    callbacks = dict(config.trainer.get("callbacks") or {})
    callbacks["study"] = {"_target_": f"{__name__}.{reports.__name__}"}
    return replace(config, trainer={**config.trainer, "callbacks": callbacks})
