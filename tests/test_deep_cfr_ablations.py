"""The page on Deep CFR's ablations, on made-up data: what is compared, verdicts, the table and the picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from paper_figures import deep_cfr_ablations as module
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED
from repro.plans.planning import plan
from tests.helpers.figures import cells, number, rows, verdicts

STEPS = range(10, 130, 10)
BASE = {step: 4000.0 / step for step in STEPS}
FULL = 30


def times(early: float, end: float) -> dict[int, float]:
    """The base, `early` times as high in its first half and `end` times in its last."""
    return {step: value * (early if step <= 60 else end) for step, value in BASE.items()}


def stopped(at: float) -> dict[int, float]:
    """The base until memories are full, and from then on one value."""
    return {step: value if step < FULL else at for step, value in BASE.items()}


def made_up(full: int = FULL, **changes: dict[int, float]) -> pd.DataFrame:
    curves = {
        "base": BASE, "uniform_weights": times(1.4, 1.0), "fine_tuned": times(1.0, 1.5),
        "uniform_play": times(1.0, 1.5), "window": stopped(BASE[FULL]),
    } | changes  # fmt: skip
    frames = []
    for sweep, curve in curves.items():
        where: dict[str, Any] = {"sweep": sweep, "algorithm": "sd_cfr_and_deep_cfr"}
        frames += [rows(readout, "exploitability", curve, **where) for readout in ("deep_cfr", "sd_cfr")]
        for kind, capacity in (("value", 180), ("strategy", 280)):
            held = {step: capacity * min(1.0, step / full) for step in STEPS}
            # Every run's memories have one size.
            frames.append(rows("training", f"memory/{kind}", held, **where).assign(value=lambda d: d.value.round(-1)))
        frames.append(rows("training", "wall_seconds", {step: 1.0 * step for step in STEPS}, **where))
    return pd.concat(frames, ignore_index=True)


def test_what_the_paper_reports_holds():
    assert set(verdicts(module, made_up()).values()) == {HELD}
    assert set(verdicts(module, made_up().assign(scale="smoke")).values()) == {NOT_TESTABLE}


def test_sign_and_size_are_two_claims():
    found = verdicts(module, made_up(fine_tuned=times(1.0, 2.5), uniform_play=times(1.0, 0.7)))
    assert (found["fine_tuned_higher"], found["fine_tuned_half"]) == (HELD, DID_NOT_HOLD)
    assert (found["uniform_play_higher"], found["uniform_play_half"]) == (DID_NOT_HOLD, DID_NOT_HOLD)
    found = verdicts(module, made_up(uniform_weights=times(0.8, 1.3)))
    assert (found["uniform_weights_slower"], found["uniform_weights_same"]) == (DID_NOT_HOLD, DID_NOT_HOLD)
    # Seeds differ, so that a ratio at the margin is not decided.
    assert verdicts(module, made_up(uniform_weights=times(1.4, 1.2)))["uniform_weights_same"] == UNDECIDED


def test_a_window_that_goes_on_has_not_stopped():
    found = verdicts(module, made_up(window=times(1.0, 1.2)))
    assert found["window_stops"] == DID_NOT_HOLD
    assert found["window_higher"] == found["window_values"] == HELD
    assert verdicts(module, made_up(base=stopped(BASE[FULL])))["reservoir_continues"] == DID_NOT_HOLD


def test_memories_that_fill_late_say_nothing_of_what_happens_then():
    data = made_up(full=90)
    assert module.full_at(data, "window") == 90
    found = verdicts(module, data)
    assert found["window_stops"] == found["reservoir_continues"] == NOT_TESTABLE
    assert module.full_at(made_up(full=200), "window") is None


def test_what_is_compared_by_hand():
    data = made_up()
    assert module.full_at(data, "base") == FULL
    end = module.since_full(data, "base")
    assert end is not None
    quarter = [sum(4000.0 / step for step in steps) / 3 for steps in ((100, 110, 120), (30, 40, 50))]
    assert end.mean == pytest.approx(quarter[0] / quarter[1])
    assert end.freedom is None, "paired"
    higher = module.higher(data, "fine_tuned")
    assert higher is not None
    assert higher.mean == pytest.approx(1.5)
    assert higher.low * higher.high == pytest.approx(higher.mean**2), "an interval of logarithms"


def test_where_sd_cfr_was_not_measured_deep_cfr_is_judged():
    data = made_up().assign(scale="paper")
    data = data[data.readout != "sd_cfr"]
    found = verdicts(module, data)
    assert found.pop("window_values") == NOT_TESTABLE
    assert set(found.values()) == {HELD}
    assert module.unit(data) == "mbb/g"
    assert "–" in module.table(data)
    assert "Flop Hold'em" in module.draw(data).get_suptitle()


def test_the_table_and_the_picture():
    _, *listed = cells(module.table(made_up()))
    assert [row[0] for row in listed] == [setting.name for setting in module.SETTINGS.values()]
    # `rows` adds a percent per seed.
    assert number(listed[2][1]) == pytest.approx(1.5 * number(listed[0][1]), rel=0.01)
    assert [number(row[-1]) for row in listed] == pytest.approx([2.0] * 5, rel=0.05)
    assert [row[-2] for row in listed] == [str(FULL)] * 5
    left, right = module.draw(made_up()).axes
    assert [len(axes.get_legend_handles_labels()[1]) for axes in (left, right)] == [4, 2]
    assert any(set(np.asarray(line.get_xdata()).tolist()) == {FULL} for line in right.get_lines())


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_settings_differ_in_one_thing_each(scale):
    found = {
        sweep.name: plan(sweep.arguments(scale), multirun=True).runs[0].config.algorithm for sweep in module.SWEEPS
    }
    base = found.pop("base")
    changed = {
        "uniform_weights": ("loss_weight", "uniform"), "uniform_play": ("when_no_positive", "uniform"),
        "window": ("memory", "window"),
    }  # fmt: skip
    assert base.value.start == "random"
    assert (base.memory, base.when_no_positive) == ("reservoir", "argmax")
    for name, (key, value) in changed.items():
        assert getattr(base, key) != value
        assert vars(found[name]) == vars(base) | {key: value}
    assert found["fine_tuned"].value.start == "previous"
    others = {key: value for key, value in vars(found["fine_tuned"]).items() if key != "value"}
    assert others == {key: value for key, value in vars(base).items() if key != "value"}
