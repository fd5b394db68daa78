"""Planned runs: what a run is, what runs share, and which must wait for others (their opponents)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from pathlib import Path

from repro.common.errors import ReproError
from repro.config.keys import training_key
from repro.config.schema import Config
from repro.tracking.folders import run_folder


@dataclass(frozen=True)
class Run:
    """One run: a training and what is measured of it, or several that differ by their seeds and are done together.

    Attributes:
        configs: checked, one per seed, ascending.
        labels: target -> scale; one run may serve several targets.
        title: what the command said of its hyperparameters, as its runs in MLflow are called (`repro.plans.naming`).
    """

    configs: Sequence[Config]
    labels: Mapping[str, str]
    title: str = ""

    @property
    def config(self) -> Config:
        """The first seed's."""
        return self.configs[0]

    @cached_property
    def key(self) -> str:
        """The training's; of several together, one that names their seeds, the same in whatever order they are."""
        first, *others = sorted(self.configs, key=lambda config: config.seed)
        return "-".join([training_key(first), *(["with", *(str(c.seed) for c in others)] if others else [])])

    @property
    def folder(self) -> Path:
        """Where its record is: the training's, or of several together one of their own."""
        return run_folder(self.config.output_dir, self.key)

    @property
    def needs(self) -> set[str]:
        """Keys of the trainings that its evaluations need."""
        evaluations = [e for config in self.configs for e in config.evaluation.values()]
        return {reference.partition("/")[0] for e in evaluations for reference in e.others}

    def waits_for(self, other: Run) -> bool:
        """Whether another run must be done first, because this one uses what it leaves."""
        return bool(self.config.algorithm.waits_for(other.config.algorithm))

    def learns_from(self, other: Run) -> bool:
        """Whether another run leaves the stored data that this one uses."""
        mine, others = (run.config.algorithm.stored_data(run.config) for run in (self, other))
        return self.waits_for(other) and mine == others


def stages(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs, each training once, in stages: those of a stage need only trainings of stages before it, or finished ones.

    Raises:
        ReproError: runs need each other.
    """
    waiting = union(runs)
    ordered: list[list[Run]] = []
    while waiting:
        keys = {training_key(config) for run in waiting for config in run.configs}
        stage = [run for run in waiting if not run.needs & keys and not any(run.waits_for(other) for other in waiting)]
        if not stage:
            raise ReproError(f"the runs {', '.join(run.key for run in waiting)} need each other as opponents.")
        ordered.append(stage)
        waiting = [run for run in waiting if run not in stage]
    return ordered


def with_needed(runs: Sequence[Run], every: Sequence[Run]) -> list[Run]:
    """Runs, and those of `every` that they cannot be done without: opponents, and what they learn from.

    Args:
        runs: some of `every`, of which others may measure the same trainings otherwise, which is not needed.
    """
    due = list(runs)
    while True:
        keys, needed = {run.key for run in due}, {key for run in due for key in run.needs}
        more = [
            run
            for run in every
            if run.key not in keys
            and (needed & {training_key(config) for config in run.configs} or any(one.learns_from(run) for one in due))
        ]
        if not more:
            wanted = set(map(id, due))
            return [run for run in every if id(run) in wanted]
        due += more


def union(runs: Iterable[Run]) -> list[Run]:
    """Each training once, with everything that is to be measured of it and all its labels."""
    by_key: dict[str, Run] = {}
    for run in runs:
        before = by_key.get(run.key)
        if before is None:
            by_key[run.key] = run
            continue
        configs = [_with(one, other) for one, other in zip(before.configs, run.configs, strict=True)]
        by_key[run.key] = Run(configs, {**before.labels, **run.labels}, before.title or run.title)
    return list(by_key.values())


def _with(config: Config, other: Config) -> Config:
    """A configuration that also measures what another one of the same training does."""
    evaluation = dict(config.evaluation)
    for name, measure in other.evaluation.items():
        alike = next((n for n, e in evaluation.items() if e.is_like(measure)), None)
        names = chain([alike or name], (f"{name}_{i}" for i in count(2)))
        free = next(n for n in names if n == alike or n not in evaluation)
        evaluation[free] = measure if alike is None else evaluation[alike].joined(measure)
    readouts = {**config.algorithm.readouts, **other.algorithm.readouts}
    return replace(
        config,
        evaluation=evaluation,
        algorithm=replace(config.algorithm, readouts=readouts),
        force=config.force or other.force,
    )
