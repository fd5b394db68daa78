"""D2CFR on Leduc, with figure 6's settings: what its play-outs and its network cost beside Deep CFR."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from repro.algorithms.registry import build
from repro.bench.measure import Effort, Row, interleaved, open_spiel, per_second
from repro.config import settings
from repro.engine.histories import Histories
from repro.games import load
from repro.run import plan, without_hydra
from repro.seeding import generator

_SIMULATIONS = 800


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    return [leduc_d2cfr_iteration(effort), leduc_play_outs(effort)]


def leduc_d2cfr_iteration(effort: Effort) -> Row:
    """An iteration of D2CFR with 800 play-outs per infoset beside one of Deep CFR: same traversals, same SGD steps.

    Policy networks, which both train every ten iterations, are not in it.
    """
    mine, other = interleaved(
        _iterations("figure6/d2cfr/laptop", effort), _iterations("figure6/deep_cfr/laptop", effort), effort.repetitions
    )
    note = "peer: our Deep CFR; the ratio, D2CFR over Deep CFR, should be at most 3"
    return Row("leduc_d2cfr_iteration", 1 / mine, 1 / other, "s/iteration", other / mine, note)


def _iterations(experiment: str, effort: Effort) -> Callable[[], float]:
    """A function that measures iterations per second."""
    config = settings(without_hydra(plan([f"+experiment={experiment}", "seed=0"], multirun=False)[0]))
    config.algorithm.iterations = 10**9
    model = build(load("leduc"), config)

    def iterate() -> None:
        model.iteration += 1
        if model.iteration % 10 == 0:
            # Policy networks are trained then.
            model.iteration += 1
        model.advance()

    for _ in range(3):
        iterate()
    return lambda: per_second(iterate, effort.tabular_seconds)


def leduc_play_outs(effort: Effort) -> Row:
    """State values of all 288 infosets, 800 play-outs each under the uniform strategy, beside OpenSpiel's states.

    OpenSpiel plays hands one after the other from random states of the game, which is less than what ours does: finding
    states in proportion to how likely they are is not timed there.
    """
    pyspiel, _ = open_spiel()
    game, draw = load("leduc"), generator(0, "bench play-outs")
    histories = Histories(game)

    def ours() -> float:
        every = game.infosets * _SIMULATIONS
        return every * per_second(
            lambda: histories.played_out(game.uniform, _SIMULATIONS, draw), effort.tabular_seconds
        )

    peer_game, dice = pyspiel.load_game("leduc_poker"), np.random.default_rng(0)

    def play() -> None:
        state = peer_game.new_initial_state()
        while not state.is_terminal():
            state.apply_action(int(dice.choice(state.legal_actions())))
        state.returns()

    mine, other = interleaved(ours, lambda: per_second(play, effort.tabular_seconds), effort.repetitions)
    return Row("leduc_play_outs", mine, other, "play-outs/s", mine / other, "peer: OpenSpiel, hands from the deal on")
