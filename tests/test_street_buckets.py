"""Buckets of games dealt street by street, and the game that they make, on decks so small that all can be listed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from repro.abstraction import Abstraction, abstraction, streets
from repro.abstraction.streets import StreetBuckets, find_buckets, hand_features
from repro.common.errors import ReproError
from repro.games import Game, load
from repro.games.holdem import HoldemCards, holdem_cards
from tests.helpers.holdem import cards_in
from tests.helpers.reference_showdown import showdowns

ROUNDS = (1, 2, 3)


@lru_cache
def small_game(**changes: Any) -> Game:
    return load("hunl_pot", **{"ranks": 6, "suits": 3, "stack": 1000.0, **changes})


@lru_cache
def grouped(buckets: int, **changes: Any) -> Abstraction:
    return abstraction(small_game(**changes), buckets)


def buckets_of(made: Abstraction) -> StreetBuckets:
    assert isinstance(made.buckets, StreetBuckets)
    return made.buckets


def deals(cards: HoldemCards, round_: int, n: int, seed: int = 0) -> Tensor:
    """`[n, cards]` board street by street, then a hand."""
    dealt = cards.draw(n, torch.Generator().manual_seed(seed))
    return torch.cat([dealt[:, 4 : 4 + cards.board_cards[round_]], dealt[:, :2]], 1)


def isomorphic(cards: HoldemCards, round_: int, seen: Tensor, seed: int = 0) -> Tensor:
    """The deals with suits renamed, and with the cards of each street and hand in another order."""
    draw = torch.Generator().manual_seed(seed)
    names = torch.rand(len(seen), cards.suits, generator=draw).argsort(1)
    renamed = seen // cards.suits * cards.suits + names.gather(1, seen % cards.suits)
    parts = renamed.split([*cards.streets[1 : round_ + 1], 2], 1)
    return torch.cat([part.gather(1, torch.rand(part.shape, generator=draw).argsort(1)) for part in parts], 1)


def decisions(game: Game, round_: int) -> list[int]:
    return ((game.tree.player >= 0) & (game.tree.round == round_)).nonzero().flatten().tolist()


def some_infosets(game: Game, n: int, seed: int = 0) -> Tensor:
    """Infosets of every decision of the tree, with dealt cards."""
    cells = cards_in(game).deal(n, torch.Generator().manual_seed(seed)).cells
    node = (game.tree.player >= 0).nonzero().flatten()
    cell = cells[:, game.tree.player[node], game.tree.round[node]]
    return (game.first_infoset[node] + cell).flatten()


# -- features ----------------------------------------------------------------------------------------------------------


def by_listing(cards: HoldemCards, round_: int, seen: list[int]) -> tuple[float, ...]:
    """What `hand_features` says of one deal, with the variance for the standard deviation."""
    board, hand = tuple(seen[:-2]), tuple(sorted(seen[-2:]))
    reference = showdowns(cards.ranks, cards.suits)
    number = reference.hands.index((hand[0], hand[1]))
    mean, square = (float(values[number]) for values in reference.mean_and_square(board))
    before = float(reference.mean_and_square(board[: cards.board_cards[round_ - 1]])[0][number])
    ranks, suits = [c // cards.suits for c in board], [c % cards.suits for c in board]
    suited = max(suits.count(s) for s in suits) / len(board)
    paired = any(ranks.count(r) > 1 for r in ranks)
    height = sum(ranks) / len(ranks) / (cards.ranks - 1)
    return mean, square - mean**2, before, suited / 2, paired / 2, height / 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "suits", "dealt"), [(6, 3, (0, 3, 1, 1)), (6, 2, (0, 3, 2)), (4, 3, (0, 4, 1)), (10, 1, (0, 2, 2, 1))]
)
def test_features_equal_brute_force(ranks, suits, dealt):
    cards = holdem_cards(ranks, suits, dealt)
    for round_ in range(1, len(dealt)):
        seen = deals(cards, round_, 80)
        found = hand_features(cards, round_, seen)
        expected = np.array([by_listing(cards, round_, deal) for deal in seen.tolist()])
        assert found.shape == (80, 6)
        found[:, 1] **= 2
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        # Draws are there to be told apart, until the last card.
        assert (expected[:, 1].max() > 0.01) == (round_ < len(dealt) - 1)


@pytest.mark.parametrize("round_", ROUNDS)
def test_features_are_between_0_and_1_and_differ(round_):
    cards = cards_in(small_game())
    found = hand_features(cards, round_, deals(cards, round_, 2000))
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    # On full boards nothing is to come: there is no spread.
    assert [len(np.unique(column)) > 1 for column in found.T] == [True, round_ < 3, True, True, True, True]
    if round_ == 3:
        assert float(np.abs(found[:, 1]).max()) == 0


@pytest.mark.parametrize("round_", ROUNDS)
def test_features_of_isomorphic_deals_are_equal(round_):
    cards = cards_in(small_game())
    seen = deals(cards, round_, 500)
    other = isomorphic(cards, round_, seen)
    assert bool((seen != other).any(1).float().mean() > 0.9)
    one, two = hand_features(cards, round_, seen), hand_features(cards, round_, other)
    one[:, 1] **= 2
    two[:, 1] **= 2
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)


# -- buckets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("round_", ROUNDS)
def test_isomorphic_deals_share_a_bucket(round_):
    made = grouped(20)
    cards, buckets = cards_in(made.game), buckets_of(made)
    seen = deals(cards, round_, 1000)
    one, two = (buckets.of_cells(round_, cards.cell(round_, deal)) for deal in (seen, isomorphic(cards, round_, seen)))
    assert torch.equal(one, two)
    assert len(one.unique()) > 10


@pytest.mark.slow
@pytest.mark.parametrize("round_", ROUNDS)
def test_a_hand_is_in_the_bucket_of_the_nearest_centre(round_):
    made = grouped(20)
    cards, buckets = cards_in(made.game), buckets_of(made)
    seen = deals(cards, round_, 300, seed=1)
    found = buckets.of_cells(round_, cards.cell(round_, seen))
    points = np.array([by_listing(cards, round_, deal) for deal in seen.tolist()])
    points[:, 1] **= 0.5
    centres = buckets.centres[round_ - 1].numpy()
    distance = np.sqrt(((points[:, None] - centres) ** 2).sum(2))
    chosen = distance[np.arange(300), found.numpy()]
    # The tables are float32, of which the root magnifies what a variance near 0 has lost.
    np.testing.assert_allclose(chosen, distance.min(1), rtol=0, atol=2e-3)
    assert (distance.argmin(1) == found.numpy()).mean() > 0.98


def test_before_the_board_every_hand_is_its_own():
    made = grouped(20)
    cells = torch.arange(cards_in(made.game).cells[0])
    assert torch.equal(buckets_of(made).of_cells(0, cells), cells)
    assert buckets_of(made).sizes[0] == len(cells)


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [1, 7, 20, 600])
def test_at_most_as_many_buckets_as_asked_for(buckets):
    made = grouped(buckets)
    cards, found = cards_in(made.game), buckets_of(made)
    assert len(found.centres) == 3
    assert found.sizes[1:] == tuple(len(c) for c in found.centres)
    for round_ in ROUNDS:
        centres = found.centres[round_ - 1]
        assert 0.8 * buckets < len(centres) <= buckets
        assert centres.shape[1] == 6
        assert len(centres.unique(dim=0)) == len(centres)
        used = found.of_cells(round_, cards.cell(round_, deals(cards, round_, 20_000, seed=2)))
        # Each of them is the home of some hands.
        assert len(used.unique()) > 0.9 * len(centres)


def test_fewer_places_than_buckets():
    """Nine cards: not even the flop has as many features as cells."""
    made = grouped(225, ranks=3, suits=3, stack=150.0)
    cards = cards_in(made.game)
    for round_, size in zip(ROUNDS, buckets_of(made).sizes[1:], strict=True):
        points = hand_features(cards, round_, deals(cards, round_, 20_000)).round(5)
        assert size <= 225
        assert 0.8 * min(225, len(np.unique(points, axis=0))) < size
    assert min(buckets_of(made).sizes[1:]) < 225


def test_centres_are_the_means_of_many_deals(monkeypatch):
    cards, buckets = cards_in(small_game()), 3000
    clustered: list[np.ndarray] = []

    def halves(points: np.ndarray, weight: np.ndarray, clusters: int) -> np.ndarray:
        assert (weight.tolist(), clusters) == ([1.0] * len(points), buckets)
        clustered.append(points)
        return (points[:, 0] > 0.5).astype(np.int64)

    monkeypatch.setattr(streets, "cluster_labels", halves)
    centres = find_buckets(cards, buckets).centres
    for round_, points, found in zip(ROUNDS, clustered, centres, strict=True):
        strong = points[:, 0] > 0.5
        np.testing.assert_allclose(found.numpy(), [points[~strong].mean(0), points[strong].mean(0)])
        # Enough deals for all buckets, and they are like any others.
        assert len(points) >= 10 * buckets
        others = hand_features(cards, round_, deals(cards, round_, 20_000, seed=4))
        np.testing.assert_allclose(points.mean(0), others.mean(0), rtol=0, atol=0.01)
        places, fresh = (len(np.unique(p.round(5), axis=0)) for p in (points[:20_000], others))
        assert places == pytest.approx(fresh, rel=0.05)


def test_hands_of_a_bucket_are_alike():
    made = grouped(50)
    cards, buckets = cards_in(made.game), buckets_of(made)
    for round_ in ROUNDS:
        seen = deals(cards, round_, 5000, seed=3)
        points = hand_features(cards, round_, seen)
        bucket = buckets.of_cells(round_, cards.cell(round_, seen)).numpy()
        size = np.maximum(np.bincount(bucket), 1)
        mean = np.stack([np.bincount(bucket, column) / size for column in points.T], 1)
        within, total = ((points - mean[bucket]) ** 2).sum(), ((points - points.mean(0)) ** 2).sum()
        assert within < 0.15 * total
        # A centre is the mean of the hands that it was made from, and these are others of the same kind.
        common = size > 100
        assert common.sum() > 10
        assert np.abs(mean - buckets.centres[round_ - 1].numpy()[: len(mean)])[common].max() < 0.05


@pytest.mark.slow
def test_buckets_are_the_same_in_every_run():
    cards = cards_in(small_game())
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        found.append(find_buckets(cards, 30))
    one, two = found
    assert one is not two
    assert all(torch.equal(a, b) for a, b in zip(one.centres, two.centres, strict=True))


def test_known_centres_are_taken_as_they_are(monkeypatch):
    made = grouped(20)
    monkeypatch.setattr(streets, "cluster_labels", lambda *_: pytest.fail("it looked for buckets"))
    again = abstraction(small_game(), 20, buckets_of(made).centres)
    infosets = some_infosets(small_game(), 20)
    assert torch.equal(again.rows(infosets), made.rows(infosets))
    # Others make another game.
    backwards = abstraction(small_game(), 20, [c.flip(0) for c in buckets_of(made).centres])
    for round_ in ROUNDS:
        cells = cards_in(small_game()).cell(round_, deals(cards_in(small_game()), round_, 200))
        ours, theirs = (buckets_of(m).of_cells(round_, cells) for m in (made, backwards))
        assert torch.equal(ours, buckets_of(made).sizes[round_] - 1 - theirs)


# -- the abstract game -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_deals_are_those_of_the_full_game():
    made = grouped(20)
    game, abstract = made.game, made.abstract
    full, seen = (g.cards.deal(300, torch.Generator().manual_seed(5)) for g in (game, abstract))
    assert torch.equal(seen.sign, full.sign)
    assert set(seen.sign.tolist()) == {-1, 0, 1}
    assert seen.cells.shape == full.cells.shape
    assert seen.cells.dtype == full.cells.dtype
    for round_ in range(4):
        nodes = decisions(game, round_)
        assert nodes
        for player in range(2):
            cells, buckets = full.cells[:, player, round_], seen.cells[:, player, round_]
            assert torch.equal(buckets_of(made).of_cells(round_, cells), buckets)
            assert int(buckets.max()) < abstract.cards.cells[round_]
            for node in nodes:
                infosets = game.first_infoset[node] + cells
                assert torch.equal(made.rows(infosets), abstract.first_infoset[node] + buckets)


def test_rows_have_the_node_the_player_and_the_actions_of_the_full_game():
    made = grouped(20)
    game, abstract = made.game, made.abstract
    infosets = some_infosets(game, 30)
    # All rounds at once and in any order.
    infosets = infosets[torch.randperm(len(infosets), generator=torch.Generator().manual_seed(0))]
    rows = made.rows(infosets)
    assert int(rows.min()) >= 0
    assert int(rows.max()) < abstract.infosets
    assert torch.equal(game.locate(infosets)[0], abstract.locate(rows)[0])
    assert torch.equal(game.legal_at(infosets), abstract.legal_at(rows))
    assert torch.equal(game.legal_at(infosets), abstract.legal[rows])
    second = infosets >= game.player_slice[1].start
    assert torch.equal(second, abstract.infoset_player[rows] == 1)
    assert len(made.rows(infosets[:0])) == 0
    assert torch.equal(made.rows(infosets[:50]), rows[:50])


def test_the_abstract_game_is_the_product_of_nodes_and_buckets():
    made = grouped(20)
    tree, sizes = made.game.tree, buckets_of(made).sizes
    assert made.abstract.infosets == sum(len(decisions(made.game, r)) * sizes[r] for r in range(4))
    assert made.abstract.listed
    assert not made.game.listed
    assert made.abstract.name == "hunl_pot"
    assert made.abstract.parameters == {**made.game.parameters, "buckets": 20}
    assert made.abstract.chips_per_unit == made.game.chips_per_unit
    assert torch.equal(made.abstract.tree.child, tree.child)
    assert torch.equal(made.abstract.tree.stake, tree.stake)


def test_infosets_are_described_by_their_bucket():
    abstract = grouped(20).abstract
    river = decisions(abstract, 3)[0]
    history = abstract.tree.histories[river]
    assert len(history) == 4
    said = abstract.describe(int(abstract.first_infoset[river]) + 7)
    words = ("fold", "call", "raise")
    betting = " / ".join(" ".join(words[a] for a in actions) for actions in history)
    assert said == f"player {int(abstract.tree.player[river])}, bucket 7, betting {betting}"


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [-1, 0, 14_641])
def test_impossible_numbers_of_buckets_are_refused(monkeypatch, buckets):
    monkeypatch.setattr(streets, "cluster_labels", lambda *_: pytest.fail("it looked for buckets"))
    said = rf"algorithm\.buckets is {buckets}; allowed are 1 to 14,640, or null \(lossless\)\."
    with pytest.raises(ReproError, match=said):
        abstraction(small_game(), buckets)


def test_tables_that_are_too_large_are_refused(monkeypatch):
    with pytest.raises(ReproError, match=r"game hunl_pot has 4,836,522,336 infosets; tables can list 134,217,728"):
        abstraction(small_game(), None)
    rounds = small_game().tree.round[small_game().tree.player >= 0].bincount()
    size = int(rounds[0] * cards_in(small_game()).cells[0] + rounds[1:].sum() * 20)
    monkeypatch.setattr("repro.abstraction.abstract_game.MOST_LISTED", size)
    assert abstraction(small_game(), 20).abstract.infosets <= size
    monkeypatch.setattr("repro.abstraction.abstract_game.MOST_LISTED", size - 1)
    said = rf"algorithm\.buckets is 20, which makes {size:,} infosets .*; tables can list {size - 1:,} at most"
    with pytest.raises(ReproError, match=said):
        abstraction(small_game(), 20)
