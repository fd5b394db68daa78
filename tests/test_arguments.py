"""What commands say of arguments that they do not understand."""

from __future__ import annotations

import argparse

import pytest
from hydra._internal.utils import get_args_parser

from repro import run
from repro.common.arguments import Parser
from repro.config.composed import CONF
from tests.helpers.commands import call


@pytest.fixture
def parser() -> Parser:
    made = Parser(prog="python -m repro.command")
    made.add_argument("target")
    made.add_argument("--seeds", "-s", type=int)
    made.add_argument("--rate", type=float)
    made.add_argument("--device", choices=("cpu", "cuda"))
    return made


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a", "--seeds", "two"], "--seeds is 'two'; it must be a whole number."),
        (["a", "--rate", "high"], "--rate is 'high'; it must be a number."),
        (["a", "--device", "cude"], "--device is 'cude'; it must be one of cpu, cuda (did you mean cuda?)."),
        (
            ["a", "--sedes", "2"],
            "--sedes is unknown (did you mean --seeds?); python -m repro.command --help lists what",
        ),
        (["a", "--see", "2"], "--see is unknown"),
        ([], "target is missing; python -m repro.command --help says what it is."),
        (["a", "--seeds"], "--seeds/-s: expected one argument; python -m repro.command --help lists what there is."),
    ],
)
def test_an_error_is_one_sentence(parser, capsys, words, sentence):
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(words)
    assert ended.value.code == 2
    out, told = capsys.readouterr()
    assert not out
    assert told.startswith(f"error: {sentence}")
    assert told.count("\n") == 1


def test_what_is_right_is_parsed(parser):
    found = parser.parse_args(["a", "-s", "2", "--device", "cuda"])
    assert found == argparse.Namespace(target="a", seeds=2, rate=None, device="cuda")
    assert {"--seeds", "-s", "--rate", "--device", "--help"} <= set(parser.options())


def test_hydras_options_are_those_that_hydra_has():
    """Which it does not say in public."""
    hydras = {name for action in get_args_parser()._actions for name in action.option_strings if name.startswith("--")}
    assert set(run._HYDRAS) == hydras


def test_an_option_that_neither_a_run_nor_hydra_has(capsys):
    assert run.main(["game=kuhn", "--dryrun"]) == 2
    told = capsys.readouterr().err
    assert told == "error: --dryrun is unknown (did you mean --dry-run?); --help and --hydra-help list what there is.\n"


@pytest.mark.parametrize("asked", [["--cfg", "job"], ["--info=config"], ["--info"], ["-c", "job"]])
def test_hydra_shows_one_run_and_no_sweep(capsys, asked):
    assert run.main(["-m", "game=kuhn", "seed=range(2)", *asked]) == 2
    shows = "error: --cfg and --info do not go with -m; leave it out, and give each key one value.\n"
    assert capsys.readouterr().err == shows


@pytest.mark.exhaustive
def test_the_help_of_runs_lists_what_can_be_chosen():
    done = call("--help")
    assert done.returncode == 0, done.stderr
    _, _, lines = done.stdout.split("\n\n")[1].partition("\n")
    assert max(map(len, lines.splitlines())) <= 120
    listed = dict(line.split("=", 1) for line in lines.replace(",\n", ",").splitlines())
    groups = {path.parent.name for path in CONF.glob("*/*.yaml")}
    assert {key.strip() for key in listed} == groups - {"cluster", "departures", "game_defaults", "trainer", "tune"}
    for key, names in listed.items():
        assert [name.strip() for name in names.split(",")] == sorted(
            path.stem for path in CONF.glob(f"{key.strip()}/*.yaml")
        )
