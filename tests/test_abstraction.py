"""Card abstractions of games with one board: rows of tables, and the abstract game, on a deck that can be listed."""

from __future__ import annotations

import pytest
import torch

from repro.abstraction import abstraction
from repro.games import load
from tests.helpers.holdem import board_buckets, cards_in, every, game_of


@pytest.mark.parametrize("name", ["fhp", "fhp_limit"])
def test_lossless_is_the_identity(name):
    game = load(name, ranks=4, suits=2)
    lossless = abstraction(game, None)
    assert lossless.buckets is None
    assert lossless.abstract is game
    assert torch.equal(lossless.rows(every(game)), every(game))


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [1, 2, 12, 300, 1260])
def test_rows_are_node_and_bucket(buckets):
    game = game_of("small_fhp")
    grouped = abstraction(game, buckets)
    bucket, abstract = board_buckets(grouped), grouped.abstract
    used = int(bucket.max()) + 1
    assert 1 <= used <= buckets
    assert set(bucket.tolist()) == set(range(used))
    assert abstract.cards.cells == (game.cards.cells[0], used)
    rows, tree = grouped.rows(every(game)), game.tree
    # Before the board every infoset has a row of its own.
    early = tree.round[game.infoset_node] == 0
    assert len(rows[early].unique()) == int(early.sum())
    # On the board infosets share a row if and only if they are of one node and one bucket.
    late = ~early
    pair = torch.stack([game.infoset_node[late], bucket[game.infoset_cell[late]], rows[late]], 1).unique(dim=0)
    assert len(pair) == len(pair[:, :2].unique(dim=0)) == len(pair[:, 2].unique())
    assert not set(rows[early].tolist()) & set(rows[late].tolist())
    # Without gaps, and of the right player with the right actions.
    assert len(rows.unique()) == abstract.infosets == int(rows.max()) + 1
    assert torch.equal(abstract.legal[rows], game.legal)
    assert torch.equal(abstract.infoset_player[rows], game.infoset_player)
    # Rows are infosets of the abstract game: of the same node, with the bucket for a cell.
    assert torch.equal(abstract.infoset_node[rows], game.infoset_node)
    assert torch.equal(abstract.infoset_cell[rows[late]], bucket[game.infoset_cell[late]])
    assert torch.equal(abstract.infoset_cell[rows[early]], game.infoset_cell[early])


def test_rows_of_mixed_and_repeated_infosets():
    game = game_of("small_fhp")
    grouped = abstraction(game, 12)
    drawn = torch.randint(game.infosets, (500,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(grouped.rows(drawn), grouped.rows(every(game))[drawn])
    assert len(grouped.rows(drawn[:0])) == 0


def test_isomorphic_hands_share_a_row():
    game = load("fhp", ranks=4, suits=3)
    grouped, cards = abstraction(game, 30), cards_in(game)
    dealt = cards.draw(300, torch.Generator().manual_seed(0))[:, [4, 5, 6, 0, 1]]
    suit = torch.tensor([2, 0, 1])
    renamed = (dealt // 3 * 3 + suit[dealt % 3])[:, [1, 2, 0, 4, 3]]
    assert not torch.equal(dealt, renamed)
    for node in range(game.tree.nodes):
        if game.tree.player[node] >= 0 and game.tree.round[node] == 1:
            rows = [grouped.rows(game.first_infoset[node] + cards.cell(1, c)) for c in (dealt, renamed)]
            assert torch.equal(*rows)


def test_games_of_one_name_have_buckets_of_their_own():
    small, large = (
        board_buckets(abstraction(game, 9)) for game in (load("fhp", ranks=4, suits=2), game_of("small_fhp"))
    )
    assert len(small) == 280
    assert len(large) == 1260
    assert torch.equal(large, board_buckets(abstraction(game_of("small_fhp"), 9)))


def test_the_abstract_game_deals_the_same_cards_as_the_full_one():
    game = game_of("small_fhp")
    grouped = abstraction(game, 12)
    full, seen = (g.cards.deal(500, torch.Generator().manual_seed(0)) for g in (game, grouped.abstract))
    assert torch.equal(seen.sign, full.sign)
    assert torch.equal(seen.cells[:, :, 0], full.cells[:, :, 0])
    assert torch.equal(seen.cells[:, :, 1], board_buckets(grouped)[full.cells[:, :, 1]])
    assert len(seen.cells[:, :, 1].unique()) > 5


def test_the_abstract_game_is_named_after_the_full_one():
    game = game_of("small_fhp")
    abstract = abstraction(game, 12).abstract
    assert abstract.name == game.name
    assert abstract.parameters == {**game.parameters, "buckets": 12}
    assert abstract.chips_per_unit == game.chips_per_unit
    _, betting = game.describe(game.infosets - 1).split("betting ")
    assert abstract.describe(abstract.infosets - 1) == f"player 1, bucket 11, betting {betting}"
