"""A Deep CFR configuration that takes milliseconds per iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from repro.algorithms.deep_cfr import DeepCFR
from repro.config import DeepCFRConfig, NetworkConfig, ReadoutConfig, RegressionConfig
from repro.games import Game


def small_config(**changes: Any) -> DeepCFRConfig:
    values: dict[str, Any] = {
        "name": "small",
        "iterations": 6,
        "traversals": 100,
        "value_capacity": 500,
        "strategy_capacity": 500,
        "value": RegressionConfig(steps=8, batch_size=64, start="previous"),
        "average": RegressionConfig(steps=10, batch_size=64, start="random"),
        "evaluate_every": 2,
        "readouts": {
            "sd_cfr": ReadoutConfig("ensemble"),
            "sd_cfr_2": ReadoutConfig("ensemble", 2),
            "deep_cfr": ReadoutConfig("average_network"),
        },
    }
    return DeepCFRConfig(**{**values, **changes})


def trainer(epochs: int, folder: Path) -> pl.Trainer:
    """Lightning without anything of its own."""
    return pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip


def small_model(game: Game, seed: int = 0, **changes: Any) -> DeepCFR:
    return DeepCFR(game, small_config(**changes), NetworkConfig("sd_cfr", 16), seed)
