"""NFSP: what is played and remembered, what the two networks are trained on, and what comes out."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from mlflow import MlflowClient
from torch import Tensor, nn

from repro import run
from repro.algorithms.nfsp import NFSP, Seat, TablePlayer, tabled
from repro.algorithms.regression import fit
from repro.algorithms.replay import Replay, Transitions
from repro.config import NetworkConfig, NFSPConfig, ReadoutConfig, run_key
from repro.engine.sampling import Samples, SamplingEngine
from repro.errors import ReproError
from repro.evaluation import best_response, expected_value, nash_conv
from repro.games import Game, load
from repro.games.betting import SHOWDOWN
from repro.networks.features import feature_columns, infoset_features
from repro.networks.gradients import Autograd, HandDifferentiated, gradients_of
from repro.networks.modules import Network, average_network, value_network
from repro.networks.optimizers import FlatSGD
from repro.policies import TabularPolicy, deterministic_policy, random_policy, uniform
from repro.tracking import status
from repro.tracking.store import TRAINING, default_uri, find_runs

ONE_LAYER = NetworkConfig("fc", 32, 1)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_config(**changes: Any) -> NFSPConfig:
    values: dict[str, Any] = {
        "name": "nfsp",
        "iterations": 8,
        "evaluate_every": 2,
        "readouts": {"nfsp": ReadoutConfig("average_network")},
        "hands": 60,
        "eta": 0.3,
        "epsilon": 0.1,
        "replay_capacity": 500,
        "reservoir_capacity": 150,
        "steps_per_update": 16,
        "batch_size": 32,
        "target_every": 5,
        "value_learning_rate": 0.05,
        "average_learning_rate": 0.05,
    }
    return NFSPConfig(**{**values, **changes})


def small_model(game: Game, seed: int = 0, **changes: Any) -> NFSP:
    return NFSP(game, small_config(**changes), ONE_LAYER, seed)


def small_player(game: Game, player: int = 0, **changes: Any) -> TablePlayer:
    return TablePlayer(game, player, small_config(**changes), ONE_LAYER, 0)


def seats_of(game: Game, average: Tensor, response: Tensor, eta: float) -> list[Seat]:
    """Both players, each with its part of the two tables."""
    tables = [(average[mine].float(), response[mine].float(), mine.start) for mine in game.player_slice]
    return [Seat(tabled(*own), game.num_actions, eta) for own in tables]


# -- self-play -------------------------------------------------------------------------------------------------------


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
    greedy = player.values().argmax(1)
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
            expected = float((0.8 / iteration**0.5 * (1 - 1 / player.legal[rows].sum(1))).mean())
            other = float((action != player.values().argmax(1)[rows]).float().mean())
            assert abs(other - expected) < 4 * (expected / len(rows)) ** 0.5


# -- memories --------------------------------------------------------------------------------------------------------


def made_up(start: int, n: int, first: int, infosets: int) -> Transitions:
    """Transitions that can be told apart by their rewards."""
    draw = seeded(start)
    following = torch.randint(-1, infosets, (n,), generator=draw)
    return Transitions(
        infosets=first + torch.randint(infosets, (n,), generator=draw),
        actions=torch.randint(3, (n,), generator=draw),
        rewards=torch.arange(start, start + n).float(),
        following=torch.where(following < 0, -1, first + following),
        best_response=torch.rand(n, generator=draw) < 0.5,
    )


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


# -- gradients -------------------------------------------------------------------------------------------------------


def network_of(build: Any, game: Game, architecture: str) -> Network:
    torch.manual_seed(0)
    config = ONE_LAYER if architecture == "fc" else NetworkConfig("sd_cfr", 16)
    return build(config, feature_columns(game), game.num_actions)


def assert_gradients(network: Network, expected: tuple[Tensor, ...]) -> None:
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rule", [HandDifferentiated, Autograd])
@pytest.mark.parametrize("architecture", ["fc", "sd_cfr"])
def test_the_gradient_of_the_log_loss_equals_autograd(architecture, rule):
    game = load("leduc")
    network = network_of(average_network, game, architecture)
    rows = torch.randint(game.infosets, (50,), generator=seeded(1))
    x, legal = infoset_features(game)[rows], game.legal[rows]
    target = random_policy(game, seeded(2)).table[rows].float()
    weight = torch.rand(50, 1, generator=seeded(3))
    logits = network.body(x).masked_fill(~legal, -1e9)
    loss = (nn.functional.cross_entropy(logits, target, reduction="none") * weight[:, 0]).sum()
    expected = torch.autograd.grad(loss, list(network.parameters()))
    FlatSGD(network, 0.1)
    assert type(gradients_of(network, log_loss=True)) is HandDifferentiated
    gradients = rule(network, log_loss=True)
    gradients.prepare(x, legal)
    for _ in range(2):
        output = gradients.compute(weight, target)
        assert_gradients(network, expected)
        torch.testing.assert_close(output, network(x, legal).detach())


def test_the_log_loss_needs_a_softmax():
    network = network_of(value_network, load("kuhn"), "fc")
    FlatSGD(network, 0.1)
    with pytest.raises(TypeError, match="MaskedSoftmax"):
        gradients_of(network, log_loss=True)


def test_a_network_without_rules_learns_by_autograd():
    game = load("kuhn")
    network = network_of(average_network, game, "fc")
    network.body.append(nn.Tanh())
    FlatSGD(network, 0.1)
    assert type(gradients_of(network, log_loss=True)) is Autograd


@pytest.mark.parametrize("architecture", ["fc", "sd_cfr"])
def test_a_step_of_q_learning_is_torchs(architecture):
    """One minibatch of the replay memory through `fit` beside mean squared error and torch.optim.SGD."""
    game = load("leduc")
    ours, plain = (network_of(value_network, game, architecture) for _ in range(2))
    features, mine = infoset_features(game), game.player_slice[0]
    replay = Replay(100, 0, 144, 3, "cpu")
    rows = torch.randint(144, (2, 100), generator=seeded(4))
    taken = random_policy(game, seeded(5)).table[rows[0]].argmax(1)
    replay.add(Transitions(rows[0], taken, torch.randn(100, generator=seeded(6)), rows[1], taken > 0))
    next_value = torch.randn(145, generator=seeded(7))
    (batch,) = replay.minibatches(1, 64, next_value.__getitem__, seeded(8))
    assert batch.infosets is not None
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.3)
    q = plain(features[batch.infosets], game.legal[batch.infosets])
    loss = nn.functional.mse_loss(q.gather(1, batch.weight.argmax(1)[:, None]), batch.target)
    loss.backward()
    optimizer.step()
    measured = fit(ours, FlatSGD(ours, 0.3), [batch], 1, features[mine], game.legal[mine])
    assert isinstance(gradients_of(ours), HandDifferentiated)
    assert measured == pytest.approx(loss.item(), rel=1e-5)
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


# -- learning --------------------------------------------------------------------------------------------------------


def test_the_target_network_is_refreshed_after_so_many_steps():
    player = small_player(load("leduc"), target_every=5)
    player.replay.add(made_up(0, 300, 0, 144))
    initial = player.values().amax(1)
    assert torch.equal(player.next_value[:-1], initial)
    player.fit_values(4, seeded(0))
    assert torch.equal(player.next_value[:-1], initial)
    player.fit_values(1, seeded(1))
    fifth = player.values().amax(1)
    assert torch.equal(player.next_value[:-1], fifth)
    player.fit_values(3, seeded(2))
    assert torch.equal(player.next_value[:-1], fifth)
    assert not torch.equal(player.values().amax(1), fifth)
    assert float(player.next_value[-1]) == 0
    # In the middle of a call, what comes after the refresh meets the new targets.
    assert player.updates == 8
    player.fit_values(4, seeded(3))
    assert not torch.equal(player.next_value[:-1], fifth)


def test_the_average_network_clones_the_frequencies_in_the_reservoir():
    game = load("kuhn")
    player = small_player(game, 1, reservoir_capacity=5000, average_learning_rate=0.5, batch_size=128)
    mine = game.player_slice[1]
    infosets = torch.randint(mine.start, mine.stop, (4000,), generator=seeded(0))
    table = random_policy(game, seeded(1)).table
    actions = torch.multinomial(table[infosets], 1, generator=seeded(2))[:, 0]
    counts = torch.zeros(mine.stop - mine.start, 3).index_put_(
        (infosets - mine.start, actions), torch.ones(4000), accumulate=True
    )
    player.reservoir.add(Samples(infosets, nn.functional.one_hot(actions, 3).float()), 1, seeded(3))
    loss = player.fit_average(1500, seeded(4))
    frequency = counts / counts.sum(1, keepdim=True)
    assert (player.average() - frequency).abs().max() < 0.06
    entropy = -float((torch.xlogy(frequency, frequency).sum(1) * counts.sum(1)).sum()) / 4000
    assert loss == pytest.approx(entropy, abs=0.15)


@pytest.mark.parametrize("player", [0, 1])
def test_q_learning_finds_the_best_response_to_a_fixed_opponent(player):
    game = load("kuhn")
    opponent = random_policy(game, seeded(8))
    exact, _ = best_response(game, opponent, player)
    learner = small_player(
        game, player, eta=1.0, replay_capacity=20_000, target_every=50, batch_size=128, value_learning_rate=0.1,
        steps_per_update=32,
    )  # fmt: skip
    engine, draw = SamplingEngine(game), seeded(9)
    starts = torch.zeros(0, dtype=torch.int64)
    for _ in range(80):
        seat = learner.seat(0.3)
        won = engine.play([seat, opponent] if player == 0 else [opponent, seat], 500, draw)
        t = seat.transitions(won if player == 0 else -won)
        learner.fit_values(learner.remember(t, 500, draw), draw)
        is_first = torch.cat([torch.tensor([True]), t.following[:-1] < 0])
        starts = t.infosets[is_first] - learner.first
    values = learner.values().amax(1)
    table = opponent.table.clone()
    mine = game.player_slice[player]
    table[mine] = nn.functional.one_hot(learner.values().argmax(1), 3).double()
    # In chips: what the greedy strategy wins, and what the network believes that it wins.
    assert expected_value(game, TabularPolicy(table))[player] == pytest.approx(exact, abs=0.02)
    assert float(values[starts].mean()) == pytest.approx(exact, abs=0.15)


def test_exploitability_falls_well_below_uniforms():
    game = load("kuhn")
    model = NFSP(
        game,
        small_config(
            iterations=160, evaluate_every=160, hands=256, eta=0.1, epsilon=0.06, replay_capacity=200_000,
            reservoir_capacity=100_000, steps_per_update=32, batch_size=128, target_every=100,
            value_learning_rate=0.1, average_learning_rate=0.1,
        ),
        NetworkConfig("fc", 64, 1),
        seed=0,
    )  # fmt: skip
    for _ in range(model.steps):
        model.training_step(None, 0)
    assert model.metrics["nfsp"]["episodes"] == 160 * 256
    assert model.metrics["nfsp"]["nash_conv"] < 0.45 * nash_conv(game, uniform(game))


# -- runs ------------------------------------------------------------------------------------------------------------


def test_seeds_differ_and_the_same_seed_repeats():
    game = load("kuhn")
    models = [small_model(game, seed) for seed in (0, 0, 1)]
    for model in models:
        model.training_step(None, 0)
    tables = [model.policies["nfsp"].table for model in models]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


def test_evaluating_more_often_changes_nothing_that_is_learned():
    game = load("kuhn")
    often, once = small_model(game, evaluate_every=1), small_model(game, evaluate_every=8)
    for _ in range(8):
        often.training_step(None, 0)
    once.training_step(None, 0)
    assert often.iteration == once.iteration == 8
    assert often.metrics["nfsp"]["nash_conv"] == once.metrics["nfsp"]["nash_conv"]


@pytest.mark.parametrize("stop", [1, 3])
def test_resuming_equals_never_stopping(tmp_path, stop):
    """Memories that overflow, target networks older than the checkpoint, SGD steps due from before it."""
    game = load("leduc")

    def trainer(epochs: int) -> pl.Trainer:
        return pl.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip

    straight, half, resumed = (small_model(game) for _ in range(3))
    trainer(straight.steps).fit(straight)
    first = trainer(stop)
    first.fit(half)
    first.save_checkpoint(tmp_path / "half.ckpt")
    trainer(resumed.steps).fit(resumed, ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    assert resumed.iteration == straight.iteration == 8
    assert straight.players[0].replay.seen > straight.players[0].replay.capacity
    assert straight.players[0].reservoir.seen > straight.players[0].reservoir.capacity
    assert straight.players[0].updates > 20
    for ours, theirs in zip(straight.players, resumed.players, strict=True):
        assert torch.equal(ours.values(), theirs.values())
        assert torch.equal(ours.average(), theirs.average())
        assert torch.equal(ours.next_value, theirs.next_value)
    for key in ("nash_conv", "nodes_touched", "episodes"):
        assert straight.metrics["nfsp"][key] == resumed.metrics["nfsp"][key]


@pytest.mark.parametrize("which", ["value", "average"])
def test_a_diverging_network_is_refused_with_its_iteration(which):
    config = small_config(hands=2000, eta=1.0)
    setattr(config, f"{which}_learning_rate", 1e30)
    model = NFSP(load("leduc"), config, ONE_LAYER, seed=0)
    sentence = rf"{which} network .* diverged in iteration 1.*algorithm\.{which}_learning_rate is 1e\+30"
    with pytest.raises(ReproError, match=sentence):
        model.training_step(None, 0)


NFSP_RUN = (
    "algorithm=nfsp", "game=kuhn", "algorithm.iterations=4", "algorithm.hands=64", "algorithm.evaluate_every=2",
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
        run.plan([*NFSP_RUN, override], multirun=False)
    assert sentence in str(caught.value)


def test_a_run_is_tracked(tmp_path: Path):
    config = run.plan([*NFSP_RUN, f"output_dir={tmp_path}"], multirun=False)[0]
    assert run.execute(config) == status.FINISHED
    client = MlflowClient(default_uri(tmp_path))
    found = client.get_experiment_by_name("runs")
    assert found is not None
    runs = find_runs(client, found.experiment_id, run_key(run.without_hydra(config)))
    measured = runs["nfsp"].data.metrics
    assert {"exploitability", "nash_conv", "episodes", "nodes_touched", "wall_seconds"} <= measured.keys()
    assert measured["episodes"] == 256
    assert {"loss/value", "loss/policy", "memory/value", "memory/strategy"} <= runs[TRAINING].data.metrics.keys()
    steps = [m.step for m in client.get_metric_history(runs["nfsp"].info.run_id, "exploitability")]
    assert steps == [2, 4]
    path = client.download_artifacts(runs[TRAINING].info.run_id, "networks.pt", str(tmp_path))
    networks = torch.load(path, weights_only=True)
    assert len(networks["value"]) == len(networks["average"]) == 2
