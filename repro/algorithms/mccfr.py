"""Monte Carlo CFR on tables [Lanctot et al. 2009], in the game itself and on card abstractions of Hold'em.

External sampling sums the opponent's strategy where its actions were sampled ("simple" averaging), outcome sampling
the traverser's with its own reach over the probability of the sample ("stochastically weighted" averaging).

With more than one traversal per iteration all of them meet the same strategies: a batch update, which needs more
traversals for the same exploitability but does each of them much faster.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from repro.abstraction import abstraction
from repro.algorithms.solver import Solver
from repro.config import MCCFRConfig
from repro.engine.sampling import SamplingEngine, Trajectories, Traversals
from repro.errors import ReproError
from repro.games.game import Game
from repro.policies.base import Policy, TabularPolicy
from repro.policies.blueprint import Blueprint
from repro.policies.regret_matching import regret_matching
from repro.seeding import generator


class SampledCFR(Solver):
    """What the solvers below have in common: traversals of `played`, and what becomes of their samples."""

    def __init__(self, game: Game, played: Game, config: MCCFRConfig, seed: int) -> None:
        played.check_listed()
        super().__init__(game, rows=played.infosets)
        self._config, self._seed = config, seed
        self._engine = SamplingEngine(played)

    @abstractmethod
    def policy(self) -> Policy:
        """The current strategies, for traversals."""

    @torch.inference_mode()
    def step(self) -> None:
        self.iteration += 1
        weight = self.iteration if self._config.linear else 1
        for player in range(2):
            found = self._traverse(player)
            strategies = found.opponent_strategies if isinstance(found, Traversals) else found.own_strategies
            for samples, into in ((found.advantages, self.regrets), (strategies, self.sums)):
                into.index_add_(0, samples.infosets, samples.targets.double(), alpha=weight)
            self.nodes_touched += found.nodes_touched
            self.update_strategy(player)

    def _traverse(self, player: int) -> Traversals | Trajectories:
        draw = generator(self._seed, "traversals", self.iteration, player, self.game.device)
        policy, n = self.policy(), self._config.traversals
        if self._config.sampling == "external":
            return self._engine.external_sampling(policy, player, n, draw)
        assert self._config.exploration is not None
        return self._engine.outcome_sampling(policy, player, n, self._config.exploration, draw)


class MonteCarloCFR(SampledCFR):
    """External- and outcome-sampling MCCFR, with a row for each infoset and a table of the current strategy."""

    def __init__(self, game: Game, config: MCCFRConfig, seed: int) -> None:
        super().__init__(game, game, config, seed)
        self._strategy = game.uniform.float()

    def update_strategy(self, player: int) -> None:
        mine = self.game.player_slice[player]
        self._strategy[mine] = self._regret_matching(mine).float()

    def policy(self) -> Policy:
        return TabularPolicy(self._strategy)


class AbstractMCCFR(SampledCFR):
    """MCCFR on a card abstraction, with a row for each of its infosets: the baselines of Deep CFR's Fig. 2.

    Strategies are made from regrets where traversals ask for them: most rows of a large table change rarely.
    """

    def __init__(self, game: Game, config: MCCFRConfig, seed: int) -> None:
        if config.sampling != "external":
            raise ReproError(f"algorithm.sampling is {config.sampling}; on Hold'em games it must be external.")
        self.abstraction = abstraction(game, config.buckets)
        super().__init__(game, self.abstraction.abstract, config, seed)

    def use_centres(self, centres: Sequence[Tensor] | None) -> None:
        """Take other centres of the buckets, as many; None where there are none."""
        if centres is not None:
            self.abstraction = abstraction(self.game, self._config.buckets, centres)
            self._engine = SamplingEngine(self.abstraction.abstract)

    def update_strategy(self, player: int) -> None:
        """Nothing to do: a strategy is made where it is needed."""

    def policy(self) -> Policy:
        return self

    def probabilities(self, infosets: Tensor) -> Tensor:
        """The current strategies at infosets of the abstract game, as a policy."""
        regrets = self.regrets.index_select(0, infosets)
        return regret_matching(regrets, self.abstraction.abstract.legal_at(infosets), "uniform")

    def average(self) -> TabularPolicy:
        return self._in_full_game(self.sums)

    def current(self) -> TabularPolicy:
        return self._in_full_game(self.regrets.clamp(min=0))

    def _in_full_game(self, weights: Tensor) -> TabularPolicy:
        infosets = torch.arange(self.game.infosets, device=self.game.device)
        return TabularPolicy(Blueprint(self.abstraction, weights).probabilities(infosets))
