"""How far values of turns are from exact ones: labels from a network of rivers, and what a network of turns says.

With a network's values of rivers at its leaves a turn is solved without its rivers; what its average strategies are
worth then is a label that may stand for an exact one where that costs too much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.config.fields import above
from repro.config.schema import register_evaluation
from repro.evaluation.base import Measured
from repro.games.game import Game
from repro.policies.readout import Readout
from repro.policies.snapshot import Snapshot
from repro.subgames.dataset import MOST_ITERATIONS
from repro.subgames.encoded import Truth
from repro.subgames.encoding import error, squared_error
from repro.subgames.networks import PredictedValues
from repro.subgames.play import OfTurns
from repro.subgames.solver import SolverConfig, solve_subgame
from repro.subgames.subgames import Subgame

_EXACT: dict[object, Array] = {}
"""Exact values of turns by what decides them: all read-outs of a seed have the same turns."""


@dataclass
class TurnValues(OfTurns):
    """How far counterfactual values of turns are from exact ones, in % of the pot.

    Of a training on turns what its read-outs predict; of one on rivers, and of leaves without a network, what turns are
    worth that are solved with them.

    Metrics: `turn_error`, the root mean square error over a player's hands, the mean of both players, as losses of
    networks are; the mean over turns, and of each turn, `turn_error/turn_000`. Beside it `zero_error`, of who says 0 of
    every hand.
    """

    # Exploitability to which the turns are solved that values are compared with, as a fraction of the pot.
    truth: float = above(0, 1e-3)

    @property
    def charted(self) -> list[str]:
        return ["turn_error"]

    def headline(self, game: Game, measured: Measured) -> str:
        parts = [f"{name} {m['turn_error']:.2f}" for name, m in measured.items() if "turn_error" in m]
        return f"values of turns {', '.join(parts)} % of the pot off" if parts else ""

    def of_turn(self, subgame: Subgame, readout: Readout, snapshot: Snapshot) -> dict[str, float]:
        if isinstance(readout, PredictedValues) and readout.game.board_cards == len(subgame.board):
            values = _predicted(subgame, readout, snapshot)
        else:
            values = torch.from_numpy(self.solved(subgame, readout, snapshot).valued() / subgame.pot)
        truth = torch.from_numpy(self._exact(subgame))[None]
        return {
            "turn_error": error(squared_error(truth, values[None])),
            "zero_error": error(squared_error(truth, torch.zeros(()))),
        }

    def _exact(self, subgame: Subgame) -> Array:
        """`[2, hands]` values in pots.

        Raises:
            ReproError: `truth` is not reached.
        """
        key = (subgame.deck, subgame.board, subgame.pot, subgame.ranges.tobytes(), self.truth)
        if key not in _EXACT:
            solution = solve_subgame(subgame, SolverConfig(), self.truth, MOST_ITERATIONS)
            if solution.exploitability > self.truth:
                raise ReproError(
                    f"evaluation.turn_values.truth is {self.truth:g}; a turn is exploitable by "
                    f"{solution.exploitability:.2g} of the pot after {MOST_ITERATIONS:,} iterations; take a larger one."
                )
            _EXACT[key] = solution.cfv
        return _EXACT[key]


def _predicted(subgame: Subgame, readout: PredictedValues, snapshot: Snapshot) -> torch.Tensor:
    """`[2, hands]` values in pots that a network of such subgames predicts."""
    data = readout.data()
    boards = np.array([subgame.board])
    bucket = torch.from_numpy(data.buckets_of(boards))
    ranges, matchup = (torch.from_numpy(x).float()[None] for x in (subgame.ranges, subgame.matchups()))
    inputs = data.inputs_of(boards, np.array([subgame.pot]), ranges, bucket)
    with torch.no_grad():
        network = readout.network(snapshot, data)
        return readout.predicted(network, inputs, Truth(torch.empty(0), matchup, ranges, bucket))[0]


register_evaluation("turn_values", TurnValues)
