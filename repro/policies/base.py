"""What every strategy of the suite looks like to everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from repro.games.game import Game


class Policy(Protocol):
    """Given infosets, return action probabilities. A table, networks, an ensemble: nobody asks which."""

    def probabilities(self, infosets: Tensor) -> Tensor:
        """`[n]` infosets of either player -> `[n, actions]` probabilities, zero on illegal actions."""
        ...


HandStrategies = Callable[[Tensor, Tensor], Tensor]
"""`[n]` infosets and the numbers `[n]` of the hands they are met in -> `[n, actions]` probabilities."""


class Ensemble(ABC):
    """A player that draws one strategy at the start of each hand and keeps to it until the hand ends."""

    @abstractmethod
    def per_hand(self, hands: int, generator: torch.Generator) -> HandStrategies:
        """Draw the strategies of `hands` hands."""


class Mixture(Ensemble):
    """An ensemble of numbered members with weights, whose average strategy can be taken [SD-CFR, eq. 5].

    Attributes:
        weight: `[members]` how often each is drawn, relatively.
        members: the number of each: of two mixtures of one training, the same number is the same strategy.
    """

    weight: Tensor
    members: Sequence[int]

    @abstractmethod
    def strategy(self, position: int, infosets: Tensor) -> Tensor:
        """`[n]` infosets of the player -> `[n, actions]` probabilities of one member."""


class TabularPolicy:
    """A table `[infosets, actions]` of probabilities."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def probabilities(self, infosets: Tensor) -> Tensor:
        return self.table.index_select(0, infosets)


def uniform(game: Game) -> TabularPolicy:
    """Every legal action with equal probability."""
    return TabularPolicy(game.uniform)


def random_policy(game: Game, generator: torch.Generator) -> TabularPolicy:
    """Action probabilities drawn uniformly from the simplex, independently at every infoset."""
    weight = torch.rand(game.legal.shape, generator=generator, dtype=torch.float64, device=game.device)
    weight = -weight.log() * game.legal
    return TabularPolicy(weight / weight.sum(1, keepdim=True))


def deterministic_policy(game: Game, generator: torch.Generator) -> TabularPolicy:
    """One legal action with certainty at every infoset, drawn uniformly."""
    choice = torch.rand(game.legal.shape, generator=generator, dtype=torch.float64, device=game.device)
    best = choice.masked_fill(~game.legal, -1.0).argmax(1)
    return TabularPolicy(torch.nn.functional.one_hot(best, game.num_actions).to(torch.float64))


def table_of(game: Game, policy: Policy) -> Tensor:
    """`[infosets, actions]` float64 probabilities of a policy, normalised over the legal actions.

    Networks answer in float32, whose rows sum to one only to 1e-7; the exact engine works to 1e-9, hence the
    normalisation.

    Raises:
        ValueError: a row gives no legal action any probability, or is not finite.
    """
    if isinstance(policy, TabularPolicy):
        table = policy.table
    else:
        table = policy.probabilities(torch.arange(game.infosets, device=game.device))
    table = table.to(torch.float64) * game.legal
    total = table.sum(1, keepdim=True)
    least, most = torch.aminmax(total)
    if not (float(least) > 0 and float(most) < float("inf")):
        bad = int((~((total > 0) & torch.isfinite(total))).flatten().nonzero()[0])
        raise ValueError(f"the policy gives no probabilities at infoset {bad} ({game.describe(bad)})")
    return table / total
