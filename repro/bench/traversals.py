"""Traversals in the later Deep CFR paper's Flop Hold'em: how many a second, and what merging their samples saves."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from repro.algorithms.memory import Reservoir
from repro.algorithms.ranks import ALONE
from repro.bench.both_sides import traverse_peer
from repro.bench.measure import Effort, Row, interleaved, open_spiel
from repro.bench.rank import prepared, traverse
from repro.config.checks import game_of
from repro.config.schema import Config
from repro.plans.planning import plan

_CAPACITY = 10_000
"""What OpenSpiel's buffers hold, whose entries are features."""


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    return [*fhp_limit_traversals(effort), fhp_limit_rows_alike(effort)]


def _config(*overrides: str) -> Config:
    """Of `fhp_limit` at scale `laptop`: 100,000 traversals a player and iteration."""
    return plan(["experiment=fhp_limit", "scale=laptop", *overrides], multirun=False).runs[0].config


def fhp_limit_traversals(effort: Effort) -> list[Row]:
    """External sampling with Deep CFR's value networks, samples stored: ours all at once, OpenSpiel's one by one on its
    `universal_poker`, with three layers of 64 units, a network call at every decision.

    Ours has tables for the first betting round. How much of the tree a traversal visits depends on the strategies,
    which are those of random networks on OpenSpiel's side; so the second row counts decisions and ends of hands.
    """
    config = _config("algorithm.value_capacity=1000000", "algorithm.strategy_capacity=1000000")
    model, solver = prepared(game_of(config), config, ALONE), open_spiel_solver(effort)
    traversals, met = config.algorithm.traversals, counted(solver)
    nodes: tuple[list[float], list[float]] = ([], [])

    def ours() -> float:
        before, start = model.nodes_touched, time.perf_counter()
        traverse(model, 1)
        elapsed = time.perf_counter() - start
        nodes[0].append((model.nodes_touched - before) / elapsed)
        return traversals / elapsed

    def peer() -> float:
        for player in range(2):
            solver._reinitialize_advantage_network(player)
        before, start, count = met(), time.perf_counter(), 0
        while time.perf_counter() - start < effort.peer_seconds:
            traverse_peer(solver, 0, 10)
            count += 10
        elapsed = time.perf_counter() - start
        nodes[1].append((met() - before) / elapsed)
        return count / elapsed

    our_rate, peer_rate = interleaved(ours, peer, effort.repetitions)
    our_nodes, peer_nodes = map(statistics.median, nodes)
    note = f"peer: OpenSpiel's Deep CFR, as many traversals as take {effort.peer_seconds} s"
    return [
        Row("fhp_limit_traversals", our_rate, peer_rate, "traversals/s", our_rate / peer_rate, note),
        Row("fhp_limit_nodes", our_nodes, peer_nodes, "nodes/s", our_nodes / peer_nodes, f"the same; {note}"),
    ]


def open_spiel_solver(effort: Effort) -> Any:
    """OpenSpiel's Deep CFR on the same game."""
    pyspiel, deep_cfr = open_spiel()
    game = pyspiel.load_game(
        "universal_poker",
        {
            "betting": "limit", "bettingAbstraction": "fcpa", "numPlayers": 2, "numRounds": 2, "blind": "50 100",
            "raiseSize": "100 100", "maxRaises": "3 4", "firstPlayer": "1 2", "numRanks": 13, "numSuits": 4,
            "numHoleCards": 2, "numBoardCards": "0 3",
        },
    )  # fmt: skip
    return deep_cfr.DeepCFRSolver(
        game, policy_network_layers=(64,) * 3, advantage_network_layers=(64,) * 3, memory_capacity=_CAPACITY,
        advantage_network_train_steps=effort.peer_steps,
    )  # fmt: skip


def counted(solver: Any) -> Callable[[], int]:
    """Has OpenSpiel's solver count the decisions and ends of hands that its traversals visit; returns what tells."""
    visit, met = solver._traverse_game_tree, 0

    def visited(state: Any, player: int) -> Any:
        nonlocal met
        met += not state.is_chance_node()
        return visit(state, player)

    solver._traverse_game_tree = visited
    return lambda: met


def fhp_limit_rows_alike(effort: Effort) -> Row:
    """Rows of the value memories beside different infosets in them: what merging the samples of deals that are the same
    but for suits, which have one infoset here, could save at the most.

    A training of `fhp_limit` at scale `laptop` from its first iteration on, with fewer SGD steps.
    """
    config = _config(f"algorithm.value.steps={effort.steps}")
    game = game_of(config)
    model = config.algorithm.build(game, config)
    by_iteration = []
    for _ in range(effort.iterations):
        model.iteration += 1
        model.advance()
        by_iteration.append(f"{_saved(model.value_memories, model.iteration):.1%}")
    every, different = _rows_and_infosets(model.value_memories)
    note = (
        f"ours: different infosets, peer: rows of both players' memories after {effort.iterations} iteration(s) of "
        f"{config.algorithm.traversals:,} traversals, fits of {effort.steps} steps; merging would save "
        f"{1 - different / every:.1%} of them, and of an iteration's alone {', '.join(by_iteration)}"
    )
    return Row("fhp_limit_rows_alike", float(different), float(every), "rows", every / different, note)


def _saved(memories: Sequence[Reservoir], iteration: int) -> float:
    """Which share of an iteration's rows merging those of the same infoset would save."""
    every, different = _rows_and_infosets(memories, iteration)
    return 1 - different / every


def _rows_and_infosets(memories: Sequence[Reservoir], iteration: int | None = None) -> tuple[int, int]:
    """How many rows memories hold, of an iteration or of all, and how many infosets, each counted in its memory once.

    Infosets are canonical: deals that differ by a renaming of suits have the same one.
    """
    found = []
    for memory in memories:
        entries = memory.state_dict()
        infosets, iterations = (entries[key][: memory.size] for key in ("infoset", "iteration"))
        some = infosets if iteration is None else infosets[iterations == iteration]
        found.append((len(some), len(some.unique())))
    every, different = (sum(counts) for counts in zip(*found, strict=True))
    return every, different
