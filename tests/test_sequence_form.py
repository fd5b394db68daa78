"""The exact engine against known numbers, against plain Python over explicit deals, and against identities."""

import gc
import weakref
from fractions import Fraction
from itertools import product

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from repro.engine.sequence_form import SequenceForm
from repro.evaluation import best_response, expected_value, nash_conv
from repro.games import load
from repro.policies import TabularPolicy, deterministic_policy, random_policy, uniform
from tests.helpers.draws import random_table
from tests.helpers.policies import seated
from tests.helpers.reference_poker import TINY, TINY_GAMES, Reference, infosets_of, strategy_of

# -- known numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "anchor"), [("kuhn", Fraction(11, 12)), ("leduc", Fraction(1709, 360))])
@pytest.mark.parametrize("iso", [True, False])
def test_nash_conv_of_uniform(name, anchor, iso):
    game = load(name, suit_isomorphism=iso)
    assert nash_conv(game, uniform(game)) == pytest.approx(float(anchor), abs=1e-12)


def kuhn_family(game, alpha):
    """The equilibria of Kuhn poker [Kuhn 1950]: player 0 has one free parameter in [0, 1/3], player 1 none."""
    bets = {"": (alpha, 0, 3 * alpha), "c": (1 / 3, 0, 1)}
    calls = {"cr": (0, alpha + 1 / 3, 1), "r": (0, 1 / 3, 1)}
    table = torch.zeros(game.infosets, 3, dtype=torch.float64)
    for row, (_, hand, _, history) in zip(table, infosets_of(game), strict=True):
        if history in bets:
            row[2] = bets[history][hand]
        else:
            row[1] = calls[history][hand]
        row[1 if history in bets else 0] = 1 - row.sum()
    return TabularPolicy(table)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1 / 3])
def test_kuhn_equilibria(alpha):
    game = load("kuhn")
    policy = kuhn_family(game, alpha)
    assert expected_value(game, policy) == pytest.approx((-1 / 18, 1 / 18), abs=1e-15)
    assert nash_conv(game, policy) == pytest.approx(0, abs=1e-15)
    spoilt = policy.table.clone()
    spoilt[game.player_slice[0]] = game.uniform[game.player_slice[0]]
    assert nash_conv(game, TabularPolicy(spoilt)) > 0.1


# -- plain Python ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parameters"), TINY_GAMES)
def test_equals_explicit_deals(name, parameters):
    game, reference = load(name, **parameters), Reference(name, **parameters)
    names = list(infosets_of(game))
    assert len(set(names)) == game.infosets
    assert set(names) == reference.infosets()
    table = random_table(game, 11)
    exact = reference.sweep(strategy_of(game, table))
    tree = SequenceForm(game)
    assert tree.expected_values(table).tolist() == pytest.approx([exact.value, -exact.value], abs=1e-12)
    reach, values = tree.own_reach(table).tolist(), tree.action_values(table).tolist()
    for infoset, ours, row in zip(names, reach, values, strict=True):
        assert ours == pytest.approx(exact.own_reach[infoset], abs=1e-12)
        theirs = exact.action_values[infoset]
        assert row == pytest.approx([theirs.get(a, 0.0) for a in "fcr"], abs=1e-12), infoset


@pytest.mark.parametrize("key", ["kuhn_2", "kuhn_4", "three_cards", "no_raises", "two_ranks", "big_leduc"])
def test_best_response_equals_backward_induction(key):
    name, parameters = TINY[key]
    game, reference = load(name, **parameters), Reference(name, **parameters)
    for seed in range(2):
        table = random_table(game, seed)
        both = SequenceForm(game).best_response_values(table).tolist()
        exact = [reference.best_response_value(strategy_of(game, table), player) for player in range(2)]
        assert both == pytest.approx(exact, abs=1e-12)


def test_best_response_equals_best_of_all_pure_strategies():
    game, reference = load("kuhn", ranks=4), Reference("kuhn", ranks=4)
    strategy = strategy_of(game, random_table(game, 4))
    for player, sign in ((0, 1), (1, -1)):
        mine = [i for i in strategy if i[0] == player]
        best = max(
            sign * reference.sweep(strategy | dict(zip(mine, pure, strict=True))).value
            for pure in product(*([{a: float(a == b) for a in strategy[i]} for b in strategy[i]] for i in mine))
        )
        value, _ = best_response(game, TabularPolicy(random_table(game, 4)), player)
        assert value == pytest.approx(best, abs=1e-12)


# -- identities --------------------------------------------------------------------------------------------------------

_chips = st.sampled_from([0.5, 1.0, 2.0, 3.0, 7.0])
leducs = st.fixed_dictionaries(
    {
        "ranks": st.integers(2, 5),
        "suits": st.integers(1, 3),
        "max_raises": st.integers(0, 3),
        "bet_sizes": st.tuples(_chips, _chips),
        "ante": _chips,
    }
)
seeds = st.integers(0, 2**31)
invariant = settings(max_examples=25, deadline=None, derandomize=True, database=None)


def small_leduc(parameters, **more):
    assume(parameters["ranks"] * parameters["suits"] >= 3)
    return load("leduc", **parameters, **more)


def draw_table(game, seed):
    """Random, but some infosets are deterministic: zeros are where products and maxima go wrong."""
    generator = torch.Generator().manual_seed(seed)
    mixed, pure = random_policy(game, generator).table, deterministic_policy(game, generator).table
    return torch.where(torch.rand(game.infosets, 1, generator=generator) < 0.3, pure, mixed)


@invariant
@given(leducs, seeds)
def test_zero_sum_and_best_responses_gain(parameters, seed):
    game = small_leduc(parameters)
    table = draw_table(game, seed)
    tree = SequenceForm(game)
    values, responses = tree.expected_values(table), tree.best_response_values(table)
    assert float(values.sum()) == pytest.approx(0, abs=1e-12)
    assert bool((responses >= values - 1e-12).all())
    assert nash_conv(game, TabularPolicy(table)) >= -1e-12


@pytest.mark.slow
@invariant
@given(leducs, seeds)
def test_best_response_is_what_it_says(parameters, seed):
    game = small_leduc(parameters)
    table = draw_table(game, seed)
    gains = SequenceForm(game).best_response_values(table).tolist()
    for player in range(2):
        value, response = best_response(game, TabularPolicy(table), player)
        assert value == pytest.approx(gains[player], abs=1e-12)
        assert expected_value(game, response)[player] == pytest.approx(value, abs=1e-12)
        opponent = game.player_slice[1 - player]
        torch.testing.assert_close(response.table[opponent], table[opponent], rtol=0, atol=1e-15)
        assert bool((response.table[~game.legal] == 0).all())
        mine = response.table[game.player_slice[player]]
        assert bool(((mine == 0) | (mine == 1)).all() & (mine.sum(1) == 1).all())


@invariant
@given(leducs, seeds)
def test_suit_isomorphism_changes_no_value(parameters, seed):
    collapsed, by_card = small_leduc(parameters), small_leduc(parameters, suit_isomorphism=False)
    table = draw_table(collapsed, seed)
    rows = collapsed.infoset(by_card.infoset_node, by_card.infoset_board, by_card.infoset_hand)
    lifted = table[rows]
    few, many = SequenceForm(collapsed), SequenceForm(by_card)
    torch.testing.assert_close(few.expected_values(table), many.expected_values(lifted), rtol=0, atol=1e-12)
    torch.testing.assert_close(few.best_response_values(table), many.best_response_values(lifted), rtol=0, atol=1e-12)
    torch.testing.assert_close(few.own_reach(table)[rows], many.own_reach(lifted), rtol=0, atol=1e-12)
    summed = torch.zeros_like(table).index_add_(0, rows, many.action_values(lifted))
    torch.testing.assert_close(few.action_values(table), summed, rtol=0, atol=1e-12)


@invariant
@given(leducs, seeds)
def test_permuting_suits_changes_no_value(parameters, seed):
    game = small_leduc(parameters, suit_isomorphism=False)
    assume(parameters["suits"] > 1)
    # Every rank may have its suits permuted in its own way.
    generator = torch.Generator().manual_seed(seed)
    suits = [torch.randperm(game.cards.suits, generator=generator) for _ in range(game.cards.ranks)]
    moved = torch.cat([rank * game.cards.suits + order for rank, order in enumerate(suits)])
    has_board = game.tree.round[game.infoset_node] > 0
    board = torch.where(has_board, moved[game.infoset_board], 0)
    rows = game.infoset(game.infoset_node, board, moved[game.infoset_hand])
    assert sorted(rows.tolist()) == list(range(game.infosets))
    table, tree = draw_table(game, seed), SequenceForm(game)
    torch.testing.assert_close(tree.expected_values(table[rows]), tree.expected_values(table), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        tree.best_response_values(table[rows]), tree.best_response_values(table), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(tree.action_values(table[rows]), tree.action_values(table)[rows], rtol=0, atol=1e-12)


@pytest.mark.slow
@invariant
@given(leducs, st.booleans(), seeds)
def test_own_reach_is_the_product_along_the_path(parameters, iso, seed):
    game = small_leduc(parameters, suit_isomorphism=iso)
    table = draw_table(game, seed)
    tree, rows = game.tree, table.tolist()
    parent, player, round_ = tree.parent.tolist(), tree.player.tolist(), tree.round.tolist()
    where = list(zip(game.infoset_node.tolist(), game.infoset_board.tolist(), game.infoset_hand.tolist(), strict=True))
    number = {place: i for i, place in enumerate(where)}
    for (at, board, hand), reach in zip(where, SequenceForm(game).own_reach(table).tolist(), strict=True):
        expected, node = 1.0, at
        while (before := parent[node]) >= 0:
            if player[before] == player[at]:
                infoset = number[before, board if round_[before] == round_[at] else 0, hand]
                expected *= rows[infoset][tree.child[before].tolist().index(node)]
            node = before
        assert reach == pytest.approx(expected, abs=1e-14)


@invariant
@given(leducs, seeds)
def test_values_of_first_infosets_add_up(parameters, seed):
    """Each player's first decision is reached whatever that player does, so its values sum to the game's."""
    game = small_leduc(parameters)
    table = draw_table(game, seed)
    tree = SequenceForm(game)
    value = (table * tree.action_values(table)).sum(1)
    for player, depth in ((0, 0), (1, 1)):
        level = game.tree.levels[0][depth]
        first = (game.infoset_node >= level.start) & (game.infoset_node < level.stop)
        assert level.player == player
        assert float(value[first].sum()) == pytest.approx(float(tree.expected_values(table)[player]), abs=1e-12)


@invariant
@given(leducs, seeds)
def test_regrets_add_up_to_the_gain_of_any_deviation(parameters, seed):
    """u(sigma') - u(sigma) = sum over infosets of reach'(I) * sum over actions of sigma'(I, a) * regret(I, a)."""
    game = small_leduc(parameters)
    table, other = draw_table(game, seed), draw_table(game, seed + 1)
    tree = SequenceForm(game)
    values = tree.action_values(table)
    regret = (values - (table * values).sum(1, keepdim=True)) * game.legal
    for player in range(2):
        deviation = seated(game, *((other, table) if player == 0 else (table, other)))
        gain = tree.expected_values(deviation)[player] - tree.expected_values(table)[player]
        mine = game.player_slice[player]
        told = tree.own_reach(deviation)[mine] * (deviation * regret).sum(1)[mine]
        assert float(told.sum()) == pytest.approx(float(gain), abs=1e-11)


@invariant
@given(leducs, seeds)
def test_action_values_are_zero_where_illegal_and_ignore_own_play_above(parameters, seed):
    game = small_leduc(parameters)
    table = draw_table(game, seed)
    tree = SequenceForm(game)
    values = tree.action_values(table)
    assert bool((values[~game.legal] == 0).all())
    # What player 0 does at the root weighs nothing in player 0's own counterfactual values below.
    changed = table.clone()
    root = game.infoset_node == 0
    changed[root] = game.uniform[root]
    mine = game.player_slice[0]
    torch.testing.assert_close(tree.action_values(changed)[mine], values[mine], rtol=0, atol=1e-13)


@pytest.mark.slow
def test_an_engine_goes_with_its_game():
    game = load("kuhn")
    nash_conv(game, uniform(game))
    gone = weakref.ref(game)
    del game
    gc.collect()
    assert gone() is None
