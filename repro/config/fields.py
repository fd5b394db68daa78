"""Fields of configurations with their allowed range, which `repro.config.checks` holds values against."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from omegaconf import MISSING


def at_least(low: float, default: Any = MISSING) -> Any:
    """A number from `low` on."""
    return field(default=default, metadata={"at_least": low})


def above(low: float, default: Any = MISSING) -> Any:
    """A number greater than `low`."""
    return field(default=default, metadata={"above": low})


def between(low: float, high: float, default: Any = MISSING) -> Any:
    """A number from `low` to `high`."""
    return field(default=default, metadata={"at_least": low, "at_most": high})


def above_up_to(low: float, high: float, default: Any = MISSING) -> Any:
    """A number greater than `low` and at most `high`."""
    return field(default=default, metadata={"above": low, "at_most": high})


def one_of(*allowed: str, default: Any = MISSING) -> Any:
    """One of some words."""
    return field(default=default, metadata={"one_of": allowed})
