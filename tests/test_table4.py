"""Table 4 judges the labels of turns and rivers as it says it does."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from paper_figures import encoding_errors, table4
from repro.evaluation.statistics import mean_ci
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED
from repro.subgames.readings import READINGS
from tests.helpers.devn import labels
from tests.helpers.figures import cells, number, verdicts

LABELS = ("turn_labels", "river_small_pots")
"""Sweeps of table 4 in which the labels' accuracy differs."""
FIXED = {"buckets": 1000, "solver_tolerance": 0.005, "game_strength": "equity", "game_ties": "random"}
"""Values of keys that a sweep does not differ in."""
MORE = {("equity", "by_card"): 2.0, ("made_hand", "random"): -3.0, ("made_hand", "by_card"): 4.0}
"""How many percentage points more DEVN gains where ranges are over hands in another order."""


def settings(sweep: str) -> list[tuple[dict[str, Any], float, float]]:
    """Of each run of a sweep of a dataset: its columns, DCVN's squared error, and what DEVN gains more."""
    if sweep == "turn_ranges":
        keys = product(("random", "by_card"), ("made_hand", "equity"))
        return [
            ({"game_strength": strength, "game_ties": ties}, 4.0, MORE.get((strength, ties), 0.0))
            for ties, strength in keys
        ]
    if sweep in LABELS:
        return [({"solver_tolerance": t}, 3.5 + 100 * t, 0.0) for t in (0.001, 0.005, 2e-05)]
    return [({"buckets": count}, square, 0.0) for count, square in ((2000, 3.0), (math.inf, 2.0), (1000, 4.0))]


def table4_data(lower_by: float, spread: float = 0.0, count: int = 8, scale: str = "laptop") -> pd.DataFrame:
    """In every shard DEVN's error is lower than DCVN's by so many per cent; over all at once, where errors are twice as
    large, by 5 less; with hands in other orders by `MORE`."""
    rows = []
    draw = np.random.default_rng(0)
    for sweep in (each.name for each in table4.SWEEPS if each.name in encoding_errors.LABELS):
        seeds = range(2 if sweep in ("turn", "river") else 1)
        for seed, (columns, square, more) in product(seeds, settings(sweep)):
            common = {"target": "table4", "scale": scale, "sweep": sweep, "seed": seed, **FIXED, **columns}
            for step in range(1, count + 1):
                better = 1 - (lower_by + more) / 100 + spread * draw.normal()
                for readout, metric, value in (
                    ("dcvn", "squared_error", 4 * square), ("devn", "squared_error", 4 * square * (better + 0.05) ** 2),
                    ("dcvn", "error", square**0.5), ("devn", "error", square**0.5 * better),
                    ("training", "subgames", 10.0 * step), ("training", "exploitability/most", 0.4),
                ):  # fmt: skip
                    rows.append({**common, "readout": readout, "metric": metric, "step": step, "value": value})
    return pd.DataFrame([*rows, *readings(scale)])


def readings(scale: str) -> list[dict[str, Any]]:
    """Of each reading DEVN gains as many per cent as it has predecessors, and seeds differ by a factor."""
    common = {"target": "table4", "scale": scale, "sweep": "turn_readings", **FIXED, "step": 4}
    rows = []
    for seed, (better, name) in product(range(3), enumerate(table4.READINGS)):
        for readout, value in (("dcvn", 1.0 + seed), ("devn", (1.0 + seed) * (1 - better / 100))):
            measured = {"readout": readout, "metric": f"reading/{name}", "value": value}
            rows.append({**common, "seed": seed, **measured})
    of_run = {"readout": "training", "metric": "subgames", "value": 40.0}
    return [*rows, *({**common, "seed": seed, **of_run} for seed in range(3))]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("lower_by", "below", "margin"),
    [(30.0, HELD, HELD), (10.0, HELD, DID_NOT_HOLD), (-10.0, DID_NOT_HOLD, DID_NOT_HOLD), (60.0, HELD, DID_NOT_HOLD)],
)
def test_table4_judges_the_improvement(lower_by: float, below: str, margin: str):
    found = verdicts(table4, table4_data(lower_by))
    lower = {name: v for name, v in found.items() if name.endswith("_lower")}
    assert len(lower) == 4 + 1, "one for each of the paper's rows, and one for all of ours"
    assert set(lower.values()) == {below}
    margins = {name: v for name, v in found.items() if name.endswith("_margin")}
    # The paper has no river.
    assert len(margins) == 4
    assert set(margins.values()) == {margin}
    finer = {name: v for name, v in found.items() if name.endswith("_finer")}
    assert len(finer) == 20
    assert set(finer.values()) == {HELD}
    assert found["pooled"] == below
    measured = {c.id: c.measured.mean for c in table4.claims(table4_data(lower_by)) if c.measured}
    assert measured["turn_1_1000_lower"] == pytest.approx(lower_by)
    # The row with made hands and random ties gains least of ours, by `MORE`.
    assert (measured["ours_lower"], measured["pooled"]) == pytest.approx((lower_by - 3, lower_by - 8))
    for name, more in (("equity_by_card", 2), ("made_hand_random", -3), ("made_hand_by_card", 4)):
        assert measured[f"turn_ranges_1_{name}_gains"] == pytest.approx(more)
        assert found[f"turn_ranges_1_{name}_gains"] == (HELD if more > 0 else DID_NOT_HOLD)
    assert [name for name in measured if name.endswith("_gains") and "ranges" not in name] == [
        "turn_labels_1_0.001_gains", "turn_labels_1_2e-05_gains",
        "river_small_pots_1_0.001_gains", "river_small_pots_1_2e-05_gains",
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_table4_is_undecided_where_shards_disagree():
    found = verdicts(table4, table4_data(3.0, spread=0.5))
    assert UNDECIDED in {v for name, v in found.items() if name.endswith("_lower")}
    assert set(verdicts(table4, table4_data(30.0, scale="smoke")).values()) == {NOT_TESTABLE}
    # One shard has no interval, and decides nothing.
    assert {v for n, v in verdicts(table4, table4_data(30.0, count=1)).items() if n.endswith("_lower")} == {UNDECIDED}


@pytest.mark.exhaustive
def test_table4_shows_both_tables():
    data = table4_data(30.0)
    panels = table4.draw(data).axes
    assert len(panels[0].get_yticklabels()) == 28
    listed = cells(table4.table(data))
    assert listed[0] == listed[5], "the same columns in both tables"
    _, *paper = listed[:5]
    own = [row for row in listed[6:] if len(row) == len(listed[0])]
    assert paper[0][0] == "turn, dataset 1, 1,000 buckets"
    assert [number(cell) for cell in paper[0][1:7]] == [80, 0.4, 2, 1.4, 30, 25]
    assert [row[7] for row in paper] == [f"{row.dcvn}, {row.devn}, {row.improvement}" for row in encoding_errors.PAPER]
    names = [row[0] for row in own]
    assert names[0] == "turn, dataset 1, finest buckets"
    assert names[5:8] == [f"turn, dataset 1, labels to {accuracy}%" for accuracy in (0.5, 0.1, 0.002)]
    assert names[8:12] == [
        f"turn, dataset 1, ranges by {how}"
        for how in ("equity, ties random", "equity, ties by card", "made hand, ties random", "made hand, ties by card")
    ]
    assert names[21] == "river, all pots (ours), dataset 1, labels to 0.5%"
    assert {row[-1] for row in own} == {"–"}


def test_the_jackknife_of_a_mean_is_the_mean():
    values = np.random.default_rng(0).normal(size=12)
    table = encoding_errors._left_out(pd.DataFrame({"x": values}))
    found, expected = encoding_errors.jackknife(table["x"]), mean_ci(values)
    assert (found.mean, found.low, found.high) == pytest.approx((expected.mean, expected.low, expected.high))


def test_every_reading_has_its_row():
    assert list(table4.READINGS) == list(READINGS)
    rows = cells(table4.table(table4_data(30.0)))
    start = next(i for i, row in enumerate(rows) if row[0].startswith("in the paper"))
    assert rows[start][1:] == ["2.782", "1.944", "30.11"]
    of_readings = rows[start + 1 : start + 1 + len(READINGS)]
    assert [row[0] for row in of_readings] == list(table4.READINGS.values())
    assert [number(row[3]) for row in of_readings] == pytest.approx(range(len(READINGS)), abs=0.01)
    assert {number(row[1]) for row in of_readings} == {2.0}


@pytest.mark.exhaustive
def test_table4_has_the_errors_of_labels_of_turns():
    assert "how accurate labels" not in table4.table(table4_data(30.0))
    measured = labels("laptop")
    of_turns = pd.DataFrame(measured).query("sweep == 'labels_1'").assign(sweep="turn_label_errors", target="table4")
    rows = cells(table4.table(pd.concat([table4_data(30.0), of_turns], ignore_index=True)))
    start = next(i for i, row in enumerate(rows) if row[0].startswith("paper, turns"))
    assert rows[start + 1 :][:2] == [
        ["turns, dataset 1", "0.1", "200", "0.001", "80", "89", "0.6", "0.5", "9"],
        ["turns, dataset 1", "0.02", "200", "0.001", "88", "97", "0.12", "0.1", "1.8"],
    ]
