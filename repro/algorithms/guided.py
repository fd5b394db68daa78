"""Deep CFR led along the path of exact Linear CFR: a laboratory for its fits.

Traversals meet the strategies of exact Linear CFR, whatever the networks say; memories, fits and B^M are Deep CFR's. So
every fit has the same task in every run, and the right answer is known: the exact advantages that samples are noisy
readings of. How far a network is from them tells in minutes what exploitability tells in hours. No paper has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import comb
from typing import Any, ClassVar

import torch
from torch import Tensor

from repro.algorithms.deep_cfr import DeepCFR, DeepCFRConfig
from repro.algorithms.holdem_cfr import HoldemCFR
from repro.algorithms.tabular import VARIANTS
from repro.common.seeding import generator
from repro.config.fields import at_least, multiplies
from repro.config.schema import Config, Leaves, NetworkConfig, register_algorithm
from repro.engine.holdem_form import BoardSample, HoldemForm, all_boards
from repro.games.game import Game
from repro.games.holdem import HoldemCards
from repro.networks.answers import answers
from repro.policies.base import Policy
from repro.policies.network import opening_infosets
from repro.policies.regret_matching import regret_matching

_NEVER = 1e-15
"""Infosets that are sampled more seldom than this, to which the rounding error of never adds up, are not compared."""


@dataclass
class GuidedConfig(DeepCFRConfig):
    """Deep CFR led by exact Linear CFR."""

    MANY_SEEDS: ClassVar[bool] = False
    SEVERAL_PROCESSES: ClassVar[bool] = False

    # Random boards on which fits are compared with exact advantages; the same ones in all runs.
    compared_boards: int = multiplies(at_least(2, 100))

    def problems(self, config: Config, game: Any) -> Iterator[str]:
        if game.exact != "boards" or not game.listed:
            yield (
                f"game is {game.name}; the algorithm {self.name} takes Hold'em games with one board whose infosets can "
                "be listed."
            )
            return
        if self.lists(game):
            yield (
                f"algorithm.strategies is {self.strategies or 'null'}, by which those of {game.name} are listed; the "
                f"algorithm {self.name} takes asked only."
            )
        boards = len(all_boards(game).boards)
        if self.compared_boards > boards:
            yield (
                f"algorithm.compared_boards is {self.compared_boards}; {game.name} has {boards} boards that differ by "
                "more than suits."
            )
        if config.device != "cpu":
            yield f"device is {config.device}; the algorithm {self.name} takes cpu only."
        if self.passed_up != "mean":
            yield (
                f"algorithm.passed_up is {self.passed_up}; the algorithm {self.name} takes mean only, with which "
                "samples are unbiased readings of what networks are compared with."
            )
        if not self.linear:
            yield (
                f"algorithm.loss_weight is {self.loss_weight}; the algorithm {self.name}, which is led by Linear CFR, "
                "takes t/T and 2t/T only."
            )
        if self.average is not None:
            yield f"algorithm.average is not null; the algorithm {self.name} has no average network."
        yield from super().problems(config, game)

    def bytes_needed(self, config: Config, game: Game) -> Iterator[tuple[str, float]]:
        yield from super().bytes_needed(config, game)
        yield "game.name", 8.0 * game.infosets * game.num_actions

    def leaves(self, config: Config, game: Game) -> Leaves | None:
        left = super().leaves(config, game)
        assert left is not None
        # The leader's regrets, and of the boards compared a weight and errors for every hand at every decision.
        leader, rows = 4.0 * game.infosets * game.num_actions, compared_rows(game, self.compared_boards)
        compared = (8.0 + 2 * 4.0 * game.num_actions) * rows
        return replace(left, checkpoint=left.checkpoint + leader + compared, tensors=left.tensors + 3)

    def build(self, game: Game, config: Config) -> Guided:
        assert config.network is not None
        return Guided(game, self, config.network, config.seed)


register_algorithm("guided_deep_cfr", GuidedConfig)


def compared_rows(game: Game, boards: int) -> int:
    """Infosets of the first betting round and, at the most, of so many boards."""
    assert isinstance(game.cards, HoldemCards)
    cards, first = game.cards, game.tree.round == 0
    hands = comb(cards.ranks * cards.suits - cards.board_cards[-1], 2)
    before, after = (int(((game.tree.player >= 0) & part).sum()) for part in (first, ~first))
    return before * cards.cells[0] + boards * hands * after


@dataclass(frozen=True)
class Comparison:
    """A player's network beside exact advantages, after the first betting round, on the boards compared.

    Attributes:
        unexplained: share of the exact advantages' variance around their means by action.
        distance: of the strategies that both play, Deep CFR by its advantages and Linear CFR by the exact ones: half of
            the sum over actions.
        rows: `[n]` of `compared`, infosets that are sampled.
        share: `[n, actions]` how often an infoset is sampled, 0 where an action is illegal.
        errors: `[2, n, actions]` float32, of advantages and of strategies.
    """

    unexplained: float
    distance: float
    rows: Tensor
    share: Tensor
    errors: Tensor

    def alike(self, before: Tensor) -> Tensor:
        """`[2]` how alike errors of advantages, and of strategies, are to earlier ones: the cosine, infosets weighted
        as they are now. Where both are as wrong, the average of two is so, too, at 1, and has half the square at 0.

        Args:
            before: `[2, rows of compared, actions]`.
        """
        now, then = self.errors.double(), before[:, self.rows].double()

        def mean(product: Tensor) -> Tensor:
            return (self.share * product).sum((1, 2))

        squares = mean(now * now) * mean(then * then)
        return mean(now * then) / squares.sqrt().clamp(min=torch.finfo(squares.dtype).tiny)


class Matched:
    """The strategies that exact regrets are matched to, as Linear CFR plays them.

    Args:
        regrets: `[infosets, actions]`.
    """

    def __init__(self, game: Game, regrets: Tensor) -> None:
        self._game, self._regrets = game, regrets

    def probabilities(self, infosets: Tensor) -> Tensor:
        legal = self._game.legal_at(infosets)
        return regret_matching(self._regrets.index_select(0, infosets), legal, "uniform")


class Guided(DeepCFR):
    """Deep CFR whose traversals meet exact Linear CFR's strategies.

    Attributes:
        leader: exact Linear CFR, as far as this is; it updates a player when her traversals are done.
        compared: the boards on which fits are judged.
        weight: `[rows of compared]` how often samples of an infoset come, each counting its iteration.
        errors: `[2, rows of compared, actions]` of advantages and of strategies at the last snapshot, which is that of
            the fit before where each iteration has one; 0 before the first.
    """

    algorithm: GuidedConfig

    def __init__(self, game: Game, algorithm: GuidedConfig, network: NetworkConfig, seed: int) -> None:
        super().__init__(game, algorithm, network, seed)
        linear: Any = VARIANTS["linear_cfr"]
        self.leader = HoldemCFR(game, linear)
        self.compared = HoldemForm(game, _some_boards(game, algorithm.compared_boards))
        self.weight = torch.zeros(self.compared.rows, dtype=torch.float64)
        self.errors = torch.zeros(2, self.compared.rows, game.num_actions)

    def current_policy(self, player: int = 0) -> Policy:
        return Matched(self.leader.game, self.leader.regrets)

    def _update(self, player: int) -> float:
        policy = self.current_policy(player)
        self.collect(player)
        table = policy.probabilities(self.compared.infosets).double()
        self.weight += self.iteration * self.compared.others_reach(table, player)
        self.leader.iteration = self.iteration
        self.leader.update((player,))
        loss = self._fit("value", player, self._counted_step(player))
        self.renew_strategy(player)
        return loss

    # -- how good the fits are -----------------------------------------------------------------------------------

    def prepare_snapshot(self) -> dict[str, float]:
        found = [self._compare(player) for player in range(2)]
        alike: dict[str, float] = {}
        if self.errors.any():
            of_advantages, of_strategies = torch.stack([each.alike(self.errors) for each in found]).mean(0)
            alike = {"errors_alike": float(of_advantages), "strategy_errors_alike": float(of_strategies)}
        for each in found:
            self.errors[:, each.rows] = each.errors
        return {
            **super().prepare_snapshot(),
            "unexplained": sum(each.unexplained for each in found) / 2,
            "unexplained/player_0": found[0].unexplained,
            "unexplained/player_1": found[1].unexplained,
            "strategy_distance": sum(each.distance for each in found) / 2,
            **alike,
        }

    def headline(self) -> str:
        return f"unexplained {self.metrics['unexplained']:.3f}" if "unexplained" in self.metrics else ""

    @torch.no_grad()
    def _compare(self, player: int) -> Comparison:
        """Each infoset is weighted as often as it is sampled."""
        rows = torch.arange(self.compared.rows)[self.compared.player_slice[player]][
            opening_infosets(self.game, player) :
        ]
        rows = rows[self.weight[rows] > _NEVER]
        weight, infosets = self.weight[rows], self.compared.infosets[rows]
        legal, exact = self.game.legal_at(infosets), self._exact(infosets, weight)
        learned = torch.zeros_like(exact)
        for part, output, _ in answers(self.value_networks[player], self.strategies.inputs, infosets):
            learned[part] = output.double()
        share = weight[:, None] * legal / weight.sum()
        mean = (share * exact).sum(0) / share.sum(0).clamp(min=torch.finfo(share.dtype).tiny)
        spread = (share * (exact - mean).square()).sum()
        wrong = learned - exact
        played = self.strategies.match(learned, legal) - regret_matching(exact, legal, "uniform")
        unexplained, distance = (share * wrong.square()).sum() / spread, (share * played.abs()).sum() / 2
        errors = torch.stack((wrong, played)).float()
        return Comparison(float(unexplained), float(distance), rows, share, errors)

    def _exact(self, infosets: Tensor, weight: Tensor) -> Tensor:
        """`[n, actions]` float64, the means that samples of the infosets have had, weighted by iteration, so far.

        Args:
            weight: `[n]` of these infosets.
        """
        # Linear CFR's discounts leave the sum of regrets, each times its iteration, over T + 1.
        sums = self.leader.regrets.index_select(0, infosets).double() * (self.iteration + 1)
        return self.as_learned(infosets, sums / weight[:, None])

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        compared = {"weight": self.weight.clone(), "errors": self.errors.clone()}
        return {**super().progress(), "leader": self.leader.regrets.clone(), **compared}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        # Nobody asks for the leader's average, nor for what it cost.
        self.leader.resume(self.iteration, 0, regrets=saved["leader"], sums=self.leader.sums)
        self.weight.copy_(saved["weight"])
        if "errors" in saved:  # Not in checkpoints of earlier versions, after which errors are compared anew.
            self.errors.copy_(saved["errors"])


def _some_boards(game: Game, count: int) -> BoardSample:
    """Different boards, each as likely as it is; the same ones for every run on a game."""
    every = all_boards(game)
    chosen = torch.randperm(len(every.boards), generator=generator(0, "compared boards", 0, 0, "cpu"))
    chosen = chosen[:count].sort().values
    return BoardSample(every.boards[chosen], every.share[chosen])
