"""Buckets of hands that play alike after the flop, for any board of a round.

A hand is described by where it will stand at the showdown: the distribution, over the last card, of the share of the
opponent's hands that it beats. Before the last card this is potential-aware [Ganzfried and Sandholm 2014]; after it a
single number. Distributions are compared by the earth mover's distance, which in one dimension is the area between the
distribution functions. Clusters are found on a sample of boards by Lloyd's algorithm with that distance, whose best
centre is the median, point by point; a hand belongs to the nearest centre.

DeepStack's and DEVN's own buckets are not published.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from repro.abstraction.showdown_strength import full_board_shares
from repro.engine.compiled import compiled
from repro.seeding import numpy_generator
from repro.values.sampling import showdown_strengths
from repro.values.stored import Stored, write_whole
from repro.values.subgames import Array, Deck

_BINS = 50
"""The distribution function is known at the ends of so many equal parts of [0, 1]."""

_BOARDS = 200
_POINTS_PER_BUCKET = 50
_ROUNDS = 20


@dataclass(frozen=True)
class BucketRecipe(Stored):
    """What decides the buckets.

    Attributes:
        buckets: how many.
    """

    FORMAT = 2

    buckets: int


def distribution(deck: Deck, board: tuple[int, ...]) -> Array:
    """`[hands, points]` float32 description of each hand: its distribution function, or after the last card its share.

    Distances between them, summed over the points, are earth mover's distances in units of a share of 1.
    """
    strength = showdown_strengths(deck, board)
    if len(board) == 5:
        return strength[0][:, None]
    hands = deck.hands(board)
    last = np.array(deck.full_boards(board))[:, -1]
    possible = np.not_equal(hands[None, :, :], last[:, None, None]).all(2)
    edges = np.arange(1, _BINS) / _BINS
    below = (strength[:, :, None] < edges) & possible[:, :, None]
    found: Array = (below.sum(0) / (possible.sum(0)[:, None] * _BINS)).astype(np.float32)
    return found


class Buckets:
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
        return nearest(distribution(self._deck, board), self.centres)

    def of_boards(self, boards: Array) -> Array:
        """`[n, cards]` boards -> `[n, hands]` int32 buckets."""
        if boards.shape[1] == 5:
            # One number per hand: all boards at a time.
            deck = self._deck
            shares = np.take_along_axis(full_board_shares(deck.ranks, deck.suits, boards), deck.left(boards), 1)
            return nearest(shares.reshape(-1, 1), self.centres).reshape(shares.shape)
        different, which = np.unique(boards, axis=0, return_inverse=True)
        found: Array = np.stack([self.of_board(tuple(board)) for board in different.tolist()])[which]
        return found


def find(recipe: BucketRecipe) -> Buckets:
    """Cluster the hands of a sample of boards."""
    deck, draw = Deck(recipe.ranks, recipe.suits), numpy_generator(recipe.seed, "buckets")
    boards = [tuple(draw.choice(deck.cards, recipe.board_cards, replace=False).tolist()) for _ in range(_BOARDS)]
    points = np.concatenate([distribution(deck, board) for board in boards])
    most = _POINTS_PER_BUCKET * recipe.buckets
    points = points[draw.permutation(len(points))[:most]]
    return Buckets(recipe, cluster(points, recipe.buckets, draw))


def stored(root: Path, recipe: BucketRecipe) -> Buckets:
    """`find`, done once: centres are kept in a file of the folder `root`."""
    path = root / f"buckets-{recipe.key}.npy"
    if not path.exists():
        root.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        np.save(content, find(recipe).centres)
        write_whole(path, content.getvalue())
    return Buckets(recipe, np.load(path))


def cluster(points: Array, clusters: int, draw: np.random.Generator) -> Array:
    """`[clusters, d]` centres of `[n, d]` points, for the sum of absolute differences; sorted by their mean.

    Fewer, where there are not so many different points.
    """
    different = np.unique(points, axis=0)
    if len(different) <= clusters:
        centres = different
    else:
        centres = different[draw.choice(len(different), clusters, replace=False)]
        for _ in range(_ROUNDS):
            label = nearest(points, centres)
            order = np.argsort(label, kind="stable")
            groups = np.split(points[order], np.searchsorted(label[order], np.arange(1, len(centres))))
            moved = np.stack([np.median(g, 0) if len(g) else c for g, c in zip(groups, centres, strict=True)])
            if np.array_equal(moved, centres):
                break
            centres = moved
    return np.ascontiguousarray(centres[np.argsort(centres.mean(1), kind="stable")], np.float32)


def nearest(points: Array, centres: Array) -> Array:
    """`[n]` int32 a centre at the smallest sum of absolute differences from each of `[n, d]` points."""
    if points.shape[1] > 1:
        return _nearest(points, centres)
    order = np.argsort(centres[:, 0], kind="stable")
    middle = (centres[order[1:], 0] + centres[order[:-1], 0]) / 2
    found: Array = order[np.searchsorted(middle, points[:, 0])].astype(np.int32)
    return found


@compiled
def _nearest(points: Array, centres: Array) -> Array:
    found = np.zeros(len(points), np.int32)
    for i in range(len(points)):
        point, best = points[i], np.float32(np.inf)
        for k in range(len(centres)):
            centre, distance = centres[k], np.float32(0.0)
            for j in range(len(point)):
                distance += abs(point[j] - centre[j])
                if distance >= best:
                    break
            if distance < best:
                best, found[i] = distance, k
    return found
