"""B^M: every iteration's strategy, kept, and the two ways to play their average [SD-CFR, Sec. 5]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from repro.config import NetworkConfig
from repro.errors import ReproError
from repro.games import Game, load_game
from repro.networks.inputs import Inputs, network_inputs
from repro.networks.modules import average_network, parameter_count, value_network
from repro.policies.base import Ensemble, HandStrategies
from repro.policies.files import NOT_SUCH_A_FILE, check_same_game
from repro.policies.network import NetworkPolicy, as_they_are
from repro.policies.regret_matching import regret_matching


class Average:
    """The average strategy of one player, SD-CFR eq. 5: each strategy counts with its weight and its own reach.

    Args:
        uniform: `[infosets, actions]` float64, for infosets that no strategy reaches.
    """

    def __init__(self, uniform: Tensor) -> None:
        self._uniform = uniform
        self._weighted, self._total = torch.zeros_like(uniform), torch.zeros_like(uniform[:, :1])

    def add(self, weight: float, reach: Tensor, strategy: Tensor) -> None:
        """Count a strategy `[infosets, actions]` with a reach `[infosets]`."""
        share = weight * reach[:, None]
        self._weighted += share * strategy
        self._total += share

    def strategy(self) -> Tensor:
        """`[infosets, actions]` float64."""
        return torch.where(self._total > 0, self._weighted / self._total, self._uniform)


def average_strategy(uniform: Tensor, members: Iterable[tuple[float, Tensor, Tensor]]) -> Tensor:
    """The `Average` of strategies given by weight, reach and probabilities; one of them is held at a time."""
    average = Average(uniform)
    for weight, reach, strategy in members:
        average.add(weight, reach, strategy)
    return average.strategy()


class StrategyBuffer:
    """B^M of one player: the value network of every iteration, with the strategy that it plays.

    The network trained in iteration t has weight t [SD-CFR, Sec. 5.1; the authors' code agrees]. The uniform strategy
    of the first iteration comes from no network and is not part of B^M.

    Attributes:
        parameters: per iteration, the network's flat parameters (float32).
    """

    def __init__(self, game: Game, player: int) -> None:
        self.game, self.player = game, player
        self.parameters: list[Tensor] = []
        self._strategies: list[Tensor] = []
        self._reach: list[Tensor] = []

    def __len__(self) -> int:
        return len(self.parameters)

    def add(self, parameters: Tensor, strategy: Tensor, reach: Tensor) -> None:
        """Append an iteration.

        Args:
            parameters: `[parameters]` of the value network.
            strategy: `[the player's infosets, actions]` what it plays.
            reach: `[the player's infosets]` probability that this strategy's own actions lead there.
        """
        self.parameters.append(parameters.cpu().clone())
        self._strategies.append(strategy.float().clone())
        self._reach.append(reach)

    def average(self, members: Sequence[int] | None = None) -> Tensor:
        """`[the player's infosets, actions]` float64: the average strategy; iteration t counts t.

        Args:
            members: positions of the strategies to average, default all.
        """
        chosen = list(range(len(self))) if members is None else list(members)
        uniform = self.game.uniform[self.game.player_slice[self.player]]
        return average_strategy(uniform, ((i + 1.0, self._reach[i], self._strategies[i]) for i in chosen))

    def strategies(self, members: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """Strategies `[members, infosets, actions]` and their sampling weights `[members]` (the iterations)."""
        chosen = list(range(len(self))) if members is None else list(members)
        weight = torch.tensor([i + 1.0 for i in chosen], device=self._strategies[0].device)
        return torch.stack([self._strategies[i] for i in chosen]), weight

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors to checkpoint: everything, stacked over iterations."""
        if not self.parameters:
            return {}
        return {
            "parameters": torch.stack(self.parameters),
            "strategies": torch.stack(self._strategies),
            "reach": torch.stack(self._reach),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` gave."""
        self.parameters = list(state["parameters"].unbind()) if state else []
        self._strategies = [s.to(self.game.device) for s in state["strategies"].unbind()] if state else []
        self._reach = [r.to(self.game.device) for r in state["reach"].unbind()] if state else []


def reservoir_members(count: int, capacity: int, seed: int, player: int) -> list[int]:
    """Which of `count` iterations a B^M that holds at most `capacity` networks has kept by reservoir sampling.

    A pure function of its arguments: for a larger `count` the same draws are replayed, so nothing has to be stored
    and a capped read-out can be computed from a full B^M long after training.
    """
    rng = np.random.default_rng((seed, player, capacity))
    draws = rng.random((count, 2))
    kept = list(range(min(count, capacity)))
    for i in range(capacity, count):
        if draws[i, 0] < capacity / (i + 1):
            kept[int(draws[i, 1] * capacity)] = i
    return sorted(kept)


class TrajectorySampling(Ensemble):
    """Plays the average strategy by drawing one iteration per hand and keeping to it [SD-CFR, Sec. 5.1].

    Args:
        buffer: B^M of the player in whose seat this policy sits.
        members: positions of the strategies that may be drawn, default all.
    """

    def __init__(self, buffer: StrategyBuffer, members: Sequence[int] | None = None) -> None:
        self._strategies, self._weight = buffer.strategies(members)
        self._first = buffer.game.player_slice[buffer.player].start

    def per_hand(self, hands: int, generator: torch.Generator) -> HandStrategies:
        member = torch.multinomial(self._weight, hands, replacement=True, generator=generator)
        return lambda infosets, hand: self._strategies[member[hand], infosets - self._first]


class NetworkSampling(Ensemble):
    """`TrajectorySampling` for networks that are too many or too large to tabulate: only one exists at a time.

    The decisions of a level are sorted by the member that takes them; each member in turn is copied into `network`.

    Args:
        network: maps features and legal mask to advantages; its own parameters are overwritten.
        parameters: `[members, parameters]` flat parameters in the order of the iterations. May be memory-mapped: a row
            is read when its member has a decision to take.
        inputs: `[n]` infosets of the player -> features `[n, features]` and legal mask `[n, actions]` bool.
        when_no_positive: as in `regret_matching`.
        opening: `[members, opening infosets, actions]` probabilities in the first betting round, for players whose
            networks are about the others only; `first` is the player's first infoset.
        weight: `[members]`, default 1, 2, ...

    Attributes:
        weight: `[members]` how often each is drawn, relatively.
    """

    def __init__(
        self,
        network: nn.Module,
        parameters: Tensor,
        inputs: Inputs,
        when_no_positive: str,
        opening: Tensor | None = None,
        first: int = 0,
        weight: Tensor | None = None,
    ) -> None:
        self._network, self._parameters, self._inputs = network, parameters, inputs
        self._opening, self._first = opening, first
        self._when_no_positive = when_no_positive
        # The network's parameters become views of one tensor, so that loading a member is one copy.
        self._flat = parameters_to_vector(network.parameters()).detach()
        vector_to_parameters(self._flat, network.parameters())
        iterations = torch.arange(1.0, len(parameters) + 1, device=self._flat.device)
        self.weight = iterations if weight is None else weight

    @torch.no_grad()
    def strategy(self, member: int, infosets: Tensor) -> Tensor:
        """`[n]` infosets -> `[n, actions]` probabilities of one member."""
        self._flat.copy_(self._parameters[member])
        if self._opening is None:
            features, legal = self._inputs(infosets)
            return self._read(infosets, self._network(features, legal), legal)
        policy = NetworkPolicy(self._network, self._inputs, self._read, self._opening[member], self._first)
        return policy.probabilities(infosets)

    def _read(self, infosets: Tensor, advantages: Tensor, legal: Tensor) -> Tensor:
        del infosets
        return regret_matching(advantages, legal, self._when_no_positive)

    def per_hand(self, hands: int, generator: torch.Generator) -> HandStrategies:
        member = torch.multinomial(self.weight, hands, replacement=True, generator=generator)

        def strategies(infosets: Tensor, hand: Tensor) -> Tensor:
            whose, order = member.index_select(0, hand).sort()
            present, rows = whose.unique_consecutive(return_counts=True)
            decisions = infosets.index_select(0, order).split(rows.tolist())
            found = torch.cat([self.strategy(m, i) for m, i in zip(present.tolist(), decisions, strict=True)])
            return torch.empty_like(found).index_copy_(0, order, found)

        return strategies


@dataclass(frozen=True)
class _Stored:
    """What `networks.pt` holds, checked against a game: `value` of Deep CFR only, openings of Hold'em games only."""

    architecture: NetworkConfig
    when_no_positive: str
    readout_kinds: set[str]
    value: list[Tensor]
    average: list[dict[str, Tensor]]
    opening: list[Tensor] | None
    average_opening: list[Tensor] | None


def _read(game: Game, path: Path | str) -> _Stored:
    try:
        stored = dict(torch.load(path, map_location="cpu", mmap=True, weights_only=True))
        config = stored["config"]
        algorithm, architecture = config["algorithm"], NetworkConfig(**config["network"])
        trained_on = load_game(config["game"])
        kinds = {readout["kind"] for readout in algorithm.get("readouts", {}).values()}
        # Other algorithms leave the last value networks, which nobody plays by, or none.
        value = [p for p in stored.get("value", []) if isinstance(p, Tensor) and p.dim() == 2]
        average = [dict(state) for state in stored.get("average", [])]
        when_no_positive = algorithm.get("when_no_positive", "")
        if (not value and not average) or (value and when_no_positive not in ("argmax", "uniform")):
            raise ValueError("no networks")
    except NOT_SUCH_A_FILE as error:
        raise ReproError(f"{path} is not the networks.pt of a finished run.") from error
    check_same_game(path, "networks", trained_on, game)
    if not all(bool(parameters.isfinite().all()) for parameters in value):
        raise ReproError(f"{path} holds parameters that are not finite.")
    return _Stored(
        architecture, when_no_positive, kinds, value, average, stored.get("opening"), stored.get("average_opening")
    )


def load_networks(game: Game, path: Path | str) -> tuple[NetworkSampling, NetworkSampling]:
    """Per seat, the B^M that a finished run left as `networks.pt`. The file is mapped into memory, not read.

    Raises:
        ReproError: the file is not of that kind, or is for another game.
    """
    stored = _read(game, path)
    if len(stored.value) != 2:
        raise ReproError(f"{path} holds no B^M, which only Deep CFR leaves; its average networks can be played.")
    inputs, columns = network_inputs(game)

    def seat(player: int) -> NetworkSampling:
        parameters = stored.value[player]
        network = value_network(stored.architecture, columns, game.num_actions).to(game.device)
        if parameters.shape[1] != parameter_count(network):
            # Columns were added to the features since, for example.
            raise ReproError(
                f"{path} holds networks of {parameters.shape[1]} parameters; here this architecture has "
                f"{parameter_count(network)}."
            )
        opening = None if stored.opening is None else stored.opening[player].to(game.device)
        first = game.player_slice[player].start
        return NetworkSampling(network, parameters, inputs, stored.when_no_positive, opening, first)

    return seat(0), seat(1)


def load_average_networks(game: Game, path: Path | str) -> tuple[NetworkPolicy, NetworkPolicy]:
    """Per seat, the average network that a finished run left in `networks.pt`: Deep CFR's S-hat, D2CFR's, NFSP's.

    Raises:
        ReproError: as for `load_networks`.
    """
    stored = _read(game, path)
    if "average_network" not in stored.readout_kinds:
        raise ReproError(f"{path} is of a run without a read-out of kind average_network: its S-hat was never trained.")
    inputs, columns = network_inputs(game)

    def seat(player: int) -> NetworkPolicy:
        network = average_network(stored.architecture, columns, game.num_actions).to(game.device)
        try:
            network.load_state_dict(stored.average[player])
        except RuntimeError as error:
            raise ReproError(f"{path} holds average networks of another shape than here.") from error
        none = torch.zeros(0, game.num_actions)
        opening = none if stored.average_opening is None else stored.average_opening[player]
        return NetworkPolicy(network, inputs, as_they_are, opening.to(game.device), game.player_slice[player].start)

    return seat(0), seat(1)
