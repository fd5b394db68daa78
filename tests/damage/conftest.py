"""Finished runs, and copies of them to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from repro.running import training
from repro.tracking import record as records
from tests.damage.finished import CFR, NETWORKS, done


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CFR, and SD-CFR and Deep CFR, finished."""
    output = tmp_path_factory.mktemp("finished")
    for overrides in (CFR, NETWORKS):
        state, record = done(output, *overrides)
        assert state == records.FINISHED, record.message
    return output


@pytest.fixture
def output(finished: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(finished, tmp_path / "outputs")
    return tmp_path / "outputs"


@pytest.fixture
def _nothing_trains(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(training, "fit", lambda *_, **__: pytest.fail("this must train nothing"))
