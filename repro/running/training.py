"""Training by Lightning: what of a run's seeds is not trained, from the newest checkpoint from which that starts.

Which seeds these are is of `repro.running.one_run`, and what is kept of each training of `repro.running.one_seed`.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from pytorch_lightning.callbacks import Checkpoint
from threadpoolctl import threadpool_limits

from repro.algorithms.base import Training
from repro.algorithms.ranks import Ranks
from repro.common import stopping
from repro.common.errors import ReproError, StoppedEarlyError, StorageError
from repro.common.faults import causes, disk_fault
from repro.config.checks import game_of
from repro.config.keys import training_key
from repro.config.lightning import processes_of
from repro.config.schema import Config
from repro.evaluation.base import Measured
from repro.plans.planned import Run
from repro.running.lightning_modules import module_of, training_in
from repro.running.one_seed import Seed, closing_when_stopped, headline_of, place_of
from repro.running.processes import Processes
from repro.running.saving import Checkpoints
from repro.stored import leftovers
from repro.stored.trained import snapshots_of
from repro.tracking import checkpoints
from repro.tracking import record as records
from repro.tracking.record import RunRecord

_NO_FAULT_OF_A_CHECKPOINT = (OSError, StorageError, MemoryError, torch.OutOfMemoryError)
"""Errors that say nothing of the checkpoint from which training was to start."""


def fit(game: Any, seeds: Sequence[Seed], folder: Path, record: RunRecord) -> None:
    """Train seeds together that are not trained, from the newest checkpoint from which that starts.

    Args:
        folder: of the run's record.

    Raises:
        ReproError, StorageError: as for `repro.running.one_run.do`.
    """
    _quiet_lightning()
    place, keys = place_of(seeds), [training_key(seed.config) for seed in seeds]
    place.mkdir(exist_ok=True)
    _take_over(seeds, place)
    model = _model(game, seeds)
    passed_over: dict[Path, str] = {}
    with closing_when_stopped(seeds, lambda: f"iteration {model.iteration}"), ExitStack() as stack:
        for seed in seeds:
            seed.mlflow.begin()
        if seeds[0].config.system_metrics:
            stack.enter_context(seeds[0].mlflow.with_load())
        for path in checkpoints.kept(place):
            problem = checkpoints.problem(path, keys)
            reporting = Reporting(seeds, folder, record, passed_over)
            try:
                if not problem:
                    _train(model, seeds, reporting, path)
                    break
            except Exception as error:
                if reporting.has_started or processes_of(seeds[0].config) > 1:  # Others are not started again.
                    raise
                if any(isinstance(cause, _NO_FAULT_OF_A_CHECKPOINT) for cause in causes(error)):
                    raise disk_fault(error) or error  # noqa: B904  (either has the first cause)
                problem, model = f"does not fit ({type(error).__name__})", _model(game, seeds)
            passed_over[path] = problem
        else:
            _train(model, seeds, Reporting(seeds, folder, record, passed_over), None)
    for seed in seeds:
        seed.note_trained()
    leftovers.remove_useless_checkpoints(place)


def _take_over(seeds: Sequence[Seed], place: Path) -> None:
    """Nobody else continues these trainings from here on, because their snapshots will be this run's.

    A checkpoint lacks what of the history is in snapshots, so one that another run has left, of a seed alone or of
    other seeds together, must not be continued from. It is kept, and so are the snapshots, until they are finished.
    """
    for seed in seeds:
        before = seed.folder.parent / (seed.record.checkpoints or place.name)
        if before != place:
            _set_aside(before)
            if any(before.glob(checkpoints.SET_ASIDE)):
                snapshots_of(seed.folder).set_aside()
        seed.record.checkpoints = place.name
        records.write(seed.folder, seed.record)


def _set_aside(place: Path) -> None:
    """Keep the checkpoints of a run that nobody goes on from, and say so if there are any."""
    begun = ", ".join(sorted(checkpoints.trainings(place)))
    for number, path in enumerate(checkpoints.kept(place)):
        if not number:
            what = f"what the run {place.name} has begun ({begun}) was not finished there, and begins anew"
            print(f"warning: {what}.", file=sys.stderr, flush=True)
        checkpoints.set_aside(path)


def _train(model: Training, seeds: Sequence[Seed], reporting: Reporting, checkpoint: Path | None) -> None:
    """Train to the end, from a checkpoint or from the beginning."""
    config, place = seeds[0].config, place_of(seeds)
    trainer = _trainer(config, model, [reporting], place)
    keys = [training_key(seed.config) for seed in seeds]
    strategy = trainer.strategy
    with strategy.losses_told() if isinstance(strategy, Processes) else nullcontext():
        _fit_from(checkpoint, trainer, model, Checkpoints(place, keys, config.checkpoint_every_seconds))
    if model.iteration < model.iterations:
        for stopped in (c for c in trainer.callbacks if isinstance(c, EndsEarly) and c.reason):  # type: ignore[attr-defined]
            raise StoppedEarlyError(f"{stopped.reason}; repeat the command to continue.")
        raise ReproError(
            f"training was stopped by a callback after iteration {model.iteration} of {model.iterations}; repeat "
            "the command without it to continue."
        )


def _fit_from(checkpoint: Path | None, trainer: pl.Trainer, model: Training, saving: Checkpoints) -> None:
    # After the user's, and (as one of Lightning's checkpoints) after those that stop: a run that they stop can be
    # continued.
    trainer.callbacks.append(saving)  # type: ignore[attr-defined]
    with stopping.iterating():
        trainer.fit(module_of(model), ckpt_path=checkpoint, weights_only=True)


def follow(config: Config, rank: int) -> None:
    """Do the part that a process other than the first one has in a training of several.

    The first one has chosen the checkpoint to go on from: the newest without a problem, which stays until all processes
    have read it.

    Args:
        rank: of this process, above 0.
    """
    _quiet_lightning()
    torch.set_num_threads(config.threads)
    with threadpool_limits(config.threads):
        model = config.algorithm.build_rank(game_of(config), config, Ranks(rank, processes_of(config)))
        place, keys = Run([config], {}).folder, [training_key(config)]
        sound = (path for path in checkpoints.kept(place) if not checkpoints.problem(path, keys))
        trainer = _trainer(replace(config, logger={}), model, [], place)
        _fit_from(next(sound, None), trainer, model, Checkpoints(place, keys, config.checkpoint_every_seconds))


def _model(game: Any, seeds: Sequence[Seed]) -> Training:
    config = seeds[0].config
    ranks = Ranks(0, processes_of(config))
    trainings = [seed.config.algorithm.build_rank(game, seed.config, ranks) for seed in seeds]
    for training, seed in zip(trainings, seeds, strict=True):
        training.snapshots = snapshots_of(seed.folder)
    together: Training = config.algorithm.together(trainings)
    return together


def _trainer(config: Config, model: Training, callbacks: list[pl.Callback], folder: Path) -> pl.Trainer:
    """Lightning's Trainer as configured, with the suite's callbacks before the user's."""
    options = dict(config.trainer)
    users = [instantiate(node) for node in (options.pop("callbacks", None) or {}).values()]
    loggers = [instantiate({**node, **_in(folder, node)}) for node in config.logger.values()]
    several = {"strategy": Processes(), "use_distributed_sampler": False} if processes_of(config) > 1 else {}
    trainer: pl.Trainer = instantiate(
        {"_target_": "pytorch_lightning.Trainer", **options},
        **several,
        max_epochs=model.steps,
        accelerator="gpu" if config.device == "cuda" else "cpu",
        callbacks=[*callbacks, *users],
        logger=loggers or False,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in users),
        default_root_dir=str(folder),
    )
    return trainer


def _is_watched(config: Config) -> bool:
    """Whether callbacks or loggers of the user's are told of a training, which must not miss its last iteration."""
    return bool(config.logger or config.trainer.get("callbacks"))


def _in(folder: Path, logger: Mapping[str, Any]) -> dict[str, str]:
    """The run's folder, for a logger that is to save somewhere and was not told where."""
    return {"save_dir": str(folder)} if "save_dir" in logger and logger["save_dir"] is None else {}


def _quiet_lightning() -> None:
    # Its hints (number of data-loading workers, logger steps) do not apply to a run that makes its own data.
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")


class EndsEarly(pl.Callback):
    """A callback that may stop a training on purpose (`trainer.should_stop`), which is interrupted then, not failed.

    Attributes:
        reason: why it has; empty if it has not.
    """

    reason = ""


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
        training = training_in(pl_module)
        stopping.hear_again()  # Lightning takes SIGTERM as the end of a batch.
        self.has_started, first = True, training.iteration
        for path, problem in self._passed_over.items():
            instead = f"training goes on after iteration {first}" if first else "training begins anew"
            name = checkpoints.set_aside(path).name
            print(f"warning: {path} {problem}; {instead}, and it is kept as {name}.", file=sys.stderr, flush=True)
        for seed in self._seeds:
            seed.begin(first, place_of(self._seeds))
        self._first = self._record.iteration = first
        self._record.iterations = training.iterations
        self._started = time.monotonic()
        records.write(self._folder, self._record)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        whole = training_in(pl_module)
        both = list(zip(whole.replicates, self._seeds, strict=True))
        for training, seed in both:
            seed.note(training)
        self._record.iteration = whole.iteration
        if whole.iteration == whole.iterations and not _is_watched(self._seeds[0].config):
            self._note_trained(trainer)
        for training, seed in both:
            measured = self._measured(training, seed)
            if seed is self._seeds[0]:
                self._tell_lightning(pl_module, training, measured)
        self._report(whole)
        trainer.should_stop |= stopping.is_asked()

    def _note_trained(self, trainer: pl.Trainer) -> None:
        """Note that all are trained: measuring the last iteration can take as long again, and may be stopped."""
        saving = next(callback for callback in trainer.callbacks if isinstance(callback, Checkpoints))  # type: ignore[attr-defined]
        if len(self._seeds) > 1:
            # Of all at once, or of none.
            for seed in self._seeds:
                records.write(seed.folder, seed.record, sync=True)
            records.write(self._folder, self._record)
            saving.save(trainer)
        for seed in self._seeds:
            seed.rows.sync()
            seed.note_trained()
        saving.is_needed = False

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # What the checkpoint goes on from must be on the disk when it is.
        for seed in self._seeds:
            seed.rows.sync()

    def _measured(self, training: Training, seed: Seed) -> Measured:
        if training.is_due:
            # Which can take as long as many iterations, of which the run's progress would show none.
            self._record.message = f"measuring iteration {training.iteration}"
            records.write(self._folder, self._record)
            seed.measuring.on_words = partial(self._tell, self._record.message)
        return seed.measure(training)

    def _tell(self, doing: str, words: str) -> None:
        self._record.message = f"{doing}: {words}"
        records.write(self._folder, self._record)

    def _tell_lightning(self, pl_module: pl.LightningModule, training: Training, measured: Measured) -> None:
        flat = {f"{readout}/{name}": value for readout, metrics in measured.items() for name, value in metrics.items()}
        pl_module.log_dict({**training.metrics, **flat, "step": float(training.iteration)}, batch_size=1)

    def _report(self, training: Training) -> None:
        self._record.headline, self._record.message = headline_of(self._seeds), ""
        work = self._seeds[0].config.algorithm.work
        done, left = work(training.iteration) - work(self._first), training.iterations - training.iteration
        to_do = (work(training.iterations) - work(training.iteration)) / left if left else done / training.iteration
        self._record.seconds_per_iteration = (time.monotonic() - self._started) / done * to_do
        records.write(self._folder, self._record)
