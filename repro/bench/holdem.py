"""Hold'em: what the exact engine and the deals consist of, beside the plain way to do them."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from repro.algorithms.minibatches import Minibatch
from repro.algorithms.stacked import StackedAdam
from repro.bench.measure import Effort, Row, interleaved, per_second
from repro.common.errors import ReproError
from repro.config import NetworkConfig
from repro.engine import board_kernels as kernels
from repro.engine.holdem_form import HoldemForm, sample_boards
from repro.engine.sampling import SamplingEngine
from repro.games import Game, load
from repro.games.hand_strength import hand_strength
from repro.networks.answers import answers
from repro.networks.card_programs import CardSteps
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.inputs import holdem_features
from repro.networks.modules import Network, value_network
from repro.networks.optimizers import FlatAdam
from repro.policies.network import Uniform, opening_infosets

_HANDS = 20_000
"""Hands of one call."""

_BATCH = {"cpu": 1024, "cuda": 10_000}
"""Rows of a minibatch; on a GPU the paper's."""

_RATE, _MUON_RATE, _TOGETHER = 1e-3, 0.02, 16
"""The learning rates, and how many of our steps are taken in one call, as in a fit."""


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    return [
        showdown(effort), seven_cards(effort), sgd_step(effort), sgd_step_products(effort), sgd_step_muon(effort),
        *(bfloat16_products(effort, width) for width in (64, 192)), sgd_step_bfloat16(effort), table_of_answers(effort),
    ]  # fmt: skip


def showdown(effort: Effort) -> Row:
    """All hands' values at a showdown on one flop, against the opponent's reach: sorted hands with running sums, and
    NumPy's product of the reach with a ready-made 1,176 x 1,176 matrix of who wins."""
    form = HoldemForm(load("fhp"), sample_boards(load("fhp"), 1, torch.Generator().manual_seed(0)))
    boards = form.boards
    first, second, tie, cell = boards.first[0], boards.second[0], boards.tie[0], boards.cell[0]
    reach = np.random.default_rng(0).random(len(boards.members))
    buffer, value = np.zeros(len(first)), np.zeros(len(reach))
    apart = (first[:, None] != first) & (first[:, None] != second) & (second[:, None] != first)
    matrix = np.sign(np.subtract.outer(tie, tie)) * (apart & (second[:, None] != second)).astype(float)
    of_hands = reach[cell]

    def ours() -> None:
        kernels.terminal_value(kernels.SHOWN, 1.0, reach, boards, 0, buffer, value)

    ours()
    if not np.allclose(value[cell], matrix @ of_hands):
        raise AssertionError("the two ways to value a showdown differ")
    our_rate, peer_rate = interleaved(
        lambda: per_second(ours, effort.tabular_seconds),
        lambda: per_second(lambda: matrix @ of_hands, effort.tabular_seconds),
        effort.repetitions,
    )
    note = "peer: dense matrix product, matrix given"
    return Row("flop_showdown", our_rate, peer_rate, "showdowns/s", our_rate / peer_rate, note)


def seven_cards(effort: Effort) -> Row:
    """Strength of random seven-card hands: a batch of them, and phevaluator one by one."""
    try:
        from phevaluator import evaluate_cards  # noqa: PLC0415
    except ImportError:
        raise ReproError("phevaluator is not installed; `make bench` installs it.") from None
    draw = random.Random(0)
    dealt = [draw.sample(range(52), 7) for _ in range(_HANDS)]
    cards = torch.tensor(dealt)
    rank, suit = cards // 4, cards % 4
    hand_strength(rank, suit)

    def one_by_one() -> None:
        for hand in dealt:
            evaluate_cards(*hand)

    our_rate, peer_rate = interleaved(
        lambda: _HANDS * per_second(lambda: hand_strength(rank, suit), effort.tabular_seconds),
        lambda: _HANDS * per_second(one_by_one, effort.tabular_seconds),
        effort.repetitions,
    )
    note = "peer: phevaluator, pure Python"
    return Row("seven_card_strength", our_rate, peer_rate, "hands/s", our_rate / peer_rate, note)


@dataclass(frozen=True)
class Problem:
    """A minibatch of the paper's network on FHP: infosets that traversals of the uniform strategy meet."""

    features: HoldemFeatures
    batch: Minibatch

    @property
    def infosets(self) -> Tensor:
        assert self.batch.infosets is not None
        return self.batch.infosets


def problem(game: Game) -> Problem:
    """One of as many rows as the device is given at a time; all infosets are player 0's, whose first is number 0."""
    device, draw = game.device, torch.Generator(game.device).manual_seed(0)
    met = SamplingEngine(game).external_sampling(Uniform(game), 0, _BATCH[device.type], draw).advantages.infosets
    met = met[met >= opening_infosets(game, 0)]
    infosets = met[torch.randint(len(met), (_BATCH[device.type],), generator=draw, device=device)]
    target = torch.randn(len(infosets), game.num_actions, generator=draw, device=device)
    weight = torch.full((len(infosets), 1), 1 / target.numel(), device=device)
    return Problem(holdem_features(game), Minibatch(infosets, weight, target, torch.zeros((), device=device)))


def paper_network(game: Game) -> Network:
    """Deep CFR's value network as its first version has it."""
    return value_network(NetworkConfig("deep_cfr", 64, None, 64), holdem_features(game).columns, game.num_actions)


def sgd_step(effort: Effort) -> Row:
    """One SGD step of the paper's network on FHP, features included, on the GPU if there is one: as runs take it there,
    and with torch's own autograd, clipping and Adam. Both start alike, and must end alike."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    game = load("fhp", device=device)
    given = problem(game)
    network, plain = (paper_network(game).to(device) for _ in range(2))
    plain.load_state_dict(network.state_dict())
    steps, parameters = _steps_of_runs(network, given, game)
    fit = TorchFit(game, plain)

    def peer() -> None:
        fit.step(given.infosets, given.batch.target)

    steps(1)
    peer()
    if not torch.allclose(parameters(), parameters_to_vector(plain.parameters()), atol=1e-4):
        raise AssertionError("the two steps differ")
    our_rate, peer_rate = interleaved(
        lambda: _TOGETHER * per_second(_finished(lambda: steps(_TOGETHER), device), effort.tabular_seconds),
        lambda: per_second(_finished(peer, device), effort.tabular_seconds),
        effort.repetitions,
    )
    note = f"peer: plain torch; {device}, batch {len(given.infosets)}"
    return Row("fhp_sgd_step", our_rate, peer_rate, "steps/s", our_rate / peer_rate, note)


def sgd_step_muon(effort: Effort) -> Row:
    """A step with Muon for the matrices of hidden layers on the CPU, beside one with Adam for all."""
    game = load("fhp")
    given = problem(game)
    ours, adam = (_steps_of_runs(paper_network(game), given, game, muon)[0] for muon in (_MUON_RATE, None))
    for steps in (ours, adam):
        steps(1)
    our_rate, peer_rate = interleaved(
        lambda: _TOGETHER * per_second(lambda: ours(_TOGETHER), effort.tabular_seconds),
        lambda: _TOGETHER * per_second(lambda: adam(_TOGETHER), effort.tabular_seconds),
        effort.repetitions,
    )
    note = f"batch {len(given.infosets)}; peer: Adam alone"
    return Row("fhp_sgd_step_muon", our_rate, peer_rate, "steps/s", our_rate / peer_rate, note)


def _steps_of_runs(
    network: Network, given: Problem, game: Game, muon: float | None = None
) -> tuple[Callable[[int], object], Callable[[], Tensor]]:
    """Steps as runs take them on this device, and the parameters after them."""
    batch = given.batch
    if given.infosets.is_cuda:
        adam = StackedAdam(network, given.features.fixed_rows, 1, len(given.infosets), 1.0)
        adam.load([parameters_to_vector(network.parameters()).detach()])

        def step(steps: int) -> None:
            for _ in range(steps):
                adam.step([batch], _RATE)

        return step, lambda: adam.flat[0]
    flat = FlatAdam(network, _RATE, 1.0, muon=muon)
    compiled = CardSteps(network, flat, game, 0)

    def take(steps: int) -> None:
        weight, target, infosets = (
            part.expand(steps, *part.shape) for part in (batch.weight[:, 0], batch.target, given.infosets)
        )
        compiled.take(weight.contiguous(), target.contiguous(), np.full(steps, _RATE), steps, infosets)

    return take, lambda: flat.flat


def sgd_step_products(effort: Effort) -> Row:
    """The same step on the CPU in operations per second, beside the matrix products that it cannot do without, at the
    same shapes: the card branch after its first layer, the layer that joins the branches, and the trunk."""
    game = load("fhp")
    given, network = problem(game), paper_network(game)
    steps, _ = _steps_of_runs(network, given, game)
    rows, width, layers = len(given.infosets), 64, 5
    dice = np.random.default_rng(0)
    x, dy = (dice.standard_normal((rows, width), np.float32) for _ in range(2))
    weight = dice.standard_normal((width, width), np.float32)
    out, gradient = np.empty_like(x), np.empty_like(weight)
    giga = 3 * layers * 2e-9 * rows * width**2

    def multiply() -> None:
        for _ in range(layers):
            np.dot(x, weight, out=out)
            np.dot(dy.T, x, out=gradient)
            np.dot(dy, weight, out=out)

    steps(1)
    ours, alone = interleaved(
        lambda: giga * _TOGETHER * per_second(lambda: steps(_TOGETHER), effort.tabular_seconds),
        lambda: giga * per_second(multiply, effort.tabular_seconds),
        effort.repetitions,
    )
    note = f"batch {rows}; peer: its own {layers} layers' matrix products by np.dot, and nothing else"
    return Row("fhp_sgd_step_products", ours, alone, "GFLOP/s", ours / alone, note)


def bfloat16_products(effort: Effort, width: int) -> Row:
    """The products of a layer's forward and backward pass in bfloat16, which fits do not use on a CPU, beside float32;
    operands are given in either precision, so that what converting them costs comes on top."""
    rows, draw = 2048, torch.Generator().manual_seed(0)
    x, dy, weight = (torch.randn(n, width, generator=draw) for n in (rows, rows, width))
    giga = 3 * 2e-9 * rows * width**2

    def multiply(x: Tensor, dy: Tensor, weight: Tensor) -> list[Tensor]:
        return [x @ weight, dy.T @ x, dy @ weight]

    in_bfloat16 = [part.bfloat16() for part in (x, dy, weight)]
    exact, found = multiply(x, dy, weight), multiply(*in_bfloat16)
    error = max(float((a - b.float()).norm() / a.norm()) for a, b in zip(exact, found, strict=True))
    ours, peer = interleaved(
        lambda: giga * per_second(lambda: multiply(*in_bfloat16), effort.tabular_seconds),
        lambda: giga * per_second(lambda: multiply(x, dy, weight), effort.tabular_seconds),
        effort.repetitions,
    )
    note = f"torch, {rows} rows of {width}; peer: float32; relative error {error:.1e}"
    return Row(f"bfloat16_products_{width}", ours, peer, "GFLOP/s", ours / peer, note)


def sgd_step_bfloat16(effort: Effort) -> Row:
    """Our compiled step, in float32, beside torch's with the network's products in bfloat16; and what that does to a
    fit: what either precision leaves of the squared error on samples of other traversals."""
    game = load("fhp")
    given, start = problem(game), paper_network(game)
    steps, _ = _steps_of_runs(deepcopy(start), given, game)
    peer = TorchFit(game, deepcopy(start), torch.bfloat16)
    steps(1)
    peer.step(given.infosets, given.batch.target)
    our_rate, peer_rate = interleaved(
        lambda: _TOGETHER * per_second(lambda: steps(_TOGETHER), effort.tabular_seconds),
        lambda: per_second(lambda: peer.step(given.infosets, given.batch.target), effort.tabular_seconds),
        effort.repetitions,
    )
    learned, others = (_sampled(game, 6000 * effort.peer_steps, seed) for seed in (1, 2))
    half, single = (
        TorchFit(game, deepcopy(start), precision).left(learned, others, 20 * effort.peer_steps)
        for precision in (torch.bfloat16, torch.float32)
    )
    note = (
        f"batch {len(given.infosets)}; peer: torch, autocast to bfloat16; after {20 * effort.peer_steps} steps "
        f"{half:.4f} is left of the squares of other samples, in torch's float32 {single:.4f}"
    )
    return Row("fhp_sgd_step_bfloat16", our_rate, peer_rate, "steps/s", our_rate / peer_rate, note)


def _sampled(game: Game, traversals: int, seed: int) -> tuple[Tensor, Tensor]:
    """Infosets of player 0 after the first betting round, and sampled advantages there, with a spread of 1."""
    draw = torch.Generator().manual_seed(seed)
    samples = SamplingEngine(game).external_sampling(Uniform(game), 0, traversals, draw).advantages
    after = samples.infosets >= opening_infosets(game, 0)
    return samples.infosets[after], samples.targets[after] / samples.targets[after].std()


class TorchFit:
    """A network on FHP that is fitted with torch's own autograd, clipping and Adam.

    Args:
        game: FHP.
        network: what is fitted.
        precision: of the network's products, forward and backward.
    """

    def __init__(self, game: Game, network: Network, precision: torch.dtype = torch.float32) -> None:
        self._network, self._precision = network, precision
        self._features, self._adam = holdem_features(game), torch.optim.Adam(network.parameters(), _RATE)

    def step(self, infosets: Tensor, target: Tensor) -> None:
        """One step on a minibatch.

        Args:
            infosets: `[n]`.
            target: `[n, actions]`.
        """
        self._adam.zero_grad()
        with torch.autocast(target.device.type, self._precision, enabled=self._precision != torch.float32):
            output = self._network(*self._features.rows(infosets))
        (output.float() - target).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), 1.0)
        self._adam.step()

    def left(self, learned: tuple[Tensor, Tensor], others: tuple[Tensor, Tensor], steps: int) -> float:
        """Share of the squares of other samples that is left after steps on minibatches of those learned from."""
        draw = torch.Generator().manual_seed(0)
        for _ in range(steps):
            rows = torch.randint(len(learned[0]), (_BATCH["cpu"],), generator=draw)
            self.step(learned[0][rows], learned[1][rows])
        with torch.no_grad():
            output = self._network(*self._features.rows(others[0]))
        return float((output - others[1]).square().mean() / others[1].square().mean())


def table_of_answers(effort: Effort) -> Row:
    """A network's answers at all infosets of player 0 on some flops: each hand through its branch once, and each row by
    itself."""
    game = load("fhp_limit")
    form = HoldemForm(game, sample_boards(game, 10, torch.Generator().manual_seed(0)))
    infosets, network, inputs = form.infosets[form.player_slice[0]], paper_network(game), holdem_features(game)
    infosets = infosets[infosets >= opening_infosets(game, 0)]

    def ours() -> Tensor:
        return torch.cat([output for _, output, _ in answers(network, inputs, infosets)])

    @torch.no_grad()
    def peer() -> Tensor:
        return torch.cat([network(*inputs(some)) for some in infosets.split(1 << 15)])

    if not torch.allclose(ours(), peer(), atol=1e-4):
        raise AssertionError("the two tables differ")
    our_rate, peer_rate = interleaved(
        lambda: len(infosets) * per_second(ours, effort.tabular_seconds),
        lambda: len(infosets) * per_second(peer, effort.tabular_seconds),
        effort.repetitions,
    )
    nodes = int((game.tree.player == 0).sum())
    note = f"peer: plain torch, every row by itself; player 0 has {nodes} betting nodes"
    return Row("fhp_limit_answers", our_rate, peer_rate, "infosets/s", our_rate / peer_rate, note)


def _finished(step: Callable[[], object], device: str) -> Callable[[], object]:
    """`step`, waiting for the device."""
    if device == "cpu":
        return step

    def waiting() -> None:
        step()
        torch.cuda.synchronize()

    return waiting
