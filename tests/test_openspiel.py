"""Games and policies to OpenSpiel and back; values there and here. Each is the other's witness."""

import sys
from typing import Any

import pyspiel
import pytest
import torch
from open_spiel.python import policy as openspiel_policy

from repro.common.errors import ReproError
from repro.evaluation import best_response, expected_value, nash_conv
from repro.games import load
from repro.interop.openspiel import from_openspiel, openspiel_game, to_openspiel
from repro.policies import TabularPolicy, uniform
from tests.helpers.draws import policies_of, random_table

ODD_OPENSPIEL: dict[str, Any] = {"ranks": 4, "suits": 3, "max_raises": 1, "bet_sizes": (1, 5), "ante": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("kuhn", {}),
        ("leduc", {}),
        ("leduc", {"suit_isomorphism": False}),
        # These are not in OpenSpiel under their names, but universal_poker plays them.
        ("kuhn", {"ranks": 5}),
        ("leduc", {"suits": 1, "max_raises": 3, "suit_isomorphism": False}),
        ("leduc", {"ranks": 2, "max_raises": 0}),
    ],
)
def test_values_equal_openspiel(name, parameters):
    game = load(name, **parameters)
    theirs = openspiel_game(game)
    for which, policy in policies_of(game):
        table = to_openspiel(game, policy)
        root = theirs.new_initial_state()
        returns = pyspiel.expected_returns(root, table, -1, True, 0.0)
        assert expected_value(game, policy) == pytest.approx(returns, abs=1e-9), which
        assert nash_conv(game, policy) == pytest.approx(pyspiel.nash_conv(theirs, table), abs=1e-9), which
        for player in range(2):
            value, _ = best_response(game, policy, player)
            their_value = pyspiel.TabularBestResponse(theirs, player, table).value_from_state(root)
            assert value == pytest.approx(their_value, abs=1e-9), which


def test_values_equal_openspiel_with_many_suits():
    game = load("leduc", **ODD_OPENSPIEL)
    policy = TabularPolicy(random_table(game, 3))
    their_value = pyspiel.nash_conv(openspiel_game(game), to_openspiel(game, policy))
    assert nash_conv(game, policy) == pytest.approx(their_value, abs=1e-9)


def test_openspiel_names():
    assert openspiel_game(load("kuhn")).get_type().short_name == "kuhn_poker"
    assert openspiel_game(load("leduc")).get_type().short_name == "leduc_poker"
    assert openspiel_game(load("leduc", ranks=4)).get_type().short_name == "universal_poker"


def test_actions_of_kuhn_in_openspiel():
    game = load("kuhn")
    table = torch.zeros(game.infosets, 3, dtype=torch.float64)
    table[:, 1] = 1
    passive = to_openspiel(game, TabularPolicy(table)).policy_table()
    assert len(passive) == 12
    # Checking is OpenSpiel's pass (0), but calling a bet is its bet (1); "p" and "b" are the actions so far.
    for infoset, row in passive.items():
        assert dict(row) == ({0: 0.0, 1: 1.0} if infoset.endswith("b") else {0: 1.0, 1: 0.0})


@pytest.mark.parametrize(
    ("name", "parameters", "states"),
    [
        ("kuhn", {}, 12),
        ("leduc", {}, 936),
        ("leduc", {"suit_isomorphism": False}, 936),
        ("leduc", {**ODD_OPENSPIEL, "suit_isomorphism": False}, 1632),
        ("kuhn", {"ranks": 2}, 8),
    ],
)
def test_there_and_back(name, parameters, states):
    game = load(name, **parameters)
    table = random_table(game, 5)
    there = to_openspiel(game, TabularPolicy(table))
    assert len(there.policy_table()) == states
    torch.testing.assert_close(from_openspiel(game, there).table, table, rtol=0, atol=1e-15)


def test_from_openspiel_takes_both_kinds_of_policies():
    game = load("leduc")
    theirs = openspiel_game(game)
    for policy in (pyspiel.UniformRandomPolicy(theirs), openspiel_policy.TabularPolicy(theirs)):
        torch.testing.assert_close(from_openspiel(game, policy).table, game.uniform)
    solver = pyspiel.CFRSolver(theirs)
    for _ in range(3):
        solver.evaluate_and_update_policy()
    solved = solver.average_policy()
    ours = nash_conv(game, from_openspiel(game, solved))
    assert ours == pytest.approx(pyspiel.nash_conv(theirs, solved), abs=1e-9)
    assert 0 < ours < 4


def one_sentence(error):
    message = str(error.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert ". " not in message
    return message


def test_from_openspiel_wants_suits_apart():
    by_card = load("leduc", suit_isomorphism=False)
    policy = to_openspiel(by_card, TabularPolicy(random_table(by_card, 0)))
    with pytest.raises(ReproError) as error:
        from_openspiel(load("leduc"), policy)
    assert "suit_isomorphism=False" in one_sentence(error)


@pytest.mark.parametrize("make", [lambda game: to_openspiel(game, uniform(game)),
                                  lambda game: openspiel_policy.TabularPolicy(openspiel_game(game))])  # fmt: skip
def test_from_openspiel_of_another_game(make):
    with pytest.raises(ReproError) as error:
        from_openspiel(load("leduc"), make(load("kuhn")))
    assert "leduc_poker()" in one_sentence(error)


@pytest.mark.parametrize("parameters", [{"ranks": 14}, {"suits": 5}, {"ante": 0.5}, {"bet_sizes": (2, 4.5)}])
def test_openspiel_cannot_play(parameters):
    game = load("leduc", **parameters)
    with pytest.raises(ReproError, match="supported are at most 13 ranks") as error:
        openspiel_game(game)
    key, value = next(iter(parameters.items()))
    assert f"{key}={value}" in str(error.value)


def test_openspiel_without_universal_poker(monkeypatch):
    monkeypatch.setattr(pyspiel, "registered_names", lambda: ["kuhn_poker", "leduc_poker"])
    assert openspiel_game(load("leduc")).get_type().short_name == "leduc_poker"
    with pytest.raises(ReproError) as error:
        openspiel_game(load("leduc", max_raises=3))
    message = one_sentence(error)
    assert "max_raises=3" in message
    assert "max_raises=2" in message


def test_openspiel_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    for call in (lambda: openspiel_game(load("kuhn")), lambda: to_openspiel(load("kuhn"), uniform(load("kuhn")))):
        with pytest.raises(ReproError) as error:
            call()
        assert "pip install open_spiel" in one_sentence(error)
