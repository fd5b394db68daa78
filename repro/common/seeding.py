"""Random draws come from generators that are named by (seed, purpose, iteration, player).

A run that was killed and resumed therefore draws the same numbers as one that never stopped: there is no generator
state to carry over. Three things have names of numbers alone, for NumPy's generators: the Kuhn
tutorial's deals, the members of a capped B^M, and random boards.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def initialisation(seed: int, purpose: str, iteration: int = 0, player: int = 0) -> Iterator[None]:
    """Within it, networks are initialised from a generator of that name. torch uses its global one; it is put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed, purpose, iteration, player).initial_seed())
        yield


def numpy_generator(seed: int, purpose: str, number: int = 0) -> np.random.Generator:
    """A fresh generator of NumPy's for one purpose and number."""
    return np.random.default_rng(np.random.SeedSequence((seed, zlib.crc32(purpose.encode()), number)))


def generator(
    seed: int, purpose: str, iteration: int = 0, player: int = 0, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A fresh generator for one purpose of one iteration and player."""
    sequence = np.random.SeedSequence((seed, zlib.crc32(purpose.encode()), iteration, player))
    state = int(sequence.generate_state(1, np.uint64)[0])
    # torch takes signed 64-bit seeds.
    return torch.Generator(device=device).manual_seed(state >> 1)
