"""What of a configuration determines the results, and the key that names a run by it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

_PATHS_AND_SWITCHES = ("output_dir", "tracking_uri", "force", "checkpoint_every_seconds")
"""Keys that change where or when something is written, but no result."""


def result_config(cfg: DictConfig) -> dict[str, Any]:
    """The part of a configuration that determines the results, as plain Python."""
    plain = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(plain, dict)
    # Of a batched run `seed` determines nothing.
    apart = _PATHS_AND_SWITCHES if plain["seeds"] is None else (*_PATHS_AND_SWITCHES, "seed")
    return {str(k): v for k, v in plain.items() if k not in apart}


def single_runs(cfg: DictConfig) -> list[DictConfig]:
    """The configuration of each seed of a batched run; of any other run its own."""
    if cfg.seeds is None:
        return [cfg]
    return [OmegaConf.merge(cfg, {"seed": seed, "seeds": None}) for seed in cfg.seeds]  # type: ignore[misc]


def run_key(cfg: DictConfig) -> str:
    """Twelve hexadecimal digits that name a run: equal exactly when the configurations agree, paths aside."""
    text = json.dumps(result_config(cfg), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def hyperparameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """What runs are compared by: `result_config` on one level, without the seed and what follows from it."""
    apart = ("seed", "algorithm.opponents.")
    return {k: v for k, v in flatten(config).items() if not k.startswith(apart)}


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings to one level with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
