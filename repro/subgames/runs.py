"""Runs about subgames that train nothing: solving them, and measuring the error that buckets make.

An iteration is a shard of the dataset.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from repro.algorithms.base import Iterative
from repro.config import EncodingErrorConfig, SolvedSubgamesConfig
from repro.subgames import buckets
from repro.subgames.buckets import BucketRecipe
from repro.subgames.dataset import Dataset, Recipe, Samples
from repro.subgames.encoding import encoding_error, error
from repro.subgames.subgames import Array, Subgames


class SolvedSubgames(Iterative):
    """Solves random subgames and stores the solutions, shard by shard; those that are stored already are left alone.

    Args:
        subgames: which kind.
        algorithm: hyperparameters.
        seed: names the dataset.
        folder: of all datasets.
        threads: subgames solved at a time.
        device: where; on another than the CPU, those of a shard that have trees of the same shape at a time.
    """

    algorithm: SolvedSubgamesConfig

    def __init__(
        self, subgames: Subgames, algorithm: SolvedSubgamesConfig, seed: int, folder: Path, threads: int,
        device: str = "cpu",
    ) -> None:  # fmt: skip
        super().__init__(algorithm, seed)
        self.algorithm, self.subgames, self.folder, self._threads = algorithm, subgames, folder, threads
        self.dataset = Dataset(folder, Recipe.of(subgames, seed, algorithm.solver), device)
        self._solved = 0

    def advance(self) -> dict[str, float]:
        samples = self.dataset.shard(self.algorithm.first + self.iteration - 1, self._threads)
        self._solved += len(samples)
        self.use(samples)
        return {
            "exploitability/mean": 100 * float(samples.exploitability.mean()),
            "exploitability/most": 100 * float(samples.exploitability.max()),
            "solver_iterations": float(samples.iterations.mean()),
        }

    def use(self, samples: Samples) -> None:
        """Take in the iteration's subgames. Solving and storing them is all that this class does."""

    def evaluate(self) -> None:
        """There is nothing more to measure."""

    def counts(self) -> dict[str, float]:
        return {"subgames": float(self._solved)}

    def headline(self) -> str:
        return f"{self._solved:,} subgames"

    def progress(self) -> dict[str, Any]:
        return {"solved": self._solved}

    def restore(self, saved: dict[str, Any]) -> None:
        self._solved = saved["solved"]


class EncodingErrors(SolvedSubgames):
    """Measures, for networks that predict counterfactual or expected values, what buckets alone make them err.

    Metrics of a read-out: `encoding_error` of all subgames so far [DEVN, Sec. 6], in % of the pot, the mean over
    subgames and players of the root mean square error over hands; of the iteration's subgames alone `error`, the same,
    and `squared_error`, the mean square error, in (% of the pot)^2.
    """

    algorithm: EncodingErrorConfig

    def __init__(
        self, subgames: Subgames, algorithm: EncodingErrorConfig, seed: int, folder: Path, threads: int,
        device: str = "cpu",
    ) -> None:  # fmt: skip
        super().__init__(subgames, algorithm, seed, folder, threads, device)
        self._sums = dict.fromkeys(self.readouts, 0.0)
        self._newest: dict[str, dict[str, float]] = {}

    def use(self, samples: Samples) -> None:
        bucket = torch.from_numpy(self._bucket(samples)).long()
        matchup = torch.from_numpy(samples.matchups(self.subgames.deck))
        cfv = torch.from_numpy(samples.cfv).double()
        for name, readout in self.readouts.items():
            squares = encoding_error(cfv, matchup, bucket, int(bucket.max()) + 1, readout.kind)
            self._newest[name] = {"error": error(squares), "squared_error": 1e4 * float(squares.mean())}
            self._sums[name] += len(samples) * self._newest[name]["error"]

    def _bucket(self, samples: Samples) -> Array:
        """`[n, hands]` bucket of each hand."""
        deck, algorithm = self.subgames.deck, self.algorithm
        if algorithm.buckets is None:
            return buckets.alike(deck, samples.board)
        recipe = BucketRecipe(
            deck.ranks, deck.suits, self.subgames.board_cards, self.seed, algorithm.buckets, algorithm.clustering
        )
        return buckets.stored(self.folder, recipe).of_boards(samples.board)

    def evaluate(self) -> None:
        for name, total in self._sums.items():
            self.metrics[name] = {"encoding_error": total / self._solved, **self._newest[name]}

    def headline(self) -> str:
        errors = [f"{name} {m['encoding_error']:.3f}" for name, m in self.metrics.items() if "encoding_error" in m]
        return f"{', '.join(errors)} % of the pot" if errors else ""

    def progress(self) -> dict[str, Any]:
        return {**super().progress(), "sums": dict(self._sums), "newest": self._newest}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self._sums, self._newest = dict(saved["sums"]), saved["newest"]
