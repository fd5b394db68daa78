"""Subgames: the solver against a plain one that shares no kernel, hand-checked games, and identities."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phevaluator import evaluate_cards  # type: ignore[import-untyped,attr-defined,unused-ignore]

from repro.algorithms.tabular import VARIANTS, TabularCFRConfig
from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.subgames.kernels import BEST
from repro.subgames.plain import PlainSolver
from repro.subgames.sampling import mean_strength, random_range, random_subgame
from repro.subgames.solver import SubgameSolver, solve_all, solve_subgame
from repro.subgames.subgames import BY_CARD, EQUITY, MADE_HAND, POTS, RANDOM, Deck, Subgame, matchups

SMALL = Deck(ranks=4)
CFR_VARIANTS = ("cfr", "cfr_plus", "dcfr", "linear_cfr")


def variant(name: str) -> TabularCFRConfig:
    found = VARIANTS[name]
    assert isinstance(found, TabularCFRConfig)
    return found


def apart(hands: Array) -> Array:
    """`[hands, hands]` whether two hands share no card."""
    return np.array([[not set(a) & set(b) for b in hands.tolist()] for a in hands.tolist()], float)


# -- the solver --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CFR_VARIANTS)
@pytest.mark.parametrize("board_cards", [4, 5])
def test_iterations_equal_the_plain_solvers(name: str, board_cards: int):
    subgame = random_subgame(0, 3, board_cards, SMALL)
    plain, ours = PlainSolver(subgame, variant(name)), SubgameSolver(subgame, variant(name))
    for _ in range(6):
        plain.iterate()
        ours.iterate()
    for best in (False, True):
        np.testing.assert_allclose(
            ours.values(BEST) if best else ours.values(), plain.values(best), rtol=1e-5, atol=1e-5 * subgame.pot
        )


def test_a_full_deck_equals_the_plain_solver():
    subgame = random_subgame(5, 1, 5, Deck())
    plain, ours = PlainSolver(subgame, variant("dcfr")), SubgameSolver(subgame, variant("dcfr"))
    for _ in range(2):
        plain.iterate()
        ours.iterate()
    np.testing.assert_allclose(ours.values(), plain.values(), rtol=1e-5, atol=1e-5 * subgame.pot)


@pytest.mark.slow
def test_a_hand_checked_subgame():
    """Three hands on a full-deck river: the nuts or nothing against a bluff-catcher, with a pot behind.

    Player 0 has the best hand or the worst, equally likely, and the stack is one pot: she bets the best always and the
    worst half as often; player 1 calls half the time. She wins the pot half the time and half a pot again.
    """
    deck = Deck()
    board = tuple(4 * rank + suit for rank, suit in ((0, 0), (1, 1), (5, 2), (6, 3), (9, 0)))
    hands = deck.hands(board).tolist()
    ranges = np.zeros((2, len(hands)))
    best, worst, catcher = sorted((4 * 9 + 1, 4 * 9 + 2)), [4 * 3, 4 * 2 + 1], sorted((4 * 8, 4 * 8 + 1))
    ranges[0, hands.index(best)] = ranges[0, hands.index(sorted(worst))] = 0.5
    ranges[1, hands.index(catcher)] = 1.0
    subgame = Subgame(board, 100.0, ranges, deck, stack=150.0)
    solution = solve_subgame(subgame, variant("dcfr"), 1e-4)
    assert solution.exploitability <= 1e-4
    # In chips, of a pot of 100 to which each gave 50: 0.75 * 100 - 50.
    assert (ranges[0] * solution.cfv[0]).sum() == pytest.approx(0.25, abs=1e-3)
    assert solution.ev[0, hands.index(best)] == pytest.approx(1.0, abs=5e-3)
    assert solution.ev[0, hands.index(sorted(worst))] == pytest.approx(-0.5, abs=5e-3)


@pytest.mark.parametrize(("board_cards", "deck"), [(5, Deck()), (4, Deck(ranks=6)), (4, SMALL)])
def test_identities_of_a_solution(board_cards: int, deck: Deck):
    subgame = random_subgame(1, 7, board_cards, deck)
    solution = solve_subgame(subgame, variant("dcfr"), 0.005)
    assert solution.exploitability <= 0.005
    # Zero-sum: what one player's hands win, weighted by her range, the other's lose.
    won = (subgame.ranges * solution.cfv).sum(1)
    assert won.sum() == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(solution.ev * solution.matchup, solution.cfv, atol=1e-9)
    # Any hand can fold, and no hand that can be dealt does much worse than that.
    dealt = solution.matchup > 1e-3
    assert solution.ev[dealt].min() > -0.5 - 0.05
    # A hand wins at most the stack.
    assert solution.ev.max() <= subgame.stack / subgame.pot


@pytest.mark.slow
@pytest.mark.parametrize("board_cards", [4, 5])
def test_exploitability_is_the_plain_solvers(board_cards: int):
    subgame = random_subgame(2, 0, board_cards, SMALL)
    ours, plain = SubgameSolver(subgame, variant("cfr")), PlainSolver(subgame, variant("cfr"))
    for solver in (ours, plain):
        for _ in range(3):
            solver.iterate()
    pairs = subgame.ranges[0] @ apart(SMALL.hands(subgame.board)) @ subgame.ranges[1]
    expected = (subgame.ranges * plain.values(best=True)).sum() / (2 * pairs * subgame.pot)
    assert ours.exploitability() == pytest.approx(expected, rel=1e-4)


def test_renaming_suits_renames_the_solution():
    subgame = random_subgame(3, 0, 4, SMALL)
    name = np.array([2, 0, 3, 1])

    def renamed(cards: Array) -> Array:
        return cards // 4 * 4 + name[cards % 4]

    board = tuple(renamed(np.array(subgame.board)).tolist())
    before, after = SMALL.hands(subgame.board), SMALL.hands(board)
    place = {tuple(hand): i for i, hand in enumerate(after.tolist())}
    moved = np.array([place[tuple(sorted(renamed(hand).tolist()))] for hand in before])
    ranges = np.empty_like(subgame.ranges)
    ranges[:, moved] = subgame.ranges
    solvers = [SubgameSolver(s, variant("cfr")) for s in (subgame, Subgame(board, subgame.pot, ranges, SMALL))]
    for solver in solvers:
        for _ in range(10):
            solver.iterate()
    first, second = (solver.solution().cfv for solver in solvers)
    # Hands of equal strength are added in another order.
    np.testing.assert_allclose(second[:, moved], first, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("board", "rivers"), [((0, 1, 6, 7), 6), ((0, 4, 8, 13), 8), ((0, 1, 2, 3), 3)])
def test_boards_that_renaming_suits_makes_equal_are_solved_once(board: tuple[int, ...], rivers: int):
    """Ranges by ranks alone are the same under every renaming."""
    hands = SMALL.hands(board)
    weight = np.random.default_rng(0).random((2, 4, 4))
    low, high = hands[:, 0] // 4, hands[:, 1] // 4
    subgame = Subgame(board, 600.0, weight[:, low, high], SMALL)
    ours, plain = SubgameSolver(subgame, variant("cfr")), PlainSolver(subgame, variant("cfr"))
    for _ in range(5):
        ours.iterate()
        plain.iterate()
    assert len(ours._boards.first) == rivers
    assert ours._boards.copies.sum() == 12
    np.testing.assert_allclose(ours.values(), plain.values(), rtol=1e-5, atol=1e-5 * subgame.pot)
    np.testing.assert_allclose(ours.values(BEST), plain.values(True), rtol=1e-5, atol=1e-5 * subgame.pot)
    # Hands that are played more often than their equals: each river is another.
    subgame.ranges[0] *= np.random.default_rng(1).random(len(hands))
    assert len(SubgameSolver(subgame, variant("cfr"))._boards.first) > rivers


def test_rivers_with_symmetric_ranges():
    """Renaming suits may move the last card of a river to another of its cards."""
    board = (3, 6, 11, 48, 49)
    subgame = Subgame(board, 200.0, np.ones((2, 1081)), Deck())
    assert solve_subgame(subgame, variant("dcfr"), 0.01).exploitability <= 0.01


def check_down(subgame: Subgame) -> Array:
    """`[2, hands]` what each hand wins, in pots, when nobody bets: an explicit mean over rivers."""
    deck, hands = subgame.deck, subgame.deck.hands(subgame.board)
    value = np.zeros((2, len(hands)))
    for i, mine in enumerate(hands.tolist()):
        for j, theirs in enumerate(hands.tolist()):
            if set(mine) & set(theirs):
                continue
            rivers = [b for b in deck.full_boards(subgame.board) if b[-1] not in {*mine, *theirs}]
            wins = [np.sign(int(a) - int(b)) for a, b in (deck.strength(r, np.array([mine, theirs])) for r in rivers)]
            for player in range(2):
                value[player, i] += subgame.ranges[1 - player, j] * np.mean(wins) / 2
    return value


@pytest.mark.parametrize("behind", [0.0, 1e-4])
def test_without_chips_behind_a_turn_is_checked_down(behind: float):
    subgame = random_subgame(6, 1, 4, Deck(ranks=3))
    subgame = replace(subgame, stack=subgame.pot / 2 * (1 + behind))
    found = solve_subgame(subgame, variant("dcfr"), 0.001)
    np.testing.assert_allclose(found.cfv, check_down(subgame), atol=2 * behind + 1e-6)


def test_hands_that_cannot_meet_are_refused():
    ranges = np.zeros((2, len(SMALL.hands((0, 5, 10, 15, 3)))))
    ranges[:, 0] = 1.0
    with pytest.raises(ReproError, match="have some two hands that can meet"):
        SubgameSolver(Subgame((0, 5, 10, 15, 3), 100.0, ranges, SMALL), variant("cfr"))


@pytest.mark.parametrize("gamma", [0.0, 10.0])
def test_late_iterations_do_not_overflow(gamma: float):
    solver = SubgameSolver(random_subgame(0, 0, 5, SMALL), TabularCFRConfig(gamma=gamma))
    solver.iterate()
    solver.iterations = 20_000
    solver.iterate()
    assert np.isfinite(solver.values()).all()


def test_scaling_the_chips_changes_nothing():
    subgame = random_subgame(4, 2, 5, SMALL)
    scaled = Subgame(subgame.board, 2 * subgame.pot, 3 * subgame.ranges, SMALL, 2 * subgame.stack)
    first, second = (solve_subgame(s, variant("dcfr"), 1e-3) for s in (subgame, scaled))
    np.testing.assert_allclose(first.cfv, second.cfv, atol=1e-5)


def test_threads_change_nothing():
    subgames = [random_subgame(0, n, 5, SMALL) for n in range(6)]
    one, two = (list(solve_all(subgames, variant("dcfr"), 0.005, threads)) for threads in (1, 2))
    for first, second in zip(one, two, strict=True):
        assert np.array_equal(first.cfv, second.cfv)


# -- random subgames ---------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), board_cards=st.sampled_from([4, 5]))
def test_random_subgames(seed: int, board_cards: int):
    subgame = random_subgame(seed, 1, board_cards, Deck(ranks=5))
    assert len(set(subgame.board)) == board_cards
    assert np.allclose(subgame.ranges.sum(1), 1)
    assert (subgame.ranges >= 0).all()
    assert any(2 * low <= subgame.pot <= 2 * high for low, high in POTS)
    again = random_subgame(seed, 1, board_cards, Deck(ranks=5))
    assert again.board == subgame.board
    assert np.array_equal(again.ranges, subgame.ranges)
    assert not np.array_equal(random_subgame(seed, 2, board_cards, Deck(ranks=5)).ranges, subgame.ranges)


def test_every_hand_that_the_board_leaves_is_in_both_ranges():
    """So that no hand which counts in an error, or in a bucket, is one that a player cannot hold."""
    deck = Deck(6, 4)
    for number in range(5):
        subgame = random_subgame(0, number, 5, deck)
        assert (subgame.ranges > 0).all()
        assert subgame.ranges.shape == (2, len(deck.hands(subgame.board)))


@pytest.mark.slow
def test_the_weaker_half_of_a_range_is_uniform():
    """R(S, p) gives the weaker half U(0, p), and its own weaker half a uniform share of that."""
    draw, strength = np.random.default_rng(0), np.arange(64.0)
    ranges = np.stack([random_range(strength, draw) for _ in range(4_000)])
    half = ranges[:, :32].sum(1)
    quarter = ranges[:, :16].sum(1) / half
    for share in (half, quarter):
        assert np.histogram(share, 4, (0, 1))[0] == pytest.approx(1_000, abs=110)
    assert abs(np.corrcoef(half, quarter)[0, 1]) < 0.06


@pytest.mark.parametrize("strength", [EQUITY, MADE_HAND])
def test_how_hands_are_sorted_changes_nothing_else(strength: str):
    drawn = random_subgame(0, 3, 4, SMALL)
    at_random, by_card = (random_subgame(0, 3, 4, SMALL, strength=strength, ties=ties) for ties in (RANDOM, BY_CARD))
    of = mean_strength(SMALL, drawn.board) if strength == EQUITY else made(drawn.board)
    for other in (at_random, by_card):
        assert (other.board, other.pot) == (drawn.board, drawn.pot)
    for player, value in product(range(2), np.unique(of)):
        alike = of == value
        assert np.array_equal(np.sort(at_random.ranges[player, alike]), np.sort(by_card.ranges[player, alike]))
    assert not np.array_equal(at_random.ranges, by_card.ranges)


def test_unknown_orders_of_hands_are_refused():
    with pytest.raises(ReproError, match="strength is 'beauty'; it must be one of equity, made_hand"):
        random_subgame(0, 3, 4, SMALL, strength="beauty")
    with pytest.raises(ReproError, match="ties is 'beauty'; it must be one of random, by_card"):
        random_subgame(0, 3, 4, SMALL, ties="beauty")


def test_equally_strong_hands_are_in_the_order_of_their_cards_or_in_any():
    """What a range gives the sorted hands shows when no two are equal."""
    strength = np.array([2.0, 1.0, 2.0, 3.0, 1.0, 2.0])
    shares = random_range(np.arange(6.0), np.random.default_rng(0))
    by_card = random_range(strength, np.random.default_rng(0), BY_CARD)
    assert by_card[[1, 4, 0, 2, 5, 3]].tolist() == shares.tolist()
    orders = set()
    for seed in range(100):
        shares, found = (random_range(s, np.random.default_rng(seed)).tolist() for s in (np.arange(6.0), strength))
        orders.add(tuple(found.index(share) for share in shares))
    # Two hands and three can be in 2 * 6 orders.
    assert orders == {(*a, *b, 3) for a in permutations((1, 4)) for b in permutations((0, 2, 5))}


def made(board: tuple[int, ...]) -> Array:
    """Strength of each hand with four cards on the board; of phevaluator's numbers the best hand has the lowest."""
    cards = [f"{'JQKA'[c // 4]}{'cdhs'[c % 4]}" for c in range(16)]
    return np.array([-evaluate_cards(*(cards[c] for c in (*board, *hand))) for hand in SMALL.hands(board).tolist()])


def test_strength_is_the_probability_of_beating_a_random_hand():
    board = (0, 5, 10, 15)
    hands, found = SMALL.hands(board), np.zeros(len(SMALL.hands(board)))
    for i, mine in enumerate(hands.tolist()):
        shares = []
        for full in SMALL.full_boards(board):
            if set(mine) & set(full):
                continue
            others = np.array([h for h in SMALL.hands(full).tolist() if not set(h) & set(mine)])
            own = SMALL.strength(full, np.array([mine]))[0]
            theirs = SMALL.strength(full, others)
            shares.append(((own > theirs) + (own == theirs) / 2).mean())
        found[i] = np.mean(shares)
    np.testing.assert_allclose(mean_strength(SMALL, board), found, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranges": np.ones((2, 120))}, r"ranges are \[2, 120\]; its board leaves 55 hands"),
        ({"ranges": np.full((2, 55), -0.1)}, "weights of 0 or more"),
        ({"board": (0, 1, 2, 3, 3)}, r"board is \(0, 1, 2, 3, 3\)"),
        ({"board": (0, 1, 2, 3, 16)}, "different cards below 16"),
        ({"board": (0, 1, 2), "ranges": np.ones((2, 78))}, "4 or 5"),
        ({"pot": 0.0}, "pot is 0"),
        ({"pot": 40_001.0}, "at most two stacks"),
    ],
)
def test_what_cannot_be_a_subgame(changes: dict[str, Any], message: str):
    with pytest.raises(ReproError, match=message):
        replace(random_subgame(0, 0, 5, SMALL), **changes)


@pytest.mark.parametrize(
    ("least", "shares"),
    [
        (200, [1 / 5] * 5),
        (800, [0, 0, 1 / 3, 1 / 3, 1 / 3]),
        (2_000, [0, 0, 1 / 3, 1 / 3, 1 / 3]),
        (4_000, [0, 0, 0, 1 / 2, 1 / 2]),
    ],
)
def test_small_pots_can_be_left_out(least: float, shares: list[float]):
    pots = np.array([random_subgame(0, n, 5, SMALL, least).pot for n in range(300)])
    assert pots.min() >= least
    # Only the smallest of all comes up again and again.
    assert (np.unique(pots, return_counts=True)[1] > 1).sum() == (least == 200)
    found = np.histogram(pots, [200, 201, 800, 4_000, 12_000, 39_900])[0] / 300
    np.testing.assert_allclose(found, shares, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("deck", [SMALL, Deck()])
def test_matchups_equal_the_matrix(deck: Deck):
    board = (0, 5, 10, 15, 3)
    ranges = np.random.default_rng(0).random((3, 2, len(deck.hands(board))))
    found = matchups(deck, np.array([board] * 3), ranges)
    np.testing.assert_allclose(found, ranges[:, ::-1] @ apart(deck.hands(board)), rtol=1e-9)
