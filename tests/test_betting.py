"""Betting of games with one card each: the tree against plain Python, chips by hand, unequal antes."""

import pytest
import torch

from repro.games import GAMES, load
from repro.games.betting import CALL, FOLD, RAISE, SHOWDOWN, BettingRound, BettingRules, compile_tree
from tests.helpers.reference_poker import TINY_GAMES, Reference, betting_of


@pytest.mark.parametrize(("name", "parameters"), TINY_GAMES)
def test_betting_tree_equals_plain_python(name, parameters):
    game, reference = load(name, **parameters), Reference(name, **parameters)
    tree, expected = game.tree, reference.histories()
    betting = betting_of(game)
    assert len(betting) == len(expected)
    assert set(betting) == set(expected)
    number = {history: node for node, history in enumerate(betting)}
    for node, history in enumerate(betting):
        spent = expected[history]
        assert tuple(tree.chips[node].tolist()) == spent
        assert tree.round[node] == history.count("/")
        if reference.finished(history):
            assert not tree.legal[node].any()
            assert tree.player[node] == -1
            assert tree.stake[node] == min(spent)
            folder = (len(history.split("/")[-1]) - 1) % 2
            assert tree.winner[node] == (1 - folder if history.endswith("f") else SHOWDOWN)
            continue
        assert tree.winner[node] == -2
        assert tree.stake[node] == 0
        assert tree.player[node] == len(history.split("/")[-1]) % 2
        options = reference.options(history, spent)
        assert tree.legal[node].tolist() == [a in options for a in "fcr"]
        for column, action in enumerate("fcr"):
            after = number[reference.act(history, spent, action)[0]] if action in options else -1
            assert tree.child[node, column] == after
            assert after < 0 or tree.parent[after] == node
    assert tree.parent[0] == -1


@pytest.mark.parametrize("name", sorted(GAMES))
def test_folding_is_illegal_when_nothing_is_owed(name):
    tree = load(name).tree
    decision = tree.player >= 0
    own = tree.chips.gather(1, tree.player.clamp(min=0)[:, None])[:, 0]
    owed = tree.chips.amax(1) - own
    assert torch.equal(tree.legal[decision, FOLD], owed[decision] > 0)
    no_call = ~tree.legal[:, CALL] & decision
    assert no_call.nonzero().flatten().tolist() == ([0] if name in ("fhp", "fhp5") else [])
    # Nobody owes anything where both begin with the same ante.
    assert bool(tree.legal[0, FOLD]) == (load(name).rules.ante[0] < load(name).rules.ante[1])


def test_chips_by_hand():
    game = load("leduc", bet_sizes=(2, 4), ante=1)
    tree = game.tree
    chips = {history: tuple(c) for history, c in zip(betting_of(game), tree.chips.tolist(), strict=True)}
    assert chips[""] == (1, 1)
    assert chips["r"] == (3, 1)
    assert chips["rr"] == (3, 5)
    assert chips["rrc/"] == (5, 5)
    assert chips["rrc/cr"] == (5, 9)
    assert chips["rrc/crr"] == (13, 9)
    assert chips["rrc/crrc"] == (13, 13)
    assert chips["rrc/crrf"] == (13, 9)
    stake = dict(zip(betting_of(game), tree.stake.tolist(), strict=True))
    assert (stake["rrc/crrc"], stake["rrc/crrf"], stake["rf"]) == (13, 9, 1)


def test_levels_cover_the_decisions_in_order():
    for name in GAMES:
        tree = load(name).tree
        covered: list[int] = []
        for round_, levels in enumerate(tree.levels):
            start, stop = tree.round_slice[round_]
            assert set(tree.round[start:stop].tolist()) == {round_}
            for level in levels:
                assert set(tree.player[level.start : level.stop].tolist()) == {level.player}
                covered += range(level.start, level.stop)
        assert covered == (tree.player >= 0).nonzero().flatten().tolist()


def test_unequal_antes_and_first_players():
    """Blinds, as in hold'em: the small blind owes a chip before anybody has acted."""
    rules = BettingRules((1, 2), (BettingRound(2, 1), BettingRound(4, 1, first_player=1)))
    tree = compile_tree(rules)
    assert tree.legal[0].all()
    assert tree.chips[tree.child[0, RAISE]].tolist() == [4, 2]
    assert tree.stake[tree.child[0, FOLD]] == 1
    assert tree.winner[tree.child[0, FOLD]] == 1
    called = tree.child[0, CALL]
    # The big blind has the option to raise.
    assert tree.legal[called].tolist() == [False, True, True]
    assert tree.chips[called].tolist() == [2, 2]
    second_round = tree.child[called, CALL]
    assert tree.round[second_round] == 1
    assert tree.player[second_round] == 1
