"""B^M: every iteration's strategy, kept, and the two ways to play their average [SD-CFR, Sec. 5]."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from repro.common.errors import ReproError
from repro.networks.features import FeatureColumns
from repro.networks.inputs import Inputs, network_inputs
from repro.networks.modules import parameter_count, value_network
from repro.policies.base import HandStrategies, Mixture
from repro.policies.network import NetworkPolicy
from repro.policies.readout import Readout
from repro.policies.regret_matching import regret_matching
from repro.policies.snapshot import Snapshot


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


def reservoir_members(count: int, capacity: int, seed: int, player: int) -> list[int]:
    """Which of `count` iterations a B^M that holds at most `capacity` networks has kept by reservoir sampling.

    A pure function of its arguments: for a larger `count` the same draws are replayed, so nothing has to be stored
    and a capped read-out can be computed from a full B^M long after training.
    """
    rng = np.random.default_rng((seed, player, capacity))
    draws = rng.random((count, 2))
    reservoir = list(range(min(count, capacity)))
    for i in range(capacity, count):
        if draws[i, 0] < capacity / (i + 1):
            reservoir[int(draws[i, 1] * capacity)] = i
    return sorted(reservoir)


class NetworkSampling(Mixture):
    """Plays the average strategy by drawing one iteration per hand and keeping to it [SD-CFR, Sec. 5.1].

    Only one network exists at a time: the decisions of a level are sorted by the member that takes them, and each
    member in turn is copied into `network`. The network trained in iteration t has weight t [SD-CFR, Sec. 5.1; the
    authors' code agrees], unless all are to count the same. The uniform strategy of the first iteration comes from no
    network and is not part of B^M.

    Args:
        network: maps features and legal mask to advantages; its own parameters are overwritten.
        parameters: of every iteration's network, flat `[parameters]`. May be memory-mapped: a row is read when its
            member has a decision to take.
        inputs: `[n]` infosets of the player -> features `[n, features]` and legal mask `[n, actions]` bool.
        when_no_positive: as in `regret_matching`.
        opening: of every iteration, `[opening infosets, actions]` probabilities in the first betting round, for players
            whose networks are about the others only; `first` is the player's first infoset.
        members: numbers of the iterations, from 0, that may be drawn; default all.
        late: by how many iterations later each counts than it was trained in; before the first there is number -1, the
            uniform strategy.
        linear: whether iteration t has weight t; otherwise all have the same.

    Attributes:
        weight: `[members]` how often each is drawn, relatively.
        members: the number of each.
    """

    def __init__(
        self,
        network: nn.Module,
        parameters: Sequence[Tensor] | Tensor,
        inputs: Inputs,
        when_no_positive: str,
        opening: Sequence[Tensor] | Tensor | None = None,
        first: int = 0,
        members: Sequence[int] | None = None,
        late: int = 0,
        linear: bool = True,
    ) -> None:
        self._network, self._parameters, self._inputs = network, parameters, inputs
        self._opening, self._first = opening, first
        self._when_no_positive = when_no_positive
        # The network's parameters become views of one tensor, so that loading a member is one copy.
        self._flat = parameters_to_vector(network.parameters()).detach()
        vector_to_parameters(self._flat, network.parameters())
        self.members = range(len(parameters)) if members is None else members
        counts = [m + 1.0 + late if linear else 1.0 for m in self.members]
        self.weight = torch.tensor(counts, device=self._flat.device)

    @torch.no_grad()
    def strategy(self, position: int, infosets: Tensor) -> Tensor:
        member = self.members[position]
        if member < 0:
            _, legal = self._inputs(infosets)
            return legal / legal.sum(1, keepdim=True)
        self._flat.copy_(self._parameters[member])
        if self._opening is None:
            features, legal = self._inputs(infosets)
            return self._read(infosets, self._network(features, legal), legal)
        opening = self._opening[member].to(self._flat.device)
        policy = NetworkPolicy(self._network, self._inputs, self._read, opening, self._first)
        return policy.probabilities(infosets)

    def _read(self, infosets: Tensor, advantages: Tensor, legal: Tensor) -> Tensor:
        del infosets
        return regret_matching(advantages, legal, self._when_no_positive)

    def per_hand(self, hands: int, generator: torch.Generator) -> HandStrategies:
        position = torch.multinomial(self.weight, hands, replacement=True, generator=generator)

        def strategies(infosets: Tensor, hand: Tensor) -> Tensor:
            drawn, order = position.index_select(0, hand).sort()
            present, rows = drawn.unique_consecutive(return_counts=True)
            decisions = infosets.index_select(0, order).split(rows.tolist())
            answers = torch.cat([self.strategy(p, i) for p, i in zip(present.tolist(), decisions, strict=True)])
            return torch.empty_like(answers).index_copy_(0, order, answers)

        return strategies


class BM(Readout):
    """SD-CFR's average strategy: B^M, or the part of it that a reservoir of `capacity` networks would hold.

    Of a snapshot's history it needs `value`, per player and iteration a value network's parameters, and `opening`, if
    networks leave the first betting round to tables, the strategy played there.
    """

    ENSEMBLE = True

    @cached_property
    def _inputs(self) -> tuple[Inputs, FeatureColumns]:
        return network_inputs(self.game)

    def seats(self, snapshot: Snapshot) -> list[NetworkSampling]:
        if "value" not in snapshot.history:
            raise ReproError("the training has no B^M, which only Deep CFR leaves.")
        return [self._seat(snapshot, player) for player in range(2)]

    def _seat(self, snapshot: Snapshot, player: int) -> NetworkSampling:
        game, architecture, (inputs, columns) = self.game, self.config.network, self._inputs
        assert architecture is not None
        network = value_network(architecture, columns, game.num_actions).to(game.device)
        parameters = snapshot.history["value"][player]
        if tuple(parameters[0].shape) != (parameter_count(network),):
            # Columns were added to the features since, for example.
            raise ReproError(
                f"the snapshot holds networks of {parameters[0].numel()} parameters; here this architecture has "
                f"{parameter_count(network)}."
            )
        opening = snapshot.history["opening"][player] if "opening" in snapshot.history else None
        first, late = game.player_slice[player].start, self._late(player)
        members = self._members(snapshot.iteration, player)
        algorithm = self.config.algorithm
        how = (algorithm.when_no_positive, opening, first, members, late, algorithm.linear)
        return NetworkSampling(network, parameters, inputs, *how)

    def _late(self, player: int) -> int:
        return 0

    def _members(self, count: int, player: int) -> Sequence[int]:
        capacity = self.readout.capacity
        return range(count) if capacity is None else reservoir_members(count, capacity, self.config.seed, player)


class AsCollected(BM):
    """The average of what B^s, from which S-hat learns, is told: player 1's strategies count an iteration late.

    A player's strategy is collected in the opponent's traversals, and player 1's are traversed against before she has
    learned in an iteration. So the uniform strategy counts as her first, and her last network does not count yet.
    """

    def _late(self, player: int) -> int:
        return player

    def _members(self, count: int, player: int) -> Sequence[int]:
        return range(-self._late(player), count - self._late(player))
