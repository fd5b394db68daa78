"""Histories of small games: reach, state values, and play-outs, against the exact engine and the sampling engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.engine.histories import Histories
from repro.engine.sampling import SamplingEngine, split_counts
from repro.evaluation import expected_value
from repro.evaluation.exploitability import exact_engine
from repro.games import Game, load
from repro.games.one_card import one_card_each
from repro.policies import TabularPolicy, deterministic_policy, random_policy
from tests.helpers.draws import random_table, seeded

GAMES: dict[str, dict[str, Any]] = {
    "kuhn": {}, "leduc": {}, "leduc_suits": {"suit_isomorphism": False}, "leduc_large": {"ranks": 4, "max_raises": 3},
}  # fmt: skip


def game_of(name: str) -> Game:
    return load(name.split("_", maxsplit=1)[0], **GAMES[name])


@pytest.mark.parametrize("name", GAMES)
def test_deals_are_those_of_the_game(name):
    """Every deal that is drawn is one of the list, about as often as the list says."""
    game = game_of(name)
    histories = Histories(game)
    assert float(histories.probability.sum()) == pytest.approx(1)
    known = torch.cat([histories.deals.cells.flatten(1), histories.deals.sign[:, None].long()], 1)
    assert len(known.unique(dim=0)) == len(known)
    drawn = game.cards.deal(40_000, seeded(0))
    rows = torch.cat([drawn.cells.flatten(1), drawn.sign[:, None].long()], 1)
    every, count = torch.cat([known, rows]).unique(dim=0, return_counts=True)
    assert len(every) == len(known)
    share = (count - 1) / 40_000
    place = {tuple(row): i for i, row in enumerate(known.tolist())}
    expected = histories.probability[[place[tuple(row)] for row in every.tolist()]]
    assert float((share - expected).abs().max()) < 6 * float((expected.max() / 40_000).sqrt())


@pytest.mark.parametrize("name", GAMES)
def test_values_at_the_root_are_the_game_s(name):
    game = game_of(name)
    histories, policy = Histories(game), random_policy(game, seeded(1))
    value = float((histories.values(policy.table)[0] * histories.probability).sum())
    assert value == pytest.approx(expected_value(game, policy)[0], abs=1e-9)


@pytest.mark.parametrize("board_cards", [(0, 1, 1), (0, 0, 1), (1, 1, 1)])
def test_and_so_they_are_whichever_round_has_the_board(board_cards):
    leduc = load("leduc")
    rules = replace(leduc.rules, rounds=(*leduc.rules.rounds, leduc.rules.rounds[-1]))
    game = Game("three rounds", {}, rules, one_card_each(3, 2, board_cards, suit_isomorphism=True), 1.0)
    histories, policy = Histories(game), random_policy(game, seeded(1))
    value = float((histories.values(policy.table)[0] * histories.probability).sum())
    assert value == pytest.approx(expected_value(game, policy)[0], abs=1e-9)


def test_where_hands_are_shown_before_the_last_round_nothing_is_exact():
    """As where both players are all-in; the exact engines have showdowns in the last round alone."""
    for game, stack in ((load("leduc"), 3), (load("fhp", ranks=3, suits=3), 250)):
        assert game.exact is not None
        assert Game(game.name, {}, replace(game.rules, stack=stack), game.cards, 1.0).exact is None


@pytest.mark.parametrize("name", GAMES)
def test_reach_is_the_exact_engine_s(name):
    game = game_of(name)
    histories, strategy = Histories(game), random_table(game, 2)
    reach, expected = histories.reach(strategy), exact_engine(game).own_reach(strategy)
    for node in (game.tree.player >= 0).nonzero().flatten().tolist():
        player = int(game.tree.player[node])
        torch.testing.assert_close(reach[player, node], expected[histories.infoset[node]], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", GAMES)
def test_state_values_are_those_of_playing_from_the_start(name):
    """Of hands in which the infoset comes up, the mean of what its player wins from there on, whoever put it there."""
    game = game_of(name)
    histories, strategy = Histories(game), random_table(game, 3)
    exact = histories.state_values(strategy)
    deals = game.cards.deal(30_000, seeded(4))
    traversals = SamplingEngine(game).external_sampling(random_policy(game, seeded(3)), 0, 30_000, seeded(4))
    infosets, values = traversals.advantages.infosets, traversals.state_values.double()
    count = torch.zeros(game.infosets, dtype=torch.float64).index_add_(0, infosets, torch.ones_like(values))
    mean = torch.zeros_like(count).index_add_(0, infosets, values) / count
    spread = (torch.zeros_like(count).index_add_(0, infosets, values**2) / count - mean**2).clamp(min=0)
    often = (count > 200) & (spread > 0)
    assert int(often.sum()) > game.infosets / 8
    z = (mean - exact)[often] / (spread[often] / count[often]).sqrt()
    assert float(z.abs().max()) < 5
    assert 0.6 < float(z.std()) < 1.4
    assert len(deals) == 30_000


@pytest.mark.parametrize("name", GAMES)
def test_state_values_are_the_exact_engine_s(name):
    """Counterfactual value over the opponent's and the deal's reach of the infoset."""
    game = game_of(name)
    histories, strategy = Histories(game), random_table(game, 5)
    engine = exact_engine(game)
    ones = torch.zeros(game.infosets, dtype=torch.float64)
    reach = histories.reach(strategy)
    for node in (game.tree.player >= 0).nonzero().flatten().tolist():
        opponent = 1 - int(game.tree.player[node])
        ones.index_add_(0, histories.infoset[node], histories.probability * reach[opponent, node])
    counterfactual = engine.action_values(strategy)
    expected = (counterfactual * strategy).sum(1) / ones
    torch.testing.assert_close(histories.state_values(strategy), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_play_outs_are_unbiased_at_every_infoset(name):
    """Within 3 standard errors of the exact value, but for as many infosets as chance explains."""
    game = game_of(name)
    histories, strategy = Histories(game), random_table(game, 6)
    repeats, simulations = 60, 800
    found = torch.stack([histories.played_out(strategy, simulations, seeded(i)) for i in range(repeats)])
    error = found.std(0) / repeats**0.5
    z = (found.mean(0) - histories.state_values(strategy)) / error
    assert bool((error > 0).all())
    assert float(z.abs().max()) < 4.5
    assert int((z.abs() > 3).sum()) <= max(2, game.infosets // 50)
    assert abs(float(z.mean())) < 4 / game.infosets**0.5


def test_more_play_outs_are_closer_by_the_root():
    game = game_of("leduc")
    histories, strategy = Histories(game), random_table(game, 7)
    exact, spread = histories.state_values(strategy), []
    for simulations in (25, 400):
        found = torch.stack([histories.played_out(strategy, simulations, seeded(i)) for i in range(20)])
        spread.append(float((found - exact).square().mean().sqrt()))
    assert spread[0] / spread[1] == pytest.approx(4, rel=0.1)


def test_where_the_opponent_never_gets_to_any_hand_will_do():
    game = game_of("leduc")
    histories, pure = Histories(game), deterministic_policy(game, seeded(0)).table
    exact = histories.state_values(pure)
    assert bool(exact.isfinite().all())
    found = histories.played_out(pure, 2000, seeded(1))
    assert float((found - exact).abs().max()) < 1.5
    assert float(found.abs().max()) <= 13


def test_play_outs_move_hands_together():
    """The sum over hands of a start does not depend on how they are listed, in distribution."""
    game = game_of("leduc")
    engine, policy = SamplingEngine(game), random_policy(game, seeded(8))
    histories = Histories(game)
    node, deal = torch.zeros(1, dtype=torch.int64), torch.tensor([3])
    exact = float(histories.values(policy.table)[0, 3])
    together = torch.stack([
        engine.play_outs(policy, node, deal, histories.deals, torch.tensor([1000.0]), seeded(i)) for i in range(40)
    ]) / 1000  # fmt: skip
    apart = engine.play_outs(
        policy, node.expand(40_000), deal.expand(40_000), histories.deals, torch.ones(40_000), seeded(0)
    ).view(40, 1000).mean(1)  # fmt: skip
    for found in (together.flatten(), apart):
        assert abs(float(found.mean()) - exact) < 4 * float(found.std()) / 40**0.5
    assert float(together.std()) == pytest.approx(float(apart.std()), rel=0.5)


def test_histories_of_play_outs_are_counted_hand_by_hand():
    """In Kuhn poker all check: a hand meets the root, the second decision and the end; from the second, two."""
    game = game_of("kuhn")
    checking = TabularPolicy(torch.nn.functional.one_hot(game.legal.long().argmax(1), game.num_actions).double())
    histories, second = Histories(game), int(game.tree.child[0, int(game.legal[0].long().argmax())])
    node, deal = torch.tensor([0, second]), torch.tensor([3, 1])
    engine = histories.engine
    engine.play_outs(checking, node, deal, histories.deals, torch.tensor([100.0, 7.0]), seeded(0))
    assert float(engine.played_out) == 3 * 100 + 2 * 7
    engine.play_outs(checking, node[:1], deal[:1], histories.deals, torch.tensor([1.0]), seeded(0))
    assert float(engine.played_out) == 3 * 101 + 2 * 7


@settings(deadline=None, derandomize=True, database=None)
@given(st.data())
def test_splits_add_up_and_avoid_what_has_no_weight(data):
    rows = data.draw(st.integers(1, 5))
    weight = st.sampled_from([0.0, 1e-30, 0.1, 1.0, 7.0])
    weights = torch.tensor([[data.draw(weight) for _ in range(3)] for _ in range(rows)], dtype=torch.float64)
    counts = torch.tensor([float(data.draw(st.integers(0, 50))) for _ in range(rows)])
    found = split_counts(counts, weights, seeded(data.draw(st.integers(0, 9))))
    some = (weights > 0).any(1)
    assert torch.equal(found.sum(1)[some], counts.double()[some])
    assert bool((found[~some] == 0).all())
    assert bool((found[weights == 0] == 0).all())
    assert torch.equal(found, found.round())


def test_splits_have_the_multinomial_s_means_and_variances():
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).expand(20_000, 3)
    found = split_counts(torch.full((20_000,), 40.0), weights, seeded(0))
    torch.testing.assert_close(found.mean(0), 40 * weights[0], rtol=0, atol=0.1)
    torch.testing.assert_close(found.var(0), 40 * weights[0] * (1 - weights[0]), rtol=0.05, atol=0)
