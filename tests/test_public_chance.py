"""Public chance sampling against explicit deals, and in Deep CFR."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch

from repro.common.errors import ReproError
from repro.engine import public_chance
from repro.engine.holdem_form import all_boards
from repro.engine.public_chance import PublicChanceSampling
from repro.plans.planning import plan
from repro.policies import TabularPolicy
from repro.policies.network import opening_infosets
from tests.helpers.draws import random_table, seeded
from tests.helpers.holdem import holdem_model, small_game
from tests.helpers.reference_holdem import Explicit, game_of
from tests.helpers.training import straight_and_resumed


@pytest.fixture
def on_all_boards(monkeypatch):
    """Of every board that there is, each as likely as it is."""
    monkeypatch.setattr(public_chance, "sample_boards", lambda game, *_: all_boards(game))


def assert_as_often_as(infosets, frequency, traversals):
    """Each is there as often as expected, to a rest that is drawn."""
    counts = np.bincount(infosets, minlength=len(frequency))
    assert abs(counts - traversals * frequency).max() < 1 + 1e-6
    assert counts.sum() == pytest.approx(traversals * frequency.sum(), abs=1)


@pytest.mark.usefixtures("on_all_boards")
@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize("key", ["fhp", "limit", "three_suits", "fhp5"])
def test_samples_are_exact_and_as_frequent_as_external_samplings_in_the_mean(key, traverser):
    game, traversals, opponent = game_of(key), 3_000, 1 - traverser
    explicit, table = Explicit(game), random_table(game, 5)
    strategy, legal = explicit.strategy(table), game.legal_at(torch.arange(game.infosets)).numpy()
    found = PublicChanceSampling(game).traverse(TabularPolicy(table), traverser, traversals, 1, seeded(1))
    exact = explicit.sweep(strategy, traverser)
    q, met = (explicit.in_rows(values)[0] for values in (exact.q, exact.met))
    regrets = (q - (table.numpy() * q).sum(1, keepdims=True)) * legal
    assert float(found.values) == pytest.approx(exact.value)

    opening, infosets = opening_infosets(game, traverser), found.advantages.infosets.numpy()
    first = game.player_slice[traverser].start
    assert infosets[:opening].tolist() == list(range(first, first + opening))
    targets = found.advantages.targets.numpy()
    np.testing.assert_allclose(targets[:opening], traversals * regrets[infosets[:opening]], rtol=1e-5, atol=1e-3)
    drawn = infosets[opening:]
    np.testing.assert_allclose(targets[opening:], regrets[drawn] / met[drawn, None], rtol=1e-4, atol=1e-5)
    values = (table.numpy() * q).sum(1)[drawn] / met[drawn]
    np.testing.assert_allclose(found.state_values[opening:], values, rtol=1e-4, atol=1e-5)
    met[first : first + opening] = 0
    assert_as_often_as(drawn, met, traversals)

    opening, infosets = opening_infosets(game, opponent), found.opponent_strategies.infosets.numpy()
    first, ones = game.player_slice[opponent].start, explicit.strategy(torch.ones_like(table))
    dealt = explicit.in_rows(explicit.sweep(ones, opponent).met)[0]
    played = dealt * explicit.in_rows(explicit.sweep(strategy, opponent).reach, own=True)[0]
    sums = traversals * (played[:, None] * table.numpy())[infosets[:opening]]
    np.testing.assert_allclose(found.opponent_strategies.targets[:opening], sums, rtol=1e-5, atol=1e-4)
    drawn = infosets[opening:]
    assert torch.equal(found.opponent_strategies.targets[opening:], table[drawn].float())
    played[first : first + opening] = 0
    assert_as_often_as(drawn, played, traversals)


def test_boards_are_drawn_without_bias():
    game, parts, traversals = small_game(), 40, 1_000
    table = random_table(game, 5)
    exact = Explicit(game).sweep(Explicit(game).strategy(table), 0)
    boards = parts * public_chance._AT_ONCE
    found = PublicChanceSampling(game).traverse(TabularPolicy(table), 0, parts * traversals, boards, seeded(2))
    assert found.values.shape == (parts,)
    assert abs(float(found.values.mean()) - exact.value) < 5 * float(found.values.std()) / sqrt(parts)
    opening = opening_infosets(game, 0)
    q = Explicit(game).in_rows(exact.q)[0][:opening]
    regrets = (q - (table[:opening].numpy() * q).sum(1, keepdims=True)) * game.legal_at(torch.arange(opening)).numpy()
    of_part = torch.stack([
        found.advantages.targets[(found.advantages.infosets == i).nonzero().flatten()] for i in range(opening)
    ]).double().numpy() / traversals  # fmt: skip
    assert of_part.shape == (opening, parts, game.num_actions)
    error = of_part.std(1) / sqrt(parts)
    assert (abs(of_part.mean(1) - regrets) <= 5 * error + 1e-6).all()
    assert (error > 0).any()


@pytest.mark.usefixtures("on_all_boards")
def test_histories_are_those_of_all_hands_that_boards_leave():
    """Of a deck in which no two boards are the same but for suits."""
    game = game_of("one_suit")
    found = PublicChanceSampling(game).traverse(TabularPolicy(game.uniform), 0, 10, 1, seeded(0))
    assert found.nodes_touched == Explicit(game).histories()


@pytest.mark.usefixtures("on_all_boards")
def test_deep_cfr_learns_from_them():
    game = small_game()
    model = holdem_model(game, boards=1, traversals=400, divide_by_legal=False, value_capacity=4_000)
    model.step()
    explicit = Explicit(game)
    q, met = (
        explicit.in_rows(values)[0]
        for exact in [explicit.sweep(explicit.uniform(), 0)]
        for values in (exact.q, exact.met)
    )
    legal = game.legal_at(torch.arange(game.infosets)).numpy()
    regrets = (q - (game.uniform.numpy() * q).sum(1, keepdims=True)) * legal / 100.0
    opening = opening_infosets(game, 0)
    np.testing.assert_allclose(model.strategies.openings[0].regrets, 400 * regrets[:opening], rtol=1e-5, atol=1e-4)
    memory = model.value_memories[0].state_dict()
    infosets = memory["infoset"].numpy()
    assert len(infosets) > 200
    assert infosets.min() >= opening
    expected = (regrets / np.maximum(met, 1e-12)[:, None])[infosets]
    np.testing.assert_allclose(memory["target"].t(), expected, rtol=1e-4, atol=1e-5)


def test_resuming_equals_never_stopping(tmp_path):
    straight, resumed = straight_and_resumed(lambda: holdem_model(small_game(), boards=20), 3, 2, tmp_path)
    for a, b in zip(straight.value_networks.parameters(), resumed.value_networks.parameters(), strict=True):
        assert torch.equal(a, b)
    assert straight.nodes_touched == resumed.nodes_touched


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ("game=leduc", "algorithm.boards is 5; the game leduc has no boards, or several: leave it out."),
        ("game=hunl_pot", "algorithm.boards is 5; the game hunl_pot has no boards, or several: leave it out."),
        (
            "game=fhp algorithm.opening=network",
            "algorithm.boards is 5, which takes a table for the first betting round",
        ),
        ("game=fhp algorithm.passed_up=maximum", "samples of boards are of mean only"),
        ("game=fhp algorithm=d2cfr", "algorithm.boards is 5; the algorithm d2cfr, which learns state values"),
        ("game=fhp algorithm.boards=0", "algorithm.boards is 0"),
    ],
)
def test_bad_configuration_is_refused(overrides, sentence):
    with pytest.raises(ReproError) as caught:
        plan(["algorithm=deep_cfr", "algorithm.boards=5", *overrides.split()], multirun=False)
    assert sentence in str(caught.value)
