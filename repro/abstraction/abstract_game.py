"""A game and the smaller one that its buckets make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from repro.abstraction.one_board import OneBoardBuckets
from repro.abstraction.streets import StreetBuckets, find_buckets
from repro.common.errors import ReproError
from repro.games.cards import Cards, Deals, Unit
from repro.games.game import MOST_LISTED, Game
from repro.games.holdem import HoldemCards


class CellBuckets(Protocol):
    """Which cells are played alike; `sizes` is the number of buckets per round."""

    sizes: tuple[int, ...]

    def of_cells(self, round_: int, cells: Tensor) -> Tensor:
        """`[n]` cells of a round -> `[n]` buckets."""
        ...


@dataclass(frozen=True)
class BucketCards(Cards):
    """The cards of a game as its abstraction sees them: a cell is a bucket, and the deals are those of the game."""

    full: HoldemCards
    buckets: CellBuckets

    @property
    def cells(self) -> tuple[int, ...]:
        return self.buckets.sizes

    @property
    def exact(self) -> None:
        """None: what a strategy is worth is measured in the full game."""

    @property
    def unit(self) -> Unit:
        return self.full.unit

    @property
    def exploitability_is_mean(self) -> bool:
        return self.full.exploitability_is_mean

    @property
    def features(self) -> Literal["classes"]:
        return "classes"

    def deal(self, n: int, generator: torch.Generator) -> Deals:
        deals = self.full.deal(n, generator)
        buckets = [self.buckets.of_cells(r, deals.cells[:, :, r].flatten()) for r in range(len(self.board_cards))]
        return Deals(torch.stack(buckets, 1).view(-1, 2, len(buckets)), deals.sign)

    def describe(self, round_: int, cell: int) -> str:
        return f"bucket {cell}" if round_ else self.full.describe(round_, cell)


@dataclass(frozen=True)
class Abstraction:
    """A card abstraction.

    Attributes:
        game: the full game.
        buckets: its buckets; None: every cell is its own, which loses nothing.
        abstract: the game with buckets for cells. Tables are over its infosets, which can be listed.
    """

    game: Game
    buckets: CellBuckets | None
    abstract: Game

    def rows(self, infosets: Tensor) -> Tensor:
        """`[n]` infosets of the full game -> `[n]` infosets of the abstract one."""
        if self.buckets is None:
            return infosets
        node, cell = self.game.locate(infosets)
        round_ = self.game.tree.round.index_select(0, node)
        bucket = torch.empty_like(cell)
        for r in range(self.game.tree.rounds):
            of_round = (round_ == r).nonzero().flatten()
            bucket.index_copy_(0, of_round, self.buckets.of_cells(r, cell.index_select(0, of_round)))
        return self.abstract.first_infoset.index_select(0, node) + bucket


def abstraction(game: Game, buckets: int | None, centres: Sequence[Tensor] | None = None) -> Abstraction:
    """`buckets` of the hands on the board, or (None) every infoset its own row: lossless.

    Args:
        centres: of the buckets, as a `StreetBuckets` has them, where they are known.

    Raises:
        ReproError: it cannot be, see `check_buckets`.
    """
    check_buckets(game, buckets)
    if buckets is None:
        return Abstraction(game, None, game)
    cards = game.cards
    assert isinstance(cards, HoldemCards)
    cell_buckets: CellBuckets
    if cards.one_board:
        cell_buckets = OneBoardBuckets(game.name, game.parameters, cards.cells, buckets)
    else:
        cell_buckets = find_buckets(cards, buckets) if centres is None else StreetBuckets(cards, centres)
    return Abstraction(game, cell_buckets, _abstract(game, cards, cell_buckets))


def check_buckets(game: Game, buckets: int | None) -> None:
    """Before any clustering: refuse what cannot be grouped, or would not fit a table.

    Raises:
        ReproError: the game's hands have no buckets, there are fewer of them than buckets, or rows are too many.
    """
    if buckets is None:
        game.check_listed()
        return
    cards = game.cards
    if not isinstance(cards, HoldemCards):
        raise ReproError(f"algorithm.buckets is {buckets}; the game {game.name} takes null only.")
    if cards.codes[1] is None:
        raise ReproError(f"game is {game.name}; buckets are made for games whose hands on the flop can be listed.")
    if not 1 <= buckets <= cards.cells[1]:
        raise ReproError(f"algorithm.buckets is {buckets}; allowed are 1 to {cards.cells[1]:,}, or null (lossless).")
    infosets = abstract_infosets(game, buckets)
    if infosets > MOST_LISTED:
        raise ReproError(
            f"algorithm.buckets is {buckets}, which makes {infosets:,} infosets of game {game.name}; tables can list "
            f"{MOST_LISTED:,} at most."
        )


def abstract_infosets(game: Game, buckets: int | None) -> int:
    """Rows of an abstraction's tables; with buckets, at the most."""
    if buckets is None:
        return game.infosets
    rounds = game.tree.round[game.tree.player >= 0].bincount().tolist()
    return rounds[0] * game.cards.cells[0] + sum(rounds[1:]) * buckets


def _abstract(game: Game, cards: HoldemCards, buckets: CellBuckets) -> Game:
    parameters: Mapping[str, object] = {**game.parameters, "buckets": max(buckets.sizes[1:])}
    seen = BucketCards(cards.ranks, cards.suits, cards.board_cards, cards, buckets)
    return Game(game.name, parameters, game.rules, seen, game.chips_per_unit, game.device)
