"""Turns that are solved with values at their leaves, and rivers that are re-solved, against what is known otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from repro.common.compiled import Array
from repro.subgames.depth_limited import CheckedDown, DepthLimitedSolver, Leaves, Rivers, Solved
from repro.subgames.kernels import BEST, MEAN, Part, Rule
from repro.subgames.plain import PlainSolver
from repro.subgames.sampling import random_subgame
from repro.subgames.solver import AS_IS, SolverConfig, SubgameSolver
from repro.subgames.subgames import Deck, Subgame

SMALL = Deck(ranks=4, suits=3)
VARIANT = SolverConfig()


def some_turn(number: int = 0, pot: float = 3_000.0, deck: Deck = SMALL) -> Subgame:
    drawn = random_subgame(3, number, 4, deck)
    return Subgame(drawn.board, pot, drawn.ranges, deck)


def solved(leaves: Callable[[Rivers], Leaves] = Solved, iterations: int = 40, turn: Subgame | None = None):
    solver = DepthLimitedSolver(turn or some_turn(), VARIANT, leaves)
    for _ in range(iterations):
        solver.iterate()
    return solver


def whole_tables(solver: DepthLimitedSolver) -> PlainSolver:
    """The plain solver of the same turn, with the other's average strategies."""
    plain = PlainSolver(solver.subgame, VARIANT)
    tree, turn, river = solver.subgame.betting(), solver._betting, solver._river
    dealt = dict(zip(turn.dealt.tolist(), range(river.entries), strict=True))
    hand = solver._boards.hand[:, 0]

    def below(part: Part, i: int, node: int) -> list[tuple[int, int, int]]:
        actions = [a for a, child in enumerate(tree.child[node].tolist()) if child >= 0]
        edges = range(part.edges[i], part.edges[i + 1])
        return [(e, a, int(tree.child[node, a])) for e, a in zip(edges, actions if edges else [], strict=True)]

    def on_turn(i: int, node: int) -> None:
        if i in dealt:
            on_river(dealt[i], node)
        for e, action, child in below(turn, i, node):
            plain.sums[node, -1][action] = solver._on_turn[1][e]
            on_turn(int(turn.child[e]), child)

    def on_river(i: int, node: int) -> None:
        for e, action, child in below(river, i, node):
            for board, hands in enumerate(hand):
                plain.sums[node, board][action, hands] = solver._on_river[1][board, e]
            on_river(int(river.child[e]), child)

    on_turn(0, 0)
    return plain


def test_exact_leaves_make_the_iterations_of_the_whole_games_solver():
    solver, whole = solved(iterations=15), SubgameSolver(some_turn(), VARIANT, merge=False)
    for _ in range(15):
        whole.iterate()
    np.testing.assert_array_equal(solver._on_turn[1], whole._on_turn[1])
    # With its own rivers it is as exploitable.
    leaves = solver.leaves
    assert isinstance(leaves, Solved)
    solver._on_river = leaves._tables
    assert solver.exploitability() == whole.exploitability()


@pytest.mark.parametrize("safe", [False, True])
def test_exploitability_is_that_of_the_plain_solvers_best_responses(safe: bool):
    solver = solved(CheckedDown)
    (solver.resolve_safely if safe else solver.resolve)(20)
    plain, turn = whole_tables(solver), solver.subgame
    won = (plain._ranges * plain.values(best=True)).sum()
    met = solver._ranges[0] @ solver.matchup[0]
    assert solver.exploitability() == pytest.approx(won / (2 * met * turn.pot), rel=1e-4)
    assert solver.exploitability() > 0.003


def test_exact_leaves_and_rivers_are_not_exploitable_in_the_end():
    reached = []
    for iterations in (10, 100, 1000):
        solver = solved(iterations=iterations)
        solver.resolve_safely(2 * iterations)
        reached.append(solver.exploitability())
    assert reached[0] > reached[1] > reached[2]
    assert reached[2] < 5e-4


@pytest.mark.parametrize("iterations", [0, 3, 100])
def test_safe_rivers_are_never_worse_than_what_was_promised(iterations: int):
    """CFR-D's theorem, for what any strategy of the whole promises; unsafe ones are, which makes it a test."""
    worse = []
    for number in range(3):
        solver = solved(iterations=iterations, turn=some_turn(number))
        leaves = solver.leaves
        assert isinstance(leaves, Solved)
        solver._on_river = leaves._tables
        whole = solver.exploitability()
        promised = [solver.rivers.sweep(p, BEST, leaves._tables, AS_IS, solver.opening(p)) for p in range(2)]
        solver.resolve_safely(600, (promised[0], promised[1]))
        assert solver.exploitability() < whole + 5e-4
        # Nor does any hand of the opponent's win more on any river.
        for player in range(2):
            wins = solver.rivers.sweep(player, BEST, solver._on_river, AS_IS, solver.opening(player))
            weight = solver.opening(player)[:, 1 - player :: 2].sum(2, keepdims=True) * solver.subgame.pot
            assert (wins - promised[player]).max() < 0.01 * weight.max()
        solver.resolve(600)
        worse.append(solver.exploitability() > whole + 5e-4)
    assert any(worse) or iterations < 100


def test_a_turn_is_worth_what_its_solved_rivers_make_of_it():
    """The values of the turn by what leaves say are those of the whole strategy, if rivers are played as leaves say."""
    solver = solved(iterations=30)
    leaves = solver.leaves
    assert isinstance(leaves, Solved)
    valued = solver.valued()
    solver._on_river = leaves._tables
    np.testing.assert_allclose(valued, solver.values(), atol=1e-4 * np.abs(valued).max())
    # Rivers that nobody bets on are worth something else.
    solver.leaves = CheckedDown(solver.rivers)
    assert np.abs(solver.valued() - valued).max() > 0.01 * np.abs(valued).max()


def test_leaves_know_the_showdown_where_all_chips_are_in_the_pot():
    class Wrong(Leaves):
        def estimated(self, player: int, mode: int, how: Rule, opening: Array) -> Array:
            return np.full(self.rivers.shape, 1e6, np.float32)

    solver = DepthLimitedSolver(some_turn(), VARIANT, Wrong)
    rivers, opening = solver.rivers, solver.opening(0)
    assert rivers.over.sum() == (rivers.chips == 40_000).sum() > 0
    assert rivers.chips.min() == 3_000
    values = solver.leaves.values(0, MEAN, AS_IS, opening)
    assert (values[:, ~rivers.over] == 1e6).all()
    deck, board = solver.subgame.deck, rivers.full_boards()[2]
    hands = deck.hands(solver.subgame.board)[solver._boards.hand[2, 0]]
    strength = deck.strength(tuple(board), hands)
    apart = ~(hands[:, None, :, None] == hands[None, :, None, :]).any((2, 3))
    wins = np.sign(strength[:, None] - strength[None]) * apart
    for entry in np.flatnonzero(rivers.over):
        expected = 20_000 * wins @ opening[2, 2 * entry + 1]
        np.testing.assert_allclose(values[2, entry], expected, rtol=1e-4, atol=1e-2)
        np.testing.assert_allclose(rivers.met(opening[:, 1::2])[2, entry], apart @ opening[2, 2 * entry + 1], rtol=1e-5)


@pytest.mark.parametrize("leaves", [CheckedDown, Solved])
def test_what_one_player_wins_the_other_loses(leaves: Callable[[Rivers], Leaves]):
    solver = solved(leaves, 10)
    won = [
        solver.leaves.values(p, MEAN, AS_IS, o) * o[:, p::2] * solver.rivers.ranges[p][:, None]
        for p, o in enumerate(map(solver.opening, range(2)))
    ]
    each = [w.sum(2, dtype=float) for w in won]
    np.testing.assert_allclose(each[0], -each[1], atol=1e-4 * np.abs(won[0]).sum(2).max())


def test_the_names_of_suits_do_not_matter():
    turn = some_turn()
    deck, hands = turn.deck, turn.deck.hands(turn.board)
    renamed = np.arange(deck.cards).reshape(-1, 3)[:, [1, 2, 0]].ravel()
    board = tuple(int(renamed[card]) for card in turn.board)
    number = {tuple(sorted(cards)): i for i, cards in enumerate(deck.hands(board).tolist())}
    place = [number[tuple(sorted(renamed[cards].tolist()))] for cards in hands]
    ranges = np.empty_like(turn.ranges)
    ranges[:, place] = turn.ranges
    found = []
    for subgame in (turn, replace(turn, board=board, ranges=ranges)):
        solver = solved(CheckedDown, 10, subgame)
        solver.resolve(10)
        unsafe = solver.exploitability()
        solver.resolve_safely(10)
        found.append((unsafe, solver.exploitability()))
    assert found[0] == pytest.approx(found[1], rel=0.01)


def test_buckets_average_counterfactual_or_expected_values():
    opening = DepthLimitedSolver(some_turn(), VARIANT, Solved).opening(1)

    def values(bucket: Callable[[Rivers], Array] | None, expected: bool) -> tuple[Rivers, Array]:
        rivers = DepthLimitedSolver(some_turn(), VARIANT, CheckedDown).rivers
        leaves = Solved(rivers, None if bucket is None else bucket(rivers), expected)
        return rivers, leaves.values(1, MEAN, AS_IS, opening)

    rivers, exact = values(None, expected=False)
    live = ~rivers.over
    for expected in (False, True):
        alone = values(lambda r: np.tile(np.arange(r.shape[2]), (r.shape[0], 1)), expected)[1]
        np.testing.assert_allclose(alone, exact, rtol=1e-4, atol=1e-3)
        together = values(lambda r: np.zeros((r.shape[0], r.shape[2]), np.int64), expected)[1]
        matchup = rivers.met(opening[:, ::2])
        unit = matchup if expected else np.ones_like(matchup)
        mean = (exact / unit).mean(2, keepdims=True) * unit
        np.testing.assert_allclose(together[:, live], mean[:, live], rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(together[:, rivers.over], exact[:, rivers.over], rtol=1e-4, atol=1e-3)


def test_errors_are_of_the_re_solved_rivers():
    class Off(Solved):
        """Wrong by as many chips for every hand that can be met."""

        def values(self, player: int, mode: int, how: Rule, opening: Array) -> Array:
            return true[player] + 30 * self.rivers.met(opening[:, 1 - player :: 2]).astype(np.float32)

    solver = solved(CheckedDown, 10)
    solver.resolve(50)
    true = [solver.rivers.sweep(p, MEAN, solver._on_river, AS_IS, solver.opening(p)) for p in range(2)]
    solver.leaves = Off(solver.rivers)
    errors = solver.errors()
    # Whatever they are weighted by, the same error of all is what it is.
    for weighted in (errors.met, errors.matchup, errors.rare):
        assert weighted == pytest.approx(30 / 3_000, rel=1e-3)
    by_hand = []
    live = ~solver.rivers.over
    for player in range(2):
        opponent = solver.opening(player)[:, 1 - player :: 2][:, live].astype(float)
        met = solver.rivers.met(opponent)
        wrong = 30 * met / (opponent.sum(2, keepdims=True) * solver.rivers.chips[live][None, :, None])
        by_hand.append(np.sqrt((wrong**2).mean(2)).mean())
    assert errors.hand == pytest.approx(np.mean(by_hand), rel=1e-3)


def test_errors_are_weighted_by_what_is_met():
    """One hand on one river is wrong: counted by hand, with every weight."""

    class Off(Solved):
        def values(self, player: int, mode: int, how: Rule, opening: Array) -> Array:
            return true[player] + wrong[player]

    solver = solved(CheckedDown, 10)
    solver.resolve(50)
    rivers, openings = solver.rivers, [solver.opening(player) for player in range(2)]
    true = [rivers.sweep(p, MEAN, solver._on_river, AS_IS, openings[p]) for p in range(2)]
    wrong = [np.zeros(rivers.shape, np.float32) for _ in range(2)]
    board, entry, hand = 3, int(np.flatnonzero(~rivers.over)[1]), 20
    wrong[1][board, entry, hand] = 90.0
    solver.leaves = Off(rivers)
    met, matchup, rare = [], [], []
    for player in range(2):
        own = openings[player][:, player::2] * rivers.ranges[player][:, None]
        for b in range(rivers.shape[0]):
            for e in np.flatnonzero(~rivers.over):
                apart = rivers.holds[b] @ rivers.holds[b].T == 0
                meets = apart @ openings[player][b, 2 * e + 1 - player].astype(float)
                met.append((own[b, e] @ np.abs(wrong[player][b, e]), own[b, e] @ meets))
                matchup.append((np.abs(wrong[player][b, e]).sum(), meets.sum()))
                rare.append(met[-1][0] / met[-1][1])
    errors, pot = solver.errors(), solver.subgame.pot
    for found, rows in ((errors.met, met), (errors.matchup, matchup)):
        of_all = np.sum(rows, 0)
        assert found == pytest.approx(of_all[0] / of_all[1] / pot, rel=1e-3)
    assert errors.rare == pytest.approx(np.mean(rare) / pot, rel=1e-3)
    assert len({round(x, 9) for x in (errors.met, errors.matchup, errors.rare)}) == 3
