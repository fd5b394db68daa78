"""What the processes of one training, its *ranks*, have of their own, and what they share.

A training of several processes is one training: its step is that of the whole minibatch.

- Each rank draws its share of the traversals, with random streams of its own, and keeps what they collect in memories
  of its own, which have its share of the capacity.
- Each SGD step takes an equal part of the minibatch's rows from each rank's memories, and the mean of the ranks'
  gradients is its gradient. Ranks do not collect equally many samples, so the rows of a rank weigh by how many it has
  seen: then the expected step is that of one reservoir, a uniform sample of what all ranks have seen.
- Everything else is the same on all ranks, to the bit: networks, since they start equal and take equal steps; tables of
  the first betting round, which get the sums of what all ranks have sampled; iterations and counts.

What tells the ranks is in `Ranks`, whose operations do nothing in a training of one process. How processes are started
and stopped is in `repro.running.processes`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """One process among those of a training, which are in torch's default process group.

    Every rank must call the operations below equally often and in the same order.

    Attributes:
        rank: which one, from 0.
        count: how many there are.
    """

    rank: int = 0
    count: int = 1

    def share(self, whole: int) -> int:
        """This rank's part of a number that is divided as equally as whole numbers can be."""
        return whole // self.count + (self.rank < whole % self.count)

    def stream(self, purpose: str) -> str:
        """The name of this rank's random draws for a purpose."""
        return purpose if self.count == 1 else f"{purpose}, rank {self.rank} of {self.count}"

    def sum(self, tensor: Tensor) -> Tensor:
        """A tensor's sum over the ranks, in its place, the same to the bit on all of them."""
        if self.count > 1:
            # Lightning's `Strategy.reduce` does the same after a barrier, which takes as long as a small reduction.
            torch.distributed.all_reduce(tensor)
        return tensor

    def mean(self, tensor: Tensor) -> Tensor:
        """A floating-point tensor's mean over the ranks, in its place, the same to the bit on all of them."""
        return self.sum(tensor).div_(self.count) if self.count > 1 else tensor

    def each(self, number: int) -> list[int]:
        """Every rank's number."""
        own = torch.zeros(self.count, dtype=torch.int64)
        own[self.rank] = number
        return [int(each) for each in self.sum(own)]

    def total(self, number: int) -> int:
        """The sum of every rank's number."""
        return sum(self.each(number)) if self.count > 1 else number


ALONE = Ranks()
"""The only process of a training."""
