"""NFSP, neural fictitious self-play [Heinrich and Silver 2016], with many hands of self-play at once.

Each player learns a best response to the other's average strategy by Q-learning from a replay memory (a DQN), and its
own average strategy by cloning its past best responses, which a reservoir samples. In each hand a player follows its
best response with probability eta, else its average strategy.

The paper plays one hand at a time and takes an SGD step whenever a player has made so many steps in the game. Here an
iteration plays a batch of hands with the networks as they are, all of them level by level down the betting tree, and
then takes the SGD steps that are due. The number of hands, of SGD steps and of rows per step is as it would be, only
the networks that act lag behind by up to one batch of hands. Two things that the paper leaves open: its "iteration",
which exploration falls with, is one of ours; and a network learns as soon as its memory holds a minibatch.

Networks answer from tables, or are asked on demand: see `repro.algorithms.nfsp_strategies`. All betting rounds are the
networks', the first as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from repro.algorithms.base import Algorithm, epochs_of, largest_divisor
from repro.algorithms.memory import Reservoir, entry_bytes
from repro.algorithms.minibatches import Minibatch
from repro.algorithms.nfsp_strategies import AskedPlayer, ListedPlayer, PlayerStrategies, Probabilities
from repro.algorithms.replay import BYTES_PER_TRANSITION, Replay, Transitions, transition_bytes
from repro.algorithms.strategies import are_listed, listing_problems
from repro.common.errors import ReproError
from repro.common.seeding import initialisation
from repro.config.fields import above, above_up_to, at_least, between, multiplies, one_of
from repro.config.memory import network_bytes
from repro.config.schema import AlgorithmConfig, Config, Leaves, NetworkConfig, register_algorithm
from repro.engine.sampling import BYTES_PER_DEAL, InfosetSamples, SamplingEngine, most_met, sample_actions
from repro.games.game import Game
from repro.networks.features import FeatureColumns
from repro.networks.inputs import Inputs, network_inputs
from repro.networks.modules import average_network, value_network
from repro.networks.optimizers import FlatSGD
from repro.networks.purposes import purpose_problems
from repro.networks.sizes import network_sizes
from repro.policies.base import Ensemble, HandStrategies
from repro.policies.network import AverageNetwork
from repro.policies.readout import Readout

_MOST_PER_STEP = 20
"""Iterations in one epoch of Lightning's, which takes milliseconds of its own."""


@dataclass
class NFSPConfig(AlgorithmConfig):
    """Neural fictitious self-play; an iteration is a batch of hands and the SGD steps that are due after it."""

    READOUTS: ClassVar[Mapping[str, type[Readout]]] = {"average_network": AverageNetwork}

    # Hands per iteration. All of them are played by the same networks; 1 is the paper's.
    hands: int = multiplies(at_least(1))
    # Probability that a player plays a hand with its best response instead of its average strategy.
    eta: float = above_up_to(0, 1, 0.1)
    # Probability that the best response takes a random action, in the first iteration; it falls as 1 / sqrt(iteration).
    epsilon: float = between(0, 1, 0.06)
    # Capacity of M_RL, which holds the newest transitions, and of M_SL, a sample of all; entries per player.
    replay_capacity: int = at_least(1)
    reservoir_capacity: int = at_least(1)
    # A player's steps in the game per SGD step of each of its networks: a decision is a step, and so is a hand's end.
    steps_per_update: int = at_least(1)
    # Rows per SGD step; a network learns once its memory holds as many entries.
    batch_size: int = multiplies(at_least(1))
    # SGD steps of the value network from one refresh of its target network to the next.
    target_every: int = at_least(1)
    # Divide what is won by this many chips.
    reward_unit: float = above(0, 1.0)
    # Learning rates of plain SGD: of the value network on the squared error, of the average network on the log loss.
    value_learning_rate: float = above(0)
    average_learning_rate: float = above(0)
    # listed: networks are evaluated on all infosets once per iteration; asked: on those that come up. The results are
    # the same, to rounding. null: listed in games of up to 65,536 infosets.
    strategies: str | None = one_of("listed", "asked", default=None)

    def problems(self, config: Config, game: Game) -> Iterator[str]:
        for capacity in ("replay_capacity", "reservoir_capacity"):
            if getattr(self, capacity) < self.batch_size:
                yield (
                    f"algorithm.{capacity} is {getattr(self, capacity)}; it must be at least algorithm.batch_size "
                    f"({self.batch_size}), or nothing is ever learned."
                )
        yield from purpose_problems(config.network, self.name)
        yield from listing_problems(self.strategies, game)

    def bytes_needed(self, config: Config, game: Game) -> Iterator[tuple[str, float]]:
        yield "algorithm.hands", float(BYTES_PER_DEAL * self.hands)
        yield "algorithm.replay_capacity", 2.0 * BYTES_PER_TRANSITION * self.replay_capacity
        yield "algorithm.reservoir_capacity", 2.0 * entry_bytes(game.num_actions) * self.reservoir_capacity
        yield from network_bytes(config.network, 4)

    def leaves(self, config: Config, game: Game) -> Leaves | None:
        assert config.network is not None
        value, average = network_sizes(config.network, game)
        held = 0.0
        for player, part in enumerate(game.player_slice):
            infosets = part.stop - part.start
            # The target network is a number per infoset, or a network.
            held += 4.0 * (infosets + 1) if are_listed(self.strategies, game) else value.bytes
            steps = self.iterations * self.hands * most_met(game, player, explores=False).own
            held += min(self.replay_capacity, steps) * transition_bytes(infosets)
            held += min(self.reservoir_capacity, steps) * entry_bytes(game.num_actions, infosets)
        return Leaves(
            snapshot=2 * average.bytes,
            row=0.0,
            checkpoint=2 * (value.bytes + average.bytes) + held,
            tensors=2 * (value.tensors + average.tensors + 3 + 4 + 1),
            epochs=epochs_of(self.iterations, largest_divisor(self.snapshot_every, _MOST_PER_STEP)),
        )

    def build(self, game: Game, config: Config) -> NFSP:
        assert config.network is not None
        return NFSP(game, self, config.network, config.seed)

    def strategies_in(self, game: Game) -> type[PlayerStrategies]:
        """How the networks answer in a game."""
        return ListedPlayer if are_listed(self.strategies, game) else AskedPlayer


register_algorithm("nfsp", NFSPConfig)

# -- self-play -------------------------------------------------------------------------------------------------------


class SelfPlaySeat(Ensemble):
    """A player in self-play: takes one of its two strategies for a whole hand, and writes down what it does.

    Args:
        strategies: the player's.
        actions: number of actions in the game.
        eta: probability of following the best response in a hand.
        device: where probabilities are wanted.
    """

    def __init__(self, strategies: Probabilities, actions: int, eta: float, device: torch.device | str = "cpu") -> None:
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
        """What was recorded in the last batch of hands, given `[hands]` chips that the player won in each.

        Nothing where the player never acted, because the other one folded at once in each.
        """
        nothing = torch.zeros(0, dtype=torch.int64, device=won.device)
        record = self._record or [(nothing, nothing, nothing)]
        hand, infosets, actions = (torch.cat(column) for column in zip(*record, strict=True))
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


class Player:
    """Memories and networks of one player.

    Args:
        game: the game.
        player: 0 or 1.
        algorithm: hyperparameters.
        network: architecture of both networks.
        inputs, columns: of the networks, and what their features show.
        seed: of the initial weights.

    Attributes:
        value_network, average_network: Q, whose greedy actions are the best response, and the average strategy Pi.
        strategies: how both answer, and the target network.
        replay, reservoir: M_RL and M_SL.
        steps: the player's steps in the game so far: decisions, and ends of hands.
        updates: SGD steps of the value network so far.
    """

    def __init__(
        self,
        game: Game,
        player: int,
        algorithm: NFSPConfig,
        network: NetworkConfig,
        inputs: Inputs,
        columns: FeatureColumns,
        seed: int,
    ) -> None:
        self.game, self.player, self.algorithm = game, player, algorithm
        infosets = game.player_slice[player]
        self.first, self.count, self.actions = infosets.start, infosets.stop - infosets.start, game.num_actions
        with initialisation(seed, "initial networks", 0, player):
            self.value_network = value_network(network, columns, self.actions).to(game.device)
            self.average_network = average_network(network, columns, self.actions).to(game.device)
        self._value_optimizer = FlatSGD(self.value_network, algorithm.value_learning_rate)
        self._average_optimizer = FlatSGD(self.average_network, algorithm.average_learning_rate)
        kind = algorithm.strategies_in(game)
        self.strategies = kind(game, player, inputs, self.value_network, self.average_network)
        shape = (self.first, self.count, self.actions, game.device)
        self.replay = Replay(algorithm.replay_capacity, *shape)
        self.reservoir = Reservoir(algorithm.reservoir_capacity, *shape)
        self.steps = self.updates = 0

    # -- acting --------------------------------------------------------------------------------------------------

    def seat(self, epsilon: float) -> SelfPlaySeat:
        """The player as it acts now; its best response explores with probability `epsilon`."""
        return SelfPlaySeat(self.strategies.at(epsilon), self.actions, self.algorithm.eta, self.game.device)

    # -- learning ------------------------------------------------------------------------------------------------

    def remember(self, transitions: Transitions, hands: int, keep: torch.Generator) -> int:
        """Store what happened in a batch of hands. Returns the number of SGD steps that are now due."""
        self.replay.add(transitions)
        cloned = transitions.best_response
        actions = one_hot(transitions.actions[cloned], self.actions).float()
        # Under one and the same iteration number all entries weigh the same.
        self.reservoir.add(InfosetSamples(transitions.infosets[cloned], actions), 1, keep)
        every, before = self.algorithm.steps_per_update, self.steps
        self.steps += len(transitions.infosets) + hands
        return self.steps // every - before // every

    def fit_values(self, steps: int, draw: torch.Generator) -> float:
        """Take `steps` SGD steps of Q-learning. Returns the mean squared Bellman error, in chips^2.

        Raises:
            FloatingPointError: the loss or the parameters are no longer finite.
        """
        batches = self.replay.minibatches(steps, self.algorithm.batch_size, self.strategies.value_after, draw)
        counted = self._counted(batches)
        return self.strategies.fit(self.value_network, self._value_optimizer, counted, steps, log_loss=False)

    def _counted(self, batches: Iterator[Minibatch]) -> Iterator[Minibatch]:
        """The same minibatches; the target network is refreshed after every `target_every`-th step."""
        for batch in batches:
            yield batch
            # The step on it has been taken.
            self.updates += 1
            if self.updates % self.algorithm.target_every == 0:
                self.strategies.refresh_target()

    def fit_average(self, steps: int, draw: torch.Generator) -> float:
        """Take `steps` SGD steps of cloning the best response. Returns the log loss, in nats.

        Raises:
            FloatingPointError: the loss or the parameters are no longer finite.
        """
        # A reservoir's weights include the division by the number of actions, which the log loss does not have.
        batches = self.reservoir.minibatches(steps, self.algorithm.batch_size, 1, self.actions, draw)
        return self.strategies.fit(self.average_network, self._average_optimizer, batches, steps, log_loss=True)

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        """What a checkpoint must hold beside the networks' parameters."""
        return {
            "replay": self.replay.state_dict(),
            "reservoir": self.reservoir.state_dict(),
            "target": self.strategies.target(),
            "steps": self.steps,
            "updates": self.updates,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `progress` gave."""
        self.replay.load_state_dict(saved["replay"])
        self.reservoir.load_state_dict(saved["reservoir"])
        self.strategies.restore_target(saved["target"])
        self.steps, self.updates = saved["steps"], saved["updates"]


# -- the algorithm ---------------------------------------------------------------------------------------------------


class NFSP(Algorithm):
    """Neural fictitious self-play. One epoch is up to twenty iterations.

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
        self.iterations_per_step = largest_divisor(algorithm.snapshot_every, _MOST_PER_STEP)
        self.algorithm = algorithm
        self.engine = SamplingEngine(game)
        inputs, columns = network_inputs(game)
        self.players = [Player(game, p, algorithm, network, inputs, columns, seed) for p in range(2)]
        # Lightning keeps the parameters of what it can see.
        self.value_networks = nn.ModuleList(p.value_network for p in self.players)
        self.average_networks = nn.ModuleList(p.average_network for p in self.players)

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

    # -- snapshots and checkpoints -------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """`average`: per player the state of the average network."""
        states = [p.average_network.state_dict() for p in self.players]
        return {"average": [{key: tensor.to("cpu", copy=True) for key, tensor in s.items()} for s in states]}

    def progress(self) -> dict[str, Any]:
        return {"players": [p.progress() for p in self.players]}

    def restore(self, saved: dict[str, Any]) -> None:
        for player, state in zip(self.players, saved["players"], strict=True):
            player.restore(state)
