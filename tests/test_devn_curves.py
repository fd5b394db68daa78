"""DCVN and DEVN over numbers of samples and of SGD steps: verdicts on made-up data, and what the sweeps ask for."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest

from paper_figures import devn_online, devn_samples, devn_steps
from paper_figures.devn_sweeps import SETTINGS
from repro.config.schema import Config
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED
from repro.subgames.encoded import Batch
from repro.subgames.fresh import Pool
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


def online(scale: str = "laptop") -> pd.DataFrame:
    """Fresh subgames lower DCVN's losses by a tenth, often or seldom, and raise DEVN's by as much."""
    parts = []
    for way in devn_online.WAYS:
        networks = runs(scale=scale)
        networks = networks[(networks.sweep == "setting_i") & (networks.network_layers == 3)].assign(sweep=way)
        factor = networks.algorithm.map({"dcvn": 1.0, "devn": 1.0} if way == "stored" else {"dcvn": 0.9, "devn": 1.1})
        errs = networks.metric.isin(("unbucketed", "pooled"))
        networks = networks.assign(value=networks.value.where(~errs, networks.value * factor))
        lowest = networks[networks.metric == "unbucketed"].assign(metric="best", value=8.0)
        solved = lowest.assign(metric="subgames", value=100.0 * lowest.step)
        parts += [networks[networks.metric != "best"], lowest, *([solved] if way != "stored" else [])]
    return pd.concat(parts, ignore_index=True).drop(columns="network_layers")


def test_fresh_subgames_beside_stored_ones():
    data = online()
    # One network of each sweep is best later than the others, which have ended before the last epoch then.
    data = data.assign(step=data.step + ((data.seed == 0) & (data.algorithm == "dcvn")))
    found = judged(devn_online, data)
    assert len(found) == 2 * 3
    for way in ("online_often", "online_seldom"):
        expect(found[f"{way}_dcvn"], HELD, 10.0)
        expect(found[f"{way}_devn"], DID_NOT_HOLD, -10.0)
        expect(found[f"devn_{way}"], DID_NOT_HOLD, 100 * (1 - 0.96 * 1.1 / 0.9))
    assert {v for v, _ in judged(devn_online, online("smoke")).values()} == {NOT_TESTABLE}
    # Where most were best at the end they would have learned more: what did not hold is not testable.
    unfinished = judged(devn_online, online())
    assert (unfinished["online_often_dcvn"][0], unfinished["online_often_devn"][0]) == (HELD, NOT_TESTABLE)
    drawn = devn_online.select(online())
    left, right = devn_online.draw(drawn).axes
    assert len(left.get_lines()) == 2 * 3
    assert next(label.get_text() for label in right.get_xticklabels()) == "stored"
    listed = cells(devn_online.table(drawn))
    assert [row[1] for row in listed[1:4]] == ["–", "300", "300"]
    assert len(listed) == 2 * (1 + 3)


def _never(block: int) -> Batch:
    raise AssertionError(block)


def test_fresh_subgames_cost_what_stored_ones_do():
    """Solving a 24-card river takes 9 ms, and a pass over one 0.04 ms (figure 13's runs)."""
    costs = {}
    for sweep in devn_online.SWEEPS[1:]:
        a = configs(*sweep.arguments("laptop"))[0].algorithm
        solved, size = round(0.9 * a.subgames), round(0.9 * a.subgames)
        if a.fresh is not None:
            size = a.pool
            solved = Pool(_never, a.fresh, a.pool // a.fresh).made_by(a.iterations - 1)
        costs[sweep.name] = solved, size * a.iterations, a.iterations * math.ceil(size / a.batch_size)
    assert costs == {
        "stored": (18_000, 360_000, 1_440),
        "online_often": (17_856, 360_000, 1_500),
        "online_seldom": (19_440, 82_800, 345),
    }
    seconds = {way: 0.009 * solved + 0.00004 * passes for way, (solved, passes, _) in costs.items()}
    assert all(cost == pytest.approx(seconds["stored"], rel=0.02) for cost in seconds.values())


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
