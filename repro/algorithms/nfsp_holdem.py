"""NFSP on Hold'em: networks are asked about the infosets that come up; there are too many to evaluate all of them.

The target network is a copy of the value network. All betting rounds are the networks', the first as well. What a
read-out is worth is measured by matches: this run leaves its average networks, and others play against them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from repro.algorithms.memory import Minibatch
from repro.algorithms.nfsp import NFSPFamily, Player, Strategies
from repro.algorithms.regression import fit
from repro.config import NetworkConfig, NFSPConfig
from repro.games.game import Game
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import value_network
from repro.networks.optimizers import FlatSGD


class HoldemPlayer(Player):
    """A player of a Hold'em game.

    Args:
        features: of the game's infosets; the others as for `Player`.
    """

    def __init__(
        self,
        game: Game,
        player: int,
        algorithm: NFSPConfig,
        network: NetworkConfig,
        features: HoldemFeatures,
        seed: int,
    ) -> None:
        super().__init__(game, player, algorithm, network, features.columns, seed)
        self._rows = features.rows
        self._target = value_network(network, features.columns, self.actions).to(game.device)
        self.refresh_target()

    @torch.no_grad()
    def strategies(self, epsilon: float) -> Strategies:
        @torch.no_grad()
        def found(infosets: Tensor, which: Tensor) -> Tensor:
            features, legal = self._rows(infosets)
            probabilities = torch.empty(legal.shape, device=legal.device)
            average, response = (which == 0).nonzero().flatten(), (which == 1).nonzero().flatten()
            probabilities[average] = self.average_network(features[average], legal[average])
            values = self.value_network(features[response], legal[response])
            allowed = legal[response]
            greedy = one_hot(values.masked_fill(~allowed, -math.inf).argmax(1), self.actions)
            probabilities[response] = (1 - epsilon) * greedy + epsilon * allowed / allowed.sum(1, keepdim=True)
            return probabilities

        return found

    def fit(
        self, network: nn.Module, optimizer: FlatSGD, batches: Iterator[Minibatch], steps: int, log_loss: bool
    ) -> float:
        return fit(network, optimizer, (self._with_inputs(b) for b in batches), steps, log_loss=log_loss)

    def _with_inputs(self, batch: Minibatch) -> Minibatch:
        if batch.infosets is None:
            # Rows are all the player's infosets, in a game that has few.
            return replace(batch, inputs=self._rows(torch.arange(self.count, device=self.game.device) + self.first))
        return replace(batch, inputs=self._rows(batch.infosets + self.first))

    @torch.no_grad()
    def value_after(self, following: Tensor) -> Tensor:
        values = torch.zeros(len(following), device=following.device)
        going = (following < self.count).nonzero().flatten()
        features, legal = self._rows(following[going] + self.first)
        values[going] = self._target(features, legal).masked_fill(~legal, -math.inf).amax(1)
        return values

    def refresh_target(self) -> None:
        self._target.load_state_dict(self.value_network.state_dict())

    def target(self) -> Tensor:
        return parameters_to_vector(self._target.parameters()).detach().clone()

    def restore_target(self, saved: Tensor) -> None:
        vector_to_parameters(saved.to(self.game.device).clone(), self._target.parameters())


class HoldemNFSP(NFSPFamily):
    """NFSP on a Hold'em game."""

    def make_player(self, player: int, network: NetworkConfig) -> HoldemPlayer:
        return HoldemPlayer(self.game, player, self.algorithm, network, HoldemFeatures(self.game), self.seed)

    def evaluate(self) -> None:
        """Nothing is measured but counts and costs."""
        self.metrics.update({name: {} for name in self.readouts})

    def artifact(self) -> dict[str, Any]:
        """`average`: per player the state of the average network."""
        return {"average": [{k: v.cpu() for k, v in n.state_dict().items()} for n in self.average_networks]}
