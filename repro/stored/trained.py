"""Trainings on the disk, as others meet them: their configuration, their game, and their snapshots read out.

A training lies in `outputs/runs/<key>/`; its last snapshot is there as one file, too, `snapshot.pt`, which can be taken
anywhere.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from repro.common import durable
from repro.common.errors import ModuleError, ReproError, told_as
from repro.common.seeding import generator
from repro.config.checks import game_for_checks
from repro.config.keys import from_plain, training_config, training_key
from repro.config.schema import Config, ReadoutConfig
from repro.engine.sampling import SamplingEngine
from repro.games.game import Game
from repro.policies.files import check_same_game, load_strategy
from repro.policies.readout import Readout, Seat
from repro.policies.snapshot import History, Snapshot, SnapshotFolder, load_whole, save_durably
from repro.tracking import checkpoints
from repro.tracking import record as records
from repro.tracking.folders import CONFIG, PORTABLE, existing_folder, run_folder
from repro.tracking.record import RunRecord

MOST_ROWS_IN_A_FILE = 50_000
"""Infosets of the largest game whose strategies are left as a file that a person can read."""

_TRIAL_HANDS = 100


def folder_of(config: Config) -> Path:
    """The folder of a training."""
    return run_folder(config.output_dir, training_key(config))


def is_to_train(config: Config) -> bool:
    """Whether a training is not finished, or to begin anew."""
    folder = folder_of(config)
    record = records.read(folder)
    return records.is_asked_anew(folder) or not (record.trained or finished_with_others(folder, record))


def finished_with_others(folder: Path, record: RunRecord) -> bool:
    """Whether it is finished by what several left that were trained together, whatever its record says."""
    place = record.checkpoints
    return place not in ("", folder.name) and folder.name in checkpoints.finished(folder.parent / place)


def folder_bytes(folder: Path) -> int:
    """What a folder and all below it take on the disk, as sizes of files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def rerun_command(keys: Sequence[str]) -> str:
    """What repeats trainings, and compares, where their output folder is."""
    return " ".join(["python -m repro.rerun", *keys])


def snapshots_of(folder: Path) -> SnapshotFolder:
    """The snapshots in a training's folder."""
    return SnapshotFolder(folder / "snapshots")


def table_of(folder: Path, readout: str) -> Path:
    """Where a training leaves the strategy of a read-out that people can read."""
    return folder / readout / "strategy.csv"


def leaves_tables(game: Game) -> bool:
    """Whether strategies of a game are left as such files."""
    return game.exact == "sequence_form" and game.infosets <= MOST_ROWS_IN_A_FILE


def digest(path: Path) -> str:
    """SHA-256 of a file; nothing if it is not there."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def damaged_tables(folder: Path, config: Config) -> list[Path]:
    """Tables of a training's read-outs that are not any more as they were left, or are gone."""
    left = records.read(folder).tables
    tables = {table_of(folder, readout): left[readout] for readout in config.algorithm.readouts if readout in left}
    return [table for table, sound in tables.items() if digest(table) != sound]


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
        """A training by its key, or by as many of its first digits as no other run has.

        Raises:
            ReproError: there is none, or several, or its configuration cannot be read.
        """
        folder = existing_folder(output_dir, key)
        with _configuration(folder):
            config = from_plain(_load_config(folder))
        config.output_dir = str(output_dir)
        return cls(folder, config, records.read(folder))

    def check_finished(self) -> None:
        """Refuse a training that is not finished, or whose record does not say so any more.

        Raises:
            ReproError: it is not, or is to begin anew.
        """
        if self.record.state == records.DAMAGED:
            raise ReproError(f"{self.record.message} The command that made the run mends it.")
        if records.is_asked_anew(self.folder):
            raise ReproError(f"the run {self.folder.name} is to be done anew (force), which has not begun.")
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
        check_same_game(self.folder, "a run", game_for_checks(self.config), game)
        return self.read_out(game, readout)

    def read_out(self, game: Any, readout: str = "") -> OtherReadout:
        """A read-out of the snapshots that there are, be the training finished or not.

        Args:
            game: the training's.

        Raises:
            ReproError: it has no such read-out.
        """
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
        lacks = f"has no read-out {name!r}; it has" if name else "has several read-outs,"
        raise ReproError(
            f"the run of {config.algorithm.name} {lacks} {', '.join(readouts)}: name one after a slash, as in "
            f"KEY/{next(iter(readouts))}."
        )
    return readouts[name]


@dataclass
class OtherReadout:
    """A read-out of a finished training; see `repro.evaluation.base.Other`.

    It may be met after every iteration: players of the last one, and of that which was met last, are kept, and rows of
    a history, which grows by files that are written once, are looked at once.
    """

    snapshots: SnapshotFolder
    readout: Readout
    _kept: dict[int | None, Sequence[Seat]] = field(default_factory=dict, init=False, repr=False)
    _sound_rows: int = field(default=0, init=False, repr=False)

    @property
    def iterations(self) -> Sequence[int]:
        return self.snapshots.iterations

    def seats(self, iteration: int | None = None) -> Sequence[Seat]:
        """A player for each seat.

        Raises:
            ReproError: there is no such snapshot, or it is damaged.
        """
        if iteration not in self._kept:
            snapshot = self.snapshots.read(iteration)
            seats = _checked_seats(self.snapshots.folder, self.readout, snapshot, self._sound_rows)
            self._sound_rows = max(self._sound_rows, snapshot.iteration)
            for earlier in self._kept.keys() - {None}:
                del self._kept[earlier]
            self._kept[iteration] = seats
        return self._kept[iteration]


@dataclass
class FileReadout:
    """What a `strategy.csv` or `snapshot.pt` plays, to measure against; see `repro.evaluation.base.Other`.

    Args:
        game: the measured training's.
        path: of the file.
        readout: of a snapshot, which has a name; empty: its only one.
    """

    game: Game
    path: Path
    readout: str = ""

    @property
    def iterations(self) -> Sequence[int]:
        """None: it is met as it is, at any time."""
        return ()

    @cached_property
    def _seats(self) -> Sequence[Seat]:
        if not self.path.is_file():
            raise ReproError(f"there is no file {self.path}.")
        if self.path.suffix == ".csv":
            if self.readout:
                raise ReproError(f"{self.path}:{self.readout} names a read-out; a strategy.csv is one itself.")
            table = load_strategy(self.game, self.path)
            return table, table
        return portable_readout(self.game, self.path, self.readout)

    def seats(self, iteration: int | None = None) -> Sequence[Seat]:
        """A player for each seat.

        Raises:
            ReproError: the file cannot be read, or is for another game.
        """
        assert iteration is None
        return self._seats


def _checked_seats(path: Path, readout: Readout, snapshot: Snapshot, sound_rows: int = 0) -> Sequence[Seat]:
    """A player for each seat, from a snapshot that somebody may have changed.

    Args:
        sound_rows: rows of its history, the oldest ones, that are known to be finite.

    Raises:
        ReproError: it does not hold what the training's configuration says.
    """
    if not _is_sound(snapshot, sound_rows):
        raise ReproError(f"{path} is damaged: it does not hold the finite numbers of a snapshot.")
    with _as_configured(path):
        seats, game = readout.seats(snapshot), readout.game
        # What has the wrong shape for this game shows when it is played.
        SamplingEngine(game).play(list(seats), _TRIAL_HANDS, generator(0, "trial", device=game.device))
    return seats


def _as_configured(path: Path) -> AbstractContextManager[None]:
    """Tell whatever goes wrong with a snapshot as what it is: whoever forges a file can make it hold anything."""
    return told_as(lambda error: f"{path} does not hold what its configuration says ({type(error).__name__}).")


def write_config(folder: Path, config: Config) -> None:
    """Write a training's `config.yaml`; read-outs that are there already stay."""
    plain = training_config(config)
    path = folder / CONFIG
    if path.is_file():
        with _configuration(folder):
            before = dict(_load_config(folder)["algorithm"]["readouts"])
        for name, stored in before.items():
            new = plain["algorithm"]["readouts"].get(name, stored)
            if new != stored:
                raise ReproError(
                    f"algorithm.readouts.{name} is {new}, but this run has a read-out of that name, {stored}; choose "
                    "another name."
                )
        plain["algorithm"]["readouts"] = {**before, **plain["algorithm"]["readouts"]}
    durable.write(path, OmegaConf.to_yaml(OmegaConf.create(plain)).encode())


def _load_config(folder: Path) -> dict[str, Any]:
    plain = OmegaConf.to_container(OmegaConf.load(folder / CONFIG))
    if not isinstance(plain, dict):
        raise ValueError("it is no mapping")
    return {str(key): value for key, value in plain.items()}


def _configuration(folder: Path) -> AbstractContextManager[None]:
    """Tell whatever goes wrong with the file of a training's configuration in one sentence."""

    def sentence(error: Exception) -> str:
        why = " ".join(str(error).split()) or type(error).__name__
        return (
            f"{folder / CONFIG} is not the configuration of a run ({why}); without the file, the command that made the "
            "run writes it again."
        )

    return told_as(sentence, passing=(ModuleError,))


def record_of(folder: Path, config: Config) -> RunRecord:
    """A training's record. Where that is damaged or gone, the last snapshot tells whether the training is finished.

    So it is not begun again, which would take its snapshots away.
    """
    record = records.read(folder)
    damaged, gone = record.state == records.DAMAGED, not records.is_there(folder)
    if damaged or (gone and (folder / CONFIG).exists()):
        record.attempt = record.attempt or records.LOST
    complete = config.algorithm.iterations in snapshots_of(folder).iterations
    if damaged or (gone and complete):
        what = record.message if damaged else f"{folder} lacks its record."
        record.trained |= complete
        rest = "the last snapshot is there, so the training is finished" if record.trained else "it is not finished"
        print(f"warning: {what} By what else there is, {rest}.", file=sys.stderr, flush=True)
    return record


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
    stored = load_whole(Path(path), f"the {PORTABLE} of a finished run")
    _check_modules(path, stored.get("config"))
    with told_as(lambda error: f"{path} is not the {PORTABLE} of a finished run.", passing=()):
        config = from_plain(stored["config"])
        history = {name: [History([rows]) for rows in both] for name, both in stored["history"].items()}
        snapshot = Snapshot(int(stored["iteration"]), dict(stored["counts"]), dict(stored["state"]), history)
        sound = _is_sound(snapshot)
    if not sound:
        raise ReproError(f"{path} is damaged: it does not hold the finite numbers of a {PORTABLE}.")
    return config, snapshot


def _check_modules(path: Path | str, config: Any) -> None:
    """Refuse a file that names code to import: it may come from anybody.

    Raises:
        ReproError: it names a module that is not imported yet.
    """
    parts = [config.get(part) for part in ("game", "algorithm")] if isinstance(config, Mapping) else []
    for module in (str(part.get("module") or "repro") for part in parts if isinstance(part, Mapping)):
        if module not in sys.modules:
            raise ReproError(
                f"{path} needs the module {module!r}, which is not imported because a file says so: import it first, "
                "or name the run by its key."
            )


def _is_sound(snapshot: Snapshot, sound_rows: int = 0) -> bool:
    """Whether there are as many rows of history as iterations, and all numbers but of the first rows are finite."""
    both = [history for histories in snapshot.history.values() for history in histories]
    return (
        all(len(histories) == 2 for histories in snapshot.history.values())
        and all(len(history) == snapshot.iteration for history in both)
        and all(map(_is_finite, _tensors([snapshot.state, *(history[sound_rows:] for history in both)])))
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
    with _as_configured(path):
        check_same_game(path, "a snapshot", game_for_checks(config), game)
        chosen = _readout(game, config, _chosen(config, readout))
    return _checked_seats(path, chosen, snapshot)
