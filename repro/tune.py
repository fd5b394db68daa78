"""Tune hyperparameters: `python -m repro.tune NAME [KEY=VALUE ...]`, where NAME is a file in `conf/tune`.

Trials are drawn by Optuna and done in processes of their own, `jobs` at once. Each is one training per seed, worth the
mean of its metric where the budget is spent, and pruned at points of the budget by what evaluations found. The study is
in `output_dir`/tune/<study>/: a command that was stopped, by Ctrl-C or by force, continues when it is repeated. At the
end the best trial and the default are trained on fresh seeds, and the study's page says what was gained
(`repro.tuning.page`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import CAN_BE_REPEATED, stoppable

if TYPE_CHECKING:
    from repro.config.schema import Config
    from repro.tuning.config import StudyConfig
    from repro.tuning.study import Study
    from repro.tuning.tracked import TrackedTrials
    from repro.tuning.trials import Task
    from repro.tuning.workers import Workers

DEFAULT, BEST = "default", "best"
"""What is trained on fresh seeds."""


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
        from repro.config.keys import training_key  # noqa: PLC0415
        from repro.stored.results import is_done  # noqa: PLC0415
        from repro.tuning.config import runs  # noqa: PLC0415

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
        from repro.stored.results import is_done  # noqa: PLC0415
        from repro.tuning.trials import value_of  # noqa: PLC0415

        try:
            if is_done(config):
                value_of(config, self._config.objective, self._config.budget)
        except ReproError as error:
            return str(error)
        return ""

    def _begin(self) -> None:
        from repro.config.keys import training_key  # noqa: PLC0415
        from repro.tuning.config import runs  # noqa: PLC0415
        from repro.tuning.study import KEYS  # noqa: PLC0415

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
        from repro.tuning.trials import Task  # noqa: PLC0415

        labels = {f"tune.{self._config.study}": name}
        return Task(number, configs, labels, self._config.objective, self._config.budget)

    def _is_pruned(self, task: Task, step: int, value: float) -> bool:
        from repro.tuning.study import report  # noqa: PLC0415

        assert task.number is not None
        return report(self._study, task.number, step, value)

    def _end(self, task: Task, message: Sequence[Any]) -> None:
        from repro.tuning.study import tell  # noqa: PLC0415
        from repro.tuning.trials import BROKE, DONE_WITH, FAULT, PRUNED  # noqa: PLC0415

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
        from repro.tuning.study import tell  # noqa: PLC0415

        tell(self._study, number, None)
        if number == 0:
            self._study.came_to_nothing()
            raise ReproError(f"the first trial cannot be done: {why}")
        self.left.append(f"trial {number}: {why}")
        print(f"trial {number}: failed: {why}", flush=True)

    def _check(self, task: Task, message: Sequence[Any]) -> bool:
        """Whether a task was done; if not, that is noted."""
        from repro.tuning.trials import DONE_WITH, PRUNED  # noqa: PLC0415

        if message[0] not in (DONE_WITH, PRUNED):
            (name,) = task.labels.values()
            self.left.append(f"{name}: {message[1]}")
        return bool(message[0] == DONE_WITH)


def run(words: Sequence[str], config_dir: str | None, dry_run: bool = False) -> int:
    """Do a study, or say what that would be; returns the exit status: 0, or 1 if something did not end.

    Raises:
        ReproError: the request is at fault.
    """
    from repro.tuning import config as config_of  # noqa: PLC0415

    names, overrides = [w for w in words if "=" not in w], [w for w in words if "=" in w]
    if len(names) != 1:
        given = f"is {' '.join(names)!r}" if names else "is missing"
        raise ReproError(
            "\n  ".join([f"NAME {given}; it must be one of the studies in conf/tune:", *_studies(config_dir)])
        )
    _check_keys(overrides)
    study = config_of.read([f"tune={names[0]}", *overrides], config_dir)
    default = config_of.runs(study, [], study.seeds, config_dir)
    _check_space(study, config_dir)
    if dry_run:
        return _foresee(study, default, config_dir)
    return _tune(study, default[0], config_dir)


def _check_keys(overrides: Sequence[str]) -> None:
    """Refuse a key of runs, which says what all trials have.

    Raises:
        ReproError: there is one.
    """
    from repro.config.schema import Config  # noqa: PLC0415
    from repro.tuning.config import NOT_TUNED, StudyConfig  # noqa: PLC0415

    of_runs = {each.name for each in fields(Config)} - {each.name for each in fields(StudyConfig)} - set(NOT_TUNED)
    for override in overrides:
        if override.lstrip("+~").partition("=")[0].partition(".")[0] in of_runs:
            raise ReproError(
                f"{override} is of the runs, not of the study: give what all trials have in overrides (docs/tuning.md)."
            )


def _studies(config_dir: str | None) -> list[str]:
    """A line per study that there is: its name, and the first comment of its file, which says what it is."""
    from repro.config.composed import CONF  # noqa: PLC0415

    folders = [CONF, *([] if config_dir is None else [Path(config_dir)])]
    files = {path.stem: path for folder in folders for path in sorted(folder.glob("tune/*.yaml"))}
    lines = []
    for name, path in files.items():
        comments = [line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#")]
        about = [comment for comment in comments if comment and not comment.startswith("@package")]
        lines.append(": ".join([name, *about[:1]]))
    return lines


def _check_space(study: StudyConfig, config_dir: str | None) -> None:
    """Compose the corners of a space, so that what cannot be is refused before any work.

    Raises:
        ReproError: a key is unknown, or a value impossible.
    """
    from repro.config.lightning import processes_of  # noqa: PLC0415
    from repro.jobs.needs import check_sizes  # noqa: PLC0415
    from repro.plans.planned import Run  # noqa: PLC0415
    from repro.tuning.config import parameters, runs  # noqa: PLC0415

    space = list(parameters(study.space))
    for last in (0, -1):
        changes = [p.override((p.choices or [p.low, p.high])[last]) for p in space]
        corner = runs(study, changes, study.seeds[:1], config_dir)
        check_sizes([Run([config], {}) for config in corner])
        for count in (count for config in corner if (count := processes_of(config)) > 1):
            raise ReproError(f"trainer.devices is {count}; a trial is done by one process, and jobs=... does several.")


def _foresee(config: StudyConfig, default: Sequence[Config], config_dir: str | None) -> int:
    """Print what is left of a study, without doing or writing anything; returns the exit status."""
    from repro.estimates.outlook import outlooks, show  # noqa: PLC0415
    from repro.jobs.needs import lacking_a_gpu  # noqa: PLC0415
    from repro.plans.planned import Run  # noqa: PLC0415
    from repro.tuning.config import runs  # noqa: PLC0415
    from repro.tuning.study import counts  # noqa: PLC0415

    ended, begun = counts(config)
    left, fresh = max(0, config.trials - ended), config.fresh_seeds
    compared = runs(config, [], fresh, config_dir) if fresh else []
    print(f"study {config.study}: {ended} of {config.trials} trial(s) ended, {begun} begun")
    then = f", and what is not done of the best and the default on {len(fresh)} fresh seed(s)" if fresh else ""
    print(f"left: {left} trial(s) of {len(config.seeds)} training(s) each{then}.")
    print("Of these it is not known how long they take; the default's trainings alone, which need not take as long:")
    trainings = [Run([each], {}) for each in [*default, *compared]]
    show(outlooks(trainings, Path(config.output_dir).absolute()), config.jobs)
    if lacking := lacking_a_gpu(trainings):
        print(lacking)
    return 0


def _tune(config: StudyConfig, default: Config, config_dir: str | None) -> int:
    from repro.config.checks import check_device  # noqa: PLC0415
    from repro.jobs.launching import Command  # noqa: PLC0415
    from repro.running.lifetimes import COMMAND_PROCESS, this_process  # noqa: PLC0415
    from repro.stored.output import prepare_output  # noqa: PLC0415
    from repro.tuning import page  # noqa: PLC0415
    from repro.tuning.study import folder_of, opened  # noqa: PLC0415
    from repro.tuning.tracked import TrackedTrials  # noqa: PLC0415
    from repro.tuning.workers import Workers  # noqa: PLC0415

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


@stoppable(CAN_BE_REPEATED)
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, 1 if a trial did not end or failed, 2 if the request was at fault."""
    parser = Parser(prog="python -m repro.tune", description=__doc__)
    parser.add_argument("words", metavar="NAME | KEY=VALUE", nargs="*", help="a file in conf/tune, and changes of it")
    parser.add_argument("--config-dir", "-cd", help="a folder of further configurations, as for repro.run")
    parser.add_argument("--dry-run", action="store_true", help="say what is left of the study; do nothing")
    options = parser.parse_intermixed_args(arguments)
    return run(options.words, options.config_dir, options.dry_run)


if __name__ == "__main__":
    sys.exit(main())
