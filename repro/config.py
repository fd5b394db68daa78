"""The typed schema of every configuration, with the allowed range beside each key, and its checks.

A misspelt key or a value of the wrong type fails when Hydra composes; a value out of range fails in `check`. Both come
before any work.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from repro.errors import ReproError


def _at_least(low: float, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"at_least": low})


def _above(low: float, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"above": low})


def _one_of(*allowed: str, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"one_of": allowed})


_NAME = r"[a-z0-9_]+"

_MOST_EXPONENT = 10
"""Of tabular CFR's discounts; larger ones overflow."""


@dataclass
class NetworkConfig:
    """A network architecture."""

    # deep_cfr: the network of Deep CFR, with a branch for the cards; brown: the SD-CFR code's version of it;
    # sd_cfr: the Leduc network of the SD-CFR code; dnet: D2CFR's, with a branch for the state's value;
    # fc: plain fully-connected layers.
    architecture: str = _one_of("deep_cfr", "brown", "sd_cfr", "dnet", "fc")
    # Units per layer.
    width: int = _at_least(1)
    # Hidden layers of `fc`; the others have a fixed depth and take none.
    layers: int | None = _at_least(0, None)
    # Units per layer of the card branch of `deep_cfr` and `brown`; the others have no branches: null.
    card_width: int | None = _at_least(1, None)


@dataclass
class RegressionConfig:
    """How a network is fitted to a memory."""

    # SGD steps per fit, and rows per step.
    steps: int = _at_least(1)
    batch_size: int = _at_least(1)
    # Adam's learning rate, and the largest gradient norm.
    learning_rate: float = _above(0, 1e-3)
    clip_norm: float = _above(0, 10.0)
    # The learning rate over a fit: constant, or falling to 0 along half a cosine (this suite's own option).
    schedule: str = _one_of("constant", "cosine", default="constant")
    # Matrix products in float32, or in bfloat16 (only with device=cuda).
    precision: str = _one_of("fp32", "bf16", default="fp32")
    # Weights at the start of a fit: those of the player's previous network, or random ones.
    start: str = _one_of("previous", "random")


@dataclass
class ReadoutConfig:
    """A way to turn what a run stored into an average strategy."""

    # Deep CFR: ensemble, the average of B^M (SD-CFR), or average_network, S-hat trained on B^s.
    # NFSP: average_network. Tabular: average, or current, the one that the next iteration would play.
    # Kuhn post: policy, the strategy network, or greedy, always its most probable action.
    kind: str = _one_of("ensemble", "average_network", "average", "current", "policy", "greedy")
    # Most networks that B^M holds, by reservoir sampling; null: all. Only for `ensemble`.
    capacity: int | None = _at_least(1, None)


@dataclass
class AlgorithmConfig:
    """What every algorithm has."""

    READOUT_KINDS: ClassVar[tuple[str, ...]] = ()
    USES_NETWORK: ClassVar[bool] = True

    # Shown as the run's algorithm.
    name: str = MISSING
    # CFR iterations; each updates both players, so the papers' "iteration" of one player counts twice as many.
    iterations: int = _at_least(1)
    # Evaluate the read-outs every so many iterations, and after the last.
    evaluate_every: int = _at_least(1)
    # Name -> ReadoutConfig. More can be added: '+algorithm.readouts.sd_cfr_20={kind: ensemble, capacity: 20}'.
    readouts: dict[str, Any] = field(default_factory=dict)


@dataclass
class TabularCFRConfig(AlgorithmConfig):
    """CFR on tables, with exact counterfactual values; the variants are settings of Discounted CFR's exponents."""

    READOUT_KINDS = ("average", "current")
    USES_NETWORK = False

    # After iteration t, positive regrets are multiplied by t^alpha / (t^alpha + 1), negative ones likewise with beta:
    # from -10 to 10, or infinity (inf on the command line, .inf in a file), which leaves them alone.
    alpha: float = float("inf")
    beta: float = float("inf")
    # Iteration t counts t^gamma in the average strategy.
    gamma: float = field(default=0.0, metadata={"at_least": 0, "at_most": _MOST_EXPONENT})
    # Set negative regrets to zero after every update (CFR+).
    floor: bool = False
    # Player 1 answers player 0's new strategy; otherwise both update against the old ones.
    alternating: bool = True


@dataclass
class MCCFRConfig(AlgorithmConfig):
    """Monte Carlo CFR on tables."""

    READOUT_KINDS = ("average", "current")
    USES_NETWORK = False

    # external: explore all of the traverser's actions; outcome: sample one trajectory.
    sampling: str = _one_of("external", "outcome")
    # Traversals per player and iteration: all of them meet the same strategies.
    traversals: int = _at_least(1)
    # Weigh the regrets and strategies of iteration t by t.
    linear: bool = False
    # Hold'em games: the hands of a round, but the first, are grouped into so many buckets; null: none, suits excepted.
    buckets: int | None = _at_least(1, None)
    # Probability with which outcome sampling lets the traverser play uniformly; external sampling has none: null.
    exploration: float | None = field(default=None, metadata={"above": 0, "at_most": 1})


@dataclass
class KuhnPostConfig(AlgorithmConfig):
    """The Kuhn tutorial's algorithm; see `repro.algorithms.kuhn_post` for its two errors."""

    READOUT_KINDS = ("policy", "greedy")
    USES_NETWORK = False

    # After a fold, printed: the folder wins; kuhn: the other player.
    payoffs: str = _one_of("printed", "kuhn")
    # Whose chips regrets count. player_0: always player 0's, as printed; own: the acting player's.
    perspective: str = _one_of("player_0", "own")
    # Units of the two hidden layers of both networks, and Adam's learning rate.
    width: int = _at_least(1, 64)
    learning_rate: float = _above(0, 1e-3)


@dataclass
class DeepCFRConfig(AlgorithmConfig):
    """Deep CFR and SD-CFR, which differ in their read-outs only."""

    READOUT_KINDS: ClassVar[tuple[str, ...]] = ("ensemble", "average_network")

    # External-sampling traversals per player and iteration.
    traversals: int = _at_least(1)
    # reservoir: the papers' B^v and B^s; aggregated: sums per infoset, this suite's own option.
    memory: str = _one_of("reservoir", "aggregated", default="reservoir")
    # Capacity of B^v and of B^s, entries per player.
    value_capacity: int = _at_least(1)
    strategy_capacity: int = _at_least(1)
    # Loss weight of a sample from iteration t when training in iteration T.
    loss_weight: str = _one_of("t/T", "2t/T", default="t/T")
    # Divide sampled regrets by the number of legal actions, as the SD-CFR code does.
    divide_by_legal: bool = True
    # Divide sampled regrets by this many chips.
    regret_unit: float = _above(0, 1.0)
    # Strategy where no advantage is positive: the highest advantage (Deep CFR) or uniform (CFR).
    when_no_positive: str = _one_of("argmax", "uniform", default="argmax")
    value: RegressionConfig = field(default_factory=RegressionConfig)
    average: RegressionConfig = field(default_factory=RegressionConfig)
    # Hold'em games with one board: measure exploitability on so many random boards; null: on all, which is exact.
    evaluation_boards: int | None = _at_least(2, None)
    # Hold'em games: hands that the first read-out plays against the second, if they are an ensemble and an average
    # network, and every one against each opponent, at every evaluation; both seatings counted.
    match_hands: int = _at_least(0, 0)
    # Pot-size HUNL: name -> key (folder in outputs/runs) of the finished run of es_mccfr that left a blueprint.pt. More
    # can be added, +algorithm.opponents.NAME=KEY, and all taken out, ~algorithm.opponents. ${run_key:OVERRIDE,...} is
    # the key of the run that these overrides ask for, with seed, device and threads of this one.
    opponents: dict[str, str] = field(default_factory=dict)
    # Hold'em games: after the last iteration, hands per player on which the read-outs sd_cfr and deep_cfr are compared.
    disagreement_rollouts: int = _at_least(0, 0)


@dataclass
class D2CFRConfig(DeepCFRConfig):
    """D2CFR: Deep CFR with a dueling network, rectified state values and another loss of the policy network.

    With `network=fc`, no rectification and `kl_weight` 0 it is Deep CFR.
    """

    READOUT_KINDS = ("average_network",)

    # Where the state value comes from that, mixed with the network's own, advantages are taken against: nowhere (the
    # network's alone), play-outs from each infoset under the current strategies, or their expectation.
    rectification: str = _one_of("none", "play_outs", "exact")
    # Play-outs per infoset; null without them.
    simulations: int | None = _at_least(1, None)
    # Weight of that other value in iteration t: 0.99 - t / (t + 1), printed as it is or clipped to [0, 1].
    mixing: str = _one_of("printed", "clipped", default="printed")
    # Weight of the squared error of the state value, beside those of the regrets.
    state_loss: float = _above(0, 1.0)
    # The policy network is trained every so many iterations, and after the last.
    policy_every: int = _at_least(1, 10)
    # Weight, sign and window of the policy loss's divergence from the mean of the last policies: `minus` is as printed.
    kl_weight: float = _at_least(0, 0.0)
    kl_sign: str = _one_of("minus", "plus", default="minus")
    kl_window: int = _at_least(1, 10)


@dataclass
class NFSPConfig(AlgorithmConfig):
    """Neural fictitious self-play; an iteration is a batch of hands and the SGD steps that are due after it."""

    READOUT_KINDS = ("average_network",)

    # Hands per iteration. All of them are played by the same networks; 1 is the paper's.
    hands: int = _at_least(1)
    # Probability that a player plays a hand with its best response instead of its average strategy.
    eta: float = field(default=0.1, metadata={"above": 0, "at_most": 1})
    # Probability that the best response takes a random action, in the first iteration; it falls as 1 / sqrt(iteration).
    epsilon: float = field(default=0.06, metadata={"at_least": 0, "at_most": 1})
    # Capacity of M_RL, which holds the newest transitions, and of M_SL, a sample of all; entries per player.
    replay_capacity: int = _at_least(1)
    reservoir_capacity: int = _at_least(1)
    # A player's steps in the game per SGD step of each of its networks: a decision is a step, and so is a hand's end.
    steps_per_update: int = _at_least(1)
    # Rows per SGD step; a network learns once its memory holds as many entries.
    batch_size: int = _at_least(1)
    # SGD steps of the value network from one refresh of its target network to the next.
    target_every: int = _at_least(1)
    # Learning rates of plain SGD: of the value network on squared chips, of the average network on the log loss.
    value_learning_rate: float = _above(0)
    average_learning_rate: float = _above(0)


@dataclass
class Config:
    """One run: a game, an algorithm, a seed; and where its results go."""

    game: dict[str, Any] = MISSING
    algorithm: Any = MISSING
    # null for algorithms without networks.
    network: NetworkConfig | None = None
    seed: int = _at_least(0, 0)
    # Deep CFR on Hold'em games: train these seeds together, as one batched run, and not `seed`, which must not be swept
    # then. Each gets the tracked run that it would get alone.
    seeds: list[int] | None = None
    # The figure or table that the run belongs to (an MLflow experiment), and the scale it is made at.
    target: str = "runs"
    scale: str = "custom"
    device: str = _one_of("cpu", "cuda", default="cpu")
    # CPU threads of this run. Results are bitwise reproducible for a given number.
    threads: int = _at_least(1, 1)
    # Folder for checkpoints, logs, the MLflow database and figures.
    output_dir: str = "outputs"
    # null: an SQLite file in output_dir.
    tracking_uri: str | None = None
    # Write a checkpoint when this many seconds have passed since the last one (and at the end).
    checkpoint_every_seconds: float = _at_least(0, 60.0)
    # Run again even if this run is finished.
    force: bool = False


_PATHS_AND_SWITCHES = ("output_dir", "tracking_uri", "force", "checkpoint_every_seconds")
"""Keys that change where or when something is written, but no result."""


def register() -> None:
    """Make the schemas known to Hydra under the names that the files in `conf/` inherit from."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    store.store(group="algorithm", name="schema_deep_cfr", node=DeepCFRConfig)
    store.store(group="algorithm", name="schema_d2cfr", node=D2CFRConfig)
    store.store(group="algorithm", name="schema_tabular_cfr", node=TabularCFRConfig)
    store.store(group="algorithm", name="schema_mccfr", node=MCCFRConfig)
    store.store(group="algorithm", name="schema_kuhn_post", node=KuhnPostConfig)
    store.store(group="algorithm", name="schema_nfsp", node=NFSPConfig)
    store.store(group="network", name="schema", node=NetworkConfig)


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
        if config.network.architecture == "dnet" and not isinstance(algorithm, D2CFRConfig):
            raise ReproError(
                f"network.architecture is dnet, whose state value the algorithm {algorithm.name} has no use for; only "
                "d2cfr takes it."
            )
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
    _check_readouts(algorithm)


def _check_seeds(config: Config) -> None:
    if config.seeds is None:
        return
    if not isinstance(config.algorithm, DeepCFRConfig):
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
            "play_outs need a number, others take null."
        )
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
    if algorithm.opponents and not algorithm.match_hands:
        raise ReproError(
            f"algorithm.match_hands is 0, but algorithm.opponents are {', '.join(algorithm.opponents)}; a number of "
            "hands is needed."
        )
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


def check_variant(algorithm: AlgorithmConfig) -> None:
    """Check what the ranges of a tabular algorithm's single keys cannot say.

    Raises:
        ReproError: names the key, the value and what is allowed.
    """
    if isinstance(algorithm, MCCFRConfig) and (algorithm.sampling == "outcome") != (algorithm.exploration is not None):
        raise ReproError(
            f"algorithm.exploration is {algorithm.exploration} and algorithm.sampling {algorithm.sampling}; outcome "
            "sampling needs a probability, external sampling takes null."
        )
    if isinstance(algorithm, TabularCFRConfig):
        for key in ("alpha", "beta"):
            value = getattr(algorithm, key)
            if not (value == float("inf") or abs(value) <= _MOST_EXPONENT):
                raise ReproError(
                    f"algorithm.{key} is {value}; it must be from -{_MOST_EXPONENT} to {_MOST_EXPONENT}, or inf."
                )


def _check_network(network: NetworkConfig) -> None:
    if network.architecture == "fc" and network.layers is None:
        raise ReproError("network.layers has no value; the architecture fc needs a number of hidden layers.")
    if network.architecture != "fc" and network.layers is not None:
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
    if not algorithm.readouts:
        raise ReproError("algorithm.readouts is empty; at least one read-out is needed to measure anything.")
    for name, readout in algorithm.readouts.items():
        if readout.kind not in algorithm.READOUT_KINDS:
            raise ReproError(
                f"algorithm.readouts.{name}.kind is {readout.kind!r}; for {algorithm.name} it must be one of "
                f"{', '.join(algorithm.READOUT_KINDS)}."
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
