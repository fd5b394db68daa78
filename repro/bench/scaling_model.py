"""What several processes would gain: a model of an iteration's time, from what one process was measured to take.

    iteration = 2 players x (traversals of a rank's share + steps x (step on a rank's rows + all-reduce of a gradient))

The first two are measured, by one process that takes a rank's share. The last is that of a ring, which is how gloo
reduces: 2 (R - 1) messages one after another, each of an R-th of the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BYTES_PER_PARAMETER = 4


@dataclass(frozen=True)
class Link:
    """What connects processes.

    Attributes:
        latency: seconds that a message takes whatever its size.
        bandwidth: bytes a second.
    """

    name: str
    latency: float
    bandwidth: float

    def reduction(self, size: int, ranks: int) -> float:
        """Seconds that a ring takes to all-reduce so many bytes."""
        return 2 * (ranks - 1) * (self.latency + size / ranks / self.bandwidth)


@dataclass(frozen=True)
class Work:
    """An iteration's work on a game.

    Attributes:
        traversals, rows, steps: per player: external-sampling traversals, rows of a minibatch, SGD steps.
        parameters: of a value network.
        traversing, stepping: number of ranks -> measured seconds of one rank's share of the traversals, and of a step
            on its share of the rows, without the reduction.
    """

    traversals: int
    rows: int
    steps: int
    parameters: int
    traversing: Mapping[int, float]
    stepping: Mapping[int, float]

    @property
    def reduced_bytes(self) -> int:
        """That every step reduces."""
        return BYTES_PER_PARAMETER * self.parameters

    def iteration(self, ranks: int, reduction: float) -> float:
        """Seconds of an iteration of both players, if a reduction takes so long."""
        return 2 * (self.traversing[ranks] + self.steps * (self.stepping[ranks] + reduction))

    def predicted(self, ranks: int, link: Link) -> float:
        """Seconds of an iteration, by the model."""
        return self.iteration(ranks, link.reduction(self.reduced_bytes, ranks) if ranks > 1 else 0.0)

    def speed_up(self, ranks: int, link: Link) -> float:
        """How many times as fast as one process so many are."""
        return self.predicted(1, link) / self.predicted(ranks, link)

    def fastest(self, link: Link) -> int:
        """The number of ranks, of those that were measured, with which an iteration is shortest."""
        return min(self.stepping, key=lambda ranks: (self.predicted(ranks, link), ranks))

    def efficient(self, link: Link) -> int:
        """The largest number of ranks, of those that were measured, that do at least half of as many times the work."""
        return max(ranks for ranks in self.stepping if 2 * self.speed_up(ranks, link) >= ranks)
