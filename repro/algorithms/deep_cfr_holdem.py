"""Deep CFR and SD-CFR on Hold'em: too many infosets to evaluate all of them in every iteration.

What differs from `repro.algorithms.deep_cfr`: traversals ask the value networks about the infosets that they meet; the
first betting round is a table of summed regrets and strategies, as in the paper (Sec. 5.1); B^M holds networks and
such tables; and read-outs are measured on boards, all or a sample, where a game has one, and against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from repro.algorithms.deep_cfr import DeepCFRFamily
from repro.algorithms.memory import Minibatch
from repro.algorithms.regression import fit
from repro.config import ReadoutConfig
from repro.engine.holdem_form import BoardSample, HoldemForm, all_boards, sample_boards
from repro.engine.sampling import Samples
from repro.evaluation.disagreement import disagreement
from repro.evaluation.head_to_head import Seat, play_match
from repro.evaluation.units import exploitability, milli_units
from repro.games.holdem import HoldemCards
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import value_network
from repro.networks.optimizers import FlatAdam
from repro.policies.base import Policy
from repro.policies.ensemble import Average, NetworkSampling, reservoir_members
from repro.policies.network import NetworkPolicy, Seats, Uniform, as_they_are, opening_infosets
from repro.policies.record import StrategyRecord
from repro.policies.regret_matching import normalised, regret_matching
from repro.seeding import generator

_REPLICATES = 100
"""Bootstrap samples of boards behind a standard error."""


class OpeningTable:
    """A player's first betting round: summed regrets, and the summed strategies that Deep CFR's average reads.

    Attributes:
        regrets, sums: `[infosets, actions]` float64, weighted by iteration (Linear CFR).
    """

    def __init__(self, legal: Tensor, when_no_positive: str) -> None:
        self._legal, self._when_no_positive = legal, when_no_positive
        self.regrets = torch.zeros(legal.shape, dtype=torch.float64, device=legal.device)
        self.sums = torch.zeros_like(self.regrets)

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


class HoldemDeepCFR(DeepCFRFamily):
    """Deep CFR / SD-CFR on a Hold'em game.

    Attributes:
        openings: per player, the first betting round.
        stored: per player, the value networks of all iterations, flat: B^M.
        opening_strategies: per player and iteration, what was played in the first betting round.
    """

    # -- strategies ----------------------------------------------------------------------------------------------

    def prepare_strategies(self) -> None:
        self.features = HoldemFeatures(self.game)
        self.columns = self.features.columns
        self._first = [mine.start for mine in self.game.player_slice]
        counts = [opening_infosets(self.game, p) for p in range(2)]
        legal = [self.game.legal_at(torch.arange(f, f + n, device=self.game.device))
                 for f, n in zip(self._first, counts, strict=True)]  # fmt: skip
        self.openings = [OpeningTable(mine, self.algorithm.when_no_positive) for mine in legal]
        self.stored: list[list[Tensor]] = [[], []]
        self.opening_strategies: list[list[Tensor]] = [[], []]
        self._form: HoldemForm | None = None
        self._averages: list[Average] = []
        self._averaged = 0

    def current_policy(self) -> Policy:
        return Seats(self.game, *(self._strategy_now(p) for p in range(2)))

    def _strategy_now(self, player: int) -> Policy:
        if not self.stored[player]:
            return Uniform(self.game)
        opening = self.opening_strategies[player][-1]
        return self._policy(self.value_networks[player], opening, player)

    def _policy(self, network: nn.Module, opening: Tensor, player: int) -> NetworkPolicy:
        return NetworkPolicy(network, self.features.rows, self._regret_matching, opening, self._first[player])

    def _regret_matching(self, infosets: Tensor, advantages: Tensor, legal: Tensor) -> Tensor:
        del infosets
        return regret_matching(advantages, legal, self.algorithm.when_no_positive)

    def store_strategy(self, player: int) -> None:
        self.stored[player].append(self._value_optimizers[player].flat.detach().cpu().clone())
        self.opening_strategies[player].append(self.openings[player].strategy())

    def remember(self, player: int, regrets: Samples, strategies: Samples) -> None:
        late_regrets = self._to_table(player, regrets, self.openings[player].regrets)
        late_strategies = self._to_table(1 - player, strategies, self.openings[1 - player].sums)
        super().remember(player, late_regrets, late_strategies)

    def _to_table(self, player: int, samples: Samples, table: Tensor) -> Samples:
        """Sum the samples of the first betting round into `table`; returns the others."""
        mine = samples.infosets - self._first[player]
        is_early = mine < len(table)
        early, late = is_early.nonzero().flatten(), (~is_early).nonzero().flatten()
        # State values, which D2CFR's samples have after the regrets, have no place in it.
        sampled = samples.targets.index_select(0, early)[:, : table.shape[1]].double()
        table.index_add_(0, mine.index_select(0, early), sampled, alpha=self.iteration)
        return Samples(samples.infosets.index_select(0, late), samples.targets.index_select(0, late))

    def fit_to(
        self, network: nn.Module, optimizer: FlatAdam, batches: Iterator[Minibatch], player: int, **how: Any
    ) -> float:
        return fit(network, optimizer, (self._with_inputs(b, player) for b in batches), **how)

    def _with_inputs(self, batch: Minibatch, player: int) -> Minibatch:
        mine = self.game.player_slice[player]
        if batch.infosets is None:
            every = torch.arange(mine.start, mine.stop, device=self.game.device)
            return replace(batch, inputs=self.features.rows(every))
        return replace(batch, inputs=self.features.rows(batch.infosets + mine.start))

    # -- read-outs -----------------------------------------------------------------------------------------------

    def evaluate(self) -> None:
        losses = []
        if any(readout.kind == "average_network" for readout in self.readouts.values()):
            losses = [self.train_average_network(player) for player in range(2)]
        self.measure(sum(losses) / 2)

    def measure(self, average_loss: float) -> None:
        """Measure the read-outs; S-hat as it is, after a training that ended with this loss."""
        seats: dict[str, list[Any]] = {}
        for name, readout in self.readouts.items():
            extra: dict[str, float] = {}
            if readout.kind == "average_network":
                seats[name], extra["loss/policy"] = self._average_seats(), average_loss
            else:
                seats[name] = [self.sampling(p, readout.capacity) for p in range(2)]
            self.metrics[name] = {**extra, **self._exploitability(readout, seats[name])}
        if self.algorithm.match_hands:
            self._play_matches(seats)
        if self.algorithm.disagreement_rollouts and self.iteration == self.iterations:
            self._compare(seats)

    def _play_matches(self, seats: dict[str, list[Any]]) -> None:
        """The first read-out against the second, and every one against each opponent, as metrics `match/...`.

        All matches start from the same generator: in their first batch the cards are the same.
        """
        if [readout.kind for readout in self.readouts.values()][:2] == ["ensemble", "average_network"]:
            first, second = list(seats)[:2]
            self._play_match(first, f"match/{second}", seats[first], seats[second])
        for name, readout in seats.items():
            for opponent, policy in self.opponents.items():
                assert not isinstance(policy, StrategyRecord)
                self._play_match(name, f"match/{opponent}", readout, policy)

    def _play_match(self, readout: str, metric: str, a: Seat | Sequence[Seat], b: Seat | Sequence[Seat]) -> None:
        """What `a` wins, in thousandths of the big blind, as metrics of a read-out."""
        match = play_match(self.game, a, b, self.algorithm.match_hands, self.draws("match"))
        self.metrics[readout][f"{metric}/value"] = milli_units(self.game, match.mean)
        self.metrics[readout][f"{metric}/standard_error"] = milli_units(self.game, match.standard_error)

    def _compare(self, seats: dict[str, list[Any]]) -> None:
        """How far the first two read-outs' strategies are apart by depth, both players together, as metrics."""
        (first, ensemble), (_, network) = list(seats.items())[:2]
        by_depth: dict[int, list[Tensor]] = {}
        for player in range(2):
            rollouts, draw = self.algorithm.disagreement_rollouts, self.draws("disagreement", player)
            for depth, apart in disagreement(
                self.game, player, ensemble[player], network[player], rollouts, draw
            ).items():
                by_depth.setdefault(depth, []).append(apart)
        for depth, parts in by_depth.items():
            apart = torch.cat(parts)
            measured = {
                "mean": float(apart.mean()),
                "std": float(apart.std(correction=0)),
                "decisions": float(len(apart)),
            }
            self.metrics[first].update({f"disagreement/{depth}/{k}": v for k, v in measured.items()})

    def _average_seats(self) -> list[NetworkPolicy]:
        policies = []
        for player, network in enumerate(self.average_networks):
            opening = self.openings[player].average()
            policies.append(NetworkPolicy(network, self.features.rows, as_they_are, opening, self._first[player]))
        return policies

    def sampling(self, player: int, capacity: int | None = None) -> NetworkSampling:
        """SD-CFR's player: draws a network of B^M for each hand."""
        members = self._members(player, capacity)
        network = value_network(self.network, self.columns, self.game.num_actions).to(self.game.device)
        parameters = torch.stack([self.stored[player][m] for m in members])
        opening = torch.stack([self.opening_strategies[player][m] for m in members])
        weight = torch.tensor([m + 1.0 for m in members], device=self.game.device)
        return NetworkSampling(
            network,
            parameters,
            self.features.rows,
            self.algorithm.when_no_positive,
            opening,
            self._first[player],
            weight,
        )

    def _members(self, player: int, capacity: int | None) -> list[int]:
        count = len(self.stored[player])
        return list(range(count)) if capacity is None else reservoir_members(count, capacity, self.seed, player)

    # -- exploitability on boards ----------------------------------------------------------------------------------

    @property
    def form(self) -> HoldemForm | None:
        """The exact engine on the boards that read-outs are measured on; None in games with more than one board.

        The boards are drawn once per seed, so that iterations, and runs that differ in a hyperparameter, share them.
        """
        cards = self.game.cards
        if self._form is None and isinstance(cards, HoldemCards) and cards.one_board:
            self._form = HoldemForm(self.game, self._boards())
        return self._form

    def _boards(self) -> BoardSample:
        size = self.algorithm.evaluation_boards
        if size is None:
            return all_boards(self.game)
        return sample_boards(self.game, size, generator(self.seed, "evaluation boards", 0, 0, "cpu"))

    def _exploitability(self, readout: ReadoutConfig, seats: list[Any]) -> dict[str, float]:
        form = self.form
        if form is None:
            return {}
        if readout.kind == "average_network":
            rows = [form.infosets[mine].to(self.game.device) for mine in form.player_slice]
            table = torch.cat([s.probabilities(r).double().cpu() for s, r in zip(seats, rows, strict=True)])
        else:
            table = torch.cat([self._average(p, readout.capacity) for p in range(2)])
        table /= table.sum(1, keepdim=True)
        if form.sample.size is None:
            chips = float(form.best_response_values(table).sum())
            return {"nash_conv": chips, "exploitability": exploitability(self.game, chips)}
        size = form.sample.size
        chips, replicates = form.nash_conv_replicates(table, _REPLICATES, np.random.default_rng(self.seed))
        # A sample's own spread is too small by this factor.
        error = float(replicates.std(ddof=1)) * math.sqrt(size / (size - 1))
        return {
            "nash_conv": chips,
            "nash_conv_standard_error": error,
            "exploitability": exploitability(self.game, chips),
            "exploitability_standard_error": exploitability(self.game, error),
        }

    def _average(self, player: int, capacity: int | None) -> Tensor:
        """SD-CFR's average strategy on the form's rows of a player, eq. 5."""
        if capacity is not None:
            average = Average(self._uniform_rows(player))
            for member in self._members(player, capacity):
                average.add(*self._member_on_rows(player, member))
            return average.strategy()
        if not self._averages:
            self._averages = [Average(self._uniform_rows(p)) for p in range(2)]
        for member in range(self._averaged, len(self.stored[0])):
            for p in range(2):
                self._averages[p].add(*self._member_on_rows(p, member))
        self._averaged = len(self.stored[0])
        return self._averages[player].strategy()

    def _uniform_rows(self, player: int) -> Tensor:
        assert self.form is not None
        infosets = self.form.infosets[self.form.player_slice[player]]
        return Uniform(self.game).probabilities(infosets.to(self.game.device)).double().cpu()

    def _member_on_rows(self, player: int, member: int) -> tuple[float, Tensor, Tensor]:
        """Weight, reach and strategy of one iteration's network on the form's rows of a player."""
        form = self.form
        assert form is not None
        network = value_network(self.network, self.columns, self.game.num_actions).to(self.game.device)
        vector_to_parameters(self.stored[player][member].to(self.game.device), network.parameters())
        policy = self._policy(network, self.opening_strategies[player][member], player)
        mine = form.player_slice[player]
        strategy = policy.probabilities(form.infosets[mine].to(self.game.device)).double().cpu()
        table = torch.zeros(form.rows, self.game.num_actions, dtype=torch.float64)
        table[mine] = strategy
        return member + 1.0, form.own_reach(table)[mine], strategy

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def progress(self) -> dict[str, Any]:
        return {
            "openings": [{"regrets": o.regrets.clone(), "sums": o.sums.clone()} for o in self.openings],
            "parameters": [torch.stack(p) for p in self.stored],
            "opening_strategies": [torch.stack(s) for s in self.opening_strategies],
            "value_memories": [m.state_dict() for m in self.value_memories],
            "strategy_memories": [m.state_dict() for m in self.strategy_memories],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        for opening, state in zip(self.openings, saved["openings"], strict=True):
            opening.regrets.copy_(state["regrets"])
            opening.sums.copy_(state["sums"])
        self.stored = [list(p.cpu().unbind()) for p in saved["parameters"]]
        self.opening_strategies = [list(s.to(self.game.device).unbind()) for s in saved["opening_strategies"]]
        for name in ("value_memories", "strategy_memories"):
            for part, state in zip(getattr(self, name), saved[name], strict=True):
                part.load_state_dict(state)

    def artifact(self) -> dict[str, Any]:
        """As `DeepCFR`'s, and `opening`: per player `[iterations, opening infosets, actions]`; `average_opening`."""
        return {
            "value": [torch.stack(p) for p in self.stored],
            "opening": [torch.stack(s).cpu() for s in self.opening_strategies],
            "average": [{k: v.cpu() for k, v in n.state_dict().items()} for n in self.average_networks],
            "average_opening": [o.average().cpu() for o in self.openings],
        }
