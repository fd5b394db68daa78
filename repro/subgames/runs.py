"""Runs about subgames that train nothing: solving them, and measuring the error that buckets make.

An iteration is a shard of the dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from repro.algorithms.base import Iterative
from repro.common.compiled import Array
from repro.config.fields import at_least, one_of
from repro.config.keys import training_key
from repro.config.schema import AlgorithmConfig, Config, register_algorithm, register_evaluation
from repro.evaluation.base import Evaluation, Measured, Subject
from repro.games.game import Game
from repro.policies.readout import Readout
from repro.policies.snapshot import Snapshot
from repro.subgames import buckets
from repro.subgames.buckets import K_MEANS, K_MEDIANS, BucketRecipe
from repro.subgames.config import StoredSubgamesConfig, SubgameReadout, folder_of
from repro.subgames.dataset import Dataset, SubgameSamples
from repro.subgames.encoding import CFV, EV, encoding_error, error
from repro.subgames.subgames import Subgames


class StoredLabels(SubgameReadout):
    """The values of a run's stored subgames (kind `labels`)."""


@dataclass
class SolvedSubgamesConfig(StoredSubgamesConfig):
    """Solve random subgames and store the solutions; an iteration is a shard of the dataset, 250 rivers or 10 turns.

    `seed` names the dataset.
    """

    USES_NETWORK = False
    READOUTS: ClassVar[Mapping[str, type[Readout]]] = {"labels": StoredLabels}

    # Number of the first shard.
    first: int = at_least(0, 0)

    def stored_data(self, config: Config) -> Path:
        return folder_of(config) / self.recipe(self.load(config.game), config.seed).name

    def build(self, game: Subgames, config: Config) -> SolvedSubgames:
        return SolvedSubgames(game, self, config)


register_algorithm("solved_subgames", SolvedSubgamesConfig)


class MeasuredErrors(SubgameReadout):
    """What buckets make a network err that predicts counterfactual values (kind `cfv`) or expected ones (`ev`)."""

    def metrics(self, snapshot: Snapshot) -> dict[str, float]:
        """As `EncodingErrors` names them."""
        return dict(snapshot.state["measured"][self.readout.kind])


@dataclass
class EncodingErrorConfig(SolvedSubgamesConfig):
    """The error that buckets alone make; subgames that are not stored yet are solved first.

    `seed` names the buckets, too.
    """

    READOUTS: ClassVar[Mapping[str, type[Readout]]] = {CFV: MeasuredErrors, EV: MeasuredErrors}

    # How many buckets hands are in; null: a bucket for each different description of a board's hands.
    buckets: int | None = at_least(1)
    # How a number of buckets is found; k_medians: under the earth mover's distance.
    clustering: str = one_of(K_MEANS, K_MEDIANS, default=K_MEANS)

    def buckets_of(self, game: Subgames, config: Config, boards: Array) -> Array:
        """`[n, cards]` boards -> `[n, hands]` bucket of each hand."""
        deck = game.deck
        if self.buckets is None:
            return buckets.alike(deck, boards)
        recipe = BucketRecipe(deck.ranks, deck.suits, game.board_cards, config.seed, self.buckets, self.clustering)
        return buckets.stored(folder_of(config), recipe).of_boards(boards)

    def build(self, game: Subgames, config: Config) -> EncodingErrors:
        return EncodingErrors(game, self, config)


register_algorithm("encoding_error", EncodingErrorConfig)


class SolvedSubgames(Iterative):
    """Solves random subgames and stores the solutions, shard by shard; those that are stored already are left alone.

    On another device than the CPU, those subgames of a shard that have trees of the same shape are solved at a time.

    Args:
        subgames: which kind.
        algorithm: hyperparameters.
        config: of the run: the seed, which names the dataset, where subgames are stored, the threads, each of which
            solves a subgame at a time, and the device.
    """

    def __init__(self, subgames: Subgames, algorithm: SolvedSubgamesConfig, config: Config) -> None:
        super().__init__(algorithm, config.seed)
        self.subgames, self.folder = subgames, folder_of(config)
        recipe = algorithm.recipe(subgames, config.seed)
        self.dataset = Dataset(self.folder, recipe, config.device, training_key(config))
        self._first, self._threads = algorithm.first, config.threads
        self._solved = 0

    def advance(self) -> dict[str, float]:
        samples = self.dataset.shard(self._first + self.iteration - 1, self._threads)
        self._solved += len(samples)
        self.use(samples)
        return {
            "exploitability/mean": 100 * float(samples.exploitability.mean()),
            "exploitability/most": 100 * float(samples.exploitability.max()),
            "solver_iterations": float(samples.iterations.mean()),
        }

    def use(self, samples: SubgameSamples) -> None:
        """Take in the iteration's subgames. Solving and storing them is all that this class does."""

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

    Metrics of a kind: `encoding_error` of all subgames so far [DEVN, Sec. 6], in % of the pot, the mean over subgames
    and players of the root mean square error over hands; of the iteration's subgames alone `error`, the same, and
    `squared_error`, the mean square error, in (% of the pot)^2.
    """

    def __init__(self, subgames: Subgames, algorithm: EncodingErrorConfig, config: Config) -> None:
        super().__init__(subgames, algorithm, config)
        self._buckets_of = partial(algorithm.buckets_of, subgames, config)
        self._sums = dict.fromkeys((CFV, EV), 0.0)
        self._newest: dict[str, dict[str, float]] = {}

    def use(self, samples: SubgameSamples) -> None:
        bucket = torch.from_numpy(self._buckets_of(samples.board)).long()
        matchup = torch.from_numpy(samples.matchups(self.subgames.deck))
        cfv = torch.from_numpy(samples.cfv).double()
        for kind in self._sums:
            squares = encoding_error(cfv, matchup, bucket, int(bucket.max()) + 1, kind)
            self._newest[kind] = {"error": error(squares), "squared_error": 1e4 * float(squares.mean())}
            self._sums[kind] += len(samples) * self._newest[kind]["error"]

    def state(self) -> dict[str, Any]:
        """`measured`: the metrics by kind."""
        measured = {k: {"encoding_error": s / self._solved, **self._newest[k]} for k, s in self._sums.items()}
        return {"measured": measured}

    def progress(self) -> dict[str, Any]:
        return {**super().progress(), "sums": dict(self._sums), "newest": dict(self._newest)}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self._sums, self._newest = dict(saved["sums"]), dict(saved["newest"])


@dataclass
class EncodingErrorMetrics(Evaluation):
    """What runs of `EncodingErrors` measured, as metrics of their read-outs."""

    OF_PLAYERS = False

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        yield from super().problems(game, algorithm)
        if not isinstance(algorithm, EncodingErrorConfig):
            yield "readouts", self.readouts, f"the algorithm {algorithm.name} measures no buckets, leave it out"

    @property
    def charted(self) -> list[str]:
        return ["encoding_error"]

    def headline(self, game: Game, measured: Measured) -> str:
        parts = [f"{name} {m['encoding_error']:.3f}" for name, m in measured.items() if "encoding_error" in m]
        return f"{', '.join(parts)} % of the pot" if parts else ""

    def measure(self, subject: Subject) -> Measured:
        measured = {}
        for name in self.each(subject):
            readout = subject.readouts[name]
            assert isinstance(readout, MeasuredErrors)
            measured[name] = readout.metrics(subject.snapshot)
        return measured


register_evaluation("encoding_error", EncodingErrorMetrics)
