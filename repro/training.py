"""One training run: from a checked configuration to a finished MLflow run."""

from __future__ import annotations

import logging
import time
import warnings
from pathlib import Path

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig, OmegaConf
from threadpoolctl import threadpool_limits

from repro.algorithms.base import Algorithm
from repro.algorithms.registry import build
from repro.config import Config, flatten, result_config, settings
from repro.evaluation.units import unit_name
from repro.games import load_game
from repro.policies import save_strategy
from repro.tracking import provenance, status
from repro.tracking.checkpoints import Checkpoints, newest_readable
from repro.tracking.store import TRAINING, TrackedRun, default_uri, experiment_id, find_runs, is_finished, open_store

_MOST_ROWS_IN_A_TABLE = 50_000


def train(config: DictConfig, key: str, folder: Path, state: status.Status, parent: str | None) -> str:
    """Do the run of `config`, or continue it, or skip it when it is finished. Returns its state.

    Raises:
        ReproError: the run cannot be done as asked.
    """
    checked = settings(config)
    _quiet_lightning()
    tracked = _open_tracked_run(config, checked, key, folder, parent)
    if tracked is None:
        return status.SKIPPED
    torch.set_num_threads(checked.threads)
    iteration = 0
    try:
        game = load_game(checked.game, checked.device)
        model = build(game, checked)
        checkpoint, passed_over = newest_readable(folder)
        if passed_over:
            print(f"warning: {passed_over}")
        trainer = pl.Trainer(
            max_epochs=model.steps,
            accelerator="gpu" if checked.device == "cuda" else "cpu",
            devices=1,
            callbacks=[_Report(tracked, folder, state), Checkpoints(folder, checked.checkpoint_every_seconds)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        try:
            with threadpool_limits(checked.threads):
                trainer.fit(model, ckpt_path=checkpoint, weights_only=True)
                if not model.metrics:
                    # Stopped between its last checkpoint and its end. Read-outs are draws of their own: repeat them.
                    model.evaluate()
        finally:
            iteration = model.iteration
        _write_artifacts(model, tracked, config, folder)
        tracked.finish("FINISHED")
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        reason = "interrupted" if stopped else str(error)
        tracked.finish("KILLED" if stopped else "FAILED", f"iteration {iteration}: {reason}")
        raise
    state.headline = _headline(model) or state.headline
    for file in (*folder.glob("*.ckpt"), folder / "networks.pt"):
        # The networks are in the artifacts now; the memories serve no one any more.
        file.unlink(missing_ok=True)
    return status.FINISHED


def _quiet_lightning() -> None:
    # Its hints (number of data-loading workers, logger steps) do not apply to a run that makes its own data.
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")


def _open_tracked_run(
    config: DictConfig, checked: Config, key: str, folder: Path, parent: str | None
) -> TrackedRun | None:
    """The MLflow runs to log to, or None when this run is finished already."""
    output = Path(checked.output_dir).absolute()
    client = open_store(checked.tracking_uri or default_uri(output))
    experiment = experiment_id(client, checked.target, output / "artifacts")
    runs = find_runs(client, experiment, key)
    if not checked.force and is_finished(runs, checked.algorithm.readouts):
        return None
    if checked.force or TRAINING not in runs:
        # Begin anew: as asked, or because the store does not know the run that these checkpoints belong to.
        runs = {}
        for file in folder.glob("*.ckpt"):
            file.unlink()
    plain = result_config(config)
    flat = {k: v for k, v in flatten(plain).items() if k not in ("seed", "scale", "target")}
    short = {"game": checked.game["name"], "seed": checked.seed, "scale": checked.scale, "target": checked.target}
    tags = {**provenance.code(), **provenance.hardware(), **provenance.versions()}
    label = f"{checked.game['name']} seed={checked.seed} {checked.scale}"
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(plain)))
    tracked = TrackedRun(
        client,
        experiment,
        key=key,
        label=label,
        runs=runs,
        algorithms={TRAINING: checked.algorithm.name, **{name: name for name in checked.algorithm.readouts}},
        params={**short, **{k: v for k, v in flat.items() if k != "game.name"}},
        tags=tags,
        parent=parent,
    )
    tracked.artifact(TRAINING, folder / "config.yaml")
    return tracked


class _Report(pl.Callback):
    """Sends each iteration's metrics to MLflow and its progress to the status file."""

    def __init__(self, tracked: TrackedRun, folder: Path, state: status.Status) -> None:
        self._tracked, self._folder, self._state = tracked, folder, state
        self._started = time.monotonic()
        self._first = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Algorithm)
        self._state.iterations = pl_module.iterations
        self._first = self._state.iteration = pl_module.iteration
        self._started = time.monotonic()
        status.write(self._folder, self._state)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Algorithm)
        for readout, measured in pl_module.metrics.items():
            self._tracked.log(readout or TRAINING, measured, pl_module.iteration)
        self._state.headline = _headline(pl_module) or self._state.headline
        self._state.iteration = pl_module.iteration
        done = pl_module.iteration - self._first
        self._state.seconds_per_iteration = (time.monotonic() - self._started) / done
        status.write(self._folder, self._state)


def _headline(model: Algorithm) -> str:
    """The newest exploitability of the first two read-outs; empty between evaluations."""
    measured = {name: m["exploitability"] for name, m in model.metrics.items() if "exploitability" in m}
    parts = [f"{name} {value:.0f}" for name, value in list(measured.items())[:2]]
    return f"{', '.join(parts)} {unit_name(model.game)}" if parts else ""


def _write_artifacts(model: Algorithm, tracked: TrackedRun, config: DictConfig, folder: Path) -> None:
    """`networks.pt` on the training run; each read-out's last average strategy as `strategy.csv` on its own run."""
    networks = model.trained_networks()
    if networks is not None:
        torch.save({"config": result_config(config), **networks}, folder / "networks.pt")
        tracked.artifact(TRAINING, folder / "networks.pt")
    if model.game.infosets <= _MOST_ROWS_IN_A_TABLE:
        for readout, policy in model.policies.items():
            path = folder / readout / "strategy.csv"
            path.parent.mkdir(exist_ok=True)
            save_strategy(model.game, policy, path)
            tracked.artifact(readout, path)
