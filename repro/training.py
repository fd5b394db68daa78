"""One run: from a checked configuration to a finished training that is measured as asked.

    instantiate, fit, finish

A training that is finished is not trained again; what of its evaluations lacks is measured from its snapshots.
"""

from __future__ import annotations

import logging
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from pytorch_lightning.callbacks import Checkpoint
from threadpoolctl import threadpool_limits

from repro import leftovers
from repro.algorithms.base import Training
from repro.config.checks import TRAINING, check_with_game, game_of
from repro.config.keys import hyperparameters, training_key
from repro.config.schema import Config
from repro.errors import ReproError, StorageError
from repro.evaluation.averages import tabulated
from repro.evaluation.base import Measured
from repro.faults import causes, disk_fault, disk_faults_told
from repro.games.game import Game
from repro.measuring import Measuring
from repro.planning import Run
from repro.policies.files import save_strategy
from repro.policies.readout import Readout
from repro.policies.snapshot import Snapshot, SnapshotFolder
from repro.tracking import checkpoints, provenance
from repro.tracking import record as records
from repro.tracking.checkpoints import Checkpoints
from repro.tracking.record import FINISHED, SKIPPED, RunRecord
from repro.tracking.rows import TrainingRows
from repro.tracking.store import MLflowRuns, default_uri, experiment_id, open_store
from repro.trained import CONFIG, PORTABLE, record_of, run_folder, save_portable, snapshots_of, write_config

_NO_FAULT_OF_A_CHECKPOINT = (OSError, StorageError, MemoryError, torch.OutOfMemoryError)
"""Errors that say nothing of the checkpoint from which training was to start."""

MOST_ROWS_IN_A_FILE = 50_000
"""Infosets of the largest game whose strategies are left as a file that a person can read."""


@dataclass
class Seed:
    """One training's side of a run: where it is, what became of it, what is measured of it, and its runs in MLflow."""

    config: Config
    folder: Path
    record: RunRecord
    measuring: Measuring
    mlflow: MLflowRuns
    rows: TrainingRows

    def report(self, training: Training, measured: Measured) -> None:
        """Note an epoch: in the training's folder, then in MLflow."""
        self.rows.append(training.iteration, training.metrics)
        self.mlflow.log(TRAINING, training.metrics, training.iteration)
        for readout, metrics in measured.items():
            self.mlflow.log(readout, metrics, training.iteration)


@disk_faults_told()
def train(configs: Sequence[Config], labels: Mapping[str, str], folder: Path, record: RunRecord) -> str:
    """Do a run, or continue it, or measure what lacks of it; returns its state.

    Args:
        configs: one per seed; of several, those are done together that are not finished.
        labels: target -> scale, of what asked for it.
        folder: where checkpoints are: the training's, or of several seeds one for all.
        record: of the run: that of the training itself, or one for all seeds.

    Raises:
        ReproError: the run cannot be done as asked.
        StorageError: it was interrupted, because a disk or MLflow does not work now; it can be continued.
    """
    config = configs[0]
    _quiet_lightning()
    torch.set_num_threads(config.threads)
    with threadpool_limits(config.threads):
        game = game_of(config)
        check_with_game(config, game)
        seeds = [_open(game, one, labels, record if len(configs) == 1 else None) for one in configs]
        _note_trained(filter(_is_trained, seeds))
        state = SKIPPED
        for together in _begun_together([seed for seed in seeds if not seed.record.trained]):
            _fit(game, together, folder, record)
            state = FINISHED
        for each in (folder, *(seed.folder for seed in seeds)):
            leftovers.remove_useless_checkpoints(each)
        for seed in seeds:
            state = FINISHED if _complete(seed) else state
    record.headline = _headline(seeds)
    return state


def _headline(seeds: Sequence[Seed]) -> str:
    """The first seed's, which it says where there are several."""
    first, several = seeds[0], len(seeds) > 1
    headline = first.record.headline
    return f"{headline} (seed {first.config.seed})" if several and headline else headline


# -- before ----------------------------------------------------------------------------------------------------------


def _open(game: Any, config: Config, labels: Mapping[str, str], record: RunRecord | None) -> Seed:
    """A training's folder, record and MLflow runs, made where there are none."""
    key = training_key(config)
    folder = run_folder(config.output_dir, key)
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, config)
    record = record_of(folder, config) if record is None else record
    record.labels |= labels
    begins_anew = records.is_asked_anew(folder)
    measuring = Measuring(game, config, folder, begins_anew)
    measuring.open_others(snapshots_of(folder) if record.trained and not begins_anew else None)
    if begins_anew:
        # Only now that it is known that what is asked can be done.
        _begin_anew(folder, record)
    # On the disk before any run in MLflow is made, so that one whose id a kill keeps out of the record is found again.
    record.attempt = record.attempt or uuid.uuid4().hex
    records.write(folder, record)
    if not record.trained:
        record.note_made_with({**provenance.code(), **provenance.hardware(), **provenance.versions()})
    known = dict(record.mlflow)
    mlflow = _mlflow_runs(config, key, record)
    # What MLflow lacks in runs that are new to the record is to be made up for, even if this process is killed.
    record.exported &= record.mlflow == known
    records.write(folder, record)
    if begins_anew:
        records.forget_asked_anew(folder)
    return Seed(config, folder, record, measuring, mlflow, TrainingRows(folder))


def _mlflow_runs(config: Config, key: str, record: RunRecord) -> MLflowRuns:
    output = Path(config.output_dir).absolute()
    client = open_store(config.tracking_uri or default_uri(output))
    game, algorithm = config.game["name"], config.algorithm
    readouts = [TRAINING, *_readout_names(config)]
    flat = {k: v for k, v in hyperparameters(config).items() if k not in ("game.name", "algorithm.name")}
    tags = {
        **{name: ", ".join(values) for name, values in record.made_with.items()},
        **{f"target.{target}": scale for target, scale in record.labels.items()},
    }
    return MLflowRuns(
        client,
        experiment_id(client, game, output / "artifacts"),
        record,
        key=key,
        names={name: f"{algorithm.name if name == TRAINING else name} {game} seed={config.seed}" for name in readouts},
        params={
            name: {"algorithm": algorithm.name if name == TRAINING else name, "game": game, "seed": config.seed, **flat}
            for name in readouts
        },
        tags=tags,
    )


def _readout_names(config: Config) -> list[str]:
    """Whatever metrics are measured of: the read-outs, and what evaluations call so."""
    named = [n for e in config.evaluation.values() for n in e.names(config.algorithm.readouts)]
    return list(dict.fromkeys([*config.algorithm.readouts, *named]))


def _begin_anew(folder: Path, record: RunRecord) -> None:
    """Take nothing of what was done before for done, as asked. Its runs in MLflow stay; new ones are made beside."""
    for path in checkpoints.kept(folder.parent / (record.checkpoints or folder.name)):
        checkpoints.set_aside(path)
    for file in (folder / "evaluations").glob("*.json"):
        file.unlink()
    record.trained = record.exported = False
    record.wall_seconds, record.checkpoints, record.attempt = 0.0, "", ""
    record.made_with, record.mlflow = {}, {}


def _is_trained(seed: Seed) -> bool:
    """Whether a seed is trained, though its record does not say so: a process was killed that trained several."""
    place = seed.record.checkpoints
    return (
        not seed.record.trained
        and place not in ("", seed.folder.name)
        and training_key(seed.config) in checkpoints.finished(seed.folder.parent / place)
    )


def _begun_together(seeds: Sequence[Seed]) -> list[Sequence[Seed]]:
    """Seeds that are not trained, in groups: those that one checkpoint is of go on from it, and the rest together."""
    by_place: dict[Path, list[Seed]] = {}
    for seed in seeds:
        by_place.setdefault(seed.folder.parent / seed.record.checkpoints, []).append(seed)
    whole = [group for place, group in by_place.items() if place == _place(group) and checkpoints.kept(place)]
    rest = [seed for seed in seeds if not any(seed in group for group in whole)]
    return [*whole, *filter(None, [rest])]


def _place(seeds: Sequence[Seed]) -> Path:
    """Where the checkpoints of seeds are that are trained together; of a seed alone, in its own folder."""
    return seeds[0].folder.parent / Run([seed.config for seed in seeds], {}).key


def _take_over(seeds: Sequence[Seed], place: Path) -> None:
    """Nobody else continues these trainings from here on, because their snapshots will be this run's.

    A checkpoint lacks what of the history is in snapshots, so one that another run has left, of a seed alone or of
    other seeds together, must not be continued from.
    """
    for seed in seeds:
        before = seed.folder.parent / (seed.record.checkpoints or place.name)
        if before != place:
            for path in checkpoints.kept(before):
                checkpoints.set_aside(path)
        seed.record.checkpoints = place.name
        records.write(seed.folder, seed.record)


# -- training --------------------------------------------------------------------------------------------------------


def _fit(game: Any, seeds: Sequence[Seed], folder: Path, record: RunRecord) -> None:
    """Train what is not finished, from the newest checkpoint from which training starts.

    Args:
        folder: of the run's record.
    """
    place, keys = _place(seeds), [training_key(seed.config) for seed in seeds]
    place.mkdir(exist_ok=True)
    _take_over(seeds, place)
    model = _model(game, seeds)
    passed_over: dict[Path, str] = {}
    with _closing_when_stopped(seeds, lambda: f"iteration {model.iteration}"):
        for seed in seeds:
            seed.mlflow.begin()
        for path in checkpoints.kept(place):
            problem = checkpoints.problem(path, keys)
            reporting = Reporting(seeds, folder, record, passed_over)
            try:
                if not problem:
                    _train(model, seeds, reporting, path)
                    break
            except Exception as error:
                if reporting.has_started:
                    raise
                if any(isinstance(cause, _NO_FAULT_OF_A_CHECKPOINT) for cause in causes(error)):
                    raise disk_fault(error) or error  # noqa: B904  (either has the first cause)
                problem, model = f"does not fit ({type(error).__name__})", _model(game, seeds)
            passed_over[path] = problem
        else:
            _train(model, seeds, Reporting(seeds, folder, record, passed_over), None)
    _note_trained(seeds)
    leftovers.remove_useless_checkpoints(place)


def _train(model: Training, seeds: Sequence[Seed], reporting: Reporting, checkpoint: Path | None) -> None:
    """Train to the end, from a checkpoint or from the beginning."""
    config, place = seeds[0].config, _place(seeds)
    trainer = _trainer(config, model, [reporting], place)
    keys = [training_key(seed.config) for seed in seeds]
    # After the user's, and (as one of Lightning's checkpoints) after those that stop: a run that they stop can be
    # continued.
    trainer.callbacks.append(Checkpoints(place, keys, config.checkpoint_every_seconds))  # type: ignore[attr-defined]
    trainer.fit(model, datamodule=model.datamodule, ckpt_path=checkpoint, weights_only=True)
    if model.iteration < model.iterations:
        raise ReproError(
            f"training was stopped by a callback after iteration {model.iteration} of {model.iterations}; repeat "
            "the command without it to continue."
        )


def _note_trained(seeds: Iterable[Seed]) -> None:
    for seed in seeds:
        seed.record.trained = True
        records.write(seed.folder, seed.record, sync=True)


def _model(game: Any, seeds: Sequence[Seed]) -> Training:
    trainings = [seed.config.algorithm.build(game, seed.config) for seed in seeds]
    for training, seed in zip(trainings, seeds, strict=True):
        training.snapshots = snapshots_of(seed.folder)
    together: Training = seeds[0].config.algorithm.together(trainings)
    return together


def _trainer(config: Config, model: Training, callbacks: list[pl.Callback], folder: Path) -> pl.Trainer:
    """Lightning's Trainer as configured, with the suite's callbacks before the user's."""
    options = dict(config.trainer)
    users = [instantiate(node) for node in (options.pop("callbacks", None) or {}).values()]
    loggers = [instantiate({**node, **_in(folder, node)}) for node in config.logger.values()]
    trainer: pl.Trainer = instantiate(
        {"_target_": "pytorch_lightning.Trainer", **options},
        max_epochs=model.steps,
        accelerator="gpu" if config.device == "cuda" else "cpu",
        callbacks=[*callbacks, *users],
        logger=loggers or False,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in users),
        default_root_dir=str(folder),
    )
    return trainer


def _in(folder: Path, logger: Mapping[str, Any]) -> dict[str, str]:
    """The run's folder, for a logger that is to save somewhere and was not told where."""
    return {"save_dir": str(folder)} if "save_dir" in logger and logger["save_dir"] is None else {}


@contextmanager
def _closing_when_stopped(seeds: Sequence[Seed], where: Callable[[], str]) -> Iterator[None]:
    """Whatever ends a run before its time, its runs in MLflow say so, and where it was."""
    try:
        with disk_faults_told():
            yield
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        reason = "interrupted" if stopped else str(error)
        status = "KILLED" if stopped or isinstance(error, StorageError) else "FAILED"
        with suppress(StorageError):  # What ended the run is told, and not that MLflow cannot be told.
            for seed in seeds:
                seed.mlflow.finish(status, f"{where()}: {reason}")
        raise


def _has_unusable(*folders: Path) -> bool:
    """Whether checkpoints were set aside in any of these folders."""
    return any(True for folder in folders for _ in folder.glob("unusable-*.ckpt"))


def _quiet_lightning() -> None:
    # Its hints (number of data-loading workers, logger steps) do not apply to a run that makes its own data.
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")


class Reporting(pl.Callback):
    """After every epoch: store and measure a snapshot where one is due, and report.

    What is measured goes to the training's folder, to MLflow, and through `log_dict` to whatever loggers and callbacks
    the user has added, as `<read-out>/<metric>` (of several seeds, the first one's).

    Args:
        folder: of the run's record.
        passed_over: checkpoints from which training did not start, and why; only when it does are they set aside.

    Attributes:
        has_started: whether training has.
    """

    def __init__(self, seeds: Sequence[Seed], folder: Path, record: RunRecord, passed_over: Mapping[Path, str]) -> None:
        self._seeds, self._folder, self._record, self._passed_over = seeds, folder, record, passed_over
        self._started, self._first = time.monotonic(), 0
        self.has_started = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Training)
        self.has_started, first = True, pl_module.iteration
        for path, problem in self._passed_over.items():
            instead = f"training goes on after iteration {first}" if first else "training begins anew"
            name = checkpoints.set_aside(path).name
            print(f"warning: {path} {problem}; {instead}, and it is kept as {name}.", file=sys.stderr, flush=True)
        for seed in self._seeds:
            if not first and _has_unusable(seed.folder, _place(self._seeds)):
                # What was trained is kept as the checkpoints are from which it should have gone on.
                snapshots_of(seed.folder).set_aside()
            snapshots_of(seed.folder).forget_after(first)
            seed.measuring.forget_after(first)
            seed.rows.begin(first)
            seed.mlflow.catch_up(TRAINING, seed.rows.read())
            for readout, rows in seed.measuring.rows().items():
                seed.mlflow.catch_up(readout, rows)
        self._first = self._record.iteration = first
        self._record.iterations = pl_module.iterations
        self._started = time.monotonic()
        records.write(self._folder, self._record)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Training)
        for training, seed in zip(pl_module.replicates, self._seeds, strict=True):
            measured = self._measured(training, seed)
            seed.report(training, measured)
            seed.record.wall_seconds, seed.record.iteration = training.wall_seconds, training.iteration
            seed.record.headline = seed.measuring.headline(measured) or training.headline() or seed.record.headline
            if seed is self._seeds[0]:
                self._tell_lightning(pl_module, training, measured)
        self._report(pl_module)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # What the checkpoint goes on from must be on the disk when it is.
        for seed in self._seeds:
            seed.rows.sync()

    def _measured(self, training: Training, seed: Seed) -> Measured:
        if not training.is_due:
            return {}
        snapshot = training.snapshot()
        assert training.snapshots is not None
        training.snapshots.write(snapshot)
        return seed.measuring.measure(snapshot)

    def _tell_lightning(self, pl_module: pl.LightningModule, training: Training, measured: Measured) -> None:
        flat = {f"{readout}/{name}": value for readout, metrics in measured.items() for name, value in metrics.items()}
        pl_module.log_dict({**training.metrics, **flat, "step": float(training.iteration)}, batch_size=1)

    def _report(self, training: Training) -> None:
        self._record.headline = _headline(self._seeds)
        self._record.iteration = training.iteration
        iterations = training.iteration - self._first
        self._record.seconds_per_iteration = (time.monotonic() - self._started) / iterations
        records.write(self._folder, self._record)


# -- after -----------------------------------------------------------------------------------------------------------


def _complete(seed: Seed) -> bool:
    """Measure what lacks of a finished training, and leave its files. Whether there was anything to do."""
    snapshots = snapshots_of(seed.folder)
    lacking = len(seed.measuring.lacking(snapshots))
    if seed.record.exported and not lacking:
        return False
    with _closing_when_stopped([seed], lambda: f"measuring after iteration {seed.record.iteration}"):
        # Before MLflow shows that it goes on, so that whoever finds it stopped here repairs what MLflow shows.
        seed.record.exported = False
        records.write(seed.folder, seed.record, sync=True)
        seed.mlflow.begin()
        for number, measured in enumerate(seed.measuring.complete(snapshots), start=1):
            seed.record.headline = seed.measuring.headline(measured) or seed.record.headline
            seed.record.message = f"measured {number} of {lacking} snapshots"
            records.write(seed.folder, seed.record)
        seed.mlflow.catch_up(TRAINING, seed.rows.read())
        for readout, rows in seed.measuring.rows().items():
            seed.mlflow.catch_up(readout, rows)
        _leave_files(seed, snapshots)
        seed.mlflow.finish("FINISHED")
    seed.record.message, seed.record.exported, seed.record.state = "", True, FINISHED
    records.write(seed.folder, seed.record, sync=True)
    return True


def _leave_files(seed: Seed, snapshots: SnapshotFolder) -> None:
    """What others may want to take along: the last snapshot in one file, and small strategies as tables."""
    seed.mlflow.artifact(TRAINING, seed.folder / CONFIG)
    if not seed.measuring.readouts:
        return
    snapshot = snapshots.read()
    save_portable(seed.folder / PORTABLE, seed.config, snapshot)
    seed.mlflow.artifact(TRAINING, seed.folder / PORTABLE)
    for name, readout in seed.measuring.readouts.items():
        _leave_strategy(seed, name, readout, snapshot)


def _leave_strategy(seed: Seed, name: str, readout: Readout, snapshot: Snapshot) -> None:
    game = seed.measuring.game
    if not isinstance(game, Game) or game.exact != "sequence_form" or game.infosets > MOST_ROWS_IN_A_FILE:
        return
    path = seed.folder / name / "strategy.csv"
    path.parent.mkdir(exist_ok=True)
    save_strategy(game, tabulated(game, readout.seats(snapshot)), path)
    seed.mlflow.artifact(name, path)
