"""The LightningModules that Lightning's Trainer drives: each has a training inside (`repro.algorithms.base`).

Parameters, checkpoints and optimizers are the training's own. Callbacks of a user's find it as `pl_module.inside`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from repro.algorithms.base import Epochs, Iterative, Training


class TrainingModule(pl.LightningModule):
    """A training in Lightning's loop; one of its epochs is one of Lightning's.

    Attributes:
        inside: the training.
    """

    inside: Training

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The training's, under its own names."""
        return self.inside.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take back what `state_dict` gave."""
        return self.inside.load_state_dict(state_dict, strict, assign)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["algorithm"] = self.inside.saved()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.inside.resume(checkpoint["algorithm"])


class IterativeModule(TrainingModule):
    """An `Iterative`, which takes its gradients itself: its step is one batch, and an epoch."""

    inside: Iterative

    def __init__(self, inside: Iterative) -> None:
        super().__init__()
        self.inside, self.automatic_optimization = inside, False

    def train_dataloader(self) -> DataLoader[int]:
        """One batch per epoch: an iteration makes its own data."""
        return DataLoader([0])  # type: ignore[arg-type]

    def configure_optimizers(self) -> Any:
        return list(self.inside.optimizers()) or None

    def on_train_start(self) -> None:
        optimizers = self.optimizers()
        self.inside.counted = [o.step for o in (optimizers if isinstance(optimizers, list) else [optimizers])]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.inside.step()


class EpochsModule(TrainingModule):
    """An `Epochs`, whose gradients Lightning takes."""

    inside: Epochs

    def __init__(self, inside: Epochs) -> None:
        super().__init__()
        self.inside = inside

    def setup(self, stage: str) -> None:
        """Read the data."""
        self.inside.prepare()

    def train_dataloader(self) -> DataLoader[Any]:
        return self.inside.batches("train")

    def val_dataloader(self) -> DataLoader[Any]:
        return self.inside.batches("validation")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.inside.optimizer()

    def on_train_epoch_start(self) -> None:
        self.inside.begin_epoch()

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.inside.loss(batch, "train")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.inside.loss(batch, "validation")

    def on_validation_epoch_end(self) -> None:
        self.inside.end_epoch()


def module_of(training: Training) -> TrainingModule:
    """A training as a LightningModule."""
    if isinstance(training, Epochs):
        return EpochsModule(training)
    assert isinstance(training, Iterative)
    return IterativeModule(training)


def training_in(module: pl.LightningModule) -> Training:
    """The training inside the module of a Trainer of the suite's."""
    assert isinstance(module, TrainingModule)
    return module.inside
