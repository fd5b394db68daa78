"""Features of Hold'em infosets [Deep CFR, Sec. 5.1], made when they are needed: there are too many to store.

Each set of cards without an order (hand, flop, turn, river) has columns for the 52 cards, the 13 ranks and the 4 suits
that count how often each is in it. A linear layer on them is the paper's sum of rank, suit and card embeddings. Cards
are those of the canonical deal (see `repro.games.holdem`), so that a network cannot tell apart what the rules do not.

Each position in the betting sequence of each round has three numbers: whether a bet was made there, how large, as a
fraction of the pot before it, and whether it is the position to act. Where all-in is an action of its own that fraction
can be in the hundreds; there it is `log(1 + fraction)`.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from repro.games.betting import RAISE, BettingTree
from repro.games.game import Game
from repro.games.holdem import HoldemCards
from repro.networks.features import FeatureColumns

_PER_POSITION = 3

_CELLS_AT_ONCE = 1 << 17


class HoldemFeatures:
    """Features of one game's infosets.

    Attributes:
        game: the game.
        columns: what they show.
        state: `[nodes, columns]` of all betting nodes.
        card_columns: `[cards, 3]` NumPy, a set's columns that each card has: itself, its rank and its suit.
    """

    def __init__(self, game: Game) -> None:
        assert isinstance(game.cards, HoldemCards)
        self.game, self._cards = game, game.cards
        self.state = _betting(game.tree, log=game.rules.all_in).to(game.device)
        deck = self._cards.ranks * self._cards.suits
        self._wide = deck + self._cards.ranks + self._cards.suits
        # The hand first: it is there in every round.
        self._sets = (2, *self._cards.streets[1:])
        state = self.state.shape[1]
        starts = [state + i * self._wide for i in range(len(self._sets))]
        self.columns = FeatureColumns(slice(0, state), tuple(slice(s, s + self._wide) for s in starts))
        # Where the columns of the set begin that each card of hand and board is in.
        self._first_column = torch.tensor([s for s, k in zip(starts, self._sets, strict=True) for _ in range(k)])
        self._first_column = self._first_column.to(game.device)
        # Where a deck begins in which the sets' cards are told apart.
        self._first_card = torch.tensor(
            [i * deck for i, k in enumerate(self._sets) for _ in range(k)], device=game.device
        )
        every, suits = np.arange(deck), self._cards.suits
        self.card_columns = np.stack([every, deck + every // suits, deck + self._cards.ranks + every % suits], 1)
        self._listed = [self._list(r) for r in range(game.tree.rounds)]

    def _list(self, round_: int) -> Tensor | None:
        """`[cells, cards]` of a round whose cells are numbered without gaps."""
        codes = self._cards.codes[round_]
        if codes is None:
            return None
        return self._cards.cards_of_cells(round_, torch.arange(len(codes), device=codes.device)).to(torch.uint8)

    def __call__(self, infosets: Tensor) -> tuple[Tensor, Tensor]:
        return self.rows(infosets)

    def rows(self, infosets: Tensor) -> tuple[Tensor, Tensor]:
        """`[n]` infosets -> features `[n, columns]` float32 and legal mask `[n, actions]`."""
        node, cell = self.game.locate(infosets)
        x = torch.zeros(len(node), self.columns.count, device=node.device)
        x[:, self.columns.state] = self.state.index_select(0, node)
        round_ = self.game.tree.round.index_select(0, node)
        for r in range(self.game.tree.rounds):
            in_round = (round_ == r).nonzero().flatten()
            if len(in_round) == len(x):
                self._show_cards(x, r, cell)
            elif len(in_round):
                part = x.index_select(0, in_round)
                self._show_cards(part, r, cell.index_select(0, in_round))
                x.index_copy_(0, in_round, part)
        return x, self.game.tree.legal.index_select(0, node)

    def fixed_rows(self, infosets: Tensor) -> tuple[Tensor, Tensor]:
        """`rows`, by operations that are the same for all infosets: none waits for the device, all can be captured.

        Where the cells of all rounds are listed, what they show is looked up.
        """
        node, cell = self.game.locate(infosets)
        state, legal = self.state.index_select(0, node), self.game.tree.legal.index_select(0, node)
        round_ = self.game.tree.round.index_select(0, node)
        if self._shown is not None:
            first, shown = self._shown
            return torch.cat([state, shown.index_select(0, first.take(round_) + cell).float()], 1), legal
        x = torch.zeros(len(node), self.columns.count, device=node.device)
        for r in range(self.game.tree.rounds):
            in_round = round_ == r
            shown = torch.zeros_like(x)
            # Rows of other rounds show some cell or other, and count nothing.
            self._show_cards(shown, r, torch.where(in_round, cell, 0))
            x += shown * in_round[:, None]
        x[:, self.columns.state] = state
        return x, legal

    @cached_property
    def _shown(self) -> tuple[Tensor, Tensor] | None:
        """Per round its first row, `[rounds]`, and what each cell shows in the card columns, `[cells of all rounds,
        columns]` uint8, 178 MB in Flop Hold'em; None where some round's are not listed."""
        listed = [cards for cards in self._listed if cards is not None]
        if len(listed) < len(self._listed):
            return None
        first = torch.tensor([0, *(len(cards) for cards in listed)], device=self.state.device).cumsum(0)
        cards = slice(self.columns.state.stop, self.columns.count)
        shown = torch.zeros(int(first[-1]), cards.stop - cards.start, dtype=torch.uint8, device=self.state.device)
        for r, begin in enumerate(first[:-1].tolist()):
            for cells in torch.arange(len(listed[r]), device=self.state.device).split(_CELLS_AT_ONCE):
                x = torch.zeros(len(cells), self.columns.count, device=cells.device)
                self._show_cards(x, r, cells)
                shown[begin + cells] = x[:, cards].to(torch.uint8)
        return first[:-1], shown

    def numbered_cards(self, infosets: Tensor) -> tuple[Tensor, Tensor]:
        """`[n]` infosets -> `[n, most]` int32, `set * deck + card` or -1 for none, and `[n]` betting nodes."""
        node, cell = self.game.locate(infosets)
        numbered = torch.empty(len(node), len(self._first_card), dtype=torch.int32, device=node.device)
        round_ = self.game.tree.round.index_select(0, node)
        for r in range(self.game.tree.rounds):
            in_round = (round_ == r).nonzero().flatten()
            if len(in_round):
                numbered[in_round] = self.numbered_cells(r, cell.index_select(0, in_round))
        return numbered, node

    def numbered_cells(self, round_: int, cells: Tensor) -> Tensor:
        """`[n, most]` int32 of cells of a round, as of `numbered_cards`."""
        ordered = self._hand_first(round_, cells)
        missing = len(self._first_card) - ordered.shape[1]
        return torch.nn.functional.pad((ordered + self._first_card[: ordered.shape[1]]).int(), (0, missing), value=-1)

    def _hand_first(self, round_: int, cells: Tensor) -> Tensor:
        """`[n, cards]` of cells of a round, hand and then board."""
        listed = self._listed[round_]
        seen = self._cards.cards_of_cells(round_, cells) if listed is None else listed.index_select(0, cells).long()
        return torch.cat([seen[:, -2:], seen[:, :-2]], 1)

    def _show_cards(self, x: Tensor, round_: int, cells: Tensor) -> None:
        """Count the cards of `cells` into the card columns of `x`."""
        cards, suits, ordered = self._cards, self._cards.suits, self._hand_first(round_, cells)
        first = self._first_column[: ordered.shape[1]]
        deck = cards.ranks * suits
        one = x.new_ones(()).expand(ordered.shape)
        x.scatter_add_(1, first + ordered, one)
        x.scatter_add_(1, first + deck + ordered // suits, one)
        x.scatter_add_(1, first + deck + cards.ranks + ordered % suits, one)


def _betting(tree: BettingTree, log: bool) -> Tensor:
    """`[nodes, positions * 3]`: at each position of each round a bet, its size over the pot, and whose turn it is."""
    longest = [0] * tree.rounds
    for history, winner in zip(tree.histories, tree.winner.tolist(), strict=True):
        if winner == -2:
            longest[len(history) - 1] = max(longest[len(history) - 1], len(history[-1]) + 1)
    first = [sum(longest[:r]) for r in range(tree.rounds)]
    features = torch.zeros(tree.nodes, sum(longest), _PER_POSITION)
    parent, pot = tree.parent.tolist(), tree.chips.sum(1).tolist()
    # Parents come before their children.
    for node in range(tree.nodes):
        before = parent[node]
        if before >= 0:
            features[node] = features[before]
            history = tree.histories[before]
            position = first[len(history) - 1] + len(history[-1])
            features[node, position, 2] = 0.0
            if node in tree.child[before, RAISE:]:
                features[node, position, 0] = 1.0
                features[node, position, 1] = math.log(pot[node] / pot[before]) if log else pot[node] / pot[before] - 1
        if tree.winner[node] == -2:
            history = tree.histories[node]
            features[node, first[len(history) - 1] + len(history[-1]), 2] = 1.0
    return features.flatten(1)
