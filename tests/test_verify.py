"""Published data against new: numbers, claims, what can be repeated, and the command as a whole."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from paper_figures import exploitability_curves
from repro import verify
from repro.common.errors import ReproError
from repro.comparing import shortening, verifying
from repro.comparing.shortening import Request, shortened
from repro.figures import agreement, collecting, drawing, frame, page
from repro.figures import claims as claims_of
from repro.figures.agreement import DIFFERS, SAME
from repro.figures.targets import ROOT, Options, PlannedSweep, plan_target
from repro.tracking import provenance, staleness
from repro.tracking.repetition import Repetition
from tests.helpers.commands import SMALL, configs

# -- what can be repeated --------------------------------------------------------------------------------------------


def request_for(target: str, tmp_path: Path, **others: object) -> Request:
    return Request(target, Options("laptop", tmp_path, 1, "cpu", force=False), **others)  # type: ignore[arg-type]


def published(target: str) -> pd.DataFrame:
    return frame.read(frame.data_file(ROOT / "paper_figures" / "results" / f"{target}-laptop"))


def lengths(request: Request, data: pd.DataFrame) -> dict[str, set[tuple[int, int]]]:
    """Sweep -> seeds and lengths."""
    sweeps = shortened(request, data, []).sweeps
    return {sweep.name: {(c.seed, c.algorithm.iterations) for c in sweep.configs} for sweep in sweeps}


def test_the_first_measured_iteration_of_the_first_seed_or_more(tmp_path):
    data = published("figure1")
    assert lengths(request_for("figure1", tmp_path), data) == {
        "published": {(0, 15)}, "start": {(0, 5)}, "linear_cfr": {(0, 5)},
    }  # fmt: skip
    more = request_for("figure1", tmp_path, iterations=50, seeds=2)
    assert lengths(more, data) == {
        "published": {(0, 45), (1, 45)}, "start": {(0, 10), (1, 10)}, "linear_cfr": {(0, 50)},
    }  # fmt: skip
    short = shortened(request_for("figure1", tmp_path, iterations=3), data, [])
    assert not short.sweeps
    assert "published is not compared: it was not measured in its first 3 iterations." in short.left_out


def test_nothing_of_the_users_own_runs_is_touched(tmp_path):
    for sweep in shortened(request_for("figure1", tmp_path), published("figure1"), []).sweeps:
        for config in sweep.configs:
            assert config.output_dir == str(tmp_path / "verify")
            assert config.target == "verify"
            assert config.force


@pytest.mark.exhaustive
def test_what_needs_other_trainings_is_left_out_and_told(tmp_path):
    short = shortened(request_for("figure7", tmp_path, sweeps=["d2cfr"]), published("figure7"), [])
    (sweep,) = short.sweeps
    assert all("match" not in config.evaluation and config.evaluation for config in sweep.configs)
    assert "d2cfr is compared without match, which needs other trainings." in short.left_out
    with pytest.raises(
        ReproError, match=r"nothing of figure10 .* it learns from all that runs of solved_subgames leave"
    ):
        verifying.verify(request_for("figure10", tmp_path, sweeps=["setting_i"]))
    with pytest.raises(ReproError, match=r"--sweep is 'd2cf'; those of figure6 are .* \(did you mean d2cfr\?\)"):
        shortened(request_for("figure6", tmp_path, sweeps=["d2cf"]), published("figure6"), [])


def test_a_sweep_without_numbers_of_its_own_is_not_compared(tmp_path, monkeypatch):
    def matches_only(target: str, options: Options) -> tuple[list[PlannedSweep], list]:
        sweeps, rest = plan_target(target, options)
        for sweep in sweeps:
            for config in sweep.configs:
                config.evaluation = {n: e for n, e in config.evaluation.items() if n == "match"}
        return sweeps, rest

    monkeypatch.setattr(shortening, "plan_target", matches_only)
    short = shortened(request_for("figure7", tmp_path, sweeps=["d2cfr"]), published("figure7"), [])
    assert not short.sweeps
    assert short.left_out == ["d2cfr is not compared: all that is measured of it needs other trainings."]


def test_published_verdicts_are_those_of_todays_rules(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["verify", "figure1", "--claims"])
    assert verify.main() == 0
    assert "all verdicts are those of today's rules" in capsys.readouterr().out
    monkeypatch.setattr(agreement, "published_verdicts", lambda _: {"sd_cfr_falls": "undecided", "old": "held"})
    assert verify.main() == 1
    told = capsys.readouterr().out
    assert "  sd_cfr_falls: published: undecided, today's rules: held\n" in told
    assert "  old: published: held, today's rules: –\n" in told


# -- the command -----------------------------------------------------------------------------------------------------


class Module:
    """In place of a target's module."""

    @staticmethod
    def claims(data: pd.DataFrame) -> list[claims_of.Claim]:
        last = exploitability_curves.exploitability(data, "sd_cfr").iloc[:, -1]
        verdict = claims_of.HELD if last.mean() < 500 else claims_of.DID_NOT_HOLD
        return [claims_of.Claim("low", "", "", verdict, None, "")]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _with_database) -> Path:
    """A published target of two seeds on Kuhn poker, which was made by the command for figures."""

    def planned(target: str, options: Options) -> tuple[list[PlannedSweep], list]:
        where = [f"output_dir={options.output}"]
        return [PlannedSweep("", "", configs(*SMALL, "seed=range(2)", *where), SMALL)], []

    ours = Options("laptop", tmp_path, 1, "cpu", force=False)
    sweeps, _ = planned("figure1", ours)
    assert verifying._repeat(sweeps, 1)
    folder = tmp_path / "paper_figures" / "results" / "figure1-laptop"
    folder.mkdir(parents=True)
    data = collecting.measured("figure1", "laptop", sweeps)
    frame.write(data, folder / "data.csv")
    claims_of.write(Module.claims(data), folder / "claims.json")
    (folder / "provenance.json").write_text(json.dumps({"sweeps": [collecting.provenance_of(sweeps[0])]}))
    # The files may not be those of a commit while they are worked on.
    monkeypatch.setattr(staleness, "staleness", lambda _: staleness.Staleness([], 1))
    monkeypatch.setattr(shortening, "plan_target", planned)
    monkeypatch.setattr(drawing, "ROOT", tmp_path)
    for name, value in (("ROOT", tmp_path), ("module_of", lambda _: Module)):
        monkeypatch.setattr(verifying, name, value)
    return folder


def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["verify", "figure1", "--jobs", "1", "--output", str(tmp_path), *arguments])
    return verify.main()


@pytest.mark.exhaustive
def test_runs_agree_with_themselves_and_with_nothing_else(small, tmp_path, monkeypatch, capsys):
    runs = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert answer(tmp_path, monkeypatch, "--iterations", "12", "--seeds", "2") == 0
    told = capsys.readouterr().out
    assert "machine, versions, settings and code are the same, so numbers must be" in told
    assert "seed 0, 1, up to iteration 10" in told
    assert "none differs in digits" in told
    assert "not measured anew" not in told
    assert "everything that was judged agrees" in told
    assert "repeated" not in json.loads((small / "provenance.json").read_text())["sweeps"][0]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*") if path.is_file()} == runs

    data = frame.read(small / "data.csv")
    wrong = (data.metric == "exploitability") & (data.step == 5) & (data.seed == 0) & (data.readout == "sd_cfr")
    assert wrong.sum() == 1
    frame.write(data.assign(value=data.value.where(~wrong, data.value * 1.001)), small / "data.csv")
    assert answer(tmp_path, monkeypatch) == 1
    told = capsys.readouterr().out
    assert "1 different\n  sd_cfr exploitability, seed 0, iteration 5: published" in told
    assert "published data and today's code do not agree" in told

    # What is found is kept if that is asked for, whatever it is.
    monkeypatch.setattr(verifying, "_commit", lambda: "c" * 40)
    assert answer(tmp_path, monkeypatch, "--record") == 1
    kept = Repetition.kept(json.loads((small / "provenance.json").read_text())["sweeps"][0])
    assert kept
    assert (kept.commit, kept.seeds, kept.iterations, kept.agrees) == ("c" * 40, [0], [5], False)
    assert kept.numbers[DIFFERS] == 1
    assert kept.numbers[SAME] > 1
    told = capsys.readouterr().out
    assert f"{sum(kept.numbers.values())} numbers, 1 differ in digits" in told
    assert "nothing is kept" not in told

    # Of another machine, two seeds say nothing of that number.
    provenance = json.loads((small / "provenance.json").read_text())
    assert {"instructions", "numba", "scipy"} <= provenance["sweeps"][0].keys()
    provenance["sweeps"][0]["cpu"] = ["another"]
    (small / "provenance.json").write_text(json.dumps(provenance))
    assert answer(tmp_path, monkeypatch) == 0
    told = capsys.readouterr().out
    assert "1 not judged" in told
    assert "another kind of machine (cpu another there" in told

    # Of none of them, if all differ: what was kept before stays.
    frame.write(data.assign(value=data.value * (1.1 + 0.1 * data.seed)), small / "data.csv")
    assert answer(tmp_path, monkeypatch, "--record") == 1
    told = capsys.readouterr().out
    assert "nothing is kept of sd_cfr_and_deep_cfr: no number was judged" in told
    assert "no number was judged, so nothing is known" in told
    assert Repetition.kept(json.loads((small / "provenance.json").read_text())["sweeps"][0]) == kept


@pytest.mark.exhaustive
def test_seeds_that_were_not_run_together_are_judged_and_kept_each_with_its_own_runs(
    small, tmp_path, monkeypatch, capsys
):
    file = small / "provenance.json"
    (both,) = json.loads(file.read_text())["sweeps"]
    keys = page.names_of_runs(both)
    parts = [
        {**both, "seeds": [seed], "rerun": f"python -m repro.rerun {keys[seed]}", "cpu": cpu}
        for seed, cpu in enumerate((both["cpu"], ["another"]))
    ]
    file.write_text(json.dumps({"sweeps": parts}))
    monkeypatch.setattr(verifying, "_commit", lambda: "c" * 40)
    assert answer(tmp_path, monkeypatch, "--record") == 0
    here, elsewhere = capsys.readouterr().out.split("- sd_cfr_and_deep_cfr, seed ")[1:]
    assert here.startswith("0, up to iteration 5: ")
    assert "so numbers must be" in here
    assert elsewhere.startswith("1, up to iteration 5: ")
    assert "another kind of machine (cpu another there" in elsewhere
    kept = [Repetition.kept(part) for part in json.loads(file.read_text())["sweeps"]]
    assert [each and each.seeds for each in kept] == [[0], [1]]


@pytest.mark.exhaustive
def test_nothing_is_kept_with_runs_that_were_published_meanwhile(small, tmp_path, monkeypatch, capsys):
    file, repeat = small / "provenance.json", verifying._repeat

    def publishing_meanwhile(*arguments: Any) -> bool:
        made = repeat(*arguments)
        published = json.loads(file.read_text())
        published["sweeps"][0]["git_commit"] = ["d" * 40]
        file.write_text(json.dumps(published))
        return made

    monkeypatch.setattr(verifying, "_commit", lambda: "c" * 40)
    monkeypatch.setattr(verifying, "_repeat", publishing_meanwhile)
    answer(tmp_path, monkeypatch, "--record")
    assert "nothing is kept of sd_cfr_and_deep_cfr: other runs were published meanwhile" in capsys.readouterr().out
    (part,) = json.loads(file.read_text())["sweeps"]
    assert part["git_commit"] == ["d" * 40]
    assert "repeated" not in part


@pytest.mark.exhaustive
def test_nothing_is_kept_of_code_that_is_in_no_commit(small, tmp_path, monkeypatch, capsys):
    answers = {"status": " M repro/running/training.py\n", "rev-parse": "c" * 40}
    monkeypatch.setattr(provenance, "git", lambda command, *_: answers[command])
    assert answer(tmp_path, monkeypatch, "--record") == 2
    assert "error: --record keeps the commit that repeated runs, but files" in capsys.readouterr().err
    assert not (tmp_path / "verify").exists()
    answers["status"] = ""
    assert verifying._commit() == "c" * 40


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["figur1"], "error: target 'figur1' is unknown (did you mean figure1?)"),
        ([], "error: TARGET is missing"),
        (["figure1", "--iterations", "0"], "error: --iterations is 0; it must be at least 1."),
        (["figure1", "--seeds", "-1"], "error: --seeds is -1; it must be at least 1."),
        (["figure1", "--jobs", "0"], "error: --jobs is 0; it must be from 1 to 1024."),
        (["figure1", "--scale", "lap"], "error: --scale is 'lap'; it must be one of"),
        (["figure1", "--output", ""], "error: --output is ''; it must be the name of a folder."),
        (["--claims", "--seeds", "2"], "error: --seeds says how runs are repeated; --claims and --stale repeat none."),
        (["--claims", "--record"], "error: --record says how runs are repeated; --claims and --stale repeat none."),
        (["--stale", "--sweep", "x"], "error: --sweep says how runs are repeated; --claims and --stale repeat none."),
        (["figure1", "--refresh"], "error: --refresh goes with --stale"),
        (["figure1", "--stale", "--scale", "night"], "error: of figure1, nothing is published at scale night."),
        (["--claims", "--scale", "smoke"], "error: of all targets, nothing is published at scale smoke."),
        (["figure1", "--scale", "night"], "error: of figure1, nothing is published at scale night (but at laptop"),
    ],
)
def test_faulty_requests(monkeypatch, capsys, arguments, sentence):
    monkeypatch.setattr(sys, "argv", ["verify", *arguments])
    assert verify.main() == 2
    error = capsys.readouterr().err
    assert error.startswith(sentence)
    assert error.count("\n") == 1
