"""From a command line to the runs that it asks for, composed once (`repro.plans.composing`) and checked before work.

Hydra composes configurations and launches jobs; in between, this module expands a sweep and checks every run
(`repro.plans.planned`). It does not go through Hydra's sweeper: that composes what is not swept before anything else,
and so refuses `algorithm=dcvn,devn algorithm.buckets=200`, and composes each run again when it is launched. A launched
job is told where its planned run is written down.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean
from repro.config.checks import check_settings, check_with_game, game_for_checks, readout_of, settings
from repro.config.composed import check_keys
from repro.config.jobs import MOST_AT_ONCE, check_single, is_about_launching, jobs_of
from repro.config.keys import training_key
from repro.config.memory import check_memory
from repro.config.schema import Config
from repro.plans.composing import composing
from repro.plans.naming import title_of, titled_together
from repro.plans.planned import Run
from repro.tracking.folders import full_key

_PUBLISHED = ("custom", "paper")
"""Scales that depart from nothing."""
_LAUNCHED_WITH = ("plan", "number", "folder", "hydra")
"""Keys of `conf/launch.yaml`, and Hydra's own."""


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
    with composing(config_dir, overrides) as composer:
        _check_launching(overrides)
        jobs = jobs_of(overrides, multirun)
        configs, notes = composer.runs(jobs)
        pairs = zip(configs, jobs, strict=True)
        runs = titled_together([replace(_run(cfg, job, composer.folders), title=title_of(job)) for cfg, job in pairs])
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
    with composing(config_dir, overrides) as composer:
        check_single(overrides)
        same = [f"{key}={getattr(config, key)}" for key in ("seed", "device", "threads")]
        others = [*same, *(line for line, key in about.items() if not key.startswith("algorithm."))]
        cfg = composer.compose("config", others)
        _drop_what_is_not_measured(cfg, others, composer.folders)
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


def _run(cfg: DictConfig, job: Sequence[str], folders: Iterable[Path]) -> Run:
    _check_departures(cfg, job, folders)
    _drop_what_is_not_measured(cfg, job, folders)
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


def _check_departures(cfg: DictConfig, job: Sequence[str], folders: Iterable[Path]) -> None:
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
    if not any((folder / file).is_file() for folder in folders):
        raise ReproError(
            f"scale is {cfg.scale}; the experiment {experiments[-1]} has no conf/{file}, so that it would be of the "
            "published length; use scale=paper for that."
        )


def _drop_what_is_not_measured(cfg: DictConfig, job: Sequence[str], folders: Iterable[Path]) -> None:
    """Leave out what an experiment says of an evaluation that was not selected.

    Raises:
        ReproError: the command line says something of one.
    """
    known = [path.stem for folder in folders for path in folder.glob("evaluation/*.yaml")]
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
