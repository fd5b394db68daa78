"""Buckets of hands that play alike after the flop, for any board of a round.

A hand is described by where it will stand at the showdown: the distribution, over the last card, of the share of the
opponent's hands that it beats. Before the last card this is potential-aware [Ganzfried and Sandholm 2014]; after it a
single number. Clusters are found on hands of a sample of boards, and a hand belongs to the nearest centre: by k-means,
between whose points the distance is the root of the integrated square of the difference of the distribution functions;
or by k-medians, where it is the area between these functions, the earth mover's distance.

DeepStack's and DEVN's own buckets are not published.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from repro.abstraction.showdown_strength import full_board_shares
from repro.common.compiled import Array
from repro.common.durable import kept
from repro.common.seeding import numpy_generator
from repro.subgames.sampling import showdown_strengths
from repro.subgames.stored import Stored
from repro.subgames.subgames import Deck

K_MEANS, K_MEDIANS = "k_means", "k_medians"
_METRIC = {K_MEANS: "euclidean", K_MEDIANS: "manhattan"}

_BINS = 50
"""The distribution function is known at the ends of so many equal parts of [0, 1]."""

_BOARDS = 200
_POINTS_PER_BUCKET = 50
_ROUNDS = 30


@dataclass(frozen=True)
class BucketRecipe(Stored):
    """What decides the buckets.

    Attributes:
        buckets: how many.
        clustering: `K_MEANS` or `K_MEDIANS`.
    """

    FORMAT = 3

    buckets: int
    clustering: str = K_MEANS


def distribution(deck: Deck, board: tuple[int, ...]) -> Array:
    """`[hands, points]` float32 of each hand its distribution function, or after the last card its share."""
    strength = showdown_strengths(deck, board)
    if len(board) == 5:
        return strength[0][:, None]
    hands = deck.hands(board)
    last = np.array(deck.full_boards(board))[:, -1]
    possible = np.not_equal(hands[None, :, :], last[:, None, None]).all(2)
    edges = np.arange(1, _BINS) / _BINS
    below = (strength[:, :, None] < edges) & possible[:, :, None]
    cdf: Array = (below.sum(0) / possible.sum(0)[:, None]).astype(np.float32)
    return cdf


class HandBuckets:
    """Which bucket each hand is in.

    Args:
        recipe: of the buckets.
        centres: `[buckets, points]`, as `find` makes them.
    """

    def __init__(self, recipe: BucketRecipe, centres: Array) -> None:
        self.recipe, self.centres = recipe, centres

    @cached_property
    def _deck(self) -> Deck:
        return Deck(self.recipe.ranks, self.recipe.suits)

    def of_board(self, board: tuple[int, ...]) -> Array:
        """`[hands]` int32 bucket of each hand that a board leaves."""
        return nearest(distribution(self._deck, board), self.centres, self.recipe.clustering)

    def of_boards(self, boards: Array) -> Array:
        """`[n, cards]` boards -> `[n, hands]` int32 buckets."""
        if boards.shape[1] == 5:
            # One number per hand: all boards at a time.
            deck = self._deck
            hands = deck.remaining_hands(boards)
            shares = np.take_along_axis(full_board_shares(deck.ranks, deck.suits, boards), hands, 1)
            return nearest(shares.reshape(-1, 1), self.centres, self.recipe.clustering).reshape(shares.shape)
        different, which = np.unique(boards, axis=0, return_inverse=True)
        bucket: Array = np.stack([self.of_board(tuple(board)) for board in different.tolist()])[which]
        return bucket


def find(recipe: BucketRecipe) -> HandBuckets:
    """Cluster the hands of a sample of boards."""
    deck, draw = Deck(recipe.ranks, recipe.suits), numpy_generator(recipe.seed, "buckets")
    boards = [tuple(draw.choice(deck.cards, recipe.board_cards, replace=False).tolist()) for _ in range(_BOARDS)]
    points = np.concatenate([distribution(deck, board) for board in boards])
    most = _POINTS_PER_BUCKET * recipe.buckets
    points = points[draw.permutation(len(points))[:most]]
    return HandBuckets(recipe, cluster_centres(points, recipe.buckets, draw, recipe.clustering))


def stored(root: Path, recipe: BucketRecipe) -> HandBuckets:
    """`find`, done once: centres are kept in a file of the folder `root`. One that is damaged is made again."""

    def make() -> bytes:
        content = io.BytesIO()
        np.save(content, find(recipe).centres)
        return content.getvalue()

    content = kept(root / f"buckets-{recipe.key}.npy", recipe.plain, make)
    return HandBuckets(recipe, np.load(io.BytesIO(content)))


def alike(deck: Deck, boards: Array) -> Array:
    """`[n, cards]` boards -> `[n, hands]` numbers, equal for hands of a board that have the same description."""
    return np.stack(
        [np.unique(distribution(deck, tuple(b)), axis=0, return_inverse=True)[1].ravel() for b in boards.tolist()]
    )


def cluster_centres(points: Array, clusters: int, draw: np.random.Generator, clustering: str = K_MEANS) -> Array:
    """`[clusters, d]` centres of `[n, d]` points, sorted by their mean.

    Fewer, where there are not so many different points.
    """
    centres = np.unique(points, axis=0)
    if len(centres) > clusters:
        start = int(draw.integers(1 << 31))
        from sklearn.cluster import KMeans, kmeans_plusplus  # noqa: PLC0415  (takes half a second to import)

        # Sums of several threads would depend on their order.
        with threadpool_limits(1):
            if clustering == K_MEANS:
                centres = KMeans(clusters, n_init=1, max_iter=_ROUNDS, random_state=start).fit(points).cluster_centers_
            else:
                centres = _medians(points, kmeans_plusplus(points, clusters, random_state=start)[0])
    return np.ascontiguousarray(centres[np.argsort(centres.mean(1), kind="stable")], np.float32)


def _medians(points: Array, centres: Array) -> Array:
    """Lloyd's algorithm with the sum of absolute differences, whose best centre is the median in each dimension."""
    for _ in range(_ROUNDS):
        label = nearest(points, centres, K_MEDIANS)
        order = np.argsort(label, kind="stable")
        groups = np.split(points[order], np.searchsorted(label[order], np.arange(1, len(centres))))
        moved = np.stack([np.median(g, 0) if len(g) else c for g, c in zip(groups, centres, strict=True)])
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def nearest(points: Array, centres: Array, clustering: str = K_MEANS) -> Array:
    """`[n]` int32 the nearest centre of each of `[n, d]` points."""
    if points.shape[1] > 1:
        from sklearn.metrics import pairwise_distances_argmin  # noqa: PLC0415  (takes half a second to import)

        index: Array = pairwise_distances_argmin(points, centres, metric=_METRIC[clustering]).astype(np.int32)
        return index
    # In one dimension, of which rivers have a hundred million, the place among the middles between centres.
    order = np.argsort(centres[:, 0], kind="stable")
    middle = (centres[order[1:], 0] + centres[order[:-1], 0]) / 2
    return order[np.searchsorted(middle, points[:, 0])].astype(np.int32)
