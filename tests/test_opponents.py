"""Deep CFR measured against blueprints: runs that refer to other runs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from mlflow import MlflowClient
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR
from repro.opponents import opponents_of

from repro import run
from repro.config import NetworkConfig, ReadoutConfig, hyperparameters, result_config, run_key, settings
from repro.errors import ReproError
from repro.evaluation.head_to_head import play_match
from repro.games import load, load_game
from repro.policies.network import Uniform
from repro.tracking.store import TRAINING, default_uri, find_finished, find_runs, open_store
from tests.small import small_config

GAME = ("game=hunl_pot", "game.ranks=6", "game.suits=2", "game.stack=400.0")
BLUEPRINT = (*GAME, "algorithm=es_mccfr", "algorithm.buckets=5", "algorithm.iterations=2", "algorithm.traversals=50")
NETWORKS = (
    *GAME, "algorithm=sd_cfr_and_deep_cfr", "network=deep_cfr", "network.width=8", "network.card_width=12",
    "algorithm.iterations=2", "algorithm.traversals=200", "algorithm.value.steps=5", "algorithm.value.batch_size=64",
    "algorithm.average.steps=5", "algorithm.average.batch_size=64", "algorithm.value_capacity=1000",
    "algorithm.strategy_capacity=1000", "algorithm.match_hands=200",
)  # fmt: skip


def call(*overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "repro.run", *overrides]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def key_of(*overrides: str) -> str:
    (config,) = run.plan(overrides, multirun=False)
    return run_key(run.without_hydra(config))


@pytest.mark.slow
def test_a_reference_is_the_key_of_the_other_run():
    named = '"game=kuhn","algorithm=cfr"'
    overrides = (*NETWORKS, "seed=3", f"+algorithm.opponents.other='${{run_key:{named}}}'")
    (config,) = run.plan(overrides, multirun=False)
    assert config.algorithm.opponents.other == key_of("game=kuhn", "algorithm=cfr", "seed=3")
    assert config.algorithm.opponents.other != key_of("game=kuhn", "algorithm=cfr", "seed=4")


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_the_table_plays_against_its_own_blueprints(scale):
    solved = run.plan([f"+experiment=table2/blueprint/{scale}"], multirun=True)
    keys = {run_key(run.without_hydra(c)): (c.algorithm.buckets, c.seed) for c in solved}
    trained = run.plan([f"+experiment=table2/deep_cfr/{scale}"], multirun=True)
    coarse, fine = sorted({buckets for buckets, _ in keys.values()})
    for config in trained:
        opponents = config.algorithm.opponents
        assert keys[opponents.blueprint] == (fine, config.seed)
        assert keys[opponents.coarse_blueprint] == (coarse, config.seed)
    # A reference follows from the seed, and is no difference between settings.
    flat = [hyperparameters(result_config(run.without_hydra(c))) for c in trained]
    assert all(f == flat[0] for f in flat)


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
def test_a_run_plays_against_the_blueprint_of_another(tmp_path):
    key, output = key_of(*BLUEPRINT), f"output_dir={tmp_path}"
    asking = (*NETWORKS, output, f"+algorithm.opponents.mine={key}")
    checked = settings(run.without_hydra(run.plan(asking, multirun=False)[0]))
    with pytest.raises(ReproError, match=rf"algorithm\.opponents\.mine is {key}; .* no finished run with this key"):
        opponents_of(open_store(default_uri(tmp_path)), load_game(checked.game), checked)
    solved = call(*BLUEPRINT, output)
    assert solved.returncode == 0, solved.stderr
    done = call(*asking)
    assert done.returncode == 0, done.stderr
    assert "mbb/g" in done.stderr
    client = MlflowClient(default_uri(tmp_path))
    experiment = client.get_experiment_by_name("runs")
    assert experiment is not None
    found = find_runs(client, experiment.experiment_id, key_of(*NETWORKS, f"+algorithm.opponents.mine={key}"))
    assert {"match/mine/value", "match/mine/standard_error"} <= found["deep_cfr"].data.metrics.keys()
    assert {"match/mine/value", "match/deep_cfr/value"} <= found["sd_cfr"].data.metrics.keys()
    with pytest.raises(ReproError, match="holds a strategy for game hunl_pot"):
        opponents_of(client, load("hunl_pot", ranks=5, suits=2), checked)
    # What is found by its key is the training run, and only a finished one.
    run_found = find_finished(client, key)
    assert run_found is not None
    assert run_found.info.run_id == find_runs(client, experiment.experiment_id, key)[TRAINING].info.run_id
    client.set_terminated(run_found.info.run_id, "FAILED")
    assert find_finished(client, key) is None


def test_matches_are_those_of_the_read_outs():
    game = load("hunl_pot", ranks=6, suits=2, stack=400.0)
    given: dict[str, Any] = {
        "traversals": 200, "iterations": 1, "match_hands": 400, "opponents": {"uniform": "-"},
        "readouts": {"sd_cfr": ReadoutConfig("ensemble"), "deep_cfr": ReadoutConfig("average_network")},
    }  # fmt: skip
    opponents = {"uniform": Uniform(game)}
    model = HoldemDeepCFR(game, small_config(**given), NetworkConfig("deep_cfr", 8, None, 12), 0, opponents)
    model.training_step(None, 0)
    seats: dict[str, Any] = {"sd_cfr": [model.sampling(p) for p in range(2)], "deep_cfr": model._average_seats()}
    for name, players in seats.items():
        match = play_match(game, players, Uniform(game), 400, model.draws("match"))
        assert model.metrics[name]["match/uniform/value"] == pytest.approx(10 * match.mean)
        assert model.metrics[name]["match/uniform/standard_error"] == pytest.approx(10 * match.standard_error)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["algorithm.match_hands=0", "+algorithm.opponents.a=x"],
            "algorithm.match_hands is 0, but algorithm.opponents",
        ),
        (["+algorithm.opponents.A=x"], "algorithm.opponents.A: the name must be of a-z, 0-9 and _"),
        (["+algorithm.opponents.a='${run_key:\"algorithm=nothing\"}'"], "Could not find 'algorithm/nothing'"),
    ],
)
def test_bad_configuration_is_refused(overrides, sentence):
    with pytest.raises(ReproError) as caught:
        run.plan([*NETWORKS, *overrides], multirun=False)
    assert sentence in str(caught.value)
