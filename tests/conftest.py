"""Shared by all tests: one thread, as a run has."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil

import hypothesis  # noqa: F401  (of what is imported when that is frozen, it would think that nothing refers to it)
import psutil
import pytest
import torch
from threadpoolctl import threadpool_limits

from repro.figures.targets import ROOT
from repro.tracking import store
from tests.browser_fixture import browser  # noqa: F401  (a fixture of all tests)

torch.set_num_threads(1)
# A make that a test starts would take over the variables of the one that started the tests, `make test JOBS=2`.
for _name in ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS"):
    os.environ.pop(_name, None)

# Runs wait for a disk at each commit and checkpoint, of which there are thousands: files are in memory, if it has room.
_MEMORY, _ROOM = "/dev/shm", 8e9
if (
    os.access(_MEMORY, os.W_OK)
    and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC  # Some tests make commands.
    and min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available) > _ROOM
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)

_CREATE = store._create_sqlite


def pytest_collection_finish() -> None:
    """What is imported by now stays, so that Python need not look through it whenever it looks for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    with threadpool_limits(1):
        yield


def _published() -> dict[str, str]:
    """What is published: a digest of each file."""
    kinds = ("*.md", "results/*/*", "*.svg")
    files = [ROOT / "README.md", *(path for kind in kinds for path in (ROOT / "paper_figures").glob(kind))]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_published_by_tests():
    """One that publishes into the project instead of its own folder would spoil what people and other tests read."""
    before = _published()
    yield
    after = _published()
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    assert not changed, f"a test published into the project, or somebody else wrote there meanwhile: {changed}"


@pytest.fixture
def _threads_restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def _empty_database(tmp_path_factory):
    """An MLflow database as the store makes it, which takes seconds: once is enough."""
    path = tmp_path_factory.mktemp("database") / "mlflow.db"
    _CREATE(path)
    return path


@pytest.fixture(autouse=True)
def _databases_are_copied(monkeypatch, request):
    """Runs in this process get a copy of an empty database, unless the test is about making one."""
    if "makes_a_database" in request.keywords:
        return

    def copied(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(request.getfixturevalue("_empty_database"), path)

    monkeypatch.setattr(store, "_create_sqlite", copied)


@pytest.fixture
def _with_database(tmp_path, _empty_database):
    """An output folder for runs in other processes, with an empty database in it."""
    shutil.copy(_empty_database, tmp_path / "mlflow.db")
