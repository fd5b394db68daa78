"""CFR on tables: the exact variants on the vector engine, the Monte Carlo ones on the sampling engine.

    game = load("leduc")
    for iteration, policy in solve(game, "linear_cfr", iterations=1000, every=100):
        print(iteration, nash_conv(game, policy))

Conventions, the same as OpenSpiel's solvers:

- The first iteration, t = 1, plays the uniform strategy. Where no regret is positive the strategy is uniform.
- One iteration updates player 0, then player 1. With alternating updates player 1's regrets are against player 0's new
  strategy; with simultaneous ones against the old.
- A player's update: counterfactual regrets are added; then all the player's regrets are discounted (DCFR) or those
  below zero set to zero (CFR+); then the next strategy follows by regret matching.
- The average strategy counts, in iteration t, the strategy that the player had *before* its update, weighted by its own
  reach and t^gamma. External sampling meets a player's strategy in the opponent's traversals: player 0's after its
  update, player 1's before.
- Monte Carlo variants weigh regrets and strategies of iteration t by t if `linear`, otherwise equally.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor

from repro.abstraction.streets import StreetBuckets
from repro.algorithms.base import TableAlgorithm, largest_divisor
from repro.algorithms.holdem_cfr import HoldemCFR
from repro.algorithms.mccfr import AbstractMCCFR, MonteCarloCFR
from repro.algorithms.solver import Solver, discount_factor
from repro.config import AlgorithmConfig, MCCFRConfig, ReadoutConfig, TabularCFRConfig, check, check_variant
from repro.engine.sequence_form import SequenceForm
from repro.errors import ReproError
from repro.games.game import Game
from repro.games.holdem import HoldemCards
from repro.policies.base import TabularPolicy

_MOST_PER_STEP = 100
"""Iterations in one epoch of Lightning's, which takes milliseconds of its own."""

VARIANTS: dict[str, TabularCFRConfig | MCCFRConfig] = {
    "cfr": TabularCFRConfig(),
    "cfr_plus": TabularCFRConfig(floor=True, gamma=1.0),
    "linear_cfr": TabularCFRConfig(alpha=1.0, beta=1.0, gamma=1.0),
    "dcfr": TabularCFRConfig(alpha=1.5, beta=0.0, gamma=2.0),
    "es_mccfr": MCCFRConfig(sampling="external", traversals=1),
    "os_mccfr": MCCFRConfig(sampling="outcome", traversals=1, exploration=0.6),
}
"""By name, as in `conf/algorithm/`; the Monte Carlo ones with one traversal per player and iteration, as published."""


def solve(
    game: Game, variant: str, iterations: int, *, every: int = 1, seed: int = 0, **changes: Any
) -> Iterator[tuple[int, TabularPolicy]]:
    """Run a variant, yielding (iteration, average policy) every so many iterations and after the last.

    Args:
        variant: a name in `VARIANTS`.
        seed: of the Monte Carlo variants' draws.
        changes: keys of `TabularCFRConfig` or `MCCFRConfig` to set, e.g. `alternating=False` or `traversals=100`.

    Raises:
        ReproError: unknown variant or key, or a value out of range.
    """
    if variant not in VARIANTS:
        raise ReproError(f"variant {variant!r} is unknown; the variants are {', '.join(VARIANTS)}.")
    given = {**changes, "name": variant, "iterations": iterations, "evaluate_every": every}
    try:
        merged = OmegaConf.merge(OmegaConf.structured(VARIANTS[variant]), given)
    except OmegaConfBaseException as error:
        raise ReproError(f"variant {variant}: {error.full_key}: {str(error).splitlines()[0]}.") from error
    config: TabularCFRConfig | MCCFRConfig = OmegaConf.to_object(merged)  # type: ignore[assignment]
    check(config)
    check_variant(config)
    return _iterate(solver_of(game, config, seed), config.iterations, every)


def _iterate(solver: Solver, iterations: int, every: int) -> Iterator[tuple[int, TabularPolicy]]:
    for iteration in range(1, iterations + 1):
        solver.step()
        if iteration % every == 0 or iteration == iterations:
            yield iteration, solver.average()


class ExactCFR(Solver):
    """CFR with exact counterfactual values [Zinkevich et al. 2007], and Discounted CFR's generalisation of it
    [Brown and Sandholm 2019]."""

    def __init__(self, game: Game, config: TabularCFRConfig) -> None:
        super().__init__(game)
        self._config = config
        # Not the shared engine: its buffers carry over from one update to the next.
        self._engine = SequenceForm(game)
        self._legal = game.legal.double()
        self._histories = round(sum(1 / game.one_card.pair_probability[r] for r in game.tree.round.tolist()))
        for player in range(2):
            self.update_strategy(player)

    def update_strategy(self, player: int) -> None:
        treeplex = self._engine.players[player]
        treeplex.strategy.copy_(self._regret_matching(self.game.player_slice[player]))
        treeplex.strategy_to_reach()

    @torch.inference_mode()
    def step(self) -> None:
        self.iteration += 1
        for player in range(2):
            self._engine.evaluate(player)
            if self._config.alternating:
                self._update(player)
        if not self._config.alternating:
            for player in range(2):
                self._update(player)
        # A pass over the whole tree for each player's update.
        self.nodes_touched += 2 * self._histories

    def _update(self, player: int) -> None:
        """From the player's values to regrets, summed strategy and the next strategy."""
        mine, treeplex = self.game.player_slice[player], self._engine.players[player]
        self.sums[mine].add_(treeplex.plan, alpha=self.iteration**self._config.gamma)
        regrets = self.regrets[mine]
        regrets.add_(treeplex.q).addcmul_(treeplex.v[:, None], self._legal[mine], value=-1)
        if self._config.floor:
            regrets.clamp_(min=0)
        positive, negative = (discount_factor(self.iteration, e) for e in (self._config.alpha, self._config.beta))
        if positive != negative:
            regrets.copy_(torch.where(regrets > 0, regrets * positive, regrets * negative))
        elif positive != 1:
            regrets.mul_(positive)
        self.update_strategy(player)


def solver_of(game: Game, config: AlgorithmConfig, seed: int) -> Solver:
    """The solver of a configuration."""
    holdem = isinstance(game.cards, HoldemCards)
    if isinstance(config, MCCFRConfig):
        if config.buckets is not None and not holdem:
            raise ReproError(f"algorithm.buckets is {config.buckets}; the game {game.name} takes null only.")
        return AbstractMCCFR(game, config, seed) if holdem else MonteCarloCFR(game, config, seed)
    assert isinstance(config, TabularCFRConfig)
    return HoldemCFR(game, config) if holdem else ExactCFR(game, config)


class TabularCFR(TableAlgorithm):
    """A tabular solver as a run: `algorithm=linear_cfr` and the like. One epoch is up to a hundred iterations."""

    def __init__(self, game: Game, algorithm: TabularCFRConfig | MCCFRConfig, seed: int) -> None:
        solver = solver_of(game, algorithm, seed)
        # A solver that works on the CPU has its game and its tables there.
        super().__init__(solver.game, algorithm, seed)
        self.iterations_per_step = largest_divisor(algorithm.evaluate_every, _MOST_PER_STEP)
        self.solver = solver

    def advance(self) -> dict[str, float]:
        self.solver.step()
        self.nodes_touched = self.solver.nodes_touched
        return {}

    def read_out(self, readout: ReadoutConfig) -> tuple[TabularPolicy, dict[str, float]]:
        return (self.solver.average() if readout.kind == "average" else self.solver.current()), {}

    def progress(self) -> dict[str, Any]:
        return {"regrets": self.solver.regrets.clone(), "sums": self.solver.sums.clone()}

    def restore(self, saved: dict[str, Any]) -> None:
        self.solver.resume(self.iteration, self.nodes_touched, saved["regrets"], saved["sums"])


class BlueprintCFR(TabularCFR):
    """MCCFR on a card abstraction of a game that is too large to measure.

    It leaves its average strategy as `blueprint.pt`, for others to play against.
    """

    ARTIFACT = "blueprint.pt"

    def __init__(self, game: Game, algorithm: MCCFRConfig, seed: int) -> None:
        for name, readout in algorithm.readouts.items():
            if readout.kind != "average":
                raise ReproError(
                    f"algorithm.readouts.{name}.kind is {readout.kind}; in the game {game.name} it must be average."
                )
        super().__init__(game, algorithm, seed)

    def evaluate(self) -> None:
        # In pieces: the table may be gigabytes.
        seen = sum(int(part.any(1).sum()) for part in self.solver.sums.split(1 << 20))
        for name in self.readouts:
            self.metrics[name] = {"infosets_seen": float(seen)}

    def progress(self) -> dict[str, Any]:
        return {**super().progress(), "centres": self._centres()}

    def restore(self, saved: dict[str, Any]) -> None:
        # Clustered elsewhere, hands might be in other buckets than the tables are of.
        assert isinstance(self.solver, AbstractMCCFR)
        self.solver.use_centres(saved["centres"])
        super().restore(saved)

    def _centres(self) -> list[Tensor] | None:
        assert isinstance(self.solver, AbstractMCCFR)
        buckets = self.solver.abstraction.buckets
        return list(buckets.centres) if isinstance(buckets, StreetBuckets) else None

    def artifact(self) -> dict[str, Any]:
        """`weights` `[infosets of the abstract game, actions]`, the summed strategies; `centres` of buckets, if any."""
        return {"weights": self.solver.sums.float().cpu(), "centres": self._centres()}
