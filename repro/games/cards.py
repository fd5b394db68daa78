"""What the cards of a game are to the engines: deals, and the (board, hand) cells that infosets are made of.

Everything a player sees of the cards in one round is a *cell*, an integer. An infoset is a betting node and a cell, so
that memories, tables and policies need to know nothing about cards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import torch
from torch import Tensor

ExactForm = Literal["sequence_form", "boards"]
"""What exact values are computed on: the whole game in sequence form, or board after board."""

Unit = Literal["mA/g", "mbb/g"]
"""Thousandths of an ante, or of a big blind, per game."""


@dataclass(frozen=True)
class Deals:
    """Dealt cards, to be played any number of times.

    Attributes:
        cells: `[n, 2, rounds]` int64: what each player sees in each round.
        sign: `[n]` float32, of player 0's showdown: 1 wins, 0 splits, -1 loses.
    """

    cells: Tensor
    sign: Tensor

    def __len__(self) -> int:
        return len(self.sign)


@dataclass(frozen=True)
class NamedDeal:
    """One deal, and what it is to people.

    Attributes:
        deals: the deal.
        hands: of both players per round, what a player sees and the other does not.
        boards: per round, what both see; empty where that is nothing.
    """

    deals: Deals
    hands: tuple[Sequence[str], Sequence[str]]
    boards: Sequence[str]


@dataclass(frozen=True)
class Cards(ABC):
    """The cards of a game. Cards are numbered `rank * suits + suit`.

    Attributes:
        ranks, suits: the deck has `ranks * suits` cards.
        board_cards: public cards per round, cumulative.
    """

    ranks: int
    suits: int
    board_cards: tuple[int, ...]

    @property
    @abstractmethod
    def cells(self) -> tuple[int, ...]:
        """Per round, all cells are in `[0, cells[round])`."""

    @property
    @abstractmethod
    def exact(self) -> ExactForm | None:
        """What exact values of strategies on these cards are computed on; None: they cannot be."""

    @property
    @abstractmethod
    def unit(self) -> Unit:
        """What papers quote results on these cards in, where both players put in the same ante."""

    @property
    @abstractmethod
    def exploitability_is_mean(self) -> bool:
        """Whether papers quote the mean of the two players' losses to a best response (half of NashConv), or else the
        sum."""

    @property
    @abstractmethod
    def features(self) -> Literal["classes", "cards"]:
        """How networks see a cell: `classes`, one-hot by class of hand and board, of all infosets in one table; or
        `cards`, the cards themselves, made for the infosets asked about."""

    @abstractmethod
    def deal(self, n: int, generator: torch.Generator) -> Deals:
        """Deal `n` times, each time from a full deck, on the generator's device."""

    @abstractmethod
    def describe(self, round_: int, cell: int) -> str:
        """A readable name of a cell, e.g. `hand K, board Q`."""

    def numbered(self, round_: int, cell: int) -> str:
        """As `describe`, with numbers of ranks in games with one card: for metrics, and files of earlier versions."""
        return self.describe(round_, cell)

    def deal_named(self, generator: torch.Generator) -> NamedDeal:
        """Deal once, and say what is dealt as people write it."""
        deals = self.deal(1, generator)
        seen = [[self.describe(r, int(cell)) for r, cell in enumerate(cells)] for cells in deals.cells[0]]
        return NamedDeal(deals, (seen[0], seen[1]), [""] * len(seen[0]))

    def to(self, device: torch.device | str) -> Self:
        """The same cards with their tensors on `device`."""

        def move(value: object) -> object:
            if isinstance(value, Tensor):
                return value.to(device)
            if isinstance(value, tuple):
                return tuple(move(v) for v in value)
            return value

        moved: dict[str, Any] = {f.name: move(getattr(self, f.name)) for f in fields(self)}
        return type(self)(**moved)
