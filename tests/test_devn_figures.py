"""The pages on DEVN judge data as they say they do."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from paper_figures import table4
from paper_figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED
from repro.evaluation.statistics import mean_ci


def variants(part: str) -> dict[str, float]:
    """DCVN's squared error by variant of a sweep."""
    if part == "river_small_pots":
        return {f"algorithm.solver.tolerance={tolerance}": 4.0 for tolerance in (0.005, 0.001)}
    return {"algorithm.buckets=1000": 4.0, "algorithm.buckets=2000": 3.0}


def table4_data(lower_by: float, spread: float = 0.0, count: int = 8, scale: str = "laptop") -> pd.DataFrame:
    """In every shard DEVN's error is lower than DCVN's by so many per cent."""
    rows = []
    draw = np.random.default_rng(0)
    for part in table4.PARTS:
        for seed, (variant, square) in product(range(2), variants(part).items()):
            common = {"target": "table4", "scale": scale, "seed": seed, "part": part, "variant": variant}
            for step in range(1, count + 1):
                better = square * (1 - lower_by / 100 + spread * draw.normal()) ** 2
                for algorithm, metric, value in (
                    ("dcvn", "squared_error", square), ("devn", "squared_error", better),
                    ("dcvn", "typical", 1.0), ("devn", "typical", 0.75),
                    ("training", "subgames", 10.0 * step), ("training", "exploitability/most", 0.4),
                ):  # fmt: skip
                    rows.append({**common, "algorithm": algorithm, "metric": metric, "step": step, "value": value})
    return pd.DataFrame(rows)


def verdicts(data: pd.DataFrame) -> dict[str, str]:
    return {claim.id: claim.verdict for claim in table4.claims(data)}


@pytest.mark.parametrize(
    ("lower_by", "below", "margin"),
    [(30.0, HELD, HELD), (10.0, HELD, DID_NOT_HOLD), (-10.0, DID_NOT_HOLD, DID_NOT_HOLD), (60.0, HELD, DID_NOT_HOLD)],
)
def test_table4_judges_the_improvement(lower_by: float, below: str, margin: str):
    found = verdicts(table4_data(lower_by))
    assert {v for name, v in found.items() if name.endswith("_lower")} == {below}
    margins = {name: v for name, v in found.items() if name.endswith("_margin")}
    # The paper has no river.
    assert len(margins) == 4
    assert set(margins.values()) == {margin}
    more_buckets = {name: v for name, v in found.items() if name.endswith("_more_buckets")}
    assert len(more_buckets) == 8
    assert set(more_buckets.values()) == {HELD}
    assert {v for name, v in found.items() if name.endswith("_typical")} == {HELD}


def test_table4_is_undecided_where_shards_disagree():
    found = verdicts(table4_data(3.0, spread=0.5))
    assert UNDECIDED in {v for name, v in found.items() if name.endswith("_lower")}
    assert set(verdicts(table4_data(30.0, scale="smoke")).values()) == {NOT_TESTABLE}
    # One shard has no interval, and decides nothing.
    assert {v for n, v in verdicts(table4_data(30.0, count=1)).items() if n.endswith("_lower")} == {UNDECIDED}


def test_table4_shows_both_tables():
    data = table4_data(30.0)
    panels = table4.draw(data).axes
    assert len(panels[0].get_yticklabels()) == 12
    lines = table4.table(data).splitlines()
    assert lines[2] == (
        "| turn, dataset 1, 1,000 buckets | 80 | 0.4 | 2 [2, 2] | 1.4 [1.4, 1.4] | 30 [30, 30] | 25 [25, 25] | "
        "2.782, 1.944, 30.11 |"
    )
    assert lines[10].startswith("| river, all pots (ours), dataset 1, labels to 0.5% | 80 |")
    assert lines[10].endswith("| – |")


def test_the_jackknife_of_a_mean_is_the_mean():
    values = np.random.default_rng(0).normal(size=12)
    table = table4._left_out(pd.DataFrame({"x": values}))
    found, expected = table4.jackknife(table["x"]), mean_ci(values)
    assert (found.mean, found.low, found.high) == pytest.approx((expected.mean, expected.low, expected.high))
