"""What the tabular solvers have in common: regrets, summed strategies, and how a strategy follows from them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from repro.games.game import Game
from repro.policies.base import TabularPolicy
from repro.policies.regret_matching import normalised


class Solver(ABC):
    """Regrets and summed strategies of both players.

    Args:
        game: the game; its infosets can be listed, unless `rows` says otherwise.
        dtype: of the tables.
        rows: of the tables, if they are not one per infoset.

    Attributes:
        iteration: iterations done.
        regrets, sums: `[infosets, actions]`; zero where illegal.
        nodes_touched: histories visited so far, decision and terminal ones.
    """

    def __init__(self, game: Game, dtype: torch.dtype = torch.float64, rows: int | None = None) -> None:
        if rows is None:
            game.check_listed()
        self.game = game
        self.iteration = 0
        self.nodes_touched = 0
        shape = (game.infosets if rows is None else rows, game.num_actions)
        self.regrets = torch.zeros(shape, dtype=dtype, device=game.device)
        self.sums = torch.zeros_like(self.regrets)

    @abstractmethod
    def step(self) -> None:
        """Do one iteration."""

    @abstractmethod
    def update_strategy(self, player: int) -> None:
        """Set the player's strategy from the regrets."""

    def average(self) -> TabularPolicy:
        """The average strategy; uniform where no strategy was summed yet."""
        return TabularPolicy(normalised(self.sums, self.game.uniform))

    def current(self) -> TabularPolicy:
        """The strategy that the next iteration plays."""
        return TabularPolicy(self._regret_matching(slice(None)))

    def resume(self, iteration: int, nodes_touched: int, regrets: Tensor, sums: Tensor) -> None:
        """Go on from where another solver of the same game was."""
        self.iteration, self.nodes_touched = iteration, nodes_touched
        self.regrets.copy_(regrets)
        self.sums.copy_(sums)
        for player in range(2):
            self.update_strategy(player)

    def _regret_matching(self, mine: slice) -> Tensor:
        # Illegal actions have no regret, so that no mask is needed.
        return normalised(self.regrets[mine].clamp(min=0), self.game.uniform[mine])


def discount_factor(t: int, exponent: float) -> float:
    """Factor of a regret after iteration `t` of Discounted CFR: `t^exponent / (t^exponent + 1)`."""
    return 1.0 if exponent == float("inf") else t**exponent / (t**exponent + 1)
