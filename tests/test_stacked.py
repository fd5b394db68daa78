"""Networks trained together on stacked parameters: as each alone, in steps that a CUDA graph could hold."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from repro.algorithms.minibatches import Minibatch
from repro.algorithms.regression import fit
from repro.algorithms.stacked import StackedAdam, _products, fit_together
from repro.engine.sampling import SamplingEngine
from repro.games import Game, load
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import Network, average_network, value_network
from repro.networks.muon import NO_MATRICES, hidden_matrices
from repro.networks.optimizers import FlatAdam
from repro.policies.network import Uniform
from tests.helpers.draws import seeded
from tests.helpers.holdem import NETWORK
from tests.helpers.operations import Recorded

GAMES = {"fhp": {"ranks": 5, "suits": 2}, "hunl_pot": {"ranks": 6, "suits": 3, "stack": 1000.0}}


def game_of(name: str) -> Game:
    return load(name, **GAMES[name])  # type: ignore[arg-type]


def met(game: Game) -> torch.Tensor:
    """Infosets of player 0, in all rounds."""
    return SamplingEngine(game).external_sampling(Uniform(game), 0, 100, seeded(0)).advantages.infosets


def minibatches(infosets: torch.Tensor, seed: int, steps: int, rows: int) -> list[Minibatch]:
    draw = seeded(seed)
    return [
        Minibatch(
            infosets[torch.randint(len(infosets), (rows,), generator=draw)],
            torch.rand(rows, 1, generator=draw) / rows,
            torch.randn(rows, 3, generator=draw),
            torch.zeros(()),
        )
        for _ in range(steps)
    ]


@pytest.mark.parametrize("name", GAMES)
def test_features_of_fixed_shape_are_the_features(name):
    game = game_of(name)
    infosets, features = met(game), HoldemFeatures(game)
    assert len(game.tree.round[game.locate(infosets)[0]].unique()) == game.tree.rounds
    for ours, expected in zip(features.fixed_rows(infosets), features.rows(infosets), strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("build", [value_network, average_network])
@pytest.mark.parametrize(
    ("schedule", "averaging", "parts"), [("constant", None, 1), ("cosine", None, 4), ("constant", 0.9, 1)]
)
def test_networks_trained_together_are_those_trained_alone(name, build, schedule, averaging, parts):
    game = game_of(name)
    infosets, features = met(game), HoldemFeatures(game)
    torch.manual_seed(0)
    networks: list[Network] = [build(NETWORK, features.columns, 3) for _ in range(3)]
    clip_norm, rows, steps = 0.1, 32, 20
    optimizers = [FlatAdam(n, 1e-2, clip_norm, averaging) for n in networks]
    batches = [minibatches(infosets, seed, steps, rows) for seed in range(3)]
    stacked = StackedAdam(networks[0], features.fixed_rows, 3, rows, clip_norm, averaging=averaging, parts=parts)
    # What a fit leaves behind must not reach the next one.
    for _ in range(2):
        stacked.load([o.flat.detach() for o in optimizers])
        losses = fit_together(stacked, zip(*batches, strict=True), steps, 1e-2, schedule)
    for i, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
        start = optimizer.flat.detach().clone()
        with_inputs = [replace(b, inputs=features.rows(b.infosets)) for b in batches[i] if b.infosets is not None]
        alone = fit(network, optimizer, with_inputs, steps, schedule=schedule)
        assert losses[i] == pytest.approx(alone, rel=1e-4)
        moved = (optimizer.flat - start).detach().abs().max()
        assert float((stacked.flat[i] - optimizer.flat).detach().abs().max()) < 1e-3 * float(moved)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "build", "options"),
    [
        ("fhp", value_network, {"focus": 0.2, "muon_over_adam": 7.0}),
        ("fhp", average_network, {"averaging": 0.9}),
        ("hunl_pot", value_network, {}),
    ],
)
@pytest.mark.parametrize(("count", "parts"), [(1, 1), (1, 4), (3, 4)])
def test_a_compiled_step_is_the_step(name, build, options, count, parts, monkeypatch):
    """As torch sees it before it makes kernels of it, for which it needs a compiler that not every machine has."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    torch.compiler.reset()
    game = game_of(name)
    infosets, features = met(game), HoldemFeatures(game)
    networks = [build(NETWORK, features.columns, 3) for _ in range(count)]
    matrices = hidden_matrices(networks[0]) if "muon_over_adam" in options else NO_MATRICES
    start = [torch.cat([p.detach().flatten() for p in n.parameters()]) for n in networks]
    batches, moved = [minibatches(infosets, seed, 2, 32) for seed in range(count)], []
    for how in ({}, {"compiled": True, "parts": parts}):
        stacked = StackedAdam(networks[0], features.fixed_rows, count, 32, 0.1, matrices=matrices, **options, **how)
        for _ in range(2):
            stacked.load(start)
            fit_together(stacked, zip(*batches, strict=True), 2, 1e-3)
        moved.append(stacked.flat - torch.stack(start))
    assert float((moved[1] - moved[0]).norm()) < 1e-3 * float(moved[0].norm())


@pytest.mark.exhaustive
def test_more_steps_than_torch_keeps_compiled_are_taken_all_the_same(monkeypatch):
    """They are of one function, of which torch keeps so many forms."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch.compiler.reset()
    game = game_of("fhp")
    infosets, features = met(game), HoldemFeatures(game)
    network = value_network(NETWORK, features.columns, 3)
    start = torch.cat([p.detach().flatten() for p in network.parameters()])
    for rows in range(8, 18):
        stacked = StackedAdam(network, features.fixed_rows, 1, rows, 1.0, compiled=True)
        stacked.load([start])
        fit_together(stacked, ([b] for b in minibatches(infosets, 0, 1, rows)), 1, 1e-3)
        assert not torch.equal(stacked.flat[0], start)


def test_the_precision_of_products_is_put_back():
    before = torch.get_float32_matmul_precision()
    with _products("high"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


def test_every_network_is_clipped_on_its_own():
    """A network with huge targets does not shorten another's steps."""
    game = game_of("fhp")
    infosets, features = met(game), HoldemFeatures(game)
    network = value_network(NETWORK, features.columns, 3)
    start = torch.cat([p.detach().flatten() for p in network.parameters()])
    calm, wild = minibatches(infosets, 0, 5, 32), minibatches(infosets, 1, 5, 32)
    wild = [replace(b, target=1e6 * b.target) for b in wild]
    found = []
    for other in (calm, wild):
        stacked = StackedAdam(network, features.fixed_rows, 2, 32, 1.0)
        stacked.load([start, start])
        fit_together(stacked, zip(calm, other, strict=True), 5, 1e-2)
        found.append(stacked.flat[0].clone())
    assert torch.equal(*found)
    assert not torch.equal(found[0], start)


def test_bfloat16_is_near_float32():
    game = game_of("fhp")
    infosets, features = met(game), HoldemFeatures(game)
    network = value_network(NETWORK, features.columns, 3)
    start = torch.cat([p.detach().flatten() for p in network.parameters()])
    batches, moved = minibatches(infosets, 0, 10, 64), []
    for precision in ("fp32", "bf16"):
        stacked = StackedAdam(network, features.fixed_rows, 1, 64, 1.0, precision)
        stacked.load([start])
        fit_together(stacked, ([b] for b in batches), 10, 1e-3)
        moved.append(stacked.flat[0] - start)
    assert not torch.equal(*moved)
    assert float(torch.cosine_similarity(moved[0], moved[1], dim=0)) > 0.8


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("build", [value_network, average_network])
@pytest.mark.parametrize("count", [1, 2])
def test_a_step_could_be_captured(name, build, count):
    """Whatever the rows, the same operations, and none that waits for a number from the device."""
    game = game_of(name)
    infosets, features = met(game), HoldemFeatures(game)
    stacked = StackedAdam(build(NETWORK, features.columns, 3), features.fixed_rows, count, 16, 1.0)
    names = []
    for seed in (0, 5):
        stacked.step([minibatches(infosets, seed + i, 1, 16)[0] for i in range(count)], 1e-3)
        with Recorded() as recorded:
            stacked._step()
        names.append(recorded.names)
    assert names[0] == names[1]
    waiting = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "item", "repeat_interleave")
    assert not [n for n in names[0] if any(w in n for w in waiting)]


def test_a_loss_that_is_not_finite_is_an_error():
    game = game_of("fhp")
    infosets, features = met(game), HoldemFeatures(game)
    network = value_network(NETWORK, features.columns, 3)
    stacked = StackedAdam(network, features.fixed_rows, 2, 8, 1.0)
    fine = minibatches(infosets, 0, 2, 8)
    broken = [replace(b, target=b.target * torch.nan) for b in fine]
    with pytest.raises(FloatingPointError, match="not finite"):
        fit_together(stacked, zip(fine, broken, strict=True), 2, 1e-3)
