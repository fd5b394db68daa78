"""Labels of turns from a network of rivers: a turn is solved with its values at the leaves, and no river is.

That is how DeepStack labels its turns' and flop's subgames, because exact labels of longer games cost too much. How far
such labels are from exact ones is what the evaluation `turn_labels` measures.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from repro.config.fields import above
from repro.config.schema import register_evaluation
from repro.evaluation.base import Measured
from repro.games.game import Game
from repro.subgames.dataset import MOST_ITERATIONS
from repro.subgames.depth_limited import DepthLimitedSolver
from repro.subgames.encoding import error, squared_error
from repro.subgames.play import OfTurns
from repro.subgames.solver import SolverConfig, solve_subgame


@dataclass
class TurnLabels(OfTurns):
    """How far counterfactual values of turns are from exact ones, in % of the pot.

    Metrics: `label_error`, of a turn the root mean square error over each player's hands, the mean of both, as losses
    of networks are; the mean over turns, and of each turn, `label_error/turn_000`. Beside it `zero_error`, of who says
    0 of every hand.
    """

    # Exploitability to which the turns are solved that labels are compared with, as a fraction of the pot.
    truth: float = above(0, 1e-3)

    @property
    def charted(self) -> list[str]:
        return ["label_error"]

    def headline(self, game: Game, measured: Measured) -> str:
        parts = [f"{name} {m['label_error']:.2f}" for name, m in measured.items() if m]
        return f"labels of turns {', '.join(parts)} % of the pot off" if parts else ""

    def of_solved(self, solver: DepthLimitedSolver) -> dict[str, float]:
        labels = torch.from_numpy(solver.valued() / solver.subgame.pot)[None]
        exact = solve_subgame(solver.subgame, SolverConfig(), self.truth, MOST_ITERATIONS)
        truth = torch.from_numpy(exact.cfv)[None]
        return {
            "label_error": error(squared_error(truth, labels)),
            "zero_error": error(squared_error(truth, torch.zeros(()))),
        }


register_evaluation("turn_labels", TurnLabels)
