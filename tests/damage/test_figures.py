"""Drawing again from data that is damaged, or another figure's: one sentence, and what was drawn before stays."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import pytest

from repro import figure
from repro.figures import drawing, frame, page
from repro.figures.published import RESULTS
from repro.report import readme


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """The folder of figure 1, as if it had been made."""
    folder = Path(shutil.copytree(RESULTS / "figure1-laptop", tmp_path / "figures" / "figure1-laptop"))
    compressed = folder / "data.csv.gz"
    (folder / frame.DATA).write_bytes(gzip.decompress(compressed.read_bytes()))
    compressed.unlink()
    return folder


def draw(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    output = folder.parents[1]
    monkeypatch.setattr(sys, "argv", ["figure", "figure1", "--draw", "--scale", "laptop", "--output", str(output)])
    return figure.main()


def test_a_figure_is_drawn_again(drawn, monkeypatch):
    for name in ("figure1.png", "figure1.pdf", "claims.json"):
        (drawn / name).unlink()
    assert draw(drawn, monkeypatch) == 0
    assert (drawn / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert (drawn / "figure1.pdf").read_bytes().startswith(b"%PDF")
    assert json.loads((drawn / "claims.json").read_text())


HEAD = ",".join([*frame.LEADING, *frame.MEASURED])


def _row(value: str, step: str = "1", seed: str = "0", target: str = "figure1", metric: str = "exploitability") -> str:
    return f"{HEAD}\n{target},laptop,,deep_cfr,sd_cfr,{seed},{metric},{step},{value}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "cannot be read"),
        ("\0" * 1000, ""),
        ("\0" + _row("1"), "lacks the columns target"),
        ("{}", "lacks the columns target"),
        ('"' + _row("1"), ""),
        (HEAD + "\n", "has no rows"),
        (_row("x"), "value must be of finite"),
        (_row("inf"), "value must be of finite"),
        (_row(""), "in row 1, value is empty"),
        (_row("1", step="1.5"), "step must be of whole numbers"),
        (_row("9" * 400), "value must be of finite"),
        (_row("1", seed="x"), "seed must be of whole numbers"),
        (_row("1", step="9" * 30), "step must be of whole numbers"),
        (_row("1") + "1,2,3\n", "is empty"),
        (_row("1") + "1,2,3,4,5,6,7,8,9,10,11\n", "cannot be read"),
        (_row("true"), "of finite numbers"),
        (_row("1", target="figure6"), "holds data of target 'figure6', not of 'figure1'"),
        (_row("1", metric="nothing"), "does not hold what figure1 is drawn from"),
        (_row("1") + _row("1").splitlines()[1] + "\n", "does not hold what figure1 is drawn from"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_damaged_data_is_told_in_one_sentence(drawn, monkeypatch, capsys, text, told, encoding):
    path = drawn / "data.csv"
    path.write_bytes(text.encode(encoding))
    before = {other: other.read_bytes() for other in drawn.iterdir()}
    assert draw(drawn, monkeypatch) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path} ")
    assert error.count("\n") == 1
    if encoding == "utf-8":
        assert told in error
    assert {other: other.read_bytes() for other in drawn.iterdir()} == before


def test_part_of_the_data_is_drawn_or_refused(drawn, monkeypatch, capsys):
    path = drawn / "data.csv"
    whole = path.read_bytes()
    for text in (whole[: len(whole) // 2], b"\n".join(whole.splitlines()[::9])):
        path.write_bytes(text)
        if draw(drawn, monkeypatch):
            error = capsys.readouterr().err
            assert error.startswith(f"error: {path} ")
            assert error.count("\n") == 1


def publish(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    output = folder.parents[1]
    monkeypatch.setattr(drawing, "ROOT", output)
    monkeypatch.setattr(page, "PAGES", output / "paper_figures")
    # Of all pages, of which there is one here.
    monkeypatch.setattr(readme, "refresh_readme", (output / "README.md").touch)
    (output / "paper_figures").mkdir(exist_ok=True)
    shutil.copy(RESULTS.parent / "figure1.md", output / "paper_figures")
    monkeypatch.setattr(sys, "argv", ["figure", "figure1", "--publish", "--scale", "laptop", "--output", str(output)])
    return figure.main()


@pytest.mark.parametrize("name", ["figure1.pdf", "data.csv", "provenance.json"])
def test_what_is_not_whole_is_not_published(drawn, monkeypatch, capsys, name):
    (drawn / name).unlink()
    assert publish(drawn, monkeypatch) == 2
    assert capsys.readouterr().err.startswith(f"error: {drawn / name} does not exist; draw it again")
    assert not (drawn.parents[1] / "paper_figures" / "results").exists()
    assert not (drawn.parents[1] / "README.md").exists()


def test_what_is_whole_is_published(drawn, monkeypatch):
    assert publish(drawn, monkeypatch) == 0
    assert (drawn.parents[1] / "README.md").exists(), "which says the same then"
    results = drawn.parents[1] / "paper_figures" / "results" / "figure1-laptop"
    found = {path.name: path.read_bytes() for path in results.iterdir()}
    # Data are published compressed.
    found[frame.DATA] = gzip.decompress(found.pop(f"{frame.DATA}.gz"))
    assert found == {path.name: path.read_bytes() for path in drawn.iterdir()}


def test_data_that_cannot_be_drawn_does_not_come_to_lie_beside_earlier_verdicts(drawn, monkeypatch):
    before = {path: path.read_bytes() for path in drawn.iterdir()}
    monkeypatch.setattr(drawing, "_drawn", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        drawing.draw("figure1", frame.read(drawn / "data.csv").iloc[:10], {}, drawn)
    assert {path: path.read_bytes() for path in drawn.iterdir()} == before


def test_what_was_published_can_be_published_again(drawn, monkeypatch):
    """With its data compressed, as they are copied from there."""
    plain = drawn / frame.DATA
    data = plain.read_bytes()
    (drawn / f"{frame.DATA}.gz").write_bytes(gzip.compress(data))
    plain.unlink()
    assert draw(drawn, monkeypatch) == 0
    results = drawn.parents[1] / "paper_figures" / "results" / "figure1-laptop"
    results.mkdir(parents=True)
    (results / frame.DATA).write_text("damaged")
    assert publish(drawn, monkeypatch) == 2, "what is published may have seeds that this lacks"
    older = frame.read(drawn / f"{frame.DATA}.gz")
    frame.write(older[older.seed < 3], results / frame.DATA)
    assert publish(drawn, monkeypatch) == 0
    assert gzip.decompress((results / f"{frame.DATA}.gz").read_bytes()) == data
    assert frame.data_file(results).suffix == ".gz"
