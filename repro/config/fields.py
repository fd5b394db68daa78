"""Fields of configurations with their allowed range, which `repro.config.checks` holds values against.

Numbers must be finite, and whole ones fit into 64 bits, whether or not a field says more of them.
"""

from __future__ import annotations

from dataclasses import Field, field
from typing import Any

from omegaconf import MISSING

LABEL = "[A-Za-z0-9_.-]{1,100}"
"""What labels are made of."""


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


def maybe_infinite(default: Any = MISSING) -> Any:
    """A number that may be infinite; what else it must be is for others to check."""
    return field(default=default, metadata={"maybe_infinite": True})


def label(default: Any = MISSING) -> Any:
    """A short name, which is shown and searched for: of letters, digits, and what file names have."""
    return field(default=default, metadata={"matches": LABEL})


def path(default: Any = MISSING) -> Any:
    """Text that can name a file or folder."""
    return field(default=default, metadata={"is_path": True})


def one_of(*allowed: str, default: Any = MISSING) -> Any:
    """One of some words."""
    return field(default=default, metadata={"one_of": allowed})


def multiplies(new: Any) -> Any:
    """A field that a part of a training's work is proportional to, while the rest of the work does not depend on it."""
    assert isinstance(new, Field)
    return field(default=new.default, metadata={**new.metadata, "multiplies": True})


def sorts(new: Any) -> Any:
    """A field of which null and a value make trainings of two kinds: neither tells what the other takes."""
    assert isinstance(new, Field)
    return field(default=new.default, metadata={**new.metadata, "sorts": True})


def added(new: Any) -> Any:
    """A field that earlier versions did not have. Its default is what they did, so that keys do not show it."""
    assert isinstance(new, Field)
    return field(default=new.default, metadata={**new.metadata, "added": True})
