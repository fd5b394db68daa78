"""Random subgames, generated as DeepStack's [DEVN, Sec. 6]: a uniform board, a pot, and two ranges.

A subgame is drawn from a generator of its own, named by (seed, number): a dataset can be made in any order, in parts,
and made longer.

The intervals of pots are the chips that *each* player has in the pot, as in public code that follows DeepStack; pots of
100 in all could not be, with blinds of 50 and 100. Small pots can be left out: DEVN says that its counterfactual values
are in [-0.5, 10], which is the case if no pot is smaller than 2,000, a tenth of the stack. (A hand that wins all of the
opponent's chips wins 20,000.) With DeepStack's smallest pots, 200, values of 100 would be possible.

Ranges are drawn over hands sorted by strength, "the probability of a hand beating a uniformly selected random hand from
the current public state" in DeepStack's words. That may be the probability in the end, as in public code that follows
it, or that of the made hands; and how equally strong hands are sorted it does not say. Where it is by their cards,
neighbours in a range share a card more often.

Equal probabilities are those that are equal in single precision; rounding tells some apart that are the same.
"""

from __future__ import annotations

import numpy as np

from repro.abstraction.showdown_strength import full_board_shares
from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.common.seeding import numpy_generator
from repro.subgames.subgames import CHOICES, EQUITY, LEAST_POT, MADE_HAND, POTS, RANDOM, STACK, Deck, Subgame


def random_subgame(
    seed: int, number: int, board_cards: int, deck: Deck, least_pot: float = LEAST_POT, strength: str = EQUITY,
    ties: str = RANDOM,
) -> Subgame:  # fmt: skip
    """The subgame of that number.

    Args:
        seed, number: name all that is drawn.
        board_cards: 4 for the turn, 5 for the river.
        deck: to draw from.
        least_pot: chips in the pot, at the least: intervals below are left out, and the one that it lies in is cut.
        strength: by which hands are sorted, `EQUITY` or `MADE_HAND`.
        ties: order of equally strong hands, `RANDOM` or `BY_CARD`. Boards, pots, and the shares of the sorted hands are
            the same with any of these.

    Raises:
        ReproError: `strength` or `ties` is none of these.
    """
    for key, value in (("strength", strength), ("ties", ties)):
        if value not in CHOICES[key]:
            raise ReproError(f"{key} is {value!r}; it must be one of {', '.join(CHOICES[key])}.")
    board, draw = random_board(seed, number, board_cards, deck)
    least = least_pot / 2
    pots = [(max(low, least), high) for low, high in POTS if high > least or low == high == least]
    low, high = pots[draw.integers(len(pots))]
    chips = draw.uniform(low, high)
    strengths = deck.strength(board, deck.hands(board)) if strength == MADE_HAND else mean_strength(deck, board)
    ranges = np.stack([random_range(strengths, draw, ties) for _ in range(2)])
    return Subgame(board, 2 * chips, ranges, deck, STACK)


def random_board(seed: int, number: int, board_cards: int, deck: Deck) -> tuple[tuple[int, ...], np.random.Generator]:
    """The board of the subgame of that number, and what draws the rest of it."""
    draw = numpy_generator(seed, "subgame", number)
    return tuple(int(card) for card in draw.choice(deck.cards, board_cards, replace=False)), draw


def showdown_strengths(deck: Deck, board: tuple[int, ...]) -> Array:
    """`[boards, hands]` share of the opponent's hands that each hand beats on each full board that the board can
    become, ties counting half; 0 where the hand has the last card."""
    boards = np.array(deck.full_boards(board))
    number = deck.numbers(deck.hands(board))
    shares: Array = full_board_shares(deck.ranks, deck.suits, boards)[:, number]
    return shares


def mean_strength(deck: Deck, board: tuple[int, ...]) -> Array:
    """`[hands]` probability of beating a random hand in the end, ties counting half."""
    shares = showdown_strengths(deck, board)
    # A hand's own cards cannot be the last one.
    mean: Array = shares.sum(0) / max(len(shares) - 2, 1)
    return mean


def random_range(strength: Array, draw: np.random.Generator, ties: str = RANDOM) -> Array:
    """`[hands]` a range that sums to 1: DeepStack's R(S, p), all levels of the recursion at a time.

    The weaker half of the hands gets a share of the probability, uniform from nothing to everything, the stronger half
    the rest; and so on, to single hands. Hands of the same strength are in random order, or in that of their cards.
    """
    # Drawn in any case, so that what is drawn next is the same.
    shuffled = draw.random(len(strength))
    order = np.lexsort((shuffled, strength)) if ties == RANDOM else np.argsort(strength, kind="stable")
    size, share = np.array([len(strength)]), np.ones(1)
    while (size > 1).any():
        split = size > 1
        weaker = share * np.where(split, draw.random(len(size)), 1.0)
        halves = np.stack([np.where(split, size // 2, size), np.where(split, size - size // 2, 0)], 1).ravel()
        shares = np.stack([weaker, share - weaker], 1).ravel()
        size, share = halves[halves > 0], shares[halves > 0]
    weights = np.empty(len(strength))
    weights[order] = share
    return weights
