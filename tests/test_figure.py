"""Making targets: what is planned for them, what is done once for several, and what becomes of failures."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from repro import figure
from repro.common.errors import ReproError
from repro.config.keys import hyperparameters, training_key
from repro.config.schema import Config
from repro.figures import collecting, frame
from repro.figures.collecting import deviations
from repro.figures.growing import Planned
from repro.figures.targets import Options, PlannedSweep, module_of, plan_target
from repro.jobs import launching, needs
from repro.plans.planned import Run, union
from repro.stored.output import check_output
from tests.helpers.commands import call, configs
from tests.test_table4 import table4_data


def options(scale: str, output: Path, **others: Any) -> Options:
    return Options(scale, output, **{"jobs": 1, "device": "cpu", "force": False, **others})


@cache
def planned(target: str, scale: str) -> tuple[list[PlannedSweep], list[Run]]:
    return plan_target(target, options(scale, Path("outputs").absolute()))


def keys(target: str, sweep: str = "") -> list[str]:
    """Of the trainings of a target's sweep at laptop scale."""
    (found,) = (s for s in planned(target, "laptop")[0] if s.name == sweep)
    return [training_key(config) for config in found.configs]


# -- planning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_sweep_may_say_the_device_itself_and_seeds_on_a_gpu_are_one_run(tmp_path, device):
    _, runs = plan_target("figure4", options("gpu", tmp_path, device=device))
    done = figure._batched(runs)
    assert {(run.config.device, len(run.configs)) for run in done} == {("cpu", 1), ("cuda", 3)}
    assert len(done) == len(runs) - 2


def test_trainings_that_need_a_gpu_are_told_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    _, runs = plan_target("figure4", options("gpu", tmp_path))
    lacking = "3 training(s) need a GPU, and torch finds none here"
    assert needs.lacking_a_gpu(runs) == lacking
    assert needs.lacking_a_gpu([run for run in runs if run.config.device == "cpu"]) == ""
    with pytest.raises(ReproError, match=re.escape(lacking)):
        figure._run(runs, [], options("gpu", tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_target_that_is_planned(tmp_path):
    sweeps, runs = plan_target("figure1", options("smoke", tmp_path))
    assert [sweep.name for sweep in sweeps] == ["published", "aggregated", "linear_cfr"]
    assert [run.config for run in runs] == [config for sweep in sweeps for config in sweep.configs]
    sweep = sweeps[0]
    assert [config.seed for config in sweep.configs] == [0, 1]
    assert all(run.labels == {"figure1": "smoke"} for run in runs)
    assert {config.output_dir for config in sweep.configs} == {str(tmp_path)}
    assert sweep.command == (
        "python -m repro.run -m experiment=figure1 'seed=range(2)' scale=smoke target=figure1 "
        f"output_dir={tmp_path} hydra/launcher=joblib"
    )
    assert all("output_dir" not in as_it_is.command for as_it_is in planned("figure1", "smoke")[0])


def test_a_sweep_may_be_of_some_scales_only():
    names = {scale: [sweep.name for sweep in planned("figure1", scale)[0]] for scale in ("laptop", "paper")}
    assert names == {
        "laptop": ["published", "start", "linear_cfr"],
        "paper": ["published", "fresh", "aggregated", "start", "linear_cfr"],
    }


def departures(sweep: PlannedSweep) -> dict[str, list[Any]]:
    published = configs(*sweep.published)
    return deviations(*([hyperparameters(c) for c in which] for which in (published, sweep.configs)))


def test_laptop_departs_from_the_paper_in_length_only():
    for sweep in planned("figure1", "laptop")[0]:
        # What is before the first evaluation is as long at every scale.
        assert departures(sweep) == ({} if sweep.name == "start" else {"algorithm.iterations": [2490, 150]})


def test_the_paper_scale_departs_in_nothing():
    for sweep in planned("figure1", "paper")[0]:
        assert departures(sweep) == {}


def test_of_keys_that_one_side_lacks_the_other_is_told():
    theirs, ours = [{"a": 1, "b": 2, "c": None}], [{"a": 1, "d": 3, "c": 4}, {"a": 1, "d": 5, "c": 4}]
    assert deviations(theirs, ours) == {"b": [2, None], "c": [None, 4], "d": [None, "3, 5"]}


@pytest.mark.exhaustive
def test_figures_of_d2cfr_share_its_trainings():
    targets = {"figure6": "d2cfr", "figure7": "d2cfr", "figure8": "d2cfr", "table3": "d2cfr_leduc"}
    full = keys("figure6", "d2cfr")
    assert len(set(full)) == 5
    assert all(keys(target, sweep) == full for target, sweep in targets.items())
    asked = [run for target in targets for run in planned(target, "laptop")[1]]
    assert sum(run.key in full for run in asked) == 4 * 5
    shared = [run for run in union(asked) if run.key in full]
    assert [run.key for run in shared] == full
    for run in shared:
        assert run.labels == dict.fromkeys(targets, "laptop")
        # Everything that one of the four measures: against others' strategies of the same iteration, or their last.
        measured = run.config.evaluation
        assert list(measured) == ["exploitability", "match", "match_2", "match_3"]
        assert [sorted(measured[name].opponents) for name in ("match", "match_2", "match_3")] == [
            ["same_parameters", "same_width"], ["clipped", "exact", "samples", "without"],
            ["deep_cfr", "nfsp", "sd_cfr"],
        ]  # fmt: skip


@pytest.mark.slow
def test_figure2_and_table1_read_the_same_trainings():
    assert keys("figure2") == keys("table1")
    asked = [run for target in ("figure2", "table1") for run in planned(target, "laptop")[1]]
    assert [run.key for run in union(asked)] == keys("figure2")
    assert all(set(run.labels) == {"figure2", "table1"} for run in union(asked))


# -- making ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def done(monkeypatch) -> set[str]:
    """Targets whose runs pass for finished. Nothing is run, and what would be drawn is printed."""
    finished: set[str] = set()

    def is_done(config: Config) -> bool:
        return config.target in finished

    def drawn(target: str, plan: Planned, options: Options) -> None:
        print(f"{target} would be drawn of {sum(len(sweep.configs) for sweep in plan.sweeps)} runs")

    monkeypatch.setattr(figure, "_is_done", is_done)
    monkeypatch.setattr(figure, "_collect_and_draw", drawn)
    monkeypatch.setattr(launching, "Command", lambda *_: pytest.fail("something was launched"))
    return finished


class Launched:
    """In place of a command: what it was to do.

    Args:
        then: what becomes of the runs; returns the exit status.
    """

    def __init__(self, then: Any) -> None:
        self.keys: list[str] = []
        self._then = then

    def __call__(self, *_: Any) -> Launched:
        return self

    def do(self, stages: list[list[Run]]) -> int:
        self.keys += [run.key for stage in stages for run in stage]
        return self._then()


def test_what_is_finished_is_drawn_without_a_run(done, tmp_path, capsys):
    done.add("figure1")
    assert figure.make(["figure1"], options("smoke", tmp_path)) == 0
    told = capsys.readouterr().out
    assert "4 run(s) asked for, 4 different trainings, 0 to be done" in told
    assert "figure1 would be drawn of 4 runs" in told
    assert re.fullmatch(r"figure1 at scale smoke: done after \d+\.\d minutes", told.splitlines()[-1])


def test_what_is_finished_is_done_again_if_that_is_asked_for(done, tmp_path, monkeypatch):
    done.add("figure1")
    launched = Launched(lambda: 0)
    monkeypatch.setattr(launching, "Command", launched)
    assert figure.make(["figure1"], options("smoke", tmp_path, force=True)) == 0
    assert launched.keys == [run.key for run in planned("figure1", "smoke")[1]]


@pytest.mark.parametrize("status", [0, 1])
def test_a_target_whose_runs_fail_does_not_stop_the_others(done, tmp_path, monkeypatch, capsys, status):
    """Whatever the command says, what counts is what it left."""
    done.add("figure1")
    launched = Launched(lambda: status)
    monkeypatch.setattr(launching, "Command", launched)
    assert figure.make(["figure3", "figure1"], options("smoke", tmp_path)) == 1
    assert launched.keys == [run.key for run in planned("figure3", "smoke")[1]]
    told = capsys.readouterr()
    assert told.err == "error: 2 training(s) of figure3 did not finish; repeat the command to continue.\n"
    assert "figure1 would be drawn" in told.out
    assert "figure3 would be drawn" not in told.out


def test_ctrl_c_stops_everything(done, tmp_path, monkeypatch, capsys):
    def interrupted() -> int:
        raise KeyboardInterrupt

    done.add("figure1")
    monkeypatch.setattr(launching, "Command", Launched(interrupted))
    monkeypatch.setattr(sys, "argv", ["figure", "figure1", "figure3", "--scale", "smoke", "--output", str(tmp_path)])
    assert figure.main() == 130
    told = capsys.readouterr()
    assert "interrupted; repeat the command to go on" in told.err
    assert "would be drawn" not in told.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["figure1", "figur2"],
            "error: target 'figur2' is unknown (did you mean figure2?); the targets are figure1",
        ),
        (["figuers"], "error: target 'figuers' is unknown (did you mean figures?); the targets are "),
        (["figure1", "--jobs", "0"], "error: --jobs is 0; it must be from 1 to 1024."),
        (["figure1", "--output", ""], "error: --output is ''; it must be the name of a folder."),
        (["figure1", "--output", "\0"], "it must be the name of a folder."),
        (["figure1", "--jobs", "1000000"], "error: --jobs is 1000000; it must be from 1 to 1024."),
        (
            ["figure1", "--scale", "smok"],
            "--scale is 'smok'; it must be one of smoke, laptop, gpu, night, paper (did you mean",
        ),
        (
            ["figure1", "--draw", "--output", "nowhere", "--scale", "smoke"],
            "data.csv does not exist, and nothing is published of figure1 at scale smoke; make the figure first.",
        ),
        (["kuhn", "--draw", "--output", "/dev/null/x"], "/dev/null/x/figures/kuhn-laptop cannot be made (Not a dir"),
        (["kuhn", "--plan", "--output", "/dev/null/x"], "output_dir is '/dev/null/x'; it must be a folder that can be"),
        (["figure1", "--publish", "--output", "nowhere"], "holds no finished figure; make it first with `make figure1"),
    ],
)
def test_faulty_requests(done, monkeypatch, capsys, arguments, sentence):
    monkeypatch.setattr(sys, "argv", ["figure", *arguments])
    assert figure.main() == 2
    assert sentence in capsys.readouterr().err


# -- some sweeps alone -----------------------------------------------------------------------------------------------


def older_data(sweep: str, **columns: Any) -> pd.DataFrame:
    common = {"target": "table4", "scale": "smoke", "sweep": sweep, "algorithm": "encoding_error", "readout": "cfv"}
    return pd.DataFrame([{**common, "seed": 0, "buckets": 5, **columns, "metric": "error", "step": 1, "value": 2.0}])


@pytest.mark.exhaustive
def test_a_sweep_alone_is_drawn_beside_what_was_exported(tmp_path):
    """Two shards of rivers of a small deck are solved; everything else is as it was."""
    given = options("smoke", tmp_path)
    folder = given.folder("table4")
    then = table4_data(30.0, scale="smoke").assign(algorithm="encoding_error")
    made_with = {"sweeps": [{"command": "the older one"}]}
    folder.mkdir(parents=True)
    frame.write(then, folder / frame.DATA)
    (folder / "provenance.json").write_text(json.dumps(made_with))
    where = ("--scale", "smoke", "--output", str(tmp_path))
    done = call("table4", "--sweep", "range_river", *where, module="figure")
    assert done.returncode == 0, done.stderr
    assert "1 different trainings, 1 to be done" in done.stdout
    now = frame.read(folder / frame.DATA)
    assert len(now[now.sweep != "range_river"]) == len(then)
    new = now[(now.sweep == "range_river") & (now.readout == "labels")]
    assert sorted(new[new.metric == "cfv/most"].step) == [1, 2]
    claims = {claim["id"] for claim in json.loads((folder / "claims.json").read_text())}
    assert claims >= {"range_river_inside", "turn_1_1000_lower"}
    sweeps = json.loads((folder / "provenance.json").read_text())["sweeps"]
    assert [each.get("sweep") for each in sweeps] == [None, "range_river"]
    assert sweeps[0] == made_with["sweeps"][0]
    assert "evaluation=[label_range]" in sweeps[1]["command"]


def test_what_was_exported_while_a_sweep_was_made_is_not_lost(tmp_path, monkeypatch):
    """Two sweeps of a target may be made side by side."""
    exports, drawn = ["before", "meanwhile"], []
    monkeypatch.setattr("repro.figures.drawing.exported", lambda *_: exports.pop(0))
    monkeypatch.setattr(figure, "_run", lambda *_: 0)
    monkeypatch.setattr(figure, "_missing", lambda _: 0)
    monkeypatch.setattr(figure, "_draw_beside", lambda target, plan, older, options: drawn.append(older))
    assert figure.make_sweeps("table4", ["range_river"], options("smoke", tmp_path)) == 0
    assert drawn == ["meanwhile"]


def test_columns_that_older_data_lack_are_those_of_their_runs(monkeypatch):
    monkeypatch.setattr(collecting, "measured_rows", lambda config: [("labels", "cfv/most", 2, 3.0)])
    sweeps = planned("table4", "smoke")[0]
    older = pd.concat([older_data("turn"), older_data("range_river", value=9.0)], ignore_index=True)
    new = [sweep for sweep in sweeps if sweep.name == "range_river"]
    found = collecting.beside("table4", "smoke", sweeps, new, older[older.sweep != "range_river"])
    turn, now = found[found.sweep == "turn"], found[found.sweep == "range_river"]
    assert [*turn.value, *now.value] == [2.0, 3.0]
    assert [*turn.game_ties, *turn.buckets] == ["random", 5]
    assert frame.swept(found) == sorted(frame.swept(found))
    with pytest.raises(ReproError, match="older data of the sweep turn_ranges are of one game_"):
        collecting.beside("table4", "smoke", sweeps, new, older_data("turn_ranges"))


def test_a_column_that_older_data_lack_may_differ_between_their_runs():
    """That DCVN predicts counterfactual values and DEVN expected ones was no column once."""
    sweeps, _ = planned("table6", "laptop")
    older = [
        older_data("setting_i").assign(algorithm=algorithm, network_layers=float(layers), value=float(layers))
        for algorithm in ("dcvn", "devn")
        for layers in (2, 3)
    ]
    found = collecting.beside("table6", "laptop", sweeps, [], pd.concat(older, ignore_index=True))
    assert sorted(zip(found.algorithm, found.predicts, found.value, strict=True)) == [
        ("dcvn", "cfv", 2.0), ("dcvn", "cfv", 3.0), ("devn", "ev", 2.0), ("devn", "ev", 3.0),
    ]  # fmt: skip


def test_where_a_sweep_comes_from_is_told_once(monkeypatch):
    monkeypatch.setattr(collecting, "provenance_of", lambda sweep: {"sweep": sweep.name, "new": True})
    new = [sweep for sweep in planned("table4", "smoke")[0] if sweep.name in ("turn", "range_river")]
    named = [{"sweep": "river"}, {"sweep": "turn"}]
    found = collecting.provenance_beside(new, named, older_data("turn"))
    assert [(each["sweep"], "new" in each) for each in found] == [
        ("river", False),
        ("turn", True),
        ("range_river", True),
    ]
    with pytest.raises(ReproError, match="does not say which of its sweeps is turn"):
        collecting.provenance_beside(new, [{"command": "one"}, {"command": "other"}], older_data("turn"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["table4", "--sweep", "range_rive"], "--sweep is 'range_rive'; those of table4 are river, river_small_pots, "),
        (["table4", "kuhn", "--sweep", "turn"], "--sweep is 'turn', of one target; 2 are given."),
        (["table1", "--sweep", "turn", "--plan"], "--sweep is 'turn'; table1 has one sweep, leave it out."),
        (["table3", "--scale", "night"], "table3 has no scale night; it has smoke, laptop, paper."),
        (["table1", "--scale", "smoke", "--seeds", "9"], "--seeds is 9; table1 has 2 at the most at scale smoke."),
        (
            ["table1", "--scale", "smoke", "--publish"],
            "--scale is 'smoke', which judges nothing; its data are not published.",
        ),
        (["table4", "--sweep", "turn", "--draw"], "--sweep runs and draws here, beside what is published; leave"),
        (
            ["table4", "--sweep", "turn", "--on", "local"],
            "--sweep runs and draws here, beside what is published; leave",
        ),
        (["figure1", "--sweep", "linear_cfr", "--scale", "smoke"], "nothing is published of figure1 at scale smoke"),
    ],
)
def test_faulty_requests_of_a_sweep(done, monkeypatch, capsys, tmp_path, arguments, sentence):
    monkeypatch.setattr(sys, "argv", ["figure", *arguments, "--output", str(tmp_path)])
    assert figure.main() == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("name", ["/dev/null/x", "a" * 300])
def test_a_plan_refuses_a_folder_that_cannot_be(name, tmp_path):
    with pytest.raises(ReproError, match="it must be a folder that can be written"):
        check_output(tmp_path / name)
    check_output(tmp_path / "deep" / "er")
    assert not list(tmp_path.iterdir())


def test_an_unknown_target_is_refused():
    with pytest.raises(
        ReproError,
        match="target 'chart' is unknown; the targets are figure1, figure2, ",
    ):
        module_of("chart")
