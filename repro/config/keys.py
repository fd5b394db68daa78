"""Keys. A training's is the hash of what is trained; an evaluation's, of a training's key and what is measured.

Neither knows who looks at it: targets, scales, paths and read-outs are in no training's key, so that what several
figures ask for is done once, and a read-out or an evaluation can be added when the training is finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from importlib import import_module
from typing import Any

from omegaconf import OmegaConf

from repro.common.importing import import_named, quicker_imports
from repro.config.checks import check, readout_of
from repro.config.schema import ALGORITHMS, EVALUATIONS, Config

SCHEMA = "schema"
"""Key under which a stored configuration names the registered dataclass of an algorithm or evaluation."""

_TRAINING = ("game", "algorithm", "network", "seed", "device", "threads")
_NO_TRAINING = (
    "_target_", "callbacks", "num_sanity_val_steps", "enable_progress_bar", "enable_model_summary",
    "profiler",
)  # fmt: skip
"""Options of Lightning's Trainer that change nothing that is trained; others are part of a training."""
_ONE_PROCESS = ("devices", 1)
_NO_HYPERPARAMETERS = ("name", "module", "readouts")
"""Keys of an algorithm that change nothing that is trained."""


def register_schemas() -> None:
    """Import the algorithms and evaluations of the suite: only then are their schemas known, to Hydra as well."""
    with quicker_imports():
        for name in ("repro.algorithms.all", "repro.evaluation.measures", "repro.subgames.all"):
            import_module(name)


def training_config(config: Config) -> dict[str, Any]:
    """What a training leaves beside its results, as plain Python: enough to read it out and to repeat it."""
    plain = {key: _plain(getattr(config, key)) for key in _TRAINING}
    options = {k: v for k, v in _plain(config.trainer).items() if k not in _NO_TRAINING and (k, v) != _ONE_PROCESS}
    if options:
        plain["trainer"] = options
    plain["algorithm"][SCHEMA] = _name_in(ALGORITHMS, config.algorithm)
    return plain


def training_key(config: Config) -> str:
    """Twelve hexadecimal digits that name a training: equal only when the same is trained, with the same snapshots."""
    plain = training_config(config)
    plain["algorithm"] = {k: v for k, v in plain["algorithm"].items() if k not in _NO_HYPERPARAMETERS}
    plain["game"] = {k: v for k, v in plain["game"].items() if k != "module"}
    for part in ("algorithm", "network"):
        _leave_out_added(plain[part], getattr(config, part))
    return _hash(plain)


def _leave_out_added(plain: dict[str, Any], value: Any) -> None:
    """Take out of a part of a configuration what was `added` and does nothing: keys of earlier versions stay valid."""
    for each in fields(value) if is_dataclass(value) else ():
        now = getattr(value, each.name)
        if each.metadata.get("added") and now == each.default:
            del plain[each.name]
        elif is_dataclass(now):
            _leave_out_added(plain[each.name], now)


def evaluation_key(config: Config, evaluation: str, readout: str) -> str:
    """Twelve hexadecimal digits that name what is measured of one read-out, among all of one training."""
    measured = config.evaluation[evaluation]
    return _hash({
        SCHEMA: _name_in(EVALUATIONS, measured),
        "evaluation": measured.identity(),
        "readout": _plain(config.algorithm.readouts.get(readout)),
        "is_beside": readout in measured.beside,
        "beside": [_plain(config.algorithm.readouts.get(other)) for other in measured.beside],
    })  # fmt: skip


def measurements_key(config: Config) -> str:
    """Twelve hexadecimal digits that name all that is measured of a run: of which read-outs, how and when."""
    return _hash(
        {
            f"{name}/{readout}": [evaluation_key(config, name, readout), evaluation.at]
            for name, evaluation in config.evaluation.items()
            for readout in evaluation.names(config.algorithm.readouts)
        }
    )


def as_plain(config: Config) -> dict[str, Any]:
    """A whole configuration as plain Python, for a process that does it."""
    plain = _plain(config)
    plain["algorithm"][SCHEMA] = _name_in(ALGORITHMS, config.algorithm)
    for name, measured in config.evaluation.items():
        plain["evaluation"][name][SCHEMA] = _name_in(EVALUATIONS, measured)
    return dict(plain)


def from_plain(plain: Mapping[str, Any]) -> Config:
    """The configuration that `as_plain` or `training_config` gave.

    Raises:
        ModuleError: its algorithm's module cannot be imported.
        LookupError, TypeError, ValueError: it is not such a configuration.
    """
    register_schemas()
    merged: Any = OmegaConf.merge(OmegaConf.structured(Config), dict(plain) | {"algorithm": {}, "evaluation": {}})
    algorithm = dict(plain["algorithm"])
    if algorithm.get("module"):
        import_named("algorithm.module", algorithm["module"])
    merged.algorithm = OmegaConf.merge(OmegaConf.structured(ALGORITHMS[algorithm.pop(SCHEMA)]), algorithm)
    for name, evaluation in plain.get("evaluation", {}).items():
        measured = dict(evaluation)
        merged.evaluation[name] = OmegaConf.merge(OmegaConf.structured(EVALUATIONS[measured.pop(SCHEMA)]), measured)
    config: Config = OmegaConf.to_object(merged)  # type: ignore[assignment]
    config.algorithm.readouts = {n: readout_of(n, readout) for n, readout in config.algorithm.readouts.items()}
    check(config)
    return config


def hyperparameters(config: Config) -> dict[str, Any]:
    """What runs are compared by, on one level with dotted keys: what is trained, the seed apart, and its name."""
    plain = training_config(config)
    del plain["seed"]
    for key in ("module", "readouts", SCHEMA):
        plain["algorithm"].pop(key, None)
    return flatten(plain)


def declared_so(value: Any, what: str, prefix: str = "") -> Iterator[str]:
    """The dotted keys of a configuration, or a part of it, whose fields declare something.

    Args:
        what: the function of `repro.config.fields` that does, such as "multiplies".
    """
    for each in fields(value):
        now = getattr(value, each.name)
        if each.metadata.get(what):
            yield f"{prefix}{each.name}"
        elif is_dataclass(now):
            yield from declared_so(now, what, f"{prefix}{each.name}.")


def added_defaults(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys of a configuration, or a part of it, that were `added`, and their defaults, as it was before."""
    for each in fields(value):
        now = getattr(value, each.name)
        if each.metadata.get("added"):
            yield f"{prefix}{each.name}", each.default
        elif is_dataclass(now):
            yield from added_defaults(now, f"{prefix}{each.name}.")


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings to one level with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _name_in(registered: Mapping[str, type], value: object) -> str:
    return next(name for name, schema in registered.items() if type(value) is schema)


def _hash(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]
