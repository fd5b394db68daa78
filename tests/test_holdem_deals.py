"""Cards and deals in Hold'em: draws, cells, showdowns.

- Showdowns of many deals: `phevaluator`.
- Deals: enumeration of all deals of small decks, and chi-square tests.
"""

from collections import Counter
from itertools import combinations, permutations
from math import perm, sqrt
from typing import Any

import pytest
import torch
from phevaluator import evaluate_cards  # type: ignore[import-untyped,attr-defined,unused-ignore]

from repro.games import Game, load
from repro.games.hand_strength import hand_strength
from repro.games.holdem import HoldemCards, board_with_hands
from tests.helpers.holdem import HOLDEM, cards_in, random_deals
from tests.helpers.reference_poker import betting_of


def chi_square_fits(count: Counter, probability: dict[Any, float]) -> bool:
    n = count.total()
    assert min(probability.values()) * n >= 5
    assert set(count) <= set(probability)
    value = sum((count[outcome] - n * p) ** 2 / (n * p) for outcome, p in probability.items())
    freedom = len(probability) - 1
    return value < freedom + 5 * sqrt(2 * freedom)


def drawn_cards(monkeypatch: pytest.MonkeyPatch, game: Game, n: int, seed: int) -> torch.Tensor:
    """The cards `[n, 4 + board]` of what `deal` returns."""
    seen: list[torch.Tensor] = []
    dealt = HoldemCards.dealt

    def watch(self: HoldemCards, cards: torch.Tensor) -> Any:
        seen.append(cards)
        return dealt(self, cards)

    with monkeypatch.context() as patch:
        patch.setattr(HoldemCards, "dealt", watch)
        assert len(game.cards.deal(n, torch.Generator().manual_seed(seed))) == n
    (cards,) = seen
    return cards


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [{"ranks": 7, "suits": 1}, {"ranks": 4, "suits": 2}])
def test_draws_of_small_decks_are_uniform_and_without_replacement(monkeypatch, parameters):
    game = load("fhp", **parameters)
    deck = parameters["ranks"] * parameters["suits"]
    possible = perm(deck, 7)
    cards = drawn_cards(monkeypatch, game, 10 * possible, seed=1)
    assert cards.shape == (10 * possible, 7)
    assert all(len(set(deal)) == 7 for deal in cards[:1_000].tolist())
    uniform = dict.fromkeys(permutations(range(deck), 7), 1 / possible)
    assert chi_square_fits(Counter(map(tuple, cards.tolist())), uniform)


@pytest.mark.parametrize("name", HOLDEM)
def test_draws_of_the_full_deck_are_uniform_and_without_replacement(monkeypatch, name):
    cards = drawn_cards(monkeypatch, load(name), 20_000, seed=2)
    dealt = {"fhp": 7, "fhp_limit": 7, "fhp5": 9, "hunl_pot": 9}[name]
    assert cards.shape == (20_000, dealt)
    ordered = cards.sort(1).values
    assert (ordered[:, 1:] > ordered[:, :-1]).all()
    assert 0 == int(ordered.min()) < int(ordered.max()) == 51
    for column in cards.unbind(1):
        assert chi_square_fits(Counter(column.tolist()), dict.fromkeys(range(52), 1 / 52))
    # Two cards of different owners.
    for a, b in [(0, 2), (1, 4), (3, dealt - 1), (4, dealt - 1)]:
        pairs = Counter(zip(cards[:, a].tolist(), cards[:, b].tolist(), strict=True))
        assert chi_square_fits(pairs, dict.fromkeys(permutations(range(52), 2), 1 / (52 * 51)))


@pytest.mark.parametrize("parameters", [{"ranks": 4, "suits": 2}, {"ranks": 2, "suits": 4}])
def test_deals_have_the_distribution_of_all_deals(parameters):
    cards = cards_in(load("fhp", **parameters))

    def outcomes(deals):
        columns = [*deals.cells.flatten(1).unbind(1), deals.sign]
        return Counter(zip(*(c.tolist() for c in columns), strict=True))

    everything = torch.tensor(list(permutations(range(8), 7)))
    possible = outcomes(cards.dealt(everything))
    probability = {outcome: count / len(everything) for outcome, count in possible.items()}
    sampled = outcomes(cards.deal(200_000, torch.Generator().manual_seed(3)))
    assert chi_square_fits(sampled, probability)


@pytest.mark.parametrize("name", HOLDEM)
def test_form_of_deals(name):
    game = load(name)
    first, again, other = (game.cards.deal(300, torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert len(first) == 300
    assert first.cells.shape == (300, 2, game.tree.rounds)
    assert (first.cells.dtype, first.sign.dtype) == (torch.int64, torch.float32)
    assert torch.equal(first.cells, again.cells)
    assert torch.equal(first.sign, again.sign)
    assert not torch.equal(first.cells, other.cells)
    assert (first.cells >= 0).all()
    assert (first.cells < torch.tensor(game.cards.cells)).all()
    assert len(game.cards.deal(0, torch.Generator())) == 0


@pytest.mark.parametrize(("name", "streets"), [("fhp", (0, 3)), ("fhp5", (0, 5)), ("hunl_pot", (0, 3, 1, 1))])
def test_cells_of_deals_ignore_suits_and_order(name, streets):
    cards = cards_in(load(name))
    assert cards.streets == streets
    n = 20_000
    dealt = random_deals(n, cards, seed=5)
    deals = cards.dealt(dealt)
    generator = torch.Generator().manual_seed(6)
    renaming = torch.rand(n, 4, generator=generator).argsort(1)
    renamed = dealt // 4 * 4 + renaming.gather(1, dealt % 4)
    for player in range(2):
        hand, at = renamed[:, 2 * player : 2 * player + 2].flip(1), 4
        board = renamed[:, :0]
        for round_, public in enumerate(streets):
            # Cards of a street in another order.
            street = renamed[:, at : at + public]
            board = torch.cat([board, street[:, torch.randperm(public, generator=generator)]], 1)
            at += public
            cell = cards.cell(round_, torch.cat([board, hand], 1))
            assert torch.equal(cell, deals.cells[:, player, round_])
            found = cards.cards_of_cells(round_, cell)
            assert torch.equal(cards.cell(round_, found), cell)
            # The ranks of each street and of the hand are what they were.
            start = 0
            for size in (*streets[1 : round_ + 1], 2):
                ours = torch.cat([board, hand], 1)[:, start : start + size] // 4
                theirs = found[:, start : start + size] // 4
                assert torch.equal(ours.sort(1).values, theirs.sort(1).values)
                start += size


@pytest.mark.parametrize("name", HOLDEM)
def test_players_may_swap_hands(name):
    cards = cards_in(load(name))
    dealt = random_deals(20_000, cards, seed=9)
    swapped = torch.cat([dealt[:, 2:4], dealt[:, :2], dealt[:, 4:]], 1)
    ours, theirs = cards.dealt(dealt), cards.dealt(swapped)
    assert torch.equal(ours.sign, -theirs.sign)
    assert torch.equal(ours.cells, theirs.cells.flip(1))
    assert set(ours.sign.tolist()) == {-1, 0, 1}


@pytest.mark.parametrize("name", HOLDEM)
def test_showdowns_against_phevaluator(name):
    cards = cards_in(load(name))
    dealt = random_deals(20_000, cards, seed=11)
    expected = []
    for deal in dealt.tolist():
        # Its lower ranks are better.
        first, second = (evaluate_cards(*deal[2 * p : 2 * p + 2], *deal[4:]) for p in range(2))
        expected.append((first < second) - (first > second))
    assert cards.dealt(dealt).sign.tolist() == expected


@pytest.mark.parametrize(("ranks", "suits"), [(5, 4), (6, 2), (9, 1), (12, 3)])
def test_small_decks_keep_the_highest_ranks(ranks, suits):
    cards = cards_in(load("fhp", ranks=ranks, suits=suits))
    dealt = random_deals(2_000, cards, seed=12)
    for player in range(2):
        seen = torch.cat([dealt[:, 2 * player : 2 * player + 2], dealt[:, 4:]], 1)
        rank, suit = seen // suits + 13 - ranks, seen % suits
        assert torch.equal(cards.strength(seen), hand_strength(rank, suit))
    assert cards.describe(0, int(cards.cell(0, torch.tensor([[ranks * suits - 1, 0]])))).startswith("hand ")
    top = cards.cell(0, torch.tensor([[(ranks - 1) * suits, (ranks - 2) * suits]]))
    assert cards.describe(0, int(top)) == "hand KcAc"


def test_describe():
    game = load("fhp")
    cards = cards_in(game)
    hands = torch.tensor(list(combinations(range(52), 2)))
    names = {cards.describe(0, cell) for cell in cards.cell(0, hands).unique().tolist()}
    assert len(names) == 169
    assert {"hand AcAd", "hand KcAc", "hand KdAc", "hand 2c2d"} <= names
    # Ace of hearts, king of spades; on the board seven of spades, eight and nine of hearts.
    seen = torch.tensor([[5 * 4 + 3, 6 * 4 + 2, 7 * 4 + 2, 11 * 4 + 3, 12 * 4 + 2]])
    cell = int(cards.cell(1, seen))
    assert cards.describe(1, cell) == "hand KdAc, board 7d8c9c"
    node = betting_of(game).index("rc/c")
    infoset = int(game.first_infoset[node]) + cell
    assert game.describe(infoset) == "player 0, hand KdAc, board 7d8c9c, betting raise call / call"


def test_board_with_hands():
    boards = torch.tensor([[0, 1, 2], [3, 4, 5]])
    hands = torch.tensor(list(combinations(range(6), 2)))
    pairs = board_with_hands(boards, hands).tolist()
    assert pairs == [[0, 1, 2, *hand] for hand in ([3, 4], [3, 5], [4, 5])] + [
        [3, 4, 5, *hand] for hand in ([0, 1], [0, 2], [1, 2])
    ]


def test_move_reaches_every_tensor():
    """The meta device holds no data, so anything left behind shows. Not every round has a list of cells."""
    cards = cards_in(load("hunl_pot"))
    assert [codes is None for codes in cards.codes] == [False, False, True, True]
    moved = cards.to("meta")
    assert [None if codes is None else codes.device.type for codes in moved.codes] == ["meta", "meta", None, None]
    assert (moved.streets, moved.board_cards, moved.cells) == (cards.streets, cards.board_cards, cards.cells)
