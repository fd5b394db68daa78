"""How an NFSP player's networks answer: from tables refreshed in every iteration, or asked on demand.

`ListedPlayer` evaluates both networks on all of the player's infosets once per iteration, and play reads tables. For
the same reason the target network is kept as the one number per infoset that Q-learning reads from it. `AskedPlayer`
evaluates them on
the infosets that come up, with a copy of the value network as the target network. Both say the same, to rounding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from repro.algorithms.minibatches import Minibatch
from repro.algorithms.regression import fit
from repro.games.game import Game
from repro.networks.inputs import Inputs
from repro.networks.modules import Network
from repro.networks.optimizers import FlatSGD

Probabilities = Callable[[Tensor, Tensor], Tensor]
"""`[n]` infosets and which strategy, 0 the average one, 1 the best response -> `[n, actions]` probabilities."""


def tabled(average: Tensor, best_response: Tensor, first: int) -> Probabilities:
    """Both strategies from tables `[infosets of the player, actions]`, whose infosets are `first, first + 1, ...`."""
    tables = torch.stack([average, best_response])
    return lambda infosets, which: tables[which, infosets - first]


class PlayerStrategies(ABC):
    """Both strategies of a player, what its networks are fitted on, and the target network.

    Args:
        game: the game.
        player: 0 or 1.
        inputs: makes the networks' inputs.
        value_network, average_network: the player's.
    """

    def __init__(
        self, game: Game, player: int, inputs: Inputs, value_network: Network, average_network: Network
    ) -> None:
        infosets = game.player_slice[player]
        self.game, self.inputs = game, inputs
        self.first, self.count, self.actions = infosets.start, infosets.stop - infosets.start, game.num_actions
        self.value_network, self.average_network = value_network, average_network

    @abstractmethod
    def at(self, epsilon: float) -> Probabilities:
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


class ListedPlayer(PlayerStrategies):
    """Tables over all of the player's infosets.

    Attributes:
        features, legal: `[infosets, columns]` and `[infosets, actions]`, what the networks see.
        next_value: `[infosets + 1]` what the target network expects to win from each infoset; last, 0 for a hand's end.
    """

    def __init__(
        self, game: Game, player: int, inputs: Inputs, value_network: Network, average_network: Network
    ) -> None:
        super().__init__(game, player, inputs, value_network, average_network)
        self.features, self.legal = inputs(torch.arange(self.first, self.first + self.count, device=game.device))
        self._uniform = game.uniform[game.player_slice[player]]
        self.next_value = torch.zeros(self.count + 1, device=game.device)
        self.refresh_target()

    @torch.no_grad()
    def values(self) -> Tensor:
        """`[infosets, actions]` what Q expects to win, in the reward's unit; minus infinity where illegal."""
        return self.value_network(self.features, self.legal).masked_fill(~self.legal, -math.inf)

    @torch.no_grad()
    def average(self) -> Tensor:
        """`[infosets, actions]` probabilities of the average strategy."""
        return self.average_network(self.features, self.legal)

    def at(self, epsilon: float) -> Probabilities:
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


class AskedPlayer(PlayerStrategies):
    """Networks on demand, for games with more infosets than one would evaluate in every iteration."""

    def __init__(
        self, game: Game, player: int, inputs: Inputs, value_network: Network, average_network: Network
    ) -> None:
        super().__init__(game, player, inputs, value_network, average_network)
        self._target = deepcopy(value_network)

    def at(self, epsilon: float) -> Probabilities:
        @torch.no_grad()
        def probabilities_of(infosets: Tensor, which: Tensor) -> Tensor:
            features, legal = self.inputs(infosets)
            probabilities = torch.empty(legal.shape, device=legal.device)
            average, response = (which == 0).nonzero().flatten(), (which == 1).nonzero().flatten()
            probabilities[average] = self.average_network(features[average], legal[average])
            values = self.value_network(features[response], legal[response])
            allowed = legal[response]
            greedy = one_hot(values.masked_fill(~allowed, -math.inf).argmax(1), self.actions)
            probabilities[response] = (1 - epsilon) * greedy + epsilon * allowed / allowed.sum(1, keepdim=True)
            return probabilities

        return probabilities_of

    def fit(
        self, network: nn.Module, optimizer: FlatSGD, batches: Iterator[Minibatch], steps: int, log_loss: bool
    ) -> float:
        return fit(network, optimizer, (self._with_inputs(b) for b in batches), steps, log_loss=log_loss)

    def _with_inputs(self, batch: Minibatch) -> Minibatch:
        if batch.infosets is None:
            # Rows are all the player's infosets, in a game that has few.
            return replace(batch, inputs=self.inputs(torch.arange(self.count, device=self.game.device) + self.first))
        return replace(batch, inputs=self.inputs(batch.infosets + self.first))

    @torch.no_grad()
    def value_after(self, following: Tensor) -> Tensor:
        values = torch.zeros(len(following), device=following.device)
        going = (following < self.count).nonzero().flatten()
        features, legal = self.inputs(following[going] + self.first)
        values[going] = self._target(features, legal).masked_fill(~legal, -math.inf).amax(1)
        return values

    def refresh_target(self) -> None:
        self._target.load_state_dict(self.value_network.state_dict())

    def target(self) -> Tensor:
        return parameters_to_vector(self._target.parameters()).detach().clone()

    def restore_target(self, saved: Tensor) -> None:
        vector_to_parameters(saved.to(self.game.device).clone(), self._target.parameters())
