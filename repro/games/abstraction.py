"""Card abstractions of Hold'em games with one board: cells in the same *bucket* are played alike.

Buckets are found by k-means on domain features of the (hand, board) pair; which ones the papers used is not published.
Ours, all between 0 and 1 or nearly so:

1. the share of the opponent's hands that the hand beats on this board, ties counting half;
2. the same among the stronger half, and 3. the strongest eighth of the hands on this board (what is left of a range
   after betting; also shows which of those hands one's own cards block);
4. the same before the board, averaged over all boards (how the hand was played before);
5. how many cards of the board share a suit, and 6. whether it holds a pair, each halved;
7. the mean rank of the board, a quarter of it.

The first betting round is never abstracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor

from repro.engine import board_kernels as kernels
from repro.engine.holdem_form import HoldemForm
from repro.errors import ReproError
from repro.games.game import Game
from repro.games.holdem import HoldemCards

_MOST_AT_ONCE = 512
"""Clusters of one k-means: more are found in two steps, clusters of clusters."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Abstraction:
    """What a tabular solver's rows are: a betting node and a bucket.

    Attributes:
        bucket: per round `[cells]` bucket of each cell; None: each cell is one.
        first: `[nodes]` row of a decision node's first bucket.
        legal: `[rows, actions]` bool.
    """

    game: Game
    bucket: tuple[Tensor | None, ...]
    first: Tensor
    legal: Tensor

    def rows(self, infosets: Tensor) -> Tensor:
        """`[n]` infosets -> `[n]` rows."""
        if all(b is None for b in self.bucket):
            return infosets
        node, cell = self.game.locate(infosets)
        round_ = self.game.tree.round.index_select(0, node)
        for r, bucket in enumerate(self.bucket):
            if bucket is not None:
                # Cells of other rounds are looked up as well, and thrown away.
                cell = torch.where(round_ == r, bucket.take(cell.clamp(max=len(bucket) - 1)), cell)
        return self.first.index_select(0, node) + cell


def abstraction(game: Game, buckets: int | None) -> Abstraction:
    """`buckets` of the hands on the board, or (None) every suit-isomorphism class its own: lossless.

    Raises:
        ReproError: there are fewer classes than buckets.
    """
    cards = game.cards
    assert isinstance(cards, HoldemCards)
    if buckets is None:
        game.check_listed()
    grouped: tuple[Tensor | None, ...] = (None,) * game.tree.rounds
    if buckets is not None:
        if not cards.one_board or cards.codes[1] is None:
            raise ReproError(f"game is {game.name}; buckets are made for games of one board that can be listed.")
        if not 1 <= buckets <= cards.cells[1]:
            raise ReproError(
                f"algorithm.buckets is {buckets}; allowed are 1 to {cards.cells[1]:,}, or null (lossless)."
            )
        grouped = (None, _buckets(game.name, tuple(sorted(game.parameters.items())), buckets).to(game.device))
    sizes = [n if b is None else int(b.max()) + 1 for n, b in zip(cards.cells, grouped, strict=True)]
    first, size, legal = torch.zeros(game.tree.nodes, dtype=torch.int64), 0, []
    for p in range(2):
        for node in (game.tree.player == p).nonzero().flatten().tolist():
            first[node] = size
            here = sizes[int(game.tree.round[node])]
            legal.append(game.tree.legal[node].expand(here, -1))
            size += here
    return Abstraction(game, grouped, first.to(game.device), torch.cat(legal))


@lru_cache(maxsize=4)
def _buckets(name: str, parameters: tuple[tuple[str, object], ...], buckets: int) -> Tensor:
    from repro.games.registry import load  # noqa: PLC0415  (the registry need not know about abstractions)

    given: dict[str, Any] = dict(parameters)
    form = HoldemForm(load(name, **given))
    weight = form.boards.members * np.repeat(form.boards.weight, np.diff(form.boards.start))
    return torch.from_numpy(cluster(features(form), weight, buckets))


def features(form: HoldemForm) -> Floats:
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


def cluster(points: Floats, weight: Floats, clusters: int) -> NDArray[np.int64]:
    """`[points]` cluster of each, by weighted k-means; fewer than asked for where points coincide."""
    if clusters <= _MOST_AT_ONCE:
        return _kmeans(points, weight, clusters)
    coarse = _kmeans(points, weight, round(clusters**0.5))
    sizes = np.bincount(coarse)
    share = _apportion(sizes, clusters)
    found, used = np.zeros(len(points), np.int64), 0
    for group, parts in enumerate(share):
        members = np.flatnonzero(coarse == group)
        fine = _kmeans(points[members], weight[members], parts)
        found[members] = used + fine
        used += int(fine.max()) + 1
    return found


def _apportion(sizes: NDArray[Any], total: int) -> list[int]:
    """`total` in proportion to `sizes`, each at least 1 and at most the size."""
    exact = sizes * (total / sizes.sum())
    parts = np.clip(np.floor(exact), 1, sizes).astype(int)
    # One at a time, from the group that has most too many, or to the one that has most too few.
    while parts.sum() > total:
        parts[np.argmax(np.where(parts > 1, parts - exact, -np.inf))] -= 1
    while parts.sum() < total:
        parts[np.argmax(np.where(parts < sizes, exact - parts, -np.inf))] += 1
    return parts.tolist()


def _kmeans(points: Floats, weight: Floats, clusters: int) -> NDArray[np.int64]:
    if clusters == 1:
        return np.zeros(len(points), np.int64)
    # Many cells have the same features; each place counts once, with their weight together.
    places, which = np.unique(points, axis=0, return_inverse=True)
    if len(places) <= clusters:
        return which.astype(np.int64)
    total = np.bincount(which, weight)
    fitted = KMeans(clusters, n_init=1, max_iter=30, random_state=0).fit(places, sample_weight=total)
    _, named = np.unique(fitted.labels_, return_inverse=True)
    return named[which].astype(np.int64)
