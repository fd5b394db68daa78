"""Deep CFR's parts on Leduc, with the settings that SD-CFR's experiments have there: 1,500 traversals per player and
iteration, 750 SGD steps of 2,048 rows per player, and memories that hold 1 M entries."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repro.algorithms.deep_cfr import DeepCFR, DeepCFRConfig
from repro.algorithms.memory import Reservoir
from repro.algorithms.regression import fit
from repro.algorithms.strategies import Listed
from repro.bench.measure import Effort, Row, interleaved, open_spiel, per_second, seconds
from repro.common.seeding import generator
from repro.config import NetworkConfig, RegressionConfig
from repro.games import Game, load
from repro.networks.features import feature_columns
from repro.networks.gradients import Autograd, HandDifferentiated
from repro.networks.inputs import network_inputs
from repro.networks.modules import MaskedLinear, Network, fc, value_network
from repro.networks.optimizers import FlatAdam
from repro.policies import TabularPolicy
from repro.policies.regret_matching import regret_matching

TRAVERSALS = 1500
STEPS = 750
BATCH_SIZE = 2048
CAPACITY = 1_000_000
WIDTH, LAYERS = 64, 3
LEARNING_RATE, CLIP_NORM = 1e-3, 1.0
MATRIX = 1024


@dataclass(frozen=True)
class Setup:
    """What the benchmarks share, because filling memories takes longer than most of them.

    Attributes:
        trainer: our Deep CFR with 3x64 fully-connected value networks, memories full.
        solver: OpenSpiel's Deep CFR with the same hidden layers, memories full.
    """

    effort: Effort
    game: Game
    trainer: DeepCFR
    solver: Any
    pyspiel: Any


def prepare(effort: Effort) -> Setup:
    """Build both sides and fill their memories."""
    pyspiel, deep_cfr = open_spiel()
    game = load("leduc")
    regression = RegressionConfig(STEPS, BATCH_SIZE, LEARNING_RATE, CLIP_NORM, "previous")
    algorithm = DeepCFRConfig(
        name="bench", iterations=sys.maxsize, snapshot_every=sys.maxsize, traversals=TRAVERSALS,
        value_capacity=CAPACITY, strategy_capacity=CAPACITY, value=regression, average=regression,
    )  # fmt: skip
    trainer = DeepCFR(game, algorithm, NetworkConfig("fc", WIDTH, LAYERS), seed=0)
    fill_ours(trainer)
    solver = deep_cfr.DeepCFRSolver(
        pyspiel.load_game("leduc_poker"), policy_network_layers=(WIDTH,) * LAYERS,
        advantage_network_layers=(WIDTH,) * LAYERS, learning_rate=LEARNING_RATE, batch_size_advantage=BATCH_SIZE,
        memory_capacity=CAPACITY, advantage_network_train_steps=effort.peer_steps,
    )  # fmt: skip
    fill_peer(solver)
    return Setup(effort, game, trainer, solver, pyspiel)


def listed(trainer: DeepCFR) -> Listed:
    """The table of current strategies, and the features of all infosets."""
    assert isinstance(trainer.strategies, Listed)
    return trainer.strategies


def fill_ours(trainer: DeepCFR) -> None:
    """Fill every memory with samples of the uniform strategy, repeated until it is full."""
    for traverser in range(2):
        draw = generator(0, "bench fill", 0, traverser)
        policy = TabularPolicy(listed(trainer).table)
        traversals = trainer.engine.external_sampling(policy, traverser, 20_000, draw)
        destinations = (
            (trainer.value_memories[traverser], traversals.advantages),
            (trainer.strategy_memories[1 - traverser], traversals.opponent_strategies),
        )
        for memory, samples in destinations:
            while memory.size < CAPACITY:
                memory.add(samples, 1, draw)


def fill_peer(solver: Any) -> None:
    """Fill OpenSpiel's buffers with the entries of a few traversals, repeated; their contents do not affect speed."""
    for player in range(2):
        traverse_peer(solver, player, 50)
    for buffer in (*solver.advantage_buffers, solver.strategy_buffer):
        held = len(buffer)
        for column in buffer.experience:
            column[:] = column[np.arange(CAPACITY) % held]
        buffer.add_calls = np.array(CAPACITY)


@torch.no_grad()
def traverse_ours(setup: Setup, networks: Sequence[Network], player: int, draw: torch.Generator) -> None:
    """Our counterpart of 1,500 calls of OpenSpiel's `_traverse_game_tree`: evaluate the networks, sample, store."""
    game, trainer = setup.game, setup.trainer
    tables = []
    for network, player_rows in zip(networks, game.player_slice, strict=True):
        legal = game.legal[player_rows]
        tables.append(regret_matching(network(listed(trainer).features[player_rows], legal), legal, "argmax"))
    traversals = trainer.engine.external_sampling(TabularPolicy(torch.cat(tables)), player, TRAVERSALS, draw)
    trainer.value_memories[player].add(traversals.advantages, 1, draw)
    trainer.strategy_memories[1 - player].add(traversals.opponent_strategies, 1, draw)


def traverse_peer(solver: Any, player: int, traversals: int) -> None:
    """OpenSpiel's inner loop of `solve`."""
    for _ in range(traversals):
        solver._traverse_game_tree(solver._root_node, player)


def fit_seconds(setup: Setup, network: nn.Module, optimizer: FlatAdam, player: int, steps: int) -> float:
    """Wall time of our SGD steps as every training takes them, drawing the minibatches included."""
    trainer, player_rows = setup.trainer, setup.game.player_slice[player]
    draw = generator(0, "bench minibatches", 0, player)
    batches = trainer.value_memories[player].minibatches(steps, BATCH_SIZE, 1, 1.0, draw)
    features, legal = listed(trainer).features[player_rows], setup.game.legal[player_rows]
    return seconds(lambda: fit(network, optimizer, batches, steps, features, legal))


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    setup = prepare(effort)
    return [
        leduc_traversals(setup),
        leduc_iteration(setup),
        leduc_sgd_overhead(setup),
        *leduc_sgd_steps(setup),
        leduc_sgd_step_products(setup),
        leduc_sgd_step_floor(setup),
        leduc_sgd_step_autograd_grouped(setup),
        leduc_sgd_step_autograd_ungrouped(setup),
        big_leduc_gradients_by_hand(effort),
    ]


def leduc_traversals(setup: Setup) -> Row:
    """External sampling with 3x64 value networks, both players in turn, samples stored in memories of 1 M entries.

    Ours evaluates the networks on all infosets once per 1,500 traversals (timed); OpenSpiel evaluates them at every
    node. How much of the tree a traversal visits depends on the networks, therefore both sides go through many
    randomly initialised ones. OpenSpiel's have a LayerNorm before the output that ours lack.
    """
    game, solver, effort = setup.game, setup.solver, setup.effort
    features, actions = listed(setup.trainer).features, game.num_actions
    pairs = [
        [fc(features.shape[1], WIDTH, actions, LAYERS, MaskedLinear()) for _ in game.player_slice]
        for _ in range(effort.small)
    ]
    draw = generator(0, "bench traversals")

    def ours() -> float:
        start = time.perf_counter()
        for pair in pairs:
            for player in range(2):
                traverse_ours(setup, pair, player, draw)
        return 2 * len(pairs) * TRAVERSALS / (time.perf_counter() - start)

    def peer() -> float:
        start, traversals = time.perf_counter(), 0
        while time.perf_counter() - start < effort.peer_seconds:
            for player in range(2):
                solver._reinitialize_advantage_network(player)
            for player in range(2):
                traverse_peer(solver, player, 10)
            traversals += 20
        return traversals / (time.perf_counter() - start)

    our_rate, peer_rate = interleaved(ours, peer, effort.repetitions)
    note = f"peer: as many traversals as take {effort.peer_seconds} s"
    return Row("leduc_traversals", our_rate, peer_rate, "traversals/s", our_rate / peer_rate, note)


def leduc_iteration(setup: Setup) -> Row:
    """One Deep CFR iteration of both players: 1,500 traversals and 750 SGD steps each, full memories, no evaluation.

    OpenSpiel's number is extrapolated: its traversals and SGD steps are timed separately, per player, on fewer of them
    than an iteration has, and the times are scaled up. Both sides use three hidden layers of 64 units and minibatches
    of 2,048 rows; OpenSpiel's step has no gradient clipping, and its network has an additional LayerNorm.
    OpenSpiel draws minibatches without replacement, which permutes the whole memory each time.
    """
    solver, effort = setup.solver, setup.effort

    def peer() -> float:
        total = 0.0
        for player in range(2):
            traversing = seconds(partial(traverse_peer, solver, player, effort.peer_traversals))
            training = seconds(partial(solver._learn_advantage_network, player))
            total += traversing * TRAVERSALS / effort.peer_traversals + training * STEPS / effort.peer_steps
        return total

    our_seconds, peer_seconds = interleaved(lambda: seconds(setup.trainer.step), peer, effort.repetitions)
    network, rows = setup.trainer.value_networks[0], setup.game.player_slice[0].stop
    note = (
        f"peer: extrapolated from {effort.peer_traversals} traversals and {effort.peer_steps} SGD steps per player; a "
        f"step of ours is {1e-6 * step_operations(network, rows):.1f} MFLOP"
    )
    return Row("leduc_iteration", our_seconds, peer_seconds, "s/iteration", peer_seconds / our_seconds, note)


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
