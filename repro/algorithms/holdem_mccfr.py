"""External-sampling MCCFR on Hold'em games with one board, on card abstractions: the baselines of Deep CFR's Fig. 2."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from repro.algorithms.solver import Solver
from repro.config import MCCFRConfig
from repro.engine.sampling import SamplingEngine
from repro.errors import ReproError
from repro.games.abstraction import Abstraction, abstraction
from repro.games.game import Game
from repro.policies.base import TabularPolicy
from repro.policies.regret_matching import normalised, regret_matching
from repro.seeding import generator


class AbstractMCCFR(Solver):
    """As `repro.algorithms.tabular.MonteCarloCFR`, with a row for each betting node and bucket.

    Strategies are made from regrets where traversals ask for them: most rows of a large table change rarely.

    Attributes:
        regrets, sums: `[rows of the abstraction, actions]`.
    """

    def __init__(self, game: Game, config: MCCFRConfig, seed: int) -> None:
        if config.sampling != "external":
            raise ReproError(f"algorithm.sampling is {config.sampling}; on Hold'em games it must be external.")
        self.abstraction: Abstraction = abstraction(game, config.buckets)
        super().__init__(game, rows=len(self.abstraction.legal))
        self._config, self._seed = config, seed
        self._engine = SamplingEngine(game)

    def match(self, player: int) -> None:
        """Nothing to do: a strategy is made where it is needed."""

    def probabilities(self, infosets: Tensor) -> Tensor:
        """The current strategy, as a policy."""
        rows = self.abstraction.rows(infosets)
        return regret_matching(
            self.regrets.index_select(0, rows), self.abstraction.legal.index_select(0, rows), "uniform"
        )

    @torch.inference_mode()
    def step(self) -> None:
        self.iteration += 1
        weight = self.iteration if self._config.linear else 1
        for player in range(2):
            draw = generator(self._seed, "traversals", self.iteration, player, self.game.device)
            found = self._engine.external_sampling(self, player, self._config.traversals, draw)
            for samples, into in ((found.advantages, self.regrets), (found.strategies, self.sums)):
                into.index_add_(0, self.abstraction.rows(samples.infosets), samples.targets.double(), alpha=weight)
            self.nodes_touched += found.nodes_touched

    def average(self) -> TabularPolicy:
        return self._in_full_game(self.sums)

    def current(self) -> TabularPolicy:
        return self._in_full_game(self.regrets.clamp(min=0))

    def _in_full_game(self, weights: Tensor) -> TabularPolicy:
        """Per infoset, its row's weights in proportion; uniform where they are all 0."""
        legal = self.abstraction.legal
        table = normalised(weights, legal / legal.sum(1, keepdim=True))
        return TabularPolicy(table.index_select(0, self._row_of_infoset))

    @cached_property
    def _row_of_infoset(self) -> Tensor:
        return self.abstraction.rows(torch.arange(self.game.infosets, device=self.game.device))
