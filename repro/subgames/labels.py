"""How accurate labels are, and how far they range: stored values of random subgames.

Accuracy is measured beside values of the same subgames solved further. DEVN chose its threshold on the exploitability
so that the "RMSE between vectors of found CFVs and ground truth CFVs (calculated until exploitability of 0.01% of the
pot) will be with probability 0.9 smaller than 0.5, and with probability 0.98 smaller than 1" [DEVN, Sec. 6]. It names
no unit; its losses are in % of the pot, and so are these. A subgame's vector is taken to be of all hands of both
players.

Of the range DEVN says that "CFVs are in the range [-0.5, 10], as they are normalized by the pot" [DEVN, Sec. 6].
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from repro.common.compiled import Array
from repro.common.seeding import generator
from repro.config.fields import above, at_least
from repro.config.schema import AlgorithmConfig, Config, register_evaluation
from repro.evaluation.base import Evaluation, Measured, Subject
from repro.games.game import Game
from repro.subgames.config import folder_of
from repro.subgames.dataset import MOST_ITERATIONS, Dataset, SubgameSamples
from repro.subgames.runs import SolvedSubgamesConfig, StoredLabels
from repro.subgames.solver import solve_all


@dataclass
class _OfLabels(Evaluation):
    """What is measured of the labels that a run has stored."""

    OF_PLAYERS = False

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        yield from super().problems(game, algorithm)
        if type(algorithm) is not SolvedSubgamesConfig:
            yield "readouts", self.readouts, f"the algorithm {algorithm.name} stores no labels, leave it out"

    def measure(self, subject: Subject) -> Measured:
        return {name: self._of_readout(subject, name) for name in self.each(subject)}

    def _of_readout(self, subject: Subject, name: str) -> dict[str, float]:
        readout = subject.readouts[name]
        assert isinstance(readout, StoredLabels)
        config = readout.config
        dataset = Dataset(folder_of(config), config.algorithm.recipe(readout.game, config.seed))
        return self._of_run(subject, name, dataset, config)

    @abstractmethod
    def _of_run(self, subject: Subject, name: str, dataset: Dataset, config: Config) -> dict[str, float]:
        """Of a read-out's run, as of the snapshot."""


@dataclass
class LabelErrors(_OfLabels):
    """How far stored counterfactual values are from those of the same subgames solved further, in % of the pot.

    Of the root mean square error over the hands of both players, a number per subgame: `label_error`, the mean;
    `/median`, `/p90`, `/p98` and `/most`; and the shares of subgames, in %, in which it is `/below_0.5` and `/below_1`.
    `truth/most` is the most exploitability of what labels are compared with, and `compared` the number of subgames,
    which are drawn by the run's seed from those that it has solved.
    """

    # How many subgames, or all of the run's if these are fewer.
    subgames: int = at_least(1, 200)
    # Exploitability of what labels are compared with, as a fraction of the pot.
    truth: float = above(0, 1e-5)

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        yield from super().problems(game, algorithm)
        if type(algorithm) is SolvedSubgamesConfig and self.truth >= (tolerance := algorithm.solver.tolerance):
            yield "truth", self.truth, f"it must be below algorithm.solver.tolerance, {tolerance:g}"

    @property
    def charted(self) -> list[str]:
        return ["label_error"]

    def headline(self, game: Game, measured: Measured) -> str:
        parts = [f"labels are {m['label_error']:.2f} % of the pot off" for m in measured.values() if "label_error" in m]
        return ", ".join(parts)

    def _of_run(self, subject: Subject, name: str, dataset: Dataset, config: Config) -> dict[str, float]:
        recipe = dataset.recipe
        first = config.algorithm.first * recipe.shard
        order = torch.randperm(
            subject.snapshot.iteration * recipe.shard, generator=generator(subject.seed, "label errors")
        )
        numbers = sorted((first + order[: self.subgames]).tolist())
        labels = SubgameSamples.joined(dataset.some(numbers, config.threads))
        truth, exploitability = self._solved_further(dataset, numbers, config.threads)
        errors = label_errors(labels.cfv, truth)
        quantiles = {"/median": 0.5, "/p90": 0.9, "/p98": 0.98, "/most": 1.0}
        below = {f"/below_{limit:g}": 100 * float((errors < limit).mean()) for limit in (0.5, 1.0)}
        return {
            "label_error": float(errors.mean()),
            **{f"label_error{key}": float(np.quantile(errors, q)) for key, q in quantiles.items()},
            **{f"label_error{key}": share for key, share in below.items()},
            "truth/most": 100 * exploitability, "compared": float(len(numbers)),
        }  # fmt: skip

    def _solved_further(self, dataset: Dataset, numbers: list[int], threads: int) -> tuple[Array, float]:
        """`[n, 2, hands]` values in pots, and the most exploitability of any subgame, as a fraction of the pot."""
        drawn = map(dataset.recipe.subgame, numbers)
        solutions = list(solve_all(drawn, dataset.recipe.solver, self.truth, threads, MOST_ITERATIONS))
        return np.stack([s.cfv for s in solutions]), max(s.exploitability for s in solutions)


register_evaluation("label_errors", LabelErrors)


@dataclass
class LabelRange(_OfLabels):
    """How far a run's stored counterfactual values range, in pots.

    Over all subgames so far, players and hands: `cfv/least` and `cfv/most`. Extremes of a sample are those of all
    subgames at the most, and come nearer the more are solved. Of each subgame's own least and most value the medians
    over subgames, which do not: `cfv/least/median` and `cfv/most/median`.
    """

    def __post_init__(self) -> None:
        self._extremes: dict[str, Array] = {}

    @property
    def charted(self) -> list[str]:
        return ["cfv/most", "cfv/least"]

    def headline(self, game: Game, measured: Measured) -> str:
        parts = [
            f"CFVs from {m['cfv/least']:.2f} to {m['cfv/most']:.2f} pots" for m in measured.values() if "cfv/least" in m
        ]
        return ", ".join(parts)

    def _of_run(self, subject: Subject, name: str, dataset: Dataset, config: Config) -> dict[str, float]:
        recipe, first = dataset.recipe, config.algorithm.first
        # A dataset has up to a million shards: those that an earlier snapshot had are not read again.
        known = self._extremes.get(name, np.zeros((0, 2), np.float32))
        shards = range(first + len(known) // recipe.shard, first + subject.snapshot.iteration)
        met = np.concatenate([known, *(extremes(dataset.shard(n, config.threads).cfv) for n in shards)])
        self._extremes[name] = met
        least, most = met[: subject.snapshot.iteration * recipe.shard].T
        return {
            "cfv/least": float(least.min()), "cfv/least/median": float(np.median(least)),
            "cfv/most": float(most.max()), "cfv/most/median": float(np.median(most)),
        }  # fmt: skip


register_evaluation("label_range", LabelRange)


def extremes(cfv: Array) -> Array:
    """`[n, 2]` least and most of `[n, 2, hands]` values, over both players' hands."""
    return np.stack([cfv.min((1, 2)), cfv.max((1, 2))], 1)


def label_errors(labels: Array, truth: Array) -> Array:
    """`[n]` root mean square errors of `[n, 2, hands]` values in pots over both players' hands, in % of the pot."""
    errors: Array = 100 * np.sqrt(np.square(labels.astype(float) - truth).mean((1, 2)))
    return errors
