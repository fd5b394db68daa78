"""Batched runs, which do several seeds at once: what they leave, and that stopping them in any way changes nothing."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.replicates import Replicates
from repro.common.errors import ReproError
from repro.config.keys import training_key
from repro.estimates.outlook import outlooks
from repro.plans.planning import plan
from repro.running import one_run, training
from repro.running.one_seed import Seed
from repro.stored import leftovers
from repro.stored.trained import Trained
from repro.tracking import record as records
from repro.tracking.mlflow_runs import MLflowRuns
from repro.tracking.record import RunRecord
from tests.helpers.cases import usually_first
from tests.helpers.commands import (
    call,
    executed,
    folder_of,
    in_a_child,
    key_of,
    killed_after,
    planned,
    results,
    tracked,
)

SMALL = (
    "game=fhp", "game.ranks=5", "game.suits=2", "algorithm=sd_cfr_and_deep_cfr", "network=deep_cfr",
    "network.width=8", "network.card_width=12", "algorithm.iterations=3", "algorithm.traversals=300",
    "algorithm.strategies=asked", "algorithm.value.steps=5", "algorithm.value.batch_size=64",
    "algorithm.average.steps=5", "algorithm.average.batch_size=64", "algorithm.value_capacity=1000",
    "algorithm.strategy_capacity=1000", "algorithm.snapshot_every=2", "checkpoint_every_seconds=0",
)  # fmt: skip


def done(output: Path, *overrides: str) -> str:
    """The state that a run ended in."""
    return executed(*SMALL, f"output_dir={output}", *overrides)


def done_in_a_child(output: Path, *overrides: str) -> int:
    """The exit status of a process that does a run."""
    return in_a_child(lambda: done(output, *overrides))


def left(output: Path, seed: int) -> Trained:
    return Trained.open(output, key_of(*SMALL, f"seed={seed}"))


def both(output: Path) -> pd.DataFrame:
    return results(output, (*SMALL, "seed=0,1"))


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seeds 0 and 1 together, never stopped."""
    output = tmp_path_factory.mktemp("straight")
    assert done(output, "seeds=[0,1]") == records.FINISHED
    return output


@pytest.fixture
def _nothing_trains(monkeypatch):
    def advance(_: object) -> None:
        raise AssertionError("this must train nothing")

    for model in (Replicates, DeepCFR):
        monkeypatch.setattr(model, "advance", advance)


@pytest.mark.exhaustive
def test_every_seed_leaves_what_it_leaves_alone(straight, tmp_path):
    assert planned(*SMALL, f"output_dir={straight}", "seeds=[0,1]").key == f"{key_of(*SMALL)}-with-1"
    for seed in (0, 1):
        assert done(tmp_path, f"seed={seed}") == records.FINISHED
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
        assert ours.record.cpu_seconds > 0
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


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_nothing_trains")
def test_what_is_finished_together_is_finished_alone(straight):
    before = both(straight)
    for overrides in ("seeds=[0,1]", "seed=0", "seed=1", "seeds=[1,0]"):
        assert done(straight, overrides) == records.SKIPPED
    pd.testing.assert_frame_equal(both(straight), before)


@pytest.mark.slow
@pytest.mark.parametrize("moment", usually_first([
    "one measured after the last", "after an iteration", "trained, none noted", "trained, one noted", "one exported",
    "one closed",
]))  # fmt: skip
def test_a_batched_run_that_dies_is_continued(straight, tmp_path, monkeypatch, moment):
    calls: list[object] = []
    write = records.write

    def die_at_call(number: int, done: Any) -> Any:
        def called(*arguments: Any) -> Any:
            calls.append(arguments)
            if len(calls) == number:
                os._exit(9)
            return done(*arguments)

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
            patched.setattr(training.Reporting, "_report", die_at_call(2, training.Reporting._report))
        elif moment == "one measured after the last":
            patched.setattr(training.Reporting, "_measured", die_at_call(6, training.Reporting._measured))
        elif moment.startswith("trained"):
            patched.setattr(records, "write", die_with_so_many_trained(int("one" in moment.split(", ")[1].split())))
        elif moment == "one exported":
            patched.setattr(Seed, "_leave_files", die_at_call(2, Seed._leave_files))
        else:
            patched.setattr(MLflowRuns, "finish", die_at_call(2, MLflowRuns.finish))
        assert done_in_a_child(tmp_path, "seeds=[0,1]") == 9
    with monkeypatch.context() as patched:
        if moment != "after an iteration":
            patched.setattr(Replicates, "advance", None)
            patched.setattr(DeepCFR, "advance", None)
        assert done(tmp_path, "seeds=[0,1]") == records.FINISHED
    pd.testing.assert_frame_equal(both(tmp_path), both(straight))
    assert {run.info.status for run in tracked(tmp_path)[1]} == {"FINISHED"}
    assert not list(tmp_path.rglob("*.ckpt"))
    assert done(tmp_path, "seeds=[0,1]") == records.SKIPPED


@pytest.mark.exhaustive
def test_a_seed_that_was_finished_alone_is_not_trained_again(tmp_path):
    assert done(tmp_path, "seed=1") == records.FINISHED
    stored = {path: path.stat().st_mtime_ns for path in left(tmp_path, 1).snapshots.folder.iterdir()}
    spent = left(tmp_path, 1).record.wall_seconds
    ended = {run.info.run_id: run.info.end_time for run in tracked(tmp_path)[1]}
    assert done(tmp_path, "seeds=[0,1]") == records.FINISHED
    assert {path: path.stat().st_mtime_ns for path in left(tmp_path, 1).snapshots.folder.iterdir()} == stored
    assert left(tmp_path, 1).record.wall_seconds == spent
    after = {run.info.run_id: run.info.end_time for run in tracked(tmp_path)[1]}
    assert ended.items() <= after.items()
    assert len(after) == 2 * len(ended)
    left(tmp_path, 0).check_finished()
    assert not list(tmp_path.rglob("*.ckpt"))
    assert done(tmp_path, "seeds=[0,1]") == records.SKIPPED


@pytest.mark.exhaustive
def test_what_another_run_has_begun_is_kept_until_the_training_is_finished(tmp_path, capsys):
    killed_after(2, *SMALL, f"output_dir={tmp_path}", "seeds=[0,1]")
    begun = sorted(path.name for path in left(tmp_path, 0).snapshots.folder.iterdir())
    killed_after(1, *SMALL, f"output_dir={tmp_path}", "seed=0")
    (kept,) = left(tmp_path, 0).folder.glob("snapshots-unusable-*")
    assert sorted(path.name for path in kept.iterdir()) == begun
    assert done(tmp_path, "seed=0") == records.FINISHED
    assert not kept.exists()


@pytest.mark.slow
def test_nobody_cleans_where_the_checkpoints_are_that_are_gone_on_from(tmp_path, monkeypatch):
    killed_after(2, *SMALL, f"output_dir={tmp_path}", "seeds=[0,1]")
    place = tmp_path / "runs" / f"{key_of(*SMALL)}-with-1"
    found = []

    def is_free(*_: object) -> str:
        with leftovers._if_free(place) as free:
            found.append(free)
        return records.INTERRUPTED

    monkeypatch.setattr(one_run, "do", is_free)
    done(tmp_path, "seeds=[0,1,2]")
    assert found == [False]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "begun",
    [
        [("seeds=[0,1]", 2), ("seed=1", 1), ("seeds=[0,1]", 1)], [("seed=1", 1), ("seeds=[0,1]", 1), ("seed=1", 9)],
        [("seed=1", 1), ("seeds=[0,1]", 1), ("seeds=[0,1]", 1)],
        [("seeds=[0,1]", 2), ("seed=0", 9)], [("seeds=[1,2]", 2), ("seeds=[0,1]", 1), ("seeds=[1,2]", 1)],
    ],
)  # fmt: skip
def test_runs_that_share_a_seed_and_are_broken_off_do_not_mix(straight, tmp_path, begun):
    """What one of them has begun, another begins anew, unless it can go on from all of it."""
    for overrides, iterations in begun:
        if iterations > 3:
            assert done(tmp_path, overrides) == records.FINISHED
        else:
            killed_after(iterations, *SMALL, f"output_dir={tmp_path}", overrides)
    assert done(tmp_path, "seeds=[0,1]") == records.FINISHED
    found, expected = both(tmp_path), both(straight)
    assert found.value.tolist() == pytest.approx(expected.value.tolist(), rel=2e-3, abs=1e-3)
    for seed in (0, 1):
        history = left(tmp_path, seed).snapshots.read().history["value"]
        assert [len(rows) for rows in history] == [3, 3]
    (run,) = {p.parent.name for p in tmp_path.rglob("*.ckpt")} or {""}
    assert run in ("", planned(*SMALL, f"output_dir={tmp_path}", "seeds=[1,2]").key), (
        "nothing is left that nobody will continue"
    )


@pytest.mark.slow
def test_what_a_seed_has_done_alone_is_not_done_again_with_others(straight, tmp_path, monkeypatch):
    killed_after(2, *SMALL, f"output_dir={tmp_path}", "seed=1")
    advance, iterations = DeepCFR.advance, []

    def advanced(model: DeepCFR) -> dict[str, float]:
        iterations.append((model.seed, model.iteration))
        return advance(model)

    monkeypatch.setattr(DeepCFR, "advance", advanced)
    assert done(tmp_path, "seeds=[0,1]") == records.FINISHED
    assert iterations == [(1, 3), (0, 1), (0, 2), (0, 3)]
    assert both(tmp_path).value.tolist() == pytest.approx(both(straight).value.tolist(), rel=2e-3, abs=1e-3)
    assert not list(tmp_path.rglob("*.ckpt"))


def test_a_plan_tells_seeds_apart_that_are_trained_together(tmp_path):
    found = outlooks(plan([*SMALL, "seeds=[0,1]"], False).runs, tmp_path)
    together = "fhp sd_cfr_and_deep_cfr seed=0,1 game.ranks=5 game.suits=2"
    assert [each.label for each in found] == [f"{together}: seed {seed}" for seed in (0, 1)]


def test_seeds_in_another_order_are_the_same_run():
    runs = [planned(*SMALL, f"seeds={seeds}") for seeds in ("[0,1,2]", "[2,0,1]")]
    assert runs[0].key == runs[1].key == f"{key_of(*SMALL)}-with-1-2"
    assert [config.seed for config in runs[1].configs] == [0, 1, 2]


@pytest.mark.exhaustive
def test_a_batched_run_is_done_anew_when_forced(straight, tmp_path):
    killed_after(2, *SMALL, f"output_dir={tmp_path}", "seeds=[0,1]")
    assert done(tmp_path, "seed=0") == records.FINISHED
    assert done(tmp_path, "seeds=[0,1]", "force=true") == records.FINISHED
    pd.testing.assert_frame_equal(both(tmp_path), both(straight))
    assert not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.slow
def test_nobody_else_does_a_seed_of_a_batched_run(tmp_path, monkeypatch, capsys):
    folder = folder_of(tmp_path, *SMALL, "seed=1")
    folder.mkdir(parents=True)
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    begun: list[Path] = []
    take = fcntl.flock

    def let_go(file: Any, how: int) -> None:
        if how == fcntl.LOCK_EX and not lock.closed:  # It waits.
            begun.extend(tmp_path.rglob("run.json"))
            lock.close()
        take(file, how)

    monkeypatch.setattr(fcntl, "flock", let_go)
    assert done(tmp_path, "seeds=[0,1]") == records.FINISHED
    assert f"run {folder.name} is being done by another process; waiting for it" in capsys.readouterr().err
    assert begun == []


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
@pytest.mark.exhaustive
def test_a_batched_run_from_the_command_line(tmp_path):
    overrides = (*SMALL, f"output_dir={tmp_path}")
    called = call(*overrides, "seeds=[0,1]")
    assert called.returncode == 0, called.stderr
    assert "(seed 0)" in called.stderr
    for seed in (0, 1):
        left(tmp_path, seed).check_finished()
    # Alone and together, through the launcher as well.
    called = call("-m", *overrides, "seed=0,1")
    assert called.returncode == 0, called.stderr
    assert called.stderr.count("skipped") == 2
    assert "skipped" in call(*overrides, "seeds=[0,1]").stderr


def test_seeds_that_a_sweep_would_do_several_times_are_refused():
    with pytest.raises(ReproError, match=r"seeds is \[0, 1\], but of the 3 runs asked for several would do the same"):
        plan([*SMALL, "seed=0,1,2", "seeds=[0,1]"], multirun=True)
    (batched,) = plan([*SMALL, "seed=7", "seeds=[0,1]"], multirun=True).runs
    assert [training_key(c) for c in batched.configs] == [key_of(*SMALL, f"seed={seed}") for seed in (0, 1)]
