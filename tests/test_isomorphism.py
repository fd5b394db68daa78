"""Suit isomorphism, against brute force over all renamings of suits and against Burnside's lemma.

- Numbers of classes: those known for 52 cards, and Burnside's lemma (which counts what renamings leave as it is, and
  sorts nothing) for other decks and streets.
- `combination` and `cards_of`: plain enumeration in colexicographic order.
- Codes: two deals share one if and only if one of the 24 renamings of suits makes one of the other. For all deals of a
  deck of 12 cards, and for pairs of random deals of 52.
- Invariance, and that decoding gives a canonical deal: hypothesis.
"""

from collections import Counter
from itertools import combinations, permutations
from math import comb, factorial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from repro.games.holdem import holdem_cards
from repro.games.isomorphism import Coding, canonical_boards, cards_of, combination

repeatable = settings(deadline=None, derandomize=True, database=None)

STREETS: list[tuple[int, ...]] = [(3,), (5,), (3, 1), (3, 1, 1)]


def burnside(ranks: int, suits: int, sets: tuple[int, ...]) -> int:
    """Classes of deals of disjoint sets of these sizes.

    A renaming leaves a deal as it is if every set is a union of its cycles of cards; those deals are counted by adding
    one cycle after the other.
    """
    total = 0
    for renaming in permutations(range(suits)):
        ways = Counter({(0,) * len(sets): 1})
        for length in cycles(renaming) * ranks:
            more = Counter(ways)
            for held, count in ways.items():
                for i in range(len(sets)):
                    grown = (*held[:i], held[i] + length, *held[i + 1 :])
                    if grown[i] <= sets[i]:
                        more[grown] += count
            ways = more
        total += ways[sets]
    assert total % factorial(suits) == 0
    return total // factorial(suits)


def cycles(renaming: tuple[int, ...]) -> list[int]:
    """Lengths of the cycles of a permutation."""
    left, lengths = set(range(len(renaming))), []
    while left:
        at, length = left.pop(), 1
        while renaming[at] in left:
            at, length = renaming[at], length + 1
            left.remove(at)
        lengths.append(length)
    return lengths


def all_deals(deck: int, sets: tuple[int, ...]) -> Tensor:
    """Every deal of disjoint sets, `[deals, cards]`."""
    deals = torch.zeros(1, 0, dtype=torch.int64)
    for size in sets:
        some = torch.tensor(list(combinations(range(deck), size)))
        deals = torch.cat([deals.repeat_interleave(len(some), 0), some.repeat(len(deals), 1)], 1)
        before, new = deals[:, :-size, None], deals[:, None, -size:]
        deals = deals[(before != new).flatten(1).all(1)]
    return deals


def masks(deals: Tensor, sets: tuple[int, ...]) -> Tensor:
    """`[deals, sets]` the cards of each set as bits: deals are equal if these are."""
    bits = torch.ones_like(deals) << deals
    return torch.stack([part.sum(1) for part in bits.split(sets, 1)], 1)


def renamed(deals: Tensor, suits: int, renaming: tuple[int, ...]) -> Tensor:
    return deals // suits * suits + torch.tensor(renaming)[deals % suits]


def same_class(one: Tensor, other: Tensor, sets: tuple[int, ...], suits: int = 4) -> Tensor:
    """`[deals]` whether any renaming makes a deal of `one` that of `other`."""
    target, found = masks(other, sets), torch.zeros(len(one), dtype=torch.bool)
    for renaming in permutations(range(suits)):
        found |= (masks(renamed(one, suits, renaming), sets) == target).all(1)
    return found


def random_deals(n: int, cards: int, seed: int, deck: int = 52) -> Tensor:
    return torch.rand(n, deck, generator=torch.Generator().manual_seed(seed)).topk(cards, 1).indices


# -- numbers of classes ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cards", "classes", "boards"),
    [(1, 13, 52), (2, 169, 1_326), (3, 1_755, 22_100), (4, 16_432, 270_725), (5, 134_459, 2_598_960)],
)
def test_boards_of_the_full_deck(cards, classes, boards):
    board, count = canonical_boards(13, 4, cards)
    assert board.shape == (classes, cards)
    assert int(count.sum()) == boards == comb(52, cards)
    assert burnside(13, 4, (cards,)) == classes
    coding = Coding(13, 4, (cards,), private=0)
    assert torch.equal(coding.canonical(board), board)
    assert len(masks(board, (cards,)).unique()) == classes
    # No class has more boards than there are renamings, and a class's size divides their number.
    assert set(count.tolist()) <= {1, 2, 3, 4, 6, 8, 12, 24}


@pytest.mark.parametrize(("ranks", "suits", "cards"), [(3, 4, 3), (2, 4, 5), (4, 3, 4), (5, 2, 3), (6, 1, 3)])
def test_boards_of_small_decks_stand_for_their_orbits(ranks, suits, cards):
    board, count = canonical_boards(ranks, suits, cards)
    orbits = [
        {int(masks(renamed(b[None], suits, renaming), (cards,))) for renaming in permutations(range(suits))}
        for b in board
    ]
    assert [len(orbit) for orbit in orbits] == count.tolist()
    # Nothing is in two of them, and together they are all boards.
    assert len(set().union(*orbits)) == sum(map(len, orbits)) == comb(ranks * suits, cards)


def test_burnside_agrees_with_published_counts():
    """169, 1,286,792, 55,190,538 and 2,428,287,420 infosets per betting sequence of Hold'em [Waugh 2013]."""
    counts = [burnside(13, 4, (*streets, 2)) for streets in ((), (3,), (3, 1), (3, 1, 1))]
    assert counts == [169, 1_286_792, 55_190_538, 2_428_287_420]


@pytest.mark.parametrize(
    ("ranks", "suits", "flop", "cells"), [(13, 4, 3, 1_286_792), (4, 4, 3, None), (5, 3, 4, None), (3, 4, 5, None)]
)
def test_cells_of_hand_and_flop(ranks, suits, flop, cells):
    cards = holdem_cards(ranks, suits, (0, flop))
    expected = [burnside(ranks, suits, (2,)), burnside(ranks, suits, (flop, 2))]
    assert list(cards.cells) == expected
    assert cells in {None, expected[1]}
    for round_, number in enumerate(expected):
        listed = torch.arange(number)
        assert torch.equal(cards.cell(round_, cards.cards_of_cells(round_, listed)), listed)


# -- numbers of sets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", range(1, 8))
def test_colexicographic_order(k):
    sets = sorted(combinations(range(11), k), key=lambda cards: cards[::-1])
    assert combination(torch.tensor(sets)).tolist() == list(range(len(sets)))
    assert [tuple(row) for row in cards_of(torch.arange(len(sets)), k).tolist()] == sets


@pytest.mark.parametrize("k", range(1, 8))
def test_cards_of_is_the_inverse_on_the_full_deck(k):
    cards = random_deals(5_000, k, seed=k).sort(1).values
    number = combination(cards)
    assert 0 <= int(number.min()) <= int(number.max()) < comb(52, k)
    assert torch.equal(cards_of(number, k), cards)
    ends = torch.tensor([0, comb(52, k) - 1])
    assert cards_of(ends, k).tolist() == [list(range(k)), list(range(52 - k, 52))]
    assert torch.equal(combination(cards_of(ends, k)), ends)


def test_sets_of_no_card():
    assert cards_of(torch.zeros(3, dtype=torch.int64), 0).shape == (3, 0)


# -- codes -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "suits", "streets", "private"),
    [
        (3, 4, (), 2),
        (3, 4, (3,), 2),
        (3, 4, (5,), 2),
        (3, 4, (3, 1), 2),
        (3, 4, (3, 1, 1), 2),
        (4, 3, (3, 1), 2),
        (5, 2, (2, 2), 2),
        (3, 4, (3, 1), 0),
        (3, 4, (1, 1, 1), 1),
    ],
)
def test_codes_are_classes_of_all_deals_of_a_small_deck(ranks, suits, streets, private):
    sets = (*streets, private) if private else streets
    deals = all_deals(ranks * suits, sets)
    # A class's label: the least of its members, as bits.
    weights = 1 << ranks * suits * torch.arange(len(sets))
    assert ranks * suits * len(sets) < 63
    label = torch.full((len(deals),), torch.iinfo(torch.int64).max)
    for renaming in permutations(range(suits)):
        label = torch.minimum(label, (masks(renamed(deals, suits, renaming), sets) * weights).sum(1))
    coding = Coding(ranks, suits, streets, private)
    code = coding.encode(deals)
    classes = len(label.unique())
    assert len(code.unique()) == classes == burnside(ranks, suits, sets)
    assert len(torch.stack([code, label]).unique(dim=1)[0]) == classes
    assert 0 <= int(code.min()) <= int(code.max()) < coding.codes
    # Canonical deals are members of their classes, and the same for all of a class.
    decoded = coding.decode(code)
    assert torch.equal(decoded, coding.canonical(deals))
    assert same_class(deals[::7], decoded[::7], sets, suits).all()
    assert torch.equal(coding.encode(decoded), code)


@pytest.mark.parametrize("streets", [(), *STREETS])
def test_codes_of_the_full_deck_are_equal_if_and_only_if_a_renaming_of_suits_is(streets):
    sets = (*streets, 2)
    coding, cards = Coding(13, 4, streets), sum(sets)
    generator = torch.Generator().manual_seed(cards)
    one = random_deals(60_000, cards, seed=cards)
    # Few ranks, so that suits matter more.
    one[::2] = random_deals(30_000, cards, seed=-cards, deck=16)
    # The same ranks with one or two suits changed: pairs that differ by little.
    other = one.clone()
    for _ in range(2):
        column = torch.randint(cards, (len(one), 1), generator=generator)
        suit = torch.randint(4, (len(one), 1), generator=generator)
        other.scatter_(1, column, other.gather(1, column) // 4 * 4 + suit)
    renaming = torch.rand(len(one), 4, generator=generator).argsort(1)
    other = other // 4 * 4 + renaming.gather(1, other % 4)
    ordered = other.sort(1).values
    proper = (ordered[:, 1:] != ordered[:, :-1]).all(1)
    one, other = one[proper], other[proper]
    expected = same_class(one, other, sets)
    assert min(int(expected.sum()), int((~expected).sum())) > 1_000
    assert torch.equal(coding.encode(one) == coding.encode(other), expected)


@st.composite
def dealt(draw):
    """Streets and one deal of 52 cards."""
    streets = draw(st.sampled_from(STREETS))
    cards = sum(streets) + 2
    # Of few ranks too, so that hands and boards have suits and ranks in common.
    deck = draw(st.sampled_from([12, 20, 52]))
    return streets, draw(st.lists(st.integers(0, deck - 1), min_size=cards, max_size=cards, unique=True))


@pytest.mark.slow
@repeatable
@given(deal=dealt(), data=st.data())
def test_code_is_invariant_under_renaming_and_order(deal, data):
    streets, cards = deal
    variants = [cards]
    for renaming in permutations(range(4)):
        moved = [c // 4 * 4 + renaming[c % 4] for c in cards]
        start, shuffled = 0, []
        for size in (*streets, 2):
            shuffled += data.draw(st.permutations(moved[start : start + size]))
            start += size
        variants.append(shuffled)
    coding = Coding(13, 4, streets)
    assert len(coding.encode(torch.tensor(variants)).unique()) == 1
    assert len(coding.canonical(torch.tensor(variants)).unique(dim=0)) == 1


@repeatable
@given(deal=dealt())
def test_decoding_gives_the_canonical_deal(deal):
    streets, listed = deal
    sets, cards, coding = (*streets, 2), torch.tensor([listed]), Coding(13, 4, streets)
    code = coding.encode(cards)
    canonical = coding.decode(code)
    assert torch.equal(canonical, coding.canonical(cards))
    assert torch.equal(coding.canonical(canonical), canonical)
    assert torch.equal(coding.encode(canonical), code)
    assert 0 <= int(code) < coding.codes
    assert bool(same_class(cards, canonical, sets))
    for part in canonical.split(sets, 1):
        assert torch.equal(part, part.sort(1).values)
    # Its board is the canonical board, also of every round before.
    for rounds in range(1, len(streets) + 1):
        public = sum(streets[:rounds])
        board = Coding(13, 4, streets[:rounds], private=0)
        assert torch.equal(board.canonical(cards[:, :public]), canonical[:, :public])


@pytest.mark.parametrize("streets", STREETS)
def test_boards_of_canonical_deals_are_canonical_boards(streets):
    public = sum(streets)
    cards = random_deals(50_000, public + 2, seed=public)
    canonical = Coding(13, 4, streets).canonical(cards)
    board = Coding(13, 4, streets, private=0)
    assert torch.equal(board.canonical(cards[:, :public]), canonical[:, :public])
    assert torch.equal(board.canonical(canonical[:, :public]), canonical[:, :public])
    assert torch.equal(board.decode(board.encode(cards[:, :public])), canonical[:, :public])


def test_order_within_a_street_does_not_matter_but_streets_do():
    flop_then_turn = Coding(13, 4, (3, 1))
    deal = torch.tensor([[0, 5, 10, 15, 20, 25], [10, 0, 5, 15, 25, 20], [0, 5, 15, 10, 20, 25]])
    code = flop_then_turn.encode(deal)
    assert code[0] == code[1] != code[2]
    at_once = Coding(13, 4, (4,)).encode(deal)
    assert at_once[0] == at_once[1] == at_once[2]


def test_too_many_streets_or_ranks():
    with pytest.raises(ValueError, match="13 ranks on 4 streets"):
        Coding(13, 4, (3, 1, 1, 1))
    with pytest.raises(ValueError, match="14 ranks"):
        Coding(14, 4, (3,))
