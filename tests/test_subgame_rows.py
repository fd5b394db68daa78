"""Rows on a disk: what was put there, and nothing that is left behind."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from tempfile import gettempdir

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from repro.common.errors import StorageError
from repro.common.faults import disk_faults_told
from repro.subgames.encoded import Batch
from repro.subgames.rows import Rows


def batch(rows: int, seed: int) -> Batch:
    """Random rows."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, 2, 3, generator=draw)
    return Batch(torch.randn(rows, 7, generator=draw), values, values[:, :1] > 0)


def joined(parts: Sequence[Batch]) -> dict[str, Tensor]:
    """In memory."""
    return {f.name: torch.cat([getattr(part, f.name) for part in parts]) for f in fields(Batch)}


def same(found: Batch, expected: dict[str, Tensor]) -> bool:
    return all(torch.equal(getattr(found, name), column) for name, column in expected.items())


@settings(deadline=None, max_examples=40)
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6), data=st.data())
def test_mapped_rows_are_those_in_memory(sizes: list[int], data: st.DataObject):
    rows, parts = Rows(Batch, Path(gettempdir())), list[Batch]()
    for seed, size in enumerate(sizes):
        parts.append(batch(size, seed))
        rows.append(parts[-1])
        # Also while more are to come.
        assert same(rows.whole(), joined(parts))
    total, expected = sum(sizes), joined(parts)
    assert len(rows) == total
    numbers = torch.tensor(data.draw(st.lists(st.integers(0, total - 1), max_size=8) if total else st.just([])))
    assert same(rows.take(numbers.long()), {name: column[numbers.long()] for name, column in expected.items()})
    some = slice(*sorted(data.draw(st.tuples(st.integers(0, total), st.integers(0, total)))))
    assert same(rows.take(some), {name: column[some] for name, column in expected.items()})


def open_files(folder: Path) -> int:
    """How many of a folder this process has open."""
    every = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    return sum(os.path.realpath(file).startswith(str(folder)) for file in every)


def test_what_was_taken_stays_when_the_rows_are_gone(tmp_path: Path):
    rows = Rows(Batch, tmp_path)
    rows.append(batch(4, 0))
    assert open_files(tmp_path) == 3
    assert not list(tmp_path.iterdir()), "files without a name: nothing is left by a process that is killed"
    taken = rows.take(slice(1, 3))
    del rows
    gc.collect()
    assert same(taken, {name: column[1:3] for name, column in joined([batch(4, 0)]).items()})
    del taken
    gc.collect()
    assert open_files(tmp_path) == 0


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda dir: full)
        told = rf"{tmp_path} cannot be written \({os.strerror(errno.ENOSPC)}\)"
        with pytest.raises(StorageError, match=told), disk_faults_told():
            Rows(Batch, tmp_path).append(batch(4, 0))
