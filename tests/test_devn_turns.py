"""Values of turns from networks of rivers, and of turns: verdicts on made-up data, and what the sweeps ask for."""

from __future__ import annotations

import pandas as pd
import pytest

from paper_figures import devn_turns, figure13
from repro.config.keys import training_key
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE
from tests.helpers.commands import configs
from tests.helpers.devn import expect, judged
from tests.helpers.figures import cells, number

OFF = {
    ("reference", "exact"): 0.5, ("reference", "oracle_dcvn"): 2.0, ("reference", "oracle_devn"): 1.5,
    ("reference", "checked_down"): 9.0, ("leaves", "dcvn"): 4.0, ("leaves", "devn"): 5.0,
    ("leaves", "devn_zero_sum"): 3.0,
}  # fmt: skip


def values(scale: str = "laptop", of_turns: bool = True) -> pd.DataFrame:
    """Seeds differ more than rows do: who does not pair them finds nothing."""
    rows = []
    for seed in range(3):
        off = {**OFF, **({("turns", "dcvn"): 8.0, ("turns", "devn"): 2.0} if of_turns else {})}
        for (sweep, readout), value in off.items():
            algorithm = "reference_leaves" if sweep == "reference" else readout[:4]
            common = {"target": "devn_turns", "scale": scale, "sweep": sweep, "algorithm": algorithm, "seed": seed}
            found = {"turn_error": value + 20 * seed, "zero_error": 30.0, "turn_error/turn_000": 99.0}
            rows += [{**common, "readout": readout, "metric": m, "step": 20, "value": v} for m, v in found.items()]
            if sweep == "turns":
                for step, factor in ((10, 1.0), (20, 2.0)):
                    validation = {"unbucketed": 7.0 * factor, "pooled": 9.0, "encoding_error": 1.0}
                    training = {"loss/train": 0.1, "loss/validation": 0.3}
                    rows += [
                        {**common, "readout": name, "metric": m, "step": step, "value": v}
                        for name, metrics in ((readout, validation), ("training", training))
                        for m, v in metrics.items()
                    ]
    return pd.DataFrame(rows)


def test_values_are_judged_on_the_same_turns():
    found = judged(devn_turns, values())
    expect(found["dcvn_checked"], HELD, 5.0)
    expect(found["devn_checked"], HELD, 4.0)
    expect(found["dcvn_exact"], HELD, 4.0)
    expect(found["devn_exact"], DID_NOT_HOLD, -3.0)
    expect(found["devn"], DID_NOT_HOLD, -1.0)
    expect(found["zero_sum"], HELD, 1.0)
    assert {v for v, _ in judged(devn_turns, values("smoke")).values()} == {NOT_TESTABLE}
    drawn = devn_turns.select(values())
    (axes,) = devn_turns.draw(drawn).axes
    assert len(axes.get_yticklabels()) == len(devn_turns.ROWS)
    listed = cells(devn_turns.table(drawn))
    errors = {row[0]: row[1] for row in listed[1:11]}
    assert number(errors["DCVN of rivers"]) == 24
    assert number(errors["DCVN of turns, from 3,000 exact labels"]) == 28
    assert number(errors["0 for every hand"]) == 30
    assert [number(listed[12][i]) for i in (0, 1, 6)] == [7, 7, 3]
    assert listed[12][2] == "10, 10, 10"


def test_without_networks_of_turns_labels_are_judged_alone():
    night = values("night", of_turns=False)
    assert set(judged(devn_turns, night)) == {"dcvn_checked", "devn_checked", "devn", "zero_sum"}
    assert len(devn_turns.draw(devn_turns.select(night)).axes[0].get_yticklabels()) == len(devn_turns.ROWS) - 2
    assert "Networks of turns" not in devn_turns.table(devn_turns.select(night))


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
