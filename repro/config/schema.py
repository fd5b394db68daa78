"""The typed schema of every configuration, with the allowed range beside each key.

A misspelt key or a value of the wrong type fails when Hydra composes, a value out of range in `repro.config.checks`.
Both come before any work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING


def _at_least(low: float, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"at_least": low})


def _above(low: float, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"above": low})


def _one_of(*allowed: str, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"one_of": allowed})


MOST_EXPONENT = 10
"""Of tabular CFR's discounts; larger ones overflow."""


@dataclass
class NetworkConfig:
    """A network architecture."""

    # deep_cfr: the network of Deep CFR, with a branch for the cards; brown: the SD-CFR code's version of it;
    # sd_cfr: the Leduc network of the SD-CFR code; dnet: D2CFR's, with a branch for the state's value;
    # fc: plain fully-connected layers; prelu: the same with Parametric ReLU, for DCVN and DEVN.
    architecture: str = _one_of("deep_cfr", "brown", "sd_cfr", "dnet", "fc", "prelu")
    # Units per layer.
    width: int = _at_least(1)
    # Hidden layers of `fc` and `prelu`; the others have a fixed depth and take none.
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
    # Values of subgames: cfv, counterfactual values (DCVN), ev, expected values (DEVN), or ev_zero_sum, these less what
    # makes the counterfactual values sum to zero.
    kind: str = _one_of(
        "ensemble", "average_network", "average", "current", "policy", "greedy", "cfv", "ev", "ev_zero_sum"
    )
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
    # One-card games: leave the average strategies of all evaluations behind, as strategies.pt, for runs that are
    # measured against them.
    keep_strategies: bool = False


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
    gamma: float = field(default=0.0, metadata={"at_least": 0, "at_most": MOST_EXPONENT})
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
    # Name -> KEY or KEY/READOUT, with the key (folder in outputs/runs) of a finished run in the same game that left its
    # strategies.pt (algorithm.keep_strategies), networks.pt (Hold'em games) or blueprint.pt; of the former two, which
    # read-out, where there are several. Every read-out is measured against each. More can be added,
    # +algorithm.opponents.NAME=KEY, and all taken out, ~algorithm.opponents. ${run_key:OVERRIDE,...} is the key of the
    # run that these overrides ask for, with seed, device and threads of this one.
    opponents: dict[str, str] = field(default_factory=dict)
    # One-card games: opponents as they were after the same iteration, or at the end of their runs (as in other games).
    opponents_at: str = _one_of("same", "last", default="last")
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
    # Divide what is won by this many chips.
    reward_unit: float = _above(0, 1.0)
    # Learning rates of plain SGD: of the value network on the squared error, of the average network on the log loss.
    value_learning_rate: float = _above(0)
    average_learning_rate: float = _above(0)


@dataclass
class SolverConfig:
    """How subgames are solved; the exponents and the floor are those of `TabularCFRConfig`."""

    # Most exploitability of a solution, as a fraction of the pot.
    tolerance: float = _above(0, 0.005)
    alpha: float = 1.25
    beta: float = 0.5
    gamma: float = field(default=4.0, metadata={"at_least": 0, "at_most": MOST_EXPONENT})
    floor: bool = False


@dataclass
class SubgamesConfig(AlgorithmConfig):
    """What is about random subgames, whose solutions are stored in `output_dir`/subgames."""

    solver: SolverConfig = field(default_factory=SolverConfig)


@dataclass
class SolvedSubgamesConfig(SubgamesConfig):
    """Solve random subgames and store the solutions; an iteration is a shard of the dataset, 250 rivers or 10 turns.

    `seed` names the dataset.
    """

    READOUT_KINDS: ClassVar[tuple[str, ...]] = ()
    USES_NETWORK = False

    # Number of the first shard.
    first: int = _at_least(0, 0)


@dataclass
class EncodingErrorConfig(SolvedSubgamesConfig):
    """The error that buckets alone make; subgames that are not stored yet are solved first.

    `seed` names the buckets, too.
    """

    READOUT_KINDS = ("cfv", "ev")

    # How many buckets hands are in; null: a bucket for each different description of a board's hands.
    buckets: int | None = _at_least(1)
    # How a number of buckets is found; k_medians: under the earth mover's distance.
    clustering: str = _one_of("k_means", "k_medians", default="k_means")


@dataclass
class ValueNetworkConfig(SubgamesConfig):
    """DCVN or DEVN, networks that predict the values of subgames; an iteration is an epoch.

    The first read-out says which: cfv for DCVN, ev for DEVN. `seed` names the network's initial weights and the order
    of the samples.
    """

    READOUT_KINDS = ("cfv", "ev", "ev_zero_sum")

    # Which dataset, and buckets of the same number, 0 or more; and how many of its subgames.
    dataset: int = _at_least(0, 0)
    subgames: int = _at_least(2)
    # Share of the canonical boards whose subgames are for validation.
    validation: float = field(default=0.1, metadata={"above": 0, "at_most": 0.9})
    # Learn from only so many of those that are not for validation, drawn by the seed; null: from all.
    learn_from: int | None = _at_least(1, None)
    # How many buckets hands are in; null: no buckets, and the board is part of the input.
    buckets: int | None = _at_least(1, None)
    # Samples per SGD step, and Adam's learning rate.
    batch_size: int = _at_least(1)
    learning_rate: float = _above(0, 3e-4)


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
    store.store(group="algorithm", name="schema_solved_subgames", node=SolvedSubgamesConfig)
    store.store(group="algorithm", name="schema_encoding_error", node=EncodingErrorConfig)
    store.store(group="algorithm", name="schema_value_network", node=ValueNetworkConfig)
    store.store(group="network", name="schema", node=NetworkConfig)
