"""The cache of compiled functions mends itself."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest

from repro.common.compiled import compiled


def twice(x):
    return 2 * x


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Path, bytes]:
    """What Numba keeps of `twice`, compiled for whole numbers."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert compiled(twice)(21) == 42
    found = {path: path.read_bytes() for path in tmp_path.glob("*/*.nb[ic]")}
    assert len(found) == 2, "an index, and the compiled function"
    return found


def loaded() -> bool:
    """Whether `twice`, called anew, comes from the files."""
    again = compiled(twice)
    assert again(21) == 42
    return bool(sum(again.stats.cache_hits.values()))  # type: ignore[attr-defined]


def test_what_is_compiled_is_kept(files):
    assert loaded()
    assert all(path.read_bytes() == content for path, content in files.items())


@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
def test_torn_files_are_removed_and_made_again(files, capfd, ending):
    (path,) = (path for path in files if path.suffix == ending)
    size = len(files[path])
    for torn in (b"", b"\0" * size, b"\xff" * size, *(files[path][:length] for length in (1, 9, size // 2, size - 1))):
        path.write_bytes(torn)
        assert not loaded()
        told = capfd.readouterr().err
        assert told.count("\n") == 1
        assert "compiled test_compiled.twice" in told
        assert "cannot be read" in told
        assert loaded(), "it is whole again"
        assert not capfd.readouterr().err
        assert len(list(path.parent.iterdir())) == 2
