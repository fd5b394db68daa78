"""NFSP: what is played and remembered, and what comes out of runs."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from repro.algorithms.nfsp import NFSP, SelfPlaySeat
from repro.algorithms.nfsp_strategies import AskedPlayer, ListedPlayer, tabled
from repro.algorithms.replay import Replay, Transitions
from repro.common.errors import ReproError
from repro.config import NetworkConfig
from repro.engine.sampling import SamplingEngine
from repro.games import Game, load
from repro.games.betting import SHOWDOWN
from repro.plans.planning import plan
from repro.policies import deterministic_policy, random_policy, uniform
from repro.tracking import record as records
from tests.helpers.commands import executed, results
from tests.helpers.draws import seeded
from tests.helpers.nfsp import ONE_LAYER, listed, made_up, played, small_config, small_model, small_player
from tests.helpers.training import advanced, config_of, measured, straight_and_resumed


def seats_of(game: Game, average: Tensor, response: Tensor, eta: float) -> list[SelfPlaySeat]:
    """Both players, each with its part of the two tables."""
    tables = [(average[mine].float(), response[mine].float(), mine.start) for mine in game.player_slice]
    return [SelfPlaySeat(tabled(*own), game.num_actions, eta) for own in tables]


# -- self-play ---------------------------------------------------------------------------------------------------------


def split_hands(t: Transitions) -> list[list[tuple[int, int, float, int, bool]]]:
    """The transitions of each hand; every hand has some, because in these games both players always act."""
    hands: list[list[tuple[int, int, float, int, bool]]] = [[]]
    rows = (column.tolist() for column in (t.infosets, t.actions, t.rewards, t.following, t.best_response))
    for row in zip(*rows, strict=True):
        hands[-1].append(row)
        if row[3] < 0:
            hands.append([])
    assert hands.pop() == []
    return hands


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_transitions_are_the_hands_that_were_played(name):
    """Each hand again in plain Python, from its cards and the recorded actions."""
    game, n = load(name), 400
    engine = SamplingEngine(game)
    hands, boards = game.one_card.draw(n, seeded(0))
    deals = game.one_card.dealt(hands, boards)
    seats = seats_of(game, random_policy(game, seeded(1)).table, random_policy(game, seeded(2)).table, 0.5)
    won = engine.play(seats, deals, seeded(3))
    recorded = [split_hands(seat.transitions(chips)) for seat, chips in zip(seats, (won, -won), strict=True)]
    assert len(recorded[0]) == len(recorded[1]) == n
    tree, steps = game.tree, 0
    for hand in range(n):
        left = [deque(mine[hand]) for mine in recorded]
        node = torch.tensor(0)
        while tree.winner[node] == -2:
            player = int(tree.player[node])
            infoset, action, reward, following, _ = left[player].popleft()
            cards = boards[hand, tree.round[node]], hands[hand, player]
            assert infoset == int(game.infoset(node, *cards))
            assert following == (left[player][0][0] if left[player] else -1)
            assert reward == 0 or not left[player]
            node = tree.child[node, action]
            steps += 1
        assert not left[0]
        assert not left[1]
        winner = int(tree.winner[node])
        sign = float(deals.sign[hand]) if winner == SHOWDOWN else 1.0 - 2 * winner
        ends = [mine[hand][-1][2] for mine in recorded]
        assert ends[0] == sign * float(tree.stake[node]) == -ends[1]
        assert all(len({step[4] for step in mine[hand]}) == 1 for mine in recorded), "one strategy per hand"
    assert steps == sum(len(seat.transitions(won).infosets) for seat in seats)


def test_a_player_follows_its_best_response_in_a_fraction_eta_of_the_hands():
    game, n, eta = load("leduc"), 20_000, 0.3
    average, response = deterministic_policy(game, seeded(4)).table, deterministic_policy(game, seeded(5)).table
    seats = seats_of(game, average, response, eta)
    won = SamplingEngine(game).play(seats, n, seeded(6))
    played = [seat.transitions(won) for seat in seats]
    for t in played:
        followed = torch.where(t.best_response, response[t.infosets].argmax(1), average[t.infosets].argmax(1))
        assert torch.equal(t.actions, followed)
        fraction = float(t.best_response[t.following < 0].float().mean())
        assert abs(fraction - eta) < 4 * (eta * (1 - eta) / n) ** 0.5
    # The players choose independently of each other.
    both = [t.best_response[t.following < 0].float() for t in played]
    assert abs(float((both[0] * both[1]).mean()) - eta**2) < 4 * (eta**2 / n) ** 0.5


def test_the_best_response_is_greedy_and_explores_with_probability_epsilon():
    game = load("leduc")
    player = small_player(game, 1, eta=1.0)
    greedy = listed(player).values().argmax(1)
    for epsilon, hands in ((0.0, 500), (0.4, 20_000)):
        seat = player.seat(epsilon)
        SamplingEngine(game).play([uniform(game), seat], hands, seeded(7))
        t = seat.transitions(torch.zeros(hands))
        rows = t.infosets - player.first
        legal = game.legal[t.infosets].sum(1)
        # A random action is the greedy one with probability 1 / (number of legal actions).
        expected = float((epsilon * (1 - 1 / legal)).mean())
        assert bool(game.legal[t.infosets, t.actions].all())
        other = float((t.actions != greedy[rows]).float().mean())
        assert abs(other - expected) <= 4 * (expected / len(rows)) ** 0.5


def test_exploration_falls_with_the_square_root_of_the_iteration():
    game, hands = load("leduc"), 5000
    model = small_model(game, hands=hands, eta=1.0, epsilon=0.8, replay_capacity=10**6)
    for iteration in (1, 16):
        model.iteration = iteration
        seen = [p.replay.seen for p in model.players]
        model.play()
        for player, before in zip(model.players, seen, strict=True):
            rows, action, _ = player.replay.state_dict()["step"][:, before:].long()
            expected = float((0.8 / iteration**0.5 * (1 - 1 / listed(player).legal[rows].sum(1))).mean())
            other = float((action != listed(player).values().argmax(1)[rows]).float().mean())
            assert abs(other - expected) < 4 * (expected / len(rows)) ** 0.5


# -- memories ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(5, 3), (10, 10), (4, 4, 4), (25, 3), (7, 30)])
def test_the_replay_memory_holds_the_newest_transitions(sizes):
    first, infosets, capacity = 6, 6, 10
    replay = Replay(capacity, first, infosets, 3, "cpu")
    newest: deque[tuple[int, int, int, float]] = deque(maxlen=capacity)
    start = 0
    for n in sizes:
        t = made_up(start, n, first, infosets)
        replay.add(t)
        start += n
        following = torch.where(t.following < 0, infosets, t.following - first)
        columns = (t.infosets - first, t.actions, following, t.rewards)
        newest.extend(zip(*(column.tolist() for column in columns), strict=True))
        assert replay.size == len(newest)
        state = replay.state_dict()
        held = zip(*state["step"].tolist(), state["reward"].tolist(), strict=True)
        assert sorted(held) == sorted(newest)


def test_minibatches_have_the_targets_of_q_learning():
    """Bellman targets by hand: r + max_a Q'(s', a), r alone at the end of a hand; a weight only where an action was."""
    first, infosets = 6, 4
    replay = Replay(50, first, infosets, 3, "cpu")
    t = made_up(0, 40, first, infosets)
    replay.add(t)
    next_value = torch.tensor([0.5, -1.0, 2.0, 4.0, 0.0])
    drawn = set()
    for batch in replay.minibatches(30, 8, next_value.__getitem__, seeded(0)):
        assert batch.infosets is not None
        for infoset, weight, target in zip(batch.infosets.tolist(), batch.weight, batch.target, strict=True):
            # Rewards number the transitions; what follows is worth 4 at most.
            (row,) = (
                i for i in range(40)
                if int(t.infosets[i]) - first == infoset
                and float(weight[t.actions[i]]) > 0
                and float(target) == i + (0.0 if t.following[i] < 0 else float(next_value[t.following[i] - first]))
            )  # fmt: skip
            assert weight.tolist() == [1 / 8 if a == t.actions[row] else 0.0 for a in range(3)]
            drawn.add(row)
    assert len(drawn) > 35


def test_what_is_cloned_is_what_best_responses_did():
    game = load("leduc")
    player = small_player(game, 1, reservoir_capacity=1000)
    t = made_up(0, 300, player.first, 144)
    player.remember(t, 100, seeded(0))
    state, cloned = player.reservoir.state_dict(), t.best_response
    assert torch.equal(state["infoset"].long(), t.infosets[cloned] - player.first)
    assert torch.equal(state["target"].t(), nn.functional.one_hot(t.actions[cloned], 3).float())
    assert state["iteration"].unique().tolist() == [1], "no entry counts more than another"
    assert player.replay.size == 300


def test_sgd_steps_are_due_in_proportion_to_the_steps_in_the_game():
    game = load("kuhn")
    model = small_model(game, hands=37, batch_size=1, steps_per_update=16, replay_capacity=10_000)
    for iteration in range(1, 8):
        model.iteration = iteration
        model.advance()
    decisions = 0
    for player in model.players:
        assert player.steps == player.replay.seen + 7 * 37
        assert player.updates == player.steps // 16
        decisions += player.replay.seen
    assert model.nodes_touched == decisions + 7 * 37


def test_nothing_is_learned_from_a_memory_that_holds_too_little():
    game = load("kuhn")
    model = small_model(game, batch_size=100)
    model.iteration = 1
    before = [p.detach().clone() for p in model.average_networks.parameters()]
    measured = model.advance()
    # 60 hands make more than a hundred transitions of both players, and about twenty cloned actions of each.
    assert "loss/policy" not in measured
    assert all(map(torch.equal, before, model.average_networks.parameters()))
    for _ in range(7):
        model.iteration += 1
        measured = model.advance()
    assert {"loss/value", "loss/policy"} <= measured.keys()
    assert not any(map(torch.equal, before, model.average_networks.parameters()))


# -- runs --------------------------------------------------------------------------------------------------------------


def test_seeds_differ_and_the_same_seed_repeats():
    game = load("kuhn")
    models = [small_model(game, seed) for seed in (0, 0, 1)]
    for model in models:
        model.step()
    tables = [played(model).table for model in models]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


def test_more_snapshots_change_nothing_that_is_learned():
    game = load("kuhn")
    often, once = small_model(game, snapshot_every=1), small_model(game, snapshot_every=8)
    advanced(often, 8)
    once.step()
    assert often.iteration == once.iteration == 8
    assert torch.equal(played(often).table, played(once).table)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 3])
def test_resuming_equals_never_stopping(tmp_path, stop):
    """Memories that overflow, target networks older than the checkpoint, SGD steps due from before it."""
    game = load("leduc")
    straight, resumed = straight_and_resumed(lambda: small_model(game), 4, stop, tmp_path)
    assert resumed.iteration == straight.iteration == 8
    assert straight.players[0].replay.seen > straight.players[0].replay.capacity
    assert straight.players[0].reservoir.seen > straight.players[0].reservoir.capacity
    assert straight.players[0].updates > 20
    for ours, theirs in zip(straight.players, resumed.players, strict=True):
        assert torch.equal(listed(ours).values(), listed(theirs).values())
        assert torch.equal(listed(ours).average(), listed(theirs).average())
        assert torch.equal(listed(ours).next_value, listed(theirs).next_value)
    assert torch.equal(played(straight).table, played(resumed).table)
    assert straight.counts() == resumed.counts()


@pytest.mark.parametrize("architecture", [ONE_LAYER, NetworkConfig("sd_cfr", 16)])
def test_listed_and_asked_networks_give_the_same(architecture):
    """Twelve iterations on Leduc with both ways to answer: the same hands, memories, networks and targets."""
    game = load("leduc")
    made = [
        NFSP(game, small_config(iterations=12, snapshot_every=12, strategies=how), architecture, seed=3)
        for how in ("listed", "asked")
    ]
    for model in made:
        model.step()
    tables, asked = made
    for ours, theirs in zip(tables.players, asked.players, strict=True):
        assert isinstance(ours.strategies, ListedPlayer)
        assert isinstance(theirs.strategies, AskedPlayer)
        assert ours.steps == theirs.steps
        assert ours.updates == theirs.updates > 20
        for a, b in zip(ours.reservoir.state_dict().values(), theirs.reservoir.state_dict().values(), strict=True):
            assert torch.equal(a, b)
        everywhere = torch.arange(ours.count + 1)
        expected = theirs.strategies.value_after(everywhere)
        torch.testing.assert_close(ours.strategies.value_after(everywhere), expected, rtol=1e-4, atol=1e-5)
        infosets = ours.first + everywhere[:-1]
        for which in (0, 1):
            answers = [p.strategies.at(0.2)(infosets, torch.full_like(infosets, which)) for p in (ours, theirs)]
            torch.testing.assert_close(*answers, rtol=1e-4, atol=1e-5)
    for key, value in tables.metrics.items():
        assert key == "wall_seconds" or asked.metrics[key] == pytest.approx(value, rel=1e-4)
    values = [measured(game, config_of(m.algorithm, architecture), m)["nfsp"]["nash_conv"] for m in made]
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_small_games_are_listed_and_large_ones_asked():
    config = small_config()
    assert config.strategies_in(load("leduc")) is ListedPlayer
    assert config.strategies_in(load("big_leduc")) is ListedPlayer
    assert config.strategies_in(load("hnlh")) is AskedPlayer
    assert small_config(strategies="asked").strategies_in(load("kuhn")) is AskedPlayer
    (problem,) = small_config(strategies="listed").problems(config_of(config, ONE_LAYER), load("hnlh"))
    assert "algorithm.strategies is listed; the game hnlh has" in problem


@pytest.mark.parametrize("which", ["value", "average"])
def test_a_diverging_network_is_refused_with_its_iteration(which):
    config = small_config(hands=2000, eta=1.0)
    setattr(config, f"{which}_learning_rate", 1e30)
    model = NFSP(load("leduc"), config, ONE_LAYER, seed=0)
    sentence = rf"{which} network .* diverged in iteration 1.*algorithm\.{which}_learning_rate is 1e\+30"
    with pytest.raises(ReproError, match=sentence):
        model.step()


NFSP_RUN = (
    "algorithm=nfsp", "game=kuhn", "algorithm.iterations=4", "algorithm.hands=64", "algorithm.snapshot_every=2",
    "algorithm.batch_size=16", "network.width=16",
)  # fmt: skip


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("algorithm.eta=0", "algorithm.eta is 0.0; it must be greater than 0."),
        ("algorithm.eta=1.5", "algorithm.eta is 1.5; it must be at most 1."),
        ("algorithm.epsilon=-0.1", "algorithm.epsilon is -0.1; it must be at least 0."),
        ("algorithm.hands=0", "algorithm.hands is 0; it must be at least 1."),
        ("algorithm.average_learning_rate=0", "algorithm.average_learning_rate is 0.0; it must be greater than 0."),
        (
            "algorithm.replay_capacity=10",
            "replay_capacity is 10; it must be at least algorithm.batch_size (16)",
        ),
        (
            "algorithm.reservoir_capacity=10",
            "reservoir_capacity is 10; it must be at least algorithm.batch_size (16)",
        ),
        ("algorithm.traversals=5", "traversals"),
        ("algorithm.readouts.nfsp.kind=ensemble", "algorithm.readouts.nfsp.kind is 'ensemble'; for nfsp it must be"),
    ],
)
def test_bad_configuration_is_refused_before_any_work(override, sentence):
    with pytest.raises(ReproError) as caught:
        plan([*NFSP_RUN, override], multirun=False)
    assert sentence in str(caught.value)


def test_a_run_is_measured(tmp_path: Path):
    assert executed(*NFSP_RUN, f"output_dir={tmp_path}") == records.FINISHED
    rows = results(tmp_path, NFSP_RUN)
    measured_ = rows[rows.readout == "nfsp"]
    assert {"exploitability", "nash_conv", "episodes", "nodes_touched"} <= set(measured_.metric)
    assert measured_[measured_.metric == "episodes"].value.tolist() == [128, 256]
    assert measured_[measured_.metric == "exploitability"].step.tolist() == [2, 4]
    own = set(rows[rows.readout == "training"].metric)
    assert {"loss/value", "loss/policy", "memory/value", "memory/strategy"} <= own
