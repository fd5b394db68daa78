"""Defaults that games have of their own, in place of the algorithms', which are Leduc's."""

from __future__ import annotations

import sys

import pytest
import yaml

from repro import run
from repro.common.errors import ReproError
from repro.config.composed import CONF
from repro.config.keys import register_schemas
from repro.config.schema import ALGORITHMS
from repro.jobs.needs import check_sizes
from repro.plans.planning import plan
from repro.tracking.record import FINISHED
from tests.helpers.commands import configs, executed, key_of

GAMES = {path.stem for path in (CONF / "game").glob("*.yaml")}
SUBGAMES = {"turn_subgames", "river_subgames"}
WHOLE = GAMES - SUBGAMES
PLAYED = {
    "sd_cfr": WHOLE,
    "guided_deep_cfr": {"fhp", "fhp_limit"},
    "d2cfr": WHOLE,
    "nfsp": WHOLE,
    "linear_cfr": {"kuhn", "leduc", "big_leduc", "fhp", "fhp_limit"},
    "es_mccfr": WHOLE - {"fhp5"},
    "os_mccfr": {"kuhn", "leduc", "big_leduc"},
    "kuhn_post": {"kuhn"},
    "dcvn": SUBGAMES,
    "devn": SUBGAMES,
    "encoding_error": SUBGAMES,
    "solved_subgames": SUBGAMES,
    "reference_leaves": {"river_subgames"},
}
"""Algorithms of each kind, and the games that they can be asked for without another key."""


def note_of(*overrides: str) -> str:
    """What a command says of its game's own defaults."""
    return " ".join(plan(overrides, multirun=False).notes)


@pytest.mark.exhaustive
@pytest.mark.parametrize("algorithm", PLAYED)
def test_every_algorithm_can_be_asked_for_on_every_game_that_it_plays(algorithm):
    refused = {}
    for game in GAMES:
        try:
            check_sizes(plan([f"game={game}", f"algorithm={algorithm}"], multirun=False).runs)
        except ReproError as error:
            refused[game] = str(error)
    assert GAMES - refused.keys() == PLAYED[algorithm]
    assert all(game in sentence or "on Hold'em games" in sentence for game, sentence in refused.items())


FIRST_ITERATION_TAKES_LONG = {
    ("guided_deep_cfr", "fhp"), ("guided_deep_cfr", "fhp_limit"), ("es_mccfr", "fhp_limit"), ("es_mccfr", "hnlh"),
    ("es_mccfr", "hunl_pot"), ("linear_cfr", "fhp_limit"),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("algorithm", "game"),
    sorted({(name, game) for name in PLAYED for game in PLAYED[name] - SUBGAMES} - FIRST_ITERATION_TAKES_LONG),
)
def test_a_first_iteration_with_defaults_runs(algorithm, game, tmp_path):
    """Such as a minibatch that one iteration's samples fill."""
    first = ["algorithm.iterations=1", "algorithm.snapshot_every=1", "evaluation=costs", f"output_dir={tmp_path}"]
    first += ["algorithm.policy_every=1"] if algorithm == "d2cfr" else []
    assert executed(f"game={game}", f"algorithm={algorithm}", *first) == FINISHED


@pytest.mark.parametrize("before", [True, False])
def test_hydra_shows_them_as_a_run_has_them(before, capsys, monkeypatch):
    asked, what = ["game=kuhn", "algorithm=deep_cfr", "algorithm.value.batch_size=7"], ["-c", "job", "-p", "algorithm"]
    words = [*what, *asked] if before else [*asked, *what]
    monkeypatch.setattr(sys, "argv", ["run", *words])
    assert run.main() == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    (config,) = configs(*asked)
    assert shown["regret_unit"] == config.algorithm.regret_unit
    assert shown["value"]["steps"] == config.algorithm.value.steps
    assert shown["value"]["batch_size"] == 7


@pytest.mark.slow
def test_every_kind_of_algorithm_is_tried():
    register_schemas()
    kinds = {
        type(config.algorithm)
        for name, games in PLAYED.items()
        for config in configs(f"algorithm={name}", f"game={min(games)}")
    }
    assert kinds == {schema for schema in ALGORITHMS.values() if schema.__module__.startswith("repro.")}


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["game=river_subgames"], "game is river_subgames; the algorithm takes whole games, such as big_leduc, fhp, "),
        (["game=turn_subgames", "algorithm=cfr"], "; subgames are for others: algorithm=devn, for example."),
        (["game=leduc", "algorithm=devn"], "game is leduc; the algorithm takes one of turn_subgames, river_subgames."),
        (["game=turn_subgames", "algorithm=reference_leaves"], "the game is turn_subgames; take game=river_subgames."),
    ],
)
def test_a_game_that_an_algorithm_does_not_take_is_told(overrides, sentence):
    with pytest.raises(ReproError) as caught:
        plan(overrides, multirun=False)
    assert sentence in str(caught.value)


def test_what_is_taken_is_said_and_is_what_would_be_typed():
    note = note_of("game=hunl_pot", "algorithm=nfsp")
    assert note.startswith("hunl_pot, nfsp: by default algorithm.iterations=345 algorithm.reward_unit=20000.0 ")
    assert note.endswith(" evaluation=[costs] (game_defaults=none leaves that out)")
    overrides = note.partition("by default ")[2].partition(" (")[0].split()
    same = ("game=hunl_pot", "algorithm=nfsp")
    assert key_of(*same) == key_of(*same, "game_defaults=none", *overrides)
    assert note_of("game=leduc") == note_of() == ""
    assert note_of("game=kuhn", "algorithm=sd_cfr").startswith("kuhn, sd_cfr: by default ")


def test_what_is_typed_wins():
    (config,) = configs("game=fhp", "algorithm=sd_cfr", "network=fc", "algorithm.value.steps=7", "evaluation=costs")
    assert config.network is not None
    assert (config.network.architecture, config.algorithm.value.steps, list(config.evaluation)) == ("fc", 7, ["costs"])
    assert config.algorithm.value.batch_size == 1024
    note = note_of("game=fhp", "algorithm.value.steps=7", "evaluation=costs")
    assert "algorithm.value.batch_size=1024" in note
    assert not any(key in note for key in ("value.steps", "exploitability", "evaluation"))


def test_the_algorithms_own_can_be_asked_for():
    assert note_of("game=kuhn", "game_defaults=none") == ""
    (own,), (leducs,) = configs("game=kuhn", "game_defaults=none"), configs("game=leduc")
    assert own.algorithm == leducs.algorithm
    with pytest.raises(ReproError, match="game_defaults/kuhn/deepcfr"):
        plan(["game=kuhn", "game_defaults=kuhn/deepcfr"], multirun=False)


def test_experiments_are_complete_without_them():
    assert note_of("experiment=kuhn_deep_cfr") == note_of("experiment=fhp_deep_cfr") == ""


def test_runs_that_are_referred_to_have_them_as_well():
    reference = '${run_key:"algorithm=sd_cfr","game=kuhn"}'
    run = configs("game=kuhn", "evaluation=match", f"+evaluation.match.opponents.other='{reference}'")[0]
    assert run.evaluation["match"].opponents == {"other": key_of("algorithm=sd_cfr", "game=kuhn")}


def test_of_a_sweep_each_run_has_its_own():
    sweep = plan(["game=leduc,kuhn,big_leduc"], multirun=True)
    assert [run.config.algorithm.regret_unit for run in sweep.runs] == [2.6, 1.0, 20.0]
    assert len(sweep.notes) == 2
