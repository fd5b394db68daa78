"""Deep CFR and SD-CFR on Hold'em, on decks so small that every strategy fits a table."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Any

import pytest
import torch
from mlflow import MlflowClient
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from repro import run
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR, OpeningTable
from repro.algorithms.registry import build
from repro.config import Config, NetworkConfig, ReadoutConfig, RegressionConfig
from repro.engine.holdem_form import HoldemForm
from repro.engine.sampling import SamplingEngine, Traversals
from repro.errors import ReproError
from repro.evaluation import expected_value, nash_conv
from repro.evaluation.exploitability import exact_engine
from repro.evaluation.head_to_head import average_policy, play_match
from repro.games import Game, load
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import value_network
from repro.policies import TabularPolicy, random_policy
from repro.policies.base import Policy
from repro.policies.ensemble import StrategyBuffer, TrajectorySampling, average_strategy, reservoir_members
from repro.policies.network import NetworkPolicy, as_they_are, opening_infosets
from repro.policies.regret_matching import regret_matching
from repro.seeding import generator
from repro.tracking.store import READOUT_TAG, default_uri
from tests.small import small_config, trainer

NETWORK = NetworkConfig("deep_cfr", 8, None, 12)
READOUTS = {
    "sd_cfr": ReadoutConfig("ensemble"),
    "deep_cfr": ReadoutConfig("average_network"),
    "sd_cfr_2": ReadoutConfig("ensemble", 2),
}


def small_game(**changes: Any) -> Game:
    return load("fhp", **{"ranks": 4, "suits": 2, **changes})


def holdem_model(game: Game, seed: int = 0, **changes: Any) -> HoldemDeepCFR:
    given = {"traversals": 300, "readouts": dict(READOUTS), "regret_unit": 100.0, **changes}
    return HoldemDeepCFR(game, small_config(**given), NETWORK, seed)


def trained(game: Game, iterations: int = 6, seed: int = 0, **changes: Any) -> HoldemDeepCFR:
    model = holdem_model(game, seed, iterations=iterations, **changes)
    for _ in range(iterations):
        model.training_step(None, 0)
    return model


@pytest.fixture(scope="module")
def finished() -> HoldemDeepCFR:
    """After six iterations, evaluated on all boards. Tests must not change it."""
    return trained(small_game(), match_hands=200, disagreement_rollouts=50)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def every(game: Game) -> Tensor:
    return torch.arange(game.infosets)


def opening_rows(game: Game, player: int) -> Tensor:
    """Bool: which of a player's infosets are before the board."""
    mine = game.player_slice[player]
    return game.tree.round[game.infoset_node[mine]] == 0


def tables(model: HoldemDeepCFR, player: int) -> list[Tensor]:
    """Per iteration `[the player's infosets, actions]` float64, from the stored networks and opening strategies."""
    game = model.game
    mine = game.player_slice[player]
    network = value_network(NETWORK, model.columns, 3)
    early, found = opening_rows(game, player), []
    features, legal = HoldemFeatures(game).rows(every(game)[mine])
    for parameters, opening in zip(model.stored[player], model.opening_strategies[player], strict=True):
        vector_to_parameters(parameters, network.parameters())
        with torch.no_grad():
            table = regret_matching(network(features, legal), legal, model.algorithm.when_no_positive).double()
        table[early] = opening.double()
        found.append(table / table.sum(1, keepdim=True))
    return found


def average_by_hand(model: HoldemDeepCFR, player: int, members: list[int] | None = None) -> Tensor:
    """Eq. 5 over the listed infosets of a player: weights t, each strategy's own reach."""
    game, found = model.game, []
    mine = game.player_slice[player]
    for i, strategy in enumerate(tables(model, player)):
        if members is None or i in members:
            table = game.uniform.clone()
            table[mine] = strategy
            found.append((i + 1.0, exact_engine(game).own_reach(table)[mine], strategy))
    return average_strategy(game.uniform[mine], found)


class Recorded:
    """What the engine gave in every call, and the strategies that it was given."""

    def __init__(self, model: HoldemDeepCFR, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[int, int, Tensor, Traversals]] = []
        original = model.engine.external_sampling

        def spy(policy: Policy, player: int, traversals: int, draw: torch.Generator) -> Traversals:
            assert traversals == model.algorithm.traversals
            found = original(policy, player, traversals, draw)
            strategy = policy.probabilities(every(model.game)).clone()
            self.calls.append((model.iteration, player, strategy, found))
            return found

        monkeypatch.setattr(model.engine, "external_sampling", spy)


# -- the first betting round -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when_no_positive", ["argmax", "uniform"])
def test_opening_table_by_hand(when_no_positive):
    legal = torch.tensor([[True, False, True], [False, True, True], [True, True, True], [True, True, True]])
    table = OpeningTable(legal, when_no_positive)
    uniform = torch.tensor([[0.5, 0, 0.5], [0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3]]).double()
    torch.testing.assert_close(table.strategy(), uniform, rtol=0, atol=1e-7)
    torch.testing.assert_close(table.average(), uniform, rtol=0, atol=1e-7)
    table.regrets += torch.tensor([[1.0, 0, 3], [0, -2, -1], [0, 5, -5], [0, 0, 0]])
    otherwise = [0, 0, 1] if when_no_positive == "argmax" else [0, 0.5, 0.5]
    expected = torch.tensor([[0.25, 0, 0.75], otherwise, [0, 1, 0], [1 / 3, 1 / 3, 1 / 3]]).double()
    torch.testing.assert_close(table.strategy(), expected, rtol=0, atol=1e-7)
    table.sums += torch.tensor([[1.0, 0, 1], [0, 0, 0], [2, 6, 0], [0, 0, 7]])
    expected = torch.tensor([[0.5, 0, 0.5], [0, 0.5, 0.5], [0.25, 0.75, 0], [0, 0, 1]]).double()
    torch.testing.assert_close(table.average(), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("divide_by_legal", [True, False])
def test_opening_tables_sum_what_was_sampled_weighted_by_iteration(monkeypatch, divide_by_legal):
    # Few traversals, so that some hands are never dealt.
    game = load("fhp", ranks=5, suits=2)
    model = holdem_model(
        game, traversals=8, divide_by_legal=divide_by_legal, value=RegressionConfig(2, 1, start="random")
    )
    recorded = Recorded(model, monkeypatch)
    regrets, sums = ([torch.zeros_like(o.regrets) for o in model.openings] for _ in range(2))
    for _ in range(3):
        model.iteration += 1
        model.advance()
    for iteration, player, _, found in recorded.calls:
        for table, owner, samples in (
            (regrets, player, found.advantages),
            (sums, 1 - player, found.strategies),
        ):
            for infoset, target in zip(samples.infosets.tolist(), samples.targets.double(), strict=True):
                if int(game.tree.round[game.infoset_node[infoset]]) == 0:
                    scale = 1.0
                    if table is regrets:
                        scale = 100.0 * (int(game.legal[infoset].sum()) if divide_by_legal else 1)
                    table[owner][infoset - game.player_slice[owner].start] += iteration * target / scale
    assert [c[:2] for c in recorded.calls] == [(t, p) for t in (1, 2, 3) for p in (0, 1)]
    for player, opening in enumerate(model.openings):
        torch.testing.assert_close(opening.regrets, regrets[player], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(opening.sums, sums[player], rtol=1e-5, atol=1e-6)
        unseen = (regrets[player] == 0).all(1)
        assert 0 < int(unseen.sum()) < len(unseen)
        early = game.uniform[game.player_slice[player]][opening_rows(game, player)]
        assert torch.equal(opening.strategy()[unseen], early[unseen])
        assert bool((opening.sums[~early.bool()] == 0).all())
        assert torch.equal(model.opening_strategies[player][-1], opening.strategy())


def test_opening_infosets_are_the_first_of_a_player():
    for game in (small_game(), load("fhp_limit", ranks=4, suits=2)):
        for player in range(2):
            early = opening_rows(game, player)
            count = opening_infosets(game, player)
            assert bool(early[:count].all())
            assert not bool(early[count:].any())


@pytest.mark.parametrize("name", ["fhp", "fhp_limit"])
def test_memories_hold_what_was_sampled_after_the_first_round(monkeypatch, name):
    game = load(name, ranks=4, suits=2)
    model = holdem_model(game, value_capacity=100_000, strategy_capacity=100_000, traversals=150)
    recorded = Recorded(model, monkeypatch)
    for _ in range(3):
        model.iteration += 1
        model.advance()
    expected: dict[tuple[str, int], list[tuple[int, Tensor, Tensor]]] = {}
    for iteration, player, _, found in recorded.calls:
        for which, owner, samples in (("value", player, found.advantages), ("strategy", 1 - player, found.strategies)):
            late = game.tree.round[game.infoset_node[samples.infosets]] > 0
            assert 0 < int(late.sum()) < len(late)
            targets = samples.targets[late]
            if which == "value":
                targets = targets / 100 / game.legal[samples.infosets[late]].sum(1, keepdim=True)
            expected.setdefault((which, owner), []).append((iteration, samples.infosets[late], targets))
    for (which, owner), parts in expected.items():
        memory = {"value": model.value_memories, "strategy": model.strategy_memories}[which][owner]
        state = memory.state_dict()
        assert torch.equal(state["infoset"] + game.player_slice[owner].start, torch.cat([p[1] for p in parts]))
        assert torch.equal(state["iteration"], torch.cat([torch.full((len(p[1]),), p[0]) for p in parts]))
        torch.testing.assert_close(state["target"].t(), torch.cat([p[2] for p in parts]), rtol=1e-5, atol=1e-6)


def test_inputs_of_a_minibatch_are_those_of_its_infosets():
    model = trained(small_game(), 1)
    for player in range(2):
        (batch,) = model.value_memories[player].minibatches(1, 32, 1, 1.0, seeded(0))
        filled = model._with_inputs(batch, player)
        assert filled.inputs is not None
        assert batch.infosets is not None
        expected = HoldemFeatures(model.game).rows(batch.infosets + model.game.player_slice[player].start)
        assert all(torch.equal(a, b) for a, b in zip(filled.inputs, expected, strict=True))
        assert torch.equal(filled.target, batch.target)


# -- iterations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when_no_positive", ["argmax", "uniform"])
def test_each_traversal_meets_the_newest_strategies(monkeypatch, when_no_positive):
    game = small_game()
    model = holdem_model(game, when_no_positive=when_no_positive, evaluate_every=99)
    recorded = Recorded(model, monkeypatch)
    assert torch.equal(model.current_policy().probabilities(every(game)), game.uniform.float())
    for _ in range(3):
        model.training_step(None, 0)
    for iteration, traverser, met, _ in recorded.calls:
        for player, mine in enumerate(game.player_slice):
            # Player 0 is updated first: player 1's traversals meet her new strategy.
            stored = iteration if traverser == 1 and player == 0 else iteration - 1
            expected = tables(model, player)[stored - 1] if stored else game.uniform[mine]
            torch.testing.assert_close(met[mine].double(), expected, rtol=0, atol=1e-5)
    assert all(len(s) == 3 for s in (*model.stored, *model.opening_strategies))


def test_nodes_touched_and_memory_sizes_are_reported(monkeypatch):
    model = holdem_model(small_game(), evaluate_every=99)
    recorded = Recorded(model, monkeypatch)
    for _ in range(2):
        model.training_step(None, 0)
    measured = model.metrics[""]
    assert measured["nodes_touched"] == sum(c[3].nodes_touched for c in recorded.calls)
    assert measured["memory/value"] == sum(m.size for m in model.value_memories)
    assert measured["memory/strategy"] == sum(m.size for m in model.strategy_memories)
    assert measured["player_updates"] == 4


def as_plain(networks: dict[str, Any]) -> list[Tensor]:
    return [*networks["value"], *networks["opening"], *networks["average_opening"]] + [
        v for state in networks["average"] for v in state.values()
    ]


def without_clock(metrics: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {name: {k: v for k, v in m.items() if k != "wall_seconds"} for name, m in metrics.items()}


def assert_same(one: HoldemDeepCFR, other: HoldemDeepCFR) -> None:
    assert without_clock(one.metrics) == without_clock(other.metrics)
    found, expected = as_plain(one.artifact()), as_plain(other.artifact())
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_the_same_seed_repeats_and_another_does_not(finished):
    changes = {"match_hands": 200, "disagreement_rollouts": 50}
    assert_same(finished, trained(small_game(), **changes))
    other = trained(small_game(), seed=1, **changes)
    assert finished.metrics["sd_cfr"]["nash_conv"] != other.metrics["sd_cfr"]["nash_conv"]
    assert not torch.equal(finished.stored[0][0], other.stored[0][0])


def test_evaluating_more_often_changes_nothing_that_is_learned(finished):
    rare = trained(small_game(), evaluate_every=99, match_hands=200, disagreement_rollouts=50)
    assert_same(finished, rare)


@pytest.mark.parametrize(("boards", "start", "stop"), [(None, "previous", 1), (None, "random", 3), (20, "previous", 4)])
def test_resuming_equals_never_stopping(tmp_path, boards, start, stop):
    # After four iterations an evaluation has just been, whose running averages a resumed run does not have.
    game = small_game()
    regression = RegressionConfig(steps=8, batch_size=64, start=start)
    changes = {
        "value": regression, "average": regression, "evaluation_boards": boards, "match_hands": 100,
        "disagreement_rollouts": 40, "iterations": 5, "value_capacity": 150, "strategy_capacity": 150,
    }  # fmt: skip

    straight = holdem_model(game, **changes)
    whole = trainer(5, tmp_path)
    whole.fit(straight)
    first_half = holdem_model(game, **changes)
    half = trainer(stop, tmp_path)
    half.fit(first_half)
    half.save_checkpoint(tmp_path / "half.ckpt")
    resumed = holdem_model(game, **changes)
    trainer(5, tmp_path).fit(resumed, ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    assert resumed.iteration == straight.iteration == 5
    assert whole.global_step == 10, "Lightning counts one step per fitted network"
    assert straight.value_memories[0].size == 150, "the reservoir must have been full"
    assert_same(resumed, straight)
    for name in ("value_memories", "strategy_memories"):
        for a, b in zip(getattr(resumed, name), getattr(straight, name), strict=True):
            assert all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())
    for a, b in zip(resumed.openings, straight.openings, strict=True):
        assert torch.equal(a.regrets, b.regrets)
        assert torch.equal(a.sums, b.sums)


@pytest.mark.parametrize("batch_size", [64, 128, 2000])
def test_minibatches_of_every_kind_are_learned_from(batch_size):
    """Rows as drawn, rows merged by infoset, and all of the player's infosets at once (856 on this deck)."""
    regression = RegressionConfig(steps=4, batch_size=batch_size, start="random")
    model = trained(small_game(), 1, value=regression, average=regression, traversals=4000,
                    value_capacity=4000, strategy_capacity=4000)  # fmt: skip
    assert model.metrics["deep_cfr"]["loss/policy"] > 0


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("fhp_limit", {"ranks": 4, "suits": 2}), ("fhp5", {"ranks": 5, "suits": 2})],
)
def test_other_games_of_one_board(name, parameters):
    game = load(name, **parameters)
    model = trained(game, 2)
    expected = nash_conv(game, TabularPolicy(torch.cat([average_by_hand(model, p) for p in range(2)])))
    assert model.metrics["sd_cfr"]["nash_conv"] == pytest.approx(expected, rel=1e-5)


def test_a_game_of_several_boards_is_measured_by_matches_alone():
    game = load("hunl_pot", ranks=3, suits=3, stack=700.0)
    model = trained(game, 2, match_hands=100, disagreement_rollouts=100)
    assert model.form is None
    measured = model.metrics["sd_cfr"]
    assert {"match/value", "match/standard_error", "disagreement/0/mean"} <= measured.keys()
    assert not {"nash_conv", "exploitability"} & (measured.keys() | model.metrics["deep_cfr"].keys())
    assert measured["match/standard_error"] > 0
    assert model.metrics["deep_cfr"]["loss/policy"] > 0


def test_a_run_of_a_holdem_game_is_this_module():
    config = Config(algorithm=small_config(), network=NETWORK, seed=3)
    model = build(small_game(), config)
    assert type(model) is HoldemDeepCFR
    assert model.seed == 3
    assert type(build(load("kuhn"), Config(algorithm=small_config(), network=NetworkConfig("sd_cfr", 8)))) is not type(
        model
    )


# -- read-outs ---------------------------------------------------------------------------------------------------------


def test_sd_cfr_is_equation_5(finished):
    game = finished.game
    assert finished.form is not None
    assert torch.equal(finished.form.infosets, every(game))
    average = [average_by_hand(finished, p) for p in range(2)]
    for player in range(2):
        ours = finished._average(player, None)
        torch.testing.assert_close(ours / ours.sum(1, keepdim=True), average[player], rtol=0, atol=1e-6)
        # An average of strategies without their reaches, or of equal weights, is another.
        plain = torch.stack(tables(finished, player)).mean(0)
        assert float((ours - plain).abs().max()) > 0.05
    table = torch.cat(average)
    joined = average_policy(game, [finished.sampling(p) for p in range(2)])
    torch.testing.assert_close(joined.table, table, rtol=0, atol=1e-6)
    measured = finished.metrics["sd_cfr"]
    assert measured["nash_conv"] == pytest.approx(nash_conv(game, TabularPolicy(table)), rel=1e-5)
    # Hold'em is quoted in thousandths of the big blind of 100 chips, summed over the players.
    assert measured["exploitability"] == pytest.approx(1000 * measured["nash_conv"] / 100)


def test_capped_ensembles_average_what_a_reservoir_holds(finished):
    game, parts = finished.game, []
    for player in range(2):
        members = reservoir_members(6, 2, finished.seed, player)
        assert len(members) == 2
        parts.append(average_by_hand(finished, player, members))
        torch.testing.assert_close(finished._average(player, 2), parts[-1], rtol=0, atol=1e-6)
        capped = finished.sampling(player, 2)
        assert capped.weight.tolist() == [m + 1.0 for m in members]
        mine = game.player_slice[player]
        for i, member in enumerate(members):
            strategy = capped.strategy(i, every(game)[mine]).double()
            torch.testing.assert_close(strategy, tables(finished, player)[member], rtol=0, atol=1e-6)
        assert finished.sampling(player).weight.tolist() == [1, 2, 3, 4, 5, 6]
        assert torch.equal(finished._average(player, 6), finished._average(player, None))
        assert torch.equal(finished._average(player, 100), finished._average(player, None))
    measured = finished.metrics["sd_cfr_2"]["nash_conv"]
    assert measured == pytest.approx(nash_conv(game, TabularPolicy(torch.cat(parts))), rel=1e-5)
    assert measured != finished.metrics["sd_cfr"]["nash_conv"]


def deep_cfr_seats(model: HoldemDeepCFR) -> list[NetworkPolicy]:
    return [
        NetworkPolicy(network, HoldemFeatures(model.game).rows, as_they_are, opening.average(), mine.start)
        for network, opening, mine in zip(model.average_networks, model.openings, model.game.player_slice, strict=True)
    ]


def test_deep_cfr_is_the_network_behind_the_summed_opening(finished):
    game, parts = finished.game, []
    for player, network in enumerate(finished.average_networks):
        mine = game.player_slice[player]
        with torch.no_grad():
            table = network(*HoldemFeatures(game).rows(every(game)[mine])).double()
        sums = finished.openings[player].sums
        assert bool((sums.sum(1) > 0).all()), "all hands were dealt"
        table[opening_rows(game, player)] = sums / sums.sum(1, keepdim=True)
        parts.append(table / table.sum(1, keepdim=True))
        ours = deep_cfr_seats(finished)[player].probabilities(every(game)[mine]).double()
        torch.testing.assert_close(ours, table, rtol=0, atol=1e-6)
    measured = finished.metrics["deep_cfr"]["nash_conv"]
    assert measured == pytest.approx(nash_conv(game, TabularPolicy(torch.cat(parts))), rel=1e-5)


def test_the_average_network_is_trained_on_what_was_played():
    """It approaches the iteration-weighted mean of the strategies in memory."""
    regression = RegressionConfig(steps=500, batch_size=256, learning_rate=5e-3, start="random")
    model = trained(small_game(), 3, average=regression, traversals=2000, strategy_capacity=50_000, evaluate_every=3)
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


@pytest.mark.parametrize("seat", [0, 1])
def test_hands_of_the_ensemble_win_what_its_average_does(finished, seat):
    game, hands = finished.game, 200_000
    opponent = random_policy(game, seeded(5))
    seats: list[Any] = [opponent, opponent]
    seats[seat] = finished.sampling(seat)
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
    buffer = StrategyBuffer(game, seat)
    for strategy in tables(finished, seat):
        buffer.add(torch.zeros(1), strategy, torch.ones(len(strategy)))
    opponent = random_policy(game, seeded(5))
    won = []
    for ensemble in (finished.sampling(seat), TrajectorySampling(buffer)):
        seats: list[Any] = [opponent, opponent]
        seats[seat] = ensemble
        won.append(SamplingEngine(game).play(seats, hands, seeded(6)))
    # A probability that is rounded otherwise may turn a draw.
    assert float((won[0] != won[1]).double().mean()) < 1e-3


def test_the_match_is_between_the_first_two_read_outs(finished):
    game = finished.game
    ensembles = [finished.sampling(p) for p in range(2)]
    match = play_match(game, ensembles, deep_cfr_seats(finished), 200, generator(0, "match", 6))
    measured = finished.metrics["sd_cfr"]
    # Thousandths of the big blind of 100 chips.
    assert measured["match/value"] == pytest.approx(10 * match.mean, rel=1e-6)
    assert measured["match/standard_error"] == pytest.approx(10 * match.standard_error, rel=1e-6)
    assert not any(k.startswith(("match", "disagreement")) for k in finished.metrics["deep_cfr"])
    none = trained(small_game(), 2).metrics["sd_cfr"]
    assert not any(k.startswith(("match", "disagreement")) for k in none)


def test_the_comparison_comes_after_the_last_iteration():
    model = holdem_model(small_game(), iterations=2, evaluate_every=1, disagreement_rollouts=300)
    model.training_step(None, 0)
    assert not any(k.startswith("disagreement") for k in model.metrics["sd_cfr"])
    model.training_step(None, 0)
    measured = model.metrics["sd_cfr"]
    # Player 0 opens all of her hands, after which player 1 acts unless they fold.
    assert measured["disagreement/0/decisions"] == 300
    assert 0 < measured["disagreement/1/decisions"] < 300
    assert measured["disagreement/0/mean"] < 0.2, "both read-outs have a table there, of the same traversals"


# -- on a sample of boards ---------------------------------------------------------------------------------------------


def test_a_sample_of_boards_measures_the_same_strategies(finished):
    model = trained(small_game(), evaluation_boards=15)
    game = model.game
    assert all(torch.equal(a, b) for a, b in zip(model.stored[0], finished.stored[0], strict=True))
    form = model.form
    assert form is not None
    assert form.sample.size == 15
    assert form.rows < game.infosets
    for name, capacity in (("sd_cfr", None), ("sd_cfr_2", 2)):
        members = [None if capacity is None else reservoir_members(6, capacity, 0, p) for p in range(2)]
        table = torch.cat([average_by_hand(model, p, members[p]) for p in range(2)])[form.infosets]
        expected = HoldemForm(game, form.sample).best_response_values(table)
        measured = model.metrics[name]
        assert measured["nash_conv"] == pytest.approx(float(expected.sum()), rel=1e-5)
        assert measured["exploitability"] == pytest.approx(10 * measured["nash_conv"])
        assert 0 < measured["nash_conv_standard_error"] < measured["nash_conv"]
    assert "nash_conv_standard_error" not in finished.metrics["sd_cfr"]


def test_boards_depend_on_the_seed_alone():
    def boards(seed: int, **changes: Any) -> Tensor:
        form = holdem_model(small_game(), seed, evaluation_boards=15, **changes).form
        assert form is not None
        return form.infosets

    assert torch.equal(boards(0), boards(0, traversals=70))
    assert not torch.equal(boards(0), boards(1))


def test_the_estimate_and_its_error_are_of_the_exact_value(finished):
    exact = finished.metrics["sd_cfr"]["nash_conv"]
    model = holdem_model(small_game(), evaluation_boards=3000)
    model.iteration, model.stored, model.opening_strategies = 6, finished.stored, finished.opening_strategies
    measured = model._exploitability(READOUTS["sd_cfr"], [])
    assert measured["nash_conv_standard_error"] < 0.1 * exact
    assert abs(measured["nash_conv"] - exact) < 4 * measured["nash_conv_standard_error"]


# -- configuration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ("algorithm.match_hands=3", "algorithm.match_hands is 3; every deal is played twice, so it must be even."),
        ("algorithm.match_hands=-2", "algorithm.match_hands is -2; it must be at least 0."),
        ("algorithm.disagreement_rollouts=-1", "algorithm.disagreement_rollouts is -1; it must be at least 0."),
        ("algorithm.evaluation_boards=0", "algorithm.evaluation_boards is 0; it must be at least 2."),
        (
            "algorithm=sd_cfr algorithm.match_hands=2",
            "algorithm.match_hands is 2, but algorithm.readouts are of kinds ['ensemble']; needed are an ensemble",
        ),
        (
            "algorithm=deep_cfr '+algorithm.readouts.sd_cfr={kind: ensemble}' algorithm.match_hands=2",
            "algorithm.readouts are of kinds ['average_network', 'ensemble']; needed are an ensemble, then an",
        ),
        (
            "algorithm=sd_cfr algorithm.disagreement_rollouts=10",
            "algorithm.disagreement_rollouts is 10, but algorithm.readouts are of kinds ['ensemble']",
        ),
        ("network.card_width=null", "network.card_width has no value; the architecture deep_cfr needs"),
        ("network.layers=2", "network.layers is 2, but the architecture deep_cfr has a fixed depth"),
    ],
)
def test_bad_configuration_is_refused(overrides, sentence):
    given = ["game=fhp", "algorithm=sd_cfr_and_deep_cfr", "network=deep_cfr", *shlex.split(overrides)]
    with pytest.raises(ReproError) as caught:
        run.plan(given, multirun=False)
    assert sentence in str(caught.value)


# -- the command line --------------------------------------------------------------------------------------------------


def test_a_run_from_the_command_line(tmp_path):
    overrides = (
        "game=fhp", "game.ranks=5", "game.suits=2", "algorithm=sd_cfr_and_deep_cfr", "network=deep_cfr",
        "network.width=8", "network.card_width=12", "algorithm.iterations=3", "algorithm.traversals=300",
        "algorithm.value.steps=5", "algorithm.value.batch_size=64", "algorithm.average.steps=5",
        "algorithm.average.batch_size=64", "algorithm.value_capacity=1000", "algorithm.strategy_capacity=1000",
        "algorithm.evaluate_every=2", "algorithm.match_hands=100", "algorithm.disagreement_rollouts=50",
        f"output_dir={tmp_path}",
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "repro.run", *overrides], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "mbb/g" in done.stderr
    client = MlflowClient(default_uri(tmp_path))
    experiment = client.get_experiment_by_name("runs")
    assert experiment is not None
    runs = {r.data.tags.get(READOUT_TAG): r for r in client.search_runs([experiment.experiment_id])}
    for readout in ("sd_cfr", "deep_cfr"):
        history = client.get_metric_history(runs[readout].info.run_id, "exploitability")
        assert [m.step for m in history] == [2, 3]
        assert all(m.value > 0 for m in history)
    assert {"match/value", "disagreement/0/mean"} <= runs["sd_cfr"].data.metrics.keys()
    path = client.download_artifacts(runs["training"].info.run_id, "networks.pt", str(tmp_path))
    networks = torch.load(path, weights_only=True)
    assert set(networks) == {"config", "value", "opening", "average", "average_opening"}
    game = load("fhp", ranks=5, suits=2)
    counts = [opening_infosets(game, p) for p in range(2)]
    assert [len(v) for v in networks["value"]] == [3, 3]
    assert [tuple(o.shape) for o in networks["opening"]] == [(3, n, 3) for n in counts]
    assert [tuple(o.shape) for o in networks["average_opening"]] == [(n, 3) for n in counts]
    # They are enough to have the strategies back.
    network = value_network(NETWORK, HoldemFeatures(game).columns, 3)
    vector_to_parameters(networks["value"][1][2], network.parameters())
