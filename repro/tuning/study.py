"""A study in Optuna: its trials by ask and tell, in a database that outlasts kills.

Only one process has a study open, which holds a lock that goes with it. So a trial that the database shows as running
when it is opened is of a process that is gone: it is done first, and its trainings, which have keys and checkpoints, go
on where they were.
"""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from repro.common.errors import ReproError, told_as
from repro.config.keys import hyperparameters
from repro.config.schema import Config
from repro.tracking.store import sqlite_uri
from repro.tuning.config import Parameter, StudyConfig, definition, parameters

LOCK, DATABASE = "lock", "study.db"
DEFINITION, DEFAULT, IDENTITY, KEYS = "definition", "default", "identity", "keys"
"""User attributes: of a study, what it is of, the default's values, and what tells it from others of its name; of a
trial, its trainings' keys."""
_AT_FAULT = "at fault"
"""Of a study whose first trial cannot be done."""
ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
_LOCKED_SECONDS = 100.0


def folder_of(study: StudyConfig) -> Path:
    """Where a study's database and page are."""
    return Path(study.output_dir).absolute() / "tune" / study.study


def distribution(parameter: Parameter) -> BaseDistribution:
    """Optuna's form of a hyperparameter."""
    if parameter.kind == "categorical":
        return CategoricalDistribution(parameter.choices or [])
    assert parameter.low is not None
    assert parameter.high is not None
    if parameter.kind == "int":
        return IntDistribution(int(parameter.low), int(parameter.high), parameter.log, int(parameter.step or 1))
    return FloatDistribution(parameter.low, parameter.high, parameter.log, parameter.step)


class Study:
    """A study that this process has opened; see `opened`.

    Attributes:
        space: its hyperparameters, by key.
    """

    def __init__(self, config: StudyConfig, study: optuna.Study) -> None:
        self.config, self.study = config, study
        self.space = {parameter.key: parameter for parameter in parameters(config.space)}
        self._distributions = {key: distribution(parameter) for key, parameter in self.space.items()}
        self._begun = [t for t in self.trials(TrialState.RUNNING) if t.params.keys() == self.space.keys()]
        for lost in (t for t in self.trials(TrialState.RUNNING) if t.params.keys() != self.space.keys()):
            # A process was killed between making a trial and drawing all of its values.
            study.tell(lost.number, state=TrialState.FAIL)

    @property
    def identity(self) -> str:
        """What tells it from others of its name, which may be in the same MLflow store."""
        known = self.study.user_attrs.get(IDENTITY)
        if known is None:
            known = uuid.uuid4().hex
            self.study.set_user_attr(IDENTITY, known)
        return str(known)

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """Trials in some states, or all; those that were lost before they had values are left out."""
        return _with_values(self.study.get_trials(deepcopy=False, states=states or None), self.space)

    @property
    def is_full(self) -> bool:
        """Whether there are as many trials as are wanted, ended or begun."""
        begun = len(self.trials(*ENDED, TrialState.RUNNING))
        return not self._begun and begun >= self.config.trials

    def next_trial(self) -> Trial:
        """A trial that a process which is gone had begun, or a new one."""
        if self._begun:
            return Trial(self.study, self._begun.pop(0)._trial_id)
        return self.study.ask(self._distributions)

    def enqueue_default(self, config: Config) -> None:
        """Let the first trial be the default, if the space has all of it; `config` is of a run with nothing changed."""
        flat = hyperparameters(config)
        default = {key: flat[key] for key, d in self._distributions.items() if key in flat and _contains(d, flat[key])}
        self.study.set_user_attr(DEFAULT, default)
        if default.keys() == self.space.keys() and not self.study.get_trials(deepcopy=False):
            self.study.enqueue_trial(default)

    @property
    def default(self) -> dict[str, Any]:
        """The default's values, as far as the space has them."""
        return dict(self.study.user_attrs.get(DEFAULT, {}))

    def changes(self, values: dict[str, Any]) -> list[str]:
        """What asks for values on the command line."""
        return [parameter.override(values[key]) for key, parameter in self.space.items()]

    def came_to_nothing(self) -> None:
        """Note that the first trial cannot be done, as the study is defined; what others were worth is kept."""
        if not self.trials(TrialState.COMPLETE, TrialState.PRUNED):
            self.study.set_user_attr(_AT_FAULT, True)

    @property
    def best(self) -> FrozenTrial | None:
        """The best trial that was not pruned; None where there is none."""
        return self.study.best_trial if self.trials(TrialState.COMPLETE) else None


def _contains(parameter: BaseDistribution, value: Any) -> bool:
    try:
        return bool(parameter._contains(parameter.to_internal_repr(value)))
    except (ValueError, TypeError):
        return False


@contextmanager
def opened(config: StudyConfig) -> Iterator[Study]:
    """The study of a configuration, made if there is none.

    Raises:
        ReproError: another process has it open, it is of another definition, or its database cannot be read.
    """
    folder = folder_of(config)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ReproError(f"the study {config.study} is being done by another process.") from error
        with told_as(lambda error: f"{folder / DATABASE} cannot be opened as a study ({_line(error)})."):
            study = _open(config, folder)
        yield study


def counts(config: StudyConfig) -> tuple[int, int]:
    """How many trials of a study have ended, and how many have begun, without those that were lost before they had
    values; nothing is written.

    Raises:
        ReproError: its database cannot be read, or is of another definition.
    """
    database = folder_of(config) / DATABASE
    if not database.exists():
        return 0, 0
    with told_as(lambda error: f"{database} cannot be opened as a study ({_line(error)})."):
        storage = _storage(database)
        if config.study not in optuna.get_all_study_names(storage):  # A kill came before it was made.
            return 0, 0
        study = _loaded(config, storage)
        if _came_to_nothing(study):
            return 0, 0
        every = _with_values(
            study.get_trials(deepcopy=False), [parameter.key for parameter in parameters(config.space)]
        )
    _check_definition(config, study)
    states = [trial.state for trial in every]
    return sum(state in ENDED for state in states), states.count(TrialState.RUNNING)


def _with_values(trials: Sequence[FrozenTrial], space: Collection[str]) -> list[FrozenTrial]:
    """Those that were not lost before they had values."""
    return [t for t in trials if t.state is not TrialState.FAIL or t.params.keys() == set(space)]


def _storage(database: Path) -> optuna.storages.RDBStorage:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.storages.RDBStorage(
        sqlite_uri(database), engine_kwargs={"connect_args": {"timeout": _LOCKED_SECONDS}}
    )


def _open(config: StudyConfig, folder: Path) -> Study:
    storage = _storage(folder / DATABASE)
    if config.study in optuna.get_all_study_names(storage) and _came_to_nothing(_loaded(config, storage)):
        optuna.delete_study(study_name=config.study, storage=storage)
    study = optuna.create_study(
        study_name=config.study, storage=storage, load_if_exists=True, pruner=_pruner(config),
        direction=StudyDirection[config.objective.direction.upper()],
    )  # fmt: skip
    study.sampler = _sampler(config, len(study.get_trials(deepcopy=False)))
    _check_definition(config, study)
    if DEFINITION not in study.user_attrs:
        study.set_user_attr(DEFINITION, json.dumps(definition(config), sort_keys=True))
    return Study(config, study)


def _loaded(config: StudyConfig, storage: optuna.storages.RDBStorage) -> optuna.Study:
    return optuna.load_study(study_name=config.study, storage=storage)


def _came_to_nothing(study: optuna.Study) -> bool:
    """Whether its first trial could not be done, and no other was worth anything: it is begun again."""
    return bool(study.user_attrs.get(_AT_FAULT))


def _check_definition(config: StudyConfig, study: optuna.Study) -> None:
    """Refuse a study that is there with another definition.

    Raises:
        ReproError: it names what differs.
    """
    wanted, known = json.dumps(definition(config), sort_keys=True), study.user_attrs.get(DEFINITION)
    if known is not None and known != wanted:
        before, now = json.loads(known), json.loads(wanted)
        differ = ", ".join(f"{key} {before.get(key)}, not {now[key]}" for key in now if before.get(key) != now[key])
        raise ReproError(
            f"study is {config.study}, which is in {folder_of(config)} with {differ}; give this one another name "
            "(study=...) or folder (output_dir=...)."
        )


def _sampler(config: StudyConfig, trials: int) -> optuna.samplers.BaseSampler:
    # A study that goes on must not draw again what it drew when it began.
    seed = int(np.random.SeedSequence((config.sampler.seed, trials)).generate_state(1)[0])
    if config.sampler.kind == "random":
        return optuna.samplers.RandomSampler(seed)
    return optuna.samplers.TPESampler(seed=seed)


def _pruner(config: StudyConfig) -> optuna.pruners.BasePruner:
    pruner = config.pruner
    if pruner.kind == "none":
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(pruner.startup_trials, pruner.warmup_points)


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def tell(study: Study, number: int, values: Sequence[float] | None, pruned: bool = False) -> None:
    """Note how a trial ended: with its trainings' values, pruned, or failed."""
    if values is not None:
        study.study.tell(number, float(np.mean(values)))
    else:
        study.study.tell(number, state=TrialState.PRUNED if pruned else TrialState.FAIL)


def report(study: Study, number: int, step: int, value: float) -> bool:
    """Note what a point was worth, and whether the trial is to be pruned."""
    trial = next(t for t in study.study.get_trials(deepcopy=False) if t.number == number)
    live = Trial(study.study, trial._trial_id)
    if step not in trial.intermediate_values:
        live.report(value, step)
    return bool(live.should_prune())
