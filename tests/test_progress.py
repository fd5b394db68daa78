"""The progress that is shown of a command's runs."""

from __future__ import annotations

import sys

from repro.tracking import record as records
from repro.tracking.progress import Job, Watcher, console
from repro.tracking.record import RunRecord


def test_a_run_that_was_interrupted_is_shown_and_not_waited_for(tmp_path, capsys):
    jobs = [Job("first", tmp_path / "1"), Job("second", tmp_path / "2")]
    interrupted = RunRecord(state=records.INTERRUPTED, message="the disk is full", iterations=10)
    running = RunRecord(state=records.RUNNING, iteration=5, iterations=10, seconds_per_iteration=2.0)
    watcher = Watcher(jobs, "", parallel=1)
    assert watcher._remaining([interrupted, running]) == 10.0
    assert watcher._remaining([RunRecord(), running]) == 30.0
    console(sys.stdout).print(watcher._table([interrupted, running]))
    first, second, summary = capsys.readouterr().out.splitlines()
    assert first.split() == ["first", "interrupted", "the", "disk", "is", "full"]
    assert second.startswith("second")
    assert summary.startswith("1 of 2 runs done")
