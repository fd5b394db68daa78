"""DCVN and DEVN [DEVN, Secs. 4 and 5]: networks that predict the values of a subgame from ranges over buckets.

DCVN predicts counterfactual values and ends in a layer that makes them zero-sum. DEVN predicts expected values, which
matchups turn into counterfactual ones; it has no such layer. Its predictions can be made zero-sum afterwards, for
which the paper gives no formula. Ours shifts all expected values by the same amount: with `c` the sum over players of
`<range, CFV>` and `Z = <range, matchup>` the probability that two hands can be held together, which is the same for
both players, `EV <- EV - c / (2 Z)` makes that sum `c - 2 Z c / (2 Z) = 0`.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from repro.algorithms.base import Tracked
from repro.config import NetworkConfig, ValueNetworkConfig
from repro.seeding import initialisation
from repro.subgames.data import Batch, SubgameData, Truth, rows_of
from repro.subgames.encoding import CFV, EV, counterfactual, error, inverse, pooled, squared_error
from repro.subgames.subgames import Subgames


class ZeroSum(nn.Module):
    """DCVN's last layer: `f - <f, ranges> / 2` [DEVN, Sec. 4], for ranges that sum to 1 each."""

    def forward(self, values: Tensor, ranges: Tensor) -> Tensor:
        """`[n, 2, buckets]` both."""
        return values - (values * ranges).sum((1, 2), keepdim=True) / 2


def zero_sum(cfv: Tensor, matchup: Tensor, ranges: Tensor) -> Tensor:
    """`[n, 2, hands]` counterfactual values, shifted in expected value so that they sum to zero; see above."""
    excess = (cfv * ranges).sum((1, 2), keepdim=True)
    together = (matchup * ranges).sum((1, 2), keepdim=True)
    return cfv - matchup * excess / together


class ValueModule(nn.Module):
    """Fully-connected layers with Parametric ReLU, `[n, inputs]` -> `[n, 2, buckets]` values in pots.

    Args:
        inputs: of which the first `2 * buckets` are the players' ranges.
        network: width and hidden layers.
        buckets: how many.
        target: `CFV` for DCVN, `EV` for DEVN.
    """

    def __init__(self, inputs: int, network: NetworkConfig, buckets: int, target: str) -> None:
        super().__init__()
        assert network.layers is not None
        widths = [inputs, *[network.width] * network.layers]
        hidden = [m for i, o in pairwise(widths) for m in (nn.Linear(i, o), nn.PReLU())]
        self.body = nn.Sequential(*hidden, nn.Linear(widths[-1], 2 * buckets))
        self.buckets, self.outer = buckets, ZeroSum() if target == CFV else None

    def forward(self, inputs: Tensor) -> Tensor:
        values = self.body(inputs).unflatten(1, (2, self.buckets))
        if self.outer is None:
            return values
        return self.outer(values, inputs[:, : 2 * self.buckets].unflatten(1, (2, self.buckets)))


class ValueNetwork(Tracked):
    """A training run of DCVN or DEVN; an iteration is an epoch.

    The *bucketed* loss is Huber's with delta 1, over the buckets that have a hand on the board. Metrics of a read-out,
    in % of the pot: `unbucketed`, the root mean square error of the counterfactual values of a subgame's and player's
    hands, averaged over both (see `repro.subgames.encoding`); `best`, the lowest so far, at whose epoch the network is
    kept that is left behind; `pooled`, the error over all subgames at once; `encoding_error`, what `unbucketed` would
    be if the network's body predicted buckets without error, and nothing made its predictions zero-sum;
    `predicting_zero`, what it would be if the network predicted 0 for every hand.

    Args:
        subgames: which kind.
        algorithm: hyperparameters; the first read-out says what is predicted.
        network: architecture.
        seed: names the initial weights and the order of the samples.
        folder: of the stored subgames.
    """

    def __init__(
        self, subgames: Subgames, algorithm: ValueNetworkConfig, network: NetworkConfig, seed: int, folder: Path
    ) -> None:
        super().__init__(algorithm, seed)
        first = next(iter(self.readouts.values()))
        self.target = CFV if first.kind == CFV else EV
        self.data = self.datamodule = SubgameData(
            subgames, algorithm, self.target, seed, folder, lambda: self.iteration
        )
        self._learning_rate = algorithm.learning_rate
        with initialisation(seed, "initial networks"):
            self.network = ValueModule(self.data.inputs, network, self.data.buckets, self.target)
        self.best = {name: float("inf") for name in self.readouts}
        self.best_weights: dict[str, Tensor] = {}
        self._sums: dict[str, list[float]] = {}
        self._started = 0.0

    # -- Lightning's loop ----------------------------------------------------------------------------------------

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), self._learning_rate)

    def on_train_epoch_start(self) -> None:
        self._started, self._sums = time.perf_counter(), {"train": [0.0, 0.0], "validation": [0.0, 0.0]}

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:  # type: ignore[override]
        return self._loss(batch, "train")

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._loss(batch, "validation")

    def on_validation_epoch_end(self) -> None:
        self.iteration += 1
        self.metrics = {"": {f"loss/{which}": total / values for which, (total, values) in self._sums.items()}}
        if self.is_due:
            self.evaluate()
        self.charge(time.perf_counter() - self._started)

    def _loss(self, batch: Batch, which: str) -> Tensor:
        wrong = huber_loss(self.network(batch.inputs), batch.target, reduction="none", delta=1.0)
        total, values = (wrong * batch.there).sum(), 2 * float(batch.there.sum())
        sums = self._sums[which]
        sums[0] += float(total.detach())
        sums[1] += values
        return total / values

    # -- measuring -----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def predicted(self, inputs: Tensor, truth: Truth, kind: str) -> Tensor:
        """`[n, 2, hands]` counterfactual values that a read-out of a kind predicts."""
        values = inverse(self.network(inputs), truth.bucket)
        cfv = counterfactual(values, truth.matchup, self.target)
        return zero_sum(cfv, truth.matchup, truth.ranges) if kind == "ev_zero_sum" else cfv

    def evaluate(self) -> None:
        truth, errors = self.data.truth, {name: list[Tensor]() for name in self.readouts}
        start = 0
        for batch in self.data.val_dataloader():
            part = rows_of(truth, slice(start, start + len(batch.inputs)))
            start += len(batch.inputs)
            for name, readout in self.readouts.items():
                found = self.predicted(batch.inputs.to(self.device), part.to(self.device), readout.kind)
                errors[name].append(squared_error(part.cfv, found.cpu()))
        for name, squares in errors.items():
            self._note(name, torch.cat(squares))

    def _note(self, name: str, squares: Tensor) -> None:
        unbucketed = error(squares)
        if unbucketed < self.best[name]:
            self.best[name] = unbucketed
            if name == next(iter(self.readouts)):
                self.best_weights = {k: v.detach().cpu().clone() for k, v in self.network.state_dict().items()}
        self.metrics[name] = {
            "unbucketed": unbucketed, "best": self.best[name], "pooled": pooled(squares),
            "encoding_error": self.data.encoding_error, "predicting_zero": self.data.predicting_zero,
        }  # fmt: skip

    def counts(self) -> dict[str, float]:
        return {"epochs": float(self.iteration)}

    def headline(self) -> str:
        parts = [f"{name} {m['unbucketed']:.3f}" for name, m in self.metrics.items() if "unbucketed" in m]
        return f"{', '.join(parts)} % of the pot" if parts else ""

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        return {"best": dict(self.best), "best_weights": self.best_weights}

    def restore(self, saved: dict[str, Any]) -> None:
        self.best, self.best_weights = dict(saved["best"]), saved["best_weights"]

    def artifact(self) -> dict[str, Any]:
        """`network`: the state at the epoch with the lowest unbucketed loss of the first read-out."""
        return {"network": self.best_weights}
