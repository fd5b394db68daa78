"""The page of DEVN with fewer buckets: gains foretold by the parts of the margin hold, others do not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from paper_figures import devn_buckets as page
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE
from tests.helpers.devn import expect, judged
from tests.helpers.figures import cells, number

OWN = (6.0, 5.7)
"""The networks' own errors, DCVN's and DEVN's: 5% lower."""
BUCKETS = (10, 40, 250)


def error(method: str, buckets: int, alike: bool = False) -> float:
    """Of buckets alone: DEVN's is 20% lower; or as DCVN's with the fewest."""
    return 20 / buckets**0.5 * (1.0 if method == "dcvn" or (alike and buckets == BUCKETS[0]) else 0.8)


def runs(worse: float = 0.0, scale: str = "laptop", alike: bool = False) -> pd.DataFrame:
    """Losses whose squares add up; with 10 buckets DEVN's is worse by so many per cent of DCVN's.

    Args:
        alike: the errors of 10 buckets are alike.
    """
    rows = []
    for method, buckets, seed in product(("dcvn", "devn"), BUCKETS, range(3)):
        losses = {
            m: float(np.hypot(error(m, buckets, alike), own)) for m, own in zip(("dcvn", "devn"), OWN, strict=True)
        }
        lowest = losses[method] + worse / 100 * losses["dcvn"] * (method == "devn" and buckets == 10)
        common = {"target": "t", "scale": scale, "sweep": "fewer_buckets", "algorithm": method, "seed": seed,
                  "buckets": buckets}  # fmt: skip
        noise = 1 + 1e-4 * (seed - 1) * (1 if method == "devn" else -1)
        for step, factor in ((1, 1.5), (2, noise)):
            value = lowest * factor
            measured = {"training": {"loss/train": 0.01, "loss/validation": 0.02},
                        method: {"unbucketed": value, "encoding_error": error(method, buckets, alike)}}  # fmt: skip
            rows += [
                {**common, "readout": name, "metric": metric, "step": step, "value": measurement}
                for name, metrics in measured.items()
                for metric, measurement in metrics.items()
            ]
    return pd.DataFrame(rows)


def test_gains_are_foretold_where_the_parts_stay_the_same():
    found = judged(page, runs())
    assert found["share"][0] == HELD
    assert found["slope"][0] == HELD
    for buckets in BUCKETS[:-1]:
        assert found[f"foretold_{buckets}"][0] == HELD
        assert found[f"foretold_{buckets}"][1] == pytest.approx(0.0, abs=0.01)
        assert found[f"foretold_by_same_buckets_{buckets}"][0] == HELD
    # What DEVN gains in the error of 10 buckets is another: with it the network's gain foretells, without it not.
    apart = judged(page, runs(alike=True))
    assert apart["foretold_10"][0] == DID_NOT_HOLD
    assert apart["foretold_by_same_buckets_10"][0] == apart["foretold_40"][0] == HELD
    other = judged(page, runs(worse=8.0))
    expect(other["foretold_10"], DID_NOT_HOLD, -8.0)
    assert other["foretold_40"][0] == HELD
    assert {verdict for verdict, _ in judged(page, runs(scale="smoke")).values()} == {NOT_TESTABLE}


def test_the_picture_and_the_table_show_the_parts():
    data = page.select(runs())
    left, right = page.draw(data).axes
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["10", "40", "250"]
    assert [text.get_text() for text in right.texts] == ["10", "40", "250"]
    rows = cells(page.table(data))[1:4]
    share = 100 * error("dcvn", 10) ** 2 / (error("dcvn", 10) ** 2 + OWN[0] ** 2)
    assert number(rows[0][5]) == pytest.approx(share, rel=0.01)
    assert [float(row[6]) for row in rows] == [20.0] * 3
    assert [number(row[7]) for row in rows] == pytest.approx([5.0] * 3, rel=0.01)
