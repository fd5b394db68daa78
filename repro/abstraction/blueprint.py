"""A strategy for a card abstraction, played in the full game."""

from __future__ import annotations

import torch
from torch import Tensor

from repro.abstraction.abstract_game import Abstraction
from repro.policies.base import TabularPolicy
from repro.policies.regret_matching import normalised

_AT_ONCE = 1 << 18
"""Infosets that are looked up in one go: what is found on the way then stays in the processor's cache, and is not asked
of the system anew, which for all infosets of a large game takes most of the time."""


class Blueprint:
    """Per infoset of the full game, the weights of its row in proportion; uniform where they are all 0.

    Args:
        abstraction: the card abstraction.
        weights: `[infosets of the abstract game, actions]`, zero where illegal.
    """

    def __init__(self, abstraction: Abstraction, weights: Tensor) -> None:
        self._abstraction, self._weights = abstraction, weights

    def probabilities(self, infosets: Tensor) -> Tensor:
        answer = self._weights.new_empty(len(infosets), self._weights.shape[1])
        for part in range(0, len(infosets), _AT_ONCE):
            some = slice(part, part + _AT_ONCE)
            answer[some] = self._some(infosets[some])
        return answer

    def _some(self, infosets: Tensor) -> Tensor:
        legal = self._abstraction.game.legal_at(infosets)
        weights = self._weights.index_select(0, self._abstraction.rows(infosets))
        return normalised(weights, legal / legal.sum(1, keepdim=True, dtype=weights.dtype))

    def table(self) -> TabularPolicy:
        """The same as a table of the full game, whose infosets must be listed."""
        game = self._abstraction.game
        if self._abstraction.buckets is None:
            return TabularPolicy(normalised(self._weights, game.uniform))
        return TabularPolicy(self.probabilities(torch.arange(game.infosets, device=game.device)))
