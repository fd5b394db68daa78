"""Public chance sampling [Johanson et al. 2012]: boards are drawn, and on each every hand plays every other, exactly.

In external sampling the opponent's hand and actions are drawn too, so that a sample is a noisy reading of an infoset's
advantage. Where one board is all that chance shows, nothing is left to it once the board is there: every sample is the
advantage itself. What is returned stands for a number of external-sampling traversals: infosets come as often as these
would meet them in the mean, and sums in the first betting round are those that they would have in the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from torch import Tensor

from repro.engine.holdem_form import HoldemForm, sample_boards
from repro.engine.sampling import InfosetSamples, Traversals
from repro.games.game import Game
from repro.policies.base import Policy

_AT_ONCE = 16
"""Boards on which all infosets are looked at in one go: some hundred thousand to a million rows."""

_NEVER = 1e-12
"""Infosets that are met more seldom than this, to which the rounding error of never adds up, are not."""


@dataclass(frozen=True)
class _Frequent:
    """What one player's infosets on some boards have to tell.

    Attributes:
        infosets: `[n]`, those of the first betting round before the others.
        targets: `[n, actions]` float64.
        values: `[n]` float64, the traverser's chips from there on; zeros where nobody asks.
        frequency: `[n]` float64, how often a traversal meets each.
    """

    infosets: Tensor
    targets: Tensor
    values: Tensor
    frequency: Tensor


class PublicChanceSampling:
    """Samples of a Hold'em game with one board, on the CPU.

    Args:
        game: whose strategies' first betting round is summed in tables.
    """

    def __init__(self, game: Game) -> None:
        self.game = game
        tree, cards, first = game.tree, game.cards, slice(*game.tree.round_slice[0])
        self._opening = [int((tree.player[first] == p).sum()) * cards.cells[0] for p in range(2)]
        self._nodes_before = first.stop - first.start
        left = cards.ranks * cards.suits - cards.board_cards[-1]
        self._touched_on_a_board = comb(left, 2) * comb(left - 2, 2) * (tree.nodes - self._nodes_before)

    @torch.no_grad()
    def traverse(
        self, policy: Policy, traverser: int, traversals: int, boards: int, generator: torch.Generator
    ) -> Traversals:
        """Draw boards, play all hands on them, and return what so many traversals would have met in the mean.

        Args:
            policy: the current strategies of both players.
            traverser: whose advantages are wanted.
            traversals: how many are stood for.
            boards: drawn independently.
            generator: source of all randomness, on the CPU.

        Returns:
            the samples. Infosets of the first betting round are there once per part of the boards, with the sum of
            their targets; `values` has one number per part, the mean of its games.
        """
        parts = torch.arange(boards).split(_AT_ONCE)
        found = [self._on(len(part), policy, traverser, traversals * len(part) / boards, generator) for part in parts]
        return Traversals(
            advantages=_joined([part.advantages for part in found]),
            opponent_strategies=_joined([part.opponent_strategies for part in found]),
            state_values=torch.cat([part.state_values for part in found]),
            values=torch.cat([part.values for part in found]),
            nodes_touched=sum(part.nodes_touched for part in found),
        )

    def _on(
        self, boards: int, policy: Policy, traverser: int, traversals: float, generator: torch.Generator
    ) -> Traversals:
        """The same of some boards."""
        form, opponent = HoldemForm(self.game, sample_boards(self.game, boards, generator)), 1 - traverser
        table = policy.probabilities(form.infosets).double()
        own, others = form.player_slice[traverser], form.player_slice[opponent]
        action_values = np.zeros(table.shape)
        value, _ = form.evaluate(table, traverser, action_values=action_values)
        met, infosets = form.others_reach(table, traverser)[own], form.infosets[own]
        # Counterfactual values are sums over the games in which the opponent and chance allow the infoset.
        values = torch.from_numpy(action_values[own]) / met.clamp(min=_NEVER)[:, None]
        mean = (table[own] * values).sum(1)
        regrets = (values - mean[:, None]) * self.game.legal_at(infosets)
        dealt = form.others_reach(torch.ones_like(table), opponent)[others]
        played = dealt * form.own_reach(table)[others]
        regret_samples, state_values = self._drawn(
            _Frequent(infosets, regrets, mean, met), traverser, traversals, generator
        )
        strategies, _ = self._drawn(
            _Frequent(form.infosets[others], table[others], torch.zeros_like(played), played), opponent, traversals,
            generator,
        )  # fmt: skip
        touched = form.opening.histories * self._nodes_before + len(form.boards.weight) * self._touched_on_a_board
        return Traversals(regret_samples, strategies, state_values, torch.tensor([value]), touched)

    def _drawn(
        self, of: _Frequent, player: int, traversals: float, generator: torch.Generator
    ) -> tuple[InfosetSamples, Tensor]:
        """Infosets as often as traversals meet them, to a rest that is drawn, and their values; those of the first
        betting round summed."""
        opening = self._opening[player]
        count = of.frequency * traversals
        count[of.frequency < _NEVER] = 0
        edges = count[opening:].cumsum(0)
        # Systematic: so many points at a distance of 1, of which each infoset gets those in its part of the line.
        points = torch.arange(float(edges[-1]) + 1, dtype=torch.float64) + torch.rand(
            (), generator=generator, dtype=torch.float64
        )
        rows = torch.searchsorted(edges, points[points < edges[-1]], right=True) + opening
        summed = of.targets[:opening] * count[:opening, None]
        targets = torch.cat([summed, of.targets.index_select(0, rows)])
        infosets = torch.cat([of.infosets[:opening], of.infosets.index_select(0, rows)])
        values = torch.cat([of.values[:opening] * count[:opening], of.values.index_select(0, rows)])
        return InfosetSamples(infosets, targets.float()), values.float()


def _joined(samples: list[InfosetSamples]) -> InfosetSamples:
    return InfosetSamples(torch.cat([s.infosets for s in samples]), torch.cat([s.targets for s in samples]))
