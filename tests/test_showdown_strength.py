"""Tables of showdown strength, against listing all of the opponent's hands and all cards to come.

`tests.helpers.reference_showdown` completes every board at once, where the package goes back street by street; it tells
suits apart, and another evaluator tells who wins.
"""

from __future__ import annotations

from itertools import combinations, permutations
from math import comb

import numpy as np
import pytest
import torch
from torch import Tensor

from repro.abstraction.showdown_strength import ShowdownStrength, showdown_strength
from tests.helpers.reference_showdown import showdowns

DECKS: list[tuple[int, int, tuple[int, ...]]] = [
    (4, 3, (0, 3, 1, 1)),
    (6, 2, (0, 3, 1, 1)),
    (5, 4, (0, 3, 1, 1)),
    (6, 2, (0, 3, 2)),
    (4, 3, (0, 4, 1)),
    (6, 2, (0, 1, 4)),
    # Two hands are dealt and nothing is left; a suit is all there is, with every straight; one street.
    (3, 3, (0, 3, 1, 1)),
    (13, 1, (0, 2, 2, 1)),
    (3, 4, (0, 5)),
]

every_deck = pytest.mark.parametrize(("ranks", "suits", "streets"), DECKS)

_MOST_BOARDS = 250


def boards_of(deck: int, cards: int) -> list[tuple[int, ...]]:
    """All boards of so many cards, or a part of them if they are many, each in some order."""
    every = list(combinations(range(deck), cards))
    rng = np.random.default_rng(0)
    chosen = range(len(every)) if len(every) <= _MOST_BOARDS else rng.permutation(len(every))[: _MOST_BOARDS // 3]
    return [tuple(rng.permutation(every[i]).tolist()) for i in chosen]


def with_all_hands(board: tuple[int, ...], deck: int, swapped: bool) -> tuple[Tensor, Tensor]:
    """A board with each hand that it leaves, `[hands, cards]` and `[hands, 2]`, the higher card first if `swapped`."""
    hands = torch.tensor([hand for hand in combinations(range(deck), 2) if not set(hand) & set(board)])
    return torch.tensor([board], dtype=torch.int64).expand(len(hands), -1), hands.flip(1) if swapped else hands


@pytest.mark.slow
@every_deck
def test_mean_and_square_equal_brute_force(ranks, suits, streets):
    tables, reference = showdown_strength(ranks, suits, streets), showdowns(ranks, suits)
    deck = ranks * suits
    for round_, cards in enumerate(np.cumsum(streets).tolist()):
        boards = boards_of(deck, cards)
        assert boards
        for i, board in enumerate(boards):
            mean, square = tables.look_up(round_, *with_all_hands(board, deck, swapped=i % 2 == 1))
            expected = [values[~np.isnan(values)] for values in reference.mean_and_square(board)]
            assert len(mean) == comb(deck - cards, 2)
            np.testing.assert_allclose(mean.numpy(), expected[0], rtol=0, atol=1e-6)
            np.testing.assert_allclose(square.numpy(), expected[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("board", "hand", "share"),
    [
        # A royal flush: all split.
        ((0, 4, 8, 12, 16), (1, 5), 0.5),
        # Four aces and a ten. A king wins, but splits with the 33 hands of 78 that hold one of the other three.
        ((0, 16, 17, 18, 19), (12, 1), (78 - 33 / 2) / 78),
        # A jack beats two tens, and splits with seven hands that hold a jack and nothing higher.
        ((0, 16, 17, 18, 19), (4, 5), (3 + 7 / 2) / 78),
        # A ten does not play; two others are not left to anybody.
        ((0, 16, 17, 18, 19), (1, 2), 0.0),
    ],
)
def test_shares_by_hand(board, hand, share):
    """Ten to ace in four suits."""
    mean, square = showdown_strength(5, 4, (0, 3, 1, 1)).look_up(3, torch.tensor([board]), torch.tensor([hand]))
    assert float(mean) == pytest.approx(share, abs=1e-6)
    assert float(square) == pytest.approx(share**2, abs=1e-6)


@every_deck
def test_renaming_suits_and_the_order_of_cards_change_nothing(ranks, suits, streets):
    tables, deck = showdown_strength(ranks, suits, streets), ranks * suits
    draw = torch.Generator().manual_seed(1)
    for round_, cards in enumerate(np.cumsum(streets).tolist()):
        dealt = torch.rand(500, deck, generator=draw).topk(cards + 2).indices
        board, hand = dealt[:, :cards], dealt[:, cards:]
        name = torch.rand(500, suits, generator=draw).argsort(1)
        order = torch.rand(500, cards, generator=draw).argsort(1)
        renamed = dealt // suits * suits + name.gather(1, dealt % suits)
        other = renamed[:, :cards].gather(1, order), renamed[:, cards:].flip(1)
        assert not torch.equal(hand, other[1])
        for one, two in zip(tables.look_up(round_, board, hand), tables.look_up(round_, *other), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-6)


@every_deck
def test_values_are_shares_and_half_on_average(ranks, suits, streets):
    """Neither of the two hands is the better one on average: not before the board, and not on any board."""
    tables, deck = showdown_strength(ranks, suits, streets), ranks * suits
    for round_, cards in enumerate(np.cumsum(streets).tolist()):
        differ = False
        for board in boards_of(deck, cards):
            mean, square = (v.double() for v in tables.look_up(round_, *with_all_hands(board, deck, swapped=False)))
            assert float(mean.mean()) == pytest.approx(0.5, abs=1e-6)
            assert 0 <= float(mean.min()) <= float(mean.max()) <= 1
            assert bool((square >= mean**2 - 1e-6).all())
            assert bool((square <= mean + 1e-6).all())
            differ = differ or float(mean.max() - mean.min()) > 0.1
        assert differ


@pytest.mark.slow
@every_deck
def test_one_board_of_each_class_is_in_the_table(ranks, suits, streets):
    tables = showdown_strength(ranks, suits, streets)
    names = list(permutations(range(suits)))
    for mean, cards in zip(tables.mean, np.cumsum(streets).tolist(), strict=True):
        every = combinations(range(ranks * suits), cards)
        classes = {
            min(tuple(sorted(c // suits * suits + name[c % suits] for c in board)) for name in names) for board in every
        }
        assert mean.shape == (len(classes), comb(ranks * suits, 2))
        assert mean.dtype == np.float32


def test_tables_are_made_once():
    tables = showdown_strength(4, 3, (0, 3, 1, 1))
    assert isinstance(tables, ShowdownStrength)
    assert showdown_strength(4, 3, (0, 3, 1, 1)) is tables
