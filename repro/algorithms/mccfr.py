"""Monte Carlo CFR on tables [Lanctot et al. 2009], in the game itself and on card abstractions of Hold'em.

External sampling sums the opponent's strategy where its actions were sampled ("simple" averaging), outcome sampling
the traverser's with its own reach over the probability of the sample ("stochastically weighted" averaging).

With more than one traversal per iteration all of them meet the same strategies: a batch update, which needs more
traversals for the same exploitability but does each of them much faster.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from repro.abstraction import Abstraction, abstract_infosets, abstraction, check_buckets
from repro.abstraction.streets import StreetBuckets, centre_bytes
from repro.algorithms.solver import Solver
from repro.algorithms.tables import READOUTS, TabularCFR, readout_problems, table_leaves
from repro.common.errors import ReproError
from repro.common.seeding import generator
from repro.config.fields import above_up_to, at_least, multiplies, one_of
from repro.config.schema import AlgorithmConfig, Config, Leaves, register_algorithm
from repro.engine.sampling import BYTES_PER_DEAL, SamplingEngine, Trajectories, Traversals
from repro.games.game import Game
from repro.policies.base import Policy, TabularPolicy
from repro.policies.regret_matching import regret_matching


@dataclass
class MCCFRConfig(AlgorithmConfig):
    """Monte Carlo CFR on tables."""

    READOUTS = READOUTS
    USES_NETWORK = False

    # external: explore all of the traverser's actions; outcome: sample one trajectory.
    sampling: str = one_of("external", "outcome")
    # Traversals per player and iteration: all of them meet the same strategies.
    traversals: int = multiplies(at_least(1))
    # Weigh the regrets and strategies of iteration t by t.
    linear: bool = False
    # Hold'em games: the hands of a round, but the first, are grouped into so many buckets; null: none, suits excepted.
    buckets: int | None = at_least(1, None)
    # Probability with which outcome sampling lets the traverser play uniformly; external sampling has none: null.
    exploration: float | None = above_up_to(0, 1, None)

    def problems(self, config: Config, game: Game) -> Iterator[str]:
        if (self.sampling == "outcome") != (self.exploration is not None):
            yield (
                f"algorithm.exploration is {self.exploration} and algorithm.sampling {self.sampling}; outcome sampling "
                "needs a probability, external sampling takes null."
            )
        try:
            check_buckets(game, self.buckets)
        except ReproError as error:
            yield str(error)
            return
        if _makes_strategies_on_demand(game) and self.sampling != "external":
            yield f"algorithm.sampling is {self.sampling}; on Hold'em games it must be external."
        yield from readout_problems(self, game, self.buckets)

    def bytes_needed(self, config: Config, game: Game) -> Iterator[tuple[str, float]]:
        yield "algorithm.traversals", float(BYTES_PER_DEAL * self.traversals)

    def leaves(self, config: Config, game: Game) -> Leaves | None:
        centres = 0.0 if self.buckets is None else centre_bytes(game.tree.rounds, self.buckets)
        return table_leaves(self, game, abstract_infosets(game, self.buckets), 8, centres)

    def build(self, game: Game, config: Config) -> TabularCFR:
        return TabularCFR(self.solver(game, config.seed), self, config.seed)

    def solver(self, game: Game, seed: int) -> SampledCFR:
        """What solves a game."""
        if _makes_strategies_on_demand(game):
            return AbstractMCCFR(game, self, seed)
        return MonteCarloCFR(game, self, seed)


register_algorithm("mccfr", MCCFRConfig)


def _makes_strategies_on_demand(game: Game) -> bool:
    """Hold'em games: a table of the current strategy would cost more than it saves."""
    return game.exact != "sequence_form"


class SampledCFR(Solver):
    """What the solvers below have in common: traversals of `played`, and what becomes of their samples."""

    def __init__(self, game: Game, rows_of: Abstraction, config: MCCFRConfig, seed: int) -> None:
        super().__init__(game, rows_of=rows_of)
        self._config, self._seed = config, seed
        self._engine = SamplingEngine(rows_of.abstract)

    @abstractmethod
    def policy(self) -> Policy:
        """The current strategies, for traversals."""

    @torch.inference_mode()
    def step(self) -> None:
        self.iteration += 1
        weight = self.iteration if self._config.linear else 1
        for player in range(2):
            sampled = self._traverse(player)
            strategies = sampled.opponent_strategies if isinstance(sampled, Traversals) else sampled.own_strategies
            for samples, into in ((sampled.advantages, self.regrets), (strategies, self.sums)):
                into.index_add_(0, samples.infosets, samples.targets.double(), alpha=weight)
            self.nodes_touched += sampled.nodes_touched
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
        super().__init__(game, abstraction(game, None), config, seed)
        self._strategy = game.uniform.float()

    def update_strategy(self, player: int) -> None:
        rows = self.game.player_slice[player]
        self._strategy[rows] = self._regret_matching(rows).float()

    def policy(self) -> Policy:
        return TabularPolicy(self._strategy)


class AbstractMCCFR(SampledCFR):
    """MCCFR on a card abstraction, with a row for each of its infosets: the baselines of Deep CFR's Fig. 2.

    Strategies are made from regrets where traversals ask for them: most rows of a large table change rarely.
    """

    def __init__(self, game: Game, config: MCCFRConfig, seed: int) -> None:
        super().__init__(game, abstraction(game, config.buckets), config, seed)

    @property
    def centres(self) -> list[Tensor] | None:
        buckets = self.abstraction.buckets
        return list(buckets.centres) if isinstance(buckets, StreetBuckets) else None

    def use_centres(self, centres: Sequence[Tensor] | None) -> None:
        if centres is not None:
            self.abstraction = abstraction(self.game, self._config.buckets, centres)
            self._engine = SamplingEngine(self.abstraction.abstract)

    def measurements(self) -> dict[str, float]:
        """`infosets_seen`: rows in which any strategy was summed."""
        # In pieces: the table may be gigabytes.
        return {"infosets_seen": float(sum(int(part.any(1).sum()) for part in self.sums.split(1 << 20)))}

    def update_strategy(self, player: int) -> None:
        """Nothing to do: a strategy is made where it is needed."""

    def policy(self) -> Policy:
        return self

    def probabilities(self, infosets: Tensor) -> Tensor:
        """The current strategies at infosets of the abstract game, as a policy."""
        regrets = self.regrets.index_select(0, infosets)
        return regret_matching(regrets, self.abstraction.abstract.legal_at(infosets), "uniform")
