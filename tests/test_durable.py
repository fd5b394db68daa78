"""Files are written whole or not at all, and wait for the disk."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from repro.common import durable


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What waits for the disk, in order: files, folders, and renaming."""
    done, sync, replace = list[str](), os.fsync, Path.replace

    def noted(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        done.append("renamed")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", renamed)
    return done


def test_a_file_is_on_the_disk_before_it_has_its_name_and_then_the_folder(tmp_path, synced):
    durable.write(tmp_path / "a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"
    assert synced == ["file", "renamed", "folder"]
    synced.clear()
    durable.write(tmp_path / "a", b"other", sync=False)
    assert (tmp_path / "a").read_bytes() == b"other"
    assert synced == ["renamed"]


def test_the_seal_is_written_last(tmp_path, synced):
    assert durable.kept(tmp_path / "a.x", {"number": 1}, lambda: b"content") == b"content"
    assert synced == ["file", "renamed", "folder"] * 2
    assert (tmp_path / "a.x").stat().st_mtime_ns <= (tmp_path / "a.json").stat().st_mtime_ns


def test_what_fails_half_way_leaves_the_file_before_and_nothing_else(tmp_path):
    path = tmp_path / "a"
    durable.write(path, b"before")
    with pytest.raises(ValueError, match="closed file"), durable.replacing(path) as file:
        file.close()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_with_the_file_and_leaves_nothing(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path / 'a'}'"):
        durable.write(tmp_path / "a", b"content")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_synced_is_no_fault(tmp_path, monkeypatch):
    sync = os.fsync

    def refused(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refused)
    durable.write(tmp_path / "a", b"content")
    assert (tmp_path / "a").read_bytes() == b"content"
