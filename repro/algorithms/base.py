"""What every algorithm of the suite is to `repro.running.training`: a torch module that goes on and leaves snapshots.

It neither measures nor plays. What can be played is read out of its snapshots (`repro.policies.readout`), and measured
by evaluations (`repro.evaluation`), while it trains or later. Nor does it import Lightning, which takes seconds: what
Lightning's Trainer drives has the training inside (`repro.running.lightning_modules`).
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from repro.common.errors import ReproError
from repro.common.seeding import generator
from repro.config.schema import AlgorithmConfig
from repro.games.game import Game
from repro.policies.snapshot import History, Snapshot, SnapshotFolder


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of `number` that is at most `most`."""
    return max(d for d in range(1, min(number, most) + 1) if number % d == 0)


def epochs_of(iterations: int, iterations_per_step: int) -> int:
    """Lightning's epochs in a training, of so many iterations each but for the last."""
    return -(-iterations // iterations_per_step)


@dataclass(frozen=True)
class Spent:
    """Seconds, by the clock on the wall and of the processor's time that this process has had."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Spent:
        """As both clocks stand; only differences mean something."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, earlier: Spent) -> Spent:
        return Spent(self.wall - earlier.wall, self.cpu - earlier.cpu)

    def shared(self, many: int) -> Spent:
        """An equal part for each of so many."""
        return Spent(self.wall / many, self.cpu / many)


class Training(nn.Module):
    """What `repro.running.training` trains: it goes on in iterations, leaves snapshots, can be stopped and continued.

    It is an `Iterative` or an `Epochs`.

    Args:
        algorithm: hyperparameters.
        seed: names all random draws of the run.

    Attributes:
        iteration: iterations done; an epoch of Lightning's is one or several.
        wall_seconds: time spent in iterations, over all the processes that worked on the run; not in evaluations.
        cpu_seconds: of the processor's, which other work on the machine hardly changes, likewise; of ranks that train
            together the first one's alone. None if a checkpoint of an earlier version did not know it.
        metrics: what the last epoch said of the training itself, such as losses.
        history: name -> per player what grows by a row with every iteration (B^M); part of every snapshot.
        snapshots: where snapshots are stored, if they are: what is there need not be in checkpoints.
    """

    iterations_per_step = 1

    def __init__(self, algorithm: AlgorithmConfig, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.iterations, self._leaves_snapshot = algorithm.iterations, algorithm.leaves_snapshot
        self.iteration = 0
        self.wall_seconds = 0.0
        self.cpu_seconds: float | None = 0.0
        self.metrics: dict[str, float] = {}
        self.history: dict[str, list[History]] = {}
        self.snapshots: SnapshotFolder | None = None

    # -- what a subclass defines ---------------------------------------------------------------------------------

    @abstractmethod
    def progress(self) -> dict[str, Any]:
        """What a checkpoint must hold beside Lightning's own and the history: tensors and plain Python."""

    @abstractmethod
    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `progress` gave."""

    @abstractmethod
    def counts(self) -> dict[str, float]:
        """How far the run is, in the units of the papers' x-axes."""

    def own_progress(self) -> dict[str, Any]:
        """What a checkpoint of several processes must hold of this one alone, beside `progress`, which they share."""
        return {}

    def restore_own(self, saved: dict[str, Any]) -> None:
        """Take back what `own_progress` gave, after all the rest."""

    def state(self) -> dict[str, Any]:
        """What of the moment read-outs need beside the history: tensors and plain Python, of the last iteration."""
        return {}

    def headline(self) -> str:
        """What matters of a training, beside what evaluations measure, in a few words."""
        return ""

    # -- snapshots -----------------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether a snapshot is left after this iteration."""
        return self._leaves_snapshot(self.iteration)

    def snapshot(self) -> Snapshot:
        """What can be played now."""
        return Snapshot(self.iteration, self._costs(), self.state(), self.history)

    def _costs(self) -> dict[str, float]:
        return {**self.counts(), "wall_seconds": self.wall_seconds}

    # -- iterations ----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Epochs that a whole run takes."""
        return epochs_of(self.iterations, self.iterations_per_step)

    def charge(self, spent: Spent) -> None:
        """Add to the time spent, and enter counts and costs beside the epoch's metrics."""
        self.wall_seconds += spent.wall
        if self.cpu_seconds is not None:
            self.cpu_seconds += spent.cpu
        self.metrics.update(self._costs())

    @property
    def replicates(self) -> Sequence[Training]:
        """The runs that this is: itself, unless several seeds are done together."""
        return [self]

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """What `resume` needs; of the history what is not stored in snapshots."""
        return {
            "iteration": self.iteration,
            "wall_seconds": self.wall_seconds,
            "cpu_seconds": self.cpu_seconds,
            "history": {name: [h.since(h.stored) for h in both] for name, both in self.history.items()},
            "progress": self.progress(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from what `saved` gave.

        Raises:
            ReproError: rows of the history are missing that should be in snapshots.
        """
        self.iteration = state["iteration"]
        self.wall_seconds, self.cpu_seconds = state["wall_seconds"], state.get("cpu_seconds")
        stored = self.snapshots.history(self.iteration) if self.snapshots is not None else {}
        for name, both in state["history"].items():
            self.history[name] = stored.get(name) or [History() for _ in both]
            for history, rows in zip(self.history[name], both, strict=True):
                # A snapshot may have been stored since the checkpoint was made, and have the same rows.
                for row in rows[max(0, len(history) + len(rows) - self.iteration) :]:
                    history.append(row)
                if len(history) != self.iteration:
                    raise ReproError(f"of {self.iteration} iterations, {len(history)} are in the history {name}.")
        self.restore(state["progress"])


class Iterative(Training):
    """What makes its own data: one `step`, an epoch of Lightning's, does `iterations_per_step` iterations.

    Attributes:
        counted: for each of the `optimizers` what takes a step of it that counts in Lightning's `global_step`; nothing
            outside of Lightning.
    """

    counted: Sequence[Callable[[], Any]] = ()

    @abstractmethod
    def advance(self) -> dict[str, float]:
        """Do one iteration, of number `self.iteration`, and return measurements of the training itself."""

    def prepare_snapshot(self) -> dict[str, float]:
        """Train what is only trained for snapshots, such as S-hat, and return measurements of that."""
        return {}

    def optimizers(self) -> Sequence[torch.optim.Optimizer]:
        """Those whose state is in checkpoints, and of whose steps some count."""
        return []

    def step(self) -> None:
        """Do iterations, and what is only done for a snapshot where one is due."""
        started = Spent.now()
        for _ in range(min(self.iterations_per_step, self.iterations - self.iteration)):
            self.iteration += 1
            self.metrics = self.advance()
        if self.is_due:
            self.metrics.update(self.prepare_snapshot())
        self.charge(Spent.now().since(started))


class Epochs(Training):
    """What learns from stored data, by gradients that Lightning takes; an iteration is an epoch."""

    @abstractmethod
    def prepare(self) -> None:
        """Read the data."""

    @abstractmethod
    def batches(self, which: str) -> DataLoader[Any]:
        """An epoch's batches, for "train" or "validation"."""

    @abstractmethod
    def optimizer(self) -> torch.optim.Optimizer:
        """What takes the steps."""

    @abstractmethod
    def begin_epoch(self) -> None:
        """An epoch begins: its batches for training come next, then those for validation."""

    @abstractmethod
    def loss(self, batch: Any, which: str) -> Tensor:
        """The loss of a batch, for "train" or "validation"."""

    @abstractmethod
    def end_epoch(self) -> None:
        """Note what the epoch was."""


class Algorithm(Iterative):
    """An iterative algorithm on a game.

    Args:
        game: the game; its tensors decide the device.
        algorithm: hyperparameters.
        seed: names all random draws of the run.

    Attributes:
        nodes_touched: histories visited so far, decision and terminal ones.
    """

    def __init__(self, game: Game, algorithm: AlgorithmConfig, seed: int) -> None:
        super().__init__(algorithm, seed)
        self.game = game
        self.nodes_touched = 0

    def counts(self) -> dict[str, float]:
        return {"player_updates": 2.0 * self.iteration, "nodes_touched": float(self.nodes_touched)}

    def draws(self, purpose: str, player: int = 0) -> torch.Generator:
        """The generator of this iteration for a purpose and player, on the game's device."""
        return generator(self.seed, purpose, self.iteration, player, self.game.device)

    def saved(self) -> dict[str, Any]:
        return {**super().saved(), "nodes_touched": self.nodes_touched}

    def resume(self, state: dict[str, Any]) -> None:
        # First, because what is restored may need it.
        self.nodes_touched = state["nodes_touched"]
        super().resume(state)
