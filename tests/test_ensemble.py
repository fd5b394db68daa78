"""B^M: which members it keeps, its explicit average and its average by sampling."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from repro.config import ReadoutConfig
from repro.engine.sampling import SamplingEngine
from repro.evaluation import expected_value
from repro.evaluation.averages import tabulated
from repro.evaluation.exploitability import exact_engine
from repro.games import Game, load
from repro.games.betting import CALL, FOLD, RAISE
from repro.policies import TabularPolicy, deterministic_policy, random_policy
from repro.policies.ensemble import BM, AsCollected, reservoir_members
from tests.helpers.deep_cfr import small_model
from tests.helpers.draws import seeded
from tests.helpers.policies import average_of, ensemble_of, strategies_that_differ
from tests.helpers.training import advanced, config_of_model


def with_part(game: Game, table: Tensor, player: int, part: Tensor) -> TabularPolicy:
    """`table` with `player`'s rows replaced."""
    changed = table.clone()
    changed[game.player_slice[player]] = part
    return TabularPolicy(changed)


# -- which members a capped B^M keeps --------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "capacity"), [(0, 3), (1, 3), (3, 3), (4, 3), (50, 3), (50, 1)])
def test_members_are_distinct_positions_and_at_most_the_capacity(count, capacity):
    members = reservoir_members(count, capacity, seed=1, player=0)
    assert len(members) == min(count, capacity)
    assert members == sorted(set(members))
    assert set(members) <= set(range(count))


@pytest.mark.parametrize("capacity", [1, 5])
def test_a_longer_run_replays_the_draws_of_a_shorter_one(capacity):
    replaced = 0
    for count in range(60):
        before = set(reservoir_members(count, capacity, seed=3, player=1))
        after = set(reservoir_members(count + 1, capacity, seed=3, player=1))
        # The new iteration takes a free place, or another's place, or is dropped.
        assert after - before <= {count}
        replaced += after != before
    assert capacity < replaced < 60


def test_members_depend_on_seed_and_player_alone():
    assert reservoir_members(100, 5, 0, 0) == reservoir_members(100, 5, 0, 0)
    assert len({tuple(reservoir_members(100, 5, seed, player)) for seed in range(3) for player in range(2)}) == 6


def test_every_iteration_is_kept_with_the_same_probability():
    count, capacity, seeds = 40, 8, 3000
    kept = torch.zeros(count)
    for seed in range(seeds):
        kept[reservoir_members(count, capacity, seed, 0)] += 1
    share = capacity / count
    variance = seeds * share * (1 - share) * count / (count - 1)
    statistic = float(((kept - seeds * share) ** 2).sum() / variance)
    assert statistic < (count - 1) + 5 * math.sqrt(2 * (count - 1))


# -- the explicit average --------------------------------------------------------------------------------------------


def own_reach_by_hand(game: Game, table: Tensor, infoset: int) -> float:
    """Product of the owner's own probabilities on the way to an infoset of a game without board cards."""
    tree, player = game.tree, int(game.infoset_player[infoset])
    node, reach = int(game.infoset_node[infoset]), 1.0
    while (before := int(tree.parent[node])) >= 0:
        if int(tree.player[before]) == player:
            action = tree.child[before].tolist().index(node)
            at = int(game.infoset(torch.tensor(before), torch.tensor(0), game.infoset_hand[infoset]))
            reach *= float(table[at, action])
        node = before
    return reach


@pytest.mark.parametrize("ranks", [3, 5])
@pytest.mark.parametrize("members", [None, [0], [1, 2, 6], [5]])
def test_average_equals_equation_5_by_hand(ranks, members):
    game = load("kuhn", ranks=ranks)
    tables = [random_policy(game, seeded(i)).table for i in range(7)]
    chosen = range(7) if members is None else members
    for player, mine in enumerate(game.player_slice):
        average = average_of(game, tables, player, members)
        assert average.shape == (mine.stop - mine.start, game.num_actions)
        assert average.dtype == torch.float64
        reaches = []
        for infoset in range(mine.start, mine.stop):
            # The network trained in iteration t counts t times; the first has t = 1.
            weights = [(i + 1) * own_reach_by_hand(game, tables[i], infoset) for i in chosen]
            reaches.append(weights[0])
            for action in range(game.num_actions):
                products = (w * float(tables[i][infoset, action]) for w, i in zip(weights, chosen, strict=True))
                expected = sum(products) / sum(weights)
                assert float(average[infoset - mine.start, action]) == pytest.approx(expected, abs=1e-6)
        # Only player 0 acts twice in a hand of Kuhn, so only then has reach been put to a test.
        assert (len(set(reaches)) > 1) == (player == 0)


def test_infosets_that_no_member_reaches_are_uniform():
    game = load("leduc")
    table = torch.nn.functional.one_hot(torch.full((game.infosets,), CALL), game.num_actions).double()
    for player, mine in enumerate(game.player_slice):
        average = average_of(game, [table, table], player)
        reached = []
        for infoset in range(mine.start, mine.stop):
            # Whoever always calls never meets what follows an own raise.
            tree, node, has_raised = game.tree, int(game.infoset_node[infoset]), False
            while (before := int(tree.parent[node])) >= 0:
                has_raised |= int(tree.player[before]) == player and int(tree.child[before, RAISE]) == node
                node = before
            reached.append(not has_raised)
            expected = game.uniform[infoset] if has_raised else table[infoset]
            torch.testing.assert_close(average[infoset - mine.start], expected)
        assert 0 < sum(reached) < len(reached)


def test_a_member_that_does_not_reach_an_infoset_has_no_say_there():
    game = load("kuhn")
    bets = torch.nn.functional.one_hot(torch.full((game.infosets,), RAISE), game.num_actions).double()
    bets = torch.where(game.legal[:, RAISE, None], bets, torch.tensor([1.0, 0.0, 0.0]).double())
    mixes = random_policy(game, seeded(0)).table
    mine = game.player_slice[0]
    second_decision = game.legal[mine, FOLD]
    assert int(second_decision.sum()) == 3
    average = average_of(game, [mixes, bets], 0)
    # After a check and a bet only `mixes` is left; at the start `bets` counts twice as much.
    torch.testing.assert_close(average[second_decision], mixes[mine][second_decision], rtol=1e-6, atol=1e-6)
    start = (mixes[mine] + 2 * bets[mine])[~second_decision] / 3
    torch.testing.assert_close(average[~second_decision], start, rtol=1e-6, atol=1e-6)


# -- the average by sampling -----------------------------------------------------------------------------------------

HANDS = 400_000


@pytest.mark.parametrize("members", [None, [1, 3, 4]])
@pytest.mark.parametrize("player", [0, 1])
def test_sampling_one_strategy_per_hand_plays_the_average(player, members):
    game = load("leduc")
    tables = strategies_that_differ(game)
    mine = game.player_slice[player]
    # An opponent against whom the wrong averages below are worth something else.
    opponent = random_policy(game, seeded(70 + player))
    average = average_of(game, tables, player, members)
    exact = expected_value(game, with_part(game, opponent.table, player, average))[0]

    policies = [opponent, opponent]
    policies[player] = ensemble_of(game, tables, members)  # type: ignore[call-overload]
    result = SamplingEngine(game).play(policies, HANDS, seeded(7)).double()
    error = float(result.std()) / math.sqrt(HANDS)
    assert abs(float(result.mean()) - exact) < 4 * error

    # The test would notice members that count alike, and strategies drawn anew at every decision (no reach weights).
    chosen = list(range(6)) if members is None else members
    weights = torch.tensor([i + 1.0 for i in chosen], dtype=torch.float64)
    parts = torch.stack([tables[i][mine] for i in chosen])
    reach = torch.stack([exact_engine(game).own_reach(tables[i])[mine] for i in chosen])
    alike = (reach[..., None] * parts).sum(0) / reach.sum(0)[:, None].clamp(min=1e-300)
    alike = torch.where(reach.sum(0)[:, None] > 0, alike, game.uniform[mine])
    anew = torch.einsum("m,mia->ia", weights, parts) / weights.sum()
    for wrong in (alike, anew):
        value = expected_value(game, with_part(game, opponent.table, player, wrong))[0]
        assert abs(value - exact) > 8 * error


def test_a_hand_keeps_to_its_strategy():
    game = load("leduc")
    tables = [deterministic_policy(game, seeded(i)).table for i in range(5)]
    hands, mine = 2000, game.player_slice[1]
    strategies = ensemble_of(game, tables).per_hand(hands, seeded(0))
    hand = torch.arange(hands)
    everything = torch.stack([strategies(torch.full((hands,), i), hand) for i in range(mine.start, mine.stop)], 1)
    parts = torch.stack([table[mine] for table in tables]).float()
    matches = (everything[:, None] == parts).all(3).all(2)
    assert bool((matches.sum(1) == 1).all())
    # Iteration t is drawn with probability t / (1 + ... + 5).
    share = matches.double().mean(0)
    expected = torch.arange(1, 6) / 15.0
    assert bool(((share - expected).abs() < 4 * (expected * (1 - expected) / hands).sqrt()).all())


# -- as B^s collects -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [1, 5])
def test_as_collected_is_what_b_s_was_told(iterations):
    """The collected strategies' mean at an infoset, linearly weighted, tends to this average, and not to B^M's."""
    game = load("leduc")
    model = advanced(small_model(game, memory="aggregated", traversals=10_000, iterations=iterations), iterations)
    config, apart = config_of_model(model), {}
    for name, kind in (("as_collected", AsCollected), ("sd_cfr", BM)):
        table = tabulated(game, kind(game, config, ReadoutConfig("ensemble")).seats(model.snapshot())).table
        for player, memory in enumerate(model.strategy_memories):
            told = memory.state_dict()
            weight, part = told["weight"], game.player_slice[player]
            difference = (told["sum"] / weight.clamp(min=1) - table[part]).abs().sum(1)
            apart[name, player] = float((weight[:, 0] * difference).sum() / weight.sum())
    assert apart["as_collected", 0] == apart["sd_cfr", 0] < 0.01
    assert apart["as_collected", 1] < 0.01
    assert apart["sd_cfr", 1] > 0.1
