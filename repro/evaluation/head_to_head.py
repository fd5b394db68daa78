"""Two players against each other: chips per game, exactly or by playing.

Seats are not alike, so every number is the mean over both seatings. Where hands are played, both seatings get the same
cards (duplicate poker): most of the luck of the deal is in both and cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

import torch

from repro.engine.sampling import SamplingEngine
from repro.evaluation.exploitability import expected_value
from repro.games.game import Game
from repro.policies.base import Policy, TabularPolicy
from repro.policies.readout import Seat

S = TypeVar("S", Policy, Seat)

_QUANTILE = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class MatchResult:
    """What a played match says about the first player's chips per game against the second.

    Attributes:
        mean: chips per game.
        standard_error: of `mean`, in chips; nan for a single deal.
        hands: hands played, two per deal.
    """

    mean: float
    standard_error: float
    hands: int

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence interval of `mean`, in chips; a normal one, for the many hands that a match has."""
        half = _QUANTILE * self.standard_error
        return self.mean - half, self.mean + half


def exact(game: Game, a: Policy | Sequence[Policy], b: Policy | Sequence[Policy]) -> float:
    """Chips per game that `a` wins against `b`, mean over both seatings.

    Args:
        game: a game whose infosets can be listed.
        a, b: one policy for both seats, or one per seat. The strategy that an ensemble amounts to is its average.
    """
    (a0, a1), (b0, b1) = _seats(a), _seats(b)
    return (expected_value(game, _joined(game, a0, b1))[0] - expected_value(game, _joined(game, b0, a1))[0]) / 2


def _joined(game: Game, first: Policy, second: Policy) -> TabularPolicy:
    """One table with each seat's rows from its own policy; neither is asked about the other's."""
    everything = torch.arange(game.infosets, device=game.device)
    parts = zip((first, second), game.player_slice, strict=True)
    return TabularPolicy(torch.cat([policy.probabilities(everything[rows]).double() for policy, rows in parts]))


def play_match(
    game: Game,
    a: Seat | Sequence[Seat],
    b: Seat | Sequence[Seat],
    hands: int,
    generator: torch.Generator,
    batch: int = 1 << 18,
    progress: Callable[[MatchResult], None] | None = None,
) -> MatchResult:
    """Play `a` against `b`, every deal twice with the seats exchanged.

    The two hands of a deal are one observation: their mean has less variance than that of two independent hands, and
    the interval takes that into account.

    Args:
        game: the game.
        a, b: one player for both seats, or one per seat.
        hands: hands to play, an even number.
        generator: source of all randomness, on the game's device.
        batch: most deals at once; memory grows with it and not with `hands`. Stored networks are all loaded once per
            batch and level, so they want a large one.
        progress: called with the match so far after every batch.
    """
    if hands < 2 or hands % 2:
        raise ValueError(f"hands is {hands}; every deal is played twice, so it must be even and at least 2")
    (a0, a1), (b0, b1) = _seats(a), _seats(b)
    engine = SamplingEngine(game)
    deals = hands // 2
    total = squares = 0.0
    for start in range(0, deals, batch):
        dealt = engine.deal(min(batch, deals - start), generator)
        won = engine.play([a0, b1], dealt, generator).double() - engine.play([b0, a1], dealt, generator).double()
        total += float(won.sum()) / 2
        squares += float(won.square().sum()) / 4
        match = _match(start + len(dealt), total, squares)
        if progress is not None:
            progress(match)
    return match


def _match(deals: int, total: float, squares: float) -> MatchResult:
    """From the sum and the sum of squares of the deals' chips."""
    mean = total / deals
    if deals == 1:
        return MatchResult(mean, math.nan, 2)
    variance = max(squares - deals * mean**2, 0.0) / (deals - 1)
    return MatchResult(mean, math.sqrt(variance / deals), 2 * deals)


def _seats(player: S | Sequence[S]) -> tuple[S, S]:
    """A player's policy in seat 0 and in seat 1."""
    if not isinstance(player, Sequence):
        return player, player
    first, second = player
    return first, second
