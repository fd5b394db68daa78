"""Runs measured against what other runs played after the same iteration."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repro import run
from repro.config import run_key, settings
from repro.errors import ReproError
from repro.evaluation.head_to_head import exact
from repro.games import load
from repro.opponents import opponents_of
from repro.policies.base import TabularPolicy
from repro.policies.record import StrategyRecord, load_records, save_records
from repro.tracking import status
from repro.tracking.store import default_uri, find_finished, open_store
from repro.training import train
from tests.small import small_model
from tests.trained import straight_and_resumed

KUHN = (
    "game=kuhn", "algorithm=sd_cfr_and_deep_cfr", "network=fc", "network.width=4", "network.layers=1",
    "algorithm.iterations=3", "algorithm.evaluate_every=2", "algorithm.traversals=40", "algorithm.value_capacity=100",
    "algorithm.strategy_capacity=100", "algorithm.value.steps=2", "algorithm.value.batch_size=8",
    "algorithm.average.steps=2", "algorithm.average.batch_size=8",
)  # fmt: skip


def compose(*overrides: str) -> Any:
    (config,) = run.plan([*KUHN, *overrides], multirun=False)
    return run.without_hydra(config)


def record_of(iterations: list[int]) -> StrategyRecord:
    game, record = load("kuhn"), StrategyRecord([], torch.empty(0, 12, 3))
    draw = torch.Generator().manual_seed(0)
    for iteration in iterations:
        table = torch.rand(game.uniform.shape, generator=draw, dtype=torch.float64) * game.legal
        record = record.with_one(iteration, TabularPolicy(table / table.sum(1, keepdim=True)))
    return record


def test_a_record_is_read_as_it_was_written(tmp_path):
    game = load("kuhn")
    record = record_of([2, 4, 5])
    save_records(tmp_path / "strategies.pt", {"game": {"name": "kuhn"}}, {"mine": record})
    (found,) = load_records(game, tmp_path / "strategies.pt").values()
    assert list(found.iterations) == [2, 4, 5]
    assert torch.equal(found.tables, record.tables)
    assert torch.equal(found.last().table, found.at(5).table)
    torch.testing.assert_close(found.at(4).table.sum(1), torch.ones(12, dtype=torch.float64), rtol=0, atol=1e-15)
    with pytest.raises(ReproError, match=r"no strategy of iteration 3; there are those of 2, 4, 5"):
        found.at(3)
    with pytest.raises(ReproError, match="holds strategies for game kuhn"):
        load_records(load("leduc"), tmp_path / "strategies.pt")
    torch.save({"config": {"game": {"name": "kuhn"}}}, tmp_path / "other.pt")
    with pytest.raises(ReproError, match=r"is not the strategies\.pt of a finished run"):
        load_records(game, tmp_path / "other.pt")


def test_an_iteration_evaluated_again_is_recorded_once():
    record = record_of([2, 4])
    again = record.with_one(4, record.at(2))
    assert list(again.iterations) == [2, 4]
    torch.testing.assert_close(again.at(4).table, record.at(2).table)


def test_evaluations_are_recorded_and_outlive_a_checkpoint(tmp_path):
    game = load("kuhn")
    whole, resumed = straight_and_resumed(lambda: small_model(game, keep_strategies=True), 6, 4, tmp_path)
    assert {name: list(r.iterations) for name, r in whole.records.items()} == {
        name: [2, 4, 6] for name in whole.readouts
    }
    for name, record in whole.records.items():
        assert list(resumed.records[name].iterations) == [2, 4, 6]
        assert torch.equal(resumed.records[name].tables, record.tables)
    assert small_model(game).records == {}


@pytest.mark.parametrize("at", ["same", "last"])
def test_matches_are_exact_and_of_the_iteration_asked_for(at):
    game, record = load("kuhn"), record_of([2, 4])
    model = small_model(game, iterations=4, opponents={"other": "-"}, opponents_at=at)
    model.opponents = {"other": record}
    for iteration in range(1, 5):
        model.training_step(None, 0)
        if iteration % 2 == 0:
            against = record.at(iteration) if at == "same" else record.last()
            for name, policy in model.policies.items():
                expected = 1000 * exact(game, policy, against)
                assert model.metrics[name]["match/other/value"] == pytest.approx(expected)


def test_a_run_is_measured_against_the_record_of_another(tmp_path):
    output = f"output_dir={tmp_path}"
    first = compose(output, "algorithm.keep_strategies=true")

    def do(config: Any) -> str:
        folder = run.run_folder(tmp_path, run_key(config))
        folder.mkdir(parents=True)
        return train(config, folder, status.Status(status.RUNNING), None)

    assert do(first) == status.FINISHED
    client, key = open_store(default_uri(tmp_path)), run_key(first)
    kept = find_finished(client, key)
    assert kept is not None
    asked = compose(output, f"+algorithm.opponents.other={key}/deep_cfr", "algorithm.opponents_at=same")
    found = opponents_of(client, load("kuhn"), settings(asked))["other"]
    assert isinstance(found, StrategyRecord)
    assert list(found.iterations) == [2, 3]
    assert do(asked) == status.FINISHED
    done = find_finished(client, run_key(asked))
    assert done is not None
    children = client.search_runs([done.info.experiment_id], f"tags.`mlflow.parentRunId` = '{done.info.run_id}'")
    won = {child.data.params["algorithm"]: child.data.metrics["match/other/value"] for child in children}
    # The same run but for its opponents: S-hat against itself.
    assert won["deep_cfr"] == pytest.approx(0, abs=1e-3)
    assert set(won) == {"deep_cfr", "sd_cfr"}

    for overrides, sentence in (
        ([f"+algorithm.opponents.other={key}"], "that run has sd_cfr, deep_cfr: add /READOUT to the key"),
        ([f"+algorithm.opponents.other={key}/none"], "its read-out is 'none'"),
        ([f"+algorithm.opponents.other={run_key(asked)}/deep_cfr"], r"left none of strategies\.pt"),
        (
            [f"+algorithm.opponents.other={key}/deep_cfr", "algorithm.opponents_at=same", "algorithm.iterations=4"],
            r"not evaluated after iteration 4, and algorithm\.opponents_at is same",
        ),
    ):
        with pytest.raises(ReproError, match=sentence):
            opponents_of(client, load("kuhn"), settings(compose(output, *overrides)))


FHP = (
    "game=fhp", "algorithm=sd_cfr_and_deep_cfr", "network=brown", "algorithm.evaluation_boards=5",
    "algorithm.match_hands=10",
)  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([*FHP, "algorithm.keep_strategies=true"], "algorithm.keep_strategies is True; the game fhp is a Hold'em game"),
        (
            [*FHP, "algorithm.opponents_at=same", "+algorithm.opponents.a=x"],
            "algorithm.opponents_at is same; the game fhp is a Hold'em game",
        ),
        ([*KUHN, "algorithm.opponents_at=same"], "algorithm.opponents_at is same, but there are no"),
        (["game=hnlh", "algorithm=cfr"], "tables can list"),
        ([*KUHN, "algorithm.match_hands=10"], "the game kuhn is no Hold'em game and takes 0 only"),
    ],
)
def test_keys_that_do_not_go_with_the_game_are_refused_before_any_work(overrides, sentence):
    with pytest.raises(ReproError) as caught:
        run.plan(overrides, multirun=False)
    assert sentence in str(caught.value)
