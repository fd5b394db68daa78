"""Networks that a Hold'em run has stored, loaded, play what the run measured; and what cannot be measured at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR
from repro.algorithms.registry import build

from repro.algorithms.tabular import solve
from repro.config import Config, NetworkConfig, ReadoutConfig
from repro.errors import ReproError
from repro.evaluation import nash_conv
from repro.evaluation.head_to_head import average_policy
from repro.games import Game, load
from repro.match import main as match
from repro.policies.ensemble import load_average_networks, load_networks
from repro.policies.network import Seats
from tests.small import small_config

NETWORK = NetworkConfig("deep_cfr", 8, None, 12)
SMALL: dict[str, Any] = {"ranks": 4, "suits": 2}
READOUTS = {"sd_cfr": ReadoutConfig("ensemble"), "deep_cfr": ReadoutConfig("average_network")}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[HoldemDeepCFR, Path]:
    """A short run, and its `networks.pt`."""
    game = load("fhp", **SMALL)
    model = HoldemDeepCFR(game, small_config(readouts=READOUTS, traversals=300), NETWORK, seed=0)
    for _ in range(3):
        model.iteration += 1
        model.advance()
    model.evaluate()
    config = {
        "game": {"name": "fhp", **game.parameters},
        "algorithm": {"when_no_positive": "argmax", "readouts": {"deep_cfr": {"kind": "average_network"}}},
        "network": {"architecture": "deep_cfr", "width": 8, "layers": None, "card_width": 12},
    }
    path = tmp_path_factory.mktemp("stored") / "networks.pt"
    torch.save({"config": config, **model.artifact()}, path)
    return model, path


def test_stored_networks_are_the_measured_average(stored):
    model, path = stored
    game = load("fhp", **SMALL)
    policy = average_policy(game, load_networks(game, path))
    assert nash_conv(game, policy) == pytest.approx(model.metrics["sd_cfr"]["nash_conv"], rel=1e-5)


def test_stored_average_networks_are_what_was_measured(stored):
    model, path = stored
    game = load("fhp", **SMALL)
    policy = Seats(game, *load_average_networks(game, path))
    assert nash_conv(game, policy) == pytest.approx(model.metrics["deep_cfr"]["nash_conv"], rel=1e-5)


def test_both_play_from_the_command_line(stored, capsys):
    _, path = stored
    game = "fhp:ranks=4:suits=2"
    assert match([game, str(path), f"{path}:average", "--hands", "2000"]) == 0
    out = capsys.readouterr().out
    assert "mbb/g, 95% CI [" in out
    assert "exact" not in out
    assert match(["fhp", str(path), f"{path}:average", "--hands", "2000"]) == 2
    assert "holds networks for game fhp with {'ranks': 4" in capsys.readouterr().err
    assert match([game, f"{path}:averages", "uniform"]) == 2
    assert (
        "it must be uniform, a strategy.csv, a blueprint.pt, a networks.pt or a networks.pt:average"
        in capsys.readouterr().err
    )


# -- refused before any work -----------------------------------------------------------------------------------------


def config_of(game: Game, **changes: Any) -> Config:
    return Config({"name": game.name}, small_config(**{"readouts": READOUTS, **changes}), NETWORK)


@pytest.mark.parametrize(
    ("name", "parameters", "changes", "said"),
    [
        ("leduc", {}, {"evaluation_boards": 5}, "algorithm.evaluation_boards is 5; the game leduc is no Hold'em game"),
        ("leduc", {}, {"match_hands": 10}, "algorithm.match_hands is 10; the game leduc .* takes 0 only"),
        ("kuhn", {}, {"disagreement_rollouts": 1}, "algorithm.disagreement_rollouts is 1; the game kuhn"),
        ("fhp5", {}, {}, "algorithm.evaluation_boards is null, but the game fhp5 is too large"),
        ("hunl_pot", {}, {"evaluation_boards": 5}, "algorithm.evaluation_boards is 5; the game hunl_pot has more"),
        ("fhp", SMALL, {"memory": "aggregated"}, "algorithm.memory is aggregated; Hold'em games"),
    ],
)
def test_measurements_that_do_not_go_with_the_game(name, parameters, changes, said):
    game = load(name, **parameters)
    with pytest.raises(ReproError, match=said):
        build(game, config_of(game, **changes))


@pytest.mark.parametrize("variant", ["linear_cfr", "es_mccfr"])
@pytest.mark.parametrize("name", ["fhp5", "hunl_pot"])
def test_tables_of_games_that_are_too_large(name, variant):
    with pytest.raises(ReproError, match=f"game {name} has .* infosets; tables can list 134,217,728 at most"):
        next(solve(load(name), variant, iterations=1))
