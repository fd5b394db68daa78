"""Trainings measured against each other: opponents are finished trainings, named by KEY or KEY/READOUT."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from repro.common.errors import ReproError
from repro.common.seeding import generator
from repro.config import checks
from repro.config.schema import AlgorithmConfig
from repro.evaluation.averages import tabulated
from repro.evaluation.head_to_head import exact, play_match
from repro.evaluation.units import milli_units
from repro.games import load
from repro.jobs.needs import check_needed
from repro.plans.planning import plan
from repro.policies.snapshot import Snapshot
from repro.running import training
from repro.running.executing import execute
from repro.stored import trained
from repro.stored.trained import Trained
from repro.tracking import record as records
from repro.tracking.folders import run_folder
from tests.helpers.commands import SMALL, configs, key_of, planned, results

CFR = ("game=kuhn", "algorithm=cfr", "algorithm.iterations=30", "algorithm.snapshot_every=5", "evaluation=costs")
LEDUC = ("game=leduc", *CFR[1:])
KUHN = (*SMALL, "algorithm.iterations=10")

BETTING = ("game=hunl_pot", "game.ranks=6", "game.suits=3", "game.stack=1000.0")
BLUEPRINT = (*BETTING, "algorithm=es_mccfr", "algorithm.buckets=5", "algorithm.iterations=4", "algorithm.traversals=50",
             "algorithm.snapshot_every=2", "evaluation=costs")  # fmt: skip
HNLH = ("game=hnlh", "game.ranks=6", "game.suits=2", "game.stack=500.0")
NFSP = (*HNLH, "algorithm=nfsp", "network.width=16", "algorithm.iterations=2", "algorithm.snapshot_every=1",
        "algorithm.hands=200", "algorithm.replay_capacity=2000", "algorithm.reservoir_capacity=2000",
        "algorithm.steps_per_update=16", "algorithm.batch_size=32", "evaluation=costs")  # fmt: skip
NETWORKS = (
    "algorithm=sd_cfr_and_deep_cfr", "network=deep_cfr", "network.width=8", "network.card_width=12",
    "algorithm.iterations=2", "algorithm.snapshot_every=1", "algorithm.traversals=200", "algorithm.value.steps=5",
    "algorithm.value.batch_size=64", "algorithm.average.steps=5", "algorithm.average.batch_size=64",
    "algorithm.value_capacity=1000", "algorithm.strategy_capacity=1000",
)  # fmt: skip


def done(output: Path, *overrides: str) -> tuple[str, str, str]:
    """Do a run: its key, the state that it ended in, and what its record says of it."""
    run = planned(*overrides, f"output_dir={output}")
    state = execute(run.configs, run.labels)
    return run.key, state, records.read(run_folder(output, run.key)).message


def made(output: Path, *overrides: str) -> str:
    """Do a run; its key."""
    key, state, message = done(output, *overrides)
    assert state in (records.FINISHED, records.SKIPPED), message
    return key


def against(*opponents: str, **match: Any) -> tuple[str, ...]:
    """Overrides for a match against each of `NAME=KEY` or `NAME=KEY/READOUT`."""
    given = (f"evaluation.match.{key}={value}" for key, value in match.items())
    return ("evaluation=match", *(f"+evaluation.match.opponents.{opponent}" for opponent in opponents), *given)


def won(output: Path, *overrides: str) -> dict[tuple[str, str], dict[int, float]]:
    """Read-out and metric of every match -> iteration -> value."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in results(output, overrides).itertuples():
        if str(row.metric).startswith("match/"):
            found.setdefault((str(row.readout), str(row.metric)), {})[row.step] = row.value  # type: ignore[index,assignment]
    return found


@pytest.fixture(scope="module")
def opponents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished trainings on Kuhn poker (CFR, and SD-CFR and Deep CFR of another seed), and CFR on Leduc."""
    output = tmp_path_factory.mktemp("opponents")
    for overrides in (CFR, LEDUC, (*KUHN, "seed=1")):
        made(output, *overrides)
    return output


@pytest.mark.exhaustive
def test_nothing_is_left_in_temporary_folders(opponents, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made(opponents, *KUHN, *against(f"cfr={key_of(*CFR)}", opponents_at="last"))
    assert not list(tmp_path.iterdir())


# -- one-card games: exact values ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("opponents_at", ["same", "last"])
def test_opponents_are_met_at_the_same_iteration_or_at_their_last(opponents, opponents_at):
    given = (f"cfr={key_of(*CFR)}", f"them={key_of(*KUHN, 'seed=1')}/deep_cfr")
    # CFR goes on for longer: its last iteration is none of this run's.
    overrides = (*KUHN, *against(*given, opponents_at=opponents_at))
    key = made(opponents, *overrides)
    game, mine = load("kuhn"), Trained.open(opponents, key)
    others = {
        "cfr": Trained.open(opponents, key_of(*CFR)).other(game),
        "them": Trained.open(opponents, key_of(*KUHN, "seed=1")).other(game, "deep_cfr"),
    }
    found = won(opponents, *overrides)
    assert set(found) == {(r, f"match/{o}/value") for r in ("sd_cfr", "deep_cfr") for o in others}
    for (readout, metric), values in found.items():
        assert list(values) == [5, 10]
        other = others[metric.split("/")[1]]
        for iteration, value in values.items():
            ours = tabulated(game, mine.other(game, readout).seats(iteration))
            theirs = tabulated(game, other.seats(iteration if opponents_at == "same" else None))
            assert value == pytest.approx(milli_units(game, exact(game, ours, theirs)), abs=1e-3)
    assert mine.folder.name == key_of(*KUHN), "who is played against changes nothing that is trained"


def test_an_opponent_is_looked_at_once_per_iteration(opponents, monkeypatch):
    looked_at: list[int] = []
    is_sound = trained._is_sound
    other = Trained.open(opponents, key_of(*KUHN, "seed=1")).other(load("kuhn"), "sd_cfr")

    def noted(snapshot: Snapshot, sound_rows: int) -> bool:
        looked_at.append(sound_rows)
        return is_sound(snapshot, sound_rows)

    monkeypatch.setattr(trained, "_is_sound", noted)
    seats = {at: other.seats(at) for at in (5, 10, None)}
    assert looked_at == [0, 5, 10]
    assert other.seats() is seats[None]
    assert other.seats(10) is other.seats(10)
    assert other.seats() is seats[None]


def test_keys_of_trainings_do_not_change_with_opponents():
    for more in (against("x=0123456789ab"), against("x=0123456789ab/y", opponents_at="same"), against("y=/deep_cfr")):
        assert key_of(*SMALL, *more) == key_of(*SMALL)


def test_opponents_may_be_known_before_they_are_made():
    """The table of a figure plays against its own: references follow from the seed, and are runs that it asks for."""
    reference = "'${run_key:" + ",".join(f'"{o}"' for o in ("game=kuhn", *CFR[1:4])) + "}'"
    asked = configs(*SMALL, "seed=0,2", *against(f"other={reference}"))
    for config in asked:
        assert config.evaluation["match"].opponents["other"] == key_of(*CFR, f"seed={config.seed}")
    with pytest.raises(ReproError, match="Could not find 'algorithm/nothing'"):
        plan([*SMALL, *against("""a='${run_key:"algorithm=nothing"}'""")], multirun=False)


# -- Hold'em games: hands that are played ----------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_blueprint_is_an_opponent_of_deep_cfr(tmp_path):
    blueprint = made(tmp_path, *BLUEPRINT)
    overrides = (*BETTING, *NETWORKS, *against(f"mine={blueprint}", hands=200))
    key = made(tmp_path, *overrides)
    found = won(tmp_path, *overrides)
    metrics = ("match/mine/value", "match/mine/standard_error")
    assert set(found) == {(readout, metric) for readout in ("sd_cfr", "deep_cfr") for metric in metrics}
    assert all(list(values) == [1, 2] for values in found.values())
    assert "mbb/g" in records.read(run_folder(tmp_path, key)).headline
    check_sampled(tmp_path, key, Trained.open(tmp_path, blueprint), found, "mine", 200)
    with pytest.raises(ReproError, match=r"a run for game hunl_pot .* not for hunl_pot with .*'ranks': 5"):
        Trained.open(tmp_path, blueprint).other(load("hunl_pot", ranks=5, suits=3, stack=1000.0))


@pytest.mark.exhaustive
def test_nfsps_average_network_is_an_opponent_in_hnlh(tmp_path):
    nfsp = made(tmp_path, *NFSP)
    overrides = (*HNLH, *NETWORKS, *against(f"nfsp={nfsp}", hands=200, opponents_at="same"))
    key = made(tmp_path, *overrides)
    found = won(tmp_path, *overrides)
    assert all(list(values) == [1, 2] for values in found.values())
    check_sampled(tmp_path, key, Trained.open(tmp_path, nfsp), found, "nfsp", 200, same=True)


def check_sampled(
    output: Path, key: str, other: Trained, found: Any, name: str, hands: int, *, same: bool = False
) -> None:
    """A match is what `play_match` gives between the read-outs, with the run's draws for this purpose."""
    mine = Trained.open(output, key)
    game = load(mine.config.game["name"], **{k: v for k, v in mine.config.game.items() if k not in ("name", "module")})
    for readout in ("sd_cfr", "deep_cfr"):
        for iteration in (1, 2):
            seats = mine.other(game, readout).seats(iteration), other.other(game).seats(iteration if same else None)
            match = play_match(game, *seats, hands, generator(mine.config.seed, "match", iteration, 0, game.device))
            value, error = found[readout, f"match/{name}/value"], found[readout, f"match/{name}/standard_error"]
            assert value[iteration] == pytest.approx(milli_units(game, match.mean))
            assert error[iteration] == pytest.approx(milli_units(game, match.standard_error))


# -- what cannot be played against -----------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_command_is_told_of_opponents_that_neither_it_nor_another_made(opponents, tmp_path):
    """Before any of its runs begins; those that are measured as asked need none."""
    output = f"output_dir={tmp_path}"
    key = key_of(*CFR)
    run, opponent = (planned(*words, output) for words in ((*SMALL, *against(f"x={key}/cfr")), CFR))
    with pytest.raises(ReproError, match=rf"evaluation\.match needs {key}/cfr .*there is no run with the key"):
        check_needed([run])
    check_needed([run, opponent])
    with pytest.raises(ReproError, match=r"nowhere\.pt"):
        check_needed([planned(*SMALL, *against(f"x={tmp_path}/nowhere.pt:cfr"), output)])
    made(tmp_path, *CFR)
    check_needed([run])
    made(tmp_path, *SMALL, *against(f"x={key}/cfr"))
    shutil.rmtree(run_folder(tmp_path, key))
    check_needed([run])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("opponent", "at", "sentence"),
    [
        ("0123456789ab", "last", "there is no run with the key '0123456789ab'."),
        ("{leduc}", "last", "holds a run for game leduc with"),
        ("{networks}", "last", "the run of sd_cfr_and_deep_cfr has several read-outs, sd_cfr, deep_cfr: name one"),
        ("{networks}/average", "last", "has no read-out 'average'; it has sd_cfr, deep"),
        ("{cfr}/sd_cfr", "last", "the run of cfr has no read-out 'sd_cfr'; it has cfr: name one"),
        ("{unfinished}", "last", "is not finished (its state is 'interrupted')."),
        ("{networks}/sd_cfr", "same", "which left no snapshot after iteration 15, and opponents_at is same; give it"),
    ],
)
def test_what_cannot_be_an_opponent_is_one_sentence_before_any_training(opponents, monkeypatch, opponent, at, sentence):
    unfinished = key_of(*CFR, "algorithm.iterations=31")
    names = {"leduc": key_of(*LEDUC), "networks": key_of(*KUHN, "seed=1"), "cfr": key_of(*CFR)}
    broken_off(opponents, *CFR, "algorithm.iterations=31")

    def fit(*_: object, **__: object) -> None:
        raise AssertionError("this must train nothing")

    monkeypatch.setattr(training, "fit", fit)
    reference = opponent.format(**names, unfinished=unfinished)
    _, state, message = done(opponents, *SMALL, "seed=2", *against(f"x={reference}", opponents_at=at))
    assert state == records.FAILED
    assert message.startswith("evaluation.match")
    assert sentence in message
    assert reference in message
    assert "\n" not in message
    folder = run_folder(opponents, key_of(*SMALL, "seed=2"))
    assert not (folder / "error.txt").exists()
    assert not (folder / "snapshots").exists()


@pytest.mark.exhaustive
def test_a_finished_match_needs_its_opponents_no_more(opponents, tmp_path, monkeypatch):
    """They are opened when something is to be measured against them, and games are loaded once."""
    output = shutil.copytree(opponents, tmp_path / "outputs")
    cfr, networks = key_of(*CFR), key_of(*KUHN, "seed=1")
    match = against(f"cfr={cfr}", f"b_m={networks}/sd_cfr", f"s_hat={networks}/deep_cfr")
    loaded: list[str] = []
    load_one = AlgorithmConfig.load.__func__  # type: ignore[attr-defined]

    def counting(cls: Any, game: Any, device: str = "cpu") -> Any:
        loaded.append(cls.__name__)
        return load_one(cls, game, device)

    with monkeypatch.context() as patched:
        patched.setattr(AlgorithmConfig, "load", classmethod(counting))
        checks._loaded.cache_clear()
        made(output, *KUHN, *match)
    # Once to check, and once to train; of opponents once per algorithm.
    assert sorted(loaded) == ["DeepCFRConfig", "DeepCFRConfig", "TabularCFRConfig"]
    for key in (cfr, networks):
        shutil.rmtree(run_folder(output, key))
    assert done(output, *KUHN, *match)[1] == records.SKIPPED
    more = "+algorithm.readouts.sd_cfr_9={kind: ensemble, capacity: 9}"
    _, state, message = done(output, *KUHN, *match, more)
    assert state == records.FAILED
    assert f"evaluation.match needs {cfr} (seed 0): " in message
    assert done(output, *KUHN, more)[1] == records.FINISHED, "what needs no opponent is measured"


def broken_off(output: Path, *overrides: str) -> None:
    """A training that was interrupted before its first iteration."""
    run = planned(*overrides, f"output_dir={output}")
    folder = run_folder(output, run.key)
    if folder.exists():
        return

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training, "fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            execute(run.configs, run.labels)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (against("A=x"), "evaluation.match.opponents.A is x; the name must be of a-z, 0-9 and _."),
        (against("a=../../etc"), "opponents.a is '../../etc'; it must be KEY, KEY/READOUT or /READOUT, where KEY is"),
        (against("a="), "evaluation.match.opponents.a is ''; it must be KEY, KEY/READOUT or /READOUT"),
        (against("""a=\"0123'56789ab\""""), "it must be KEY, KEY/READOUT or /READOUT"),
        (against("a=/average"), "evaluation.match.opponents.a is /average; the read-outs of this run are sd_cfr, deep"),
        (against(), "evaluation.match.opponents is empty; at least one is needed."),
        (against("a=x", hands=3), "evaluation.match.hands is 3; every deal is played twice, so it must be even."),
        (against("a=x", hands=-2), "evaluation.match.hands is -2; it must be at least 0."),
        (against("a=x", opponents_at="first"), "opponents_at is 'first'; it must be one of same, last."),
    ],
)
def test_bad_configuration_is_refused(overrides, sentence):
    with pytest.raises(ReproError) as caught:
        plan([*SMALL, *overrides], multirun=False)
    assert sentence in str(caught.value)


def test_hands_are_needed_where_there_is_no_exact_value():
    with pytest.raises(ReproError, match="game hunl_pot has no exact value of a match, a number of hands is needed"):
        plan([*BETTING, *NETWORKS, *against("a=x")], multirun=False)


def test_a_training_may_play_against_its_own_read_outs(opponents):
    overrides = (*KUHN, "seed=1", *against("s_hat=/deep_cfr"))
    made(opponents, *overrides)
    assert set(won(opponents, *overrides)) == {("sd_cfr", "match/s_hat/value")}, "none plays against itself"
