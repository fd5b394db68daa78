"""What every algorithm of the suite is to `repro.training`: a LightningModule that measures its read-outs."""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from repro.config import AlgorithmConfig, ReadoutConfig
from repro.evaluation.exploitability import nash_conv
from repro.evaluation.units import exploitability, unit_name
from repro.games.game import Game
from repro.policies.base import TabularPolicy
from repro.policies.record import StrategyRecord
from repro.seeding import generator

_FEW_INFOSETS = 16
_MOST_MATCHES = 3


def strategy_metric(game: Game, infoset: int, action: int) -> str:
    """Name of the metric of one probability, e.g. `strategy/player 0 hand 2 call raise/call`."""
    words = game.describe(infoset).replace(",", "").replace("betting ", "").replace(" / ", " - ").strip()
    return f"strategy/{words}/{game.actions[action]}"


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of `number` that is at most `most`."""
    return max(d for d in range(1, min(number, most) + 1) if number % d == 0)


class Tracked(pl.LightningModule):
    """What `repro.training` trains: it goes on in iterations, is measured on the way, and can be stopped and continued.

    A *read-out* is a way to use what is stored, such as to turn it into an average strategy; those of the configuration
    are evaluated every `evaluate_every` iterations and after the last.

    Args:
        algorithm: hyperparameters.
        seed: names all random draws of the run.

    Attributes:
        iteration: iterations done; an epoch of Lightning's is one or several.
        wall_seconds: time spent in iterations, over all the processes that worked on the run.
        metrics: what the last epoch measured, by read-out name; the key "" holds the run's own.
        datamodule: where data comes from that an iteration does not make itself.
    """

    iterations_per_step = 1
    datamodule: pl.LightningDataModule | None = None

    def __init__(self, algorithm: AlgorithmConfig, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.iterations, self.evaluate_every = algorithm.iterations, algorithm.evaluate_every
        self.readouts: dict[str, ReadoutConfig] = algorithm.readouts
        self.iteration = 0
        self.wall_seconds = 0.0
        self.metrics: dict[str, dict[str, float]] = {}

    # -- what a subclass defines ---------------------------------------------------------------------------------

    @abstractmethod
    def evaluate(self) -> None:
        """Measure every read-out on what is stored now, into `metrics`. Must not change what is learned."""

    @abstractmethod
    def progress(self) -> dict[str, Any]:
        """What a checkpoint must hold beside Lightning's own: tensors and plain Python."""

    @abstractmethod
    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `progress` gave."""

    @abstractmethod
    def counts(self) -> dict[str, float]:
        """How far the run is, in the units of the papers' x-axes."""

    @abstractmethod
    def headline(self) -> str:
        """The newest of what matters most, in a few words; empty between evaluations."""

    ARTIFACT: ClassVar[str] = "networks.pt"

    def artifact(self) -> dict[str, Any] | None:
        """What to leave behind as the file `ARTIFACT`, if anything: tensors and plain Python."""
        return None

    # -- iterations ----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Epochs that a whole run takes."""
        return -(-self.iterations // self.iterations_per_step)

    @property
    def is_due(self) -> bool:
        """Whether the read-outs are evaluated after this iteration."""
        return self.iteration % self.evaluate_every == 0 or self.iteration == self.iterations

    def charge(self, seconds: float) -> None:
        """Add to the time spent, and enter counts and costs beside what was measured."""
        self.wall_seconds += seconds
        for measured in self.metrics.values():
            measured.update(self.counts())
            measured["wall_seconds"] = self.wall_seconds

    @property
    def replicates(self) -> Sequence[Tracked]:
        """The runs that this is: itself, unless several seeds are done together."""
        return [self]

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["algorithm"] = self.saved()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.resume(checkpoint["algorithm"])

    def saved(self) -> dict[str, Any]:
        """What `resume` needs."""
        return {
            "iteration": self.iteration,
            "wall_seconds": self.wall_seconds,
            "progress": self.progress(),
        }

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from what `saved` gave."""
        self.iteration = state["iteration"]
        self.wall_seconds = state["wall_seconds"]
        self.restore(state["progress"])


class Iterative(Tracked):
    """What makes its own data: one `training_step`, an epoch of Lightning's, does `iterations_per_step` iterations."""

    def __init__(self, algorithm: AlgorithmConfig, seed: int) -> None:
        super().__init__(algorithm, seed)
        self.automatic_optimization = False

    @abstractmethod
    def advance(self) -> dict[str, float]:
        """Do one iteration, of number `self.iteration`, and return measurements of the training itself."""

    def train_dataloader(self) -> DataLoader:
        """One batch per epoch: an iteration makes its own data."""
        return DataLoader([0])  # type: ignore[arg-type]

    def configure_optimizers(self) -> Any:
        return None

    def training_step(self, batch: Any, batch_idx: int) -> None:
        started = time.perf_counter()
        for _ in range(min(self.iterations_per_step, self.iterations - self.iteration)):
            self.iteration += 1
            own = self.advance()
        self.metrics = {"": own}
        if self.is_due:
            self.evaluate()
        self.charge(time.perf_counter() - started)


class Algorithm(Iterative):
    """An iterative algorithm on a game.

    Args:
        game: the game; its tensors decide the device.
        algorithm: hyperparameters.
        seed: names all random draws of the run.

    Attributes:
        nodes_touched: histories visited so far, decision and terminal ones.
        policies: each read-out's average strategy as last evaluated, where it is a table.
    """

    def __init__(self, game: Game, algorithm: AlgorithmConfig, seed: int) -> None:
        super().__init__(algorithm, seed)
        self.game = game
        self.nodes_touched = 0
        self.policies: dict[str, TabularPolicy] = {}

    def counts(self) -> dict[str, float]:
        return {"player_updates": 2.0 * self.iteration, "nodes_touched": float(self.nodes_touched)}

    def headline(self) -> str:
        """The newest exploitability of the first two read-outs, and what the read-outs win against others."""
        measured = {name: m["exploitability"] for name, m in self.metrics.items() if "exploitability" in m}
        parts = [f"{name} {value:.0f}" for name, value in list(measured.items())[:2]]
        parts += [
            f"{name} against {found[1] or list(self.readouts)[1]} {value:+.0f}"
            for name, metrics in self.metrics.items()
            for key, value in metrics.items()
            if (found := re.fullmatch(r"match(?:/(\w+))?/value", key))
        ][-_MOST_MATCHES:]
        return f"{', '.join(parts)} {unit_name(self.game)}" if parts else ""

    def draws(self, purpose: str, player: int = 0) -> torch.Generator:
        """The generator of this iteration for a purpose and player, on the game's device."""
        return generator(self.seed, purpose, self.iteration, player, self.game.device)

    def saved(self) -> dict[str, Any]:
        return {**super().saved(), "nodes_touched": self.nodes_touched}

    def resume(self, state: dict[str, Any]) -> None:
        # First, because what is restored may need it.
        self.nodes_touched = state["nodes_touched"]
        super().resume(state)


class TableAlgorithm(Algorithm):
    """An algorithm whose read-outs are tables, measured exactly.

    Attributes:
        records: of each read-out the strategies of all evaluations, where `algorithm.keep_strategies` asks for them.
    """

    def __init__(self, game: Game, algorithm: AlgorithmConfig, seed: int) -> None:
        super().__init__(game, algorithm, seed)
        self._keep_strategies = algorithm.keep_strategies
        self.records: dict[str, StrategyRecord] = {}

    @abstractmethod
    def read_out(self, readout: ReadoutConfig) -> tuple[TabularPolicy, dict[str, float]]:
        """The average strategy of a read-out now, and measurements of its making. Must not change what is learned."""

    def evaluate(self) -> None:
        """Measure every read-out, and keep its table in `policies`."""
        for name, readout in self.readouts.items():
            policy, extra = self.read_out(readout)
            chips = nash_conv(self.game, policy)
            self.policies[name] = policy
            if self._keep_strategies:
                before = self.records.get(name, StrategyRecord([], torch.empty(0, *self.game.uniform.shape)))
                self.records[name] = before.with_one(self.iteration, policy)
            self.metrics[name] = {
                "nash_conv": chips,
                "exploitability": exploitability(self.game, chips),
                **self._strategy_metrics(policy),
                **extra,
            }

    def _strategy_metrics(self, policy: TabularPolicy) -> dict[str, float]:
        """In games as small as Kuhn poker, the strategy itself: a metric `strategy/<infoset>/<action>` for each action.

        Infosets are written as in `strategy_metric`.
        """
        if self.game.infosets > _FEW_INFOSETS:
            return {}
        cells = self.game.legal.nonzero().tolist()
        return {strategy_metric(self.game, i, a): float(policy.table[i, a]) for i, a in cells}

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        records = {name: {"iterations": r.iterations, "tables": r.tables} for name, r in self.records.items()}
        return {**super().saved(), "records": records}

    def resume(self, state: dict[str, Any]) -> None:
        super().resume(state)
        self.records = {name: StrategyRecord(**given) for name, given in state["records"].items()}
