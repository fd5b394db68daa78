"""From a composed configuration to checked dataclasses: ranges of single keys, and keys that must go together.

All checks come before any work, and each says the key, the value and what is allowed in one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from repro.config.schema import (
    MOST_EXPONENT,
    AlgorithmConfig,
    Config,
    D2CFRConfig,
    DeepCFRConfig,
    KuhnPostConfig,
    MCCFRConfig,
    NetworkConfig,
    NFSPConfig,
    ReadoutConfig,
    SolverConfig,
    SubgamesConfig,
    TabularCFRConfig,
    ValueNetworkConfig,
)
from repro.errors import ReproError

_NAME = r"[a-z0-9_]+"


def settings(cfg: DictConfig) -> Config:
    """The composed configuration as checked dataclasses.

    Raises:
        ReproError: a value is missing or out of range.
    """
    missing = OmegaConf.missing_keys(cfg)
    if missing:
        raise ReproError(f"{sorted(missing)[0]} has no value; give one on the command line or in the config.")
    config: Config = OmegaConf.to_object(cfg)  # type: ignore[assignment]
    config.algorithm.readouts = {name: _readout(name, given) for name, given in config.algorithm.readouts.items()}
    check(config)
    _check_together(config)
    return config


def _readout(name: str, given: Any) -> ReadoutConfig:
    key = f"algorithm.readouts.{name}"
    if not re.fullmatch(_NAME, name) or name == "training":
        raise ReproError(f"{key}: the name must be of a-z, 0-9 and _, and not 'training'.")
    known = [f.name for f in fields(ReadoutConfig)]
    if not isinstance(given, Mapping) or "kind" not in given or not set(given) <= set(known):
        raise ReproError(f"{key} is {given}; it must be a mapping with the keys {' and '.join(known)}.")
    capacity = given.get("capacity")
    if capacity is not None and (isinstance(capacity, bool) or not isinstance(capacity, int)):
        raise ReproError(f"{key}.capacity is {capacity!r}; it must be a whole number or null.")
    return ReadoutConfig(**{str(k): v for k, v in given.items()})


def _check_together(config: Config) -> None:
    """Refuse keys that would have no effect: a sweep over one would repeat the same run under different names."""
    algorithm = config.algorithm
    if not algorithm.USES_NETWORK and config.network is not None:
        raise ReproError(
            f"network is {config.network.architecture}, but the algorithm {algorithm.name} has none; leave it out."
        )
    if algorithm.USES_NETWORK:
        if config.network is None:
            raise ReproError(f"network is null, but the algorithm {algorithm.name} needs one.")
        _check_network(config.network)
        _check_purpose(config.network, algorithm)
    check_variant(algorithm)
    _check_seeds(config)
    if isinstance(algorithm, D2CFRConfig) and config.network is not None:
        _check_d2cfr(algorithm, config.network)
    if isinstance(algorithm, DeepCFRConfig):
        _check_comparisons(algorithm)
        for which in ("value", "average"):
            if getattr(algorithm, which).precision != "fp32" and config.device != "cuda":
                raise ReproError(
                    f"algorithm.{which}.precision is {getattr(algorithm, which).precision}, which needs device=cuda; "
                    f"device is {config.device}."
                )
    if isinstance(algorithm, KuhnPostConfig) and config.game.get("name") != "kuhn":
        raise ReproError(f"game is {config.game.get('name')!r}; the algorithm {algorithm.name} plays kuhn only.")
    if isinstance(algorithm, NFSPConfig):
        for capacity in ("replay_capacity", "reservoir_capacity"):
            if getattr(algorithm, capacity) < algorithm.batch_size:
                raise ReproError(
                    f"algorithm.{capacity} is {getattr(algorithm, capacity)}; it must be at least algorithm.batch_size "
                    f"({algorithm.batch_size}), or nothing is ever learned."
                )
    if isinstance(algorithm, ValueNetworkConfig):
        _check_batches(algorithm)
    _check_readouts(algorithm)


def _check_batches(algorithm: ValueNetworkConfig) -> None:
    if algorithm.learn_from is not None and algorithm.learn_from > algorithm.subgames:
        raise ReproError(
            f"algorithm.learn_from is {algorithm.learn_from}; it must be at most algorithm.subgames, "
            f"{algorithm.subgames}, less those for validation."
        )
    key = "subgames" if algorithm.learn_from is None else "learn_from"
    most = getattr(algorithm, key)
    if algorithm.batch_size > most:
        raise ReproError(
            f"algorithm.batch_size is {algorithm.batch_size}, but algorithm.{key} only {most}; take smaller batches "
            "or more subgames."
        )


def _check_purpose(network: NetworkConfig, algorithm: AlgorithmConfig) -> None:
    if (network.architecture == "prelu") != isinstance(algorithm, ValueNetworkConfig):
        raise ReproError(
            f"network.architecture is {network.architecture}; prelu is for networks of subgames' values, which take "
            f"nothing else, and the algorithm is {algorithm.name}."
        )
    if network.architecture == "dnet" and not isinstance(algorithm, D2CFRConfig):
        raise ReproError(
            f"network.architecture is dnet, whose state value the algorithm {algorithm.name} has no use for; only "
            "d2cfr takes it."
        )


def _check_seeds(config: Config) -> None:
    if config.seeds is None:
        return
    if type(config.algorithm) is not DeepCFRConfig:
        raise ReproError(
            f"seeds is {config.seeds}, but the algorithm {config.algorithm.name} trains one at a time; leave it "
            "out, and use -m seed=0,1."
        )
    if not config.seeds or len(set(config.seeds)) < len(config.seeds) or min(config.seeds) < 0:
        raise ReproError(f"seeds is {config.seeds}; it must be different whole numbers, none below 0, or null.")


def _check_d2cfr(algorithm: D2CFRConfig, network: NetworkConfig) -> None:
    dueling = network.architecture == "dnet"
    if algorithm.rectification != "none" and not dueling:
        raise ReproError(
            f"algorithm.rectification is {algorithm.rectification}, but network.architecture {network.architecture}; "
            "only dnet has a state value to rectify."
        )
    if (algorithm.rectification == "play_outs") != (algorithm.simulations is not None):
        raise ReproError(
            f"algorithm.simulations is {algorithm.simulations} and algorithm.rectification {algorithm.rectification}; "
            "play_outs need a number, others take null: add algorithm.simulations=null."
        )
    for key, value, needed in (
        ("mixing", "clipped", algorithm.rectification != "none"), ("kl_sign", "plus", algorithm.kl_weight > 0)
    ):  # fmt: skip
        if getattr(algorithm, key) == value and not needed:
            other = "rectification is none" if key == "mixing" else "kl_weight is 0"
            raise ReproError(f"algorithm.{key} is {value}, which has no effect where algorithm.{other}; leave it out.")
    if dueling and algorithm.divide_by_legal:
        raise ReproError("algorithm.divide_by_legal is true; regrets and state values must have one unit, use false.")
    if algorithm.evaluate_every % algorithm.policy_every:
        raise ReproError(
            f"algorithm.evaluate_every is {algorithm.evaluate_every}; it must be a multiple of algorithm.policy_every, "
            f"{algorithm.policy_every}, so that the policy network that is measured is a new one."
        )
    if algorithm.memory != "reservoir":
        raise ReproError(f"algorithm.memory is {algorithm.memory}; {algorithm.name} takes reservoir only.")


def _check_comparisons(algorithm: DeepCFRConfig) -> None:
    if algorithm.opponents_at == "same" and not algorithm.opponents:
        raise ReproError("algorithm.opponents_at is same, but there are no algorithm.opponents; leave it out.")
    for name in algorithm.opponents:
        if not re.fullmatch(_NAME, name):
            raise ReproError(f"algorithm.opponents.{name}: the name must be of a-z, 0-9 and _.")
    kinds = [readout.kind for readout in algorithm.readouts.values()]
    if algorithm.match_hands % 2:
        raise ReproError(
            f"algorithm.match_hands is {algorithm.match_hands}; every deal is played twice, so it must be even."
        )
    for key in ("match_hands", "disagreement_rollouts"):
        against_others = key == "match_hands" and algorithm.opponents
        if getattr(algorithm, key) and kinds[:2] != ["ensemble", "average_network"] and not against_others:
            raise ReproError(
                f"algorithm.{key} is {getattr(algorithm, key)}, but algorithm.readouts are of kinds {kinds}; needed "
                "are an ensemble, then an average_network."
            )


def check_variant(algorithm: AlgorithmConfig | SolverConfig, prefix: str = "algorithm.") -> None:
    """Check what the ranges of a tabular algorithm's single keys cannot say.

    Raises:
        ReproError: names the key, the value and what is allowed.
    """
    if isinstance(algorithm, MCCFRConfig) and (algorithm.sampling == "outcome") != (algorithm.exploration is not None):
        raise ReproError(
            f"algorithm.exploration is {algorithm.exploration} and algorithm.sampling {algorithm.sampling}; outcome "
            "sampling needs a probability, external sampling takes null."
        )
    if isinstance(algorithm, SubgamesConfig):
        check_variant(algorithm.solver, "algorithm.solver.")
    if isinstance(algorithm, TabularCFRConfig | SolverConfig):
        for key in ("alpha", "beta"):
            value = getattr(algorithm, key)
            if not (value == float("inf") or abs(value) <= MOST_EXPONENT):
                raise ReproError(
                    f"{prefix}{key} is {value}; it must be from -{MOST_EXPONENT} to {MOST_EXPONENT}, or inf."
                )


def _check_network(network: NetworkConfig) -> None:
    plain = network.architecture in ("fc", "prelu")
    if plain and network.layers is None:
        raise ReproError(
            f"network.layers has no value; the architecture {network.architecture} needs a number of hidden layers."
        )
    if not plain and network.layers is not None:
        raise ReproError(
            f"network.layers is {network.layers}, but the architecture {network.architecture} has a fixed depth; "
            "use null."
        )
    branches = network.architecture in ("deep_cfr", "brown")
    if branches and network.card_width is None:
        raise ReproError(
            f"network.card_width has no value; the architecture {network.architecture} needs the card branch's units."
        )
    if not branches and network.card_width is not None:
        raise ReproError(
            f"network.card_width is {network.card_width}, but the architecture {network.architecture} has no branches; "
            "use null."
        )


def _check_readouts(algorithm: AlgorithmConfig) -> None:
    kinds = [readout.kind for readout in algorithm.readouts.values()]
    if isinstance(algorithm, ValueNetworkConfig) and "cfv" in kinds and len(kinds) > 1:
        raise ReproError(
            f"algorithm.readouts are of kinds {kinds}; cfv is another network than the others, take it alone."
        )
    if not algorithm.readouts and algorithm.READOUT_KINDS:
        raise ReproError("algorithm.readouts is empty; at least one read-out is needed to measure anything.")
    for name, readout in algorithm.readouts.items():
        if readout.kind not in algorithm.READOUT_KINDS:
            raise ReproError(
                f"algorithm.readouts.{name}.kind is {readout.kind!r}; for {algorithm.name} it must be one of "
                f"{', '.join(algorithm.READOUT_KINDS) or 'none: it has no read-outs'}."
            )
        if readout.kind != "ensemble" and readout.capacity is not None:
            raise ReproError(f"algorithm.readouts.{name}.capacity is {readout.capacity}; only an ensemble has one.")


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
