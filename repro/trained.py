"""Trainings on the disk, as others meet them: their configuration, their game, and their snapshots read out.

A training lies in `outputs/runs/<key>/`; its last snapshot is there as one file, too, `snapshot.pt`, which can be taken
anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import torch
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor

from repro.config.checks import game_of
from repro.config.keys import from_plain, training_config
from repro.config.schema import Config, ReadoutConfig
from repro.engine.sampling import SamplingEngine
from repro.errors import ReproError
from repro.games.game import Game
from repro.policies.files import NOT_SUCH_A_FILE, check_same_game
from repro.policies.readout import Readout, Seat
from repro.policies.snapshot import History, Snapshot, SnapshotFolder, save_durably
from repro.seeding import generator
from repro.tracking import record as records
from repro.tracking.record import RunRecord

CONFIG = "config.yaml"
PORTABLE = "snapshot.pt"
"""A training's last snapshot in one file, whatever its history."""

_TRIAL_HANDS = 100


def run_folder(output_dir: str | Path, key: str) -> Path:
    """Where a training's record, snapshots, results and checkpoints are."""
    return Path(output_dir).absolute() / "runs" / key


def snapshots_of(folder: Path) -> SnapshotFolder:
    """The snapshots in a training's folder."""
    return SnapshotFolder(folder / "snapshots")


def readout_objects(game: Any, config: Config) -> dict[str, Readout]:
    """The read-outs of a training, by name."""
    return {name: _readout(game, config, readout) for name, readout in config.algorithm.readouts.items()}


def _readout(game: Any, config: Config, readout: ReadoutConfig) -> Readout:
    return config.algorithm.READOUTS[readout.kind](game, config, readout)


@dataclass
class Trained:
    """A training on the disk.

    Attributes:
        folder: `outputs/runs/<key>`.
        config: what was trained.
        record: what became of it.
    """

    folder: Path
    config: Config
    record: RunRecord

    @classmethod
    def open(cls, output_dir: str | Path, key: str) -> Trained:
        """A training by its key.

        Raises:
            ReproError: there is none, or its configuration cannot be read.
        """
        folder = run_folder(output_dir, key)
        if not (folder / CONFIG).is_file():
            raise ReproError(f"in {Path(output_dir).absolute()} there is no run with the key {key!r}.")
        try:
            config = from_plain(_load_config(folder))
        except (*NOT_SUCH_A_FILE, OmegaConfBaseException, ImportError) as error:
            raise ReproError(f"{folder / CONFIG} is not the configuration of a run ({error}).") from error
        config.output_dir = str(output_dir)
        return cls(folder, config, records.read(folder))

    def check_finished(self) -> None:
        """Refuse a training that is not finished.

        Raises:
            ReproError: it is not.
        """
        if not self.record.trained:
            raise ReproError(f"the run {self.folder.name} is not finished (its state is {self.record.state!r}).")

    @property
    def snapshots(self) -> SnapshotFolder:
        return snapshots_of(self.folder)

    def other(self, game: Game, readout: str = "") -> OtherReadout:
        """A read-out of this training, to measure another one in the same game against.

        Raises:
            ReproError: it is not finished, is of another game, or has no such read-out.
        """
        self.check_finished()
        check_same_game(self.folder, "a run", game_of(self.config), game)
        return OtherReadout(self.snapshots, _readout(game, self.config, _chosen(self.config, readout)))


def _chosen(config: Config, name: str) -> ReadoutConfig:
    """A read-out by its name, or the only one.

    Raises:
        ReproError: there is none of that name.
    """
    readouts: Mapping[str, ReadoutConfig] = config.algorithm.readouts
    if not name and len(readouts) == 1:
        return next(iter(readouts.values()))
    if name not in readouts:
        raise ReproError(
            f"its read-out is {name!r}; the run of {config.algorithm.name} has {', '.join(readouts)}: name one of them."
        )
    return readouts[name]


@dataclass(frozen=True)
class OtherReadout:
    """A read-out of a finished training; see `repro.evaluation.base.Other`."""

    snapshots: SnapshotFolder
    readout: Readout

    @property
    def iterations(self) -> Sequence[int]:
        return self.snapshots.iterations

    def seats(self, iteration: int | None = None) -> Sequence[Seat]:
        return self.readout.seats(self.snapshots.read(iteration))


def write_config(folder: Path, config: Config) -> None:
    """Write a training's `config.yaml`; read-outs that are there already stay."""
    plain = training_config(config)
    path = folder / CONFIG
    if path.is_file():
        before = _load_config(folder)
        for name, stored in before["algorithm"]["readouts"].items():
            new = plain["algorithm"]["readouts"].get(name, stored)
            if new != stored:
                raise ReproError(
                    f"algorithm.readouts.{name} is {new}, but this run has a read-out of that name, {stored}; choose "
                    "another name."
                )
        plain["algorithm"]["readouts"] = {**before["algorithm"]["readouts"], **plain["algorithm"]["readouts"]}
    records.write_durably(path, OmegaConf.to_yaml(OmegaConf.create(plain)), sync=True)


def _load_config(folder: Path) -> dict[str, Any]:
    plain = OmegaConf.to_container(OmegaConf.load(folder / CONFIG))
    if not isinstance(plain, dict):
        raise ValueError("it is no mapping")
    return {str(key): value for key, value in plain.items()}


# -- one file --------------------------------------------------------------------------------------------------------


def save_portable(path: Path, config: Config, snapshot: Snapshot) -> None:
    """Write a snapshot with its whole history and its configuration."""
    history = {name: [h.since(0) for h in both] for name, both in snapshot.history.items()}
    content = {
        "config": training_config(config), "iteration": snapshot.iteration, "counts": dict(snapshot.counts),
        "state": dict(snapshot.state), "history": history,
    }  # fmt: skip
    save_durably(content, path)


def load_portable(path: Path | str) -> tuple[Config, Snapshot]:
    """What `save_portable` wrote; tensors are mapped from the file, which is read once to see that it is whole.

    Raises:
        ReproError: the file is not of that kind, or damaged.
    """
    try:
        stored = dict(torch.load(path, map_location="cpu", weights_only=True, mmap=True))
        with ZipFile(path) as archive:
            damaged = archive.testzip()
        config = from_plain(stored["config"])
        history = {name: [History([rows]) for rows in both] for name, both in stored["history"].items()}
        snapshot = Snapshot(int(stored["iteration"]), dict(stored["counts"]), dict(stored["state"]), history)
        sound = damaged is None and _is_sound(snapshot)
    except Exception as error:  # A file of another kind fails in as many ways as there are bytes.
        raise ReproError(f"{path} is not the {PORTABLE} of a finished run.") from error
    if not sound:
        raise ReproError(f"{path} is damaged: it does not hold the finite numbers of a {PORTABLE}.")
    return config, snapshot


def _is_sound(snapshot: Snapshot) -> bool:
    """Whether there are as many rows of history as iterations, and all numbers are finite."""
    both = [history for histories in snapshot.history.values() for history in histories]
    return (
        all(len(histories) == 2 for histories in snapshot.history.values())
        and all(len(history) == snapshot.iteration for history in both)
        and all(map(_is_finite, _tensors([snapshot.state, *both])))
    )


def _is_finite(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and all(bool(part.isfinite().all()) for part in tensor.split(1 << 20))


def _tensors(content: Any) -> Iterator[Tensor]:
    """All tensors with values in nested mappings and sequences."""
    if isinstance(content, Tensor):
        yield content.reshape(-1)
    elif isinstance(content, Mapping):
        yield from _tensors(list(content.values()))
    elif isinstance(content, Sequence) and not isinstance(content, str):
        for part in content:
            yield from _tensors(part)


def portable_readout(game: Game, path: Path, readout: str = "") -> Sequence[Seat]:
    """A player for each seat from a portable snapshot.

    Raises:
        ReproError: the file is not of that kind, is of another game, or has no such read-out.
    """
    config, snapshot = load_portable(path)
    try:
        check_same_game(path, "a snapshot", game_of(config), game)
        seats = _readout(game, config, _chosen(config, readout)).seats(snapshot)
        # What has the wrong shape for this game shows when it is played.
        SamplingEngine(game).play(list(seats), _TRIAL_HANDS, generator(0, "trial", device=game.device))
    except ReproError:
        raise
    except Exception as error:  # Whoever forges a file can make it hold anything.
        raise ReproError(f"{path} does not hold what its configuration says ({type(error).__name__}).") from error
    return seats
