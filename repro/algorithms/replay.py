"""What happened in self-play, and the memory of it that Q-learning draws from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from repro.algorithms.minibatches import Minibatch

BYTES_PER_TRANSITION = 16
"""Of a transition in a `Replay`, at the least."""


@dataclass(frozen=True)
class Transitions:
    """One player's decisions in a batch of hands, ordered by hand and then by time.

    Attributes:
        infosets, actions: `[n]` where the player was, and what it did.
        rewards: `[n]` chips won before its next decision; nothing is won before a hand ends.
        following: `[n]` infoset of its next decision in the hand, -1 where the hand ended before.
        best_response: `[n]` bool, whether it followed its best response in that hand.
    """

    infosets: Tensor
    actions: Tensor
    rewards: Tensor
    following: Tensor
    best_response: Tensor


def transition_bytes(infosets: int) -> int:
    """Of a transition in a `Replay` of a player with so many infosets."""
    return BYTES_PER_TRANSITION if infosets < torch.iinfo(torch.int32).max else 28


class Replay:
    """M_RL: the last `capacity` transitions of one player, 16 or 28 bytes each, as minibatches of Q-learning.

    Args:
        capacity: most transitions held.
        first, count: the player's infosets are `first .. first + count - 1`.
        actions: width of a target.
        device: where the transitions live.
    """

    def __init__(self, capacity: int, first: int, count: int, actions: int, device: torch.device | str) -> None:
        self.capacity, self.first, self.count, self.actions = capacity, first, count, actions
        self.seen = 0
        # Rows: infoset, action, following infoset (`count` where the hand ended); beside them the rewards.
        small = count < torch.iinfo(torch.int32).max
        self._step = torch.empty(3, capacity, dtype=torch.int32 if small else torch.int64, device=device)
        self._reward = torch.empty(capacity, device=device)

    @property
    def size(self) -> int:
        """Transitions held."""
        return min(self.seen, self.capacity)

    def add(self, transitions: Transitions) -> None:
        """Store a batch over the oldest transitions."""
        infosets, following = transitions.infosets - self.first, transitions.following
        following = torch.where(following < 0, self.count, following - self.first)
        step = torch.stack([infosets, transitions.actions, following])[:, -self.capacity :]
        self.seen += len(infosets)
        slot = torch.arange(self.seen - step.shape[1], self.seen, device=step.device) % self.capacity
        self._step[:, slot] = step.to(self._step.dtype)
        self._reward[slot] = transitions.rewards[-self.capacity :]

    def minibatches(
        self, steps: int, batch_size: int, value_after: Callable[[Tensor], Tensor], generator: torch.Generator
    ) -> Iterator[Minibatch]:
        """`steps` minibatches of transitions drawn with replacement; the loss is the mean squared Bellman error.

        Only the action that was taken has a weight.

        Args:
            value_after: maps `[n]` following infosets, counted from the player's first, to the target network's values;
                `count` stands for a hand that has ended, whose value is 0. It is asked when a minibatch is taken, so
                that it may change between two of them.
        """
        index = torch.randint(self.size, (steps * batch_size,), generator=generator, device=generator.device)
        infosets, action, following = self._step.index_select(1, index).long()
        weight = (torch.eye(self.actions, device=index.device) / batch_size).index_select(0, action)
        reward = self._reward.index_select(0, index)
        rows = (column.split(batch_size) for column in (infosets, weight, reward, following))
        for i, w, r, after in zip(*rows, strict=True):
            target = r + value_after(after)
            yield Minibatch(i, w, target[:, None], w.new_zeros(()))

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors to checkpoint."""
        held = slice(self.size)
        return {
            "seen": torch.tensor(self.seen),
            "step": self._step[:, held].clone(),
            "reward": self._reward[held].clone(),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` gave."""
        self.seen = int(state["seen"])
        self._step[:, : self.size] = state["step"]
        self._reward[: self.size] = state["reward"]
