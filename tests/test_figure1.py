"""Figure 1's functions on made-up data whose verdicts are known, and its configurations against the paper."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from paper_figures import figure1
from paper_figures.exploitability_curves import exploitability, points
from repro.common.errors import ReproError
from repro.evaluation.statistics import Estimate, bands, mean_ci
from repro.figures import claims as claims_of
from repro.figures import frame, page
from tests.helpers.commands import configs
from tests.helpers.figures import cells, verdicts


def made_up(*, sd=1.0, deep=1.2, capped=1.5, scale="laptop", swing=0.3, full_swing=0.02, seeds=5, iterations=2500):
    """Curves that fall like the paper's times a factor, with a little noise per seed; capped ones swing."""
    rng = np.random.default_rng(0)
    steps = np.arange(15, iterations + 1, 15)
    paper = figure1.reference()
    rows = []
    for seed in range(seeds):
        noise = 1 + 0.02 * rng.standard_normal()
        trend = np.exp(np.interp(np.log(2 * steps), np.log(paper.index), np.log(paper.sd_cfr))) * noise
        swings = np.exp(swing * (-1.0) ** np.arange(len(steps)))
        base = trend * np.exp(full_swing * rng.standard_normal(len(steps)))
        curves = {"sd_cfr": sd * base, "deep_cfr": deep * base}
        for capacity in figure1.CAPACITIES:
            full = 2 * steps < 2 * capacity
            curves[f"sd_cfr_{capacity}"] = np.where(full, sd * base, capped * trend * swings)
        for algorithm, values in curves.items():
            rows += [
                ("figure1", scale, "", algorithm, seed, "exploitability", s, v)
                for s, v in zip(steps, values, strict=True)
            ]
    return pd.DataFrame(rows, columns=["target", "scale", "sweep", "readout", "seed", "metric", "step", "value"])


GAPS = ("sd_below_deep", "gap_as_large", "sd_below_deep_at_the_end", "gap_at_the_end_as_large")


def with_fresh(data):
    """`data`, and the same once more as seeds that ran after a rule had been settled."""
    return pd.concat([data, data.assign(sweep="fresh", seed=data.seed + 5)])


def test_claims_hold_on_data_like_the_papers():
    found = verdicts(figure1, with_fresh(made_up()))
    assert found["sd_below_deep"] == found["sd_below_deep_at_the_end"] == claims_of.HELD
    assert found["gap_as_large"] == claims_of.HELD
    assert verdicts(figure1, made_up(deep=1.02))["gap_as_large"] == claims_of.DID_NOT_HOLD
    assert verdicts(figure1, made_up(deep=1.8))["gap_as_large"] == claims_of.DID_NOT_HOLD
    assert found["gap_at_the_end_as_large"] == claims_of.HELD
    assert verdicts(figure1, made_up(deep=1.8))["gap_at_the_end_as_large"] == claims_of.DID_NOT_HOLD
    assert found["sd_cfr_falls"] == found["deep_cfr_falls"] == claims_of.HELD
    assert found["sd_cfr_at_300"] == found["deep_cfr_at_300"] == claims_of.HELD
    assert found["capacity_10_ends_above"] == found["capacity_1000_ends_above"] == claims_of.HELD
    assert found["x_counts_player_updates"] == found["x_counts_player_updates_unseen"] == claims_of.HELD
    assert found["capacity_10_oscillates"] == claims_of.HELD
    assert all(found[f"{name}_unseen"] == claims_of.HELD for name in GAPS)


def test_claims_fail_on_data_that_contradicts_them():
    found = verdicts(figure1, made_up(sd=1.5, deep=1.2, capped=0.9, swing=0.0, full_swing=0.2))
    assert found["sd_below_deep"] == claims_of.DID_NOT_HOLD
    assert found["capacity_10_ends_above"] == claims_of.DID_NOT_HOLD
    assert found["capacity_10_oscillates"] == claims_of.DID_NOT_HOLD


def test_what_a_scale_cannot_show_is_not_judged():
    found = verdicts(figure1, made_up(iterations=150))
    assert found["sd_cfr_at_300"] == claims_of.HELD
    assert found["sd_cfr_at_510"] == claims_of.NOT_TESTABLE
    assert found["capacity_50_ends_above"] == claims_of.HELD
    assert found["capacity_100_ends_above"] == found["capacity_100_plateaus"] == claims_of.NOT_TESTABLE
    assert set(verdicts(figure1, made_up(scale="smoke")).values()) == {claims_of.NOT_TESTABLE}


def test_a_verdict_needs_the_whole_interval_on_one_side():
    assert claims_of.above(Estimate(1, 0.5, 1.5, 5), 0) == claims_of.HELD
    assert claims_of.above(Estimate(1, -0.5, 2.5, 5), 0) == claims_of.UNDECIDED
    assert claims_of.above(Estimate(-1, -1.5, -0.5, 5), 0) == claims_of.DID_NOT_HOLD
    assert claims_of.below(Estimate(-1, -1.5, -0.5, 5), 0) == claims_of.HELD
    assert claims_of.below(Estimate(0.1, -1.5, 1.7, 5), 0) == claims_of.UNDECIDED
    assert claims_of.below(Estimate(1, 0.5, 1.5, 5), 0) == claims_of.DID_NOT_HOLD


def test_a_value_may_differ_by_a_factor_either_way():
    found = [verdicts(figure1, made_up(sd=factor))["sd_cfr_at_300"] for factor in (0.6, 0.9, 1.1, 1.3, 1.6)]
    assert found == [claims_of.DID_NOT_HOLD, *[claims_of.HELD] * 2, claims_of.UNDECIDED, claims_of.DID_NOT_HOLD]


def test_the_other_reading_of_the_axis_can_win():
    """Curves that reach the paper's values in as many iterations as its x says."""
    data, slow = made_up(), figure1.reference()
    for row in data[data.readout.isin(["sd_cfr", "deep_cfr"])].itertuples():
        paper = np.interp(np.log(row.step), np.log(slow.index), np.log(slow[row.readout]))
        data.loc[row.Index, "value"] = np.exp(paper) * (1 + 0.01 * row.seed)
    found = verdicts(figure1, with_fresh(data))
    assert found["x_counts_player_updates"] == found["x_counts_player_updates_unseen"] == claims_of.DID_NOT_HOLD


def test_what_was_seen_when_the_axis_rule_was_settled_is_no_part_of_the_clean_test():
    data = made_up()
    fresh = data.assign(sweep="fresh")
    both = [pd.concat([data.assign(value=k * data.value), fresh]) for k in (1, 1.5)]
    claims = [{c.id: c for c in figure1.claims(d)} for d in both]
    assert len({d["x_counts_player_updates_unseen"].measured for d in claims}) == 1
    assert len({d["x_counts_player_updates"].measured for d in claims}) == 2
    for name in GAPS:
        assert len({d[f"{name}_unseen"].measured for d in claims}) == 1
        assert len({d[name].measured for d in claims}) == 2
    assert claims[0]["sd_below_deep"] == {c.id: c for c in figure1.claims(data)}["sd_below_deep"]
    assert verdicts(figure1, data)["x_counts_player_updates_unseen"] == claims_of.NOT_TESTABLE


def test_a_curve_that_no_longer_falls_has_a_plateau():
    data = made_up(seeds=3)
    capped = (data.readout == "sd_cfr_50") & (2 * data.step >= 100)
    for level, verdict in ((lambda x: 150 + 0 * x, claims_of.HELD), (lambda x: 9e5 / x**2, claims_of.DID_NOT_HOLD)):
        data.loc[capped, "value"] = level(2.0 * data.step[capped])
        assert verdicts(figure1, data)["capacity_50_plateaus"] == verdict


def test_curves_of_our_own_are_drawn_and_not_judged():
    data = made_up(seeds=3)
    beside = [data[data.readout != "sd_cfr_10"].assign(sweep="aggregated")]
    exact = data[(data.readout == "sd_cfr") & (data.seed == 0)]
    beside.append(exact.assign(sweep="linear_cfr", readout="linear_cfr"))
    together = pd.concat([data.assign(sweep="published"), *beside], ignore_index=True)
    assert figure1.claims(together) == figure1.claims(data)
    labels = [str(line.get_label()) for line in figure1.draw(together).axes[0].lines]
    assert {"SD-CFR, memory of all samples (ours, mean)", "Linear CFR, exact, on tables"} <= set(labels)
    assert "memory of all samples" in figure1.table(together)


def test_what_is_before_the_first_evaluation_is_shown_and_not_judged():
    data = made_up(iterations=150)
    start = data[data.step == 15].assign(sweep="start", step=5)
    both = pd.concat([data, start], ignore_index=True)
    assert figure1.claims(both) == figure1.claims(data)
    assert points(figure1.from_the_start(both, "deep_cfr"))[:2] == [10, 30]
    whose = [row for row in cells(figure1.table(both)) if "aicenter/openspiel_reproductions" in row]
    assert [(row[0], row[-1]) for row in whose] == [("10", "10"), ("120", "120"), ("320", "300")]
    drawn = figure1.draw(both).axes[0].lines
    assert min(float(np.min(line.get_xdata())) for line in drawn) == 10


def test_values_are_paired_by_seed():
    data = made_up(seeds=4)
    by_id = {c.id: c for c in figure1.claims(data)}
    deep, sd = exploitability(data, "deep_cfr"), exploitability(data, "sd_cfr")
    expected = mean_ci((deep - sd)[[x for x in figure1.reference().index if x > 30]].mean(axis=1))
    assert by_id["sd_below_deep"].measured == expected
    assert points(deep)[:2] == [30, 60]


def test_the_figure_draws_every_seed_and_the_papers_points():
    data = made_up(seeds=3)
    left, right = figure1.draw(data).axes
    labels = [line.get_label() for line in left.lines]
    assert "SD-CFR, ours" in labels
    assert "Deep CFR, paper (digitised by a third party)" in labels
    assert len(left.lines) == 2 * (3 + 1 + 1)
    assert len(right.lines) == (len(figure1.CAPACITIES) + 1) * (3 + 1)
    assert "mA/g" in left.get_ylabel()


def test_one_seed_has_no_interval(tmp_path):
    data = made_up(seeds=1)
    found = figure1.claims(data)
    assert {c.id: c.verdict for c in found}["sd_below_deep"] == claims_of.UNDECIDED, "one run proves nothing"
    claims_of.write(found, tmp_path / "claims.json")
    assert json.loads((tmp_path / "claims.json").read_text())[0]["measured"]["low"] is None
    figure1.draw(data)


def test_the_page_is_filled_in_and_its_prose_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGES", tmp_path)
    folder = tmp_path / "results" / "figure1-laptop"
    folder.mkdir(parents=True)
    data = made_up(seeds=2, iterations=150)
    frame.write(data.assign(sweep="", algorithm="sd_cfr_and_deep_cfr"), folder / "data.csv")
    claims_of.write(figure1.claims(data), folder / "claims.json")
    versions = (
        "python",
        "torch",
        "pytorch-lightning",
        "hydra-core",
        "mlflow",
        "cpu",
        "cores",
        "git_commit",
        "git_dirty",
    )
    sweep = {
        "command": "python -m repro.run", "seeds": [0, 1], "wall_seconds": [60.0, 120.0],
        "deviations_from_paper": {"algorithm.iterations": [2500, 150]}, **{v: ["x"] for v in versions},
    }  # fmt: skip
    other = {**sweep, "deviations_from_paper": {}, "evaluation": {}, "evaluation_seconds": [30.0, 240.0]}
    sweeps = [{**s, "config": {"algorithm": {"name": n}}} for s, n in ((sweep, "one"), (other, "another"))]
    provenance = {"drawn_on": "2026-01-01", "sweeps": sweeps}
    (folder / "provenance.json").write_text(json.dumps(provenance))
    block = "<!-- results laptop -->\nstale\n<!-- end laptop -->\nafter\n"
    (tmp_path / "figure1.md").write_text(f"before\n{block}")
    with pytest.raises(ReproError, match=r"figure1\.md has no line '    make figure1  # ...' in its usage"):
        page.filled_in("figure1", "laptop", figure1, folder)
    usage = "    make figure1    # laptop scale; trainings took 9 minutes, one after another, without evaluations\n"
    (tmp_path / "figure1.md").write_text(f"before\n{usage}{block}")
    text = page.filled_in("figure1", "laptop", figure1, folder)
    clock = "by the clock"
    assert usage.replace("9 minutes", f"3 minutes, {clock}") in text, (
        "of one sweep it is not known what evaluations took"
    )
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale" not in text
    assert ["`algorithm.iterations`", "2500", "150", "0.06"] in cells(text)
    assert "`another`:\n\nNone: everything" in text
    assert text.count("; seeds 0, 1; ") == 2
    assert text.count("All on x with x cores") == 1
    measured = f"3.0 min in all {clock}, and 4.5 min of evaluations."
    assert text.count(measured) == text.count(" of evaluations") == 1
    assert "**held**" in text
    with pytest.raises(ReproError, match="no block"):
        page.filled_in("figure1", "paper", figure1, folder)
    (folder / "claims.json").write_bytes(bytes(100))
    with pytest.raises(ReproError, match="no figure that can be read"):
        page.filled_in("figure1", "laptop", figure1, folder)


def test_the_paper_scale_is_the_published_setting():
    """SD-CFR App. A; below, what is in the authors' code alone."""
    config = configs("experiment=figure1", "scale=paper")[0].algorithm
    assert config.traversals == 1500
    assert (config.value.steps, config.value.batch_size, config.value.start) == (750, 2048, "previous")
    assert (config.average.steps, config.average.batch_size, config.average.start) == (5000, 2048, "random")
    assert config.value_capacity == config.strategy_capacity == 1_000_000
    assert config.value.learning_rate == 1e-3
    assert config.memory == "reservoir"
    assert config.value.clip_norm == config.average.clip_norm == 10
    assert (config.loss_weight, config.divide_by_legal, config.regret_unit) == ("t/T", True, 2.6)
    assert (config.when_no_positive, config.snapshot_every) == ("argmax", 15)
    # Both panels read the same trainings.
    assert [r.capacity for r in config.readouts.values() if r.kind == "ensemble"] == [None, *figure1.CAPACITIES]


def test_student_interval_against_a_table():
    # t(0.975, 4) = 2.776; s.d. of 1..5 is sqrt(2.5).
    estimate = mean_ci([1, 2, 3, 4, 5])
    half = 2.776445 * np.sqrt(2.5) / np.sqrt(5)
    assert (estimate.mean, estimate.low, estimate.high) == pytest.approx((3, 3 - half, 3 + half), rel=1e-6)
    assert str(mean_ci([2.0])) == "2"
    assert isinstance(mean_ci([2.0]), Estimate)
    with pytest.raises(ValueError, match="non-empty"):
        mean_ci([])


def test_bands_cover_the_mean_about_as_often_as_they_say():
    rng = np.random.default_rng(1)
    covered = [e.low < 0 < e.high for e in (mean_ci(rng.standard_normal(5)) for _ in range(2000))]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
    assert bands(list(rng.standard_normal((5, 7))))["mean"].shape == (7,)
