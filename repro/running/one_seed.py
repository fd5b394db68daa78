"""One training's side of a run: its folder, its record and its runs in MLflow, from opening them to the files left.

A run trains one seed or several together (`repro.running.one_run`); whatever is kept of a training is kept of each
alone.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from repro.algorithms.base import Training
from repro.common.errors import StoppedEarlyError, StorageError
from repro.common.faults import disk_faults_told
from repro.config.checks import TRAINING
from repro.config.keys import training_key
from repro.config.schema import LATER, Config
from repro.evaluation.averages import tabulated
from repro.evaluation.base import Measured
from repro.games.game import Game
from repro.plans.naming import curve_name, params_of, readout_names, run_name
from repro.plans.planned import Run
from repro.policies.files import save_strategy
from repro.policies.readout import Readout
from repro.policies.snapshot import Snapshot, SnapshotFolder
from repro.running.measuring import Measuring
from repro.stored.trained import (
    damaged_tables,
    digest,
    finished_with_others,
    leaves_tables,
    record_of,
    rerun_command,
    save_portable,
    snapshots_of,
    table_of,
    write_config,
)
from repro.tracking import checkpoints, provenance
from repro.tracking import record as records
from repro.tracking.folders import CONFIG, PORTABLE, run_folder
from repro.tracking.mlflow_runs import INVOCATION_TAG, RERUN_TAG, MLflowLater, MLflowRuns, last_attempt
from repro.tracking.record import FINISHED, INVOCATION, RunRecord
from repro.tracking.rows import TrainingRows
from repro.tracking.store import Store, default_uri, experiment_id, open_store


@dataclass
class Seed:
    """One training's side of a run: where it is, what became of it, what is measured of it, and its runs in MLflow."""

    config: Config
    folder: Path
    record: RunRecord
    measuring: Measuring
    mlflow: MLflowRuns | MLflowLater
    rows: TrainingRows

    @classmethod
    def open(
        cls, game: Any, config: Config, labels: Mapping[str, str], record: RunRecord | None, title: str = ""
    ) -> Seed:
        """A training's folder, record and MLflow runs, made where there are none.

        Args:
            labels: target -> scale, of what asked for it.
            record: of the training; None: the one in its folder.
            title: of the run; MLflow's runs that there are keep their names if it is empty.

        Raises:
            ReproError: what is asked of it cannot be done.
            StorageError: a disk or MLflow does not work now.
        """
        key = training_key(config)
        folder = run_folder(config.output_dir, key)
        folder.mkdir(parents=True, exist_ok=True)
        record = record_of(folder, config) if record is None else record
        write_config(folder, config)
        record.labels |= labels
        record.title = title or record.title
        begins_anew = records.is_asked_anew(folder)
        measuring = Measuring(game, config, folder, begins_anew)
        measuring.open_others(snapshots_of(folder) if record.trained and not begins_anew else None)
        if begins_anew:
            # Only now that it is known that what is asked can be done.
            _begin_anew(folder, record)
        # On the disk before any run in MLflow is made: one whose id a kill keeps out of the record is found again.
        known = _experiment(config)
        if record.attempt == records.LOST and known is not None:
            record.attempt = last_attempt(*known, key)
        record.attempt = record.attempt or uuid.uuid4().hex
        records.write(folder, record)
        if not record.trained and not finished_with_others(folder, record):
            record.note_made_with(provenance.made_with())
        before = dict(record.mlflow)
        mlflow = MLflowLater() if known is None else _mlflow_runs(*known, config, record, title)
        # What MLflow lacks in runs that are new to the record is to be made up for, even if this process is killed.
        record.exported &= record.mlflow == before
        records.write(folder, record)
        if begins_anew:
            records.forget_asked_anew(folder)
        return cls(config, folder, record, measuring, mlflow, TrainingRows(folder))

    def is_trained_unnoted(self) -> bool:
        """Whether it is trained, though its record does not say so: a process was killed that trained several."""
        return not self.record.trained and finished_with_others(self.folder, self.record)

    def begin(self, after: int, place: Path) -> None:
        """Go on after an iteration: what is noted of later ones is forgotten, and MLflow catches up with the rest.

        Args:
            after: the iteration; 0 when training begins.
            place: where the checkpoints are of the seeds that are trained together.
        """
        if not after and any(True for folder in (self.folder, place) for _ in folder.glob(checkpoints.SET_ASIDE)):
            # What was trained is kept as the checkpoints are from which it should have gone on.
            snapshots_of(self.folder).set_aside()
        if not after and self.record.made_with != (made_with := {k: [v] for k, v in provenance.made_with().items()}):
            # Of what other processes trained nothing is left.
            self.record.made_with = made_with
            self.mlflow.tag(_shown(made_with))
        snapshots_of(self.folder).forget_after(after)
        self.measuring.forget_after(after)
        self.rows.begin(after)
        self.catch_up()

    def note(self, training: Training) -> None:
        """Note an epoch in the training's folder, and leave a snapshot where one is due."""
        self.record.iteration, self.record.of_training = training.iteration, training.headline()
        self.record.wall_seconds, self.record.cpu_seconds = training.wall_seconds, training.cpu_seconds or 0.0
        self.rows.append(training.iteration, training.metrics)
        if training.is_due:
            assert training.snapshots is not None
            training.snapshots.write(training.snapshot())

    def measure(self, training: Training) -> Measured:
        """Measure what is due of an epoch that is noted, and log it in MLflow."""
        self.mlflow.log(TRAINING, training.metrics, training.iteration)
        measured = self.measuring.measure(training.snapshot()) if training.is_due else {}
        for readout, metrics in measured.items():
            self.mlflow.log(readout, metrics, training.iteration)
        self._note_headline(measured)
        return measured

    def _note_headline(self, measured: Measured) -> None:
        parts = self.record.of_training, self.measuring.headline(measured)
        self.record.headline = ", ".join(filter(None, parts)) or self.record.headline

    def _note_found(self) -> None:
        """Note what the evaluations asked for found, of a finished training: earlier commands may have asked others."""
        evaluations = ", ".join(self.measuring.evaluations)
        self.record.headline = f"{evaluations} measured" if evaluations else self.record.headline
        self._note_headline(self.measuring.newest())

    def catch_up(self) -> None:
        """Log in MLflow what the folder has of the training and its read-outs, and MLflow lacks."""
        self.mlflow.catch_up(TRAINING, self.rows.read())
        for readout, rows in self.measuring.rows().items():
            self.mlflow.catch_up(readout, rows)

    def note_trained(self) -> None:
        """Note, on the disk for sure, that the training is finished."""
        self.record.trained = True
        records.write(self.folder, self.record, sync=True)

    def complete(self) -> bool:
        """Measure what lacks of the finished training, and leave its files. Whether there was anything to do.

        Files are left, and MLflow catches up, where MLflow is told.
        """
        snapshots = snapshots_of(self.folder)
        lacking = len(self.measuring.lacking(snapshots))
        is_told = self.mlflow.is_told
        damaged = damaged_tables(self.folder, self.config) if is_told else []
        if (self.record.exported or not is_told) and not lacking and not damaged:
            self._note_found()
            return False
        for table in damaged:
            print(f"warning: {table} is damaged or gone; it is written again.", file=sys.stderr, flush=True)
        with closing_when_stopped([self], lambda: f"measuring after iteration {self.record.iteration}"):
            # Before MLflow shows that it goes on, so that whoever finds it stopped here repairs what MLflow shows.
            self.record.exported = False
            records.write(self.folder, self.record, sync=True)
            self.mlflow.begin()
            self._tell(0, lacking)
            for number, measured in enumerate(self.measuring.complete(snapshots), start=1):
                self._note_headline(measured)
                self._tell(number, lacking)
            self._note_found()
            if is_told:
                self.catch_up()
                self._leave_files(snapshots)
            self.mlflow.finish("FINISHED")
        self.record.message, self.record.exported, self.record.state = "", is_told, FINISHED
        records.write(self.folder, self.record, sync=True)
        return True

    def _tell(self, measured: int, lacking: int, words: str = "") -> None:
        """Say how far measuring is."""
        done = f"measured {measured} of {lacking} snapshots" if lacking else "leaving its files"
        self.record.message = done + (f", now {words}" if words else "")
        records.write(self.folder, self.record)
        self.measuring.on_words = partial(self._tell, measured, lacking)

    def _leave_files(self, snapshots: SnapshotFolder) -> None:
        """What others may want to take along: the last snapshot in one file, and small strategies as tables."""
        self.mlflow.artifact(TRAINING, self.folder / CONFIG)
        if not self.measuring.readouts:
            return
        snapshot = snapshots.read()
        save_portable(self.folder / PORTABLE, self.config, snapshot)
        self.mlflow.artifact(TRAINING, self.folder / PORTABLE)
        for name, readout in self.measuring.readouts.items():
            self._leave_strategy(name, readout, snapshot)

    def _leave_strategy(self, name: str, readout: Readout, snapshot: Snapshot) -> None:
        game = self.measuring.game
        if not isinstance(game, Game) or not leaves_tables(game):
            return
        path = table_of(self.folder, name)
        path.parent.mkdir(exist_ok=True)
        save_strategy(game, tabulated(game, readout.seats(snapshot)), path)
        self.record.tables[name] = digest(path)
        self.mlflow.artifact(name, path)


def _experiment(config: Config) -> tuple[Store, str] | None:
    """The MLflow store and the id of the experiment, which is that of the game; None if MLflow is told later."""
    if config.tracking_uri == LATER:
        return None
    output = Path(config.output_dir).absolute()
    store = open_store(config.tracking_uri or default_uri(output))
    return store, experiment_id(store, config.game["name"], output / "artifacts")


def _mlflow_runs(store: Store, experiment: str, config: Config, record: RunRecord, title: str) -> MLflowRuns:
    readouts = [TRAINING, *readout_names(config)]
    invocation = os.environ.get(INVOCATION)
    tags = {
        RERUN_TAG: rerun_command([training_key(config)]),
        **_shown(record.made_with),
        **{f"target.{target}": scale for target, scale in record.labels.items()},
        **({INVOCATION_TAG: invocation} if invocation else {}),
    }
    return MLflowRuns(
        store,
        experiment,
        record,
        key=training_key(config),
        names={name: run_name(title, config, name) for name in readouts},
        curves={name: curve_name(title, config, name) for name in readouts},
        params={name: params_of(config, name) for name in readouts},
        tags=tags,
        renames=bool(title),
        data=config.algorithm.stored_data(config),
    )


def _shown(made_with: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What a training was made with, as tags."""
    return {fact: ", ".join(values) for fact, values in made_with.items()}


def _begin_anew(folder: Path, record: RunRecord) -> None:
    """Take nothing of what was done before for done, as asked. Its runs in MLflow stay; new ones are made beside."""
    for path in checkpoints.kept(folder.parent / (record.checkpoints or folder.name)):
        checkpoints.set_aside(path)
    for file in (folder / "evaluations").glob("*.json"):
        file.unlink()
    record.trained = record.exported = False
    record.wall_seconds = record.cpu_seconds = 0.0
    record.checkpoints = record.attempt = ""
    record.made_with, record.mlflow, record.tables = {}, {}, {}


@contextmanager
def closing_when_stopped(seeds: Sequence[Seed], where: Callable[[], str]) -> Iterator[None]:
    """Whatever ends a run before its time, its runs in MLflow say so, and where it was."""
    try:
        with disk_faults_told():
            yield
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        reason = "interrupted" if stopped else str(error)
        status = "KILLED" if stopped or isinstance(error, StorageError | StoppedEarlyError) else "FAILED"
        with suppress(StorageError):  # What ended the run is told, and not that MLflow cannot be told.
            for seed in seeds:
                seed.mlflow.finish(status, f"{where()}: {reason}")
        raise


def headline_of(seeds: Sequence[Seed]) -> str:
    """The first seed's, which it says where there are several."""
    first, several = seeds[0], len(seeds) > 1
    headline = first.record.headline
    return f"{headline} (seed {first.config.seed})" if several and headline else headline


def place_of(seeds: Sequence[Seed]) -> Path:
    """Where the checkpoints of seeds are that are trained together; of a seed alone, in its own folder."""
    return Run([seed.config for seed in seeds], {}).folder
