"""Strategies made by hand, and B^M of strategies given as tables: networks that are nothing but their table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from repro.evaluation.averages import tabulated
from repro.games import Game
from repro.games.betting import CALL, RAISE
from repro.policies import TabularPolicy, deterministic_policy, uniform
from repro.policies.ensemble import NetworkSampling
from tests.helpers.draws import seeded


def preferring(game: Game, *actions: int) -> TabularPolicy:
    """The first of `actions` that is legal, always."""
    order = torch.zeros(game.num_actions)
    for i, action in enumerate(actions):
        order[action] = 3 - i
    choice = (order * game.legal).argmax(1)
    return TabularPolicy(torch.nn.functional.one_hot(choice, game.num_actions).double())


def seated(game: Game, first: Tensor, second: Tensor) -> Tensor:
    """The table that plays `first` in seat 0 and `second` in seat 1."""
    table = second.clone()
    table[game.player_slice[0]] = first[game.player_slice[0]]
    return table


def strategies_that_differ(game: Game) -> list[Tensor]:
    """Six strategies whose reaches and values lie far apart, the later ones the more passive."""
    tables = []
    for i in range(6):
        lean = torch.zeros(game.num_actions, dtype=torch.float64)
        lean[RAISE if i < 3 else CALL] = 1.0
        table = (deterministic_policy(game, seeded(i)).table + lean * (1 + i % 3)) * game.legal
        tables.append(table / table.sum(1, keepdim=True))
    return tables


class TableNetwork(nn.Module):
    """Its parameters are its outputs; its features, numbers of infosets."""

    def __init__(self, infosets: int, actions: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(infosets, actions))

    def forward(self, features: Tensor, legal: Tensor) -> Tensor:
        del legal
        return self.table.index_select(0, features[:, 0])


def ensemble_of(game: Game, tables: Sequence[Tensor], members: Sequence[int] | None = None) -> NetworkSampling:
    """B^M of either player, whose members play tables `[infosets, actions]`."""

    def inputs(infosets: Tensor) -> tuple[Tensor, Tensor]:
        return infosets[:, None], game.legal[infosets]

    parameters = torch.stack([table.float().flatten() for table in tables])
    network = TableNetwork(game.infosets, game.num_actions)
    return NetworkSampling(network, parameters, inputs, "uniform", members=members)


def average_of(game: Game, tables: Sequence[Tensor], player: int, members: Sequence[int] | None = None) -> Tensor:
    """`[the player's infosets, actions]` float64: the average strategy of such a B^M."""
    seats: list[object] = [uniform(game), uniform(game)]
    seats[player] = ensemble_of(game, tables, members)
    return tabulated(game, seats).table[game.player_slice[player]]  # type: ignore[arg-type]
