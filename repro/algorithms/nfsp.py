"""NFSP, neural fictitious self-play [Heinrich and Silver 2016], with many hands of self-play at once.

Each player learns a best response to the other's average strategy by Q-learning from a replay memory (a DQN), and its
own average strategy by cloning its past best responses, which a reservoir samples. In each hand a player follows its
best response with probability eta, else its average strategy.

The paper plays one hand at a time and takes an SGD step whenever a player has made so many steps in the game. Here an
iteration plays a batch of hands with the networks as they are, all of them level by level down the betting tree, and
then takes the SGD steps that are due. The number of hands, of SGD steps and of rows per step is as it would be, only
the networks that act lag behind by up to one batch of hands. Two things that the paper leaves open: its "iteration",
which exploration falls with, is one of ours; and a network learns as soon as its memory holds a minibatch.

Where infosets are listed, a network is evaluated on all of its player's once per iteration, and play reads a table. For
the same reason the target network is kept as the one number per infoset that Q-learning reads from it. For Hold'em see
`repro.algorithms.nfsp_holdem`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from repro.algorithms.base import Algorithm, TableAlgorithm, largest_divisor
from repro.algorithms.memory import Minibatch, Reservoir
from repro.algorithms.regression import fit
from repro.algorithms.replay import Replay, Transitions
from repro.config import NetworkConfig, NFSPConfig, ReadoutConfig
from repro.engine.sampling import Samples, SamplingEngine, sample_actions
from repro.errors import ReproError
from repro.games.game import Game
from repro.networks.features import Columns, feature_columns, infoset_features
from repro.networks.modules import average_network, value_network
from repro.networks.optimizers import FlatSGD
from repro.policies.base import Ensemble, HandStrategies, TabularPolicy, table_of
from repro.seeding import initialisation

_MOST_PER_STEP = 20
"""Iterations in one epoch of Lightning's, which takes milliseconds of its own."""

# -- self-play -------------------------------------------------------------------------------------------------------


Strategies = Callable[[Tensor, Tensor], Tensor]
"""`[n]` infosets and which strategy, 0 the average one, 1 the best response -> `[n, actions]` probabilities."""


def tabled(average: Tensor, best_response: Tensor, first: int) -> Strategies:
    """Both strategies from tables `[infosets of the player, actions]`, whose infosets are `first, first + 1, ...`."""
    tables = torch.stack([average, best_response])
    return lambda infosets, which: tables[which, infosets - first]


class Seat(Ensemble):
    """A player in self-play: takes one of its two strategies for a whole hand, and writes down what it does.

    Args:
        strategies: the player's.
        actions: number of actions in the game.
        eta: probability of following the best response in a hand.
        device: where probabilities are wanted.
    """

    def __init__(self, strategies: Strategies, actions: int, eta: float, device: torch.device | str = "cpu") -> None:
        self._strategies, self._eta = strategies, eta
        self._certain = torch.eye(actions, device=device)
        self._best_response = torch.zeros(0, dtype=torch.bool)
        self._record: list[tuple[Tensor, Tensor, Tensor]] = []

    def per_hand(self, hands: int, generator: torch.Generator) -> HandStrategies:
        self._best_response = torch.rand(hands, generator=generator, device=generator.device) < self._eta
        chosen = self._best_response.long()
        self._record = []

        def act(infosets: Tensor, hand: Tensor) -> Tensor:
            action = sample_actions(self._strategies(infosets, chosen[hand]), generator)
            self._record.append((hand, infosets, action))
            # The engine samples from what it is told, and has no other choice then.
            return self._certain.index_select(0, action)

        return act

    def transitions(self, won: Tensor) -> Transitions:
        """What was recorded in the last batch of hands, given `[hands]` chips that the player won in each."""
        hand, infosets, actions = (torch.cat(column) for column in zip(*self._record, strict=True))
        # The record is in order of time, which a stable sort by hand keeps within each hand.
        hand, order = hand.sort(stable=True)
        infosets, actions = infosets[order], actions[order]
        ends = torch.ones_like(hand, dtype=torch.bool)
        ends[:-1] = hand[1:] != hand[:-1]
        return Transitions(
            infosets=infosets,
            actions=actions,
            rewards=torch.where(ends, won[hand], 0.0),
            following=torch.where(ends, -1, infosets.roll(-1)),
            best_response=self._best_response[hand],
        )


# -- one player ------------------------------------------------------------------------------------------------------


class Player(ABC):
    """Memories and networks of one player; how its strategies are held is a subclass's.

    Args:
        game: the game.
        player: 0 or 1.
        algorithm: hyperparameters.
        network: architecture of both networks.
        columns: what the columns of the networks' features show.
        seed: of the initial weights.

    Attributes:
        value_network, average_network: Q, whose greedy actions are the best response, and the average strategy Pi.
        replay, reservoir: M_RL and M_SL.
        steps: the player's steps in the game so far: decisions, and ends of hands.
        updates: SGD steps of the value network so far.
    """

    def __init__(
        self, game: Game, player: int, algorithm: NFSPConfig, network: NetworkConfig, columns: Columns, seed: int
    ) -> None:
        self.game, self.player, self.algorithm = game, player, algorithm
        mine = game.player_slice[player]
        self.first, self.count, self.actions = mine.start, mine.stop - mine.start, game.num_actions
        with initialisation(seed, "initial networks", 0, player):
            self.value_network = value_network(network, columns, self.actions).to(game.device)
            self.average_network = average_network(network, columns, self.actions).to(game.device)
        self._value_optimizer = FlatSGD(self.value_network, algorithm.value_learning_rate)
        self._average_optimizer = FlatSGD(self.average_network, algorithm.average_learning_rate)
        shape = (self.first, self.count, self.actions, game.device)
        self.replay = Replay(algorithm.replay_capacity, *shape)
        self.reservoir = Reservoir(algorithm.reservoir_capacity, *shape)
        self.steps = self.updates = 0

    # -- what depends on the size of the game --------------------------------------------------------------------

    @abstractmethod
    def strategies(self, epsilon: float) -> Strategies:
        """Both strategies as they are now; the best response explores with probability `epsilon`."""

    @abstractmethod
    def fit(
        self, network: nn.Module, optimizer: FlatSGD, batches: Iterator[Minibatch], steps: int, log_loss: bool
    ) -> float:
        """Take one SGD step per minibatch of the player's infosets. Returns the loss."""

    @abstractmethod
    def value_after(self, following: Tensor) -> Tensor:
        """The target network's values, as `Replay.minibatches` asks for them."""

    @abstractmethod
    def refresh_target(self) -> None:
        """Make the value network of the moment the target network."""

    @abstractmethod
    def target(self) -> Tensor:
        """The target network, as a checkpoint holds it."""

    @abstractmethod
    def restore_target(self, saved: Tensor) -> None:
        """Take back what `target` gave."""

    # -- acting --------------------------------------------------------------------------------------------------

    def seat(self, epsilon: float) -> Seat:
        """The player as it acts now; its best response explores with probability `epsilon`."""
        return Seat(self.strategies(epsilon), self.actions, self.algorithm.eta, self.game.device)

    # -- learning ------------------------------------------------------------------------------------------------

    def remember(self, transitions: Transitions, hands: int, keep: torch.Generator) -> int:
        """Store what happened in a batch of hands. Returns the number of SGD steps that are now due."""
        self.replay.add(transitions)
        cloned = transitions.best_response
        actions = one_hot(transitions.actions[cloned], self.actions).float()
        # Under one and the same iteration number all entries weigh the same.
        self.reservoir.add(Samples(transitions.infosets[cloned], actions), 1, keep)
        every, before = self.algorithm.steps_per_update, self.steps
        self.steps += len(transitions.infosets) + hands
        return self.steps // every - before // every

    def fit_values(self, steps: int, draw: torch.Generator) -> float:
        """Take `steps` SGD steps of Q-learning. Returns the mean squared Bellman error, in chips^2.

        Raises:
            FloatingPointError: the loss or the parameters are no longer finite.
        """
        batches = self.replay.minibatches(steps, self.algorithm.batch_size, self.value_after, draw)
        return self.fit(self.value_network, self._value_optimizer, self._counted(batches), steps, log_loss=False)

    def _counted(self, batches: Iterator[Minibatch]) -> Iterator[Minibatch]:
        """The same minibatches; the target network is refreshed after every `target_every`-th step."""
        for batch in batches:
            yield batch
            # The step on it has been taken.
            self.updates += 1
            if self.updates % self.algorithm.target_every == 0:
                self.refresh_target()

    def fit_average(self, steps: int, draw: torch.Generator) -> float:
        """Take `steps` SGD steps of cloning the best response. Returns the log loss, in nats.

        Raises:
            FloatingPointError: the loss or the parameters are no longer finite.
        """
        # A reservoir's weights include the division by the number of actions, which the log loss does not have.
        batches = self.reservoir.minibatches(steps, self.algorithm.batch_size, 1, self.actions, draw)
        return self.fit(self.average_network, self._average_optimizer, batches, steps, log_loss=True)

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        """What a checkpoint must hold beside the networks' parameters."""
        return {
            "replay": self.replay.state_dict(),
            "reservoir": self.reservoir.state_dict(),
            "target": self.target(),
            "steps": self.steps,
            "updates": self.updates,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `progress` gave."""
        self.replay.load_state_dict(saved["replay"])
        self.reservoir.load_state_dict(saved["reservoir"])
        self.restore_target(saved["target"])
        self.steps, self.updates = saved["steps"], saved["updates"]


class TablePlayer(Player):
    """A player of a game whose infosets are listed.

    Attributes:
        next_value: `[infosets + 1]` what the target network expects to win from each infoset; last, 0 for a hand's end.
    """

    def __init__(self, game: Game, player: int, algorithm: NFSPConfig, network: NetworkConfig, seed: int) -> None:
        super().__init__(game, player, algorithm, network, feature_columns(game), seed)
        mine = game.player_slice[player]
        self.features, self.legal, self._uniform = infoset_features(game)[mine], game.legal[mine], game.uniform[mine]
        self.next_value = torch.zeros(self.count + 1, device=game.device)
        self.refresh_target()

    @torch.no_grad()
    def values(self) -> Tensor:
        """`[infosets, actions]` chips that Q expects to win, minus infinity where illegal."""
        return self.value_network(self.features, self.legal).masked_fill(~self.legal, -math.inf)

    @torch.no_grad()
    def average(self) -> Tensor:
        """`[infosets, actions]` probabilities of the average strategy."""
        return self.average_network(self.features, self.legal)

    def strategies(self, epsilon: float) -> Strategies:
        greedy = one_hot(self.values().argmax(1), self.actions)
        response = (1 - epsilon) * greedy + epsilon * self._uniform
        return tabled(self.average(), response.float(), self.first)

    def fit(
        self, network: nn.Module, optimizer: FlatSGD, batches: Iterator[Minibatch], steps: int, log_loss: bool
    ) -> float:
        return fit(network, optimizer, batches, steps, self.features, self.legal, log_loss=log_loss)

    def value_after(self, following: Tensor) -> Tensor:
        return self.next_value.index_select(0, following)

    def refresh_target(self) -> None:
        self.next_value[:-1] = self.values().amax(1)

    def target(self) -> Tensor:
        return self.next_value.clone()

    def restore_target(self, saved: Tensor) -> None:
        self.next_value.copy_(saved)


# -- the algorithm ---------------------------------------------------------------------------------------------------


class NFSPFamily(Algorithm):
    """What NFSP does whatever the size of the game. One epoch is up to twenty iterations.

    Args:
        game: the game; its tensors decide the device.
        algorithm: hyperparameters.
        network: architecture of value and average networks.
        seed: names all random draws of the run.

    Attributes:
        players: the two players.
    """

    def __init__(self, game: Game, algorithm: NFSPConfig, network: NetworkConfig, seed: int) -> None:
        super().__init__(game, algorithm, seed)
        self.iterations_per_step = largest_divisor(algorithm.evaluate_every, _MOST_PER_STEP)
        self.algorithm = algorithm
        self.engine = SamplingEngine(game)
        self.players = [self.make_player(p, network) for p in range(2)]
        # Lightning keeps the parameters of what it can see.
        self.value_networks = nn.ModuleList(p.value_network for p in self.players)
        self.average_networks = nn.ModuleList(p.average_network for p in self.players)

    @abstractmethod
    def make_player(self, player: int, network: NetworkConfig) -> Player:
        """A fresh player."""

    def counts(self) -> dict[str, float]:
        return {
            "episodes": float(self.iteration * self.algorithm.hands), "nodes_touched": float(self.nodes_touched),
        }  # fmt: skip

    # -- one iteration -------------------------------------------------------------------------------------------

    def advance(self) -> dict[str, float]:
        losses: dict[str, list[float]] = {}
        for player, due in zip(self.players, self.play(), strict=True):
            for name, loss in self._learn(player, due).items():
                losses.setdefault(name, []).append(loss)
        return {
            **{name: sum(both) / len(both) for name, both in losses.items()},
            "memory/value": float(sum(p.replay.size for p in self.players)),
            "memory/strategy": float(sum(p.reservoir.size for p in self.players)),
        }

    def play(self) -> list[int]:
        """Play and store a batch of hands. Returns how many SGD steps each player now owes."""
        hands = self.algorithm.hands
        epsilon = self.algorithm.epsilon / math.sqrt(self.iteration)
        seats = [p.seat(epsilon) for p in self.players]
        won = self.engine.play(seats, hands, self.draws("hands")) / self.algorithm.reward_unit
        transitions = [seat.transitions(chips) for seat, chips in zip(seats, (won, -won), strict=True)]
        self.nodes_touched += hands + sum(len(t.infosets) for t in transitions)
        both = zip(self.players, transitions, strict=True)
        return [p.remember(t, hands, self.draws("reservoir", p.player)) for p, t in both]

    def _learn(self, player: Player, steps: int) -> dict[str, float]:
        """Take a player's SGD steps on each memory that holds a minibatch. Returns the losses."""
        losses = {}
        for which, loss, memory, learn in (
            ("value", "loss/value", player.replay, player.fit_values),
            ("average", "loss/policy", player.reservoir, player.fit_average),
        ):
            if not steps or memory.size < self.algorithm.batch_size:
                continue
            try:
                losses[loss] = learn(steps, self.draws(f"minibatches {which}", player.player))
            except FloatingPointError as error:
                raise ReproError(
                    f"the {which} network of player {player.player} diverged in iteration {self.iteration}: {error}; "
                    f"algorithm.{which}_learning_rate is {getattr(self.algorithm, f'{which}_learning_rate')}, try a "
                    "lower one."
                ) from error
        return losses

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        return {"players": [p.progress() for p in self.players]}

    def restore(self, saved: dict[str, Any]) -> None:
        for player, state in zip(self.players, saved["players"], strict=True):
            player.restore(state)


class NFSP(NFSPFamily, TableAlgorithm):
    """NFSP on a game whose infosets are listed."""

    players: Sequence[TablePlayer]  # type: ignore[assignment]

    def make_player(self, player: int, network: NetworkConfig) -> TablePlayer:
        return TablePlayer(self.game, player, self.algorithm, network, self.seed)

    def read_out(self, readout: ReadoutConfig) -> tuple[TabularPolicy, dict[str, float]]:
        del readout
        return TabularPolicy(table_of(self.game, TabularPolicy(torch.cat([p.average() for p in self.players])))), {}

    def artifact(self) -> dict[str, Any]:
        """`value` and `average`: per player the state of the network."""
        return {
            name: [{key: tensor.cpu() for key, tensor in n.state_dict().items()} for n in networks]
            for name, networks in (("value", self.value_networks), ("average", self.average_networks))
        }
