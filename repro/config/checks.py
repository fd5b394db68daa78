"""From a composed configuration to checked dataclasses: ranges of single keys, and keys that must go together.

All checks come before any work, and each says the key, the value and what is allowed in one sentence. What is about one
algorithm is in that algorithm's `problems`, what is about an evaluation in its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from repro.config.schema import AlgorithmConfig, Config, NetworkConfig, ReadoutConfig
from repro.errors import ReproError

NAME = r"[a-z0-9_]+"
"""What names of read-outs and evaluations are made of."""

TRAINING = "training"
"""Where a read-out's name stands, the training itself; no read-out may have it."""


def settings(cfg: DictConfig) -> Config:
    """The composed configuration as checked dataclasses.

    Raises:
        ReproError: a value is missing or out of range, or does not go with another.
    """
    missing = OmegaConf.missing_keys(cfg)
    if missing:
        raise ReproError(f"{sorted(missing)[0]} has no value; give one on the command line or in the config.")
    config: Config = OmegaConf.to_object(cfg)  # type: ignore[assignment]
    config.algorithm.readouts = {name: readout_of(name, readout) for name, readout in config.algorithm.readouts.items()}
    check_settings(config)
    return config


def check_settings(config: Config) -> None:
    """Check every value against its range, and values that must go together whatever the game.

    Raises:
        ReproError: names the key, the value and what is allowed.
    """
    check(config)
    for problem in _problems(config):
        raise ReproError(problem)


def check_with_game(config: Config, game: Any) -> None:
    """Check what a run asks for against its game.

    Raises:
        ReproError: something does not go with the game, or with an algorithm's or evaluation's other keys.
    """
    for problem in config.algorithm.problems(config, game):
        raise ReproError(problem)
    for name, evaluation in config.evaluation.items():
        for key, value, allowed in evaluation.problems(game, config.algorithm):
            raise ReproError(f"evaluation.{name}.{key} is {value}; {allowed}.")


def game_of(config: Config) -> Any:
    """The game, or the kind of subgames, that a checked run is about, on its device.

    Raises:
        ReproError: it is unknown or impossible, or no game for this algorithm.
    """
    return config.algorithm.load(config.game, config.device)


@lru_cache(maxsize=32)
def _loaded(algorithm: type[AlgorithmConfig], game: str) -> Any:
    return algorithm.load(json.loads(game))


def game_for_checks(config: Config) -> Any:
    """The game on the CPU, loaded once for all runs of a sweep.

    Raises:
        ReproError: as for `game_of`.
    """
    schema: Any = type(config.algorithm)
    return _loaded(schema, json.dumps(config.game, sort_keys=True))


def readout_of(name: str, readout: Any) -> ReadoutConfig:
    """A read-out of `algorithm.readouts`, which Hydra takes for any mapping.

    Raises:
        ReproError: it is none.
    """
    key = f"algorithm.readouts.{name}"
    if isinstance(readout, ReadoutConfig):
        return readout
    if not re.fullmatch(NAME, name) or name == TRAINING:
        raise ReproError(f"{key}: the name must be of a-z, 0-9 and _, and not '{TRAINING}'.")
    allowed_keys = [f.name for f in fields(ReadoutConfig)]
    if not isinstance(readout, Mapping) or "kind" not in readout or not set(readout) <= set(allowed_keys):
        raise ReproError(f"{key} is {readout}; it must be a mapping with the keys {' and '.join(allowed_keys)}.")
    capacity = readout.get("capacity")
    if capacity is not None and (isinstance(capacity, bool) or not isinstance(capacity, int)):
        raise ReproError(f"{key}.capacity is {capacity!r}; it must be a whole number or null.")
    return ReadoutConfig(**{str(k): v for k, v in readout.items()})


def _problems(config: Config) -> Iterator[str]:
    """What is wrong whatever the algorithm and the game: keys that would have no effect, or lack one."""
    algorithm, network = config.algorithm, config.network
    if config.device == "cuda" and not torch.cuda.is_available():
        yield "device is 'cuda', but torch finds no GPU here; cpu always works."
    if not algorithm.USES_NETWORK and network is not None:
        yield f"network is {network.architecture}, but the algorithm {algorithm.name} has none; leave it out."
    if algorithm.USES_NETWORK and network is None:
        yield f"network is null, but the algorithm {algorithm.name} needs one."
    if algorithm.USES_NETWORK and network is not None:
        yield from _network_problems(network)
    if config.seeds is not None and not algorithm.MANY_SEEDS:
        yield (
            f"seeds is {config.seeds}, but the algorithm {algorithm.name} trains one at a time; leave it out, and use "
            "-m seed=0,1."
        )
    if config.seeds is not None and (
        not config.seeds or len(set(config.seeds)) < len(config.seeds) or min(config.seeds) < 0
    ):
        yield f"seeds is {config.seeds}; it must be different whole numbers, none below 0, or null."
    yield from _readout_problems(algorithm)
    for name in config.evaluation:
        if not re.fullmatch(NAME, name):
            yield f"evaluation.{name}: the name must be of a-z, 0-9 and _."


def _readout_problems(algorithm: AlgorithmConfig) -> Iterator[str]:
    if not algorithm.readouts and algorithm.READOUTS:
        yield "algorithm.readouts is empty; at least one read-out is needed to measure anything."
    for name, readout in algorithm.readouts.items():
        if readout.kind not in algorithm.READOUTS:
            yield (
                f"algorithm.readouts.{name}.kind is {readout.kind!r}; for {algorithm.name} it must be one of "
                f"{', '.join(algorithm.READOUTS) or 'none: it has no read-outs'}."
            )
        if readout.kind != "ensemble" and readout.capacity is not None:
            yield f"algorithm.readouts.{name}.capacity is {readout.capacity}; only an ensemble has one."


def _network_problems(network: NetworkConfig) -> Iterator[str]:
    name = network.architecture
    plain, branches = name in ("fc", "prelu"), name in ("deep_cfr", "brown")
    if plain and network.layers is None:
        yield f"network.layers has no value; the architecture {name} needs a number of hidden layers."
    if not plain and network.layers is not None:
        yield f"network.layers is {network.layers}, but the architecture {name} has a fixed depth; use null."
    if branches and network.card_width is None:
        yield f"network.card_width has no value; the architecture {name} needs the card branch's units."
    if not branches and network.card_width is not None:
        yield f"network.card_width is {network.card_width}, but the architecture {name} has no branches; use null."


def check(node: Any, prefix: str = "") -> None:
    """Check every value of a dataclass tree against the range declared beside its key.

    Raises:
        ReproError: names the key, the value and what is allowed.
    """
    for f in fields(node):
        key, value = f"{prefix}{f.name}", getattr(node, f.name)
        if is_dataclass(value):
            check(value, f"{key}.")
        elif isinstance(value, Mapping):
            for name, inner in value.items():
                if is_dataclass(inner):
                    check(inner, f"{key}.{name}.")
        elif value is not None:
            _check_value(key, value, f.metadata)


def _check_value(key: str, value: Any, allowed: Mapping[str, Any]) -> None:
    if "at_least" in allowed and not value >= allowed["at_least"]:
        raise ReproError(f"{key} is {value}; it must be at least {allowed['at_least']}.")
    if "at_most" in allowed and not value <= allowed["at_most"]:
        raise ReproError(f"{key} is {value}; it must be at most {allowed['at_most']}.")
    if "above" in allowed and not value > allowed["above"]:
        raise ReproError(f"{key} is {value}; it must be greater than {allowed['above']}.")
    if "one_of" in allowed and value not in allowed["one_of"]:
        raise ReproError(f"{key} is {value!r}; it must be one of {', '.join(allowed['one_of'])}.")
