"""Does Deep CFR compute what it should? Against Linear CFR, against brute force, and what its settings do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.memory import Aggregated
from repro.algorithms.tabular import VARIANTS, solver_of
from repro.common.errors import ReproError
from repro.common.seeding import generator
from repro.config import NetworkConfig, ReadoutConfig, RegressionConfig
from repro.engine.sampling import SamplingEngine
from repro.evaluation import expected_value, nash_conv
from repro.evaluation.averages import tabulated
from repro.evaluation.exploitability import exact_engine
from repro.games import load
from repro.games.betting import RAISE
from repro.policies import TabularPolicy, uniform
from repro.policies.base import table_of
from repro.policies.ensemble import Average, reservoir_members
from repro.policies.regret_matching import regret_matching
from tests.helpers.deep_cfr import listed, small_config, small_model
from tests.helpers.holdem import holdem_model, small_game
from tests.helpers.training import advanced, average_policy_of, config_of, metrics_of, seats_of


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
    advanced(model, iterations)
    return model


@pytest.mark.parametrize(("name", "traversals"), [("kuhn", 20_000), ("leduc", 8_000)])
@pytest.mark.parametrize("weight", ["t/T", "uniform"])
def test_with_a_perfect_table_it_tracks_linear_cfr_or_cfr(name, traversals, weight):
    game, iterations = load(name), 25
    sampled = nash_conv(game, tabular_run(game, iterations, traversals, loss_weight=weight).average_policy())
    linear = nash_conv(game, exact_cfr(game, iterations, linear=True))
    plain = nash_conv(game, exact_cfr(game, iterations, linear=False))
    expected, other = (plain, linear) if weight == "uniform" else (linear, plain)
    # Plain CFR is what forgetting the linear weights would give; sampling noise is smaller than that difference.
    assert abs(sampled - expected) < 0.5 * abs(other - expected)
    assert sampled == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize("change", [{"divide_by_legal": True, "regret_unit": 2.6}, {"regrets_in": "pots"}])
def test_what_scales_all_regrets_of_an_infoset_changes_no_tabular_strategy(change):
    game = load("leduc")
    plain = tabular_run(game, 3, 500, divide_by_legal=False, regret_unit=1.0)
    scaled = tabular_run(game, 3, 500, **change)
    assert torch.allclose(listed(plain).table, listed(scaled).table, atol=1e-5)


def test_explicit_average_and_trajectory_sampling_agree():
    game = load("leduc")
    model = small_model(game, seed=3, iterations=8)
    advanced(model, 8)
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
    advanced(model, 30)
    for readout in ("sd_cfr", "deep_cfr"):
        assert metrics_of(model)[readout]["nash_conv"] < 0.25 * nash_conv(game, uniform(game))


def test_leaving_more_snapshots_changes_nothing_that_is_learned():
    game = load("kuhn")
    often, once = small_model(game, snapshot_every=1), small_model(game, snapshot_every=6)
    for model in (often, once):
        advanced(model, 6)
    assert torch.equal(listed(often).table, listed(once).table)
    assert metrics_of(often)["deep_cfr"]["nash_conv"] == metrics_of(once)["deep_cfr"]["nash_conv"]


def test_seeds_differ_and_the_same_seed_repeats():
    game = load("kuhn")
    runs = [small_model(game, seed) for seed in (0, 0, 1)]
    for model in runs:
        model.step()
    first = [model.history["value"][0][0] for model in runs]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


def test_a_capacity_that_is_never_reached_is_the_full_buffer():
    model = small_model(load("kuhn"))
    advanced(model, 4)
    assert torch.equal(average_policy_of(model, 100).table, average_policy_of(model).table)
    assert not torch.equal(average_policy_of(model, 2).table, average_policy_of(model).table)


def test_a_batch_may_be_larger_than_what_was_collected():
    """Rows are drawn with replacement: many times what the memory holds is nearly all of it, weighted alike."""
    model = small_model(load("kuhn"), value=RegressionConfig(steps=300, batch_size=20_000, start="random"))
    model.iteration = 1
    model.collect(0)
    assert model.value_memories[0].size < 20_000
    (rows, *_) = list(model.begin_fit("value", 0, merged=False))[-1:]
    assert len(rows.target) == 20_000
    assert model._fit("value", 0) < float((rows.weight * rows.target.square()).sum())


def test_a_memory_without_samples_is_refused():
    model = small_model(load("kuhn"))
    model.iteration = 1
    with pytest.raises(ReproError, match=r"algorithm\.traversals is \d+, and by iteration 1 they met no decision for"):
        model.begin_fit("value", 0)


def test_a_diverging_network_is_refused_with_its_iteration():
    regression = RegressionConfig(steps=30, batch_size=64, learning_rate=1e20, clip_norm=1e30, start="random")
    model = small_model(load("leduc"), value=regression)
    with pytest.raises(ReproError, match=r"diverged in iteration 1.*learning_rate is 1e\+20"):
        model.step()


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


def test_memories_hold_regrets_in_pots():
    game = load("leduc")
    model, sampled = collected(game, divide_by_legal=False, regret_unit=0.5, regrets_in="pots", traversals=40)
    infosets = sampled.advantages.infosets
    pots = torch.tensor([pot_in_leduc(game.tree.histories[node]) for node in game.infoset_node[infosets].tolist()])
    assert len(pots.unique()) > 5
    held = model.value_memories[0].state_dict()["target"].t()
    assert torch.allclose(held, sampled.advantages.targets / (0.5 * pots[:, None]))


def pot_in_leduc(history: tuple[tuple[int, ...], ...]) -> float:
    """By its rules: antes of 1, raises of 2 chips in the first round and of 4 in the second."""
    chips = [1.0, 1.0]
    for size, taken in zip((2, 4), history, strict=False):
        for turn, action in enumerate(taken):
            chips[turn % 2] = max(chips) + (size if action == RAISE else 0)
    return sum(chips)


@pytest.mark.parametrize("change", [{"divide_by_legal": False}, {"regret_unit": 5.2}])
def test_options_of_the_regret_targets_reach_the_memory(change):
    game = load("leduc")
    changes: list[dict[str, Any]] = [{}, change]
    plain, changed = (collected(game, **c)[0].value_memories[0].state_dict()["target"] for c in changes)
    assert not torch.allclose(plain, changed)


def test_strategies_are_uniform_until_a_player_has_learned():
    game = load("leduc")
    model = small_model(game)
    model.iteration = 1
    for player, mine in enumerate(game.player_slice):
        assert torch.equal(listed(model).table[mine], game.uniform[mine].float())
        model.collect(player)
        model._fit("value", player)
        model.renew_strategy(player)
        assert not torch.equal(listed(model).table[mine], game.uniform[mine].float())


@pytest.mark.parametrize("name", ["listed", "cards"])
def test_fits_may_take_more_steps_in_each_iteration(name):
    value = RegressionConfig(steps=8, batch_size=64, start="previous", more_steps=3)
    make = holdem_model if name == "cards" else small_model
    model = make(small_game() if name == "cards" else load("leduc"), value=value)
    for iteration in range(1, 4):
        advanced(model, 1)
        for adam in model._adams["value"]:
            assert int(adam.state[adam.flat]["step"]) == 8 + 3 * (iteration - 1)


@pytest.mark.parametrize("name", ["listed", "cards"])
def test_fits_may_start_from_random_weights_from_some_iteration_on(name):
    """Until then fits are those from the previous network; then those of a training that was told so from the start."""
    game = small_game() if name == "cards" else load("leduc")
    make = holdem_model if name == "cards" else small_model

    def of(**start: Any) -> DeepCFR:
        return make(game, value=RegressionConfig(steps=8, batch_size=64, **start))

    warm, changing = advanced(of(start="previous"), 2), advanced(of(start="previous", random_from=3), 2)
    assert flat_values(changing) == flat_values(warm)
    always = of(start="random")
    always.load_state_dict(changing.state_dict())
    always.resume(changing.saved())
    assert flat_values(advanced(changing, 1)) == flat_values(advanced(always, 1)) != flat_values(advanced(warm, 1))


def flat_values(model: DeepCFR) -> list[list[float]]:
    return [adam.flat.tolist() for adam in model._adams["value"]]


def test_the_loss_weight_scales_the_loss():
    game = load("leduc")
    losses = []
    for weight in ("t/T", "2t/T"):
        model = small_model(game, loss_weight=weight, value=RegressionConfig(steps=1, batch_size=64, start="previous"))
        model.step()
        losses.append(model.metrics["loss/value"])
    # Of one step the loss is that of the untouched initial network.
    assert losses[1] == pytest.approx(2 * losses[0], rel=1e-5)


@pytest.mark.parametrize("memory", ["reservoir", "window", "aggregated"])
def test_without_linear_weights_all_samples_of_both_fits_count_the_same(memory):
    game = load("leduc")
    model = advanced(small_model(game, loss_weight="uniform", memory=memory, traversals=200), 4)
    for which in ("value", "average"):
        (batch, *_) = model.begin_fit(which, 0)
        # Weights include the division by rows and actions; 1 per sample is all that there is.
        assert float(batch.weight.sum()) == pytest.approx(1 / game.num_actions, rel=1e-5)
        held = model.learner(which, 0).memory.state_dict()
        if memory == "aggregated":
            assert float(held["weight"].sum()) == int(held["entries"])
        else:
            assert set(held["iteration"].tolist()) == {1}
    assert [seat.weight.tolist() for seat in seats_of(model, ReadoutConfig("ensemble"))] == [[1.0] * 4] * 2


@pytest.mark.parametrize("memory", ["reservoir", "window"])
def test_entries_are_drawn_as_each_fit_says(memory):
    value, average = (RegressionConfig(2, 300, start="random", drawn=drawn) for drawn in ("by_weight", "uniformly"))
    model = advanced(small_model(load("leduc"), memory=memory, traversals=50, value=value, average=average), 4)
    (by_weight, *_), (uniformly, *_) = (model.begin_fit(which, 0, merged=False) for which in ("value", "average"))
    assert len(by_weight.weight.unique()) == 1 < len(uniformly.weight.unique())
    held = model.learner("value", 0).memory.state_dict()["iteration"].double()
    mean = float(held.mean()) / 4 / 300 / model.game.num_actions
    assert float(by_weight.weight[0]) == pytest.approx(mean, rel=1e-5)


def test_when_no_advantage_is_positive_the_configured_fallback_plays():
    game = load("leduc")
    strategies = []
    for fallback in ("argmax", "uniform"):
        model = small_model(game, when_no_positive=fallback)
        model.step()
        strategies.append(listed(model).table)
    assert not torch.equal(*strategies)


def test_the_average_network_learns_the_linear_average_of_the_sampled_strategies():
    """S-hat's target is the iteration-weighted mean of B^s at each infoset, which is not the mean of B^M."""
    game = load("kuhn")
    regression = RegressionConfig(steps=600, batch_size=512, learning_rate=5e-3, start="random")
    model = small_model(
        game, traversals=1500, iterations=4, average=regression, strategy_capacity=50_000, snapshot_every=9
    )
    advanced(model, 4)
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
    advanced(model, 2)
    found = metrics_of(model)
    assert found["deep_cfr"]["nash_conv"] != found["sd_cfr"]["nash_conv"]
    # NashConv / 2 in thousandths of the ante, which is two chips here.
    assert found["sd_cfr"]["exploitability"] == pytest.approx(found["sd_cfr"]["nash_conv"] / 2 / 2 * 1000)


def test_capped_buffers_differ_between_seeds_and_players():
    kept = {(seed, player): tuple(reservoir_members(200, 10, seed, player)) for seed in range(3) for player in range(2)}
    assert len(set(kept.values())) == 6


# -- configurations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "architecture", "sentence"),
    [
        ("leduc", {"opening": "table"}, "sd_cfr", "algorithm.opening is table; the strategies of the game leduc are"),
        ("kuhn", {"strategies": "asked"}, "sd_cfr", "algorithm.opening is table where strategies are asked; the"),
        ("leduc", {"strategies": "asked", "memory": "aggregated"}, "sd_cfr", "algorithm.memory is aggregated; it sums"),
        ("hunl_pot", {"strategies": "listed"}, "sd_cfr", "algorithm.strategies is listed; the game hunl_pot has"),
        ("leduc", {"average": None}, "sd_cfr", "algorithm.readouts.deep_cfr.kind is average_network, but algorithm.av"),
        ("leduc", {}, "dnet", "network.architecture is dnet, whose state value the algorithm small has no use for"),
        ("leduc", {}, "prelu", "network.architecture is prelu; prelu is for networks of subgames' values"),
        (
            "leduc", {"value": RegressionConfig(1, 1, precision="bf16", start="random")}, "sd_cfr",
            "algorithm.value.precision is bf16, which needs device=cuda; device is cpu.",
        ),
        (
            "leduc", {"memory": "aggregated", "value": RegressionConfig(1, 1, drawn="by_weight", start="random")},
            "sd_cfr", "algorithm.value.drawn is by_weight; nothing is drawn where algorithm.memory is aggregated",
        ),
        (
            "leduc", {"loss_weight": "uniform", "value": RegressionConfig(1, 1, drawn="by_weight", start="random")},
            "sd_cfr", "algorithm.value.drawn is by_weight; all entries weigh the same where algorithm.loss_weight is",
        ),
        (
            "leduc", {"average": RegressionConfig(1, 1, focus=0.5, start="random")}, "sd_cfr",
            "algorithm.average.focus is 0.5; S-hat's outputs are probabilities: leave it out.",
        ),
    ],
)  # fmt: skip
def test_configurations_that_cannot_be_are_refused(name, changes, architecture, sentence):
    algorithm = small_config(**changes)
    (problem, *_) = algorithm.problems(config_of(algorithm, NetworkConfig(architecture, 8)), load(name))
    assert sentence in problem
