"""NFSP on Hold'em: networks that are asked about what comes up, and what a run leaves for others to play against."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from repro.algorithms.nfsp import NFSP, NFSPConfig
from repro.algorithms.nfsp_strategies import AskedPlayer
from repro.config import NetworkConfig, ReadoutConfig
from repro.evaluation.base import Costs
from repro.evaluation.head_to_head import play_match
from repro.games import Game, load
from repro.policies.network import NetworkPolicy, Uniform
from tests.helpers.training import config_of, measured, straight_and_resumed, subject_of

GAME: dict[str, Any] = {"ranks": 6, "suits": 2, "stack": 500.0}


def small_game() -> Game:
    return load("hnlh", **GAME)


def config(**changes: Any) -> NFSPConfig:
    values: dict[str, Any] = {
        "name": "nfsp", "iterations": 4, "snapshot_every": 2, "hands": 200, "replay_capacity": 2000,
        "reservoir_capacity": 2000, "steps_per_update": 16, "batch_size": 32, "target_every": 10, "reward_unit": 500.0,
        "value_learning_rate": 0.1, "average_learning_rate": 0.1,
        "readouts": {"nfsp": ReadoutConfig("average_network")},
    }  # fmt: skip
    return NFSPConfig(**{**values, **changes})


NETWORK = NetworkConfig("fc", 16, 1)


def nfsp(game: Game, **changes: Any) -> NFSP:
    return NFSP(game, config(**changes), NETWORK, 0)


def asked(model: NFSP, player: int) -> AskedPlayer:
    strategies = model.players[player].strategies
    assert isinstance(strategies, AskedPlayer)
    return strategies


@pytest.fixture(scope="module")
def trained() -> NFSP:
    """After ten iterations, with much exploring. Tests must not change it."""
    model = nfsp(small_game(), iterations=10, steps_per_update=4, eta=0.5, epsilon=0.5)
    while model.iteration < 10:
        model.step()
    return model


def met(model: NFSP, player: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return model.engine.external_sampling(Uniform(model.game), player, 50, draw).advantages.infosets


@pytest.mark.exhaustive
@pytest.mark.parametrize("player", [0, 1])
def test_strategies_are_the_networks(trained, player):
    infosets = met(trained, player)
    features, legal = asked(trained, player).inputs(infosets)
    strategies = asked(trained, player).at(0.3)
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
    player = asked(trained, 0)
    infosets = met(trained, 0)
    following = torch.cat([infosets - player.first, torch.tensor([player.count])])
    found = player.value_after(following)
    features, legal = player.inputs(infosets)
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


def test_a_player_to_whom_all_fold_learns_nothing_from_that():
    """With blinds, who is first to act may end every hand of a batch before the other one acts."""
    training = nfsp(load("fhp", ranks=3, suits=3), hands=1, reservoir_capacity=100)
    held = []
    for _ in range(20):
        training.step()
        held.append([player.replay.size for player in training.players])
    unchanged = [[now == before for now, before in zip(*pair, strict=True)] for pair in itertools.pairwise(held)]
    assert any(any(of_players) for of_players in unchanged)
    assert sum(held[-1]) > 0


@pytest.mark.slow
def test_what_folding_costs_is_learned(trained):
    """The one value that needs no opponent: the chips that are in, in units of the stack."""
    game, infosets = trained.game, met(trained, 0)
    features, legal = asked(trained, 0).inputs(infosets)
    facing = legal[:, 0]
    node = game.locate(infosets[facing])[0]
    lost = -game.tree.stake[game.tree.child[node, 0]].float() / 500
    errors = [
        float((model.value_networks[0](features, legal).detach()[facing, 0] - lost).abs().mean())
        for model in (nfsp(game), trained)
    ]
    assert errors[1] < 0.7 * errors[0]


@pytest.mark.exhaustive
def test_resuming_equals_never_stopping(tmp_path):
    straight, resumed = straight_and_resumed(lambda: nfsp(small_game(), iterations=8), 4, 2, tmp_path)
    assert straight.iteration == resumed.iteration == 8
    for which in ("value_networks", "average_networks"):
        for a, b in zip(getattr(straight, which).parameters(), getattr(resumed, which).parameters(), strict=True):
            assert torch.equal(a, b)
    for ours, theirs in zip(straight.players, resumed.players, strict=True):
        assert torch.equal(ours.strategies.target(), theirs.strategies.target())


@pytest.mark.slow
def test_what_it_leaves_can_be_played(trained):
    subject = subject_of(trained.game, config_of(trained.algorithm, NETWORK), trained)
    seats = subject.seats("nfsp")
    for player, seat in enumerate(seats):
        infosets = met(trained, player)
        features, legal = asked(trained, player).inputs(infosets)
        expected = trained.average_networks[player](features, legal).detach()
        assert isinstance(seat, NetworkPolicy)
        torch.testing.assert_close(seat.probabilities(infosets), expected)
    assert play_match(trained.game, seats, Uniform(trained.game), 200, torch.Generator()).hands == 200


def test_nothing_but_costs_can_be_measured_of_large_games(trained):
    game, given = trained.game, config_of(trained.algorithm, NETWORK)
    assert given.algorithm.strategies_in(game) is AskedPlayer
    assert measured(game, given, trained, Costs()) == {"nfsp": {}}
    assert trained.snapshot().counts["episodes"] == 2000
    assert set(trained.snapshot().counts) == {"episodes", "nodes_touched", "wall_seconds"}
