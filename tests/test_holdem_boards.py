"""The exact engine of Hold'em on samples of boards: against explicit deals, and as an estimate of the whole game."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
import torch

from repro.engine.holdem_form import BoardSample, HoldemForm, all_boards, sample_boards
from repro.games import load
from tests.helpers.draws import random_table
from tests.helpers.reference_holdem import Explicit, assert_close, game_of, orbits


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
