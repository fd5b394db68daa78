"""A strategy for a card abstraction, played in the full game."""

from __future__ import annotations

import torch
from torch import Tensor

from repro.abstraction.abstract_game import Abstraction
from repro.policies.base import TabularPolicy
from repro.policies.regret_matching import normalised


class Blueprint:
    """Per infoset of the full game, the weights of its row in proportion; uniform where they are all 0.

    Args:
        abstraction: the card abstraction.
        weights: `[infosets of the abstract game, actions]`, zero where illegal.
    """

    def __init__(self, abstraction: Abstraction, weights: Tensor) -> None:
        self._abstraction, self._weights = abstraction, weights

    def probabilities(self, infosets: Tensor) -> Tensor:
        legal = self._abstraction.game.legal_at(infosets)
        weights = self._weights.index_select(0, self._abstraction.rows(infosets))
        return normalised(weights, legal / legal.sum(1, keepdim=True, dtype=weights.dtype))

    def table(self) -> TabularPolicy:
        """The same as a table of the full game, whose infosets must be listed."""
        game = self._abstraction.game
        if self._abstraction.buckets is None:
            return TabularPolicy(normalised(self._weights, game.uniform))
        return TabularPolicy(self.probabilities(torch.arange(game.infosets, device=game.device)))
