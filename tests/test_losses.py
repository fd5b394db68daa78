"""Errors that count less below zero: the same optimum, and in every way to take a step the same loss."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from repro.algorithms.minibatches import Minibatch
from repro.algorithms.regression import fit
from repro.algorithms.stacked import StackedAdam, fit_together
from repro.config import RegressionConfig
from repro.games import load
from repro.networks.card_programs import CardSteps
from repro.networks.inputs import holdem_features
from repro.networks.losses import LEAST, focus_gradient, importance
from repro.networks.optimizers import FlatAdam
from repro.networks.programs import CompiledSteps
from tests import test_card_steps, test_steps
from tests.helpers.deep_cfr import small_model
from tests.helpers.holdem import small_game
from tests.helpers.networks import SHAPES, build, problem
from tests.helpers.training import advanced

RATE, CLIP_NORM = 1e-2, 0.5
FOCUS = 0.1


def divergence(output: Tensor, target: Tensor, focus: float) -> Tensor:
    """What the importance times twice the error is the derivative of, in closed form."""
    c = 1 - LEAST
    # Integrals of u times the importance and of the importance, from 0 on.
    low = output.clamp(max=0)
    first = low.square() / 2 - c / 2 * (low.square() - focus**2 * torch.log1p((low / focus).square()))
    zeroth = low - c * (low - focus * torch.atan(low / focus))
    high = output.clamp(min=0)
    return 2 * (high.square() / 2 + first - target * (high + zeroth))


def steps_in_float64(
    exact: nn.Module, inputs: list[tuple[Tensor, Tensor]], weight: Tensor, target: Tensor
) -> list[float]:
    """Of torch's autograd and Adam, which change the network; returns the squared errors before each."""
    optimizer, losses = torch.optim.Adam(exact.parameters(), lr=RATE), []
    for (x, legal), row_weight, row_target in zip(inputs, weight, target, strict=True):
        optimizer.zero_grad()
        output = exact(x.double(), legal)
        (divergence(output, row_target.double(), FOCUS) * row_weight[:, None]).sum().backward()
        nn.utils.clip_grad_norm_(exact.parameters(), CLIP_NORM)
        optimizer.step()
        losses.append(float(((output.detach() - row_target).square() * row_weight[:, None]).sum()))
    return losses


def test_importance_falls_below_zero_alone():
    output = torch.tensor([3.0, 0.0, -FOCUS, -1e6])
    torch.testing.assert_close(importance(output, FOCUS), torch.tensor([1.0, 1.0, (1 + LEAST) / 2, LEAST]))
    below = importance(-torch.linspace(0, 5, 100), FOCUS)
    assert bool((below.diff() < 0).all())


@given(
    st.lists(st.tuples(st.floats(-20, 5), st.floats(0.1, 3)), min_size=2, max_size=8),
    st.floats(0.05, 5),
    st.floats(0.1, 3),
)
def test_the_best_output_is_the_mean_of_the_targets(targets, focus, away):
    target, weight = torch.tensor(targets, dtype=torch.float64).T
    mean = (target * weight).sum() / weight.sum()

    def slope(output: Tensor) -> float:
        outputs = output.expand(len(target), 1)
        squared = 2 * weight[:, None] * (outputs - target[:, None])
        return float((squared + focus_gradient(outputs, target[:, None], weight[:, None], focus)).sum())

    assert slope(mean) == pytest.approx(0, abs=1e-9)
    assert slope(mean - away) < 0 < slope(mean + away)


@pytest.mark.parametrize(("architecture", "layers"), [("fc", 2), ("fc", 0), ("sd_cfr", None)])
def test_compiled_steps_on_a_table_equal_those_in_float64(architecture, layers):
    x, legal, _, _ = problem(SHAPES[3])
    network = build("value", architecture, layers, SHAPES[3])
    chunk = test_steps.chunk(network, x, legal)
    exact = copy.deepcopy(network).double()
    steps = len(chunk.weight)
    losses = steps_in_float64(exact, [(x, legal)] * steps, chunk.weight, chunk.target * legal)
    optimizer = FlatAdam(network, RATE, CLIP_NORM)
    found = CompiledSteps(network, optimizer, x, legal, FOCUS).take(
        chunk.weight, chunk.target * legal, np.full(steps, RATE), steps
    )
    np.testing.assert_allclose(found, losses, rtol=1e-4, atol=1e-6)
    assert_moved_alike(network, exact)


def test_compiled_steps_on_cards_equal_those_in_float64():
    game = small_game()
    network = test_card_steps.built(game, 24, average=False)
    infosets, weight, target = test_card_steps.minibatches(game, 0, steps=5, rows=300)
    rows = [holdem_features(game).rows(named) for named in infosets]
    target = target * torch.stack([legal for _, legal in rows])
    exact = copy.deepcopy(network).double()
    losses = steps_in_float64(exact, rows, weight, target)
    optimizer = FlatAdam(network, RATE, CLIP_NORM)
    found = CardSteps(network, optimizer, game, 0, FOCUS).take(weight, target, np.full(5, RATE), 5, infosets)
    np.testing.assert_allclose(found, losses, rtol=2e-6)
    assert_moved_alike(network, exact)


def assert_moved_alike(network: nn.Module, exact: nn.Module) -> None:
    # Adam divides by a gradient's size: where that is nearly zero, rounding decides, for a while.
    for parameter, expected in zip(network.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(parameter.double(), expected, rtol=0, atol=RATE / 20)
        assert (parameter - expected).abs().median() < 1e-6


def test_fits_take_the_same_steps_compiled_one_by_one_and_together():
    game = small_game()
    network = test_card_steps.built(game, 24, average=False)
    infosets, weight, target = test_card_steps.minibatches(game, 0, steps=4, rows=64)
    features = holdem_features(game)
    batches = [
        Minibatch(i, w[:, None], t, torch.zeros(()), features.rows(i))
        for i, w, t in zip(infosets, weight, target, strict=True)
    ]
    begin = nn.utils.parameters_to_vector(network.parameters()).detach().clone()
    ends: dict[str, Tensor] = {}
    for focus in (None, FOCUS):
        stacked = StackedAdam(network, features.fixed_rows, 1, 64, CLIP_NORM, focus=focus)
        stacked.load([begin])
        fit_together(stacked, ([b] for b in batches), 4, RATE)
        mine = copy.deepcopy(network)
        fit(mine, alone := FlatAdam(mine, RATE, CLIP_NORM), batches, 4, focus=focus)
        torch.testing.assert_close(stacked.flat[0], alone.flat.detach(), rtol=0, atol=RATE / 20)
        ends[str(focus)] = alone.flat.detach()
    exact = copy.deepcopy(network).double()
    steps_in_float64(exact, [features.rows(i) for i in infosets], weight, target * batch_legal(batches))
    # Illegal actions' outputs are 0, where nothing of their targets reaches a gradient.
    end = nn.utils.parameters_to_vector(exact.parameters()).detach()
    assert float((ends[str(FOCUS)].double() - end).abs().median()) < 1e-6
    assert float((ends["None"].double() - end).abs().median()) > 1e-4


def batch_legal(batches: list[Minibatch]) -> Tensor:
    return torch.stack([b.inputs[1] for b in batches if b.inputs is not None])


def test_a_focus_far_away_is_the_squared_error_bit_by_bit():
    game = small_game()
    ends = []
    for focus in (None, 1e30):
        network = test_card_steps.built(game, 24, average=False)
        infosets, weight, target = test_card_steps.minibatches(game, 0, steps=3, rows=64)
        optimizer = FlatAdam(network, RATE, CLIP_NORM)
        CardSteps(network, optimizer, game, 0, focus).take(weight, target, np.full(3, RATE), 3, infosets)
        ends.append(optimizer.flat.detach())
    assert torch.equal(*ends)


def test_compiled_steps_of_other_outputs_than_advantages_are_refused():
    x, legal, _, _ = problem(SHAPES[1])
    with_values, average = test_steps.dnet(SHAPES[1]), test_card_steps.built(small_game(), 24, average=True)
    with pytest.raises(ValueError, match="all outputs are advantages"):
        CompiledSteps(with_values, FlatAdam(with_values, RATE), x, legal, FOCUS)
    with pytest.raises(ValueError, match="all outputs are advantages"):
        CardSteps(average, FlatAdam(average, RATE), small_game(), 0, FOCUS)


def test_a_penalty_and_a_focus_are_refused():
    network = build("value", "fc", 1, SHAPES[0])
    with pytest.raises(ValueError, match="squared error alone"):
        fit(network, FlatAdam(network, RATE), [], 1, focus=1.0, penalty=lambda batch, output: output)


def test_a_training_fits_with_its_focus():
    game, ends = load("leduc"), []
    for focus in (None, FOCUS, FOCUS):
        value = RegressionConfig(3, 64, start="random", focus=focus)
        model = advanced(small_model(game, traversals=50, value=value, average=None, readouts={}), 2)
        ends.append(model.learner("value", 0).optimizer.flat.detach().clone())
    assert torch.equal(*ends[1:])
    assert not torch.equal(*ends[:2])
