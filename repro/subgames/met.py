"""Rivers as a program meets them that solves turns with their values at the leaves.

Random subgames have DeepStack's ranges. What a network is asked while a turn is solved is something else: the ranges
that the turn's betting has made of these, in every iteration, on every line. These subgames are such: a random turn is
solved by CFR with exact values of its rivers, and of a random iteration, line of betting and last card the ranges are
taken with which the river begins.

One turn gives `GROUP` rivers, of consecutive numbers, so that solving it is shared among them. Who changes these
numbers, or the solver's exponents, raises `Recipe.FORMAT`: stored rivers are others then. That ranges come from a
solver also means that they are the same to rounding only on another kind of machine.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from repro.common.compiled import Array
from repro.common.seeding import numpy_generator
from repro.subgames.depth_limited import DepthLimitedSolver, Rivers, Solved
from repro.subgames.sampling import random_board, random_subgame
from repro.subgames.solver import SolverConfig
from repro.subgames.subgames import Deck, Subgame

GROUP = 25
"""Rivers that are taken of a turn."""

ITERATIONS = 100
"""Of discounted CFR on a turn, as many as turns are played with by default: rivers are of before each of them."""

_FIRST_TURN = 2 * 10**9
"""Number of the first turn of whose rivers some are taken: above those of datasets and of turns that are played, and
below those of fresh subgames."""


def is_met(seed: int, number: int, share: float) -> bool:
    """Whether the subgame of that number is such a river, where so large a share of them is, a group at a time."""
    return share > 0 and bool(numpy_generator(seed, "met in play", number // GROUP).random() < share)


def met_board(seed: int, number: int, deck: Deck) -> tuple[int, ...]:
    """The board of the river of that number, its turn unsolved."""
    board, _ = random_board(seed, _turn(number), 4, deck)
    last = _moments(seed, number // GROUP, deck)[0][number % GROUP]
    return deck.full_boards(board)[last]


def met_subgame(seed: int, number: int, deck: Deck, least_pot: float, strength: str, ties: str) -> Subgame:
    """The river of that number.

    Args:
        seed, number: name all that is drawn.
        deck, least_pot, strength, ties: of the turn, as in `repro.subgames.sampling.random_subgame`.
    """
    return _rivers_of(seed, number // GROUP, deck, least_pot, strength, ties)[number % GROUP]


def _turn(number: int) -> int:
    return _FIRST_TURN + number // GROUP


def _moments(seed: int, group: int, deck: Deck) -> tuple[Array, Array, Array]:
    """`[GROUP]` of each river of a turn: the last card's place among those that can come, the iteration before which
    it is met, from 0 on, and a number in [0, 1) that decides the line of betting."""
    draw = numpy_generator(seed, "rivers of a turn", group)
    return draw.integers(deck.cards - 4, size=GROUP), draw.integers(ITERATIONS, size=GROUP), draw.random(GROUP)


@lru_cache(2)
def _rivers_of(seed: int, group: int, deck: Deck, least_pot: float, strength: str, ties: str) -> tuple[Subgame, ...]:
    turn = random_subgame(seed, _FIRST_TURN + group, 4, deck, least_pot, strength, ties)
    solver = DepthLimitedSolver(turn, SolverConfig(), Solved)
    rivers, found = solver.rivers, dict[int, Subgame]()
    boards, iterations, lines = _moments(seed, group, deck)
    live = np.flatnonzero(~rivers.over)
    entries = live[(lines * len(live)).astype(int)]
    for iteration in range(iterations.max() + 1):
        met = np.flatnonzero(iterations == iteration)
        if len(met):
            shares = solver.shares()
        for i in met:
            found[int(i)] = _river(rivers, shares, int(boards[i]), int(entries[i]))
        solver.iterate()
    return tuple(found[i] for i in range(GROUP))


def _river(rivers: Rivers, shares: Array, board: int, entry: int) -> Subgame:
    """A river as it begins, or, if no two hands can meet there, with the ranges from before the turn's betting."""
    turn, full = rivers.subgame, tuple(int(card) for card in rivers.full_boards()[board])

    def with_ranges(both: Array) -> Subgame:
        ranges = np.zeros(both.shape)
        ranges[:, rivers.order()[board]] = both / both.sum(1, keepdims=True)
        return Subgame(full, float(rivers.chips[entry]), ranges, turn.deck, turn.stack)

    met = with_ranges(shares[:, board, entry])
    if (met.ranges * met.matchups()).any():
        return met
    return with_ranges(rivers.ranges[:, board].astype(float))
