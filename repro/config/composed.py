"""What Hydra composed, or refused to: keys that nobody knows, and one sentence for each fault.

A key that is typed with `+` or `++` is added wherever it is, so that a misspelt one would have no effect. Here it is
held against the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from repro.config.schema import EVALUATIONS
from repro.errors import ReproError
from repro.suggestions import did_you_mean, nearest

_DROPPED = (
    "full_key:", "To append to your config", "Config search path", "provider=", "object_type=", "reference_type=",
    "Check that", "See https:", "^", "Either remove", "Or add a second",
)  # fmt: skip
"""How lines of Hydra's explanations begin that name neither key nor value."""


def check_keys(node: DictConfig, prefix: str = "") -> None:
    """Check that whatever has a schema has no other keys.

    Raises:
        ReproError: names the key, and the nearest one that there is.
    """
    known = _schema_of(node)
    for key in map(str, node):
        full = f"{prefix}{key}"
        if known is not None and key not in known:
            raise ReproError(_unknown(full, known, node))
        there = not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key)
        if there and isinstance(node[key], DictConfig):
            check_keys(node[key], f"{full}.")


def _schema_of(node: Any) -> list[str] | None:
    """The keys that a node may have; None where it may have any."""
    schema = OmegaConf.get_type(node)
    return [f.name for f in fields(schema)] if is_dataclass(schema) else None


def _everywhere(node: Any) -> Iterator[str]:
    """Every key, dotted, of the configuration that a node is part of, and of evaluations that it does not select."""
    for name, schema in EVALUATIONS.items():
        yield from (f"evaluation.{name}.{f.name}" for f in fields(schema))
    waiting = [("", OmegaConf.to_container(node._get_root(), resolve=False))]
    while waiting:
        prefix, part = waiting.pop()
        for key, value in part.items() if isinstance(part, dict) else ():
            assert isinstance(key, str)
            yield f"{prefix}{key}"
            waiting.append((f"{prefix}{key}.", value))


def _unknown(key: str, beside: Sequence[str], node: Any) -> str:
    """Says of an unknown key which one is like it: beside it, or anywhere."""
    parent, _, name = key.rpartition(".")
    known = {k.rpartition(".")[2]: k for k in _everywhere(node) if k != key and not k.startswith(f"{key}.")}
    known |= {k: f"{parent}.{k}" if parent else k for k in beside}
    near = nearest(name, beside) or nearest(name, known)
    if near is None:
        hint = f"the keys {f'of {parent}' if parent else 'there'} are {', '.join(beside)}"
    else:
        hint = f"did you mean {known[near]}?"
    return f"{key} is no key of this configuration ({hint})."


# -- what Hydra refuses ----------------------------------------------------------------------------------------------


def one_sentence(error: BaseException) -> str:
    """What Hydra or OmegaConf refuses, in one sentence that names the key or choice and what is allowed."""
    faults = [fault for fault in (error, error.__cause__) if fault is not None]
    for fault in faults:
        if isinstance(fault, MissingConfigException) and fault.missing_cfg_file:
            return _no_such_choice(fault)
        if isinstance(fault, ConfigAttributeError | ConfigKeyError) and fault.full_key:
            return _no_such_key(fault)
        if isinstance(fault, OverrideParseException):
            reason = str(fault).splitlines()[0].removeprefix("LexerNoViableAltException: ")
            return (
                f"bad configuration: {fault.override} is no KEY=VALUE, or has characters that need quotes ({reason})."
            )
    # Hydra explains itself over several lines.
    texts = [str(fault) for fault in faults if not isinstance(fault, ReproError)]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    kept = [line for line in dict.fromkeys(lines) if line and not line.startswith(_DROPPED)]
    about = [fault.full_key for fault in faults if isinstance(fault, OmegaConfBaseException) and fault.full_key]
    unnamed = [f"{key}: " for key in about[:1] if not any(key in line for line in kept)]
    return "bad configuration: " + "".join(unnamed) + "; ".join(kept)


def _no_such_choice(error: MissingConfigException) -> str:
    group, _, choice = str(error.missing_cfg_file).rpartition("/")
    choices = GlobalHydra.instance().config_loader().get_group_options(group)
    choices = [name for name in choices if not name.startswith("schema")]
    there = f"; there are {', '.join(choices)}" if choices else ""
    return f"bad configuration: Could not find '{error.missing_cfg_file}'{did_you_mean(choice, choices)}{there}."


def _no_such_key(error: ConfigAttributeError | ConfigKeyError) -> str:
    node, key = error.parent_node, str(error.full_key)
    known = _schema_of(node)
    there = [str(name) for name in (node if known is None else known)]
    if known is None and nearest(key.rpartition(".")[2], there) is None:
        return f"{key} is not there; write +{key}=... to add it."
    return _unknown(key, there, node)
