"""The inner loops of `repro.abstraction.showdown_strength`, compiled.

Hands are numbered in colexicographic order, as in `repro.games.isomorphism`, and so are sets of board cards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from repro.common.compiled import Array, compiled


class Hands(NamedTuple):
    """Buffers for the hands that a board leaves.

    Attributes:
        low, high: `[hands]` the cards of each hand; `strength` its place among all strengths.
        order: `[hands]` the hands, weakest first.
        before: `[strengths + 1]` how many hands are weaker.
    """

    low: Array
    high: Array
    strength: Array
    order: Array
    before: Array


@compiled
def _strengths(
    board: Array, suits: int, lowest: int, keys: Array, by_ranks: Array, by_mask: Array, hands: Hands
) -> int:
    """Fill `low`, `high` and `strength` of all hands without the board's cards; returns how many they are."""
    deck, key, count = (len(keys) - lowest) * suits, 0, 0
    on_board, masks = np.zeros(deck, np.bool_), np.zeros(suits, np.int64)
    for c in board:
        on_board[c] = True
        key += keys[c // suits + lowest]
        masks[c % suits] |= 1 << (c // suits + lowest)
    for high in range(1, deck):
        for low in range(high):
            if on_board[high] or on_board[low]:
                continue
            r, s = low // suits + lowest, high // suits + lowest
            strength = by_ranks[key + keys[r] + keys[s]]
            for suit in range(suits):
                mask = masks[suit]
                if low % suits == suit:
                    mask |= 1 << r
                if high % suits == suit:
                    mask |= 1 << s
                # Fewer than five cards of a suit have an entry of 0.
                strength = max(strength, by_mask[mask])
            hands.low[count], hands.high[count], hands.strength[count] = low, high, strength
            count += 1
    return count


@compiled
def _sort(count: int, hands: Hands) -> None:
    """Fill `order`, by counting."""
    hands.before[:] = 0
    for h in range(count):
        hands.before[hands.strength[h] + 1] += 1
    for place in range(1, len(hands.before)):
        hands.before[place] += hands.before[place - 1]
    for h in range(count):
        hands.order[hands.before[hands.strength[h]]] = h
        hands.before[hands.strength[h]] += 1


@compiled
def _shares(count: int, deck: int, hands: Hands, share: Array) -> None:
    """Fill `share` `[hands]`: of the hands without one's own cards, those that are weaker, equal ones counting half."""
    low, high, order = hands.low, hands.high, hands.order
    # Weaker and equal hands in all, and those with a certain card.
    below, equal = np.zeros(deck), np.zeros(deck)
    opponent_hands, begin = (deck - 7) * (deck - 8) / 2, 0
    while begin < count:
        end = begin
        while end < count and hands.strength[order[end]] == hands.strength[order[begin]]:
            equal[low[order[end]]] += 1
            equal[high[order[end]]] += 1
            end += 1
        for h in order[begin:end]:
            weaker = begin - below[low[h]] - below[high[h]]
            # The hand itself is in both its cards' counts, and in the whole.
            tied = end - begin - equal[low[h]] - equal[high[h]] + 1
            share[high[h] * (high[h] - 1) // 2 + low[h]] = (weaker + tied / 2) / opponent_hands
        for h in order[begin:end]:
            for card in (low[h], high[h]):
                below[card] += equal[card]
                equal[card] = 0.0
        begin = end


@compiled
def showdown_shares(
    boards: Array, suits: int, lowest: int, keys: Array, by_ranks: Array, by_mask: Array, classes: int, share: Array
) -> None:
    """Fill `share` `[boards, hands]`: how many of the opponent's hands each hand beats, ties counting half.

    Args:
        boards: `[boards, 5]` cards.
        lowest: rank of the deck's lowest cards in a full deck.
        keys, by_ranks, by_mask: the tables of `repro.games.hand_strength`, with strengths replaced by their place
            among the `classes` that there are.
    """
    deck, most = (len(keys) - lowest) * suits, share.shape[1]
    hands = Hands(
        np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64),
        np.zeros(classes + 1, np.int64),
    )  # fmt: skip
    for b in range(len(boards)):
        count = _strengths(boards[b], suits, lowest, keys, by_ranks, by_mask, hands)
        _sort(count, hands)
        _shares(count, deck, hands, share[b])


@compiled
def _join(board: Array, street: Array, cards: Array, used: Array) -> bool:
    """Fill `cards` with both in ascending order, and mark them in `used`; False if they share one."""
    used[:] = False
    board_cards = len(board)
    cards[:board_cards], cards[board_cards:] = board, street
    for c in cards:
        if used[c]:
            return False
        used[c] = True
    cards.sort()
    return True


@compiled
def over_next_street(
    boards: Array, streets: Array, row: Array, renaming: Array, renamed: Array, hands: Array, binomials: Array,
    later: Array, power: int, mean: Array,
) -> None:  # fmt: skip
    """Fill `mean` `[boards, hands]` with the mean of `later ** power` over the cards of the next street.

    Args:
        boards: `[boards, k]` cards; `streets` `[streets, m]` the sets that can follow.
        row, renaming: per set of `k + m` cards, the row of its canonical one in `later`, and which renaming of the
            suits leads there.
        renamed: `[renamings, hands]` hands under each renaming.
        hands: `[hands, 2]` their cards.
        binomials: `[cards, k + m + 1]` binomial coefficients.
        later: `[later boards, hands]`.
    """
    cards, used = np.zeros(boards.shape[1] + streets.shape[1], np.int64), np.zeros(len(binomials), np.bool_)
    # Sums are float64, whatever the tables are.
    times, total = np.zeros(len(hands)), np.zeros(len(hands))
    for b in range(len(boards)):
        times[:] = 0.0
        total[:] = 0.0
        for street in streets:
            if not _join(boards[b], street, cards, used):
                continue
            number = 0
            for i, c in enumerate(cards):
                number += binomials[c, i + 1]
            values, names = later[row[number]], renamed[renaming[number]]
            for h in range(len(hands)):
                if not (used[hands[h, 0]] or used[hands[h, 1]]):
                    total[h] += values[names[h]] ** power
                    times[h] += 1
        for h in range(len(hands)):
            if times[h] > 0:
                mean[b, h] = total[h] / times[h]
