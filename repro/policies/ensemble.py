"""B^M: every iteration's strategy, kept, and the two ways to play their average [SD-CFR, Sec. 5]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from repro.games.game import Game


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
        """`[the player's infosets, actions]` float64: the average strategy, SD-CFR eq. 5.

        Each strategy counts with its iteration and its own reach. Infosets that no member reaches are uniform.

        Args:
            members: positions of the strategies to average, default all.
        """
        chosen = list(range(len(self))) if members is None else list(members)
        strategies = torch.stack([self._strategies[i] for i in chosen]).double()
        weight = torch.tensor([i + 1.0 for i in chosen], dtype=torch.float64, device=strategies.device)
        reach = torch.stack([self._reach[i] for i in chosen]) * weight[:, None]
        total = reach.sum(0)
        average = torch.einsum("mi,mia->ia", reach, strategies) / total[:, None].clamp(min=1e-300)
        return torch.where(total[:, None] > 0, average, self.game.uniform[self.game.player_slice[self.player]])

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


class TrajectorySampling:
    """Plays the average strategy by drawing one iteration per hand and keeping to it [SD-CFR, Sec. 5.1].

    Args:
        buffer: B^M of the player in whose seat this policy sits.
        members: positions of the strategies that may be drawn, default all.
    """

    def __init__(self, buffer: StrategyBuffer, members: Sequence[int] | None = None) -> None:
        self._strategies, self._weight = buffer.strategies(members)
        self._first = buffer.game.player_slice[buffer.player].start

    def per_trajectory(self, hands: int, generator: torch.Generator) -> _SampledStrategies:
        """Draw an iteration for each of `hands` hands."""
        member = torch.multinomial(self._weight, hands, replacement=True, generator=generator)
        return _SampledStrategies(self._strategies, self._first, member)


class _SampledStrategies:
    def __init__(self, strategies: Tensor, first: int, member: Tensor) -> None:
        self._strategies, self._first, self._member = strategies, first, member

    def trajectory_probabilities(self, infosets: Tensor, hand: Tensor) -> Tensor:
        """`[n]` infosets met in hands `hand` -> `[n, actions]` probabilities of those hands' strategies."""
        return self._strategies[self._member[hand], infosets - self._first]
