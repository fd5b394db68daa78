"""Damaged files of what was measured, and damaged configurations: one sentence, or made again."""

from __future__ import annotations

import json

import pytest

from repro.common.errors import ReproError
from repro.stored.results import is_done, measured_rows
from repro.stored.trained import Trained
from repro.tracking import record as records
from repro.tracking.folders import CONFIG, run_folder
from repro.tracking.rows import EvaluationRows, TrainingRows
from tests.damage.finished import CFR, NOTHING, done, folder_of
from tests.helpers.commands import planned, results

# -- what was measured -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [*NOTHING.values(), '{"rows": null}', '{"rows": [1]}', '{"rows": {"5": 3, "10": {"exploitability": "x"}}}',
     '{"rows": {"x": {}}}', '{"rows": {"5": {}, "10": {"exploitability": NaN}}}'],
)  # fmt: skip
def test_a_damaged_evaluation_is_noticed(tmp_path, damage):
    (tmp_path / "evaluations").mkdir()
    (tmp_path / "evaluations" / "k.json").write_text(damage)
    rows = EvaluationRows(tmp_path, "k")
    assert rows.damaged
    assert not rows.rows


@pytest.mark.usefixtures("_nothing_trains")
def test_a_damaged_evaluation_is_made_again(output):
    before = results(output, CFR)
    (path,) = folder_of(output).glob("evaluations/*.json")
    path.write_text('{"rows": {"5": null, "10": {"exploitability": "x"}}}')
    state, record = done(output, *CFR)
    assert state == records.FINISHED, record.message
    assert results(output, CFR).equals(before)
    assert done(output, *CFR)[0] == records.SKIPPED


@pytest.mark.usefixtures("_nothing_trains")
def test_what_cannot_be_measured_again_is_not_silently_lacking(output, capsys):
    folder = folder_of(output)
    (path,) = folder.glob("evaluations/*.json")
    whole = path.read_text()
    (folder / "snapshots" / "0000005.pt").unlink()
    content = json.loads(whole)
    del content["rows"]["5"]
    path.write_text(json.dumps(content))
    assert is_done(planned(*CFR, f"output_dir={output}").config), "rows that were never there are none that are lost"
    content["rows"]["5"] = None
    path.write_text(json.dumps(content))
    assert not is_done(planned(*CFR, f"output_dir={output}").config), "all that could be measured is there"
    path.write_text(whole[: len(whole) // 2])
    state, record = done(output, *CFR)
    assert state == records.FAILED
    assert record.message.startswith(f"{path} is damaged, and of the 1 iterations whose measurements it lacks, the fir")
    assert "\n" not in record.message
    path.unlink()
    capsys.readouterr()
    assert done(output, *CFR)[0] == records.FINISHED
    told = "lacks the snapshots of iterations 5; what is measured lacks them"
    assert told in capsys.readouterr().err
    assert is_done(planned(*CFR, f"output_dir={output}").config)
    measured_rows(planned(*CFR, f"output_dir={output}").config)
    assert told in capsys.readouterr().err, "when a figure is drawn, too"


@pytest.mark.usefixtures("_nothing_trains")
def test_force_takes_nothing_away_before_what_is_asked_is_known_to_be_possible(output):
    folder = folder_of(output)
    before, known = results(output, CFR), records.read(folder)
    missing = ("evaluation=[exploitability,match]", "+evaluation.match.opponents.x=0123456789ab")
    state, record = done(output, *CFR, *missing, "force=true")
    assert state == records.FAILED
    assert "there is no run with the key '0123456789ab'" in record.message
    assert results(output, CFR).equals(before)
    assert (record.trained, record.exported, record.mlflow) == (True, True, known.mlflow)


def test_force_needs_nothing_of_what_was_measured(output):
    before, folder = results(output, CFR), folder_of(output)
    (path,) = folder.glob("evaluations/*.json")
    (folder / "snapshots" / "0000005.pt").unlink()
    path.write_text("{")
    state, record = done(output, *CFR, "force=true")
    assert state == records.FINISHED, record.message
    assert results(output, CFR).equals(before)


@pytest.mark.parametrize(
    ("text", "told"),
    [('[1, {"x": 1}]\n[2, {"x"\n[3, {"x": 3}]\n', "1 of its lines are damaged"), ("", "it is gone or empty"),
     ('[1, {"x": 1}]\n', "")],
)  # fmt: skip
def test_of_a_finished_training_damaged_lines_are_told(output, capsys, text, told):
    (folder_of(output) / "metrics.jsonl").write_text(text)
    measured_rows(planned(*CFR, f"output_dir={output}").config)
    warnings = capsys.readouterr().err
    assert bool(warnings) == bool(told)
    assert told in warnings
    TrainingRows(folder_of(output)).read()
    assert not capsys.readouterr().err


def test_lines_that_are_no_epochs_are_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = ["null", "[1]", "{}", '{"a": 1, "b": 2}', '[1, {"x": null}]', '["1", {}]', "[-1, {}]", "[" * 100_000, "\0",
             '[2, {"loss": 0.5}]', '[3, {"loss": NaN}]', "[1e3, {}]", "[true, {}]", '[4, {"lo']  # fmt: skip
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    rows = TrainingRows(tmp_path)
    assert rows.read() == {2: {"loss": 0.5}}
    rows.begin(2)
    assert path.read_text() == '[2, {"loss": 0.5}]\n'


def test_rows_that_are_none_are_not_known(tmp_path):
    (tmp_path / "evaluations").mkdir()
    (tmp_path / "evaluations" / "k.json").write_text('{"rows": {"1": {"x": 1}, "2": {"x": []}, "-3": {"x": 1}}}')
    rows = EvaluationRows(tmp_path, "k")
    assert rows.rows == {1: {"x": 1}}
    assert rows.damaged
    rows.add(2, {"x": 2.0}, 0.5)
    assert not EvaluationRows(tmp_path, "k").damaged


# -- config.yaml -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "null", "3", "[1]", "a: [", "\0\1", "algorithm: 3", "algorithm: {readouts: 3}", "!!python/name:os.system"],
)  # fmt: skip
def test_a_damaged_configuration_is_told_in_one_sentence(tmp_path, text):
    path = run_folder(tmp_path, "0123456789ab") / CONFIG
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ReproError, match=r"config\.yaml is not the configuration of a run \(") as caught:
        Trained.open(tmp_path, "0123456789ab")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("_nothing_trains")
def test_a_damaged_configuration_is_written_again_if_it_is_removed(output):
    path = folder_of(output) / CONFIG
    whole = path.read_text()
    path.write_text("a: [")
    state, record = done(output, *CFR)
    assert state == records.FAILED
    assert record.message.startswith(f"{path} is not the configuration of a run")
    assert not (path.parent / "error.txt").exists()
    path.unlink()
    assert done(output, *CFR)[0] == records.SKIPPED
    assert path.read_text() == whole
