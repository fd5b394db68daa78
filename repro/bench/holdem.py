"""Hold'em: what the exact engine and the deals consist of, beside the plain way to do them."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from repro.algorithms.minibatches import Minibatch
from repro.algorithms.stacked import StackedAdam
from repro.bench.measure import Effort, Row, interleaved, per_second
from repro.config import NetworkConfig
from repro.engine import board_kernels as kernels
from repro.engine.holdem_form import HoldemForm, sample_boards
from repro.engine.sampling import SamplingEngine
from repro.errors import ReproError
from repro.games import load
from repro.games.hand_strength import hand_strength
from repro.networks.gradients import gradients_of
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import Network, value_network
from repro.networks.optimizers import FlatAdam
from repro.policies.network import Uniform

_HANDS = 20_000
"""Hands of one call."""

_BATCH = {"cpu": 1024, "cuda": 10_000}
"""Rows of a minibatch; on a GPU the paper's."""


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    return [showdown(effort), seven_cards(effort), sgd_step(effort)]


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


def sgd_step(effort: Effort) -> Row:
    """One SGD step of the paper's network on FHP, features included, on the GPU if there is one: as runs take it there,
    and with torch's own autograd, clipping and Adam. Both start alike, and must end alike."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    game = load("fhp", device=device)
    features, draw = HoldemFeatures(game), torch.Generator(device).manual_seed(0)
    config = NetworkConfig("deep_cfr", 64, None, 192)
    network, plain = (value_network(config, features.columns, game.num_actions).to(device) for _ in range(2))
    plain.load_state_dict(network.state_dict())
    met = SamplingEngine(game).external_sampling(Uniform(game), 0, _BATCH[device], draw).advantages.infosets
    infosets = met[torch.randint(len(met), (_BATCH[device],), generator=draw, device=device)]
    target = torch.randn(len(infosets), game.num_actions, generator=draw, device=device)
    weight = torch.full((len(infosets), 1), 1 / target.numel(), device=device)
    batch = Minibatch(infosets, weight, target, torch.zeros((), device=device))
    step, parameters = _step_of_runs(network, features, batch)
    torch_adam = torch.optim.Adam(plain.parameters(), 1e-3)

    def peer() -> None:
        torch_adam.zero_grad()
        x, legal = features.rows(infosets)
        ((plain(x, legal) - target).square() * weight).sum().backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        torch_adam.step()

    step()
    peer()
    if not torch.allclose(parameters(), parameters_to_vector(plain.parameters()), atol=1e-4):
        raise AssertionError("the two steps differ")
    our_rate, peer_rate = interleaved(
        lambda: per_second(_finished(step, device), effort.tabular_seconds),
        lambda: per_second(_finished(peer, device), effort.tabular_seconds),
        effort.repetitions,
    )
    note = f"peer: plain torch; {device}, batch {len(infosets)}"
    return Row("fhp_sgd_step", our_rate, peer_rate, "steps/s", our_rate / peer_rate, note)


def _step_of_runs(
    network: Network, features: HoldemFeatures, batch: Minibatch
) -> tuple[Callable[[], object], Callable[[], Tensor]]:
    """A step as runs take it on this device, and the parameters after it."""
    assert batch.infosets is not None
    if batch.infosets.is_cuda:
        adam = StackedAdam(network, features.fixed_rows, 1, len(batch.infosets), 1.0)
        adam.load([parameters_to_vector(network.parameters()).detach()])
        return lambda: adam.step([batch], 1e-3), lambda: adam.flat[0]
    flat, gradients, infosets = FlatAdam(network, 1e-3, 1.0), gradients_of(network), batch.infosets

    def step() -> None:
        gradients.rows(*features.rows(infosets))
        gradients.compute(2 * batch.weight, batch.target)
        flat.update()

    return step, lambda: flat.flat


def _finished(step: Callable[[], object], device: str) -> Callable[[], object]:
    """`step`, waiting for the device."""
    if device == "cpu":
        return step

    def waiting() -> None:
        step()
        torch.cuda.synchronize()

    return waiting
