"""From a command line to the runs that it asks for, composed once and checked before any work.

Hydra composes configurations and launches jobs; in between, this module expands a sweep, checks every run, and finds
out which trainings runs share and which runs must wait for others (their opponents). It does not go through Hydra's
sweeper: that composes what is not swept before anything else, and so refuses `algorithm=dcvn,devn
algorithm.buckets=200`, and composes each run again when it is launched. A launched job is told where its planned run is
written down.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import chain, count, product
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from repro.config.checks import check_settings, check_with_game, game_for_checks, readout_of, settings
from repro.config.keys import hyperparameters, register_schemas, training_key
from repro.config.schema import Config
from repro.errors import ReproError

CONF = Path(__file__).resolve().parents[1] / "conf"
_PUBLISHED = ("custom", "paper")
"""Scales that depart from nothing."""
_SEED = re.compile("seed=(0|[1-9][0-9]*)")
_KEYS: dict[tuple[str, ...], str] = {}
_REFERENCED: dict[tuple[str, ...], DictConfig] = {}
"""Keys and configurations of referenced runs. A reference is resolved many times while its run is planned, and
composing takes long."""


# -- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One run: a training and what is measured of it, or several that differ by their seeds and are done together.

    Attributes:
        configs: checked, one per seed.
        labels: target -> scale; one run may serve several targets.
    """

    configs: Sequence[Config]
    labels: Mapping[str, str]

    @property
    def config(self) -> Config:
        """The first seed's."""
        return self.configs[0]

    @cached_property
    def key(self) -> str:
        """The training's; of several together, one that names their seeds."""
        key = training_key(self.config)
        return key if len(self.configs) == 1 else "-".join([key, "with", *(str(c.seed) for c in self.configs[1:])])

    @property
    def needs(self) -> set[str]:
        """Keys of the trainings that its evaluations need."""
        evaluations = [e for config in self.configs for e in config.evaluation.values()]
        return {reference.partition("/")[0] for e in evaluations for reference in e.others}

    def waits_for(self, other: Run) -> bool:
        """Whether another run must be done first, because this one uses what it leaves."""
        return bool(self.config.algorithm.waits_for(other.config.algorithm))


@dataclass(frozen=True)
class Sweep:
    """What one command line asks for.

    Attributes:
        overrides: as typed.
        multirun: whether commas sweep.
        runs: in the order of the sweep.
    """

    overrides: Sequence[str]
    multirun: bool
    runs: Sequence[Run]

    @property
    def command(self) -> str:
        """The command line, as a user could type it."""
        return "python -m repro.run " + shlex.join([*(["-m"] if self.multirun else []), *self.overrides])


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


def union(runs: Iterable[Run]) -> list[Run]:
    """Each training once, with everything that is to be measured of it and all its labels."""
    by_key: dict[str, Run] = {}
    for run in runs:
        before = by_key.get(run.key)
        if before is None:
            by_key[run.key] = run
            continue
        configs = [_with(one, other) for one, other in zip(before.configs, run.configs, strict=True)]
        by_key[run.key] = Run(configs, {**before.labels, **run.labels})
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


# -- composing -------------------------------------------------------------------------------------------------------


def plan(overrides: Sequence[str], multirun: bool, config_dir: str | None = None) -> Sweep:
    """Compose and check every run that a command line asks for.

    Args:
        config_dir: a folder of further configurations, whose algorithms and games may be files outside the package.

    Raises:
        ReproError: one sentence about the first thing that is wrong.
    """
    try:
        with _composing(config_dir):
            jobs = _jobs(overrides, multirun)
            runs = [_run(cfg, job) for cfg, job in zip(_composed(jobs), jobs, strict=True)]
    except (HydraException, OmegaConfBaseException) as error:
        raise ReproError(one_sentence(error)) from error
    except (ValueError, AssertionError) as error:
        # What Hydra raises for a choice that is no name, such as network=null, says neither key nor value.
        raise ReproError(f"bad configuration: {' '.join(overrides)}: {error}") from error
    for run in runs:
        for config in run.configs:
            check_with_game(config, game_for_checks(config))
    _check_different(runs)
    return Sweep(overrides, multirun, runs)


def measured_otherwise(config: Config, overrides: Sequence[str]) -> Config:
    """A finished run's configuration with other evaluations, and perhaps more read-outs.

    Raises:
        ReproError: an override is about anything else, or wrong.
    """
    try:
        about = {line: line.lstrip("+~").partition("=")[0] for line in overrides}
        for line, key in about.items():
            if key.split(".")[0] != "evaluation" and not key.startswith("algorithm.readouts."):
                raise ReproError(f"{line}: only evaluation and algorithm.readouts can be given of a finished run.")
        with _composing(None):
            same = [f"{key}={getattr(config, key)}" for key in ("seed", "device", "threads")]
            evaluations = [*same, *(line for line, key in about.items() if key.startswith("evaluation"))]
            composed = settings(compose("config", evaluations)).evaluation
        parser = OverridesParser.create()
        about_readouts = [line for line, key in about.items() if key.startswith("algorithm.")]
        plain = {name: {"kind": r.kind, "capacity": r.capacity} for name, r in config.algorithm.readouts.items()}
        readouts = OmegaConf.create({"algorithm": {"readouts": plain}})
        for override in parser.parse_overrides(about_readouts):
            OmegaConf.update(readouts, override.key_or_group, override.value())
        merged: Any = OmegaConf.to_container(readouts.algorithm.readouts)
    except (HydraException, OmegaConfBaseException) as error:
        raise ReproError(one_sentence(error)) from error
    algorithm = replace(config.algorithm, readouts={name: readout_of(name, r) for name, r in merged.items()})
    changed = replace(config, evaluation=composed, algorithm=algorithm)
    check_settings(changed)
    check_with_game(changed, game_for_checks(changed))
    return changed


@contextmanager
def _composing(config_dir: str | None) -> Iterator[None]:
    """Hydra, ready to compose from `conf` and, before it, from a folder of the user's."""
    register_schemas()
    global _SEARCHED, _FOLDERS
    _SEARCHED = [] if config_dir is None else [_searchpath(config_dir)]
    _FOLDERS = [] if config_dir is None else [Path(config_dir).absolute()]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


_SEARCHED: list[str] = []
_FOLDERS: list[Path] = []
"""What is added to Hydra's overrides in every composition, and the folders of configurations that it names."""


def _searchpath(config_dir: str) -> str:
    """Hydra's override for a folder of configurations; the files of algorithms and games that it names are imported.

    Raises:
        ReproError: it is no folder, or names a file that cannot be imported.
    """
    folder = Path(config_dir).absolute()
    if not folder.is_dir():
        raise ReproError(f"--config-dir is {config_dir!r}; it must be a folder of configurations.")
    for path in sorted([*folder.glob("algorithm/*.yaml"), *folder.glob("game/*.yaml")]):
        module = OmegaConf.select(OmegaConf.load(path), "module")
        try:
            import_module(module or "repro")
        except ImportError as error:
            raise ReproError(
                f"{path}: module is {module!r}; it must be a file that can be imported ({error})."
            ) from error
    return f"hydra.searchpath=[{quoted(f'file://{folder}')}]"


def _composed(jobs: Sequence[Sequence[str]]) -> list[DictConfig]:
    """A configuration per job. Those that differ by `seed=NUMBER` alone are composed once, which takes time."""
    composed: dict[tuple[str, ...], DictConfig] = {}
    configs = []
    for job in jobs:
        without_seed = tuple(override for override in job if not _SEED.fullmatch(override))
        if without_seed not in composed:
            composed[without_seed] = compose("config", [*_SEARCHED, *without_seed])
        config = composed[without_seed].copy()
        for seed in filter(None, map(_SEED.fullmatch, job)):
            config.seed = int(seed[1])
        configs.append(config)
    return configs


def _run(cfg: DictConfig, job: Sequence[str]) -> Run:
    _check_departures(cfg, job)
    _drop_what_is_not_measured(cfg, job)
    labels = {str(cfg.target): str(cfg.scale)}
    first = settings(cfg)
    if first.seeds is None:
        return Run([first], labels)
    # Each with references of its own to other runs, which follow from the seed.
    return Run([settings(OmegaConf.merge(cfg, {"seed": seed, "seeds": None})) for seed in first.seeds], labels)  # type: ignore[arg-type]


def _check_departures(cfg: DictConfig, job: Sequence[str]) -> None:
    """Refuse a scale that an experiment does not have: it would be the published length under another name.

    Raises:
        ReproError: it has not.
    """
    experiments = [override.partition("=")[2] for override in job if override.startswith("experiment=")]
    if not experiments or cfg.scale in _PUBLISHED:
        return
    file = Path("departures", str(cfg.scale), f"{experiments[-1]}.yaml")
    if not any((folder / file).is_file() for folder in (CONF, *_FOLDERS)):
        raise ReproError(
            f"scale is {cfg.scale}; the experiment {experiments[-1]} has no conf/{file}, so that it would be of the "
            "published length; use scale=paper for that."
        )


def _drop_what_is_not_measured(cfg: DictConfig, job: Sequence[str]) -> None:
    """Leave out what an experiment says of an evaluation that was not selected.

    Raises:
        ReproError: the command line says something of one.
    """
    for name in [name for name in cfg.evaluation if OmegaConf.get_type(cfg.evaluation, name) is dict]:
        for override in job:
            if override.lstrip("+~").startswith(f"evaluation.{name}."):
                raise ReproError(f"{override}: evaluation {name} is not selected; add evaluation=[{name}].")
        with open_dict(cfg.evaluation):
            del cfg.evaluation[name]


def _jobs(overrides: Sequence[str], multirun: bool) -> list[list[str]]:
    """The overrides of each job, without what is about launching; of a key that is given twice the last counts."""
    if not multirun:
        return [[line for line in overrides if not is_about_launching(line)]]
    values: dict[str, list[str]] = {}
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        key = override.get_key_element()
        if is_about_launching(key):
            continue
        values.pop(key, None)
        if override.is_discrete_sweep():
            values[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        elif override.is_sweep_override():
            raise ReproError(f"{override.input_line}: a sweep must name its values, such as 1,2,3 or range(3).")
        else:
            values[key] = [str(override.input_line)]
    return [list(job) for job in product(*values.values())]


def is_about_launching(override: str) -> bool:
    """Whether an override is Hydra's and not the run's, such as `hydra/launcher=joblib`."""
    return override.lstrip("+~").startswith(("hydra/", "hydra."))


def _check_different(runs: Sequence[Run]) -> None:
    """Refuse batched runs that would do the same seeds at once."""
    keys = [training_key(config) for run in runs for config in run.configs]
    if len(set(keys)) < len(keys) and any(len(run.configs) > 1 for run in runs):
        raise ReproError(
            f"seeds is {[c.seed for c in runs[0].configs]}, but of the {len(runs)} runs asked for several would do the "
            "same seed; leave out seed, or seeds."
        )


def _key_of(*overrides: str, _root_: DictConfig) -> str:
    """`${run_key:OVERRIDE,...}`: another run's key; seed, device and threads are the asking run's unless given."""
    overridden = {override.partition("=")[0] for override in overrides}
    same = {key: _root_[key] for key in ("seed", "device", "threads") if key not in overridden}
    composed = (*_SEARCHED, *overrides)
    named = (*composed, *(f"{key}={value}" for key, value in same.items()))
    if named not in _KEYS:
        if composed not in _REFERENCED:
            with nullcontext() if GlobalHydra().is_initialized() else _composing(None):
                _REFERENCED[composed] = compose("config", [*composed])
        _KEYS[named] = training_key(settings(OmegaConf.merge(_REFERENCED[composed], same)))  # type: ignore[arg-type]
    return _KEYS[named]


OmegaConf.register_new_resolver("run_key", _key_of, replace=True)


def quoted(text: str) -> str:
    """A text as a value in an override, whatever characters it has."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def one_sentence(error: BaseException) -> str:
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
    informative = [line for line in dict.fromkeys(lines) if not line.startswith(drop)]
    return "bad configuration: " + "; ".join(informative)


def labels(runs: Sequence[Run]) -> list[str]:
    """A name per run: game, algorithm, seed, and whatever else differs within the command."""
    flat = [{**hyperparameters(r.config), "seed": ",".join(str(c.seed) for c in r.configs)} for r in runs]
    always = ("game.name", "algorithm.name", "seed")
    # Keys that only some of the algorithms have say no more than the algorithm's name.
    keys = sorted(set.intersection(*(set(f) for f in flat)) - set(always)) if flat else []
    differ = [k for k in keys if len({str(f[k]) for f in flat}) > 1]
    return [
        " ".join([f"{f['game.name']} {f['algorithm.name']} seed={f['seed']}", *(f"{k}={f[k]}" for k in differ)])
        for f in flat
    ]
