"""How NFSP learns: what its two networks are trained on, and how well they do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from repro.algorithms.nfsp import NFSP
from repro.algorithms.regression import fit
from repro.algorithms.replay import Replay, Transitions
from repro.config import NetworkConfig
from repro.engine.sampling import InfosetSamples, SamplingEngine
from repro.evaluation import best_response, expected_value, nash_conv
from repro.games import Game, load
from repro.networks.features import feature_columns, infoset_features
from repro.networks.gradients import Autograd, HandDifferentiated, gradients_of
from repro.networks.modules import Network, average_network, value_network
from repro.networks.optimizers import FlatSGD
from repro.policies import TabularPolicy, random_policy, uniform
from tests.helpers.draws import seeded
from tests.helpers.nfsp import ONE_LAYER, listed, made_up, small_config, small_player
from tests.helpers.training import advanced, config_of, measured

# -- gradients ---------------------------------------------------------------------------------------------------------


def network_of(build: Any, game: Game, architecture: str) -> Network:
    torch.manual_seed(0)
    config = ONE_LAYER if architecture == "fc" else NetworkConfig("sd_cfr", 16)
    return build(config, feature_columns(game), game.num_actions)


def assert_gradients(network: Network, expected: tuple[Tensor, ...]) -> None:
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rule", [HandDifferentiated, Autograd])
@pytest.mark.parametrize("architecture", ["fc", "sd_cfr"])
def test_the_gradient_of_the_log_loss_equals_autograd(architecture, rule):
    game = load("leduc")
    network = network_of(average_network, game, architecture)
    rows = torch.randint(game.infosets, (50,), generator=seeded(1))
    x, legal = infoset_features(game)[rows], game.legal[rows]
    target = random_policy(game, seeded(2)).table[rows].float()
    weight = torch.rand(50, 1, generator=seeded(3))
    logits = network.body(x).masked_fill(~legal, -1e9)
    loss = (nn.functional.cross_entropy(logits, target, reduction="none") * weight[:, 0]).sum()
    expected = torch.autograd.grad(loss, list(network.parameters()))
    FlatSGD(network, 0.1)
    assert type(gradients_of(network, log_loss=True)) is HandDifferentiated
    gradients = rule(network, log_loss=True)
    gradients.prepare(x, legal)
    for _ in range(2):
        output = gradients.compute(weight, target)
        assert_gradients(network, expected)
        torch.testing.assert_close(output, network(x, legal).detach())


def test_the_log_loss_needs_a_softmax():
    network = network_of(value_network, load("kuhn"), "fc")
    FlatSGD(network, 0.1)
    with pytest.raises(TypeError, match="MaskedSoftmax"):
        gradients_of(network, log_loss=True)


def test_a_network_without_rules_learns_by_autograd():
    game = load("kuhn")
    network = network_of(average_network, game, "fc")
    network.body.append(nn.Tanh())
    FlatSGD(network, 0.1)
    assert type(gradients_of(network, log_loss=True)) is Autograd


@pytest.mark.parametrize("architecture", ["fc", "sd_cfr"])
def test_a_step_of_q_learning_is_torchs(architecture):
    """One minibatch of the replay memory through `fit` beside mean squared error and torch.optim.SGD."""
    game = load("leduc")
    ours, plain = (network_of(value_network, game, architecture) for _ in range(2))
    features, mine = infoset_features(game), game.player_slice[0]
    replay = Replay(100, 0, 144, 3, "cpu")
    rows = torch.randint(144, (2, 100), generator=seeded(4))
    taken = random_policy(game, seeded(5)).table[rows[0]].argmax(1)
    replay.add(Transitions(rows[0], taken, torch.randn(100, generator=seeded(6)), rows[1], taken > 0))
    next_value = torch.randn(145, generator=seeded(7))
    (batch,) = replay.minibatches(1, 64, next_value.__getitem__, seeded(8))
    assert batch.infosets is not None
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.3)
    q = plain(features[batch.infosets], game.legal[batch.infosets])
    loss = nn.functional.mse_loss(q.gather(1, batch.weight.argmax(1)[:, None]), batch.target)
    loss.backward()
    optimizer.step()
    measured = fit(ours, FlatSGD(ours, 0.3), [batch], 1, features[mine], game.legal[mine])
    assert isinstance(gradients_of(ours), HandDifferentiated)
    assert measured == pytest.approx(loss.item(), rel=1e-5)
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


# -- learning ----------------------------------------------------------------------------------------------------------


def test_the_target_network_is_refreshed_after_so_many_steps():
    player = small_player(load("leduc"), target_every=5)
    player.replay.add(made_up(0, 300, 0, 144))
    initial = listed(player).values().amax(1)
    assert torch.equal(listed(player).next_value[:-1], initial)
    player.fit_values(4, seeded(0))
    assert torch.equal(listed(player).next_value[:-1], initial)
    player.fit_values(1, seeded(1))
    fifth = listed(player).values().amax(1)
    assert torch.equal(listed(player).next_value[:-1], fifth)
    player.fit_values(3, seeded(2))
    assert torch.equal(listed(player).next_value[:-1], fifth)
    assert not torch.equal(listed(player).values().amax(1), fifth)
    assert float(listed(player).next_value[-1]) == 0
    # In the middle of a call, what comes after the refresh meets the new targets.
    assert player.updates == 8
    player.fit_values(4, seeded(3))
    assert not torch.equal(listed(player).next_value[:-1], fifth)


def test_the_average_network_clones_the_frequencies_in_the_reservoir():
    game = load("kuhn")
    player = small_player(game, 1, reservoir_capacity=5000, average_learning_rate=0.5, batch_size=128)
    mine = game.player_slice[1]
    infosets = torch.randint(mine.start, mine.stop, (4000,), generator=seeded(0))
    table = random_policy(game, seeded(1)).table
    actions = torch.multinomial(table[infosets], 1, generator=seeded(2))[:, 0]
    counts = torch.zeros(mine.stop - mine.start, 3).index_put_(
        (infosets - mine.start, actions), torch.ones(4000), accumulate=True
    )
    player.reservoir.add(InfosetSamples(infosets, nn.functional.one_hot(actions, 3).float()), 1, seeded(3))
    loss = player.fit_average(1500, seeded(4))
    frequency = counts / counts.sum(1, keepdim=True)
    assert (listed(player).average() - frequency).abs().max() < 0.06
    entropy = -float((torch.xlogy(frequency, frequency).sum(1) * counts.sum(1)).sum()) / 4000
    assert loss == pytest.approx(entropy, abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("player", [0, 1])
def test_q_learning_finds_the_best_response_to_a_fixed_opponent(player):
    game = load("kuhn")
    opponent = random_policy(game, seeded(8))
    exact, _ = best_response(game, opponent, player)
    learner = small_player(
        game, player, eta=1.0, replay_capacity=20_000, target_every=50, batch_size=128, value_learning_rate=0.1,
        steps_per_update=32,
    )  # fmt: skip
    engine, draw = SamplingEngine(game), seeded(9)
    starts = torch.zeros(0, dtype=torch.int64)
    for _ in range(80):
        seat = learner.seat(0.3)
        won = engine.play([seat, opponent] if player == 0 else [opponent, seat], 500, draw)
        t = seat.transitions(won if player == 0 else -won)
        learner.fit_values(learner.remember(t, 500, draw), draw)
        is_first = torch.cat([torch.tensor([True]), t.following[:-1] < 0])
        starts = t.infosets[is_first] - learner.first
    values = listed(learner).values().amax(1)
    table = opponent.table.clone()
    mine = game.player_slice[player]
    table[mine] = nn.functional.one_hot(listed(learner).values().argmax(1), 3).double()
    # In chips: what the greedy strategy wins, and what the network believes that it wins.
    assert expected_value(game, TabularPolicy(table))[player] == pytest.approx(exact, abs=0.02)
    assert float(values[starts].mean()) == pytest.approx(exact, abs=0.15)


@pytest.mark.slow
def test_exploitability_falls_well_below_uniforms():
    game, network = load("kuhn"), NetworkConfig("fc", 64, 1)
    algorithm = small_config(
        iterations=160, snapshot_every=160, hands=256, eta=0.1, epsilon=0.06, replay_capacity=200_000,
        reservoir_capacity=100_000, steps_per_update=32, batch_size=128, target_every=100, value_learning_rate=0.1,
        average_learning_rate=0.1,
    )  # fmt: skip
    model = NFSP(game, algorithm, network, seed=0)
    advanced(model, model.steps)
    assert model.counts()["episodes"] == 160 * 256
    found = measured(game, config_of(algorithm, network), model)["nfsp"]
    assert found["nash_conv"] < 0.45 * nash_conv(game, uniform(game))
