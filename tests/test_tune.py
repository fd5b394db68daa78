"""Studies: what they are, what a trial is worth, and that one which is killed goes on where it was."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import textwrap
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pandas as pd
import pytest
from mlflow import MlflowClient
from optuna.trial import TrialState

from repro import tune
from repro.common.errors import ReproError
from repro.config.keys import training_key
from repro.evaluation.statistics import mean_ci
from repro.figures.targets import ROOT
from repro.tracking import record as records
from repro.tracking.folders import run_folder
from repro.tuning import page, request, search, trials
from repro.tuning.config import BudgetConfig, ObjectiveConfig, Parameter, parameters, read, runs
from repro.tuning.tracked import TRIAL_TAG
from tests.helpers.commands import SMALL, command, executed, planned

STUDY = """# @package _global_
study: tiny
overrides: [{overrides}]
space:
  algorithm:
    value:
      steps: {{kind: int, low: 5, high: 60, log: true}}
      learning_rate: {{kind: float, low: 1.0e-4, high: 1.0e-2, log: true}}
    when_no_positive: {{kind: categorical, choices: [argmax, uniform]}}
objective: {{readout: deep_cfr}}
budget: {{metric: nodes_touched, limit: 30000, points: 3}}
seeds: [0]
fresh_seeds: [5, 6]
trials: 3
pruner: {{startup_trials: 1}}
"""


@pytest.fixture(scope="module")
def conf(tmp_path_factory):
    """A folder of configurations with a study of trainings of a second or two."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "tune").mkdir()
    (folder / "tune" / "tiny.yaml").write_text(STUDY.format(overrides=", ".join(SMALL)))
    return str(folder)


def study(conf: str, output: Path, *overrides: str):
    return read(["tune=tiny", f"output_dir={output}", *overrides], conf)


def stored(output: Path) -> optuna.Study:
    return optuna.load_study(study_name="tiny", storage=f"sqlite:///{output}/tune/tiny/study.db")


# -- what a study is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["trails=3"], "trails is no key of this configuration (did you mean trials?)."),
        (
            ["algorithm.iterations=5"],
            "algorithm.iterations=5 is of the runs, not of the study: give what all trials have in overrides",
        ),
        (["seed=3"], "seed is no key of this configuration (did you mean seeds?)."),
        (["seeds=[1,1]"], "seeds is [1, 1]; it must be different whole numbers, none below 0."),
        (["seeds=[0,1]", "fresh_seeds=[1]"], "fresh_seeds has 1, which is one of seeds: nothing may be tuned on it."),
        (["trials=0"], "trials is 0; it must be at least 1."),
        (["objective.direction=up"], "objective.direction is 'up'; it must be one of minimize, maximize."),
        (
            ["space.algorithm.value.steps.low=70"],
            "space.algorithm.value.steps goes from 70 to 60; high must be greater.",
        ),
        (
            ["space.algorithm.value.steps.low=0", "space.algorithm.value.steps.log=true"],
            "space.algorithm.value.steps has log and goes from 0; low must be above 0.",
        ),
        (
            ["space.algorithm.value.steps.log=true", "+space.algorithm.value.steps.step=2"],
            "space.algorithm.value.steps has log and a step of 2; it can have one of them.",
        ),
        (
            ["space.algorithm.value.steps.kind=integer"],
            "is of the kind 'integer'; it must be float, int or categorical",
        ),
        (["+space.algorithm.value.steps.hihg=70"], "has the key hihg (did you mean high?)"),
        (["+space.seed=3"], "space.seed is 3; it must be a mapping with kind, and low and high or choices."),
        (["seeds=x"], "seeds"),
        (["space.algorithm.value.steps.low=x"], "goes from 'x' to 60 by None; these must be numbers"),
        (
            ["space.algorithm.when_no_positive.choices=argmax"],
            "when_no_positive needs choices, a list, and nothing else",
        ),
        (["+space.algorithm.value.steps.step=-2"], "has a step of -2; it must be above 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(conf, tmp_path, overrides, sentence, capsys):
    assert tune.main(["tiny", *overrides, f"output_dir={tmp_path / 'never'}", "--config-dir", conf]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["objective.readout=sd_cfrr", "tiny"], "the read-outs of sd_cfr_and_deep_cfr are sd_cfr, deep_cfr (did you m"),
        (
            ["tiny", "+space.algorithm.foo={kind: int, low: 1, high: 2}"],
            "algorithm.foo is no key of this configuration",
        ),
        (["tiny", "+space.seed={kind: int, low: 1, high: 2}"], "space has seed, which is no hyperparameter; seeds and"),
        (["tinny"], "Could not find 'tune/tinny'; there are "),
        (
            [],
            "NAME is missing; it must be one of the studies in conf/tune, or in tune/ of --config-dir:\n  leduc_deep",
        ),
        (
            ["tiny", "tiny"],
            "NAME is 'tiny tiny'; it must be one of the studies in conf/tune, or in tune/ of --config-dir:\n  ",
        ),
    ],
)
def test_and_so_is_what_the_runs_cannot_be(conf, tmp_path, words, sentence, capsys):
    assert tune.main([*words, f"output_dir={tmp_path / 'never'}", "--config-dir", conf]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "never").exists()


def test_a_study_whose_file_lacks_its_first_line_is_told_so(tmp_path, capsys):
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "mine.yaml").write_text("study: mine\noverrides: [game=kuhn]\n")
    assert tune.main(["mine", "--config-dir", str(tmp_path)]) == 2
    assert "the first line of a study's file must be # @package _global_" in capsys.readouterr().err


def test_without_a_name_the_studies_are_listed_a_line_each(conf, capsys):
    assert tune.main(["--config-dir", conf]) == 2
    first, *listed = capsys.readouterr().err.splitlines()
    assert first == "error: NAME is missing; it must be one of the studies in conf/tune, or in tune/ of --config-dir:"
    assert listed[0].startswith("  leduc_deep_cfr: Deep CFR on Leduc after a million nodes")
    assert listed[-1] == "  tiny", "the user's own, of which its file says nothing"


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_trial_that_cannot_be_is_failed_and_the_study_goes_on(conf, tmp_path, capsys):
    words = ["tiny", "space.algorithm.when_no_positive.choices=[argmax,typo,uniform]", "fresh_seeds=[]"]
    words += [f"output_dir={tmp_path}", "--config-dir", conf]
    assert tune.main([*words, "trials=1"]) == 0
    drawn = {**stored(tmp_path).trials[0].params, "algorithm.when_no_positive": "typo"}
    stored(tmp_path).enqueue_trial(drawn)
    assert tune.main([*words, "trials=3"]) == 1
    states = [trial.state.name for trial in stored(tmp_path).trials]
    assert states[:2] == ["COMPLETE", "FAIL"]
    assert states[2] in ("COMPLETE", "PRUNED")
    assert "trial 1: algorithm.when_no_positive is 'typo'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_study_whose_first_trial_cannot_be_done_is_begun_again_with_another_definition(conf, tmp_path, capsys):
    words = ["tiny", "trials=2", "jobs=2", "fresh_seeds=[]", f"output_dir={tmp_path}", "--config-dir", conf]
    too_little = [*words, "budget.limit=10"]
    for _ in range(2):
        assert tune.main(too_little) == 2
        told = capsys.readouterr().err
        assert told.startswith("error: the first trial cannot be done: budget.limit is 10 nodes_touched, which the run")
        assert "(its evaluations are at " in told
    assert tune.main([*words, "--dry-run"]) == 0
    assert "study tiny: 0 of 2 trial(s) ended" in capsys.readouterr().out
    assert tune.main(words) == 0
    assert "COMPLETE" in [trial.state.name for trial in stored(tmp_path).trials]
    # What it was worth is not given up.
    assert tune.main(too_little) == 2
    told = capsys.readouterr().err
    assert "with budget {" in told
    assert "'limit': 10" in told
    assert "; give this one another name" in told


@pytest.mark.exhaustive
def test_a_study_for_a_metric_that_is_not_measured_ends_with_its_first_trial(conf, tmp_path, capsys):
    words = ["tiny", "jobs=1", "fresh_seeds=[]", f"output_dir={tmp_path}", "--config-dir", conf]
    assert tune.main([*words, "objective.metric=exploitabilty"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: the first trial cannot be done: the metric exploitabilty was not measured of ")
    assert len(stored(tmp_path).trials) == 1
    assert tune.main([*words, "trials=1"]) == 0, "the right name is another definition"


def test_a_space_has_the_form_of_the_configuration():
    space = {
        "network": {"kind": "categorical", "choices": ["fc", None, True]},
        "algorithm": {"value": {"steps": {"kind": "int", "low": 1, "high": 8}}},
    }
    found = {parameter.key: parameter for parameter in parameters(space)}
    assert list(found) == ["network", "algorithm.value.steps"]
    texts = [found["network"].override(value) for value in ("fc", None, True)]
    assert texts == ["network='fc'", "network=null", "network=true"]
    assert Parameter("a.b", "float", 0.1, 1.0).override(0.25) == "a.b=0.25"


def test_a_trials_runs_are_those_of_a_command_line(conf, tmp_path):
    found = runs(study(conf, tmp_path), ["algorithm.value.steps=7"], [3, 4], conf)
    wanted = [planned(*SMALL, "algorithm.value.steps=7", f"seed={seed}").key for seed in (3, 4)]
    assert [training_key(config) for config in found] == wanted


def test_pictures_have_short_names_that_tell_hyperparameters_apart():
    keys = ["algorithm.value.steps", "algorithm.average.steps", "network.width"]
    assert [page._shortest(key, keys) for key in keys] == ["value.steps", "average.steps", "width"]


def test_lengths_can_follow_from_what_an_iteration_does():
    config = planned(
        *SMALL, "algorithm.iterations='${quotient:1000,${algorithm.traversals}}'", "algorithm.traversals=30"
    )
    assert config.config.algorithm.iterations == 34


# -- what a trial is worth -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished training."""
    output = tmp_path_factory.mktemp("finished")
    assert executed(*SMALL, f"output_dir={output}") == records.FINISHED
    return planned(*SMALL, f"output_dir={output}").config


@pytest.mark.exhaustive
def test_between_evaluations_values_are_interpolated(finished):
    objective, at = ObjectiveConfig(readout="sd_cfr"), BudgetConfig("iteration", 20.0, 4)
    measured = trials.curve(finished, objective, at)
    between = trials.curve(finished, objective, replace(at, limit=22.0, points=1))
    assert sorted(measured) == [0, 1, 2, 3], "evaluated after 5, 10, 15, 20 and more"
    later = trials.value_of(finished, objective, replace(at, limit=25.0))
    assert between[0] == pytest.approx(measured[3] + (later - measured[3]) * 2 / 5)


def test_a_budget_that_is_not_reached_and_a_metric_that_is_not_measured_are_told(finished):
    objective = ObjectiveConfig(readout="sd_cfr")
    with pytest.raises(ReproError, match="give it more iterations"):
        trials.value_of(finished, objective, BudgetConfig("iteration", 31.0))
    with pytest.raises(ReproError, match="the metric nodes was not measured of sd_cfr after iteration 5"):
        trials.value_of(finished, objective, BudgetConfig("nodes", 31.0))


def test_a_fresh_seed_that_the_budget_is_not_spent_on_is_told_and_costs_no_page(finished):
    def found(limit: float) -> tuple[int, str]:
        budget = BudgetConfig("iteration", limit, 1)
        study: Any = SimpleNamespace(config=SimpleNamespace(objective=ObjectiveConfig(readout="sd_cfr"), budget=budget))
        nothing: Any = None
        return len(page.fresh_table(study, {"best": [finished]})), search.Tuning(study, *3 * [nothing])._lacks(finished)

    assert found(30.0) == (1, "")
    rows, why = found(31.0)
    assert rows == 0
    assert "give it more iterations" in why


class _Killed:
    """In place of processes: one tells a value, and is killed before it is answered."""

    has_room = False

    def __init__(self) -> None:
        self._left = [("report", 0, 1.0), ("stopped", "its process ended with exit status -9")]

    @property
    def are_busy(self) -> bool:
        return bool(self._left)

    def messages(self):
        yield SimpleNamespace(number=0, labels={"tune.tiny": "trial-0"}), self, self._left.pop(0)

    def send(self, answer: object) -> None:
        raise BrokenPipeError


def test_a_process_that_is_killed_before_it_is_answered_ends_its_trial_alone(monkeypatch):
    monkeypatch.setattr(search.Tuning, "_is_pruned", lambda *_: False)
    workers: Any = _Killed()
    study: Any = SimpleNamespace(config=None)
    tracked: Any = SimpleNamespace(catch_up=lambda: None)
    tuning = search.Tuning(study, workers, tracked, None)
    tuning.search()
    assert tuning.left == ["trial-0: its process ended with exit status -9"]


# -- studies ---------------------------------------------------------------------------------------------------------


def wait_for(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.2)


def has_ended_trials(database: Path) -> bool:
    """Whether a study that another process is doing has any; asked of the file alone, which costs little."""
    if not database.exists():
        return False
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        try:
            (count,) = connection.execute(
                "SELECT COUNT(*) FROM trials WHERE state IN ('COMPLETE', 'PRUNED')"
            ).fetchone()
        except sqlite3.OperationalError:  # Its tables are being made.
            return False
    return bool(count)


@pytest.mark.slow
@pytest.mark.usefixtures("_with_database")
@pytest.mark.exhaustive
def test_a_killed_study_goes_on_and_repeats_no_finished_trial(conf, tmp_path):
    words = command("tiny", f"output_dir={tmp_path}", "jobs=2", "--config-dir", conf, module="tune")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: process.poll() is not None or has_ended_trials(tmp_path / "tune" / "tiny" / "study.db"))
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "it was killed in the middle"
    before = {t.number: t for t in stored(tmp_path).get_trials() if t.state.is_finished()}
    trained = {key: _written(tmp_path, key) for t in before.values() for key in t.user_attrs["keys"]}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    after = {t.number: t for t in stored(tmp_path).get_trials()}
    ended = [t for t in after.values() if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    assert len(ended) == 3
    # Killed between making a trial and drawing all of its values, it leaves one that nothing came of.
    lost = [t for t in after.values() if t not in ended]
    assert all(t.state is TrialState.FAIL and len(t.params) < len(ended[0].params) for t in lost)
    assert len(lost) <= 1
    for number, trial in before.items():
        assert after[number] == trial, "what had ended is as it was"
    assert {key: _written(tmp_path, key) for key in trained} == trained, "and its trainings were not touched"
    _check_left(tmp_path)


@pytest.mark.exhaustive
def test_a_study_says_beforehand_what_is_left_and_shows_its_trials_in_mlflow(conf, tmp_path, capsys):
    words = ["tiny", f"output_dir={tmp_path}", "--config-dir", conf, "fresh_seeds=[]", "trials=2", "pruner.kind=none"]
    assert tune.main([*words, "--dry-run"]) == 0
    assert "0 of 2 trial(s) ended, 0 begun" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert tune.main(words) == 0
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    _check_tracked_trials(client, stored(tmp_path))
    (experiment,) = client.search_experiments(filter_string="name = 'tune tiny'")
    own = client.create_run(experiment.experiment_id).info.run_id
    for run in client.search_runs([experiment.experiment_id], f"tags.`{TRIAL_TAG}` != ''"):
        client.delete_tag(run.info.run_id, TRIAL_TAG)  # As a kill leaves what it half made.
    assert tune.main(words) == 0
    assert client.get_run(own).info.lifecycle_stage == "active", "somebody's own"
    client.delete_run(own)
    _check_tracked_trials(client, stored(tmp_path))
    elsewhere = [f"output_dir={tmp_path / 'other'}", f"tracking_uri=sqlite:///{tmp_path / 'mlflow.db'}"]
    assert tune.main([*words[:1], *elsewhere, *words[2:]]) == 0
    of_both = client.search_runs([experiment.experiment_id])
    assert sorted(run.data.tags[TRIAL_TAG] for run in of_both) == ["0", "0", "1", "1"], "a study of its name is another"
    client.delete_experiment(experiment.experiment_id)
    capsys.readouterr()
    assert tune.main([word.replace("trials=2", "trials=3") for word in words]) == 0
    assert "warning: the MLflow UI lacks trials of tiny: the MLflow experiment" in capsys.readouterr().err
    capsys.readouterr()
    assert tune.main([*words, "--dry-run"]) == 0
    assert "3 of 2 trial(s) ended, 0 begun\nleft: 0 trial(s)" in capsys.readouterr().out


def _written(output: Path, key: str) -> float:
    return (run_folder(output, key) / "run.json").stat().st_mtime


def _check_left(output: Path) -> None:
    """The page, and what MLflow shows of a study's trainings."""
    folder = output / "tune" / "tiny"
    text = (folder / "study.md").read_text()
    assert "3 trials (" in text
    assert "fresh seeds" in text or "nothing was gained" in text
    html = (folder / "index.html").read_text()
    assert "<h2>Which hyperparameters matter</h2>" in html
    assert 'src="http' not in html, "the page needs no network"
    client = MlflowClient(f"sqlite:///{output / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'kuhn'")

    def labelled(name: str) -> list[Any]:
        return list(client.search_runs([experiment.experiment_id], f"tags.`target.tune.tiny` = '{name}'"))

    assert labelled("trial-0")
    assert labelled("default")
    best = stored(output).best_trial
    assert bool(labelled("best")) == (best.number != 0), "the best may be the default, which is trained once"
    _check_tracked_trials(client, stored(output))


def _check_tracked_trials(client: MlflowClient, of: optuna.Study) -> None:
    """A run per trial, with its values and what it was worth."""
    (experiment,) = client.search_experiments(filter_string="name = 'tune tiny'")
    assert "Trials of the study `tiny`" in experiment.tags["mlflow.note.content"]
    tracked = {int(r.data.tags[TRIAL_TAG]): r for r in client.search_runs([experiment.experiment_id])}
    trials_of = {t.number: t for t in of.get_trials() if t.state in (TrialState.COMPLETE, TrialState.PRUNED)}
    assert tracked.keys() == trials_of.keys()
    for number, trial in trials_of.items():
        run, is_pruned = tracked[number], trial.state is TrialState.PRUNED
        assert run.info.status == ("KILLED" if is_pruned else "FINISHED")
        assert run.data.params == {key: str(value) for key, value in trial.params.items()}
        assert run.data.metrics.get("exploitability") == (None if is_pruned else trial.value)
        at = client.get_metric_history(run.info.run_id, "exploitability/at_points")
        assert {m.step: m.value for m in at} == trial.intermediate_values


# -- the worked example ----------------------------------------------------------------------------------------------


def test_what_the_documentation_says_was_gained_is_what_the_example_left():
    folder = ROOT / "docs" / "tuned" / "leduc_deep_cfr"
    fresh = pd.read_csv(folder / "fresh.csv")
    best, default = (mean_ci(fresh[fresh.what == what]["value"]) for what in ("best", "default"))
    assert best.n == default.n == 10
    said = f"the best has {best} mA/g on 10 fresh seeds, where the default has {default}"
    assert said in (ROOT / "docs" / "tuning.md").read_text()
    assert f"{best} against {default}" in (folder / "study.md").read_text()


def test_the_documentations_study_of_ones_own_can_be_asked_for(tmp_path: Path, capsys):
    text = (ROOT / "docs" / "tuning.md").read_text()
    (block,) = re.findall(r"(?:^ {4}.*\n)*^ {4}study: kuhn_rate\n(?:^ {4}.*\n)+", text, re.MULTILINE)
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "kuhn_rate.yaml").write_text(textwrap.dedent(block))
    assert request.run(["kuhn_rate", f"output_dir={tmp_path / 'out'}"], str(tmp_path), True) == 0
    assert "8 trial(s) of 1 training(s) each" in capsys.readouterr().out
