"""K-means of many points in few dimensions, with any number of clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from repro.common.compiled import Floats

_MOST_AT_ONCE = 512
"""Clusters of one k-means: more are found in two steps, clusters of clusters."""


def cluster_labels(points: Floats, weight: Floats, clusters: int) -> NDArray[np.int64]:
    """`[points]` cluster of each, by weighted k-means; fewer than asked for where points coincide."""
    if clusters <= _MOST_AT_ONCE:
        return _kmeans(points, weight, clusters)
    coarse = _kmeans(points, weight, round(clusters**0.5))
    sizes = np.bincount(coarse)
    share = _apportion(sizes, clusters)
    labels, used = np.zeros(len(points), np.int64), 0
    for group, parts in enumerate(share):
        members = np.flatnonzero(coarse == group)
        fine = _kmeans(points[members], weight[members], parts)
        labels[members] = used + fine
        used += int(fine.max()) + 1
    return labels


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
    from sklearn.cluster import KMeans  # noqa: PLC0415  (takes half a second to import)

    total = np.bincount(which, weight)
    fitted = KMeans(clusters, n_init=1, max_iter=30, random_state=0).fit(places, sample_weight=total)
    _, named = np.unique(fitted.labels_, return_inverse=True)
    return named[which].astype(np.int64)
