"""Lightning as its users expect it: callbacks and loggers from the command line, by the names of read-outs' metrics."""

from __future__ import annotations

import os

import pandas as pd
import pytest

from repro.running.measuring import Measuring
from repro.tracking import record as records
from tests.helpers.commands import SMALL, executed, in_a_child, only_folder, results

STOP = (
    "+trainer.callbacks.stop={_target_: pytorch_lightning.callbacks.EarlyStopping, monitor: sd_cfr/exploitability, "
    "mode: max, patience: 1, check_on_train_epoch_end: true, strict: false}"
)
BEST = (
    "+trainer.callbacks.best={_target_: pytorch_lightning.callbacks.ModelCheckpoint, monitor: deep_cfr/nash_conv, "
    "save_on_train_epoch_end: true, every_n_epochs: 5, filename: best}"
)


def do(output, *overrides: str) -> str:
    return executed(*SMALL, f"output_dir={output}", *overrides)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    output = tmp_path_factory.mktemp("straight")
    assert do(output) == records.FINISHED
    return output


@pytest.mark.exhaustive
def test_a_callback_that_watches_a_read_out_stops_a_run_which_can_be_continued(straight, tmp_path):
    assert do(tmp_path, STOP) == records.FAILED
    record = records.read(only_folder(tmp_path))
    assert "stopped by a callback after iteration" in record.message
    assert 5 < record.iteration < 30
    assert not record.trained
    assert (only_folder(tmp_path) / "last.ckpt").exists()
    assert do(tmp_path) == records.FINISHED
    pd.testing.assert_frame_equal(results(tmp_path, SMALL), results(straight, SMALL))


@pytest.mark.exhaustive
def test_a_logger_gets_the_metrics_of_read_outs_and_of_training(straight, tmp_path):
    assert do(tmp_path, "logger=csv") == records.FINISHED
    (path,) = tmp_path.glob("runs/*/**/metrics.csv")
    logged = pd.read_csv(path)
    data = results(straight, SMALL)
    for readout in ("sd_cfr", "deep_cfr"):
        column = logged[["step", f"{readout}/exploitability"]].dropna()
        stored = data[(data.readout == readout) & (data.metric == "exploitability")]
        assert column.step.tolist() == stored.step.tolist()
        assert column.iloc[:, 1].tolist() == pytest.approx(stored.value.tolist(), rel=1e-6)
    assert len(logged["loss/value"].dropna()) == 30
    pd.testing.assert_frame_equal(results(tmp_path, SMALL), data)


def test_a_logger_misses_nothing_of_a_run_that_is_killed_when_it_measures_last(tmp_path, monkeypatch):
    measure = Measuring.measure

    def measure_or_die(measuring, snapshot):
        if snapshot.iteration == 4:
            os._exit(9)
        return measure(measuring, snapshot)

    overrides = ("game=kuhn", "algorithm=cfr", "algorithm.iterations=4", "algorithm.snapshot_every=2", "logger=csv")
    with monkeypatch.context() as patched:
        patched.setattr(Measuring, "measure", measure_or_die)
        assert in_a_child(lambda: executed(*overrides, f"output_dir={tmp_path}")) == 9
    assert executed(*overrides, f"output_dir={tmp_path}") == records.FINISHED
    logged = pd.concat(map(pd.read_csv, tmp_path.glob("runs/*/**/metrics.csv")))
    assert logged[["step", "cfr/exploitability"]].dropna().step.max() == 4


def test_lightnings_own_checkpoints_can_be_had(tmp_path):
    assert do(tmp_path, BEST) == records.FINISHED
    assert list(tmp_path.glob("runs/*/**/best*.ckpt"))
