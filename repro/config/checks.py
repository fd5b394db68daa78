"""Ranges of single keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from repro.errors import ReproError


def check(node: Any, prefix: str = "") -> None:
    """Check every value of a dataclass tree against the range declared beside its key.

    Raises:
        ReproError: names the key, the value and what is allowed.
    """
    for f in fields(node):
        key, value = f"{prefix}{f.name}", getattr(node, f.name)
        if is_dataclass(value):
            check(value, f"{key}.")
        elif isinstance(value, Mapping):
            for name, inner in value.items():
                if is_dataclass(inner):
                    check(inner, f"{key}.{name}.")
        elif value is not None:
            _check_value(key, value, f.metadata)


def _check_value(key: str, value: Any, allowed: Mapping[str, Any]) -> None:
    if "at_least" in allowed and not value >= allowed["at_least"]:
        raise ReproError(f"{key} is {value}; it must be at least {allowed['at_least']}.")
    if "at_most" in allowed and not value <= allowed["at_most"]:
        raise ReproError(f"{key} is {value}; it must be at most {allowed['at_most']}.")
    if "above" in allowed and not value > allowed["above"]:
        raise ReproError(f"{key} is {value}; it must be greater than {allowed['above']}.")
    if "one_of" in allowed and value not in allowed["one_of"]:
        raise ReproError(f"{key} is {value!r}; it must be one of {', '.join(allowed['one_of'])}.")
