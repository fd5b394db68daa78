"""NFSP on Hold'em: networks that are asked about what comes up, and what a run leaves for others to play against."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repro.algorithms.nfsp_holdem import HoldemNFSP
from repro.algorithms.registry import build
from repro.config import Config, NetworkConfig, NFSPConfig, ReadoutConfig
from repro.errors import ReproError
from repro.evaluation.head_to_head import play_match
from repro.games import Game, load
from repro.policies.ensemble import load_average_networks, load_networks
from repro.policies.network import Uniform
from tests.small import straight_and_resumed

GAME: dict[str, Any] = {"ranks": 6, "suits": 2, "stack": 500.0}


def small_game() -> Game:
    return load("hnlh", **GAME)


def config(**changes: Any) -> NFSPConfig:
    values: dict[str, Any] = {
        "name": "nfsp", "iterations": 4, "evaluate_every": 2, "hands": 200, "replay_capacity": 2000,
        "reservoir_capacity": 2000, "steps_per_update": 16, "batch_size": 32, "target_every": 10, "reward_unit": 500.0,
        "value_learning_rate": 0.1, "average_learning_rate": 0.1,
        "readouts": {"nfsp": ReadoutConfig("average_network")},
    }  # fmt: skip
    return NFSPConfig(**{**values, **changes})


def nfsp(game: Game, **changes: Any) -> HoldemNFSP:
    return HoldemNFSP(game, config(**changes), NetworkConfig("fc", 16, 1), 0)


@pytest.fixture(scope="module")
def trained() -> HoldemNFSP:
    """After ten iterations, with much exploring. Tests must not change it."""
    model = nfsp(small_game(), iterations=10, steps_per_update=4, eta=0.5, epsilon=0.5)
    while model.iteration < 10:
        model.training_step(None, 0)
    return model


def met(model: HoldemNFSP, player: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return model.engine.external_sampling(Uniform(model.game), player, 50, draw).advantages.infosets


@pytest.mark.slow
@pytest.mark.parametrize("player", [0, 1])
def test_strategies_are_the_networks(trained, player):
    infosets = met(trained, player)
    features, legal = trained.players[player]._rows(infosets)
    strategies = trained.players[player].strategies(0.3)
    average = strategies(infosets, torch.zeros_like(infosets))
    torch.testing.assert_close(average, trained.average_networks[player](features, legal).detach())
    response = strategies(infosets, torch.ones_like(infosets))
    torch.testing.assert_close(response.sum(1), torch.ones(len(infosets)))
    values = trained.value_networks[player](features, legal).detach()
    best = torch.where(legal, values, -torch.inf).argmax(1)
    explored = 0.3 / legal.sum(1)
    torch.testing.assert_close(response.gather(1, best[:, None])[:, 0], 0.7 + explored)
    assert bool((response[~legal] == 0).all())
    # Which strategy is asked for hand by hand.
    which = torch.arange(len(infosets)) % 2
    torch.testing.assert_close(strategies(infosets, which), torch.where((which == 1)[:, None], response, average))


@pytest.mark.slow
def test_values_after_are_the_target_network_s(trained):
    player = trained.players[0]
    infosets = met(trained, 0)
    following = torch.cat([infosets - player.first, torch.tensor([player.count])])
    found = player.value_after(following)
    features, legal = player._rows(infosets)
    values = player._target(features, legal).detach()
    torch.testing.assert_close(found[:-1], torch.where(legal, values, -torch.inf).amax(1))
    assert float(found[-1]) == 0
    before = found.clone()
    with torch.no_grad():
        saved = player.target()
        for parameter in player._target.parameters():
            parameter.add_(0.1)
        assert not torch.equal(player.value_after(following), before)
        player.restore_target(saved)
    torch.testing.assert_close(player.value_after(following), before)


@pytest.mark.slow
def test_what_folding_costs_is_learned(trained):
    """The one value that needs no opponent: the chips that are in, in units of the stack."""
    game, infosets = trained.game, met(trained, 0)
    features, legal = trained.players[0]._rows(infosets)
    facing = legal[:, 0]
    node = game.locate(infosets[facing])[0]
    lost = -game.tree.stake[game.tree.child[node, 0]].float() / 500
    errors = [
        float((model.value_networks[0](features, legal).detach()[facing, 0] - lost).abs().mean())
        for model in (nfsp(game), trained)
    ]
    assert errors[1] < 0.7 * errors[0]


@pytest.mark.slow
def test_resuming_equals_never_stopping(tmp_path):
    straight, resumed = straight_and_resumed(lambda: nfsp(small_game(), iterations=8), 4, 2, tmp_path)
    assert straight.iteration == resumed.iteration == 8
    for which in ("value_networks", "average_networks"):
        for a, b in zip(getattr(straight, which).parameters(), getattr(resumed, which).parameters(), strict=True):
            assert torch.equal(a, b)
    for ours, theirs in zip(straight.players, resumed.players, strict=True):
        assert torch.equal(ours.target(), theirs.target())


@pytest.mark.slow
def test_what_it_leaves_can_be_played_against(trained, tmp_path):
    plain = {
        "game": {"name": "hnlh", **GAME},
        "network": {"architecture": "fc", "width": 16, "layers": 1},
        "algorithm": {"readouts": {"nfsp": {"kind": "average_network"}}},
    }
    torch.save({"config": plain, **trained.artifact()}, tmp_path / "networks.pt")
    seats = load_average_networks(trained.game, tmp_path / "networks.pt")
    for player, seat in enumerate(seats):
        infosets = met(trained, player)
        features, legal = trained.players[player]._rows(infosets)
        expected = trained.average_networks[player](features, legal).detach()
        torch.testing.assert_close(seat.probabilities(infosets), expected)
    assert play_match(trained.game, seats, Uniform(trained.game), 200, torch.Generator()).hands == 200
    with pytest.raises(ReproError, match=r"holds no B\^M"):
        load_networks(trained.game, tmp_path / "networks.pt")


@pytest.mark.slow
def test_it_is_what_nfsp_means_in_hold_em(trained):
    game = small_game()
    asked = Config(game={"name": "hnlh", **GAME}, algorithm=config(), network=NetworkConfig("fc", 16, 1))
    assert isinstance(build(game, asked), HoldemNFSP)
    assert trained.metrics["nfsp"]["episodes"] == 2000
    assert set(trained.metrics["nfsp"]) == {"episodes", "nodes_touched", "wall_seconds"}
