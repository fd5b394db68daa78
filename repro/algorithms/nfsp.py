"""NFSP, neural fictitious self-play [Heinrich and Silver 2016], with many hands of self-play at once.

Each player learns a best response to the other's average strategy by Q-learning from a replay memory (a DQN), and its
own average strategy by cloning its past best responses, which a reservoir samples. In each hand a player follows its
best response with probability eta, else its average strategy.

The paper plays one hand at a time and takes an SGD step whenever a player has made so many steps in the game. Here an
iteration plays a batch of hands with the networks as they are, all of them level by level down the betting tree, and
then takes the SGD steps that are due. The number of hands, of SGD steps and of rows per step is as it would be, only
the networks that act lag behind by up to one batch of hands. Two things that the paper leaves open: its "iteration",
which exploration falls with, is one of ours; and a network learns as soon as its memory holds a minibatch.

The infosets are listed, so a network is evaluated on all of its player's once per iteration, and play reads a table.
For the same reason the target network is kept as the one number per infoset that Q-learning reads from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from repro.algorithms.base import Algorithm, largest_divisor
from repro.algorithms.memory import Minibatch, Reservoir
from repro.algorithms.regression import fit
from repro.config import NetworkConfig, NFSPConfig, ReadoutConfig
from repro.engine.sampling import Samples, SamplingEngine, sample_actions
from repro.errors import ReproError
from repro.games.game import Game
from repro.networks.features import feature_columns, infoset_features
from repro.networks.modules import Network, average_network, value_network
from repro.networks.step import Autograd, FlatAdam, Gradients, HandDifferentiated, gradients_of
from repro.policies.base import Ensemble, HandStrategies, TabularPolicy, table_of
from repro.seeding import initialisation

_MOST_PER_STEP = 20
"""Iterations in one epoch of Lightning's, which takes milliseconds of its own."""

# -- self-play -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transitions:
    """One player's decisions in a batch of hands, ordered by hand and then by time.

    Attributes:
        infosets, actions: `[n]` where the player was, and what it did.
        rewards: `[n]` chips won before its next decision; nothing is won before a hand ends.
        following: `[n]` infoset of its next decision in the hand, -1 where the hand ended before.
        best_response: `[n]` bool, whether it followed its best response in that hand.
    """

    infosets: Tensor
    actions: Tensor
    rewards: Tensor
    following: Tensor
    best_response: Tensor


class Seat(Ensemble):
    """A player in self-play: takes one of its two strategies for a whole hand, and writes down what it does.

    Args:
        strategies: `[2, infosets of the player, actions]` probabilities: average strategy, best response.
        first: the player's infosets are `first, first + 1, ...`.
        eta: probability of following the best response in a hand.
    """

    def __init__(self, strategies: Tensor, first: int, eta: float) -> None:
        self._strategies, self._first, self._eta = strategies, first, eta
        self._certain = torch.eye(strategies.shape[2], device=strategies.device)
        self._best_response = torch.zeros(0, dtype=torch.bool)
        self._record: list[tuple[Tensor, Tensor, Tensor]] = []

    def per_hand(self, hands: int, generator: torch.Generator) -> HandStrategies:
        self._best_response = torch.rand(hands, generator=generator, device=generator.device) < self._eta
        chosen = self._best_response.long()
        self._record = []

        def act(infosets: Tensor, hand: Tensor) -> Tensor:
            action = sample_actions(self._strategies[chosen[hand], infosets - self._first], generator)
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


# -- memory ----------------------------------------------------------------------------------------------------------


class Replay:
    """M_RL: the last `capacity` transitions of one player, 16 bytes each, as minibatches of Q-learning.

    Args:
        capacity: most transitions held.
        first, count: the player's infosets are `first .. first + count - 1`.
        actions: width of a target.
        device: where the transitions live.
    """

    def __init__(self, capacity: int, first: int, count: int, actions: int, device: torch.device | str) -> None:
        self.capacity, self.first, self.count, self.actions = capacity, first, count, actions
        self.seen = 0
        # Rows: infoset, action, following infoset (`count` where the hand ended); beside them the rewards.
        self._step = torch.empty(3, capacity, dtype=torch.int32, device=device)
        self._reward = torch.empty(capacity, device=device)

    @property
    def size(self) -> int:
        """Transitions held."""
        return min(self.seen, self.capacity)

    def add(self, transitions: Transitions) -> None:
        """Store a batch over the oldest transitions."""
        infosets, following = transitions.infosets - self.first, transitions.following
        following = torch.where(following < 0, self.count, following - self.first)
        step = torch.stack([infosets, transitions.actions, following]).int()[:, -self.capacity :]
        self.seen += len(infosets)
        slot = torch.arange(self.seen - step.shape[1], self.seen, device=step.device) % self.capacity
        self._step[:, slot] = step
        self._reward[slot] = transitions.rewards[-self.capacity :]

    def minibatches(
        self, steps: int, batch_size: int, next_value: Tensor, generator: torch.Generator
    ) -> Iterator[Minibatch]:
        """`steps` minibatches of transitions drawn with replacement; the loss is the mean squared Bellman error.

        Only the action that was taken has a weight.

        Args:
            next_value: `[count + 1]` the target network's value of each infoset, and 0 for a hand that has ended. It is
                read when a minibatch is taken, so that it may change between two of them.
        """
        index = torch.randint(self.size, (steps * batch_size,), generator=generator, device=generator.device)
        infosets, action, following = self._step.index_select(1, index).long()
        weight = (torch.eye(self.actions, device=index.device) / batch_size).index_select(0, action)
        reward = self._reward.index_select(0, index)
        rows = (column.split(batch_size) for column in (infosets, weight, reward, following))
        for i, w, r, after in zip(*rows, strict=True):
            target = r + next_value.index_select(0, after)
            yield Minibatch(i, w, target[:, None], w.new_zeros(()))

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors to checkpoint."""
        held = slice(self.size)
        return {
            "seen": torch.tensor(self.seen),
            "step": self._step[:, held].clone(),
            "reward": self._reward[held].clone(),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` gave."""
        self.seen = int(state["seen"])
        self._step[:, : self.size] = state["step"]
        self._reward[: self.size] = state["reward"]


# -- SGD -------------------------------------------------------------------------------------------------------------


class FlatSGD(FlatAdam):
    """Plain gradient descent on the flat tensor that `FlatAdam` lays a network out in; no moments, no clipping."""

    def __init__(self, network: nn.Module, learning_rate: float) -> None:
        super().__init__(network, learning_rate, clip_norm=math.inf)

    @torch.no_grad()
    def update(self) -> None:
        """Take one step."""
        self.flat.add_(self._gradient, alpha=-self.param_groups[0]["lr"])


class HandLogLoss(HandDifferentiated):
    """As `log_loss_gradients`, by hand."""

    def compute(self, weight: Tensor, target: Tensor) -> Tensor:
        x = self._x
        # As in the other loss: a network that diverges is told by its loss, not by NumPy's warnings.
        with np.errstate(over="ignore", invalid="ignore"):
            for layer in self._layers:
                x = layer.forward(x)
            output = self._head.forward(x)
            # The gradient at the logits needs no rule of the softmax.
            gradient = (output - target.numpy()) * weight.numpy()
            for layer in reversed(self._layers):
                gradient = layer.backward(gradient)
        return torch.from_numpy(output)


class AutogradLogLoss(Autograd):
    """As `log_loss_gradients`, by torch's autograd."""

    def compute(self, weight: Tensor, target: Tensor) -> Tensor:
        network = self._network
        assert isinstance(network, Network)
        network.zero_grad(set_to_none=False)
        with torch.enable_grad():
            logits = network.body(self._x)
            output = network.head(logits.detach(), self._legal)
            logits.backward(weight * (output - target))
        return output


def log_loss_gradients(network: Network) -> Gradients:
    """Fills the gradients of `-sum over rows of weight * sum over actions of target * log network(x)`.

    The network's head is a `MaskedSoftmax`, and a row's targets sum to one.
    """
    by_hand = isinstance(gradients_of(network), HandDifferentiated)
    return HandLogLoss(network) if by_hand else AutogradLogLoss(network)


# -- one player ------------------------------------------------------------------------------------------------------


class Player:
    """Memories and networks of one player.

    Args:
        game: the game.
        player: 0 or 1.
        algorithm: hyperparameters.
        network: architecture of both networks.
        seed: of the initial weights.

    Attributes:
        value_network, average_network: Q, whose greedy actions are the best response, and the average strategy Pi.
        replay, reservoir: M_RL and M_SL.
        next_value: `[infosets + 1]` what the target network expects to win from each infoset; last, 0 for a hand's end.
        steps: the player's steps in the game so far: decisions, and ends of hands.
        updates: SGD steps of the value network so far.
    """

    def __init__(self, game: Game, player: int, algorithm: NFSPConfig, network: NetworkConfig, seed: int) -> None:
        self.player, self.algorithm = player, algorithm
        mine = game.player_slice[player]
        self.first, count, self.actions = mine.start, mine.stop - mine.start, game.num_actions
        self.features, self.legal, self._uniform = infoset_features(game)[mine], game.legal[mine], game.uniform[mine]
        with initialisation(seed, "initial networks", 0, player):
            columns = feature_columns(game)
            self.value_network = value_network(network, columns, self.actions).to(game.device)
            self.average_network = average_network(network, columns, self.actions).to(game.device)
        self._value_optimizer = FlatSGD(self.value_network, algorithm.value_learning_rate)
        self._average_optimizer = FlatSGD(self.average_network, algorithm.average_learning_rate)
        shape = (self.first, count, self.actions, game.device)
        self.replay = Replay(algorithm.replay_capacity, *shape)
        self.reservoir = Reservoir(algorithm.reservoir_capacity, *shape)
        self.next_value = torch.zeros(count + 1, device=game.device)
        self._refresh_target()
        self.steps = self.updates = 0

    # -- acting --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def values(self) -> Tensor:
        """`[infosets, actions]` chips that Q expects to win, minus infinity where illegal."""
        return self.value_network(self.features, self.legal).masked_fill(~self.legal, -math.inf)

    @torch.no_grad()
    def average(self) -> Tensor:
        """`[infosets, actions]` probabilities of the average strategy."""
        return self.average_network(self.features, self.legal)

    def seat(self, epsilon: float) -> Seat:
        """The player as it acts now; its best response explores with probability `epsilon`."""
        greedy = one_hot(self.values().argmax(1), self.actions)
        response = (1 - epsilon) * greedy + epsilon * self._uniform
        return Seat(torch.stack([self.average(), response.float()]), self.first, self.algorithm.eta)

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
        batches = self.replay.minibatches(steps, self.algorithm.batch_size, self.next_value, draw)
        return fit(self.value_network, self._value_optimizer, self._counted(batches), steps, self.features, self.legal)

    def _counted(self, batches: Iterator[Minibatch]) -> Iterator[Minibatch]:
        """The same minibatches; the target network is refreshed after every `target_every`-th step."""
        for batch in batches:
            yield batch
            # The step on it has been taken.
            self.updates += 1
            if self.updates % self.algorithm.target_every == 0:
                self._refresh_target()

    def _refresh_target(self) -> None:
        self.next_value[:-1] = self.values().amax(1)

    def fit_average(self, steps: int, draw: torch.Generator) -> float:
        """Take `steps` SGD steps of cloning the best response. Returns the last minibatch's log loss, in nats.

        Raises:
            FloatingPointError: the loss or the parameters are no longer finite.
        """
        # Only for the gradients to be where they belong, as in `fit`.
        self._average_optimizer.reset()
        gradients = log_loss_gradients(self.average_network)
        gradients.prepare(self.features, self.legal)
        for batch in self.reservoir.minibatches(steps, self.algorithm.batch_size, 1, self.actions, draw):
            if batch.infosets is not None:
                gradients.prepare(self.features[batch.infosets], self.legal[batch.infosets])
            output = gradients.compute(batch.weight, batch.target)
            self._average_optimizer.update()
        loss = -float((torch.xlogy(batch.target, output) * batch.weight).sum())
        if not (math.isfinite(loss) and bool(self._average_optimizer.flat.isfinite().all())):
            raise FloatingPointError("the training loss is not finite")
        return loss

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        """What a checkpoint must hold beside the networks' parameters."""
        return {
            "replay": self.replay.state_dict(),
            "reservoir": self.reservoir.state_dict(),
            "next_value": self.next_value.clone(),
            "steps": self.steps,
            "updates": self.updates,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `progress` gave."""
        self.replay.load_state_dict(saved["replay"])
        self.reservoir.load_state_dict(saved["reservoir"])
        self.next_value.copy_(saved["next_value"])
        self.steps, self.updates = saved["steps"], saved["updates"]


# -- the algorithm ---------------------------------------------------------------------------------------------------


class NFSP(Algorithm):
    """NFSP on a game whose infosets are listed. One epoch is up to twenty iterations.

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
        self.players = [Player(game, p, algorithm, network, seed) for p in range(2)]
        # Lightning keeps the parameters of what it can see.
        self.value_networks = nn.ModuleList(p.value_network for p in self.players)
        self.average_networks = nn.ModuleList(p.average_network for p in self.players)

    def counts(self) -> dict[str, float]:
        return {"episodes": float(self.iteration * self.algorithm.hands)}

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
        won = self.engine.play(seats, hands, self.draws("hands"))
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

    # -- read-outs -----------------------------------------------------------------------------------------------

    def read_out(self, readout: ReadoutConfig) -> tuple[TabularPolicy, dict[str, float]]:
        del readout
        return TabularPolicy(table_of(self.game, TabularPolicy(torch.cat([p.average() for p in self.players])))), {}

    def trained_networks(self) -> dict[str, Any]:
        """`value` and `average`: per player the state of the network."""
        return {
            name: [{key: tensor.cpu() for key, tensor in n.state_dict().items()} for n in networks]
            for name, networks in (("value", self.value_networks), ("average", self.average_networks))
        }

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        return {"players": [p.progress() for p in self.players]}

    def restore(self, saved: dict[str, Any]) -> None:
        for player, state in zip(self.players, saved["players"], strict=True):
            player.restore(state)
