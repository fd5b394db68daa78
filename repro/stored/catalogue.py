"""The trainings of an output folder: found by key, by hyperparameters, by state, or by the target that asked for them.

A filter is a list of words. A word is a key, or as many of its first digits as no other run has, or
`FIELD=VALUE[,VALUE]`, with a field of `game`, `algorithm`, `seed`, `state`, a hyperparameter (`traversals`,
`algorithm.value.steps`), or `target.NAME`, whose values are scales. Keys add to each other; fields must all hold.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from omegaconf.errors import OmegaConfBaseException

from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean
from repro.config.keys import flatten, from_plain, hyperparameters
from repro.config.schema import Config
from repro.stored.trained import Trained
from repro.tracking import record as records
from repro.tracking.folders import CONFIG, check_filter, keys_in, run_folder
from repro.tracking.record import FINISHED, SKIPPED, RunRecord

_NAMES = {"game": "game.name", "algorithm": "algorithm.name"}
_STATE, _TARGET = "state", "target."
_KEYS_TOLD = 3
"""Of runs that cannot be read; how many more there are is told."""


@dataclass(frozen=True)
class Entry:
    """One training of an output folder.

    Attributes:
        folder: `outputs/runs/<key>`.
        plain: its configuration, as its file has it.
        record: what became of it.
    """

    folder: Path
    plain: Mapping[str, Any]
    record: RunRecord

    @property
    def key(self) -> str:
        return self.folder.name

    @property
    def is_finished(self) -> bool:
        """Whether it is trained."""
        return self.record.trained

    @cached_property
    def config(self) -> Config:
        """Checked, with defaults of keys that were added since."""
        config = from_plain(self.plain)
        config.output_dir = str(self.folder.parents[1])
        return config

    @cached_property
    def hyperparameters(self) -> dict[str, Any]:
        """Dotted, the seed apart."""
        return hyperparameters(self.config)

    @cached_property
    def fields(self) -> dict[str, str]:
        """What a filter can ask for, as text."""
        flat = {k: "null" if v is None else str(v) for k, v in flatten(self.plain).items() if ".readouts." not in k}
        short = {key.removeprefix("algorithm."): value for key, value in flat.items() if key not in _NAMES.values()}
        named = {name: flat[key] for name, key in _NAMES.items()}
        labels = {f"{_TARGET}{target}": scale for target, scale in self.record.labels.items()}
        return {**short, **flat, **named, **labels, _STATE: self.state}

    @property
    def state(self) -> str:
        """What became of it; a finished one that a later command found finished is finished."""
        return FINISHED if self.record.state == SKIPPED else self.record.state

    @property
    def fault(self) -> str | None:
        """Why its configuration cannot be read, as with a key that has gone; None where it can."""
        try:
            _ = self.config
        except (ReproError, OmegaConfBaseException, LookupError, ValueError, TypeError) as error:
            return " ".join(str(error).split())
        return None


def readable(found: Sequence[Entry]) -> list[Entry]:
    """Those whose configurations can be read; others are told, all of one fault together."""
    faults = [entry.fault for entry in found]
    for fault in dict.fromkeys(fault for fault in faults if fault is not None):
        keys = [entry.key for entry, of in zip(found, faults, strict=True) if of == fault]
        more = f" and {len(keys) - _KEYS_TOLD} more" if len(keys) > _KEYS_TOLD else ""
        which = ", ".join(keys[:_KEYS_TOLD]) + more
        print(f"warning: left out, because {CONFIG} cannot be read: {which} ({fault}).", file=sys.stderr)
    return [entry for entry, fault in zip(found, faults, strict=True) if fault is None]


def entries(output: Path | str) -> list[Entry]:
    """All trainings of an output folder, by key. One whose configuration cannot be read is told and left out."""
    found = []
    for path in sorted(run_folder(output, "").glob(f"*/{CONFIG}")):
        try:
            # Much faster than OmegaConf, and the files have no interpolations.
            plain = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            named = plain["game"]["name"], plain["algorithm"]["name"]
        except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError) as error:
            print(f"warning: {path} is not the configuration of a run ({type(error).__name__}).", file=sys.stderr)
            continue
        if all(named):
            found.append(Entry(path.parent, plain, records.read(path.parent)))
    return found


def _field_meant(field: str, values: str, known: Collection[str]) -> str:
    """A hint at the field that somebody may have meant; what runs were made for is asked for by target and scale."""
    if field in ("target", "scale", "experiment"):
        of = f"{_TARGET}{values}" if f"{_TARGET}{values}" in known else f"{_TARGET}NAME"
        return f"; those of a figure are {of}=SCALE"
    return did_you_mean(field, known)


def chosen(output: Path | str, words: Sequence[str]) -> list[Entry]:
    """The trainings that a filter asks for; all, where it is empty.

    Raises:
        ReproError: a key or field is unknown, or nothing is left.
    """
    check_filter(output, words)
    every = entries(output)
    keys = [Trained.open(output, word).folder.name for word in keys_in(words)]
    found = [entry for entry in every if not keys or entry.key in keys]
    for word in (word for word in words if "=" in word):
        field, _, values = word.partition("=")
        known = {name for entry in every for name in entry.fields}
        if field not in known:
            raise ReproError(f"{word}: no run has the field {field}{_field_meant(field, values, known)}.")
        wanted = values.split(",")
        there = {value for entry in every if (value := entry.fields.get(field)) is not None}
        if not any(_alike(each, value) for each in there for value in wanted):
            longer = [
                name for name in known if name.endswith(f".{field}")
                and any(_alike(entry.fields.get(name), value) for entry in every for value in wanted)
            ]  # fmt: skip
            meant = f" (did you mean {min(longer, key=len)}={values}?)" if longer else did_you_mean(wanted[0], there)
            raise ReproError(f"in {output} there is no run of {word}{meant}.")
        found = [entry for entry in found if any(_alike(entry.fields.get(field), value) for value in wanted)]
    found = readable(found)
    if not found:
        raise ReproError(f"in {output} there is no run of {' '.join(words) or 'any kind'}.")
    return found


def _alike(value: str | None, wanted: str) -> bool:
    """Whether two texts are the same, or the same number, whatever way it is written."""
    if value is None:
        return False
    try:
        return value == wanted or float(value) == float(wanted)
    except ValueError:
        return value.lower() == wanted.lower()
