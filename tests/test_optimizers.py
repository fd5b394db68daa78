"""The flat optimiser against torch's Adam, and training with it against a plain loop."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from repro.algorithms.minibatches import Minibatch
from repro.algorithms.regression import fit
from repro.networks.optimizers import FlatAdam
from tests.helpers.networks import EVERY_NETWORK, SHAPES, build, problem


@pytest.mark.parametrize(("clip_norm", "binding"), [(1.0, "always"), (30.0, "sometimes"), (1e6, "never")])
def test_flat_adam_equals_torch_adam_with_clipping(clip_norm, binding):
    plain = build("value", "sd_cfr", None, SHAPES[1])
    flat = copy.deepcopy(plain)
    mine = FlatAdam(flat, 3e-3, clip_norm)
    reference = torch.optim.Adam(plain.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(1)
    bound = []
    # Adam hardly notices one scale for all gradients, hence scales that differ by step.
    for scale in (1.0, 0.1, 10.0, 0.3, 0.05, 3.0):
        for p, q in zip(plain.parameters(), flat.parameters(), strict=True):
            p.grad = scale * torch.randn(p.shape, generator=draw)
            assert q.grad is not None
            q.grad.copy_(p.grad)
        norm = nn.utils.clip_grad_norm_(plain.parameters(), clip_norm)
        bound.append(bool(norm > clip_norm))
        reference.step()
        mine.update()
        for p, q in zip(plain.parameters(), flat.parameters(), strict=True):
            torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-6)
    assert {"always": all(bound), "never": not any(bound), "sometimes": len(set(bound)) == 2}[binding]


def test_clipping_changes_the_outcome():
    # Without this the test above could pass with an optimiser and a reference that both ignore the norm.
    outcomes = []
    for clip_norm in (1.0, 1e6):
        network = build("value", "fc", 1, SHAPES[0])
        optimizer = FlatAdam(network, 3e-3, clip_norm)
        assert optimizer.flat.grad is not None
        for scale in (1.0, 10.0):
            optimizer.flat.grad.copy_(scale * torch.linspace(-1, 1, len(optimizer.flat)))
            optimizer.update()
        outcomes.append(optimizer.flat.detach().clone())
    assert float((outcomes[0] - outcomes[1]).abs().max()) > 1e-4


@pytest.mark.parametrize("decay", [0.9, 1.0])
def test_finish_leaves_the_average_of_the_weights(decay):
    """Each step's weights count `decay` times the next one's, and nothing else counts."""
    network = build("value", "fc", 1, SHAPES[0])
    optimizer = FlatAdam(network, 1e-2, 1.0, decay)
    # What one fit leaves must not reach the next one.
    for _ in range(2):
        optimizer.reset()
        weights = []
        for step in range(7):
            assert optimizer.flat.grad is not None
            optimizer.flat.grad.copy_(torch.linspace(-1, step, len(optimizer.flat)))
            optimizer.update()
            weights.append(optimizer.flat.detach().double())
        optimizer.finish()
        shares = torch.tensor([decay ** (6 - step) for step in range(7)], dtype=torch.float64)
        expected = (shares[:, None] * torch.stack(weights)).sum(0) / shares.sum()
        torch.testing.assert_close(optimizer.flat.detach().double(), expected, rtol=1e-5, atol=1e-7)
        assert float((weights[-1] - expected).abs().max()) > 1e-3


def test_without_averaging_finish_leaves_the_last_weights():
    optimizer = FlatAdam(build("value", "fc", 1, SHAPES[0]), 1e-2, 1.0)
    assert optimizer.flat.grad is not None
    optimizer.flat.grad.fill_(1.0)
    optimizer.update()
    before = optimizer.flat.detach().clone()
    optimizer.finish()
    assert torch.equal(optimizer.flat.detach(), before)


def test_reset_forgets_the_moments():
    network = build("value", "fc", 1, SHAPES[0])
    optimizer = FlatAdam(network, 1e-2, 10.0)
    gradient = optimizer.flat.grad
    assert gradient is not None
    gradient.fill_(1.0)
    optimizer.update()
    first = optimizer.flat.detach().clone()
    optimizer.reset()
    gradient.fill_(-1e-3)
    optimizer.update()
    # A first Adam step moves every parameter by the learning rate, whatever the size of its gradient.
    torch.testing.assert_close(optimizer.flat.detach() - first, torch.full_like(first, 1e-2), rtol=1e-3, atol=0.0)


def test_parameters_share_the_memory_of_the_flat_tensor():
    network = build("average", "sd_cfr", None, SHAPES[0])
    before = [p.detach().clone() for p in network.parameters()]
    optimizer = FlatAdam(network, 1e-2, 1.0)
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))
    with torch.no_grad():
        optimizer.flat.fill_(0.5)
    assert all(bool((p == 0.5).all()) for p in network.parameters())
    network.load_state_dict(build("average", "sd_cfr", None, SHAPES[0], seed=1).state_dict())
    assert torch.equal(optimizer.flat.detach(), nn.utils.parameters_to_vector(network.parameters()).detach())
    assert float((optimizer.flat.detach() - 0.5).abs().max()) > 0.01


def test_step_runs_the_closure_and_updates():
    network = build("value", "fc", 1, SHAPES[0])
    optimizer = FlatAdam(network, 1e-2, 1.0)
    before = optimizer.flat.detach().clone()

    def closure() -> float:
        assert optimizer.flat.grad is not None
        optimizer.flat.grad.fill_(1.0)
        return 2.5

    assert optimizer.step(closure) == 2.5
    assert float((optimizer.flat.detach() - before).max()) < 0


@pytest.mark.parametrize(("kind", "architecture", "layers"), EVERY_NETWORK)
def test_fit_equals_a_plain_training_loop(kind, architecture, layers):
    steps, clip_norm = 10, 0.02
    plain = build(kind, architecture, layers, SHAPES[1])
    network = copy.deepcopy(plain)
    x, legal, _, _ = problem(SHAPES[1])
    draw = torch.Generator().manual_seed(2)
    batches = []
    for i in range(steps):
        # Every other minibatch lists its rows, as on games too large for grouping.
        rows = torch.randint(len(x), (5,), generator=draw) if i % 2 else torch.arange(len(x))
        weight = torch.rand(len(rows), 1, generator=draw) * 10.0 ** (i % 3 - 2)
        target = torch.randn(len(rows), legal.shape[1], generator=draw)
        batches.append(Minibatch(rows, weight, target, torch.zeros(())))
    reference = torch.optim.Adam(plain.parameters(), lr=1e-2)
    for batch in batches:
        reference.zero_grad()
        output = plain(x[batch.infosets], legal[batch.infosets])
        loss = ((output - batch.target).square() * batch.weight).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), clip_norm)
        reference.step()
    reported = fit(network, FlatAdam(network, 1e-2, clip_norm), batches, steps, x, legal)
    assert reported == pytest.approx(float(loss.detach()), rel=1e-3)
    for p, q in zip(plain.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-3, atol=2e-4)


def test_fit_says_when_training_diverges():
    network = build("value", "fc", 1, SHAPES[1])
    x, legal, weight, target = problem(SHAPES[1])
    batch = Minibatch(None, weight, target * float("nan"), torch.zeros(()))
    with pytest.raises(FloatingPointError, match="not finite"):
        fit(network, FlatAdam(network, 1e-3, 1.0), [batch] * 3, 3, x, legal)
