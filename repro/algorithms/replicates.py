"""Several seeds of Deep CFR on one game as one run, their networks trained together.

Each seed does what it would do alone, with its own draws and memories; only the SGD steps are taken in common, on
stacked parameters (see `repro.algorithms.stacked`). So a seed's run is the one that it would be alone, to rounding,
until rounding first changes what is sampled; after that it is another of the same distribution. Every seed has a run
of its own in the tracking store, charged with an equal part of the time. On a CUDA device a single seed is trained
this way too, for its steps are replayed as one graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from repro.algorithms.base import Algorithm
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR
from repro.algorithms.stacked import StackedAdam, fit_together


class Replicates(Algorithm):
    """The runs of `models`, which differ in their seeds only."""

    def __init__(self, models: Sequence[HoldemDeepCFR]) -> None:
        first = models[0]
        super().__init__(first.game, first.algorithm, first.seed)
        self.models = nn.ModuleList(models)
        self._stacks: dict[tuple[str, int], StackedAdam] = {}

    @property
    def replicates(self) -> list[Algorithm]:
        return list(self._runs())

    def _runs(self) -> Iterator[HoldemDeepCFR]:
        for model in self.models:
            assert isinstance(model, HoldemDeepCFR)
            yield model

    def advance(self) -> dict[str, float]:
        for model in self._runs():
            model.iteration = self.iteration
        losses = [self._update(player) for player in range(2)]
        for model, mine in zip(self._runs(), zip(*losses, strict=True), strict=True):
            model.metrics = {"": model.measurements(mine)}
        return {}

    def charge(self, seconds: float) -> None:
        super().charge(seconds)
        for model in self._runs():
            model.charge(seconds / len(self.models))

    def _update(self, player: int) -> list[float]:
        for model in self._runs():
            model.collect(player)
        losses = self._fit("value", player)
        for model in self._runs():
            model.store_strategy(player)
        return losses

    def evaluate(self) -> None:
        losses = [[0.0] * len(self.models)] * 2
        if any(readout.kind == "average_network" for readout in self.readouts.values()):
            losses = [self._fit("average", player) for player in range(2)]
        for model, mine in zip(self._runs(), zip(*losses, strict=True), strict=True):
            model.measure(sum(mine) / 2)

    def _fit(self, which: str, player: int) -> list[float]:
        """Train the `value` or `average` networks of a player in all runs; returns their losses."""
        learners = [model.learner(which, player) for model in self._runs()]
        batches = [model.begin_fit(which, player, merged=False) for model in self._runs()]
        stacked, regression = self._stack(which, player), learners[0].regression
        stacked.load([learner.optimizer.flat.detach() for learner in learners])
        with next(self._runs()).explaining_divergence(which, player):
            how = regression.learning_rate, regression.schedule
            losses = fit_together(stacked, zip(*batches, strict=True), regression.steps, *how)
        for learner, parameters in zip(learners, stacked.flat, strict=True):
            learner.optimizer.flat.data.copy_(parameters)
        return losses

    def _stack(self, which: str, player: int) -> StackedAdam:
        """What trains these networks: made (and on a CUDA device captured) once."""
        if (which, player) not in self._stacks:
            run = next(self._runs())
            mine, first = run.learner(which, player), self.game.player_slice[player].start
            self._stacks[which, player] = StackedAdam(
                run.build(which).to(self.game.device),
                lambda infosets: run.features.fixed_rows(infosets + first),
                len(self.models),
                mine.regression.batch_size,
                mine.regression.clip_norm,
                mine.regression.precision == "bf16",
            )
        return self._stacks[which, player]

    def progress(self) -> dict[str, Any]:
        return {"runs": [model.saved() for model in self._runs()]}

    def restore(self, saved: dict[str, Any]) -> None:
        for model, mine in zip(self._runs(), saved["runs"], strict=True):
            model.resume(mine)
