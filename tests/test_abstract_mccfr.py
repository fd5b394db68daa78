"""Monte Carlo CFR on card abstractions, on decks so small that all deals can be listed."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import torch
from torch import Tensor

from repro.abstraction import abstraction, one_board
from repro.algorithms.mccfr import AbstractMCCFR, MCCFRConfig, MonteCarloCFR
from repro.algorithms.tabular import solve, solver_of
from repro.common.errors import ReproError
from repro.config import ReadoutConfig
from repro.engine.sampling import SamplingEngine, Traversals
from repro.evaluation import expected_value, nash_conv
from repro.games import Game, load
from repro.plans.planning import plan
from repro.policies import Policy, uniform
from tests.helpers.holdem import board_buckets, cards_in, every, game_of
from tests.helpers.training import advanced, built, config_of, measured


def mccfr_config(**changes: Any) -> MCCFRConfig:
    values = {"name": "mccfr", "iterations": 4, "snapshot_every": 2, "sampling": "external", "traversals": 200}
    return MCCFRConfig(**{**values, "readouts": {"average": ReadoutConfig("average")}, **changes})


def solved(game: Game, iterations: int, seed: int = 0, **changes: Any) -> AbstractMCCFR:
    solver = solver_of(game, mccfr_config(**changes), seed)
    assert isinstance(solver, AbstractMCCFR)
    for _ in range(iterations):
        solver.step()
    return solver


@pytest.mark.parametrize("linear", [True, False])
def test_lossless_is_plain_monte_carlo_cfr(linear):
    game = load("fhp", ranks=4, suits=2)
    ours = solved(game, 4, linear=linear)
    theirs = MonteCarloCFR(game, mccfr_config(linear=linear), 0)
    for _ in range(4):
        theirs.step()
    assert ours.nodes_touched == theirs.nodes_touched
    torch.testing.assert_close(ours.regrets, theirs.regrets, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(ours.sums, theirs.sums, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.average().table, theirs.average().table, rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.current().table, theirs.current().table, rtol=0, atol=1e-5)


def test_every_hand_in_a_bucket_of_its_own_is_lossless(monkeypatch):
    game = game_of("small_fhp")
    cells = cards_in(game).cells[1]
    order = torch.randperm(cells, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(one_board, "_buckets", lambda *_: order)
    grouped, lossless = solved(game, 4, buckets=7), solved(game, 4)
    rows = grouped.abstraction.rows(every(game))
    assert len(rows.unique()) == game.infosets
    assert not torch.equal(rows, every(game))
    assert torch.equal(grouped.regrets[rows], lossless.regrets)
    assert torch.equal(grouped.sums[rows], lossless.sums)
    assert torch.equal(grouped.average().table, lossless.average().table)


@pytest.mark.slow
def test_converges():
    game = load("fhp", ranks=4, suits=2)
    solver = solved(game, 0, linear=True, traversals=1000)
    start = nash_conv(game, uniform(game))
    assert nash_conv(game, solver.average()) == pytest.approx(start)
    found = []
    for _ in range(3):
        for _ in range(50):
            solver.step()
        found.append(nash_conv(game, solver.average()))
    assert found[-1] < 0.05 * start
    assert found[-1] < found[0]
    *_, (_, exact) = solve(game, "linear_cfr", 200, every=200)
    value = expected_value(game, exact)[0]
    assert nash_conv(game, exact) < 0.01 * start
    # In a zero-sum game no two near-equilibria differ by more than how far they can be exploited.
    assert abs(expected_value(game, solver.average())[0] - value) <= found[-1] + nash_conv(game, exact)


@pytest.mark.slow
def test_more_buckets_come_closer():
    game = game_of("small_fhp")
    start = nash_conv(game, uniform(game))
    found = []
    for buckets in (1, 30):
        solver = solved(game, 60, linear=True, traversals=500, buckets=buckets)
        found.append(nash_conv(game, solver.average()))
    assert found[1] < 0.5 * found[0]
    assert found[1] < 0.5 * start


def test_tables_are_constant_on_buckets():
    game = game_of("small_fhp")
    solver = solved(game, 3, buckets=10)
    rows, bucket = solver.abstraction.rows(every(game)), board_buckets(solver.abstraction)
    late = game.tree.round[game.infoset_node] == 1
    for policy in (solver.average(), solver.current()):
        torch.testing.assert_close(policy.table.sum(1), torch.ones(game.infosets).double())
        assert bool((policy.table[~game.legal] == 0).all())
        for node in game.infoset_node[late].unique().tolist():
            here = game.infoset_node == node
            pairs = torch.cat([bucket[game.infoset_cell[here]][:, None].double(), policy.table[here]], 1)
            assert len(pairs.unique(dim=0)) == len(pairs[:, 0].unique())
    # What was summed is in the table, and what is asked of the solver as a policy is its current strategy
    # at infosets of the abstract game.
    torch.testing.assert_close(solver.probabilities(rows), solver.current().table)
    total = solver.sums[rows].sum(1, keepdim=True)
    expected = torch.where(total > 0, solver.sums[rows] / total, game.uniform)
    torch.testing.assert_close(solver.average().table, expected)


class InFullGame:
    """A policy of the abstract game, asked about infosets of the full one."""

    def __init__(self, policy: Policy, rows: Tensor) -> None:
        self._policy, self._rows = policy, rows

    def probabilities(self, infosets: Tensor) -> Tensor:
        return self._policy.probabilities(self._rows[infosets])


@pytest.mark.parametrize("linear", [True, False])
def test_updates_are_sums_over_the_samples_of_a_bucket(monkeypatch, linear):
    """The samples are those of the full game's engine with the same draws."""
    game = game_of("small_fhp")
    solver = solved(game, 0, buckets=10, linear=linear)
    rows, full_engine = solver.abstraction.rows(every(game)), SamplingEngine(game)
    calls: list[tuple[int, Tensor, Traversals]] = []
    original = solver._engine.external_sampling

    def spy(policy: Policy, player: int, traversals: int, draw: torch.Generator) -> Traversals:
        full = InFullGame(policy, rows)
        met = full.probabilities(every(game)).clone()
        expected = full_engine.external_sampling(full, player, traversals, draw.clone_state())
        found = original(policy, player, traversals, draw)
        for ours, theirs in (
            (found.advantages, expected.advantages),
            (found.opponent_strategies, expected.opponent_strategies),
        ):
            assert torch.equal(ours.infosets, rows[theirs.infosets])
            assert torch.equal(ours.targets, theirs.targets)
        assert found.nodes_touched == expected.nodes_touched
        calls.append((player, met, expected))
        return found

    monkeypatch.setattr(solver._engine, "external_sampling", spy)
    regrets, sums = torch.zeros_like(solver.regrets), torch.zeros_like(solver.sums)
    for t in range(1, 4):
        solver.step()
        weight = t if linear else 1
        for player, met, found in calls[-2:]:
            positive = regrets.clamp(min=0)
            total = positive.sum(1, keepdim=True)
            expected = torch.where(total[rows] > 0, (positive / total)[rows], game.uniform)
            torch.testing.assert_close(met, expected, rtol=0, atol=1e-6)
            owners = {int(o) for o in game.infoset_player[found.advantages.infosets].unique()}
            assert owners == {player}
            for samples, into in ((found.advantages, regrets), (found.opponent_strategies, sums)):
                for infoset, target in zip(samples.infosets.tolist(), samples.targets.double(), strict=True):
                    into[rows[infoset]] += weight * target
    torch.testing.assert_close(solver.regrets, regrets, rtol=1e-6, atol=1e-3)
    torch.testing.assert_close(solver.sums, sums, rtol=1e-6, atol=1e-4)
    assert [c[0] for c in calls] == [0, 1] * 3
    assert solver.nodes_touched == sum(c[2].nodes_touched for c in calls)


def test_the_same_seed_repeats_and_a_resumed_solver_goes_on():
    game = game_of("small_fhp")
    straight, other = solved(game, 4, buckets=10), solved(game, 4, seed=1, buckets=10)
    assert not torch.equal(straight.regrets, other.regrets)
    half, resumed = solved(game, 2, buckets=10), solved(game, 0, buckets=10)
    resumed.resume(2, half.nodes_touched, half.regrets, half.sums)
    for _ in range(2):
        resumed.step()
    assert torch.equal(resumed.regrets, straight.regrets)
    assert torch.equal(resumed.sums, straight.sums)
    assert resumed.nodes_touched == straight.nodes_touched


def test_a_run_measures_it():
    game, config = game_of("small_fhp"), config_of(mccfr_config(buckets=10))
    model = built(game, config)
    advanced(model, model.steps)
    solver = solved(game, 4, buckets=10)
    assert model.counts()["nodes_touched"] == solver.nodes_touched
    assert model.metrics["infosets_seen"] == int((solver.sums > 0).any(1).sum())
    found = measured(game, config, model)["average"]
    assert found["nash_conv"] == pytest.approx(nash_conv(game, solver.average()))
    assert found["exploitability"] == pytest.approx(1000 * found["nash_conv"] / 100)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_buckets_that_cannot_be_made_are_refused():
    with pytest.raises(ReproError, match=r"algorithm\.buckets is 1261; allowed are 1 to 1,260, or null"):
        abstraction(game_of("small_fhp"), 1261)
    with pytest.raises(ReproError, match=r"algorithm\.buckets is 1377; allowed are 1 to 1,376, or null"):
        abstraction(load("hunl_pot", ranks=4, suits=3), 1377)
    refused = "game is fhp5; buckets are made for games whose hands on the flop can be listed"
    with pytest.raises(ReproError, match=refused):
        abstraction(load("fhp5"), 5)
    with pytest.raises(ReproError, match=r"algorithm\.buckets is 5; the game leduc takes null only"):
        built(load("leduc"), config_of(mccfr_config(buckets=5)))


def test_outcome_sampling_is_refused():
    with pytest.raises(ReproError, match=r"algorithm\.sampling is outcome; on Hold'em games it must be external"):
        built(game_of("small_fhp"), config_of(mccfr_config(sampling="outcome", exploration=0.6)))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ("algorithm.buckets=0", "algorithm.buckets is 0; it must be at least 1."),
        ("algorithm.traversals=0", "algorithm.traversals is 0; it must be at least 1."),
        ("algorithm.exploration=0.5", "external sampling takes null"),
    ],
)
def test_bad_configuration_is_refused(overrides, sentence):
    with pytest.raises(ReproError) as caught:
        plan(["game=fhp", "algorithm=es_mccfr", *shlex.split(overrides)], multirun=False)
    assert sentence in str(caught.value)
