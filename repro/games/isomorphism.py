"""Suit isomorphism: deals that differ by a renaming of suits are one, and its canonical member is found by sorting.

What matters of a suit is its *signature*: which of its ranks are on each street of the board, and which in the hand.
Two deals are isomorphic if and only if they have the same signatures, in any order. So the canonical deal gives the
suits new names in descending order of signature. Streets come first in a signature: a canonical deal's board is the
canonical board. A *code* packs a canonical deal into one integer.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import comb

import torch
from torch import Tensor

_RANK_BITS = 13


def combination(cards: Tensor) -> Tensor:
    """`[n, k]` sets of cards, ascending -> `[n]` their numbers in colexicographic order, `sum of C(card_i, i)`."""
    number = cards.new_zeros(len(cards))
    for i, column in enumerate(cards.unbind(1), start=1):
        number += _binomials(i, cards.device).take(column)
    return number


def cards_of(combinations: Tensor, k: int) -> Tensor:
    """`[n]` numbers of sets of `k` cards -> `[n, k]` the cards, ascending: the inverse of `combination`."""
    remainder, cards = combinations, []
    for i in range(k, 0, -1):
        table = _binomials(i, combinations.device)
        card = torch.bucketize(remainder, table, right=True) - 1
        remainder = remainder - table.take(card)
        cards.append(card)
    return torch.stack(cards[::-1], 1) if cards else combinations.new_zeros(len(combinations), 0)


@cache
def _binomials(k: int, device: torch.device) -> Tensor:
    # Kept for good: captured CUDA graphs hold on to where they are.
    return torch.tensor([comb(card, k) for card in range(64)], device=device)


class Coding:
    """Canonical codes of one round's deals.

    Args:
        ranks, suits: of the deck, at most 13 ranks.
        streets: number of cards of each street of the board so far, e.g. `(3, 1)` on a turn; cards of one street have
            no order.
        private: cards in a hand.
    """

    def __init__(self, ranks: int, suits: int, streets: tuple[int, ...], private: int = 2) -> None:
        if ranks > _RANK_BITS or (len(streets) + 1) * _RANK_BITS > 63:
            raise ValueError(f"{ranks} ranks on {len(streets)} streets do not fit a signature of 63 bits")
        self.ranks, self.suits = ranks, suits
        self.sets = (*streets, private) if private else streets
        self.sizes = tuple(comb(ranks * suits, k) for k in self.sets)

    @property
    def codes(self) -> int:
        """Codes are in `[0, codes)`; not every integer there is one."""
        total = 1
        for size in self.sizes:
            total *= size
        return total

    def canonical(self, cards: Tensor) -> Tensor:
        """`[n, cards]` board street by street, then hand -> `[n, cards]` the canonical deal, each set ascending."""
        rank, suit = cards // self.suits, cards % self.suits
        signature = torch.zeros(len(cards), self.suits, dtype=torch.int64, device=cards.device)
        shift = torch.tensor(
            [_RANK_BITS * (len(self.sets) - 1 - i) for i, k in enumerate(self.sets) for _ in range(k)],
            device=cards.device,
        )
        signature.scatter_add_(1, suit, torch.ones_like(rank) << (rank + shift))
        order = signature.argsort(1, descending=True)
        renamed = torch.empty_like(order).scatter_(
            1, order, torch.arange(self.suits, device=cards.device).expand_as(order)
        )
        moved = rank * self.suits + renamed.gather(1, suit)
        return torch.cat([part.sort(1).values for part in moved.split(self.sets, 1)], 1)

    def encode(self, cards: Tensor) -> Tensor:
        """`[n, cards]` any deal -> `[n]` code of its canonical one."""
        code = cards.new_zeros(len(cards))
        for part, size in zip(self.canonical(cards).split(self.sets, 1), self.sizes, strict=True):
            code = code * size + combination(part)
        return code

    def decode(self, codes: Tensor) -> Tensor:
        """`[n]` codes -> `[n, cards]` the canonical deals."""
        parts = []
        for k, size in zip(reversed(self.sets), reversed(self.sizes), strict=True):
            parts.append(cards_of(codes % size, k))
            codes = codes // size
        return torch.cat(parts[::-1], 1)


@lru_cache(maxsize=8)
def canonical_boards(ranks: int, suits: int, cards: int) -> tuple[Tensor, Tensor]:
    """All boards of one street, one of each isomorphism class: `[boards, cards]`, and how many are in it `[boards]`.

    Every caller gets the same tensors.

    Of 52 cards there are 1,755 flops, 16,432 boards of four cards and 134,459 of five.
    """
    coding = Coding(ranks, suits, (cards,), private=0)
    every = torch.arange(coding.codes).split(1 << 20)
    code, count = torch.cat([coding.encode(cards_of(part, cards)) for part in every]).unique(return_counts=True)
    return coding.decode(code), count
