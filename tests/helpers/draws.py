"""Draws that repeat: generators, and strategies at random."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from repro.games import Game
from repro.policies import TabularPolicy, deterministic_policy, random_policy, uniform


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_table(game: Game, seed: int) -> Tensor:
    """`[infosets, actions]` float64: what a policy drawn at random plays."""
    return random_policy(game, seeded(seed)).table


def policies_of(game: Game) -> Iterator[tuple[str, TabularPolicy]]:
    """A few policies of every kind, `(name, policy)`."""
    generator = seeded(17)
    yield "uniform", uniform(game)
    for i in range(3):
        yield f"random {i}", random_policy(game, generator)
    for i in range(3):
        yield f"deterministic {i}", deterministic_policy(game, generator)
