"""The average strategy of a mixture on an exact engine's rows, kept from snapshot to snapshot.

SD-CFR's eq. 5 needs the reach of every member. A new snapshot adds members, so that of those that were met before
nothing is computed again: in small games their strategies are kept, in large ones their running sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from repro.engine.holdem_form import HoldemForm
from repro.engine.sequence_form import SequenceForm
from repro.evaluation.exploitability import exact_engine
from repro.games.game import Game
from repro.policies.base import Ensemble, Mixture, TabularPolicy, table_of
from repro.policies.ensemble import Average
from repro.policies.network import Uniform
from repro.policies.readout import Seat

_MOST_KEPT_ROWS = 1 << 16
"""Rows of an engine up to which the strategy of every member is kept."""


class Rows(Protocol):
    """An exact engine, and which infosets its tables `[rows, actions]` are of."""

    game: Game
    infosets: Tensor
    player_slice: tuple[slice, slice]

    def own_reach(self, table: Tensor) -> Tensor:
        """`[rows]` probability that the acting player's own actions lead to a row."""
        ...

    def proper(self, table: Tensor) -> Tensor:
        """The table, which may be changed, with rows that sum to one."""
        ...

    def best_response_values(self, table: Tensor) -> Tensor:
        """`[players]` chips that a best response of each wins."""
        ...


@dataclass
class ListedRows:
    """All infosets of a game with one private card each."""

    game: Game
    engine: SequenceForm

    def __post_init__(self) -> None:
        self.infosets = torch.arange(self.game.infosets, device=self.game.device)
        self.player_slice = self.game.player_slice

    def own_reach(self, table: Tensor) -> Tensor:
        return self.engine.own_reach(table)

    def proper(self, table: Tensor) -> Tensor:
        return table_of(self.game, TabularPolicy(table))

    def best_response_values(self, table: Tensor) -> Tensor:
        return self.engine.best_response_values(table)


@dataclass
class BoardRows:
    """The infosets of all boards, or of a sample, of a Hold'em game with one board; tables are on the CPU."""

    game: Game
    form: HoldemForm

    def __post_init__(self) -> None:
        self.infosets, self.player_slice = self.form.infosets, self.form.player_slice

    def own_reach(self, table: Tensor) -> Tensor:
        return self.form.own_reach(table)

    def proper(self, table: Tensor) -> Tensor:
        return table.div_(table.sum(1, keepdim=True))

    def best_response_values(self, table: Tensor) -> Tensor:
        return self.form.best_response_values(table)


class Averages:
    """Tables of seats on an engine's rows; one object per training, read-out and engine.

    Attributes:
        is_large: whether a table takes long, so that it is told how far it is.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows, self.is_large = rows, len(rows.infosets) > _MOST_KEPT_ROWS
        self._infosets = [rows.infosets[part].to(rows.game.device) for part in rows.player_slice]
        self._cached: list[dict[int, tuple[Tensor, Tensor]]] = [{}, {}]
        self._running: list[tuple[Average, list[int]]] = []
        # One for all members that are asked about together: in a large game it is gigabytes, a second to get.
        self._members_table: Tensor | None = None

    def table(self, seats: Sequence[Seat], tell: Callable[[str], None] = lambda _: None) -> Tensor:
        """`[rows, actions]` float64 what both seats play, proper probabilities; a mixture's is its average.

        Args:
            tell: told how far it is in a large game, where every member of a mixture can take half a minute.
        """
        rows, actions = self._rows, self._rows.game.num_actions
        # One player's part after the other: of a large game each takes a gigabyte.
        table = torch.empty(len(rows.infosets), actions, dtype=torch.float64, device=rows.infosets.device)
        for player, seat in enumerate(seats):
            table[rows.player_slice[player]] = self._of_seat(seat, player, tell)
        self._members_table = None
        return rows.proper(table)

    def _of_seat(self, seat: Seat, player: int, tell: Callable[[str], None]) -> Tensor:
        if isinstance(seat, Mixture):
            return self._average(seat, player, tell)
        # Other ensembles have no average that could be taken.
        assert not isinstance(seat, Ensemble)
        return seat.probabilities(self._infosets[player])

    def _average(self, mixture: Mixture, player: int, tell: Callable[[str], None]) -> Tensor:
        weights = mixture.weight.tolist()
        if self.is_large:
            average, first = self._continued(player, list(mixture.members))
        else:
            average, first = self._fresh(player), 0
        for position in range(first, len(weights)):
            if self.is_large:
                tell(f"player {player}, {position + 1} of {len(weights)} networks")
            average.add(weights[position], *self._member(mixture, position, player))
        return average.strategy()

    def _fresh(self, player: int) -> Average:
        uniform = Uniform(self._rows.game).probabilities(self._infosets[player])
        return Average(uniform.double().to(self._rows.infosets.device))

    def _continued(self, player: int, members: list[int]) -> tuple[Average, int]:
        """The running sum, if it is of the first of these members; a new one otherwise."""
        if not self._running:
            self._running = [(self._fresh(p), []) for p in range(2)]
        average, summed = self._running[player]
        if summed != members[: len(summed)]:
            average, summed = self._fresh(player), []
        self._running[player] = (average, members)
        return average, len(summed)

    def _member(self, mixture: Mixture, position: int, player: int) -> tuple[Tensor, Tensor]:
        """Reach `[rows of the player]` and strategy `[rows of the player, actions]` of a member."""
        number, cached = mixture.members[position], self._cached[player]
        if number in cached:
            return cached[number]
        part = self._rows.player_slice[player]
        strategy = mixture.strategy(position, self._infosets[player]).to(self._rows.infosets.device)
        if self._members_table is None:
            shape = len(self._rows.infosets), strategy.shape[1]
            self._members_table = torch.zeros(shape, dtype=torch.float64, device=strategy.device)
        self._members_table[part] = strategy
        member = self._rows.own_reach(self._members_table)[part], strategy
        if not self.is_large:
            cached[number] = member
        return member


def tabulated(game: Game, seats: Sequence[Seat]) -> TabularPolicy:
    """The table of what both seats play, in a game with an exact engine; a mixture's is its average strategy."""
    return TabularPolicy(Averages(engine_rows(game)).table(seats))


def engine_rows(game: Game) -> ListedRows | BoardRows:
    """The rows of the game's exact engine."""
    engine = exact_engine(game)
    return ListedRows(game, engine) if isinstance(engine, SequenceForm) else BoardRows(game, engine)
