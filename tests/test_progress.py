"""The progress that is shown of a command's runs."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from repro.evaluation import averages
from repro.running.measuring import Measuring
from repro.tracking import record as records
from repro.tracking.progress import Job, Watcher, console
from repro.tracking.record import RunRecord
from tests.helpers.commands import executed


def test_a_run_that_was_interrupted_is_shown_and_not_waited_for(tmp_path, capsys):
    jobs = [Job("first", tmp_path / "1"), Job("second", tmp_path / "2")]
    interrupted = RunRecord(state=records.INTERRUPTED, message="the disk is full", iterations=10)
    running = RunRecord(state=records.RUNNING, iteration=5, iterations=10, seconds_per_iteration=2.0)
    watcher = Watcher(jobs, "", parallel=1)
    assert watcher._remaining([interrupted, running]) == (10.0, 0)
    assert watcher._remaining([RunRecord(), running]) == (30.0, 0)
    console(sys.stdout).print(watcher._table([interrupted, running]))
    first, second, summary = capsys.readouterr().out.splitlines()
    assert first.split() == ["first", "interrupted", "the", "disk", "is", "full"]
    assert second.startswith("second")
    assert summary.startswith("1 of 2 runs done")


def test_runs_of_a_kind_that_has_not_begun_are_counted_and_not_guessed(tmp_path):
    jobs = [Job(str(i), tmp_path / str(i), kind) for i, kind in enumerate(("data", "data", "network", "network"))]
    watcher = Watcher(jobs, "", parallel=1)
    running = RunRecord(state=records.RUNNING, iteration=5, iterations=10, seconds_per_iteration=2.0)
    assert watcher._remaining([RunRecord()] * 4) == (None, 0)
    assert watcher._remaining([running, RunRecord(), RunRecord(), RunRecord()]) == (30.0, 2)
    assert "about 30 s left, not counting 2 run(s) whose like has not run yet" in watcher._summary(
        [running] + [RunRecord()] * 3
    )
    done = RunRecord(state=records.FINISHED, iteration=10, iterations=10, seconds_per_iteration=2.0)
    assert watcher._remaining([done, done, RunRecord(), RunRecord()]) == (None, 2)
    quick = RunRecord(state=records.RUNNING, iteration=9, iterations=10, seconds_per_iteration=0.1)
    remaining, others = watcher._remaining([done, done, quick, RunRecord()])
    assert remaining == pytest.approx(1.1)
    assert others == 0


def test_that_a_snapshot_is_being_measured_is_said_while_it_is(tmp_path, capsys, monkeypatch):
    """An evaluation can take as long as many iterations."""
    seen: list[str] = []
    measure = Measuring.measure

    def measured(self, snapshot):
        (path,) = (tmp_path / "runs").glob("*/run.json")
        seen.append(records.read(path.parent).message)
        return measure(self, snapshot)

    monkeypatch.setattr(Measuring, "measure", measured)
    overrides = ["game=kuhn", "algorithm=cfr", "algorithm.iterations=4", "algorithm.snapshot_every=2"]
    assert executed(*overrides, f"output_dir={tmp_path}") == records.FINISHED
    assert seen == ["measuring iteration 2", "measuring iteration 4"]
    (path,) = (tmp_path / "runs").glob("*/run.json")
    assert records.read(path.parent).message == ""
    running = RunRecord(state=records.RUNNING, iteration=1, iterations=4, seconds_per_iteration=2.0, message=seen[0])
    watcher = Watcher([Job("first", tmp_path / "1")], "", parallel=1)
    console(sys.stdout).print(watcher._table([running]))
    assert " 1/4 measuring iteration 2" in capsys.readouterr().out
    assert "[first 1/4 measuring iteration 2]" in watcher._summary([running])


@pytest.fixture
def seen(monkeypatch):
    """What records of runs say while they are done."""
    messages: list[str] = []
    write = records.write

    def written(folder, record, sync=False):
        write(folder, record, sync)
        messages.append(record.message)

    monkeypatch.setattr(records, "write", written)
    return messages


def test_what_is_being_measured_is_said(tmp_path, seen):
    """While training, and of what is measured later."""
    overrides = ["game=kuhn", "algorithm=cfr", "algorithm.iterations=4", "algorithm.snapshot_every=2"]
    assert executed(*overrides, f"output_dir={tmp_path}") == records.FINISHED
    assert "measuring iteration 2: exploitability of cfr" in seen
    later = ["evaluation=[exploitability,strategy]"]
    assert executed(*overrides, *later, f"output_dir={tmp_path}") == records.FINISHED
    assert "measured 0 of 2 snapshots, now strategy of cfr" in seen
    assert "measured 1 of 2 snapshots, now strategy of cfr" in seen


def test_of_a_large_game_it_is_said_how_many_networks_are_averaged(tmp_path, seen, monkeypatch):
    monkeypatch.setattr(averages, "_MOST_KEPT_ROWS", 0)
    overrides = ["game=kuhn", "algorithm=sd_cfr", "algorithm.iterations=4", "algorithm.snapshot_every=2"]
    assert executed(*overrides, f"output_dir={tmp_path}") == records.FINISHED
    networks = [f"sd_cfr, player {player}, {number} of 4 networks" for player in (0, 1) for number in (3, 4)]
    said = [message for message in seen if message.startswith("measuring iteration 4: ")]
    expected = ["sd_cfr", *networks, "sd_cfr, best responses"]
    assert said == [f"measuring iteration 4: exploitability of {words}" for words in expected]


def test_nothing_is_said_to_be_left_where_only_the_last_iteration_is_measured(tmp_path):
    watcher = Watcher([Job("run", tmp_path)], "", parallel=1)
    last = RunRecord(state=records.RUNNING, iteration=10, iterations=10, seconds_per_iteration=2.0, message="measuring")
    assert watcher._summary([last]) == "0 s so far [run 10/10 measuring]"
    assert "left" in watcher._summary([replace(last, iteration=9)])
