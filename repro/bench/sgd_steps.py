"""SGD steps of Deep CFR's value networks on Leduc, beside OpenSpiel's, their matrix products alone, and autograd's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.memory import Reservoir
from repro.bench.both_sides import (
    BATCH_SIZE,
    CLIP_NORM,
    LEARNING_RATE,
    MATRIX,
    STEPS,
    WIDTH,
    Setup,
    fit_seconds,
    listed,
)
from repro.bench.measure import Effort, Row, interleaved, per_second, seconds
from repro.common.seeding import generator
from repro.config import NetworkConfig
from repro.games import load
from repro.networks.features import feature_columns
from repro.networks.gradients import Autograd, HandDifferentiated
from repro.networks.inputs import network_inputs
from repro.networks.modules import Network, value_network
from repro.networks.optimizers import FlatAdam


def rows(setup: Setup) -> list[Row]:
    """All benchmarks of this module."""
    return [
        leduc_sgd_overhead(setup),
        *leduc_sgd_steps(setup),
        leduc_sgd_step_products(setup),
        leduc_sgd_step_floor(setup),
        leduc_sgd_step_autograd_grouped(setup),
        leduc_sgd_step_autograd_ungrouped(setup),
        big_leduc_gradients_by_hand(setup.effort),
    ]


def leduc_sgd_overhead(setup: Setup) -> Row:
    """Our whole iteration beside its SGD steps alone: traversals, memories and bookkeeping should cost next to nothing.

    The bare steps train the same networks on the same memories, drawing the minibatches included.
    """
    trainer = setup.trainer

    def bare() -> float:
        parts = zip(trainer.value_networks, trainer.optimizers(), strict=True)
        return sum(fit_seconds(setup, n, optimizer, player, STEPS) for player, (n, optimizer) in enumerate(parts))

    iteration, steps = interleaved(lambda: seconds(trainer.step), bare, setup.effort.repetitions)
    note = f"ours: whole iteration, peer: its 2 x {STEPS} bare SGD steps; the ratio should be at most 1.15"
    return Row("leduc_sgd_overhead", iteration, steps, "s", iteration / steps, note)


def step_operations(network: nn.Module, rows: int) -> int:
    """Floating-point operations of one SGD step's matrix products; everything else counts as nothing.

    A linear layer has three products of equal size: its output, its weights' gradient and its input's gradient. The
    first layer's input needs no gradient.
    """
    sizes = [m.in_features * m.out_features for m in network.modules() if isinstance(m, nn.Linear)]
    return 2 * rows * (3 * sum(sizes) - sizes[0])


def leduc_sgd_steps(setup: Setup) -> list[Row]:
    """One value SGD step (SD-CFR's network, drawing the minibatch included) in operations per second.

    A minibatch of 2,048 rows meets only 144 infosets, and rows of one infoset are grouped. The first row counts what
    is computed, the second what a step on 2,048 separate rows would compute. The peer is a plain matrix product.
    """
    effort, trainer = setup.effort, setup.trainer
    network, optimizer = sd_cfr_network(trainer)
    a, b, out = (torch.rand(MATRIX, MATRIX) for _ in range(3))

    def ours() -> float:
        return effort.steps / fit_seconds(setup, network, optimizer, 0, effort.steps)

    def peer() -> float:
        return effort.small * 2e-9 * MATRIX**3 / seconds(lambda: [torch.mm(a, b, out=out) for _ in range(effort.small)])

    steps_per_second, product = interleaved(ours, peer, effort.repetitions)
    rows = setup.game.player_slice[0].stop
    computed = 1e-9 * step_operations(network, rows) * steps_per_second
    nominal = 1e-9 * step_operations(network, BATCH_SIZE) * steps_per_second
    note = f"peer: float32 matrix product, {MATRIX} x {MATRIX}"
    of_step = f"{rows} rows computed, {1e-6 * step_operations(network, rows):.1f} MFLOP a step"
    return [
        Row("leduc_sgd_step", computed, product, "GFLOP/s", computed / product, f"{of_step}; {note}"),
        Row(
            "leduc_sgd_step_nominal", nominal, product, f"GFLOP/s (nominal, {BATCH_SIZE} rows)", nominal / product,
            f"counts {BATCH_SIZE} rows although {rows} are computed; {note}",
        ),
    ]  # fmt: skip


def sd_cfr_network(trainer: DeepCFR) -> tuple[Network, FlatAdam]:
    """A value network of the SD-CFR architecture, and its optimiser."""
    network = plain_network(trainer)
    return network, FlatAdam(network, LEARNING_RATE, CLIP_NORM)


def plain_network(trainer: DeepCFR) -> Network:
    """A value network of the SD-CFR architecture, whose parameters are its own."""
    return value_network(NetworkConfig("sd_cfr", WIDTH), feature_columns(trainer.game), trainer.game.num_actions)


def products(network: Network, rows: int) -> Callable[[], None]:
    """A function that does the matrix products that `step_operations` counts, by NumPy, and nothing else."""
    dice = np.random.default_rng(0)
    done: list[tuple[NDArray[np.float32], ...]] = []
    for module in network.modules():
        if isinstance(module, nn.Linear):
            shapes = (rows, module.in_features), (module.out_features, module.in_features), (rows, module.out_features)
            x, weight, dy = (dice.standard_normal(shape, np.float32) for shape in shapes)
            parts = [(x, weight.T), (dy.T, x)] + ([(dy, weight)] if done else [])
            done += [(a, b, np.empty((len(a), b.shape[1]), np.float32)) for a, b in parts]

    def multiply() -> None:
        for a, b, out in done:
            np.dot(a, b, out=out)

    return multiply


def leduc_sgd_step_products(setup: Setup) -> Row:
    """The same step beside its matrix products alone, at the same shapes: the ratio is the share of its time that a
    step without anything else would still take."""
    effort, trainer = setup.effort, setup.trainer
    network, optimizer = sd_cfr_network(trainer)
    rows = setup.game.player_slice[0].stop
    multiply, giga = products(network, rows), 1e-9 * step_operations(network, rows)
    step, alone = interleaved(
        lambda: giga * effort.steps / fit_seconds(setup, network, optimizer, 0, effort.steps),
        lambda: giga * effort.steps / seconds(lambda: [multiply() for _ in range(effort.steps)]),
        effort.repetitions,
    )
    note = f"{rows} rows computed; peer: the step's own matrix products by np.dot, and nothing else"
    return Row("leduc_sgd_step_products", step, alone, "GFLOP/s", step / alone, note)


def leduc_sgd_step_floor(setup: Setup) -> Row:
    """The same step beside what no way to write it saves: its random numbers, the memory's entries that these name, and
    the matrix products, each by NumPy or torch. Grouping, everything else in the network, and Adam are left out.
    """
    effort, trainer = setup.effort, setup.trainer
    memory = trainer.value_memories[0]
    assert isinstance(memory, Reservoir)
    network, optimizer = sd_cfr_network(trainer)
    multiply, draw = products(network, setup.game.player_slice[0].stop), generator(0, "bench floor")
    entries = np.zeros((memory.size, 2 + setup.game.num_actions), np.float32)

    def least() -> None:
        chunk = 100
        for start in range(0, effort.steps, chunk):
            steps = min(chunk, effort.steps - start)
            index = torch.randint(memory.size, (steps * BATCH_SIZE,), generator=draw)
            # Whole entries side by side are read faster than the memory's columns are.
            entries.take(index.numpy(), axis=0, mode="clip")
            for _ in range(steps):
                multiply()

    ours, floor = interleaved(
        lambda: 1e3 * fit_seconds(setup, network, optimizer, 0, effort.steps) / effort.steps,
        lambda: 1e3 * seconds(least) / effort.steps,
        effort.repetitions,
    )
    note = f"peer: random numbers, reading {BATCH_SIZE} entries and the matrix products, nothing else; at best 1"
    return Row("leduc_sgd_step_floor", ours, floor, "ms", ours / floor, note)


@dataclass(frozen=True)
class Problem:
    """A minibatch as torch's tutorials have it.

    Attributes:
        features, legal: `[rows, ...]`, the network's inputs.
        weight, target: `[rows, 1]` and `[rows, actions]`; the loss is the weighted squared error's sum.
    """

    features: Tensor
    legal: Tensor
    weight: Tensor
    target: Tensor


def leduc_sgd_step_autograd_ungrouped(setup: Setup) -> Row:
    """Our value SGD step beside the plain way: 2,048 gathered rows, torch's autograd, clipping and Adam.

    Most of the difference is that ours groups the rows of an infoset; that of the two ways to take the same step is in
    `leduc_sgd_step_autograd_grouped`. Both draw their minibatches from the same memory.
    """
    memory = setup.trainer.value_memories[0]
    assert isinstance(memory, Reservoir)
    minibatches = gathered(setup, memory)
    note = f"peer: torch autograd, clip_grad_norm_ and torch.optim.Adam, on all {BATCH_SIZE} rows"
    return beside_autograd(setup, "leduc_sgd_step_autograd_ungrouped", lambda _: minibatches, note)


def leduc_sgd_step_autograd_grouped(setup: Setup) -> Row:
    """Our value SGD step beside torch's autograd, clipping and Adam on the same minibatches, whose rows are grouped.

    Both draw them in the same way, which is timed.
    """

    def grouped(steps: int) -> Iterator[Problem]:
        features, legal = player_rows(setup)
        draw = generator(0, "bench minibatches", 0, 0)
        for batch in setup.trainer.value_memories[0].minibatches(steps, BATCH_SIZE, 1, 1.0, draw):
            yield Problem(features, legal, batch.weight, batch.target)

    note = "peer: torch autograd, clip_grad_norm_ and torch.optim.Adam, on the same grouped rows"
    return beside_autograd(setup, "leduc_sgd_step_autograd_grouped", grouped, note)


def beside_autograd(setup: Setup, name: str, problems: Callable[[int], Iterator[Problem]], note: str) -> Row:
    """Our value SGD step beside a plain one, on so many of the `problems` that a number of steps asks for."""
    effort = setup.effort
    network, optimizer = sd_cfr_network(setup.trainer)
    plain = plain_steps(setup.trainer)
    fewer = effort.steps // 5

    def ours() -> float:
        return 1e3 * fit_seconds(setup, network, optimizer, 0, effort.steps) / effort.steps

    def peer() -> float:
        return 1e3 * seconds(lambda: plain(islice(problems(fewer), fewer))) / fewer

    our_ms, peer_ms = interleaved(ours, peer, effort.repetitions)
    return Row(name, our_ms, peer_ms, "ms", peer_ms / our_ms, note)


def player_rows(setup: Setup) -> tuple[Tensor, Tensor]:
    """Features and legal mask of player 0's infosets."""
    rows = setup.game.player_slice[0]
    return listed(setup.trainer).features[rows], setup.game.legal[rows]


def gathered(setup: Setup, memory: Reservoir) -> Iterator[Problem]:
    """Minibatches of player 0 without end, whose rows are as they were drawn."""
    entries = memory.state_dict()
    infosets, iterations = entries["infoset"].long(), entries["iteration"].float()[:, None]
    targets = entries["target"].t().contiguous()
    features, legal = player_rows(setup)
    draw = generator(0, "bench plain")

    def drawn() -> Iterator[Problem]:
        while True:
            index = torch.randint(memory.size, (BATCH_SIZE,), generator=draw)
            rows, target = infosets[index], targets[index]
            yield Problem(features[rows], legal[rows], iterations[index] / target.numel(), target)

    return drawn()


def plain_steps(trainer: DeepCFR) -> Callable[[Iterator[Problem]], None]:
    """A function that takes SGD steps of player 0's value network the way that torch's tutorials do."""
    network = plain_network(trainer)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

    def take(problems: Iterator[Problem]) -> None:
        for problem in problems:
            output = network(problem.features, problem.legal)
            loss = (problem.weight * (output - problem.target).square()).sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), CLIP_NORM)
            optimizer.step()

    return take


def big_leduc_gradients_by_hand(effort: Effort) -> Row:
    """Gradients of figure 3's network on the rows of one of its minibatches, beside torch's autograd.

    It has branches, and Big Leduc too many infosets to group, so that its steps are not compiled: their gradients are
    those of `repro.networks.rules`.
    """
    game, width, rows = load("big_leduc"), 64, 2816
    inputs, columns = network_inputs(game)
    features, legal = inputs(torch.arange(game.player_slice[0].start, game.player_slice[0].stop))
    drawn = torch.randint(len(features), (rows,), generator=generator(0, "bench gradients"))

    def milliseconds(kind: type[HandDifferentiated | Autograd]) -> Callable[[], float]:
        network = value_network(NetworkConfig("brown", width, card_width=width), columns, game.num_actions)
        FlatAdam(network, LEARNING_RATE)  # Puts all parameters in one buffer, as in training.
        target, weight = network(features[drawn], legal[drawn]).detach() + 1, torch.ones(rows, 1)
        gradients = kind(network)
        gradients.prepare(features, legal)

        def compute() -> None:
            gradients.select(drawn)
            gradients.compute(weight, target)

        return lambda: 1e3 / per_second(compute, effort.tabular_seconds)

    ours, peer = interleaved(milliseconds(HandDifferentiated), milliseconds(Autograd), effort.repetitions)
    return Row("big_leduc_gradients_by_hand", ours, peer, "ms", peer / ours, "peer: torch's autograd, on the same rows")
