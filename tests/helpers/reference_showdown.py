"""How strong hands are at the showdown, by listing: every full board, every hand of the opponent, suits told apart.

It shares no code with the package: `phevaluator` says which seven cards win.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np
from phevaluator import evaluate_cards  # type: ignore[import-untyped,attr-defined,unused-ignore]


class Showdowns:
    """All of one deck's showdowns with five cards on the board.

    Attributes:
        hands: all hands, as ascending pairs.
    """

    def __init__(self, ranks: int, suits: int) -> None:
        deck = range(ranks * suits)
        self.hands = list(combinations(deck, 2))
        self._boards = np.array([_bits(board) for board in combinations(deck, 5)])
        self._held = np.array([_bits(hand) for hand in self.hands])
        # Cards of a deck of fewer than 13 ranks are the highest ones; for phevaluator a lower number wins.
        value = {
            _bits(seven): -evaluate_cards(*((c // suits + 13 - ranks) * 4 + c % suits for c in seven))
            for seven in combinations(deck, 7)
        }
        self._share = np.zeros((len(self._boards), len(self.hands)))
        self._free = (self._boards[:, None] & self._held) == 0
        apart = (self._held[:, None] & self._held) == 0
        for shares, board, left in zip(self._share, self._boards, self._free, strict=True):
            free = np.flatnonzero(left)
            own = np.array([value[seven] for seven in (self._held[free] | board).tolist()])
            won = (own[:, None] > own) + 0.5 * (own[:, None] == own)
            met = apart[np.ix_(free, free)]
            shares[free] = (won * met).sum(1) / met.sum(1)
        self._known: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def mean_and_square(self, board: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Means over all ways to complete a board: `[hands]` of a hand's share, and of its square; nan where blocked.

        A hand's share is that of the opponent's hands that it beats on the full board, ties counting half.
        """
        bits = _bits(board)
        if bits not in self._known:
            complete = (self._boards & bits) == bits
            share, ways = self._share[complete], self._free[complete].sum(0)
            blocked = (self._held & bits) != 0
            mean, square = (np.where(blocked, np.nan, v.sum(0) / np.maximum(ways, 1)) for v in (share, share**2))
            self._known[bits] = mean, square
        return self._known[bits]


@lru_cache
def showdowns(ranks: int, suits: int) -> Showdowns:
    """Made on first use."""
    return Showdowns(ranks, suits)


def _bits(cards: tuple[int, ...]) -> int:
    return sum(1 << card for card in cards)
