"""Trainings without a run around them: advanced, broken off and resumed, read out and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytorch_lightning as pl

from repro.algorithms.base import Iterative, Training
from repro.config.checks import check_settings, check_with_game
from repro.config.schema import AlgorithmConfig, Config, NetworkConfig, ReadoutConfig
from repro.evaluation.averages import tabulated
from repro.evaluation.base import Evaluation, Measured, Subject
from repro.evaluation.measures import Exploitability
from repro.games import Game
from repro.policies import TabularPolicy
from repro.policies.readout import Readout
from repro.policies.snapshot import Snapshot
from repro.running.lightning_modules import module_of

Model = TypeVar("Model", bound=Training)
Stepping = TypeVar("Stepping", bound=Iterative)


def config_of(
    algorithm: AlgorithmConfig, network: NetworkConfig | None = None, seed: int = 0, **changes: Any
) -> Config:
    """The configuration of a run, without its game."""
    return Config(game={}, algorithm=algorithm, network=network, seed=seed, **changes)


def built(game: Any, config: Config) -> Any:
    """What trains, checked as a run's is."""
    check_settings(config)
    check_with_game(config, game)
    return config.algorithm.build(game, config)


def config_of_model(model: Any) -> Config:
    """The configuration of a training that was made without one."""
    return config_of(model.algorithm, model.network, model.seed)


def readouts_of(game: Any, config: Config) -> dict[str, Readout]:
    algorithm = config.algorithm
    return {name: algorithm.READOUTS[given.kind](game, config, given) for name, given in algorithm.readouts.items()}


def subject_of(game: Any, config: Config, training: Training) -> Subject:
    return Subject(game, config.seed, training.snapshot(), readouts_of(game, config))


def measured(game: Any, config: Config, training: Training, evaluation: Evaluation | None = None) -> Measured:
    """The metrics of all read-outs now; by default, their exploitability."""
    return (evaluation or Exploitability()).measure(subject_of(game, config, training))


def tables_of(game: Game, config: Config, training: Training) -> dict[str, TabularPolicy]:
    """What each read-out plays now, in a game with an exact engine."""
    subject = subject_of(game, config, training)
    return {name: tabulated(game, subject.seats(name)) for name in subject.readouts}


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


def seats_of(model: Any, readout: ReadoutConfig, snapshot: Snapshot | None = None) -> Sequence[Any]:
    """What a read-out plays, as after the last iteration or as in another snapshot."""
    kind = model.algorithm.READOUTS[readout.kind]
    return kind(model.game, config_of_model(model), readout).seats(model.snapshot() if snapshot is None else snapshot)


def average_policy_of(model: Any, capacity: int | None = None) -> TabularPolicy:
    """SD-CFR's average strategy at all infosets of a small game."""
    return tabulated(model.game, seats_of(model, ReadoutConfig("ensemble", capacity)))


def advanced(model: Stepping, steps: int) -> Stepping:
    """The model after so many training steps more."""
    for _ in range(steps):
        model.step()
    return model


def fitted(model: Training, epochs: int, folder: Path, checkpoint: Path | None = None) -> pl.Trainer:
    """Train in Lightning without anything of its own, to so many epochs; returns what has trained."""
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=folder,
    )  # fmt: skip
    # Read as `repro.run` reads it: nothing but tensors and plain Python.
    trainer.fit(module_of(model), ckpt_path=checkpoint, weights_only=True)
    return trainer


def straight_and_resumed(make: Callable[[], Model], epochs: int, stop: int, folder: Path) -> tuple[Model, Model]:
    """A run that never stopped, and one that was stopped, checkpointed and restored in a new model.

    Args:
        make: called for every model, which must come out the same.
        epochs: where both runs end.
        stop: the epoch after which the second one was stopped.
        folder: for the checkpoint.
    """
    straight, stopped, resumed = make(), make(), make()
    fitted(straight, epochs, folder)
    fitted(stopped, stop, folder).save_checkpoint(folder / "stopped.ckpt")
    fitted(resumed, epochs, folder, folder / "stopped.ckpt")
    return straight, resumed
