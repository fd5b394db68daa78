"""How the current strategies of Deep CFR are held: listed in a table, or asked of the networks.

What decides is not which game it is but whether all infosets are worth evaluating in every iteration. Where they are,
the value network fills a table after every fit, which traversals read. Where there are too many, traversals ask the
value networks about the infosets that they meet; then the first betting round can be a table of summed regrets and
strategies beside the networks, as in the paper [Deep CFR, Sec. 5.1].

Both train the same networks on the same samples. An algorithm uses one of them and does not ask which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from repro.algorithms.minibatches import Chunked, Minibatch
from repro.algorithms.ranks import ALONE, Ranks
from repro.algorithms.regression import fit
from repro.engine.sampling import InfosetSamples
from repro.games.game import Game
from repro.networks.card_programs import compiled_card_steps
from repro.networks.inputs import network_inputs
from repro.networks.optimizers import FlatAdam
from repro.policies.base import Policy, TabularPolicy
from repro.policies.network import NetworkPolicy, Reading, Seats, Uniform, opening_infosets
from repro.policies.regret_matching import normalised, regret_matching

Rectify = Callable[[Policy, Tensor, Tensor, int], Tensor]
"""Both players' strategies, `[n]` infosets, a value network's output for them `[n, ...]` and the iteration in which it
was fitted -> `[n, actions]` regrets that strategies are matched to (D2CFR)."""

Sums = Literal["regrets", "sums"]
"""The two tensors of an `OpeningTable`."""

MOST_EVALUATED = 1 << 16
"""Infosets of the largest game whose strategies are listed unless the configuration says otherwise."""


def are_listed(strategies: str | None, game: Game) -> bool:
    """Whether strategies are listed in a game: as the key says, or as the game's size suggests where it is null."""
    return game.infosets <= MOST_EVALUATED if strategies is None else strategies == "listed"


def listing_problems(strategies: str | None, game: Game) -> Iterator[str]:
    """What is wrong with listing strategies in a game."""
    if are_listed(strategies, game) and not game.listed:
        yield f"algorithm.strategies is listed; the game {game.name} has {game.infosets:,} infosets, use asked."


class OpeningTable:
    """A player's first betting round: summed regrets, and the summed strategies that Deep CFR's average reads.

    Attributes:
        regrets, sums: `[infosets, actions]` float64, each sample times what it counts, in Linear CFR its iteration.
    """

    def __init__(self, legal: Tensor, when_no_positive: str) -> None:
        self._legal, self._when_no_positive = legal, when_no_positive
        self.regrets = torch.zeros(legal.shape, dtype=torch.float64, device=legal.device)
        self.sums = torch.zeros_like(self.regrets)

    def add(self, into: Sums, rows: Tensor, sampled: Tensor, weight: int, ranks: Ranks) -> None:
        """Add samples of infosets to one of the two tensors: this rank's and, where there are others, theirs.

        Args:
            rows: `[n]` infosets.
            sampled: `[n, actions]` float64.
            weight: what they count.
        """
        table = self.regrets if into == "regrets" else self.sums
        if ranks.count == 1:
            table.index_add_(0, rows, sampled, alpha=weight)
        else:
            table.add_(ranks.sum(torch.zeros_like(table).index_add_(0, rows, sampled, alpha=weight)))

    def strategy(self) -> Tensor:
        """Probabilities by regret matching; uniform where nothing was ever sampled."""
        matched = regret_matching(self.regrets, self._legal, self._when_no_positive)
        seen = (self.regrets != 0).any(1, keepdim=True)
        return torch.where(seen, matched, self._uniform())

    def average(self) -> Tensor:
        """The summed strategies, normalised; uniform where there are none."""
        return normalised(self.sums, self._uniform())

    def _uniform(self) -> Tensor:
        return self._legal / self._legal.sum(1, keepdim=True, dtype=torch.float64)


class Strategies(ABC):
    """The current strategies of both players.

    Args:
        game: the game; its tensors decide the device.
        when_no_positive: as in `regret_matching`.

    Attributes:
        inputs: makes the networks' inputs; `columns` says what they show.
        openings: per player, the table of the first betting round; empty where networks play that round, too.
        opening_strategies: per player, what is played by it now: `[infosets, actions]` float64.
    """

    def __init__(self, game: Game, when_no_positive: str) -> None:
        self.game, self._when_no_positive = game, when_no_positive
        self.inputs, self.columns = network_inputs(game)
        self.openings: list[OpeningTable] = []
        self.opening_strategies: list[Tensor] = []

    def match(self, output: Tensor, legal: Tensor) -> Tensor:
        """`[n, actions]` probabilities of regrets; columns of `output` after the actions' are ignored."""
        return regret_matching(output[:, : legal.shape[1]], legal, self._when_no_positive)

    @abstractmethod
    def policy(self, networks: nn.ModuleList, rectify: Rectify | None = None) -> Policy:
        """The strategies that the next traversal meets; `networks` are the players' value networks."""

    @abstractmethod
    def renew(self, player: int, network: nn.Module, iteration: int, rectify: Rectify | None = None) -> None:
        """Take the player's value network, newly fitted in `iteration`, for her current strategy."""

    def set_apart(
        self, player: int, samples: InfosetSamples, into: Sums, weight: int, ranks: Ranks = ALONE
    ) -> InfosetSamples:
        """Add those samples of a player that have a table to its `regrets` or `sums`; returns those for networks.

        Args:
            weight: what each counts.
        """
        del player, into, weight, ranks
        return samples

    @abstractmethod
    def fit_to(
        self, network: nn.Module, optimizer: FlatAdam, batches: Iterator[Minibatch], player: int, **how: Any
    ) -> float:
        """Take one SGD step per minibatch of the player's infosets; returns the loss. `how` goes to `fit`."""

    @abstractmethod
    def mean_of(self, network: nn.Module, parameters: Sequence[Tensor], player: int) -> Callable[[Minibatch], Tensor]:
        """Maps a minibatch of the player to `[n, actions]`, the mean output at its infosets.

        Args:
            network: the architecture; its own parameters are overwritten.
            parameters: flat, of the networks whose mean it is.
            player: whose infosets.
        """

    @abstractmethod
    def progress(self) -> dict[str, Any]:
        """What a checkpoint must hold."""

    @abstractmethod
    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `progress` gave."""


class Listed(Strategies):
    """A table over all infosets, which the value network fills after every fit.

    Attributes:
        table: `[infosets, actions]` float32, what both players play now.
    """

    def __init__(self, game: Game, when_no_positive: str) -> None:
        super().__init__(game, when_no_positive)
        self.features, _ = self.inputs(torch.arange(game.infosets, device=game.device))
        self.table = game.uniform.float()

    def policy(self, networks: nn.ModuleList, rectify: Rectify | None = None) -> Policy:
        return TabularPolicy(self.table)

    @torch.no_grad()
    def renew(self, player: int, network: nn.Module, iteration: int, rectify: Rectify | None = None) -> None:
        features, legal = self._rows(player)
        output = network(features, legal)
        if rectify is not None:
            part = self.game.player_slice[player]
            infosets = torch.arange(part.start, part.stop, device=self.game.device)
            output = rectify(TabularPolicy(self.table), infosets, output, iteration)
        self.table[self.game.player_slice[player]] = self.match(output, legal)

    def _rows(self, player: int) -> tuple[Tensor, Tensor]:
        """Features and legal mask of all of a player's infosets."""
        part = self.game.player_slice[player]
        return self.features[part], self.game.legal[part]

    def fit_to(
        self, network: nn.Module, optimizer: FlatAdam, batches: Iterator[Minibatch], player: int, **how: Any
    ) -> float:
        features, legal = self._rows(player)
        return fit(network, optimizer, batches, features=features, legal=legal, **how)

    def mean_of(self, network: nn.Module, parameters: Sequence[Tensor], player: int) -> Callable[[Minibatch], Tensor]:
        mean = _mean_output(network, parameters)(*self._rows(player))

        def at(batch: Minibatch) -> Tensor:
            assert batch.infosets is not None
            return mean.index_select(0, batch.infosets)

        return at

    def progress(self) -> dict[str, Any]:
        return {"table": self.table.clone()}

    def restore(self, saved: dict[str, Any]) -> None:
        self.table.copy_(saved["table"])


class Asked(Strategies):
    """Value networks that are asked about the infosets that come up, and perhaps a table for the first betting round.

    Args:
        game, when_no_positive: as for `Strategies`.
        opening: whether the first betting round has a table.

    Attributes:
        fitted: per player, the iteration in which the value network was fitted; 0 before, when she plays uniformly.
    """

    def __init__(self, game: Game, when_no_positive: str, opening: bool) -> None:
        super().__init__(game, when_no_positive)
        self.fitted = [0, 0]
        self._first = [part.start for part in game.player_slice]
        if opening:
            self.openings = [OpeningTable(self._early_legal(p), when_no_positive) for p in range(2)]
            self.opening_strategies = [opening.strategy() for opening in self.openings]
        self._no_opening = torch.zeros(0, game.num_actions, device=game.device)

    def _early_legal(self, player: int) -> Tensor:
        first = self._first[player]
        return self.game.legal_at(
            torch.arange(first, first + opening_infosets(self.game, player), device=self.game.device)
        )

    def policy(self, networks: nn.ModuleList, rectify: Rectify | None = None) -> Policy:
        def match(infosets: Tensor, output: Tensor, legal: Tensor) -> Tensor:
            del infosets
            return self.match(output, legal)

        plain = Seats(self.game, *(self._seat(p, network, match) for p, network in enumerate(networks)))
        if rectify is None:
            return plain
        # What decides about regrets plays out under the strategies without it: with it, each of their decisions would
        # need play-outs of its own.
        readings = [self._rectified(player, plain, rectify) for player in range(2)]
        return Seats(self.game, *(self._seat(p, network, readings[p]) for p, network in enumerate(networks)))

    def _rectified(self, player: int, plain: Policy, rectify: Rectify) -> Reading:
        def read(infosets: Tensor, output: Tensor, legal: Tensor) -> Tensor:
            return self.match(rectify(plain, infosets, output, self.fitted[player]), legal)

        return read

    def _seat(self, player: int, network: nn.Module, read: Reading) -> Policy:
        if not self.fitted[player]:
            return Uniform(self.game)
        opening = self.opening_strategies[player] if self.openings else self._no_opening
        return NetworkPolicy(network, self.inputs, read, opening, self._first[player])

    def renew(self, player: int, network: nn.Module, iteration: int, rectify: Rectify | None = None) -> None:
        self.fitted[player] = iteration
        if self.openings:
            self.opening_strategies[player] = self.openings[player].strategy()

    def set_apart(
        self, player: int, samples: InfosetSamples, into: Sums, weight: int, ranks: Ranks = ALONE
    ) -> InfosetSamples:
        if not self.openings:
            return samples
        table = self.openings[player].regrets
        row = samples.infosets - self._first[player]
        is_early = row < len(table)
        early, late = is_early.nonzero().flatten(), (~is_early).nonzero().flatten()
        # State values, which D2CFR's samples have after the regrets, have no place in it.
        sampled = samples.targets.index_select(0, early)[:, : table.shape[1]].double()
        self.openings[player].add(into, row.index_select(0, early), sampled, weight, ranks)
        return InfosetSamples(samples.infosets.index_select(0, late), samples.targets.index_select(0, late))

    def fit_to(
        self, network: nn.Module, optimizer: FlatAdam, batches: Iterator[Minibatch], player: int, **how: Any
    ) -> float:
        squared_error_alone = how.get("penalty") is None and not how.get("log_loss")
        if isinstance(batches, Chunked) and batches.named and squared_error_alone:
            compiled = compiled_card_steps(network, optimizer, self.game, player, how.get("focus"))
            if compiled is not None:
                return fit(network, optimizer, batches, compiled=compiled, **how)
        return fit(network, optimizer, (self.with_inputs(b, player) for b in batches), **how)

    def with_inputs(self, batch: Minibatch, player: int) -> Minibatch:
        """The minibatch with features and legal mask of its rows."""
        part = self.game.player_slice[player]
        if batch.infosets is None:
            every = torch.arange(part.start, part.stop, device=self.game.device)
            return replace(batch, inputs=self.inputs(every))
        return replace(batch, inputs=self.inputs(batch.infosets + part.start))

    def mean_of(self, network: nn.Module, parameters: Sequence[Tensor], player: int) -> Callable[[Minibatch], Tensor]:
        mean = _mean_output(network, parameters)

        def at(batch: Minibatch) -> Tensor:
            assert batch.inputs is not None
            return mean(*batch.inputs)

        return at

    def progress(self) -> dict[str, Any]:
        openings = [{"regrets": o.regrets.clone(), "sums": o.sums.clone()} for o in self.openings]
        return {"fitted": list(self.fitted), "openings": openings}

    def restore(self, saved: dict[str, Any]) -> None:
        self.fitted = list(saved["fitted"])
        for player, (opening, state) in enumerate(zip(self.openings, saved["openings"], strict=True)):
            opening.regrets.copy_(state["regrets"])
            opening.sums.copy_(state["sums"])
            # Nothing was added to a player's regrets since her strategy was renewed.
            self.opening_strategies[player] = opening.strategy()


def _mean_output(network: nn.Module, parameters: Sequence[Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Maps features and legal mask to the mean output of networks that are given by their flat parameters."""
    # The network's parameters become views of one tensor, so that loading one is one copy.
    flat = parameters_to_vector(network.parameters()).detach()
    vector_to_parameters(flat, network.parameters())

    @torch.no_grad()
    def mean(features: Tensor, legal: Tensor) -> Tensor:
        outputs = []
        for each in parameters:
            flat.copy_(each)
            outputs.append(network(features, legal))
        return torch.stack(outputs).mean(0)

    return mean
