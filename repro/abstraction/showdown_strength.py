"""How strong each hand is on each board that is dealt street by street, by what it will be at the showdown.

*Showdown strength*: the share of the opponent's hands that a hand beats once all public cards are there, ties counting
half. On earlier streets its mean and its mean square over the cards to come are kept. All are exact, and all hands of a
board are done at once: some 25 s for the 134,459 full boards and everything before them.

Boards are sets of cards here: which of them came last makes no difference. Suits are renamed as in
`repro.games.isomorphism`, so that only one board of each isomorphism class is in a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, permutations
from math import comb

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repro.abstraction import kernels
from repro.games import hand_strength
from repro.games.isomorphism import Coding, canonical_boards, cards_of, combination

Table = NDArray[np.float32]


@dataclass(frozen=True)
class BoardTable:
    """Where the values of a set of cards are in a table of canonical boards.

    Attributes:
        boards: `[rows, k]` the canonical boards, ascending.
        row: `[sets]` row of each set of `k` cards, sets in colexicographic order.
        renaming: `[sets]` which renaming of the suits turns a set into its canonical board.
    """

    boards: Tensor
    row: Tensor
    renaming: Tensor


class ShowdownStrength:
    """The tables of one deck and one way to deal the board.

    Args:
        ranks, suits: of the deck.
        streets: public cards dealt before each round, `(0, 3, 1, 1)` for Texas Hold'em; five in all.

    Attributes:
        mean: per round, `[boards, hands]` float32 mean showdown strength, hands in colexicographic order.
    """

    def __init__(self, ranks: int, suits: int, streets: tuple[int, ...]) -> None:
        self.ranks, self.suits = ranks, suits
        self.board_cards = tuple(accumulate(streets))
        deck = torch.arange(ranks * suits)
        # `[renamings, cards]` each card under each renaming of the suits; `[renamings, hands]` each hand.
        names = torch.tensor(list(permutations(range(suits))))
        self._renamed = deck // suits * suits + names[:, deck % suits]
        self._hands = cards_of(torch.arange(comb(ranks * suits, 2)), 2)
        self._renamed_hands = torch.stack([combination(r[self._hands].sort(1).values) for r in self._renamed])
        self._tables = [self._table(k) for k in self.board_cards]
        self.mean = [full_board_shares(ranks, suits, self._tables[-1].boards.numpy())]
        self._square: list[Table] = []
        for r in range(len(streets) - 2, -1, -1):
            # Of a full board the square is the mean's.
            later, power = (self._square[0], 1) if self._square else (self.mean[0], 2)
            self._square.insert(0, self._before(r, streets[r + 1], later, power))
            self.mean.insert(0, self._before(r, streets[r + 1], self.mean[0], 1))

    def look_up(self, round_: int, board: Tensor, hand: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and mean square of boards `[n, k]` and hands `[n, 2]`, in any order of cards: `[n]` float64 each."""
        table = self._tables[round_]
        board = combination(board.sort(1).values)
        name, row = table.renaming.take(board), table.row.take(board)
        column = self._renamed_hands[name, combination(hand.sort(1).values)]
        mean = torch.from_numpy(self.mean[round_])[row, column].double()
        if round_ == len(self._square):
            return mean, mean**2
        return mean, torch.from_numpy(self._square[round_])[row, column].double()

    def _table(self, cards: int) -> BoardTable:
        if not cards:
            nothing = torch.zeros(1, dtype=torch.int64)
            return BoardTable(torch.zeros(1, 0, dtype=torch.int64), nothing, nothing)
        boards, _ = canonical_boards(self.ranks, self.suits, cards)
        coding = Coding(self.ranks, self.suits, (cards,), private=0)
        every = cards_of(torch.arange(comb(self.ranks * self.suits, cards)), cards)
        code = coding.encode(every)
        renaming = torch.full((len(every),), -1)
        for i, names in enumerate(self._renamed):
            renaming[combination(names[every].sort(1).values) == code] = i
        return BoardTable(boards, torch.searchsorted(coding.encode(boards), code), renaming)

    def _before(self, round_: int, cards: int, later: Table, power: int) -> Table:
        """Means of a round, from values of the next, before which so many cards are dealt."""
        deck, table, after = self.ranks * self.suits, self._tables[round_], self._tables[round_ + 1]
        mean = np.zeros((len(table.boards), len(self._hands)), np.float32)
        streets = cards_of(torch.arange(comb(deck, cards)), cards).numpy()
        binomials = np.array([[comb(c, i) for i in range(self.board_cards[-1] + 1)] for c in range(deck)])
        kernels.over_next_street(
            table.boards.numpy(), streets, after.row.numpy(), after.renaming.numpy(), self._renamed_hands.numpy(),
            self._hands.numpy(), binomials, later, power, mean,
        )  # fmt: skip
        return mean


@lru_cache
def _places() -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """The tables of hand strengths for seven cards, each strength replaced by its place among all; and their number."""
    by_ranks, by_mask = (t.numpy() for t in hand_strength.tables(7, torch.device("cpu")))
    strengths = np.unique(np.concatenate([by_ranks, by_mask]))
    return np.searchsorted(strengths, by_ranks), np.searchsorted(strengths, by_mask), len(strengths)


def full_board_shares(ranks: int, suits: int, boards: NDArray[np.int64]) -> Table:
    """`[boards, 5]` full boards -> `[boards, hands]` showdown strength of each hand, hands in colexicographic order.

    0 for hands with a card of the board.
    """
    by_ranks, by_mask, classes = _places()
    share = np.zeros((len(boards), comb(ranks * suits, 2)), np.float32)
    keys, lowest = np.array(hand_strength.KEYS), hand_strength.RANKS - ranks
    kernels.showdown_shares(boards, suits, lowest, keys, by_ranks, by_mask, classes, share)
    return share


@lru_cache(maxsize=2)
def showdown_strength(ranks: int, suits: int, streets: tuple[int, ...]) -> ShowdownStrength:
    """The tables, made on first use."""
    return ShowdownStrength(ranks, suits, streets)
