"""A Deep CFR configuration that takes milliseconds per iteration, and runs of any algorithm that are broken off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytorch_lightning as pl
import torch

from repro.algorithms.deep_cfr import DeepCFR
from repro.config import DeepCFRConfig, NetworkConfig, ReadoutConfig, RegressionConfig
from repro.games import Game

Model = TypeVar("Model", bound=pl.LightningModule)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
        enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=folder,
    )  # fmt: skip


def straight_and_resumed(make: Callable[[], Model], epochs: int, stop: int, folder: Path) -> tuple[Model, Model]:
    """A run that never stopped, and one that was stopped, checkpointed and restored in a new model.

    Args:
        make: called for every model, which must come out the same.
        epochs: where both runs end.
        stop: the epoch after which the second one was stopped.
        folder: for the checkpoint.
    """

    def fitted(until: int, checkpoint: Path | None = None) -> Model:
        model = make()
        # Read as `repro.run` reads it: nothing but tensors and plain Python.
        trainer(until, folder).fit(
            model, datamodule=getattr(model, "datamodule", None), ckpt_path=checkpoint, weights_only=True
        )
        return model

    straight = fitted(epochs)
    fitted(stop).trainer.save_checkpoint(folder / "stopped.ckpt")
    return straight, fitted(epochs, folder / "stopped.ckpt")


def small_model(game: Game, seed: int = 0, **changes: Any) -> DeepCFR:
    return DeepCFR(game, small_config(**changes), NetworkConfig("sd_cfr", 16), seed)
