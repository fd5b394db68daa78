"""D2CFR on Leduc, with figure 6's settings: what its play-outs and its network cost beside Deep CFR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from repro.bench.measure import Effort, Row, interleaved, open_spiel, per_second
from repro.common.seeding import generator
from repro.engine.histories import Histories
from repro.games import load
from repro.plans.planning import plan

_SIMULATIONS = 800


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    return [leduc_d2cfr_iteration(effort), leduc_play_outs(effort)]


def leduc_d2cfr_iteration(effort: Effort) -> Row:
    """An iteration of D2CFR with 800 play-outs per infoset beside one of Deep CFR: same traversals, same SGD steps.

    Policy networks, which both train every ten iterations, are not in it.
    """
    d2cfr_rate, deep_cfr_rate = interleaved(
        _iterations("d2cfr_leduc", effort), _iterations("deep_cfr_leduc", effort), effort.repetitions
    )
    note = "peer: our Deep CFR; the ratio, D2CFR over Deep CFR, should be at most 3"
    ratio = deep_cfr_rate / d2cfr_rate
    return Row("leduc_d2cfr_iteration", 1 / d2cfr_rate, 1 / deep_cfr_rate, "s/iteration", ratio, note)


def _iterations(experiment: str, effort: Effort) -> Callable[[], float]:
    """A function that measures iterations per second."""
    config = plan([f"experiment={experiment}", "scale=laptop"], multirun=False).runs[0].config
    config.algorithm.iterations = 10**9
    model = config.algorithm.build(load("leduc"), config)

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
    """Play-outs under the uniform strategy from all 288 infosets, 800 each, beside OpenSpiel's one after the other.

    Ours starts by drawing a history of each infoset for every play-out, which is timed. OpenSpiel's starts from states
    in the middle of hands that were drawn before, by playing hands; copying a state is timed.
    """
    pyspiel, _ = open_spiel()
    game, draw = load("leduc"), generator(0, "bench play-outs")
    histories, every = Histories(game), game.infosets * _SIMULATIONS
    dice = np.random.default_rng(0)
    starts: list[Any] = []

    def go_on(state: Any, states: list[Any]) -> None:
        while not state.is_terminal():
            if states is starts and not state.is_chance_node():
                states.append(state.clone())
            state.apply_action(int(dice.choice(state.legal_actions())))

    for _ in range(1000):
        go_on(pyspiel.load_game("leduc_poker").new_initial_state(), starts)

    def play() -> None:
        state = starts[dice.integers(len(starts))].clone()
        go_on(state, [])
        state.returns()

    def ours() -> float:
        one = per_second(lambda: histories.played_out(game.uniform, _SIMULATIONS, draw), effort.tabular_seconds)
        return every * one

    our_rate, peer_rate = interleaved(ours, lambda: per_second(play, effort.tabular_seconds), effort.repetitions)
    note = "peer: OpenSpiel, from states of its own"
    return Row("leduc_play_outs", our_rate, peer_rate, "play-outs/s", our_rate / peer_rate, note)
