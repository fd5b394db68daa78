"""A Deep CFR configuration that takes milliseconds per iteration; what its read-outs play and are measured at; and runs
of any algorithm that are broken off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytorch_lightning as pl
import torch

from repro.algorithms.deep_cfr import DeepCFR, DeepCFRConfig
from repro.config import Config, NetworkConfig, ReadoutConfig, RegressionConfig
from repro.evaluation.averages import Averages, ListedRows
from repro.evaluation.base import Evaluation, Measured, Other, Subject
from repro.evaluation.exploitability import exact_engine
from repro.evaluation.measures import Exploitability
from repro.games import Game
from repro.policies import TabularPolicy
from repro.policies.readout import Readout, Seat
from repro.policies.snapshot import Snapshot

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
        "snapshot_every": 2,
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


def config_of(model: Any) -> Config:
    """The configuration of a training that was made without one."""
    return Config(game={}, algorithm=model.algorithm, network=model.network, seed=model.seed)


def readouts_of(model: Any) -> dict[str, Readout]:
    """A training's read-outs, by name."""
    config = config_of(model)
    given = model.algorithm.readouts.items()
    return {name: model.algorithm.READOUTS[one.kind](model.game, config, one) for name, one in given}


def seats_of(model: Any, readout: ReadoutConfig, snapshot: Snapshot | None = None) -> Sequence[Seat]:
    """What a read-out plays, as after the last iteration or after another."""
    kind = model.algorithm.READOUTS[readout.kind]
    return kind(model.game, config_of(model), readout).seats(model.snapshot() if snapshot is None else snapshot)


def table_of_seats(game: Game, seats: Sequence[Seat]) -> TabularPolicy:
    """What seats play on average at all infosets of a small game, taken as evaluations take it."""
    rows: Any = ListedRows(game, exact_engine(game))  # type: ignore[arg-type]
    return TabularPolicy(Averages(rows).table(seats))


def average_policy_of(model: Any, capacity: int | None = None) -> TabularPolicy:
    """SD-CFR's average strategy."""
    return table_of_seats(model.game, seats_of(model, ReadoutConfig("ensemble", capacity)))


def measured(
    model: Any, *evaluations: Evaluation, others: dict[str, Other] | None = None, snapshot: Snapshot | None = None
) -> Measured:
    """What evaluations (default exploitability) and the training itself say of all read-outs after the last iteration.

    Counts and costs are among it.
    """
    readouts, now = readouts_of(model), model.snapshot() if snapshot is None else snapshot
    subject = Subject(model.game, model.seed, now, readouts, others or {})
    found: Measured = {name: {**now.counts, **readout.notes(now)} for name, readout in readouts.items()}
    for evaluation in evaluations or (Exploitability(),):
        for name, metrics in evaluation.measure(subject).items():
            found[name].update(metrics)
    return found


def without_clock(metrics: Measured) -> Measured:
    return {name: {k: v for k, v in m.items() if k != "wall_seconds"} for name, m in metrics.items()}
