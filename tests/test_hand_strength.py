"""Hand strength: every number here has a witness that shares no code with the evaluator.

- The classes of all 2,598,960 five-card hands: the textbook counts, by plain counting.
- Order and ties: `phevaluator`, whose ranks 1 (best) to 7462 must be the places of our strengths. Compared on one hand
  of every class, on every multiset of five to seven ranks without a flush, on every set of five to seven cards of a
  suit, and on a million random hands.
- Six and seven cards: the best of all five-card subsets.
- Invariance under renamings of suits and the order of cards: hypothesis.
"""

import random
from collections.abc import Iterable
from itertools import chain, combinations, combinations_with_replacement

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from phevaluator import evaluate_cards  # type: ignore[import-untyped,attr-defined,unused-ignore]
from torch import Tensor

from repro.games.hand_strength import (
    FLUSH,
    FULL_HOUSE,
    HIGH_CARD,
    PAIR,
    QUADS,
    RANKS,
    STRAIGHT,
    STRAIGHT_FLUSH,
    SUITS,
    TRIPS,
    TWO_PAIRS,
    hand_strength,
)

repeatable = settings(deadline=None, derandomize=True, database=None)

DECK = RANKS * SUITS
CATEGORY = 20
"""A strength's bits above these are its category."""


def strength(cards: Tensor) -> Tensor:
    """Of cards numbered `rank * 4 + suit`, as `phevaluator` numbers them too."""
    return hand_strength(cards // SUITS, cards % SUITS)


def named(text: str) -> Tensor:
    """`"As Kd ..."` -> card numbers."""
    return torch.tensor(["23456789TJQKA".index(card[0]) * SUITS + "cdhs".index(card[1]) for card in text.split()])


def library_rank(hands: Iterable[Iterable[int]]) -> Tensor:
    return torch.tensor([evaluate_cards(*hand) for hand in hands])


@pytest.fixture(scope="module")
def every_hand() -> tuple[Tensor, Tensor]:
    """All five-card hands `[2598960, 5]` and their strengths."""
    flat = np.fromiter(chain.from_iterable(combinations(range(DECK), 5)), dtype=np.int64)
    hands = torch.from_numpy(flat).view(-1, 5)
    return hands, torch.cat([strength(part) for part in hands.split(1 << 18)])


@pytest.fixture(scope="module")
def strengths(every_hand: tuple[Tensor, Tensor]) -> Tensor:
    """Distinct strengths, ascending."""
    return every_hand[1].unique()


def place(value: Tensor, strengths: Tensor) -> Tensor:
    """1 for the best strength there is, 7462 for the worst; a value that is none of them fails."""
    index = torch.searchsorted(strengths, value)
    assert torch.equal(strengths.take(index), value)
    return len(strengths) - index


def random_hands(n: int, cards: int, deck: Tensor, seed: int) -> Tensor:
    draw = torch.rand(n, len(deck), generator=torch.Generator().manual_seed(seed))
    return deck.take(draw.topk(cards, 1).indices)


# -- classes -----------------------------------------------------------------------------------------------------------


def test_classes_of_all_five_card_hands(every_hand):
    hands, value = every_hand
    assert len(hands) == 2_598_960
    category, count = (value >> CATEGORY).unique(return_counts=True)
    assert dict(zip(category.tolist(), count.tolist(), strict=True)) == {
        STRAIGHT_FLUSH: 40,
        QUADS: 624,
        FULL_HOUSE: 3_744,
        FLUSH: 5_108,
        STRAIGHT: 10_200,
        TRIPS: 54_912,
        TWO_PAIRS: 123_552,
        PAIR: 1_098_240,
        HIGH_CARD: 1_302_540,
    }


def test_distinct_strengths_by_category(strengths):
    assert len(strengths) == 7_462
    assert (strengths >> CATEGORY).bincount().tolist() == [1_277, 2_860, 858, 858, 10, 1_277, 156, 156, 10]


# -- order and ties ----------------------------------------------------------------------------------------------------


def test_every_class_has_the_librarys_place(every_hand, strengths):
    hands, value = every_hand
    first = torch.empty(len(strengths), dtype=torch.int64)
    first[torch.searchsorted(strengths, value)] = torch.arange(len(hands))
    assert library_rank(hands[first].tolist()).tolist() == list(range(7_462, 0, -1))


@pytest.mark.parametrize("cards", [5, 6, 7])
def test_every_multiset_of_ranks_without_a_flush(cards, strengths):
    ranks = [r for r in combinations_with_replacement(range(RANKS), cards) if max(map(r.count, r)) <= SUITS]
    # Suits take turns: equal ranks follow each other and get different ones, and no suit comes more than twice.
    hands = torch.tensor(ranks) * SUITS + torch.arange(cards) % SUITS
    assert torch.equal(place(strength(hands), strengths), library_rank(hands.tolist()))


@pytest.mark.parametrize("cards", [5, 6, 7])
def test_every_flush(cards, strengths):
    rng = random.Random(cards)
    hands = []
    for suit in range(SUITS):
        for suited in range(5, cards + 1):
            for ranks in combinations(range(RANKS), suited):
                others = [c for c in rng.sample(range(DECK), 20) if c % SUITS != suit]
                hand = [r * SUITS + suit for r in ranks] + others[: cards - suited]
                assert len(hand) == cards
                rng.shuffle(hand)
                hands.append(hand)
    assert torch.equal(place(strength(torch.tensor(hands)), strengths), library_rank(hands))


@pytest.mark.slow
@pytest.mark.parametrize(("cards", "n"), [(5, 400_000), (6, 300_000), (7, 300_000)])
def test_random_hands(cards, n, strengths):
    hands = random_hands(n, cards, torch.arange(DECK), seed=cards)
    assert torch.equal(place(strength(hands), strengths), library_rank(hands.tolist()))


def test_order_by_hand():
    """Each beats the next."""
    ladder = [
        "As Ks Qs Js Ts",
        "5h 4h 3h 2h Ah",  # The ace is low.
        "2c 2d 2h 2s 3c",
        "3c 3d 3h 2s 2c",
        "2c 2d 2h As Ac",
        "7d 5d 4d 3d 2d",
        "Ac Kd Qh Js Tc",
        "6c 5d 4h 3s 2c",
        "5c 4d 3h 2s Ac",
        "2c 2d 2h As Kc",
        "Ac Ad Kh Ks Qc",
        "Ac Ad Kh Ks Jc",
        "Ac Ad 2h 2s 3c",
        "Kc Kd Qh Qs Ac",
        "2c 2d 4h 5s 6c",
        "Ac Kd Qh Js 9c",
        "Kc Ad 2h 3s 4c",  # No straight goes round the corner.
        "Qc Jd 9h 8s 7c",
        "7c 5d 4h 3s 2c",
    ]
    values = [int(strength(named(hand))) for hand in ladder]
    assert values == sorted(set(values), reverse=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # The board plays, a third pair, two triples, a kicker that no longer counts.
        ("As Ks Qs Js Ts 2c 3d", "As Ks Qs Js Ts 9s 8s"),
        ("Ac Ad Kh Ks Qc Qd 2h", "Ac Ad Kh Ks Qc 3d 2h"),
        ("Ac Ad Ah Kc Kd Kh 2s", "Ac Ad Ah Kc Kd 3h 2s"),
        ("Ac Kd Qh 9s 8c 3d 2h", "Ac Kd Qh 9s 8c 5d 4h"),
        ("2c 2d 2h 2s Ac Ad Ah", "2c 2d 2h 2s Ac Kd Kh"),
        ("9c 8d 7h 6s 5c 9d 9h", "9c 8d 7h 6s 5c 2d 3h"),
        ("Ah Kh Qh Jh 9h 2h 3h", "Ah Kh Qh Jh 9h Ad As"),
    ],
)
def test_ties_of_seven_cards_by_hand(one, other):
    assert strength(named(one)) == strength(named(other))


# -- six and seven cards -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cards", [6, 7])
@pytest.mark.parametrize(
    "deck",
    [
        pytest.param(torch.arange(DECK), id="full"),
        # Straights with the ace low, full houses, quads.
        pytest.param(torch.tensor([r * SUITS + s for r in (0, 1, 2, 3, 4, 12) for s in range(SUITS)]), id="low"),
        # Flushes and straight flushes.
        pytest.param(torch.tensor([r * SUITS + s for r in range(5, RANKS) for s in (1, 3)]), id="two-suits"),
    ],
)
def test_more_cards_are_worth_their_best_five(cards, deck):
    hands = random_hands(15_000, cards, deck, seed=cards)
    subsets = torch.combinations(torch.arange(cards), 5)
    assert torch.equal(strength(hands), strength(hands[:, subsets]).amax(1))


# -- form --------------------------------------------------------------------------------------------------------------


def test_shapes_and_type():
    hands = random_hands(24, 7, torch.arange(DECK), seed=0)
    flat = strength(hands)
    assert flat.dtype == torch.int32
    assert flat.shape == (24,)
    assert torch.equal(strength(hands.view(2, 3, 4, 7)), flat.view(2, 3, 4))
    assert strength(hands[0]).shape == ()
    assert strength(hands[:0]).shape == (0,)


@pytest.mark.parametrize("cards", [0, 4, 8])
def test_wrong_number_of_cards(cards):
    with pytest.raises(ValueError, match=f"five to seven cards, not {cards}"):
        strength(torch.arange(3 * cards).view(3, cards))


@repeatable
@given(
    cards=st.lists(st.integers(0, DECK - 1), min_size=5, max_size=7, unique=True),
    suits=st.permutations(range(SUITS)),
    data=st.data(),
)
def test_suits_have_no_order_and_neither_have_cards(cards, suits, data):
    renamed = [c // SUITS * SUITS + suits[c % SUITS] for c in data.draw(st.permutations(cards))]
    assert strength(torch.tensor(cards)) == strength(torch.tensor(renamed))


@repeatable
@given(
    ranks=st.lists(st.integers(0, RANKS - 1), min_size=5, max_size=7, unique=True),
    suit=st.integers(0, SUITS - 1),
    renamed=st.integers(0, SUITS - 1),
    data=st.data(),
)
def test_flushes_of_all_suits_are_equal(ranks, suit, renamed, data):
    held, moved = torch.tensor(ranks), torch.tensor(data.draw(st.permutations(ranks)))
    value = hand_strength(held, torch.full_like(held, suit))
    assert value == hand_strength(moved, torch.full_like(held, renamed))
    assert value >> CATEGORY in (FLUSH, STRAIGHT_FLUSH)
