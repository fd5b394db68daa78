"""Composes configurations by Hydra, from `conf` and from a folder of the user's.

Of a command line's runs, what they choose is composed once in a process; values that choose nothing are set afterwards,
by Hydra's own function. References from one run to another (`${run_key:...}`) are resolved here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from repro.common.errors import ReproError
from repro.common.importing import import_named
from repro.config.checks import settings
from repro.config.composed import CONF, check_choices, one_sentence
from repro.config.game_defaults import chosen, is_settled, with_defaults
from repro.config.jobs import is_about_launching, quoted, set_afterwards
from repro.config.keys import register_schemas, training_key

_KEYS: dict[tuple[str, ...], str] = {}
"""Of referenced runs: a reference is resolved many times while its run is planned."""


@dataclass(frozen=True)
class Composer:
    """Composes from folders of configurations; Hydra must be ready to (`composing`).

    Attributes:
        searched: what is added to Hydra's overrides in every composition.
        folders: where files of configurations are looked for, the package's first.
    """

    searched: tuple[str, ...] = ()
    folders: tuple[Path, ...] = (CONF,)

    def compose(self, name: str, overrides: Sequence[str]) -> DictConfig:
        """What Hydra alone composes of a file of `conf`."""
        return compose(name, [*self.searched, *overrides])

    def runs(self, jobs: Sequence[Sequence[str]]) -> tuple[list[DictConfig], list[str]]:
        """A run's configuration per job, each with its game's defaults, and what is to be said of them.

        Args:
            jobs: the overrides of each.
        """
        values = set_afterwards(jobs, all(map(is_settled, jobs)))
        parser = OverridesParser.create()
        notes: dict[str, None] = {}
        configs = []
        for job in jobs:
            cfg, note = _chosen(self, tuple(override for override in job if override not in values))
            notes |= dict.fromkeys([note] if note else [])
            config = cfg.copy()
            try:
                for override in parser.parse_overrides([override for override in job if override in values]):
                    OmegaConf.update(config, override.key_or_group, override.value())
            except OmegaConfBaseException:
                self.compose("config", job)  # Hydra says what is wrong.
                raise
            configs.append(config)
        return configs, list(notes)


_current = Composer()
"""What references to other runs are composed with: as the run that has them."""


@contextmanager
def composing(config_dir: str | None, overrides: Sequence[str] = ()) -> Iterator[Composer]:
    """Hydra, ready to compose from `conf` and, before it, from a folder of the user's.

    Raises:
        ReproError: what is composed of these overrides cannot be.
    """
    register_schemas()
    global _current
    _current = Composer() if config_dir is None else _with_folder(config_dir)
    if config_dir is not None:
        # Its files may have changed since.
        _chosen.cache_clear()
        _KEYS.clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            yield _current
        except (HydraException, OmegaConfBaseException, YAMLError) as error:
            raise ReproError(" ".join(one_sentence(error).split())) from error
        except (ValueError, TypeError, AssertionError, AttributeError) as error:
            # What Hydra raises for a choice that is no name, such as network=null, says neither key nor value; and for
            # a key of what is null that "root" is.
            reason = "one of these keys is part of what is null" if "for root" in str(error) else str(error)
            raise ReproError(f"bad configuration: {' '.join(overrides)}: {' '.join(reason.split())}") from error


def _with_folder(config_dir: str) -> Composer:
    """Composes from a folder of configurations, too; the files of algorithms and games that it names are imported.

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
    return Composer((f"hydra.searchpath=[{quoted(f'file://{folder}')}]",), (CONF, folder))


@lru_cache(maxsize=256)
def _chosen(composer: Composer, overrides: tuple[str, ...]) -> tuple[DictConfig, str]:
    """A configuration with its game's defaults, not to be changed, and what is to be said of these.

    It is composed once as long as the files are the package's: runs of a sweep, sweeps of a target, and references to
    runs ask for the same ones.
    """
    check_choices(overrides)
    return with_defaults([*composer.searched, *overrides], composer.folders)


def before_hydra(overrides: Sequence[str], config_dir: str | None) -> list[str]:
    """What Hydra, if it is to show a run by itself, needs before the run's overrides to compose what is planned.

    Raises:
        ReproError: it cannot be composed.
    """
    with composing(config_dir, overrides) as composer:
        job = [override for override in overrides if not is_about_launching(override)]
        return chosen([*composer.searched, *job], composer.folders)


def _key_of(*overrides: Any, _root_: DictConfig) -> str:
    """`${run_key:OVERRIDE,...}`: another run's key; seed, device and threads are the asking run's unless given."""
    overrides = tuple(map(str, overrides))
    overridden = {override.partition("=")[0] for override in overrides}
    same = {key: _root_[key] for key in ("seed", "device", "threads") if key not in overridden}
    composer = _current
    named = (*composer.searched, *overrides, *(f"{key}={value}" for key, value in same.items()))
    if named not in _KEYS:
        with nullcontext() if GlobalHydra().is_initialized() else composing(None):
            cfg, _ = _chosen(composer, overrides)
        _KEYS[named] = training_key(settings(OmegaConf.merge(cfg, same)))  # type: ignore[arg-type]
    return _KEYS[named]


def _quotient(number: float, divisor: float) -> int:
    """`${quotient:A,B}`: A / B, rounded up; for lengths that follow from how much an iteration does."""
    if not divisor > 0:
        raise ReproError(f"quotient: the divisor is {divisor}; it must be greater than 0.")
    return math.ceil(number / divisor)


OmegaConf.register_new_resolver("run_key", _key_of, replace=True)
OmegaConf.register_new_resolver("quotient", _quotient, replace=True)
