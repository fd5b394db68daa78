"""Buckets of games whose board is dealt street by street, by k-means on domain features of the (hand, board) pair.

Cells there are too many to list: k-means runs on a sample of deals, and a hand then belongs to the nearest centre.
Features, all between 0 and 1 or nearly so:

1. the hand's mean showdown strength (see `repro.abstraction.showdown_strength`), and 2. its standard deviation, both
   over the cards to come: draws are apart from made hands;
3. its mean showdown strength one street before (how it was played before);
4. how many cards of the board share a suit, and 5. whether it holds a pair, each halved;
6. the mean rank of the board, a quarter of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from repro.abstraction.clusters import cluster_labels
from repro.abstraction.showdown_strength import showdown_strength
from repro.common.compiled import Floats
from repro.common.seeding import generator
from repro.games.holdem import HoldemCards

_FEATURES = 6

_POINTS_PER_BUCKET = 10
_FEWEST_POINTS = 20_000


def centre_bytes(rounds: int, buckets: int) -> float:
    """What the centres of a game's buckets take at the most, float64 in every round but the first."""
    return 8.0 * _FEATURES * (rounds - 1) * buckets


class StreetBuckets:
    """At most `buckets` in every round but the first, in which every cell is its own.

    Args:
        centres: per round after the first, `[buckets, features]`.

    Attributes:
        sizes: buckets per round.
    """

    def __init__(self, cards: HoldemCards, centres: Sequence[Tensor]) -> None:
        if [c.shape[1] for c in centres] != [_FEATURES] * (len(cards.streets) - 1):
            raise ValueError(f"centres are needed for {len(cards.streets) - 1} rounds, of {_FEATURES} features each")
        self.centres = tuple(centres)
        self.sizes: tuple[int, ...] = (cards.cells[0], *(len(c) for c in centres))
        self._cards = cards
        self._trees = [KDTree(c.numpy()) for c in centres]

    def of_cells(self, round_: int, cells: Tensor) -> Tensor:
        """`[n]` cells of a round -> `[n]` buckets."""
        if round_ == 0:
            return cells
        points = hand_features(self._cards, round_, self._cards.cards_of_cells(round_, cells).cpu())
        return torch.from_numpy(self._trees[round_ - 1].query(points)[1]).to(cells.device)


def find_buckets(cards: HoldemCards, buckets: int) -> StreetBuckets:
    """Cluster a sample of deals, the same in every run."""
    deals = max(_POINTS_PER_BUCKET * buckets, _FEWEST_POINTS)
    dealt = cards.draw(deals, generator(0, "buckets", 0, 0, "cpu"))
    centres = []
    for r in range(1, len(cards.streets)):
        seen = torch.cat([dealt[:, 4 : 4 + cards.board_cards[r]], dealt[:, :2]], 1)
        points = hand_features(cards, r, seen)
        label = cluster_labels(points, np.ones(deals), buckets)
        size = np.bincount(label)
        sums = np.stack([np.bincount(label, column) for column in points.T], 1)
        centres.append(torch.from_numpy(sums / size[:, None]))
    return StreetBuckets(cards, centres)


def hand_features(cards: HoldemCards, round_: int, seen: Tensor) -> Floats:
    """`[n, 6]` the features above, of `[n, cards]` the board street by street, then the hand."""
    tables = showdown_strength(cards.ranks, cards.suits, cards.streets)
    board, hand = seen[:, :-2], seen[:, -2:]
    mean, square = tables.look_up(round_, board, hand)
    before, _ = tables.look_up(round_ - 1, board[:, : cards.board_cards[round_ - 1]], hand)
    spread = (square - mean**2).clamp(min=0).sqrt()
    rank, suit = board // cards.suits, board % cards.suits
    suited = torch.stack([(suit == s).sum(1) for s in range(cards.suits)]).amax(0) / board.shape[1]
    ordered = rank.sort(1).values
    paired = (ordered[:, 1:] == ordered[:, :-1]).any(1)
    height = rank.double().mean(1) / (cards.ranks - 1)
    return torch.stack([mean, spread, before, suited / 2, paired / 2, height / 4], 1).double().numpy()
