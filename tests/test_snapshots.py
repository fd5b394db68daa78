"""Snapshots in files: histories in pieces, resuming, large ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from repro.algorithms.tabular import VARIANTS
from repro.common.errors import ReproError
from repro.policies import snapshot as snapshots
from repro.policies.snapshot import History, Snapshot, SnapshotFolder


def grown(rows: int) -> History:
    history = History()
    for i in range(rows):
        history.append(torch.full((3,), float(i)))
    return history


def written(folder: SnapshotFolder, rows: int, every: int) -> list[History]:
    both = [History(), History()]
    for i in range(1, rows + 1):
        for player, history in enumerate(both):
            history.append(torch.full((3,), float(10 * i + player)))
        if i % every == 0:
            state = {"network": torch.full((2,), float(i))}
            folder.write(Snapshot(i, {"nodes_touched": float(i)}, state, {"value": both}))
    return both


def test_a_history_is_a_list_of_rows_wherever_they_are():
    history = History([torch.arange(6.0).view(2, 3)])
    history.append(torch.tensor([6.0, 7.0, 8.0]))
    assert len(history) == 3
    assert history.stored == 2
    assert [row[0].item() for row in history] == [0.0, 3.0, 6.0]
    assert history[-1].tolist() == [6.0, 7.0, 8.0]
    assert history.since(1).tolist() == [[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]]
    with pytest.raises(IndexError, match="row 3 of 3"):
        history[3]


def test_what_is_appended_is_a_copy():
    row = torch.zeros(2)
    history = History()
    history.append(row)
    row += 1
    assert history[0].tolist() == [0.0, 0.0]


def test_snapshots_are_read_as_they_were_written(tmp_path):
    folder = SnapshotFolder(tmp_path)
    both = written(folder, rows=6, every=2)
    assert folder.iterations == [2, 4, 6]
    assert all(history.stored == 6 for history in both), "what is stored is not held twice"
    middle = folder.read(4)
    assert middle.counts == {"nodes_touched": 4.0}
    assert middle.state["network"].tolist() == [4.0, 4.0]
    assert [[row[0].item() for row in history] for history in middle.history["value"]] == [
        [10.0, 20.0, 30.0, 40.0], [11.0, 21.0, 31.0, 41.0],
    ]  # fmt: skip
    assert folder.read().iteration == 6
    with pytest.raises(ReproError, match="no snapshot of iteration 3; there are those of 2, 4, 6"):
        folder.read(3)
    with pytest.raises(ReproError, match="never is empty; the command that made the run makes snapshots anew"):
        SnapshotFolder(tmp_path / "never").read()


def test_a_training_that_goes_on_from_earlier_leaves_them_again(tmp_path):
    folder = SnapshotFolder(tmp_path)
    written(folder, rows=6, every=2)
    folder.forget_after(3)
    assert folder.iterations == [2]
    assert folder.lost([2, 4, 6]) == [4, 6]
    history = folder.history(3)["value"][0]
    assert len(history) == 2


def test_of_large_snapshots_the_newest_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "MOST_KEPT_BYTES", 10)
    folder = SnapshotFolder(tmp_path)
    written(folder, rows=6, every=2)
    assert folder.iterations == [6]
    assert folder.lost([2, 4, 6]) == [], "they were let go"
    assert len(folder.read().history["value"][0]) == 6, "the history is whole"


def test_a_damaged_snapshot_is_explained(tmp_path):
    folder = SnapshotFolder(tmp_path)
    written(folder, rows=2, every=2)
    (tmp_path / "0000002.pt").write_bytes(b"PK and then nothing")
    with pytest.raises(ReproError, match="not a snapshot that can be read"):
        folder.read(2)


@pytest.mark.parametrize("lost", [["0000002"], ["0000004"], ["0000006"], ["0000002", "0000004", "0000006"]])
def test_a_history_that_lacks_a_file_is_not_taken_for_a_shorter_one(tmp_path, lost):
    folder = SnapshotFolder(tmp_path)
    written(folder, rows=6, every=2)
    for name in lost:
        (tmp_path / f"{name}.history.pt").unlink()
    with pytest.raises(ReproError, match="history up to iteration 6 is not whole; train again with force=true"):
        folder.read(6)
    if lost == ["0000006"]:
        assert len(folder.read(4).history["value"][0]) == 4


@pytest.mark.parametrize(
    ("how", "iterations", "every", "expected"),
    [
        ("even", 20, 5, [5, 10, 15, 20]),
        ("even", 12, 5, [5, 10, 12]),
        ("even", 3, 5, [3]),
        ("doubling", 640, 5, [5, 10, 20, 40, 80, 160, 320, 640]),
        ("doubling", 450, 5, [5, 10, 20, 40, 80, 160, 320, 450]),
        ("doubling", 7, 1, [1, 2, 4, 7]),
        ("doubling", 3, 5, [3]),
    ],
)
def test_after_which_iterations_snapshots_are_left(how, iterations, every, expected):
    algorithm = replace(VARIANTS["cfr"], iterations=iterations, snapshot_every=every, snapshots=how)
    assert algorithm.snapshot_iterations() == expected
    assert [i for i in range(1, iterations + 1) if algorithm.leaves_snapshot(i)] == expected
