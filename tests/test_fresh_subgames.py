"""Networks that learn from subgames that are solved meanwhile."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.common.errors import ReproError
from repro.config import Config, NetworkConfig, ReadoutConfig
from repro.config.keys import training_key
from repro.plans.planning import plan
from repro.stored.trained import snapshots_of
from repro.subgames import buckets, dataset, fresh
from repro.subgames.dataset import Dataset, SubgameSamples
from repro.subgames.encoded import Batch
from repro.subgames.encoding import CFV, EV
from repro.subgames.fresh import Pool
from repro.subgames.networks import ValueErrors, ValueNetwork, ValueNetworkConfig
from repro.subgames.sampling import random_subgame
from repro.subgames.solver import SolverConfig, solve_subgame
from repro.subgames.subgames import Deck, Subgames
from repro.tracking import record as records
from repro.tracking.folders import run_folder
from tests.helpers.commands import executed, key_of, results
from tests.helpers.training import config_of, fitted, measured, straight_and_resumed

SMALL = Deck(ranks=4)
RIVERS = Subgames("river_subgames", SMALL)
SOLVER = SolverConfig(tolerance=0.02)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dataset, "_SHARD", {4: 1, 5: 4})
    monkeypatch.setattr(buckets, "_BOARDS", 10)


def run_config(folder: Path, seed: int = 0, **changes: Any) -> Config:
    values: dict[str, Any] = {
        "name": "network", "iterations": 4, "snapshot_every": 4, "subgames": 8, "validation": 0.4, "buckets": 6,
        "batch_size": 4, "learning_rate": 1e-2, "predicts": EV, "fresh": 4, "pool": 12, "solver": SOLVER,
        "readouts": {"ev": ReadoutConfig("ev")}, **changes,
    }  # fmt: skip
    algorithm = ValueNetworkConfig(**values)
    return config_of(algorithm, NetworkConfig("prelu", 16, 2), seed, output_dir=str(folder))


def network(folder: Path, seed: int = 0, **changes: Any) -> ValueNetwork:
    asked = run_config(folder, seed, **changes)
    return ValueNetwork(RIVERS, asked.algorithm, asked)


def learned_from(model: ValueNetwork) -> Batch:
    """All that the epoch goes over, in the order in which it was made."""
    pool = model.data._pool
    assert pool is not None
    return pool[list(range(len(pool)))]


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Batch))


# -- which subgames ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [EV, CFV])
def test_the_first_block_is_what_solving_its_subgames_by_hand_gives(tmp_path: Path, target: str):
    model = network(tmp_path, 3, predicts=target, pool=None)
    model.prepare()
    model.begin_epoch()
    numbers = model.data.fresh_numbers(0)
    subgames = [random_subgame(3, number, 5, SMALL) for number in numbers]
    solutions = [solve_subgame(subgame, SOLVER, SOLVER.tolerance) for subgame in subgames]
    by_hand = SubgameSamples(
        np.array([s.board for s in subgames], np.int8), np.array([s.pot for s in subgames]),
        np.array([s.ranges for s in subgames], np.float32), np.array([s.cfv for s in solutions], np.float32),
        np.array([s.exploitability for s in solutions]), np.array([s.iterations for s in solutions]),
    )  # fmt: skip
    assert same(learned_from(model), model.data.encoded(by_hand)[0])
    # How many are solved at a time does not matter.
    solved = [model.data._fresh_store.solved(numbers, threads).cfv for threads in (1, 2)]
    assert np.array_equal(solved[0], solved[1])
    assert np.array_equal(solved[0], by_hand.cfv)


def test_no_board_is_one_that_networks_are_measured_on(tmp_path: Path):
    model = network(tmp_path, validation=0.8)
    numbers = [model.data.fresh_numbers(block) for block in range(20)]
    flat = list(chain.from_iterable(numbers))
    assert len(set(flat)) == len(flat) == 80
    assert numbers == [model.data.fresh_numbers(block) for block in range(20)], "by their number alone"
    boards = model.data._fresh_store.recipe.boards(flat)
    assert not model.data._held_out(boards).any()
    assert [tuple(board) for board in boards[:3]] == [random_subgame(0, n, 5, SMALL).board for n in flat[:3]]
    assert min(flat) > 10**9 + 10**6, "neither a dataset's nor those of turns that are played"
    # Split by subgames, boards may be on both sides, and none is passed over.
    by_subgames = network(tmp_path, validation=0.8, split="subgames")
    every = by_subgames.data.fresh_numbers(5)
    assert every == list(range(every[0], every[0] + 4))
    assert by_subgames.data._held_out(by_subgames.data._fresh_store.recipe.boards(flat)).shape == (80,)


def test_methods_meet_the_same_subgames_and_seeds_others(tmp_path: Path):
    met = []
    for seed, target in ((0, EV), (0, CFV), (1, EV)):
        model = network(tmp_path, seed, predicts=target)
        model.prepare()
        model.begin_epoch()
        met.append(learned_from(model).inputs)
    assert torch.equal(met[0], met[1])
    assert not torch.equal(met[0], met[2])


@settings(deadline=None, max_examples=50)
@given(size=st.integers(1, 3), blocks=st.integers(1, 4), stops=st.sets(st.integers(0, 7)))
def test_the_pool_has_the_newest_blocks_and_makes_none_twice(size: int, blocks: int, stops: set[int]):
    made = list[int]()

    def make(block: int) -> Batch:
        made.append(block)
        rows = block * size + torch.arange(size)[:, None].float()
        return Batch(rows, rows[:, None], rows[:, None] > 0)

    pool = Pool(make, size, blocks)
    for iteration in range(8):
        pool.advance(iteration)
        expected = torch.arange(iteration * size, (iteration + blocks) * size)
        assert len(pool) == len(expected)
        assert torch.equal(pool[list(range(len(pool)))].inputs[:, 0], expected.float())
        if iteration in stops:
            saved, pool = pool.saved(iteration + 1), Pool(make, size, blocks)
            pool.restore(saved)
    assert made == list(range(7 + blocks))


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [None, 12])
def test_resuming_equals_never_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: int | None):
    network(tmp_path).prepare()  # Stores what is measured on.
    solved, solve = list[int](), Dataset.solved

    def counted(self: Dataset, numbers: list[int], threads: int) -> SubgameSamples:
        solved.extend(numbers)
        return solve(self, numbers, threads)

    monkeypatch.setattr(Dataset, "solved", counted)
    straight, resumed = straight_and_resumed(lambda: network(tmp_path, pool=pool), 4, 2, tmp_path)
    for a, b in zip(straight.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b)
    asked = run_config(tmp_path, pool=pool)
    ours, theirs = (measured(RIVERS, asked, model, ValueErrors()) for model in (straight, resumed))
    assert ours == theirs
    assert straight.counts() == resumed.counts() == {"epochs": 4.0, "subgames": 16.0 + (0 if pool is None else 8)}
    assert len(solved) == 2 * straight.counts()["subgames"], "what was in the pool is not solved again"
    assert same(learned_from(straight), learned_from(resumed))


def test_every_epoch_goes_once_over_the_pool(tmp_path: Path):
    model, seen = network(tmp_path), list[list[float]]()
    begin, loss = model.begin_epoch, model.loss

    def noted(batch: Batch, which: str) -> torch.Tensor:
        if which == "train":
            seen[-1] += batch.inputs[:, 12].tolist()
        return loss(batch, which)

    model.begin_epoch = lambda: (begin(), seen.append([]))  # type: ignore
    model.loss = noted  # type: ignore[method-assign]
    fitted(model, 4, tmp_path)
    pots = [sorted(epoch) for epoch in seen]
    assert [len(set(epoch)) for epoch in pots] == [12] * 4
    # A third is new each time.
    assert [len(set(a) & set(b)) for a, b in pairwise(pots)] == [8, 8, 8]
    assert len(set(pots[0]) & set(pots[3])) == 0


def test_the_time_for_solving_is_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model, clock = network(tmp_path, pool=None), [0.0]
    model.prepare()
    monkeypatch.setattr("repro.algorithms.base.time.perf_counter", lambda: clock[0])
    make = model.data._fresh_block

    def slow(block: int) -> Batch:
        clock[0] += 100.0
        return make(block)

    assert model.data._pool is not None
    model.data._pool._make = slow
    fitted(model, 2, tmp_path)
    assert model.metrics["wall_seconds"] == 200.0


FRESH = (
    "game=river_subgames", "game.ranks=4", "algorithm=devn", "algorithm.iterations=3", "algorithm.subgames=12",
    "algorithm.validation=0.4", "algorithm.buckets=5", "algorithm.batch_size=4", "algorithm.fresh=4",
    "algorithm.pool=8", "network.width=8", "network.layers=2", "algorithm.snapshot_every=1",
)  # fmt: skip


def test_a_run_needs_nothing_that_is_solved_before(tmp_path: Path):
    assert executed(*FRESH, f"output_dir={tmp_path}") == records.FINISHED
    rows = results(tmp_path, FRESH)
    trained = rows[(rows.readout == "training") & (rows.metric == "subgames")].sort_values("step")
    assert trained.value.tolist() == [8.0, 12.0, 16.0]
    assert {"unbucketed", "best", "pooled", "encoding_error"} <= set(rows[rows.readout == "devn"].metric)
    assert snapshots_of(run_folder(tmp_path, key_of(*FRESH))).iterations == [1, 2, 3]


def test_keys_are_what_they_were(tmp_path: Path):
    stored = run_config(tmp_path, fresh=None, pool=None)
    without = {key: value for key, value in vars(stored.algorithm).items() if key not in ("fresh", "pool")}
    assert training_key(stored) == training_key(replace(stored, algorithm=ValueNetworkConfig(**without)))
    others = [run_config(tmp_path, **changes) for changes in ({}, {"pool": None}, {"pool": 8}, {"fresh": 6})]
    assert len({training_key(asked) for asked in [stored, *others]}) == 5
    (run,) = plan(["experiment=devn", "scale=laptop"], multirun=False).runs
    assert run.key == "207c923f688b"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["algorithm.pool=8"], "algorithm.pool is 8 and algorithm.fresh null; only fresh subgames are in a pool."),
        (["algorithm.fresh=100", "algorithm.pool=250"], "algorithm.pool is 250; it must be a multiple of algorithm.fr"),
        (["algorithm.fresh=100", "algorithm.pool=50"], "algorithm.pool is 50; it must be a multiple of algorithm.fres"),
        (["algorithm.fresh=200", "algorithm.learn_from=300"], "algorithm.learn_from is 300 and algorithm.fresh 200; l"),
        (["algorithm.fresh=99"], "algorithm.batch_size is 100, but algorithm.fresh only 99; take smaller batches"),
        (["algorithm.fresh=33", "algorithm.pool=99"], "algorithm.batch_size is 100, but algorithm.pool only 99; take"),
        (["algorithm.fresh=0"], "algorithm.fresh is 0; it must be at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(overrides: list[str], sentence: str):
    with pytest.raises(ReproError) as caught:
        plan(["algorithm=devn", *overrides], multirun=False)
    assert sentence in str(caught.value)


def test_numbers_are_drawn_until_there_are_enough(tmp_path: Path):
    recipe = run_config(tmp_path).algorithm.recipe(RIVERS, 0)
    asked = list[int]()

    def is_left_out(boards: np.ndarray) -> np.ndarray:
        start = sum(asked)
        asked.append(len(boards))
        return np.arange(start, start + len(boards)) % 5 != 0

    numbers = fresh.numbers_of(recipe, 2, 3, is_left_out)
    assert np.subtract(numbers, numbers[0]).tolist() == [0, 5, 10]
    assert numbers[0] == 3 * 10**12
