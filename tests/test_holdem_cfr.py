"""CFR on Hold'em games with one board, against explicit deals."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from repro.algorithms.tabular import VARIANTS, solve, solver_of
from repro.evaluation import nash_conv
from repro.games import load
from repro.policies import uniform
from tests.helpers.reference_holdem import Explicit, assert_close, discounted, game_of, normalised

EXACT = ("cfr", "cfr_plus", "linear_cfr", "dcfr")


def settings_of(variant, alternating):
    config = replace(VARIANTS[variant], alternating=alternating)
    return config, {key: asdict(config)[key] for key in ("alpha", "beta", "gamma", "floor")}


@pytest.mark.slow
@pytest.mark.parametrize("alternating", [True, False])
@pytest.mark.parametrize("variant", EXACT)
@pytest.mark.parametrize(
    ("key", "iterations"), [("fhp", 20), ("three_suits", 8), ("four_suits", 2), ("limit", 5), ("fhp5", 4)]
)
def test_every_iteration_of_cfr_equals_explicit_deals(key, iterations, variant, alternating):
    """From each state of the solver, one update in NumPy leads to the next.

    Runs side by side would part: a regret that is zero by blocked hands, or by a tie, comes out as 1e-17 of either
    sign, and any positive regret decides a strategy.
    """
    game = game_of(key)
    config, of_regrets = settings_of(variant, alternating)
    gamma = of_regrets.pop("gamma")
    solver, explicit = solver_of(game, config, seed=0), Explicit(game)
    for t in range(1, iterations + 1):
        before, sums = solver.regrets.double().numpy(), solver.sums.double().numpy()
        solver.step()
        regrets = before.copy()
        for players in [(0,), (1,)] if alternating else [(0, 1)]:
            sigma = normalised(np.maximum(regrets, 0), game.uniform.numpy())
            strategy = explicit.strategy(sigma)
            for player in players:
                mine, swept = game.player_slice[player], explicit.sweep(strategy, player)
                q, _ = explicit.in_rows(swept.q)
                reach, _ = explicit.in_rows(swept.reach, own=True)
                after = before + (q - (sigma * q).sum(1, keepdims=True)) * game.legal.numpy()
                after = discounted(after, t, **of_regrets)
                assert_close(solver.regrets[mine], after[mine], rtol=1e-6)
                summed = sums + t**gamma * reach[:, None] * sigma
                assert_close(solver.sums[mine], summed[mine], rtol=1e-6)
            for player in players:
                # What the solver itself goes on from.
                mine = game.player_slice[player]
                regrets[mine] = solver.regrets[mine].double().numpy()
    assert bool((solver.regrets[~game.legal] == 0).all() & (solver.sums[~game.legal] == 0).all())


@pytest.mark.slow
@pytest.mark.parametrize("alternating", [True, False])
@pytest.mark.parametrize("variant", EXACT)
@pytest.mark.parametrize(
    ("name", "parameters"), [("fhp", {"suits": 2}), ("fhp_limit", {"suits": 2, "max_raises": (1, 2)})]
)
def test_cfr_equals_explicit_deals(name, parameters, variant, alternating):
    """NashConv of averages after 1, 5 and 20 iterations, from random regrets: nothing is decided by rounding errors."""
    game = load(name, ranks=5, **parameters)
    config, settings = settings_of(variant, alternating)
    solver, explicit = solver_of(game, config, seed=0), Explicit(game)
    start = torch.rand(game.legal.shape, generator=torch.Generator().manual_seed(1)) * game.legal
    solver.resume(0, 0, start, solver.sums)
    # A row's regrets are the sums over its situations, which all are in the same one.
    size, _ = explicit.in_rows({h: np.ones(len(row)) for h, row in explicit.row.items()})
    regrets = explicit.strategy(start.double().numpy() / size[:, None])
    for t, average in enumerate(explicit.cfr(regrets, 20, alternating, **settings), start=1):
        solver.step()
        if t in (1, 5, 20):
            assert nash_conv(game, solver.average()) == pytest.approx(explicit.nash_conv(average), rel=1e-6)
    assert solver.iteration == 20
    assert solver.nodes_touched == 2 * 20 * explicit.histories()


@pytest.mark.slow
@pytest.mark.parametrize("variant", EXACT)
@pytest.mark.parametrize("key", ["straights", "limit"])
def test_simultaneous_cfr_from_the_start_equals_explicit_deals(key, variant):
    game = game_of(key)
    _, settings = settings_of(variant, False)
    explicit = Explicit(game)
    nothing = {h: np.zeros_like(u) for h, u in explicit.uniform().items()}
    averages = explicit.cfr(nothing, 20, alternating=False, **settings)
    for (t, policy), average in zip(solve(game, variant, 20, alternating=False), averages, strict=True):
        if t in (1, 5, 20):
            assert nash_conv(game, policy) == pytest.approx(explicit.nash_conv(average), rel=1e-5)


@pytest.mark.parametrize("variant", EXACT)
@pytest.mark.parametrize("alternating", [True, False])
def test_the_first_iteration_plays_uniformly(variant, alternating):
    game = game_of("three_suits")
    ((_, policy),) = solve(game, variant, 1, alternating=alternating)
    hers = game.player_slice[1]
    assert_close(policy.table, game.uniform, 1e-7)
    first, second = solve(game, variant, 2, alternating=alternating)
    assert not torch.allclose(first[1].table[hers], second[1].table[hers])


@pytest.mark.parametrize("variant", EXACT)
@pytest.mark.parametrize("alternating", [True, False])
def test_resumed_equals_uninterrupted(variant, alternating):
    game = game_of("limit")
    config, _ = settings_of(variant, alternating)
    whole, first, second = (solver_of(game, config, seed=0) for _ in range(3))
    for _ in range(7):
        whole.step()
    for _ in range(4):
        first.step()
    second.resume(first.iteration, first.nodes_touched, first.regrets, first.sums)
    for _ in range(3):
        second.step()
    assert (whole.iteration, whole.nodes_touched) == (second.iteration, second.nodes_touched)
    for ours, theirs in ((whole.regrets, second.regrets), (whole.sums, second.sums)):
        assert torch.equal(ours, theirs)
    assert torch.equal(whole.average().table, second.average().table)
    assert torch.equal(whole.current().table, second.current().table)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["fhp", "three_suits", "straights", "fhp5"])
@pytest.mark.parametrize(("variant", "bound"), [("cfr", 0.1), ("cfr_plus", 0.02), ("linear_cfr", 0.03), ("dcfr", 0.01)])
def test_nash_conv_falls(key, variant, bound):
    """In big blinds."""
    game = game_of(key)
    curve = [nash_conv(game, p) / game.chips_per_unit for _, p in solve(game, variant, 300, every=100)]
    assert 0 < curve[2] < curve[1] < curve[0] < nash_conv(game, uniform(game)) / game.chips_per_unit
    assert curve[2] < bound


@pytest.mark.usefixtures("_threads_restored")
@pytest.mark.parametrize("alternating", [True, False])
def test_cfr_does_not_depend_on_threads(alternating):
    game, config = game_of("flushes"), replace(VARIANTS["dcfr"], alternating=alternating)
    tables = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        solver = solver_of(game, config, seed=0)
        for _ in range(5):
            solver.step()
        tables.append((solver.regrets, solver.sums))
    assert all(torch.equal(a, b) for other in tables[1:] for a, b in zip(tables[0], other, strict=True))
