"""Deep CFR's strategies are listed or asked for: which games take which, and that both are the same."""

from __future__ import annotations

import pytest
import torch

from repro.algorithms.deep_cfr import DeepCFR
from repro.config import NetworkConfig, RegressionConfig
from repro.games import load
from tests.helpers.deep_cfr import small_config, small_model
from tests.helpers.training import advanced, config_of, metrics_of


def test_strategies_listed_and_asked_are_the_same():
    """Where no betting round has a table, to rounding: the samples, what is learned of them, and what is played."""
    game = load("leduc")
    models = [small_model(game, seed=2, strategies=held, opening="network") for held in ("listed", "asked")]
    for _ in range(4):
        for model in models:
            model.step()
    first, second = models
    for name in ("value_memories", "strategy_memories"):
        for a, b in zip(getattr(first, name), getattr(second, name), strict=True):
            for key in ("infoset", "iteration"):
                assert torch.equal(a.state_dict()[key], b.state_dict()[key])
            torch.testing.assert_close(a.state_dict()["target"], b.state_dict()["target"], rtol=1e-4, atol=1e-4)
    every = torch.arange(game.infosets)
    now = [model.current_policy().probabilities(every) for model in models]
    torch.testing.assert_close(now[0], now[1], rtol=1e-3, atol=1e-4)
    for player in range(2):
        for a, b in zip(first.history["value"][player], second.history["value"][player], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert first.nodes_touched == second.nodes_touched
    expected, found = metrics_of(first), metrics_of(second)
    for readout, values in expected.items():
        assert found[readout] == pytest.approx(values, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "parameters", "changes", "listed", "tables"),
    [
        ("leduc", {}, {}, True, False),
        ("leduc", {}, {"strategies": "asked"}, False, True),
        ("leduc", {}, {"strategies": "asked", "opening": "network"}, False, False),
        ("big_leduc", {}, {}, True, False),
        ("fhp", {"ranks": 4, "suits": 2}, {}, True, False),
        ("fhp", {"ranks": 6, "suits": 3}, {}, False, True),
        ("fhp", {}, {}, False, True),
    ],
)
def test_what_is_listed_follows_from_the_number_of_infosets(name, parameters, changes, listed, tables):
    game, config = load(name, **parameters), small_config(**changes)
    assert config.lists(game) == listed
    assert config.tables_opening(game) == tables


def test_a_small_holdem_game_can_be_listed():
    game = load("fhp", ranks=4, suits=2)
    models = [
        DeepCFR(
            game,
            small_config(
                strategies=held, opening="network", traversals=300, regret_unit=100.0, when_no_positive="uniform"
            ),
            NetworkConfig("deep_cfr", 8, None, 12),
            0,
        )
        for held in ("listed", "asked")
    ]  # fmt: skip
    for model in models:
        advanced(model, 2)
    expected, found = (metrics_of(model) for model in models)
    assert found["sd_cfr"]["nash_conv"] == pytest.approx(expected["sd_cfr"]["nash_conv"], rel=1e-3)
    assert found["deep_cfr"]["nash_conv"] == pytest.approx(expected["deep_cfr"]["nash_conv"], rel=1e-3)


def test_a_single_betting_round_is_played_by_networks():
    model = small_model(load("kuhn"), strategies="asked", opening="network")
    model.step()
    assert metrics_of(model)["sd_cfr"]["nash_conv"] > 0


def test_listed_strategies_take_full_precision_only():
    algorithm = small_config(average=RegressionConfig(1, 1, precision="bf16", start="random"))
    config = config_of(algorithm, NetworkConfig("sd_cfr", 8), device="cuda")
    (problem,) = algorithm.problems(config, load("leduc"))
    assert problem.startswith("algorithm.average.precision is bf16; the strategies of the game leduc are listed, which")
