"""State values of Hold'em infosets by play-outs.

What an infoset does not show, the opponent's hand and the rest of the board, is drawn from the remaining deck. A draw
counts by the probability that the opponent, with that hand, would have acted as she did, and those that count at all
are played out once: the mean is over her hands as the deal and her own actions make them likely. Being a ratio of two
means, it is consistent, its bias falls with the number of draws, and few draws may be fewer hands that count.
"""

from __future__ import annotations

import torch
from torch import Tensor

from repro.engine.sampling import SamplingEngine
from repro.games.cards import Deals
from repro.games.holdem import HoldemCards
from repro.policies.base import Policy

_AT_ONCE = 1 << 17
"""Most play-outs at a time: each has keys for a whole deck."""


class Beliefs:
    """Play-outs from infosets of one Hold'em game."""

    def __init__(self, engine: SamplingEngine) -> None:
        assert isinstance(engine.game.cards, HoldemCards)
        self._engine, self.game, self._cards = engine, engine.game, engine.game.cards

    def played_out(self, policy: Policy, infosets: Tensor, simulations: int, generator: torch.Generator) -> Tensor:
        """`[n]` infosets after the first round -> `[n]` float64 mean chips of the player to act, of so many play-outs.

        Args:
            policy: of both players.
            infosets: to play out from.
            simulations: play-outs per infoset.
            generator: source of all randomness, on the game's device.
        """
        at_once = max(1, _AT_ONCE // simulations)
        parts = [self._part(policy, some, simulations, generator) for some in infosets.split(at_once)]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64, device=infosets.device)

    def _part(self, policy: Policy, infosets: Tensor, simulations: int, generator: torch.Generator) -> Tensor:
        node, deals = self._drawn(infosets, simulations, generator)
        weight = self._likelihood(policy, node, deals)
        possible = weight.view(-1, simulations).sum(1) > 0
        # Where none of the draws counts, because the opponent never gets there or by chance, all do.
        weight = torch.where(possible.repeat_interleave(simulations), weight, 1.0)
        counts = weight.nonzero().flatten()
        won = torch.zeros_like(weight)
        won[counts] = self._engine.play_outs(
            policy, node[counts], counts, deals, torch.ones_like(weight[counts]), generator
        )
        sign = 1.0 - 2.0 * self.game.tree.player[node]
        totals = [x.view(-1, simulations).sum(1) for x in (weight * sign * won, weight)]
        return totals[0] / totals[1]

    def _drawn(self, infosets: Tensor, simulations: int, generator: torch.Generator) -> tuple[Tensor, Deals]:
        """`[n * simulations]` betting nodes, infoset by infoset, and deals that show what the infosets do."""
        tree, cards = self.game.tree, self._cards
        node, cell = self.game.locate(infosets)
        round_, second = tree.round[node], tree.player[node] == 1
        deck, board = cards.ranks * cards.suits, cards.board_cards[-1]
        dealt = torch.empty(len(infosets) * simulations, 4 + board, dtype=torch.int64, device=infosets.device)
        for r in round_.unique().tolist():
            positions = (round_ == r).nonzero().flatten()
            seen = cards.cards_of_cells(r, cell[positions]).repeat_interleave(simulations, 0)
            key = torch.rand(len(seen), deck, generator=generator, device=seen.device).scatter_(1, seen, -1.0)
            rest = key.topk(2 + board - cards.board_cards[r]).indices
            acting, opposing = seen[:, -2:], rest[:, :2]
            swap = second[positions].repeat_interleave(simulations)[:, None]
            hands = torch.cat([torch.where(swap, opposing, acting), torch.where(swap, acting, opposing)], 1)
            rows = (positions[:, None] * simulations + torch.arange(simulations, device=positions.device)).flatten()
            dealt[rows] = torch.cat([hands, seen[:, :-2], rest[:, 2:]], 1)
        return node.repeat_interleave(simulations), cards.dealt(dealt)

    def _likelihood(self, policy: Policy, node: Tensor, deals: Deals) -> Tensor:
        """`[rows]` float64 probability of what the opponent of the player to act did before, with her hand."""
        tree = self.game.tree
        opponent = 1 - tree.player[node]
        likelihood = torch.ones(len(node), dtype=torch.float64, device=node.device)
        row = torch.arange(len(node), device=node.device)
        while len(row):
            before = tree.parent[node]
            row, node, before = (x[before >= 0] for x in (row, node, before))
            opponent_rows = (tree.player[before] == opponent[row]).nonzero().flatten()
            action = (tree.child[before[opponent_rows]] == node[opponent_rows, None]).long().argmax(1)
            infosets = self._engine.infosets(before[opponent_rows], row[opponent_rows], deals)
            probability = policy.probabilities(infosets).gather(1, action[:, None])[:, 0]
            likelihood[row[opponent_rows]] *= probability.double()
            # What cannot be is settled.
            going = likelihood[row] > 0
            row, node = row[going], before[going]
        return likelihood
