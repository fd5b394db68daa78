"""Deep CFR [Brown et al. 2018] and SD-CFR [Steinberger 2019] as one LightningModule.

One `training_step` is one CFR iteration: for each player in turn collect samples by external sampling against the
opponent's current strategy, fit the value network, and store it in B^M. Player 0 goes first, so player 1's traversals
meet player 0's new strategy (alternating updates, as in the SD-CFR code). The epoch counter of Lightning is the CFR
iteration.

Both algorithms train exactly this. They differ in the *read-outs* that turn what was stored into an average strategy:
the average of B^M (SD-CFR), or the network S-hat trained on the strategy memory B^s (Deep CFR).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from repro.algorithms.base import Algorithm, TableAlgorithm
from repro.algorithms.memory import Aggregated, Memory, Minibatch, Reservoir
from repro.algorithms.regression import fit
from repro.config import DeepCFRConfig, NetworkConfig, ReadoutConfig, RegressionConfig
from repro.engine.sampling import Samples, SamplingEngine, Traversals
from repro.errors import ReproError
from repro.evaluation.exploitability import exact_engine
from repro.evaluation.head_to_head import Opponent, exact
from repro.evaluation.units import milli_units
from repro.games.game import Game
from repro.networks.features import Columns, feature_columns, infoset_features
from repro.networks.modules import Network, average_network, value_network
from repro.networks.optimizers import FlatAdam
from repro.policies.base import Policy, TabularPolicy, table_of
from repro.policies.ensemble import StrategyBuffer, reservoir_members
from repro.policies.record import StrategyRecord
from repro.policies.regret_matching import regret_matching
from repro.seeding import initialisation


@dataclass(frozen=True)
class Learner:
    """A network and what trains it."""

    network: nn.Module
    optimizer: FlatAdam
    memory: Memory
    regression: RegressionConfig


class DeepCFRFamily(Algorithm):
    """What Deep CFR and SD-CFR do whatever the size of the game; how strategies are held is a subclass's.

    Args:
        game: the game; its tensors decide the device.
        algorithm: hyperparameters.
        network: architecture of value and average networks.
        seed: names all random draws of the run.
        opponents: what the read-outs are measured against.

    Attributes:
        columns: what the columns of the networks' features show.
    """

    columns: Columns

    def __init__(
        self,
        game: Game,
        algorithm: DeepCFRConfig,
        network: NetworkConfig,
        seed: int,
        opponents: Mapping[str, Opponent] | None = None,
    ) -> None:
        super().__init__(game, algorithm, seed)
        self.opponents = dict(opponents or {})
        self.algorithm, self.network = algorithm, network
        self.engine = SamplingEngine(game)
        self.prepare_strategies()
        self.value_networks = nn.ModuleList(self._new_network("value", 0, p) for p in range(2))
        self.average_networks = nn.ModuleList(self._new_network("average", 0, p) for p in range(2))
        self._value_optimizers = [self._adam(n, algorithm.value) for n in self.value_networks]
        self._average_optimizers = [self._adam(n, algorithm.average) for n in self.average_networks]
        columns = self.value_columns
        self.value_memories = [self._new_memory(algorithm.value_capacity, p, columns) for p in range(2)]
        self.strategy_memories = [self._new_memory(algorithm.strategy_capacity, p, game.num_actions) for p in range(2)]

    # -- what depends on the size of the game --------------------------------------------------------------------

    @abstractmethod
    def prepare_strategies(self) -> None:
        """Set `columns`, and make what holds the current strategies and B^M."""

    @abstractmethod
    def current_policy(self) -> Policy:
        """The strategies of both players that the next traversal meets."""

    @abstractmethod
    def store_strategy(self, player: int) -> None:
        """Take the player's newly trained value network for the current strategy, and add it to B^M."""

    @abstractmethod
    def fit_to(
        self, network: nn.Module, optimizer: FlatAdam, batches: Iterator[Minibatch], player: int, **how: Any
    ) -> float:
        """Take one SGD step per minibatch of the player's infosets; returns the loss. `how` goes to `fit`."""

    def remember(self, player: int, regrets: Samples, strategies: Samples) -> None:
        """Store what the player's traversals collected: her regrets and the opponent's strategies."""
        keep = self.draws("reservoir", player)
        self.value_memories[player].add(regrets, self.iteration, keep)
        self.strategy_memories[1 - player].add(strategies, self.iteration, keep)

    # -- parts ---------------------------------------------------------------------------------------------------

    def build(self, which: str) -> Network:
        """A fresh `value` or `average` network."""
        make = value_network if which == "value" else average_network
        return make(self.network, self.columns, self.game.num_actions)

    def _new_network(self, which: str, iteration: int, player: int) -> Network:
        with initialisation(self.seed, f"initial {which}", iteration, player):
            built = self.build(which)
        return built.to(self.game.device)

    def _adam(self, network: nn.Module, regression: RegressionConfig) -> FlatAdam:
        return FlatAdam(network, regression.learning_rate, regression.clip_norm)

    @property
    def value_columns(self) -> int:
        """Numbers that a value network is trained on per infoset."""
        return self.game.num_actions

    def _new_memory(self, capacity: int, player: int, columns: int) -> Memory:
        mine = self.game.player_slice[player]
        shape = (mine.start, mine.stop - mine.start, columns, self.game.device)
        return Reservoir(capacity, *shape) if self.algorithm.memory == "reservoir" else Aggregated(*shape)

    def configure_optimizers(self) -> list[FlatAdam]:
        return self._value_optimizers

    # -- one iteration -------------------------------------------------------------------------------------------

    def advance(self) -> dict[str, float]:
        return self.measurements([self._update(player) for player in range(2)])

    def measurements(self, losses: Sequence[float]) -> dict[str, float]:
        """Of an iteration in which the value networks' losses were these."""
        return {
            "loss/value": sum(losses) / 2,
            "memory/value": float(sum(m.size for m in self.value_memories)),
            "memory/strategy": float(sum(m.size for m in self.strategy_memories)),
        }

    def _update(self, player: int) -> float:
        """Collect, fit, store: player's half of an iteration. Returns the value loss."""
        self.collect(player)
        loss = self._fit("value", player, self._lightning_step(player))
        self.store_strategy(player)
        return loss

    def collect(self, player: int) -> Traversals:
        """Traverse, and store the samples."""
        draw = self.draws("traversals", player)
        traversals = self.engine.external_sampling(self.current_policy(), player, self.algorithm.traversals, draw)
        targets = Samples(traversals.advantages.infosets, self.value_targets(traversals))
        self.remember(player, targets, traversals.opponent_strategies)
        self.nodes_touched += traversals.nodes_touched
        return traversals

    def value_targets(self, traversals: Traversals) -> Tensor:
        """`[n, value_columns]` what the value network learns of each visited infoset."""
        regrets = traversals.advantages.targets / self.algorithm.regret_unit
        if self.algorithm.divide_by_legal:
            regrets = regrets / self.game.legal_at(traversals.advantages.infosets).sum(1, keepdim=True)
        return regrets

    def _check_batch(self, which: str, memory: Memory) -> None:
        batch_size = getattr(self.algorithm, which).batch_size
        if self.algorithm.memory == "reservoir" and batch_size > memory.size:
            raise ReproError(
                f"algorithm.{which}.batch_size is {batch_size}, but only {memory.size} samples are in the memory in "
                f"iteration {self.iteration}; it must be at most that (or raise algorithm.traversals)."
            )

    def learner(self, which: str, player: int) -> Learner:
        """The player's `value` or `average` network, and what belongs to its training."""
        if which == "value":
            network, memory = self.value_networks[player], self.value_memories[player]
            return Learner(network, self._value_optimizers[player], memory, self.algorithm.value)
        network, memory = self.average_networks[player], self.strategy_memories[player]
        return Learner(network, self._average_optimizers[player], memory, self.algorithm.average)

    def begin_fit(self, which: str, player: int, merged: bool = True) -> Iterator[Minibatch]:
        """Put the network where its fit starts; the fit's minibatches, `merged` as a memory's are."""
        mine = self.learner(which, player)
        self._check_batch(which, mine.memory)
        if mine.regression.start == "random":
            fresh = self._new_network(which, self.iteration, player)
            mine.network.load_state_dict(fresh.state_dict())
        draw = self.draws(f"minibatches {which}", player)
        scale = 2.0 if self.algorithm.loss_weight == "2t/T" else 1.0
        steps, rows = mine.regression.steps, mine.regression.batch_size
        return mine.memory.minibatches(steps, rows, self.iteration, scale, draw, merged)

    @contextmanager
    def explaining_divergence(self, which: str, player: int) -> Iterator[None]:
        """A fit that diverges within it is an error that names the key to change."""
        try:
            yield
        except FloatingPointError as error:
            raise ReproError(
                f"the {which} network of player {player} diverged in iteration {self.iteration}: {error}; "
                f"algorithm.{which}.learning_rate is {getattr(self.algorithm, which).learning_rate}, try a lower one."
            ) from error

    def _fit(self, which: str, player: int, last_step: Any = None) -> float:
        batches, mine = self.begin_fit(which, player), self.learner(which, player)
        how = {"steps": mine.regression.steps, "schedule": mine.regression.schedule, "last_step": last_step}
        with self.explaining_divergence(which, player):
            return self.fit_to(mine.network, mine.optimizer, batches, player, **how)

    def _lightning_step(self, player: int) -> Any:
        """The fit's last optimiser step, taken through Lightning so that `global_step` counts fitted networks."""
        if self._trainer is None:
            return None
        optimizers = self.optimizers()
        return optimizers[player].step  # type: ignore[index,union-attr]

    def train_average_network(self, player: int) -> float:
        """Train the player's S-hat on B^s as it stands; returns the training loss.

        The draws are S-hat's own, so that evaluating more or less often does not change what is learned.
        """
        return self._fit("average", player)


class DeepCFR(DeepCFRFamily, TableAlgorithm):
    """Deep CFR / SD-CFR on a game whose infosets are listed.

    The value network is evaluated once per iteration on all of its player's infosets; traversals then read a table.
    Matches against opponents are exact: metrics `match/<opponent>/value`, in thousandths of the ante per game.

    Attributes:
        strategy_buffers: per player, B^M.
    """

    def prepare_strategies(self) -> None:
        self.features = infoset_features(self.game)
        self.columns = feature_columns(self.game)
        self.strategy_buffers = [StrategyBuffer(self.game, p) for p in range(2)]
        self.strategy = self.game.uniform.float()

    def current_policy(self) -> Policy:
        return TabularPolicy(self.strategy)

    def store_strategy(self, player: int) -> None:
        mine = self.game.player_slice[player]
        self.strategy[mine] = self._strategy_of(player)
        self._keep(player)

    def _keep(self, player: int) -> None:
        """Add the player's strategy to B^M."""
        mine = self.game.player_slice[player]
        reach = exact_engine(self.game).own_reach(table_of(self.game, TabularPolicy(self.strategy)))[mine]
        self.strategy_buffers[player].add(self._value_optimizers[player].flat.detach(), self.strategy[mine], reach)

    def fit_to(
        self, network: nn.Module, optimizer: FlatAdam, batches: Iterator[Minibatch], player: int, **how: Any
    ) -> float:
        mine = self.game.player_slice[player]
        return fit(network, optimizer, batches, features=self.features[mine], legal=self.game.legal[mine], **how)

    @torch.no_grad()
    def _strategy_of(self, player: int) -> Tensor:
        mine = self.game.player_slice[player]
        legal = self.game.legal[mine]
        advantages = self.value_networks[player](self.features[mine], legal)
        return regret_matching(advantages, legal, self.algorithm.when_no_positive)

    # -- read-outs -----------------------------------------------------------------------------------------------

    def read_out(self, readout: ReadoutConfig) -> tuple[TabularPolicy, dict[str, float]]:
        if readout.kind == "average_network":
            policy, loss = self.train_average_networks()
            return policy, {"loss/policy": loss}
        return self.average_policy(readout.capacity), {}

    def evaluate(self) -> None:
        super().evaluate()
        same = self.algorithm.opponents_at == "same"
        for opponent, record in self.opponents.items():
            assert isinstance(record, StrategyRecord)
            against = record.at(self.iteration) if same else record.last()
            for name, policy in self.policies.items():
                chips = exact(self.game, policy, against)
                self.metrics[name][f"match/{opponent}/value"] = milli_units(self.game, chips)

    def average_policy(self, capacity: int | None = None) -> TabularPolicy:
        """SD-CFR's average strategy: B^M, or the part of it that a reservoir of `capacity` networks would hold."""
        tables = []
        for player, buffer in enumerate(self.strategy_buffers):
            members = None if capacity is None else reservoir_members(len(buffer), capacity, self.seed, player)
            tables.append(buffer.average(members))
        return TabularPolicy(torch.cat(tables))

    def train_average_networks(self) -> tuple[TabularPolicy, float]:
        """Deep CFR's average strategy: train S-hat on B^s as it stands. Returns it and the mean training loss."""
        losses = [self.train_average_network(player) for player in range(2)]
        tables = []
        for mine, network in zip(self.game.player_slice, self.average_networks, strict=True):
            with torch.no_grad():
                table = network(self.features[mine], self.game.legal[mine]).double()
            tables.append(table / table.sum(1, keepdim=True))
        return TabularPolicy(torch.cat(tables)), sum(losses) / 2

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy.clone(),
            "strategy_buffers": [b.state_dict() for b in self.strategy_buffers],
            "value_memories": [m.state_dict() for m in self.value_memories],
            "strategy_memories": [m.state_dict() for m in self.strategy_memories],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        self.strategy.copy_(saved["strategy"])
        for name in ("strategy_buffers", "value_memories", "strategy_memories"):
            for part, state in zip(getattr(self, name), saved[name], strict=True):
                part.load_state_dict(state)

    def artifact(self) -> dict[str, Any]:
        """`value`: per player `[iterations, parameters]`; `average`: per player the state of S-hat."""
        return {
            "value": [torch.stack(b.parameters) for b in self.strategy_buffers],
            "average": [{k: v.cpu() for k, v in n.state_dict().items()} for n in self.average_networks],
        }
