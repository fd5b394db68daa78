"""A Deep CFR configuration that takes milliseconds per iteration; what its read-outs play and are measured at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from repro.algorithms.deep_cfr import DeepCFR, DeepCFRConfig
from repro.config import Config, NetworkConfig, ReadoutConfig, RegressionConfig
from repro.evaluation.averages import tabulated
from repro.evaluation.base import Evaluation, Measured, Subject
from repro.evaluation.measures import Exploitability
from repro.games import Game
from repro.policies import TabularPolicy
from repro.policies.snapshot import Snapshot
from tests.trained import config_of, readouts_of


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


def config_of_model(model: Any) -> Config:
    """The configuration of a training that was made without one."""
    return config_of(model.algorithm, model.network, model.seed)


def seats_of(model: Any, readout: ReadoutConfig, snapshot: Snapshot | None = None) -> Sequence[Any]:
    """What a read-out plays, as after the last iteration or as in another snapshot."""
    kind = model.algorithm.READOUTS[readout.kind]
    return kind(model.game, config_of_model(model), readout).seats(model.snapshot() if snapshot is None else snapshot)


def average_policy_of(model: Any, capacity: int | None = None) -> TabularPolicy:
    """SD-CFR's average strategy at all infosets of a small game."""
    return tabulated(model.game, seats_of(model, ReadoutConfig("ensemble", capacity)))


def metrics_of(
    model: Any, *evaluations: Evaluation, others: dict[str, Any] | None = None, snapshot: Snapshot | None = None
) -> Measured:
    """What evaluations (default: exploitability) and the training itself say of all read-outs, without the clock."""
    readouts = readouts_of(model.game, config_of_model(model))
    now = model.snapshot() if snapshot is None else snapshot
    subject = Subject(model.game, model.seed, now, readouts, others or {})
    counts = {name: value for name, value in now.counts.items() if name != "wall_seconds"}
    metrics: Measured = {name: {**counts, **readout.notes(now)} for name, readout in readouts.items()}
    for evaluation in evaluations or (Exploitability(),):
        for name, values in evaluation.measure(subject).items():
            metrics[name].update(values)
    return metrics
