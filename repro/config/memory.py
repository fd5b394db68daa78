"""Sizes that no memory, or no disk, holds are refused before any work.

An algorithm, or an evaluation, tells of its keys what their values take when they are used to the full, a memory's
capacity for example (`bytes_needed`), and nothing of what else a run needs: what is not refused may be too much, too.
What a training keeps on the disk of `output_dir` while it lasts is told likewise (`bytes_on_disk`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import torch

from repro.common.errors import ReproError
from repro.config.checks import device_here
from repro.config.schema import Config, NetworkConfig

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_NUMBERS_PER_PARAMETER = 4
"""While a network is trained: the parameter, its gradient, and Adam's two moments, float32."""


def check_memory(config: Config, game: Any, trains: bool = True, given: float | None = None) -> None:
    """Refuse values that, used to the full, need more memory than there is, or more room on the disk.

    Args:
        trains: whether the run trains; otherwise it only measures.
        given: bytes that a cluster gives each of its jobs; None: the run is done on this machine.

    Raises:
        ReproError: names the key, its value, and both sizes.
    """
    for key, needed, device in _needs(config, game, trains):
        available = memory_of_machine(device) if given is None else given
        if needed > available:
            has = "this machine has" if device == "cpu" else "its GPU has"
            where = has if given is None else "a job is given"
            takes = f"that takes some {size(needed)}, and {where} {size(available)}"
            raise ReproError(f"{key} is {_value(config, key)}; {takes}.")
    for key, needed in config.algorithm.bytes_on_disk(config, game) if trains else ():
        room = room_on_disk(Path(config.output_dir))
        if needed > room:
            takes = f"that takes some {size(needed)} on the disk of output_dir, which has room for {size(room)}"
            raise ReproError(f"{key} is {_value(config, key)}; {takes}.")


def _needs(config: Config, game: Any, trains: bool) -> Iterator[tuple[str, float, str]]:
    """Keys, the bytes that their values take, and where."""
    if trains:
        yield from ((key, needed, device_here(config)) for key, needed in config.algorithm.bytes_needed(config, game))
    for name, evaluation in config.evaluation.items():
        yield from ((f"evaluation.{name}.{key}", needed, "cpu") for key, needed in evaluation.bytes_needed(game))


def _value(config: Config, key: str) -> Any:
    def below(node: Any, name: str) -> Any:
        return node[name] if isinstance(node, dict) else getattr(node, name)

    return reduce(below, key.split("."), config)


def memory_of_machine(device: str) -> float:
    """Bytes of memory of this machine, or of its GPU."""
    if device == "cuda":
        return float(torch.cuda.get_device_properties(0).total_memory)
    return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")


def room_on_disk(folder: Path) -> float:
    """Bytes that are free on the disk of a folder, which need not exist."""
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    return float(shutil.disk_usage(there).free)


def size(count: float) -> str:
    """Bytes for a person, e.g. `24 GiB`."""
    power = 0
    while count >= 1024 and power < len(_UNITS) - 1:
        count, power = count / 1024, power + 1
    return f"{count:.3g} {_UNITS[power]}"


def network_bytes(network: NetworkConfig | None, networks: int) -> Iterator[tuple[str, float]]:
    """What so many networks of an architecture take while they are trained, with one input and one output."""
    if network is None:
        return
    bytes_each = 4 * _NUMBERS_PER_PARAMETER * networks
    # Every architecture has at least one layer between two layers of its width, but for `fc` and `prelu`.
    between = 1 if network.layers is None else network.layers - 1
    if network.layers != 0:
        yield "network.width", float(bytes_each * network.width * (between * network.width + 2))
    if network.card_width is not None:
        yield "network.card_width", float(bytes_each * network.card_width**2)
