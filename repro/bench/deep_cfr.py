"""Deep CFR's parts on Leduc, with the settings that SD-CFR's experiments have there: 1,500 traversals per player and
iteration, 750 SGD steps of 2,048 rows per player, and memories that hold 1 M entries."""

from __future__ import annotations

import time
from functools import partial

from repro.bench import sgd_steps
from repro.bench.both_sides import (
    LAYERS,
    STEPS,
    TRAVERSALS,
    WIDTH,
    Setup,
    listed,
    prepare,
    traverse_ours,
    traverse_peer,
)
from repro.bench.measure import Effort, Row, interleaved, seconds
from repro.bench.sgd_steps import step_operations
from repro.common.seeding import generator
from repro.networks.modules import MaskedLinear, fc


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of Deep CFR."""
    setup = prepare(effort)
    return [leduc_traversals(setup), leduc_iteration(setup), *sgd_steps.rows(setup)]


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
