"""Snapshots: what can be played after an iteration, in memory while training, and in files ever after.

A snapshot is written once. What grows with every iteration (B^M) is its *history*: a file holds the rows that are new
since the file before it, and reading maps the files into memory, so that a training of thousands of iterations does not
hold its networks in memory and in every checkpoint.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, count
from pathlib import Path
from typing import Any, overload
from zipfile import ZipFile

import torch
from torch import Tensor

from repro.common.durable import replacing
from repro.common.errors import ReproError, told_as

MOST_KEPT_BYTES = 1 << 26
"""Of snapshots with a larger state than this only the newest is kept."""


class History(Sequence[Tensor]):
    """A row per iteration, the oldest first: in pieces `[rows, ...]`, which may be mapped from files."""

    def __init__(self, pieces: Sequence[Tensor] = ()) -> None:
        self._pieces = [piece for piece in pieces if len(piece)]
        self._ends = list(accumulate(map(len, self._pieces)))
        self._new: list[Tensor] = []

    def __len__(self) -> int:
        return self.stored + len(self._new)

    @property
    def stored(self) -> int:
        """Rows that are in pieces; the others were appended since."""
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        index %= len(self)
        if index >= self.stored:
            return self._new[index - self.stored]
        piece = bisect_right(self._ends, index)
        return self._pieces[piece][index - self._ends[piece]]

    def append(self, row: Tensor) -> None:
        """Add an iteration's row."""
        self._new.append(row.detach().cpu().clone())

    def since(self, first: int) -> Tensor:
        """`[rows, ...]` from number `first` on."""
        rows = self[first:]
        return torch.stack(rows) if rows else torch.empty(0)

    def released(self, piece: Tensor) -> None:
        """What was appended is now stored as `piece`: hold that instead."""
        assert len(piece) == len(self._new)
        if len(piece):
            self._pieces.append(piece)
            self._ends.append(self.stored + len(piece))
        self._new = []


@dataclass(frozen=True)
class Snapshot:
    """What can be played after an iteration.

    Attributes:
        iteration: after which.
        counts: how far the training was, in the units of the papers' x-axes, and what it had cost.
        state: tensors and plain Python as they are now, whatever the algorithm's read-outs need.
        history: name -> per player, a row per iteration so far.
    """

    iteration: int
    counts: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    history: Mapping[str, Sequence[History]] = field(default_factory=dict)


_NAME = re.compile(r"(\d{7,})(\.history)?\.pt")


class SnapshotFolder:
    """The snapshots of one training: `<iteration>.pt`, and beside it `<iteration>.history.pt` with its new rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def iterations(self) -> list[int]:
        """After which there are snapshots, ascending; of large ones only the newest."""
        return [i for i, path in self._numbered() if path.name == f"{i:07d}.pt"]

    def lost(self, iterations: Iterable[int]) -> list[int]:
        """Those of a finished training's snapshots that are not here, though they should be: none that is large."""
        stored = self.iterations
        if stored and (self.folder / f"{stored[-1]:07d}.pt").stat().st_size > MOST_KEPT_BYTES:
            return []
        return sorted(set(iterations) - set(stored))

    def write(self, snapshot: Snapshot) -> None:
        """Store a snapshot, durably, and let go of the rows of its history that are in files now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        iteration, first = snapshot.iteration, self._rows_before(snapshot.iteration)
        if snapshot.history:
            rows = {name: [h.since(first) for h in both] for name, both in snapshot.history.items()}
            path = self.folder / f"{iteration:07d}.history.pt"
            save_durably({"first": first, "rows": rows}, path)
            stored = load_mapped(path)["rows"]
            for name, both in snapshot.history.items():
                for history, piece in zip(both, stored[name], strict=True):
                    history.released(piece)
        state = {
            "iteration": iteration, "counts": dict(snapshot.counts), "state": dict(snapshot.state),
            "history": list(snapshot.history),
        }  # fmt: skip
        path = self.folder / f"{iteration:07d}.pt"
        save_durably(state, path)
        if path.stat().st_size > MOST_KEPT_BYTES:
            for earlier in self.iterations[:-1]:
                (self.folder / f"{earlier:07d}.pt").unlink()

    def read(self, iteration: int | None = None) -> Snapshot:
        """The snapshot after an iteration; None: the newest. Its tensors are mapped from the files.

        Raises:
            ReproError: there is none, or it is damaged.
        """
        available = self.iterations
        if not available:
            raise ReproError(
                f"{self.folder} is empty; the command that made the run makes snapshots anew with force=true."
            )
        number = iteration if iteration is not None else max(available)
        if number not in available:
            listed = ", ".join(map(str, available))
            raise ReproError(f"{self.folder} has no snapshot of iteration {number}; there are those of {listed}.")
        path = self.folder / f"{number:07d}.pt"
        with _holding(path, "a snapshot"):
            stored = load_whole(path)
            counts = {str(name): float(value) for name, value in stored["counts"].items()}
            history = self.history(number)
            # Snapshots of earlier versions do not say what they have a history of.
            if history.keys() != set(stored.get("history", history)):
                raise self._not_whole(number)
            if any(len(each) != number for both in history.values() for each in both):
                raise self._not_whole(number)
            return Snapshot(number, counts, dict(stored["state"]), history)

    def history(self, iteration: int) -> dict[str, list[History]]:
        """The rows that are stored of all iterations up to one; empty where there are none.

        Raises:
            ReproError: a file is missing between others, or damaged.
        """
        paths = [path for i, path in self._numbered() if i <= iteration and path.name.endswith(".history.pt")]
        pieces, end = list[dict[str, list[Tensor]]](), 0
        for path in paths:
            first, rows = _piece(path)
            if first != end or (pieces and rows.keys() != pieces[0].keys()):
                raise self._not_whole(iteration)
            end += len(next(iter(rows.values()))[0])
            pieces.append(rows)
        names = pieces[-1] if pieces else {}
        return {name: [History([rows[name][p] for rows in pieces]) for p in range(2)] for name in names}

    def _not_whole(self, iteration: int) -> ReproError:
        return ReproError(
            f"{self.folder} lacks a file: its history up to iteration {iteration} is not whole; train again with "
            "force=true."
        )

    def forget_after(self, iteration: int) -> None:
        """Remove the snapshots of later iterations, which a training that continues from here will leave again."""
        for i, path in list(self._numbered()):
            if i > iteration:
                path.unlink()

    def set_aside(self) -> None:
        """Keep all there are under another name, until the training, which begins anew, is finished."""
        if any(self._numbered()):
            numbered = (self.folder.with_name(f"{self.folder.name}-unusable-{number}") for number in count(1))
            self.folder.rename(next(free for free in numbered if not free.exists()))

    def _numbered(self) -> Iterator[tuple[int, Path]]:
        named = ((_NAME.fullmatch(path.name), path) for path in self.folder.glob("*.pt"))
        return iter(sorted((int(name[1]), path) for name, path in named if name))

    def _rows_before(self, iteration: int) -> int:
        return max((i for i, p in self._numbered() if i < iteration and p.name.endswith(".history.pt")), default=0)


def load_mapped(path: Path) -> dict[str, Any]:
    """A file of tensors, which are mapped from it; whether it is whole is not looked at."""
    return dict(torch.load(path, map_location="cpu", weights_only=True, mmap=True))


def save_durably(content: object, path: Path) -> None:
    """Write a tensor file, so that there is never half of it under its name."""
    with replacing(path) as file:
        torch.save(content, file)


def load_whole(path: Path, what: str = "a snapshot") -> dict[str, Any]:
    """What `save_durably` wrote. Tensors are mapped from the file, which is read once to see that it is undamaged.

    Raises:
        ReproError: it is no such file, or damaged. Nothing in it is run.
    """
    with _holding(path, what):
        stored, damaged = load_checked(path)
    if damaged is not None:
        raise ReproError(f"{path} is damaged: {damaged} in it has not the checksum that was written with it.")
    return stored


def load_checked(path: Path) -> tuple[dict[str, Any], str | None]:
    """What a tensor file holds, mapped from it, and its first part that does not have its checksum, if there is one.

    Raises:
        Exception: it is no such file, or damaged, which shows in as many ways as there are bytes.
    """
    stored = load_mapped(path)
    about = path.stat()
    return stored, _damaged_part(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=1 << 16)
def _damaged_part(path: Path, changed: int, size: int) -> str | None:
    """The first part of a file that does not have its checksum; looked for once in each state of the file."""
    del changed, size
    with ZipFile(path) as archive:
        return archive.testzip()


def _piece(path: Path) -> tuple[int, dict[str, list[Tensor]]]:
    """A file of a history: the number of its first row, and by name each player's rows, all of one length.

    Raises:
        ReproError: it is damaged, or none.
    """
    with _holding(path, "the history of a snapshot"):
        stored = load_whole(path, "the history of a snapshot")
        rows = {str(name): list(both) for name, both in stored["rows"].items()}
        lengths = {len(part) for both in rows.values() for part in both if isinstance(part, Tensor)}
        if len(lengths) != 1 or any([type(part) for part in both] != [Tensor, Tensor] for both in rows.values()):
            raise ValueError("rows of both players are needed, as many of each")
        return int(stored["first"]), rows


def _holding(path: Path, what: str) -> AbstractContextManager[None]:
    """Tell whatever goes wrong with a file's content as what it is: a file of another kind, or a damaged one."""
    return told_as(lambda error: f"{path} is not {what} that can be read ({type(error).__name__}).")
