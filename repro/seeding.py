"""Every random draw of a run comes from a generator named by (seed, purpose, iteration, player).

A run that was killed and resumed therefore draws the same numbers as one that never stopped: there is no generator
state to carry over.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch


def generator(
    seed: int, purpose: str, iteration: int = 0, player: int = 0, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A fresh generator for one purpose of one iteration and player."""
    sequence = np.random.SeedSequence((seed, zlib.crc32(purpose.encode()), iteration, player))
    state = int(sequence.generate_state(1, np.uint64)[0])
    # torch takes signed 64-bit seeds.
    return torch.Generator(device=device).manual_seed(state >> 1)
