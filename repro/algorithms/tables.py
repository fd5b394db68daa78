"""A tabular solver as a run, and the read-outs of what it leaves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from repro.abstraction import Abstraction, Blueprint, abstract_infosets, abstraction
from repro.algorithms.base import Algorithm, epochs_of, largest_divisor
from repro.algorithms.solver import MOST_ROWS_WITH_REGRETS, Solver
from repro.config.schema import AlgorithmConfig, Leaves
from repro.games.game import Game
from repro.policies.readout import Readout, Seat
from repro.policies.snapshot import Snapshot

_MOST_ROWS_LISTED = 1 << 20
"""Of the largest game whose probabilities a read-out lists; of limit Flop Hold'em they, and the uniform ones that
listing takes, are two gigabytes each, and are asked for."""

_MOST_PER_STEP = 100
"""Iterations in one epoch of Lightning's, which takes milliseconds of its own."""


class TabularCFR(Algorithm):
    """A tabular solver as a run: `algorithm=linear_cfr` and the like. One epoch is up to a hundred iterations.

    Args:
        solver: what is run. One that works on the CPU has its game and its tables there.
        algorithm: hyperparameters.
        seed: names all random draws of the run.
    """

    def __init__(self, solver: Solver, algorithm: AlgorithmConfig, seed: int) -> None:
        super().__init__(solver.game, algorithm, seed)
        self.iterations_per_step = largest_divisor(algorithm.snapshot_every, _MOST_PER_STEP)
        self.solver = solver

    def advance(self) -> dict[str, float]:
        self.solver.step()
        self.nodes_touched = self.solver.nodes_touched
        return {}

    def prepare_snapshot(self) -> dict[str, float]:
        return self.solver.measurements()

    def state(self) -> dict[str, Any]:
        return self.solver.state()

    def progress(self) -> dict[str, Any]:
        solver = self.solver
        return {"regrets": solver.regrets.clone(), "sums": solver.sums.clone(), "centres": solver.centres}

    def restore(self, saved: dict[str, Any]) -> None:
        # Clustered elsewhere, hands might be in other buckets than the tables are of.
        self.solver.use_centres(saved["centres"])
        self.solver.resume(self.iteration, self.nodes_touched, saved["regrets"], saved["sums"])


def table_leaves(algorithm: AlgorithmConfig, game: Game, rows: int, number: int, centres: float = 0.0) -> Leaves:
    """What a training of a `Solver` leaves.

    Args:
        rows: of its tables; at the most if there are `centres`, for some buckets may be none.
        number: bytes of a number in them.
        centres: bytes of those of the buckets, at the most.
    """
    actions = game.num_actions
    table = float(rows * actions * number)
    # Of large tables a snapshot has the sums alone, in single precision.
    small = 2.0 * min(rows, MOST_ROWS_WITH_REGRETS) * actions * number
    snapshot = small if rows <= MOST_ROWS_WITH_REGRETS else max(4.0 * rows * actions, small if centres else 0.0)
    return Leaves(
        snapshot=snapshot + centres,
        row=0.0,
        checkpoint=2 * table + centres,
        # Two tables, and of the buckets' centres one for each round after the first.
        tensors=2 + game.tree.rounds,
        epochs=epochs_of(algorithm.iterations, largest_divisor(algorithm.snapshot_every, _MOST_PER_STEP)),
        snapshot_is_exact=not centres,
    )


class TableReadout(Readout):
    """Both seats play rows of a table in proportion to weights: a table where infosets can be listed, or a blueprint.

    The abstraction is that of the snapshots' centres, which are the same in all snapshots of a training.
    """

    _rows_of: Abstraction | None = None

    @abstractmethod
    def weights(self, snapshot: Snapshot) -> Tensor:
        """`[rows, actions]`, none below 0."""

    def seats(self, snapshot: Snapshot) -> Sequence[Seat]:
        if self._rows_of is None:
            buckets = getattr(self.config.algorithm, "buckets", None)
            self._rows_of = abstraction(self.game, buckets, snapshot.state["centres"])
        blueprint = Blueprint(self._rows_of, self.weights(snapshot).to(self.game.device))
        policy = blueprint.table() if self.game.listed and self.game.infosets <= _MOST_ROWS_LISTED else blueprint
        return policy, policy


class AverageStrategy(TableReadout):
    """The average strategy; uniform where no strategy was summed."""

    def weights(self, snapshot: Snapshot) -> Tensor:
        return snapshot.state["sums"]


class CurrentStrategy(TableReadout):
    """The strategy that the next iteration plays, by regret matching."""

    def weights(self, snapshot: Snapshot) -> Tensor:
        return snapshot.state["regrets"].clamp(min=0)


READOUTS = {"average": AverageStrategy, "current": CurrentStrategy}


def readout_problems(algorithm: AlgorithmConfig, game: Game, buckets: int | None = None) -> Iterator[str]:
    """Read-outs of regrets where tables are too large for snapshots to hold them."""
    if abstract_infosets(game, buckets) <= MOST_ROWS_WITH_REGRETS:
        return
    for name, readout in algorithm.readouts.items():
        if readout.kind == "current":
            yield f"algorithm.readouts.{name}.kind is current; in the game {game.name} it must be average."
