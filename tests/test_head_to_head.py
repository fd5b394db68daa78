"""Head-to-head play: sampled against exact, duplicate deals, ensembles from files, and the command."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from repro import match
from repro.algorithms.deep_cfr import DeepCFR
from repro.config import NetworkConfig, ReadoutConfig
from repro.engine.sampling import SamplingEngine
from repro.errors import ReproError
from repro.evaluation import expected_value
from repro.evaluation.averages import tabulated
from repro.evaluation.head_to_head import MatchResult, exact, play_match
from repro.evaluation.units import milli_units, unit_name
from repro.games import Game, load
from repro.games.betting import CALL, FOLD, RAISE, BettingRound, BettingRules
from repro.games.one_card import one_card_each
from repro.launching import execute
from repro.networks.features import feature_columns
from repro.networks.modules import parameter_count, value_network
from repro.planning import plan
from repro.policies import TabularPolicy, deterministic_policy, random_policy, save_strategy, uniform
from repro.policies.snapshot import History, Snapshot, SnapshotFolder
from repro.tracking import record as records
from repro.trained import PORTABLE, portable_readout, run_folder, save_portable
from tests.commands import SMALL
from tests.small import average_policy_of, seats_of, small_model
from tests.tables import average_of, ensemble_of
from tests.test_ensemble import strategies_that_differ
from tests.trained import config_of

GAMES: list[tuple[str, dict[str, Any]]] = [("kuhn", {}), ("leduc", {}), ("leduc", {"ranks": 4, "max_raises": 1})]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def preferring(game: Game, *actions: int) -> TabularPolicy:
    """The first of `actions` that is legal, always."""
    order = torch.zeros(game.num_actions)
    for i, action in enumerate(actions):
        order[action] = 3 - i
    choice = (order * game.legal).argmax(1)
    return TabularPolicy(torch.nn.functional.one_hot(choice, game.num_actions).double())


def near(game: Game, policy: TabularPolicy, share: float = 0.1) -> TabularPolicy:
    """`policy`, mixed with a little of the uniform one."""
    return TabularPolicy((1 - share) * policy.table + share * game.uniform)


class Largest(TorchDispatchMode):
    """Remembers the size in elements of the largest tensor that any operation gave."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


# -- exact values ----------------------------------------------------------------------------------------------------


def test_exact_value_by_hand():
    """Whoever checks or folds loses the ante to whoever always bets."""
    for ante in (1.0, 3.0):
        game = load("leduc", ante=ante)
        assert exact(game, preferring(game, RAISE, CALL), preferring(game, FOLD, CALL)) == pytest.approx(ante)


@pytest.mark.parametrize(("name", "parameters"), GAMES)
def test_exact_value_is_antisymmetric_and_the_mean_over_seatings(name, parameters):
    game = load(name, **parameters)
    a, b = random_policy(game, seeded(1)), random_policy(game, seeded(2))
    assert exact(game, a, b) == -exact(game, b, a)
    assert exact(game, a, b) != 0
    assert exact(game, a, a) == 0
    first = game.player_slice[0]
    seatings = []
    for mine, other in ((a, b), (b, a)):
        table = other.table.clone()
        table[first] = mine.table[first]
        seatings.append(expected_value(game, TabularPolicy(table))[0])
    assert exact(game, a, b) == pytest.approx((seatings[0] - seatings[1]) / 2, abs=1e-12)


class OfOneSeat:
    """A policy that must not be asked about the other player's infosets."""

    def __init__(self, game: Game, policy: TabularPolicy, player: int) -> None:
        self._game, self._policy, self._player = game, policy, player

    def probabilities(self, infosets: Tensor) -> Tensor:
        assert bool((self._game.infoset_player[infosets] == self._player).all())
        return self._policy.probabilities(infosets)


def test_a_player_may_be_one_policy_per_seat():
    game = load("leduc")
    a, b = random_policy(game, seeded(1)), random_policy(game, seeded(2))
    seats = [OfOneSeat(game, a, 0), OfOneSeat(game, a, 1)]
    assert exact(game, seats, b) == exact(game, a, b)
    assert exact(game, b, tuple(seats)) == exact(game, b, a)
    assert play_match(game, seats, b, 200, seeded(0)) == play_match(game, a, b, 200, seeded(0))
    with pytest.raises(ValueError, match="unpack"):
        exact(game, [a], b)


# -- matches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parameters"), GAMES)
def test_a_match_agrees_with_the_exact_value(name, parameters):
    game = load(name, **parameters)
    for seed in range(5):
        a, b = random_policy(game, seeded(seed)), random_policy(game, seeded(100 + seed))
        played = play_match(game, a, b, 40_000, seeded(seed))
        assert played.hands == 40_000
        assert 0 < played.standard_error < 0.1
        assert abs(played.mean - exact(game, a, b)) < 4 * played.standard_error


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_the_interval_covers_the_exact_value_as_often_as_it_says(name):
    game, matches = load(name), 300
    a, b = near(game, random_policy(game, seeded(3)), 0.5), near(game, random_policy(game, seeded(4)), 0.5)
    value, source = exact(game, a, b), seeded(5)
    covered = 0
    for _ in range(matches):
        low, high = play_match(game, a, b, 1000, source).interval
        covered += low <= value <= high
    # 95% within three standard deviations.
    assert abs(covered / matches - 0.95) < 3 * math.sqrt(0.95 * 0.05 / matches)


def test_match_is_the_statistics_of_its_deals():
    """Batches change neither the sums nor what is drawn: this repeats the draws with the engine alone."""
    game, batch, hands = load("leduc"), 300, 2000
    a, b = random_policy(game, seeded(1)), random_policy(game, seeded(2))
    so_far: list[MatchResult] = []
    played = play_match(game, a, b, hands, seeded(3), batch, so_far.append)
    assert [m.hands for m in so_far] == [600, 1200, 1800, 2000]
    assert so_far[-1] == played

    engine, source, pairs = SamplingEngine(game), seeded(3), []
    for deals in (300, 300, 300, 100):
        dealt = engine.deal(deals, source)
        pairs.append((engine.play([a, b], dealt, source) - engine.play([b, a], dealt, source)).double() / 2)
    x = torch.cat(pairs)
    assert played.mean == pytest.approx(float(x.mean()), abs=1e-12)
    assert played.standard_error == pytest.approx(float(x.std()) / math.sqrt(1000), rel=1e-9)
    low, high = played.interval
    assert (high - played.mean) / played.standard_error == pytest.approx(1.959964, abs=1e-6)
    assert played.mean - low == pytest.approx(high - played.mean)


def test_the_same_deals_are_played_twice():
    game = load("leduc")
    engine = SamplingEngine(game)
    deals = engine.deal(500, seeded(0))
    assert len(deals) == 500
    # No draw decides between deterministic strategies.
    a, b = deterministic_policy(game, seeded(1)), deterministic_policy(game, seeded(2))
    first, again = (engine.play([a, b], deals, seeded(seed)) for seed in (1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, engine.play([a, b], engine.deal(500, seeded(1)), seeded(1)))
    assert torch.equal(engine.play([a, b], 500, seeded(0)), first)


def test_deterministic_strategies_cancel_exactly():
    """Against itself, every deal of a strategy without luck of its own is worth zero; exchanged players, the sign."""
    game = load("leduc")
    a, b = deterministic_policy(game, seeded(1)), deterministic_policy(game, seeded(2))
    itself = play_match(game, a, a, 2000, seeded(0))
    assert (itself.mean, itself.standard_error) == (0, 0)
    one, other = play_match(game, a, b, 2000, seeded(0)), play_match(game, b, a, 2000, seeded(0))
    assert one.mean == -other.mean != 0
    assert one.standard_error == other.standard_error > 0
    sure = play_match(game, preferring(game, RAISE, CALL), preferring(game, FOLD, CALL), 2000, seeded(0))
    assert (sure.mean, sure.standard_error) == (1, 0)


def test_self_play_is_worth_nothing():
    game = load("leduc")
    policy = random_policy(game, seeded(1))
    played = play_match(game, policy, policy, 200_000, seeded(2))
    assert abs(played.mean) < 4 * played.standard_error


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_duplicate_deals_narrow_the_interval(name):
    """Two strategies that nearly agree: as many hands of independent deals say much less."""
    game, hands = load(name), 40_000
    base = deterministic_policy(game, seeded(6))
    a, b = near(game, base), near(game, base, 0.15)
    duplicate = play_match(game, a, b, hands, seeded(0))
    engine, source = SamplingEngine(game), seeded(1)
    won = torch.cat([engine.play([a, b], hands // 2, source), -engine.play([b, a], hands // 2, source)]).double()
    value, independent = exact(game, a, b), float(won.std()) / math.sqrt(hands)
    assert abs(float(won.mean()) - value) < 4 * independent
    assert abs(duplicate.mean - value) < 4 * duplicate.standard_error
    assert duplicate.standard_error < 0.8 * independent


def test_many_hands_take_no_more_memory_than_a_batch():
    game, batch = load("kuhn"), 1 << 14
    a, b = random_policy(game, seeded(1)), random_policy(game, seeded(2))
    with Largest() as largest:
        played = play_match(game, a, b, 1_000_000, seeded(0), batch)
    assert played.hands == 1_000_000
    assert abs(played.mean - exact(game, a, b)) < 4 * played.standard_error
    assert largest.elements <= batch * game.num_actions


@pytest.mark.parametrize("hands", [0, -2, 3])
def test_hands_come_in_pairs(hands):
    game = load("kuhn")
    with pytest.raises(ValueError, match="even and at least 2"):
        play_match(game, uniform(game), uniform(game), hands, seeded(0))


def test_one_deal_has_no_interval():
    game = load("kuhn")
    played = play_match(game, uniform(game), uniform(game), 2, seeded(0))
    assert math.isnan(played.standard_error)
    assert all(math.isnan(bound) for bound in played.interval)


def test_units_of_ante_and_blind_games():
    leduc = load("leduc", ante=4.0)
    assert (milli_units(leduc, 2.0), unit_name(leduc)) == (500.0, "mA/g")
    rules = BettingRules((1, 2), (BettingRound(bet=2, max_raises=2),))
    blinds = Game("blinds", {}, rules, one_card_each(3, 1, (0,), True), chips_per_unit=2.0)
    assert (milli_units(blinds, 2.0), unit_name(blinds)) == (1000.0, "mbb/g")


# -- ensembles -------------------------------------------------------------------------------------------------------


def test_an_ensemble_is_worth_what_its_average_is():
    game = load("leduc")
    tables = strategies_that_differ(game)
    average = TabularPolicy(torch.cat([average_of(game, tables, player) for player in range(2)]))
    ensemble = [ensemble_of(game, tables) for _ in range(2)]
    opponent = random_policy(game, seeded(3))
    value = exact(game, average, opponent)
    cases: list[tuple[Any, Any, float]] = [
        (ensemble, opponent, value), (opponent, ensemble, -value), (ensemble, ensemble, 0.0)
    ]  # fmt: skip
    for a, b, expected in cases:
        played = play_match(game, a, b, 300_000, seeded(4))
        assert abs(played.mean - expected) < 4 * played.standard_error
        # The average without the reach weights, as if a member were drawn anew at every decision, is another player.
        anew = TabularPolicy(torch.einsum("m,mia->ia", torch.arange(1.0, 7).double() / 21, torch.stack(tables)))
        assert abs(exact(game, anew, opponent) - value) > 8 * played.standard_error


def trained(game: Game, folder: Path, when_no_positive: str = "argmax") -> tuple[DeepCFR, Path]:
    """A short training, and its last snapshot in a file."""
    model = small_model(
        game, seed=1, iterations=8, snapshot_every=8, when_no_positive=when_no_positive, average=None,
        readouts={"sd_cfr": ReadoutConfig("ensemble")},
    )  # fmt: skip
    for _ in range(8):
        model.training_step(None, 0)
    config = config_of(model.algorithm, model.network, model.seed)
    config.game = {"name": game.name, **game.parameters}
    save_portable(folder / PORTABLE, config, model.snapshot())
    return model, folder / PORTABLE


@pytest.mark.parametrize("when_no_positive", ["argmax", "uniform"])
def test_stored_networks_play_as_their_tables_do(tmp_path, when_no_positive):
    game = load("leduc")
    model, path = trained(game, tmp_path, when_no_positive)
    networks: Any = portable_readout(game, path)
    every = torch.arange(game.infosets)
    tables = []
    for position in range(8):
        halves = [networks[p].strategy(position, every[part]) for p, part in enumerate(game.player_slice)]
        tables.append(torch.cat(halves))
    engine = SamplingEngine(game)
    for opponent in (uniform(game), None):
        for seat in range(2):
            won = []
            for ensemble in ([ensemble_of(game, tables) for _ in range(2)], networks):
                seats: list[Any] = [ensemble[0], ensemble[1]]
                if opponent is not None:
                    seats[1 - seat] = opponent
                won.append(engine.play(seats, 3000, seeded(seat)))
            # A probability that is rounded otherwise may turn a draw.
            assert float((won[0] != won[1]).double().mean()) < 1e-3
    assert torch.equal(tabulated(game, networks).table, average_policy_of(model).table)


def test_one_stored_network_exists_at_a_time(tmp_path):
    """Playing makes no tensor that could hold several members' parameters, or a strategy of every member."""
    game, members, hands, network = load("leduc"), 400, 500, NetworkConfig("sd_cfr", 16)
    size = parameter_count(value_network(network, feature_columns(game), game.num_actions))
    draws = torch.randn(2, members, size, generator=seeded(0))
    folder, model = SnapshotFolder(tmp_path), small_model(game)
    histories = [History(), History()]
    for history, rows in zip(histories, draws, strict=True):
        for row in rows:
            history.append(row)
    folder.write(Snapshot(members, history={"value": histories}))
    networks = seats_of(model, ReadoutConfig("ensemble"), folder.read())
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    with Largest() as largest:
        won = SamplingEngine(game).play(networks, hands, seeded(0))
    assert len(won.unique()) > 5
    level = hands * max(game.num_actions, feature_columns(game).count, network.width)
    assert largest.elements <= max(size, level)
    assert max(size, level) < members * min(size, game.infosets // 2 * game.num_actions) / 10


def test_the_file_of_a_snapshot_is_checked(tmp_path):
    game = load("kuhn")
    _, path = trained(game, tmp_path)
    with pytest.raises(ReproError, match=r"snapshot\.pt holds a snapshot for game kuhn .* not for leduc"):
        portable_readout(load("leduc"), path)
    with pytest.raises(ReproError, match=r"not for kuhn with .*'ranks': 4"):
        portable_readout(load("kuhn", ranks=4), path)
    contents: list[object] = [torch.zeros(2), {"value": []}, {"config": {}, "value": []}]
    for content in contents:
        torch.save(content, path)
        with pytest.raises(ReproError, match=r"is not the snapshot\.pt of a finished run"):
            portable_readout(game, path)
    for text in ("", "infoset,fold\n"):
        path.write_text(text)
        with pytest.raises(ReproError, match=r"is not the snapshot\.pt of a finished run"):
            portable_readout(game, path)


def _set(value: object, *keys: Any) -> Callable[[Any], None]:
    """What puts a value, or what it makes of the one there, at a place in nested content."""

    def put(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value(content[keys[-1]]) if callable(value) else value

    return put


_VALUE = ("history", "value", 0)


@pytest.mark.parametrize(
    ("forge", "told"),
    [
        (_set(lambda rows: rows * torch.nan, *_VALUE), "is damaged"),
        (_set(lambda rows: rows[:-1], *_VALUE), "is damaged"),
        (_set(lambda rows: rows[:, :-1], *_VALUE), "networks of 1315 parameters; here this architecture has 1316"),
        (_set(lambda rows: rows[..., None], *_VALUE), "the snapshot holds networks"),
        (_set(lambda rows: rows.flatten(), *_VALUE), "is damaged"),
        (_set(lambda rows: rows.tolist(), *_VALUE), "does not hold what its configuration says"),
        (_set(lambda both: both[:1], *_VALUE[:-1]), "is damaged"),
        (_set({}, "history"), "the training has no B"),
        (_set([torch.rand(8, 3, 3)] * 2, "history", "opening"), "does not hold what its configuration says"),
        (_set(10**9, "iteration"), "is damaged"),
        (_set("8x", "iteration"), "is not the snapshot.pt of a finished run"),
        (_set([1], "state"), "is not the snapshot.pt of a finished run"),
        (_set(None, "config"), "is not the snapshot.pt of a finished run"),
        (_set("", "config", "game", "name"), "game '' is unknown"),
        (
            _set("nothing.there", "config", "algorithm", "module"),
            "needs the module 'nothing.there', which is not",
        ),
        (_set("antigravity", "config", "game", "module"), "needs the module 'antigravity', which is not"),
        (_set(None, "config", "network"), "does not hold what its configuration says"),
        (_set("deep_cfr", "config", "network", "architecture"), "is not the snapshot.pt|the snapshot holds networks"),
        (_set({"x": {"kind": "y"}}, "config", "algorithm", "readouts"), "does not hold what its configuration says"),
    ],
)
def test_a_forged_snapshot_is_refused_in_one_sentence(tmp_path, capsys, monkeypatch, forge, told):
    _, path = trained(load("leduc"), tmp_path)
    content = torch.load(path, weights_only=True)
    forge(content)
    torch.save(content, path)
    _check_refused(path, told, capsys, monkeypatch)


def test_a_damaged_snapshot_is_refused_in_one_sentence(tmp_path, capsys, monkeypatch):
    _, path = trained(load("leduc"), tmp_path)
    whole = path.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        _check_refused(path, r"is not the snapshot\.pt of a finished run", capsys, monkeypatch)
    for at in range(len(whole) // 8, 7 * len(whole) // 8, len(whole) // 8):
        path.write_bytes(whole[:at] + b"\0\1\2\3" + whole[at + 4 :])
        _check_refused(path, "is damaged", capsys, monkeypatch)


def _check_refused(path: Path, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "play_match", lambda *_, **__: pytest.fail("it played"))
    assert match.main(["leduc", "uniform", str(path)]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert re.match(rf"error: B: .*({told})", shown.err)
    assert shown.err.count("\n") == 1


# -- the command -----------------------------------------------------------------------------------------------------


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
    model, networks = trained(game, tmp_path)
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
    (run,) = plan([*SMALL, "algorithm.iterations=5", f"output_dir={tmp_path}"], multirun=False).runs
    assert execute(run.configs, run.labels) == records.FINISHED
    folder, more = run_folder(tmp_path, run.key), ("--hands", 2000, "--output", tmp_path)
    for readout in ("sd_cfr", "deep_cfr"):
        names = f"{run.key}/{readout}", f"{folder / PORTABLE}:{readout}", folder / readout / "strategy.csv"
        shown = [printed(capsys, "kuhn", name, "uniform", *more) for name in names]
        assert shown[0][:4] == shown[1][:4]
        assert shown[2][3] == pytest.approx(shown[0][3], abs=1e-3)
        assert shown[2][1] < shown[0][0] < shown[2][2]
        assert printed(capsys, "kuhn", *names[:2], *more)[3] == 0
    for name, told in (
        (run.key, "its read-out is ''; the run of sd_cfr_and_deep_cfr has sd_cfr, deep_cfr: name one of them"),
        (f"{run.key}/average", "its read-out is 'average'"), (f"{folder / PORTABLE}", "its read-out is ''"),
        (f"{run.key[:-1]}/sd_cfr", "the key of a run in"),
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
        (["kuhn", "uniform", "none.csv"], ["B: ", "no file none.csv"]),
        (["kuhn", "uniform", "none.pt"], ["B: ", "no file none.pt"]),
        (["kuhn", "{tmp}/leduc.csv", "uniform"], ["A: ", "leduc.csv", "game kuhn"]),
        (["leduc", "{tmp}/text.csv", "uniform"], ["A: ", "text.csv", "strategy.csv"]),
        (["leduc", "uniform", "{tmp}/illegal.csv"], ["B: ", "illegal.csv", "[1.0, 0.0, 0.0]", "legal actions"]),
        (["leduc", "uniform", "{tmp}/text.pt"], ["B: ", "text.pt", "snapshot.pt"]),
        (["kuhn", "uniform", "uniform", "--hands", "many"], ["--hands", "'many'", "at least 4"]),
        (["kuhn", "uniform", "uniform", "--hands", "2"], ["--hands", "'2'", "at least 4"]),
        (["kuhn", "uniform", "uniform", "--hands", "1001"], ["--hands", "1001", "even"]),
        (["kuhn", "uniform", "uniform", "--seed", "-1"], ["--seed", "'-1'", "at least 0"]),
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
