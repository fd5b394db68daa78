"""Networks trained together on stacked parameters, and the batched runs that this makes."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from repro import launching, training
from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.memory import Minibatch
from repro.algorithms.regression import fit
from repro.algorithms.replicates import Replicates
from repro.algorithms.stacked import StackedAdam, fit_together
from repro.config import NetworkConfig, ReadoutConfig, RegressionConfig
from repro.config.keys import training_key
from repro.engine.sampling import SamplingEngine
from repro.errors import ReproError
from repro.games import Game, load
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import Network, average_network, value_network
from repro.networks.optimizers import FlatAdam
from repro.planning import Run, plan
from repro.policies.network import Uniform
from repro.policies.snapshot import SnapshotFolder
from repro.tracking import record as records
from repro.tracking.checkpoints import Checkpoints
from repro.tracking.record import RunRecord
from repro.tracking.store import MLflowRuns
from repro.trained import Trained
from tests.commands import call, folder_of, key_of, results, tracked
from tests.small import metrics_of, small_config, small_model
from tests.trained import straight_and_resumed

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


def holdem_model(seed: int, **changes: Any) -> DeepCFR:
    given = {
        "strategies": "asked", "traversals": 200, "regret_unit": 100.0, "iterations": 4, "snapshot_every": 2,
        "readouts": {"sd_cfr": ReadoutConfig("ensemble"), "deep_cfr": ReadoutConfig("average_network")}, **changes,
    }  # fmt: skip
    return DeepCFR(game_of("fhp"), small_config(**given), NETWORK, seed)


def together(models: Sequence[DeepCFR]) -> Any:
    return models[0].algorithm.together(list(models))


def steps_of(model: Any, steps: int) -> Any:
    for _ in range(steps):
        model.training_step(None, 0)
    return model


@pytest.mark.parametrize("start", ["random", "previous"])
def test_seeds_together_are_the_seeds_alone(start):
    regression = RegressionConfig(steps=10, batch_size=64, start=start)
    given = {"value": regression, "average": regression}
    seeds = (0, 3)
    batched = steps_of(together([holdem_model(seed, **given) for seed in seeds]), 4)
    for ours, seed in zip(batched.replicates, seeds, strict=True):
        alone = steps_of(holdem_model(seed, **given), 4)
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
        model = together([holdem_model(seed, iterations=3, snapshot_every=3) for seed in (0, 1)])
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
    batched = steps_of(together([holdem_model(seed, average=None, readouts=readouts) for seed in (0, 1)]), 2)
    for model in batched.replicates:
        assert model.state() == {}
        assert "loss/policy" not in model.metrics


def test_leduc_can_be_trained_as_several_seeds():
    models = [small_model(load("leduc"), seed=seed, strategies="asked") for seed in (0, 1)]
    batched = steps_of(together(models), 2)
    for model in batched.replicates:
        alone = steps_of(small_model(load("leduc"), seed=model.seed, strategies="asked"), 2)
        assert metrics_of(model)["sd_cfr"] == pytest.approx(metrics_of(alone)["sd_cfr"], rel=2e-3)


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
        plan(overrides, multirun=False)
    assert sentence in str(caught.value)


SMALL = (
    "game=fhp", "game.ranks=5", "game.suits=2", "algorithm=sd_cfr_and_deep_cfr", "network=deep_cfr",
    "network.width=8", "network.card_width=12", "algorithm.iterations=3", "algorithm.traversals=300",
    "algorithm.strategies=asked", "algorithm.value.steps=5", "algorithm.value.batch_size=64",
    "algorithm.average.steps=5", "algorithm.average.batch_size=64", "algorithm.value_capacity=1000",
    "algorithm.strategy_capacity=1000", "algorithm.snapshot_every=2", "checkpoint_every_seconds=0",
)  # fmt: skip


def planned(output: Path, *overrides: str) -> Run:
    (run,) = plan([*SMALL, f"output_dir={output}", *overrides], multirun=False).runs
    return run


def executed(output: Path, *overrides: str) -> str:
    run = planned(output, *overrides)
    return launching.execute(run.configs, run.labels)


def executed_in_a_child(output: Path, *overrides: str) -> int:
    """The exit status of a process that does a run."""
    child = os.fork()
    if child == 0:
        executed(output, *overrides)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def left(output: Path, seed: int) -> Trained:
    return Trained.open(output, key_of(*SMALL, f"seed={seed}"))


def both(output: Path) -> pd.DataFrame:
    return results(output, (*SMALL, "seed=0,1"))


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seeds 0 and 1 together, never stopped."""
    output = tmp_path_factory.mktemp("straight")
    assert executed(output, "seeds=[0,1]") == records.FINISHED
    return output


@pytest.fixture
def _nothing_trains(monkeypatch):
    def advance(_: object) -> None:
        raise AssertionError("this must train nothing")

    for model in (Replicates, DeepCFR):
        monkeypatch.setattr(model, "advance", advance)


@pytest.mark.slow
def test_every_seed_leaves_what_it_leaves_alone(straight, tmp_path):
    assert planned(straight, "seeds=[0,1]").key == f"{key_of(*SMALL)}-with-1"
    for seed in (0, 1):
        assert executed(tmp_path, f"seed={seed}") == records.FINISHED
        ours, alone = left(straight, seed), left(tmp_path, seed)
        assert ours.folder.name == alone.folder.name
        assert ours.config.seed == seed
        assert {**vars(ours.config), "output_dir": ""} == {**vars(alone.config), "output_dir": ""}
        for trained in (ours, alone):
            assert trained.record.state == records.FINISHED
            assert trained.record.trained
            assert trained.record.exported
            assert trained.snapshots.iterations == [2, 3]
            assert [len(rows) for rows in trained.snapshots.read().history["value"]] == [3, 3]
        files = [{str(p.relative_to(t.folder)) for p in t.folder.rglob("*") if p.is_file()} for t in (ours, alone)]
        assert files[0] == files[1]
        assert ours.record.wall_seconds > 0
        assert ours.record.iteration == 3
    together, apart = both(straight), both(tmp_path)
    columns = ["seed", "readout", "metric", "step"]
    pd.testing.assert_frame_equal(together[columns], apart[columns])
    # Rounding apart, as long as nothing is sampled otherwise for it.
    assert together.value.tolist() == pytest.approx(apart.value.tolist(), rel=2e-3, abs=1e-3)
    _, runs = tracked(straight)
    assert len(runs) == 6
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert sorted(run.data.params["seed"] for run in runs) == ["0"] * 3 + ["1"] * 3


@pytest.mark.slow
@pytest.mark.usefixtures("_nothing_trains")
def test_what_is_finished_together_is_finished_alone(straight):
    before = both(straight)
    for overrides in ("seeds=[0,1]", "seed=0", "seed=1", "seeds=[1,0]"):
        assert executed(straight, overrides) == records.SKIPPED
    pd.testing.assert_frame_equal(both(straight), before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", ["after an iteration", "trained, none noted", "trained, one noted", "one exported", "one closed"]
)
def test_a_batched_run_that_dies_is_continued(straight, tmp_path, monkeypatch, moment):
    calls: list[object] = []
    write = records.write

    def die_at_the_second_call(done: Any) -> Any:
        def called(*arguments: Any) -> None:
            calls.append(arguments)
            if len(calls) > 1:
                os._exit(9)
            done(*arguments)

        return called

    def die_with_so_many_trained(several: int) -> Any:
        def written(folder: Path, record: RunRecord, sync: bool = False) -> None:
            if record.trained and "-with-" not in folder.name:
                calls.append(folder)
                if len(calls) > several:
                    os._exit(9)
            write(folder, record, sync)

        return written

    with monkeypatch.context() as patched:
        if moment == "after an iteration":
            patched.setattr(training.Reporting, "_report", die_at_the_second_call(training.Reporting._report))
        elif moment.startswith("trained"):
            patched.setattr(records, "write", die_with_so_many_trained(int("one" in moment.split(", ")[1].split())))
        elif moment == "one exported":
            patched.setattr(training, "_leave_files", die_at_the_second_call(training._leave_files))
        else:
            patched.setattr(MLflowRuns, "finish", die_at_the_second_call(MLflowRuns.finish))
        assert executed_in_a_child(tmp_path, "seeds=[0,1]") == 9
    with monkeypatch.context() as patched:
        if moment != "after an iteration":
            patched.setattr(Replicates, "advance", None)
            patched.setattr(DeepCFR, "advance", None)
        assert executed(tmp_path, "seeds=[0,1]") == records.FINISHED
    pd.testing.assert_frame_equal(both(tmp_path), both(straight))
    assert {run.info.status for run in tracked(tmp_path)[1]} == {"FINISHED"}
    assert not list(tmp_path.rglob("*.ckpt"))
    assert executed(tmp_path, "seeds=[0,1]") == records.SKIPPED


@pytest.mark.slow
def test_a_seed_that_was_finished_alone_is_not_trained_again(tmp_path):
    assert executed(tmp_path, "seed=1") == records.FINISHED
    stored = {path: path.stat().st_mtime_ns for path in left(tmp_path, 1).snapshots.folder.iterdir()}
    spent = left(tmp_path, 1).record.wall_seconds
    ended = {run.info.run_id: run.info.end_time for run in tracked(tmp_path)[1]}
    assert executed(tmp_path, "seeds=[0,1]") == records.FINISHED
    assert {path: path.stat().st_mtime_ns for path in left(tmp_path, 1).snapshots.folder.iterdir()} == stored
    assert left(tmp_path, 1).record.wall_seconds == spent
    after = {run.info.run_id: run.info.end_time for run in tracked(tmp_path)[1]}
    assert ended.items() <= after.items()
    assert len(after) == 2 * len(ended)
    left(tmp_path, 0).check_finished()
    assert not list(tmp_path.rglob("*.ckpt"))
    assert executed(tmp_path, "seeds=[0,1]") == records.SKIPPED


def killed_after_an_iteration(monkeypatch: pytest.MonkeyPatch, output: Path, overrides: str, iterations: int) -> None:
    save, calls = Checkpoints._save, []

    def saved(*arguments: Any) -> None:
        save(*arguments)
        calls.append(arguments)
        if len(calls) == iterations:
            os._exit(9)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "_save", saved)
        assert executed_in_a_child(output, overrides) == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    "begun",
    [
        [("seeds=[0,1]", 2), ("seed=1", 1), ("seeds=[0,1]", 1)], [("seed=1", 2), ("seeds=[0,1]", 1), ("seed=1", 1)],
        [("seeds=[0,1]", 2), ("seed=0", 9)], [("seeds=[1,2]", 2), ("seeds=[0,1]", 1), ("seeds=[1,2]", 1)],
    ],
)  # fmt: skip
def test_runs_that_share_a_seed_and_are_broken_off_do_not_mix(straight, tmp_path, monkeypatch, begun):
    """What one of them has begun, another begins anew: a training's checkpoints and snapshots are of one run."""
    for overrides, iterations in begun:
        if iterations > 3:
            assert executed(tmp_path, overrides) == records.FINISHED
        else:
            killed_after_an_iteration(monkeypatch, tmp_path, overrides, iterations)
    assert executed(tmp_path, "seeds=[0,1]") == records.FINISHED
    found, expected = both(tmp_path), both(straight)
    assert found.value.tolist() == pytest.approx(expected.value.tolist(), rel=2e-3, abs=1e-3)
    for seed in (0, 1):
        history = left(tmp_path, seed).snapshots.read().history["value"]
        assert [len(rows) for rows in history] == [3, 3]
    (run,) = {p.parent.name for p in tmp_path.rglob("*.ckpt")} or {""}
    assert run in ("", planned(tmp_path, "seeds=[1,2]").key), "nothing is left that nobody will continue"


@pytest.mark.slow
def test_a_batched_run_is_done_anew_when_forced(straight, tmp_path, monkeypatch):
    killed_after_an_iteration(monkeypatch, tmp_path, "seeds=[0,1]", 2)
    assert executed(tmp_path, "seed=0") == records.FINISHED
    assert executed(tmp_path, "seeds=[0,1]", "force=true") == records.FINISHED
    pd.testing.assert_frame_equal(both(tmp_path), both(straight))
    assert not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.slow
def test_nobody_else_does_a_seed_of_a_batched_run(tmp_path, capsys):
    folder = folder_of(tmp_path, *SMALL, "seed=1")
    folder.mkdir(parents=True)
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    begun: list[Path] = []

    def let_go() -> None:
        begun.extend(tmp_path.rglob("run.json"))
        lock.close()

    threading.Timer(1.0, let_go).start()
    assert executed(tmp_path, "seeds=[0,1]") == records.FINISHED
    assert f"run {folder.name} is being done by another process; waiting for it" in capsys.readouterr().err
    assert begun == []


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
def test_a_batched_run_from_the_command_line(tmp_path):
    overrides = (*SMALL, f"output_dir={tmp_path}")
    done = call(*overrides, "seeds=[0,1]")
    assert done.returncode == 0, done.stderr
    assert "(seed 0)" in done.stderr
    for seed in (0, 1):
        left(tmp_path, seed).check_finished()
    # Alone and together, through the launcher as well.
    done = call("-m", *overrides, "seed=0,1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("skipped") == 2
    assert "skipped" in call(*overrides, "seeds=[0,1]").stderr


def test_seeds_that_a_sweep_would_do_several_times_are_refused():
    with pytest.raises(ReproError, match=r"seeds is \[0, 1\], but of the 3 runs asked for several would do the same"):
        plan([*SMALL, "seed=0,1,2", "seeds=[0,1]"], multirun=True)
    (batched,) = plan([*SMALL, "seed=7", "seeds=[0,1]"], multirun=True).runs
    assert [training_key(c) for c in batched.configs] == [key_of(*SMALL, f"seed={seed}") for seed in (0, 1)]
