"""DCVN and DEVN: their data, layers, losses and runs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import huber_loss

from repro.common.errors import ReproError
from repro.comparing.repeating import repeated
from repro.config import Config, NetworkConfig, ReadoutConfig
from repro.config.keys import training_key
from repro.evaluation.base import Subject
from repro.games.isomorphism import Coding
from repro.jobs.needs import check_needed
from repro.plans.planning import plan
from repro.policies.snapshot import Snapshot
from repro.stored.trained import Trained, snapshots_of
from repro.subgames import buckets, dataset
from repro.subgames.data import SubgameData, validation_data
from repro.subgames.encoded import Batch, Truth
from repro.subgames.encoding import CFV, EV, encoding_error, error, squared_error
from repro.subgames.networks import (
    PredictedValues,
    ValueErrors,
    ValueModule,
    ValueNetwork,
    ValueNetworkConfig,
    ZeroSum,
    zero_sum,
)
from repro.subgames.subgames import STACK, Deck, Subgames, matchups
from repro.tracking import record as records
from repro.tracking.folders import run_folder
from tests.helpers.commands import executed, key_of, planned, results
from tests.helpers.training import config_of, fitted, measured, readouts_of, straight_and_resumed

SMALL, SUBGAMES = Deck(ranks=4), 12
RIVERS = Subgames("river_subgames", SMALL)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dataset, "_SHARD", {4: 1, 5: 4})
    monkeypatch.setattr(buckets, "_BOARDS", 10)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with enough solved subgames."""
    folder = tmp_path_factory.mktemp("subgames")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "_SHARD", {4: 1, 5: 4})
        store = SubgameData(RIVERS, config(), EV, 0, folder / "subgames")._store
        for number in range(SUBGAMES // 4):
            store.shard(number, threads=1)
    return folder


def config(kinds: tuple[str, ...] = ("ev", "ev_zero_sum"), **changes: Any) -> ValueNetworkConfig:
    values: dict[str, Any] = {
        "name": "network", "iterations": 4, "snapshot_every": 2, "subgames": SUBGAMES, "validation": 0.25, "buckets": 6,
        "batch_size": 4, "learning_rate": 1e-2, "predicts": "cfv" if "cfv" in kinds else "ev",
        "readouts": {kind: ReadoutConfig(kind) for kind in kinds},
    }  # fmt: skip
    return ValueNetworkConfig(**{**values, **changes})


def network(
    folder: Path, seed: int = 0, kinds: tuple[str, ...] = ("ev", "ev_zero_sum"), **changes: Any
) -> ValueNetwork:
    asked = run_config(folder, seed, kinds, **changes)
    return ValueNetwork(RIVERS, asked.algorithm, asked)


def run_config(folder: Path, seed: int = 0, kinds: tuple[str, ...] = ("ev", "ev_zero_sum"), **changes: Any) -> Config:
    return config_of(config(kinds, **changes), NetworkConfig("prelu", 16, 2), seed, output_dir=str(folder))


# -- data --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [CFV, EV])
@pytest.mark.parametrize("count", [6, None])
def test_inputs_and_targets_are_what_they_should_be(solved: Path, target: str, count: int | None):
    data = SubgameData(RIVERS, config(buckets=count), target, 0, solved / "subgames")
    samples = data._store.load(SUBGAMES)
    bucket = data.buckets_of(samples.board)
    data.setup("fit")
    seen = torch.cat([b.inputs for b in data.val_dataloader()])
    targets, there = (torch.cat([getattr(b, name) for b in data.val_dataloader()]) for name in ("target", "occupied"))
    assert seen.shape[1] == data.inputs == (13 if count else 2 * 120 + 1 + 16)
    held = data._held_out(samples.board)
    for row, n in enumerate(np.flatnonzero(held)):
        matchup = matchups(SMALL, samples.board[n : n + 1], samples.ranges[n : n + 1])[0]
        values = samples.cfv[n] / matchup if target == EV else samples.cfv[n]
        for b in range(data.buckets):
            mine = bucket[n] == b
            for player in range(2):
                share = seen[row, player * data.buckets + b].item()
                assert share == pytest.approx(samples.ranges[n, player, mine].sum(), abs=1e-6)
                expected = values[player, mine].mean() if mine.any() else 0.0
                assert targets[row, player, b].item() == pytest.approx(expected, abs=1e-5)
            assert bool(there[row, 0, b]) == mine.any()
        assert seen[row, 2 * data.buckets].item() == pytest.approx(samples.pot[n] / (2 * STACK))
        if count is None:
            assert seen[row, -16:].nonzero().flatten().tolist() == sorted(samples.board[n].tolist())


def test_no_board_is_on_both_sides_whatever_its_suits(solved: Path):
    data = SubgameData(RIVERS, config(), EV, 0, solved / "subgames")
    boards = np.concatenate([np.arange(5) * 3, [0, 4, 8, 12, 1], [1, 5, 9, 13, 2], [0, 5, 9, 13, 3]]).reshape(4, 5)
    many = np.concatenate([boards, np.random.default_rng(0).permuted(np.tile(np.arange(16), (60, 1)), axis=1)[:, :5]])
    held = data._held_out(many)
    canonical = Coding(4, 4, (5,), private=0).encode(torch.from_numpy(many)).numpy()
    assert not set(canonical[held]) & set(canonical[~held])
    assert 0 < held.sum() < len(many)
    # The second and the third differ by the names of suits.
    assert canonical[1] == canonical[2]
    # Fewer boards do not change the side of any.
    assert np.array_equal(data._held_out(many[:40]), held[:40])


def test_subgames_may_be_split_one_by_one(solved: Path):
    data = SubgameData(RIVERS, config(split="subgames"), EV, 0, solved / "subgames")
    one_board = np.tile(np.arange(5), (400, 1))
    held = data._held_out(one_board)
    assert 0.15 < held.mean() < 0.35, "a quarter"
    # In whatever portions they come, and however many there are.
    assert np.array_equal(np.concatenate([data._held_out(one_board[:150]), data._held_out(one_board[150:], 150)]), held)
    data.setup("fit")
    numbers = data._held_out(data._store.load(SUBGAMES).board)
    assert len(data._validation) == numbers.sum()
    cards = data._store.load(SUBGAMES).board[numbers]
    assert torch.equal(data.truth.bucket, torch.from_numpy(data.buckets_of(cards)))
    by_board = SubgameData(RIVERS, config(), EV, 0, solved / "subgames")
    assert by_board.measured_on != data.measured_on


def test_the_pot_may_be_told_as_a_share_of_one_stack(solved: Path):
    pots = []
    for stacks in (2, 1):
        data = SubgameData(RIVERS, config(pot_of_stacks=stacks), EV, 0, solved / "subgames")
        data.setup("fit")
        pots.append(torch.cat([batch.inputs[:, 2 * data.buckets] for batch in data.val_dataloader()]))
    torch.testing.assert_close(pots[1], 2 * pots[0])
    assert (pots[0] > 0).all()


def test_there_must_be_something_to_learn_from_and_to_measure_on(solved: Path):
    with pytest.raises(ReproError, match=r"algorithm.subgames is 2, of which [02] are for validation"):
        SubgameData(RIVERS, config(subgames=2, validation=0.01), EV, 0, solved / "subgames").setup("fit")
    with pytest.raises(ReproError, match=r"learn_from is 1000, but of algorithm.subgames=\d+ only \d+ are not"):
        SubgameData(RIVERS, config(learn_from=1000), EV, 0, solved / "subgames").setup("fit")
    with pytest.raises(ReproError, match=r"batch_size is 1000, but there are only \d+ subgames"):
        SubgameData(RIVERS, config(batch_size=1000), EV, 0, solved / "subgames").setup("fit")


def test_learning_from_fewer_keeps_the_validation_subgames(solved: Path):
    every, few = (SubgameData(RIVERS, config(learn_from=n), EV, 0, solved / "subgames") for n in (None, 3))
    for data in (every, few):
        data.setup("fit")
    assert torch.equal(every.truth.cfv, few.truth.cfv)
    assert len(few._train) == 3
    chosen = few._train[[0, 1, 2]].target
    assert all((row == every._train[list(range(len(every._train)))].target).flatten(1).all(1).any() for row in chosen)
    # Both methods learn from the same ones, other seeds from others.
    again, other = (SubgameData(RIVERS, config(learn_from=3), CFV, seed, solved / "subgames") for seed in (0, 1))
    for data in (again, other):
        data.setup("fit")
    assert torch.equal(again._train[[0, 1, 2]].inputs, few._train[[0, 1, 2]].inputs)
    assert not torch.equal(other._train[[0, 1, 2]].inputs, few._train[[0, 1, 2]].inputs)


def test_what_is_learned_from_is_the_same_as_from_memory(solved: Path):
    data = SubgameData(RIVERS, config(), EV, 0, solved / "subgames")
    data.setup("fit")
    samples = data._store.load(SUBGAMES)
    whole, truth = data.encoded(samples)
    held = torch.from_numpy(data._held_out(samples.board))
    numbers = list(reversed(range(len(data._train))))
    order = (~held).nonzero()[:, 0].flip(0)
    for f in fields(Batch):
        assert torch.equal(getattr(data._train[numbers], f.name), getattr(whole, f.name)[order])
    for f in fields(Truth):
        assert torch.equal(getattr(data.truth, f.name), getattr(truth, f.name)[held])
    assert data.encoding_error == error(
        encoding_error(truth.cfv[held], truth.matchup[held], truth.bucket[held], data.buckets, EV)
    )
    assert data.predicting_zero == error(truth.cfv[held].square().mean(2))


def test_halved_subgames_are_another_training_on_another_dataset(tmp_path: Path):
    exact, halved = (run_config(tmp_path, precision=p) for p in (dataset.FLOAT32, dataset.FLOAT16))
    assert training_key(exact) == training_key(run_config(tmp_path)) != training_key(halved)
    algorithms = (asked.algorithm.recipe(RIVERS, 0) for asked in (exact, halved))
    assert len({recipe.name for recipe in algorithms}) == 2


def test_the_order_of_samples_changes_by_epoch_and_seed(solved: Path, tmp_path: Path):
    def orders(seed: int) -> list[list[float]]:
        """Of each epoch, as a training run meets them."""
        model, seen = network(solved, seed), list[list[float]]()
        start, loss = model.begin_epoch, model.loss

        def noted(batch: Batch, which: str) -> torch.Tensor:
            if which == "train":
                seen[-1] += batch.inputs[:, -1].tolist()
            return loss(batch, which)

        model.begin_epoch = lambda: (start(), seen.append([]))  # type: ignore
        model.loss = noted  # type: ignore[method-assign]
        fitted(model, 4, tmp_path)
        return seen

    first = orders(0)
    assert orders(0) == first
    assert len({tuple(sorted(order)) for order in first}) == 1
    assert len({tuple(order) for order in [*first, *orders(1)]}) == 8


# -- layers ------------------------------------------------------------------------------------------------------------


def test_the_zero_sum_layer():
    values, ranges = torch.randn(5, 2, 7), torch.rand(5, 2, 7)
    ranges = ranges / ranges.sum(2, keepdim=True)
    found = ZeroSum()(values, ranges)
    assert (found * ranges).sum((1, 2)).abs().max() < 1e-6
    # What is zero-sum already stays as it is.
    torch.testing.assert_close(ZeroSum()(found, ranges), found)


def test_zero_sum_predictions_shift_expected_values_alike():
    board = (0, 5, 10, 15, 3)
    ranges = np.random.default_rng(0).random((3, 2, len(SMALL.hands(board))))
    ranges /= ranges.sum(2, keepdims=True)
    matchup, given = torch.from_numpy(matchups(SMALL, np.array([board] * 3), ranges)), torch.from_numpy(ranges)
    cfv = torch.randn(matchup.shape, dtype=torch.float64)
    found = zero_sum(cfv, matchup, given)
    assert (found * given).sum((1, 2)).abs().max() < 1e-12
    shift = ((found - cfv) / matchup).flatten(1)
    assert (shift - shift[:, :1]).abs().max() < 1e-12
    torch.testing.assert_close(zero_sum(found, matchup, given), found)


@pytest.mark.parametrize(("target", "layers"), [(CFV, 2), (EV, 3), (EV, 7)])
def test_the_networks_size(target: str, layers: int):
    module = ValueModule(21, NetworkConfig("prelu", 16, layers), 10, target == CFV, normalise=False)
    # Weights, biases, one slope per hidden layer; the zero-sum layer has none.
    expected = 21 * 16 + 16 + (layers - 1) * (16 * 16 + 16) + layers + 16 * 20 + 20
    assert sum(p.numel() for p in module.parameters()) == expected
    inputs = torch.rand(3, 21)
    inputs[:, :10] /= inputs[:, :10].sum(1, keepdim=True)
    inputs[:, 10:20] /= inputs[:, 10:20].sum(1, keepdim=True)
    total = (module(inputs) * inputs[:, :20].unflatten(1, (2, 10))).sum((1, 2))
    assert (total.abs().max() < 1e-6) == (target == CFV)


def test_the_optimiser_is_adam_as_in_the_text_or_adamw_as_in_the_code(tmp_path: Path):
    text, code = (network(tmp_path, optimizer=kind).optimizer() for kind in ("adam", "adamw"))
    assert (type(text), text.defaults["weight_decay"]) == (torch.optim.Adam, 0)
    assert (type(code), code.defaults["weight_decay"]) == (torch.optim.AdamW, 0.01)


def test_networks_as_in_the_authors_code(solved: Path, tmp_path: Path):
    """Normalised layers, and no sum of zero; what is learned of the mean of batches is kept and read out."""
    changes: dict[str, Any] = {"kinds": (CFV,), "zero_sum_layer": False, "normalise": True}
    model = network(solved, iterations=2, **changes)
    kinds = [type(layer) for layer in model.network.body]
    assert kinds == [*[nn.Linear, nn.PReLU, nn.BatchNorm1d] * 2, nn.Linear]
    fitted(model, 2, tmp_path)
    asked = run_config(solved, iterations=2, **changes)
    (readout,) = readouts_of(RIVERS, asked).values()
    assert isinstance(readout, PredictedValues)
    taken = readout.network(model.snapshot(), model.data)
    inputs = next(iter(model.data.val_dataloader())).inputs
    torch.testing.assert_close(taken(inputs[:1]), taken(inputs)[:1])  # What others are in a batch does not matter.
    assert (model.network.train()(inputs) - taken(inputs)).abs().max() > 1e-3
    ranges = inputs[:, : 2 * model.data.buckets].unflatten(1, (2, -1))
    assert (taken(inputs) * ranges).sum((1, 2)).abs().min() > 1e-4
    as_in_the_text = run_config(solved, iterations=2, kinds=(CFV,))
    assert training_key(asked) != training_key(as_in_the_text)


# -- runs --------------------------------------------------------------------------------------------------------------


def test_the_losses_are_what_they_should_be(solved: Path, tmp_path: Path):
    model = network(solved, iterations=1)
    fitted(model, 1, tmp_path)
    data = model.data
    with torch.no_grad():
        wrong, squares, shifted, kept = [], [], [], 0
        for batch in data.val_dataloader():
            output = model.network(batch.inputs)
            there = batch.occupied.expand_as(output)
            wrong.append(huber_loss(output[there], batch.target[there], reduction="none"))
            for row in range(len(batch.inputs)):
                bucket, matchup, ranges = (x[kept] for x in (data.truth.bucket, data.truth.matchup, data.truth.ranges))
                ev = output[row][:, bucket]
                squares.append((ev * matchup - data.truth.cfv[kept]).square().mean(1).tolist())
                ev = ev - (ranges * ev * matchup).sum() / (2 * (ranges[0] * matchup[0]).sum())
                shifted.append((ev * matchup - data.truth.cfv[kept]).square().mean(1).tolist())
                kept += 1
    found = measured(RIVERS, run_config(solved, iterations=1), model, ValueErrors())
    assert model.metrics["loss/validation"] == pytest.approx(torch.cat(wrong).mean().item(), rel=1e-5)
    assert found["ev"]["unbucketed"] == pytest.approx(100 * np.mean(np.sqrt(squares)), rel=1e-5)
    assert found["ev"]["pooled"] == pytest.approx(100 * np.sqrt(np.mean(squares)), rel=1e-5)
    zero_sum_error = 100 * np.mean(np.sqrt(shifted))
    assert found["ev_zero_sum"]["unbucketed"] == pytest.approx(zero_sum_error, rel=1e-5)
    assert abs(zero_sum_error / found["ev"]["unbucketed"] - 1) > 1e-4
    nothing = [np.sqrt(np.mean(hands**2)) for subgame in data.truth.cfv.numpy() for hands in subgame]
    assert found["ev"]["predicting_zero"] == pytest.approx(100 * np.mean(nothing), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("cfv",), ("ev",)])
def test_a_network_learns_its_training_set(solved: Path, tmp_path: Path, kinds: tuple[str, ...]):
    model = network(solved, kinds=kinds, iterations=150, snapshot_every=150)
    losses: list[float] = []
    end = model.end_epoch
    model.end_epoch = lambda: (end(), losses.append(model.metrics["loss/train"]))  # type: ignore
    fitted(model, 150, tmp_path)
    assert losses[-1] < losses[0] / 5


def test_resuming_equals_never_stopping(solved: Path, tmp_path: Path):
    straight, resumed = straight_and_resumed(lambda: network(solved), 4, 2, tmp_path)
    for a, b in zip(straight.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b)
    asked = run_config(solved)
    ours, theirs = (measured(RIVERS, asked, model, ValueErrors()) for model in (straight, resumed))
    assert ours == theirs
    assert straight.iteration == resumed.iteration == 4


def snapshots_while_fitting(model: ValueNetwork, epochs: int, folder: Path) -> list[Snapshot]:
    """The snapshots that a run would leave."""
    left: list[Snapshot] = []
    end = model.end_epoch

    def noted() -> None:
        end()
        if model.is_due:
            left.append(model.snapshot())

    model.end_epoch = noted  # type: ignore[method-assign]
    fitted(model, epochs, folder)
    return left


def test_the_best_is_the_lowest_of_the_snapshots_so_far(solved: Path, tmp_path: Path):
    changes: dict[str, Any] = {"iterations": 12, "snapshot_every": 1, "learning_rate": 0.1}
    asked = run_config(solved, **changes)
    left = snapshots_while_fitting(network(solved, **changes), 12, tmp_path)
    assert len(left) == 12
    assert not torch.equal(left[0].state["network"]["body.0.weight"], left[1].state["network"]["body.0.weight"])

    def measure(evaluation: ValueErrors, snapshot: Snapshot) -> dict[str, dict[str, float]]:
        return evaluation.measure(Subject(RIVERS, 0, snapshot, readouts_of(RIVERS, asked)))  # type: ignore[arg-type]

    whole = ValueErrors()
    rows = {snapshot.iteration: measure(whole, snapshot) for snapshot in left}
    for name in ("ev", "ev_zero_sum"):
        unbucketed = [row[name]["unbucketed"] for row in rows.values()]
        assert [row[name]["best"] for row in rows.values()] == np.minimum.accumulate(unbucketed).tolist()
        assert min(unbucketed) < unbucketed[-1]
    # Broken off, told what was measured before, and gone on.
    resumed = ValueErrors()
    for name in ("ev", "ev_zero_sum"):
        resumed.recall(name, {iteration: row[name] for iteration, row in rows.items()})
    for snapshot in left[7:]:
        assert measure(resumed, snapshot) == rows[snapshot.iteration]


def test_validation_subgames_are_read_once_and_without_a_training_alone(solved: Path, tmp_path: Path):
    model = network(solved)
    fitted(model, 4, tmp_path)
    asked, evaluation = run_config(solved), ValueErrors()
    while_training = measured(RIVERS, asked, model, evaluation)
    assert all(data is model.data for data in evaluation._data.values())
    (readout, _), snapshot = readouts_of(RIVERS, asked).values(), model.snapshot()
    later = validation_data(RIVERS, config(batch_size=3), EV, solved / "subgames")
    assert later is not model.data
    assert not hasattr(later, "_train")
    assert isinstance(readout, PredictedValues)
    pairs = list(readout.values(snapshot, later))
    assert len(pairs[0][0].cfv) == 3
    assert torch.equal(torch.cat([truth.cfv for truth, _ in pairs]), model.data.truth.cfv)
    squares = torch.cat([squared_error(truth.cfv, values) for truth, values in pairs])
    assert error(squares) == pytest.approx(while_training["ev"]["unbucketed"], rel=1e-5)
    with pytest.raises(ReproError, match="it leaves values, and nothing that plays"):
        readout.seats(snapshot)


def test_zero_sum_predictions_by_dcvns_own_step(solved: Path):
    model = network(solved, kinds=("ev", "ev_zero_sum_cfv"))
    model.data.setup("fit")
    plain, shifted = readouts_of(RIVERS, run_config(solved, kinds=("ev", "ev_zero_sum_cfv"))).values()
    assert isinstance(plain, PredictedValues)
    assert isinstance(shifted, PredictedValues)
    snapshot = model.snapshot()
    for (truth, before), (_, after) in zip(
        plain.values(snapshot, model.data), shifted.values(snapshot, model.data), strict=True
    ):
        excess = (before * truth.ranges).sum((1, 2), keepdim=True)
        assert excess.abs().min() > 1e-4
        torch.testing.assert_close(after, before - (excess / 2).expand_as(before))
        assert (after * truth.ranges).sum((1, 2)).abs().max() < 1e-6


def test_without_buckets_there_is_no_encoding_error(solved: Path, tmp_path: Path):
    model = network(solved, buckets=None)
    fitted(model, 4, tmp_path)
    found = measured(RIVERS, run_config(solved, buckets=None), model, ValueErrors())
    assert found["ev"]["encoding_error"] < 1e-3


RUN = ["game=river_subgames", "game.ranks=4", "algorithm.iterations=3"]


@pytest.mark.exhaustive
def test_runs_need_solved_subgames(tmp_path: Path):
    network_run = (
        *RUN, "algorithm=devn", "algorithm.subgames=12", "algorithm.validation=0.4", "algorithm.buckets=5",
        "algorithm.batch_size=4", "network.width=8", "network.layers=2", "algorithm.snapshot_every=1",
    )  # fmt: skip
    output = f"output_dir={tmp_path}"
    run, data = (planned(*words, output) for words in (network_run, (*RUN, "algorithm=solved_subgames")))
    with pytest.raises(ReproError, match="solve them first"):
        check_needed([run])
    check_needed([run, data])
    assert executed(*network_run, output) == records.FAILED
    folder = run_folder(tmp_path, key_of(*network_run))
    assert "solve them first" in records.read(folder).message
    assert executed(*RUN, "algorithm=solved_subgames", output) == records.FINISHED
    assert executed(*network_run, output) == records.FINISHED
    again = repeated(Trained.open(tmp_path, key_of(*network_run)), tmp_path / "again", force=False)
    assert again.algorithm.stored_data(again).is_relative_to(tmp_path / "again"), "to where the data are brought next"
    rows = results(tmp_path, network_run)
    assert {"loss/train", "loss/validation", "epochs"} <= set(rows[rows.readout == "training"].metric)
    for name in ("devn", "devn_zero_sum"):
        metrics = rows[(rows.readout == name) & (rows.step == 3)].metric
        assert {"unbucketed", "best", "pooled", "encoding_error", "predicting_zero"} <= set(metrics)
    assert snapshots_of(folder).iterations == [1, 2, 3]
    assert "body.0.weight" in snapshots_of(folder).read(2).state["network"]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["game=leduc"], "takes one of turn_subgames, river_subgames"),
        (["network=fc"], "prelu is for networks of subgames' values"),
        (["network.layers=null"], "the architecture prelu needs a number of hidden layers"),
        (["algorithm.validation=1"], "algorithm.validation is 1.0; it must be at most 0.9"),
        (["algorithm.batch_size=1001"], "algorithm.batch_size is 1001, but algorithm.subgames only 1000; take smaller"),
        (["algorithm.learn_from=9"], "algorithm.batch_size is 100, but algorithm.learn_from only 9; take smaller"),
        (
            ["algorithm.learn_from=1001"],
            "algorithm.learn_from is 1001; it must be at most algorithm.subgames, 1000",
        ),
        (["+algorithm.readouts.other={kind: cfv}"], "cfv is another network than the others, take it alone"),
    ],
)
def test_what_cannot_be_is_refused(overrides: list[str], sentence: str):
    with pytest.raises(ReproError) as caught:
        plan(["algorithm=devn", *overrides], multirun=False)
    assert sentence in str(caught.value)


def test_a_network_of_values_is_for_subgames_only():
    with pytest.raises(ReproError, match="prelu is for networks of subgames' values"):
        plan(["algorithm=sd_cfr", "network=prelu"], multirun=False)


def test_datasets_of_other_numbers_are_others(tmp_path: Path):
    folders = {str(SubgameData(RIVERS, config(dataset=n), EV, 0, tmp_path)._store.folder) for n in range(2)}
    assert len(folders) == 2
