"""CFR with exact counterfactual values on Hold'em games with one board: `ExactCFR` for the engine of these games."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from repro.algorithms.solver import Solver, Updates, discount_factor
from repro.engine import board_kernels as kernels
from repro.engine.holdem_form import HoldemForm
from repro.games.game import Game


class HoldemCFR(Solver):
    """Discounted CFR's family; see `repro.algorithms.tabular` for the conventions.

    Strategies are made from regrets board by board and not stored, so that an infoset takes two float32 per action.
    """

    def __init__(self, game: Game, config: Updates) -> None:
        # The kernels are for the CPU, wherever the game's tensors are.
        super().__init__(game.to("cpu"), torch.float32)
        self._config = config
        self._form = HoldemForm(self.game)
        self._child = self.game.tree.child.numpy()

    def update_strategy(self, player: int) -> None:
        """Nothing to do: a strategy is made where it is needed."""

    @torch.inference_mode()
    def step(self) -> None:
        self.iteration += 1
        for players in ((0,), (1,)) if self._config.alternating else ((0, 1),):
            self.update(players)
        # A pass over the whole tree for each player's update.
        self.nodes_touched += 2 * self._form.histories

    def update(self, players: tuple[int, ...]) -> None:
        form, opening, config, t = self._form, self._form.opening, self._config, self.iteration
        regrets, sums, share = self.regrets.numpy(), self.sums.numpy(), float(t**config.gamma)
        discounts = (discount_factor(t, config.alpha), discount_factor(t, config.beta), config.floor)
        sigma = {node: self._opening_strategy(node, rows) for node, rows in opening.rows(regrets).items()}
        reach = opening.reach(sigma)
        below = np.zeros((2, len(form.boards.weight), len(opening.entries), opening.cells))
        updated = (0 in players, 1 in players)
        form.over_boards(
            kernels.cfr, regrets, sums, opening.at_entries(reach), updated, share, *discounts, below
        )  # fmt: skip
        for player in players:
            values = opening.values(player, reach, below[player].sum(0), sigma)
            for node in (n for n in opening.decisions if opening.player[n] == player):
                node_regrets, node_sums = opening.rows(regrets)[node], opening.rows(sums)[node]
                node_sums += share * reach[node][player][:, None] * sigma[node]
                for a, to in opening.children(node):
                    node_regrets[:, a] += values[to] - values[node]
                kernels.discount_in_place(node_regrets, *discounts)

    def _opening_strategy(self, node: int, regrets: NDArray[Any]) -> NDArray[np.float64]:
        sigma = np.zeros(regrets.shape)
        kernels.match_regrets(regrets, self._child[node], sigma)
        return sigma
