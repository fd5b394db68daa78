"""Configurations of Deep CFR and D2CFR that take milliseconds per iteration, and what their models hold."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from repro.algorithms.d2cfr import D2CFRConfig
from repro.algorithms.deep_cfr import DeepCFR, DeepCFRConfig
from repro.algorithms.strategies import Asked, Listed
from repro.config import NetworkConfig, ReadoutConfig, RegressionConfig
from repro.games import Game
from repro.stored.trained import save_portable
from repro.tracking.folders import PORTABLE
from tests.helpers.training import advanced, config_of_model


def small_config(**changes: Any) -> DeepCFRConfig:
    values: dict[str, Any] = {
        "name": "small",
        "iterations": 6,
        "traversals": 100,
        "value_capacity": 500,
        "strategy_capacity": 500,
        "value": RegressionConfig(steps=8, batch_size=64, start="previous"),
        "average": RegressionConfig(steps=10, batch_size=64, start="random"),
        "snapshot_every": 2,
        "readouts": {
            "sd_cfr": ReadoutConfig("ensemble"),
            "sd_cfr_2": ReadoutConfig("ensemble", 2),
            "deep_cfr": ReadoutConfig("average_network"),
        },
    }
    return DeepCFRConfig(**{**values, **changes})


def small_model(game: Game, seed: int = 0, **changes: Any) -> DeepCFR:
    return DeepCFR(game, small_config(**changes), NetworkConfig("sd_cfr", 16), seed)


def d2cfr_config(**changes: Any) -> D2CFRConfig:
    """The small configuration, with what D2CFR adds left plain: nothing is rectified."""
    base = small_config(readouts={"d2cfr": ReadoutConfig("average_network")})
    given = {f.name: getattr(base, f.name) for f in fields(DeepCFRConfig)}
    plain = {"rectification": "none", "policy_every": 2, "divide_by_legal": False, "when_no_positive": "uniform"}
    return D2CFRConfig(**{**given, **plain, **changes})


def listed(model: DeepCFR) -> Listed:
    assert isinstance(model.strategies, Listed)
    return model.strategies


def asked(model: DeepCFR) -> Asked:
    assert isinstance(model.strategies, Asked)
    return model.strategies


def portable_model(game: Game, folder: Path, when_no_positive: str = "argmax") -> tuple[DeepCFR, Path]:
    """A short training, and its last snapshot in a file."""
    model = small_model(
        game, seed=1, iterations=8, snapshot_every=8, when_no_positive=when_no_positive, average=None,
        readouts={"sd_cfr": ReadoutConfig("ensemble")},
    )  # fmt: skip
    advanced(model, 8)
    config = config_of_model(model)
    config.game = {"name": game.name, **game.parameters}
    save_portable(folder / PORTABLE, config, model.snapshot())
    return model, folder / PORTABLE
