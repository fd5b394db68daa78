"""DCVN and DEVN [DEVN, Secs. 4 and 5]: networks that predict the values of a subgame from ranges over buckets.

DCVN predicts counterfactual values and ends in a layer that makes them zero-sum. DEVN predicts expected values, which
matchups turn into counterfactual ones; it has no such layer. Its predictions can be made zero-sum in a last step, of
the counterfactual values after inverse bucketing and matchups [DEVN, Supplement], which gives no formula. There are
two here. With `c` the sum over players of `<range, CFV>`, DCVN's own step takes `c / 2` from the value of every hand.
Ours shifts all expected values by the same amount: with `Z = <range, matchup>` the probability that two hands can be
held together, which is the same for both players, `EV <- EV - c / (2 Z)` makes that sum `c - 2 Z c / (2 Z) = 0`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss
from torch.utils.data import DataLoader

from repro.algorithms.base import Epochs, Spent
from repro.common.seeding import initialisation
from repro.config.checks import device_here
from repro.config.fields import above, added, one_of
from repro.config.schema import AlgorithmConfig, Config, NetworkConfig, register_algorithm, register_evaluation
from repro.evaluation.base import Evaluation, Measured, Subject
from repro.games.game import Game
from repro.networks.purposes import purpose_problems
from repro.policies.readout import Readout
from repro.policies.snapshot import Snapshot
from repro.subgames.config import SubgameReadout, folder_of
from repro.subgames.data import SubgameData, SubgameDataConfig, validation_data
from repro.subgames.encoded import Batch, Truth
from repro.subgames.encoding import CFV, EV, counterfactual, error, inverse, pooled, squared_error
from repro.subgames.runs import SolvedSubgamesConfig
from repro.subgames.subgames import Subgames


class ZeroSum(nn.Module):
    """DCVN's last layer: `f - <f, ranges> / 2` [DEVN, Sec. 4], for ranges that sum to 1 each."""

    def forward(self, values: Tensor, ranges: Tensor) -> Tensor:
        """`[n, 2, buckets]` both, or `[n, 2, hands]`."""
        return values - (values * ranges).sum((1, 2), keepdim=True) / 2


def zero_sum(cfv: Tensor, matchup: Tensor, ranges: Tensor) -> Tensor:
    """`[n, 2, hands]` counterfactual values, shifted in expected value so that they sum to zero; see above.

    Where no two hands of the ranges can be held together nothing is won or lost, and nothing is shifted.
    """
    excess = (cfv * ranges).sum((1, 2), keepdim=True)
    together = (matchup * ranges).sum((1, 2), keepdim=True)
    meet = together > 0
    return cfv - torch.where(meet, matchup * excess / torch.where(meet, together, 1.0), 0.0)


class ValueModule(nn.Module):
    """Fully-connected layers with Parametric ReLU, `[n, inputs]` -> `[n, 2, buckets]` values in pots.

    Args:
        inputs: of which the first `2 * buckets` are the players' ranges.
        network: width and hidden layers.
        buckets: how many.
        zero_sum: whether it ends in DCVN's layer.
        normalise: whether each hidden layer ends in batch normalisation.
    """

    def __init__(self, inputs: int, network: NetworkConfig, buckets: int, zero_sum: bool, normalise: bool) -> None:
        super().__init__()
        assert network.layers is not None
        widths = [inputs, *[network.width] * network.layers]
        hidden: list[nn.Module] = []
        for before, after in pairwise(widths):
            hidden += [nn.Linear(before, after), nn.PReLU(), *([nn.BatchNorm1d(after)] if normalise else [])]
        self.body = nn.Sequential(*hidden, nn.Linear(widths[-1], 2 * buckets))
        self.buckets, self.outer = buckets, ZeroSum() if zero_sum else None

    def forward(self, inputs: Tensor) -> Tensor:
        values = self.body(inputs).unflatten(1, (2, self.buckets))
        if self.outer is None:
            return values
        return self.outer(values, inputs[:, : 2 * self.buckets].unflatten(1, (2, self.buckets)))


# -- read-outs -------------------------------------------------------------------------------------------------------


class PredictedValues(SubgameReadout):
    """What a network predicts. Of kind `cfv`, the counterfactual values of DCVN; `ev`, those that matchups make of
    DEVN's expected values."""

    def values(self, snapshot: Snapshot, data: SubgameData) -> Iterator[tuple[Truth, Tensor]]:
        """Of the validation subgames, a batch at a time, the truth and `[n, 2, hands]` predicted CFVs in pots."""
        device = torch.device(device_here(self.config))
        network = self.network(snapshot, data).to(device)
        for inputs, truth in data.validation():
            with torch.no_grad():
                yield truth, self.predicted(network, inputs.to(device), truth.to(device)).cpu()

    def data(self) -> SubgameData:
        """What the network learned from, by which subgames get their inputs and buckets."""
        config = self.config
        return SubgameData(self.game, config.algorithm, config.algorithm.predicts, config.seed, folder_of(config))

    def network(self, snapshot: Snapshot, data: SubgameData) -> ValueModule:
        """The network of a snapshot, on the CPU; of the data, its shape is used."""
        algorithm, architecture = self.config.algorithm, self.config.network
        assert architecture is not None
        network = algorithm.module_of(data, architecture)
        network.load_state_dict(snapshot.state["network"])
        return network.eval()

    def predicted(self, network: ValueModule, inputs: Tensor, truth: Truth) -> Tensor:
        """`[n, 2, hands]` counterfactual values, from `[n, inputs]`; of the truth, ranges and matchups are used."""
        values = inverse(network(inputs), truth.bucket)
        return counterfactual(values, truth.matchup, self.config.algorithm.predicts)


class ZeroSumValues(PredictedValues):
    """DEVN's, made zero-sum by a shift of all expected values."""

    def predicted(self, network: ValueModule, inputs: Tensor, truth: Truth) -> Tensor:
        return zero_sum(super().predicted(network, inputs, truth), truth.matchup, truth.ranges)


class ZeroSumCounterfactualValues(PredictedValues):
    """DEVN's, made zero-sum by a shift of all counterfactual values: by DCVN's own step, on hands."""

    def predicted(self, network: ValueModule, inputs: Tensor, truth: Truth) -> Tensor:
        shifted: Tensor = ZeroSum()(super().predicted(network, inputs, truth), truth.ranges)
        return shifted


@dataclass
class ValueErrors(Evaluation):
    """How far predicted counterfactual values of the validation subgames are from the true ones, in % of the pot.

    `unbucketed`, the root mean square error over the hands of a subgame's player, averaged over subgames and players
    (see `repro.subgames.encoding`); `best`, the lowest of the snapshots so far; `pooled`, the error over all subgames
    at once; `encoding_error`, what `unbucketed` would be if the network's body predicted buckets without error, and
    nothing made its predictions zero-sum; `predicting_zero`, what it would be if it predicted 0 for every hand.
    """

    OF_PLAYERS = False

    def __post_init__(self) -> None:
        self._unbucketed: dict[str, dict[int, float]] = {}
        self._data: dict[str, SubgameData] = {}

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        yield from super().problems(game, algorithm)
        if not isinstance(algorithm, ValueNetworkConfig):
            yield "readouts", self.readouts, f"the algorithm {algorithm.name} predicts no values, leave it out"

    def recall(self, readout: str, rows: Mapping[int, Mapping[str, float]]) -> None:
        self._unbucketed[readout] = {i: m["unbucketed"] for i, m in rows.items() if "unbucketed" in m}

    def headline(self, game: Game, measured: Measured) -> str:
        parts = [f"{name} {m['unbucketed']:.3f}" for name, m in measured.items() if "unbucketed" in m]
        return f"{', '.join(parts)} % of the pot" if parts else ""

    @property
    def charted(self) -> list[str]:
        return ["unbucketed", "best"]

    def measure(self, subject: Subject) -> Measured:
        return {name: self._of_readout(subject, name) for name in self.each(subject)}

    def _of_readout(self, subject: Subject, name: str) -> dict[str, float]:
        readout = subject.readouts[name]
        assert isinstance(readout, PredictedValues)
        if name not in self._data:
            config = readout.config
            target = config.algorithm.predicts
            self._data[name] = validation_data(readout.game, config.algorithm, target, folder_of(config))
        data = self._data[name]
        squares = torch.cat([squared_error(t.cfv, values) for t, values in readout.values(subject.snapshot, data)])
        iteration, so_far = subject.snapshot.iteration, self._unbucketed.setdefault(name, {})
        so_far[iteration] = error(squares)
        return {
            "unbucketed": so_far[iteration], "pooled": pooled(squares),
            "best": min(value for i, value in so_far.items() if i <= iteration),
            "encoding_error": data.encoding_error, "predicting_zero": data.predicting_zero,
        }  # fmt: skip


register_evaluation("value_errors", ValueErrors)

# -- training --------------------------------------------------------------------------------------------------------


@dataclass
class ValueNetworkConfig(SubgameDataConfig):
    """DCVN or DEVN, networks that predict the values of subgames; an iteration is an epoch.

    `seed` names the network's initial weights, the order of the samples, and fresh subgames.
    """

    READOUTS: ClassVar[Mapping[str, type[Readout]]] = {
        "cfv": PredictedValues, "ev": PredictedValues, "ev_zero_sum": ZeroSumValues,
        "ev_zero_sum_cfv": ZeroSumCounterfactualValues,
    }  # fmt: skip

    # cfv: counterfactual values, DCVN; ev: expected values, DEVN.
    predicts: str = one_of(CFV, EV)
    # The optimizer's.
    learning_rate: float = above(0, 3e-4)
    # In the authors' public code [jwolosiuk/dont-predict-cfvs-predict-evs-instead] it is adamw, with torch's weight
    # decay, each hidden layer ends in batch normalisation, and DCVN has no zero-sum layer; in the text it does.
    optimizer: str = added(one_of("adam", "adamw", default="adam"))
    normalise: bool = added(field(default=False))
    zero_sum_layer: bool = added(field(default=True))

    def problems(self, config: Config, game: Subgames) -> Iterator[str]:
        yield from super().problems(config, game)
        yield from purpose_problems(config.network, self.name, subgame_values=True)
        if self.predicts == EV and not self.zero_sum_layer:
            yield "algorithm.zero_sum_layer is False and algorithm.predicts ev; only cfv has that layer, leave it out."
        if self.normalise and self.batch_size < 2:
            yield "algorithm.normalise is True and algorithm.batch_size 1; batches of 2 or more have a spread."
        kinds = [readout.kind for readout in self.readouts.values()]
        if any((kind == CFV) != (self.predicts == CFV) for kind in kinds):
            yield (
                f"algorithm.readouts are of kinds {kinds}, and algorithm.predicts is {self.predicts}; cfv is another "
                "network than the others, take it alone."
            )

    def module_of(self, data: SubgameData, network: NetworkConfig) -> ValueModule:
        """A network of this configuration for some data, with torch's random weights."""
        zero_sum = self.predicts == CFV and self.zero_sum_layer
        return ValueModule(data.inputs, network, data.buckets, zero_sum, self.normalise)

    def waits_for(self, other: AlgorithmConfig) -> bool:
        # Which stores the subgames that networks learn from.
        return isinstance(other, SolvedSubgamesConfig)

    def build(self, game: Subgames, config: Config) -> ValueNetwork:
        assert config.network is not None
        return ValueNetwork(game, self, config)


register_algorithm("value_network", ValueNetworkConfig)


class ValueNetwork(Epochs):
    """A training of DCVN or DEVN; an iteration is an epoch.

    The *bucketed* loss is Huber's with delta 1, over the buckets that have a hand on the board.

    Args:
        subgames: which kind.
        algorithm: hyperparameters.
        config: of the run: the architecture, the seed, and where subgames are stored.
    """

    def __init__(self, subgames: Subgames, algorithm: ValueNetworkConfig, config: Config) -> None:
        super().__init__(algorithm, config.seed)
        target, folder = algorithm.predicts, folder_of(config)
        least = 2 if algorithm.normalise else 1  # One has no spread to normalise by.
        self.data = SubgameData(
            subgames, algorithm, target, config.seed, folder, lambda: self.iteration, least, config.device
        )
        self._algorithm = algorithm
        assert config.network is not None
        with initialisation(config.seed, "initial networks"):
            self.network = algorithm.module_of(self.data, config.network)
        self._sums: dict[str, list[float]] = {}
        self._started = Spent.now()

    # -- epochs --------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Read the subgames, those for validation at the least.

        Raises:
            ReproError: as `SubgameData.setup`.
        """
        self.data.setup("fit")

    def batches(self, which: str) -> DataLoader[Batch]:
        return self.data.train_dataloader() if which == "train" else self.data.val_dataloader()

    def optimizer(self) -> torch.optim.Optimizer:
        kind = torch.optim.AdamW if self._algorithm.optimizer == "adamw" else torch.optim.Adam
        return kind(self.parameters(), self._algorithm.learning_rate)

    def begin_epoch(self) -> None:
        self._started, self._sums = Spent.now(), {"train": [0.0, 0.0], "validation": [0.0, 0.0]}
        self.data.begin_epoch(self.iteration)

    def loss(self, batch: Batch, which: str) -> Tensor:
        wrong = huber_loss(self.network(batch.inputs), batch.target, reduction="none", delta=1.0)
        total, values = (wrong * batch.occupied).sum(), 2 * float(batch.occupied.sum())
        sums = self._sums[which]
        sums[0] += float(total.detach())
        sums[1] += values
        return total / values

    def end_epoch(self) -> None:
        self.iteration += 1
        self.metrics = {f"loss/{which}": total / values for which, (total, values) in self._sums.items()}
        self.charge(Spent.now().since(self._started))

    # -- snapshots and checkpoints -------------------------------------------------------------------------------

    def counts(self) -> dict[str, float]:
        solved = self.data.solved_by(self.iteration - 1)
        return {"epochs": float(self.iteration)} | ({} if solved is None else {"subgames": float(solved)})

    def state(self) -> dict[str, Any]:
        """`network`: the state of `ValueModule`."""
        return {"network": {key: t.to("cpu", copy=True) for key, t in self.network.state_dict().items()}}

    def progress(self) -> dict[str, Any]:
        """What there is of fresh subgames: Lightning keeps the network and its optimizer."""
        return self.data.progress(self.iteration)

    def restore(self, saved: dict[str, Any]) -> None:
        self.data.restore(saved)
