"""Figure 3's functions on made-up data whose verdicts are known, and its configurations against the paper."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from paper_figures import figure3
from paper_figures.exploitability_curves import gap, points, relative_gap
from repro.config.keys import hyperparameters
from repro.evaluation.statistics import contrast, difference, mean_ci
from repro.figures import claims as claims_of
from repro.figures.collecting import deviations
from tests.helpers.commands import configs
from tests.helpers.figures import verdicts

EVALUATED = (15, 30, 45)


def made_up(*, relative_gap=0.02, level=400.0, noise=0.01, seeds=4, scale="laptop", falls=True, every=EVALUATED):
    """Curves that fall like 1 / x; Deep CFR is `relative_gap` above SD-CFR, give or take `noise` per seed."""
    rng = np.random.default_rng(0)
    steps = np.array(every)
    rows = []
    for seed in range(seeds):
        sd = level * (30 / (2 * steps) if falls else 2 * steps / 30) * (1 + 0.02 * rng.standard_normal())
        deep = sd * (1 + relative_gap + noise * rng.standard_normal())
        for algorithm, values in (("sd_cfr", sd), ("deep_cfr", deep)):
            rows += [
                ("figure3", scale, algorithm, seed, "exploitability", s, v) for s, v in zip(steps, values, strict=True)
            ]
    return pd.DataFrame(rows, columns=["target", "scale", "readout", "seed", "metric", "step", "value"])


@pytest.fixture(autouse=True)
def leduc(monkeypatch):
    """Leduc's runs, with Deep CFR a quarter above SD-CFR."""
    data = made_up(relative_gap=0.25, every=(15, 30, 45, 60), seeds=5)
    monkeypatch.setattr(figure3, "leduc", lambda: data)
    return data


def test_claims_hold_on_data_as_the_paper_describes_it():
    assert set(verdicts(figure3, made_up()).values()) == {claims_of.HELD}


def test_claims_fail_on_data_that_contradicts_them():
    assert set(verdicts(figure3, made_up(relative_gap=0.5, falls=False)).values()) == {claims_of.DID_NOT_HOLD}


def test_a_smaller_share_of_more_is_closer_in_one_sense_only():
    found = verdicts(figure3, made_up(relative_gap=0.05, level=40_000))
    for kind in ("signed", "size"):
        assert found[f"closer_than_in_leduc_relative_{kind}"] == claims_of.HELD
        assert found[f"closer_than_in_leduc_milli_antes_{kind}"] == claims_of.DID_NOT_HOLD


def test_far_below_sd_cfr_is_closer_by_sign_only():
    """A gap of half of SD-CFR's exploitability the other way is less than none only if its sign counts."""
    found = verdicts(figure3, made_up(relative_gap=-0.5))
    for unit in ("relative", "milli_antes"):
        assert found[f"closer_than_in_leduc_{unit}_signed"] == claims_of.HELD
        assert found[f"closer_than_in_leduc_{unit}_size"] == claims_of.DID_NOT_HOLD


def test_sizes_are_of_every_gap_before_any_mean(leduc):
    data = made_up(relative_gap=0.0, noise=0.1)
    measured = next(c.measured for c in figure3.claims(data) if c.id == "closer_than_in_leduc_relative_size")
    here, there = relative_gap(data).abs().mean(axis=1), relative_gap(leduc)[[30, 60, 90]].abs().mean(axis=1)
    assert measured == difference(there, here)


def test_what_is_left_without_the_first_point_is_told(leduc):
    """A gap at x = 30 alone decides the mean over all points, and the note says that without it nothing is left."""
    data = made_up(relative_gap=0.25, noise=0.001)
    first = (data.readout == "deep_cfr") & (data.step == 15)
    data.loc[first, "value"] = data[data.readout == "sd_cfr"].set_index("seed").value.groupby("seed").first().to_numpy()
    claim = next(c for c in figure3.claims(data) if c.id == "closer_than_in_leduc_relative_signed")
    without = difference(relative_gap(leduc)[[60, 90]].mean(axis=1), relative_gap(data)[[60, 90]].mean(axis=1))
    assert claim.verdict == claims_of.HELD
    assert f"without x = 30: {without}, {claims_of.UNDECIDED}" in claim.note
    later = figure3.claims(made_up(every=(30, 45)))
    assert not any("without x" in c.note for c in later)


def test_noise_leaves_claims_undecided():
    found = verdicts(figure3, made_up(relative_gap=0.1, noise=0.5))
    assert found["closer_than_in_leduc_relative_signed"] == claims_of.UNDECIDED
    assert found["closer_than_in_leduc_milli_antes_signed"] == claims_of.UNDECIDED
    assert found["deep_performs_well"] == claims_of.UNDECIDED


def test_better_than_sd_cfr_is_well_too():
    assert verdicts(figure3, made_up(relative_gap=-0.3))["deep_performs_well"] == claims_of.HELD


def test_what_a_scale_cannot_show_is_not_judged():
    assert set(verdicts(figure3, made_up(scale="smoke")).values()) == {claims_of.NOT_TESTABLE}


def test_without_common_evaluations_leduc_is_no_yardstick():
    found = {c.id: c for c in figure3.claims(made_up(every=(10, 20, 40)))}
    for sense in figure3.SENSES:
        assert found[f"closer_than_in_leduc_{sense.id}"].verdict == claims_of.NOT_TESTABLE
        assert found[f"closer_than_in_leduc_{sense.id}"].measured is None
    assert found["sd_cfr_falls"].verdict == claims_of.HELD


def test_games_are_compared_where_both_were_evaluated(leduc):
    data = made_up(every=(10, 15, 30))
    measured = next(c.measured for c in figure3.claims(data) if c.id == "closer_than_in_leduc_relative_signed")
    here, there = relative_gap(data)[[30, 60]].mean(axis=1), relative_gap(leduc)[[30, 60]].mean(axis=1)
    assert measured == difference(there, here)
    assert points(gap(data)) == [20, 30, 60]


def test_one_seed_decides_nothing(tmp_path):
    data = made_up(seeds=1)
    found = figure3.claims(data)
    assert {c.verdict for c in found} == {claims_of.UNDECIDED}
    claims_of.write(found, tmp_path / "claims.json")
    assert json.loads((tmp_path / "claims.json").read_text())[0]["measured"]["low"] is None
    figure3.draw(data)


def test_welchs_interval_against_the_formula():
    a, b = [1.0, 2.0, 4.0], [0.5, 0.7, 0.6, 0.4, 0.8]
    found = difference(a, b)
    va, vb = np.var(a, ddof=1) / 3, np.var(b, ddof=1) / 5
    freedom = (va + vb) ** 2 / (va**2 / 2 + vb**2 / 4)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(va + vb)
    middle = np.mean(a) - np.mean(b)
    assert (found.mean, found.low, found.high) == pytest.approx((middle, middle - half, middle + half))
    assert found.n == 3
    same = difference([2.0, 2.0], [1.0, 1.0])
    assert (same.mean, same.low, same.high) == (1.0, 1.0, 1.0)


def test_welchs_interval_of_a_contrast():
    """A weight is worth as much as values that are so many times as large; a group without weight is worth nothing."""
    a, b, c = [1.0, 2.0, 4.0], [0.5, 0.7, 0.6, 0.4, 0.8], [3.0, 5.0]
    assert contrast([(2, a), (-1, b), (0, c)]) == replace(difference([2 * x for x in a], b), n=2)
    assert contrast([(1, a), (-0.5, b), (-0.5, b)]).mean == pytest.approx(difference(a, b).mean)
    assert contrast([(1, a), (-1, [3.0])]).n == 1


def test_the_figure_draws_every_seed_of_both_games():
    data = made_up(seeds=3)
    left, right = figure3.draw(data).axes
    assert len(left.lines) == 2 * (3 + 1)
    # Big Leduc's and Leduc's seeds, each game's mean, and the line at zero.
    assert len(right.lines) == (3 + 1) + (5 + 1) + 1
    assert max(np.max(line.get_xdata()) for line in right.lines[:-1]) == 90, "Leduc is shown as far as Big Leduc goes"
    assert "mA/g" in left.get_ylabel()
    figure3.draw(made_up(every=(3, 6, 9), scale="smoke"))


def test_the_table_has_a_row_per_evaluation():
    data = made_up(every=(10, 15, 30))
    rows = figure3.table(data).split("\n")[2:]
    assert [int(row.split("|")[1]) for row in rows] == [20, 30, 60]
    assert [row.split("|")[-2].strip() == "–" for row in rows] == [True, False, False]
    assert str(mean_ci(100 * relative_gap(data)[30])) in rows[1]


def test_the_real_leduc_data_is_there(monkeypatch):
    monkeypatch.undo()
    curves = relative_gap(figure3.leduc())
    assert len(curves) == 5
    assert {30, 60, 90} <= set(points(curves))


def test_the_paper_scale_is_the_published_setting():
    """SD-CFR App. C; its end is ours, the last three lines are the authors' code's."""
    config = configs("experiment=figure3", "scale=paper")[0]
    game, algorithm, network = config.game, config.algorithm, config.network
    assert [game[key] for key in ("name", "ranks", "suits", "max_raises")] == ["big_leduc", 12, 2, 6]
    assert network is not None
    assert algorithm.traversals == 8800
    assert (algorithm.value.steps, algorithm.value.batch_size, algorithm.value.start) == (1200, 2816, "previous")
    assert (algorithm.average.steps, algorithm.average.batch_size) == (10_000, 5632)
    assert algorithm.average.start == "random"
    assert algorithm.value_capacity == algorithm.strategy_capacity == 4_000_000
    assert algorithm.memory == "reservoir"
    assert (network.architecture, network.width, network.card_width) == ("brown", 64, 64)
    assert algorithm.iterations == 150
    assert algorithm.snapshot_every == 15
    assert algorithm.value.clip_norm == algorithm.average.clip_norm == 10
    assert (algorithm.loss_weight, algorithm.divide_by_legal, algorithm.regret_unit) == ("t/T", True, 20)


@pytest.mark.slow
def test_laptop_keeps_what_makes_the_game_and_the_comparison():
    paper, laptop = (configs("experiment=figure3", f"scale={scale}")[0] for scale in ("paper", "laptop"))
    departed = deviations([hyperparameters(paper)], [hyperparameters(laptop)])
    sizes = {f"algorithm.{which}.{key}" for which in ("value", "average") for key in ("steps", "batch_size")}
    assert departed.keys() <= {"algorithm.iterations", *sizes}
    every = laptop.algorithm.snapshot_every
    evaluated = range(every, laptop.algorithm.iterations + 1, every)
    shared = [2 * t for t in evaluated if 2 * t in points(relative_gap(figure3.leduc()))]
    assert len(shared) >= 3
