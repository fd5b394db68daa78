"""What a command would do, and what runs left: listings and exports, by keys or their first digits."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
from datetime import datetime
from types import SimpleNamespace

import pandas as pd
import pytest

from repro import evaluate, export, run, runs
from repro.common.errors import ReproError
from repro.estimates import likeness, outlook
from repro.plans.naming import labels, title_of
from repro.plans.planned import Run
from repro.plans.planning import plan
from repro.stored import catalogue
from repro.stored.results import evaluation_seconds
from repro.tracking import record as records
from repro.tracking.folders import full_key, run_folder
from tests.helpers.commands import SMALL, command, configs, executed, key_of, killed_after, planned, trained_seeds


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Three seeds of a training, one of another, and one that was killed."""
    output = trained_seeds(tmp_path_factory.mktemp("outputs"))
    killed_after(12, *SMALL, "seed=7", f"output_dir={output}")
    return output


def files(output):
    return {path: path.stat().st_mtime_ns for path in output.rglob("*")}


# -- plans -----------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_dry_run_says_the_state_of_every_run_and_touches_nothing(outputs, capsys):
    before = files(outputs)
    words = ["-m", *SMALL, "seed=0,7,8", f"output_dir={outputs}", "--dry-run"]
    assert run.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert files(outputs) == before
    of_key = {line.split()[0]: line for line in lines if line.strip()}
    assert "finished" in of_key[key_of(*SMALL, "seed=0")]
    assert "to continue from iteration 12" in of_key[key_of(*SMALL, "seed=7")]
    new = of_key[key_of(*SMALL, "seed=8")]
    assert " new " in new
    assert "and 2 more" in of_key[key_of(*SMALL, "seed=7")], "known from three finished seeds"
    assert new.split()[-2:] == ["as", "above"]
    left = r"(about|by estimate less than) [\d.]+ minutes of training left, and "
    assert re.match(rf"3 training\(s\): 1 finished, 1 to continue, 1 new; {left}", lines[-1])


def test_of_what_is_finished_it_is_said_that_nothing_is_to_be_done(outputs, capsys):
    assert run.main(["-m", *SMALL, "seed=0,1", f"output_dir={outputs}", "--dry-run"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("2 training(s): all are finished, nothing is to be done; they take ")
    assert "minutes" not in last


@pytest.mark.exhaustive
def test_what_is_left_follows_from_finished_runs(outputs):
    (known,) = (e.seconds() for e in likeness.examples(outputs) if e.name == f"run {key_of(*SMALL)}")
    assert sorted(known) == list(range(1, 31))
    found = outlook.outlooks(plan([*SMALL, "seed=8", f"output_dir={outputs}"], False).runs, outputs)
    seconds = [records.read(run_folder(outputs, key_of(*SMALL, f"seed={seed}"))).wall_seconds for seed in range(3)]
    assert found[0].minutes == pytest.approx((sum(seconds) / 3 / 60,) * 2)
    assert found[0].bytes is not None
    took = [evaluation_seconds(planned(*SMALL, f"seed={seed}", f"output_dir={outputs}").config) for seed in range(3)]
    assert found[0].evaluating == pytest.approx(sum(filter(None, took)) / 3 / 60)
    assert " minutes of evaluations in all; " in outlook.totals(found, 1)
    (once_more,) = outlook.outlooks(plan([*SMALL, f"output_dir={outputs}"], False).runs, outputs)
    assert once_more.evaluating == 0
    more = ["algorithm.value.more_steps=10", "seed=8", f"output_dir={outputs}"]
    (other,) = outlook.outlooks(plan([*SMALL, *more], False).runs, outputs)
    assert "different in algorithm.value.more_steps" in other.source
    assert other.evaluating is None


def test_a_gpu_that_lacks_is_told_beforehand(outputs, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run.main([*SMALL, "seed=9", "device=cuda", f"output_dir={outputs}", "--dry-run"]) == 0
    assert capsys.readouterr().out.endswith("1 training(s) need a GPU, and torch finds none here\n")
    assert run.main([*SMALL, "seed=9", f"output_dir={outputs}", "--dry-run"]) == 0
    assert "GPU" not in capsys.readouterr().out
    monkeypatch.setattr("repro.jobs.needs.is_to_train", lambda _: False)
    assert run.main([*SMALL, "seed=9", "device=cuda", f"output_dir={outputs}", "--dry-run"]) == 0
    assert "GPU" not in capsys.readouterr().out, "what is trained is measured anywhere"


def test_a_run_that_another_process_does_is_seen(outputs):
    folder = run_folder(outputs, key_of(*SMALL))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (found,) = outlook.outlooks(plan([*SMALL, f"output_dir={outputs}"], False).runs, outputs)
    assert found.state == outlook.BUSY


# -- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_may_be_abbreviated_as_long_as_it_is_one(outputs):
    key = key_of(*SMALL)
    assert full_key(outputs, key[:8]) == full_key(outputs, key) == key
    assert full_key(outputs, "uniform") == "uniform"
    assert evaluate.run([key[:8], "evaluation=costs"], str(outputs)) == 0
    opponent = f"+evaluation.match.opponents.other={key[:8]}/sd_cfr"
    short, whole = (
        plan([*SMALL, "evaluation=match", text, f"output_dir={outputs}"], False).runs[0].config.evaluation["match"]
        for text in (opponent, opponent.replace(key[:8], key))
    )
    assert short == whole, "so that what was measured by one name is known by the other"


def test_an_ambiguous_key_is_refused_in_one_sentence(outputs, tmp_path):
    shutil.copytree(outputs / "runs" / key_of(*SMALL), tmp_path / "runs" / "abc000000000")
    shutil.copytree(outputs / "runs" / key_of(*SMALL), tmp_path / "runs" / "abc111111111")
    with pytest.raises(ReproError, match=r"the key 'abc' is ambiguous in .*: abc000000000, abc111111111 begin so; add"):
        full_key(tmp_path, "abc")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("algorithm:\n", "algorithm:\n  gone: 3\n"),
        ("module: ''", "module: no_such_module"),
        ("module: ''", "module: broken_module"),
    ],
)
def test_a_run_that_cannot_be_read_is_told_and_left_out_and_one_found_finished_is_finished(
    outputs, tmp_path, capsys, monkeypatch, before, after
):
    (tmp_path / "broken_module.py").write_text("this is no Python")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("abc000000000", "abd000000000"):
        shutil.copytree(outputs / "runs" / key_of(*SMALL), tmp_path / "runs" / name)
    gone = tmp_path / "runs" / "abd000000000" / "config.yaml"
    gone.write_text(gone.read_text().replace(before, after))
    found = tmp_path / "runs" / "abc000000000" / "run.json"
    found.write_text(found.read_text().replace('"finished"', '"skipped"'))
    assert runs.main(["--output", str(tmp_path), "state=finished", "seed=0"]) == 0
    planned_ones = plan(["game=kuhn", "algorithm=cfr", f"output_dir={tmp_path}"], multirun=False).runs
    assert len(outlook.outlooks(planned_ones, tmp_path)) == 1
    told = capsys.readouterr()
    assert told.err.count("abd000000000") == 2
    assert "left out, because config.yaml cannot be read: abd000000000 (" in told.err
    assert "abc000000000" in told.out
    assert "abd000000000" not in told.out


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("compare", [key_of(*SMALL, f"seed={seed}") for seed in (0, 1)]), ("runs", []),
        ("figure", ["kuhn", "--plan", "--scale", "smoke"]),
    ],
)  # fmt: skip
def test_what_nobody_reads_to_its_end_ends_in_silence(outputs, module, words):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as unread:
        listing = subprocess.Popen(
            command("--output", str(outputs), *words, module=module), stdout=unread, stderr=subprocess.PIPE, text=True
        )
    assert listing.communicate()[1] == ""
    assert listing.returncode == 128 + signal.SIGPIPE


def test_a_run_is_listed_with_its_exploitability_whatever_was_measured_of_it_last(outputs, tmp_path, capsys):
    key = key_of(*SMALL)
    shutil.copytree(run_folder(outputs, key), run_folder(tmp_path, key))
    assert runs.main(["--output", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert re.search(r" sd_cfr \d+, deep_cfr \d+ mA/g ", listed)
    against = "+evaluation.match.opponents.other=/deep_cfr"
    assert evaluate.run([key, "evaluation=match", against, "evaluation.match.readouts=[sd_cfr]"], str(tmp_path)) == 0
    assert "sd_cfr against other" in records.read(run_folder(tmp_path, key)).headline
    capsys.readouterr()
    assert runs.main(["--output", str(tmp_path)]) == 0
    clock = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.sub(clock, "", capsys.readouterr().out) == re.sub(clock, "", listed)


def test_runs_are_listed_by_when_they_were_last_written_to(outputs, tmp_path, capsys):
    keys = [key_of(*SMALL, f"seed={seed}") for seed in (1, 0, 2)]
    for hour, key in enumerate(keys, start=10):
        shutil.copytree(run_folder(outputs, key), run_folder(tmp_path, key))
        path = run_folder(tmp_path, key) / "run.json"
        then = datetime(2026, 11, 5, hour, 30).astimezone().timestamp()
        path.write_text(json.dumps({**json.loads(path.read_text()), "updated": then}))
    assert runs.main(["--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:4]
    assert [line.split()[0] for line in lines] == keys
    assert [line.count(f" 2026-11-05 {hour}:30 ") for hour, line in enumerate(lines, start=10)] == [1, 1, 1]


# -- exports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_an_export_has_every_number_with_its_hyperparameters(outputs, tmp_path, ending):
    path = tmp_path / f"runs.{ending}"
    words = ["game=kuhn", "traversals=200,150", "--to", str(path), "--output", str(outputs)]
    assert export.main(words) == 0
    data = pd.read_parquet(path) if ending == "parquet" else pd.read_csv(path)
    assert set(data.key) == {key_of(*SMALL, *o) for o in ([], ["seed=1"], ["seed=2"], ["algorithm.traversals=150"])}
    last = data[(data.readout == "sd_cfr") & (data.metric == "exploitability") & (data.step == 30)]
    assert sorted(last.traversals) == [150, 200, 200, 200]
    assert (data.value_steps == 30).all()
    assert not data.duplicated(["key", "readout", "evaluation_key", "metric", "step"]).any()


def test_whole_numbers_stay_whole_where_runs_lack_the_key(outputs, tmp_path):
    shutil.copytree(outputs, tmp_path / "here")
    short = ("game=kuhn", "algorithm=cfr", "algorithm.iterations=2", "algorithm.snapshot_every=2")
    assert executed(*short, f"output_dir={tmp_path / 'here'}") == records.FINISHED
    assert export.main(["--output", str(tmp_path / "here"), "--to", str(tmp_path / "all.csv")]) == 0
    read = pd.read_csv(tmp_path / "all.csv", dtype=str, keep_default_na=False)
    assert set(read.traversals[read.algorithm == "cfr"]) == {""}
    assert {value.isdigit() for value in read.traversals[read.algorithm != "cfr"]} == {True}


def test_an_export_goes_to_the_output_folder_unless_told_otherwise(outputs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert export.main(["seed=1", "--output", str(outputs)]) == 0
    assert capsys.readouterr().out.startswith(f"{outputs / 'runs.csv'}: ")
    assert not list(tmp_path.iterdir())
    (outputs / "runs.csv").unlink()


def test_a_value_that_a_longer_field_has_is_told(tmp_path, monkeypatch):
    fields = [{"learning_rate": "0.001"}, {"value.learning_rate": "0.01", "algorithm.value.learning_rate": "0.01"}]
    monkeypatch.setattr(catalogue, "entries", lambda output: [SimpleNamespace(key="", fields=each) for each in fields])
    with pytest.raises(ReproError, match=r"no run of learning_rate=0.01 \(did you mean value.learning_rate=0.01\?\)"):
        catalogue.chosen(tmp_path, ["learning_rate=0.01"])


def test_an_export_of_what_is_not_there_is_refused(outputs, tmp_path, capsys):
    for words, sentence in (
        (["gam=kuhn"], "gam=kuhn: no run has the field gam (did you mean game?)."),
        (["game=kuhnn"], "there is no run of game=kuhnn (did you mean kuhn?)."),
        (["state=finishd,runing"], "there is no run of state=finishd,runing (did you mean finished?)."),
        (["target=kuhn"], "target=kuhn: no run has the field target; those of a figure are target.NAME=SCALE."),
        (["muon=1"], "muon=1: no run has the field muon (did you mean value.muon?)."),
        (["output_dir=x"], "output_dir is where the runs are, which here is said by --output FOLDER."),
        (["seed=99"], "there is no run of seed=99."),
        (["seed=7"], "of 1 run(s) none is finished; --unfinished exports what they have."),
        (["--to", str(tmp_path / "runs.xls")], "its name must end in .csv, .csv.gz, .parquet."),
        (["--to", str(tmp_path / "no" / "runs.csv")], "there is no folder"),
    ):
        assert export.main([*words, "--output", str(outputs)]) == 2
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1
    assert runs.main(["state=interrupted,running", "--output", str(outputs)]) == 0
    assert key_of(*SMALL, "seed=7") in capsys.readouterr().out


# -- names -----------------------------------------------------------------------------------------------------------


def names(*overrides: tuple[str, ...]) -> list[str]:
    return labels([Run([config], {}) for each in overrides for config in configs(*SMALL, *each)])


@pytest.mark.exhaustive
def test_a_run_is_named_by_what_tells_it_from_the_others_of_the_command():
    assert names(("seed=0,1", "network.width=8")) == [
        "kuhn sd_cfr_and_deep_cfr seed=0",
        "kuhn sd_cfr_and_deep_cfr seed=1",
    ]
    assert names(("algorithm.value.steps=5,6",)) == [f"kuhn sd_cfr_and_deep_cfr seed=0 value.steps={n}" for n in (5, 6)]
    # What two keys say alike is said by one, and a player's name says in what it differs from others.
    both = names(
        ("algorithm.traversals=5", "network.width=8"), ("algorithm.traversals=6", "network.width=9"), ("game=leduc",)
    )
    assert both == [
        "kuhn sd_cfr_and_deep_cfr seed=0 traversals=5",
        "kuhn sd_cfr_and_deep_cfr seed=0 traversals=6",
        "leduc sd_cfr_and_deep_cfr seed=0",
    ]
    grid = names(("algorithm.traversals=5,6", "network.width=8,9"))
    assert grid[1] == "kuhn sd_cfr_and_deep_cfr seed=0 traversals=5 network.width=9"
    assert len(set(grid)) == 4
    # A game that a command changed is another game.
    changed = Run(configs(*SMALL, "game.ranks=4"), {}, title_of([*SMALL, "game.ranks=4"]))
    assert labels([changed]) == ["kuhn sd_cfr_and_deep_cfr seed=0 game.ranks=4"]
    assert labels([changed, Run(configs(*SMALL), {})])[1] == "kuhn sd_cfr_and_deep_cfr seed=0 game.ranks=3"
    # Values are written as on a command line.
    focused = names(("algorithm.value.focus=null,0.5",))
    assert focused == [f"kuhn sd_cfr_and_deep_cfr seed=0 value.focus={value}" for value in ("null", "0.5")]
    divided = names(("algorithm.divide_by_legal=true,false",))
    assert [name.rpartition("=")[2] for name in divided] == ["true", "false"]
