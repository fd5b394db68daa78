"""Files of runs that are damaged or forged: one sentence, or made again; no training is begun anew for that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from repro import match, one_seed, training
from repro.errors import ReproError
from repro.games import load
from repro.measuring import Measuring, is_done, measured_rows
from repro.tracking import record as records
from repro.tracking.mlflow_runs import KEY_TAG, MLflowRuns
from repro.tracking.record import RunRecord
from repro.tracking.rows import EvaluationRows, TrainingRows
from repro.trained import CONFIG, Trained, run_folder
from tests.helpers.commands import executed, key_of, planned, results, tracked

CFR = ("game=kuhn", "algorithm=cfr", "algorithm.iterations=10", "algorithm.snapshot_every=5")
NETWORKS = (
    "game=kuhn", "algorithm=sd_cfr_and_deep_cfr", "algorithm.iterations=2", "algorithm.snapshot_every=1",
    "algorithm.traversals=100", "algorithm.value.steps=2", "algorithm.value.batch_size=16", "algorithm.average.steps=2",
    "algorithm.average.batch_size=16", "algorithm.value_capacity=500", "algorithm.strategy_capacity=500",
    "network.width=8", "evaluation=costs",
)  # fmt: skip


def done(output: Path, *overrides: str) -> tuple[str, RunRecord]:
    """Do a run: the state that it ended in, and its record."""
    state = executed(*overrides, f"output_dir={output}")
    return state, records.read(folder_of(output, overrides))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CFR, and SD-CFR and Deep CFR, finished."""
    output = tmp_path_factory.mktemp("finished")
    for overrides in (CFR, NETWORKS):
        state, record = done(output, *overrides)
        assert state == records.FINISHED, record.message
    return output


@pytest.fixture
def output(finished: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(finished, tmp_path / "outputs")
    return tmp_path / "outputs"


@pytest.fixture
def _nothing_trains(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(training, "_fit", lambda *_, **__: pytest.fail("this must train nothing"))


def folder_of(output: Path, overrides: tuple[str, ...] = CFR) -> Path:
    return run_folder(output, key_of(*overrides))


def changed(path: Path, change: Callable[[Any], Any]) -> str:
    """A JSON file's text with other content."""
    return json.dumps(change(json.loads(path.read_text())))


# -- run.json --------------------------------------------------------------------------------------------------------

NOTHING = {
    "empty": "", "null": "null", "list": "[]", "number": "3", "text": '"x"', "half": '{"state": "fini', "nothing": "{}",
    "binary": "\0" * 100, "deep": "[" * 100_000,
}  # fmt: skip
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
    rows.add(2, {"x": 2.0})
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
