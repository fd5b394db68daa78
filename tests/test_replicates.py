"""Networks trained together on stacked parameters, and the batched runs that this makes."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow import MlflowClient
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR
from repro.algorithms.registry import build as build_run
from repro.algorithms.registry import together
from torch.utils._python_dispatch import TorchDispatchMode

from repro import figure, run
from repro.algorithms.memory import Minibatch
from repro.algorithms.regression import fit
from repro.algorithms.replicates import Replicates
from repro.algorithms.stacked import StackedAdam, fit_together
from repro.config import NetworkConfig, ReadoutConfig, RegressionConfig, run_key, settings, single_runs
from repro.engine.sampling import SamplingEngine
from repro.errors import ReproError
from repro.games import Game, load
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import Network, average_network, value_network
from repro.networks.optimizers import FlatAdam
from repro.policies.network import Uniform
from repro.tracking import status
from repro.tracking.store import READOUT_TAG, TRAINING, TrackedRun, default_uri, find_runs
from tests.small import small_config, small_model, straight_and_resumed

GAMES = {"fhp": {"ranks": 5, "suits": 2}, "hunl_pot": {"ranks": 6, "suits": 3, "stack": 1000.0}}
NETWORK = NetworkConfig("deep_cfr", 8, None, 12)


def game_of(name: str) -> Game:
    return load(name, **GAMES[name])  # type: ignore[arg-type]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def met(game: Game) -> torch.Tensor:
    """Infosets of player 0, in all rounds."""
    return SamplingEngine(game).external_sampling(Uniform(game), 0, 100, seeded(0)).advantages.infosets


def minibatches(infosets: torch.Tensor, seed: int, steps: int, rows: int) -> list[Minibatch]:
    draw = seeded(seed)
    return [
        Minibatch(
            infosets[torch.randint(len(infosets), (rows,), generator=draw)],
            torch.rand(rows, 1, generator=draw) / rows,
            torch.randn(rows, 3, generator=draw),
            torch.zeros(()),
        )
        for _ in range(steps)
    ]


# -- steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GAMES)
def test_features_of_fixed_shape_are_the_features(name):
    game = game_of(name)
    infosets, features = met(game), HoldemFeatures(game)
    assert len(game.tree.round[game.locate(infosets)[0]].unique()) == game.tree.rounds
    for ours, expected in zip(features.fixed_rows(infosets), features.rows(infosets), strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("build", [value_network, average_network])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_networks_trained_together_are_those_trained_alone(name, build, schedule):
    game = game_of(name)
    infosets, features = met(game), HoldemFeatures(game)
    networks: list[Network] = [build(NETWORK, features.columns, 3) for _ in range(3)]
    clip_norm, rows, steps = 0.1, 32, 20
    optimizers = [FlatAdam(n, 1e-2, clip_norm) for n in networks]
    batches = [minibatches(infosets, seed, steps, rows) for seed in range(3)]
    stacked = StackedAdam(networks[0], features.fixed_rows, 3, rows, clip_norm)
    # What a fit leaves behind must not reach the next one.
    for _ in range(2):
        stacked.load([o.flat.detach() for o in optimizers])
        losses = fit_together(stacked, zip(*batches, strict=True), steps, 1e-2, schedule)
    for i, (network, optimizer) in enumerate(zip(networks, optimizers, strict=True)):
        start = optimizer.flat.detach().clone()
        with_inputs = [replace(b, inputs=features.rows(b.infosets)) for b in batches[i] if b.infosets is not None]
        alone = fit(network, optimizer, with_inputs, steps, schedule=schedule)
        assert losses[i] == pytest.approx(alone, rel=1e-4)
        moved = (optimizer.flat - start).detach().abs().max()
        assert float((stacked.flat[i] - optimizer.flat).detach().abs().max()) < 1e-3 * float(moved)


def test_every_network_is_clipped_on_its_own():
    """A network with huge targets does not shorten another's steps."""
    game = game_of("fhp")
    infosets, features = met(game), HoldemFeatures(game)
    network = value_network(NETWORK, features.columns, 3)
    start = torch.cat([p.detach().flatten() for p in network.parameters()])
    calm, wild = minibatches(infosets, 0, 5, 32), minibatches(infosets, 1, 5, 32)
    wild = [replace(b, target=1e6 * b.target) for b in wild]
    found = []
    for other in (calm, wild):
        stacked = StackedAdam(network, features.fixed_rows, 2, 32, 1.0)
        stacked.load([start, start])
        fit_together(stacked, zip(calm, other, strict=True), 5, 1e-2)
        found.append(stacked.flat[0].clone())
    assert torch.equal(*found)
    assert not torch.equal(found[0], start)


def test_bfloat16_is_near_float32():
    game = game_of("fhp")
    infosets, features = met(game), HoldemFeatures(game)
    network = value_network(NETWORK, features.columns, 3)
    start = torch.cat([p.detach().flatten() for p in network.parameters()])
    batches, moved = minibatches(infosets, 0, 10, 64), []
    for bf16 in (False, True):
        stacked = StackedAdam(network, features.fixed_rows, 1, 64, 1.0, bf16)
        stacked.load([start])
        fit_together(stacked, ([b] for b in batches), 10, 1e-3)
        moved.append(stacked.flat[0] - start)
    assert not torch.equal(*moved)
    assert float(torch.cosine_similarity(moved[0], moved[1], dim=0)) > 0.8


class _Recorded(TorchDispatchMode):
    """The names of all operations within it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("build", [value_network, average_network])
def test_a_step_could_be_captured(name, build):
    """Whatever the rows, the same operations, and none that waits for a number from the device."""
    game = game_of(name)
    infosets, features = met(game), HoldemFeatures(game)
    stacked = StackedAdam(build(NETWORK, features.columns, 3), features.fixed_rows, 2, 16, 1.0)
    names = []
    for seed in (0, 5):
        stacked.step([minibatches(infosets, seed + i, 1, 16)[0] for i in range(2)], 1e-3)
        with _Recorded() as recorded:
            stacked._step()
        names.append(recorded.names)
    assert names[0] == names[1]
    waiting = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "item", "repeat_interleave")
    assert not [n for n in names[0] if any(w in n for w in waiting)]


def test_a_loss_that_is_not_finite_is_an_error():
    game = game_of("fhp")
    infosets, features = met(game), HoldemFeatures(game)
    network = value_network(NETWORK, features.columns, 3)
    stacked = StackedAdam(network, features.fixed_rows, 2, 8, 1.0)
    fine = minibatches(infosets, 0, 2, 8)
    broken = [replace(b, target=b.target * torch.nan) for b in fine]
    with pytest.raises(FloatingPointError, match="not finite"):
        fit_together(stacked, zip(fine, broken, strict=True), 2, 1e-3)


# -- runs --------------------------------------------------------------------------------------------------------------


def holdem_model(seed: int, **changes: Any) -> HoldemDeepCFR:
    given = {
        "traversals": 200, "regret_unit": 100.0, "iterations": 4, "evaluate_every": 2, "match_hands": 100,
        "readouts": {"sd_cfr": ReadoutConfig("ensemble"), "deep_cfr": ReadoutConfig("average_network")}, **changes,
    }  # fmt: skip
    return HoldemDeepCFR(game_of("fhp"), small_config(**given), NETWORK, seed)


def steps_of(model: Any, steps: int) -> Any:
    for _ in range(steps):
        model.training_step(None, 0)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("start", ["random", "previous"])
def test_seeds_together_are_the_seeds_alone(start):
    regression = RegressionConfig(steps=10, batch_size=64, start=start)
    given = {"value": regression, "average": regression}
    seeds = (0, 3)
    batched = steps_of(together([holdem_model(seed, **given) for seed in seeds]), 4)
    for ours, seed in zip(batched.replicates, seeds, strict=True):
        alone = steps_of(holdem_model(seed, **given), 4)
        assert ours.iteration == alone.iteration == 4
        assert ours.metrics.keys() == alone.metrics.keys() == {"", "sd_cfr", "deep_cfr"}
        for readout, measured in alone.metrics.items():
            assert ours.metrics[readout].keys() == measured.keys()
            for metric, value in measured.items():
                if metric != "wall_seconds":
                    assert ours.metrics[readout][metric] == pytest.approx(value, rel=2e-3, abs=1e-3), (readout, metric)
        for p in range(2):
            for mine, theirs in zip(ours.stored[p], alone.stored[p], strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-4)
    spent = [model.wall_seconds for model in batched.replicates]
    assert sum(spent) == pytest.approx(batched.wall_seconds)


@pytest.mark.slow
def test_a_batched_run_resumed_is_one_never_stopped(tmp_path):
    def make() -> Replicates:
        model = together([holdem_model(seed, iterations=3, evaluate_every=3) for seed in (0, 1)])
        assert isinstance(model, Replicates)
        return model

    straight, resumed = straight_and_resumed(make, 3, 2, tmp_path)
    for ours, theirs in zip(resumed.replicates, straight.replicates, strict=True):
        assert ours.nodes_touched == theirs.nodes_touched
        for p in range(2):
            assert isinstance(ours, HoldemDeepCFR)
            assert isinstance(theirs, HoldemDeepCFR)
            assert torch.equal(torch.stack(ours.stored[p]), torch.stack(theirs.stored[p]))
        for readout in ("sd_cfr", "deep_cfr"):
            assert ours.metrics[readout]["nash_conv"] == theirs.metrics[readout]["nash_conv"]


def test_one_seed_on_a_cpu_is_trained_as_ever():
    model = holdem_model(0)
    assert together([model]) is model


def test_games_without_batched_runs_are_refused():
    with pytest.raises(ReproError, match=r"seeds is \[0, 1\]; in the game leduc each is trained alone"):
        together([small_model(load("leduc"), seed=seed) for seed in (0, 1)])


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["seeds=[0,0]"], "seeds is [0, 0]; it must be different whole numbers"),
        (["seeds=[-1,0]"], "seeds is [-1, 0]; it must be different whole numbers"),
        (["seeds=[]"], "seeds is []; it must be different whole numbers"),
        (["algorithm=linear_cfr", "seeds=[0,1]"], "the algorithm linear_cfr trains one at a time"),
        (["algorithm.value.precision=bf16"], "algorithm.value.precision is bf16, which needs device=cuda"),
        (["algorithm.value.precision=fp16"], "algorithm.value.precision is 'fp16'; it must be one of fp32, bf16"),
    ],
)
def test_bad_configuration_is_refused(overrides, sentence):
    with pytest.raises(ReproError) as caught:
        run.plan(overrides, multirun=False)
    assert sentence in str(caught.value)


def test_a_batched_run_has_the_keys_of_its_seeds():
    (batched,) = run.plan(["game=fhp", "seeds=[0,2]"], multirun=False)
    alone = run.plan(["game=fhp", "seed=0,2"], multirun=True)
    found = [run_key(c) for c in single_runs(run.without_hydra(batched))]
    assert found == [run_key(run.without_hydra(c)) for c in alone]
    assert run_key(run.without_hydra(batched)) not in found


@pytest.mark.slow
def test_sweeps_over_seeds_are_batched_on_a_gpu():
    def added(experiment: str) -> list[str]:
        return figure.sweep_arguments(experiment, Path("outputs").absolute(), 1, "cuda", False)[4:]

    assert added("figure5/traversals/smoke") == ["device=cuda", "seed=0", "seeds=[0]"]
    assert added("figure2/laptop") == ["device=cuda", "seed=0", "seeds=[0, 1, 2]"]
    assert added("figure5/linear_cfr/laptop") == added("figure1/laptop") == ["device=cuda"]


@pytest.mark.slow
def test_seeds_that_a_sweep_would_do_several_times_are_refused():
    with pytest.raises(ReproError, match=r"seeds is \[0, 1, 2\], but of the 3 runs .* add seed=0"):
        run.plan(["+experiment=figure2/laptop", "seeds=[0,1,2]"], multirun=True)
    (batched,) = run.plan(["+experiment=figure2/laptop", "seeds=[0,1,2]", "seed=0"], multirun=True)
    (other,) = run.plan(["+experiment=figure2/laptop", "seeds=[0,1,2]", "seed=7"], multirun=True)
    assert run_key(run.without_hydra(batched)) == run_key(run.without_hydra(other))


def test_low_precision_is_refused_where_it_would_have_no_effect():
    (checked,) = run.plan(["algorithm=deep_cfr"], multirun=False)
    config = settings(run.without_hydra(checked))
    config.algorithm.value.precision = "bf16"
    with pytest.raises(ReproError, match="precision is bf16; the game leduc is no Hold'em game and takes fp32 only"):
        build_run(load("leduc"), config)


SMALL = (
    "game=fhp", "game.ranks=5", "game.suits=2", "algorithm=sd_cfr_and_deep_cfr", "network=deep_cfr",
    "network.width=8", "network.card_width=12", "algorithm.iterations=3", "algorithm.traversals=300",
    "algorithm.value.steps=5", "algorithm.value.batch_size=64", "algorithm.average.steps=5",
    "algorithm.average.batch_size=64", "algorithm.value_capacity=1000", "algorithm.strategy_capacity=1000",
    "algorithm.evaluate_every=2", "checkpoint_every_seconds=0",
)  # fmt: skip


def executed(*overrides: str) -> str:
    (config,) = run.plan([*SMALL, *overrides], multirun=False)
    return run.execute(config)


def exploitabilities(output: Path, *overrides: str) -> list[float]:
    client = MlflowClient(default_uri(output))
    experiment = client.get_experiment_by_name("runs")
    assert experiment is not None
    found = []
    for seed in (0, 1):
        (config,) = run.plan([*SMALL, f"seed={seed}", *overrides], multirun=False)
        runs = find_runs(client, experiment.experiment_id, run_key(run.without_hydra(config)))
        assert {r.info.status for r in runs.values()} == {"FINISHED"}
        found.append(runs["sd_cfr"].data.metrics["exploitability"])
    return found


@pytest.mark.slow
def test_a_batched_run_that_dies_while_its_seeds_finish(tmp_path, monkeypatch):
    """The first seed is finished, the second not: the repeated command finishes it without training again."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert executed("seeds=[0,1]", f"output_dir={straight}") == status.FINISHED
    finish, calls = TrackedRun.finish, []

    def dying(self: TrackedRun, state: str, message: str = "") -> None:
        calls.append(state)
        if len(calls) > 1:
            raise RuntimeError("the machine went down")
        finish(self, state, message)

    with monkeypatch.context() as patch:
        patch.setattr(TrackedRun, "finish", dying)
        assert executed("seeds=[0,1]", f"output_dir={killed}") == status.FAILED
    assert calls[0] == "FINISHED"
    with monkeypatch.context() as patch:
        patch.setattr(Replicates, "advance", None)
        assert executed("seeds=[0,1]", f"output_dir={killed}") == status.FINISHED
    assert exploitabilities(killed) == exploitabilities(straight)


@pytest.mark.slow
def test_seeds_that_are_finished_are_not_done_again(tmp_path):
    assert executed("seed=0", f"output_dir={tmp_path}") == status.FINISHED
    client = MlflowClient(default_uri(tmp_path))
    before = {r.info.run_id: r.info.end_time for r in client.search_runs(["1"])}
    assert executed("seeds=[0,1]", f"output_dir={tmp_path}") == status.FINISHED
    after = {r.info.run_id: r.info.end_time for r in client.search_runs(["1"])}
    assert all(after[run_id] == ended for run_id, ended in before.items())
    assert len(after) == 2 * len(before)
    assert executed("seeds=[0,1]", f"output_dir={tmp_path}") == status.SKIPPED
    assert len(exploitabilities(tmp_path)) == 2


@pytest.mark.slow
def test_nobody_else_does_a_seed_of_a_batched_run(tmp_path, capsys):
    (config,) = run.plan([*SMALL, "seed=1", f"output_dir={tmp_path}"], multirun=False)
    key = run_key(run.without_hydra(config))
    folder = run.run_folder(tmp_path, key)
    folder.mkdir(parents=True)
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    begun = list[Path]()

    def let_go() -> None:
        begun.extend(tmp_path.rglob("status.json"))
        lock.close()

    threading.Timer(1.0, let_go).start()
    assert executed("seeds=[0,1]", f"output_dir={tmp_path}") == status.FINISHED
    assert f"run {key} is being done by another process; waiting for it" in capsys.readouterr().err
    assert begun == []
    assert len(exploitabilities(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
def test_a_batched_run_from_the_command_line(tmp_path):
    overrides = (*SMALL, f"output_dir={tmp_path}")

    def call(*more: str) -> str:
        command = [sys.executable, "-m", "repro.run", *overrides, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stderr

    call("seeds=[0,1]")
    client = MlflowClient(default_uri(tmp_path))
    experiment = client.get_experiment_by_name("runs")
    assert experiment is not None
    # The seeds are finished, as runs of their own.
    assert "skipped" in call("seed=1")
    assert "skipped" in call("seeds=[0,1]")
    for config in run.plan([*overrides, "seed=0,1"], multirun=True):
        plain = run.without_hydra(config)
        found = find_runs(client, experiment.experiment_id, run_key(plain))
        assert set(found) == {TRAINING, "sd_cfr", "deep_cfr"}
        assert {r.info.status for r in found.values()} == {"FINISHED"}
        assert found[TRAINING].data.params["seed"] == str(plain.seed)
        steps = client.get_metric_history(found["sd_cfr"].info.run_id, "exploitability")
        assert [m.step for m in steps] == [2, 3]
        path = client.download_artifacts(found[TRAINING].info.run_id, "networks.pt", str(tmp_path))
        stored = torch.load(path, weights_only=True)
        assert stored["config"]["seed"] == plain.seed
        assert [len(v) for v in stored["value"]] == [3, 3]
    trained = [r for r in client.search_runs([experiment.experiment_id]) if READOUT_TAG in r.data.tags]
    assert len(trained) == 6
