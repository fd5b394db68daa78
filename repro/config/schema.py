"""The typed schema of what every run has, with the allowed range beside each key.

What an algorithm has beside is a dataclass in the algorithm's own file, registered by `register_algorithm`; what is
measured, one in `repro.evaluation`. A misspelt key or a value of the wrong type fails when Hydra composes, a value out
of range in `repro.config.checks`. Both come before any work.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from repro.common.errors import ReproError
from repro.config.fields import above, above_up_to, added, at_least, between, label, multiplies, one_of, path

LATER = "later"
"""In place of a `tracking_uri`: nobody is told before a command collects the run."""


@dataclass
class NetworkConfig:
    """A network architecture."""

    # deep_cfr: the network of Deep CFR, with a branch for the cards; brown: the SD-CFR code's version of it;
    # sd_cfr: the Leduc network of the SD-CFR code; dnet: D2CFR's, with a branch for the state's value;
    # fc: plain fully-connected layers; prelu: the same with Parametric ReLU, for DCVN and DEVN.
    architecture: str = one_of("deep_cfr", "brown", "sd_cfr", "dnet", "fc", "prelu")
    # Units per layer.
    width: int = at_least(1)
    # Hidden layers of `fc` and `prelu`; the others have a fixed depth and take none.
    layers: int | None = between(0, 1000, None)
    # Units per layer of the card branch of `deep_cfr` and `brown`; the others have no branches: null.
    card_width: int | None = at_least(1, None)


@dataclass
class RegressionConfig:
    """How a network is fitted to a memory."""

    # SGD steps per fit, and rows per step.
    steps: int = multiplies(at_least(1))
    batch_size: int = multiplies(at_least(1))
    # Adam's learning rate, and the largest gradient norm.
    learning_rate: float = above(0, 1e-3)
    clip_norm: float = above(0, 10.0)
    # The learning rate over a fit: constant, or falling to 0 along half a cosine (this suite's own option).
    schedule: str = one_of("constant", "cosine", default="constant")
    # Matrix products in float32; or, with device=cuda only, of factors rounded to TensorFloat-32 or bfloat16.
    precision: str = one_of("fp32", "tf32", "bf16", default="fp32")
    # Weights at the start of a fit: those of the player's previous network, or random ones.
    start: str = one_of("previous", "random")
    # From this CFR iteration on fits start from random weights after all (this suite's own option); null: as `start`.
    random_from: int | None = added(at_least(2, None))
    # So many SGD steps more in each CFR iteration than in the one before (this suite's own option).
    more_steps: int = added(at_least(0, 0))
    # How entries of the memory come into minibatches: each as often as any other, and weighted in the loss, as in the
    # papers; or as often as it weighs, all with one weight (this suite's own option, the same loss in the mean).
    drawn: str = added(one_of("uniformly", "by_weight", default="uniformly"))
    # An error in an advantage below zero counts less than above it: at so much below, in the targets' unit (chips over
    # `regret_unit`), about a half, far below a fiftieth (this suite's own option: `repro.networks.losses`); null: all
    # count the same.
    focus: float | None = added(at_least(1e-6, None))
    # Matrices of hidden layers are moved by Muon, at this rate, and all else by Adam (this suite's own option:
    # `repro.networks.muon`); null: all by Adam, as in the papers.
    muon: float | None = added(above(0, None))
    # A fit leaves the moving average of its steps' weights with this decay (1: their mean); null: the last ones.
    averaging: float | None = added(above_up_to(0, 1, None))

    def starts_at_random(self, iteration: int) -> bool:
        """Whether a fit in a CFR iteration starts from random weights."""
        return self.start == "random" or (self.random_from is not None and iteration >= self.random_from)

    def steps_at(self, iteration: int) -> int:
        """SGD steps of a fit in a CFR iteration."""
        return self.steps + self.more_steps * (iteration - 1)

    def steps_until(self, iteration: int) -> int:
        """SGD steps of all fits up to a CFR iteration, it among them."""
        return self.steps * iteration + self.more_steps * (iteration * (iteration - 1) // 2)


@dataclass
class ReadoutConfig:
    """A way to play what a training left."""

    # One of the kinds in the algorithm's `READOUTS`.
    kind: str = MISSING
    # Most networks that B^M holds, by reservoir sampling; null: all. Only for `ensemble`.
    capacity: int | None = at_least(1, None)


@dataclass(frozen=True)
class Leaves:
    """What a training writes to its folder: bytes of its tensors; what files take beside: `repro.estimates.disk`.

    Attributes:
        snapshot: of the state of a snapshot, at the most.
        row: of what an iteration adds to the history that snapshots share, of both players.
        checkpoint: of a checkpoint, at the most and without rows of the history.
        tensors: how many there are in a checkpoint, or in a snapshot if that has more.
        epochs: Lightning's epochs in all, each of which is a line in a file.
        snapshot_is_exact: whether no snapshot's state is smaller than `snapshot`.
    """

    snapshot: float
    row: float
    checkpoint: float
    tensors: int
    epochs: int
    snapshot_is_exact: bool = True


@dataclass
class AlgorithmConfig:
    """What every algorithm has.

    Attributes:
        READOUTS: by kind, the read-outs (`repro.policies.readout.Readout`) of what this algorithm leaves.
        USES_NETWORK: whether it takes a `network`.
        MANY_SEEDS: whether several seeds may be trained together (`seeds`).
        SEVERAL_PROCESSES: whether several processes may train one seed (`trainer.devices`).
    """

    # OmegaConf looks up the types of a schema, which are therefore no names of modules above this one.
    READOUTS: ClassVar[Mapping[str, type[Any]]] = {}
    USES_NETWORK: ClassVar[bool] = True
    MANY_SEEDS: ClassVar[bool] = False
    SEVERAL_PROCESSES: ClassVar[bool] = False

    # Shown as the run's algorithm.
    name: str = label()
    # Import path of the algorithm's file, for algorithms that are not of this package.
    module: str = ""
    # CFR iterations; each updates both players, so the papers' "iteration" of one player counts twice as many.
    iterations: int = between(1, 2**31 - 1)
    # Leave a snapshot, which can be played and measured, after every so many iterations, and after the last.
    snapshot_every: int = at_least(1)
    # even: so many iterations apart. doubling: each after twice as many iterations as the one before; and the last.
    snapshots: str = added(one_of("even", "doubling", default="even"))
    # Name -> ReadoutConfig. More can be added, also when the training is finished:
    # '+algorithm.readouts.sd_cfr_20={kind: ensemble, capacity: 20}'. They are no part of a training's key.
    readouts: dict[str, Any] = field(default_factory=dict)

    def leaves_snapshot(self, iteration: int) -> bool:
        """Whether there is a snapshot after an iteration, which is counted from 1."""
        times, rest = divmod(iteration, self.snapshot_every)
        is_one = self.snapshots == "even" or times.bit_count() == 1
        return iteration == self.iterations or (rest == 0 and is_one)

    def snapshot_iterations(self) -> list[int]:
        """The iterations after which there are snapshots, ascending."""
        multiples = range(self.snapshot_every, self.iterations + 1, self.snapshot_every)
        doubling = (multiples[2**k - 1] for k in range(len(multiples).bit_length()))
        return sorted({*(multiples if self.snapshots == "even" else doubling), self.iterations})

    @classmethod
    def load(cls, game: Mapping[str, Any], device: str = "cpu") -> Any:
        """The game of a run, or what else it is about.

        Raises:
            ReproError: it is unknown or impossible, or no game for this algorithm.
        """
        from repro.games.registry import (  # noqa: PLC0415  (games take a second to import)
            GAMES,
            SUBGAMES,
            load_game,
        )

        if game.get("name") in SUBGAMES:
            raise ReproError(
                f"game is {game['name']}; the algorithm takes whole games, such as {', '.join(sorted(GAMES))}; "
                "subgames are for others: algorithm=devn, for example."
            )
        return load_game(game, device)

    def problems(self, config: Config, game: Any) -> Iterator[str]:
        """One sentence for each thing that is wrong with these values together, or with this game.

        Ranges of single keys are checked before.
        """
        return iter(())

    @abstractmethod
    def build(self, game: Any, config: Config) -> Any:
        """What trains, a `repro.algorithms.base.Training`, from a checked configuration."""

    def process_problems(self, count: int) -> Iterator[str]:
        """What is wrong with having a run done by so many processes, where there may be several."""
        return iter(())

    def build_rank(self, game: Any, config: Config, ranks: Any) -> Any:
        """What `build` gives, or the part of it that one of several processes has (`repro.algorithms.ranks.Ranks`).

        An algorithm whose `process_problems` allows several makes the parts.
        """
        return self.build(game, config)

    def bytes_needed(self, config: Config, game: Any) -> Iterator[tuple[str, float]]:
        """Keys, and the bytes that their values take at the least; see `repro.config.memory`."""
        return iter(())

    def bytes_on_disk(self, config: Config, game: Any) -> Iterator[tuple[str, float]]:
        """The same of the disk of `output_dir`, beside what a run leaves there: what it keeps while it lasts."""
        return iter(())

    def leaves(self, config: Config, game: Any) -> Leaves | None:
        """What a checked run leaves in its folder at the most; None: nobody has said, or no bound can be told.

        It counts for the class that defines it and what that builds. A subclass with a `build` of its own says it anew.
        """
        return None

    def stored_data(self, config: Config) -> Path | None:
        """The folder of stored data that a run reads or adds to; None where it keeps none beside its own folder."""
        return None

    def check_stored_data(self, config: Config) -> None:
        """Refuse a run that reads stored data that are not there.

        Raises:
            ReproError: says what makes them.
        """

    def work(self, iterations: int) -> float:
        """What so many iterations cost from the beginning, in any unit: how the time for a run divides among them."""
        return float(iterations)

    def waits_for(self, other: AlgorithmConfig) -> bool:
        """Whether another algorithm's runs in the same plan come first, because this one uses what they leave."""
        return False

    def trains_together(self, config: Config) -> bool:
        """Whether seeds of this run can be trained together, and gain from it."""
        return False

    def together(self, trainings: list[Any]) -> Any:
        """The trainings of a run's seeds as one; there is more than one for algorithms with `MANY_SEEDS` alone."""
        (training,) = trainings
        return training


@dataclass
class Config:
    """One run: a game, an algorithm, a seed; what is measured; and where results go."""

    game: dict[str, Any] = MISSING
    algorithm: Any = MISSING
    # null for algorithms without networks.
    network: NetworkConfig | None = None
    seed: int = at_least(0, 0)
    # Deep CFR with networks that are asked on demand: train these seeds together, as one batched run, and not `seed`,
    # which must not be swept then. Each gets the run that it would get alone.
    seeds: list[int] | None = None
    device: str = one_of("cpu", "cuda", default="cpu")
    # CPU threads of this run. Results are bitwise reproducible for a given number.
    threads: int = between(1, 1024, 1)
    # Name -> what is measured of the read-outs (conf/evaluation), while training or, of a finished run, later.
    evaluation: dict[str, Any] = field(default_factory=dict)
    # The figure or table that the run is made for, and the scale: labels, of which a run may have several.
    target: str = label("runs")
    scale: str = label("custom")
    # Folder for runs, the MLflow database and figures.
    output_dir: str = path("outputs")
    # null: an SQLite file in output_dir. later: no store is told, until the run is collected (docs/cluster.md).
    tracking_uri: str | None = None
    # Write a checkpoint when this many seconds have passed since the last one (and at the end).
    checkpoint_every_seconds: float = at_least(0, 60.0)
    # Begin anew even if this run is finished. What was asked anew and is stopped goes on when it is repeated without.
    force: bool = False
    # Show in MLflow, while it trains, how busy the machine is (its system metrics: processors, memory, disk, network).
    system_metrics: bool = False
    # Lightning's Trainer, instantiated: callbacks can be added. Progress, checkpoints and resuming are the suite's own.
    trainer: dict[str, Any] = field(default_factory=dict)
    # Name -> further Lightning loggers, instantiated; MLflow is always there.
    logger: dict[str, Any] = field(default_factory=dict)


C = TypeVar("C", bound=type)

ALGORITHMS: dict[str, type[AlgorithmConfig]] = {}
EVALUATIONS: dict[str, type] = {}
"""By name, what was registered."""


# Hydra's store is asked for each time: its launchers put another one in its place.
def register_algorithm(name: str, schema: C) -> C:
    """Let files in `conf/algorithm` inherit from `schema_<name>`."""
    ConfigStore.instance().store(group="algorithm", name=f"schema_{name}", node=schema)
    ALGORITHMS[name] = schema
    return schema


def register_evaluation(name: str, schema: C) -> C:
    """Let files in `conf/evaluation` inherit from `schema_<name>`."""
    ConfigStore.instance().store(group="evaluation", name=f"schema_{name}", node=schema)
    EVALUATIONS[name] = schema
    return schema


ConfigStore.instance().store(name="schema", node=Config)
ConfigStore.instance().store(group="network", name="schema", node=NetworkConfig)
