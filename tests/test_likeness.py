"""How long a training takes and what its folder holds, told by trainings like it, or by its configuration alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from repro import figure
from repro.config.keys import as_plain, hyperparameters
from repro.config.schema import RegressionConfig
from repro.estimates import likeness, outlook
from repro.estimates.disk import most_bytes
from repro.plans.planning import plan
from repro.tracking import staleness
from tests.helpers.commands import SMALL, configs, key_of, planned

EXAMPLE = likeness.Example(
    "an example", "deep_cfr", hyperparameters(configs(*SMALL, multirun=False)[0]), lambda: {30: 600.0}
)
"""A training that took ten minutes."""


@pytest.mark.parametrize(
    ("overrides", "minutes"),
    [
        ([], "10.0"),
        (["algorithm.iterations=60"], "20.0"),
        (["algorithm.value.steps=60"], "10.0 to 20.0"),
        (["algorithm.value.steps=15", "algorithm.iterations=60"], "10.0 to 20.0"),
        (["algorithm.average.steps=10", "algorithm.traversals=600"], "5.0 to 30.0"),
        (["algorithm.value.steps=60", "algorithm.value.batch_size=256"], "10.0 to 80.0"),
        (["algorithm.value.learning_rate=0.1"], "10.0"),
        (["algorithm.value.more_steps=6"], "10.0 to 39.0"),  # 117 for 30, in the mean of 30 iterations.
    ],
)
def test_minutes_are_a_span_where_work_is_multiplied(tmp_path, overrides, minutes):
    """None of an example's time may have gone where there is more to do, or all of it."""
    (config,) = configs(*SMALL, *overrides, f"output_dir={tmp_path}", multirun=False)
    found = outlook._outlook("label", config, [EXAMPLE])
    assert outlook._number(found.minutes) == minutes
    jobs = outlook.totals([found, found], 2)
    assert f"; about {' to '.join(str(2 * float(end)) for end in minutes.split(' to '))} minutes of training l" in jobs
    assert f" left, {minutes} minutes with 2 at once, and evaluations beside; " in jobs


def test_a_training_with_more_parts_says_what_one_takes_at_the_most(tmp_path):
    """SD-CFR has no average network; what Deep CFR's took of the time nobody knows."""
    fewer = (s for s in SMALL if not s.startswith(("algorithm=", "algorithm.average")))
    (config,) = configs(*fewer, "algorithm=sd_cfr", f"output_dir={tmp_path}", multirun=False)
    found = outlook._outlook("label", config, [EXAMPLE])
    assert found.minutes is not None
    assert found.minutes == pytest.approx((0.0, 10.0))
    assert found.source == "an example, different in algorithm.name, and training algorithm.average, too: at the most"
    # The other way round nothing is known.
    (both,) = configs(*SMALL, f"output_dir={tmp_path}", multirun=False)
    less = likeness.Example("less", "deep_cfr", hyperparameters(config), lambda: {30: 600.0})
    assert outlook._outlook("label", both, [less]).minutes is None
    # A part of it that is the same training is no part that is more.
    assert outlook._outlook("label", config, [EXAMPLE, less]).source == "less"


def test_what_the_first_iteration_compiles_is_not_multiplied():
    short = replace(EXAMPLE, seconds=lambda: {1: 28.0, 5: 30.0})
    (config,) = configs(*SMALL, "algorithm.iterations=150", multirun=False)
    work = config.algorithm.work
    assert short.taken(config) == pytest.approx(30 + 2 * (work(150) - work(5)) / (work(5) - work(1)))
    assert short.taken(config) < 30 * work(150) / work(5)


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        ((20.0, 160.0), "20.0 to 160.0 minutes"),
        ((187.4, 1806.3), "3.1 to 30.1 hours"),
        ((9e4, 9e4), "62.5 days"),
        ((0.0, 4.9), "less than 4.9 minutes"),
        ((0.01, 0.02), "less than 0.1 minutes"),
        ((0.0, 0.0), "0.0 minutes"),
        ((0.0, 600.0), "less than 10.0 hours"),
        ((0.0, 0.14), "less than 0.2 minutes"),
    ],
)
def test_long_spans_are_told_in_hours_or_days(minutes, told):
    assert outlook._long(minutes) == told


def test_among_trainings_with_other_steps_the_nearest_says_how_long(tmp_path):
    (config,) = configs(*SMALL, "algorithm.value.steps=60", f"output_dir={tmp_path}", multirun=False)
    others = [
        replace(EXAMPLE, name=f"{steps} steps", flat={**EXAMPLE.flat, "algorithm.value.steps": steps})
        for steps in (6, 90, 600)
    ]
    found = outlook._outlook("label", config, [EXAMPLE, *others])
    assert found.source == "90 steps, different in algorithm.value.steps"
    assert found.minutes == pytest.approx((10 * 60 / 90, 10))


@pytest.mark.parametrize(
    ("overrides", "source"), [([], "old"), (["algorithm.value.focus=0.5"], "old, different in algorithm.value.focus")]
)
def test_a_key_that_was_added_since_is_one_in_which_older_trainings_differ(tmp_path, overrides, source):
    (config,) = configs(*SMALL, "seed=7", *overrides, f"output_dir={tmp_path}", multirun=False)
    before = {key: value for key, value in EXAMPLE.flat.items() if not key.endswith(".focus")}
    assert len(before) < len(EXAMPLE.flat)
    old = likeness.Example("old", "deep_cfr", before, lambda: {30: 600.0})
    assert outlook._outlook("label", config, [old]).source == source


def test_one_published_run_that_took_long_by_the_clock_changes_no_plan(tmp_path, monkeypatch):
    """As one on a machine that slept."""
    (config,) = configs(*SMALL, multirun=False)
    keys = [key_of(*SMALL, f"seed={seed}") for seed in range(3)]
    sweep = {
        "config": as_plain(config), "seeds": [0, 1, 2], "wall_seconds": [60.0, 70.0, 9000.0],
        "rerun": " ".join(["python", "-m", "repro.rerun", *keys]),
    }  # fmt: skip
    (tmp_path / "provenance.json").write_text(json.dumps({"sweeps": [sweep]}))
    monkeypatch.setattr(staleness, "results", lambda: [tmp_path])
    (example,) = likeness.examples(tmp_path / "none")
    assert [example.taken(config) for config in configs(*SMALL, "seed=0,1,2,3")] == [70.0] * 4
    assert example.bytes(config) is None
    sweep["megabytes"] = [0.002, 0.0025, 0.0021]
    # Runs that differ in more have each its own.
    sweep["seeds"] = [0]
    (tmp_path / "provenance.json").write_text(json.dumps({"sweeps": [sweep]}))
    (example,) = likeness.examples(tmp_path / "none")
    assert [example.taken(config) for config in configs(*SMALL, "seed=0,1,2,3")] == [60.0, 70.0, 9000.0, 60.0]
    assert [example.bytes(each) for each in configs(*SMALL, "seed=0,1,2,3")] == [2.0e3, 2.5e3, 2.1e3, 2.0e3]
    length = f"algorithm.iterations={2 * config.algorithm.iterations}"
    (twice,) = outlook.outlooks(plan([*SMALL, length], False).runs, tmp_path / "none")
    assert twice.bytes == pytest.approx(4.0e3)
    # One that differs in more is no example of a size where there is a bound.
    (wider,) = outlook.outlooks(plan([*SMALL, "network.width=12"], False).runs, tmp_path / "none")
    assert wider.minutes is not None
    assert (wider.bytes, wider.most_bytes) == (None, most_bytes(planned(*SMALL, "network.width=12").config))
    # However large an example is, no more than the configuration allows.
    sweep["megabytes"] = [1e9] * 3
    (tmp_path / "provenance.json").write_text(json.dumps({"sweeps": [sweep]}))
    (bounded,) = outlook.outlooks(plan([*SMALL, length], False).runs, tmp_path / "none")
    assert bounded.bytes == most_bytes(planned(*SMALL, length).config)


def test_fresh_subgames_and_stored_ones_are_no_examples_of_each_other():
    """Solving is nine tenths of the work, and the one solves while it trains."""
    rivers = ("game=river_subgames", "algorithm=devn", "network=prelu")
    stored = planned(*rivers).config
    known = likeness.Example("stored", "", hyperparameters(stored), lambda: {20: 10.0})
    assert likeness.nearest(stored, [known])
    fresh = planned(*rivers, "algorithm.fresh=250", "algorithm.pool=1000").config
    assert not likeness.nearest(fresh, [known])
    assert likeness.nearest(fresh, [replace(known, flat=hyperparameters(fresh))])


def test_what_nothing_is_like_is_unknown(tmp_path):
    (found,) = outlook.outlooks(plan([*SMALL[1:], "game=big_leduc"], False).runs, tmp_path / "none")
    assert (found.state, found.key) == (outlook.NEW, key_of(*SMALL[1:], "game=big_leduc"))
    assert not (tmp_path / "none").exists()


def test_of_what_nothing_is_like_the_configuration_says_what_its_folder_takes_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(staleness, "results", list)
    (found,) = outlook.outlooks(plan([*SMALL[1:], "game=big_leduc"], False).runs, tmp_path / "none")
    assert (found.minutes, found.bytes) == (None, None)
    assert found.most_bytes is not None


def test_a_target_is_planned_without_being_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv", ["figure", "kuhn", "--scale", "smoke", "--plan", "--output", str(tmp_path / "none")]
    )
    assert figure.main() == 0
    assert " of training left, " in capsys.readouterr().out.splitlines()[-1]
    assert not (tmp_path / "none").exists()


def test_growing_fits_are_counted():
    regression = RegressionConfig(steps=5, batch_size=1, start="random", more_steps=3)
    assert regression.steps_until(7) == sum(regression.steps_at(t) for t in range(1, 8))
