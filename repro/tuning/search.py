"""The search of a study, and what it was good for: trials until there are enough, then the best and the default."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from repro.common.errors import ReproError
from repro.config.checks import check_device
from repro.config.keys import training_key
from repro.config.schema import Config
from repro.jobs.launching import Command
from repro.running.lifetimes import COMMAND_PROCESS, this_process
from repro.stored.output import prepare_output
from repro.stored.results import is_done
from repro.tuning import page
from repro.tuning.config import StudyConfig, runs
from repro.tuning.study import KEYS, Study, folder_of, opened, report, tell
from repro.tuning.tracked import TrackedTrials
from repro.tuning.trials import BROKE, DONE_WITH, FAULT, PRUNED, Task, value_of
from repro.tuning.workers import Workers

DEFAULT, BEST = "default", "best"
"""What is trained on fresh seeds."""


def tune(config: StudyConfig, default: Config, config_dir: str | None) -> int:
    """Do a study, or what is left of it, and write its page.

    Args:
        default: the training that trials are compared with.

    Returns:
        The exit status: 0, or 1 if something did not end.

    Raises:
        ReproError: the study is at fault.
    """
    check_device(default)
    output = prepare_output(config.output_dir)
    with opened(config) as study:
        # Opens the store, so that no two trials race for a new one, and shows as ended what is.
        Command(output, config.tracking_uri, None)
        study.enqueue_default(default)
        environment = {name: os.environ[name] for name in os.environ if name.startswith("REPRO_")}
        workers = Workers(config.jobs, environment | {COMMAND_PROCESS: this_process()})
        tuning = Tuning(study, workers, TrackedTrials(study), config_dir)
        print(f"study {config.study}: {folder_of(config)}", flush=True)
        try:
            tuning.search()
            fresh = tuning.compare()
        finally:
            workers.stop()
        for sentence in tuning.left:
            print(f"warning: {sentence}", file=sys.stderr)
        path = page.write(study, fresh)
    print(f"page: {path}")
    return 1 if tuning.left else 0


class Tuning:
    """One command's work on a study.

    Args:
        config_dir: a folder of further configurations.
    """

    def __init__(self, study: Study, workers: Workers, tracked: TrackedTrials, config_dir: str | None) -> None:
        self._study, self._workers, self._tracked, self._config_dir = study, workers, tracked, config_dir
        self._config = study.config
        self.left: list[str] = []
        """What did not end, a sentence each."""

    def search(self) -> None:
        """Do trials until there are as many as are wanted.

        Raises:
            ReproError: the study is at fault.
        """
        while True:
            while self._workers.has_room and not self._study.is_full:
                self._begin()
            # Once workers have something to do, which needs no store.
            self._tracked.catch_up()
            if not self._workers.are_busy:
                return
            for task, pipe, message in self._workers.messages():
                if message[0] == "report":
                    answer = self._is_pruned(task, message[1], message[2])
                    with suppress(OSError):  # A process that was killed meanwhile: what it leaves is told next.
                        pipe.send(answer)
                else:
                    self._end(task, message)

    def compare(self) -> dict[str, list[Config]]:
        """Train the best trial and the default on fresh seeds; returns the trainings of each."""
        best = self._study.best
        if best is None or not self._config.fresh_seeds:
            return {}
        changes: dict[str, list[str]] = {DEFAULT: [], BEST: self._study.changes(best.params)}
        configs = {n: runs(self._config, c, self._config.fresh_seeds, self._config_dir) for n, c in changes.items()}
        due: dict[str, Task] = {}  # By keys: the best may be the default.
        for name, of_seeds in configs.items():
            for config in of_seeds:
                if not is_done(config):
                    due.setdefault(training_key(config), self._task(None, [config], name))
        waiting = list(due.values())
        print(f"{len(waiting)} training(s) of {DEFAULT} and {BEST} on fresh seeds", flush=True)
        while waiting or self._workers.are_busy:
            while waiting and self._workers.has_room:
                self._workers.start(waiting.pop(0))
            for task, _, message in self._workers.messages():
                if not all(map(is_done, task.configs)):
                    self._check(task, message)
        for name, of_seeds in configs.items():
            self.left += [f"{name}: {sentence}" for sentence in map(self._lacks, of_seeds) if sentence]
        return configs

    def _lacks(self, config: Config) -> str:
        """Why a finished training cannot be compared; empty if it can, or is not finished."""
        try:
            if is_done(config):
                value_of(config, self._config.objective, self._config.budget)
        except ReproError as error:
            return str(error)
        return ""

    def _begin(self) -> None:
        trial = self._study.next_trial()
        changes = self._study.changes(trial.params)
        try:
            configs = runs(self._config, changes, self._config.seeds, self._config_dir)
        except ReproError as error:
            self._fail(trial.number, str(error))
            return
        trial.set_user_attr(KEYS, [training_key(config) for config in configs])
        self._workers.start(self._task(trial.number, configs, f"trial-{trial.number}"))

    def _task(self, number: int | None, configs: Sequence[Config], name: str) -> Task:
        labels = {f"tune.{self._config.study}": name}
        return Task(number, configs, labels, self._config.objective, self._config.budget)

    def _is_pruned(self, task: Task, step: int, value: float) -> bool:
        assert task.number is not None
        return report(self._study, task.number, step, value)

    def _end(self, task: Task, message: Sequence[Any]) -> None:
        assert task.number is not None
        if message[0] == FAULT:
            self._fail(task.number, str(message[1]))
            return
        if not self._check(task, message) and message[0] not in (BROKE, PRUNED):
            return
        kind, what = message
        tell(self._study, task.number, what if kind == DONE_WITH else None, pruned=kind == PRUNED)
        ended = f"{sum(what) / len(what):.4g}" if kind == DONE_WITH else what if kind == PRUNED else f"failed: {what}"
        best = self._study.best
        so_far = f" (best {best.value:.4g}, trial {best.number})" if best is not None else ""
        print(f"trial {task.number}: {ended}{so_far}", flush=True)

    def _fail(self, number: int, why: str) -> None:
        """Note a trial that cannot be done, so that the study goes on without it.

        Raises:
            ReproError: it was the first: the study is at fault.
        """

        tell(self._study, number, None)
        if number == 0:
            self._study.came_to_nothing()
            raise ReproError(f"the first trial cannot be done: {why}")
        self.left.append(f"trial {number}: {why}")
        print(f"trial {number}: failed: {why}", flush=True)

    def _check(self, task: Task, message: Sequence[Any]) -> bool:
        """Whether a task was done; if not, that is noted."""

        if message[0] not in (DONE_WITH, PRUNED):
            (name,) = task.labels.values()
            self.left.append(f"{name}: {message[1]}")
        return bool(message[0] == DONE_WITH)
