"""One training run: from a checked configuration to a finished MLflow run."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import pytorch_lightning as pl
import torch
from mlflow import MlflowClient
from mlflow.entities import Run
from omegaconf import DictConfig, OmegaConf
from threadpoolctl import threadpool_limits

from repro.algorithms.base import Algorithm, TableAlgorithm, Tracked
from repro.algorithms.registry import build, build_for_subgames, together
from repro.config import Config, flatten, game_of, result_config, run_key, settings, single_runs
from repro.games import Game
from repro.opponents import opponents_of
from repro.policies import save_strategy
from repro.policies.record import STRATEGIES, save_records
from repro.tracking import provenance, status
from repro.tracking.checkpoints import Checkpoints, newest_readable
from repro.tracking.store import (
    TRAINING,
    TrackedRun,
    default_uri,
    experiment_id,
    find_runs,
    is_finished,
    open_store,
)
from repro.subgames.subgames import Subgames

_MOST_ROWS_IN_A_TABLE = 50_000


def train(config: DictConfig, folder: Path, state: status.Status, parent: str | None) -> str:
    """Do the run of `config`, or continue it, or skip it when it is finished. Returns its state.

    Of a batched run (`seeds`) those are done that are not finished, unless it was stopped while they were finished one
    after the other.

    Raises:
        ReproError: the run cannot be done as asked.
    """
    first = settings(config)
    client = open_store(first.tracking_uri or default_uri(Path(first.output_dir).absolute()))
    experiment = experiment_id(client, first.target, Path(first.output_dir).absolute() / "artifacts")
    work = _work_left(client, experiment, config, first, folder)
    if not work.configs:
        return status.SKIPPED
    configs, folder = work.configs, work.folder
    checked = [settings(c) for c in configs]
    _quiet_lightning()
    tracked = [
        _open_tracked_run(client, experiment, *one, parent) for one in zip(configs, checked, work.runs, strict=True)
    ]
    torch.set_num_threads(first.threads)
    iteration = 0
    try:
        game = game_of(first, first.device)
        with threadpool_limits(first.threads):
            model = _built(game, checked, client)
        checkpoint, passed_over = newest_readable(folder)
        if passed_over:
            print(f"warning: {passed_over}")
        reports = [_Report(tracked, folder, state), Checkpoints(folder, first.checkpoint_every_seconds)]
        trainer = _trainer(model.steps, first.device, reports, folder)
        try:
            with threadpool_limits(first.threads):
                trainer.fit(model, datamodule=model.datamodule, ckpt_path=checkpoint, weights_only=True)
        finally:
            iteration = model.iteration
        for one, run, plain in zip(model.replicates, tracked, configs, strict=True):
            _write_artifacts(one, run, plain, folder)
        for one, run, plain in zip(model.replicates, tracked, configs, strict=True):
            run.finish("FINISHED")
            if len(configs) > 1:
                own = status.read(_own_folder(plain)).taken_up("")
                own.state, own.iteration, own.iterations = status.FINISHED, one.iteration, one.iterations
                own.headline = _headline(one)
                status.write(_own_folder(plain), own)
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        reason = "interrupted" if stopped else str(error)
        for run in tracked:
            run.finish("KILLED" if stopped else "FAILED", f"iteration {iteration}: {reason}")
        raise
    state.headline = _headline(model) or state.headline
    for file in (*folder.glob("*.ckpt"), folder / model.ARTIFACT, folder / STRATEGIES):
        # The networks are in the artifacts now; the memories serve no one any more.
        file.unlink(missing_ok=True)
    return status.FINISHED


def _built(game: Game | Subgames, checked: Sequence[Config], client: MlflowClient) -> Tracked:
    if isinstance(game, Subgames):
        # Seeds are not done together here.
        return build_for_subgames(game, checked[0])
    return together([build(game, c, opponents_of(client, game, c)) for c in checked])


def _trainer(epochs: int, device: str, callbacks: list[pl.Callback], folder: Path) -> pl.Trainer:
    """Lightning without its own logger, checkpoints and bars: ours are callbacks."""
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="gpu" if device == "cuda" else "cpu",
        devices=1,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
    )


@dataclass(frozen=True)
class _Work:
    """What of a run is still to be done: configurations and MLflow runs, one per seed, and where checkpoints are."""

    configs: list[DictConfig]
    runs: list[dict[str, Run]]
    folder: Path


def _work_left(client: MlflowClient, experiment: str, config: DictConfig, checked: Config, folder: Path) -> _Work:
    configs = single_runs(config)
    found = [find_runs(client, experiment, run_key(c)) for c in configs]
    unfinished = [not is_finished(runs, checked.algorithm.readouts) for runs in found]
    if checked.force:
        # Begin anew, as asked.
        _forget(folder)
        return _Work(configs, [{} for _ in configs], folder)
    if not any(unfinished):
        return _Work([], [], folder)
    if not all(unfinished) and not any(folder.glob("*.ckpt")):
        # Some seeds were finished by other commands. Were it this one, stopped just then, it would have a checkpoint.
        configs, found = list(compress(configs, unfinished)), list(compress(found, unfinished))
        folder = folder / f"seeds-{'-'.join(str(c.seed) for c in configs)}"
        folder.mkdir(exist_ok=True)
    if not all(TRAINING in runs for runs in found):
        # The store does not know the runs that these checkpoints belong to.
        _forget(folder)
    return _Work(configs, found, folder)


def _forget(folder: Path) -> None:
    for file in folder.glob("*.ckpt"):
        file.unlink()


def _quiet_lightning() -> None:
    # Its hints (number of data-loading workers, logger steps) do not apply to a run that makes its own data.
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")


def _open_tracked_run(
    client: MlflowClient,
    experiment: str,
    config: DictConfig,
    checked: Config,
    runs: Mapping[str, Run],
    parent: str | None,
) -> TrackedRun:
    plain = result_config(config)
    flat = {k: v for k, v in flatten(plain).items() if k not in ("seed", "scale", "target")}
    short = {"game": checked.game["name"], "seed": checked.seed, "scale": checked.scale, "target": checked.target}
    tags = {**provenance.code(), **provenance.hardware(), **provenance.versions()}
    label = f"{checked.game['name']} seed={checked.seed} {checked.scale}"
    own = _own_folder(config)
    own.mkdir(parents=True, exist_ok=True)
    (own / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(plain)))
    tracked = TrackedRun(
        client,
        experiment,
        key=run_key(config),
        label=label,
        runs=runs,
        algorithms={TRAINING: checked.algorithm.name, **{name: name for name in checked.algorithm.readouts}},
        params={**short, **{k: v for k, v in flat.items() if k != "game.name"}},
        tags=tags,
        parent=parent,
    )
    tracked.artifact(TRAINING, own / "config.yaml")
    return tracked


def _own_folder(config: DictConfig) -> Path:
    """Where a single seed's configuration and status are; its checkpoints too, unless it is trained with others."""
    return Path(config.output_dir).absolute() / "runs" / run_key(config)


class _Report(pl.Callback):
    """Sends each iteration's metrics to MLflow and its progress to the status file."""

    def __init__(self, tracked: Sequence[TrackedRun], folder: Path, state: status.Status) -> None:
        self._tracked, self._folder, self._state = tracked, folder, state
        self._started = time.monotonic()
        self._first = 0

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Tracked)
        if pl_module.iteration == pl_module.iterations:
            # Stopped between its last checkpoint and its end. Read-outs are draws of their own: repeat them, here,
            # where networks are still on their device.
            pl_module.evaluate()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Tracked)
        self._state.iterations = pl_module.iterations
        self._first = self._state.iteration = pl_module.iteration
        self._started = time.monotonic()
        status.write(self._folder, self._state)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Tracked)
        for model, tracked in zip(pl_module.replicates, self._tracked, strict=True):
            for readout, measured in model.metrics.items():
                tracked.log(readout or TRAINING, measured, model.iteration)
        self._state.headline = _headline(pl_module) or self._state.headline
        self._state.iteration = pl_module.iteration
        done = pl_module.iteration - self._first
        self._state.seconds_per_iteration = (time.monotonic() - self._started) / done
        status.write(self._folder, self._state)


def _headline(model: Tracked) -> str:
    """Of several seeds the first one's."""
    first = model.replicates[0]
    found = first.headline()
    return f"{found} (seed {first.seed})" if found and len(model.replicates) > 1 else found


def _write_artifacts(model: Tracked, tracked: TrackedRun, config: DictConfig, folder: Path) -> None:
    """What was trained and kept, on the training run; a read-out's last strategy as `strategy.csv` on its own."""
    stored = model.artifact()
    if stored is not None:
        torch.save({"config": result_config(config), **stored}, folder / model.ARTIFACT)
        tracked.artifact(TRAINING, folder / model.ARTIFACT)
    if isinstance(model, TableAlgorithm) and model.records:
        save_records(folder / STRATEGIES, result_config(config), model.records)
        tracked.artifact(TRAINING, folder / STRATEGIES)
    if isinstance(model, Algorithm) and model.game.infosets <= _MOST_ROWS_IN_A_TABLE:
        for readout, policy in model.policies.items():
            path = folder / readout / "strategy.csv"
            path.parent.mkdir(exist_ok=True)
            save_strategy(model.game, policy, path)
            tracked.artifact(readout, path)
