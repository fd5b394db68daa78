"""Deep CFR and SD-CFR on Hold'em, on decks so small that every strategy fits a table: what is learned, and runs."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import torch
from torch import Tensor

from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.strategies import OpeningTable
from repro.common.errors import ReproError
from repro.config import RegressionConfig
from repro.engine.sampling import Traversals
from repro.evaluation.measures import Disagreement, Exploitability, Match
from repro.games import load
from repro.networks.holdem_features import HoldemFeatures
from repro.plans.planning import plan
from repro.policies.base import Policy
from repro.policies.network import opening_infosets
from tests.helpers.deep_cfr import asked
from tests.helpers.draws import seeded
from tests.helpers.holdem import every, holdem_model, opening_rows, small_game, tables, trained
from tests.helpers.training import advanced, metrics_of, straight_and_resumed


@pytest.fixture(scope="module")
def finished() -> DeepCFR:
    """After six iterations, evaluated on all boards. Tests must not change it."""
    return trained(small_game())


class Recorded:
    """What the engine gave in every call, and the strategies that it was given."""

    def __init__(self, model: DeepCFR, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[int, int, Tensor, Traversals]] = []
        original = model.engine.external_sampling

        def spy(policy: Policy, player: int, traversals: int, *others: Any) -> Traversals:
            assert traversals == model.algorithm.traversals
            found = original(policy, player, traversals, *others)
            strategy = policy.probabilities(every(model.game)).clone()
            self.calls.append((model.iteration, player, strategy, found))
            return found

        monkeypatch.setattr(model.engine, "external_sampling", spy)


# -- the first betting round -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when_no_positive", ["argmax", "uniform"])
def test_opening_table_by_hand(when_no_positive):
    legal = torch.tensor([[True, False, True], [False, True, True], [True, True, True], [True, True, True]])
    table = OpeningTable(legal, when_no_positive)
    uniform = torch.tensor([[0.5, 0, 0.5], [0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3], [1 / 3, 1 / 3, 1 / 3]]).double()
    torch.testing.assert_close(table.strategy(), uniform, rtol=0, atol=1e-7)
    torch.testing.assert_close(table.average(), uniform, rtol=0, atol=1e-7)
    table.regrets += torch.tensor([[1.0, 0, 3], [0, -2, -1], [0, 5, -5], [0, 0, 0]])
    otherwise = [0, 0, 1] if when_no_positive == "argmax" else [0, 0.5, 0.5]
    expected = torch.tensor([[0.25, 0, 0.75], otherwise, [0, 1, 0], [1 / 3, 1 / 3, 1 / 3]]).double()
    torch.testing.assert_close(table.strategy(), expected, rtol=0, atol=1e-7)
    table.sums += torch.tensor([[1.0, 0, 1], [0, 0, 0], [2, 6, 0], [0, 0, 7]])
    expected = torch.tensor([[0.5, 0, 0.5], [0, 0.5, 0.5], [0.25, 0.75, 0], [0, 0, 1]]).double()
    torch.testing.assert_close(table.average(), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("divide_by_legal", "loss_weight"), [(True, "t/T"), (False, "2t/T"), (False, "uniform")])
def test_opening_tables_sum_what_was_sampled_weighted_by_iteration(monkeypatch, divide_by_legal, loss_weight):
    # Few traversals, so that some hands are never dealt.
    game = load("fhp", ranks=5, suits=2)
    model = holdem_model(
        game, traversals=8, divide_by_legal=divide_by_legal, loss_weight=loss_weight,
        value=RegressionConfig(2, 1, start="random"),
    )  # fmt: skip
    recorded = Recorded(model, monkeypatch)
    regrets, sums = ([torch.zeros_like(o.regrets) for o in model.strategies.openings] for _ in range(2))
    for _ in range(3):
        model.iteration += 1
        model.advance()
    for iteration, player, _, found in recorded.calls:
        for table, owner, samples in (
            (regrets, player, found.advantages),
            (sums, 1 - player, found.opponent_strategies),
        ):
            for infoset, target in zip(samples.infosets.tolist(), samples.targets.double(), strict=True):
                if int(game.tree.round[game.infoset_node[infoset]]) == 0:
                    scale = 1.0
                    if table is regrets:
                        scale = 100.0 * (int(game.legal[infoset].sum()) if divide_by_legal else 1)
                    counts = 1 if loss_weight == "uniform" else iteration
                    table[owner][infoset - game.player_slice[owner].start] += counts * target / scale
    assert [c[:2] for c in recorded.calls] == [(t, p) for t in (1, 2, 3) for p in (0, 1)]
    for player, opening in enumerate(model.strategies.openings):
        torch.testing.assert_close(opening.regrets, regrets[player], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(opening.sums, sums[player], rtol=1e-5, atol=1e-6)
        unseen = (regrets[player] == 0).all(1)
        assert 0 < int(unseen.sum()) < len(unseen)
        early = game.uniform[game.player_slice[player]][opening_rows(game, player)]
        assert torch.equal(opening.strategy()[unseen], early[unseen])
        assert bool((opening.sums[~early.bool()] == 0).all())
        assert torch.equal(model.history["opening"][player][-1], opening.strategy())


def test_opening_infosets_are_the_first_of_a_player():
    for game in (small_game(), load("fhp_limit", ranks=4, suits=2)):
        for player in range(2):
            early = opening_rows(game, player)
            count = opening_infosets(game, player)
            assert bool(early[:count].all())
            assert not bool(early[count:].any())


@pytest.mark.parametrize("name", ["fhp", "fhp_limit"])
def test_memories_hold_what_was_sampled_after_the_first_round(monkeypatch, name):
    game = load(name, ranks=4, suits=2)
    model = holdem_model(game, value_capacity=100_000, strategy_capacity=100_000, traversals=150)
    recorded = Recorded(model, monkeypatch)
    for _ in range(3):
        model.iteration += 1
        model.advance()
    expected: dict[tuple[str, int], list[tuple[int, Tensor, Tensor]]] = {}
    for iteration, player, _, found in recorded.calls:
        for which, owner, samples in (
            ("value", player, found.advantages),
            ("strategy", 1 - player, found.opponent_strategies),
        ):
            late = game.tree.round[game.infoset_node[samples.infosets]] > 0
            assert 0 < int(late.sum()) < len(late)
            targets = samples.targets[late]
            if which == "value":
                targets = targets / 100 / game.legal[samples.infosets[late]].sum(1, keepdim=True)
            expected.setdefault((which, owner), []).append((iteration, samples.infosets[late], targets))
    for (which, owner), parts in expected.items():
        memory = {"value": model.value_memories, "strategy": model.strategy_memories}[which][owner]
        state = memory.state_dict()
        assert torch.equal(state["infoset"] + game.player_slice[owner].start, torch.cat([p[1] for p in parts]))
        assert torch.equal(state["iteration"], torch.cat([torch.full((len(p[1]),), p[0]) for p in parts]))
        torch.testing.assert_close(state["target"].t(), torch.cat([p[2] for p in parts]), rtol=1e-5, atol=1e-6)


def test_inputs_of_a_minibatch_are_those_of_its_infosets():
    model = trained(small_game(), 1)
    for player in range(2):
        (batch,) = model.value_memories[player].minibatches(1, 32, 1, 1.0, seeded(0))
        filled = asked(model).with_inputs(batch, player)
        assert filled.inputs is not None
        assert batch.infosets is not None
        expected = HoldemFeatures(model.game).rows(batch.infosets + model.game.player_slice[player].start)
        assert all(torch.equal(a, b) for a, b in zip(filled.inputs, expected, strict=True))
        assert torch.equal(filled.target, batch.target)


# -- iterations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when_no_positive", ["argmax", "uniform"])
def test_each_traversal_meets_the_newest_strategies(monkeypatch, when_no_positive):
    game = small_game()
    model = holdem_model(game, when_no_positive=when_no_positive, snapshot_every=99)
    recorded = Recorded(model, monkeypatch)
    assert torch.equal(model.current_policy().probabilities(every(game)), game.uniform.float())
    advanced(model, 3)
    for iteration, traverser, met, _ in recorded.calls:
        for player, mine in enumerate(game.player_slice):
            # Player 0 is updated first: player 1's traversals meet her new strategy.
            stored = iteration if traverser == 1 and player == 0 else iteration - 1
            expected = tables(model, player)[stored - 1] if stored else game.uniform[mine]
            torch.testing.assert_close(met[mine].double(), expected, rtol=0, atol=1e-4)
    assert all(len(s) == 3 for both in model.history.values() for s in both)


def test_nodes_touched_and_memory_sizes_are_reported(monkeypatch):
    model = holdem_model(small_game(), snapshot_every=99)
    recorded = Recorded(model, monkeypatch)
    advanced(model, 2)
    measured = model.metrics
    assert measured["nodes_touched"] == sum(c[3].nodes_touched for c in recorded.calls)
    assert measured["memory/value"] == sum(m.size for m in model.value_memories)
    assert measured["memory/strategy"] == sum(m.size for m in model.strategy_memories)
    assert measured["player_updates"] == 4


def everything(model: DeepCFR) -> list[Tensor]:
    """What read-outs are made of."""
    state = model.state()
    rows = [torch.stack(list(history)) for both in model.history.values() for history in both]
    return [*rows, *state["average_opening"]] + [v for network in state["average"] for v in network.values()]


def everything_measured(model: DeepCFR, boards: int | None = None) -> dict[str, dict[str, float]]:
    match = Match(opponents={"deep_cfr": "/deep_cfr"}, hands=200)
    return metrics_of(model, Exploitability(boards=boards), match, Disagreement(rollouts=50))


def assert_same(one: DeepCFR, other: DeepCFR, boards: int | None = None) -> None:
    assert everything_measured(one, boards) == everything_measured(other, boards)
    found, expected = everything(one), everything(other)
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_the_same_seed_repeats_and_another_does_not(finished):
    assert_same(finished, trained(small_game()))
    other = trained(small_game(), seed=1)
    assert metrics_of(finished)["sd_cfr"]["nash_conv"] != metrics_of(other)["sd_cfr"]["nash_conv"]
    assert not torch.equal(finished.history["value"][0][0], other.history["value"][0][0])


def test_leaving_more_snapshots_changes_nothing_that_is_learned(finished):
    rare = trained(small_game(), snapshot_every=99)
    assert_same(finished, rare)


@pytest.mark.parametrize(("boards", "start", "stop"), [(None, "previous", 1), (None, "random", 3), (20, "previous", 4)])
def test_resuming_equals_never_stopping(tmp_path, boards, start, stop):
    game = small_game()
    regression = RegressionConfig(steps=8, batch_size=64, start=start)
    changes: dict[str, Any] = {
        "value": regression, "average": regression, "iterations": 5, "value_capacity": 150, "strategy_capacity": 150,
    }  # fmt: skip
    straight, resumed = straight_and_resumed(lambda: holdem_model(game, **changes), 5, stop, tmp_path)
    assert resumed.iteration == straight.iteration == 5
    assert straight.value_memories[0].size == 150, "the reservoir must have been full"
    assert_same(resumed, straight, boards)
    for name in ("value_memories", "strategy_memories"):
        for a, b in zip(getattr(resumed, name), getattr(straight, name), strict=True):
            assert all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())
    for a, b in zip(resumed.strategies.openings, straight.strategies.openings, strict=True):
        assert torch.equal(a.regrets, b.regrets)
        assert torch.equal(a.sums, b.sums)


@pytest.mark.parametrize("batch_size", [64, 128, 2000])
def test_minibatches_of_every_kind_are_learned_from(batch_size):
    """Rows as drawn, rows merged by infoset, and all of the player's infosets at once (856 on this deck)."""
    regression = RegressionConfig(steps=4, batch_size=batch_size, start="random")
    model = trained(small_game(), 1, value=regression, average=regression, traversals=4000,
                    value_capacity=4000, strategy_capacity=4000)  # fmt: skip
    assert model.metrics["loss/policy"] > 0


# -- configuration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ("network.card_width=null", "network.card_width has no value; the architecture deep_cfr needs"),
        ("network.layers=2", "network.layers is 2, but the architecture deep_cfr has a fixed depth"),
    ],
)
def test_bad_configuration_is_refused(overrides, sentence):
    given = ["game=fhp", "algorithm=sd_cfr_and_deep_cfr", "network=deep_cfr", *shlex.split(overrides)]
    with pytest.raises(ReproError) as caught:
        plan(given, multirun=False)
    assert sentence in str(caught.value)
