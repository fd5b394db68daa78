"""From a composed configuration to checked dataclasses: ranges of single keys, and keys that must go together.

All checks come before any work, and each says the key, the value and what is allowed in one sentence. What is about one
algorithm is in that algorithm's `problems`, what is about an evaluation in its own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from typing import Any, get_args, get_type_hints

import torch
from omegaconf import DictConfig, OmegaConf

from repro.common.errors import ReproError
from repro.common.importing import import_named
from repro.common.suggestions import did_you_mean
from repro.config.composed import check_keys
from repro.config.fields import LABEL
from repro.config.lightning import lightning_problems
from repro.config.schema import LATER, AlgorithmConfig, Config, NetworkConfig, ReadoutConfig

NAME = r"[a-z0-9_]+"
"""What names of read-outs and evaluations are made of."""

MOST_SNAPSHOTS = 1_000_000
"""That a run leaves, each of them a file."""

MOST_WHOLE = 2**63 - 1
"""Largest whole number that files and tensors hold."""

LONGEST_SEEDS = 200
"""Characters that the seeds of a batched run have, as its folder's name has them."""

TRAINING = "training"
"""Where a read-out's name stands, the training itself; no read-out may have it."""


def settings(cfg: DictConfig) -> Config:
    """The composed configuration as checked dataclasses.

    Raises:
        ReproError: a key is unknown, or a value is missing or out of range, or does not go with another.
    """
    check_keys(cfg)
    missing = OmegaConf.missing_keys(cfg)
    if missing:
        raise ReproError(f"{sorted(missing)[0]} has no value; give one on the command line or in the config.")
    config: Config = OmegaConf.to_object(cfg)  # type: ignore[assignment]
    name = config.game.get("name")
    if not isinstance(name, str) or not re.fullmatch(LABEL, name):
        raise ReproError(f"game.name is {name!r}; it must be the name of a game, such as leduc.")
    config.algorithm.readouts = {name: readout_of(name, readout) for name, readout in config.algorithm.readouts.items()}
    check_settings(config)
    return config


def check_settings(config: Config) -> None:
    """Check every value against its range, and values that must go together whatever the game.

    Raises:
        ReproError: names the key, the value and what is allowed.
    """
    check(config)
    if config.algorithm.module:
        import_named("algorithm.module", config.algorithm.module)
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
            what = f"evaluation.{name}.{key} is {value}" if key else f"evaluation is {name}"
            raise ReproError(f"{what}; {allowed}.")


def game_of(config: Config) -> Any:
    """The game, or the kind of subgames, that a checked run is about, on its device if that is here.

    Raises:
        ReproError: it is unknown or impossible, or no game for this algorithm.
    """
    return config.algorithm.load(config.game, device_here(config))


def device_here(config: Config) -> str:
    """The device that a run asks for, or the CPU where this machine has none such: what is trained already is measured
    anywhere. Whatever trains is to `check_device` first."""
    return config.device if torch.cuda.is_available() else "cpu"


def check_device(config: Config) -> None:
    """Check that a run can train here.

    Raises:
        ReproError: its device is not there.
    """
    if device_here(config) != config.device:
        why = "finds no GPU here" if torch.version.cuda else f"{torch.__version__} is built without CUDA (docs/runs.md)"
        raise ReproError(f"device is {config.device!r}, but torch {why}; use cpu.")


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
    unknown = sorted(map(str, readout.keys() - set(allowed_keys))) if isinstance(readout, Mapping) else []
    if unknown or not isinstance(readout, Mapping):
        hint = did_you_mean(unknown[0], allowed_keys) if unknown else ""
        raise ReproError(f"{key} is {readout}; it must be a mapping with the keys {' and '.join(allowed_keys)}{hint}.")
    if not isinstance(readout.get("kind"), str):
        raise ReproError(f"{key}.kind is {readout.get('kind')!r}; it must be the name of a kind of read-outs.")
    capacity = readout.get("capacity")
    if capacity is not None and (isinstance(capacity, bool) or not isinstance(capacity, int)):
        raise ReproError(f"{key}.capacity is {capacity!r}; it must be a whole number or null.")
    return ReadoutConfig(**{str(k): v for k, v in readout.items()})


def _problems(config: Config) -> Iterator[str]:
    """What is wrong whatever the algorithm and the game: keys that would have no effect, or lack one."""
    algorithm, network = config.algorithm, config.network
    if config.system_metrics and config.tracking_uri == LATER:
        yield (
            f"system_metrics is true, which is told while a run goes on, but tracking_uri is {LATER}, as for jobs of a "
            "cluster without a server; leave it out."
        )
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
    if config.seeds is not None and len("-".join(map(str, config.seeds))) > LONGEST_SEEDS:
        yield (
            f"seeds has {len(config.seeds)} numbers; the folder of the run is named after them, which takes "
            f"{LONGEST_SEEDS} digits at most: do them in several runs."
        )
    if algorithm.snapshots == "even" and algorithm.iterations // algorithm.snapshot_every > MOST_SNAPSHOTS:
        yield (
            f"algorithm.snapshot_every is {algorithm.snapshot_every} and algorithm.iterations {algorithm.iterations}; "
            f"a run leaves {MOST_SNAPSHOTS:,} snapshots at most."
        )
    yield from _readout_problems(algorithm)
    for name, evaluation in config.evaluation.items():
        if not re.fullmatch(NAME, name):
            yield f"evaluation.{name}: the name must be of a-z, 0-9 and _."
        if not is_dataclass(evaluation):
            yield f"evaluation.{name} is {evaluation!r}; it must be one of those in conf/evaluation."
    yield from lightning_problems(config)


def _readout_problems(algorithm: AlgorithmConfig) -> Iterator[str]:
    if not algorithm.readouts and algorithm.READOUTS:
        yield "algorithm.readouts is empty; at least one read-out is needed to measure anything."
    for name, readout in algorithm.readouts.items():
        if readout.kind not in algorithm.READOUTS:
            yield (
                f"algorithm.readouts.{name}.kind is {readout.kind!r}; for {algorithm.name} it must be one of "
                f"{', '.join(algorithm.READOUTS) or 'none: it has no read-outs'}"
                f"{did_you_mean(readout.kind, algorithm.READOUTS)}."
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
    kind: Any = type(node)
    schemas_of = _schemas(kind)
    for f in fields(node):
        key, value = f"{prefix}{f.name}", getattr(node, f.name)
        schemas = schemas_of[f.name]
        if value is not None and schemas and not isinstance(value, schemas):
            # An interpolation may give anything.
            raise ReproError(f"{key} is {value!r}; it must have the keys of a {schemas[0].__name__}.")
        if is_dataclass(value):
            check(value, f"{key}.")
        elif isinstance(value, Mapping):
            for name, inner in value.items():
                if is_dataclass(inner):
                    check(inner, f"{key}.{name}.")
        elif value is not None:
            _check_value(key, value, f.metadata)


@cache
def _schemas(node: type) -> dict[str, tuple[type, ...]]:
    """Field -> the dataclasses that its value must be one of; none where it is something else."""
    hints = {name: (hint, *get_args(hint)) for name, hint in get_type_hints(node).items()}
    return {name: tuple(t for t in kinds if isinstance(t, type) and is_dataclass(t)) for name, kinds in hints.items()}


def _check_value(key: str, value: Any, allowed: Mapping[str, Any]) -> None:
    if isinstance(value, float) and not math.isfinite(value) and "maybe_infinite" not in allowed:
        raise ReproError(f"{key} is {value}; it must be a finite number.")
    if "at_least" in allowed and not value >= allowed["at_least"]:
        raise ReproError(f"{key} is {value}; it must be at least {allowed['at_least']}.")
    if "above" in allowed and not value > allowed["above"]:
        raise ReproError(f"{key} is {value}; it must be greater than {allowed['above']}.")
    if "at_most" in allowed and not value <= allowed["at_most"]:
        raise ReproError(f"{key} is {value}; it must be at most {allowed['at_most']}.")
    if isinstance(value, int) and abs(value) > MOST_WHOLE:
        raise ReproError(f"{key} is {value}; it must be at most {MOST_WHOLE}.")
    if "one_of" in allowed and value not in allowed["one_of"]:
        hint = did_you_mean(str(value), allowed["one_of"])
        raise ReproError(f"{key} is {value!r}; it must be one of {', '.join(allowed['one_of'])}{hint}.")
    if "matches" in allowed and not re.fullmatch(allowed["matches"], value):
        raise ReproError(f"{key} is {value!r}; it must be of up to 100 letters, digits and . _ - alone.")
    if "is_path" in allowed and (not value or "\0" in value):
        raise ReproError(f"{key} is {value!r}; it must be the name of a folder.")
