"""Strength of poker hands: the best five of five, six or seven cards, for whole tensors of hands.

Two lookups and a maximum. Where no five cards share a suit, strength depends on the multiset of ranks only; the sum of
`KEYS[rank]` over the cards tells multisets of up to seven cards apart and indexes one table. Where they do, it depends
on the ranks held in that suit, whose bits index the other.

A strength is an integer `category << 20 | five ranks, four bits each`: a higher one wins and equal ones split the pot.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations_with_replacement

import torch
from torch import Tensor

RANKS, SUITS = 13, 4

HIGH_CARD, PAIR, TWO_PAIRS, TRIPS, STRAIGHT, FLUSH, FULL_HOUSE, QUADS, STRAIGHT_FLUSH = range(9)
"""Categories, as `strength >> 20` gives them."""

KEYS = (0, 1, 5, 22, 98, 453, 2031, 8698, 22854, 83661, 262349, 636345, 1479181)
"""Sums of at most seven of these, each at most four times, are all different."""

_WHEEL = 0b1000000001111
"""Ace, two, three, four, five."""


def hand_strength(rank: Tensor, suit: Tensor) -> Tensor:
    """`[..., cards]` ranks (0: two, 12: ace) and suits (0 to 3) of five to seven cards -> `[...]` int32 strengths."""
    by_ranks, by_mask = tables(rank.shape[-1], rank.device)
    key = torch.tensor(KEYS, dtype=torch.int32, device=rank.device).take(rank).sum(-1)
    bit = torch.ones_like(rank) << rank
    strength = by_ranks.take(key)
    for s in range(SUITS):
        held = torch.where(suit == s, bit, 0).sum(-1)
        # Hands without a flush in this suit have an entry of 0 here.
        strength = torch.maximum(strength, by_mask.take(held))
    return strength


@lru_cache
def tables(cards: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Strengths by sum of `KEYS`, for hands of `cards` cards without a flush; and by the ranks of a suit, as bits."""
    if not 5 <= cards <= 7:
        raise ValueError(f"hands have five to seven cards, not {cards}")
    sums, strengths = [], []
    for ranks in combinations_with_replacement(range(RANKS), cards):
        if max(ranks.count(r) for r in ranks) <= SUITS:
            sums.append(sum(KEYS[r] for r in ranks))
            strengths.append(_by_ranks(ranks))
    by_ranks = torch.zeros(max(sums) + 1, dtype=torch.int32)
    by_ranks[torch.tensor(sums)] = torch.tensor(strengths, dtype=torch.int32)
    by_mask = torch.tensor([_by_mask(mask) for mask in range(1 << RANKS)], dtype=torch.int32)
    return by_ranks.to(device), by_mask.to(device)


def _by_ranks(ranks: tuple[int, ...]) -> int:
    """Strength of a hand with these ranks and no flush."""
    # Most frequent first, then highest.
    held = sorted(set(ranks), key=lambda r: (ranks.count(r), r), reverse=True)
    counts = [ranks.count(r) for r in held]
    high = _highest_straight(sum(1 << r for r in held))
    if counts[0] == 4:
        return _strength(QUADS, [held[0]] * 4 + [max(held[1:])])
    if counts[0] == 3 and len(counts) > 1 and counts[1] >= 2:
        return _strength(FULL_HOUSE, [held[0]] * 3 + [held[1]] * 2)
    if high is not None:
        return _strength(STRAIGHT, [high])
    if counts[0] == 3:
        return _strength(TRIPS, [held[0]] * 3 + held[1:3])
    if counts[0] == 2 and counts[1] == 2:
        return _strength(TWO_PAIRS, [held[0]] * 2 + [held[1]] * 2 + [max(held[2:])])
    return _strength(PAIR if counts[0] == 2 else HIGH_CARD, [r for r in held for _ in range(ranks.count(r))][:5])


def _by_mask(mask: int) -> int:
    """Strength of the flush in a suit of which these ranks are held; 0 if they are fewer than five."""
    ranks = list(_descending(mask))
    if len(ranks) < 5:
        return 0
    high = _highest_straight(mask)
    return _strength(FLUSH, ranks[:5]) if high is None else _strength(STRAIGHT_FLUSH, [high])


def _descending(mask: int) -> Iterator[int]:
    return (r for r in reversed(range(RANKS)) if mask >> r & 1)


def _highest_straight(mask: int) -> int | None:
    for high in range(RANKS - 1, 3, -1):
        if mask >> high - 4 & 0b11111 == 0b11111:
            return high
    return 3 if mask & _WHEEL == _WHEEL else None


def _strength(category: int, ranks: list[int]) -> int:
    """Category and ranks, most important first, as one integer."""
    value = category
    for rank in (ranks + [0] * 5)[:5]:
        value = value << 4 | rank
    return value
