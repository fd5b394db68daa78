"""Fictitious play [Brown 1951]: each player answers the other's average strategy with a best response.

The average is one of whole strategies: an infoset's actions count with the reach of the response that took them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from repro.algorithms.base import Algorithm
from repro.config import AlgorithmConfig, Config
from repro.config.schema import register_algorithm
from repro.evaluation.exploitability import best_response, exact_engine
from repro.games import Game
from repro.policies import TabularPolicy
from repro.policies.readout import Readout
from repro.policies.regret_matching import normalised
from repro.policies.snapshot import Snapshot


class AverageResponse(Readout):
    """The average of all responses."""

    def seats(self, snapshot: Snapshot) -> tuple[TabularPolicy, TabularPolicy]:
        policy = TabularPolicy(normalised(snapshot.state["sums"], self.game.uniform))
        return policy, policy


@dataclass
class FictitiousPlayConfig(AlgorithmConfig):
    """Fictitious play has no hyperparameters but its length."""

    READOUTS = {"average": AverageResponse}  # noqa: RUF012
    USES_NETWORK = False

    def problems(self, config: Config, game: Game) -> Any:
        if game.exact is None or not game.listed:
            yield f"game is {game.name}; {self.name} needs exact best responses, which it is too large for."

    def build(self, game: Game, config: Config) -> FictitiousPlay:
        return FictitiousPlay(game, self, config.seed)


class FictitiousPlay(Algorithm):
    """One iteration: player 0 answers, then player 1 answers the new average."""

    def __init__(self, game: Game, algorithm: FictitiousPlayConfig, seed: int) -> None:
        super().__init__(game, algorithm, seed)
        # Everybody begins with the uniform strategy, which counts as one response.
        self.sums = game.uniform * exact_engine(game).own_reach(game.uniform)[:, None]

    @torch.no_grad()
    def advance(self) -> dict[str, float]:
        for player in range(2):
            average = TabularPolicy(normalised(self.sums, self.game.uniform))
            response = best_response(self.game, average, player)[1].table
            own = self.game.player_slice[player]
            self.sums[own] += (exact_engine(self.game).own_reach(response)[:, None] * response)[own]
        return {}

    def state(self) -> dict[str, Any]:
        return {"sums": self.sums.clone()}

    def progress(self) -> dict[str, Any]:
        return {"sums": self.sums.clone()}

    def restore(self, saved: dict[str, Any]) -> None:
        self.sums.copy_(saved["sums"])


register_algorithm("fictitious_play", FictitiousPlayConfig)
