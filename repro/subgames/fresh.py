"""Subgames that are drawn and solved while a network learns from them.

They come in blocks. Which ones are in a block is decided by the run's seed and the block's number alone: a run that was
stopped meets the same as one that never was. The newest blocks are a pool, which is all that is in memory: an iteration
goes once over the pool, and the next one has a new block instead of the oldest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from repro.common.compiled import Array
from repro.subgames.dataset import Recipe
from repro.subgames.encoded import Batch, joined, parts_of

_NUMBERS = 10**12
"""Numbers of subgames that are set apart for a block; those below are for datasets, and for turns that are played."""


def numbers_of(recipe: Recipe, block: int, size: int, is_left_out: Callable[[Array], Array] | None) -> list[int]:
    """Numbers of the subgames in a block.

    Args:
        recipe: of the subgames.
        block: from 0 on.
        size: how many are wanted.
        is_left_out: `[n, cards]` boards -> `[n]` whether a subgame with such a board is passed over; None: none is.
    """
    numbers, found = count((block + 1) * _NUMBERS), list[int]()
    while len(found) < size:
        some = list(islice(numbers, size))
        left_out = [False] * size if is_left_out is None else is_left_out(recipe.boards(some)).tolist()
        found += [number for number, out in zip(some, left_out, strict=True) if not out]
    return found[:size]


class Pool(Dataset[Batch]):
    """The blocks that an iteration learns from; an index is that of a whole batch.

    Args:
        make: gives the block of a number.
        size: subgames in a block.
        blocks: how many an iteration has. Of iteration `i`, from 0 on, they are `i` to `i + blocks - 1`.
    """

    def __init__(self, make: Callable[[int], Batch], size: int, blocks: int) -> None:
        self._make, self._size, self._blocks = make, size, blocks
        self._first = 0
        self._rows: Batch | None = None

    def __len__(self) -> int:
        return self._size * self._blocks

    def __getitem__(self, rows: list[int]) -> Batch:
        assert self._rows is not None
        return parts_of(self._rows, torch.tensor(rows))

    def made_by(self, iteration: int) -> int:
        """Subgames in all blocks up to the last of an iteration's."""
        return self._size * (iteration + self._blocks)

    def advance(self, iteration: int) -> None:
        """Have the blocks of an iteration; those that are lacking are made."""
        kept = self._kept(iteration)
        there = 0 if kept is None else len(kept.inputs) // self._size
        made = [self._make(block) for block in range(iteration + there, iteration + self._blocks)]
        self._first, self._rows = iteration, joined(made if kept is None else [kept, *made])

    def saved(self, iteration: int) -> dict[str, Any]:
        """What `restore` needs of the blocks that an iteration, this one or the next, has."""
        kept = self._kept(iteration)
        # Copies, because of a view all that it is a part of would be stored.
        rows: dict[str, Tensor] = {} if kept is None else {f.name: getattr(kept, f.name).clone() for f in fields(kept)}
        return {"first": iteration, "rows": rows}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `saved` gave."""
        self._first, self._rows = saved["first"], Batch(**saved["rows"]) if saved["rows"] else None

    def _kept(self, iteration: int) -> Batch | None:
        """Of the blocks that are there, those from a number on, if there are any."""
        gone = (iteration - self._first) * self._size
        if self._rows is None or not 0 <= gone < len(self._rows.inputs):
            return None
        return parts_of(self._rows, slice(gone, None))
