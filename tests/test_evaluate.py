"""On a finished run, read-outs, opponents and boards are added, and nothing is trained."""

from __future__ import annotations

import pytest

from repro import evaluate, training
from repro.tracking import record as records
from repro.trained import run_folder
from tests.helpers.commands import SMALL, call, executed, key_of, results

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

    monkeypatch.setattr(training, "_fit", fit)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Two runs on Kuhn poker and one on a small Hold'em deck."""
    output = tmp_path_factory.mktemp("outputs")
    for seed in (0, 1):
        assert executed(*SMALL, f"seed={seed}", f"output_dir={output}") == records.FINISHED
    assert executed(*HOLDEM, f"output_dir={output}") == records.FINISHED
    return output


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


def test_what_is_no_finished_run_is_refused_in_one_sentence(outputs):
    done = call("0123456789ab", "--output", str(outputs), module="evaluate")
    assert done.returncode == 2
    assert "there is no run with the key '0123456789ab'" in done.stderr
    assert done.stderr.count("\n") == 1
    unfinished = run_folder(outputs, key_of(*SMALL, "seed=7"))
    unfinished.mkdir()
    done = call(unfinished.name, "--output", str(outputs), module="evaluate")
    assert done.returncode == 2
    done = call(key_of(*SMALL), "seed=3", "--output", str(outputs), module="evaluate")
    assert done.returncode == 2
    assert "only evaluation and algorithm.readouts can be given" in done.stderr


def test_a_read_out_of_a_run_cannot_become_another_one(outputs):
    other = "algorithm.readouts.sd_cfr.capacity=3"
    done = call(key_of(*SMALL), other, "evaluation=costs", "--output", str(outputs), module="evaluate")
    assert done.returncode == 1
    assert "choose another name" in done.stderr
