"""Head-to-head play: sampled against exact, and duplicate deals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from repro.engine.sampling import SamplingEngine
from repro.evaluation import expected_value
from repro.evaluation.head_to_head import MatchResult, exact, play_match
from repro.evaluation.units import milli_units, unit_name
from repro.games import Game, load
from repro.games.betting import CALL, FOLD, RAISE, BettingRound, BettingRules
from repro.games.one_card import one_card_each
from repro.policies import TabularPolicy, deterministic_policy, random_policy, uniform
from tests.helpers.draws import seeded
from tests.helpers.operations import Recorded
from tests.helpers.policies import average_of, ensemble_of, preferring, strategies_that_differ

GAMES: list[tuple[str, dict[str, Any]]] = [("kuhn", {}), ("leduc", {}), ("leduc", {"ranks": 4, "max_raises": 1})]


def near(game: Game, policy: TabularPolicy, share: float = 0.1) -> TabularPolicy:
    """`policy`, mixed with a little of the uniform one."""
    return TabularPolicy((1 - share) * policy.table + share * game.uniform)


# -- exact values ----------------------------------------------------------------------------------------------------


def test_exact_value_by_hand():
    """Whoever checks or folds loses the ante to whoever always bets."""
    for ante in (1.0, 3.0):
        game = load("leduc", ante=ante)
        assert exact(game, preferring(game, RAISE, CALL), preferring(game, FOLD, CALL)) == pytest.approx(ante)


@pytest.mark.parametrize(("name", "parameters"), GAMES)
def test_exact_value_is_antisymmetric_and_the_mean_over_seatings(name, parameters):
    game = load(name, **parameters)
    a, b = random_policy(game, seeded(1)), random_policy(game, seeded(2))
    assert exact(game, a, b) == -exact(game, b, a)
    assert exact(game, a, b) != 0
    assert exact(game, a, a) == 0
    first = game.player_slice[0]
    seatings = []
    for mine, other in ((a, b), (b, a)):
        table = other.table.clone()
        table[first] = mine.table[first]
        seatings.append(expected_value(game, TabularPolicy(table))[0])
    assert exact(game, a, b) == pytest.approx((seatings[0] - seatings[1]) / 2, abs=1e-12)


class OfOneSeat:
    """A policy that must not be asked about the other player's infosets."""

    def __init__(self, game: Game, policy: TabularPolicy, player: int) -> None:
        self._game, self._policy, self._player = game, policy, player

    def probabilities(self, infosets: Tensor) -> Tensor:
        assert bool((self._game.infoset_player[infosets] == self._player).all())
        return self._policy.probabilities(infosets)


def test_a_player_may_be_one_policy_per_seat():
    game = load("leduc")
    a, b = random_policy(game, seeded(1)), random_policy(game, seeded(2))
    seats = [OfOneSeat(game, a, 0), OfOneSeat(game, a, 1)]
    assert exact(game, seats, b) == exact(game, a, b)
    assert exact(game, b, tuple(seats)) == exact(game, b, a)
    assert play_match(game, seats, b, 200, seeded(0)) == play_match(game, a, b, 200, seeded(0))
    with pytest.raises(ValueError, match="unpack"):
        exact(game, [a], b)


# -- matches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parameters"), GAMES)
def test_a_match_agrees_with_the_exact_value(name, parameters):
    game = load(name, **parameters)
    for seed in range(5):
        a, b = random_policy(game, seeded(seed)), random_policy(game, seeded(100 + seed))
        played = play_match(game, a, b, 40_000, seeded(seed))
        assert played.hands == 40_000
        assert 0 < played.standard_error < 0.1
        assert abs(played.mean - exact(game, a, b)) < 4 * played.standard_error


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_the_interval_covers_the_exact_value_as_often_as_it_says(name):
    game, matches = load(name), 300
    a, b = near(game, random_policy(game, seeded(3)), 0.5), near(game, random_policy(game, seeded(4)), 0.5)
    value, source = exact(game, a, b), seeded(5)
    covered = 0
    for _ in range(matches):
        low, high = play_match(game, a, b, 1000, source).interval
        covered += low <= value <= high
    # 95% within three standard deviations.
    assert abs(covered / matches - 0.95) < 3 * math.sqrt(0.95 * 0.05 / matches)


def test_match_is_the_statistics_of_its_deals():
    """Batches change neither the sums nor what is drawn: this repeats the draws with the engine alone."""
    game, batch, hands = load("leduc"), 300, 2000
    a, b = random_policy(game, seeded(1)), random_policy(game, seeded(2))
    so_far: list[MatchResult] = []
    played = play_match(game, a, b, hands, seeded(3), batch, so_far.append)
    assert [m.hands for m in so_far] == [600, 1200, 1800, 2000]
    assert so_far[-1] == played

    engine, source, pairs = SamplingEngine(game), seeded(3), []
    for deals in (300, 300, 300, 100):
        dealt = engine.deal(deals, source)
        pairs.append((engine.play([a, b], dealt, source) - engine.play([b, a], dealt, source)).double() / 2)
    x = torch.cat(pairs)
    assert played.mean == pytest.approx(float(x.mean()), abs=1e-12)
    assert played.standard_error == pytest.approx(float(x.std()) / math.sqrt(1000), rel=1e-9)
    low, high = played.interval
    assert (high - played.mean) / played.standard_error == pytest.approx(1.959964, abs=1e-6)
    assert played.mean - low == pytest.approx(high - played.mean)


def test_the_same_deals_are_played_twice():
    game = load("leduc")
    engine = SamplingEngine(game)
    deals = engine.deal(500, seeded(0))
    assert len(deals) == 500
    # No draw decides between deterministic strategies.
    a, b = deterministic_policy(game, seeded(1)), deterministic_policy(game, seeded(2))
    first, again = (engine.play([a, b], deals, seeded(seed)) for seed in (1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, engine.play([a, b], engine.deal(500, seeded(1)), seeded(1)))
    assert torch.equal(engine.play([a, b], 500, seeded(0)), first)


def test_deterministic_strategies_cancel_exactly():
    """Against itself, every deal of a strategy without luck of its own is worth zero; exchanged players, the sign."""
    game = load("leduc")
    a, b = deterministic_policy(game, seeded(1)), deterministic_policy(game, seeded(2))
    itself = play_match(game, a, a, 2000, seeded(0))
    assert (itself.mean, itself.standard_error) == (0, 0)
    one, other = play_match(game, a, b, 2000, seeded(0)), play_match(game, b, a, 2000, seeded(0))
    assert one.mean == -other.mean != 0
    assert one.standard_error == other.standard_error > 0
    sure = play_match(game, preferring(game, RAISE, CALL), preferring(game, FOLD, CALL), 2000, seeded(0))
    assert (sure.mean, sure.standard_error) == (1, 0)


def test_self_play_is_worth_nothing():
    game = load("leduc")
    policy = random_policy(game, seeded(1))
    played = play_match(game, policy, policy, 200_000, seeded(2))
    assert abs(played.mean) < 4 * played.standard_error


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_duplicate_deals_narrow_the_interval(name):
    """Two strategies that nearly agree: as many hands of independent deals say much less."""
    game, hands = load(name), 40_000
    base = deterministic_policy(game, seeded(6))
    a, b = near(game, base), near(game, base, 0.15)
    duplicate = play_match(game, a, b, hands, seeded(0))
    engine, source = SamplingEngine(game), seeded(1)
    won = torch.cat([engine.play([a, b], hands // 2, source), -engine.play([b, a], hands // 2, source)]).double()
    value, independent = exact(game, a, b), float(won.std()) / math.sqrt(hands)
    assert abs(float(won.mean()) - value) < 4 * independent
    assert abs(duplicate.mean - value) < 4 * duplicate.standard_error
    assert duplicate.standard_error < 0.8 * independent


def test_many_hands_take_no_more_memory_than_a_batch():
    game, batch = load("kuhn"), 1 << 14
    a, b = random_policy(game, seeded(1)), random_policy(game, seeded(2))
    with Recorded() as recorded:
        played = play_match(game, a, b, 1_000_000, seeded(0), batch)
    assert played.hands == 1_000_000
    assert abs(played.mean - exact(game, a, b)) < 4 * played.standard_error
    assert recorded.largest <= batch * game.num_actions


@pytest.mark.parametrize("hands", [0, -2, 3])
def test_hands_come_in_pairs(hands):
    game = load("kuhn")
    with pytest.raises(ValueError, match="even and at least 2"):
        play_match(game, uniform(game), uniform(game), hands, seeded(0))


def test_one_deal_has_no_interval():
    game = load("kuhn")
    played = play_match(game, uniform(game), uniform(game), 2, seeded(0))
    assert math.isnan(played.standard_error)
    assert all(math.isnan(bound) for bound in played.interval)


def test_units_of_ante_and_blind_games():
    leduc = load("leduc", ante=4.0)
    assert (milli_units(leduc, 2.0), unit_name(leduc)) == (500.0, "mA/g")
    rules = BettingRules((1, 2), (BettingRound(bet=2, max_raises=2),))
    blinds = Game("blinds", {}, rules, one_card_each(3, 1, (0,), True), chips_per_unit=2.0)
    assert (milli_units(blinds, 2.0), unit_name(blinds)) == (1000.0, "mbb/g")


def test_an_ensemble_is_worth_what_its_average_is():
    game = load("leduc")
    tables = strategies_that_differ(game)
    average = TabularPolicy(torch.cat([average_of(game, tables, player) for player in range(2)]))
    ensemble = [ensemble_of(game, tables) for _ in range(2)]
    opponent = random_policy(game, seeded(3))
    value = exact(game, average, opponent)
    cases: list[tuple[Any, Any, float]] = [
        (ensemble, opponent, value), (opponent, ensemble, -value), (ensemble, ensemble, 0.0)
    ]  # fmt: skip
    for a, b, expected in cases:
        played = play_match(game, a, b, 300_000, seeded(4))
        assert abs(played.mean - expected) < 4 * played.standard_error
        # The average without the reach weights, as if a member were drawn anew at every decision, is another player.
        anew = TabularPolicy(torch.einsum("m,mia->ia", torch.arange(1.0, 7).double() / 21, torch.stack(tables)))
        assert abs(exact(game, anew, opponent) - value) > 8 * played.standard_error
