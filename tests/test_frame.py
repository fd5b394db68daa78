"""Figures' data: columns of swept keys, files, and the accessor of curves."""

from __future__ import annotations

from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from repro.figures import frame
from repro.figures.published import RESULTS

FILES = sorted(RESULTS.glob("*/data.csv.gz"))


def sweep(name: str, key: str, given: list[Any], **fixed: Any) -> list[dict[str, Any]]:
    """Configurations of a sweep over a key, two seeds each."""
    return [{"algorithm.name": name, **fixed, key: value, "seed": seed} for value in given for seed in (0, 1)]


def measured(readout: str, metric: str, count: int = 2) -> pd.DataFrame:
    """Of one run: steps 10, 20, ... with the values 1, 2, ..."""
    return pd.DataFrame(
        {"target": "t", "scale": "laptop", "algorithm": "deep_cfr", "readout": readout, "seed": 0, "metric": metric,
         "step": 10 * i, "value": float(i)}
        for i in range(1, count + 1)
    )  # fmt: skip


def data_of(*settings: dict[str, Any], seeds: int = 2) -> pd.DataFrame:
    """Runs of one sweep with these columns, each with its exploitability; values say run and seed."""
    runs = [
        measured("sd_cfr", "exploitability").assign(seed=seed, value=[100.0 * i + seed, 100.0 * i + seed + 10])
        for i in range(len(settings))
        for seed in range(seeds)
    ]
    return frame.of_sweep("", runs, [setting for setting in settings for _ in range(seeds)])


# -- columns of swept keys ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "column"),
    [
        ("algorithm.traversals", "traversals"), ("algorithm.value.steps", "value_steps"),
        ("network.width", "network_width"), ("game.strength", "game_strength"),
        ("algorithm.solver.tolerance", "solver_tolerance"),
    ],
)  # fmt: skip
def test_columns_are_named_after_keys(key: str, column: str):
    assert frame.column_of(key) == column


def test_a_sweep_of_nothing_has_no_columns():
    runs = [{"algorithm.name": name, "algorithm.readouts.x.kind": name, "seed": 0} for name in ("dcvn", "devn")]
    assert frame.swept_columns([runs]) == [[{}, {}]]


def test_another_sweep_has_its_configurations_value_or_none():
    sweeps = [
        sweep("deep_cfr", "algorithm.traversals", [100, 200], **{"algorithm.value.steps": 50}),
        sweep("deep_cfr", "algorithm.value.steps", [50, 80], **{"algorithm.traversals": 300}),
        sweep("linear_cfr", "algorithm.iterations", [5]),
    ]
    by_traversals, by_steps, exact = frame.swept_columns(sweeps)
    assert by_traversals[0] == by_traversals[1] == {"traversals": 100, "value_steps": 50}
    assert by_steps[-1] == {"traversals": 300, "value_steps": 80}
    assert list(exact[0]) == ["traversals", "value_steps"]
    assert all(isnan(value) for value in exact[0].values())


def test_sweeps_of_different_algorithms_sweep_nothing():
    sweeps = [sweep("d2cfr", "algorithm.iterations", [100]), sweep("deep_cfr", "algorithm.iterations", [50])]
    assert frame.swept_columns(sweeps) == [[{}, {}], [{}, {}]]


def test_a_key_that_is_asked_for_is_a_column_though_no_sweep_varies_it():
    one: list[dict[str, Any]] = [{"algorithm.name": "deep_cfr", "algorithm.traversals": 300}]
    sweeps = [sweep("es_mccfr", "algorithm.buckets", [100, 200]), one]
    tables, (deep,) = frame.swept_columns(sweeps, ["algorithm.traversals"])
    assert (deep["traversals"], [run["buckets"] for run in tables]) == (300, [100, 100, 200, 200])
    assert list(deep) == ["buckets", "traversals"]


def test_a_key_that_only_one_of_the_swept_algorithms_has_is_not_swept():
    runs: list[dict[str, Any]] = [{"algorithm.name": "dcvn"}, {"algorithm.name": "devn", "algorithm.zero_sum": True}]
    assert frame.swept_columns([runs]) == [[{}, {}]]


def test_null_is_infinity_among_numbers_and_missing_among_words():
    (buckets,) = frame.swept_columns([sweep("es_mccfr", "algorithm.buckets", [100, None])])
    assert [run["buckets"] for run in buckets] == [100, 100, inf, inf]
    (ties,) = frame.swept_columns([sweep("encoding_error", "game.ties", ["random", None])])
    assert ties[0]["game_ties"] == "random"
    assert isnan(ties[2]["game_ties"])


def test_rows_of_a_sweep_have_all_columns_in_order():
    runs = [measured("sd_cfr", "exploitability"), measured("training", "wall_seconds")]
    data = frame.of_sweep("steps", runs, [{"buckets": inf, "traversals": 5}, {"buckets": 10, "traversals": 5}])
    assert list(data.columns) == [*frame.LEADING, "buckets", "traversals", *frame.MEASURED]
    assert set(data.sweep) == {"steps"}
    assert frame.swept(data) == ["buckets", "traversals"]
    assert data.buckets.tolist() == [10, 10, inf, inf]


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_keep_types_words_and_infinity(tmp_path: Path):
    data = data_of(
        {"rectification": "none", "buckets": 100, "traversals": 5, "kl_weight": 0.0, "first": nan},
        {"rectification": "null", "buckets": inf, "traversals": 7, "kl_weight": 0.05, "first": nan},
    )
    frame.write(data, tmp_path / "data.csv")
    back = frame.read(tmp_path / "data.csv")
    pd.testing.assert_frame_equal(back, data.drop(columns="first"), check_dtype=False)
    assert [back[column].dtype.kind for column in ("buckets", "traversals", "kl_weight", "step")] == [
        "f",
        "i",
        "f",
        "i",
    ]
    assert set(back.sweep) == {""}
    assert set(back.rectification) == {"none", "null"}


def test_numbers_are_written_with_ten_digits(tmp_path: Path):
    frame.write(data_of({}).assign(value=123.45678901234), tmp_path / "data.csv")
    assert (tmp_path / "data.csv").read_text().splitlines()[1].endswith(",123.456789")


# -- access ------------------------------------------------------------------------------------------------------------


def test_curves_are_by_seed_and_step():
    data = data_of({"traversals": 5}, {"traversals": 7})
    found = frame.curves(data, "exploitability", readout="sd_cfr", traversals=7)
    assert found.index.tolist() == [0, 1]
    assert [int(str(step)) for step in found.columns] == [10, 20]
    assert found.to_numpy().tolist() == [[100, 110], [101, 111]]
    lossless = data_of({"buckets": 5}, {"buckets": inf})
    assert frame.curves(lossless, "exploitability", buckets=inf).loc[0, 10] == 100


def test_what_was_not_measured_has_no_curve():
    assert frame.curves(data_of({}), "loss/value", readout="sd_cfr").shape == (0, 0)


def test_an_unknown_column_is_refused():
    with pytest.raises(ValueError, match=r"no column 'variant'; its columns are target, scale, sweep, .* traversals"):
        frame.curves(data_of({"traversals": 5}), "exploitability", variant="x")
    with pytest.raises(ValueError, match="no column 'buckets'"):
        frame.values(data_of({"traversals": 5}), "buckets")


def test_runs_that_are_not_told_apart_are_refused():
    data = data_of({"traversals": 5, "buckets": nan}, {"traversals": 7, "buckets": 3}, {"traversals": 5, "buckets": 3})
    with pytest.raises(ValueError, match=r"exploitability, buckets=3: more than one run .* differ in traversals"):
        frame.curves(data, "exploitability", buckets=3)
    with pytest.raises(ValueError, match="differ in traversals, buckets"):
        frame.curves(data, "exploitability")
    with pytest.raises(ValueError, match="rows are repeated"):
        frame.curves(pd.concat([data_of({}), data_of({})]), "exploitability")


def test_values_are_sorted_and_whole_numbers_int():
    data = data_of({"buckets": inf}, {"buckets": 30}, {"buckets": nan}, {"buckets": 4})
    found = frame.values(data, "buckets")
    assert found == [4, 30, inf]
    assert [type(value) for value in found] == [int, int, float]
    weights = frame.values(data_of({"kl_weight": 0.5}, {"kl_weight": 0.0}), "kl_weight")
    assert [str(value) for value in weights] == ["0.0", "0.5"]
    assert frame.values(data_of({"ties": "random"}, {"ties": "by_card"}), "ties") == ["by_card", "random"]


# -- what is committed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=[path.parent.name for path in FILES])
def test_published_data_has_one_run_per_seed_and_setting(path: Path):
    data = frame.read(path)
    assert tuple(data.columns[: len(frame.LEADING)]) == frame.LEADING
    assert tuple(data.columns[-len(frame.MEASURED) :]) == frame.MEASURED
    assert not data.duplicated([column for column in data.columns if column != "value"]).any()
    assert not data[[*frame.LEADING, *frame.MEASURED]].isna().any(axis=None)
