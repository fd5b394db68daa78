"""The page on limit Flop Hold'em, on made-up data: what is read of them, verdicts, and the picture."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from paper_figures import fhp_limit as module
from paper_figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE
from tests.helpers.figures import cells, number, rows, verdicts

LINES = {"player 0": 3.0, "player 1 raise call -": 9.0, "player 0 raise call - call raise": 5.0}


def read_out(readout: str, last: float, length: int, **where: Any) -> pd.DataFrame:
    parts = {"before_board": 0.3 * last, "on_board": 0.6 * last}
    parts |= {f"line/{line}": worth for line, worth in LINES.items()}
    anywhere = {10: 400.0, length: last}
    frames = [rows(readout, "deviations/everywhere", anywhere, **where)]
    # On all flops, where deviations are worth a little less than on some.
    frames += [rows(readout, "exploitability", anywhere, **where)] if readout == "deep_cfr" else []
    frames += [rows(readout, metric, {10: 1.0, length: 60.0}, **where) for metric in ("nodes_touched", "wall_seconds")]
    frames += [rows(readout, f"deviations/{part}", {length: worth}, **where) for part, worth in parts.items()]
    return pd.concat(frames)


def made_up(sd_cfr: float, deep_cfr: float, length: int = 150) -> pd.DataFrame:
    where = {"sweep": "deep_cfr", "algorithm": "deep_cfr"}
    exact = {
        "exploitability": {10: 400.0, 20: 115.0, 30: 65.0, 50: 31.5, 150: 20.0},
        "nodes_touched": {150: 1.0}, "wall_seconds": {150: 60.0},
    }  # fmt: skip
    tables = pd.concat(
        rows("linear_cfr", metric, values, sweep="linear_cfr", algorithm="linear_cfr")
        for metric, values in exact.items()
    )
    frames = [read_out("sd_cfr", sd_cfr, length, **where), read_out("deep_cfr", deep_cfr, length, **where)]
    return pd.concat([*frames, tables[tables.seed == 0]], ignore_index=True)


def test_what_is_expected_holds():
    assert set(verdicts(module, made_up(36.0, 39.0)).values()) == {HELD}


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
    assert [number(cell) for cell in listed[1][1:5]] == pytest.approx([150, 50.5, 15.15, 30.3], abs=0.06)


def test_lines_are_drawn_by_what_they_are_worth():
    left, right = module.draw(made_up(40.0, 50.0)).axes
    labels = [label.get_text() for label in right.get_yticklabels()]
    assert labels[:3] == list(module.PARTS.values())
    assert labels[3:] == [
        "player 1 after raise call, first on the flop", "player 0 after raise call, on the flop after call raise",
        "player 0 first to act",
    ]  # fmt: skip
    names = {line.get_label() for line in left.get_lines()}
    assert names >= {*module.PAPER, "SD-CFR, ours", "Deep CFR, ours", "Linear CFR on tables, ours"}
