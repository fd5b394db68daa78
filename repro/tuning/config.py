"""What a study is: the typed schema of files in `conf/tune`, composed by Hydra and checked before any work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean
from repro.config.checks import check
from repro.config.composed import check_keys
from repro.config.fields import above, at_least, between, label, one_of, path
from repro.config.jobs import MOST_AT_ONCE, quoted
from repro.config.schema import Config
from repro.plans.composing import composing
from repro.plans.planning import plan

ITERATION = "iteration"
"""The budget's metric that every run has without measuring."""

NOT_TUNED = ("seed", "seeds", "output_dir", "tracking_uri", "target", "scale", "force")
"""Keys of runs that a study gives, or that change nothing."""


@dataclass
class ObjectiveConfig:
    """What is tuned for: the mean over seeds of a metric of a read-out, where the budget is spent."""

    metric: str = "exploitability"
    readout: str = MISSING
    direction: str = one_of("minimize", "maximize", default="minimize")


@dataclass
class BudgetConfig:
    """Where trials are compared, which may come after different numbers of iterations."""

    # iteration, or what evaluations note beside: nodes_touched, player_updates, wall_seconds.
    metric: str = ITERATION
    # Of the metric; between the two evaluations around it, values are interpolated. Trainings must reach it.
    limit: float = above(0)
    # Equal parts of the budget after which a trial may be pruned.
    points: int = between(1, 1000, 5)


@dataclass
class SamplerConfig:
    """How Optuna draws trials."""

    kind: str = one_of("tpe", "random", default="tpe")
    seed: int = at_least(0, 0)


@dataclass
class PrunerConfig:
    """Which trials end early: none, or those whose best point so far is worse than the median of the others' there.

    Points go on from seed to seed, so that of several seeds the first mostly decides.
    """

    kind: str = one_of("none", "median", default="median")
    # Trials that are done before any is pruned, and points of each that come before it may be.
    startup_trials: int = at_least(0, 5)
    warmup_points: int = at_least(0, 1)


@dataclass
class StudyConfig:
    """A study of trials, each a few trainings that differ in their seeds."""

    # Its folder in output_dir/tune.
    study: str = label()
    # Of `python -m repro.run`: what is tuned, with the defaults that the best is compared with.
    overrides: list[str] = field(default_factory=list)
    # Nested like the configuration; a leaf is {kind: float or int, low, high, log, step}, or {kind: categorical,
    # choices}.
    space: dict[str, Any] = field(default_factory=dict)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    # Of every trial; and those that best and default are compared on, which nothing was tuned on.
    seeds: list[int] = field(default_factory=lambda: [0])
    fresh_seeds: list[int] = field(default_factory=list)
    # That the study has at its end. More can be asked of a finished one.
    trials: int = at_least(1)
    # Trainings at once, a process each.
    jobs: int = between(1, MOST_AT_ONCE, 1)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    pruner: PrunerConfig = field(default_factory=PrunerConfig)
    output_dir: str = path("outputs")
    tracking_uri: str | None = None


ConfigStore.instance().store(name="schema_tune", node=StudyConfig)


@dataclass
class Parameter:
    """One hyperparameter of a space.

    Attributes:
        key: dotted, as on the command line.
    """

    key: str
    kind: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    step: float | None = None
    choices: list[Any] | None = None

    def problem(self) -> str | None:
        """What is wrong with it."""
        if self.kind == "categorical":
            given = self.low is None and self.high is None and self.step is None and not self.log
            listed = isinstance(self.choices, list) and self.choices
            return None if given and listed else "needs choices, a list, and nothing else"
        if self.kind not in ("float", "int"):
            return f"is of the kind {self.kind!r}; it must be float, int or categorical"
        return self._problem_of_range()

    def _problem_of_range(self) -> str | None:
        if self.choices is not None or self.low is None or self.high is None:
            return "needs low and high, and no choices"
        if not all(isinstance(value, int | float) for value in (self.low, self.high, self.step or 1)):
            return f"goes from {self.low!r} to {self.high!r} by {self.step!r}; these must be numbers"
        if self.step is not None and (self.step <= 0 or (self.kind == "int" and self.step % 1)):
            return f"has a step of {self.step}; it must be above 0, and of an int whole"
        if self.kind == "int" and any(isinstance(value, float) for value in (self.low, self.high)):
            return f"is an int; low and high, {self.low} and {self.high}, must be whole numbers"
        if not self.low < self.high:
            return f"goes from {self.low} to {self.high}; high must be greater"
        return self._problem_of_log(self.low) if self.log else None

    def _problem_of_log(self, low: float) -> str | None:
        if low <= 0:
            return f"has log and goes from {low}; low must be above 0"
        return f"has log and a step of {self.step}; it can have one of them" if self.step else None

    def override(self, value: Any) -> str:
        """What asks for a value on the command line."""
        plain = {None: "null", True: "true", False: "false"}
        if value is None or isinstance(value, bool):
            return f"{self.key}={plain[value]}"
        return f"{self.key}={quoted(value) if isinstance(value, str) else repr(value)}"


def parameters(space: Mapping[str, Any], prefix: str = "") -> Iterator[Parameter]:
    """The leaves of a space.

    Raises:
        ReproError: one is none.
    """
    known = [f.name for f in fields(Parameter) if f.name != "key"]
    for name, node in space.items():
        key = f"{prefix}{name}"
        if not isinstance(node, Mapping):
            raise ReproError(f"space.{key} is {node!r}; it must be a mapping with kind, and low and high or choices.")
        if "kind" not in node:
            yield from parameters(node, f"{key}.")
            continue
        for unknown in node.keys() - set(known):
            hint = did_you_mean(str(unknown), known)
            raise ReproError(f"space.{key} has the key {unknown}{hint}; its keys are {', '.join(known)}.")
        parameter = Parameter(key=key, **node)
        problem = parameter.problem()
        if problem is not None:
            raise ReproError(f"space.{key} {problem}.")
        yield parameter


def read(overrides: Sequence[str], config_dir: str | None = None) -> StudyConfig:
    """A study from a command line.

    Raises:
        ReproError: it cannot be composed, or a value is missing or impossible.
    """
    try:
        with composing(config_dir, overrides) as composer:
            cfg = composer.compose("tune", overrides)
    except ReproError as error:
        if "Key 'tune' not in 'StudyConfig'" in str(error):
            raise ReproError(
                "the first line of a study's file must be # @package _global_ (docs/tuning.md)."
            ) from error
        raise
    # Texts, as on a command line: what they interpolate is of the runs, not of the study.
    of_runs: Any = OmegaConf.to_container(cfg.overrides, resolve=False)
    cfg.overrides = []
    check_keys(cfg)
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise ReproError(f"{missing[0]} has no value; give one on the command line or in conf/tune.")
    study: StudyConfig = OmegaConf.to_object(cfg)  # type: ignore[assignment]
    study.overrides = of_runs
    check(study)
    keys = [parameter.key for parameter in parameters(study.space)]
    if not keys:
        raise ReproError("space is empty; at least one hyperparameter is needed.")
    for key in (key for key in keys if key in NOT_TUNED):
        raise ReproError(f"space has {key}, which is no hyperparameter; seeds and folders are keys of the study.")
    for key in ("seeds", "fresh_seeds"):
        seeds = getattr(study, key)
        if len(set(seeds)) < len(seeds) or min(seeds, default=0) < 0 or (key == "seeds" and not seeds):
            raise ReproError(f"{key} is {seeds}; it must be different whole numbers, none below 0.")
    tuned_on = sorted(set(study.seeds) & set(study.fresh_seeds))
    if tuned_on:
        raise ReproError(f"fresh_seeds has {tuned_on[0]}, which is one of seeds: nothing may be tuned on it.")
    return study


def definition(study: StudyConfig) -> dict[str, Any]:
    """What must not change while a study goes on; how many trials it has, and how they are drawn, may."""
    changeable = ("study", "trials", "jobs", "fresh_seeds", "sampler", "pruner", "output_dir", "tracking_uri")
    return {key: value for key, value in asdict(study).items() if key not in changeable}


def runs(study: StudyConfig, changes: Sequence[str], seeds: Sequence[int], config_dir: str | None) -> list[Config]:
    """The trainings of a trial, or of the default (no changes), one per seed.

    Raises:
        ReproError: they cannot be composed, or the overrides ask for more than one run a seed.
    """
    where = [f"output_dir={quoted(study.output_dir)}"]
    if study.tracking_uri is not None:
        where.append(f"tracking_uri={quoted(study.tracking_uri)}")
    seed = f"seed={','.join(map(str, seeds))}"
    planned = plan([*study.overrides, *changes, seed, *where], len(seeds) > 1, config_dir).runs
    configs = [config for run in planned for config in run.configs]
    if sorted(config.seed for config in configs) != sorted(seeds):
        raise ReproError(f"overrides is {study.overrides}; it must ask for one run, and leave out seed and seeds.")
    readouts = configs[0].algorithm.readouts
    if study.objective.readout not in readouts:
        raise ReproError(
            f"objective.readout is {study.objective.readout!r}; the read-outs of {configs[0].algorithm.name} are "
            f"{', '.join(readouts)}{did_you_mean(study.objective.readout, readouts)}."
        )
    return configs
