"""Trainings in one file: what their networks play, and that a file which is damaged or forged is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from repro import match
from repro.common.errors import ReproError
from repro.config import NetworkConfig, ReadoutConfig
from repro.engine.sampling import SamplingEngine
from repro.evaluation.averages import tabulated
from repro.games import load
from repro.networks.features import feature_columns
from repro.networks.modules import parameter_count, value_network
from repro.policies import uniform
from repro.policies.snapshot import History, Snapshot, SnapshotFolder
from repro.stored.trained import portable_readout
from tests.helpers.deep_cfr import portable_model, small_model
from tests.helpers.draws import seeded
from tests.helpers.operations import Recorded
from tests.helpers.policies import ensemble_of
from tests.helpers.training import average_policy_of, seats_of


@pytest.mark.parametrize("when_no_positive", ["argmax", "uniform"])
def test_stored_networks_play_as_their_tables_do(tmp_path, when_no_positive):
    game = load("leduc")
    model, path = portable_model(game, tmp_path, when_no_positive)
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
    with Recorded() as recorded:
        won = SamplingEngine(game).play(networks, hands, seeded(0))
    assert len(won.unique()) > 5
    level = hands * max(game.num_actions, feature_columns(game).count, network.width)
    assert recorded.largest <= max(size, level)
    assert max(size, level) < members * min(size, game.infosets // 2 * game.num_actions) / 10


def test_the_file_of_a_snapshot_is_checked(tmp_path):
    game = load("kuhn")
    _, path = portable_model(game, tmp_path)
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
        (_set("nothing.there", "config", "algorithm", "module"), "needs the module 'nothing.there', which is not"),
        (_set("antigravity", "config", "game", "module"), "needs the module 'antigravity', which is not"),
        (_set(None, "config", "network"), "does not hold what its configuration says"),
        (_set("deep_cfr", "config", "network", "architecture"), "is not the snapshot.pt|the snapshot holds networks"),
        (_set({"x": {"kind": "y"}}, "config", "algorithm", "readouts"), "does not hold what its configuration says"),
    ],
)
def test_a_forged_snapshot_is_refused_in_one_sentence(tmp_path, capsys, monkeypatch, forge, told):
    _, path = portable_model(load("leduc"), tmp_path)
    content = torch.load(path, weights_only=True)
    forge(content)
    torch.save(content, path)
    _check_refused(path, told, capsys, monkeypatch)


def test_a_damaged_snapshot_is_refused_in_one_sentence(tmp_path, capsys, monkeypatch):
    _, path = portable_model(load("leduc"), tmp_path)
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
