"""From a command line to the runs that it asks for, composed once and checked before any work.

Hydra composes configurations and launches jobs; in between, this module expands a sweep and checks every run
(`repro.planned`). It does not go through Hydra's sweeper: that composes what is not swept before anything else, and so
refuses `algorithm=dcvn,devn algorithm.buckets=200`, and composes each run again when it is launched. A launched job is
told where its planned run is written down.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from repro.config import composed
from repro.config.checks import (
    check_device,
    check_settings,
    check_with_game,
    device_here,
    game_for_checks,
    readout_of,
    settings,
)
from repro.config.composed import check_choices, check_keys, one_sentence
from repro.config.game_defaults import chosen, is_settled, with_defaults
from repro.config.jobs import MOST_AT_ONCE, check_single, is_about_launching, jobs_of, quoted, set_afterwards
from repro.config.keys import register_schemas, training_key
from repro.config.memory import check_memory
from repro.config.schema import Config
from repro.errors import ReproError
from repro.folders import full_key
from repro.importing import import_named
from repro.planned import Run, title_of, titled_together
from repro.suggestions import did_you_mean
from repro.trained import is_to_train

CONF = composed.CONF
_PUBLISHED = ("custom", "paper")
"""Scales that depart from nothing."""
_LAUNCHED_WITH = ("plan", "number", "folder", "hydra")
"""Keys of `conf/launch.yaml`, and Hydra's own."""
_KEYS: dict[tuple[str, ...], str] = {}
"""Of referenced runs: a reference is resolved many times while its run is planned."""


@dataclass(frozen=True)
class Sweep:
    """What one command line asks for.

    Attributes:
        overrides: as typed.
        multirun: whether commas sweep.
        runs: in the order of the sweep.
        notes: one sentence for each of the defaults that games have of their own.
    """

    overrides: Sequence[str]
    multirun: bool
    runs: Sequence[Run]
    notes: Sequence[str] = ()

    @property
    def command(self) -> str:
        """The command line, as a user could type it."""
        return "python -m repro.run " + shlex.join([*(["-m"] if self.multirun else []), *self.overrides])


def plan(overrides: Sequence[str], multirun: bool, config_dir: str | None = None) -> Sweep:
    """Compose and check every run that a command line asks for.

    Args:
        config_dir: a folder of further configurations, whose algorithms and games may be files outside the package.

    Raises:
        ReproError: one sentence about one thing that is wrong.
    """
    with _composing(config_dir, overrides):
        _check_launching(overrides)
        jobs = jobs_of(overrides, multirun)
        configs, notes = _composed(jobs)
        runs = titled_together(
            [replace(_run(cfg, job), title=title_of(job)) for cfg, job in zip(configs, jobs, strict=True)]
        )
    for run in runs:
        for config in run.configs:
            check_with_game(config, game_for_checks(config))
    _check_together(runs)
    return Sweep(overrides, multirun, runs, notes)


def planned_job(overrides: Sequence[str], config_dir: str | None = None) -> Sweep:
    """The one run of a job of a sweeper of Hydra's: the same as if the job's overrides were typed.

    Raises:
        ReproError: as for `plan`.
    """
    outside = get_gh_backup()
    GlobalHydra.instance().clear()
    try:
        return plan(overrides, multirun=False, config_dir=config_dir)
    finally:
        restore_gh_from_backup(outside)


def composed_study(overrides: Sequence[str], config_dir: str | None = None) -> DictConfig:
    """The configuration of a study (conf/tune).

    Raises:
        ReproError: it cannot be composed.
    """
    with _composing(config_dir, overrides):
        return compose("tune", [*_SEARCHED, *overrides])


def composed_cluster(choice: str, overrides: Sequence[str], config_dir: str | None = None) -> dict[str, Any]:
    """What is asked of a cluster: a file of conf/cluster, with what the command line says beside.

    Args:
        overrides: `KEY=VALUE`, of keys that the file has or not.

    Raises:
        ReproError: it cannot be composed.
    """
    given = [f"++cluster.{override.lstrip('+')}" for override in overrides]
    with _composing(config_dir, [f"cluster={choice}", *overrides]):
        cfg = compose("cluster", [*_SEARCHED, f"cluster={choice}", *given])
        plain: Any = OmegaConf.to_container(cfg.cluster, resolve=True, throw_on_missing=True)
    return {str(key): value for key, value in plain.items()}


def check_scale(sweep: Sweep) -> None:
    """Refuse a scale of nothing in a command of somebody's own; a target's sweeps say themselves what they change.

    Raises:
        ReproError: there is no experiment for the scale to be of.
    """
    if any(override.startswith("experiment=") for override in sweep.overrides):
        return
    for target, scale in (label for run in sweep.runs for label in run.labels.items()):
        if target == Config.target and scale not in _PUBLISHED:
            raise ReproError(
                f"scale is {scale}, which changes nothing unless there is an experiment; add experiment=NAME "
                "(conf/experiment), or leave scale out."
            )


def check_sizes(runs: Iterable[Run], given: float | None = None) -> None:
    """Refuse runs whose values, used to the full, need more memory than whoever is to do them has.

    Args:
        given: bytes that a cluster gives each of its jobs; None: this machine does them.

    Raises:
        ReproError: names the key, its value, and both sizes.
    """
    for run in runs:
        for config in run.configs:
            check_memory(config, game_for_checks(config), _trains(config), given)


def lacking_a_gpu(runs: Sequence[Run]) -> str:
    """What lacks here for trainings on a GPU; empty where nothing does."""
    lacking = sum(_trains(c) and device_here(c) != c.device for run in runs for c in run.configs)
    return f"{lacking} training(s) need a GPU, and torch finds none here" if lacking else ""


def check_here(runs: Sequence[Run]) -> None:
    """Refuse runs that this machine cannot do, because it lacks the memory or the GPU; before anything is done.

    Raises:
        ReproError: as for `check_sizes`; or a training's device is not here.
    """
    check_sizes(runs)
    for config in (config for run in runs for config in run.configs if _trains(config)):
        check_device(config)


def check_needed(runs: Sequence[Run]) -> None:
    """Refuse runs that need what neither is there nor is made by another of them: opponents, or stored data.

    Of data that another one makes, how much that will be is not looked at.

    Raises:
        ReproError: says what is missing, and how it is made.
    """
    made = {training_key(config) for run in runs for config in run.configs}
    for run in runs:
        others = run.needs - made
        stores = run.config.algorithm.stored_data(run.config) is not None
        if not others and not stores:
            continue
        from repro.measuring import check_others, is_measured  # noqa: PLC0415  (torch takes a second)

        for config in (config for config in run.configs if config.force or not is_measured(config)):
            if not any(run.learns_from(other) for other in runs):
                config.algorithm.check_stored_data(config)
            check_others(config, others)


def _trains(config: Config) -> bool:
    return config.force or is_to_train(config)


def measured_otherwise(config: Config, overrides: Sequence[str], config_dir: str | None = None) -> Config:
    """A finished run's configuration with other evaluations, and perhaps more read-outs, or another tracking store.

    Args:
        config_dir: a folder of further configurations, as for `plan`.

    Raises:
        ReproError: an override is about anything else, or wrong.
    """
    about = {line: line.lstrip("+~").partition("=")[0] for line in overrides}
    for line, key in about.items():
        if key.split(".")[0] not in ("evaluation", "tracking_uri") and not key.startswith("algorithm.readouts."):
            hint = did_you_mean(key.split(".")[0], ("evaluation", "algorithm", "tracking_uri"))
            raise ReproError(
                f"{line}: only evaluation, algorithm.readouts and tracking_uri can be given of a finished run{hint}."
            )
    with _composing(config_dir, overrides):
        check_single(overrides)
        same = [f"{key}={getattr(config, key)}" for key in ("seed", "device", "threads")]
        others = [*same, *(line for line, key in about.items() if not key.startswith("algorithm."))]
        cfg = compose("config", [*_SEARCHED, *others])
        _drop_what_is_not_measured(cfg, others)
        composed = settings(cfg)
        parser = OverridesParser.create()
        about_readouts = [line for line, key in about.items() if key.startswith("algorithm.")]
        plain = {name: {"kind": r.kind, "capacity": r.capacity} for name, r in config.algorithm.readouts.items()}
        readouts = OmegaConf.create({"algorithm": {"readouts": plain}})
        for override in parser.parse_overrides(about_readouts):
            OmegaConf.update(readouts, override.key_or_group, override.value())
        merged: Any = OmegaConf.to_container(readouts.algorithm.readouts)
    algorithm = replace(config.algorithm, readouts={name: readout_of(name, r) for name, r in merged.items()})
    changed = replace(config, evaluation=composed.evaluation, tracking_uri=composed.tracking_uri, algorithm=algorithm)
    changed = _with_full_keys(changed)
    check_settings(changed)
    check_with_game(changed, game_for_checks(changed))
    check_memory(changed, game_for_checks(changed), trains=False)
    return changed


def before_hydra(overrides: Sequence[str], config_dir: str | None) -> list[str]:
    """What Hydra, if it is to show a run by itself, needs before the run's overrides to compose what `plan` does.

    Raises:
        ReproError: it cannot be composed.
    """
    with _composing(config_dir, overrides):
        job = [override for override in overrides if not is_about_launching(override)]
        return chosen([*_SEARCHED, *job], [CONF, *_FOLDERS])


@contextmanager
def _composing(config_dir: str | None, overrides: Sequence[str] = ()) -> Iterator[None]:
    """Hydra, ready to compose from `conf` and, before it, from a folder of the user's.

    Raises:
        ReproError: what is composed of these overrides cannot be.
    """
    register_schemas()
    global _SEARCHED, _FOLDERS
    _SEARCHED = [] if config_dir is None else [_searchpath(config_dir)]
    _FOLDERS = [] if config_dir is None else [Path(config_dir).absolute()]
    if _FOLDERS:
        # Its files may have changed since.
        _chosen.cache_clear()
        _KEYS.clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            yield
        except (HydraException, OmegaConfBaseException, YAMLError) as error:
            raise ReproError(" ".join(one_sentence(error).split())) from error
        except (ValueError, TypeError, AssertionError, AttributeError) as error:
            # What Hydra raises for a choice that is no name, such as network=null, says neither key nor value; and for
            # a key of what is null that "root" is.
            reason = "one of these keys is part of what is null" if "for root" in str(error) else str(error)
            raise ReproError(f"bad configuration: {' '.join(overrides)}: {' '.join(reason.split())}") from error


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
        try:
            module = OmegaConf.select(OmegaConf.load(path), "module")
        except (OSError, ValueError, YAMLError, OmegaConfBaseException) as error:
            raise ReproError(f"{path}: it must be a YAML file ({' '.join(str(error).split())}).") from error
        import_named(f"{path}: module", str(module or "repro"))
    return f"hydra.searchpath=[{quoted(f'file://{folder}')}]"


def _composed(jobs: Sequence[Sequence[str]]) -> tuple[list[DictConfig], list[str]]:
    """A configuration per job, and what is to be said of them.

    What they choose is composed once, which takes time; values that choose nothing are set afterwards.
    """
    values = set_afterwards(jobs, all(map(is_settled, jobs)))
    parser = OverridesParser.create()
    notes: dict[str, None] = {}
    configs = []
    for job in jobs:
        cfg, note = _chosen((*_SEARCHED, *(override for override in job if override not in values)))
        notes |= dict.fromkeys([note] if note else [])
        config = cfg.copy()
        try:
            for override in parser.parse_overrides([override for override in job if override in values]):
                OmegaConf.update(config, override.key_or_group, override.value())
        except OmegaConfBaseException:
            compose("config", [*_SEARCHED, *job])  # Hydra says what is wrong.
            raise
        configs.append(config)
    return configs, list(notes)


@lru_cache(maxsize=256)
def _chosen(overrides: tuple[str, ...]) -> tuple[DictConfig, str]:
    """A configuration with its game's defaults, not to be changed, and what is to be said of these.

    It is composed once as long as the files are the package's: runs of a sweep, sweeps of a target, and references to
    runs ask for the same ones.
    """
    check_choices(overrides)
    return with_defaults(overrides, [CONF, *_FOLDERS])


def _run(cfg: DictConfig, job: Sequence[str]) -> Run:
    _check_departures(cfg, job)
    _drop_what_is_not_measured(cfg, job)
    labels = {str(cfg.target): str(cfg.scale)}
    first = _with_full_keys(settings(cfg))
    if first.seeds is None:
        return Run([first], labels)
    if len(first.seeds) > 1 and not first.algorithm.trains_together(first):
        raise ReproError(
            f"seeds is {first.seeds}; in the game {first.game['name']} each is trained alone: leave seeds out, and use "
            "-m seed=0,1."
        )
    # Each with references of its own to other runs, which follow from the seed.
    of_seeds = [settings(OmegaConf.merge(cfg, {"seed": seed, "seeds": None})) for seed in sorted(first.seeds)]  # type: ignore[arg-type]
    return Run([_with_full_keys(config) for config in of_seeds], labels)


def _with_full_keys(config: Config) -> Config:
    """A configuration whose evaluations name other trainings in full.

    Raises:
        ReproError: a key that is abbreviated is so of several runs.
    """

    def full(key: str) -> str:
        return full_key(config.output_dir, key)

    return replace(config, evaluation={name: e.with_full_keys(full) for name, e in config.evaluation.items()})


def _check_departures(cfg: DictConfig, job: Sequence[str]) -> None:
    """Refuse a scale that an experiment does not have: it would be the published length under another name.

    Raises:
        ReproError: it has not.
    """
    for override in (override for override in job if override.lstrip("+~").startswith("departures")):
        raise ReproError(f"{override}: departures follow from scale and experiment, leave them out.")
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
    known = [path.stem for folder in (CONF, *_FOLDERS) for path in folder.glob("evaluation/*.yaml")]
    for name in [name for name in cfg.evaluation if OmegaConf.get_type(cfg.evaluation, name) is dict]:
        for override in job:
            if re.search(rf"evaluation\.{re.escape(name)}[.=]", override):
                if name in known:
                    raise ReproError(f"{override}: evaluation {name} is not selected; add evaluation=[{name}].")
                raise ReproError(
                    f"{override}: there is no evaluation {name}{did_you_mean(name, known)}; there are "
                    f"{', '.join(sorted(known))}."
                )
        with open_dict(cfg.evaluation):
            del cfg.evaluation[name]


def _check_launching(overrides: Sequence[str]) -> None:
    """Check what is Hydra's own, which is composed for itself when runs are launched.

    Raises:
        ReproError: a key is unknown, or a value impossible.
    """
    launching = [line for line in overrides if is_about_launching(line)]
    if not launching:
        return
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    needed = ["folder=none", "plan=none", "number=0"]
    cfg = hydra.compose_config("launch", [*launching, *needed], RunMode.MULTIRUN, with_log_configuration=False)
    with open_dict(cfg.hydra):
        # Hydra's own, which its schema does not have.
        cfg.hydra.pop("env", None)
    check_keys(cfg)
    for key in map(str, cfg):
        if key not in _LAUNCHED_WITH:
            raise ReproError(f"{key} is nothing that Hydra knows; `--info defaults` prints what there is.")
    if any("hydra.searchpath" in line for line in launching):
        raise ReproError("hydra.searchpath is for Hydra alone; give a folder of configurations with --config-dir.")
    at_once = cfg.hydra.launcher.get("n_jobs", 1)
    if not (at_once == -1 or 1 <= at_once <= MOST_AT_ONCE):
        raise ReproError(f"hydra.launcher.n_jobs is {at_once}; it must be from 1 to {MOST_AT_ONCE}, or -1 (all cores).")


def _check_together(runs: Sequence[Run]) -> None:
    """Refuse runs that cannot be done by one command: other folders or stores, or the same seeds batched twice."""
    for key in ("output_dir", "tracking_uri"):
        values = list(dict.fromkeys(getattr(run.config, key) for run in runs))
        if len(values) > 1:
            raise ReproError(f"{key} is {' and '.join(map(repr, values[:2]))}; runs of one command share it.")
    keys = [training_key(config) for run in runs for config in run.configs]
    if len(set(keys)) < len(keys) and any(len(run.configs) > 1 for run in runs):
        raise ReproError(
            f"seeds is {[c.seed for c in runs[0].configs]}, but of the {len(runs)} runs asked for several would do the "
            "same seed; leave out seed, or seeds."
        )


def _key_of(*overrides: Any, _root_: DictConfig) -> str:
    """`${run_key:OVERRIDE,...}`: another run's key; seed, device and threads are the asking run's unless given."""
    overrides = tuple(map(str, overrides))
    overridden = {override.partition("=")[0] for override in overrides}
    same = {key: _root_[key] for key in ("seed", "device", "threads") if key not in overridden}
    composed = (*_SEARCHED, *overrides)
    named = (*composed, *(f"{key}={value}" for key, value in same.items()))
    if named not in _KEYS:
        with nullcontext() if GlobalHydra().is_initialized() else _composing(None):
            cfg, _ = _chosen(composed)
        _KEYS[named] = training_key(settings(OmegaConf.merge(cfg, same)))  # type: ignore[arg-type]
    return _KEYS[named]


def _quotient(number: float, divisor: float) -> int:
    """`${quotient:A,B}`: A / B, rounded up; for lengths that follow from how much an iteration does."""
    if not divisor > 0:
        raise ReproError(f"quotient: the divisor is {divisor}; it must be greater than 0.")
    return math.ceil(number / divisor)


OmegaConf.register_new_resolver("run_key", _key_of, replace=True)
OmegaConf.register_new_resolver("quotient", _quotient, replace=True)
