"""Stored subgames: the same however they are made, and never read when damaged."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from repro.common.errors import ReproError
from repro.config.jobs import quoted
from repro.subgames import dataset
from repro.subgames.dataset import FLOAT16, Dataset, Recipe, SubgameSamples
from repro.subgames.sampling import random_subgame
from repro.subgames.solver import SolverConfig
from repro.subgames.subgames import Deck, Subgames
from repro.tracking.provenance import commit
from tests.helpers.commands import configs

RECIPE = Recipe.of(Subgames("river_subgames", Deck(4)), 0, SolverConfig(tolerance=0.005))
SHARD = 4


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dataset, "_SHARD", {4: 2, 5: SHARD})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*")}


def solved(folder: Path, shards: int, threads: int = 1) -> Dataset:
    data = Dataset(folder, RECIPE)
    for number in range(shards):
        data.shard(number, threads)
    return data


def test_what_is_stored(tmp_path: Path):
    samples = solved(tmp_path, 2).load(6)
    assert len(samples) == 6
    for n in range(6):
        subgame = random_subgame(RECIPE.seed, n, 5, Deck(4))
        assert tuple(samples.board[n]) == subgame.board
        assert samples.pot[n] == subgame.pot
        np.testing.assert_allclose(samples.ranges[n], subgame.ranges, rtol=1e-6)
        # Stored values are of stored ranges: in sum nothing is won.
        assert (samples.ranges[n] * samples.cfv[n]).sum() == pytest.approx(0, abs=1e-5)
        assert samples.exploitability[n] <= RECIPE.solver.tolerance
        matchup = subgame.matchups()
        assert np.abs(samples.cfv[n]).max() <= matchup.max() * (subgame.stack / subgame.pot)


def test_in_one_go_in_parts_and_by_threads(tmp_path: Path):
    whole, threads, parts = solved(tmp_path / "w", 3), solved(tmp_path / "t", 3, 2), Dataset(tmp_path / "p", RECIPE)
    for number in (2, 0, 1):
        parts.shard(number, threads=1)
    assert contents(whole.folder) == contents(parts.folder) == contents(threads.folder)


def test_what_is_there_is_left_alone(tmp_path: Path):
    data = solved(tmp_path, 2)
    before = {p.name: p.stat().st_mtime_ns for p in data.folder.glob("[!.]*")}
    solved(tmp_path, 2)
    assert before == {p.name: p.stat().st_mtime_ns for p in data.folder.glob("[!.]*")}


def flipped(path: Path) -> None:
    """One bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("truncated", "has not the checksum"), ("changed", "has not the checksum"), ("no file", "no shard-00001.npz"),
        ("no seal", "no shard-00001.json"), ("no JSON", "cannot be read"), ("other JSON", "has not the checksum"),
        ("another shard", "has not the checksum"), ("another with its seal", "is the file of something else"),
        ("of another tolerance", "is the file of something else"),
    ],
)  # fmt: skip
def test_a_damaged_shard_is_made_again_and_never_read(tmp_path: Path, capsys, monkeypatch, harm: str, told: str):
    data = solved(tmp_path, 2)
    undamaged = data.load(2 * SHARD)
    before, shard = contents(data.folder), data.folder / "shard-00001.npz"
    if harm == "truncated":
        shard.write_bytes(shard.read_bytes()[:-100])
    elif harm == "changed":
        flipped(shard)
    elif harm in ("no file", "no seal"):
        (shard if harm == "no file" else shard.with_suffix(".json")).unlink()
    elif harm in ("no JSON", "other JSON"):
        shard.with_suffix(".json").write_text("{" if harm == "no JSON" else "[]")
    elif harm == "of another tolerance":
        other = Dataset(tmp_path, replace(RECIPE, solver=SolverConfig(tolerance=0.01)))
        other.shard(1, threads=1)
        for path in other.folder.glob("shard*"):
            shutil.copy(path, data.folder)
    else:
        shutil.copy(data.folder / "shard-00000.npz", shard)
        if harm == "another with its seal":
            shutil.copy(data.folder / "shard-00000.json", shard.with_suffix(".json"))
    made, solve = list[int](), Dataset.solved

    def counted(self: Dataset, numbers: Sequence[int], threads: int) -> SubgameSamples:
        made.extend(numbers)
        return solve(self, numbers, threads)

    monkeypatch.setattr(Dataset, "solved", counted)
    found = data.load(2 * SHARD)
    assert made == [4, 5, 6, 7], "exactly the damaged shard is solved again"
    error = capsys.readouterr().err
    assert re.fullmatch(rf"warning: .*shard-00001\.npz .*{told}.*; it is made again\.\n", error)
    assert np.array_equal(found.cfv, undamaged.cfv)
    assert contents(data.folder) == before
    data.load(2 * SHARD)
    assert len(made) == SHARD


def test_a_shard_of_an_earlier_version_is_not_solved_again(tmp_path: Path, capsys, monkeypatch):
    """Its seal has the checksum, but does not say what it is of."""
    data = solved(tmp_path, 1)
    before, seal = data.load(SHARD), data.folder / "shard-00000.json"
    seal.write_text(json.dumps({"sha256": json.loads(seal.read_text())["sha256"]}))
    monkeypatch.setattr(Dataset, "solved", lambda *_: pytest.fail("it is solved again"))
    assert np.array_equal(data.load(SHARD).cfv, before.cfv)
    assert not capsys.readouterr().err


def test_a_shard_says_which_code_and_run_made_it(tmp_path: Path):
    Dataset(tmp_path, RECIPE, run="0123456789ab").shard(0, 1)
    seal = json.loads((tmp_path / RECIPE.name / "shard-00000.json").read_text())
    assert (seal["run"], seal["git_commit"]) == ("0123456789ab", commit())
    Dataset(tmp_path, RECIPE).shard(0, 1)  # Which finds it, whatever its run.
    assert json.loads((tmp_path / RECIPE.name / "shard-00000.json").read_text()) == seal


def test_some_subgames_are_those_of_their_numbers(tmp_path: Path):
    data = solved(tmp_path, 3)
    numbers = [1, 2, SHARD, 3 * SHARD - 1]
    found, every = SubgameSamples.joined(data.some(numbers, 1)), data.load(3 * SHARD)
    for name, column in vars(found).items():
        np.testing.assert_array_equal(column, getattr(every, name)[numbers])


def test_what_was_never_solved_is_not_solved_unasked(tmp_path: Path):
    with pytest.raises(ReproError, match=r"1 of the 3 shards .* the first of them 2; solve them first: `python"):
        solved(tmp_path, 2).load(3 * SHARD)


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=devn"],
        ["algorithm=dcvn", "game=turn_subgames", "game.least_pot=300.5", "game.strength=made_hand",
         "algorithm.dataset=2"],
        ["algorithm=devn", "game=river_subgames", "game.ranks=4", "algorithm.solver.alpha=inf",
         "algorithm.solver.floor=true", "algorithm.solver.tolerance=0.00001", "algorithm.precision=float16",
         "algorithm.met_in_play=0.5"],
    ],
)  # fmt: skip
def test_the_command_that_solves_what_is_missing_can_be_pasted(overrides, tmp_path: Path):
    output = tmp_path / "out, 'of' {mine}"
    (config,) = configs(*overrides, f"output_dir={quoted(str(output))}", multirun=False)
    with pytest.raises(ReproError) as caught:
        config.algorithm.check_stored_data(config)
    words = shlex.split(str(caught.value).split("`")[1])
    assert words[:3] == ["python", "-m", "repro.run"]
    (solving,) = configs(*words[3:], multirun=False)
    assert solving.algorithm.stored_data(solving) == config.algorithm.stored_data(config)
    shard = config.algorithm.recipe(config.algorithm.load(config.game), 0).shard
    assert solving.algorithm.iterations == -(-config.algorithm.subgames // shard)


def test_what_a_killed_process_left_is_removed(tmp_path: Path):
    folder = tmp_path / RECIPE.name
    folder.mkdir()
    left_over = folder / "shard-00000.npz.writing-123"
    left_over.write_bytes(b"half")
    solved(tmp_path, 1)
    assert not left_over.exists()


def test_who_comes_second_waits_and_finds_the_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made, solve = list[int](), Dataset.solved

    def counted(self: Dataset, numbers: Sequence[int], threads: int) -> SubgameSamples:
        made.append(numbers[0])
        return solve(self, numbers, threads)

    monkeypatch.setattr(Dataset, "solved", counted)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: Dataset(tmp_path, RECIPE).shard(0, threads=1).cfv, range(4)))
    assert made == [0]
    assert all(np.array_equal(found[0], other) for other in found)


def test_half_precision_takes_half_the_room(tmp_path: Path, capsys):
    """Ranges to 11 bits of each probability, values of the pot; of the same subgames, in a folder of its own."""
    exact, halved = solved(tmp_path, 1), Dataset(tmp_path, replace(RECIPE, precision=FLOAT16))
    halved.shard(0, threads=1)
    one, other = exact.load(SHARD), halved.load(SHARD)
    assert {name: column.dtype for name, column in vars(other).items()} == {
        name: column.dtype for name, column in vars(one).items()
    }
    for name in ("board", "pot", "exploitability", "iterations"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert not np.array_equal(one.ranges, other.ranges)
    assert not np.array_equal(one.cfv, other.cfv)
    np.testing.assert_allclose(other.cfv, one.cfv, rtol=2**-11, atol=2**-25)
    np.testing.assert_allclose(other.ranges, one.ranges, rtol=2**-10, atol=2**-39)
    np.testing.assert_allclose(other.ranges.sum(2), 1, rtol=1e-6)
    sizes = [{n: a.nbytes for n, a in np.load(d.folder / "shard-00000.npz").items()} for d in (exact, halved)]
    assert {n: sizes[0][n] / sizes[1][n] for n in sizes[0]} == {**dict.fromkeys(sizes[0], 1), "ranges": 2, "cfv": 2}
    # One of them is not read for the other, nor when it is damaged.
    before = contents(halved.folder)
    shutil.copy(exact.folder / "shard-00000.npz", halved.folder)
    shutil.copy(exact.folder / "shard-00000.json", halved.folder)
    assert np.array_equal(halved.load(SHARD).cfv, other.cfv)
    assert "is the file of something else" in capsys.readouterr().err
    flipped(halved.folder / "shard-00000.npz")
    assert np.array_equal(halved.load(SHARD).cfv, other.cfv)
    assert "has not the checksum" in capsys.readouterr().err
    assert contents(halved.folder) == before


def test_datasets_keep_the_names_that_earlier_versions_gave_them(tmp_path: Path):
    assert RECIPE.name == "river-16-6adf1cab4d93"
    recipe = json.loads((solved(tmp_path, 1).folder / "recipe.json").read_text())
    assert list(recipe) == [
        "ranks", "suits", "board_cards", "seed", "least_pot", "strength", "ties", "solver",
    ]  # fmt: skip
    assert replace(RECIPE, precision=FLOAT16).name != RECIPE.name


def test_recipes_do_not_share_a_folder(tmp_path: Path):
    names = {
        replace(RECIPE, **change).name
        for change in ({}, {"seed": 1}, {"solver": SolverConfig(tolerance=0.01)}, {"ranks": 5})
    }
    assert len(names) == 4
    solved(tmp_path, 1)
    assert json.loads((tmp_path / RECIPE.name / "recipe.json").read_text())["solver"]["tolerance"] == 0.005


def test_a_subgame_that_cannot_be_solved_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dataset, "MOST_ITERATIONS", 2)
    with pytest.raises(ReproError, match=r"subgame \d+ is exploitable by .* after 2 iterations"):
        solved(tmp_path, 1)
    assert not list(tmp_path.glob("*/shard*"))
