"""Snapshots that a Hold'em training has stored, in its folder or as one file, play what the training measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.tabular import solve
from repro.common.errors import ReproError
from repro.config import Config, ReadoutConfig
from repro.games import load
from repro.policies.snapshot import SnapshotFolder
from repro.stored.trained import load_portable, save_portable
from tests.helpers.deep_cfr import small_config
from tests.helpers.holdem import NETWORK
from tests.helpers.training import metrics_of

SMALL: dict[str, Any] = {"ranks": 4, "suits": 2}
READOUTS = {"sd_cfr": ReadoutConfig("ensemble"), "deep_cfr": ReadoutConfig("average_network")}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeepCFR, Path]:
    """A short training, and a folder with its snapshots and the last of them in one file."""
    folder = tmp_path_factory.mktemp("stored")
    algorithm = small_config(readouts=READOUTS, traversals=300, strategies="asked", iterations=5)
    model = DeepCFR(load("fhp", **SMALL), algorithm, NETWORK, seed=0)
    for _ in range(5):
        model.step()
        if model.is_due:
            SnapshotFolder(folder).write(model.snapshot())
    config = Config({"name": "fhp", **SMALL}, algorithm, NETWORK)
    save_portable(folder / "snapshot.pt", config, model.snapshot())
    return model, folder


def test_stored_snapshots_are_what_was_measured(stored):
    model, folder = stored
    assert SnapshotFolder(folder).iterations == [2, 4, 5]
    assert metrics_of(model, snapshot=SnapshotFolder(folder).read()) == metrics_of(model)


def test_one_file_is_what_was_measured(stored):
    model, folder = stored
    config, snapshot = load_portable(folder / "snapshot.pt")
    assert config.algorithm == model.algorithm
    assert config.network == model.network
    assert metrics_of(model, snapshot=snapshot) == metrics_of(model)


@pytest.mark.parametrize("variant", ["linear_cfr", "es_mccfr"])
@pytest.mark.parametrize("name", ["fhp5", "hunl_pot"])
def test_tables_of_games_that_are_too_large(name, variant):
    with pytest.raises(ReproError, match=f"game {name} has .* infosets; tables can list 134,217,728 at most"):
        next(solve(load(name), variant, iterations=1))
