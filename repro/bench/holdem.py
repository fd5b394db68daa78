"""Hold'em: what the exact engine and the deals consist of, beside the plain way to do them."""

from __future__ import annotations

import random

import numpy as np
import torch

from repro.bench.measure import Effort, Row, interleaved, per_second
from repro.engine import board_kernels as kernels
from repro.engine.holdem_form import HoldemForm, sample_boards
from repro.errors import ReproError
from repro.games import load
from repro.games.hand_strength import hand_strength

_HANDS = 20_000
"""Hands of one call."""


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    return [showdown(effort), seven_cards(effort)]


def showdown(effort: Effort) -> Row:
    """All hands' values at a showdown on one flop, against the opponent's reach: sorted hands with running sums, and
    NumPy's product of the reach with a ready-made 1,176 x 1,176 matrix of who wins."""
    form = HoldemForm(load("fhp"), sample_boards(load("fhp"), 1, torch.Generator().manual_seed(0)))
    boards = form.boards
    first, second, tie, cell = boards.first[0], boards.second[0], boards.tie[0], boards.cell[0]
    reach = np.random.default_rng(0).random(len(boards.members))
    buffer, value = np.zeros(len(first)), np.zeros(len(reach))
    apart = (first[:, None] != first) & (first[:, None] != second) & (second[:, None] != first)
    matrix = np.sign(np.subtract.outer(tie, tie)) * (apart & (second[:, None] != second)).astype(float)
    of_hands = reach[cell]

    def ours() -> None:
        kernels.terminal_value(kernels.SHOWN, 1.0, reach, boards, 0, buffer, value)

    ours()
    if not np.allclose(value[cell], matrix @ of_hands):
        raise AssertionError("the two ways to value a showdown differ")
    mine, other = interleaved(
        lambda: per_second(ours, effort.tabular_seconds),
        lambda: per_second(lambda: matrix @ of_hands, effort.tabular_seconds),
        effort.repetitions,
    )
    return Row("flop_showdown", mine, other, "showdowns/s", mine / other, "peer: dense matrix product, matrix given")


def seven_cards(effort: Effort) -> Row:
    """Strength of random seven-card hands: a batch of them, and phevaluator one by one."""
    try:
        from phevaluator import evaluate_cards  # noqa: PLC0415
    except ImportError:
        raise ReproError("phevaluator is not installed; `make bench` installs it.") from None
    draw = random.Random(0)
    dealt = [draw.sample(range(52), 7) for _ in range(_HANDS)]
    cards = torch.tensor(dealt)
    rank, suit = cards // 4, cards % 4
    hand_strength(rank, suit)

    def one_by_one() -> None:
        for hand in dealt:
            evaluate_cards(*hand)

    mine, other = interleaved(
        lambda: _HANDS * per_second(lambda: hand_strength(rank, suit), effort.tabular_seconds),
        lambda: _HANDS * per_second(one_by_one, effort.tabular_seconds),
        effort.repetitions,
    )
    return Row("seven_card_strength", mine, other, "hands/s", mine / other, "peer: phevaluator, pure Python")
