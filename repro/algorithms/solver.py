"""What the tabular solvers have in common: regrets, summed strategies, and how a strategy follows from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from repro.abstraction import Abstraction, Blueprint, abstraction
from repro.games.game import Game
from repro.policies.base import TabularPolicy
from repro.policies.regret_matching import normalised

MOST_EXPONENT = 10
"""Of tabular CFR's discounts; larger ones overflow."""

MOST_ROWS_WITH_REGRETS = 1 << 20
"""Rows of the largest tables of which a snapshot holds the regrets as well, and sums in full precision."""


class Solver(ABC):
    """Regrets and summed strategies of both players.

    Args:
        game: the game; its infosets can be listed, unless rows are those of an abstraction.
        dtype: of the tables.
        rows_of: the card abstraction that the tables are of; default: a row per infoset of the game.

    Attributes:
        iteration: iterations done.
        abstraction: which rows the tables have; lossless where each infoset has its own.
        regrets, sums: `[rows, actions]` in chips, and weighted probabilities; zero where illegal.
        nodes_touched: histories visited so far, decision and terminal ones.
    """

    def __init__(self, game: Game, dtype: torch.dtype = torch.float64, rows_of: Abstraction | None = None) -> None:
        self.game = game
        self.abstraction = abstraction(game, None) if rows_of is None else rows_of
        self.iteration = 0
        self.nodes_touched = 0
        shape = (self.abstraction.abstract.infosets, game.num_actions)
        self.regrets = torch.zeros(shape, dtype=dtype, device=game.device)
        self.sums = torch.zeros_like(self.regrets)

    @abstractmethod
    def step(self) -> None:
        """Do one iteration."""

    @abstractmethod
    def update_strategy(self, player: int) -> None:
        """Set the player's strategy from the regrets."""

    def average(self) -> TabularPolicy:
        """The average strategy in the full game; uniform where no strategy was summed yet."""
        return Blueprint(self.abstraction, self.sums).table()

    def current(self) -> TabularPolicy:
        """The strategy in the full game that the next iteration plays."""
        return Blueprint(self.abstraction, self.regrets.clamp(min=0)).table()

    def measurements(self) -> dict[str, float]:
        """What is measured of the tables themselves whenever a snapshot is left."""
        return {}

    def state(self) -> dict[str, Any]:
        """What read-outs need: `sums`, `centres` of buckets, and of tables that are not too large `regrets`."""
        if len(self.sums) <= MOST_ROWS_WITH_REGRETS:
            return {"centres": self.centres, "sums": _copied(self.sums), "regrets": _copied(self.regrets)}
        return {"centres": self.centres, "sums": _copied(self.sums, torch.float32)}

    # -- checkpoints ---------------------------------------------------------------------------------------------

    @property
    def centres(self) -> list[Tensor] | None:
        """Of the buckets, where these were found by clustering a sample of deals."""
        return None

    def use_centres(self, centres: Sequence[Tensor] | None) -> None:
        """Take other centres of the buckets, as many; None where there are none."""
        assert centres is None

    def resume(self, iteration: int, nodes_touched: int, regrets: Tensor, sums: Tensor) -> None:
        """Go on from where another solver of the same game was."""
        self.iteration, self.nodes_touched = iteration, nodes_touched
        self.regrets.copy_(regrets)
        self.sums.copy_(sums)
        for player in range(2):
            self.update_strategy(player)

    def _regret_matching(self, rows: slice) -> Tensor:
        # Illegal actions have no regret, so that no mask is needed.
        return normalised(self.regrets[rows].clamp(min=0), self.game.uniform[rows])


def _copied(table: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The table as it is now, on the CPU."""
    return table.to("cpu", dtype or table.dtype, copy=True)


# -- Discounted CFR ----------------------------------------------------------------------------------------------------


class Discounts(Protocol):
    """Discounted CFR's exponents [Brown and Sandholm 2019], and CFR+'s floor; the keys of `TabularCFRConfig`."""

    alpha: float
    beta: float
    gamma: float
    floor: bool


class Updates(Discounts, Protocol):
    """And whether player 1 answers player 0's new strategy."""

    alternating: bool


def discount_factor(t: int, exponent: float) -> float:
    """Factor of a regret after iteration `t` of Discounted CFR: `t^exponent / (t^exponent + 1)`."""
    return 1.0 if exponent == float("inf") else t**exponent / (t**exponent + 1)


def exponent_problems(discounts: Discounts, prefix: str) -> Iterator[str]:
    """What ranges of single keys cannot say of the exponents.

    Args:
        prefix: of the keys, such as `algorithm.`.
    """
    for key in ("alpha", "beta"):
        value = getattr(discounts, key)
        if not (value == float("inf") or abs(value) <= MOST_EXPONENT):
            yield f"{prefix}{key} is {value}; it must be from -{MOST_EXPONENT} to {MOST_EXPONENT}, or inf."
