"""What differs between runs, and whether their results do."""

from __future__ import annotations

import json
import re
import shutil

import pandas as pd
import pytest
from scipy import stats

from repro import compare, evaluate
from repro.comparing import differences
from repro.comparing.differences import equal_digits
from repro.evaluation.statistics import Estimate
from repro.tracking import record as records
from repro.tracking.folders import run_folder
from repro.tracking.rows import stored_evaluations
from tests.helpers.commands import SMALL, executed, key_of, trained_seeds


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Three seeds of a training, and one of another."""
    return trained_seeds(tmp_path_factory.mktemp("outputs"))


def test_digits():
    assert equal_digits(1.0, 1.0) == differences.ALL_DIGITS
    assert equal_digits(1234.5, 1234.6) == 4
    assert equal_digits(1.0, -1.0) == 0
    assert equal_digits(0.1 + 0.2, 0.3) in (15, 16)


def test_a_run_done_again_is_the_same_and_another_is_not(outputs, tmp_path, capsys):
    shutil.copytree(outputs, tmp_path / "both")
    again = key_of(*SMALL)[::-1]
    assert executed(*SMALL, f"output_dir={tmp_path / 'again'}") == records.FINISHED
    shutil.copytree(run_folder(tmp_path / "again", key_of(*SMALL)), run_folder(tmp_path / "both", again))
    words = ["--output", str(tmp_path / "both")]
    assert compare.main([key_of(*SMALL), again, *words]) == 0
    out = capsys.readouterr().out
    assert "configuration: the same" in out
    assert "versions and hardware: the same" in out
    assert compare.main([key_of(*SMALL)[:8], key_of(*SMALL, "algorithm.traversals=150"), *words]) == 1
    out = capsys.readouterr().out
    assert ["algorithm.traversals", "200", "150"] in [line.split() for line in out.splitlines()]
    assert "left out" not in out
    assert "code that determines them has changed since:" in out


@pytest.mark.exhaustive
def test_two_algorithms_are_compared_by_their_only_read_outs(tmp_path, capsys):
    both = "evaluation=[exploitability,strategy]"
    short = ("game=kuhn", "algorithm.iterations=4", "algorithm.snapshot_every=2", both)
    cfr, plus = (*short, "algorithm=cfr"), (*short, "algorithm=cfr_plus")
    for overrides in (cfr, plus, SMALL):
        assert executed(*overrides, f"output_dir={tmp_path}") == records.FINISHED
    words = ["--output", str(tmp_path)]
    assert compare.main([key_of(*cfr), key_of(*plus), *words]) == 1
    out = capsys.readouterr().out
    assert re.fullmatch(r"A: kuhn cfr seed=0: cfr [0-9.]+ mA/g", out.splitlines()[0])
    assert re.fullmatch(r"B: kuhn cfr_plus seed=0: cfr_plus [0-9.]+ mA/g", out.splitlines()[1])
    assert out.splitlines()[2] == "configuration:"
    assert out.splitlines()[4].split() == ["algorithm.name", "cfr", "cfr_plus"]
    table = next(line for line in out.splitlines() if "exploitability" in line and " | " in line)
    assert table.split()[:4] == ["cfr", "|", "cfr_plus", "exploitability"]
    assert "0 of 2" in table
    assert sum(" nodes_touched " in line for line in out.splitlines()) == 1, "though both evaluations noted it"
    assert " strategy/" not in out
    assert compare.main([key_of(*cfr), key_of(*plus), *words, "--all"]) == 1
    assert " strategy/" in capsys.readouterr().out
    # One with two read-outs has no partner for the only one of another.
    assert compare.main([key_of(*cfr), key_of(*SMALL), *words]) == 1
    out = capsys.readouterr().out
    assert "not compared" not in out
    assert "no read-out was measured in the same way on both sides; A has cfr, B has deep_cfr, sd_cfr" in out


def test_results_of_two_games_are_not_compared(tmp_path, capsys):
    sides = [
        (f"game={game}", "algorithm=cfr", "algorithm.iterations=2", "algorithm.snapshot_every=2")
        for game in ("kuhn", "leduc")
    ]
    for overrides in sides:
        assert executed(*overrides, f"output_dir={tmp_path}") == records.FINISHED
    assert compare.main([*(key_of(*overrides) for overrides in sides), "--output", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[2] == "results: not compared, for A is of kuhn and B of leduc"
    assert "read-out" not in out
    assert ["game.name", "kuhn", "leduc"] in [line.split() for line in out.splitlines()]


def test_runs_measured_at_no_common_iteration_are_shown_at_their_ends(tmp_path, capsys):
    sides = [
        ("game=kuhn", "algorithm=cfr", f"algorithm.iterations={n}", f"algorithm.snapshot_every={n}") for n in (3, 5)
    ]
    for overrides in sides:
        assert executed(*overrides, f"output_dir={tmp_path}") == records.FINISHED
    assert compare.main([*(key_of(*overrides) for overrides in sides), "--output", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "measured at no common iteration" in out
    (row,) = (line.split() for line in out.splitlines() if " exploitability " in line)
    assert (row[2], row[4]) == ("3", "5")
    assert float(row[5]) < float(row[3])  # CFR gets better, and A is the shorter one.


def test_several_seeds_are_compared_by_their_means(outputs, capsys):
    seeds = [key_of(*SMALL, f"seed={seed}") for seed in range(3)]
    assert compare.main([",".join(seeds[:2]), ",".join(seeds[1:]), "--output", str(outputs)]) == 0
    out = capsys.readouterr().out
    assert "B minus A with 95% intervals" in out
    assert "Welch's" in out
    assert "paired" not in out
    left_out = [f"  left out there: seed {seed}, of {side} alone\n" for side, seed in (("A", 0), ("B", 2))]
    assert "results of seed 1, at iterations that both have: " in out
    assert "".join(left_out) in out
    with_all = ",".join(seeds)
    assert compare.main([with_all, ",".join(reversed(seeds)), "--output", str(outputs)]) == 0
    out = capsys.readouterr().out
    assert "results of seeds 0, 1, 2, at iterations that both have: " in out
    assert out.count(" seed=0,1,2: ") == 2
    assert "means over seeds" not in out, "they are all alike"
    other = key_of(*SMALL, "algorithm.traversals=150")
    assert compare.main([f"{seeds[0]},{other}", seeds[1], "--output", str(outputs)]) == 2
    assert re.search(
        r"their seeds alone, and \w+ differs from \w+ in algorithm.traversals, too", capsys.readouterr().err
    )
    # Of one seed and another there are two values and their difference.
    assert compare.main([seeds[0], seeds[1], "--output", str(outputs)]) == 0
    out = capsys.readouterr().out
    assert "B minus A (an interval takes several seeds a side, as KEY,KEY):" in out
    measured = next(line.split() for line in out.splitlines() if " exploitability " in line)
    assert float(measured[5]) == pytest.approx(float(measured[4]) - float(measured[3]), rel=0.05)


@pytest.mark.parametrize("later", [0, 3])
def test_the_same_seeds_are_compared_in_pairs(later):
    """What seeds have in common, which here is most of it, does not count against a difference."""
    rows = [(seed, "sd_cfr", "exploitability", "k", "a", name, 10, value) for name, seed, value in [
        ("value", 0, 10.0), ("value", 1, 20.0), ("value", 2, 60.0), *(("nodes", seed, 7.0) for seed in range(3)),
    ]]  # fmt: skip
    columns = ["seed", "readout", "evaluation", "evaluation_key", "asked", "metric", "step", "value"]
    a = pd.DataFrame(rows, columns=columns)
    # In another order.
    b = a.assign(value=a.value + (a.seed + 1) * (a.metric == "value"), seed=a.seed + later)[::-1]
    (found,) = differences.means(a, b).to_dict("records")
    assert (found["metric"], found["a"], found["b"]) == ("value", 30.0, 32.0)
    if later:
        by_hand = stats.ttest_ind([11.0, 22.0, 63.0], [10.0, 20.0, 60.0], equal_var=False)
    else:
        by_hand = stats.ttest_1samp([1.0, 2.0, 3.0], 0)
    low, high = by_hand.confidence_interval()
    assert found["interval"] == ("Welch's" if later else "paired")
    assert str(found["apart"]) == str(Estimate(2.0, low, high, 3))


@pytest.mark.exhaustive
def test_matches_against_opponents_of_each_seed_are_averaged_over_seeds(outputs, tmp_path):
    """Each seed has its own opponent, which they all call alike."""
    shutil.copytree(outputs, tmp_path / "here")
    seeds = [key_of(*SMALL, f"seed={seed}") for seed in range(3)]
    for seed, key in enumerate(seeds):
        opponent = f"+evaluation.match.opponents.other={seeds[seed - 1]}/sd_cfr"
        assert evaluate.run([key, "evaluation=match", opponent], str(tmp_path / "here")) == 0
    sides = [
        differences.side_of(tmp_path / "here", name, ",".join(k)) for name, k in (("A", seeds[:2]), ("B", seeds[1:]))
    ]
    found = differences.means(*differences.with_lone_read_outs(*sides))
    assert (found.metric == "match/other/value").sum() == 2, "of two read-outs"
    assert all(found[found.metric == "match/other/value"].apart.map(lambda apart: apart.low < apart.high))
    same = differences.number_by_number(*differences.with_lone_read_outs(sides[0], sides[0]))
    assert same[same.metric == "match/other/value"].numbers.tolist() == [12, 12], "two seeds, six snapshots"
    # Whoever meets two that are called alike has them apart, and each is compared with itself alone.
    other = f"+evaluation.match.opponents.other={seeds[1]}/deep_cfr"
    assert evaluate.run([seeds[0], "evaluation=match", other], str(tmp_path / "here")) == 0
    tables = differences.with_lone_read_outs(*sides)
    common = differences.number_by_number(*tables)
    assert (common.metric == "match/other/value").sum() == 2, "seed 1's opponent is common"
    assert "match/other/value" not in set(differences.means(*tables).metric), "which both have alike"
    both = differences.number_by_number(*differences.with_lone_read_outs(sides[0], sides[0]))
    assert both[both.metric.str.startswith("match/other/value")].numbers.tolist() == [6] * 6
    (said,) = differences.opponents(*sides)
    assert said.startswith("other: ")


def test_a_stored_evaluation_that_does_not_say_what_it_is_of_is_told_and_left_out(tmp_path, capsys):
    (tmp_path / "evaluations").mkdir()
    named = {"readout": {"name": "sd_cfr"}, "evaluation": {"name": "exploitability"}}
    for key, content in {"good": named, "nameless": {"readout": {"name": "sd_cfr"}}, "list": []}.items():
        stored = {**content, "rows": {"3": {"exploitability": 1.5}}} if isinstance(content, dict) else content
        (tmp_path / "evaluations" / f"{key}.json").write_text(json.dumps(stored))
    (found,) = stored_evaluations(tmp_path)
    assert (found.key, found.about["readout"]["name"], found.rows) == ("good", "sd_cfr", {3: {"exploitability": 1.5}})
    told = capsys.readouterr().err
    assert [told.count(f"{key}.json is damaged") for key in ("good", "nameless", "list")] == [0, 1, 1]
