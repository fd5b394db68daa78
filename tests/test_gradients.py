"""Hand-written gradients of networks against autograd in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from repro.config import NetworkConfig
from repro.games import load
from repro.networks.features import feature_columns, infoset_features
from repro.networks.gradients import Autograd, HandDifferentiated, gradients_of
from repro.networks.modules import MaskedLinear, MaskedSoftmax, Merge, Network, Normalise, Residual
from repro.networks.optimizers import FlatAdam
from repro.networks.rules import MergeRule
from tests.helpers.networks import BUILDERS, EVERY_NETWORK, SHAPES, build, exact_gradients, problem


def assert_same_gradients(network: Network, expected: list[Tensor]) -> None:
    largest = max(float(g.abs().max()) for g in expected)
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.double(), gradient, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("kind", "architecture", "layers"), EVERY_NETWORK)
@pytest.mark.parametrize("rule", [HandDifferentiated, Autograd])
def test_gradients_equal_float64_autograd(rule, kind, architecture, layers, shape):
    network = build(kind, architecture, layers, shape)
    x, legal, weight, target = problem(shape)
    expected_output, expected = exact_gradients(network, x, legal, weight, target)
    FlatAdam(network, 1e-3, 1.0)
    gradients = rule(network)
    gradients.prepare(x, legal)
    output = gradients.compute(weight, target)
    torch.testing.assert_close(output.double(), expected_output, rtol=1e-4, atol=1e-5)
    assert any(bool(g.abs().max() > 0) for g in expected)
    assert_same_gradients(network, expected)


@pytest.mark.parametrize(("kind", "architecture", "layers"), EVERY_NETWORK)
def test_hand_differentiation_starts_afresh_and_leaves_its_inputs_alone(kind, architecture, layers):
    # Its buffers are reused between calls and reallocated when the number of rows changes.
    network = build(kind, architecture, layers, SHAPES[1])
    FlatAdam(network, 1e-3, 1.0)
    gradients = HandDifferentiated(network)
    for seed, rows in enumerate((7, 7, 12, 3)):
        inputs = problem((rows, *SHAPES[1][1:]), seed)
        before = [t.clone() for t in inputs]
        gradients.prepare(*inputs[:2])
        for _ in range(2):
            gradients.compute(*inputs[2:])
            assert all(torch.equal(now, then) for now, then in zip(inputs, before, strict=True))
            assert_same_gradients(network, exact_gradients(network, *inputs)[1])


@pytest.mark.parametrize("kind", BUILDERS)
def test_rows_of_weight_zero_and_targets_of_illegal_actions_do_not_matter(kind):
    network = build(kind, "sd_cfr", None, SHAPES[1])
    optimizer = FlatAdam(network, 1e-3, 1.0)
    assert optimizer.flat.grad is not None
    x, legal, weight, target = problem(SHAPES[1])
    gradients = HandDifferentiated(network)
    gradients.prepare(x, legal)
    gradients.compute(weight, target)
    before = optimizer.flat.grad.clone()
    changed = target.masked_fill(~legal, 100.0)
    changed[0] = 50.0
    gradients.compute(weight, changed)
    torch.testing.assert_close(optimizer.flat.grad, before, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("game", "distinct"), [("leduc", 12 + 18), ("big_leduc", 156 + 98)])
@pytest.mark.parametrize("architecture", ["deep_cfr", "brown"])
@pytest.mark.parametrize("kind", BUILDERS)
def test_branches_run_on_the_distinct_rows_of_a_table(kind, architecture, game, distinct):
    game = load(game)
    mine = game.player_slice[1]
    x, legal = infoset_features(game)[mine], game.legal[mine]
    torch.manual_seed(0)
    network = BUILDERS[kind](NetworkConfig(architecture, 8, None, 10), feature_columns(game), game.num_actions)
    FlatAdam(network, 1e-3, 1.0)
    gradients = HandDifferentiated(network)
    gradients.prepare(x, legal)
    merge = gradients._layers[0]
    assert isinstance(merge, MergeRule)
    assert sum(len(rows) for rows, _ in merge.distinct) == distinct
    draw = torch.Generator().manual_seed(1)
    for rows in (torch.arange(len(x)), torch.randint(len(x), (50,), generator=draw), torch.tensor([3])):
        weight, target = torch.rand(len(rows), 1, generator=draw), torch.randn(len(rows), 3, generator=draw)
        expected_output, expected = exact_gradients(network, x[rows], legal[rows], weight, target)
        if len(rows) < len(x):
            gradients.select(rows)
        output = gradients.compute(weight, target)
        torch.testing.assert_close(output.double(), expected_output, rtol=1e-4, atol=1e-5)
        assert_same_gradients(network, expected)
    # A table that does not repeat itself is not worth it, and the one before must be forgotten.
    other = torch.randn(9, x.shape[1], generator=draw)
    gradients.prepare(other, legal[:9])
    assert not merge.distinct
    weight, target = torch.rand(9, 1, generator=draw), torch.randn(9, 3, generator=draw)
    gradients.compute(weight, target)
    assert_same_gradients(network, exact_gradients(network, other, legal[:9], weight, target)[1])


@pytest.mark.parametrize(("kind", "architecture", "layers"), EVERY_NETWORK)
@pytest.mark.parametrize("rule", [HandDifferentiated, Autograd])
def test_selected_rows_are_those_of_the_table(rule, kind, architecture, layers):
    network = build(kind, architecture, layers, SHAPES[3])
    FlatAdam(network, 1e-3, 1.0)
    x, legal, weight, target = problem(SHAPES[3])
    gradients = rule(network)
    gradients.prepare(x, legal)
    for rows in (torch.tensor([7, 2, 2, 140]), torch.tensor([5])):
        gradients.select(rows)
        gradients.compute(weight[rows], target[rows])
        assert_same_gradients(network, exact_gradients(network, x[rows], legal[rows], weight[rows], target[rows])[1])


def test_networks_of_other_modules_go_through_autograd():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(26, 8), nn.Tanh(), nn.Linear(8, 3))
    network = Network(body, MaskedLinear())
    inputs = problem(SHAPES[1])
    _, expected = exact_gradients(network, *inputs)
    FlatAdam(network, 1e-3, 1.0)
    gradients = gradients_of(network)
    assert isinstance(gradients, Autograd)
    gradients.prepare(*inputs[:2])
    gradients.compute(*inputs[2:])
    assert_same_gradients(network, expected)
    ours = build("value", "sd_cfr", None, SHAPES[1])
    FlatAdam(ours, 1e-3, 1.0)
    assert isinstance(gradients_of(ours), HandDifferentiated)


def overlapping(width: int) -> Merge:
    """Branches that share a column, and leave the last one out."""
    branches = [nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Sequential(nn.Linear(3, 3), Normalise())]
    return Merge([slice(0, 4), slice(3, 6)], branches, 3, width)


@pytest.mark.parametrize("seed", range(12))
def test_hand_written_gradients_in_any_order_of_modules(seed):
    rng = np.random.default_rng(seed)
    width = 7
    make = [lambda: nn.Linear(width, width), nn.ReLU, Normalise, lambda: Residual(width), lambda: overlapping(width)]
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Linear(5, width), *(make[i]() for i in rng.integers(0, 5, 5)), nn.Linear(width, 3))
    network = Network(body, MaskedSoftmax())
    optimizer = FlatAdam(network, 1e-3, 1.0)
    x, legal, weight, target = torch.randn(9, 5), torch.ones(9, 3, dtype=torch.bool), torch.rand(9, 1), torch.rand(9, 3)
    found: list[Tensor] = []
    for kind in (Autograd, HandDifferentiated):
        optimizer.reset()
        gradients = kind(network)
        gradients.prepare(x, legal)
        gradients.compute(weight, target)
        assert optimizer.flat.grad is not None
        found.append(optimizer.flat.grad.clone())
    assert torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 9])
def test_layers_without_bias_are_differentiated_by_hand(rows):
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Linear(5, 7, bias=False), nn.ReLU(), Residual(7), nn.Linear(7, 6, bias=False), Normalise(), nn.Linear(6, 4)
    )
    network = Network(body, MaskedLinear())
    inputs = problem((rows, 5, 7, 4))
    expected_output, expected = exact_gradients(network, *inputs)
    FlatAdam(network, 1e-3, 1.0)
    gradients = gradients_of(network)
    assert isinstance(gradients, HandDifferentiated)
    gradients.prepare(*inputs[:2])
    output = gradients.compute(*inputs[2:])
    torch.testing.assert_close(output.double(), expected_output, rtol=1e-4, atol=1e-5)
    assert len(expected) == 6, "three weights and one bias, and a weight and a bias of the skip layer"
    assert_same_gradients(network, expected)
