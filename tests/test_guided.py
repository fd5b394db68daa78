"""Deep CFR along the path of exact Linear CFR: what its fits are compared with is what their samples mean."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from repro.algorithms.guided import Guided, GuidedConfig
from repro.algorithms.tabular import VARIANTS, TabularCFRConfig, solver_of
from repro.common.errors import ReproError
from repro.config import RegressionConfig
from repro.plans.planning import plan
from repro.policies.network import opening_infosets
from repro.policies.regret_matching import regret_matching
from tests.helpers.deep_cfr import small_config
from tests.helpers.holdem import NETWORK, READOUTS, small_game
from tests.helpers.training import advanced, straight_and_resumed

GAME = small_game()


def model(seed: int = 0, **changes: Any) -> Guided:
    given: dict[str, Any] = {
        "strategies": "asked",
        "readouts": {"sd_cfr": READOUTS["sd_cfr"]},
        "average": None,
        **changes,
    }
    config = small_config(**given)
    values = {name: getattr(config, name) for name in vars(config)}
    return Guided(GAME, GuidedConfig(**values, compared_boards=8), NETWORK, seed)


def test_it_is_led_by_linear_cfr():
    variant = VARIANTS["linear_cfr"]
    assert isinstance(variant, TabularCFRConfig)
    exact = solver_of(GAME, variant, 0)
    led = advanced(model(traversals=50), 5)
    for _ in range(5):
        exact.step()
    assert torch.equal(led.leader.regrets, exact.regrets)
    every = torch.arange(GAME.infosets)
    expected = regret_matching(exact.regrets, GAME.legal, "uniform")
    assert torch.equal(led.current_policy().probabilities(every), expected)


def rows_after_the_opening(led: Guided, player: int) -> Tensor:
    rows = torch.arange(led.compared.rows)[led.compared.player_slice[player]]
    return rows[opening_infosets(GAME, player) :]


@pytest.mark.parametrize("unit", [{"regret_unit": 50.0}, {"regret_unit": 0.2, "regrets_in": "pots"}])
def test_what_fits_are_compared_with_is_the_mean_of_samples(unit):
    led = advanced(model(traversals=40_000, value_capacity=4_000_000, **unit), 4)
    for player in range(2):
        rows = rows_after_the_opening(led, player)
        rows = rows[led.weight[rows] > 1e-4]
        infosets, weight = led.compared.infosets[rows], led.weight[rows]
        exact = led._exact(infosets, weight)
        memory = led.value_memories[player].state_dict()
        start = GAME.player_slice[player].start
        share = memory["iteration"].double()
        row = memory["infoset"].long()
        total = torch.zeros(GAME.infosets, dtype=torch.float64).index_add_(0, row, share)
        squares = torch.zeros_like(total).index_add_(0, row, share**2)
        seen = total[infosets - start]
        # Samples come as often as the weight says.
        assert float((seen / weight).log().std()) < 0.2
        assert float(seen.sum() / weight.sum()) == pytest.approx(40_000, rel=0.02)
        errors = []
        for action, target in enumerate(memory["target"].double()):
            sums = torch.zeros_like(total).index_add_(0, row, share * target)
            mean = sums / total
            spread = torch.zeros_like(total).index_add_(0, row, share * (target - mean[row]) ** 2) / total
            deviation = (spread * squares / total**2).sqrt()[infosets - start]
            found = (mean[infosets - start] - exact[:, action]) / deviation
            errors.append(found[deviation > 0])
        scores = torch.cat(errors)
        assert len(scores) > 100
        # In units of their standard errors; not quite normal, with some hundred samples each.
        assert abs(float(scores.mean())) < 0.25
        assert 0.7 < float(scores.std()) < 1.3


def test_a_network_that_answers_exactly_leaves_nothing_unexplained(monkeypatch):
    led = advanced(model(traversals=200, when_no_positive="uniform"), 3)

    def exactly(network, inputs, infosets):
        player = int(infosets[0] >= GAME.player_slice[1].start)
        rows = rows_after_the_opening(led, player)
        weight = led.weight[rows[torch.isin(led.compared.infosets[rows], infosets)]]
        yield torch.arange(len(infosets)), led._exact(infosets, weight), GAME.legal_at(infosets)

    def zero(network, inputs, infosets):
        yield torch.arange(len(infosets)), torch.zeros(len(infosets), 3), GAME.legal_at(infosets)

    monkeypatch.setattr("repro.algorithms.guided.answers", exactly)
    found = led.prepare_snapshot()
    assert found["unexplained"] == pytest.approx(0, abs=1e-12)
    assert found["strategy_distance"] == pytest.approx(0, abs=1e-12)
    monkeypatch.setattr("repro.algorithms.guided.answers", zero)
    found = led.prepare_snapshot()
    # Zero is no better than the mean.
    assert found["unexplained"] >= 1
    assert found["strategy_distance"] > 0.05
    assert found["unexplained"] == pytest.approx((found["unexplained/player_0"] + found["unexplained/player_1"]) / 2)


def test_errors_are_as_alike_as_the_networks_that_make_them(monkeypatch):
    """Of errors that are drawn: the same in both iterations, half of them new, all of them new, and turned round."""
    led = advanced(model(traversals=200, iterations=50, snapshot_every=50), 2)
    draw = torch.Generator().manual_seed(0)
    old, new = torch.randn(2, led.compared.rows, 3, generator=draw)

    def wrong_by(errors: Tensor) -> dict[str, float]:
        def answer(network, inputs, infosets):
            player = int(infosets[0] >= GAME.player_slice[1].start)
            rows = rows_after_the_opening(led, player)
            rows = rows[torch.isin(led.compared.infosets[rows], infosets)]
            yield torch.arange(len(infosets)), led._exact(infosets, led.weight[rows]) + errors[rows], None

        monkeypatch.setattr("repro.algorithms.guided.answers", answer)
        return led.prepare_snapshot()

    assert "errors_alike" not in wrong_by(old), "there is none before"
    for errors, alike in ((3 * old, 1.0), (old + new, 0.5**0.5), (new - old, 0.0), (-new, -(0.5**0.5))):
        advanced(led, 1)
        found = wrong_by(errors)
        assert found["errors_alike"] == pytest.approx(alike, abs=0.1)
        assert -1 <= found["strategy_errors_alike"] <= 1


@pytest.mark.exhaustive
def test_longer_fits_explain_more():
    changes: dict[str, Any] = {"traversals": 3000, "value_capacity": 50_000, "regret_unit": 50.0}
    short, long = (
        advanced(model(**changes, value=RegressionConfig(steps, 256, start="previous")), 4) for steps in (3, 300)
    )
    found = [led.prepare_snapshot()["unexplained"] for led in (short, long)]
    assert found[1] < 0.8 * found[0]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 3])
def test_resuming_equals_never_stopping(tmp_path, stop):
    straight, resumed = straight_and_resumed(model, 4, stop, tmp_path)
    for player in range(2):
        assert torch.equal(straight._adams["value"][player].flat, resumed._adams["value"][player].flat)
    assert torch.equal(straight.leader.regrets, resumed.leader.regrets)
    assert torch.equal(straight.weight, resumed.weight)
    assert straight.prepare_snapshot() == resumed.prepare_snapshot()
    assert "strategy_errors_alike" in resumed.metrics or stop == 1


def test_checkpoints_that_know_no_errors_are_continued():
    """Those of earlier versions; errors are compared from then on."""
    led = advanced(model(traversals=200, snapshot_every=1), 2)
    saved = {key: value for key, value in led.progress().items() if key != "errors"}
    other = model(traversals=200, snapshot_every=1)
    other.iteration = led.iteration
    other.restore(saved)
    assert "errors_alike" not in other.prepare_snapshot()
    advanced(other, 1)
    assert "errors_alike" in other.prepare_snapshot()


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["game=leduc"], "takes Hold'em games with one board"),
        (["game=fhp5", "evaluation.exploitability.boards=4"], "takes Hold'em games with one board"),
        (["algorithm.strategies=listed", "game.ranks=4", "game.suits=2"], "algorithm.strategies is listed"),
        (["game.ranks=4", "game.suits=2"], "algorithm.strategies is null, by which those of fhp are listed"),
        (["seeds=[0,1]"], "seeds is"),
        (["algorithm.loss_weight=uniform"], "algorithm.loss_weight is uniform; the algorithm guided_deep_cfr"),
        (["algorithm.passed_up=maximum"], "algorithm.passed_up is maximum"),
        (["algorithm.compared_boards=1756"], "algorithm.compared_boards is 1756; fhp has 1755 boards"),
        (["algorithm.compared_boards=1"], "algorithm.compared_boards"),
    ],
)
def test_what_it_cannot_do_is_told(overrides, sentence):
    with pytest.raises(ReproError, match=sentence):
        plan(
            [
                "experiment=fhp_deep_cfr", "algorithm=guided_deep_cfr", "algorithm.average=null",
                "+algorithm.readouts.sd_cfr={kind: ensemble}", *overrides,
            ],
            multirun=False,
        )  # fmt: skip


def test_there_is_no_average_network():
    with pytest.raises(ReproError, match=r"algorithm\.average is not null"):
        plan(
            [
                "experiment=fhp_deep_cfr", "algorithm=guided_deep_cfr", "algorithm.average.start=random",
                "algorithm.average.learning_rate=0.001",
            ],
            multirun=False,
        )  # fmt: skip
