"""What a configuration hands to Lightning: options of its Trainer, callbacks and loggers."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import Any

from repro.common.suggestions import did_you_mean
from repro.config.schema import Config

_TRAINER = "pytorch_lightning.Trainer"
_COMMON = {
    "_target_": _TRAINER, "enable_progress_bar": False, "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}  # fmt: skip
"""Options that every run has; they cost no import of Lightning before the run."""
_GIVEN_BY = {
    "max_epochs": "algorithm.iterations", "accelerator": "device", "logger": "logger",
    "enable_checkpointing": "checkpoint_every_seconds", "default_root_dir": "output_dir",
    **dict.fromkeys(
        ("min_epochs", "max_steps", "min_steps", "max_time", "fast_dev_run", "overfit_batches", "limit_train_batches"),
        "algorithm.iterations",
    ),
    **dict.fromkeys(
        ("limit_val_batches", "val_check_interval", "check_val_every_n_epoch"), "algorithm.snapshot_every",
    ),
}  # fmt: skip
"""Options that are the suite's own, and the key that says so."""
_GIVEN_BY_DEVICES = ("strategy", "plugins", "use_distributed_sampler", "sync_batchnorm")
"""Options that are the suite's own where several processes train."""
MOST_PROCESSES = 1024
"""That train one seed."""


def processes_of(config: Config) -> int:
    """How many processes train."""
    return int(config.trainer.get("devices", 1))


def is_plain(config: Config) -> bool:
    """Whether Lightning is handed nothing of the user's: no option of the Trainer, no callback and no logger."""
    options = {key: value for key, value in config.trainer.items() if key not in ("callbacks", "devices")}
    return not (config.trainer.get("callbacks") or config.logger) and options.items() <= _COMMON.items()


def lightning_problems(config: Config) -> Iterator[str]:
    """One sentence for each thing that Lightning, a callback or a logger would not take."""
    options = dict(config.trainer)
    for key in (key for key in _GIVEN_BY if key in options):
        yield f"trainer.{key} is {options[key]!r}; {_GIVEN_BY[key]} says that of a run, leave it out."
    callbacks = options.pop("callbacks", None) or {}
    if not isinstance(callbacks, Mapping):
        yield f"trainer.callbacks is {callbacks!r}; it must be a mapping of names to callbacks."
        return
    devices = options.pop("devices", 1)
    if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= MOST_PROCESSES:
        yield (
            f"trainer.devices is {devices!r}; it must be a whole number from 1 to {MOST_PROCESSES}, of processes that "
            "train together."
        )
        return
    if devices > 1:
        yield from _process_problems(config, options, callbacks)
    if options.get("num_nodes", 1) != 1:
        yield f"trainer.num_nodes is {options['num_nodes']!r}; all processes of a run are on one machine, leave it out."
    if not options.items() <= _COMMON.items():
        yield from _target_problems("trainer", {"_target_": _TRAINER, **options})
        yield from _refused_by_the_trainer(options)
    for name, callback in callbacks.items():
        yield from _target_problems(f"trainer.callbacks.{name}", callback)
    for name, logger in config.logger.items():
        yield from _target_problems(f"logger.{name}", logger)


def _process_problems(config: Config, options: Mapping[str, Any], callbacks: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with having a run done by several processes."""
    algorithm, count = config.algorithm, processes_of(config)
    if not algorithm.SEVERAL_PROCESSES:
        yield f"trainer.devices is {count}, but the algorithm {algorithm.name} is trained by one process; leave it out."
        return
    if config.device != "cpu":
        yield f"trainer.devices is {count} and device {config.device}; several processes take device=cpu."
    if config.seeds is not None:
        yield f"trainer.devices is {count} and seeds {config.seeds}; several processes train one seed: leave seeds out."
    if callbacks:
        yield (
            f"trainer.devices is {count} and trainer.callbacks {', '.join(callbacks)}; several processes take no "
            "callbacks, which would see what the first one measures on that one only."
        )
    for key in (key for key in _GIVEN_BY_DEVICES if key in options):
        yield f"trainer.{key} is {options[key]!r}; with several processes trainer.devices says that, leave it out."
    yield from algorithm.process_problems(count)


def _target_problems(key: str, node: Any) -> Iterator[str]:
    """What is wrong with what Hydra is to instantiate."""
    if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
        yield f"{key} is {node!r}; it must be a mapping with a _target_, the import path of a class."
        return
    path = node["_target_"]
    try:
        target = resolve_name(path)
        parameters = inspect.signature(target).parameters
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        yield f"{key}._target_ is {path!r}; it must be the import path of a class ({error})."
        return
    arguments = {name: value for name, value in node.items() if not str(name).startswith("_")}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in (name for name in arguments if name not in parameters):
            yield f"{key}.{name} is no key of {path}{did_you_mean(str(name), parameters)}."
            return
    needed = [
        n for n, p in parameters.items() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    for name in (name for name in needed if name not in arguments and "_args_" not in node):
        yield f"{key}.{name} has no value; {path} needs one."


def _refused_by_the_trainer(options: Mapping[str, Any]) -> Iterator[str]:
    """What Lightning itself says of values of its options."""
    from hydra.utils import instantiate  # noqa: PLC0415  (only where there is something to be instantiated)

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    try:
        instantiate({"_target_": _TRAINER, **options}, accelerator="cpu", devices=1, max_epochs=1, logger=False)
    except Exception as error:  # Lightning and Hydra raise what they like.
        reason = " ".join(str(error.__cause__ or error).split())
        yield f"trainer is {options}; Lightning's Trainer refuses that ({reason})."
