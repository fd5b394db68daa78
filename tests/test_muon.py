"""Muon for the matrices of hidden layers: torch's own, and the same in the compiled loops."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from repro.algorithms.minibatches import Minibatch
from repro.algorithms.regression import fit
from repro.algorithms.stacked import StackedAdam, fit_together
from repro.config import RegressionConfig
from repro.games import load
from repro.networks.card_programs import CardSteps
from repro.networks.inputs import holdem_features
from repro.networks.muon import MOMENTUM, hidden_matrices, orthogonalised, orthogonalised_together, stretch
from repro.networks.optimizers import FlatAdam
from repro.networks.programs import CompiledSteps
from tests import test_card_steps, test_steps
from tests.helpers.deep_cfr import small_model
from tests.helpers.draws import seeded
from tests.helpers.holdem import small_game
from tests.helpers.networks import SHAPES, build, problem
from tests.helpers.training import advanced

RATE, MUON_RATE, CLIP_NORM = 3e-3, 2e-2, 0.5


def set_gradients(networks: list[nn.Module], draw: torch.Generator) -> None:
    for parameters in zip(*(network.parameters() for network in networks), strict=True):
        drawn = torch.randn(parameters[0].shape, generator=draw)
        for p in parameters:
            if p.grad is None:
                p.grad = drawn.clone()
            else:
                p.grad.copy_(drawn)


def test_hidden_matrices_are_those_of_layers_between_embeddings_and_outputs():
    game = small_game()
    network = test_card_steps.built(game, 24, average=False)
    flat = nn.utils.parameters_to_vector(network.parameters())
    named = {name: p for name, p in network.named_parameters() if p.ndim == 2}
    found = [flat[b : b + r * c].view(r, c) for b, r, c in hidden_matrices(network).tolist()]
    left = [n for n, p in named.items() if not any(p.shape == f.shape and torch.equal(p, f) for f in found)]
    assert len(found) == len(named) - len(left)
    embeddings = [name for name in named if name.startswith("body.0.branches.0.0.branches")]
    assert sorted(left) == sorted([*embeddings, next(n for n, p in named.items() if len(p) == game.num_actions)])


@pytest.mark.parametrize("shape", [(64, 64), (24, 80), (80, 24)])
def test_orthogonalised_matrices_keep_their_directions(shape):
    # None of its directions is nearly missing: of those five iterations make less than 1.
    matrix = torch.randn(shape, generator=seeded(0), dtype=torch.float64) + 20 * torch.eye(*shape)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.T @ orthogonalised(matrix) @ right.T
    torch.testing.assert_close(inside, inside.diagonal().diag(), rtol=0, atol=1e-10)
    assert 0.3 < float(inside.diagonal().min()) <= float(inside.diagonal().max()) < 1.6


def test_matrices_of_several_shapes_are_orthogonalised_together_as_alone():
    draw = seeded(0)
    some = [torch.randn(2, *shape, generator=draw) for shape in [(64, 64), (24, 80), (80, 24), (8, 12)]]
    for together, alone in zip(orthogonalised_together(some), map(orthogonalised, some), strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", [("fc", 3), ("sd_cfr", None), ("deep_cfr", None)])
def test_steps_are_those_of_torchs_muon_and_adam(architecture):
    mine = build("value", *architecture, (7, 26, 64, 3))  # type: ignore[call-arg]
    plain = copy.deepcopy(mine)
    optimizer = FlatAdam(mine, RATE, CLIP_NORM, muon=MUON_RATE)
    begins = np.cumsum([0, *(p.numel() for p in plain.parameters())]).tolist()
    chosen = set(optimizer.matrices[:, 0].tolist())
    hidden = [p for begin, p in zip(begins, plain.parameters(), strict=False) if begin in chosen]
    rest = [p for begin, p in zip(begins, plain.parameters(), strict=False) if begin not in chosen]
    assert hidden
    muon = torch.optim.Muon(hidden, lr=MUON_RATE, weight_decay=0.0, momentum=MOMENTUM)
    adam = torch.optim.Adam(rest, lr=RATE)
    start, draw = optimizer.flat.detach().clone(), seeded(1)
    for _ in range(4):
        set_gradients([mine, plain], draw)
        nn.utils.clip_grad_norm_(plain.parameters(), CLIP_NORM)
        muon.step()
        adam.step()
        optimizer.update()
    begin = 0
    for p, q in zip(mine.parameters(), plain.parameters(), strict=True):
        before = start[begin : begin + p.numel()].view_as(p)
        begin += p.numel()
        moved, expected = (p - before).detach().flatten(), (q - before).detach().flatten()
        # torch multiplies Muon's matrices in bfloat16, with three digits.
        assert float(torch.cosine_similarity(moved, expected, dim=0)) > 0.9999
        assert float(moved.norm() / expected.norm()) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("averaging", [None, 0.7])
def test_compiled_steps_on_cards_are_the_optimizers(averaging):
    game, steps = small_game(), 4
    networks = [test_card_steps.built(game, 24, average=False) for _ in range(2)]
    infosets, weight, target = test_card_steps.minibatches(game, 0, steps, rows=60)
    together, single = (FlatAdam(n, RATE, CLIP_NORM, averaging, MUON_RATE) for n in networks)
    rates = RATE * np.linspace(1, 0.3, steps)
    CardSteps(networks[0], together, game, 0).take(weight, target, rates, steps, infosets)
    gradients = CardSteps(networks[1], single, game, 0)
    for i, rate in enumerate(rates):
        gradients.take(weight[i : i + 1], target[i : i + 1], rates[i : i + 1], 0, infosets[i : i + 1])
        single.param_groups[0]["lr"] = float(rate)
        single.update()
    assert_alike(together, single)


def test_compiled_steps_on_a_table_are_the_optimizers():
    x, legal, _, _ = problem(SHAPES[1])
    networks = [build("value", "sd_cfr", None, SHAPES[1]) for _ in range(2)]
    chunk = test_steps.chunk(networks[0], x, legal)
    steps = len(chunk.weight)
    together, single = (FlatAdam(n, RATE, CLIP_NORM, muon=MUON_RATE) for n in networks)
    assert len(together.matrices)
    CompiledSteps(networks[0], together, x, legal).take(chunk.weight, chunk.target, np.full(steps, RATE), steps)
    gradients = CompiledSteps(networks[1], single, x, legal)
    for i in range(steps):
        gradients.take(chunk.weight[i : i + 1], chunk.target[i : i + 1], np.full(1, RATE), 0)
        single.update()
    assert_alike(together, single)


def assert_alike(together: FlatAdam, single: FlatAdam) -> None:
    together.finish()
    single.finish()
    difference = (together.flat - single.flat).detach().abs()
    assert float(difference.max()) < RATE / 20
    assert float(difference.median()) < 1e-6


def test_networks_trained_together_are_those_trained_alone():
    game = small_game()
    features = holdem_features(game)
    networks = [test_card_steps.built(game, 24, average=False) for _ in range(2)]
    infosets, weight, target = test_card_steps.minibatches(game, 0, steps=4, rows=64)
    batches = [
        Minibatch(i, w[:, None], t, torch.zeros(()), features.rows(i))
        for i, w, t in zip(infosets, weight, target, strict=True)
    ]
    optimizers = [FlatAdam(network, RATE, CLIP_NORM, muon=MUON_RATE) for network in networks]
    stacked = StackedAdam(
        networks[0],
        features.fixed_rows,
        2,
        64,
        CLIP_NORM,
        matrices=optimizers[0].matrices,
        muon_over_adam=MUON_RATE / RATE,
    )
    stacked.load([o.flat.detach() for o in optimizers])
    begin = optimizers[0].flat.detach().clone()
    fit_together(
        stacked, ([batch, other] for batch, other in zip(batches, batches[::-1], strict=True)), 4, RATE, "cosine"
    )
    fit(networks[0], optimizers[0], batches, 4, schedule="cosine")
    fit(networks[1], optimizers[1], batches[::-1], 4, schedule="cosine")
    for row, optimizer in zip(stacked.flat, optimizers, strict=True):
        expected = (optimizer.flat - begin).detach()
        torch.testing.assert_close(row - begin, expected, rtol=0, atol=1e-3 * float(expected.abs().max()))
    assert float((stacked.flat[0] - stacked.flat[1]).abs().max()) > RATE / 10


@pytest.mark.parametrize("strategies", ["listed", "asked"])
def test_a_training_is_moved_by_muon(strategies):
    game = load("leduc") if strategies == "listed" else load("fhp", ranks=6, suits=3)
    ends = []
    for muon in (None, MUON_RATE, MUON_RATE):
        value = RegressionConfig(3, 64, start="random", muon=muon)
        model = small_model(game, strategies=strategies, traversals=300, value=value, average=None, readouts={})
        advanced(model, 2)
        ends.append(model.learner("value", 0).optimizer.flat.detach().clone())
    assert torch.equal(*ends[1:])
    assert not torch.equal(*ends[:2])


def test_without_matrices_to_move_it_is_adam():
    ends: list[Tensor] = []
    for muon in (None, MUON_RATE):
        network = build("value", "fc", 0, SHAPES[2])
        optimizer = FlatAdam(network, RATE, CLIP_NORM, muon=muon)
        assert not len(optimizer.matrices)
        set_gradients([network], seeded(2))
        optimizer.update()
        ends.append(optimizer.flat.detach())
    assert torch.equal(*ends)


def test_matrices_that_are_tall_are_moved_further():
    assert (stretch(8, 32), stretch(32, 32), stretch(128, 32)) == (1, 1, 2)
