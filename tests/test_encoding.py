"""Buckets of hands, what they do to values, and the runs that measure it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow import MlflowClient

from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.config import Config, ReadoutConfig
from repro.plans.planning import plan
from repro.subgames import buckets, dataset
from repro.subgames.buckets import K_MEANS, K_MEDIANS, BucketRecipe, cluster_centres, distribution, find, nearest
from repro.subgames.dataset import Dataset
from repro.subgames.encoding import (
    CFV,
    EV,
    averaged,
    counterfactual,
    encoding_error,
    error,
    expected,
    inverse,
    pooled,
    sizes,
    summed,
)
from repro.subgames.runs import EncodingErrorConfig, EncodingErrorMetrics, EncodingErrors
from repro.subgames.subgames import Deck, Subgames, matchups
from repro.tracking import record as records
from repro.tracking.store import default_uri
from tests.helpers.commands import executed, results
from tests.helpers.draws import seeded
from tests.helpers.training import config_of, measured, straight_and_resumed

SMALL = Deck(ranks=4)


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dataset, "_SHARD", {4: 1, 5: 3})
    monkeypatch.setattr(buckets, "_BOARDS", 10)


# -- buckets -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_distribution_is_that_of_the_share_beaten():
    board = (0, 5, 10, 15)
    hands, found = SMALL.hands(board), distribution(SMALL, board)
    for i in (0, 17, 40, 65):
        mine, shares = hands[i].tolist(), []
        for full in SMALL.full_boards(board):
            if set(mine) & set(full):
                continue
            others = np.array([h for h in SMALL.hands(full).tolist() if not set(h) & set(mine)])
            own, theirs = SMALL.strength(full, np.array([mine]))[0], SMALL.strength(full, others)
            shares.append(((own > theirs) + (own == theirs) / 2).mean())
        edges = np.arange(1, 50) / 50
        expected_ = (np.array(shares)[:, None] < edges).mean(0)
        np.testing.assert_allclose(found[i], expected_, atol=1e-6)


@settings(deadline=None)
@given(seed=st.integers(0, 1000))
def test_k_medians_put_a_hand_where_the_earth_movers_distance_is_smallest(seed: int):
    # In the middle of the parts of [0, 1] on whose ends the distribution functions are known.
    samples = np.random.default_rng(seed).integers(0, 50, (6, 4)) / 50 + 0.01
    functions = (samples[:, None] < (np.arange(1, 50) / 50)[:, None]).mean(2).astype(np.float32)
    for hand, centre in enumerate(nearest(functions[:2], functions[2:], K_MEDIANS)):
        # Of samples of the same size: match them in order.
        distance = [np.abs(np.sort(samples[hand]) - np.sort(other)).mean() for other in samples[2:]]
        assert distance[centre] == pytest.approx(min(distance), abs=1e-6)


def test_hands_are_alike_that_have_the_same_distribution():
    boards = np.array([[0, 5, 10, 15], [0, 1, 2, 7]])
    for board, number in zip(boards.tolist(), buckets.alike(SMALL, boards), strict=True):
        of = distribution(SMALL, tuple(board))
        assert np.array_equal(number[:, None] == number, (of[:, None] == of).all(2))


@pytest.mark.parametrize("clustering", [K_MEANS, K_MEDIANS])
@settings(deadline=None)
@given(seed=st.integers(0, 1000), d=st.integers(1, 4))
def test_nearest_is_nearest(seed: int, d: int, clustering: str):
    draw = np.random.default_rng(seed)
    points, centres = (draw.random((n, d), np.float32) for n in (30, 7))
    difference = np.abs(points[:, None] - centres)
    distance = (np.square(difference) if clustering == K_MEANS else difference).sum(2)
    found = nearest(points, centres, clustering)
    np.testing.assert_allclose(distance[np.arange(30), found], distance.min(1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("clustering", [K_MEANS, K_MEDIANS])
def test_clusters_that_are_there_are_found(clustering: str):
    draw = np.random.default_rng(0)
    middles = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]], np.float32)
    points = (middles[draw.integers(3, size=600)] + draw.normal(0, 0.1, (600, 2))).astype(np.float32)
    found = cluster_centres(points, 3, draw, clustering)
    # Sorted by their mean; the second and third have the same.
    assert {tuple(centre) for centre in found.round().tolist()} == {tuple(m) for m in middles.tolist()}
    assert found[0].tolist() == pytest.approx([0, 0], abs=0.05)


@pytest.mark.parametrize("board_cards", [4, 5])
def test_buckets_are_the_same_each_time_and_differ_by_seed(board_cards: int):
    def of(seed: int) -> Array:
        return find(BucketRecipe(4, 4, board_cards, seed, 6)).of_board(tuple(range(3, 3 + board_cards)))

    assert np.array_equal(of(0), of(0))
    assert not np.array_equal(of(0), of(1))
    assert set(of(0).tolist()) <= set(range(6))


def test_stronger_hands_are_in_later_buckets_of_the_river():
    found = find(BucketRecipe(4, 4, 5, 0, 5))
    board = (0, 5, 10, 15, 3)
    bucket, strength = found.of_board(board), distribution(SMALL, board)[:, 0]
    assert (np.diff(bucket[np.argsort(strength, kind="stable")]) >= 0).all()


def test_suits_make_no_difference():
    found = find(BucketRecipe(4, 4, 4, 0, 8))
    name = np.array([1, 3, 0, 2])
    board = (0, 1, 6, 11)
    renamed = tuple(int(c // 4 * 4 + name[c % 4]) for c in board)
    place = {tuple(hand): i for i, hand in enumerate(SMALL.hands(renamed).tolist())}
    moved = [place[tuple(sorted((h // 4 * 4 + name[h % 4]).tolist()))] for h in SMALL.hands(board)]
    assert np.array_equal(found.of_board(renamed)[moved], found.of_board(board))


def test_centres_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = BucketRecipe(4, 4, 5, 0, 5)
    first = buckets.stored(tmp_path, recipe)
    monkeypatch.setattr(buckets, "find", lambda _: pytest.fail("found again"))
    assert np.array_equal(buckets.stored(tmp_path, recipe).centres, first.centres)


@pytest.mark.parametrize("harm", ["flipped", "truncated", "no seal", "others"])
def test_damaged_centres_are_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: str):
    recipe = BucketRecipe(4, 4, 5, 0, 5)
    first = buckets.stored(tmp_path, recipe)
    (path,) = tmp_path.glob("buckets-*.npy")
    content = path.read_bytes()
    if harm == "flipped":
        path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    elif harm == "truncated":
        path.write_bytes(content[:-4])
    elif harm == "no seal":
        path.with_suffix(".json").unlink()
    else:
        buckets.stored(tmp_path / "others", replace(recipe, seed=1))
        for other in (tmp_path / "others").glob("buckets*"):
            other.replace(path.with_suffix(other.suffix))
    assert np.array_equal(buckets.stored(tmp_path, recipe).centres, first.centres)
    assert path.read_bytes() == content
    assert f"warning: {path} " in capsys.readouterr().err
    assert np.array_equal(buckets.stored(tmp_path, recipe).centres, first.centres)
    assert not capsys.readouterr().err


# -- encoding ----------------------------------------------------------------------------------------------------------


def some(seed: int = 0, hands: int = 12, count: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    cfv = torch.randn(3, 2, hands, generator=draw, dtype=torch.float64)
    matchup = 0.2 + torch.rand(3, 2, hands, generator=draw, dtype=torch.float64)
    return cfv, matchup, torch.randint(count, (3, hands), generator=draw)


def test_sums_means_and_back_by_hand():
    values = torch.tensor([[[1.0, 2.0, 6.0], [0.0, 4.0, 5.0]]])
    bucket = torch.tensor([[2, 2, 0]])
    assert summed(values, bucket, 3).tolist() == [[[6.0, 0.0, 3.0], [5.0, 0.0, 4.0]]]
    assert sizes(bucket, 3).tolist() == [[1.0, 0.0, 2.0]]
    mean = averaged(values, bucket, 3)
    assert mean.tolist() == [[[6.0, 0.0, 1.5], [5.0, 0.0, 2.0]]]
    assert inverse(mean, bucket).tolist() == [[[1.5, 1.5, 6.0], [2.0, 2.0, 5.0]]]


@pytest.mark.parametrize(
    ("target", "bucketed", "back", "printed"),
    [
        (CFV, (4.25, -5.2 / 3), (4.25, 4.25, -5.2 / 3, -5.2 / 3, -5.2 / 3), 2.36),
        (EV, (5.0, -3.0), (4.75, 3.5, -1.2, -2.4, -1.5), 1.34),
    ],
)  # fmt: skip
def test_the_papers_worked_example(target, bucketed, back, printed):
    """Five hands in two buckets: Fig. 1 of the supplement in counterfactual values, of the paper in expected ones.

    The captions' errors are roots of sums, the tables' of means [DEVN, Sec. 6: RMSE].
    """
    matchup = torch.tensor([[[0.95, 0.7, 0.4, 0.8, 0.5]] * 2], dtype=torch.float64)
    ev = torch.tensor([[[6.0, 4.0, -2.0, -3.0, -4.0]] * 2], dtype=torch.float64)
    cfv, bucket = ev * matchup, torch.tensor([[0, 0, 1, 1, 1]])
    assert cfv[0, 0].tolist() == pytest.approx([5.7, 2.8, -0.8, -2.4, -2.0])
    values = expected(cfv, matchup) if target == EV else cfv
    mean = averaged(values, bucket, 2)
    assert mean[0, 0].tolist() == pytest.approx(bucketed)
    assert counterfactual(inverse(mean, bucket), matchup, target)[0, 0].tolist() == pytest.approx(back)
    squares = encoding_error(cfv, matchup, bucket, 2, target)
    assert (5 * squares).sqrt()[0].tolist() == pytest.approx([printed] * 2, abs=0.005)


@pytest.mark.parametrize("target", [CFV, EV])
def test_no_error_where_every_hand_has_its_own_bucket(target: str):
    cfv, matchup, _ = some()
    own = torch.stack([torch.randperm(12) for _ in range(3)])
    assert encoding_error(cfv, matchup, own, 12, target).max() < 1e-25


def test_errors_by_hand():
    cfv, matchup, bucket = some()
    for target in (CFV, EV):
        for n, player in ((0, 0), (2, 1)):
            values = cfv[n, player] / matchup[n, player] if target == EV else cfv[n, player]
            back = torch.stack([values[bucket[n] == b].mean() for b in bucket[n]])
            wrong = (cfv[n, player] - (back * matchup[n, player] if target == EV else back)).square().mean()
            assert encoding_error(cfv, matchup, bucket, 5, target)[n, player].item() == pytest.approx(wrong.item())


def test_subgames_count_equally_or_by_their_squares():
    squares = torch.tensor([[4.0, 1.0], [0.0, 9.0]]) / 1e4
    assert error(squares) == pytest.approx((2 + 1 + 0 + 3) / 4)
    assert pooled(squares) == pytest.approx((14 / 4) ** 0.5)


def test_expected_values_have_no_error_where_they_are_equal_within_buckets():
    """What DEVN is about: matchups differ between the hands of a bucket, and need not be learned."""
    _, matchup, bucket = some()
    ev = torch.randn(3, 2, 5, generator=seeded(0), dtype=torch.float64).gather(2, bucket[:, None].expand(-1, 2, -1))
    assert encoding_error(ev * matchup, matchup, bucket, 5, EV).max() < 1e-25
    assert encoding_error(ev * matchup, matchup, bucket, 5, CFV).min() > 1e-3


def test_a_hand_that_meets_none_is_worth_nothing():
    assert expected(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.5])).tolist() == [0.0, 2.0]


# -- runs --------------------------------------------------------------------------------------------------------------

RUN = ["game=river_subgames", "game.ranks=4", "algorithm=encoding_error", "algorithm.buckets=8"]


def config(folder: Path, iterations: int = 4, count: int | None = 8) -> Config:
    readouts = {"dcvn": ReadoutConfig("cfv"), "devn": ReadoutConfig("ev")}
    algorithm = EncodingErrorConfig(
        name="encoding_error", iterations=iterations, snapshot_every=1, readouts=readouts, buckets=count
    )
    return config_of(algorithm, output_dir=str(folder))


RIVERS = Subgames("river_subgames", SMALL)


def errors(folder: Path, iterations: int = 4, count: int | None = 8) -> EncodingErrors:
    asked = config(folder, iterations, count)
    return EncodingErrors(RIVERS, asked.algorithm, asked)


@pytest.mark.exhaustive
def test_a_run_measures_what_the_definition_says(tmp_path: Path):
    asked = (*RUN, "algorithm.iterations=3")
    assert executed(*asked, f"output_dir={tmp_path}") == records.FINISHED
    found = results(tmp_path, asked)
    model = errors(tmp_path)
    samples = Dataset(tmp_path / "subgames", model.dataset.recipe).load(9)
    made = buckets.stored(tmp_path / "subgames", BucketRecipe(4, 4, 5, 0, 8))
    hands = [made.of_board(tuple(b)) for b in samples.board.tolist()]
    for name, of in (("dcvn", CFV), ("devn", EV)):
        roots = []
        for n, bucket in enumerate(hands):
            matchup = matchups(SMALL, samples.board[n : n + 1], samples.ranges[n : n + 1])[0]
            values = samples.cfv[n] / matchup if of == EV else samples.cfv[n]
            back = np.stack([[v[bucket == b].mean() for b in bucket] for v in values])
            wrong = (samples.cfv[n] - (back * matchup if of == EV else back)) ** 2
            roots.append([np.sqrt(wrong[player].mean()) for player in range(2)])
        assert np.std(roots) > 0
        mine = found[(found.readout == name) & (found.step == 3)].set_index("metric").value
        assert mine["encoding_error"] == pytest.approx(100 * np.mean(roots), rel=1e-5)
        assert mine["error"] == pytest.approx(100 * np.mean(roots[6:]), rel=1e-5)
        assert mine["squared_error"] == pytest.approx(1e4 * np.mean(np.square(roots[6:])), rel=1e-5)
    own = found[(found.readout == "training") & (found.step == 3)].set_index("metric").value
    assert own["subgames"] == 9
    assert own["exploitability/most"] <= 0.5
    client = MlflowClient(default_uri(tmp_path))
    assert executed(*asked, "evaluation=[]", f"output_dir={tmp_path}") == records.SKIPPED
    for run in client.search_runs([e.experiment_id for e in client.search_experiments()]):
        assert run.inputs is not None
        (used,) = run.inputs.dataset_inputs
        assert f"{used.dataset.name}-{used.dataset.digest}" == model.dataset.recipe.name
        assert (tmp_path / json.loads(used.dataset.source)["uri"]).is_dir()


def test_without_a_number_each_description_has_a_bucket(tmp_path: Path):
    def measured_with(count: int | None) -> float:
        model = errors(tmp_path, count=count)
        model.iteration = 1
        model.advance()
        return measured(RIVERS, config(tmp_path, count=count), model, EncodingErrorMetrics())["dcvn"]["encoding_error"]

    # Of counterfactual values, which are averaged and measured with the same weights, the mean in a part of a bucket is
    # nearer than that in the whole.
    assert 0 < measured_with(None) < measured_with(8)


@pytest.mark.slow
def test_resuming_equals_never_stopping(tmp_path: Path):
    straight, resumed = straight_and_resumed(lambda: errors(tmp_path), 4, 2, tmp_path)
    again = errors(tmp_path)
    again.resume(straight.saved())
    found = [measured(RIVERS, config(tmp_path), m, EncodingErrorMetrics()) for m in (straight, resumed, again)]
    assert found[0] == found[1] == found[2]
    assert found[0]["dcvn"].keys() == {"encoding_error", "error", "squared_error"}


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["game=leduc", "algorithm=encoding_error"], "takes one of turn_subgames, river_subgames"),
        (
            ["game=river_subgames", "algorithm=sd_cfr"],
            "game is river_subgames; the algorithm takes whole games",
        ),
        ([*RUN, "game.ranks=1"], "ranks is 1; allowed are 2 to 13"),
        ([*RUN, "game.ranks=2"], "8 cards; 9 are dealt"),
        ([*RUN, "+game.stack=5"], "no parameter 'stack'"),
        ([*RUN, "game.ties=suited"], "ties is 'suited'; it must be one of random, by_card"),
        ([*RUN, "game.least_pot=100"], "least_pot is 100; allowed are 200 chips to below 39900"),
        ([*RUN, "algorithm.buckets=0"], "algorithm.buckets is 0; it must be at least 1"),
        ([*RUN, "algorithm.solver.tolerance=0"], "algorithm.solver.tolerance is 0.0"),
        ([*RUN, "algorithm.solver.beta=20"], "algorithm.solver.beta is 20.0; it must be from -10 to 10"),
        ([*RUN, "algorithm.readouts.devn.kind=average"], "must be one of cfv, ev"),
        ([*RUN, "network=fc"], "the algorithm encoding_error has none"),
        (["algorithm=solved_subgames", "+algorithm.readouts.x={kind: ev}"], "must be one of labels"),
    ],
)
def test_what_cannot_be_is_refused(overrides: list[str], sentence: str):
    with pytest.raises(ReproError) as caught:
        plan(overrides, multirun=False)
    assert sentence in str(caught.value)


def test_a_deck_lists_the_hands_that_a_board_leaves_once():
    board = (1, 2, 3, 4, 5)
    expected_ = [pair for pair in combinations(range(16), 2) if not set(pair) & set(board)]
    assert sorted(map(tuple, SMALL.hands(board).tolist())) == expected_
