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
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from repro.algorithms.holdem_cfr import HoldemCFR
from repro.algorithms.mccfr import MCCFRConfig
from repro.algorithms.solver import MOST_EXPONENT, Solver, Updates, discount_factor, exponent_problems
from repro.algorithms.tables import READOUTS, TabularCFR, readout_problems, table_leaves
from repro.common.errors import ReproError
from repro.config.checks import check
from repro.config.fields import between, maybe_infinite
from repro.config.schema import AlgorithmConfig, Config, Leaves, register_algorithm
from repro.engine.sequence_form import SequenceForm
from repro.games.game import Game
from repro.policies.base import TabularPolicy


@dataclass
class TabularCFRConfig(AlgorithmConfig):
    """CFR on tables, with exact counterfactual values; the variants are settings of Discounted CFR's exponents."""

    READOUTS = READOUTS
    USES_NETWORK = False

    # After iteration t, positive regrets are multiplied by t^alpha / (t^alpha + 1), negative ones likewise with beta:
    # from -10 to 10, or infinity (inf on the command line, .inf in a file), which leaves them alone.
    alpha: float = maybe_infinite(float("inf"))
    beta: float = maybe_infinite(float("inf"))
    # Iteration t counts t^gamma in the average strategy.
    gamma: float = between(0, MOST_EXPONENT, 0.0)
    # Set negative regrets to zero after every update (CFR+).
    floor: bool = False
    # Player 1 answers player 0's new strategy; otherwise both update against the old ones.
    alternating: bool = True

    def problems(self, config: Config, game: Game) -> Iterator[str]:
        yield from exponent_problems(self, "algorithm.")
        try:
            game.check_listed()
        except ReproError as error:
            yield str(error)
            return
        if game.exact is None:
            yield f"the algorithm {self.name} needs exact values, and the game {game.name} {game.why_not_exact}."
        heaviest, most = float(self.iterations) ** (self.gamma + 1) / (self.gamma + 1), torch.finfo(torch.float32).max
        if game.exact == "boards" and heaviest > most:
            yield (
                f"algorithm.gamma is {self.gamma}; with algorithm.iterations={self.iterations} its sums of strategies "
                "are larger than float32 holds, which they are kept in on Hold'em games."
            )
        yield from readout_problems(self, game)

    def bytes_needed(self, config: Config, game: Game) -> Iterator[tuple[str, float]]:
        # Regrets and sums; single precision where games are large (`HoldemCFR`).
        yield "game.name", 2.0 * (4 if game.exact == "boards" else 8) * game.infosets * game.num_actions

    def leaves(self, config: Config, game: Game) -> Leaves | None:
        return table_leaves(self, game, game.infosets, 4 if game.exact == "boards" else 8)

    def build(self, game: Game, config: Config) -> TabularCFR:
        return TabularCFR(self.solver(game), self, config.seed)

    def solver(self, game: Game, seed: int = 0) -> Solver:
        """What solves a game; nothing is drawn."""
        del seed
        return HoldemCFR(game, self) if game.exact == "boards" else ExactCFR(game, self)


register_algorithm("tabular_cfr", TabularCFRConfig)

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
    settings = {**changes, "name": variant, "iterations": iterations, "snapshot_every": every}
    try:
        merged = OmegaConf.merge(OmegaConf.structured(VARIANTS[variant]), settings)
    except OmegaConfBaseException as error:
        raise ReproError(f"variant {variant}: {error.full_key}: {str(error).splitlines()[0]}.") from error
    config: TabularCFRConfig | MCCFRConfig = OmegaConf.to_object(merged)  # type: ignore[assignment]
    check(config)
    for problem in config.problems(Config(algorithm=config, seed=seed), game):
        raise ReproError(problem)
    return _iterate(solver_of(game, config, seed), config.iterations, every)


def _iterate(solver: Solver, iterations: int, every: int) -> Iterator[tuple[int, TabularPolicy]]:
    for iteration in range(1, iterations + 1):
        solver.step()
        if iteration % every == 0 or iteration == iterations:
            yield iteration, solver.average()


class ExactCFR(Solver):
    """CFR with exact counterfactual values [Zinkevich et al. 2007], and Discounted CFR's generalisation of it
    [Brown and Sandholm 2019]."""

    def __init__(self, game: Game, config: Updates) -> None:
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
        rows, treeplex = self.game.player_slice[player], self._engine.players[player]
        self.sums[rows].add_(treeplex.plan, alpha=self.iteration**self._config.gamma)
        regrets = self.regrets[rows]
        regrets.add_(treeplex.q).addcmul_(treeplex.v[:, None], self._legal[rows], value=-1)
        if self._config.floor:
            regrets.clamp_(min=0)
        positive, negative = (discount_factor(self.iteration, e) for e in (self._config.alpha, self._config.beta))
        if positive != negative:
            regrets.copy_(torch.where(regrets > 0, regrets * positive, regrets * negative))
        elif positive != 1:
            regrets.mul_(positive)
        self.update_strategy(player)


def solver_of(game: Game, config: TabularCFRConfig | MCCFRConfig, seed: int) -> Solver:
    """The solver of a configuration."""
    return config.solver(game, seed)
