"""Labels are measured beside the same subgames solved further."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from repro import evaluate
from repro.common.errors import ReproError
from repro.config.keys import training_key
from repro.plans.planning import plan
from repro.subgames import dataset
from repro.subgames.dataset import Dataset, Recipe
from repro.subgames.labels import extremes, label_errors
from repro.subgames.solver import SolverConfig
from repro.subgames.subgames import Deck, Subgames
from tests.helpers.commands import executed, results

RUN = ("game=river_subgames", "game.ranks=4", "game.least_pot=12000", "algorithm=solved_subgames",
       "algorithm.iterations=2", "algorithm.first=1", "algorithm.solver.tolerance=0.02")  # fmt: skip
MEASURED = ("evaluation=[label_errors]", "evaluation.label_errors.truth=0.001")
RIVERS = Subgames("river_subgames", Deck(4), 12000.0)


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dataset, "_SHARD", {4: 1, 5: 4})


def test_an_error_is_of_both_players_hands():
    truth = np.zeros((2, 2, 3))
    labels = truth.copy()
    labels[0, 0] = (0.03, 0, 0)
    labels[0, 1] = (0, 0.06, 0.03)
    # The root of (9 + 36 + 9) / 6.
    assert label_errors(labels, truth).tolist() == [pytest.approx(3.0), 0.0]


@pytest.mark.exhaustive
def test_a_finished_run_is_measured_by_what_it_stored(tmp_path: Path):
    """Of subgames 4 to 11, which it solved, beside solutions of a tolerance of the truth's."""
    assert executed(*RUN, f"output_dir={tmp_path}") == "finished"
    key = training_key(plan(RUN, False).runs[0].config)
    assert evaluate.main([key, *MEASURED, "--output", str(tmp_path)]) == 0
    found = results(tmp_path, (*RUN, *MEASURED))
    mine = found[found.readout == "labels"].set_index("metric").value
    stored, finer = (
        Dataset(tmp_path / "subgames", Recipe.of(RIVERS, 0, SolverConfig(tolerance=tolerance)))
        for tolerance in (0.02, 0.001)
    )
    labels, truth = (data.solved(range(4, 12), 1).cfv for data in (stored, finer))
    roots = [100 * np.sqrt(np.mean((labels[n] - truth[n]) ** 2)) for n in range(8)]
    assert mine["compared"] == 8
    assert 0 < mine["truth/most"] <= 0.1
    assert mine["label_error"] == pytest.approx(np.mean(roots), rel=1e-4)
    assert mine["label_error/median"] == pytest.approx(np.median(roots), rel=1e-4)
    assert mine["label_error/most"] == pytest.approx(max(roots), rel=1e-4)
    assert mine["label_error/below_1"] == 100 * np.mean(np.array(roots) < 1)


def test_a_part_is_drawn_of_what_was_solved(tmp_path: Path):
    assert executed(*RUN, *MEASURED, "evaluation.label_errors.subgames=3", f"output_dir={tmp_path}") == "finished"
    found = results(tmp_path, (*RUN, *MEASURED, "evaluation.label_errors.subgames=3"))
    mine = found[found.readout == "labels"].set_index("metric").value
    assert mine["compared"] == 3
    assert 0 < mine["label_error/median"] < mine["label_error/most"]


def test_the_extremes_of_a_subgame_are_of_both_players_hands():
    cfv = np.array([[[0.1, -0.4, 2.0], [-0.5, 0.0, 1.0]], [[0.3, 0.2, 0.1], [7.0, 0.0, 0.0]]])
    assert extremes(cfv).tolist() == [[-0.5, 2.0], [0.0, 7.0]]


@pytest.mark.exhaustive
def test_the_range_is_of_all_that_was_solved_so_far(tmp_path: Path):
    """Of subgames 4 to 7 after the first iteration, 4 to 11 after the second; measured when the run is finished."""
    run = (*RUN, "algorithm.snapshot_every=1")
    assert executed(*run, f"output_dir={tmp_path}") == "finished"
    key = training_key(plan(run, False).runs[0].config)
    assert evaluate.main([key, "evaluation=[label_range]", "--output", str(tmp_path)]) == 0
    found = results(tmp_path, (*run, "evaluation=[label_range]"))
    of_labels = found[found.readout == "labels"]
    mine = dict(zip(zip(of_labels.step, of_labels.metric, strict=True), of_labels.value, strict=True))
    stored = Dataset(tmp_path / "subgames", Recipe.of(RIVERS, 0, SolverConfig(tolerance=0.02)))
    for step, last in ((1, 8), (2, 12)):
        cfv = stored.solved(range(4, last), 1).cfv
        least, most = [value.min() for value in cfv], [value.max() for value in cfv]
        assert mine[step, "cfv/least"] == pytest.approx(min(least))
        assert mine[step, "cfv/least/median"] == pytest.approx(np.median(least))
        assert mine[step, "cfv/most"] == pytest.approx(max(most))
        assert mine[step, "cfv/most/median"] == pytest.approx(np.median(most))
    assert mine[2, "cfv/most"] > mine[2, "cfv/most/median"]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([*RUN, *MEASURED, "evaluation.label_errors.truth=0.02"], "it must be below algorithm.solver.tolerance, 0.02"),
        ([*RUN, *MEASURED, "evaluation.label_errors.subgames=0"], "evaluation.label_errors.subgames is 0"),
        ([*RUN, *MEASURED, "~algorithm.readouts.labels"], "algorithm.readouts is empty"),
        (["game=river_subgames", "algorithm=encoding_error", "evaluation=[label_errors]"], "stores no labels"),
        (["game=river_subgames", "algorithm=encoding_error", "evaluation=[label_range]"], "stores no labels"),
    ],
)
def test_what_cannot_be_is_refused(overrides: list[str], sentence: str):
    with pytest.raises(ReproError, match=sentence):
        plan(overrides, False)
