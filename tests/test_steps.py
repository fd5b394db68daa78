"""Steps in the compiled loop against torch's autograd and Adam in float64, and against the steps that Python takes."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from repro.algorithms.deep_cfr import DeepCFR, DeepCFRConfig
from repro.algorithms.minibatches import Chunked, ManySteps, Minibatch
from repro.algorithms.regression import fit
from repro.config import NetworkConfig
from repro.games import load
from repro.networks.modules import MaskedSoftmax, Network, Normalise, StateAndAdvantages, value_network
from repro.networks.optimizers import FlatAdam
from repro.networks.programs import CompiledSteps, NotCompilableError, program_of
from repro.plans.planning import plan
from tests.helpers.draws import seeded
from tests.helpers.networks import EVERY_NETWORK, SHAPES, build, columns, problem

WITHOUT_BRANCHES = [each for each in EVERY_NETWORK if each[1] in ("sd_cfr", "fc")]
STEPS, RATE, CLIP_NORM = 9, 1e-2, 0.05
RATES = np.full(STEPS, RATE)
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def taken(monkeypatch):
    """How many steps each call of the compiled loop was asked for."""
    counts: list[int] = []
    take = CompiledSteps.take

    def counted(self, weight, target, rates, updates, infosets=None):
        counts.append(len(rates))
        return take(self, weight, target, rates, updates, infosets)

    monkeypatch.setattr(CompiledSteps, "take", counted)
    return counts


def dnet(shape: tuple[int, int, int, int]) -> Network:
    torch.manual_seed(0)
    network = value_network(NetworkConfig("dnet", shape[2]), columns(shape[1]), shape[3])
    assert isinstance(network.head, StateAndAdvantages)
    network.head.state_scale = 0.7
    return network


def networks(shape: tuple[int, int, int, int]) -> Iterator[Network]:
    yield from (build(*each, shape) for each in WITHOUT_BRANCHES)
    yield dnet(shape)


def chunk(network: Network, x: Tensor, legal: Tensor) -> ManySteps:
    draw = seeded(1)
    outputs = network(x, legal).shape[1]
    scale = 10.0 ** (torch.arange(STEPS) % 3 - 2)
    weight = torch.rand(STEPS, len(x), generator=draw) * scale[:, None]
    weight[:, 1:2] = 0
    target = torch.randn(STEPS, len(x), outputs, generator=draw)
    return ManySteps(STEPS, weight, target, torch.rand(STEPS, generator=draw))


def exact_fit(network: Network, x: Tensor, legal: Tensor, steps: ManySteps) -> tuple[Network, list[float]]:
    exact, losses = copy.deepcopy(network).double(), []
    optimizer = torch.optim.Adam(exact.parameters(), lr=RATE)
    for weight, target, constant in zip(steps.weight.double(), steps.target.double(), steps.constant, strict=True):
        optimizer.zero_grad()
        loss = ((exact(x.double(), legal) - target).square() * weight[:, None]).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(exact.parameters(), CLIP_NORM)
        optimizer.step()
        losses.append(float(loss.detach() + constant))
    return exact, losses


@pytest.mark.parametrize("shape", SHAPES)
def test_a_fit_equals_one_in_float64(shape):
    x, legal, _, _ = problem(shape)
    for network in networks(shape):
        assert_fits_as_in_float64(network, x, legal)


def test_the_logit_of_an_illegal_action_has_no_influence():
    x, legal, _, _ = problem(SHAPES[1])
    # Were it part of a softmax's maximum, all legal actions' exponentials would be zero.
    legal[:, 0], legal[:, 1] = False, True
    network = build("average", "fc", 1, SHAPES[1])
    assert isinstance(network.head, MaskedSoftmax)
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        last.bias[0] = 200.0
    assert_fits_as_in_float64(network, x, legal)


def assert_fits_as_in_float64(network: Network, x: Tensor, legal: Tensor) -> None:
    steps = chunk(network, x, legal)
    exact, losses = exact_fit(network, x, legal, steps)
    begin = nn.utils.parameters_to_vector(network.parameters()).detach().double()
    optimizer = FlatAdam(network, RATE, CLIP_NORM)
    compiled = CompiledSteps(network, optimizer, x, legal)
    found = torch.from_numpy(compiled.take(steps.weight, steps.target, RATES, STEPS)) + steps.constant
    torch.testing.assert_close(found, torch.tensor(losses, dtype=torch.float64), rtol=1e-4, atol=1e-6)
    end = nn.utils.parameters_to_vector(exact.parameters()).detach()
    assert float((optimizer.flat.detach().double() - end).norm()) < 1e-4 * float((end - begin).norm())
    assert int(optimizer.state[optimizer.flat]["step"]) == STEPS


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("own_last_step", [False, True])
@pytest.mark.parametrize("averaging", [None, 0.6])
def test_fit_takes_the_same_steps_compiled_and_one_by_one(schedule, own_last_step, averaging, taken):
    x, legal, _, _ = problem(SHAPES[3])
    for network in networks(SHAPES[3]):
        whole = chunk(network, x, legal)
        # In two portions, of which the second repeats its last minibatch, as a memory of sums does its only one.
        first = ManySteps(5, whole.weight[:5], whole.target[:5], whole.constant[:5])
        second = ManySteps(4, whole.weight[5:7], whole.target[5:7], whole.constant[5:7])
        ends: list[tuple[float, Tensor]] = []
        for compiled in (True, False):
            mine = copy.deepcopy(network)
            rates: list[float] = []
            optimizer = FlatAdam(mine, RATE, CLIP_NORM, averaging)

            def last_step(optimizer: FlatAdam = optimizer, rates: list[float] = rates) -> None:
                rates.append(optimizer.param_groups[0]["lr"])
                optimizer.step()

            batches = Chunked(iter([first, second]))
            given: Iterator[Minibatch] = batches if compiled else iter(list(batches))
            last = last_step if own_last_step else None
            loss = fit(mine, optimizer, given, STEPS, x, legal, last_step=last, schedule=schedule)
            assert taken == ([5, 4] if compiled else [])
            taken.clear()
            assert optimizer.param_groups[0]["lr"] == RATE
            assert len(rates) == own_last_step
            assert (schedule == "cosine" and own_last_step) == any(rate < RATE / 5 for rate in rates)
            ends.append((loss, optimizer.flat.detach()))
        assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-4)
        torch.testing.assert_close(ends[0][1], ends[1][1], rtol=1e-4, atol=2e-5)


def test_compiled_fit_says_when_training_diverges():
    x, legal, weight, target = problem(SHAPES[1])
    network = build("value", "sd_cfr", None, SHAPES[1])
    steps = ManySteps(3, weight[None, :, 0], target[None] * float("nan"), torch.zeros(1))
    with pytest.raises(FloatingPointError, match="not finite"):
        fit(network, FlatAdam(network, 1e-3, 1.0), Chunked(iter([steps])), 3, x, legal)


@pytest.mark.parametrize("where", ["a feature", "a parameter"])
def test_what_is_not_a_number_makes_the_loss_none(where):
    # A ReLU that made it zero would hide it.
    for network in networks(SHAPES[1]):
        x, legal, _, _ = problem(SHAPES[1])
        steps, optimizer = chunk(network, x, legal), FlatAdam(network, RATE, CLIP_NORM)
        if where == "a feature":
            x[2, 3] = float("nan")
        else:
            first = next(module for module in network.modules() if isinstance(module, nn.Linear))
            first.bias.data[0] = float("nan")
        assert np.isnan(CompiledSteps(network, optimizer, x, legal).take(steps.weight, steps.target, RATES, 0)).all()
        with pytest.raises(FloatingPointError, match="not finite"):
            fit(network, optimizer, Chunked(iter([steps])), STEPS, x, legal)


@pytest.mark.parametrize("experiment", ["figure1", "deep_cfr_leduc", "d2cfr_leduc"])
def test_experiments_on_leduc_are_fitted_in_the_compiled_loop(experiment, taken):
    config = plan([f"experiment={experiment}"], multirun=False).runs[0].config
    assert isinstance(config.algorithm, DeepCFRConfig)
    model = config.algorithm.build(load("leduc"), config)
    assert isinstance(model, DeepCFR)
    model.iteration = 1
    model.advance()
    assert sum(taken) == 2 * config.algorithm.value.steps


_FIT = """
import torch
from threadpoolctl import threadpool_info, threadpool_limits
import repro.networks.steps
torch.set_num_threads(1)
with threadpool_limits(1):
    from repro.algorithms.minibatches import Chunked, ManySteps
    from repro.algorithms.regression import fit
    from repro.networks.optimizers import FlatAdam
    from tests.helpers.networks import build, problem
    # Products that are large enough to be shared among threads.
    shape = (300, 26, 96, 3)
    x, legal, weight, target = problem(shape)
    network = build("value", "fc", 3, shape)
    optimizer = FlatAdam(network, 1e-2, 1.0)
    steps = ManySteps(9, weight[None, :, 0], target[None], torch.zeros(1))
    fit(network, optimizer, Chunked(iter([steps])), 9, x, legal)
    print(optimizer.flat.detach().numpy().tobytes().hex())
    print(sorted({library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}))
"""


@pytest.mark.exhaustive
def test_a_limit_of_one_thread_holds_for_every_blas_and_gives_the_same_bits():
    parameters = set()
    for threads in ("1", "2"):
        environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", _FIT], capture_output=True, text=True, check=False, cwd=ROOT, env=environment
        )
        assert done.returncode == 0, done.stderr
        found, limits = done.stdout.splitlines()
        assert limits == "[1]"
        parameters.add(found)
    assert len(parameters) == 1


@pytest.mark.parametrize("architecture", ["deep_cfr", "brown"])
def test_networks_with_branches_have_no_compiled_form(architecture):
    with pytest.raises(NotCompilableError, match="no compiled form of Merge"):
        program_of(build("value", architecture, None, SHAPES[1]))


def test_a_normalisation_of_features_or_before_a_relu_has_no_compiled_form():
    head = build("value", "fc", 1, SHAPES[1]).head
    for body in (nn.Sequential(Normalise()), nn.Sequential(nn.Linear(3, 3), Normalise(), nn.ReLU())):
        with pytest.raises(NotCompilableError, match="no compiled form of Normalise"):
            program_of(Network(body, head))


_FITS = """
import hashlib
import torch
from tests import test_steps
from tests.helpers.networks import SHAPES, problem

for shape in SHAPES[1::2]:
    x, legal, _, _ = problem(shape)
    for network in test_steps.networks(shape):
        steps, optimizer = test_steps.chunk(network, x, legal), test_steps.FlatAdam(network, 0.01, 0.05)
        rates = torch.full((test_steps.STEPS,), 0.01, dtype=torch.float64).numpy()
        test_steps.CompiledSteps(network, optimizer, x, legal).take(steps.weight, steps.target, rates, 9)
        print(hashlib.sha256(optimizer.flat.detach().numpy().tobytes()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.exhaustive
def test_who_compiles_and_who_loads_what_was_compiled_get_the_same_bits(tmp_path):
    """What the compiler makes of a function depends on where it inlines it, which differs between the two."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", _FITS]
    compiled, loaded = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert len(set(compiled.split())) == len(compiled.split()) > 10
    assert compiled == loaded
    assert list(tmp_path.rglob("*.nbc"))
