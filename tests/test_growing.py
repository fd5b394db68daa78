"""Fewer seeds of a target, and published results that grow by seeds."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from repro import figure
from repro.common.errors import ReproError
from repro.config.keys import measurements_key, training_key
from repro.figures import agreement, collecting, drawing, frame, growing, page
from repro.figures.targets import Options, PlannedSweep, module_of, plan_target
from repro.plans.planned import Run, with_needed
from tests.helpers.commands import call, configs

SCALE = "smoke"


def options(output: Path, **others: Any) -> Options:
    return Options(SCALE, output, **{"jobs": 1, "device": "cpu", "force": False, **others})


def seeds_of(sweeps: list[PlannedSweep]) -> dict[str, list[int]]:
    return {sweep.name: sorted({config.seed for config in sweep.configs}) for sweep in sweeps}


# -- planning --------------------------------------------------------------------------------------------------------


def test_the_first_seeds_of_every_sweep(tmp_path):
    every, _ = plan_target("figure1", options(tmp_path))
    few, runs = plan_target("figure1", options(tmp_path, seeds=1))
    assert seeds_of(every) == {"published": [0, 1], "aggregated": [0], "linear_cfr": [0]}
    assert seeds_of(few) == {"published": [0], "aggregated": [0], "linear_cfr": [0]}
    assert [sweep.name for sweep in few if " seed=0 " in sweep.command] == ["published", "aggregated"]
    assert {config.seed for run in runs for config in run.configs} == {0}
    keys = {training_key(config) for sweep in every for config in sweep.configs}
    assert {training_key(config) for sweep in few for config in sweep.configs} < keys


def test_the_first_seeds_are_those_that_a_sweep_names_first(tmp_path):
    planned, _ = plan_target("fhp_limit", Options("night", tmp_path, 1, "cpu", False, seeds=2))
    assert seeds_of(planned) == {
        "linear_cfr": [0], "deep_cfr": [1, 2], "sd_cfr_on_all_flops": [1, 2], "abstractions": [0, 1]
    }  # fmt: skip


def test_seeds_that_are_left_out(tmp_path):
    but = {"published": [0], "linear_cfr": [0]}
    left, _ = plan_target("figure1", options(tmp_path), but=but)
    assert seeds_of(left) == {"published": [1], "aggregated": [0]}
    # Of the first seeds only: the second one is not asked for.
    assert seeds_of(plan_target("figure1", options(tmp_path, seeds=1), but=but)[0]) == {"aggregated": [0]}


@pytest.mark.exhaustive
def test_what_is_made_only_if_asked_for(tmp_path):
    """Left out by default, there by name, and where published results grow; everything at another scale."""
    long = {sweep.name for sweep in module_of("figure13").SWEEPS if "laptop" in sweep.if_asked}
    at_laptop = Options("laptop", tmp_path, 1, "cpu", False)
    assert {sweep.name for sweep in growing.planned("figure13", at_laptop).sweeps} == {"data", "networks", "reference"}
    named = growing.planned_sweeps("figure13", ["met_data"], at_laptop)
    assert [sweep.name for sweep in named.new_sweeps] == ["met_data"]
    with_published = growing.planned("figure13", replace(at_laptop, published=True))
    assert long < {sweep.name for sweep in with_published.sweeps}
    assert with_published.reused is not None
    assert long < with_published.reused.seeds.keys(), "taken of what is published"
    # What cannot be taken is not made because of that.
    few = growing.planned("figure13", replace(at_laptop, published=True, seeds=2))
    assert few.reused is not None
    assert {sweep.name for sweep in few.new_sweeps} <= {"networks", "reference", "data"}
    at_smoke = {sweep.name for sweep in growing.planned("figure13", replace(at_laptop, scale="smoke")).sweeps}
    assert long - at_smoke == {"longer", "fresh"}, "which are of one scale"


@pytest.mark.exhaustive
def test_what_is_made_only_if_asked_for_is_not_made_because_a_part_of_it_is_published(tmp_path, monkeypatch):
    at_laptop = Options("laptop", tmp_path, 1, "cpu", False, published=True)
    every, _ = plan_target("figure13", at_laptop)
    (first, *others) = sorted({config.seed for sweep in every if sweep.name == "longer" for config in sweep.configs})
    assert others
    taken = growing.Reused({"longer": [first]}, pd.DataFrame(), [], [])
    monkeypatch.setattr(growing, "reusable", lambda *_: taken)
    plan = growing.planned("figure13", at_laptop)
    assert "longer" in {sweep.name for sweep in plan.sweeps}, "it is drawn"
    assert "longer" not in {sweep.name for sweep in plan.new_sweeps}
    assert "longer" in plan.unasked


def test_what_was_asked_for_stays_where_it_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr("repro.stored.results.is_done", lambda config: config.algorithm.name == "solved_subgames")
    names = {sweep.name for sweep in growing.planned("figure13", Options("laptop", tmp_path, 1, "cpu", False)).sweeps}
    assert names == {"data", "networks", "reference", "met_data", "sharp_data"}


def test_runs_come_with_those_that_they_need(tmp_path):
    """Matches are against the opponents of the same seed."""
    _, every = plan_target("table3", options(tmp_path))
    plays = [run for run in every if run.needs and run.config.seed == max(one.config.seed for one in every)][:1]
    found = with_needed(plays, every)
    assert plays[0] in found
    assert {key for run in found for key in run.needs} <= {run.key for run in found}
    assert len(found) > 1
    assert {run.config.seed for run in found} == {plays[0].config.seed}
    alone = [run for run in every if not run.needs][:1]
    assert with_needed(alone, every) == alone


def test_networks_come_with_the_subgames_that_they_learn_from(tmp_path):
    _, every = plan_target("figure10", options(tmp_path))
    networks: list[Run] = [run for run in every if any(run.waits_for(other) for other in every)][:1]
    found = with_needed(networks, every)
    solved = [run for run in every if networks[0].waits_for(run)]
    assert [run for run in solved if networks[0].learns_from(run)] == [run for run in found if run is not networks[0]]
    assert len(found) - 1 < len(solved), "others learn from others"


# -- what is published is taken --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Figure 3 with both seeds of its smoke test, made in an output folder."""
    output = tmp_path_factory.mktemp("made")
    done = call("figure3", "--scale", SCALE, "--output", str(output), "--jobs", "1", module="figure")
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture
def published(made, tmp_path, monkeypatch) -> Path:
    """A folder of published results that has seed 0 alone, as if the other one had never been run."""
    folder, whole = tmp_path / "results", made / "figures" / f"figure3-{SCALE}"
    folder.mkdir()
    data = frame.read(frame.data_file(whole))
    frame.write(data[data.seed == 0], folder / frame.DATA)
    provenance = json.loads((whole / "provenance.json").read_text())
    (sweep,) = provenance["sweeps"]
    first, _ = page.names_of_runs(sweep)
    sweep |= {"seeds": [0], "rerun": f"python -m repro.rerun {first}"}
    sweep |= {each: sweep[each][:1] for each in ("measurements", "wall_seconds", "cpu_seconds")}
    (folder / "provenance.json").write_text(json.dumps(provenance))
    monkeypatch.setattr(growing, "results_of", lambda target, scale: folder)
    return folder


@pytest.mark.exhaustive
def test_a_published_result_grows_by_a_seed(made, published, tmp_path, capsys):
    """Of both seeds' runs the same is drawn whether one of them is taken from what is published or not."""
    grown = tmp_path / "outputs"
    shutil.copytree(made / "runs", grown / "runs")
    given = options(grown, published=True)
    plan = growing.planned("figure3", given)
    plan.tell_taken("figure3", SCALE)
    assert "figure3: its sweep, seed 0, is taken; code has changed since: " in capsys.readouterr().out
    assert [config.seed for sweep in plan.new_sweeps for config in sweep.configs] == [1]
    assert [config.seed for run in plan.new_runs for config in run.configs] == [1]
    figure._collect_and_draw("figure3", plan, given)
    folder, whole = given.folder("figure3"), made / "figures" / f"figure3-{SCALE}"
    assert (folder / frame.DATA).read_bytes() == (whole / frame.DATA).read_bytes()
    assert agreement.published_verdicts(folder) == agreement.published_verdicts(whole)
    sweeps = json.loads((folder / "provenance.json").read_text())["sweeps"]
    assert [sweep["seeds"] for sweep in sweeps] == [[0], [1]]
    assert " seed=1 " in sweeps[1]["command"]
    of_all = json.loads((whole / "provenance.json").read_text())["sweeps"][0]
    assert [name for sweep in sweeps for name in page.names_of_runs(sweep)] == page.names_of_runs(of_all)


@pytest.mark.exhaustive
def test_each_seed_has_its_own_provenance(made, published, tmp_path):
    shutil.copytree(made / "runs", tmp_path / "outputs" / "runs")
    given = options(tmp_path / "outputs", published=True)
    figure._collect_and_draw("figure3", growing.planned("figure3", given), given)
    sweeps = json.loads((given.folder("figure3") / "provenance.json").read_text())["sweeps"]
    for seed in (0, 1):
        assert agreement.provenance_of("", {**sweeps[0]["config"], "seed": seed}, sweeps)["seeds"] == [seed]
    departures = list(page._departures(sweeps))
    assert departures == list(page._departures(sweeps[:1])), "what both depart in is told once"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("change", "seeds", "why"),
    [
        ({"rerun": "python -m repro.rerun 0123456789ab"}, None, "other trainings are asked for today"),
        ({"measurements": ["0123456789ab"]}, None, "something else is measured today"),
        ({"seeds": [0, 1]}, 1, "seeds that were run together are taken together, and some of them are not asked for"),
        ({"sweep": "another"}, None, "no such sweep is asked for"),
    ],
)
def test_what_is_of_other_runs_is_not_taken(published, tmp_path, capsys, change, seeds, why):
    file = published / "provenance.json"
    provenance = json.loads(file.read_text())
    provenance["sweeps"][0] |= change
    file.write_text(json.dumps(provenance))
    given = options(tmp_path, published=True, seeds=seeds)
    plan = growing.planned("figure3", given)
    plan.tell_taken("figure3", SCALE)
    told = capsys.readouterr().out
    assert " is taken;" not in told
    assert told.startswith(f"figure3: not taken: {change.get('sweep', 'its sweep')}, seed 0")
    assert told.endswith(f": {why}\n")
    assert [run.key for run in plan.new_runs] == [run.key for run in plan.runs]


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", ["evaluation", "readouts", "rerun"])
def test_what_earlier_files_say_of_measurements_is_compared(published, tmp_path, part):
    """They name the first run's evaluations and read-outs; before that, no runs."""
    file = published / "provenance.json"
    provenance = json.loads(file.read_text())
    (sweep,) = provenance["sweeps"]
    del sweep["measurements"]

    def why() -> list[str]:
        file.write_text(json.dumps(provenance))
        reused = growing.planned("figure3", options(tmp_path, published=True)).reused
        assert reused
        return list(reused.left)

    assert why() == []
    if part == "evaluation":
        sweep["evaluation"] = {"exploitability.boards": 3}
    elif part == "readouts":
        sweep["config"]["algorithm"]["readouts"]["sd_cfr"]["capacity"] = 3
    else:
        del sweep["rerun"]
    (sentence,) = why()
    recorded = "which runs these are was not recorded yet when they were made"
    assert sentence.endswith(recorded if part == "rerun" else "something else is measured today")


def test_what_is_measured_has_one_name():
    """Whatever is trained; another time, read-out or number of boards has another."""
    given = ["game=leduc", "algorithm=sd_cfr_and_deep_cfr", "evaluation=exploitability"]
    (one,), (longer,) = configs(*given), configs(*given, "algorithm.iterations=7", "seed=3")
    assert measurements_key(one) == measurements_key(longer)
    for other in ("evaluation.exploitability.at=last", "algorithm.readouts.sd_cfr.capacity=3", "evaluation=costs"):
        (changed,) = configs(*given, other)
        assert measurements_key(changed) != measurements_key(one), other


@pytest.mark.exhaustive
def test_publishing_loses_neither_seeds_nor_repetitions(made, published, tmp_path, monkeypatch):
    """Of fewer seeds than are published nothing is published, unless that is asked for."""
    source, results = tmp_path / "outputs" / "figures" / f"figure3-{SCALE}", published
    shutil.copytree(made / "figures" / f"figure3-{SCALE}", source)
    drawing._check_nothing_is_lost(source, results, {""})
    monkeypatch.setattr(drawing, "ROOT", tmp_path)
    with pytest.raises(ReproError, match=r"lacks seed 1, published in outputs.*; make it with PUBLISHED=1, or publish"):
        drawing._check_nothing_is_lost(results, source, {""})
    rows = frame.read(frame.data_file(results))
    (tmp_path / "more").mkdir()
    frame.write(
        pd.concat([rows, *(rows.assign(sweep=s) for s in ("earlier", "variant"))]), tmp_path / "more" / frame.DATA
    )
    with pytest.raises(ReproError, match=r"lacks seed .* of variant, published"):
        # What a target had once, and has no more, may go.
        drawing._check_nothing_is_lost(source, tmp_path / "more", {"", "variant"})

    before = json.loads((results / "provenance.json").read_text())
    before["sweeps"][0]["repeated"] = {"commit": "c"}
    (results / "provenance.json").write_text(json.dumps(before))
    # Both seeds together are other runs than the first one alone.
    drawing._keep_repetitions(source / "provenance.json", results / "provenance.json")
    assert "repeated" not in json.loads((source / "provenance.json").read_text())["sweeps"][0]
    alike = {"sweeps": [{k: v for k, v in before["sweeps"][0].items() if k != "repeated"}, {"sweep": "other"}]}
    (source / "provenance.json").write_text(json.dumps(alike))
    drawing._keep_repetitions(source / "provenance.json", results / "provenance.json")
    assert json.loads((source / "provenance.json").read_text())["sweeps"] == [before["sweeps"][0], {"sweep": "other"}]


@pytest.mark.parametrize("wheres", [["--on", "local"], ["--part", "1/2"], ["--collect"]])
def test_where_all_is_published_nothing_is_asked_of_a_cluster(monkeypatch, capsys, tmp_path, wheres):
    monkeypatch.setattr(figure, "_collect_and_draw", lambda target, plan, _: plan.reused.data)
    monkeypatch.setattr(figure, "_show", lambda *_: None)
    arguments = ["figure", "table3", "--scale", "paper", "--published", "--output", str(tmp_path), *wheres]
    monkeypatch.setattr(sys, "argv", arguments)
    assert figure.main() == 0
    told = capsys.readouterr().out
    assert "0 run(s) asked for, 0 different trainings, 0 to be done" in told
    assert "table3 at scale paper: done" in told


def test_where_nothing_is_published_all_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(growing, "results_of", lambda target, scale: tmp_path / "none")
    given = options(tmp_path, published=True)
    plan = growing.planned("figure1", given)
    plan.tell_taken("figure1", SCALE)
    assert capsys.readouterr().out == "figure1: nothing is taken: nothing is published of it at scale smoke\n"
    assert plan.new_runs == plan.runs


def test_rows_are_in_order_whatever_a_column_holds():
    """What was read from a file has text where another sweep's values are words."""
    common = {"target": "t", "scale": SCALE, "algorithm": "a", "readout": "r", "metric": "m", "step": 1, "value": 0.0}
    rows = [("b", "all", 0), ("a", "5", 1), ("a", 5, 0), ("a", 3, 0)]
    data = pd.DataFrame([{**common, "sweep": sweep, "of": value, "seed": seed} for sweep, value, seed in rows])
    sweeps: Any = [SimpleNamespace(name=name) for name in ("a", "b")]
    found = collecting._in_order(data, sweeps)
    assert [*zip(found.sweep, found.of, found.seed, strict=True)] == [
        ("a", 3, 0), ("a", 5, 0), ("a", "5", 1), ("b", "all", 0),
    ]  # fmt: skip


# -- faulty requests -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "0"], "--seeds is 0; it must be at least 1."),
        (["--published", "--force"], "--published and --force cannot be given together"),
        (["--published", "--draw"], "--seeds and --published say which runs are made; --draw and --publish make none."),
        (["--published", "--sweep", "linear_cfr"], "--sweep runs and draws here, beside what is published; leave out"),
    ],
)
def test_faulty_requests(monkeypatch, capsys, tmp_path, arguments, sentence):
    monkeypatch.setattr(sys, "argv", ["figure", "figure1", *arguments, "--output", str(tmp_path)])
    assert figure.main() == 2
    assert sentence in capsys.readouterr().err


def test_a_sweep_alone_measures_what_it_asks_for_itself(tmp_path):
    """Though another sweep measures the same trainings otherwise, for hours."""
    plan = growing.planned_sweeps("fhp_limit", ["sd_cfr_on_all_flops"], replace(options(tmp_path), scale="night"))
    assert len(plan.new_runs) == 3
    for run in plan.new_runs:
        (measured,) = run.config.evaluation.values()
        assert (measured.readouts, measured.at) == (["sd_cfr"], "last")
