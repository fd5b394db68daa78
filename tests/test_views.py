"""What commands leave in MLflow for its UI: curves, saved views, notes, and figures with their means."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from mlflow import MlflowClient

from repro import ui
from repro.common.errors import ReproError
from repro.evaluation.statistics import mean_ci
from repro.figures import frame
from repro.figures.targets import Options, plan_target
from repro.jobs import launching
from repro.jobs.launching import Command
from repro.plans.planned import stages
from repro.plans.planning import plan
from repro.shown import commands as shown
from repro.shown import figures, means, views
from repro.stored.trained import folder_of
from repro.tracking import record as records
from repro.tracking.store import default_uri, open_store
from tests.helpers.commands import executed, planned, tracked

KUHN = (
    "game=kuhn",
    "algorithm=cfr,cfr_plus",
    "algorithm.iterations=4,8",
    "algorithm.snapshot_every=2",
    "seed=range(2)",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory, request) -> Path:
    """The output folder of a sweep over algorithms, iterations and seeds, as `python -m repro.run -m` leaves it."""
    output = tmp_path_factory.mktemp("swept")
    (output / "mlflow.db").write_bytes(request.getfixturevalue("_empty_database").read_bytes())
    runs = plan([*KUHN, f"output_dir={output}"], multirun=True).runs
    command = Command(output, None, None)
    assert command.do([runs]) == 0
    command.show(runs)
    return output


def state_of(experiment, key: str) -> dict:
    content = json.loads(experiment.tags[views.VIEW_TAG + key])
    assert content.keys() == {"name", "createdAt", "updatedAt", "state"}, "what MLflow's page takes for a saved view"
    return json.loads(content["state"])


@pytest.mark.exhaustive
def test_names_begin_with_what_was_swept_and_tell_all_runs_apart(swept):
    names = sorted(run.info.run_name for run in tracked(swept)[1])
    assert len(set(names)) == len(names) == 16
    assert names[:2] == ["4 cfr s0 iterations=4 snapshot_every=2", "4 cfr s1 iterations=4 snapshot_every=2"]
    assert "8 training cfr_plus s1 iterations=8 snapshot_every=2" in names


def test_runs_of_one_curve_differ_by_their_seed_alone_and_none_is_nested(swept):
    runs = tracked(swept)[1]
    curves: dict[str, list[str]] = {}
    for run in runs:
        curves.setdefault(run.data.tags["repro.curve"], []).append(run.data.params["seed"])
        assert "mlflow.parentRunId" not in run.data.tags
    assert len(curves) == 8
    assert all(sorted(seeds) == ["0", "1"] for seeds in curves.values())
    assert len({run.data.tags["repro.invocation"] for run in runs}) == 1


def test_a_command_leaves_a_view_of_its_read_outs(swept):
    client, runs = tracked(swept)
    (experiment,) = [e for e in client.search_experiments() if e.name == "kuhn"]
    (key,) = [tag.removeprefix(views.VIEW_TAG) for tag in experiment.tags if tag.startswith(views.VIEW_TAG)]
    state = state_of(experiment, key)
    found = client.search_runs([experiment.experiment_id], state["searchFilter"])
    assert {r.info.run_id for r in found} == {r.info.run_id for r in runs if r.data.params["readout"] != "training"}
    charted = {(chart["metricKey"], chart["selectedXAxisMetricKey"]) for chart in state["compareRunCharts"]}
    assert charted == {("exploitability", x) for x in ("", "nodes_touched", "wall_seconds")}
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "repro.curve"}]
    assert experiment.tags["mlflow.note.content"].startswith("Runs in the game **kuhn**")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_note_that_somebody_wrote_stays(tmp_path):
    client = open_store(default_uri(tmp_path))
    experiment = client.get_experiment(client.create_experiment("kuhn"))
    views.describe(client, experiment, "ours")
    views.describe(client, client.get_experiment_by_name("kuhn"), "ours, later")
    assert client.get_experiment_by_name("kuhn").tags["mlflow.note.content"] == "ours, later"
    client.set_experiment_tag(experiment.experiment_id, "mlflow.note.content", "mine")
    views.describe(client, client.get_experiment_by_name("kuhn"), "ours, again")
    assert client.get_experiment_by_name("kuhn").tags["mlflow.note.content"] == "mine"


def test_of_commands_only_the_newest_views_are_kept(tmp_path, monkeypatch):
    client = open_store(default_uri(tmp_path))
    client.create_experiment("kuhn")
    for number in range(25):
        monkeypatch.setattr(time, "time", lambda now=number: float(now))
        view = views.of_command(f"{number:012}", ["exploitability"])
        views.save(client, client.get_experiment_by_name("kuhn"), view)
    kept = client.get_experiment_by_name("kuhn").tags
    assert sorted(kept) == [f"{views.VIEW_TAG}command-{number:012}" for number in range(5, 25)]


def test_a_target_of_hundreds_of_curves_has_a_view(tmp_path):
    client = open_store(default_uri(tmp_path))
    client.create_experiment("river_subgames")
    curves = [f"{number} a name of a curve that is as long as some are {'x' * 60}" for number in range(400)]
    view = views.of_target("devn_settings", "laptop", ["best"], curves)
    views.save(client, client.get_experiment_by_name("river_subgames"), view)
    (kept,) = client.get_experiment_by_name("river_subgames").tags.values()
    folded = json.loads(json.loads(kept)["state"])["groupsExpanded"]
    assert list(folded) == [f"tag.{view.group_by}.{curve}" for curve in curves[: len(folded)]]
    assert 50 < len(folded) < 400


@pytest.mark.exhaustive
def test_a_run_that_was_killed_goes_on_in_the_same_runs_under_the_newest_commands_name(tmp_path, monkeypatch):
    """Not below something that failed."""
    overrides = ("game=kuhn", "algorithm=cfr", "algorithm.iterations=4", f"output_dir={tmp_path}")
    run = planned(*overrides)
    monkeypatch.setenv(records.INVOCATION, "first")
    assert executed(*overrides) == records.FINISHED
    before = {r.info.run_id for r in tracked(tmp_path)[1]}
    (again,) = plan([*overrides, "seed=0"], multirun=True).runs
    client = MlflowClient(default_uri(tmp_path))
    for run_id in before:
        client.set_terminated(run_id, "FAILED")
    record = records.read(folder_of(run.config))
    record.exported = False
    records.write(folder_of(run.config), record)
    command = Command(tmp_path, None, None)
    assert command.do([[again]]) == 0
    runs = tracked(tmp_path)[1]
    assert {r.info.run_id for r in runs} == before
    assert {r.info.status for r in runs} == {"FINISHED"}
    assert {r.data.tags["repro.invocation"] for r in runs} == {command.invocation}
    assert sorted(r.info.run_name for r in runs) == ["cfr s0 iterations=4", "training cfr s0 iterations=4"]


# -- figures ---------------------------------------------------------------------------------------------------------


def data_of(seeds: int) -> pd.DataFrame:
    """A figure's data: two values of a swept key, three iterations of which the last lacks a seed."""
    rows = [
        ("figure9", "smoke", "", "d2cfr", readout, seed, n, metric, step, 100.0 * n / step + seed)
        for readout in ("d2cfr", "training")
        for seed in range(seeds)
        for n in (1.0, 8.0)
        for metric in ("exploitability", "nodes_touched", "other")
        for step in (1, 2, 3)
        if (seed, step) != (1, 3)
    ]
    return pd.DataFrame(rows, columns=[*frame.LEADING, "simulations", *frame.MEASURED])


def test_means_are_over_seeds_with_their_interval_at_steps_that_all_have():
    first, second = means.of_figure(data_of(3), ["exploitability"])
    assert (first.name, second.name) == ("1 d2cfr mean simulations=1", "8 d2cfr mean simulations=8")
    assert first.curves.keys() == {"exploitability", "exploitability/low", "exploitability/high", "nodes_touched"}
    expected = mean_ci([400.0, 401.0, 402.0])
    assert {name: curve.to_dict()[2] for name, curve in second.curves.items() if "/" in name} == {
        "exploitability/low": pytest.approx(expected.low), "exploitability/high": pytest.approx(expected.high),
    }  # fmt: skip
    assert second.curves["exploitability"].to_dict() == {1: 801.0, 2: 401.0}
    assert second.params["seeds"] == 3
    (alone, _) = means.of_figure(data_of(1), ["exploitability"])
    assert alone.curves.keys() == {"exploitability", "nodes_touched"}
    assert not list(means.of_figure(data_of(1), ["best"]))


def test_means_have_the_costs_of_their_training_where_read_outs_have_none():
    data = data_of(3)
    of_training = data[(data.readout != "d2cfr") | (data.metric == "exploitability")]
    for found, expected in zip(*(means.of_figure(d, ["exploitability"]) for d in (of_training, data)), strict=True):
        assert found.curves["nodes_touched"].to_dict() == expected.curves["nodes_touched"].to_dict()


def test_of_means_the_bounds_are_charted_with_them_and_left_out_by_themselves():
    charts = views.of_means("figure9", "smoke", ["exploitability"]).state()["compareRunCharts"]
    bounds = ["exploitability/low", "exploitability/high"]
    assert [c["selectedMetricKeys"] for c in charts if not c["deleted"]] == [["exploitability", *bounds]] * 3
    assert [c["metricKey"] for c in charts if c["deleted"]] == bounds


def test_a_figure_is_logged_once_and_again_when_its_files_change(tmp_path):
    client = open_store(default_uri(tmp_path))
    experiment = client.get_experiment(client.create_experiment("leduc", artifact_location=(tmp_path / "a").as_uri()))
    file, curves = tmp_path / "data.csv", list(means.of_figure(data_of(2), ["exploitability"]))
    file.write_text("one")

    def log() -> str:
        return figures.log(client, experiment, "figure9 smoke", {"target": "figure9"}, [file], curves)

    first = log()
    assert log() == first
    assert [a.path for a in client.list_artifacts(first)] == ["data.csv"]
    file.write_text("another")
    second = log()
    assert second != first
    (picture,) = views.pictures(client, experiment).items()
    assert picture[0] == "figure9 smoke"
    assert f"/runs/{second}/artifacts/figure9.png?" in picture[1]
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.info.run_name for run in runs) == [
        "1 d2cfr mean simulations=1", "8 d2cfr mean simulations=8", "figure9 smoke figure",
    ]  # fmt: skip
    (view,) = (views.of_means("figure9", "smoke", ["exploitability"]),)
    found = client.search_runs([experiment.experiment_id], view.state()["searchFilter"])
    assert {run.info.run_name for run in found} == {mean.name for mean in curves}
    assert {run.info.status for run in runs} == {"FINISHED"}
    history = client.get_metric_history(found[0].info.run_id, "exploitability/low")
    assert [point.step for point in history] == [1, 2]


# -- means of a command ----------------------------------------------------------------------------------------------

MCCFR = (
    "game=kuhn", "algorithm=es_mccfr", "algorithm.iterations=20,40", "algorithm.snapshot_every=10", "seed=range(3)",
)  # fmt: skip
MEANS = [
    f"{iterations} {who} mean iterations={iterations} snapshot_every=10"
    for iterations in (20, 40)
    for who in ("es_mccfr", "training es_mccfr")
]


def means_in(output: Path) -> dict[str, Any]:
    """By name the runs of means; a name that there is twice fails."""
    found = [run for run in tracked(output)[1] if "repro.mean" in run.data.tags]
    by_name = {run.info.run_name: run for run in found}
    assert len(by_name) == len(found)
    return by_name


def sweep_here(output: Path, *overrides: str) -> None:
    """A command over seeds, as `python -m repro.run -m` does it."""
    runs = plan([*MCCFR, *overrides, f"output_dir={output}"], multirun=True).runs
    command = Command(output, None, None)
    assert command.do(stages(runs)) == 0
    command.show(runs)
    command.show_means(runs)


@pytest.fixture
def averaged(tmp_path) -> Path:
    """The output folder of a sweep over iterations and seeds."""
    sweep_here(tmp_path)
    return tmp_path


@pytest.mark.exhaustive
def test_a_sweep_over_seeds_leaves_their_means_with_intervals(averaged):
    found, (client, runs) = means_in(averaged), tracked(averaged)
    assert sorted(found) == MEANS
    mean = found[MEANS[2]]
    assert mean.info.status == "FINISHED"
    assert {"algorithm": "es_mccfr", "game": "kuhn", "algorithm.iterations": "40", "seeds": "3"}.items() <= dict(
        mean.data.params
    ).items()
    assert "seed" not in mean.data.params
    assert {"nodes_touched", "wall_seconds"} <= mean.data.metrics.keys()
    assert not {"nodes_touched/low", "wall_seconds/low"} & mean.data.metrics.keys()
    of_seeds = [
        client.get_metric_history(run.info.run_id, "exploitability")
        for run in runs
        if run.data.params["readout"] == "es_mccfr" and run.data.params["algorithm.iterations"] == "40"
        if run is not mean and "seed" in run.data.params
    ]
    assert len(of_seeds) == 3
    bounds = [client.get_metric_history(mean.info.run_id, f"exploitability{end}") for end in ("", "/low", "/high")]
    for point, low, high in zip(*bounds, strict=True):
        expected = mean_ci([next(p.value for p in history if p.step == point.step) for history in of_seeds])
        assert (point.value, low.value, high.value) == pytest.approx((expected.mean, expected.low, expected.high))
        assert low.value < point.value < high.value
    assert [point.step for point in bounds[0]] == [10, 20, 30, 40]


@pytest.mark.exhaustive
def test_a_repeated_sweep_makes_no_mean_twice_and_what_a_kill_left_half_made_again(averaged):
    before, client = means_in(averaged), tracked(averaged)[0]
    half = before[MEANS[0]].info.run_id
    client.delete_tag(half, "repro.content")
    sweep_here(averaged)
    after = means_in(averaged)
    assert sorted(after) == MEANS
    assert {name for name in MEANS if after[name].info.run_id != before[name].info.run_id} == {MEANS[0]}
    assert after[MEANS[0]].data.metrics == before[MEANS[0]].data.metrics
    (invocation,) = {run.data.tags["repro.invocation"] for run in after.values()}
    (experiment,) = [e for e in client.search_experiments() if e.name == "kuhn"]
    state = state_of(experiment, f"command-{invocation[:12]}-means")
    found = client.search_runs([experiment.experiment_id], state["searchFilter"])
    assert sorted(run.info.run_name for run in found) == [MEANS[0], MEANS[2]]
    assert state["compareRunCharts"][0]["selectedMetricKeys"] == [
        "exploitability", "exploitability/low", "exploitability/high",
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_means_follow_runs_that_were_done_anew_and_other_seeds_have_their_own(averaged):
    before = means_in(averaged)
    sweep_here(averaged, "seed=range(2)")
    both = [run for run in tracked(averaged)[1] if "repro.mean" in run.data.tags]
    assert len(both) == 2 * len(MEANS)
    assert {run.info.run_id for run in before.values()} < {run.info.run_id for run in both}
    # Another clock at the least.
    sweep_here(averaged, "force=true")
    of_three = [r for r in tracked(averaged)[1] if r.data.params.get("seeds") == "3"]
    assert sorted(run.info.run_name for run in of_three) == MEANS
    assert not {run.info.run_id for run in of_three} & {run.info.run_id for run in before.values()}


@pytest.mark.exhaustive
def test_there_are_no_means_of_one_seed_nor_of_runs_that_are_not_finished(tmp_path, monkeypatch):
    overrides = (*MCCFR, f"output_dir={tmp_path}")
    every = plan(overrides, multirun=True).runs
    assert [len(group.configs) for group in means.groups(every)] == [3, 3]
    command = Command(tmp_path, None, None)
    assert command.do([every[:4]]) == 0
    assert [means.is_complete(group) for group in means.groups(every)] == [True, False]
    command.show_means(every)
    assert sorted(means_in(tmp_path)) == MEANS[:2]
    one_seed = plan([*overrides, "seed=0"], multirun=True).runs
    assert means.groups(one_seed) == []
    # A run alone is not slowed down.
    monkeypatch.setattr(launching, "show_means", lambda *_: pytest.fail("there is nothing to average"))
    command.show_means(one_seed)
    command.show_means(every[:1])


def test_seeds_that_are_trained_together_and_evaluations_of_one_training_are_one_group():
    small = ("game=kuhn", "algorithm=cfr", "algorithm.iterations=4")
    runs = plan([*small, "seed=range(2)", "evaluation=exploitability,costs"], multirun=True).runs
    assert len(runs) == 4
    (group,) = means.groups(runs)
    assert [sorted(config.evaluation) for config in group.configs] == [["costs", "exploitability"]] * 2
    (alone,) = means.groups([runs[0], runs[2]])
    assert alone.label != group.label, "other evaluations make other means"


# -- make ui ---------------------------------------------------------------------------------------------------------


def test_a_store_of_an_earlier_version_gets_names_and_a_view_when_it_is_asked_for(tmp_path):
    """There, read-outs were below their training, and names did not say what was swept."""
    overrides = ("game=kuhn", "algorithm=kuhn_post", "algorithm.iterations=20", f"output_dir={tmp_path}")
    options = Options("smoke", tmp_path, 1, "cpu", False)
    run = planned(*overrides)
    client = open_store(default_uri(tmp_path))
    with pytest.raises(ReproError, match="MLflow has no runs of kuhn at scale smoke; make it first"):
        shown.links_to(client, "kuhn", options, 5000)
    experiment = client.create_experiment("kuhn")
    (sweeps, runs) = plan_target("kuhn", options)
    config = runs[0].config
    parent = None
    for name in ("training", *config.algorithm.readouts):
        tags = {"repro.key": runs[0].key, "repro.readout": name, "target.kuhn": "smoke"}
        tags |= {"mlflow.parentRunId": parent} if parent else {}
        made = client.create_run(experiment, run_name="kuhn_post kuhn seed=0", tags=tags)
        parent = parent or made.info.run_id
    (link,) = shown.links_to(client, "kuhn", options, 5000)
    assert link.startswith(f"http://127.0.0.1:5000/#/experiments/{experiment}/runs?viewStateShareKey=kuhn-smoke&")
    assert shown.links_to(client, "kuhn", options, 5000) == [link]
    found = client.search_runs([experiment])
    assert len({r.info.run_name for r in found}) == len(found) == 1 + len(config.algorithm.readouts)
    assert all("curve.kuhn" in r.data.tags and "mlflow.parentRunId" not in r.data.tags for r in found)
    assert sweeps
    assert run


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["figure1", "--scale", "laptpo"], "--scale is 'laptpo'; it must be one of smoke, laptop, gpu, night, paper"),
        (["figur1"], "target 'figur1' is unknown (did you mean figure1?)"),
        (["--port", "0"], "--port is 0; it must be from 1 to 65535"),
    ],
)
def test_what_make_ui_cannot_do_is_told_in_one_sentence(words, sentence, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["ui", *words])
    assert ui.main() == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.exhaustive
def test_the_ui_of_a_folder_that_nothing_was_run_in_is_refused_and_makes_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ui, "_until_stopped", lambda *_: 0)
    for folder in (tmp_path / "none", tmp_path):
        monkeypatch.setattr("sys.argv", ["ui", "--output", str(folder), "--port", "5998"])
        assert ui.main() == 2
        assert capsys.readouterr().err == (
            f"error: --output (OUTPUT of make ui) is {str(folder)!r}, where nothing was ever run; it must be the "
            "output folder of a run.\n"
        )
    assert not list(tmp_path.iterdir())
    client = open_store(default_uri(tmp_path))
    client.create_experiment("kuhn")
    views.save(client, client.get_experiment_by_name("kuhn"), views.of_command("0123456789ab", ["exploitability"]))
    assert ui.main() == 0
    told = capsys.readouterr().out
    assert "kuhn, the newest: http://127.0.0.1:5998/#/experiments/1/runs?viewStateShareKey=command-0123456789ab" in told
    monkeypatch.setattr("sys.argv", ["ui", "kuhm", "--output", str(tmp_path), "--port", "5998"])
    assert ui.main() == 2
    assert capsys.readouterr().err.startswith("error: target 'kuhm' is unknown")


def test_the_command_that_is_printed_serves_the_folder_of_the_runs(tmp_path):
    assert shown.make_ui_command(Path("outputs")) == "make ui"
    assert shown.make_ui_command(tmp_path, "kuhn", "smoke") == f"make ui TARGET=kuhn SCALE=smoke OUTPUT={tmp_path}"
