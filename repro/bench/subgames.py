"""Solving subgames of the full deck, beside a plain matrix of all pairs of hands and beside what memory allows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from repro.bench.measure import Effort, Row, interleaved, per_second, seconds
from repro.subgames.plain import PlainSolver
from repro.subgames.sampling import random_subgame
from repro.subgames.solver import SolverConfig, SubgameSolver, solve_subgame
from repro.subgames.subgames import Deck

_TABLE_BYTES = 24
"""Per action and hand, an iteration reads regrets twice for regret matching, and reads and writes regrets and sums
once."""

_COPIED = 1 << 26

_POT = 1000.0
"""Chips; a pot of middling size, and so a betting tree of middling size."""

_LEAST_POT = 2000.0
"""Of the subgames that DEVN's figures have."""


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    return [river_subgame_iteration(effort), turn_subgame_traffic(effort)]


def river_subgame_iteration(effort: Effort) -> Row:
    """An iteration on a river subgame beside one that multiplies by a matrix of 1,081 x 1,081 hands.

    The note has what `repro.subgames` is for: random subgames solved to 0.5% of the pot in an hour, drawing included.
    """
    subgame = replace(random_subgame(0, 1, 5, Deck()), pot=_POT)
    ours, plain = SubgameSolver(subgame, SolverConfig()), PlainSolver(subgame, SolverConfig())
    for solver in (ours, plain):
        solver.iterate()
    our_rate, peer_rate = interleaved(
        lambda: per_second(ours.iterate, effort.tabular_seconds),
        lambda: per_second(plain.iterate, effort.tabular_seconds), effort.repetitions,
    )  # fmt: skip
    subgames = 10 * effort.turns
    elapsed = seconds(
        lambda: [solve_subgame(random_subgame(0, n, 5, Deck()), SolverConfig(), 0.005) for n in range(subgames)]
    )
    hourly = 3600 * subgames / elapsed
    note = (
        f"peer: matrices; {hourly:,.0f} random river subgames an hour to 0.5% of the pot, {subgames} solved on one "
        "thread"
    )
    return Row("river_subgame_iteration", our_rate, peer_rate, "iterations/s", our_rate / peer_rate, note)


def turn_subgame_traffic(effort: Effort) -> Row:
    """Bytes of its tables that an iteration on a turn subgame must move, a second, beside a plain copy's.

    The ratio is the share of what memory would allow if nothing else took time.
    """
    solver = SubgameSolver(replace(random_subgame(0, 3, 4, Deck()), pot=_POT), SolverConfig())
    solver.iterate()
    source, target = np.zeros(_COPIED, np.uint8), np.zeros(_COPIED, np.uint8)
    our_rate, peer_rate = interleaved(
        lambda: _TABLE_BYTES * solver.entries * per_second(solver.iterate, effort.tabular_seconds) / 1e9,
        lambda: 2 * _COPIED * per_second(lambda: np.copyto(target, source), effort.tabular_seconds) / 1e9,
        effort.repetitions,
    )
    drawn = [random_subgame(0, n, 4, Deck(), _LEAST_POT) for n in range(effort.turns)]
    hourly = 3600 * effort.turns / seconds(lambda: [solve_subgame(subgame, SolverConfig(), 0.005) for subgame in drawn])
    note = (
        f"peer: np.copyto; {solver.entries:,} pairs of action and hand, {_TABLE_BYTES} bytes each an iteration; "
        f"{hourly:,.0f} random turn subgames with pots of {_LEAST_POT:,.0f} and more an hour to 0.5% of the pot, "
        f"{effort.turns} solved on one thread"
    )
    return Row("turn_subgame_traffic", our_rate, peer_rate, "GB/s", our_rate / peer_rate, note)
