"""The page on fits in Flop Hold'em, on made-up data: what is read of them, verdicts, and the picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D

from paper_figures import fhp_fits as module
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED
from repro.figures.targets import ROOT
from repro.games.isomorphism import canonical_boards
from tests.helpers.figures import cells, number, rows, verdicts

BASE = {
    "network_card_width": 64, "traversals": 300_000, "value_batch_size": 2048, "value_learning_rate": 0.001,
    "value_schedule": "cosine", "value_start": "previous", "value_steps": 1000,
    "value_muon": math.inf, "value_focus": math.inf,
}  # fmt: skip
OTHERS = {
    ("previous", "cosine"): 0.2, ("previous", "constant"): 0.3, ("random", "cosine"): 0.4, ("random", "constant"): 0.5,
}  # fmt: skip
ALONE: dict[str, dict[str, dict[Any, float]]] = {
    "rate": {"value_learning_rate": {0.001: 0.2, 0.003: 0.1}},
    "rows": {"value_batch_size": {512: 0.3, 2048: 0.2}},
    "width": {"network_card_width": {64: 0.2, 192: 0.1}},
    "average": {"value_averaging": {0.99: 0.25, 0.998: 0.15}},
    "boards": {"boards": {300: 0.4, 1500: 0.1}},
}
"""By sweep and column, what each value leaves unexplained."""
STEPS = {
    (math.inf, math.inf): (0.2, 0.6), (0.02, math.inf): (0.1, 0.45),
    (math.inf, 0.2): (0.3, 0.3), (0.02, 0.2): (0.4, 0.15),
}  # fmt: skip
"""By Muon's rate and focus, what is left unexplained, and the strategies' distance."""


def runs(sweep: str, unexplained: float, distance: float | None = None, **changed: Any) -> pd.DataFrame:
    where: dict[str, Any] = {**BASE, **changed, "sweep": sweep, "algorithm": "guided_deep_cfr"}
    return pd.concat([
        rows("training", "unexplained", {1: 3 * unexplained, 2: unexplained}, **where),
        rows("training", "strategy_distance", {1: 0.5, 2: distance or unexplained / 2}, **where),
        rows("training", "wall_seconds", {1: 4.0, 2: 10.0}, **where),
        rows("sd_cfr", "exploitability", {1: 900.0, 2: 800.0}, **where),
    ])  # fmt: skip


ALIKE = {"previous": 0.8, "random": 0.3}
"""By where fits start, how alike their errors are to those of the fit before."""


def made_up(
    grid: dict[tuple[int, int], float], start: dict[tuple[str, str], float], alone: Callable[[float], float]
) -> pd.DataFrame:
    """Runs of all sweeps; of those that vary one thing alone, what is left unexplained goes through `alone`."""
    frames = [runs("grid", value, traversals=k, value_steps=steps) for (k, steps), value in grid.items()]
    frames += [runs("start", value, value_start=s, value_schedule=how) for (s, how), value in start.items()]
    for sweep, columns in ALONE.items():
        constant = {"value_schedule": "constant"} if sweep == "average" else {}
        for column, values in columns.items():
            frames += [runs(sweep, alone(value), None, **constant, **{column: each}) for each, value in values.items()]
    frames += [
        runs("muon", alone(left), distance=alone(distance), value_muon=muon, value_focus=focus)
        for (muon, focus), (left, distance) in STEPS.items()
    ]
    where: dict[str, Any] = {**BASE, "sweep": "successive"}
    frames += [
        rows("training", metric, {2: 0.5, 9: alone(value)}, **{**where, "value_start": start})
        for metric in module.ERRORS
        for start, value in ALIKE.items()
    ]
    frames += [rows("training", "unexplained", {2: 0.5, 9: 0.25}, **{**where, "value_start": each}) for each in ALIKE]
    return pd.concat(frames, ignore_index=True)


def expected() -> pd.DataFrame:
    grid = {(30_000, 200): 0.6, (30_000, 4000): 0.9, (300_000, 200): 0.4, (300_000, 1000): 0.2, (300_000, 4000): 0.1}
    return made_up(grid, OTHERS, lambda value: value)


def test_what_is_expected_holds():
    assert set(verdicts(module, expected()).values()) == {HELD}


def test_the_opposite_does_not():
    turned = made_up(
        {(30_000, 200): 0.9, (30_000, 4000): 0.1, (300_000, 200): 0.1, (300_000, 4000): 0.6},
        {pair: 1 - value for pair, value in OTHERS.items()},
        lambda value: 1 - value,
    )
    assert set(verdicts(module, turned).values()) == {DID_NOT_HOLD}


def test_equal_ones_are_undecided_and_smoke_judges_nothing():
    flat = made_up(
        {(k, steps): 0.5 for k in (30_000, 300_000) for steps in (200, 4000)},
        dict.fromkeys(OTHERS, 0.5),
        lambda _: 0.5,
    )
    assert set(verdicts(module, flat).values()) == {UNDECIDED}
    assert set(verdicts(module, expected().assign(scale="smoke")).values()) == {NOT_TESTABLE}


def test_the_first_and_the_last_iteration_are_told_and_seconds_are_per_iteration():
    (row,) = (r for r in cells(module.table(expected())) if r[1] == "30,000, 4,000")
    # `rows` adds a percent per seed.
    assert number(row[2]) == pytest.approx(2.7 * 1.01, abs=0.003)
    assert number(row[3]) == pytest.approx(0.9 * 1.01, abs=0.001)
    assert number(row[4]) == pytest.approx(0.45 * 1.01, abs=0.001)
    assert number(row[5]) == pytest.approx(800 * 1.01, abs=1)
    assert number(row[6]) == pytest.approx(6 * 1.01, abs=0.06)


def test_what_all_others_are_varied_from_is_drawn_once():
    left, middle, right = module.draw(expected()).axes
    assert [text.get_text() for text in middle.texts] == [
        "previous, constant", "random, constant", "random, cosine", "0.003", "512", "192", "0.99", "0.998",
        "300", "1,500", "0.02, 0.2", "0.02, none", "none, 0.2",
    ]  # fmt: skip
    assert {line.get_label() for line in left.get_lines()} >= {"the mean advantage"}
    assert len(left.containers) == 2
    assert left.get_title() == "after iteration 2", "longer runs for something else do not count"
    drawn = {str(each.get_label()): each for each in right.containers}
    assert len(drawn) == 4
    line = drawn["strategies, fits from the last network"].get_children()[0]
    assert isinstance(line, Line2D)
    assert np.asarray(line.get_xdata()).tolist() == [2, 9]
    assert np.asarray(line.get_ydata())[1] == pytest.approx(0.8, rel=0.02)


def test_how_alike_successive_errors_are_is_told_at_both_ends():
    told = {(row[0], row[1]): row[2:] for row in cells(module.table(expected())) if len(row) == 5}
    heading = ["cosine at t = 2", "at t = 9", "left unexplained there"]
    assert told.pop(("errors of successive fits", "fits start")) == heading
    assert number(told["advantages", "from random weights"][2]) == pytest.approx(0.2525, abs=0.001)
    assert number(told["strategies", "from random weights"][1]) == pytest.approx(0.303, abs=0.001)
    assert len(told) == 4


def test_the_page_says_how_much_of_the_deals_so_many_boards_have():
    """A flop of probability w is in none of n draws with (1 - w)^n."""
    _, count = canonical_boards(13, 4, 3)
    share = count.double() / count.sum()
    met = 1 - (1 - share) ** 1500
    text = (ROOT / "paper_figures" / "fhp_fits.md").read_text()
    assert f"1,500 draws have {met.sum():.0f} of the {len(count):,} in the mean, with {(met * share).sum():.0%}" in text
