"""Damaged records of runs: noticed, mended, and no training begun anew."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from repro.common.errors import ReproError
from repro.running import one_seed
from repro.running.measuring import Measuring
from repro.stored.results import is_done
from repro.stored.trained import Trained
from repro.tracking import record as records
from repro.tracking.mlflow_runs import KEY_TAG, MLflowRuns
from tests.damage.finished import CFR, NETWORKS, NOTHING, changed, done, folder_of
from tests.helpers.commands import key_of, planned, tracked

WRONG: dict[str, dict[str, Any]] = {
    "iteration": {"iteration": "x"}, "earlier": {"earlier": {"a": ["finished"]}}, "labels": {"labels": [1]},
    "mlflow": {"mlflow": {"training": None}}, "made_with": {"made_with": {"python": "3"}}, "trained": {"trained": "no"},
    "updated": {"updated": float("nan")}, "seconds": {"seconds_per_iteration": 10**400}, "state": {"state": None},
}  # fmt: skip


def damage_record(path: Path, damage: str) -> None:
    if damage == "gone":
        path.unlink()
    elif damage in NOTHING:
        path.write_text(NOTHING[damage])
    else:
        path.write_text(changed(path, lambda content: {**content, **WRONG[damage]}))


@pytest.mark.parametrize("damage", [*NOTHING, *WRONG])
def test_a_damaged_record_is_noticed(finished, tmp_path, damage):
    shutil.copy(folder_of(finished) / "run.json", tmp_path)
    damage_record(tmp_path / "run.json", damage)
    record = records.read(tmp_path)
    assert record.state == records.DAMAGED
    assert record.message == f"{tmp_path / 'run.json'} is damaged: it is not the record of a run."
    assert record.of("another command").state == records.WAITING
    records.write(tmp_path, record)
    assert records.read(tmp_path).made_with == record.made_with


@pytest.mark.usefixtures("_nothing_trains")
@pytest.mark.parametrize("damage", ["null", "trained", "gone"])
def test_a_damaged_record_does_not_begin_a_training_anew(output, capsys, damage):
    folder = folder_of(output)
    before = {path: path.read_bytes() for path in folder.glob("snapshots/*")}
    damage_record(folder / "run.json", damage)
    if damage != "gone":
        with pytest.raises(ReproError, match=r"run\.json is damaged: .* The command that made the run mends it\."):
            Trained.open(output, folder.name).check_finished()
    state, record = done(output, *CFR)
    assert state in (records.FINISHED, records.SKIPPED)
    assert record.trained
    assert {path: path.read_bytes() for path in folder.glob("snapshots/*")} == before
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(told) == 1
    assert "the last snapshot is there, so the training is finished" in told[0]
    assert done(output, *CFR)[0] == records.SKIPPED
    assert len([run for run in tracked(output)[1] if run.data.tags[KEY_TAG] == key_of(*CFR)]) == 2


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_nothing_trains")
@pytest.mark.parametrize("moment", ["complete", "catch_up", "finish"])
def test_what_was_stopped_while_a_finished_run_was_completed_is_repaired(output, monkeypatch, moment):
    """What is measured then, or nothing more if it was stopped later, is no reason to leave MLflow as it is."""
    more = (*CFR, "evaluation=[exploitability,costs]")

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Measuring if moment == "complete" else MLflowRuns, moment, stopped)
        with pytest.raises(KeyboardInterrupt):
            done(output, *more)
    assert not is_done(planned(*more, f"output_dir={output}").config)
    assert done(output, *more)[0] == records.FINISHED
    key = key_of(*CFR)
    assert {run.info.status for run in tracked(output)[1] if run.data.tags[KEY_TAG] == key} == {"FINISHED"}
    assert done(output, *more)[0] == records.SKIPPED


@pytest.mark.usefixtures("_nothing_trains")
def test_a_strategy_that_is_not_written_again_stays(output, monkeypatch):
    path = folder_of(output) / "cfr" / "strategy.csv"
    before = path.read_bytes()

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(one_seed, "save_strategy", stopped)
    with pytest.raises(KeyboardInterrupt):
        done(output, *CFR, "evaluation=[exploitability,costs]")
    assert path.read_bytes() == before


def test_what_is_right_in_a_damaged_record_is_kept(output):
    folder = folder_of(output)
    before, path = records.read(folder), folder / "run.json"
    path.write_text(changed(path, lambda content: {**content, "iteration": "x"}))
    now = records.read(folder)
    assert now.state == records.DAMAGED
    assert (now.trained, now.made_with, now.mlflow) == (True, before.made_with, before.mlflow)
    assert now.iteration == 0


def test_a_record_of_an_older_or_newer_version_is_none_that_is_damaged(tmp_path):
    (tmp_path / "run.json").write_text('{"trained": true, "state": "finished", "unheard_of": 3}')
    record = records.read(tmp_path)
    assert (record.state, record.trained) == ("finished", True)


@pytest.mark.usefixtures("_nothing_trains")
@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_table_that_was_damaged_later_is_written_again(output, capsys, damage):
    path = folder_of(output, NETWORKS) / "sd_cfr" / "strategy.csv"
    before = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(before.replace(b"0.", b"1.", 1))
    assert not is_done(planned(*NETWORKS, f"output_dir={output}").config)
    assert done(output, *NETWORKS)[0] == records.FINISHED
    assert path.read_bytes() == before
    assert f"warning: {path} is damaged or gone; it is written again.\n" in capsys.readouterr().err
    assert done(output, *NETWORKS)[0] == records.SKIPPED


@pytest.mark.usefixtures("_nothing_trains")
def test_a_damaged_table_of_a_read_out_that_is_not_asked_for_is_left_alone(output):
    more = (*NETWORKS, "+algorithm.readouts.sd_cfr_1={kind: ensemble, capacity: 1}")
    assert done(output, *more)[0] == records.FINISHED
    path = folder_of(output, NETWORKS) / "sd_cfr_1" / "strategy.csv"
    path.write_text("x")
    assert done(output, *NETWORKS)[0] == records.SKIPPED
    assert done(output, *more)[0] == records.FINISHED
    assert path.read_text() != "x"
