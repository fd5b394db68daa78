"""Defaults that games have of their own, in place of the algorithms', which are Leduc's."""

from __future__ import annotations

import pytest

from repro.errors import ReproError
from repro.planning import CONF, check_sizes, plan
from tests.helpers.commands import configs, key_of

GAMES = sorted(path.stem for path in (CONF / "game").glob("*.yaml") if not path.stem.endswith("_subgames"))
KINDS = ("sd_cfr", "guided_deep_cfr", "d2cfr", "nfsp", "linear_cfr", "es_mccfr", "os_mccfr")
REFUSED = {
    "guided_deep_cfr": {"kuhn", "leduc", "big_leduc", "fhp5", "hnlh", "hunl_pot"},
    "linear_cfr": {"fhp5", "hnlh", "hunl_pot"},
    "es_mccfr": {"fhp5"},
    "os_mccfr": {"fhp", "fhp5", "fhp_limit", "hnlh", "hunl_pot"},
}
"""Algorithms of each kind, and the games that they cannot play at all."""


def note_of(*overrides: str) -> str:
    """What a command says of its game's own defaults."""
    return " ".join(plan(overrides, multirun=False).notes)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", KINDS)
def test_every_algorithm_can_be_asked_for_on_every_game_that_it_plays(algorithm):
    refused = set()
    for game in GAMES:
        try:
            check_sizes(plan([f"game={game}", f"algorithm={algorithm}"], multirun=False).runs)
        except ReproError:
            refused.add(game)
    assert refused == REFUSED.get(algorithm, set())


def test_what_is_taken_is_said_and_is_what_would_be_typed():
    note = note_of("game=hunl_pot", "algorithm=nfsp")
    assert note.startswith("hunl_pot, nfsp: by default algorithm.iterations=345 algorithm.reward_unit=20000.0 ")
    assert note.endswith(" evaluation=[costs] (game_defaults=none leaves that out)")
    overrides = note.partition("by default ")[2].partition(" (")[0].split()
    same = ("game=hunl_pot", "algorithm=nfsp")
    assert key_of(*same) == key_of(*same, "game_defaults=none", *overrides)
    assert note_of("game=leduc") == note_of() == ""


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
