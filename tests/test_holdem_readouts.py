"""Read-outs of Deep CFR and SD-CFR on Hold'em: averages, the average network, and what they are measured by."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from repro.algorithms.deep_cfr import DeepCFR
from repro.common.seeding import generator
from repro.config import ReadoutConfig, RegressionConfig
from repro.engine.holdem_form import HoldemForm
from repro.engine.sampling import SamplingEngine
from repro.evaluation import expected_value, nash_conv
from repro.evaluation.averages import BoardRows
from repro.evaluation.base import Subject
from repro.evaluation.exploitability import exact_engine
from repro.evaluation.head_to_head import play_match
from repro.evaluation.measures import Disagreement, Exploitability, Match
from repro.games import load
from repro.networks.holdem_features import HoldemFeatures
from repro.policies import TabularPolicy, random_policy
from repro.policies.ensemble import NetworkSampling, reservoir_members
from repro.policies.network import NetworkPolicy, as_they_are
from tests.helpers.draws import seeded
from tests.helpers.holdem import advantages, average_strategy, every, opening_rows, small_game, tables, trained
from tests.helpers.policies import ensemble_of
from tests.helpers.training import average_policy_of, config_of_model, metrics_of, readouts_of, seats_of


@pytest.fixture(scope="module")
def finished() -> DeepCFR:
    """After six iterations, evaluated on all boards. Tests must not change it."""
    return trained(small_game())


def sampling(model: DeepCFR, player: int, capacity: int | None = None) -> NetworkSampling:
    ensemble = seats_of(model, ReadoutConfig("ensemble", capacity))[player]
    assert isinstance(ensemble, NetworkSampling)
    return ensemble


def average_by_hand(model: DeepCFR, player: int, members: list[int] | None = None) -> Tensor:
    """Eq. 5 over the listed infosets of a player: weights t, each strategy's own reach."""
    game, found = model.game, []
    mine = game.player_slice[player]
    for i, strategy in enumerate(tables(model, player)):
        if members is None or i in members:
            table = game.uniform.clone()
            table[mine] = strategy
            found.append((i + 1.0, exact_engine(game).own_reach(table)[mine], strategy))
    return average_strategy(game.uniform[mine], found)


# -- strategies --------------------------------------------------------------------------------------------------------


def test_sd_cfr_is_equation_5(finished):
    game = finished.game
    average = [average_by_hand(finished, p) for p in range(2)]
    for player in range(2):
        ours = average_policy_of(finished).table[game.player_slice[player]]
        torch.testing.assert_close(ours, average[player], rtol=0, atol=1e-5)
        # An average of strategies without their reaches, or of equal weights, is another.
        plain = torch.stack(tables(finished, player)).mean(0)
        assert float((ours - plain).abs().max()) > 0.05
    table = torch.cat(average)
    measured = metrics_of(finished)["sd_cfr"]
    assert measured["nash_conv"] == pytest.approx(nash_conv(game, TabularPolicy(table)), rel=1e-5)
    # Hold'em is quoted in thousandths of the big blind of 100 chips, summed over the players.
    assert measured["exploitability"] == pytest.approx(1000 * measured["nash_conv"] / 100)


def test_capped_ensembles_average_what_a_reservoir_holds(finished):
    game, parts = finished.game, []
    for player in range(2):
        members = reservoir_members(6, 2, finished.seed, player)
        assert len(members) == 2
        parts.append(average_by_hand(finished, player, members))
        mine = game.player_slice[player]
        torch.testing.assert_close(average_policy_of(finished, 2).table[mine], parts[-1], rtol=0, atol=1e-6)
        capped = sampling(finished, player, 2)
        assert list(capped.members) == members
        assert capped.weight.tolist() == [m + 1.0 for m in members]
        for i, member in enumerate(members):
            strategy = capped.strategy(i, every(game)[mine]).double()
            # Of advantages, to which torch and our own step round otherwise; their sum divides the error they make.
            error = (strategy - tables(finished, player)[member]).abs().amax(1)
            positive = (advantages(finished, player)[member] * game.legal_at(every(game)[mine])).clamp(min=0).sum(1)
            positive[opening_rows(game, player)] = 1.0
            assert float((error * positive).max()) <= 1e-6
            assert not error[positive == 0].any(), "the highest alone is played"
        assert sampling(finished, player).weight.tolist() == [1, 2, 3, 4, 5, 6]
    for enough in (6, 100):
        assert torch.equal(average_policy_of(finished, enough).table, average_policy_of(finished).table)
    measured = metrics_of(finished)["sd_cfr_2"]["nash_conv"]
    assert measured == pytest.approx(nash_conv(game, TabularPolicy(torch.cat(parts))), rel=1e-5)
    assert measured != metrics_of(finished)["sd_cfr"]["nash_conv"]


def deep_cfr_seats(model: DeepCFR) -> list[NetworkPolicy]:
    return [
        NetworkPolicy(network, HoldemFeatures(model.game).rows, as_they_are, opening.average(), mine.start)
        for network, opening, mine in zip(
            model.average_networks, model.strategies.openings, model.game.player_slice, strict=True
        )
    ]


def test_deep_cfr_is_the_network_behind_the_summed_opening(finished):
    game, parts = finished.game, []
    for player, network in enumerate(finished.average_networks):
        mine = game.player_slice[player]
        with torch.no_grad():
            table = network(*HoldemFeatures(game).rows(every(game)[mine])).double()
        sums = finished.strategies.openings[player].sums
        assert bool((sums.sum(1) > 0).all()), "all hands were dealt"
        table[opening_rows(game, player)] = sums / sums.sum(1, keepdim=True)
        parts.append(table / table.sum(1, keepdim=True))
        ours = deep_cfr_seats(finished)[player].probabilities(every(game)[mine]).double()
        torch.testing.assert_close(ours, table, rtol=0, atol=1e-6)
    measured = metrics_of(finished)["deep_cfr"]["nash_conv"]
    assert measured == pytest.approx(nash_conv(game, TabularPolicy(torch.cat(parts))), rel=1e-5)


def test_the_average_network_is_trained_on_what_was_played():
    """It approaches the iteration-weighted mean of the strategies in memory."""
    regression = RegressionConfig(steps=500, batch_size=256, learning_rate=5e-3, start="random")
    model = trained(small_game(), 3, average=regression, traversals=2000, strategy_capacity=50_000, snapshot_every=3)
    game = model.game
    for player, seat in enumerate(deep_cfr_seats(model)):
        state, mine = model.strategy_memories[player].state_dict(), game.player_slice[player]
        rows, weight = state["infoset"].long(), state["iteration"].double()
        count = mine.stop - mine.start
        total = torch.zeros(count, dtype=torch.float64).index_add_(0, rows, weight)
        target = state["target"].t().double() * weight[:, None]
        mean = torch.zeros(count, 3, dtype=torch.float64).index_add_(0, rows, target) / total.clamp(min=1)[:, None]
        found = seat.probabilities(every(game)[mine]).double()

        def distance(table: Tensor, mean: Tensor = mean, total: Tensor = total) -> float:
            return float(((table - mean).abs().sum(1) * total).sum() / total.sum())

        assert distance(found) < 0.5 * distance(game.uniform[mine])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("fhp_limit", {"ranks": 4, "suits": 2}), ("fhp5", {"ranks": 5, "suits": 2})],
)
def test_other_games_of_one_board(name, parameters):
    game = load(name, **parameters)
    model = trained(game, 2)
    expected = nash_conv(game, TabularPolicy(torch.cat([average_by_hand(model, p) for p in range(2)])))
    assert metrics_of(model)["sd_cfr"]["nash_conv"] == pytest.approx(expected, rel=1e-5)


def test_a_game_of_several_boards_is_measured_by_matches_alone():
    game = load("hunl_pot", ranks=3, suits=3, stack=700.0)
    model = trained(game, 2)
    found = metrics_of(model, Match(opponents={"deep_cfr": "/deep_cfr"}, hands=100), Disagreement(rollouts=100))
    assert found["sd_cfr"]["match/deep_cfr/standard_error"] > 0
    assert "disagreement/0/mean" in found["sd_cfr"]
    assert found["deep_cfr"]["loss/policy"] > 0


# -- hands -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seat", [0, 1])
def test_hands_of_the_ensemble_win_what_its_average_does(finished, seat):
    game, hands = finished.game, 200_000
    opponent = random_policy(game, seeded(5))
    seats: list[Any] = [opponent, opponent]
    seats[seat] = sampling(finished, seat)
    won = SamplingEngine(game).play(seats, hands, seeded(seat)).double()
    table = opponent.table.clone()
    table[game.player_slice[seat]] = average_by_hand(finished, seat)
    exact = expected_value(game, TabularPolicy(table))[0]
    error = float(won.std()) / hands**0.5
    assert float(won.mean()) == pytest.approx(exact, abs=4 * error)
    # The test must be able to tell the average from single strategies.
    single = []
    for strategy in tables(finished, seat):
        table[game.player_slice[seat]] = strategy
        single.append(abs(expected_value(game, TabularPolicy(table))[0] - exact))
    assert max(single) > 20 * error


@pytest.mark.parametrize("seat", [0, 1])
def test_hands_are_those_of_trajectory_sampling_on_tables(finished, seat):
    game, hands = finished.game, 20_000
    members = []
    for strategy in tables(finished, seat):
        table = game.uniform.clone()
        table[game.player_slice[seat]] = strategy
        members.append(table)
    opponent = random_policy(game, seeded(5))
    won = []
    for ensemble in (sampling(finished, seat), ensemble_of(game, members)):
        seats: list[Any] = [opponent, opponent]
        seats[seat] = ensemble
        won.append(SamplingEngine(game).play(seats, hands, seeded(6)))
    # A probability that is rounded otherwise may turn a draw.
    assert float((won[0] != won[1]).double().mean()) < 1e-3


def test_read_outs_of_one_training_play_each_other(finished):
    game = finished.game
    ensembles = [sampling(finished, p) for p in range(2)]
    match = play_match(game, ensembles, deep_cfr_seats(finished), 200, generator(0, "match", 6))
    asked_for = Match(readouts=["sd_cfr"], opponents={"other": "/deep_cfr"}, hands=200)
    measured = metrics_of(finished, asked_for)
    # Thousandths of the big blind of 100 chips.
    assert measured["sd_cfr"]["match/other/value"] == pytest.approx(10 * match.mean, rel=1e-6)
    assert measured["sd_cfr"]["match/other/standard_error"] == pytest.approx(10 * match.standard_error, rel=1e-6)
    assert not any(k.startswith("match") for k in measured["deep_cfr"])


def test_read_outs_agree_where_both_have_a_table():
    model = trained(small_game(), 2)
    found = metrics_of(model, Disagreement(rollouts=300))["sd_cfr"]
    # Player 0 opens all of her hands, after which player 1 acts unless they fold.
    assert found["disagreement/0/decisions"] == 300
    assert 0 < found["disagreement/1/decisions"] < 300
    assert found["disagreement/0/mean"] < 0.2, "both read-outs have a table there, of the same traversals"


# -- on a sample of boards ---------------------------------------------------------------------------------------------


def form_of(model: DeepCFR, boards: int) -> HoldemForm:
    """The boards that a training's evaluation draws."""
    measure = Exploitability(boards=boards)
    config = config_of_model(model)
    measure.measure(Subject(model.game, model.seed, model.snapshot(), readouts_of(model.game, config)))
    assert isinstance(measure._rows, BoardRows)
    return measure._rows.form


def test_a_sample_of_boards_measures_the_same_strategies(finished):
    game, form = finished.game, form_of(finished, 15)
    assert form.sample.size == 15
    assert form.rows < game.infosets
    found = metrics_of(finished, Exploitability(boards=15))
    for name, capacity in (("sd_cfr", None), ("sd_cfr_2", 2)):
        members = [None if capacity is None else reservoir_members(6, capacity, 0, p) for p in range(2)]
        table = torch.cat([average_by_hand(finished, p, members[p]) for p in range(2)])[form.infosets]
        expected = HoldemForm(game, form.sample).best_response_values(table)
        measured = found[name]
        assert measured["nash_conv"] == pytest.approx(float(expected.sum()), rel=1e-5)
        assert measured["exploitability"] == pytest.approx(10 * measured["nash_conv"])
        assert 0 < measured["nash_conv_standard_error"] < measured["nash_conv"]
    assert "nash_conv_standard_error" not in metrics_of(finished)["sd_cfr"]


def test_boards_depend_on_the_seed_alone():
    def boards(seed: int, **changes: Any) -> Tensor:
        return form_of(trained(small_game(), 1, seed, **changes), 15).infosets

    assert torch.equal(boards(0), boards(0, traversals=200))
    assert not torch.equal(boards(0), boards(1))


def test_the_estimate_and_its_error_are_of_the_exact_value(finished):
    exact = metrics_of(finished)["sd_cfr"]["nash_conv"]
    measured = metrics_of(finished, Exploitability(boards=3000))["sd_cfr"]
    assert measured["nash_conv_standard_error"] < 0.1 * exact
    assert abs(measured["nash_conv"] - exact) < 4 * measured["nash_conv_standard_error"]
