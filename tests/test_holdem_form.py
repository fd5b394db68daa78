"""The exact engine of Hold'em games with one board, and CFR on it, against explicit deals and against OpenSpiel."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pyspiel
import pytest
import torch

from repro.algorithms.tabular import VARIANTS, solve, solver_of
from repro.engine.holdem_form import BoardSample, HoldemForm, all_boards, sample_boards
from repro.engine.sampling import SamplingEngine
from repro.errors import ReproError
from repro.evaluation import best_response, expected_value, nash_conv
from repro.games import load
from repro.games.isomorphism import Coding
from repro.policies import TabularPolicy, uniform
from tests.holdem_reference import Explicit, discounted, normalised, orbits
from tests.reference import policies_of, random_table

SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "fhp": ("fhp", {"ranks": 4, "suits": 2}),
    "three_suits": ("fhp", {"ranks": 3, "suits": 3}),
    "four_suits": ("fhp", {"ranks": 3, "suits": 4}),
    "one_suit": ("fhp", {"ranks": 13, "suits": 1}),
    "straights": ("fhp", {"ranks": 5, "suits": 2}),
    "flushes": ("fhp", {"ranks": 6, "suits": 2}),
    "no_raises": ("fhp_limit", {"ranks": 4, "suits": 2, "max_raises": (0, 0)}),
    "fractions": ("fhp_limit", {"ranks": 4, "suits": 2, "max_raises": (1, 2), "blinds": (0.3, 1.7), "bet": 0.25}),
    "equal_blinds": ("fhp", {"ranks": 4, "suits": 2, "blinds": (2.0, 2.0)}),
    "limit": ("fhp_limit", {"ranks": 4, "suits": 2}),
    "limit_four_cards": ("fhp_limit", {"ranks": 3, "suits": 3, "flop_cards": 4}),
    "nothing_left": ("fhp", {"ranks": 4, "suits": 2, "flop_cards": 4}),
    "fhp5": ("fhp5", {"ranks": 5, "suits": 2}),
    "fhp5_three_suits": ("fhp5", {"ranks": 3, "suits": 3}),
}


def game_of(key):
    name, parameters = SMALL[key]
    return load(name, **parameters)


def assert_close(ours, theirs, atol=1e-9, rtol=0.0):
    """Faster than `pytest.approx` on arrays."""
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=rtol, atol=atol)


def tables_of(game):
    """Of every kind of policy, and one whose rows sum to 1 only as float32 does."""
    yield from ((name, policy.table) for name, policy in policies_of(game))
    yield "float32", random_table(game, 3).float().double()


# -- explicit deals ----------------------------------------------------------------------------------------------------


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
            found = np.zeros(table.shape)
            form.evaluate(table, player, best_response=True, action_values=found)
            expected, _ = explicit.in_rows(best.q)
            assert_close(found, expected)


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


# -- samples of boards -------------------------------------------------------------------------------------------------


def as_share(game, sample):
    """A sample's share of every board, as all boards of an orbit are equally likely."""
    cards = game.cards
    least = orbits(combinations(range(cards.ranks * cards.suits), cards.board_cards[-1]), cards.suits)
    members = {board: [b for b, other in least.items() if other == board] for board in set(least.values())}
    share = dict.fromkeys(least, 0.0)
    for board, of in zip(sample.boards.tolist(), sample.share.tolist(), strict=True):
        same = members[least[tuple(board)]]
        share |= dict.fromkeys(same, of / len(same))
    return share


@pytest.mark.parametrize("key", ["three_suits", "four_suits", "straights", "limit", "fhp5"])
@pytest.mark.parametrize("size", [1, 4, 30])
def test_a_sample_equals_explicit_deals_on_its_boards(key, size):
    game = game_of(key)
    form = HoldemForm(game, sample_boards(game, size, torch.Generator().manual_seed(size)))
    assert form.sample.size == size
    assert float(form.sample.share.sum()) == pytest.approx(1, abs=1e-12)
    assert form.infosets.equal(form.infosets.unique())
    assert form.rows == len(form.infosets) == form.player_slice[1].stop
    owner = game.infoset_player[form.infosets]
    assert [int((owner == p).sum()) for p in range(2)] == [s.stop - s.start for s in form.player_slice]
    whole = random_table(game, 6)
    table, explicit = whole[form.infosets], Explicit(game, form.infosets, as_share(game, form.sample))
    strategy, values, reach = explicit.strategy(table), form.action_values(table), form.own_reach(table)
    for node, row in enumerate(form.first_row.tolist()):
        if game.tree.player[node] >= 0:
            assert int(game.infoset_node[form.infosets[row]]) == node
    for player in range(2):
        mine = form.player_slice[player]
        exact, best = (explicit.sweep(strategy, player, best=b) for b in (False, True))
        assert float(form.expected_values(table)[player]) == pytest.approx(exact.value, abs=1e-9)
        assert float(form.best_response_values(table)[player]) == pytest.approx(best.value, abs=1e-9)
        expected, written = explicit.in_rows(exact.q)
        assert written[mine].all()
        assert_close(values[mine], expected[mine])
        expected, _ = explicit.in_rows(exact.reach, own=True)
        assert_close(reach[mine], expected[mine], 1e-12)
        value, response = form.best_response(table, player)
        assert value == pytest.approx(best.value, abs=1e-9)
        assert float(form.expected_values(response)[player]) == pytest.approx(best.value, abs=1e-9)


@pytest.mark.parametrize("key", ["three_suits", "limit"])
def test_values_are_linear_in_the_shares_of_boards(key):
    """So an estimate's mean over samples is the value, and only responses before the board tell one from the other."""
    game = game_of(key)
    every, whole, table = all_boards(game), HoldemForm(game), random_table(game, 9)
    values, responses = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    of_actions = torch.zeros_like(table)
    for board, share in zip(every.boards, every.share, strict=True):
        form = HoldemForm(game, BoardSample(board[None], torch.ones(1, dtype=torch.float64), 1))
        values += share * form.expected_values(table[form.infosets])
        responses += share * form.best_response_values(table[form.infosets])
        of_actions[form.infosets] += share * form.action_values(table[form.infosets])
    torch.testing.assert_close(values, whole.expected_values(table), rtol=0, atol=1e-9)
    torch.testing.assert_close(of_actions, whole.action_values(table), rtol=0, atol=1e-9)
    assert bool((responses > whole.best_response_values(table)).all())


def test_boards_are_drawn_in_proportion():
    game, n = load("fhp", ranks=4, suits=4), 40_000
    every, sample = all_boards(game), sample_boards(game, n, torch.Generator().manual_seed(3))
    assert torch.equal(sample.boards, every.boards)
    count = sample.share * n
    chi2 = float(((count - n * every.share) ** 2 / (n * every.share)).sum())
    # Twenty classes and more: their chi-square is about normal.
    degrees = len(every.boards) - 1
    assert degrees > 15
    assert abs(chi2 - degrees) < 4 * (2 * degrees) ** 0.5
    assert torch.equal(sample_boards(game, n, torch.Generator().manual_seed(3)).share, sample.share)


def test_samples_estimate_without_bias():
    """Expected values exactly so; a best response fits itself to the boards and is overestimated."""
    game, samples = load("fhp", ranks=5, suits=3), 300
    table, whole = random_table(game, 7), HoldemForm(game)
    generator = torch.Generator().manual_seed(5)
    estimates, responses = torch.zeros(samples, 2), torch.zeros(samples, 2)
    for i in range(samples):
        form = HoldemForm(game, sample_boards(game, 10, generator))
        rows = table[form.infosets]
        estimates[i], responses[i] = form.expected_values(rows), form.best_response_values(rows)
    assert estimates.sum(1).numpy() == pytest.approx(0, abs=1e-4)
    exact, error = whole.expected_values(table), estimates.std(0) / samples**0.5
    assert bool(((estimates.mean(0) - exact).abs() < 4 * error).all())
    assert bool((error > 0).all())
    above = responses.mean(0) - whole.best_response_values(table)
    assert bool((above > -4 * responses.std(0) / samples**0.5).all())


def test_replicates_are_nash_conv_on_boards_drawn_anew():
    """Three boards give ten samples of three, whose NashConvs are all that can come out."""
    game, n = game_of("three_suits"), 3000
    every = all_boards(game)
    boards, third = every.boards[[0, 3, 7]], torch.full((3,), 1 / 3, dtype=torch.float64)
    form = HoldemForm(game, BoardSample(boards, third, 3))
    table = random_table(game, 2)
    exact, found = form.nash_conv_replicates(table[form.infosets], n, np.random.default_rng(0))
    assert exact == pytest.approx(float(form.best_response_values(table[form.infosets]).sum()), abs=1e-9)
    times = np.zeros(n, int)
    for count in ((a, b, 3 - a - b) for a in range(4) for b in range(4 - a)):
        share = torch.tensor(count).double() / 3
        part = HoldemForm(game, BoardSample(boards[share > 0], share[share > 0], 3))
        value = float(part.best_response_values(table[part.infosets]).sum())
        same = abs(found - value) < 1e-9
        times += same
        probability = comb(3, count[0]) * comb(3 - count[0], count[1]) / 27
        assert same.mean() == pytest.approx(probability, abs=5 * (probability / n) ** 0.5)
    assert (times == 1).all()


def test_replicates_spread_as_samples_do():
    game, samples = load("fhp", ranks=5, suits=3), 120
    table, generator = random_table(game, 7), torch.Generator().manual_seed(6)
    values, spreads = np.zeros(samples), np.zeros(samples)
    for i in range(samples):
        form = HoldemForm(game, sample_boards(game, 40, generator))
        values[i], found = form.nash_conv_replicates(table[form.infosets], 50, np.random.default_rng(i))
        spreads[i] = found.std()
    assert 1 / 2 < spreads.mean() / values.std() < 2
    assert values.std() > 0


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def _threads_restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


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


# -- CFR ---------------------------------------------------------------------------------------------------------------

EXACT = ("cfr", "cfr_plus", "linear_cfr", "dcfr")


def settings_of(variant, alternating):
    config = replace(VARIANTS[variant], alternating=alternating)
    return config, {key: asdict(config)[key] for key in ("alpha", "beta", "gamma", "floor")}


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


@pytest.mark.parametrize("key", ["fhp", "three_suits", "straights", "fhp5"])
@pytest.mark.parametrize(("variant", "bound"), [("cfr", 0.1), ("cfr_plus", 0.02), ("linear_cfr", 0.03), ("dcfr", 0.01)])
def test_nash_conv_falls(key, variant, bound):
    """In big blinds."""
    game = game_of(key)
    curve = [nash_conv(game, p) / game.chips_per_unit for _, p in solve(game, variant, 300, every=100)]
    assert 0 < curve[2] < curve[1] < curve[0] < nash_conv(game, uniform(game)) / game.chips_per_unit
    assert curve[2] < bound


# -- OpenSpiel ---------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("key", "hands"), [("full", 200_000), ("three_suits", 100_000), ("limit", 100_000)])
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
