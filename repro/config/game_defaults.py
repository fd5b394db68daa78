"""Defaults that a game has of its own, in place of the algorithm's, which are Leduc's.

They are files that Hydra composes, `conf/game_defaults/<game>/<kind>.yaml`, where the kind is the name that the
algorithm's schema is registered by: SD-CFR and Deep CFR are of one kind. A kind that has no file for any game takes
those of the kind whose schema its own is a subclass of. An experiment is complete without them.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from os.path import isfile
from pathlib import Path
from typing import Any

from hydra import compose
from omegaconf import DictConfig, OmegaConf

from repro.config.keys import flatten
from repro.config.schema import ALGORITHMS

GROUP = "game_defaults"
_SETTLED = ("experiment=", f"{GROUP}=", f"{GROUP}/")
"""How overrides begin after which nothing is to be selected any more."""


def with_defaults(overrides: Sequence[str], folders: Iterable[Path]) -> tuple[DictConfig, str]:
    """Compose a run with its game's own defaults, if there are some, and one sentence that says which these are.

    Args:
        folders: of configurations.
    """
    plain = compose("config", list(overrides))
    choice = _choice(plain, overrides, folders)
    if choice is None:
        return plain, ""
    # Before what is typed, which wins.
    changed = compose("config", [f"{GROUP}={choice}", *overrides])
    taken = " ".join(f"{key}={value}" for key, value in _differing(plain, changed))
    asked = f"{_name(plain, 'game')}, {_name(plain, 'algorithm')}"
    return changed, f"{asked}: by default {taken or 'nothing else'} ({GROUP}=none leaves that out)"


def chosen(overrides: Sequence[str], folders: Iterable[Path]) -> list[str]:
    """What stands before a run's overrides where Hydra is to compose it with its game's own defaults."""
    choice = _choice(compose("config", list(overrides)), overrides, folders)
    return [] if choice is None else [f"{GROUP}={choice}"]


def is_settled(overrides: Iterable[str]) -> bool:
    """Whether a run says itself what it takes, so that its game's defaults are not looked for."""
    return any(override.lstrip("+~").startswith(_SETTLED) for override in overrides)


def _choice(cfg: DictConfig, overrides: Sequence[str], folders: Iterable[Path]) -> str | None:
    """The file with defaults for a run; None where there is none, or the run settles it."""
    if is_settled(overrides):
        return None
    groups = [folder / GROUP for folder in folders]
    choices = [f"{_name(cfg, 'game')}/{kind}" for kind in _kinds(OmegaConf.get_type(cfg, "algorithm"), groups)]
    # A name may be too long for a file, which `Path.is_file` raises for.
    there = [c for c in choices if any(isfile(group / f"{c}.yaml") for group in groups)]
    return there[0] if there else None


def _kinds(schema: type | None, groups: Sequence[Path]) -> list[str]:
    """What an algorithm's schema is registered by; its nearest ancestor's, where no game has a file for its own."""
    for above in (schema or object).__mro__:
        kinds = [name for name, registered in ALGORITHMS.items() if registered is above]
        if any(any(group.glob(f"*/{kind}.yaml")) for group in groups for kind in kinds):
            return kinds
    return []


def _name(cfg: DictConfig, part: str) -> object:
    """A part's name; unlike the part's own `get`, what is selected says its key where it cannot be interpolated."""
    return OmegaConf.select(cfg, f"{part}.name")


def _differing(before: DictConfig, after: DictConfig) -> Iterator[tuple[str, str]]:
    """Dotted keys whose values the second configuration has otherwise, and these, as they would be typed."""
    selected = [_selected(cfg) for cfg in (before, after)]
    old, new = (flatten(_plain(cfg, set(selected[0]) & set(selected[1]))) for cfg in (before, after))
    yield from ((key, _typed(value)) for key, value in new.items() if key not in old or old[key] != value)
    if selected[0] != selected[1]:
        yield "evaluation", _typed(selected[1])


def _selected(cfg: DictConfig) -> list[str]:
    """Evaluations that are selected; of others there is only what is said of them, in case they are."""
    return [str(name) for name in cfg.evaluation if OmegaConf.get_type(cfg.evaluation, name) is not dict]


def _plain(cfg: DictConfig, evaluations: Container[str]) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(cfg)
    return {**plain, "evaluation": {name: e for name, e in plain["evaluation"].items() if name in evaluations}}


def _typed(value: Any) -> str:
    return json.dumps(value).replace('"', "").replace(" ", "")
