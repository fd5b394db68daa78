"""B^M of strategies that are given as tables: networks that are nothing but their table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from repro.evaluation.averages import tabulated
from repro.games import Game
from repro.policies import uniform
from repro.policies.ensemble import NetworkSampling


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
