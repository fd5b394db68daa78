"""DCVN and DEVN over numbers of samples and of SGD steps: verdicts on made-up data, and what the sweeps ask for."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest

from paper_figures import devn_samples, devn_steps
from paper_figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED
from paper_figures.devn_sweeps import SETTINGS
from repro.config.schema import Config
from tests.helpers.commands import configs
from tests.helpers.devn import error, expect, judged, runs
from tests.helpers.figures import cells, number


def test_the_curve_over_samples():
    parts = []
    for i, sweep in enumerate(devn_samples.SHARES):
        networks = runs(better=i - 1.5)
        networks = networks[(networks.sweep == "setting_i") & (networks.network_layers == 3)]
        parts.append(networks.drop(columns="network_layers").assign(sweep=sweep))
    data = pd.concat(parts, ignore_index=True)
    found = judged(devn_samples, data)
    verdicts_ = [found[sweep][0] for sweep in devn_samples.SHARES]
    assert verdicts_ == [DID_NOT_HOLD, DID_NOT_HOLD, HELD, HELD, HELD]
    expect(found["more_samples"], HELD, 4 * 4)
    drawn = devn_samples.select(data)
    assert len(devn_samples.draw(drawn).axes) == 2
    listed = cells(devn_samples.table(drawn))
    assert len(listed) == 2 * (1 + 5)
    assert listed[7][:3] == ["1/100", "2, 2, 2", "2, 2, 2"]


def longer(seeds: int = 3, scale: str = "laptop") -> pd.DataFrame:
    """Losses fall with the root of the epochs, DEVN's the faster with more layers, to the encoding error."""
    rows = []
    for hidden, method, seed, step in product((3, 7), ("dcvn", "devn"), range(seeds), (5, 10, 15, 20, 50, 100)):
        lower_by = 0.001 * hidden * step if method == "devn" else 0.0
        value = 10 * step**-0.5 * (1 - lower_by) * (1 - 0.01 * (hidden - 3)) * (1 + 1e-4 * seed)
        common = {
            "target": "devn", "scale": scale, "sweep": "steps", "algorithm": method, "seed": seed,
            "network_layers": hidden, "step": step,
        }  # fmt: skip
        measured = {"best": value, "unbucketed": 99.0, "encoding_error": error("i", method), "predicting_zero": 50.0}
        rows += [{**common, "readout": method, "metric": metric, "value": x} for metric, x in measured.items()]
        for metric, x in (("loss/train", value), ("loss/validation", value * (1 + step / 50))):
            rows.append({**common, "readout": "training", "metric": metric, "value": x})
        if method == "devn":
            rows.append({**common, "readout": "devn_zero_sum", "metric": "best", "value": 2 * value})
    return pd.DataFrame(rows)


@pytest.mark.slow
def test_the_curve_over_sgd_steps():
    found = judged(devn_steps, longer())
    for hidden in (3, 7):
        expect(found[f"lower_{hidden}"], HELD, 10.0 * hidden)
        expect(found[f"longer_{hidden}"], HELD, 8.0 * hidden)
    expect(found["dcvn_deeper"], HELD, 4.0)
    expect(found["devn_deeper"], HELD, 100 * (1 - 0.3 * 0.96 / 0.7))
    assert {v for v, _ in judged(devn_steps, longer(scale="smoke")).values()} == {NOT_TESTABLE}
    assert {v for v, _ in judged(devn_steps, longer(seeds=1)).values()} == {UNDECIDED}
    data = devn_steps.select(longer())
    left, right = devn_steps.draw(data).axes
    drawn = {str(x.get_label()): np.asarray(x.get_ydata()) for x in left.get_lines()}
    assert drawn["DEVN, 7 layers"][-1] == pytest.approx(0.3 * 0.96, rel=1e-3)
    assert drawn["encoding error, DCVN"][0] == error("i", "dcvn")
    levels = {str(x.get_label()): np.asarray(x.get_ydata())[0] for x in right.get_lines()}
    assert levels["7 layers: paper, turn, at the end"] == pytest.approx(100 * (1 - 3.204 / 3.679))
    text = devn_steps.table(data)
    assert text.endswith("; who predicts 0 for every hand errs by 50% of the pot.")
    _, *listed, encoded = cells(text)
    assert [row[1] for row in listed[:5]] == ["5", "10", "20", "50", "100"]
    assert [number(cell) for cell in listed[9][-2:]] == [3, 3]
    assert encoded[1] == "encoding error"
    assert [number(encoded[i]) for i in (2, 3, 5)] == [2, 1.43, 28.6]


def layers(config: Config) -> int | None:
    assert config.network is not None
    return config.network.layers


@pytest.mark.slow
def test_networks_that_learn_longer_are_table_6s_otherwise():
    for scale, times in (("laptop", 5), ("paper", 1)):
        mine, theirs = (
            {(c.algorithm.name, layers(c), c.seed): c for c in configs(*sweep.arguments(scale))}
            for sweep in (devn_steps.SWEEPS[-1], SETTINGS["setting_i"])
        )
        for which, config in mine.items():
            assert config.algorithm.iterations == times * theirs[which].algorithm.iterations
            config.algorithm.iterations = theirs[which].algorithm.iterations
            config.algorithm.snapshot_every = theirs[which].algorithm.snapshot_every
            for part in ("algorithm", "network", "game"):
                assert getattr(config, part) == getattr(theirs[which], part)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "samples"), [("paper", 9_000_000), ("laptop", 90_000)])
def test_every_share_takes_as_many_steps_and_evaluations(scale: str, samples: int):
    parts = []
    for sweep in devn_samples.SWEEPS[-len(devn_samples.SHARES) :]:
        algorithm = configs(*sweep.arguments(scale))[0].algorithm
        steps = math.ceil((algorithm.learn_from or samples) / algorithm.batch_size) * algorithm.iterations
        parts.append((steps, math.ceil(algorithm.iterations / algorithm.snapshot_every)))
    assert {evaluations for _, evaluations in parts} == {parts[-1][1]}
    assert all(steps == pytest.approx(parts[-1][0], rel=0.003) for steps, _ in parts)
