"""The exact engine of Hold'em games with one board, against explicit deals, OpenSpiel and sampled hands."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyspiel
import pytest
import torch

from repro.common.errors import ReproError
from repro.engine.holdem_form import BoardSample, HoldemForm, all_boards, sample_boards
from repro.engine.sampling import SamplingEngine
from repro.evaluation import best_response, expected_value, nash_conv
from repro.games import load
from repro.games.isomorphism import Coding
from repro.policies import TabularPolicy, uniform
from tests.helpers.draws import policies_of, random_table
from tests.helpers.reference_holdem import SMALL, Explicit, assert_close, game_of, orbits


def tables_of(game):
    """Of every kind of policy, and one whose rows sum to 1 only as float32 does."""
    yield from ((name, policy.table) for name, policy in policies_of(game))
    yield "float32", random_table(game, 3).float().double()


# -- explicit deals ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("key", SMALL)
def test_equals_explicit_deals(key):
    game = game_of(key)
    form, explicit = HoldemForm(game), Explicit(game)
    assert form.infosets.tolist() == list(range(game.infosets))
    assert form.histories == explicit.histories()
    for name, table in tables_of(game):
        strategy, action_values, reach = explicit.strategy(table), form.action_values(table), form.own_reach(table)
        for player in range(2):
            mine = game.player_slice[player]
            exact, best = (explicit.sweep(strategy, player, best=b) for b in (False, True))
            assert float(form.expected_values(table)[player]) == pytest.approx(exact.value, abs=1e-9), name
            assert float(form.best_response_values(table)[player]) == pytest.approx(best.value, abs=1e-9), name
            expected, written = explicit.in_rows(exact.q)
            assert written[mine].all()
            assert_close(action_values[mine], expected[mine])
            expected, _ = explicit.in_rows(exact.reach, own=True)
            assert_close(reach[mine], expected[mine], 1e-12)
            expected, _ = explicit.in_rows(exact.met)
            assert_close(form.others_reach(table, player)[mine], expected[mine], 1e-12)
            found = np.zeros(table.shape)
            form.evaluate(table, player, best_response=True, action_values=found)
            expected, _ = explicit.in_rows(best.q)
            assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["fhp", "three_suits", "limit", "fhp5"])
def test_a_best_response_wins_its_value_and_no_response_more(key):
    game = game_of(key)
    form, explicit = HoldemForm(game), Explicit(game)
    for _, table in tables_of(game):
        for player in range(2):
            value, response = form.best_response(table, player)
            assert explicit.sweep(explicit.strategy(response), player).value == pytest.approx(value, abs=1e-9)
            assert form.best_response_values(table)[player] == pytest.approx(value, abs=1e-9)
            mine, theirs = game.player_slice[player], game.player_slice[1 - player]
            assert torch.equal(response[theirs], table[theirs])
            assert bool(((response[mine] == 0) | (response[mine] == 1)).all())
            assert bool((response[mine].sum(1) == 1).all())
            assert bool((response[~game.legal] == 0).all())
            other = table.clone()
            other[mine] = random_table(game, 8)[mine]
            assert float(form.expected_values(other)[player]) <= value + 1e-9


def test_evaluation_is_the_form():
    game = game_of("fhp")
    policy, explicit = TabularPolicy(random_table(game, 5)), Explicit(game)
    strategy = explicit.strategy(policy.table)
    values = [explicit.sweep(strategy, player).value for player in range(2)]
    assert expected_value(game, policy) == pytest.approx(values, abs=1e-9)
    assert nash_conv(game, policy) == pytest.approx(explicit.nash_conv(strategy), abs=1e-9)
    for player in range(2):
        value, response = best_response(game, policy, player)
        assert value == pytest.approx(explicit.sweep(strategy, player, best=True).value, abs=1e-9)
        assert expected_value(game, response)[player] == pytest.approx(value, abs=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "drawn"), [("fhp", 2), ("fhp5", 2)])
def test_single_boards_of_the_full_deck_equal_explicit_deals(name, drawn):
    """With all 52 cards: own reach, and what actions are worth on a board, on average and to a best response."""
    game = load(name)
    for number in range(drawn):
        form = HoldemForm(game, sample_boards(game, 1, torch.Generator().manual_seed(number)))
        ((*board,),) = form.sample.boards.tolist()
        explicit = Explicit(game, form.infosets, {tuple(board): 1.0})
        legal = game.legal_at(form.infosets)
        table = torch.rand(legal.shape, generator=torch.Generator().manual_seed(number), dtype=torch.float64) * legal
        table[torch.arange(len(table)) % 3 == 0, 2] = 0
        table /= table.sum(1, keepdim=True)
        strategy, reach, values = explicit.strategy(table), form.own_reach(table), form.action_values(table)
        for player in range(2):
            found = np.zeros(table.shape)
            form.evaluate(table, player, best_response=True, action_values=found)
            for best, theirs in ((False, values.numpy()), (True, found)):
                exact = explicit.sweep(strategy, player, best)
                expected, there = explicit.in_rows({h: q for h, q in exact.q.items() if "/" in h})
                assert there.any()
                assert_close(theirs[there], expected[there])
            expected, there = explicit.in_rows(exact.reach, own=True)
            assert there.sum() == form.player_slice[player].stop - form.player_slice[player].start
            assert_close(reach[there], expected[there], 1e-12)


def test_games_without_one_board_are_refused():
    for name in ("leduc", "hunl_pot"):
        with pytest.raises(ReproError, match="one board"):
            HoldemForm(load(name))


# -- suits -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("key", ["three_suits", "four_suits", "limit", "limit_four_cards"])
def test_suits_may_be_renamed(key):
    """What a hand plays is looked up with its suits, and its board's, renamed at random; each in its own way."""
    game = game_of(key)
    plain, renamed = Explicit(game), Explicit(game, rename=np.random.default_rng(1))
    form = HoldemForm(game)
    for _, table in tables_of(game):
        ours, theirs = plain.strategy(table), renamed.strategy(table)
        assert all((ours[h][plain.row[h] >= 0] == theirs[h][plain.row[h] >= 0]).all() for h in ours)
        for player in range(2):
            expected = renamed.sweep(theirs, player).value, renamed.sweep(theirs, player, best=True).value
            assert float(form.expected_values(table)[player]) == pytest.approx(expected[0], abs=1e-9)
            assert float(form.best_response_values(table)[player]) == pytest.approx(expected[1], abs=1e-9)


@pytest.mark.parametrize("key", ["three_suits", "four_suits", "flushes", "fhp5_three_suits"])
def test_every_board_drawn_once_is_all_boards(key):
    """In any order, with any names of suits."""
    game, generator = game_of(key), np.random.default_rng(2)
    cards, k = game.cards, game.cards.board_cards[-1]
    boards = generator.permutation(list(combinations(range(cards.ranks * cards.suits), k)))
    suit = generator.permuted(np.tile(np.arange(cards.suits), (len(boards), 1)), axis=1)
    renamed = generator.permuted(
        boards - boards % cards.suits + np.take_along_axis(suit, boards % cards.suits, 1), axis=1
    )
    coding = Coding(cards.ranks, cards.suits, (k,), private=0)
    codes, count = coding.encode(torch.from_numpy(renamed)).unique(return_counts=True)
    sample, every = BoardSample(coding.decode(codes), count.double() / len(boards), len(boards)), all_boards(game)
    assert torch.equal(sample.boards, every.boards)
    assert_close(sample.share, every.share, 1e-15)
    least = orbits([tuple(b) for b in boards.tolist()], cards.suits)
    classes = {board: sum(other == board for other in least.values()) for board in set(least.values())}
    assert len(every.boards) == len(classes)
    for board, share in zip(every.boards.tolist(), every.share.tolist(), strict=True):
        assert share == pytest.approx(classes[least[tuple(board)]] / len(boards), abs=1e-15)
    whole, table = HoldemForm(game), random_table(game, 4)
    assert HoldemForm(game, sample).infosets.equal(whole.infosets)
    for question in ("expected_values", "best_response_values", "action_values", "own_reach"):
        ours, theirs = (getattr(form, question)(table) for form in (HoldemForm(game, sample), whole))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_threads_restored")
@pytest.mark.parametrize(("key", "boards"), [("flushes", None), ("four_suits", None), ("limit", 2), ("fhp5", 1)])
def test_results_do_not_depend_on_threads(key, boards):
    game = game_of(key)
    sample = None if boards is None else sample_boards(game, boards, torch.Generator().manual_seed(1))
    answers = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        form = HoldemForm(game, sample)
        table = random_table(game, 1)[form.infosets]
        answers.append(
            [
                form.expected_values(table), form.best_response_values(table), form.own_reach(table),
                form.action_values(table), *(form.best_response(table, player)[1] for player in range(2)),
            ]
        )  # fmt: skip
        if sample is not None:
            exact, found = form.nash_conv_replicates(table, 20, np.random.default_rng(2))
            answers[-1].append(torch.tensor([exact, *found], dtype=torch.float64))
    for other in answers[1:]:
        assert all(torch.equal(a, b) for a, b in zip(answers[0], other, strict=True))


# -- OpenSpiel ---------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "parameters",
    [
        {"ranks": 7, "suits": 1, "max_raises": (2, 2)},
        {"ranks": 4, "suits": 2, "max_raises": (0, 1)},
    ],
)
def test_nash_conv_of_uniform_equals_openspiel(parameters):
    """`fhp_limit` on seven or eight cards; OpenSpiel deals them one by one, which makes more too many histories."""
    game = load("fhp_limit", **parameters)
    theirs = pyspiel.load_game(
        "universal_poker",
        {
            "betting": "limit",
            "bettingAbstraction": "fcpa",
            "numPlayers": 2,
            "numRounds": 2,
            "blind": "50 100",
            "raiseSize": "100 100",
            "maxRaises": " ".join(map(str, parameters["max_raises"])),
            "firstPlayer": "1 2",
            "numRanks": parameters["ranks"],
            "numSuits": parameters["suits"],
            "numHoleCards": 2,
            "numBoardCards": "0 3",
        },
    )
    expected = pyspiel.nash_conv(theirs, pyspiel.UniformRandomPolicy(theirs))
    assert nash_conv(game, uniform(game)) == pytest.approx(expected, abs=1e-9)


# -- sampled hands -----------------------------------------------------------------------------------------------------


def by_strength(game, player):
    """The uniform strategy, but `player` never folds, and raises the more often the stronger her hand is.

    Before the board that is the sum of ranks, with it the best five cards; rows are in the order of the game.
    """
    table, cards = game.uniform.clone(), game.cards
    for r in range(2):
        held = cards.cards_of_cells(r, torch.arange(cards.cells[r]))
        strength = (held // cards.suits).sum(1) if r == 0 else cards.strength(held)
        order = strength.argsort(stable=True)
        bold = torch.empty(len(held), dtype=torch.float64)
        bold[order] = torch.linspace(0.05, 0.95, len(held), dtype=torch.float64)
        for node in range(game.tree.nodes):
            if game.tree.player[node] != player or game.tree.round[node] != r:
                continue
            first = int(game.first_infoset[node])
            rows = table[first : first + len(held)]
            rows[:] = 0
            may_raise, may_call = bool(game.tree.legal[node, 2]), bool(game.tree.legal[node, 1])
            rows[:, 2] = bold if may_call else 1.0
            rows[:, 1] = 1.0
            if not may_raise:
                rows[:, 2] = 0
            if not may_call:
                rows[:, 1] = 0
            else:
                rows[:, 1] -= rows[:, 2]
    return TabularPolicy(table)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "hands"),
    [
        ("three_suits", 100_000),
        ("limit", 100_000),
        pytest.param("full", 200_000, marks=pytest.mark.exhaustive),
    ],
)
def test_sampled_hands_win_the_exact_value(key, hands):
    """Neither value is that of equal players: one is uniform, the other never folds and bets its strength."""
    game = load("fhp") if key == "full" else game_of(key)
    form, engine = HoldemForm(game), SamplingEngine(game)
    for player in range(2):
        bold = by_strength(game, player)
        exact = form.expected_values(bold.table)
        assert float(exact.sum()) == pytest.approx(0, abs=1e-9)
        won = engine.play([bold, bold], hands, torch.Generator().manual_seed(player)).double()
        error = float(won.std()) / hands**0.5
        assert abs(float(exact[player])) > 20 * error
        assert float(won.mean()) == pytest.approx(float(exact[0]), abs=4 * error)
