"""Games: infosets, what a game can do, and its move to another device."""

from typing import Any

import pytest
import torch

from repro.abstraction.abstract_game import abstraction
from repro.games import Game, load
from repro.games.betting import CALL, RAISE, BettingRound, BettingRules
from repro.games.one_card import one_card_each
from tests.helpers.reference_poker import TINY_GAMES

BY_CARD: dict[str, Any] = {"suit_isomorphism": False}


# -- infosets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "infosets"),
    [
        ("kuhn", {}, 12),
        ("kuhn", BY_CARD, 12),
        ("leduc", {}, 288),
        ("leduc", BY_CARD, 936),
        ("big_leduc", {}, 26_376),
        ("leduc", {"ranks": 12, "max_raises": 6}, 26_376),
        ("leduc", {"max_raises": 0}, 2 * (3 + 9)),
        # With one suit nobody can hold the board card's rank.
        ("leduc", {"max_raises": 0, "suits": 1}, 2 * (3 + 6)),
        ("leduc", {"max_raises": 0, "suits": 3, **BY_CARD}, 2 * (9 + 72)),
    ],
)
def test_infoset_counts(name, parameters, infosets):
    game = load(name, **parameters)
    assert game.infosets == infosets
    assert game.legal.shape == game.uniform.shape == (infosets, 3)


@pytest.mark.parametrize(("name", "parameters"), TINY_GAMES)
def test_infoset_numbering(name, parameters):
    game = load(name, **parameters)
    first, second = game.player_slice
    assert (first.start, first.stop, second.stop) == (0, second.start, game.infosets)
    assert set(game.infoset_player[first].tolist()) == {0}
    assert set(game.infoset_player[second].tolist()) == {1}
    columns = (game.infoset_player, game.infoset_node, game.infoset_board, game.infoset_hand)
    listed = list(zip(*(c.tolist() for c in columns), strict=True))
    assert listed == sorted(set(listed))
    assert torch.equal(game.tree.player[game.infoset_node], game.infoset_player)
    seen = set()
    for round_ in range(game.tree.rounds):
        nodes = torch.tensor([n for level in game.tree.levels[round_] for n in range(level.start, level.stop)])
        boards, hands = torch.arange(game.one_card.boards(round_)), torch.arange(game.one_card.hands)
        grid = game.infoset(nodes[:, None, None], boards[:, None], hands)
        for node, board, hand in ((grid >= 0).nonzero()).tolist():
            infoset = int(grid[node, board, hand])
            assert game.infoset_hand[infoset] == game.one_card.hand_class[hand]
            assert game.infoset_board[infoset] == game.one_card.board_class[round_][board]
            seen.add(infoset)
        collides = (grid < 0).all(0)
        assert torch.equal(collides, game.one_card.blocked[round_])
        assert torch.equal((grid < 0).any(0), collides)
    assert seen == set(range(game.infosets))


def test_uniform_splits_evenly_over_legal_actions():
    game = load("leduc")
    assert game.uniform.dtype == torch.float64
    torch.testing.assert_close(game.uniform.sum(1), torch.ones(288, dtype=torch.float64))
    for row, legal in zip(game.uniform.tolist(), game.legal.tolist(), strict=True):
        assert row == [pytest.approx(1 / sum(legal)) if allowed else 0 for allowed in legal]


def test_describe():
    kuhn = load("kuhn")
    assert kuhn.describe(0) == "player 0, hand J, betting "
    assert kuhn.describe(int(kuhn.infoset(kuhn.tree.child[0, RAISE], torch.tensor(0), torch.tensor(2)))) == (
        "player 1, hand K, betting raise"
    )
    leduc = load("leduc")
    # Check, bet, call; then the public card, number 3, which is of rank 1.
    node = torch.tensor(0)
    for action in (CALL, RAISE, CALL):
        node = leduc.tree.child[node, action]
    infoset = int(leduc.infoset(node, torch.tensor(3), torch.tensor(5)))
    assert leduc.describe(infoset) == "player 0, hand K, board Q, betting call raise call / "
    assert leduc.describe(infoset, numbered=True) == "player 0, hand 2, board 1, betting call raise call / "
    by_card = load("leduc", **BY_CARD)
    infoset = int(by_card.infoset(node, torch.tensor(3), torch.tensor(5)))
    assert by_card.describe(infoset) == "player 0, hand Kd, board Qd, betting call raise call / "
    for game in (kuhn, leduc, by_card):
        assert len({game.describe(i) for i in range(game.infosets)}) == game.infosets


# -- what a game can do ------------------------------------------------------------------------------------------------


def test_units():
    assert load("kuhn").chips_per_unit == 1
    assert load("leduc").chips_per_unit == 1
    assert load("leduc", ante=4).chips_per_unit == 4


@pytest.mark.parametrize(
    ("name", "parameters", "exact", "unit", "is_mean", "features"),
    [
        ("kuhn", {}, "sequence_form", "mA/g", True, "classes"),
        ("leduc", {"ante": 4.0}, "sequence_form", "mA/g", True, "classes"),
        ("big_leduc", {}, "sequence_form", "mA/g", True, "classes"),
        ("fhp", {"ranks": 5, "suits": 2}, "boards", "mbb/g", False, "cards"),
        # Equal blinds are no antes.
        ("fhp", {"ranks": 5, "suits": 2, "blinds": (50.0, 50.0)}, "boards", "mbb/g", False, "cards"),
        # Too large to be listed: its boards are still enumerated, in portions.
        ("fhp5", {}, "boards", "mbb/g", False, "cards"),
        ("hunl_pot", {"ranks": 4, "suits": 3}, None, "mbb/g", False, "cards"),
        ("hnlh", {"ranks": 4, "suits": 3}, None, "mbb/g", False, "cards"),
    ],
)
def test_what_a_game_can_do(name, parameters, exact, unit, is_mean, features):
    game = load(name, **parameters)
    assert (game.exact, game.unit, game.exploitability_is_mean) == (exact, unit, is_mean)
    assert game.cards.features == features


def test_one_card_each_with_blinds_is_quoted_in_big_blinds():
    rules = BettingRules((1, 2), (BettingRound(bet=2, max_raises=2),))
    game = Game("blinds", {}, rules, one_card_each(3, 1, (0,), True), chips_per_unit=2.0)
    assert (game.unit, game.exploitability_is_mean) == ("mbb/g", True)


def test_an_abstraction_is_played_and_not_measured():
    game = abstraction(load("fhp", ranks=5, suits=2), buckets=5).abstract
    assert (game.exact, game.unit, game.exploitability_is_mean) == (None, "mbb/g", False)


# -- devices -----------------------------------------------------------------------------------------------------------


def test_to_cpu():
    game = load("leduc")
    assert game.to("cpu") is game
    tree, cards = game.tree.to("cpu"), game.one_card.to("cpu")
    assert torch.equal(tree.child, game.tree.child)
    assert tree.levels == game.tree.levels
    assert tree.histories == game.tree.histories
    assert torch.equal(cards.strength, game.one_card.strength)
    assert [b.device.type for b in cards.blocked] == ["cpu", "cpu"]
    assert cards.board_cards == game.one_card.board_cards


def test_move_reaches_every_tensor():
    """The meta device holds no data, so anything left behind shows."""
    game = load("leduc")
    tree, cards = game.tree.to("meta"), game.one_card.to("meta")
    tensors = [v for v in vars(tree).values() if isinstance(v, torch.Tensor)]
    for value in vars(cards).values():
        tensors += [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, torch.Tensor)]
    assert len(tensors) == 8 + 2 + 6 * 2
    assert {t.device.type for t in tensors} == {"meta"}
