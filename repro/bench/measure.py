"""What all benchmarks share: how a measurement is taken, and what a row of the result is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from repro.common.errors import ReproError


@dataclass(frozen=True)
class Row:
    """One line of the result; `note` is shown with the table only."""

    name: str
    ours: float
    peer: float
    unit: str
    ratio: float
    note: str


@dataclass(frozen=True)
class Effort:
    """How much is measured: repetitions of each side, and the size of one repetition.

    Attributes:
        peer_seconds: seconds of OpenSpiel's traversals in `leduc_traversals`.
        peer_traversals, peer_steps: of OpenSpiel's traversals and SGD steps per player in `leduc_iteration`.
        steps: SGD steps in the `leduc_sgd_step` rows.
        iterations: of both sides, per turn, beside another commit.
        small: calls of whatever takes about a millisecond.
        tabular_seconds: of each side in the rows of tabular solvers.
        turns: random turn subgames that are solved, and a tenth of the rivers; times differ by two orders of magnitude.
    """

    repetitions: int
    peer_seconds: float
    peer_traversals: int
    peer_steps: int
    steps: int
    iterations: int
    small: int
    tabular_seconds: float
    turns: int


FULL = Effort(
    repetitions=7,
    peer_seconds=3.0,
    peer_traversals=200,
    peer_steps=50,
    steps=500,
    iterations=5,
    small=50,
    tabular_seconds=1.0,
    turns=50,
)
QUICK = Effort(
    repetitions=3,
    peer_seconds=0.3,
    peer_traversals=30,
    peer_steps=4,
    steps=100,
    iterations=1,
    small=10,
    tabular_seconds=0.1,
    turns=1,
)


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def per_second(action: Callable[[], object], least_seconds: float) -> float:
    """Calls per second, over so many seconds or one call, whichever is longer."""
    start, calls = time.perf_counter(), 0
    while not calls or time.perf_counter() - start < least_seconds:
        action()
        calls += 1
    return calls / (time.perf_counter() - start)


def interleaved(ours: Callable[[], float], peer: Callable[[], float], repetitions: int) -> tuple[float, float]:
    """Medians of what the two measurements return, taken in turns so that both see the same state of the machine."""
    pairs = [(ours(), peer()) for _ in range(repetitions)]
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch and the BLAS libraries of NumPy to one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def open_spiel() -> tuple[Any, Any]:
    """The modules `pyspiel` and OpenSpiel's PyTorch Deep CFR.

    Raises:
        ReproError: they are not installed.
    """
    try:
        import pyspiel  # noqa: PLC0415
        from open_spiel.python.pytorch import deep_cfr  # noqa: PLC0415
    except ImportError as error:
        raise ReproError(
            f"repro.bench measures OpenSpiel, which cannot be imported ({error}); run: pip install -e '.[test]'"
        ) from error
    return pyspiel, deep_cfr
