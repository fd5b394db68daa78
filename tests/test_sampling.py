"""The sampling engine against the exact one: unbiased, counted, repeatable."""

from itertools import product
from math import sqrt
from typing import Any

import pytest
import torch

from repro.engine.sampling import SamplingEngine, sample_actions
from repro.engine.sequence_form import SequenceForm
from repro.games import load
from repro.policies import TabularPolicy, deterministic_policy, random_policy, uniform
from repro.policies.base import Ensemble
from tests.helpers.draws import random_table, seeded
from tests.helpers.policies import seated
from tests.helpers.reference_poker import TINY_GAMES, Reference, infosets_of, strategy_of


def mild_table(game, seed):
    """Random, with no very rare actions: those make sums that a standard error does not describe."""
    return (game.uniform + random_table(game, seed)) / 2


def assert_mean(samples, exact, errors=4):
    """The mean of independent samples is `exact` up to `errors` standard errors (and float32 rounding)."""
    samples = samples.double()
    error = float(samples.std()) / sqrt(len(samples))
    assert abs(float(samples.mean()) - exact) <= errors * error + 1e-6


def assert_frequencies(infosets, expected, n):
    """Counts of `infosets` in `n` traversals, each meeting an infoset at most once, against probabilities."""
    count = torch.bincount(infosets, minlength=len(expected)).double()
    spread = (n * expected * (1 - expected)).clamp(min=0).sqrt()
    # Where an infoset is expected less than once, a few visits more are not a surprise; but impossible is impossible.
    assert bool(((count - n * expected).abs() <= 5 * spread + 3).all())
    assert bool((count[expected == 0] == 0).all())


# -- external sampling -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize(("name", "parameters"), TINY_GAMES)
def test_every_game_is_sampled_without_bias(name, parameters, traverser):
    """Values, regrets, visits and nodes touched on every small game, against plain Python and the exact engine."""
    n, batches = 20_000, 50
    game, reference = load(name, **parameters), Reference(name, **parameters)
    table = mild_table(game, 21)
    exact = reference.sweep(strategy_of(game, table))
    engine, source = SamplingEngine(game), seeded(traverser)
    drawn = [engine.external_sampling(TabularPolicy(table), traverser, n // batches, source) for _ in range(batches)]
    values = torch.cat([d.values for d in drawn])
    assert values.shape == (n,)
    assert_mean(values, exact.value * (1 - 2 * traverser))
    touched = torch.tensor([float(d.nodes_touched) for d in drawn])
    assert_mean(touched, n // batches * exact.touched[traverser])

    mine, theirs = game.player_slice[traverser], game.player_slice[1 - traverser]
    names = list(infosets_of(game))
    for samples, visits, owner in (
        ("advantages", exact.visits_as_traverser, mine),
        ("opponent_strategies", exact.visits_as_other, theirs),
    ):
        infosets = torch.cat([getattr(d, samples).infosets for d in drawn])
        assert bool(((infosets >= owner.start) & (infosets < owner.stop)).all())
        expected = torch.tensor([visits[i] for i in names], dtype=torch.float64)
        expected[: owner.start] = expected[owner.stop :] = 0
        assert_frequencies(infosets, expected, n)

    infosets = torch.cat([d.advantages.infosets for d in drawn])
    sampled = torch.cat([d.advantages.targets for d in drawn]).double()
    assert bool((sampled[~game.legal[infosets]] == 0).all())
    assert check_regrets(game, table, infosets, sampled, n) >= 2


def check_regrets(game, table, infosets, sampled, n):
    """Sums of sampled advantages per infoset over `n` traversals against exact regrets, within 5 standard errors.

    Standard errors estimated from a few samples mean nothing; returns how many infosets had enough.
    """
    values = SequenceForm(game).action_values(table)
    regrets = (values - (table * values).sum(1, keepdim=True)) * game.legal
    mean = torch.zeros_like(regrets).index_add_(0, infosets, sampled) / n
    squares = torch.zeros_like(regrets).index_add_(0, infosets, sampled**2) / n
    error = ((squares - mean**2).clamp(min=0) / n).sqrt()
    often = torch.bincount(infosets, minlength=game.infosets) >= 300
    assert bool(((mean - regrets).abs()[often] <= 5 * error[often] + 1e-6).all())
    return int(often.sum())


@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_regrets_with_many_samples(name, traverser):
    game, n = load(name), 100_000
    table = mild_table(game, 4)
    samples = SamplingEngine(game).external_sampling(TabularPolicy(table), traverser, n, seeded(8)).advantages
    compared = check_regrets(game, table, samples.infosets, samples.targets.double(), n)
    # Enough of the traverser's infosets for the comparison to mean something.
    assert compared > 0.75 * game.infosets / 2


def test_strategy_samples_are_the_policy():
    game = load("leduc")
    policy = random_policy(game, seeded(2))
    for traverser in range(2):
        samples = SamplingEngine(game).external_sampling(policy, traverser, 500, seeded(3)).opponent_strategies
        assert samples.targets.dtype == torch.float32
        assert torch.equal(samples.targets, policy.table[samples.infosets].float())


def test_strategy_samples_are_proportional_to_own_reach():
    """Leduc's deals are symmetric, so at betting nodes of round 1 the owner's reach alone makes the frequency."""
    game, n = load("leduc"), 60_000
    table = random_table(game, 6)
    reach = SequenceForm(game).own_reach(table)
    for traverser in range(2):
        drawn = SamplingEngine(game).external_sampling(TabularPolicy(table), traverser, n, seeded(5))
        first = (game.infoset_player == 1 - traverser) & (game.tree.round[game.infoset_node] == 0)
        expected = torch.where(first, reach / 3, 0)
        infosets = drawn.opponent_strategies.infosets
        assert_frequencies(infosets[first[infosets]], expected, n)


@pytest.mark.parametrize("traverser", [0, 1])
def test_passing_the_maximum_up_is_playing_best_against_what_was_sampled(traverser):
    """Brute force: of all pure strategies of the traverser, the best per deal; the opponent's draws are the same."""
    game, n = load("kuhn"), 200
    table, best = random_table(game, 3), torch.full((n,), -torch.inf)
    own = game.player_slice[traverser]
    # By histories, not by cards: the traverser's decisions of one deal are made knowing it.
    nodes = game.infoset_node[own].unique().tolist()
    for actions in product(*([a for a in range(game.num_actions) if game.tree.legal[node, a]] for node in nodes)):
        for node, action in zip(nodes, actions, strict=True):
            at = (game.infoset_node == node).nonzero().flatten()
            table[at] = torch.nn.functional.one_hot(torch.tensor(action), game.num_actions).double()
        drawn = SamplingEngine(game).external_sampling(TabularPolicy(table), traverser, n, seeded(5))
        best = torch.maximum(best, drawn.values)
    maximum = SamplingEngine(game).external_sampling(TabularPolicy(table), traverser, n, seeded(5), True)
    assert torch.equal(maximum.values, best)
    # The regrets are still those of the strategy.
    regrets, strategy = maximum.advantages.targets, table[maximum.advantages.infosets].float()
    torch.testing.assert_close((regrets * strategy).sum(1), torch.zeros(len(regrets)))


@pytest.mark.parametrize("traverser", [0, 1])
def test_all_branches_of_a_traversal_see_one_board(traverser):
    game, decisions = load("leduc"), 0
    for seed in range(5):
        drawn = SamplingEngine(game).external_sampling(uniform(game), traverser, 1, seeded(seed))
        met = torch.cat([drawn.advantages.infosets, drawn.opponent_strategies.infosets])
        late = met[game.tree.round[game.infoset_node[met]] == 1]
        assert len(game.infoset_board[late].unique()) == 1
        decisions += len(late)
    assert decisions > 25


def passive_table(game):
    """Check or fold, always."""
    table = torch.zeros(game.legal.shape, dtype=torch.float64)
    fold = game.legal[:, 0]
    table[fold, 0] = 1
    table[~fold, 1] = 1
    return table


def raising_table(game):
    """Raise while allowed, then call."""
    table = torch.zeros(game.legal.shape, dtype=torch.float64)
    can = game.legal[:, 2]
    table[can, 2] = 1
    table[~can, 1] = 1
    return table


def calling_table(game):
    return torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64).repeat(game.infosets, 1)


@pytest.mark.parametrize(
    ("name", "parameters", "make", "traverser", "histories"),
    [
        # Root, "c", "cc", "r", "rf".
        ("kuhn", {}, passive_table, 0, 5),
        # Root, "c", "cc", "cr", "crf".
        ("kuhn", {}, passive_table, 1, 5),
        # Root, "c", "cr", "crf", "crc", "r", "rc".
        ("kuhn", {}, raising_table, 0, 7),
        # Root, "r", "rf", "rc".
        ("kuhn", {}, raising_table, 1, 4),
        # Root, "c", "r"; twice a second round with its root, "c", "cc", "r", "rc".
        ("leduc", {"max_raises": 1}, calling_table, 0, 3 + 2 * 5),
        # Root, "c", "cr"; the second rounds after "cc" and "crc", as above.
        ("leduc", {"max_raises": 1}, calling_table, 1, 3 + 2 * 5),
        # Root, "c"; root, "c", "cc".
        ("leduc", {"max_raises": 0}, calling_table, 0, 5),
    ],
)
def test_nodes_touched_by_hand(name, parameters, make, traverser, histories):
    game = load(name, **parameters)
    drawn = SamplingEngine(game).external_sampling(TabularPolicy(make(game)), traverser, 50, seeded(0))
    assert drawn.nodes_touched == 50 * histories


def test_traverser_policy_weights_the_value_but_not_the_visits():
    game = load("kuhn")
    engine = SamplingEngine(game)
    for traverser in range(2):
        mine = game.player_slice[traverser]
        folding, other = game.uniform.clone(), game.uniform.clone()
        folding[mine], other[mine] = passive_table(game)[mine], calling_table(game)[mine]
        drawn = [engine.external_sampling(TabularPolicy(t), traverser, 200, seeded(9)) for t in (folding, other)]
        assert drawn[0].nodes_touched == drawn[1].nodes_touched
        assert torch.equal(drawn[0].advantages.infosets, drawn[1].advantages.infosets)
        # The chosen action has no regret, and everything else is measured against it.
        for table, d in zip((folding, other), drawn, strict=True):
            chosen = table[d.advantages.infosets] == 1
            assert bool((d.advantages.targets[chosen] == 0).all())
        assert bool((drawn[0].advantages.targets != drawn[1].advantages.targets).any())


@pytest.mark.parametrize("traverser", [0, 1])
def test_same_seed_same_samples(traverser):
    game = load("leduc")
    policy, engine = random_policy(game, seeded(1)), SamplingEngine(game)
    first, again, other = (engine.external_sampling(policy, traverser, 100, seeded(s)) for s in (7, 7, 8))
    for a, b in ((first.advantages, again.advantages), (first.opponent_strategies, again.opponent_strategies)):
        assert torch.equal(a.infosets, b.infosets)
        assert torch.equal(a.targets, b.targets)
    assert torch.equal(first.values, again.values)
    assert first.nodes_touched == again.nodes_touched
    assert not torch.equal(first.values, other.values)


# -- play --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parameters"), TINY_GAMES)
def test_play_is_unbiased(name, parameters):
    game = load(name, **parameters)
    first, second = random_table(game, 31), random_table(game, 32)
    won = SamplingEngine(game).play([TabularPolicy(first), TabularPolicy(second)], 10_000, seeded(12))
    assert won.shape == (10_000,)
    assert_mean(won, float(SequenceForm(game).expected_values(seated(game, first, second))[0]))


def test_play_of_known_hands():
    """Both always raise: every Leduc hand is worth 13 chips, or is a tie."""
    game = load("leduc")
    policy = TabularPolicy(raising_table(game))
    won = SamplingEngine(game).play([policy, policy], 5000, seeded(0))
    assert set(won.tolist()) == {-13.0, 0.0, 13.0}
    # The same rank on both sides: one of the five cards left.
    assert_mean((won == 0).float(), 1 / 5)
    passive = TabularPolicy(passive_table(game))
    assert set(SamplingEngine(game).play([policy, passive], 100, seeded(0)).tolist()) == {1.0}
    assert set(SamplingEngine(game).play([passive, policy], 100, seeded(0)).tolist()) == {-1.0}


def test_play_repeats_with_the_seed():
    game = load("leduc")
    policies = [uniform(game), deterministic_policy(game, seeded(0))]
    engine = SamplingEngine(game)
    first, again, other = (engine.play(policies, 200, seeded(s)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


class Mixture(Ensemble):
    """Draws one of several tables per hand, as the trajectory sampling of SD-CFR does."""

    def __init__(self, tables):
        self.tables = torch.stack(tables)

    def per_hand(self, hands, generator):
        member = torch.randint(len(self.tables), (hands,), generator=generator)
        return lambda infosets, hand: self.tables[member[hand], infosets]


@pytest.mark.parametrize("seat", [0, 1])
def test_play_keeps_to_one_strategy_per_hand(seat):
    game = load("leduc")
    opponent = random_table(game, 3)
    members = [raising_table(game), passive_table(game)]
    ensemble, other = Mixture(members), TabularPolicy(opponent)
    policies: list[Any] = [ensemble, other] if seat == 0 else [other, ensemble]
    won = SamplingEngine(game).play(policies, 40_000, seeded(4))
    tree = SequenceForm(game)

    def value(table):
        return float(tree.expected_values(seated(game, *((table, opponent) if seat == 0 else (opponent, table))))[0])

    mean = sum(value(table) for table in members) / 2
    assert_mean(won, mean)
    # Mixing anew at every decision would be another strategy, and visibly so.
    assert abs(value(sum(members) / 2) - mean) > 0.1


# -- single actions ----------------------------------------------------------------------------------------------------

ROWS = torch.tensor(
    [
        [0, 1, 0],
        [0, 0, 1],
        [1, 0, 0],
        [0.5, 0, 0.5],
        [0, 0.3, 0.7],
        [0.7, 0.3, 0],
        [1e-8, 1 - 1e-8, 0],
        [0, 1e-30, 0],
        # Rows that do not sum to one exactly, as networks give.
        [0.1, 0.2, 0.7000001],
        [0.3333333, 0.3333333, 0],
        [0, 0.9999999, 0],
    ]
)


@pytest.mark.parametrize("draw", [0.0, 2**-24, 0.5, 1 - 2**-24])
def test_impossible_actions_are_not_sampled_at_the_edges(monkeypatch, draw):
    """0 and 1 - 2^-24 are the least and the greatest number that `torch.rand` can return."""
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.full(shape, draw))
    action = sample_actions(ROWS, seeded(0))
    assert bool((ROWS.gather(1, action[:, None]) > 0).all())


def test_actions_are_sampled_in_proportion():
    n = 20_000
    source = seeded(6)
    for row in ROWS:
        action = sample_actions(row.repeat(n, 1), source)
        count = torch.bincount(action, minlength=3).double()
        p = (row / row.sum()).double()
        assert bool((count[row == 0] == 0).all())
        assert bool(((count - n * p).abs() <= 4 * (n * p * (1 - p)).sqrt() + 1).all())


def test_impossible_actions_are_never_met():
    """Whoever never raises is never seen to have raised, in traversals of the opponent and in play."""
    game = load("leduc")
    table = random_table(game, 2)
    table[:, 2] = 0
    table = table / table.sum(1, keepdim=True)
    for traverser in range(2):
        drawn = SamplingEngine(game).external_sampling(TabularPolicy(table), traverser, 2000, seeded(1))
        for infosets in (drawn.advantages.infosets, drawn.opponent_strategies.infosets):
            for node in game.infoset_node[infosets].unique().tolist():
                raised = [step % 2 for actions in game.tree.histories[node] for step, a in enumerate(actions) if a == 2]
                assert 1 - traverser not in raised
    won = SamplingEngine(game).play([TabularPolicy(table)] * 2, 2000, seeded(1))
    assert set(won.tolist()) == {-1.0, 0.0, 1.0}
