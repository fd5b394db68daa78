"""Buckets of games whose board is dealt at once, by k-means on domain features of the (hand, board) pair.

Which features the papers used is not published. Ours, all between 0 and 1 or nearly so:

1. the share of the opponent's hands that the hand beats on this board, ties counting half;
2. the same among the stronger half, and 3. the strongest eighth of the hands on this board (what is left of a range
   after betting; also shows which of those hands one's own cards block);
4. the same before the board, averaged over all boards (how the hand was played before);
5. how many cards of the board share a suit, and 6. whether it holds a pair, each halved;
7. the mean rank of the board, a quarter of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from repro.abstraction.clusters import cluster_labels
from repro.common.compiled import Floats
from repro.engine import board_kernels as kernels
from repro.engine.holdem_form import HoldemForm
from repro.games.registry import load


class OneBoardBuckets:
    """`buckets` of the cells on the board; before it every cell is its own.

    Attributes:
        sizes: buckets per round.
    """

    def __init__(self, name: str, parameters: Mapping[str, object], cells: tuple[int, ...], buckets: int) -> None:
        self._bucket = _buckets(name, tuple(sorted(parameters.items())), buckets)
        self.sizes: tuple[int, ...] = (cells[0], int(self._bucket.max()) + 1)

    def of_cells(self, round_: int, cells: Tensor) -> Tensor:
        """`[n]` cells of a round -> `[n]` buckets."""
        return cells if round_ == 0 else self._bucket.to(cells.device).take(cells)


@lru_cache(maxsize=4)
def _buckets(name: str, parameters: tuple[tuple[str, object], ...], buckets: int) -> Tensor:
    keywords: dict[str, Any] = dict(parameters)
    form = HoldemForm(load(name, **keywords))
    weight = form.boards.members * np.repeat(form.boards.weight, np.diff(form.boards.start))
    return torch.from_numpy(cluster_labels(cell_features(form), weight, buckets))


def cell_features(form: HoldemForm) -> Floats:
    """`[cells, 7]` the features above."""
    boards, cells = form.boards, len(form.boards.members)
    hands = boards.first.shape[1]
    shares = np.zeros((3, cells))
    for column, strongest in zip(shares, (hands, hands // 2, hands // 8), strict=True):
        form.over_boards(kernels.equity, strongest, column)
    per_board = np.diff(boards.start)
    weight = boards.members * np.repeat(boards.weight, per_board)
    before = np.bincount(boards.before, weight * shares[0]) / np.bincount(boards.before, weight)
    board = form.sample.boards.numpy()
    rank, suit = board // form.suits, board % form.suits
    suited = np.stack([(suit == s).sum(1) for s in range(form.suits)]).max(0) / board.shape[1]
    paired = np.array([len(set(r)) < len(r) for r in rank.tolist()], float)
    texture = np.stack([suited / 2, paired / 2, rank.mean(1) / rank.max() / 4], 1)
    return np.column_stack([*shares, before[boards.before], np.repeat(texture, per_board, 0)])
