"""Published numbers against new ones, and what can be told of the machines, settings and claims behind them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from repro.figures import agreement, frame
from repro.figures.agreement import DIFFERS, OPEN, OUTSIDE, ROUNDING, SAME, WITHIN, compared


def rows(
    values: dict[int, list[float]], sweep: str = "s", metric: str = "exploitability", **swept: object
) -> pd.DataFrame:
    """A sweep's data: seed -> values at iterations 5, 10, ..."""
    found = [
        {"target": "t", "scale": "laptop", "sweep": sweep, "algorithm": "sd_cfr", "readout": "sd_cfr", "seed": seed}
        | swept | {"metric": metric, "step": 5 * i, "value": value}
        for seed, series in values.items() for i, value in enumerate(series, 1)
    ]  # fmt: skip
    return pd.DataFrame(found)


PUBLISHED = rows({0: [100.0, 50.0], 1: [110.0, 55.0], 2: [90.0, 45.0]})


def judged(new: pd.DataFrame, exact: bool, published: pd.DataFrame = PUBLISHED) -> list[str]:
    return compared(published, new, exact).verdict.tolist()


def test_numbers_are_the_same_in_the_digits_of_the_file():
    assert judged(rows({0: [100.0000004, 50.0]}), True) == [SAME, SAME]
    assert judged(rows({0: [100.00001, 50.0]}), True) == [DIFFERS, SAME]
    assert judged(rows({0: [100.0]}), True) == [SAME]


@settings(max_examples=30)
@given(st.floats(-1e6, 1e6, allow_subnormal=False), st.floats(1.3e-7, 1e-3))
# Rounded to the file's ten digits it is a tie in the eighth, and would be rounded up from there.
@example(0.04641446849997, 1.3e-7)
@example(0.0, 1.0)
def test_what_was_written_is_itself_and_nothing_else(value: float, relative: float):
    with tempfile.TemporaryDirectory() as folder:
        frame.write(rows({0: [value]}), Path(folder) / frame.DATA)
        published = frame.read(Path(folder) / frame.DATA)
    assert judged(rows({0: [value]}), True, published) == [SAME]
    other = value * (1 + relative) if value else relative
    assert judged(rows({0: [other]}), True, published) == [DIFFERS]


def test_on_another_machine_they_lie_within_the_spread():
    assert judged(rows({0: [100.0, 60.0]}), False) == [SAME, WITHIN]
    assert judged(rows({0: [500.0, 50.0]}), False) == [OUTSIDE, SAME]
    assert judged(rows({0: [100.00001, 50.0]}), False) == [ROUNDING, SAME]
    both = compared(PUBLISHED, rows({0: [215.0, 50.0]}), False)
    # A further run is expected there 99 times in 100: t(2) at 0.995, times s sqrt(1 + 1/3).
    half = 9.924843 * 10 * np.sqrt(4 / 3)
    assert both.low[0] == pytest.approx(100 - half)
    assert both.high[0] == pytest.approx(100 + half)
    assert both.verdict[0] == OUTSIDE


def test_a_few_numbers_may_lie_outside_by_chance_on_another_machine():
    many = rows({seed: [100.0 + seed] * 40 for seed in range(3)})
    new = {count: rows({0: [500.0] * count + [100.5] * (40 - count)}) for count in (0, 2, 3)}
    found = {count: agreement.agree(compared(many, rows_, False)) for count, rows_ in new.items()}
    assert found == {0: True, 2: True, 3: False}
    assert agreement.agree(compared(PUBLISHED, rows({0: [100.00001, 50.0]}), True)) is False
    assert agreement.agree(compared(PUBLISHED, rows({0: [100.0, 50.0]}), True)) is True
    # Chance explains none that have no spread.
    one = rows({0: [100.0] * 40})
    assert agreement.agree(compared(one, rows({0: [101.0] + [100.0] * 39}), False)) is False


def test_the_same_number_again_counts_once():
    """Read-outs with and without a cap are the same until it is reached."""
    names = ("sd_cfr", "sd_cfr_50", "sd_cfr_100", "sd_cfr_500", "sd_cfr_1000")
    published = rows({seed: [100.0 + 10 * seed] * 4 for seed in range(3)})
    new = rows({0: [500.0, 110.0, 111.0, 112.0]})
    both = pd.concat([compared(published, new, False).assign(readout=name) for name in names])
    assert (both.verdict == OUTSIDE).sum() == 5
    assert agreement.agree(both) is True
    lines = list(agreement.told(both))
    assert lines[1] == "  of 4 different numbers 1 outside, where chance explains 1"
    # Read-outs that are none the same are as many numbers.
    apart = pd.concat([b.assign(value_new=b.value_new + i) for i, (_, b) in enumerate(both.groupby("readout"))])
    assert agreement.agree(apart) is False


def test_where_seeds_agree_only_rounding_may_differ():
    counts = rows({0: [1000.0], 1: [1000.0]})
    assert judged(rows({0: [1000.0005]}), False, counts) == [ROUNDING]
    assert judged(rows({0: [1001.0]}), False, counts) == [DIFFERS]


def test_one_run_has_no_spread():
    assert judged(rows({0: [101.0]}), False, rows({0: [100.0]})) == [DIFFERS]
    assert judged(rows({0: [100.00001]}), False, rows({0: [100.0]})) == [ROUNDING]
    assert judged(rows({0: [1e-17]}), False, rows({0: [0.0]})) == [ROUNDING]
    assert judged(rows({0: [100.00001]}), True, rows({0: [100.0]})) == [DIFFERS]


def test_two_runs_spread_says_nothing():
    two = rows({0: [100.0, 50.0], 1: [110.0, 55.0]})
    assert judged(rows({0: [101.0, 50.0]}), False, two) == [OPEN, SAME]
    assert agreement.agree(compared(two, rows({0: [101.0, 50.0]}), False)) is True
    assert agreement.agree(compared(two, rows({0: [101.0, 49.0]}), False)) is None
    assert judged(rows({0: [101.0, 50.0]}), True, two) == [DIFFERS, SAME]


def test_published_numbers_without_partner_are_counted():
    both = compared(PUBLISHED, rows({0: [100.0, 50.0]}), False)
    more = pd.concat([PUBLISHED, rows({0: [1.0, 2.0, 3.0], 1: [1.0]}, metric="match")])
    assert agreement.without_partner(PUBLISHED, rows({0: [100.0, 50.0]}), both) == 0
    assert agreement.without_partner(more, rows({0: [100.0, 50.0]}), both) == 2


def test_clocks_are_not_compared():
    assert compared(rows({0: [1.0]}, metric="wall_seconds"), rows({0: [2.0]}, metric="wall_seconds"), True).empty


def test_settings_are_told_apart_whatever_their_type():
    published = pd.concat([rows({0: [1.0]}, buckets=100.0), rows({0: [2.0]}, buckets=np.inf)])
    new = pd.concat([rows({0: [2.0]}, buckets="inf"), rows({0: [1.5]}, buckets="100")])
    both = compared(published, new, True)
    assert both.set_index("buckets").verdict.to_dict() == {"100.0": DIFFERS, "inf": SAME}
    large = [rows({0: [float(n)]}, buckets=n) for n in (1_000_000, 1_000_001)]
    assert len(compared(pd.concat(large), large[0], True)) == 1
    # Where a setting is not known, rows that are several cannot be told apart.
    assert compared(published, rows({0: [1.0]}), True).empty


def test_a_sweep_is_found_by_its_name_or_where_there_are_none_by_its_algorithm():
    named = pd.concat([PUBLISHED, rows({0: [7.0]}, sweep="other")])
    assert len(agreement.of_sweep(named, "s", "sd_cfr")) == 6
    assert agreement.of_sweep(named, "third", "sd_cfr").empty
    assert len(agreement.of_sweep(PUBLISHED.assign(sweep=""), "s", "sd_cfr")) == 6
    assert agreement.of_sweep(PUBLISHED.assign(sweep=""), "s", "linear_cfr").empty


def test_what_differs_is_told():
    lines = list(agreement.told(compared(PUBLISHED, rows({0: [100.0, 51.0], 1: [9.0, 54.0]}), True), most=2))
    assert lines[0] == "4 numbers, 3 differ in digits: 1 the same, 3 different"
    assert lines[1].startswith("  sd_cfr exploitability, seed 1, iteration 5: published 110, now 9 (within the ")
    assert lines[2].startswith(
        "  sd_cfr exploitability, seed 0, iteration 10: published 50, now 51 (within the spread of the published seeds"
    )
    assert lines[3:] == ["  and 1 more"]


def test_the_kind_of_machine():
    here = dict.fromkeys(agreement._FACTS, "1")
    there = {fact: ["1"] for fact in agreement._FACTS}
    assert agreement.other_kind(there, here) == []
    assert agreement.other_kind({**there, "torch": ["2", "3"]}, here) == ["torch 2, 3 there, 1 here"]
    assert agreement.other_kind({f: v for f, v in there.items() if f != "scipy"}, here) == ["unknown there: scipy"]


def test_a_sweeps_provenance_is_found_by_name_or_settings():
    def made(sweep: str | None, **settings: object) -> dict:
        return {"sweep": sweep, "config": {"algorithm": {"name": "a", **settings}}}

    def found(name: str, provenance: list[dict], **settings: object) -> object:
        return agreement.provenance_of(name, {"algorithm": {"name": "a", **settings}}, provenance)

    named = [made("x", steps=1), made("y", steps=2)]
    assert found("y", named, steps=1) is named[1]
    assert found("z", named, steps=1) is None
    unnamed = [made(None, steps=1), made(None, steps=2), made(None, steps=2)]
    assert found("x", unnamed, steps=1, new=True) is unnamed[0]
    assert found("x", unnamed, steps=2) is None
    assert found("x", unnamed, steps=3) is None


def test_settings_that_changed():
    then = {"algorithm": {"iterations": 5, "steps": 1, "every": 2}, "scale": "laptop"}
    now = {"algorithm": {"iterations": 9, "steps": 3, "schedule": "cosine"}}
    assert agreement.other_settings(then, now) == [
        "algorithm.steps 1 then, 3 now", "only then algorithm.every", "only now algorithm.schedule"
    ]  # fmt: skip


def test_claims_that_are_not_judged_alike():
    columns = {"published": {"a": "held", "b": "held"}, "new": {"a": "held", "b": "undecided", "c": "held"}}
    assert agreement.differing(columns) == {"b": ["held", "undecided"], "c": ["–", "held"]}
