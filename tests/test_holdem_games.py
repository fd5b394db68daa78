"""Hold'em games: their infosets, their parameters, and what is said to somebody who asks for an impossible one.

Numbers of infosets: the published counts.
"""

from typing import Any

import pytest
import torch

from repro.common.errors import ReproError
from repro.games import load
from tests.helpers.holdem import HOLDEM

FLOP_DEALS = 1_286_792
"""Classes of (hand, flop)."""


# -- infosets ----------------------------------------------------------------------------------------------------------


def test_infoset_actions_of_fhp_limit():
    """Legal actions of all infosets, of which suit isomorphism loses none."""
    game = load("fhp_limit")
    assert game.cards.cells == (169, FLOP_DEALS)
    cells = torch.tensor(game.cards.cells)[game.tree.round]
    total = int((game.tree.legal.sum(1) * cells).sum())
    assert total == 169 * 21 + FLOP_DEALS * 182 == 234_199_693
    assert game.infosets == 169 * 8 + FLOP_DEALS * 70


def test_infosets_of_fhp():
    game = load("fhp")
    assert game.cards.cells == (169, FLOP_DEALS)
    assert game.infosets == 169 * 2 + FLOP_DEALS * 6
    assert game.listed
    assert not load("fhp5").listed
    assert not load("hunl_pot").listed
    with pytest.raises(ReproError, match=r"game hunl_pot has .* infosets; tables can list .* at most"):
        _ = load("hunl_pot").infoset_node
    with pytest.raises(ReproError, match="game is fhp"):
        _ = game.one_card


@pytest.mark.parametrize("name", HOLDEM)
def test_infosets_are_node_and_cell(name):
    game = load(name)
    generator = torch.Generator().manual_seed(1)
    decisions = (game.tree.player >= 0).nonzero().flatten()
    node = decisions[torch.randint(len(decisions), (5_000,), generator=generator)]
    cells = torch.tensor(game.cards.cells)[game.tree.round[node]]
    cell = (torch.rand(5_000, generator=generator, dtype=torch.float64) * cells).long()
    # The first and last one of each.
    cell[:1_000], cell[1_000:2_000] = 0, cells[1_000:2_000] - 1
    infoset = game.first_infoset[node] + cell
    assert torch.equal(game.locate(infoset)[0], node)
    assert torch.equal(game.locate(infoset)[1], cell)
    assert torch.equal(game.legal_at(infoset), game.tree.legal[node])
    first, second = game.player_slice
    assert (first.start, first.stop, second.stop) == (0, second.start, game.infosets)
    assert torch.equal((infoset >= second.start).long(), game.tree.player[node])


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fhp", {"flop_cards": 3, "bet": None, "max_raises": (1, 2), "may_open_with_call": False}),
        ("fhp5", {"flop_cards": 5, "bet": None, "max_raises": (1, 2), "may_open_with_call": False}),
        ("fhp_limit", {"flop_cards": 3, "bet": 100.0, "max_raises": (3, 4), "may_open_with_call": True}),
        ("hunl_pot", {"stack": 20_000.0}),
        ("hnlh", {"stack": 20_000.0}),
    ],
)
def test_defaults(name, expected):
    game = load(name)
    assert game.parameters == {"ranks": 13, "suits": 4, "blinds": (50.0, 100.0), **expected}
    assert game.chips_per_unit == 100
    assert load(name, blinds=[40, 80]).chips_per_unit == 80


WRONG: list[tuple[str, dict[str, Any], list[str]]] = [
    ("fhp", {"ranks": 1}, ["ranks is 1", "2 to 13"]),
    ("fhp", {"ranks": 14}, ["ranks is 14", "2 to 13"]),
    ("fhp", {"ranks": 13.0}, ["ranks is 13.0", "whole number"]),
    ("fhp", {"suits": 0}, ["suits is 0", "1 to 4"]),
    ("fhp", {"suits": 5}, ["suits is 5", "1 to 4"]),
    ("fhp", {"suits": True}, ["suits is True", "whole number"]),
    ("fhp", {"ranks": 3, "suits": 2}, ["6 cards", "7 are dealt"]),
    ("fhp5", {"ranks": 2, "suits": 4}, ["8 cards", "9 are dealt"]),
    ("hunl_pot", {"ranks": 8, "suits": 1}, ["8 cards", "9 are dealt"]),
    ("fhp", {"flop_cards": 2}, ["flop_cards is 2", "3 to 5"]),
    ("fhp", {"flop_cards": 6}, ["flop_cards is 6", "3 to 5"]),
    ("fhp", {"flop_cards": -1}, ["flop_cards is -1", "3 to 5"]),
    ("fhp", {"flop_cards": None}, ["flop_cards is None", "whole number"]),
    ("fhp", {"bet": 0}, ["bet is 0", "positive"]),
    ("fhp_limit", {"bet": -100.0}, ["bet is -100.0", "positive"]),
    ("fhp_limit", {"bet": "pot"}, ["bet is 'pot'", "a number or null"]),
    ("fhp_limit", {"bet": float("inf")}, ["bet is inf", "a number or null"]),
    ("fhp_limit", {"bet": True}, ["bet is True", "a number or null"]),
    ("fhp", {"max_raises": (1, 13)}, ["max_raises is (1, 13)", "0 to 12"]),
    ("fhp", {"max_raises": [-1, 2]}, ["max_raises is (-1, 2)", "0 to 12"]),
    ("fhp", {"max_raises": (1, 2, 3)}, ["max_raises is (1, 2, 3)", "two whole numbers"]),
    ("fhp", {"max_raises": 2}, ["max_raises is 2", "two whole numbers"]),
    ("fhp", {"max_raises": (1.0, 2.0)}, ["max_raises is (1.0, 2.0)", "two whole numbers"]),
    ("fhp", {"may_open_with_call": 0}, ["may_open_with_call is 0", "true or false"]),
    ("fhp", {"blinds": (0, 100)}, ["blinds is (0, 100)", "positive"]),
    ("fhp", {"blinds": (100, 50)}, ["blinds is (100, 50)", "not above the big one"]),
    ("fhp", {"blinds": (50,)}, ["blinds is (50,)", "two positive numbers"]),
    ("hunl_pot", {"blinds": (float("nan"), 100)}, ["blinds is (nan, 100)", "two positive numbers"]),
    ("hunl_pot", {"stack": 100}, ["stack is 100", "more than the big blind", "500"]),
    ("hunl_pot", {"stack": -1}, ["stack is -1", "more than the big blind"]),
    ("hunl_pot", {"stack": 50_001}, ["stack is 50001", "500"]),
    ("hunl_pot", {"stack": float("inf")}, ["stack is inf", "a finite number"]),
    ("hunl_pot", {"stack": None}, ["stack is None", "a finite number"]),
    ("hunl_pot", {"flop_cards": 3}, ["'flop_cards'", "ranks, suits, stack, blinds"]),
    ("fhp", {"stack": 1_000}, ["'stack'", "ranks, suits, flop_cards, bet, max_raises, may_open_with_call, blinds"]),
]


@pytest.mark.parametrize(("name", "parameters", "told"), WRONG)
def test_impossible_games_are_explained_in_one_sentence(name, parameters, told):
    with pytest.raises(ReproError) as error:
        load(name, **parameters)
    message = str(error.value)
    assert message.startswith(f"game {name}")
    for part in told:
        assert part in message
    assert message.endswith(".")
    assert "\n" not in message
    assert ". " not in message
