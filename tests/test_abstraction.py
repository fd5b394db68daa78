"""Card abstractions and the Monte Carlo CFR that plays on them, on decks so small that all deals can be listed."""

from __future__ import annotations

import shlex
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from repro.abstraction import Abstraction, abstraction, one_board
from repro.abstraction.one_board import OneBoardBuckets, cell_features
from repro.algorithms.mccfr import AbstractMCCFR, MCCFRConfig, MonteCarloCFR
from repro.algorithms.tabular import solve, solver_of
from repro.config import ReadoutConfig
from repro.engine.holdem_form import HoldemForm
from repro.engine.sampling import SamplingEngine, Traversals
from repro.errors import ReproError
from repro.evaluation import expected_value, nash_conv
from repro.games import Game, load
from repro.games.holdem import HoldemCards
from repro.planning import plan
from repro.policies import Policy, uniform
from tests.holdem_reference import best_five
from tests.trained import built, config_of, measured


def small_game(**changes: Any) -> Game:
    return load("fhp", **{"ranks": 5, "suits": 2, **changes})


def cards_in(game: Game) -> HoldemCards:
    assert isinstance(game.cards, HoldemCards)
    return game.cards


def every(game: Game) -> Tensor:
    return torch.arange(game.infosets)


def board_buckets(grouped: Abstraction) -> Tensor:
    """`[cells]` the bucket of each cell on the board."""
    assert isinstance(grouped.buckets, OneBoardBuckets)
    return grouped.buckets.of_cells(1, torch.arange(grouped.game.cards.cells[1]))


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fhp", "fhp_limit"])
def test_lossless_is_the_identity(name):
    game = load(name, ranks=4, suits=2)
    lossless = abstraction(game, None)
    assert lossless.buckets is None
    assert lossless.abstract is game
    assert torch.equal(lossless.rows(every(game)), every(game))


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [1, 2, 12, 300, 1260])
def test_rows_are_node_and_bucket(buckets):
    game = small_game()
    grouped = abstraction(game, buckets)
    bucket, abstract = board_buckets(grouped), grouped.abstract
    used = int(bucket.max()) + 1
    assert 1 <= used <= buckets
    assert set(bucket.tolist()) == set(range(used))
    assert abstract.cards.cells == (game.cards.cells[0], used)
    rows, tree = grouped.rows(every(game)), game.tree
    # Before the board every infoset has a row of its own.
    early = tree.round[game.infoset_node] == 0
    assert len(rows[early].unique()) == int(early.sum())
    # On the board infosets share a row if and only if they are of one node and one bucket.
    late = ~early
    pair = torch.stack([game.infoset_node[late], bucket[game.infoset_cell[late]], rows[late]], 1).unique(dim=0)
    assert len(pair) == len(pair[:, :2].unique(dim=0)) == len(pair[:, 2].unique())
    assert not set(rows[early].tolist()) & set(rows[late].tolist())
    # Without gaps, and of the right player with the right actions.
    assert len(rows.unique()) == abstract.infosets == int(rows.max()) + 1
    assert torch.equal(abstract.legal[rows], game.legal)
    assert torch.equal(abstract.infoset_player[rows], game.infoset_player)
    # Rows are infosets of the abstract game: of the same node, with the bucket for a cell.
    assert torch.equal(abstract.infoset_node[rows], game.infoset_node)
    assert torch.equal(abstract.infoset_cell[rows[late]], bucket[game.infoset_cell[late]])
    assert torch.equal(abstract.infoset_cell[rows[early]], game.infoset_cell[early])


def test_rows_of_mixed_and_repeated_infosets():
    game = small_game()
    grouped = abstraction(game, 12)
    drawn = torch.randint(game.infosets, (500,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(grouped.rows(drawn), grouped.rows(every(game))[drawn])
    assert len(grouped.rows(drawn[:0])) == 0


def test_isomorphic_hands_share_a_row():
    game = load("fhp", ranks=4, suits=3)
    grouped, cards = abstraction(game, 30), cards_in(game)
    dealt = cards.draw(300, torch.Generator().manual_seed(0))[:, [4, 5, 6, 0, 1]]
    suit = torch.tensor([2, 0, 1])
    renamed = (dealt // 3 * 3 + suit[dealt % 3])[:, [1, 2, 0, 4, 3]]
    assert not torch.equal(dealt, renamed)
    for node in range(game.tree.nodes):
        if game.tree.player[node] >= 0 and game.tree.round[node] == 1:
            rows = [grouped.rows(game.first_infoset[node] + cards.cell(1, c)) for c in (dealt, renamed)]
            assert torch.equal(*rows)


def test_games_of_one_name_have_buckets_of_their_own():
    small, large = (board_buckets(abstraction(game, 9)) for game in (load("fhp", ranks=4, suits=2), small_game()))
    assert len(small) == 280
    assert len(large) == 1260
    assert torch.equal(large, board_buckets(abstraction(small_game(), 9)))


def test_the_abstract_game_deals_the_same_cards_as_the_full_one():
    game = small_game()
    grouped = abstraction(game, 12)
    full, seen = (g.cards.deal(500, torch.Generator().manual_seed(0)) for g in (game, grouped.abstract))
    assert torch.equal(seen.sign, full.sign)
    assert torch.equal(seen.cells[:, :, 0], full.cells[:, :, 0])
    assert torch.equal(seen.cells[:, :, 1], board_buckets(grouped)[full.cells[:, :, 1]])
    assert len(seen.cells[:, :, 1].unique()) > 5


def test_the_abstract_game_is_named_after_the_full_one():
    game = small_game()
    abstract = abstraction(game, 12).abstract
    assert abstract.name == game.name
    assert abstract.parameters == {**game.parameters, "buckets": 12}
    assert abstract.chips_per_unit == game.chips_per_unit
    _, betting = game.describe(game.infosets - 1).split("betting ")
    assert abstract.describe(abstract.infosets - 1) == f"player 1, bucket 11, betting {betting}"


# -- features ----------------------------------------------------------------------------------------------------------


def hands_on(game: Game, board: tuple[int, ...]) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Strength of every hand that the board leaves."""
    cards = cards_in(game)
    deck = [c for c in range(cards.ranks * cards.suits) if c not in board]
    return {hand: best_five((*board, *hand), cards.suits, cards.ranks) for hand in combinations(deck, 2)}


def share_beaten(hand: tuple[int, int], others: dict[tuple[int, int], float], strength: dict[Any, Any]) -> float:
    """How many of the others that share no card with the hand it beats, ties counting half."""
    met = {o: part for o, part in others.items() if part and not set(o) & set(hand)}
    won = sum(
        part * ((strength[hand] > strength[o]) + 0.5 * (strength[hand] == strength[o])) for o, part in met.items()
    )
    return won / sum(met.values()) if met else 0.0


def strongest(strength: dict[Any, Any], count: int) -> dict[tuple[int, int], float]:
    """How far each hand is among the strongest: equal ones at the border share what is left."""
    above = {h: sum(s > strength[h] for s in strength.values()) for h in strength}
    equal = {h: sum(s == strength[h] for s in strength.values()) for h in strength}
    return {h: min(max((count - above[h]) / equal[h], 0.0), 1.0) for h in strength}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("fhp", {"ranks": 5, "suits": 2}),
        ("fhp", {"ranks": 3, "suits": 4}),
        ("fhp", {"ranks": 13, "suits": 1}),
        ("fhp5", {"ranks": 5, "suits": 2}),
    ],
)
def test_features_equal_brute_force(name, parameters):
    game = load(name, **parameters)
    cards, form = cards_in(game), HoldemForm(game)
    found = cell_features(form)
    assert found.shape == (cards.cells[1], 7)
    k, suits = cards.board_cards[1], cards.suits
    before: dict[int, list[float]] = {}
    seen: set[tuple[int, int]] = set()
    boards = list(combinations(range(cards.ranks * suits), k))
    # All boards tell how a hand does before the board; a part of them is enough for the rest.
    part = set(boards[:: max(1, len(boards) // 40)])
    for board in boards:
        strength = hands_on(game, board)
        hands = list(strength)
        cells = cards.cell(1, torch.tensor([[*board, *h] for h in hands])).tolist()
        opening = cards.cell(0, torch.tensor(hands)).tolist()
        everyone = dict.fromkeys(hands, 1.0)
        chosen = [strongest(strength, len(hands) // d) for d in (2, 8)] if board in part else []
        suited = max(sum(c % suits == s for c in board) for s in range(suits)) / k / 2
        paired = (len({c // suits for c in board}) < k) / 2
        mean_rank = sum(c // suits for c in board) / k / (cards.ranks - 1) / 4
        for hand, cell, early in zip(hands, cells, opening, strict=True):
            share = share_beaten(hand, everyone, strength)
            before.setdefault(early, []).append(share)
            assert found[cell, 0] == pytest.approx(share, abs=1e-12)
            assert found[cell, 4:] == pytest.approx([suited, paired, mean_rank], abs=1e-12)
            for column, others in enumerate(chosen, start=1):
                assert found[cell, column] == pytest.approx(share_beaten(hand, others, strength), abs=1e-9)
        seen.update(zip(cells, opening, strict=True))
    assert len({cell for cell, _ in seen}) == cards.cells[1]
    for cell, early in seen:
        assert found[cell, 3] == pytest.approx(float(np.mean(before[early])), abs=1e-12)


def test_features_are_between_0_and_1_and_differ():
    found = cell_features(HoldemForm(small_game()))
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert all(len(np.unique(column)) > 1 for column in found.T)


# -- Monte Carlo CFR ---------------------------------------------------------------------------------------------------


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
    game = small_game()
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
    game = small_game()
    start = nash_conv(game, uniform(game))
    found = []
    for buckets in (1, 30):
        solver = solved(game, 60, linear=True, traversals=500, buckets=buckets)
        found.append(nash_conv(game, solver.average()))
    assert found[1] < 0.5 * found[0]
    assert found[1] < 0.5 * start


def test_tables_are_constant_on_buckets():
    game = small_game()
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
    game = small_game()
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
    game = small_game()
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
    game, config = small_game(), config_of(mccfr_config(buckets=10))
    model = built(game, config)
    for _ in range(model.steps):
        model.training_step(None, 0)
    solver = solved(game, 4, buckets=10)
    assert model.counts()["nodes_touched"] == solver.nodes_touched
    assert model.metrics["infosets_seen"] == int((solver.sums > 0).any(1).sum())
    found = measured(game, config, model)["average"]
    assert found["nash_conv"] == pytest.approx(nash_conv(game, solver.average()))
    assert found["exploitability"] == pytest.approx(1000 * found["nash_conv"] / 100)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_buckets_that_cannot_be_made_are_refused():
    with pytest.raises(ReproError, match=r"algorithm\.buckets is 1261; allowed are 1 to 1,260, or null"):
        abstraction(small_game(), 1261)
    with pytest.raises(ReproError, match=r"algorithm\.buckets is 1377; allowed are 1 to 1,376, or null"):
        abstraction(load("hunl_pot", ranks=4, suits=3), 1377)
    refused = "game is fhp5; buckets are made for games whose hands on the flop can be listed"
    with pytest.raises(ReproError, match=refused):
        abstraction(load("fhp5"), 5)
    with pytest.raises(ReproError, match=r"algorithm\.buckets is 5; the game leduc takes null only"):
        built(load("leduc"), config_of(mccfr_config(buckets=5)))


def test_outcome_sampling_is_refused():
    with pytest.raises(ReproError, match=r"algorithm\.sampling is outcome; on Hold'em games it must be external"):
        built(small_game(), config_of(mccfr_config(sampling="outcome", exploration=0.6)))


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
