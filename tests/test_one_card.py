"""Cards where everybody holds one: deals, strengths, and probabilities."""

from collections import Counter
from itertools import permutations
from math import sqrt

import pytest
import torch

from repro.games import load
from tests.helpers.reference_poker import TINY_GAMES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters", "dealt"),
    [
        ("kuhn", {}, 2),
        ("kuhn", {"ranks": 2}, 2),
        ("kuhn", {"ranks": 6}, 2),
        ("leduc", {}, 3),
        ("leduc", {"suits": 1}, 3),
    ],
)
def test_deals_are_uniform_and_without_replacement(name, parameters, dealt):
    game = load(name, **parameters)
    n = 60_000
    hands, boards = game.one_card.draw(n, torch.Generator().manual_seed(1))
    assert hands.shape == (n, 2)
    assert boards.shape == (n, game.tree.rounds)
    assert hands.dtype == boards.dtype == torch.int64
    assert set(boards[:, 0].tolist()) == {0}
    cards = torch.cat([hands, boards[:, 1:]], 1)
    assert cards.shape[1] == dealt
    possible = set(permutations(range(game.one_card.hands), dealt))
    count = Counter(map(tuple, cards.tolist()))
    assert set(count) <= possible
    expected = n / len(possible)
    chi_square = sum((count[deal] - expected) ** 2 / expected for deal in possible)
    freedom = len(possible) - 1
    assert chi_square < freedom + 5 * sqrt(2 * freedom)


def test_deals_repeat_with_the_seed():
    cards = load("leduc").one_card
    first, again, other = (cards.draw(50, torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_strength_by_hand():
    cards = load("leduc").one_card
    # Board: card 0, of rank 0. Its pair beats everything; the deck is rank * 2 + suit.
    kings, queens, pair = cards.strength[0, 4], cards.strength[0, 2], cards.strength[0, 1]
    assert pair > kings > queens
    assert cards.strength[0, 4] == cards.strength[0, 5]
    kuhn = load("kuhn").one_card.strength[0].tolist()
    assert kuhn == sorted(set(kuhn))


@pytest.mark.parametrize(("name", "parameters"), TINY_GAMES)
def test_probabilities_of_deals_sum_to_one(name, parameters):
    cards = load(name, **parameters).one_card
    for blocked, probability in zip(cards.blocked, cards.pair_probability, strict=True):
        free = (~blocked).sum(1)
        assert float((free * (free - 1)).sum()) * probability == pytest.approx(1, abs=1e-12)
