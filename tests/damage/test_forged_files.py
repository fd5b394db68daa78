"""Files that others made or changed: one sentence, and none runs code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from repro import match
from repro.games import load
from repro.stored.trained import Trained
from repro.tracking import record as records
from tests.damage.finished import CFR, NETWORKS, done, folder_of
from tests.helpers.commands import key_of

# -- snapshots of opponents ------------------------------------------------------------------------------------------


def forged(path: Path, change: Callable[[Any], Any]) -> None:
    content = torch.load(path, weights_only=True)
    changed = change(content)
    torch.save(content if changed is None else changed, path)


def _nan(content: Any) -> None:
    content["rows"]["value"][0] *= torch.nan


FORGED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "list": ("0000002.pt", lambda _: [1]),
    "no counts": ("0000002.pt", lambda content: content.pop("counts") and None),
    "counts": ("0000002.pt", lambda content: content.update(counts={"x": "y"})),
    "state": ("0000002.pt", lambda content: content.update(state=3)),
    "nan": ("0000002.history.pt", _nan),
    "one player": ("0000002.history.pt", lambda content: content["rows"]["value"].pop() is None),
    "no rows": ("0000002.history.pt", lambda content: content.update(rows={})),
    "rows": ("0000002.history.pt", lambda content: content.update(rows={"value": [1, 2]})),
    "first": ("0000002.history.pt", lambda content: content.update(first="x")),
    "other first": ("0000002.history.pt", lambda content: content.update(first=7)),
    "shape": ("0000002.history.pt", lambda c: c["rows"].update(value=[rows[:, :-1] for rows in c["rows"]["value"]])),
}


@pytest.mark.parametrize("forge", [*FORGED, "flipped", "truncated"])
def test_a_forged_snapshot_of_an_opponent_is_told_in_one_sentence(output, capsys, monkeypatch, forge):
    monkeypatch.setattr(match, "play_match", lambda *_, **__: pytest.fail("it played"))
    folder = folder_of(output, NETWORKS) / "snapshots"
    name, change = FORGED.get(forge, ("0000002.history.pt", lambda _: None))
    path = folder / name
    if forge in FORGED:
        forged(path, change)
    else:
        whole = path.read_bytes()
        rows = torch.load(path, weights_only=True)["rows"]["value"][1].numpy().tobytes()
        at = whole.index(rows)
        path.write_bytes(whole[:at] + (bytes([whole[at] ^ 1]) + whole[at + 1 :] if forge == "flipped" else b""))
    key = key_of(*NETWORKS)
    assert match.main(["kuhn", f"{key}/sd_cfr", "uniform", "--output", str(output)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: A: ")
    assert str(folder) in told
    assert told.count("\n") == 1


def test_a_run_whose_opponent_is_forged_fails_in_one_sentence(output):
    folder = folder_of(output, NETWORKS) / "snapshots"
    forged(folder / "0000002.history.pt", FORGED["shape"][1])
    state, record = done(output, *CFR, "evaluation=match", f"+evaluation.match.opponents.x={key_of(*NETWORKS)}/sd_cfr")
    assert state == records.FAILED
    assert str(folder) in record.message
    assert "\n" not in record.message
    assert not list((output / "runs").glob("*/error.txt"))


def test_other_files_among_snapshots_are_left_alone(output):
    folder = folder_of(output) / "snapshots"
    other = folder / "0000002 (copy).pt"
    other.write_bytes(b"x")
    trained = Trained.open(output, folder.parent.name)
    assert trained.snapshots.iterations == [5, 10]
    trained.snapshots.forget_after(0)
    assert list(folder.iterdir()) == [other]


# -- files that others made ------------------------------------------------------------------------------------------


class Harm:
    """Leaves a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("kind", ["pickle", "tensor file", "part of one"])
def test_no_file_runs_code(tmp_path, capsys, kind):
    import pickle  # noqa: PLC0415

    path, harm = tmp_path / "snapshot.pt", Harm(tmp_path / "harm")
    if kind == "pickle":
        path.write_bytes(pickle.dumps(harm))
    else:
        torch.save(harm if kind == "tensor file" else {"config": {}, "state": [harm]}, path)
    assert match.main(["kuhn", "uniform", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: B: {path} is not the snapshot.pt of a finished run")
    assert told.count("\n") == 1
    assert not (tmp_path / "harm").exists()
    pickle.loads(pickle.dumps(harm))
    assert (tmp_path / "harm").exists(), "it would have"


def _lines(change: Callable[[list[str]], Any]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        lines = text.splitlines()
        change(lines)
        return "\n".join(lines)

    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda _: "", lambda _: "\0" * 1000, lambda text: "\0" + text, lambda text: text[: len(text) // 2],
        lambda text: text.replace("0.", "\0", 3), lambda text: text.replace("call", "calls"),
        lambda text: text.replace(",call", ""), lambda text: text.replace("description", "infoset"),
        lambda text: text.replace("0.5", "nan", 1), lambda text: text.replace("0.5", "", 1),
        lambda text: text.replace("0.5", "inf", 1), lambda text: text.replace("0.5", "-0.5", 1),
        lambda text: text.replace("0.5", "0.6", 1), lambda text: text.replace("0.5", "x", 1),
        lambda text: text.replace("0.5", "9" * 500, 1), lambda text: text.replace("0.5", "0.5,0.5", 1),
        lambda text: text.replace("0.5", '"0.5', 1), lambda text: text + text,
        _lines(list.pop), _lines(list.reverse), _lines(lambda lines: lines.insert(1, lines[0])),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_forged_table_is_told_in_one_sentence(tmp_path, capsys, monkeypatch, change, encoding):
    from repro.policies import uniform  # noqa: PLC0415
    from repro.policies.files import save_strategy  # noqa: PLC0415

    monkeypatch.setattr(match, "play_match", lambda *_, **__: pytest.fail("it played"))
    path, game = tmp_path / "strategy.csv", load("kuhn")
    save_strategy(game, uniform(game), path)
    path.write_bytes(change(path.read_text()).encode(encoding))
    assert match.main(["kuhn", "uniform", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: B: {path} ")
    assert told.count("\n") == 1
