"""K-means of many points: names, weights, and the two steps that many clusters take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.abstraction import clusters as clustering
from repro.abstraction.clusters import _apportion, cluster_labels


def points_of(count: int, seed: int = 0, copies: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    points = np.repeat(rng.random((count, 3)), copies, 0)
    return points, rng.random(len(points)) + 0.1


@pytest.mark.parametrize("most_at_once", [512, 8])
@pytest.mark.parametrize("clusters", [1, 2, 9, 40, 300])
def test_clusters(monkeypatch, most_at_once, clusters):
    monkeypatch.setattr(clustering, "_MOST_AT_ONCE", most_at_once)
    points, weight = points_of(250, copies=2)
    found = cluster_labels(points, weight, clusters)
    assert found.shape == (500,)
    names = np.unique(found)
    assert names.tolist() == list(range(len(names))), "no name may be left out"
    assert len(names) <= clusters
    assert len(names) >= min(clusters, 250) * 0.8
    # Equal points are together, and with as many clusters as places every place is one.
    assert np.array_equal(found[::2], found[1::2])
    if clusters == 300 and most_at_once == 512:
        assert len(names) == 250
    assert np.array_equal(found, cluster_labels(points.copy(), weight.copy(), clusters))


@pytest.mark.parametrize("most_at_once", [512, 4])
def test_clusters_of_clear_groups_are_the_groups(monkeypatch, most_at_once):
    monkeypatch.setattr(clustering, "_MOST_AT_ONCE", most_at_once)
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(9), 20)
    centre = np.stack([group // 3 * 10.0, group % 3 * 1.0], 1)
    points = centre + 0.01 * rng.random((180, 2))
    found = cluster_labels(points, np.ones(180), 9)
    assert len(np.unique(found)) == 9
    assert len(np.unique(np.stack([found, group]), axis=1).T) == 9


def test_clusters_stay_at_most_as_many_as_asked_when_groups_are_uneven(monkeypatch):
    """A dense crowd and a few points far away, which the first step gives groups of their own."""
    monkeypatch.setattr(clustering, "_MOST_AT_ONCE", 8)
    rng = np.random.default_rng(0)
    far = np.array([[100.0, 0], [0, 100], [-100, 0]])
    points = np.concatenate([rng.random((1000, 2)), *(f + rng.random((2, 2)) for f in far)])
    found = cluster_labels(points, np.ones(len(points)), 16)
    assert len(np.unique(found)) <= 16


def test_weights_draw_the_clusters():
    points = np.array([[0.0], [1.0], [3.0]])
    assert len(set(cluster_labels(points, np.array([1.0, 1.0, 1.0]), 2)[:2])) == 1
    # The mean of 1 and 3 lies near 3 when that weighs most, and 0 and 1 are expensive to join.
    heavy = cluster_labels(points, np.array([1000.0, 1000.0, 0.001]), 2)
    assert heavy[0] != heavy[1]


@pytest.mark.slow
@settings(deadline=None, derandomize=True, database=None)
@given(st.data())
def test_parts_add_up(data):
    sizes = np.array(data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=12)))
    total = data.draw(st.integers(len(sizes), int(sizes.sum())))
    parts = _apportion(sizes, total)
    assert all(1 <= p <= s for p, s in zip(parts, sizes, strict=True))
    assert sum(parts) == total


def test_parts_are_in_proportion():
    assert _apportion(np.array([10, 20, 30, 40]), 10) == [1, 2, 3, 4]
    # 1.5, 2.5 and 6: what is left goes to the largest remainders.
    assert sorted(_apportion(np.array([15, 25, 60]), 10)) in ([1, 3, 6], [2, 2, 6])
    assert _apportion(np.array([15, 26, 59]), 10) == [1, 3, 6]
    assert _apportion(np.array([3, 3, 3]), 9) == [3, 3, 3]
