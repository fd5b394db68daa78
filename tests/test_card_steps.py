"""Compiled steps of the network that sees cards: the same as torch's on features, in float64."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from repro.algorithms.regression import fit
from repro.config import NetworkConfig
from repro.games import load
from repro.games.game import Game
from repro.networks.card_programs import CardSteps, card_network_of, compiled_card_steps
from repro.networks.inputs import holdem_features
from repro.networks.modules import MaskedSoftmax, Network, average_network, value_network
from repro.networks.optimizers import FlatAdam
from repro.networks.programs import NotCompilableError
from tests.helpers.draws import seeded
from tests.helpers.holdem import holdem_model, small_game

RATE, CLIP_NORM, WIDTH = 1e-2, 0.5, 16
GAMES = [("fhp", {"ranks": 6, "suits": 3}), ("fhp_limit", {"ranks": 6, "suits": 3}), ("hunl_pot", {})]


def built(game: Game, card_width: int, average: bool) -> Network:
    torch.manual_seed(0)
    make = average_network if average else value_network
    network = NetworkConfig("deep_cfr", WIDTH, card_width=card_width)
    return make(network, holdem_features(game).columns, game.num_actions)


def minibatches(game: Game, player: int, steps: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Infosets counted from the player's first, weights and targets; all rounds, the first infosets several times."""
    draw, part = seeded(1), game.player_slice[player]
    infosets = torch.randint(part.stop - part.start, (steps, rows), generator=draw)
    infosets[:, :3], infosets[:, 3:5] = torch.arange(3), 0
    weight = torch.rand(steps, rows, generator=draw)
    weight[:, 1] = 0
    return infosets, weight, torch.randn(steps, rows, game.num_actions, generator=draw)


def exact_losses(exact: nn.Module, game: Game, infosets: Tensor, weight: Tensor, target: Tensor) -> list[float]:
    """Of torch's steps on features, which change the network."""
    optimizer, losses = torch.optim.Adam(exact.parameters(), lr=RATE), []
    for rows, row_weight, row_target in zip(infosets, weight, target, strict=True):
        features, legal = holdem_features(game).rows(rows)
        optimizer.zero_grad()
        loss = ((exact(features.double(), legal) - row_target).square() * row_weight[:, None]).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(exact.parameters(), CLIP_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("name", "parameters"), GAMES)
@pytest.mark.parametrize("card_width", [WIDTH, 24])
@pytest.mark.parametrize("average", [False, True])
def test_steps_equal_those_in_float64(name, parameters, card_width, average):
    game = load(name, **parameters)
    network, player = built(game, card_width, average), int(average)
    infosets, weight, target = minibatches(game, player, steps=5, rows=40)
    exact = copy.deepcopy(network).double()
    losses = exact_losses(exact, game, infosets + game.player_slice[player].start, weight, target)
    steps = CardSteps(network, FlatAdam(network, RATE, CLIP_NORM), game, player)
    taken = steps.take(weight, target, np.full(5, RATE), 5, infosets)
    np.testing.assert_allclose(taken, losses, rtol=2e-6)
    # Adam divides by a gradient's size: where that is nearly zero, rounding decides, for a while.
    for parameter, expected in zip(network.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(parameter.double(), expected, rtol=0, atol=RATE / 20)
        assert (parameter - expected).abs().median() < 1e-6


def test_a_minibatch_of_several_blocks_is_one_step():
    game = small_game()
    network = built(game, WIDTH, average=False)
    infosets, weight, target = minibatches(game, 0, steps=1, rows=700)
    exact = copy.deepcopy(network).double()
    losses = exact_losses(exact, game, infosets, weight, target)
    taken = CardSteps(network, FlatAdam(network, RATE, CLIP_NORM), game, 0).take(
        weight, target, np.full(1, RATE), 1, infosets
    )
    np.testing.assert_allclose(taken, losses, rtol=2e-6)
    for parameter, expected in zip(network.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(parameter.double(), expected, rtol=0, atol=1e-5)


def test_steps_beyond_the_last_minibatch_are_on_that():
    game, found = small_game(), []
    infosets, weight, target = minibatches(game, 0, 1, 40)
    for repeats in (1, 3):
        network = built(game, WIDTH, average=False)
        steps = CardSteps(network, FlatAdam(network, RATE, CLIP_NORM), game, 0)
        given = [each.expand(repeats, *each.shape[1:]).contiguous() for each in (weight, target, infosets)]
        found.append(steps.take(given[0], given[1], np.full(3, RATE), 3, given[2]))
    assert np.array_equal(found[0], found[1])


def test_the_average_of_the_weights_is_that_of_the_steps():
    game, decay = small_game(), 0.7
    infosets, weight, target = minibatches(game, 0, steps=5, rows=40)
    networks = [built(game, WIDTH, average=False) for _ in range(2)]
    together, single = (FlatAdam(network, RATE, CLIP_NORM, decay) for network in networks)
    CardSteps(networks[0], together, game, 0).take(weight, target, np.full(5, RATE), 5, infosets)
    steps, weights = CardSteps(networks[1], single, game, 0), []
    for i in range(5):
        steps.take(weight[i : i + 1], target[i : i + 1], np.full(1, RATE), 1, infosets[i : i + 1])
        weights.append(single.flat.detach().double())
    shares = decay ** torch.arange(4, -1, -1, dtype=torch.float64)
    expected = (shares[:, None] * torch.stack(weights)).sum(0) / shares.sum()
    for optimizer in (together, single):
        optimizer.finish()
        torch.testing.assert_close(optimizer.flat.detach().double(), expected, rtol=1e-4, atol=1e-6)


def test_infosets_of_the_other_player_are_refused():
    game = small_game()
    network = built(game, WIDTH, average=False)
    steps = CardSteps(network, FlatAdam(network, RATE, CLIP_NORM), game, 0)
    infosets, weight, target = minibatches(game, 0, 1, 40)
    with pytest.raises(ValueError, match="other player's"):
        steps.take(weight, target, np.full(1, RATE), 1, infosets + game.player_slice[1].start)


def test_only_the_squared_error_is_compiled():
    game = small_game()
    network = built(game, WIDTH, average=False)
    optimizer = FlatAdam(network, RATE, CLIP_NORM)
    compiled = compiled_card_steps(network, optimizer, game, 0)
    with pytest.raises(ValueError, match="squared error alone"):
        fit(network, optimizer, [], 1, log_loss=True, compiled=compiled)


def test_steps_that_are_not_taken_leave_their_gradient():
    game = small_game()
    network = built(game, WIDTH, average=False)
    infosets, weight, target = minibatches(game, 1, steps=2, rows=20)
    before, exact = copy.deepcopy(network.state_dict()), copy.deepcopy(network).double()
    optimizer = FlatAdam(network, RATE, CLIP_NORM)
    steps = CardSteps(network, optimizer, game, 1)
    steps.take(weight[:1], target[:1], np.full(1, RATE), 0, infosets[:1])
    for name, parameter in network.state_dict().items():
        assert torch.equal(parameter, before[name])
    features, legal = holdem_features(game).rows(infosets[0] + game.player_slice[1].start)
    ((exact(features.double(), legal) - target[0]).square() * weight[0][:, None]).sum().backward()
    expected = torch.cat([p.grad.flatten() for p in exact.parameters() if p.grad is not None])
    assert optimizer.flat.grad is not None
    torch.testing.assert_close(optimizer.flat.grad.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("which", ["value", "average"])
def test_deep_cfr_fits_with_it_as_without(which, monkeypatch):
    fits = [holdem_model(load("fhp", ranks=13, suits=3), traversals=200) for _ in range(2)]
    taken: list[int] = []
    take = CardSteps.take

    def counted(self, *arguments):
        taken.append(len(arguments[2]))
        return take(self, *arguments)

    monkeypatch.setattr(CardSteps, "take", counted)
    for model, is_compiled in zip(fits, (True, False), strict=True):
        for player in range(2):
            model.iteration = 1
            model.collect(player)
        if not is_compiled:
            monkeypatch.setattr("repro.algorithms.strategies.compiled_card_steps", lambda *_: None)
        taken.clear()
        model._fit(which, 0)
        assert sum(taken) == (model.algorithm.regressions[which].steps if is_compiled else 0)
    one, other = (model.learner(which, 0).optimizer.flat for model in fits)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


def test_other_networks_are_told_apart():
    game = small_game()
    columns = holdem_features(game).columns
    for architecture in ("fc", "brown", "sd_cfr", "dnet"):
        layers = 2 if architecture == "fc" else None
        network = value_network(NetworkConfig(architecture, WIDTH, layers), columns, game.num_actions)
        with pytest.raises(NotCompilableError):
            card_network_of(network, holdem_features(game).card_columns)
        assert compiled_card_steps(network, FlatAdam(network, RATE), game, 0) is None
    softmax = built(game, WIDTH, average=True)
    assert isinstance(softmax.head, MaskedSoftmax)
    assert compiled_card_steps(softmax, FlatAdam(softmax, RATE), game, 0) is not None


def test_a_fit_that_diverges_is_told():
    game = small_game()
    model = holdem_model(game, traversals=50)
    model.iteration = 1
    model.collect(0)
    with torch.no_grad():
        model.learner("value", 0).optimizer.flat.fill_(float("nan"))
    batches = model.begin_fit("value", 0, merged=False)
    learner = model.learner("value", 0)
    compiled = compiled_card_steps(learner.network, learner.optimizer, game, 0)
    assert compiled is not None
    with pytest.raises(FloatingPointError):
        fit(learner.network, learner.optimizer, batches, learner.regression.steps, compiled=compiled)
