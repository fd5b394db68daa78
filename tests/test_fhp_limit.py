"""The page on limit Flop Hold'em, on made-up data: what is read of them, verdicts, and the picture."""

from __future__ import annotations

from math import inf
from typing import Any

import pandas as pd
import pytest

from paper_figures import fhp_limit as module
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE
from tests.helpers.figures import cells, number, rows, verdicts

LINES = {"player 0": 3.0, "player 1 raise call -": 9.0, "player 0 raise call - call raise": 5.0}


def read_out(
    readout: str, last: float, length: int, points: dict[int, float] | None = None, **where: Any
) -> pd.DataFrame:
    parts = {"before_board": 0.3 * last, "on_board": 0.6 * last}
    parts |= {f"line/{line}": worth for line, worth in LINES.items()}
    anywhere = {10: 400.0, **(points or {}), length: last}
    frames = [rows(readout, "deviations/everywhere", anywhere, **where)]
    # On all flops, where deviations are worth a little less than on some.
    frames += [rows(readout, "exploitability", anywhere, **where)] if readout == "deep_cfr" else []
    frames += [rows(readout, metric, {10: 1.0, length: 60.0}, **where) for metric in ("nodes_touched", "wall_seconds")]
    frames += [rows(readout, f"deviations/{part}", {length: worth}, **where) for part, worth in parts.items()]
    return pd.concat(frames)


def made_up(sd_cfr: float, deep_cfr: float, length: int = 450, points: dict[int, float] | None = None) -> pd.DataFrame:
    """`points`: of Deep CFR, before the end."""
    where: dict[str, Any] = {"sweep": "deep_cfr", "algorithm": "deep_cfr"}
    exact = {
        "exploitability": {10: 400.0, 20: 115.0, 30: 65.0, 50: 31.5, 450: 10.0},
        "nodes_touched": {450: 1.0}, "wall_seconds": {450: 60.0},
    }  # fmt: skip
    tables = pd.concat(
        rows("linear_cfr", metric, values, sweep="linear_cfr", algorithm="linear_cfr")
        for metric, values in exact.items()
    )
    frames = [read_out("sd_cfr", sd_cfr, length, **where), read_out("deep_cfr", deep_cfr, length, points, **where)]
    return pd.concat([*frames, tables[tables.seed == 0]], ignore_index=True)


def test_what_is_expected_holds():
    found = verdicts(module, made_up(36.0, 38.5, points={50: 150.0, 200: 50.0}))
    # On the first line nobody is on the others.
    others = {name: found.pop(name) for name in [*found] if "line_" in name}
    assert set(found.values()) == {HELD}
    assert others == {
        "not_above_line_4000": DID_NOT_HOLD, "on_line_4000": DID_NOT_HOLD,
        "not_above_line_16000": DID_NOT_HOLD, "on_line_16000": DID_NOT_HOLD,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("end", "low", "ends"),
    [(60.0, DID_NOT_HOLD, DID_NOT_HOLD), (20.0, HELD, DID_NOT_HOLD), (36.0, HELD, HELD)],
)
def test_who_ends_lower_does_not_end_there(end: float, low: str, ends: str):
    found = verdicts(module, made_up(end, end).assign(scale="paper"))
    assert (found["as_paper"], found["as_paper_ends"]) == (low, ends)
    assert (found["sd_cfr_as_paper"], found["sd_cfr_as_paper_ends"]) == (low, ends)
    # After fewer iterations than the paper's, getting as low is judged, and ending there is not.
    shorter = verdicts(module, made_up(end, end, length=120))
    assert (shorter["as_paper"], shorter["as_paper_ends"]) == (low, NOT_TESTABLE)


@pytest.mark.parametrize(
    ("points", "not_above", "on", "shown"),
    [
        # `rows` adds a percent per seed, so that means are 1% higher.
        ({50: 154.0, 100: 70.0}, HELD, HELD, 1.01),
        ({50: 154.0, 100: 35.0}, HELD, DID_NOT_HOLD, 0.505),
        ({50: 308.0, 100: 35.0}, DID_NOT_HOLD, DID_NOT_HOLD, 2.02),
        ({50: 154.0, 60: 1.0}, HELD, HELD, 1.01),
        ({}, NOT_TESTABLE, NOT_TESTABLE, None),
    ],
)
def test_the_line_is_judged_where_both_were_measured(points, not_above, on, shown):
    data = made_up(36.0, 36.0, length=120, points=points)
    found = {claim.id: claim for claim in module.claims(data)}
    assert (found["not_above_line"].verdict, found["on_line"].verdict) == (not_above, on)
    measured = found["on_line"].measured
    assert (measured and measured.mean) == (pytest.approx(shown) if shown else None)
    assert ("nowhere" in found["on_line"].note) == (not points)
    assert found["on_line"].paper == 1.0
    assert ("at t = 100 (70 mbb/g)" in found["on_line"].note) == (100 in points)


def test_each_of_the_papers_lines_is_judged():
    found = {claim.id: claim for claim in module.claims(made_up(36.0, 36.0, points={50: 70.0, 100: 54.0}))}
    assert [found[f"not_above_{called}"].verdict for called in module.LINES] == [HELD] * 3
    assert [found[f"on_{called}"].verdict for called in module.LINES] == [DID_NOT_HOLD, DID_NOT_HOLD, HELD]
    # The third has no point before t = 100.
    assert "t = 100, 200, 300, 450: " in found["on_line_16000"].note
    assert "of 16,000 SGD steps" in found["on_line_16000"].statement


def test_who_stays_above_has_not_got_there():
    found = verdicts(module, made_up(70.0, 60.0))
    assert found["as_paper"] == found["below_public"] == found["sd_cfr_lower"] == DID_NOT_HOLD
    # SD-CFR's success is not Deep CFR's.
    other = verdicts(module, made_up(36.0, 60.0))
    assert (other["sd_cfr_as_paper"], other["as_paper"], other["below_public"]) == (HELD, DID_NOT_HOLD, DID_NOT_HOLD)
    assert found["same_game"] == found["above_linear_cfr"] == HELD


def test_short_runs_do_not_say_how_low_it_gets():
    found = verdicts(module, made_up(38.0, 45.0, length=30))
    assert found["as_paper"] == found["below_public"] == NOT_TESTABLE
    assert found["sd_cfr_lower"] == HELD
    assert set(verdicts(module, made_up(38.0, 45.0).assign(scale="smoke")).values()) == {NOT_TESTABLE}


def test_another_game_is_noticed():
    data = made_up(38.0, 45.0)
    data.loc[(data.readout == "linear_cfr") & (data.step == 30), "value"] = 72.0
    claim = next(c for c in module.claims(data) if c.id == "same_game")
    assert claim.verdict == DID_NOT_HOLD
    assert claim.measured is not None
    assert claim.measured.mean == pytest.approx(72 / 65)
    assert claim.check


def test_the_table_has_the_end_and_its_parts():
    _, *listed = cells(module.table(made_up(40.0, 50.0)))
    assert [row[0] for row in listed] == ["SD-CFR", "Deep CFR", "Linear CFR on tables"]
    # `rows` adds a percent per seed.
    assert listed[2][3:5] == ["–", "–"]
    assert [number(cell) for cell in listed[1][1:5]] == pytest.approx([450, 50.5, 15.15, 30.3], abs=0.06)


def test_lines_are_drawn_by_what_they_are_worth():
    left, right = module.draw(made_up(40.0, 50.0)).axes
    labels = [label.get_text() for label in right.get_yticklabels()]
    assert labels[:3] == list(module.PARTS.values())
    assert labels[3:] == [
        "player 1 after raise call, first on the flop", "player 0 after raise call, on the flop after call raise",
        "player 0 first to act",
    ]  # fmt: skip
    names = {line.get_label() for line in left.get_lines()}
    assert names >= {
        *module.PAPER,
        "SD-CFR, ours (random flops: too high)",
        "Deep CFR, ours",
        "Linear CFR on tables, ours",
    }


def test_what_sd_cfr_ends_with_on_all_flops_is_judged_and_the_ratio_is_of_the_same_ones():
    data = made_up(60.0, 50.0)
    where: dict[str, Any] = {"sweep": "sd_cfr_on_all_flops", "algorithm": "deep_cfr"}
    on_all = [rows("sd_cfr", metric, {450: 45.0}, **where) for metric in ("exploitability", "wall_seconds")]
    measured = pd.concat([data, *on_all], ignore_index=True)
    before, after = verdicts(module, data), verdicts(module, measured)
    changed = {claim: verdict for claim, verdict in after.items() if verdict != before[claim]}
    assert changed == {"sd_cfr_below_public": HELD, "sd_cfr_as_paper": DID_NOT_HOLD}
    assert {before[claim] for claim in changed} == {NOT_TESTABLE}, "random flops make it look worse"
    assert "| SD-CFR | 450 | 45.4 [" in module.table(measured)
    assert "SD-CFR, ours, all flops" in module.draw(measured).axes[0].get_legend_handles_labels()[1]


def test_of_one_seed_on_all_flops_a_point_is_drawn_and_nothing_judged():
    data = made_up(60.0, 50.0)
    where: dict[str, Any] = {"sweep": "sd_cfr_on_all_flops", "algorithm": "deep_cfr"}
    on_all = rows("sd_cfr", "exploitability", {450: 45.0}, **where)
    measured = pd.concat([data, on_all[on_all.seed == 1]], ignore_index=True)
    assert verdicts(module, measured) == verdicts(module, data)
    assert module.table(measured) == module.table(data)
    assert "SD-CFR, ours, all flops, seed(s) 1" in module.draw(measured).axes[0].get_legend_handles_labels()[1]


def with_abstractions(deep_cfr: float, bucketed: dict[float, float], lossless: dict[int, float]) -> pd.DataFrame:
    """Deep CFR ends after 60 nodes (`read_out`); abstractions have a value throughout, to 100 nodes."""
    of = {buckets: {1: value, 100: value} for buckets, value in bucketed.items()} | {inf: lossless}
    tables = [
        rows("es_mccfr", metric, points, sweep="abstractions", algorithm="es_mccfr", buckets=buckets)
        for buckets, curve in of.items()
        for metric, points in {
            "exploitability": curve, "nodes_touched": {step: float(step) for step in curve},
            "wall_seconds": dict.fromkeys(curve, 60.0),
        }.items()
    ]  # fmt: skip
    return pd.concat([made_up(deep_cfr, deep_cfr), *tables], ignore_index=True)


def test_abstractions_are_held_against_deep_cfr_by_nodes():
    data = with_abstractions(40.0, {200: 90.0, 2000: 60.0, 20000: 50.0}, {1: 4000.0, 10000: 40.0})
    names = ("coarse_last", "fewer_nodes", "comparable", "ahead_200", "ahead_2000", "ahead_20000")
    found = verdicts(module, data)
    assert {name: found[name] for name in names} == dict.fromkeys(names, HELD)
    behind = verdicts(module, with_abstractions(40.0, {200: 30.0, 2000: 60.0, 20000: 50.0}, {1: 4000.0, 100: 3000.0}))
    assert [behind[name] for name in names] == [
        DID_NOT_HOLD, NOT_TESTABLE, NOT_TESTABLE, DID_NOT_HOLD, NOT_TESTABLE, NOT_TESTABLE
    ]  # fmt: skip
    # What coarser ones are not measured around says nothing of finer ones.
    short = with_abstractions(40.0, {200: 90.0, 2000: 60.0}, {1: 4000.0, 10000: 40.0})
    short = short[~((short.get("buckets") == 200) & (short.step > 1))]
    found = verdicts(module, short)
    assert [found[name] for name in ("fewer_nodes", "comparable", "ahead_200", "ahead_2000")] == [NOT_TESTABLE] * 4
    # Without them there is nothing to say of them.
    assert not set(names) & set(verdicts(module, made_up(40.0, 40.0)))


def test_abstractions_are_drawn_and_listed():
    data = with_abstractions(40.0, {200: 90.0, 2000: 60.0}, {1: 4000.0, 100: 2000.0})
    _, axes, _ = module.draw(data).axes
    assert axes.get_legend_handles_labels()[1] == [
        "Linear MCCFR, 200 buckets", "Linear MCCFR, 2,000 buckets", "Linear MCCFR, lossless", "Deep CFR, ours"
    ]  # fmt: skip
    listed = [row for row in cells(module.table(data)) if row[0].startswith("Linear MCCFR")]
    assert [row[0] for row in listed] == axes.get_legend_handles_labels()[1][:3]
    # `rows` adds a percent per seed.
    assert [[number(row[i]) for i in (1, 2, 5)] for row in listed] == [[100, y, 101] for y in (90.9, 60.6, 2020)]
