"""Does Deep CFR compute what it should? Against Linear CFR, against brute force, against itself after a restart."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.memory import Aggregated
from repro.algorithms.strategies import Listed
from repro.algorithms.tabular import VARIANTS, solver_of
from repro.config import NetworkConfig, ReadoutConfig, RegressionConfig
from repro.engine.sampling import SamplingEngine
from repro.errors import ReproError
from repro.evaluation import expected_value, nash_conv
from repro.evaluation.averages import tabulated
from repro.evaluation.exploitability import exact_engine
from repro.games import load
from repro.policies import TabularPolicy, uniform
from repro.policies.base import table_of
from repro.policies.ensemble import Average, reservoir_members
from repro.policies.regret_matching import regret_matching
from repro.policies.snapshot import SnapshotFolder
from repro.seeding import generator
from tests.small import average_policy_of, metrics_of, seats_of, small_config, small_model
from tests.trained import config_of, straight_and_resumed


class TabularDeepCFR(DeepCFR):
    """Deep CFR whose "network" is a table that fits the memory perfectly."""

    def _fit(self, which: str, player: int, last_step: Any = None) -> float:
        return 0.0

    def renew_strategy(self, player: int) -> None:
        memory, part = self.value_memories[player], self.game.player_slice[player]
        assert isinstance(memory, Aggregated)
        mean = memory._sum / memory._weight.clamp(min=1)
        strategy = regret_matching(mean, self.game.legal[part], "uniform").float()
        listed(self).table[part] = strategy
        self.history["value"][player].append(strategy)

    def average_policy(self) -> TabularPolicy:
        """The average of B^M, which holds tables."""
        averages = []
        for part, rows in zip(self.game.player_slice, self.history["value"], strict=True):
            average = Average(self.game.uniform[part])
            for t, strategy in enumerate(rows, start=1):
                table = self.game.uniform.clone()
                table[part] = strategy.double()
                table = table_of(self.game, TabularPolicy(table))
                average.add(float(t), exact_engine(self.game).own_reach(table)[part], table[part])
            averages.append(average.strategy())
        return TabularPolicy(torch.cat(averages))


def listed(model: DeepCFR) -> Listed:
    assert isinstance(model.strategies, Listed)
    return model.strategies


def exact_cfr(game, iterations, *, linear):
    """Exact CFR, averaged as B^M is: the strategies *after* each update (tabular CFR averages those before)."""
    solver = solver_of(game, VARIANTS["linear_cfr" if linear else "cfr"], seed=0)
    numerator = torch.zeros_like(game.uniform)
    for t in range(1, iterations + 1):
        solver.step()
        strategy = solver.current().table
        numerator += (t if linear else 1) * exact_engine(game).own_reach(strategy)[:, None] * strategy
    total = numerator.sum(1, keepdim=True)
    return TabularPolicy(torch.where(total > 0, numerator / total.clamp(min=1e-300), game.uniform))


def tabular_run(game, iterations, traversals, **changes):
    config = {"memory": "aggregated", "when_no_positive": "uniform", "iterations": iterations, "divide_by_legal": False}
    base = small_model(game, **{**config, "traversals": traversals, "average": None, **changes})
    model = TabularDeepCFR(game, base.algorithm, base.network, seed=0)
    for _ in range(iterations):
        model.training_step(None, 0)
    return model


@pytest.mark.parametrize(("name", "traversals"), [("kuhn", 20_000), ("leduc", 8_000)])
def test_with_a_perfect_table_it_tracks_linear_cfr(name, traversals):
    game, iterations = load(name), 25
    sampled = nash_conv(game, tabular_run(game, iterations, traversals).average_policy())
    linear = nash_conv(game, exact_cfr(game, iterations, linear=True))
    plain = nash_conv(game, exact_cfr(game, iterations, linear=False))
    # Plain CFR is what forgetting the linear weights would give; sampling noise is smaller than that difference.
    assert abs(sampled - linear) < 0.5 * abs(plain - linear)
    assert sampled == pytest.approx(linear, rel=0.3)


def test_dividing_regrets_by_the_number_of_actions_changes_no_tabular_strategy():
    game = load("leduc")
    plain = tabular_run(game, 3, 500, divide_by_legal=False, regret_unit=1.0)
    scaled = tabular_run(game, 3, 500, divide_by_legal=True, regret_unit=2.6)
    # Both scale an infoset's regrets by one positive number.
    assert torch.allclose(listed(plain).table, listed(scaled).table, atol=1e-5)


def test_explicit_average_and_trajectory_sampling_agree():
    game = load("leduc")
    model = small_model(game, seed=3, iterations=8)
    for _ in range(8):
        model.training_step(None, 0)
    average, ensemble = average_policy_of(model), seats_of(model, ReadoutConfig("ensemble"))
    opponent = uniform(game)
    hands = 400_000
    for seat in range(2):
        seats: list[Any] = [opponent, opponent]
        seats[seat] = ensemble[seat]
        won = SamplingEngine(game).play(seats, hands, generator(0, "test", player=seat))
        table = game.uniform.clone()
        table[game.player_slice[seat]] = average.table[game.player_slice[seat]]
        exact = expected_value(game, TabularPolicy(table))[0]
        standard_error = float(won.std()) / hands**0.5
        assert abs(float(won.mean()) - exact) < 4 * standard_error


@pytest.mark.slow
def test_exploitability_falls_from_uniform_with_real_networks():
    game = load("kuhn")
    regression = RegressionConfig(steps=100, batch_size=256, start="previous")
    model = small_model(
        game, iterations=30, traversals=300, value=regression, average=regression, value_capacity=20_000,
        strategy_capacity=20_000, snapshot_every=30,
    )  # fmt: skip
    for _ in range(30):
        model.training_step(None, 0)
    for readout in ("sd_cfr", "deep_cfr"):
        assert metrics_of(model)[readout]["nash_conv"] < 0.25 * nash_conv(game, uniform(game))


def test_leaving_more_snapshots_changes_nothing_that_is_learned():
    game = load("kuhn")
    often, once = small_model(game, snapshot_every=1), small_model(game, snapshot_every=6)
    for model in (often, once):
        for _ in range(6):
            model.training_step(None, 0)
    assert torch.equal(listed(often).table, listed(once).table)
    assert metrics_of(often)["deep_cfr"]["nash_conv"] == metrics_of(once)["deep_cfr"]["nash_conv"]


def test_seeds_differ_and_the_same_seed_repeats():
    game = load("kuhn")
    runs = [small_model(game, seed) for seed in (0, 0, 1)]
    for model in runs:
        model.training_step(None, 0)
    first = [model.history["value"][0][0] for model in runs]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


def test_a_capacity_that_is_never_reached_is_the_full_buffer():
    model = small_model(load("kuhn"))
    for _ in range(4):
        model.training_step(None, 0)
    assert torch.equal(average_policy_of(model, 100).table, average_policy_of(model).table)
    assert not torch.equal(average_policy_of(model, 2).table, average_policy_of(model).table)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["reservoir", "aggregated"])
@pytest.mark.parametrize("start", ["previous", "random"])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_resuming_equals_never_stopping(tmp_path, memory, start, stop):
    game = load("leduc")
    regression = RegressionConfig(steps=8, batch_size=64, start=start)
    changes = {"memory": memory, "value": regression}
    straight, resumed = straight_and_resumed(lambda: small_model(game, **changes), 6, stop, tmp_path)
    assert resumed.iteration == straight.iteration == 6
    assert straight.trainer.global_step == 12, "Lightning counts one step per fitted network"
    for ours, theirs in zip(straight.history["value"], resumed.history["value"], strict=True):
        assert torch.equal(torch.stack(list(ours)), torch.stack(list(theirs)))
    expected, found = metrics_of(straight), metrics_of(resumed)
    for readout in ("sd_cfr", "sd_cfr_2", "deep_cfr"):
        for metric in ("nash_conv", "nodes_touched"):
            assert expected[readout][metric] == found[readout][metric]


def test_a_batch_larger_than_what_was_collected_is_refused():
    model = small_model(load("kuhn"), value=RegressionConfig(steps=1, batch_size=100_000, start="random"))
    with pytest.raises(ReproError, match=r"algorithm\.value\.batch_size is 100000, but only \d+ samples"):
        model.training_step(None, 0)


def test_a_diverging_network_is_refused_with_its_iteration():
    regression = RegressionConfig(steps=30, batch_size=64, learning_rate=1e20, clip_norm=1e30, start="random")
    model = small_model(load("leduc"), value=regression)
    with pytest.raises(ReproError, match=r"diverged in iteration 1.*learning_rate is 1e\+20"):
        model.training_step(None, 0)


def collected(game, **changes):
    """A model after its first collection for player 0, and what the engine gave it."""
    model = small_model(game, **changes)
    model.iteration = 3
    return model, model.collect(0)


def test_memories_hold_what_the_engine_sampled_in_the_configured_unit():
    game = load("leduc")
    model, sampled = collected(game, divide_by_legal=True, regret_unit=2.6, traversals=40)
    values, strategies = model.value_memories[0].state_dict(), model.strategy_memories[1].state_dict()
    actions = game.legal[sampled.advantages.infosets].sum(1)
    assert torch.allclose(values["target"].t(), sampled.advantages.targets / 2.6 / actions[:, None])
    assert torch.equal(strategies["target"].t(), sampled.opponent_strategies.targets)
    assert set(values["iteration"].tolist()) == set(strategies["iteration"].tolist()) == {3}
    assert model.strategy_memories[0].size == model.value_memories[1].size == 0


@pytest.mark.parametrize("change", [{"divide_by_legal": False}, {"regret_unit": 5.2}])
def test_options_of_the_regret_targets_reach_the_memory(change):
    game = load("leduc")
    changes: list[dict[str, Any]] = [{}, change]
    plain, changed = (collected(game, **c)[0].value_memories[0].state_dict()["target"] for c in changes)
    assert not torch.allclose(plain, changed)


def test_the_loss_weight_scales_the_loss():
    game = load("leduc")
    losses = []
    for weight in ("t/T", "2t/T"):
        model = small_model(game, loss_weight=weight, value=RegressionConfig(steps=1, batch_size=64, start="previous"))
        model.training_step(None, 0)
        losses.append(model.metrics["loss/value"])
    # Of one step the loss is that of the untouched initial network.
    assert losses[1] == pytest.approx(2 * losses[0], rel=1e-5)


def test_when_no_advantage_is_positive_the_configured_fallback_plays():
    game = load("leduc")
    strategies = []
    for fallback in ("argmax", "uniform"):
        model = small_model(game, when_no_positive=fallback)
        model.training_step(None, 0)
        strategies.append(listed(model).table)
    assert not torch.equal(*strategies)


def test_the_average_network_learns_the_linear_average_of_the_sampled_strategies():
    """S-hat's target is the iteration-weighted mean of B^s at each infoset, which is not the mean of B^M."""
    game = load("kuhn")
    regression = RegressionConfig(steps=600, batch_size=512, learning_rate=5e-3, start="random")
    model = small_model(
        game, traversals=1500, iterations=4, average=regression, strategy_capacity=50_000, snapshot_every=9
    )
    for _ in range(4):
        model.training_step(None, 0)
    loss = model.prepare_snapshot()["loss/policy"]
    policy = tabulated(game, seats_of(model, ReadoutConfig("average_network")))
    for player in range(2):
        state, mine = model.strategy_memories[player].state_dict(), game.player_slice[player]
        rows, weight = state["infoset"].long(), state["iteration"].double()
        count = mine.stop - mine.start
        total = torch.zeros(count, dtype=torch.float64).index_add_(0, rows, weight)
        mean = torch.zeros(count, 3, dtype=torch.float64).index_add_(
            0, rows, state["target"].t().double() * weight[:, None]
        )
        seen = total > 0.02 * total.sum()
        mean = mean / total.clamp(min=1)[:, None]
        assert (policy.table[mine][seen] - mean[seen]).abs().max() < 0.05
    assert loss > 0
    assert (policy.table - average_policy_of(model).table).abs().max() > 0.02


def test_deep_cfr_and_sd_cfr_read_different_things_and_units_are_milli_antes():
    model = small_model(load("leduc", ante=2.0))
    for _ in range(2):
        model.training_step(None, 0)
    found = metrics_of(model)
    assert found["deep_cfr"]["nash_conv"] != found["sd_cfr"]["nash_conv"]
    # NashConv / 2 in thousandths of the ante, which is two chips here.
    assert found["sd_cfr"]["exploitability"] == pytest.approx(found["sd_cfr"]["nash_conv"] / 2 / 2 * 1000)


def test_capped_buffers_differ_between_seeds_and_players():
    kept = {(seed, player): tuple(reservoir_members(200, 10, seed, player)) for seed in range(3) for player in range(2)}
    assert len(set(kept.values())) == 6


# -- listed or asked ---------------------------------------------------------------------------------------------------


def test_strategies_listed_and_asked_are_the_same():
    """Where no betting round has a table, to rounding: the samples, what is learned of them, and what is played."""
    game = load("leduc")
    models = [small_model(game, seed=2, strategies=held, opening="network") for held in ("listed", "asked")]
    for _ in range(4):
        for model in models:
            model.training_step(None, 0)
    first, second = models
    for name in ("value_memories", "strategy_memories"):
        for a, b in zip(getattr(first, name), getattr(second, name), strict=True):
            for key in ("infoset", "iteration"):
                assert torch.equal(a.state_dict()[key], b.state_dict()[key])
            torch.testing.assert_close(a.state_dict()["target"], b.state_dict()["target"], rtol=1e-4, atol=1e-4)
    every = torch.arange(game.infosets)
    now = [model.current_policy().probabilities(every) for model in models]
    torch.testing.assert_close(now[0], now[1], rtol=1e-3, atol=1e-4)
    for player in range(2):
        for a, b in zip(first.history["value"][player], second.history["value"][player], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert first.nodes_touched == second.nodes_touched
    expected, found = metrics_of(first), metrics_of(second)
    for readout, values in expected.items():
        assert found[readout] == pytest.approx(values, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "parameters", "changes", "listed", "tables"),
    [
        ("leduc", {}, {}, True, False),
        ("leduc", {}, {"strategies": "asked"}, False, True),
        ("leduc", {}, {"strategies": "asked", "opening": "network"}, False, False),
        ("big_leduc", {}, {}, True, False),
        ("fhp", {"ranks": 4, "suits": 2}, {}, True, False),
        ("fhp", {"ranks": 6, "suits": 3}, {}, False, True),
        ("fhp", {}, {}, False, True),
    ],
)
def test_what_is_listed_follows_from_the_number_of_infosets(name, parameters, changes, listed, tables):
    game, config = load(name, **parameters), small_config(**changes)
    assert config.lists(game) == listed
    assert config.tables_opening(game) == tables


def test_a_small_holdem_game_can_be_listed():
    game = load("fhp", ranks=4, suits=2)
    models = [
        DeepCFR(
            game,
            small_config(
                strategies=held, opening="network", traversals=300, regret_unit=100.0, when_no_positive="uniform"
            ),
            NetworkConfig("deep_cfr", 8, None, 12),
            0,
        )
        for held in ("listed", "asked")
    ]  # fmt: skip
    for model in models:
        for _ in range(2):
            model.training_step(None, 0)
    expected, found = (metrics_of(model) for model in models)
    assert found["sd_cfr"]["nash_conv"] == pytest.approx(expected["sd_cfr"]["nash_conv"], rel=1e-3)
    assert found["deep_cfr"]["nash_conv"] == pytest.approx(expected["deep_cfr"]["nash_conv"], rel=1e-3)


def test_a_single_betting_round_is_played_by_networks():
    model = small_model(load("kuhn"), strategies="asked", opening="network")
    model.training_step(None, 0)
    assert metrics_of(model)["sd_cfr"]["nash_conv"] > 0


# -- snapshots ---------------------------------------------------------------------------------------------------------


def stopped_and_continued(make: Any, stop: int, folder: SnapshotFolder | None) -> tuple[Any, Any]:
    """A model after all its iterations, and one that took the place of another after `stop`; both leave snapshots."""
    straight, first, second = make(), make(), make()
    if folder is not None:
        first.snapshots = second.snapshots = folder
    for model, until in ((straight, straight.iterations), (first, stop), (second, straight.iterations)):
        if model is second:
            saved = io.BytesIO()
            torch.save((first.state_dict(), first.saved()), saved)
            saved.seek(0)
            weights, state = torch.load(saved, weights_only=True)
            second.load_state_dict(weights)
            second.resume(state)
        while model.iteration < until:
            model.training_step(None, 0)
            if model.is_due and model.snapshots is not None:
                model.snapshots.write(model.snapshot())
    return straight, second


@pytest.mark.parametrize("changes", [{}, {"strategies": "asked"}, {"average": None}])
@pytest.mark.parametrize("stop", [2, 3])
@pytest.mark.parametrize("stored", [True, False])
def test_what_is_saved_is_all_there_is_to_resume(tmp_path, changes, stop, stored):
    game = load("leduc")
    readouts = {"sd_cfr": ReadoutConfig("ensemble"), "sd_cfr_2": ReadoutConfig("ensemble", 2)}
    given = {"readouts": readouts, **changes} if "average" in changes else changes
    folder = SnapshotFolder(tmp_path / "snapshots") if stored else None
    straight, resumed = stopped_and_continued(lambda: small_model(game, iterations=5, **given), stop, folder)
    assert straight.history.keys() == resumed.history.keys()
    for name, both in straight.history.items():
        for ours, theirs in zip(both, resumed.history[name], strict=True):
            assert torch.equal(torch.stack(list(ours)), torch.stack(list(theirs)))
    assert metrics_of(straight) == metrics_of(resumed)
    if folder is not None:
        assert folder.iterations == [2, 4, 5]
        assert metrics_of(straight, snapshot=folder.read()) == metrics_of(straight)


def test_a_snapshot_stored_after_the_checkpoint_is_not_taken_twice(tmp_path):
    game = load("kuhn")
    first, second = small_model(game), small_model(game)
    first.snapshots = second.snapshots = SnapshotFolder(tmp_path)
    for _ in range(2):
        first.training_step(None, 0)
    saved = first.saved()
    first.snapshots.write(first.snapshot())
    second.resume(saved)
    assert [len(rows) for rows in second.history["value"]] == [2, 2]


def test_a_read_out_added_later_is_the_one_in_memory(tmp_path):
    game, folder = load("leduc"), SnapshotFolder(tmp_path)
    model, in_memory = small_model(game, strategies="asked"), {}
    for _ in range(6):
        model.training_step(None, 0)
        if model.is_due:
            # A copy of what is there now: rows are let go when they are stored.
            in_memory[model.iteration] = (average_policy_of(model, 2), metrics_of(model))
            folder.write(model.snapshot())
    for iteration in folder.iterations:
        snapshot = folder.read(iteration)
        policy, metrics = in_memory[iteration]
        later = tabulated(game, seats_of(model, ReadoutConfig("ensemble", 2), snapshot))
        assert torch.equal(later.table, policy.table)
        assert metrics_of(model, snapshot=snapshot) == metrics
    # A snapshot is of its own iteration, however far the training is.
    early = seats_of(model, ReadoutConfig("ensemble"), folder.read(2))[0]
    assert list(early.members) == [0, 1]
    assert early.weight.tolist() == [1, 2]


def test_without_an_average_network_nothing_is_noted_for_one():
    model = small_model(load("kuhn"), average=None, readouts={"sd_cfr": ReadoutConfig("ensemble")})
    for _ in range(2):
        model.training_step(None, 0)
    assert model.metrics["memory/strategy"] == 0
    assert "loss/policy" not in model.metrics
    assert model.state() == {}
    with pytest.raises(ReproError, match=r"has no average networks: algorithm\.average is null"):
        seats_of(model, ReadoutConfig("average_network"))


def test_snapshots_of_another_architecture_are_refused():
    model = small_model(load("kuhn"))
    for _ in range(2):
        model.training_step(None, 0)
    model.network = NetworkConfig("sd_cfr", 8)
    with pytest.raises(ReproError, match=r"holds networks of .* parameters; here this architecture has"):
        seats_of(model, ReadoutConfig("ensemble"))
    with pytest.raises(ReproError, match="average networks have another shape"):
        seats_of(model, ReadoutConfig("average_network"))


# -- configurations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "architecture", "sentence"),
    [
        ("leduc", {"opening": "table"}, "sd_cfr", "algorithm.opening is table; the strategies of the game leduc are"),
        ("kuhn", {"strategies": "asked"}, "sd_cfr", "algorithm.opening is table; the game kuhn has one betting round"),
        ("leduc", {"strategies": "asked", "memory": "aggregated"}, "sd_cfr", "algorithm.memory is aggregated; it sums"),
        ("hunl_pot", {"strategies": "listed"}, "sd_cfr", "algorithm.strategies is listed; the game hunl_pot has"),
        ("leduc", {"average": None}, "sd_cfr", "algorithm.readouts.deep_cfr.kind is average_network, but algorithm.av"),
        ("leduc", {}, "dnet", "network.architecture is dnet, whose state value the algorithm small has no use for"),
        ("leduc", {}, "prelu", "network.architecture is prelu; prelu is for networks of subgames' values"),
        (
            "leduc", {"value": RegressionConfig(1, 1, precision="bf16", start="random")}, "sd_cfr",
            "algorithm.value.precision is bf16, which needs device=cuda; device is cpu.",
        ),
    ],
)  # fmt: skip
def test_configurations_that_cannot_be_are_refused(name, changes, architecture, sentence):
    algorithm = small_config(**changes)
    (problem, *_) = algorithm.problems(config_of(algorithm, NetworkConfig(architecture, 8)), load(name))
    assert sentence in problem


def test_listed_strategies_take_full_precision_only():
    algorithm = small_config(average=RegressionConfig(1, 1, precision="bf16", start="random"))
    config = config_of(algorithm, NetworkConfig("sd_cfr", 8), device="cuda")
    (problem,) = algorithm.problems(config, load("leduc"))
    assert problem.startswith("algorithm.average.precision is bf16; the strategies of the game leduc are listed, which")
