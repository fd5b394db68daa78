"""Checkpoints that survive being killed at any moment.

Written beside and renamed; the one before is kept. They hold tensors and plain Python only and are read with
`weights_only`, so that a file from elsewhere cannot run code.

Of a training of several processes, each writes what is its own (its memories) in a file, a *part*, before the first one
writes the checkpoint, which names the parts. Parts that no checkpoint names are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from repro.common.faults import disk_fault
from repro.policies.snapshot import load_checked, load_mapped

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
SET_ASIDE = "unusable-*.ckpt"
"""Pattern of the names of those that are not continued from."""

PART = ".part"
"""Suffix of the names of parts."""

TRAININGS, IS_LAST, PARTS = "trainings", "is_last", "parts"
"""In a checkpoint: the keys of the trainings that it is of, whether they are done with it, and the names of its parts,
by rank, if there are any."""


def remove_parts(folder: Path) -> None:
    """Remove the parts that no checkpoint names, by the only process that writes here; none if that is not known."""
    parts = list(folder.glob(f"*{PART}"))
    try:
        named = {name for path in folder.glob("*.ckpt") for name in _parts(path)} if parts else set()
    except Exception:  # A damaged checkpoint is told of where it is to be continued from.
        return
    for part in (part for part in parts if part.name not in named):
        part.unlink()


def _parts(checkpoint: Path) -> list[str]:
    """The names of a checkpoint's parts."""
    return list(map(str, load_mapped(checkpoint).get(PARTS, [])))


def kept(folder: Path) -> list[Path]:
    """The checkpoints that may be continued from, the newest first."""
    return [path for name in (LAST, PREVIOUS) if (path := folder / name).exists()]


def problem(path: Path, trainings: Sequence[str]) -> str:
    """Why these trainings cannot go on from a checkpoint, as far as the file tells; empty if it says nothing.

    Raises:
        OSError, MemoryError: the file is there and cannot be read now.
    """
    try:
        content, damaged = load_checked(path)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # A damaged file fails in as many ways as there are bytes.
        return f"cannot be read ({type(error).__name__})"
    if damaged is not None:
        return "is damaged (its checksum is wrong)"
    others = content.get(TRAININGS, list(trainings))
    if others != list(trainings):
        return f"is of another training ({', '.join(map(str, others))})"
    return next(filter(None, (_problem_of_a_part(path.with_name(str(name))) for name in content.get(PARTS, []))), "")


def _problem_of_a_part(path: Path) -> str:
    try:
        if load_checked(path)[1] is None:
            return ""
    except MemoryError:
        raise
    except Exception as error:  # A damaged file fails in as many ways as there are bytes, as an OSError, too.
        if disk_fault(error):
            raise
        return f"cannot be continued from, because its part {path.name} cannot be read ({type(error).__name__})"
    return f"cannot be continued from, because its part {path.name} is damaged (its checksum is wrong)"


def trainings(folder: Path) -> set[str]:
    """Keys of the trainings that the checkpoints in a folder are of, as far as they can be read."""
    keys: set[str] = set()
    for path in folder.glob("*.ckpt"):
        with suppress(Exception):
            keys.update(map(str, load_mapped(path)[TRAININGS]))
    return keys


def newest(folder: Path) -> int | None:
    """The iteration of the newest checkpoint in a folder that can be read; None if there is none."""
    for path in kept(folder):
        with suppress(Exception):
            return int(load_mapped(path)["algorithm"]["iteration"])
    return None


def finished(folder: Path) -> list[str]:
    """Keys of the trainings whose last iteration is in a checkpoint, so that nothing is left to train."""
    for path in kept(folder):
        with suppress(Exception):  # One that cannot be read says of none that it is.
            content = load_mapped(path)
            if content[IS_LAST] and load_checked(path)[1] is None:
                return list(map(str, content[TRAININGS]))
    return []


def set_aside(path: Path) -> Path:
    """Keep a checkpoint that is not continued from under another name, until the training is finished."""
    numbered = (path.with_name(SET_ASIDE.replace("*", str(number))) for number in count(1))
    return path.rename(next(free for free in numbered if not free.exists()))
