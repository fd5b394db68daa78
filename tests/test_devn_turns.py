"""Labels of turns from networks of rivers: verdicts on made-up data, and what the sweeps ask for."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from paper_figures import devn_turns, figure13
from paper_figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED
from repro.config.keys import training_key
from tests.helpers.commands import configs
from tests.helpers.devn import expect, judged
from tests.helpers.figures import cells, number

OFF = {
    ("reference", "exact"): 0.5, ("reference", "oracle_dcvn"): 2.0, ("reference", "oracle_devn"): 1.5,
    ("reference", "checked_down"): 9.0, ("leaves", "dcvn"): 4.0, ("leaves", "devn"): 5.0,
    ("leaves", "devn_zero_sum"): 3.0,
}  # fmt: skip


def labels(scale: str = "laptop", of_turns: bool = True, apart: float = 20.0) -> pd.DataFrame:
    """Seeds differ more than rows do, by as much as they are apart, and have other turns."""
    rows = []
    for seed in range(3):
        for (sweep, readout), off in OFF.items():
            algorithm = "reference_leaves" if sweep == "reference" else readout[:4]
            common = {"target": "devn_turns", "scale": scale, "sweep": sweep, "algorithm": algorithm, "seed": seed}
            found = {"label_error": off + apart * seed, "zero_error": 30.0, "label_error/turn_000": 1.0, "best": 99.0}
            rows += [{**common, "readout": readout, "metric": m, "step": 1, "value": v} for m, v in found.items()]
        for method, off in (("dcvn", 100.0), ("devn", 1.0)) if of_turns else ():
            common = {"target": "devn_turns", "scale": scale, "sweep": "turns", "algorithm": method, "seed": seed}
            for step, factor in ((10, 2.0), (20, 1.0)):
                measured = {"unbucketed": factor * off, "pooled": off, "encoding_error": 1.0, "predicting_zero": 30.0}
                rows += [
                    {**common, "readout": method, "metric": m, "step": step, "value": v} for m, v in measured.items()
                ]
                rows += [{**common, "readout": "training", "metric": m, "step": step, "value": 0.1}
                         for m in ("loss/train", "loss/validation")]  # fmt: skip
    return pd.DataFrame(rows)


def test_labels_are_judged_on_the_same_turns_and_beside_networks_of_turns():
    found = judged(devn_turns, labels())
    expect(found["dcvn_checked"], HELD, 5.0)
    expect(found["devn_checked"], HELD, 4.0)
    expect(found["devn"], DID_NOT_HOLD, -1.0)
    expect(found["zero_sum"], HELD, 1.0)
    # Of other turns, which are not paired.
    assert found["dcvn_exact"][0] == UNDECIDED
    near = judged(devn_turns, labels(apart=0.0))
    expect(near["dcvn_exact"], HELD, math.log(4.0 / 100.0))
    expect(near["devn_exact"], DID_NOT_HOLD, math.log(5.0))
    assert {v for v, _ in judged(devn_turns, labels("smoke")).values()} == {NOT_TESTABLE}
    drawn = devn_turns.select(labels())
    assert not (drawn.metric == "best").any()
    (axes,) = devn_turns.draw(drawn).axes
    assert len(axes.get_yticklabels()) == len(devn_turns.ROWS)
    listed = {row[0]: row[1] for row in cells(devn_turns.table(drawn))}
    assert number(listed["DCVN of rivers"]) == 24
    assert number(listed["DCVN of turns, from 3,000 exact labels"]) == 100
    assert number(listed["0 for every hand"]) == 30


def test_without_networks_of_turns_labels_are_judged_alone():
    night = labels("night", of_turns=False)
    assert set(judged(devn_turns, night)) == {"dcvn_checked", "devn_checked", "devn", "zero_sum"}
    assert len(devn_turns.draw(devn_turns.select(night)).axes[0].get_yticklabels()) == len(devn_turns.ROWS) - 2


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["laptop", "night"])
def test_networks_of_rivers_are_figure_13s(scale: str):
    mine, theirs = (
        {training_key(c) for c in configs(*sweep.arguments(scale))}
        for sweep in (
            next(s for s in devn_turns.SWEEPS if s.name == "leaves"),
            next(s for s in figure13.SWEEPS if s.name == "networks"),
        )
    )
    assert mine == theirs
