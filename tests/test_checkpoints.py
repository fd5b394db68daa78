"""Checkpoints that cannot be continued from: the one before is, or training begins anew, and nothing is deleted."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch

from repro.policies import snapshot
from repro.stored import leftovers
from repro.tracking import checkpoints
from repro.tracking import record as records
from tests.helpers.cases import usually_first
from tests.helpers.commands import SMALL, executed, killed_after, only_folder, results

Harm = Callable[[Path], None]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """What a run measures that was never stopped."""
    output = tmp_path_factory.mktemp("straight")
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    return results(output, SMALL)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after 12 of its 30 iterations, and one of another seed after 2."""
    output = tmp_path_factory.mktemp("killed")
    killed_after(12, *SMALL, f"output_dir={output}")
    killed_after(2, *SMALL, f"output_dir={output}/other", "seed=1")
    return output


@pytest.fixture
def output(killed: Path, tmp_path: Path) -> Path:
    """A copy of what was killed."""
    return shutil.copytree(killed, tmp_path / "outputs")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def flipped(path: Path) -> None:
    """One bit in the middle of a tensor: whatever reads it finds a number there."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def changed(change: Callable[[dict[str, Any]], object]) -> Harm:
    def harm(path: Path) -> None:
        content = torch.load(path, weights_only=True)
        change(content)
        torch.save(content, path)

    return harm


def reshaped(content: dict[str, Any]) -> None:
    for name, tensor in content["state_dict"].items():
        content["state_dict"][name] = tensor[..., :-1]


def of_another_training(path: Path) -> None:
    shutil.copy(only_folder(path.parents[2] / "other") / "last.ckpt", path)


HARMS = {
    "truncated": (truncated, "cannot be read (RuntimeError)"),
    "flipped": (flipped, "is damaged (its checksum is wrong)"),
    "lacking a key": (changed(lambda content: content["algorithm"].pop("nodes_touched")), "does not fit (KeyError)"),
    "of other shapes": (changed(reshaped), "does not fit (RuntimeError)"),
    "of no training": (changed(lambda content: content.clear()), "does not fit (KeyError)"),
    "of another training": (of_another_training, "is of another training ("),
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", usually_first(list(HARMS)))
def test_the_one_before_is_continued_from(straight, output, capsys, harm):
    folder = only_folder(output)
    harms, problem = HARMS[harm]
    harms(folder / "last.ckpt")
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    (told,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert told.startswith(f"warning: {folder / 'last.ckpt'} {problem}")
    assert told.endswith("; training goes on after iteration 11, and it is kept as unusable-1.ckpt.")
    pd.testing.assert_frame_equal(results(output, SMALL), straight)
    assert not list(folder.glob("*.ckpt")), "what is kept is not kept for ever"


def test_if_none_fits_training_begins_anew_and_all_are_kept(straight, output, capsys, monkeypatch):
    folder = only_folder(output)
    flipped(folder / "last.ckpt")
    changed(reshaped)(folder / "previous.ckpt")
    kept = [(folder / name).read_bytes() for name in ("last.ckpt", "previous.ckpt")]
    trained = contents(folder / "snapshots")
    with monkeypatch.context() as patched:
        patched.setattr(leftovers, "remove_useless_checkpoints", lambda _: None)
        assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(told) == 2
    assert all("; training begins anew, and it is kept as unusable-" in line for line in told)
    assert [(folder / f"unusable-{number}.ckpt").read_bytes() for number in (1, 2)] == kept
    assert trained
    assert contents(folder / "snapshots-unusable-1") == trained
    pd.testing.assert_frame_equal(results(output, SMALL), straight)


@pytest.mark.parametrize("which", [0, -1])
def test_a_checkpoint_whose_history_lacks_a_file_is_not_continued_from(straight, output, capsys, which):
    """Rows of later iterations would be taken for those of earlier ones."""
    folder = only_folder(output)
    sorted((folder / "snapshots").glob("*.history.pt"))[which].unlink()
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(told) == 2
    assert all("does not fit (ReproError); training begins anew" in line for line in told)
    pd.testing.assert_frame_equal(results(output, SMALL), straight)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.pt")}


def test_what_was_set_aside_goes_when_the_training_is_finished(output):
    folder = only_folder(output)
    for path in folder.glob("*.ckpt"):
        truncated(path)
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    assert not list(folder.glob("*unusable*"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("error", "state"),
    [(OSError(errno.ESTALE, "Stale file handle"), records.INTERRUPTED), (MemoryError(), records.FAILED)],
)
def test_a_history_that_cannot_be_read_now_costs_nothing(straight, output, monkeypatch, error, state):
    folder, load = only_folder(output), snapshot.load_checked
    before = contents(folder / "snapshots"), sorted(folder.glob("*.ckpt"))

    def loaded(path: Path) -> Any:
        if path.name.endswith(".history.pt"):
            raise error
        return load(path)

    with monkeypatch.context() as patched:
        patched.setattr(snapshot, "load_checked", loaded)
        assert executed(*SMALL, f"output_dir={output}") == state
    assert (contents(folder / "snapshots"), sorted(folder.glob("*.ckpt"))) == before
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    pd.testing.assert_frame_equal(results(output, SMALL), straight)


def test_memory_that_is_lacking_says_nothing_of_a_checkpoint(tmp_path, monkeypatch):
    def lacking(_: Path) -> Any:
        raise MemoryError

    monkeypatch.setattr(checkpoints, "load_checked", lacking)
    with pytest.raises(MemoryError):
        checkpoints.problem(tmp_path / "last.ckpt", [])


@pytest.mark.exhaustive
def test_what_is_no_fault_of_a_checkpoint_leaves_it_where_it_is(straight, output):
    """A callback that does not start says nothing of checkpoints, though each of them fails with it."""
    folder = only_folder(output)
    before = {path.name: path.read_bytes() for path in folder.glob("*.ckpt")}
    broken = "+trainer.callbacks.broken={_target_: tests.test_checkpoints.Broken}"
    assert executed(*SMALL, f"output_dir={output}", broken) == records.FAILED
    assert records.read(folder).message.startswith("ValueError: no callback")
    assert {path.name: path.read_bytes() for path in folder.glob("*.ckpt")} == before
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    pd.testing.assert_frame_equal(results(output, SMALL), straight)


class Broken(pl.Callback):
    def on_fit_start(self, *_: object) -> None:
        raise ValueError("no callback")


def test_a_disk_that_cannot_be_read_leaves_checkpoints_where_they_are(output, monkeypatch):
    folder = only_folder(output)

    def unreadable(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error", str(folder / "last.ckpt"))

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "load_checked", unreadable)
        assert executed(*SMALL, f"output_dir={output}") == records.INTERRUPTED
    assert "last.ckpt cannot be read or written (Input/output error)" in records.read(folder).message
    assert sorted(path.name for path in folder.glob("*.ckpt")) == ["last.ckpt", "previous.ckpt"]


def test_rows_are_on_the_disk_before_their_checkpoint(tmp_path, monkeypatch):
    """Of which the last iteration needs none."""
    order: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(file: int) -> None:
        sync(file)
        order.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)

    def replaced(path: Path, target: Path) -> Path:
        order.append(Path(target).name)
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    overrides = ("algorithm.iterations=3", "checkpoint_every_seconds=0", f"output_dir={tmp_path}")
    assert executed(*SMALL, *overrides) == records.FINISHED
    wanted = [name for name in order if name in ("metrics.jsonl", "writing.ckpt", "last.ckpt")]
    in_turn = [name for name, _ in groupby(wanted)]
    assert in_turn[-7:] == [*["metrics.jsonl", "writing.ckpt", "last.ckpt"] * 2, "metrics.jsonl"]


def test_a_checkpoint_says_what_it_is_of(output):
    folder = only_folder(output)
    assert checkpoints.trainings(folder) == {folder.name}
    assert checkpoints.finished(folder) == []
    assert checkpoints.problem(folder / "last.ckpt", [folder.name]) == ""
    assert checkpoints.problem(folder / "last.ckpt", [folder.name, "x"]) == f"is of another training ({folder.name})"


def test_a_checkpoint_from_before_they_said_so_is_continued_from(straight, output, capsys):
    """An interrupted training is not lost to a new version of the suite."""
    for path in only_folder(output).glob("*.ckpt"):
        changed(lambda content: content.pop(checkpoints.TRAININGS))(path)
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    assert "warning" not in capsys.readouterr().err
    pd.testing.assert_frame_equal(results(output, SMALL), straight)
