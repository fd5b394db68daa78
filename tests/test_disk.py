"""What a folder takes at the most is told before a training begins: real trainings never take more, nor far less."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest
import pytorch_lightning as pl

from repro import run
from repro.algorithms.deep_cfr import DeepCFRConfig
from repro.config.checks import game_for_checks
from repro.config.schema import Config, Leaves
from repro.engine.sampling import SamplingEngine, most_met
from repro.estimates import disk, outlook
from repro.estimates.disk import most_bytes
from repro.evaluation.base import METRIC_BYTES, Evaluation
from repro.evaluation.measures import Exploitability
from repro.games import Game, load
from repro.games.betting import FOLD
from repro.policies import TabularPolicy, snapshot
from repro.stored.trained import folder_bytes
from repro.stored.trained import folder_of as trained_folder
from repro.tracking import record as records
from repro.tracking import staleness
from tests.helpers.commands import SMALL, configs, executed, folder_of, planned
from tests.helpers.draws import seeded

pytestmark = pytest.mark.usefixtures("_with_database")

FAMILY = (
    "algorithm.iterations=6", "algorithm.traversals=100", "algorithm.value.steps=4", "algorithm.value.batch_size=32",
    "algorithm.snapshot_every=2", "network.width=16", "checkpoint_every_seconds=0",
)  # fmt: skip
"""A training of Deep CFR's family that takes no time, and writes a checkpoint after every iteration."""
AVERAGE = ("algorithm.average.steps=4", "algorithm.average.batch_size=32")
BOTH = ("game=leduc", "algorithm=sd_cfr_and_deep_cfr", *FAMILY, *AVERAGE)
TABLES = ("game=leduc", "algorithm.iterations=6", "algorithm.snapshot_every=2", "checkpoint_every_seconds=0")
NFSP = (
    "game=leduc", "algorithm=nfsp", "algorithm.iterations=8", "algorithm.snapshot_every=4", "algorithm.hands=64",
    "algorithm.batch_size=16", "algorithm.replay_capacity=600", "algorithm.reservoir_capacity=100000",
    "network.width=16", "checkpoint_every_seconds=0",
)  # fmt: skip
D2CFR = (
    "game=leduc", "algorithm=d2cfr", *FAMILY, *AVERAGE, "algorithm.policy_every=2", "algorithm.kl_window=2",
    "algorithm.simulations=4",
)  # fmt: skip
POST = (
    "game=kuhn", "algorithm=kuhn_post", "algorithm.iterations=6", "algorithm.snapshot_every=2",
    "checkpoint_every_seconds=0",
)  # fmt: skip
SMALL_FHP = ("game=fhp", "game.ranks=5", "game.suits=2", "evaluation=costs")
SMALL_HUNL = ("game=hunl_pot", "game.ranks=4", "game.suits=3", "game.stack=1050", "evaluation=costs")
HOLDEM_TABLES = ("algorithm=es_mccfr", "algorithm.traversals=50", *TABLES[1:])
BOARDS = (
    "algorithm=sd_cfr_and_deep_cfr", *FAMILY, *AVERAGE, "algorithm.boards=4", "algorithm.strategies=asked",
    "algorithm.value_capacity=1000000",
)  # fmt: skip
GUIDED = ("algorithm=guided_deep_cfr", *FAMILY, "algorithm.strategies=asked", "algorithm.compared_boards=8")

CLOSE = 1.5
"""How many times what is taken may be told, where memories are most of it."""


class Taken(NamedTuple):
    """Bytes of trainings' folders: the most while they trained, and when they were finished."""

    peak: int
    final: int


def taken(output: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> Taken:
    """Do the only run in an output folder, and see what it takes whenever a checkpoint is beside those there are."""
    given, folder, seen = (*overrides, f"output_dir={output}"), output / "runs", list[int]()
    save = pl.Trainer.save_checkpoint

    def saved(trainer: pl.Trainer, *arguments: Any, **options: Any) -> None:
        save(trainer, *arguments, **options)
        seen.append(folder_bytes(folder))

    monkeypatch.setattr(pl.Trainer, "save_checkpoint", saved)
    assert executed(*given) == records.FINISHED
    assert seen
    return Taken(max(seen), folder_bytes(folder))


def bound(*overrides: str) -> float | None:
    return most_bytes(planned(*overrides).config)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(BOTH, id="listed"),
        pytest.param((*BOTH, "algorithm.snapshots=doubling", "algorithm.snapshot_every=1"), id="doubling"),
        pytest.param((*BOTH, "algorithm.strategies=asked"), id="asked, with a table"),
        pytest.param((*BOTH, "algorithm.strategies=asked", "algorithm.opening=network"), id="asked"),
        pytest.param((*BOTH, "algorithm.memory=aggregated"), id="aggregated"),
        pytest.param((*BOTH, "algorithm.memory=window", "algorithm.value_capacity=100"), id="window"),
        pytest.param(("game=kuhn", "algorithm=sd_cfr", *FAMILY), id="sd_cfr"),
        pytest.param(D2CFR, id="d2cfr"),
        pytest.param(NFSP, id="nfsp"),
        pytest.param((*NFSP, "algorithm.strategies=asked"), id="nfsp, asked"),
        pytest.param((*TABLES, "algorithm=linear_cfr"), id="tabular_cfr"),
        pytest.param((*TABLES, "algorithm=es_mccfr"), id="mccfr"),
        pytest.param(
            (*SMALL_HUNL, *HOLDEM_TABLES, "algorithm.buckets=5"),
            id="mccfr, streets' buckets",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param((*SMALL_FHP, *HOLDEM_TABLES, "algorithm.buckets=5"), id="mccfr, buckets"),
        pytest.param((*SMALL_FHP, *BOARDS), id="boards", marks=pytest.mark.exhaustive),
        pytest.param((*SMALL_FHP, *GUIDED), id="guided", marks=pytest.mark.exhaustive),
        pytest.param(POST, id="kuhn_post"),
    ],
)
def test_no_training_takes_more_than_is_told(tmp_path, monkeypatch, overrides):
    most = bound(*overrides)
    assert most is not None
    found = taken(tmp_path, monkeypatch, *overrides)
    assert max(found) <= most


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "overrides",
    [
        # Memories are full before the end.
        pytest.param(
            (*BOTH, "algorithm.traversals=3000", "algorithm.value_capacity=20000", "algorithm.strategy_capacity=8000"),
            id="deep_cfr",
        ),
        pytest.param(
            (
                *NFSP,
                "algorithm.iterations=16",
                "algorithm.hands=6000",
                "algorithm.replay_capacity=20000",
                "algorithm.reservoir_capacity=4000",
            ),
            id="nfsp",
        ),
        pytest.param((*D2CFR, "algorithm.traversals=3000", "algorithm.value_capacity=20000"), id="d2cfr"),
    ],
)
def test_where_memories_are_most_of_it_hardly_more_is_told_than_is_taken(tmp_path, monkeypatch, overrides):
    most = bound(*overrides)
    assert most is not None
    found = taken(tmp_path, monkeypatch, *overrides)
    assert found.peak <= most
    # The rest is what is allowed for of texts and of files beside their tensors, a megabyte or so.
    assert most < CLOSE * found.peak


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        (
            *SMALL, "algorithm.iterations=5", "evaluation=[exploitability,disagreement,match,strategy]",
            "evaluation.disagreement.rollouts=100", "+evaluation.match.opponents.a_name_of_some_length=/deep_cfr",
            "evaluation.match.readouts=[sd_cfr]",
        ),
        (
            *SMALL_FHP[:-1], *HOLDEM_TABLES, "evaluation=[deviations,exploitability]",
            "evaluation.deviations.boards=null",
        ),
    ],
)  # fmt: skip
def test_rows_of_evaluations_are_no_longer_than_they_say(tmp_path, overrides):
    given = (*overrides, f"output_dir={tmp_path}")
    (config,) = configs(*given, multirun=False)
    assert executed(*given) == records.FINISHED
    game, files = game_for_checks(config), list((trained_folder(config) / "evaluations").glob("*.json"))
    assert len(files) >= len(config.evaluation)
    for file in files:
        content = json.loads(file.read_text())
        rows, seconds = content.pop("rows"), content.pop("seconds")
        row = config.evaluation[content["evaluation"]["name"]].row_bytes(game)
        assert row is not None
        noted = max(len(json.dumps({step: metrics, f"{step}s": seconds[step]})) for step, metrics in rows.items())
        assert noted <= row + disk._COSTS * METRIC_BYTES
        assert len(json.dumps(content)) <= disk._MADE_WITH


@pytest.mark.exhaustive
def test_parts_of_several_processes_are_counted(tmp_path):
    """Processes of their own write here: the folder is looked at meanwhile."""
    overrides = ("game=leduc", "algorithm=sd_cfr", *FAMILY, "algorithm.iterations=20", "trainer.devices=2")
    given = (*overrides, f"output_dir={tmp_path}")
    folder, seen, done = folder_of(tmp_path, *given), [0], Event()

    def look() -> None:
        while not done.is_set():
            with suppress(FileNotFoundError):  # One was replaced or removed.
                seen.append(folder_bytes(folder))

    looking = Thread(target=look)
    looking.start()
    try:
        assert executed(*given) == records.FINISHED
    finally:
        done.set()
        looking.join()
    assert max(seen) > folder_bytes(folder), "checkpoints were seen"
    most = bound(*overrides)
    assert most is not None
    assert max(seen) <= most


@pytest.mark.exhaustive
def test_seeds_together_take_no_more_than_all_are_told_to(tmp_path, monkeypatch):
    overrides = (*SMALL_HUNL, "algorithm=sd_cfr_and_deep_cfr", *FAMILY, *AVERAGE, "seeds=[0,1,2]")
    bounds = [most_bytes(config) for config in planned(*overrides).configs]
    assert len(bounds) == 3
    assert max(taken(tmp_path, monkeypatch, *overrides)) <= sum(most or 0 for most in bounds)


@pytest.mark.slow
def test_of_large_snapshots_only_those_kept_are_counted(tmp_path, monkeypatch):
    overrides = (*TABLES, "algorithm=linear_cfr", "algorithm.iterations=40")
    all_kept = bound(*overrides)
    for module in (disk, snapshot):
        monkeypatch.setattr(module, "MOST_KEPT_BYTES", 1000)
    newest_kept = bound(*overrides)
    assert all_kept is not None
    assert newest_kept is not None
    assert newest_kept < all_kept / 1.5
    assert max(taken(tmp_path, monkeypatch, *overrides)) <= newest_kept


def test_snapshots_that_may_be_small_are_counted_as_if_all_were_kept(monkeypatch):
    """With buckets, of which some may be empty, nobody knows whether a snapshot is just below the limit."""
    monkeypatch.setattr(disk, "MOST_KEPT_BYTES", 20_000)
    left = Leaves(30_000.0, 0.0, 0.0, 2, 1)
    size = disk._file_bytes(30_000, 2)
    assert disk._snapshot_bytes(left, 50) == 2 * size
    assert disk._snapshot_bytes(replace(left, snapshot_is_exact=False), 50) == 50 * 20_000


@pytest.mark.parametrize("traverser", [0, 1])
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_a_traversal_meets_at_most_so_many_decisions(name, traverser):
    game = load(name)
    never_folds = game.legal.float()
    never_folds[:, FOLD] = 0
    policy = TabularPolicy(never_folds / never_folds.sum(1, keepdim=True))
    engine, draw = SamplingEngine(game), seeded(0)
    # Among so many are some in which the opponent does what leads furthest.
    met = [engine.external_sampling(policy, traverser, 1, draw) for _ in range(1000)]
    own = max(len(each.advantages.infosets) for each in met)
    others = max(len(each.opponent_strategies.infosets) for each in met)
    assert most_met(game, traverser) == (own, others)


@pytest.mark.parametrize(
    "overrides",
    [
        ("+trainer.callbacks.stop={_target_: pytorch_lightning.callbacks.EarlyStopping, monitor: step}",),
        ("+trainer.profiler=simple",),
        ("logger=csv",),
        ("game=river_subgames", "algorithm=devn"),
    ],
)
def test_what_may_write_anything_has_no_bound(overrides):
    assert bound("game=leduc", *overrides) is None


def test_algorithms_and_evaluations_that_say_nothing_have_no_bound(monkeypatch):
    @dataclass
    class Other(DeepCFRConfig):
        """Which trains something else, of which the inherited bound is none."""

        def build(self, game: Game, config: Config) -> Any:
            pytest.fail("a bound is told of what is not built")

    config = planned("game=leduc", "algorithm=sd_cfr").config
    assert most_bytes(config) is not None
    values = {field.name: getattr(config.algorithm, field.name) for field in fields(config.algorithm)}
    assert most_bytes(replace(config, algorithm=Other(**values))) is None
    monkeypatch.setattr(Exploitability, "row_bytes", Evaluation.row_bytes)
    assert most_bytes(config) is None


# -- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_shows_a_bound_as_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(staleness, "results", list)  # Of what is published some may say what is taken.
    assert run.main(["-m", *SMALL, "seed=0,1", f"output_dir={tmp_path / 'none'}", "--dry-run"]) == 0
    most = bound(*SMALL)
    assert most is not None
    shown = capsys.readouterr().out.splitlines()
    assert sum(f" < {most / 1e6:,.1f} " in line for line in shown) == 2
    assert shown[-1].endswith(f"; at most {outlook._size(2 * most)} of disk")


MEASURED = outlook.Outlook("a", "a", outlook.NEW, (1.0, 1.0), 2e9, "run b")
BOUNDED = outlook.Outlook("b", "b", outlook.NEW, (1.0, 1.0), None, "", 12_345e6)
UNKNOWN = outlook.Outlook("c", "c", outlook.NEW, (1.0, 1.0), None, "")
SMALL_ONE = replace(MEASURED, bytes=2.5e6)
WITHOUT = " (without what is stored in out/subgames)"
STORING = replace(MEASURED, store=Path("out/subgames/of-a-recipe"))


@pytest.mark.parametrize(
    ("planned", "disk"),
    [
        ([MEASURED], "2.00 GB of disk when all are done"),
        ([MEASURED, UNKNOWN], "at least 2.00 GB of disk when all are done"),
        ([BOUNDED, BOUNDED], "at most 24.69 GB of disk"),
        ([BOUNDED, UNKNOWN], "at most 12.35 GB of disk, unknown for 1"),
        ([MEASURED, BOUNDED], "2.00 GB of disk when all are done, at most 12.35 GB for 1 other(s)"),
        (
            [MEASURED, BOUNDED, UNKNOWN],
            "2.00 GB of disk when all are done, at most 12.35 GB for 1 other(s), unknown for 1",
        ),
        ([UNKNOWN], "disk unknown"),
        ([SMALL_ONE, UNKNOWN], "at least 2.5 MB of disk when all are done"),
        ([replace(MEASURED, bytes=100.0), UNKNOWN], "disk unknown"),
        ([STORING, STORING], f"4.00 GB of disk when all are done{WITHOUT}"),
        ([replace(STORING, state=outlook.FINISHED)], f"they take 2.00 GB of disk{WITHOUT}"),
        ([replace(MEASURED, bytes=0.0)], "less than 0.1 MB of disk when all are done"),
        ([replace(MEASURED, bytes=999.9e6)], "999.9 MB of disk when all are done"),
    ],
)
def test_a_sum_tells_apart_what_is_measured_bounded_and_unknown(planned, disk):
    assert outlook.totals(planned, 1).rpartition("; ")[2] == disk


def test_columns_tell_apart_what_is_measured_bounded_and_unknown():
    assert [outlook._megabytes(each) for each in (MEASURED, BOUNDED, UNKNOWN)] == ["2,000.0", "< 12,345.0", "?"]


def test_what_begins_anew_has_what_is_there_beside(tmp_path):
    (config,) = configs(*SMALL, "force=true", f"output_dir={tmp_path}", multirun=False)
    folder = trained_folder(config)
    folder.mkdir(parents=True)
    (folder / "last.ckpt").write_bytes(bytes(1000))
    found = outlook._outlook("label", config, [])
    assert (found.bytes, found.most_bytes) == (None, (most_bytes(config) or 0) + 1000)
