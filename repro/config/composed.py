"""What Hydra composed, or refused to: keys that nobody knows, and one sentence for each fault.

A key that is typed with `+` or `++` is added wherever it is, so that a misspelt one would have no effect. Here it is
held against the schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ValidationError

from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean, nearest
from repro.config.schema import EVALUATIONS, Config

CONF = Path(__file__).resolve().parents[2] / "conf"
"""The configurations, beside the package."""

_TARGETS = CONF.parent / "paper_figures"
"""Where each figure and table has a page, which is called like it."""

_MADE_OF = ("schema", "base/")
"""How the names of files begin that are no choices, but what choices are made of."""

_DROPPED = (
    "full_key:", "To append to your config", "Config search path", "provider=", "object_type=", "reference_type=",
    "Check that", "See https:", "^", "Either remove", "Or add a second",
)  # fmt: skip
"""How lines of Hydra's explanations begin that name neither key nor value."""


_MISTYPED = re.compile(r"Value '(?P<value>.*)' (of type '\w+' could not be converted to|is not a valid) (?P<kind>\w+)")
"""What OmegaConf says of a value of another type than its key has."""
_MERGING = "Error merging override "
"""How Hydra begins where one does not go with its key."""
_KINDS = {"Integer": "a whole number", "Float": "a number", "bool": "true or false"}


def check_first_words(overrides: Sequence[str]) -> None:
    """Refuse what looks like a misspelt key or group of a run, before the algorithms are imported, which takes seconds.

    Whatever else is wrong with a key shows when all is composed.

    Raises:
        ReproError: names the key, and the nearest one that there is.
    """
    known = {f.name for f in fields(Config)} | {path.name for path in CONF.iterdir() if path.is_dir()} | {"hydra"}
    for override in overrides:
        written, assigned, _ = override.partition("=")
        key = written.lstrip("+~")
        near = nearest(key, known) if assigned and re.fullmatch("[a-z_]+", key) and key not in known else None
        if near is not None:
            raise ReproError(f"{key} is no key of this configuration (did you mean {near}?).")


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
            return _no_override(fault)
        if isinstance(fault, ValidationError) and (sentence := _mistyped(fault)) is not None:
            return sentence
        if isinstance(fault, ValidationError) and "is not a ListConfig" in str(fault):
            key, _, value = str(error).splitlines()[0].removeprefix(_MERGING).partition("=")
            return f"{key.lstrip('+')} is {value}; it must be a list, in brackets."
    # Hydra explains itself over several lines.
    texts = [str(fault) for fault in faults if not isinstance(fault, ReproError)]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    kept = [line for line in dict.fromkeys(lines) if line and not line.startswith(_DROPPED)]
    about = [fault.full_key for fault in faults if isinstance(fault, OmegaConfBaseException) and fault.full_key]
    unnamed = [f"{key}: " for key in about[:1] if not any(key in line for line in kept)]
    return "bad configuration: " + "".join(unnamed) + "; ".join(kept)


def _no_override(error: OverrideParseException) -> str:
    reason = str(error).splitlines()[0].removeprefix("LexerNoViableAltException: ")
    return f"bad configuration: {error.override} is no KEY=VALUE, or has characters that need quotes ({reason})."


def _mistyped(error: ValidationError) -> str | None:
    """What is said of a value of another type than its key has; None where the fault is another one."""
    message = str(error).splitlines()[0]
    if message.endswith("is not Optional"):
        return f"{error.full_key} is null; it must have a value."
    found = _MISTYPED.match(message)
    if found is None or found["kind"] not in _KINDS:
        return None
    return f"{error.full_key} is {found['value']!r}; it must be {_KINDS[found['kind']]}."


def check_choices(overrides: Sequence[str]) -> None:
    """Refuse, as choices, what names a key, and the files that choices are made of, which lack values.

    Hydra must be initialised.

    Raises:
        ReproError: names the choice, and those that there are.
    """
    for override in overrides:
        group, _, written = override.lstrip("+~").partition("=")
        if not (CONF / group).is_dir():
            continue
        for choice in written.strip("[] ").split(","):
            if choice.strip().startswith(_MADE_OF) or "${" in choice:
                raise ReproError(_no_choice(f"{group}/{choice.strip()}"))


def choices_of(group: str) -> list[str]:
    """The names in a group of configuration files that can be chosen. Hydra must be initialised."""
    return _to_choose(GlobalHydra.instance().config_loader().get_group_options(group))


def _to_choose(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.startswith(_MADE_OF)]


def _no_such_choice(error: MissingConfigException) -> str:
    return _no_choice(str(error.missing_cfg_file), error.options or [])


def _no_choice(path: str, known: Sequence[str] = ()) -> str:
    group, _, choice = path.removesuffix(".yaml").rpartition("/")
    group = group.partition("/base")[0]
    # Of a fault of Hydra's own, such as a sweeper that is not installed, nothing is left when it is told.
    choices = choices_of(group) if GlobalHydra.instance().is_initialized() else _to_choose(known)
    there = f"; there are {', '.join(choices)}" if choices else ""
    if group == "experiment" and (_TARGETS / f"{choice}.md").is_file():
        return f"bad configuration: Could not find '{path}'; {choice} is what `make {choice}` makes{there}."
    return f"bad configuration: Could not find '{path}'{did_you_mean(choice, choices)}{there}."


def _no_such_key(error: ConfigAttributeError | ConfigKeyError) -> str:
    node, key = error.parent_node, str(error.full_key)
    known = _schema_of(node)
    there = [str(name) for name in (node if known is None else known)]
    if known is None and nearest(key.rpartition(".")[2], there) is None:
        return f"{key} is not there; write +{key}=... to add it."
    return _unknown(key, there, node)
