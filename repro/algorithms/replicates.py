"""Several seeds of Deep CFR on one game as one run, their networks trained together.

Each seed does what it would do alone, with its own draws and memories; only the SGD steps are taken in common, on
stacked parameters (see `repro.algorithms.stacked`). So a seed's run is the one that it would be alone, to rounding,
until rounding first changes what is sampled; after that it is another of the same distribution. Every seed leaves its
own snapshots, charged with an equal part of the time. On a CUDA device a single seed is trained this way too, for its
steps are replayed as one graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Any

from torch import Tensor, nn

from repro.algorithms.base import Iterative, Spent
from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.stacked import StackedAdam, can_compile, fit_together
from repro.networks.inputs import fixed_inputs

_WORTH_COMPILING = 100_000
"""SGD steps of a player's networks from which on compiling one, for half a minute, saves as long on a GPU."""

_PARTS = 16
"""Of a minibatch, where several networks' gradients are found at once (see `StackedAdam`)."""


class Replicates(Iterative):
    """The runs of `models`, which differ in their seeds only, and whose strategies are asked of networks."""

    def __init__(self, models: Sequence[DeepCFR]) -> None:
        first = models[0]
        super().__init__(first.algorithm, first.seed)
        self.game = first.game
        self.models = nn.ModuleList(models)
        self._stacks: dict[tuple[str, int], StackedAdam] = {}

    @property
    def replicates(self) -> list[DeepCFR]:
        return list(self._runs())

    def _runs(self) -> Iterator[DeepCFR]:
        for model in self.models:
            assert isinstance(model, DeepCFR)
            yield model

    def counts(self) -> dict[str, float]:
        """Of all runs together."""
        touched = sum(model.nodes_touched for model in self._runs())
        return {"player_updates": 2.0 * self.iteration * len(self.models), "nodes_touched": float(touched)}

    def charge(self, spent: Spent) -> None:
        super().charge(spent)
        for model in self._runs():
            model.charge(spent.shared(len(self.models)))

    # -- one iteration -------------------------------------------------------------------------------------------

    def advance(self) -> dict[str, float]:
        for model in self._runs():
            model.iteration = self.iteration
        losses = [self._update(player) for player in range(2)]
        for model, its_losses in zip(self._runs(), zip(*losses, strict=True), strict=True):
            model.metrics = model.measurements(its_losses)
        return {}

    def _update(self, player: int) -> list[float]:
        for model in self._runs():
            model.collect(player)
        losses = self._fit("value", player)
        for model in self._runs():
            model.renew_strategy(player)
        return losses

    def prepare_snapshot(self) -> dict[str, float]:
        """Train all S-hats; their losses are metrics of their own runs."""
        if next(self._runs()).average_networks:
            losses = [self._fit("average", player) for player in range(2)]
            for model, its_losses in zip(self._runs(), zip(*losses, strict=True), strict=True):
                model.metrics.update(model.averaged(its_losses))
        return {}

    def _fit(self, which: str, player: int) -> list[float]:
        """Train the `value` or `average` networks of a player in all runs; returns their losses."""
        learners = [model.learner(which, player) for model in self._runs()]
        batches = [model.begin_fit(which, player, merged=False) for model in self._runs()]
        stacked, regression = self._stack(which, player), learners[0].regression
        stacked.load([learner.optimizer.flat.detach() for learner in learners])
        with next(self._runs()).explaining_divergence(which, player):
            steps = regression.steps_at(next(self._runs()).iteration)
            how = steps, regression.learning_rate, regression.schedule
            losses = fit_together(stacked, zip(*batches, strict=True), *how)
        for learner, parameters in zip(learners, stacked.flat, strict=True):
            learner.optimizer.flat.data.copy_(parameters)
        return losses

    def _stack(self, which: str, player: int) -> StackedAdam:
        """What trains these networks: made (and on a CUDA device captured) once."""
        if (which, player) not in self._stacks:
            run, first = next(self._runs()), self.game.player_slice[player].start
            learner, inputs = run.learner(which, player), fixed_inputs(self.game)
            regression, optimizer = learner.regression, learner.optimizer

            def of_player(rows: Tensor) -> tuple[Tensor, Tensor]:
                return inputs(rows + first)

            on_gpu, rows = self.game.device.type == "cuda", regression.batch_size
            self._stacks[which, player] = StackedAdam(
                run.architecture(which).to(self.game.device),
                of_player,
                len(self.models),
                rows,
                regression.clip_norm,
                precision=regression.precision,
                averaging=regression.averaging,
                focus=regression.focus,
                matrices=optimizer.matrices,
                muon_over_adam=optimizer.muon_over_adam,
                compiled=on_gpu and self._steps_in_all(which) >= _WORTH_COMPILING and can_compile(),
                parts=gcd(rows, _PARTS) if on_gpu and len(self.models) > 1 else 1,
            )
        return self._stacks[which, player]

    def _steps_in_all(self, which: str) -> int:
        """SGD steps that a player's `value` or `average` networks take in the whole training."""
        algorithm = next(self._runs()).algorithm
        fits = algorithm.snapshot_iterations() if which == "average" else range(1, algorithm.iterations + 1)
        return sum(algorithm.regressions[which].steps_at(iteration) for iteration in fits)

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        return {"runs": [model.saved() for model in self._runs()]}

    def restore(self, saved: dict[str, Any]) -> None:
        for model, state in zip(self._runs(), saved["runs"], strict=True):
            model.resume(state)
