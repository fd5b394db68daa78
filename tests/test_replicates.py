"""Seeds of one training together in this process: they are the seeds alone, and can be resumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.replicates import Replicates
from repro.common.errors import ReproError
from repro.config import ReadoutConfig, RegressionConfig
from repro.games import load
from repro.plans.planning import plan
from repro.policies.snapshot import SnapshotFolder
from tests.helpers.deep_cfr import small_model
from tests.helpers.holdem import game_of, holdem_model
from tests.helpers.training import advanced, metrics_of, straight_and_resumed


def model_of(seed: int, **changes: Any) -> DeepCFR:
    readouts = {"sd_cfr": ReadoutConfig("ensemble"), "deep_cfr": ReadoutConfig("average_network")}
    given = {"traversals": 200, "iterations": 4, "readouts": readouts, **changes}
    return holdem_model(game_of("small_fhp"), seed, **given)


def together(models: Sequence[DeepCFR]) -> Any:
    return models[0].algorithm.together(list(models))


@pytest.mark.parametrize(
    ("start", "changes"),
    [("random", {}), ("previous", {}), ("previous", {"memory": "window", "loss_weight": "uniform"})],
)
def test_seeds_together_are_the_seeds_alone(start, changes):
    regression = RegressionConfig(steps=10, batch_size=64, start=start, more_steps=2)
    given = {"value": regression, "average": regression, **changes}
    seeds = (0, 3)
    batched = advanced(together([model_of(seed, **given) for seed in seeds]), 4)
    for ours, seed in zip(batched.replicates, seeds, strict=True):
        alone = advanced(model_of(seed, **given), 4)
        assert ours.iteration == alone.iteration == 4
        assert ours.metrics.keys() == alone.metrics.keys()
        found, expected = metrics_of(ours), metrics_of(alone)
        assert found.keys() == expected.keys() == {"sd_cfr", "deep_cfr"}
        for readout, values in {**expected, "": alone.metrics}.items():
            for metric, value in values.items():
                if metric != "wall_seconds":
                    ours_value = {**found, "": ours.metrics}[readout][metric]
                    assert ours_value == pytest.approx(value, rel=2e-3, abs=1e-3), (readout, metric)
        for p in range(2):
            for mine, theirs in zip(ours.history["value"][p], alone.history["value"][p], strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-4)
    spent = [model.wall_seconds for model in batched.replicates]
    assert sum(spent) == pytest.approx(batched.wall_seconds)
    touched = [model.nodes_touched for model in batched.replicates]
    assert batched.counts()["nodes_touched"] == sum(touched)


@pytest.mark.parametrize("stored", [True, False])
def test_a_batched_run_resumed_is_one_never_stopped(tmp_path, stored):
    made: list[Replicates] = []

    def make() -> Replicates:
        model = together([model_of(seed, iterations=3, snapshot_every=3) for seed in (0, 1)])
        assert isinstance(model, Replicates)
        if stored and len(made) > 0:
            for number, run in enumerate(model.replicates):
                run.snapshots = SnapshotFolder(tmp_path / str(number))
        made.append(model)
        return model

    straight, resumed = straight_and_resumed(make, 3, 2, tmp_path)
    for ours, theirs in zip(resumed.replicates, straight.replicates, strict=True):
        assert ours.nodes_touched == theirs.nodes_touched
        assert ours.history.keys() == theirs.history.keys() == {"value", "opening"}
        for name, both in ours.history.items():
            for p in range(2):
                assert torch.equal(torch.stack(list(both[p])), torch.stack(list(theirs.history[name][p])))
        assert metrics_of(ours) == metrics_of(theirs)


def test_without_an_average_network_none_is_trained():
    readouts = {"sd_cfr": ReadoutConfig("ensemble")}
    batched = advanced(together([model_of(seed, average=None, readouts=readouts) for seed in (0, 1)]), 2)
    for model in batched.replicates:
        assert model.state() == {}
        assert "loss/policy" not in model.metrics


def test_leduc_can_be_trained_as_several_seeds():
    models = [small_model(load("leduc"), seed=seed, strategies="asked") for seed in (0, 1)]
    batched = advanced(together(models), 2)
    for model in batched.replicates:
        alone = advanced(small_model(load("leduc"), seed=model.seed, strategies="asked"), 2)
        assert metrics_of(model)["sd_cfr"] == pytest.approx(metrics_of(alone)["sd_cfr"], rel=2e-3)


def test_steps_in_all_are_those_of_all_fits():
    value, average = (RegressionConfig(steps=n, batch_size=64, start="random", more_steps=2) for n in (10, 100))
    batched = together([model_of(seed, value=value, average=average) for seed in (0, 1)])
    assert model_of(0).algorithm.snapshot_iterations() == [2, 4]
    assert batched._steps_in_all("value") == 10 + 12 + 14 + 16
    assert batched._steps_in_all("average") == 102 + 106


def test_one_seed_on_a_cpu_is_trained_as_ever():
    model = model_of(0)
    assert together([model]) is model


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["seeds=[0,0]"], "seeds is [0, 0]; it must be different whole numbers"),
        (["seeds=[-1,0]"], "seeds is [-1, 0]; it must be different whole numbers"),
        (["seeds=5"], "seeds is 5; it must be a list, in brackets."),
        (["game=leduc", "seeds=[0,1]"], "seeds is [0, 1]; in the game leduc each is trained alone: leave seeds out"),
        (["seeds=[]"], "seeds is []; it must be different whole numbers"),
        (["algorithm=linear_cfr", "seeds=[0,1]"], "the algorithm linear_cfr trains one at a time"),
        (["algorithm.value.precision=bf16"], "algorithm.value.precision is bf16, which needs device=cuda"),
        (["algorithm.value.precision=fp16"], "algorithm.value.precision is 'fp16'; it must be one of fp32, tf32, bf16"),
    ],
)
def test_bad_configuration_is_refused(overrides, sentence):
    with pytest.raises(ReproError) as caught:
        plan(overrides, multirun=False)
    assert sentence in str(caught.value)
