"""Memories of sampled regrets or strategies, and the minibatches that networks are trained on.

An entry is an infoset (int32, or int64 in games with more than 2^31 of them), the iteration it was collected in (int32)
and one target per action (float32): 20 or 24 bytes with three actions. Features are made only when a network needs
them. Entries count with their iteration; whoever wants all of them to count the same gives them one iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from repro.algorithms.minibatches import Chunked, ManySteps, Minibatch, grouped_entries
from repro.engine.sampling import InfosetSamples

_ROWS_AT_ONCE = 1 << 19
"""Rows drawn in one go: large enough to amortise calls, small enough to stay in cache."""

_FEW = 256
"""A player's infosets, if there are no more, are all in every minibatch, with weight 0 if not drawn. A step
on Leduc's 144, in one compiled loop, takes less time than finding which were drawn: iterations with minibatches of 72,
128 and 200 rows are twice as fast, and 1.3 times (200 rows) with networks that have no compiled form. With 400 infosets
the latter lose. Above this number, all are computed where a minibatch has twice as many rows, which meets most of them.
"""

_MERGED = 8
"""Rows of a minibatch are merged by infoset where a player has at most this many times as many infosets: on larger
games there is less to merge, and sums over all infosets cost more than they save."""


class Memory(Protocol):
    """Where the samples of one player go, and where minibatches come from."""

    @property
    def size(self) -> int:
        """Entries held."""
        ...

    @property
    def stands_for(self) -> int:
        """Entries that minibatches are a sample of, held or not."""
        ...

    def add(self, samples: InfosetSamples, iteration: int, generator: torch.Generator) -> None:
        """Store what was collected in one iteration.

        Raises:
            ValueError: an infoset is not the player's; nothing of the batch is stored.
        """

    def minibatches(
        self, steps: int, batch_size: int, iteration: int, scale: float, generator: torch.Generator, merged: bool = True
    ) -> Iterator[Minibatch]:
        """`steps` minibatches; each entry counts `scale * its iteration / iteration` (linear CFR).

        Rows of the same infoset may be `merged` into one where that saves work; otherwise there are `batch_size`.
        """
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors to checkpoint."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` gave."""


def _player_rows(infosets: Tensor, first: int, count: int) -> Tensor:
    """`[n]` infosets -> `[n]` their rows in the memory of the player whose infosets begin at `first`.

    Raises:
        ValueError: one of them is not among the player's `count`.
    """
    rows = infosets - first
    if len(rows):
        lowest, highest = torch.stack(rows.aminmax()).tolist()
        if lowest < 0 or highest >= count:
            raise ValueError(
                f"infosets {first + lowest} to {first + highest} were given to the memory of a player with infosets "
                f"{first} to {first + count - 1}."
            )
    return rows


def entry_bytes(columns: int, infosets: int = 0) -> int:
    """Of an entry of a memory that holds `Entries`, of a player with so many infosets: at the least, if not given."""
    return (12 if infosets > torch.iinfo(torch.int32).max else 8) + 4 * columns


def aggregated_bytes(columns: int, infosets: int) -> int:
    """Of a memory that is `Aggregated`, of a player with so many infosets; its scalars aside."""
    return 8 * infosets * (1 + columns)


class Entries(ABC):
    """Entries, up to a number of them, and minibatches drawn from those; subclasses say which are kept.

    Args:
        capacity: most entries held.
        first, count: the player's infosets are `first .. first + count - 1`.
        actions: width of a target.
        device: where the entries live.
        by_weight: whether entries are drawn as often as they count, and all rows of a minibatch count the same, as much
            as entries do in the mean; or each as often as any other, and rows count with their iteration.
    """

    def __init__(
        self, capacity: int, first: int, count: int, actions: int, device: torch.device | str, by_weight: bool = False
    ) -> None:
        self.by_weight = by_weight
        self.capacity, self.first, self.count, self.actions = capacity, first, count, actions
        self.seen, self.size = 0, 0
        # Infoset, iteration and the targets' bits side by side, because entries are read in random order. On a CPU,
        # memory is taken by the operating system only as entries are written, and NumPy asks it for large pages.
        large = count > torch.iinfo(torch.int32).max
        self._large_infosets = torch.empty(capacity, dtype=torch.int64, device=device) if large else None
        self._entries = torch.from_numpy(np.empty((capacity, 2 - large + actions), np.int32)).to(device)

    @property
    def _infoset(self) -> Tensor:
        return self._entries[:, 0] if self._large_infosets is None else self._large_infosets

    @property
    def _iteration(self) -> Tensor:
        return self._entries[:, -1 - self.actions]

    @property
    def _target(self) -> Tensor:
        """`[actions, capacity]`."""
        return self._entries[:, -self.actions :].view(torch.float32).t()

    @property
    @abstractmethod
    def stands_for(self) -> int:
        """Entries that minibatches are a sample of, held or not."""

    @abstractmethod
    def add(self, samples: InfosetSamples, iteration: int, generator: torch.Generator) -> None:
        """As of `Memory`."""

    def _write(self, slot: Tensor, infosets: Tensor, targets: Tensor, iteration: int) -> None:
        self._infoset[slot] = infosets
        self._iteration[slot] = iteration
        self._target[:, slot] = targets.t()

    def minibatches(
        self, steps: int, batch_size: int, iteration: int, scale: float, generator: torch.Generator, merged: bool = True
    ) -> Iterator[Minibatch]:
        # A minibatch holds many infosets several times, at times all of them. The squared loss depends only on each
        # infoset's total weight and mean target, so the step is taken on those: same gradient, less work.
        unit = scale / (iteration * batch_size * self.actions)
        if self.by_weight:
            unit *= float(self._iteration[: self.size].mean(dtype=torch.float64))
        draws = self._draws(steps, batch_size, generator)
        if merged and (self.count <= _FEW or 2 * self.count <= batch_size):
            return Chunked(self._grouped(index, unit) for index in draws)
        if merged and self.count <= _MERGED * batch_size:
            return self._merged_one_by_one(draws, unit)
        return Chunked((self._ungrouped(index, unit) for index in draws), named=True)

    def _draws(self, steps: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
        """`[steps, batch_size]` entries in all, some steps at a time."""
        chunk = max(1, _ROWS_AT_ONCE // batch_size)
        latest = int(self._iteration[: self.size].max()) if self.by_weight else 0
        for start in range(0, steps, chunk):
            n = min(chunk, steps - start)
            rows = n * batch_size
            index = self._by_weight(rows, latest, generator) if self.by_weight else self._uniformly(rows, generator)
            yield index.view(n, batch_size)

    def _uniformly(self, rows: int, generator: torch.Generator) -> Tensor:
        return torch.randint(self.size, (rows,), generator=generator, device=generator.device)

    def _by_weight(self, rows: int, latest: int, generator: torch.Generator) -> Tensor:
        """Entries, each with a probability in proportion to its iteration, of which `latest` is the highest.

        By rejection, which reads two entries for one that it takes where iterations are spread evenly; a table of sums
        would have to be searched in as many places as a number of entries has digits.
        """
        taken, lack = list[Tensor](), rows
        while lack:
            index = self._uniformly(2 * lack + 64, generator)
            height = torch.rand(len(index), generator=generator, device=generator.device) * latest
            taken.append(index[height < self._iteration.index_select(0, index)][:lack])
            lack -= len(taken[-1])
        return torch.cat(taken)

    def _merged_one_by_one(self, draws: Iterator[Tensor], unit: float) -> Iterator[Minibatch]:
        for drawn in draws:
            infosets, weight, target = self._drawn(drawn.flatten(), unit)
            rows = drawn.shape[1]
            split = (infosets.split(rows), weight.split(rows), target.split(rows, 1))
            yield from (self._merged(*columns) for columns in zip(*split, strict=True))

    def _ungrouped(self, index: Tensor, unit: float) -> ManySteps:
        """The entries `[steps, batch_size]`."""
        infosets, weight, target = self._drawn(index.flatten(), unit)
        steps, targets = len(index), target.t().contiguous().view(*index.shape, -1)
        return ManySteps(steps, weight.view_as(index), targets, weight.new_zeros(steps), infosets.view_as(index))

    def _drawn(self, index: Tensor, unit: float) -> tuple[Tensor, Tensor, Tensor]:
        """Infosets and weights `[rows]`, targets `[actions, rows]`."""
        infosets = self._infoset.index_select(0, index).long()
        # Of those drawn by weight, `unit` is of an entry in the mean.
        if self.by_weight:
            weight = torch.full(index.shape, unit, device=index.device)
        else:
            weight = self._iteration.index_select(0, index) * unit
        return infosets, weight, torch.stack([column.index_select(0, index) for column in self._target])

    def _grouped(self, index: Tensor, unit: float) -> ManySteps:
        """The entries `[steps, batch_size]`, summed per step and infoset."""
        if self._entries.device.type == "cpu" and not self.by_weight:
            return grouped_entries(self._entries, index, unit, self.count)
        steps = len(index)
        infosets, weight, target = self._drawn(index.flatten(), unit)
        step = torch.arange(steps, device=infosets.device).repeat_interleave(index.shape[1])
        cell = step.mul_(self.count).add_(infosets)
        weighted = target * weight
        total = weight.new_zeros(steps * self.count).scatter_add_(0, cell, weight)
        sums = [total.new_zeros(total.shape).scatter_add_(0, cell, column) for column in weighted]
        mean = torch.stack(sums, 1).div_(total[:, None].clamp(min=torch.finfo(total.dtype).tiny))
        squares = (weighted * target).sum(0).view(steps, -1).sum(1)
        constant = squares - (mean.square().sum(1) * total).view(steps, -1).sum(1)
        return ManySteps(steps, total.view(steps, -1), mean.view(steps, self.count, -1), constant)

    def _merged(self, infosets: Tensor, weight: Tensor, target: Tensor) -> Minibatch:
        """One minibatch of `weight` `[rows]` and `target` `[actions, rows]`, with one row per infoset drawn."""
        weighted = target * weight
        total = weight.new_zeros(self.count).scatter_add_(0, infosets, weight)
        drawn = total.nonzero()[:, 0]
        total = total.index_select(0, drawn)
        sums = [weight.new_zeros(self.count).scatter_add_(0, infosets, column)[drawn] for column in weighted]
        mean = torch.stack(sums, 1).div_(total[:, None])
        constant = (weighted * target).sum() - (mean.square().sum(1) * total).sum()
        return Minibatch(drawn, total[:, None], mean, constant)

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "seen": torch.tensor(self.seen),
            "infoset": self._infoset[: self.size].cpu().clone(),
            "iteration": self._iteration[: self.size].cpu().clone(),
            "target": self._target[:, : self.size].cpu().clone(),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.seen, self.size = int(state["seen"]), len(state["infoset"])
        self._infoset[: self.size] = state["infoset"]
        self._iteration[: self.size] = state["iteration"]
        self._target[:, : self.size] = state["target"]


class Reservoir(Entries):
    """A uniform sample of everything ever added [Vitter 1985, Algorithm R]; the arguments are those of `Entries`."""

    @property
    def stands_for(self) -> int:
        return self.seen

    def add(self, samples: InfosetSamples, iteration: int, generator: torch.Generator) -> None:
        infosets = _player_rows(samples.infosets, self.first, self.count).to(self._infoset.dtype)
        targets = samples.targets
        fill = min(self.capacity - self.size, len(infosets))
        slot = torch.arange(self.size, self.size + fill, device=infosets.device)
        self._write(slot, infosets[:fill], targets[:fill], iteration)
        self.size += fill
        rest = len(infosets) - fill
        if rest:
            # The k-th entry ever seen replaces a random one with probability capacity / k.
            position = torch.arange(self.seen + fill + 1, self.seen + fill + rest + 1, device=infosets.device)
            draw = torch.rand(rest, generator=generator, dtype=torch.float64, device=infosets.device)
            slot = (draw * position).long()
            accepted = (slot < self.capacity).nonzero().flatten()
            # Of several entries drawn for one slot the last stays, as if they had come one at a time.
            replaced, which = slot[accepted].unique(return_inverse=True)
            winner = torch.zeros_like(replaced).scatter_reduce_(0, which, accepted, "amax", include_self=False)
            self._write(replaced, infosets[fill:][winner], targets[fill:][winner], iteration)
        self.seen += len(infosets)


class Window(Entries):
    """The last entries that were added, in a ring; the arguments are those of `Entries`.

    An ablation of Deep CFR's later version. It forgets whole iterations: what is learned from it is of the last ones.
    """

    @property
    def stands_for(self) -> int:
        return self.size

    def add(self, samples: InfosetSamples, iteration: int, generator: torch.Generator) -> None:
        del generator
        infosets = _player_rows(samples.infosets, self.first, self.count).to(self._infoset.dtype)
        # Of more than it holds, only the last would stay.
        skipped = max(0, len(infosets) - self.capacity)
        number = torch.arange(self.seen + skipped, self.seen + len(infosets), device=infosets.device)
        self._write(number % self.capacity, infosets[skipped:], samples.targets[skipped:], iteration)
        self.seen += len(infosets)
        self.size = min(self.seen, self.capacity)


class Aggregated:
    """Every sample ever added, summed per infoset: no paper's method, an option of this suite.

    The weighted squared loss over a memory of unlimited size depends only on each infoset's total weight and weighted
    mean target. Training on those rows is the same loss without the noise of drawing minibatches; `batch_size` is
    ignored, every step sees everything.
    """

    def __init__(self, first: int, count: int, actions: int, device: torch.device | str) -> None:
        self.first, self.count, self.actions = first, count, actions
        # Linear weights grow with the square of the iteration: float64 sums.
        self._weight = torch.zeros(count, 1, dtype=torch.float64, device=device)
        self._sum = torch.zeros(count, actions, dtype=torch.float64, device=device)
        self._squares = torch.zeros((), dtype=torch.float64, device=device)
        self._entries = 0

    @property
    def size(self) -> int:
        return self._entries

    @property
    def stands_for(self) -> int:
        return self._entries

    def add(self, samples: InfosetSamples, iteration: int, generator: torch.Generator) -> None:
        del generator
        rows, targets = _player_rows(samples.infosets, self.first, self.count), samples.targets.double()
        self._weight.index_add_(0, rows, torch.full_like(targets[:, :1], iteration))
        self._sum.index_add_(0, rows, iteration * targets)
        self._squares += iteration * targets.square().sum()
        self._entries += len(rows)

    def minibatches(
        self, steps: int, batch_size: int, iteration: int, scale: float, generator: torch.Generator, merged: bool = True
    ) -> Iterator[Minibatch]:
        del batch_size, generator, merged
        mean = self._sum / self._weight.clamp(min=1)
        unit = scale / (iteration * self._entries * self.actions)
        constant = (self._squares - (self._weight * mean * mean).sum()) * unit
        every = ((self._weight[:, 0] * unit).float()[None], mean.float()[None], constant.float()[None])
        return Chunked(iter([ManySteps(steps, *every)]))

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "weight": self._weight.clone(),
            "sum": self._sum.clone(),
            "squares": self._squares.clone(),
            "entries": torch.tensor(self._entries),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._weight.copy_(state["weight"])
        self._sum.copy_(state["sum"])
        self._squares.copy_(state["squares"])
        self._entries = int(state["entries"])
