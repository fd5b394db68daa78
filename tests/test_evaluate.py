"""On a finished run, read-outs, opponents and boards are added, and nothing is trained."""

from __future__ import annotations

import json
import re
import shutil
import time

import pytest
import torch
from mlflow import MlflowClient

from repro import evaluate
from repro.common.errors import ReproError
from repro.config.keys import register_schemas
from repro.config.schema import EVALUATIONS
from repro.evaluation.measures import Exploitability
from repro.figures.collecting import provenance_of
from repro.figures.targets import PlannedSweep
from repro.games import load
from repro.plans.planning import plan
from repro.running import training
from repro.running.executing import execute
from repro.stored.results import evaluated_with, evaluation_rows, evaluation_seconds
from repro.tracking import provenance
from repro.tracking import record as records
from repro.tracking.folders import run_folder
from tests.helpers.commands import SMALL, call_here, executed, key_of, planned, results, tracked

HOLDEM = (
    "game=fhp", "game.ranks=4", "game.suits=2", "algorithm=sd_cfr_and_deep_cfr", "network=deep_cfr", "network.width=8",
    "network.card_width=8", "algorithm.iterations=2", "algorithm.snapshot_every=1", "algorithm.traversals=100",
    "algorithm.value.steps=5", "algorithm.value.batch_size=16", "algorithm.average.steps=5",
    "algorithm.average.batch_size=16", "algorithm.value_capacity=1000", "algorithm.strategy_capacity=1000",
    "evaluation.exploitability.boards=3",
)  # fmt: skip


@pytest.fixture
def _nothing_trains(monkeypatch):
    def fit(*_: object, **__: object) -> None:
        raise AssertionError("this must train nothing")

    monkeypatch.setattr(training, "fit", fit)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Two runs on Kuhn poker and one on a small Hold'em deck."""
    output = tmp_path_factory.mktemp("outputs")
    for seed in (0, 1):
        assert executed(*SMALL, f"seed={seed}", f"output_dir={output}") == records.FINISHED
    assert executed(*HOLDEM, f"output_dir={output}") == records.FINISHED
    return output


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_nothing_trains")
def test_what_was_trained_on_a_gpu_is_measured_where_there_is_none(outputs, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    there = ("device=cuda", "evaluation=[exploitability,strategy]")
    trained = run_folder(tmp_path, key_of(*SMALL, "device=cuda"))
    # In place of what a machine with a GPU leaves, a CPU's run under the key of a GPU's.
    shutil.copytree(run_folder(outputs, key_of(*SMALL)), trained)
    (trained / "config.yaml").unlink()
    assert executed(*SMALL, *there, f"output_dir={tmp_path}") == records.FINISHED
    found = results(tmp_path, (*SMALL, *there))
    assert {"exploitability", "strategy"} <= {metric.partition("/")[0] for metric in found.metric}
    # Where it is asked to begin anew, which cannot be here, nothing of it is lost.
    records.ask_anew(trained)
    assert executed(*SMALL, *there, f"output_dir={tmp_path}") == records.FAILED
    assert records.read(trained).trained
    assert records.is_asked_anew(trained)
    assert len(results(tmp_path, (*SMALL, *there))) == len(found)
    refused = call_here(*SMALL, "device=cuda", "seed=7", f"output_dir={tmp_path}")
    assert re.fullmatch(
        r"error: device is 'cuda', but torch (finds no GPU here|.* built without CUDA .*); use cpu.\n", refused.stderr
    )


def test_of_a_finished_run_every_key_takes_one_value(outputs):
    with pytest.raises(ReproError, match=r"^evaluation=exploitability,strategy: one value is taken here; a list is "):
        evaluate.run([key_of(*SMALL), "evaluation=exploitability,strategy"], str(outputs))


@pytest.mark.usefixtures("_nothing_trains")
def test_a_read_out_is_added(outputs):
    added = "+algorithm.readouts.sd_cfr_9={kind: ensemble, capacity: 9}"
    before = results(outputs, SMALL)
    assert evaluate.run([key_of(*SMALL), "evaluation=exploitability", added], str(outputs)) == 0
    after = results(outputs, (*SMALL, added))
    capped = after[(after.readout == "sd_cfr_9") & (after.metric == "exploitability")]
    full = after[(after.readout == "sd_cfr") & (after.metric == "exploitability")]
    assert capped.step.tolist() == [5, 10, 15, 20, 25, 30]
    assert capped.value.iloc[0] == full.value.iloc[0], "five networks are not more than nine"
    assert capped.value.iloc[-1] != full.value.iloc[-1]
    assert results(outputs, SMALL).equals(before)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_nothing_trains")
def test_what_is_said_of_a_run_is_what_was_asked_for_last(outputs):
    key = key_of(*SMALL, "seed=1")
    said = []
    for words in ("evaluation=costs", "evaluation=exploitability", "evaluation=strategy", "evaluation=exploitability"):
        assert evaluate.run([key, words], str(outputs)) == 0
        said.append(records.read(run_folder(outputs, key)).headline)
    assert said[0] == "costs measured"
    assert said[1].endswith(" mA/g")
    assert said[2] == "strategy measured"
    assert said[3] == said[1], "found finished"


@pytest.mark.exhaustive
def test_a_read_out_that_is_added_is_named_like_those_of_its_run(tmp_path):
    for run in plan([*SMALL, "algorithm.iterations=5,10", f"output_dir={tmp_path}"], multirun=True).runs:
        assert execute(run.configs, run.labels, run.title) == records.FINISHED
    added = "+algorithm.readouts.sd_cfr_9={kind: ensemble, capacity: 9}"
    key = key_of(*SMALL, "algorithm.iterations=10")
    assert evaluate.run([key, "evaluation=exploitability", added], str(tmp_path)) == 0
    names = {run.info.run_name for run in tracked(tmp_path)[1] if run.data.tags["repro.key"] == key}
    before = next(name for name in names if " sd_cfr " in name)
    assert before.startswith("10 sd_cfr s0 iterations=10 ")
    assert before.replace(" sd_cfr ", " 9_sd_cfr ", 1) in names


@pytest.mark.usefixtures("_nothing_trains")
def test_an_opponent_is_added_and_the_run_command_does_the_same(outputs):
    opponent = f"+evaluation.match.opponents.other={key_of(*SMALL, 'seed=1')}/sd_cfr"
    assert evaluate.run([key_of(*SMALL), "evaluation=match", opponent, "evaluation.match.opponents_at=same"],
                        str(outputs)) == 0  # fmt: skip
    overrides = (*SMALL, "evaluation=match", opponent, "evaluation.match.opponents_at=same")
    won = results(outputs, overrides)
    assert (won.metric == "match/other/value").sum() == 12, "two read-outs, six snapshots"
    assert executed(*overrides, f"output_dir={outputs}") == records.SKIPPED


@pytest.mark.usefixtures("_nothing_trains")
def test_all_boards_instead_of_a_sample(outputs):
    key = key_of(*HOLDEM)
    assert evaluate.run([key, "evaluation=exploitability", "evaluation.exploitability.boards=null"], str(outputs)) == 0
    exact = results(outputs, (*HOLDEM, "evaluation.exploitability.boards=null"))
    assert "nash_conv_standard_error" not in set(exact.metric)
    assert (exact.metric == "nash_conv").sum() == 4
    sampled = results(outputs, HOLDEM)
    assert "nash_conv_standard_error" in set(sampled.metric)


def test_a_folder_of_configurations_and_another_store_can_be_named(outputs, tmp_path, capsys):
    (tmp_path / "conf" / "evaluation").mkdir(parents=True)
    (tmp_path / "conf" / "evaluation" / "costs_at_the_end.yaml").write_text(
        "defaults:\n  - schema_costs@costs_at_the_end\ncosts_at_the_end: {at: last}\n"
    )
    given = [
        key_of(*SMALL),
        "evaluation=[costs,costs_at_the_end]",
        "+algorithm.readouts.more={kind: ensemble, capacity: 8}",
    ]
    uri = f"tracking_uri=sqlite:///{tmp_path / 'another.db'}"
    assert evaluate.main([*given, "--output", str(outputs)]) == 2
    assert "costs_at_the_end" in capsys.readouterr().err
    assert evaluate.main([*given, uri, "--output", str(outputs), "--config-dir", str(tmp_path / "conf")]) == 0
    client = MlflowClient(f"sqlite:///{tmp_path / 'another.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'kuhn'")
    names = {run.data.tags["repro.readout"] for run in client.search_runs([experiment.experiment_id])}
    assert {"training", "sd_cfr", "deep_cfr", "more"} <= names


def test_what_is_no_finished_run_is_refused_in_one_sentence(outputs):
    done = call_here("0123456789ab", "--output", str(outputs), module="evaluate")
    assert done.returncode == 2
    assert "there is no run with the key '0123456789ab'" in done.stderr
    assert done.stderr.count("\n") == 1
    unfinished = run_folder(outputs, key_of(*SMALL, "seed=7"))
    unfinished.mkdir()
    done = call_here(unfinished.name, "--output", str(outputs), module="evaluate")
    assert done.returncode == 2
    done = call_here(key_of(*SMALL), "seed=3", "--output", str(outputs), module="evaluate")
    assert done.returncode == 2
    assert "only evaluation, algorithm.readouts and tracking_uri can be given" in done.stderr
    # What has been finished stays so.
    opponent = f"+evaluation.match.opponents.other={key_of(*SMALL, 'seed=1')}"
    done = call_here(key_of(*SMALL), "evaluation=match", opponent, "--output", str(outputs), module="evaluate")
    assert done.returncode == 2
    assert "has several read-outs, sd_cfr, deep_cfr: name one after a slash, as in KEY/sd_cfr." in done.stderr
    assert "Make it first" not in done.stderr
    assert records.read(run_folder(outputs, key_of(*SMALL))).state == records.FINISHED


@pytest.mark.usefixtures("_nothing_trains")
def test_what_is_measured_later_names_the_commit_that_measured_it(outputs, monkeypatch):
    later = (*SMALL, "+algorithm.readouts.sd_cfr_7={kind: ensemble, capacity: 7}", f"output_dir={outputs}")
    before = evaluated_with(planned(*later).config)
    assert before == {provenance.commit()}
    monkeypatch.setattr(provenance, "code", lambda: {"git_commit": "1234567", "git_dirty": "true"})
    assert executed(*later) == records.FINISHED
    assert evaluated_with(planned(*later).config) == before | {"1234567-dirty"}
    assert evaluated_with(planned(*SMALL, f"output_dir={outputs}").config) == before


@pytest.mark.usefixtures("_nothing_trains")
def test_what_evaluations_take_is_kept_once_whenever_they_are_made(outputs, monkeypatch):
    config = planned(*SMALL, f"output_dir={outputs}").config
    before = evaluation_seconds(config)
    assert before is not None
    assert 0 < before < 60
    later = (*SMALL, "+algorithm.readouts.sd_cfr_6={kind: ensemble, capacity: 6}", f"output_dir={outputs}")
    measure = Exploitability.measure

    def slow(self, subject):
        time.sleep(0.05)
        return measure(self, subject)

    monkeypatch.setattr(Exploitability, "measure", slow)
    assert executed(*later) == records.FINISHED
    both = evaluation_seconds(planned(*later).config)
    assert both is not None
    assert both > before + 6 * 0.05, "six snapshots"
    assert evaluation_seconds(config) == before
    assert executed(*later) == records.SKIPPED
    assert evaluation_seconds(planned(*later).config) == both


@pytest.mark.usefixtures("_nothing_trains")
def test_what_evaluations_of_earlier_versions_took_is_not_known(outputs):
    readout = "+algorithm.readouts.sd_cfr_5={kind: ensemble, capacity: 5}"
    overrides = (*SMALL, readout, f"output_dir={outputs}")
    assert executed(*overrides) == records.FINISHED
    config = planned(*overrides).config
    rows = evaluation_rows(run_folder(outputs, key_of(*SMALL)), config, "exploitability", "sd_cfr_5")
    content = json.loads(rows.path.read_text())
    assert list(map(int, content.pop("seconds"))) == [5, 10, 15, 20, 25, 30]
    rows.path.write_text(json.dumps(content))
    assert evaluation_seconds(config) is None
    assert evaluation_seconds(planned(*SMALL, f"output_dir={outputs}").config) is not None
    sweep = PlannedSweep("", "python -m repro.run", [config], overrides)
    assert provenance_of(sweep)["evaluation_seconds"] == [None]


def test_a_read_out_of_a_run_cannot_become_another_one(outputs):
    other = "algorithm.readouts.sd_cfr.capacity=3"
    done = call_here(key_of(*SMALL), other, "evaluation=costs", "--output", str(outputs), module="evaluate")
    assert done.returncode == 1
    assert "choose another name" in done.stderr


register_schemas()


@pytest.mark.parametrize("name", sorted(EVALUATIONS))
def test_a_headline_of_what_another_evaluation_measured_is_empty(name):
    """A training that two targets share is measured by the evaluations of both, each at iterations of its own."""
    assert EVALUATIONS[name]().headline(load("leduc"), {"a": {"of_another": 1.0}, "b": {}}) == ""
