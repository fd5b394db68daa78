"""Tables on Leduc: NashConv, CFR and external-sampling MCCFR, beside OpenSpiel's C++."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from repro.algorithms.mccfr import MCCFRConfig
from repro.algorithms.tabular import VARIANTS, solver_of
from repro.bench.measure import Effort, Row, interleaved, open_spiel, per_second, seconds
from repro.evaluation import nash_conv
from repro.games import load
from repro.interop.openspiel import to_openspiel
from repro.policies import uniform

BATCHES = (1_000, 10_000)
"""Traversals per player and iteration of `leduc_es_mccfr`."""


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    results = [leduc_nash_conv(effort), leduc_cfr(effort)]
    if find_spec("LiteEFG") is None:
        print("LiteEFG is not installed: no row leduc_cfr_lite_efg. `pip install LiteEFG` needs a C++ compiler.")
    else:
        results.append(leduc_cfr_lite_efg(effort))
    return results + [leduc_es_mccfr(effort, batch) for batch in BATCHES]


def leduc_nash_conv(effort: Effort) -> Row:
    """NashConv of the uniform strategy given as a table, beside OpenSpiel's C++."""
    pyspiel, _ = open_spiel()
    game, peer_game = load("leduc"), pyspiel.load_game("leduc_poker")
    policy = uniform(game)
    peer_policy = to_openspiel(game, policy)
    agree = abs(nash_conv(game, policy) - pyspiel.nash_conv(peer_game, peer_policy)) < 1e-9
    assert agree, "the two sides do not compute the same number"
    calls, peer_calls = effort.small, max(1, effort.small // 10)
    ours, peer = interleaved(
        lambda: seconds(lambda: [nash_conv(game, policy) for _ in range(calls)]) / calls,
        lambda: seconds(lambda: [pyspiel.nash_conv(peer_game, peer_policy) for _ in range(peer_calls)]) / peer_calls,
        effort.repetitions,
    )
    return Row("leduc_nash_conv", 1e3 * ours, 1e3 * peer, "ms", peer / ours, "peer: OpenSpiel's C++")


def leduc_cfr(effort: Effort) -> Row:
    """Iterations of vanilla CFR with alternating updates, both sides with the same conventions and results."""
    pyspiel, _ = open_spiel()
    ours = solver_of(load("leduc"), VARIANTS["cfr"], seed=0)
    peer = pyspiel.CFRSolver(pyspiel.load_game("leduc_poker"))
    our_rate, peer_rate = interleaved(
        lambda: per_second(ours.step, effort.tabular_seconds),
        lambda: per_second(peer.evaluate_and_update_policy, effort.tabular_seconds),
        effort.repetitions,
    )
    note = "peer: OpenSpiel's C++ CFRSolver"
    return Row("leduc_cfr", our_rate, peer_rate, "iterations/s", our_rate / peer_rate, note)


def leduc_cfr_lite_efg(effort: Effort) -> Row:
    """Iterations of CFR beside LiteEFG's C++, if it is installed: building it needs a compiler."""
    lite_efg, baseline = import_module("LiteEFG"), import_module("LiteEFG.baselines.CFR")
    ours = solver_of(load("leduc"), VARIANTS["cfr"], seed=0)
    pyspiel, _ = open_spiel()
    environment = lite_efg.OpenSpielEnv(pyspiel.load_game("leduc_poker"), traverse_type="Enumerate", regenerate=False)
    algorithm = baseline.graph()
    environment.set_graph(algorithm)

    def iterate() -> None:
        algorithm.update_graph(environment)
        environment.update_strategy(algorithm.current_strategy())

    our_rate, peer_rate = interleaved(
        lambda: per_second(ours.step, effort.tabular_seconds),
        lambda: per_second(iterate, effort.tabular_seconds),
        effort.repetitions,
    )
    note = "peer: LiteEFG's C++ baselines.CFR"
    return Row("leduc_cfr_lite_efg", our_rate, peer_rate, "iterations/s", our_rate / peer_rate, note)


def leduc_es_mccfr(effort: Effort, batch: int) -> Row:
    """Traversals of external-sampling MCCFR on tables.

    OpenSpiel updates its tables within every traversal, ours once per `batch` traversals of a player. Ours therefore
    needs more of them for the same exploitability: this is a row about sampling, not about solving. A small batch is
    bound by the fixed cost of several hundred torch operations, a large one by gathering rows from memory. Both are
    for one thread.
    """
    pyspiel, _ = open_spiel()
    ours = solver_of(load("leduc"), MCCFRConfig(sampling="external", traversals=batch), seed=0)
    peer = pyspiel.ExternalSamplingMCCFRSolver(pyspiel.load_game("leduc_poker"), 0)
    our_rate, peer_rate = interleaved(
        lambda: 2 * batch * per_second(ours.step, effort.tabular_seconds),
        lambda: 2 * per_second(peer.run_iteration, effort.tabular_seconds),
        effort.repetitions,
    )
    note = "peer: OpenSpiel's C++ ExternalSamplingMCCFRSolver, which updates after every traversal"
    return Row(f"leduc_es_mccfr_{batch}", our_rate, peer_rate, "traversals/s", our_rate / peer_rate, note)
