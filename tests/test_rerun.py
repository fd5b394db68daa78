"""From a record back to a run: repeated to the last bit; what is reused says its commit; files stand for keys."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from repro import evaluate, match, predict, rerun
from repro.comparing import repeating
from repro.config.checks import game_for_checks
from repro.config.keys import training_config
from repro.figures.collecting import provenance_of
from repro.figures.published import RESULTS
from repro.figures.targets import PlannedSweep
from repro.inside import predicted
from repro.jobs import launching
from repro.policies import load_strategy
from repro.stored.trained import Trained
from repro.subgames.config import folder_of as subgames_of
from repro.subgames.data import SubgameData
from repro.subgames.subgames import Subgame
from repro.tracking import provenance, staleness
from repro.tracking import record as records
from repro.tracking.folders import PORTABLE, run_folder
from repro.tracking.mlflow_runs import RERUN_TAG
from tests.helpers.commands import SMALL, executed, key_of, planned, results, tracked

KUHN = (*SMALL, "algorithm.iterations=10")
_CHANGED = {"repro/algorithms/deep_cfr.py", "repro/run.py"}
"""Of which a training can reach one."""
LEDUC = (
    "game=leduc", *KUHN[1:], "algorithm.iterations=4", "algorithm.snapshot_every=2", "algorithm.value.batch_size=128",
    "algorithm.average.batch_size=128",
)  # fmt: skip


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> Path:
    """A run on Kuhn poker and one on Leduc."""
    output = tmp_path_factory.mktemp("outputs")
    for overrides in (KUHN, LEDUC):
        assert executed(*overrides, f"output_dir={output}") == records.FINISHED
    return output


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides", [pytest.param(KUHN, id="kuhn"), pytest.param(LEDUC, id="leduc", marks=pytest.mark.exhaustive)]
)
def test_a_repeated_run_is_the_same_to_the_last_bit(overrides, outputs, capsys):
    key = key_of(*overrides)
    for said in (False, True):
        assert rerun.run([key], str(outputs), None) == 0
        told = capsys.readouterr().out
        assert f"{key}: the same to the last bit" in told
        assert ("has been repeated before" in told) is said
    repeated = outputs / "reruns" / key
    assert training_config(Trained.open(repeated, key).config) == training_config(Trained.open(outputs, key).config)
    evaluated = {path.name for path in (run_folder(repeated, key) / "evaluations").iterdir()}
    assert evaluated == {path.name for path in (run_folder(outputs, key) / "evaluations").iterdir()}
    assert (run_folder(repeated, key) / "config.yaml").stat().st_mtime > (
        run_folder(outputs, key) / PORTABLE
    ).stat().st_mtime


def test_what_differs_is_told(outputs, tmp_path, capsys):
    key = key_of(*KUHN)
    trained = Trained.open(outputs, key)
    config = repeating.repeated(trained, tmp_path / "again", force=False)
    other = planned(*KUHN, "algorithm.value.learning_rate=0.002", f"output_dir={tmp_path}")
    assert executed(*KUHN, "algorithm.value.learning_rate=0.002", f"output_dir={tmp_path}") == records.FINISHED
    found = repeating.compare(config, trained.folder, run_folder(tmp_path, other.key))
    assert found.numbers
    assert found.snapshots == 2
    assert found.differences[0].iteration == 1
    assert any(each.what.startswith("network value") for each in found.differences)
    same = repeating.compare(config, trained.folder, trained.folder)
    assert same.differences == []
    assert same.numbers > found.numbers / 2


def test_a_run_is_not_repeated_over_itself(outputs, capsys, monkeypatch):
    key = key_of(*KUHN)
    assert rerun.main([key, "--output", str(outputs), "--to", str(outputs)]) == 2
    assert "where the run itself is" in capsys.readouterr().err
    assert rerun.main([key, "--output", str(outputs), "--to", ""]) == 2
    assert "--to is ''; it must be the name of a folder." in capsys.readouterr().err
    monkeypatch.chdir(outputs)
    assert rerun.main([key, "--output", str(outputs), "--to", "."]) == 2
    assert "where the run itself is" in capsys.readouterr().err
    assert rerun.main(["0123456789ab", "--output", str(outputs)]) == 2
    assert capsys.readouterr().err.endswith("there is no run with the key '0123456789ab'.\n")


def test_how_a_published_run_is_made_is_told(tmp_path, capsys):
    sweep = json.loads((RESULTS / "kuhn-paper" / "provenance.json").read_text())["sweeps"][-1]
    key = sweep["rerun"].split()[-1]
    (tmp_path / "runs").mkdir()
    assert rerun.main([key, "--output", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert f"there is no run with the key '{key}'. It is published, in kuhn at scale " in told
    assert re.search(r"`python -m repro.run -m .*` makes it, and `make verify TARGET=kuhn SCALE=", told)


# -- records ---------------------------------------------------------------------------------------------------------


def test_records_hold_the_command_that_repeats(outputs):
    key = key_of(*KUHN)
    _, runs = tracked(outputs)
    mine = [run for run in runs if run.data.tags["repro.key"] == key]
    assert mine
    assert all(run.data.tags[RERUN_TAG] == f"python -m repro.rerun {key}" for run in mine)
    command = (
        f"python -m repro.run -m 'seed=range(2)' {shlex.quote(f'output_dir={outputs}')} tracking_uri=http://lab:1 a=1"
    )
    sweep = PlannedSweep("", command, [planned(*KUHN, f"output_dir={outputs}").config], KUHN)
    # Others have neither this folder nor this server.
    assert provenance_of(sweep)["command"] == "python -m repro.run -m 'seed=range(2)' a=1"
    assert provenance_of(sweep)["rerun"] == f"python -m repro.rerun {key}"
    assert provenance_of(sweep)["commits"] == [[provenance.head()]], "of each run"


def test_hardware_says_what_rounds(monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    facts = provenance.hardware.__wrapped__()
    assert facts["compute_settings"] == "MKL_CBWR=COMPATIBLE"
    assert re.match(r"torch \w+.*, numpy .*openblas|torch ", facts["blas"])
    assert facts["cpu_flags"]


def test_what_is_reused_says_its_commit(outputs, monkeypatch):
    run = planned(*KUHN, f"output_dir={outputs}")
    record = records.read(run.folder)
    (commit,) = record.made_with["git_commit"]
    monkeypatch.setattr(staleness, "changed_files", lambda then, now, among: _CHANGED & among)
    record.made_with["git_dirty"] = ["false"]
    calls, closure = list[object](), staleness.closure

    def counted(*of: object) -> set[str]:
        calls.append(of)
        return closure(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(staleness, "closure", counted)
    told = staleness.made_at([(run.config, record)] * 3)
    assert len(calls) == 1
    assert set(told) == {told[0]}
    assert told[0].startswith(f"made at commit {commit[:12]}; code that determines it has changed since (1 of ")
    assert "deep_cfr.py" in told[0]
    record.made_with["git_dirty"] = ["true"]
    assert "unknown: the runs were made with uncommitted changes" in staleness.made_at([(run.config, record)])[0]
    monkeypatch.setattr(staleness, "changed_files", lambda then, now, among: set())
    record.made_with["git_dirty"] = ["false"]
    assert staleness.made_at([(run.config, record)]) == [f"made at commit {commit[:12]}"]
    skipped = records.RunRecord(state=records.SKIPPED)
    assert "made at commit" in launching._reused([run], [skipped])[run.folder]
    assert launching._reused([run], [records.RunRecord(state=records.FINISHED)]) == {}


def test_strategies_name_cards_and_betting_and_earlier_ones_are_read(outputs, tmp_path):
    trained = Trained.open(outputs, key_of(*LEDUC))
    game = game_for_checks(trained.config)
    path = trained.folder / "sd_cfr" / "strategy.csv"
    text = path.read_text()
    assert '"player 0, hand K, board Q, betting check check /"' in text
    assert '"player 0, hand J, first to act"' in text
    for numbered in (False, True):
        frame = pd.read_csv(path, index_col="infoset")
        frame["description"] = [game.describe(infoset, numbered) for infoset in frame.index]
        frame.to_csv(tmp_path / "earlier.csv")
        assert load_strategy(game, tmp_path / "earlier.csv").table.equal(load_strategy(game, path).table)


# -- files instead of keys -------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_opponents_may_be_files(outputs, tmp_path):
    key = key_of(*LEDUC)
    folder = run_folder(outputs, key)
    by_key, by_file, table = (
        (*LEDUC, "evaluation=match", f"+evaluation.match.opponents.x={reference}")
        for reference in (f"{key}/deep_cfr", f"{folder / PORTABLE}:deep_cfr", str(folder / "deep_cfr" / "strategy.csv"))
    )
    won = {}
    for overrides in (by_key, by_file, table):
        assert executed(*overrides, f"output_dir={outputs}") == records.FINISHED
        found = results(outputs, overrides)
        won[overrides[-1]] = found[(found.metric == "match/x/value") & (found.readout == "sd_cfr")].value.tolist()
    first, second, third = won.values()
    assert first == pytest.approx(second, abs=1e-9)
    assert first == pytest.approx(third, abs=1e-3)
    moved = tmp_path / "moved.csv"
    moved.write_bytes((folder / "deep_cfr" / "strategy.csv").read_bytes())
    again = (*table[:-1], f"+evaluation.match.opponents.x={moved}")
    assert executed(*again, f"output_dir={outputs}") == records.SKIPPED, "what the file holds counts, not where it lies"


def test_a_snapshot_is_measured_as_its_run_was(outputs, capsys):
    key = key_of(*LEDUC)
    path = run_folder(outputs, key) / PORTABLE
    assert evaluate.main([str(path), "evaluation=exploitability", "--output", str(outputs)]) == 0
    shown = capsys.readouterr().out
    rows = results(outputs, LEDUC)
    for readout in ("sd_cfr", "deep_cfr"):
        last = rows[(rows.readout == readout) & (rows.metric == "exploitability") & (rows.step == 4)].value.item()
        assert re.search(rf"{readout} +exploitability +{last:.6g}\b", shown)
    assert evaluate.main(["none.pt", "--output", str(outputs)]) == 2
    assert "there is no file none.pt" in capsys.readouterr().err


def test_a_match_takes_the_game_of_a_run(outputs, capsys):
    key = key_of(*LEDUC)
    more = ["--hands", "100", "--output", str(outputs)]
    assert match.main([f"{key}/sd_cfr", "uniform", *more]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("leduc: ")
    assert match.main(["leduc", f"{key}/sd_cfr", "uniform", *more]) == 0
    assert capsys.readouterr().out == shown
    assert match.main(["uniform", "uniform", *more]) == 2
    assert "GAME is missing" in capsys.readouterr().err


# -- subgames --------------------------------------------------------------------------------------------------------

RIVERS = ("game=river_subgames", "game.ranks=4", "algorithm.solver.tolerance=0.05")
DEVN = (
    *RIVERS, "algorithm=devn", "algorithm.subgames=250", "algorithm.batch_size=50", "algorithm.iterations=2",
    "algorithm.snapshot_every=1", "algorithm.buckets=10", "network.width=4",
)  # fmt: skip


@pytest.mark.exhaustive
def test_a_subgame_is_predicted_as_it_is_in_validation(tmp_path, capsys):
    output = f"output_dir={tmp_path}"
    assert executed(*RIVERS, "algorithm=solved_subgames", "algorithm.iterations=1", output) == records.FINISHED
    assert executed(*DEVN, output) == records.FINISHED
    key = key_of(*DEVN)
    trained, name, readout = predicted.open_readout(str(tmp_path), key, "")
    algorithm = trained.config.algorithm
    data = SubgameData(readout.game, algorithm, algorithm.predicts, 0, subgames_of(trained.config))
    data.setup("validate")
    (samples,) = data._store.shards(250)
    held = data._held_out(samples.board).nonzero()[0][:3]
    values = next(predicted for _, predicted in readout.values(trained.snapshots.read(), data))
    for place, row in enumerate(held.tolist()):
        subgame = Subgame(
            tuple(samples.board[row].tolist()), float(samples.pot[row]), samples.ranges[row], readout.game.deck
        )
        found = predicted.predict(trained, readout, subgame, 0.05)
        assert found.predicted == pytest.approx(values[place].numpy(), abs=1e-5)
        assert found.solved == pytest.approx(samples.cfv[row], abs=0.2)
        assert found.exploitability <= 0.05
    board = ["--board", "Ah Kd Qc Js Jh", "--pot", "4000", "--output", str(tmp_path)]
    assert predict.main([key, *board, "--csv", str(tmp_path / "values.csv")]) == 0
    assert f"{name} of {key}" in capsys.readouterr().out
    assert predict.main([key, *board, "--ranges", str(tmp_path / "values.csv")]) == 0
    for wrong, told in (
        (["--board", "Ah Kd", "--pot", "4000"], "5 different cards"), (["--pot", "1"], "--pot is 1"),
        (["--ranges", "none.csv"], "it must be uniform"), (["--readout", "dcvn"], "--readout is 'dcvn'"),
        (["--tolerance", "0"], "--tolerance is 0"),
    ):  # fmt: skip
        assert predict.main([key, *board, *wrong]) == 2
        assert told in capsys.readouterr().err
    (tmp_path / "twice.csv").write_text("hand,range_0,range_1\nAcKc,1,1\nKcAc,1,1\n")
    assert predict.main([key, *board, "--ranges", str(tmp_path / "twice.csv")]) == 2
    assert "KcAc is listed twice" in capsys.readouterr().err
    (tmp_path / "apart.csv").write_text("hand,range_0,range_1\nAcKc,1,0\nAcQh,0,1\n")
    assert predict.main([key, *board, "--ranges", str(tmp_path / "apart.csv")]) == 2
    assert "no two of these hands can meet" in capsys.readouterr().err
    assert json.loads((run_folder(tmp_path, key) / "run.json").read_text())["trained"]
