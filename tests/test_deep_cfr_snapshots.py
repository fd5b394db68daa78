"""What Deep CFR leaves: checkpoints that resume it, and snapshots that are read out later."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from repro.common.errors import ReproError
from repro.config import NetworkConfig, ReadoutConfig, RegressionConfig
from repro.evaluation.averages import tabulated
from repro.games import load
from repro.policies.snapshot import SnapshotFolder
from tests.helpers.deep_cfr import small_model
from tests.helpers.training import advanced, average_policy_of, fitted, metrics_of, seats_of, straight_and_resumed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "loss_weight"), [("reservoir", "t/T"), ("window", "t/T"), ("window", "uniform"), ("aggregated", "t/T")]
)
@pytest.mark.parametrize("start", ["previous", "random"])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_resuming_equals_never_stopping(tmp_path, memory, loss_weight, start, stop):
    game = load("leduc")
    regression = RegressionConfig(steps=8, batch_size=64, start=start)
    changes = {"memory": memory, "loss_weight": loss_weight, "value": regression}
    straight, resumed = straight_and_resumed(lambda: small_model(game, **changes), 6, stop, tmp_path)
    assert resumed.iteration == straight.iteration == 6
    for ours, theirs in zip(straight.history["value"], resumed.history["value"], strict=True):
        assert torch.equal(torch.stack(list(ours)), torch.stack(list(theirs)))
    expected, found = metrics_of(straight), metrics_of(resumed)
    for readout in ("sd_cfr", "sd_cfr_2", "deep_cfr"):
        for metric in ("nash_conv", "nodes_touched"):
            assert expected[readout][metric] == found[readout][metric]


def test_lightning_counts_one_step_per_fitted_network(tmp_path):
    assert fitted(small_model(load("leduc")), 3, tmp_path).global_step == 6


def stopped_and_continued(make: Any, stop: int, folder: SnapshotFolder | None) -> tuple[Any, Any]:
    """A model after all its iterations, and one that took the place of another after `stop`; both leave snapshots."""
    straight, first, second = make(), make(), make()
    if folder is not None:
        first.snapshots = second.snapshots = folder
    for model, until in ((straight, straight.iterations), (first, stop), (second, straight.iterations)):
        if model is second:
            saved = io.BytesIO()
            torch.save((first.state_dict(), first.saved()), saved)
            saved.seek(0)
            weights, state = torch.load(saved, weights_only=True)
            second.load_state_dict(weights)
            second.resume(state)
        while model.iteration < until:
            model.step()
            if model.is_due and model.snapshots is not None:
                model.snapshots.write(model.snapshot())
    return straight, second


@pytest.mark.parametrize("changes", [{}, {"strategies": "asked"}, {"average": None}])
@pytest.mark.parametrize("stop", [2, 3])
@pytest.mark.parametrize("stored", [True, False])
def test_what_is_saved_is_all_there_is_to_resume(tmp_path, changes, stop, stored):
    game = load("leduc")
    readouts = {"sd_cfr": ReadoutConfig("ensemble"), "sd_cfr_2": ReadoutConfig("ensemble", 2)}
    given = {"readouts": readouts, **changes} if "average" in changes else changes
    folder = SnapshotFolder(tmp_path / "snapshots") if stored else None
    straight, resumed = stopped_and_continued(lambda: small_model(game, iterations=5, **given), stop, folder)
    assert straight.history.keys() == resumed.history.keys()
    for name, both in straight.history.items():
        for ours, theirs in zip(both, resumed.history[name], strict=True):
            assert torch.equal(torch.stack(list(ours)), torch.stack(list(theirs)))
    assert metrics_of(straight) == metrics_of(resumed)
    if folder is not None:
        assert folder.iterations == [2, 4, 5]
        assert metrics_of(straight, snapshot=folder.read()) == metrics_of(straight)


def test_a_snapshot_stored_after_the_checkpoint_is_not_taken_twice(tmp_path):
    game = load("kuhn")
    first, second = small_model(game), small_model(game)
    first.snapshots = second.snapshots = SnapshotFolder(tmp_path)
    advanced(first, 2)
    saved = first.saved()
    first.snapshots.write(first.snapshot())
    second.resume(saved)
    assert [len(rows) for rows in second.history["value"]] == [2, 2]


def test_a_read_out_added_later_is_the_one_in_memory(tmp_path):
    game, folder = load("leduc"), SnapshotFolder(tmp_path)
    model, in_memory = small_model(game, strategies="asked"), {}
    for _ in range(6):
        model.step()
        if model.is_due:
            # A copy of what is there now: rows are let go when they are stored.
            in_memory[model.iteration] = (average_policy_of(model, 2), metrics_of(model))
            folder.write(model.snapshot())
    for iteration in folder.iterations:
        snapshot = folder.read(iteration)
        policy, metrics = in_memory[iteration]
        later = tabulated(game, seats_of(model, ReadoutConfig("ensemble", 2), snapshot))
        assert torch.equal(later.table, policy.table)
        assert metrics_of(model, snapshot=snapshot) == metrics
    # A snapshot is of its own iteration, however far the training is.
    early = seats_of(model, ReadoutConfig("ensemble"), folder.read(2))[0]
    assert list(early.members) == [0, 1]
    assert early.weight.tolist() == [1, 2]


def test_without_an_average_network_nothing_is_noted_for_one():
    model = small_model(load("kuhn"), average=None, readouts={"sd_cfr": ReadoutConfig("ensemble")})
    advanced(model, 2)
    assert model.metrics["memory/strategy"] == 0
    assert "loss/policy" not in model.metrics
    assert model.state() == {}
    with pytest.raises(ReproError, match=r"has no average networks: algorithm\.average is null"):
        seats_of(model, ReadoutConfig("average_network"))


def test_snapshots_of_another_architecture_are_refused():
    model = small_model(load("kuhn"))
    advanced(model, 2)
    model.network = NetworkConfig("sd_cfr", 8)
    with pytest.raises(ReproError, match=r"holds networks of .* parameters; here this architecture has"):
        seats_of(model, ReadoutConfig("ensemble"))
    with pytest.raises(ReproError, match="average networks have another shape"):
        seats_of(model, ReadoutConfig("average_network"))
