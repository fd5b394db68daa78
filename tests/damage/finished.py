"""Two runs on Kuhn poker to be damaged, and what is done with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro.tracking import record as records
from repro.tracking.folders import run_folder
from repro.tracking.record import RunRecord
from tests.helpers.commands import executed, key_of

CFR = ("game=kuhn", "algorithm=cfr", "algorithm.iterations=10", "algorithm.snapshot_every=5")
NETWORKS = (
    "game=kuhn", "algorithm=sd_cfr_and_deep_cfr", "algorithm.iterations=2", "algorithm.snapshot_every=1",
    "algorithm.traversals=100", "algorithm.value.steps=2", "algorithm.value.batch_size=16", "algorithm.average.steps=2",
    "algorithm.average.batch_size=16", "algorithm.value_capacity=500", "algorithm.strategy_capacity=500",
    "network.width=8", "evaluation=costs",
)  # fmt: skip

NOTHING = {
    "empty": "", "null": "null", "list": "[]", "number": "3", "text": '"x"', "half": '{"state": "fini', "nothing": "{}",
    "binary": "\0" * 100, "deep": "[" * 100_000,
}  # fmt: skip
"""What is no record, and no measurements: name of the damage -> the file's text."""


def done(output: Path, *overrides: str) -> tuple[str, RunRecord]:
    """Do a run: the state that it ended in, and its record."""
    state = executed(*overrides, f"output_dir={output}")
    return state, records.read(folder_of(output, overrides))


def folder_of(output: Path, overrides: tuple[str, ...] = CFR) -> Path:
    return run_folder(output, key_of(*overrides))


def changed(path: Path, change: Callable[[Any], Any]) -> str:
    """A JSON file's text with other content."""
    return json.dumps(change(json.loads(path.read_text())))
