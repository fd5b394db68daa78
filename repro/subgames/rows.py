"""Subgames that lie on a disk while they are learned from: only those of a minibatch are in memory.

They are in files without a name, which end with the process however it ends. A file is mapped anew whenever rows are
asked for, and let go with them: what has been read stays in the system's cache as long as there is room, and counts
for no process.
"""

from __future__ import annotations

import mmap
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import Field, fields
from math import prod
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import torch
from torch import Tensor

from repro.common.faults import writing

Part = TypeVar("Part")


class Rows(Generic[Part]):
    """Rows of tensors, a file for each.

    Args:
        kind: a dataclass of tensors that have a row for each subgame.
        folder: which exists, and on whose disk the files are.
    """

    def __init__(self, kind: type[Part], folder: Path) -> None:
        self._kind, self._folder, self._rows = kind, folder, 0
        self._files: dict[str, IO[bytes]] = {}
        # Of a row: its shape and type.
        self._columns: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}

    def __len__(self) -> int:
        return self._rows

    def append(self, part: Part) -> None:
        """Add rows at the end: of the same shapes and types as those before.

        Raises:
            OSError: there is no room on the disk; names the folder.
        """
        with writing(self._folder):
            for name, column in self._tensors(part):
                if name not in self._files:
                    file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  (it is open as long as the rows)
                    weakref.finalize(self, file.close)
                    self._files[name] = file
                    self._columns[name] = tuple(column.shape[1:]), column.dtype
                assert self._columns[name] == (tuple(column.shape[1:]), column.dtype)
                self._files[name].write(column.contiguous().numpy().data)
                self._files[name].flush()
        self._rows += len(column)

    def whole(self) -> Part:
        """All rows, in order: not copied, but read as they are looked at. Not to be written to."""
        return self._kind(**{name: self._mapped(name) for name in self._columns})

    def take(self, rows: Tensor | slice) -> Part:
        """Some of the rows: by their numbers copied, by a slice as in `whole`."""
        return self._kind(**{name: self._mapped(name)[rows] for name in self._columns})

    def _mapped(self, name: str) -> Tensor:
        shape, dtype = self._columns[name]
        if not self._rows * prod(shape):
            return torch.empty(self._rows, *shape, dtype=dtype)  # Nothing can be mapped.
        # Shared and writable, though nobody writes: torch warns of tensors that are not.
        mapped = mmap.mmap(self._files[name].fileno(), 0)
        mapped.madvise(mmap.MADV_RANDOM)
        return torch.frombuffer(mapped, dtype=dtype).view(self._rows, *shape)

    def _tensors(self, part: Part) -> Sequence[tuple[str, Tensor]]:
        described: tuple[Field[Any], ...] = fields(part)  # type: ignore[arg-type]
        return [(f.name, getattr(part, f.name)) for f in described]
