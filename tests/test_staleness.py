"""Whether code has changed since what is published was made: from a history of its own, and as pages say it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from repro import verify
from repro.figures import page
from repro.tracking import provenance, staleness
from repro.tracking.repetition import Repetition
from repro.tracking.staleness import LINE, closure

# -- sources ---------------------------------------------------------------------------------------------------------


def test_what_a_training_can_import():
    files = closure(["repro.algorithms.deep_cfr", *staleness._EVERY_RUN])
    expected = (
        "algorithms/deep_cfr",
        "algorithms/memory",
        "engine/sampling",
        "running/one_run",
        "running/training",
        "running/measuring",
    )
    assert {f"repro/{name}.py" for name in expected} <= files
    others = ("repro/tracking", "repro/config", "repro/subgames", "repro/plans/naming", "repro/stored/catalogue")
    assert not {path for path in files if path.startswith(others)}
    assert "repro/algorithms/nfsp.py" not in files


@pytest.mark.parametrize("name", ["sd_cfr_and_deep_cfr", "kuhn_post_corrected", "linear_cfr", "d2cfr", "dcvn"])
def test_earlier_provenance_names_the_algorithm_by_its_label(name):
    modules = staleness.modules_of({"config": {"algorithm": {"name": name}}})
    assert all(closure([module]) for module in modules)
    assert {"repro.running.training", "repro.running.measuring"} <= set(modules)
    schema = staleness._schema(name)
    assert modules == staleness.modules_of({"config": {"algorithm": {"name": "any", "schema": schema}}})


# -- a history -------------------------------------------------------------------------------------------------------


class History:
    """A repository with a package of its own, whose runs begin in `repro.train`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._git("init", "--quiet")

    def _git(self, *arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.folder), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / "repro" / f"{name}.py").write_text(text)

    def move(self, name: str, to: str) -> None:
        (self.folder / "repro" / to).parent.mkdir()
        self._git("mv", f"repro/{name}.py", f"repro/{to}.py")

    def commit(self, **files: str) -> str:
        self.write(**files)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message", "x")
        return self._git("rev-parse", "HEAD")


TRAIN = """from typing import TYPE_CHECKING
from repro import used
if TYPE_CHECKING:
    from repro import typed
def step():
    from repro.late import x
    return x
"""


@pytest.fixture
def history(tmp_path, monkeypatch) -> History:
    (tmp_path / "repro").mkdir()
    found = History(tmp_path)
    found.write(__init__="", train=TRAIN, used="a = 1\n", typed="b = 1\n", late="x = 1\n", other="c = 1\n")
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    monkeypatch.setattr(staleness, "modules_of", lambda sweep: ["repro.train"])
    return found


def changed(sweep: dict) -> object:
    return staleness.staleness(sweep).changed


def test_what_is_run_counts_and_nothing_else(history):
    sweep = {"git_commit": [history.commit()], "git_dirty": ["false"]}
    assert closure(["repro.train"]) == {f"repro/{n}.py" for n in ("__init__", "train", "used", "late")}
    assert changed(sweep) == []
    history.write(other="c = 2\n", typed="b = 2\n")
    assert changed(sweep) == []
    history.write(late="x = 2\n")
    assert changed(sweep) == ["repro/late.py"]
    history.commit(late="x = 1\n", used="from repro import more\na = 1\n", more="d = 1\n")
    assert changed(sweep) == ["repro/more.py", "repro/used.py"]
    history.write(more='"""Nothing yet."""\n')
    assert changed(sweep) == ["repro/used.py"]


def test_comments_docstrings_and_layout_are_no_code(history):
    sweep = {"git_commit": [history.commit()]}
    history.write(used='"""Used."""\n\na = (\n    1  # One.\n)\n"""What a is."""\n')
    assert changed(sweep) == []
    history.write(used="a = '1'\n")
    assert changed(sweep) == ["repro/used.py"]


def test_a_file_that_was_moved_is_what_it_was(history):
    long = "".join(f"x{n} = {n}\n" for n in range(20))
    made = history.commit(
        late=f"{long}x = 1\n", used="from repro import late\nimport repro.late\nimport os\na = 'repro.late'\n"
    )
    sweep = {"git_commit": [made]}
    history.move("late", "deep/late")
    history.write(used="import os\nimport repro.deep.late\nfrom repro.deep import late\na = 'repro.deep.late'\n")
    assert "repro/deep/late.py" in closure(["repro.train"])
    history.write(train=TRAIN.replace("repro.late", "repro.deep.late"))
    assert changed(sweep) == []
    history.write(**{"deep/late": f"{long}x = 2\n"})
    assert changed(sweep) == ["repro/deep/late.py"]


def test_two_commits_of_an_earlier_layout_are_compared_by_its_names(history):
    first = history.commit(training="y = 1\n", errors="z = 1\n")
    second = history.commit(training="from repro import errors\ny = 2\n", errors="z = 2\n")
    history.move("training", "running/training")
    found = staleness.staleness({"git_commit": [first]}, second)
    assert found.changed == ["repro/training.py"], "errors determine no number"


def test_each_commit_that_made_runs_counts(history):
    first, second = history.commit(), history.commit(used="a = 2\n")
    assert changed({"git_commit": [second]}) == []
    assert changed({"git_commit": [f"{first}, {second}"]}) == ["repro/used.py"]
    assert changed({"git_commit": [second], "evaluated_with": [first]}) == ["repro/used.py"]


def test_what_nobody_knows(history):
    commit = history.commit()
    lost = staleness.staleness({"git_commit": ["f" * 40]})
    assert (lost.word, str(lost)) == ("unknown", "unknown: commit ffffffffffff is not in this history")
    for sweep in ({"git_commit": [commit], "git_dirty": ["true"]}, {"git_commit": [f"{commit}-dirty"]}):
        assert str(staleness.staleness(sweep)) == "unknown: the runs were made with uncommitted changes"
    assert staleness.staleness({}).why == "no commit is recorded"


def test_a_line_is_of_the_commit_that_is_checked_out(history):
    commit = history.commit()
    sweep = {"git_commit": [commit]}
    history.write(used="a = 3\n")
    assert staleness.line(sweep) == f"{LINE} **no**, as of commit {commit[:12]}."
    now = history.commit()
    assert staleness.line(sweep) == f"{LINE} **yes**, as of commit {now[:12]}."
    assert str(staleness.staleness(sweep)) == "yes (1 of 4 files: repro/used.py)"
    assert staleness.line(sweep, commit) == f"{LINE} **no**, as of commit {commit[:12]}."


def test_a_line_tells_what_came_of_repeating_runs(history):
    made, repeated = history.commit(), history.commit(used="a = 2\n")
    found = Repetition(repeated, [0, 1], [15, 30], {"the same": 7, "different": 1}, agrees=False)
    sweep = {"git_commit": [made], "config": {}, "repeated": json.loads(json.dumps(found.to_keep()))}
    told = (
        f" Their beginning was repeated at commit {repeated[:12]} (seed 0, 1, up to iteration 15 or 30; numbers: 7 the "
        "same, 1 different), and **did not agree**; code has changed from there to "
    )
    assert staleness.line(sweep) == f"{LINE} **yes**, as of commit {repeated[:12]}.{told}{repeated[:12]}: no."
    now = history.commit(used="a = 3\n")
    assert staleness.line(sweep) == f"{LINE} **yes**, as of commit {now[:12]}.{told}{now[:12]}: yes."


def test_without_a_history(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    assert staleness.line({"git_commit": ["f" * 40]}) == (
        f"{LINE} **unknown** (there was no history when this was written)."
    )


# -- pages -----------------------------------------------------------------------------------------------------------

RESULTS = staleness.results()


def lines(folder: Path) -> list[str]:
    target, _, scale = folder.name.rpartition("-")
    text = page.page_of(target).read_text()
    block = text.partition(f"<!-- results {scale} -->")[2].partition(f"<!-- end {scale} -->")[0]
    return [line for line in block.splitlines() if line.startswith(LINE)]


@pytest.mark.parametrize("folder", RESULTS, ids=lambda folder: folder.name)
def test_what_a_page_says_is_so_at_the_commit_that_it_names(folder):
    sweeps = json.loads((folder / "provenance.json").read_text())["sweeps"]
    told = lines(folder)
    assert len(told) in (1, len(sweeps)), "of each, or once what is so of all"
    for sweep, line in zip(sweeps, told * (len(sweeps) // len(told)), strict=True):
        found = re.search(r"as of commit ([0-9a-f]{12})\.", line)
        assert found, line
        if staleness.changed_files(found[1], None, ()) is None:
            pytest.skip(f"commit {found[1]}, of which the page speaks, is not in this history")
        assert line == staleness.line(sweep, found[1]), "bring the pages up to date with: make stale REFRESH=1"


def test_the_list_of_all_that_is_published(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["verify", "figure1", "--stale"])
    assert verify.main() == 0
    told = capsys.readouterr().out
    assert re.fullmatch(r"(figure1 at scale \w+, [\w, ]+: (yes|no|unknown)[^\n]*\n)+", told), told
