"""The command `python -m repro.match`: strategies, runs and files against each other."""

from __future__ import annotations

import pytest

from repro import match
from repro.evaluation.head_to_head import exact
from repro.evaluation.units import milli_units
from repro.games import load
from repro.games.betting import CALL, FOLD, RAISE
from repro.policies import random_policy, save_strategy, uniform
from repro.running.executing import execute
from repro.tracking import record as records
from repro.tracking.folders import PORTABLE, run_folder
from tests.helpers.commands import SMALL, executed, key_of, planned
from tests.helpers.deep_cfr import portable_model
from tests.helpers.draws import seeded
from tests.helpers.policies import preferring
from tests.helpers.training import average_policy_of


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[float, float, float, float, str]:
    """Sampled mean, its interval, the exact value, and everything that was printed."""
    assert match.main([str(a) for a in arguments]) == 0
    shown = capsys.readouterr()
    assert not shown.err
    _, sampled, value = shown.out.splitlines()
    low, high = sampled.split("[")[1].split("]")[0].split(", ")
    return float(sampled.split()[1]), float(low), float(high), float(value.split()[1]), shown.out


def test_command_plays_files(tmp_path, capsys):
    game = load("leduc")
    model, networks = portable_model(game, tmp_path)
    strategy = tmp_path / "strategy.csv"
    save_strategy(game, random_policy(game, seeded(1)), strategy)
    value = milli_units(game, exact(game, average_policy_of(model), random_policy(game, seeded(1))))
    arguments = ["leduc", networks, strategy, "--hands", 40_000, "--seed", 1]
    mean, low, high, shown, text = printed(capsys, *arguments)
    assert shown == pytest.approx(value, abs=0.1)
    assert low < mean < high
    assert abs(mean - value) < 4 * (high - low) / 3.92
    assert text.count("mA/g") == 2
    assert "95% CI" in text
    assert "40000 hands" in text
    assert printed(capsys, *arguments)[4] == text
    assert printed(capsys, *arguments[:-1], 2)[0] != mean


@pytest.mark.slow
def test_command_plays_what_runs_have_left(tmp_path, capsys):
    """A run by its key, its snapshot in one file, and its strategy as a table are the same player."""
    run = planned(*SMALL, "algorithm.iterations=5", f"output_dir={tmp_path}")
    assert execute(run.configs, run.labels) == records.FINISHED
    folder, more = run_folder(tmp_path, run.key), ("--hands", 2000, "--output", tmp_path)
    for readout in ("sd_cfr", "deep_cfr"):
        names = f"{run.key[:6]}/{readout}", f"{folder / PORTABLE}:{readout}", folder / readout / "strategy.csv"
        shown = [printed(capsys, "kuhn", name, "uniform", *more) for name in names]
        assert shown[0][:4] == shown[1][:4]
        assert shown[2][3] == pytest.approx(shown[0][3], abs=1e-3)
        assert shown[2][1] < shown[0][0] < shown[2][2]
        assert printed(capsys, "kuhn", *names[:2], *more)[3] == 0
    for name, told in (
        (run.key, "has several read-outs, sd_cfr, deep_cfr: name one after a slash, as in KEY/sd_cfr."),
        (f"{run.key}/average", "has no read-out 'average'"), (f"{folder / PORTABLE}", "has several read-outs"),
        (f"{run.key[1:]}/sd_cfr", "the key of a run in"),
    ):  # fmt: skip
        assert match.main(["kuhn", name, "uniform", "--output", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
    assert match.main(["leduc", "uniform", f"{run.key}/sd_cfr", "--output", str(tmp_path)]) == 2
    assert "holds a run for game kuhn" in capsys.readouterr().err


def test_command_takes_parameters_of_the_game(capsys):
    mean, low, high, value, _ = printed(
        capsys, "leduc:ranks=4:bet_sizes=1,2.5:suit_isomorphism=false", "uniform", "uniform", "--hands", 20_000
    )
    assert value == 0
    assert low < mean < high
    game = match.read_game("leduc:ranks=4:bet_sizes=1,2.5:suit_isomorphism=false:ante=2")
    assert game.parameters == {
        "ranks": 4, "suits": 2, "max_raises": 2, "bet_sizes": (1, 2.5), "ante": 2, "suit_isomorphism": False,
    }  # fmt: skip


def test_command_when_every_deal_is_worth_the_same(tmp_path, capsys):
    game = load("leduc")
    for name, actions in (("raise", (RAISE, CALL)), ("fold", (FOLD, CALL))):
        save_strategy(game, preferring(game, *actions), tmp_path / f"{name}.csv")
    shown = printed(capsys, "leduc", tmp_path / "raise.csv", tmp_path / "fold.csv", "--hands", 100)
    assert shown[:4] == (1000.0, 1000.0, 1000.0, 1000.0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["holdem", "uniform", "uniform"], ["GAME", "'holdem'", "big_leduc", "kuhn"]),
        (["leduc:ranks", "uniform", "uniform"], ["GAME", "'leduc:ranks'", "KEY=VALUE"]),
        (["leduc:rank=3", "uniform", "uniform"], ["GAME", "'rank'", "max_raises"]),
        (["leduc:ranks=three", "uniform", "uniform"], ["GAME", "'three'", "whole number"]),
        (["leduc:device=cuda", "uniform", "uniform"], ["GAME", "device"]),
        (["kuhn", "Uniform", "uniform"], ["A is 'Uniform'", "uniform", "strategy.csv", "snapshot.pt"]),
        (["kuhn", "unifrm", "uniform"], ["A is 'unifrm' (did you mean uniform?); it must be uniform"]),
        (["kuhn", "uniform", "none.csv"], ["B: ", "no file none.csv"]),
        (["kuhn", "uniform", "none.pt"], ["B: ", "no file none.pt"]),
        (["kuhn", "{tmp}/leduc.csv", "uniform"], ["A: ", "leduc.csv", "game kuhn"]),
        (["leduc", "{tmp}/text.csv:cfr", "uniform"], ["A: ", "text.csv:cfr", "names a read-out"]),
        (["leduc", f"{'a' * 300}/cfr", "uniform"], ["A is ", "the key of a run in"]),
        (["leduc", "{tmp}/text.csv", "uniform"], ["A: ", "text.csv", "strategy.csv"]),
        (["leduc", "uniform", "{tmp}/illegal.csv"], ["B: ", "illegal.csv", "[1.0, 0.0, 0.0]", "legal actions"]),
        (["leduc", "uniform", "{tmp}/text.pt"], ["B: ", "text.pt", "snapshot.pt"]),
        (["kuhn", "uniform", "uniform", "--hands", "many"], ["--hands", "'many'", "from 4 to"]),
        (["kuhn", "uniform", "uniform", "--hands", "2"], ["--hands", "'2'", "from 4 to"]),
        (["kuhn", "uniform", "uniform", "--hands", "1001"], ["--hands", "1001", "even"]),
        (["kuhn", "uniform", "uniform", "--hands", "1" + 30 * "0"], ["--hands", "from 4 to 1000000000000"]),
        (["kuhn", 300 * "x" + ".csv", "uniform"], ["A: 'xxx", "is no name of a file or a run"]),
        (["kuhn", 300 * "x", "uniform"], ["A: 'xxx", "is no name of a file or a run"]),
        (["kuhn", "uniform", "uniform", "--seed", "-1"], ["--seed", "'-1'", "from 0 to"]),
    ],
)
def test_command_refuses_in_one_sentence_before_playing(arguments, told, tmp_path, capsys, monkeypatch):
    game = load("leduc")
    save_strategy(game, uniform(game), tmp_path / "leduc.csv")
    save_strategy(game, preferring(game, CALL), tmp_path / "illegal.csv")
    text = (tmp_path / "illegal.csv").read_text().replace("0.0,1.0,0.0", "1.0,0.0,0.0", 1)
    (tmp_path / "illegal.csv").write_text(text)
    for name in ("text.csv", "text.pt"):
        (tmp_path / name).write_text("fold,call\n1,2,3\n")
    monkeypatch.setattr(match, "play_match", lambda *_, **__: pytest.fail("it played"))
    assert match.main([a.format(tmp=tmp_path) for a in arguments]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    for part in told:
        assert part in shown.err


def test_command_refuses_a_run_that_plays_no_game(tmp_path, capsys):
    run = ("game=river_subgames", "algorithm=reference_leaves", "evaluation=[]", f"output_dir={tmp_path}")
    assert executed(*run) == "finished"
    capsys.readouterr()
    assert match.main([key_of(*run), "uniform", "--output", str(tmp_path)]) == 2
    assert f"A is {key_of(*run)}, a run of reference_leaves about river_subgames, which" in capsys.readouterr().err
