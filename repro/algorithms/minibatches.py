"""Minibatches, one at a time and of many SGD steps at once; and rows that are grouped, one per infoset of a player."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import float32
from torch import Tensor

from repro.common.compiled import compiled_unchecked
from repro.common.sums import sum_of_products


@dataclass(frozen=True)
class Minibatch:
    """Rows of a weighted least-squares problem: `sum over rows of weight * |f(infoset) - target|^2 + constant`.

    Attributes:
        infosets: `[n]`, or None for "all of the player's infosets, in order".
        weight: `[n, 1]`; the weights include the division by batch size and number of actions.
        target: `[n, actions]`.
        constant: scalar; what grouping rows of the same infoset takes out of the loss.
        inputs: features and legal mask of the rows, where there is no table to look them up in.
    """

    infosets: Tensor | None
    weight: Tensor
    target: Tensor
    constant: Tensor
    inputs: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class ManySteps:
    """Minibatches of as many rows each.

    Attributes:
        steps: how many steps are taken on them; beyond the last one's, on that.
        weight, target, constant: `[minibatches, rows]`, `[minibatches, rows, actions]`, `[minibatches]`, as in
            `Minibatch`.
        infosets: `[minibatches, rows]`, or None for "all of the player's infosets, in order".
    """

    steps: int
    weight: Tensor
    target: Tensor
    constant: Tensor
    infosets: Tensor | None = None


class Chunked(Iterator[Minibatch]):
    """Minibatches one after the other; or, for a fit in one compiled loop, its `chunks` of many steps.

    Attributes:
        named: whether they name their infosets.
    """

    def __init__(self, chunks: Iterator[ManySteps], named: bool = False) -> None:
        self.chunks, self.named = chunks, named
        self._single = self._one_by_one()

    def __next__(self) -> Minibatch:
        return next(self._single)

    def _one_by_one(self) -> Iterator[Minibatch]:
        for chunk in self.chunks:
            columns = zip(chunk.weight[..., None].unbind(), chunk.target.unbind(), chunk.constant.unbind(), strict=True)
            named = [None] * len(chunk.weight) if chunk.infosets is None else chunk.infosets.unbind()
            batches = [Minibatch(infosets, *column) for infosets, column in zip(named, columns, strict=True)]
            yield from batches
            for _ in range(chunk.steps - len(batches)):
                yield batches[-1]


def grouped_entries(entries: Tensor, index: Tensor, unit: float, infosets: int) -> ManySteps:
    """Rows of a memory on the CPU, summed per step and infoset.

    Args:
        entries: `[capacity, 2 + actions]` int32: infoset, iteration, and the bits of the targets.
        index: `[steps, rows]` entries.
        unit: what an entry of the first iteration weighs.
        infosets: of the player.
    """
    steps, actions = len(index), entries.shape[1] - 2
    weight, target = np.empty((steps, infosets), np.float32), np.empty((steps, infosets, actions), np.float32)
    constant = np.empty(steps, np.float32)
    _group(entries.numpy().view(np.uint32), index.numpy().view(np.uint64), np.float32(unit), weight, target, constant)
    return ManySteps(steps, *(torch.from_numpy(part) for part in (weight, target, constant)))


@compiled_unchecked
def _group(entries: Any, index: Any, unit: Any, weight: Any, target: Any, constant: Any) -> None:
    actions, rows = entries.shape[1] - 2, index.shape[1]
    # Unsigned, and a column at a time: Numba checks signed indices, and does not unroll loops over a few columns.
    columns, own = np.empty((2 + actions, rows), np.uint32), np.empty(rows, np.float32)
    targets, infosets = columns.view(np.float32)[2:], columns[0]
    sums = np.empty((actions, weight.shape[1]), np.float32)
    weighted = np.empty(rows, np.float32)
    for step in range(len(index)):
        # Reading on its own first: entries are far apart, and nothing that is computed should wait for one of them.
        _read(entries, index[step], unit, columns, own)
        total, squares = weight[step], float32(0)
        total[:] = 0
        sums[:] = 0
        for row in range(rows):
            total[infosets[row]] += own[row]
        for a in range(actions):
            column, summed = targets[a], sums[a]
            for row in range(rows):
                weighted[row] = own[row] * column[row]
            squares += sum_of_products(weighted, column)
            for row in range(rows):
                summed[infosets[row]] += weighted[row]
        constant[step] = squares - _means(total, sums, target[step])


@compiled_unchecked
def _read(entries: Any, index: Any, unit: Any, columns: Any, own: Any) -> None:
    for row in range(len(own)):
        columns[0, row] = entries[index[row], 0]
        own[row] = float32(entries[index[row], 1]) * unit
    for i in range(2, len(columns)):
        column = columns[i]
        for row in range(len(own)):
            column[row] = entries[index[row], i]


@compiled_unchecked
def _means(total: Any, sums: Any, mean: Any) -> Any:
    """Divide by the total weights, where there are any; returns the weighted sum of the means' squares."""
    squares = float32(0)
    for infoset in range(len(total)):
        for a in range(len(sums)):
            mean[infoset, a] = sums[a, infoset] / total[infoset] if total[infoset] > 0 else float32(0)
            squares += mean[infoset, a] * mean[infoset, a] * total[infoset]
    return squares
