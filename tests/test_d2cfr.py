"""D2CFR: the dueling network, rectified regrets, the policy loss, and what it shares with Deep CFR."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import torch

from repro.algorithms.d2cfr import D2CFR, ListedStateValues, rectification_weight
from repro.algorithms.deep_cfr import DeepCFR
from repro.common.errors import ReproError
from repro.config import NetworkConfig, ReadoutConfig, RegressionConfig
from repro.games import Game, load
from repro.networks.features import feature_columns, infoset_features
from repro.networks.gradients import Autograd, gradients_of
from repro.networks.modules import average_network, value_network
from repro.networks.optimizers import FlatAdam
from repro.plans.planning import plan
from repro.policies.ensemble import BM
from repro.policies.regret_matching import regret_matching
from tests.helpers.deep_cfr import d2cfr_config, listed, small_config
from tests.helpers.training import advanced, config_of, config_of_model, metrics_of, seats_of, straight_and_resumed

DNET, FC = NetworkConfig("dnet", 12), NetworkConfig("fc", 12, 2)


def d2cfr(game: Game, network: NetworkConfig = DNET, seed: int = 0, **changes: Any) -> D2CFR:
    return D2CFR(game, d2cfr_config(**changes), network, seed)


def policies_of(model: D2CFR, player: int) -> list[torch.Tensor]:
    """What the player's last policy networks play at all of her infosets."""
    part, network = model.game.player_slice[player], model.architecture("average")
    tables = []
    for parameters in model.recent[player]:
        torch.nn.utils.vector_to_parameters(parameters, network.parameters())
        tables.append(network(listed(model).features[part], model.game.legal[part]).detach())
    return tables


# -- the network -------------------------------------------------------------------------------------------------------


def test_dnet_has_seven_layers_and_a_state_value():
    game = load("leduc")
    features, legal = infoset_features(game), game.legal
    network = value_network(DNET, feature_columns(game), 3)
    head: Any = network.head
    head.state_scale = 0.5
    output = network(features, legal)
    assert output.shape == (game.infosets, 4)
    trunk = network.body(features)
    state, action = head.state(trunk), head.action(trunk)
    torch.testing.assert_close(output[:, :3], (action - state) * legal)
    torch.testing.assert_close(output[:, 3:], 0.5 * state)
    longer = [m for part in (network.body, head.action) for m in part.modules() if isinstance(m, torch.nn.Linear)]
    shorter = [m for part in (network.body, head.state) for m in part.modules() if isinstance(m, torch.nn.Linear)]
    assert (len(longer), len(shorter)) == (7, 6)
    policy = average_network(DNET, feature_columns(game), 3)
    assert sum(isinstance(m, torch.nn.Linear) for m in policy.modules()) == 7


def test_dnet_is_differentiated_by_hand_as_by_autograd():
    game = load("leduc")
    features, legal = infoset_features(game), game.legal
    network = value_network(DNET, feature_columns(game), 3)
    head: Any = network.head
    head.state_scale = 0.7
    flat = FlatAdam(network, 1e-3)
    draw = torch.Generator().manual_seed(0)
    weight, target = torch.rand(64, 1, generator=draw), torch.randn(64, 4, generator=draw)
    rows = torch.randint(game.infosets, (64,), generator=draw)
    found = []
    for gradients in (gradients_of(network), Autograd(network)):
        gradients.prepare(features, legal)
        gradients.select(rows)
        output = gradients.compute(weight, target, lambda y: 0.1 * y.square())
        found.append((output.clone(), flat.flat.grad.clone()))  # type: ignore[union-attr]
        flat.reset()
    assert type(gradients_of(network)).__name__ == "HandDifferentiated"
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


# -- Deep CFR is a special case ----------------------------------------------------------------------------------------


def test_without_its_parts_it_is_deep_cfr():
    """Bitwise: no DNet, no rectification, no divergence."""
    game = load("leduc")
    average = RegressionConfig(steps=10, batch_size=64, start="random")
    ours = advanced(d2cfr(game, FC, average=average), 6)
    base = small_config(readouts={"d2cfr": ReadoutConfig("average_network")}, average=average,
                        divide_by_legal=False, when_no_positive="uniform")  # fmt: skip
    theirs = advanced(DeepCFR(game, base, FC, 0), 6)
    assert torch.equal(listed(ours).table, listed(theirs).table)
    for mine, other in ((ours.value_networks, theirs.value_networks), (ours.average_networks, theirs.average_networks)):
        for a, b in zip(mine.parameters(), other.parameters(), strict=True):
            assert torch.equal(a, b)
    assert metrics_of(ours) == metrics_of(theirs)


# -- rectification -----------------------------------------------------------------------------------------------------


def test_the_schedule_is_as_printed():
    for t in (1, 10, 98, 99, 100, 1000):
        alpha, beta = 0.01 + t / (t + 1), 0.99 - t / (t + 1)
        assert rectification_weight(t, "printed") == pytest.approx(beta)
        assert alpha + rectification_weight(t, "printed") == pytest.approx(1)
        assert rectification_weight(t, "clipped") == pytest.approx(max(beta, 0))
    assert rectification_weight(99, "printed") == pytest.approx(0, abs=1e-12)
    assert rectification_weight(200, "printed") < 0


@pytest.mark.parametrize("rectification", ["none", "exact", "play_outs"])
def test_strategies_are_matched_to_rectified_regrets(rectification):
    game = load("leduc")
    simulations = 50 if rectification == "play_outs" else None
    model = d2cfr(game, rectification=rectification, simulations=simulations, regret_unit=2.0, state_loss=4.0)
    model.iteration = 3
    before = listed(model).table.clone()
    model.collect(0)
    model._fit("value", 0)
    mine = game.player_slice[0]
    output = model.value_networks[0](listed(model).features[mine], game.legal[mine]).detach()
    regrets, state = output[:, :3], output[:, 3]
    if rectification != "none":
        assert isinstance(model.state_values, ListedStateValues)
        histories = model.state_values.histories
        played = histories.state_values(before)
        if rectification == "play_outs":
            played = histories.played_out(before, 50, model.draws("play-outs", 0))
        # alpha V + beta V_MC instead of V, in Q - V.
        # They are traversed with in the next iteration.
        beta = 0.99 - 4 / 5
        mixed = (1 - beta) * state + beta * played[mine].float() / 2
        regrets = regrets + state[:, None] - mixed[:, None]
    model.renew_strategy(0)
    expected = regret_matching(regrets, game.legal[mine], "uniform")
    torch.testing.assert_close(listed(model).table[mine], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(listed(model).table[game.player_slice[1]], before[game.player_slice[1]])


def test_memories_hold_regrets_and_state_values():
    game = load("leduc")
    model = d2cfr(game, regret_unit=2.0, state_loss=0.25)
    model.iteration = 2
    found = model.collect(1)
    stored = model.value_memories[1].state_dict()["target"].t()
    torch.testing.assert_close(stored[:, :3], found.advantages.targets / 2)
    torch.testing.assert_close(stored[:, 3], 0.5 * found.state_values / 2)
    # A traversal's value is the state value of the traverser's first decision in it, on average over the deals.
    first = game.tree.player[game.infoset_node[found.advantages.infosets]] == 1
    assert bool(first.all())


def test_samples_are_rectified_in_the_second_reading():
    game = load("leduc")
    model = d2cfr(game, rectification="exact", simulations=None, rectified="samples", regret_unit=2.0, state_loss=4.0)
    model.iteration = 3
    table = listed(model).table.clone()
    found = model.collect(1)
    infosets = found.advantages.infosets
    state = model.value_networks[1](listed(model).features[infosets], game.legal[infosets])[:, 3].detach()
    assert isinstance(model.state_values, ListedStateValues)
    played = model.state_values.histories.state_values(table)[infosets].float()
    beta = 0.99 - 3 / 4
    # The sampled values of actions, less alpha V + beta V_MC.
    values = found.advantages.targets + found.state_values[:, None]
    expected = (values / 2 - ((1 - beta) * state + beta * played / 2)[:, None]) * game.legal[infosets]
    stored = model.value_memories[1].state_dict()["target"].t()
    torch.testing.assert_close(stored[:, :3], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(stored[:, 3], 2 * found.state_values / 2)
    model._fit("value", 1)
    model.renew_strategy(1)
    mine = game.player_slice[1]
    output = model.value_networks[1](listed(model).features[mine], game.legal[mine]).detach()
    expected = regret_matching(output[:, :3], game.legal[mine], "uniform")
    torch.testing.assert_close(listed(model).table[mine], expected)


def test_without_a_loss_of_its_own_the_state_value_learns_from_regrets_alone():
    """Algorithm 1's loss: the same fit, whatever the sampled state values are."""
    game, parameters = load("leduc"), []
    for shift in (0.0, 100.0):
        model = d2cfr(game, state_loss=0.0)
        model.iteration = 1
        model.collect(0)
        model.value_memories[0].load_state_dict(
            {k: v + shift * (torch.arange(4)[:, None] == 3) if k == "target" else v
             for k, v in model.value_memories[0].state_dict().items()}
        )  # fmt: skip
        loss = model._fit("value", 0)
        parameters.append(torch.nn.utils.parameters_to_vector(model.value_networks[0].parameters()).detach())
    assert torch.equal(*parameters)
    assert loss > 100  # What cannot be learned counts as loss.


@pytest.mark.slow
def test_the_state_value_is_learned():
    """With nothing else to learn than a fixed opponent's game, V approaches the exact state values."""
    game = load("kuhn")
    value = RegressionConfig(steps=3000, batch_size=256, learning_rate=3e-3, start="random")
    model = d2cfr(game, NetworkConfig("dnet", 32), traversals=20_000, value_capacity=200_000, value=value)
    model.iteration = 1
    model.collect(0)
    model._fit("value", 0)
    mine = game.player_slice[0]
    state = model.value_networks[0](listed(model).features[mine], game.legal[mine])[:, 3].detach()
    from repro.engine.histories import Histories  # noqa: PLC0415

    exact = Histories(game).state_values(game.uniform)[mine]
    torch.testing.assert_close(state.double(), exact, rtol=0, atol=0.08)


# -- the policy loss ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["minus", "plus"])
@pytest.mark.parametrize("weighting", ["t/T", "2t/T"])
def test_the_divergence_s_gradient_is_autograd_s(sign, weighting):
    game = load("leduc")
    model = d2cfr(game, kl_weight=0.3, kl_sign=sign, loss_weight=weighting)
    model.iteration = 5
    count, actions = 40, 3
    draw = torch.Generator().manual_seed(0)
    legal = game.legal[game.player_slice[0]][:count]
    output = torch.rand(count, actions, generator=draw) * legal
    output /= output.sum(1, keepdim=True)
    reference = torch.rand(144, actions, generator=draw) + 0.1
    infosets = torch.arange(count)
    found = model._divergence_gradient(output, reference[infosets])
    p = output.clone().requires_grad_()
    divergence = torch.xlogy(p, p / reference[infosets]).sum()
    times = {"t/T": 1, "2t/T": 2}[weighting] * {"minus": -1, "plus": 1}[sign]
    (expected,) = torch.autograd.grad(times * 0.3 * divergence / (5 * count * actions), p)
    torch.testing.assert_close(found, expected.nan_to_num() * (output > 0), rtol=1e-5, atol=1e-8)


@pytest.mark.slow
def test_the_sign_moves_policies_apart_or_together():
    game = load("leduc")
    moved = {}
    for sign in ("minus", "plus"):
        average = RegressionConfig(steps=60, batch_size=64, start="previous")
        model = advanced(d2cfr(game, kl_weight=20.0, kl_sign=sign, policy_every=1, average=average), 4)
        *before, last = policies_of(model, 0)
        moved[sign] = float((last - torch.stack(before).mean(0)).abs().sum(1).mean())
    none = advanced(d2cfr(game, policy_every=1, average=RegressionConfig(60, 64, start="previous")), 4)
    *before, last = policies_of(none, 0)
    still = float((last - torch.stack(before).mean(0)).abs().sum(1).mean())
    assert moved["plus"] < still < moved["minus"]


def test_the_window_holds_the_last_policies():
    model = advanced(d2cfr(load("kuhn"), kl_weight=0.1, kl_window=2, policy_every=2), 6)
    assert [len(r) for r in model.recent] == [2, 2]
    seats = seats_of(model, ReadoutConfig("average_network"))
    for player, part in enumerate(model.game.player_slice):
        found = seats[player].probabilities(torch.arange(part.start, part.stop))
        torch.testing.assert_close(found, policies_of(model, player)[-1])


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_resuming_equals_never_stopping(tmp_path):
    def make() -> D2CFR:
        return d2cfr(load("leduc"), rectification="play_outs", simulations=20, kl_weight=0.5, policy_every=1)

    straight, resumed = straight_and_resumed(make, 6, 3, tmp_path)
    assert torch.equal(listed(straight).table, listed(resumed).table)
    for ours, theirs in zip(straight.recent, resumed.recent, strict=True):
        assert torch.equal(torch.stack(list(ours)), torch.stack(list(theirs)))
    assert metrics_of(straight) == metrics_of(resumed)


def test_it_has_no_b_m():
    model = advanced(d2cfr(load("kuhn")), 2)
    assert model.history == model.snapshot().history == {}
    with pytest.raises(ReproError, match=r"has no B\^M, which only Deep CFR leaves"):
        BM(model.game, config_of_model(model), ReadoutConfig("ensemble")).seats(model.snapshot())


def test_strategies_listed_and_asked_are_the_same():
    """To rounding, with the dueling network and the divergence."""
    game = load("leduc")
    first, second = (
        advanced(d2cfr(game, strategies=held, opening="network", kl_weight=0.3), 4) for held in ("listed", "asked")
    )
    for name in ("value_memories", "strategy_memories"):
        for a, b in zip(getattr(first, name), getattr(second, name), strict=True):
            assert torch.equal(a.state_dict()["infoset"], b.state_dict()["infoset"])
            torch.testing.assert_close(a.state_dict()["target"], b.state_dict()["target"], rtol=1e-4, atol=1e-4)
    every = torch.arange(game.infosets)
    ours, theirs = (model.current_policy().probabilities(every) for model in (first, second))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    for player in range(2):
        for a, b in zip(first.recent[player], second.recent[player], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert metrics_of(second)["d2cfr"] == pytest.approx(metrics_of(first)["d2cfr"], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "parameters", "changes", "sentence"),
    [
        ("leduc", {}, {"strategies": "asked"}, "algorithm.rectification is play_outs; in the game leduc that needs"),
        ("fhp", {"ranks": 4, "suits": 2}, {}, "that needs algorithm.strategies=asked, and they are listed."),
        (
            "fhp", {"ranks": 4, "suits": 2}, {"strategies": "asked", "opening": "network"},
            "algorithm.opening is network; play-outs start after the first betting round, use table.",
        ),
        (
            "leduc", {}, {"strategies": "asked", "rectification": "exact", "simulations": None},
            "algorithm.rectification is exact; the game leduc has too many infosets",
        ),
        ("leduc", {}, {"average": None}, "algorithm.average is null; small has nothing but its policy networks"),
    ],
)  # fmt: skip
def test_state_values_go_with_the_strategies(name, parameters, changes, sentence):
    algorithm = d2cfr_config(**{"rectification": "play_outs", "simulations": 3, **changes})
    problem, *_ = algorithm.problems(config_of(algorithm, DNET), load(name, **parameters))
    assert sentence in problem


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            "network=fc",
            "algorithm.rectification is play_outs, but network.architecture fc; only dnet has",
        ),
        ("algorithm.simulations=null", "algorithm.simulations is None and algorithm.rectification play_outs"),
        ("algorithm.rectification=exact", "algorithm.simulations is 800 and algorithm.rectification exact"),
        ("algorithm.divide_by_legal=true", "algorithm.divide_by_legal is true; regrets and state values must have one"),
        (
            "algorithm.snapshot_every=15",
            "algorithm.snapshot_every is 15; it must be a multiple of algorithm.policy",
        ),
        (
            "algorithm.rectification=none algorithm.simulations=null algorithm.mixing=clipped",
            "algorithm.mixing is clipped, which has no effect where algorithm.rectification is none",
        ),
        ("algorithm.kl_weight=0 algorithm.kl_sign=plus", "algorithm.kl_sign is plus, which has no effect"),
        ("algorithm.memory=aggregated", "algorithm.memory is aggregated; d2cfr takes reservoir only"),
        ("algorithm.memory=window", "algorithm.memory is window; d2cfr takes reservoir only"),
        ("algorithm.loss_weight=uniform", "algorithm.loss_weight is uniform; d2cfr takes t/T and 2t/T only"),
        ("algorithm.kl_weight=-1", "algorithm.kl_weight is -1.0; it must be at least 0"),
        ("algorithm.state_loss=-1", "algorithm.state_loss is -1.0; it must be at least 0"),
        (
            "algorithm.rectification=none algorithm.simulations=null algorithm.rectified=samples",
            "algorithm.rectified is samples, which has no effect where algorithm.rectification is none",
        ),
        (
            "game=hunl_pot algorithm.rectified=samples",
            "algorithm.rectified is samples; where strategies are asked, as in",
        ),
        ("algorithm=deep_cfr network=dnet", "network.architecture is dnet"),
        ("algorithm.regrets_in=pots", "algorithm.regrets_in is pots; the algorithm d2cfr, which learns state values"),
        ("algorithm.value.focus=0.5", "algorithm.value.focus is 0.5; the network dnet learns state values beside"),
    ],
)
def test_bad_configuration_is_refused(overrides, sentence):
    with pytest.raises(ReproError) as caught:
        plan(["algorithm=d2cfr", *shlex.split(overrides)], multirun=False)
    assert sentence in str(caught.value)
