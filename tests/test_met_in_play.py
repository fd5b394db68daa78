"""Rivers as play meets them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from repro.common.errors import ReproError
from repro.config import NetworkConfig, ReadoutConfig
from repro.plans.planning import plan
from repro.subgames import buckets, met
from repro.subgames.data import SubgameData
from repro.subgames.dataset import Dataset, Recipe
from repro.subgames.depth_limited import DepthLimitedSolver, Leaves, Rivers, Solved
from repro.subgames.kernels import Rule
from repro.subgames.networks import PredictedValues, ValueNetwork, ValueNetworkConfig
from repro.subgames.play import PredictedLeaves
from repro.subgames.sampling import random_subgame
from repro.subgames.solver import SolverConfig
from repro.subgames.subgames import EQUITY, LEAST_POT, RANDOM, Deck, Subgame, Subgames
from tests.helpers.training import config_of, readouts_of

SMALL = Deck(ranks=4)
RIVERS = Subgames("river_subgames", SMALL)
SEED, GROUP = 3, 2


def recipe(share: float = 1.0, least_pot: float = LEAST_POT, tolerance: float = 0.02) -> Recipe:
    subgames = Subgames("river_subgames", SMALL, least_pot)
    return Recipe.of(subgames, SEED, SolverConfig(tolerance=tolerance), met_in_play=share)


def turn_of(group: int) -> Subgame:
    return random_subgame(SEED, met._FIRST_TURN + group, 4, SMALL)


def rivers_of(group: int) -> list[Subgame]:
    first = group * met.GROUP
    return [met.met_subgame(SEED, first + i, SMALL, LEAST_POT, EQUITY, RANDOM) for i in range(met.GROUP)]


def at_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rivers are of before the first iteration, in which turns are played uniformly."""
    monkeypatch.setattr(met, "ITERATIONS", 1)
    met._rivers_of.cache_clear()


def test_uniform_betting_leaves_ranges_as_the_turn_begins(monkeypatch: pytest.MonkeyPatch):
    at_beginning(monkeypatch)
    turn = turn_of(GROUP)
    hands = [tuple(hand) for hand in SMALL.hands(turn.board)]
    for river in rivers_of(GROUP):
        assert river.board[:4] == turn.board
        assert river.pot >= turn.pot
        left = [hands.index(tuple(hand)) for hand in SMALL.hands(river.board)]
        before = turn.ranges[:, left]
        np.testing.assert_allclose(river.ranges, before / before.sum(1, keepdims=True), rtol=1e-5)
    met._rivers_of.cache_clear()


def test_betting_moves_ranges_to_those_who_bet():
    """After iterations the ranges are others than at the beginning of the turn, and those of each iteration."""
    turn = turn_of(GROUP)
    hands = [tuple(hand) for hand in SMALL.hands(turn.board)]
    moved = 0
    for river in rivers_of(GROUP):
        before = turn.ranges[:, [hands.index(tuple(hand)) for hand in SMALL.hands(river.board)]]
        np.testing.assert_allclose(river.ranges.sum(1), 1, rtol=1e-6)
        assert not river.ranges[before == 0].any()
        moved += not np.allclose(river.ranges, before / before.sum(1, keepdims=True), rtol=1e-2)
        assert river.matchups().any()
    assert moved > met.GROUP / 2


def test_rivers_are_what_a_network_is_asked_while_a_turn_is_solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The inputs of a network that learns from them are those of one that stands at the leaves."""
    monkeypatch.setattr(buckets, "_BOARDS", 10)
    algorithm = ValueNetworkConfig(
        name="network", iterations=1, snapshot_every=1, subgames=12, buckets=6, batch_size=4, predicts="cfv",
        readouts={"cfv": ReadoutConfig("cfv")},
    )  # fmt: skip
    config = config_of(algorithm, NetworkConfig("prelu", 16, 2), 0, output_dir=str(tmp_path))
    training = ValueNetwork(RIVERS, algorithm, config)
    (readout,) = readouts_of(RIVERS, config).values()
    assert isinstance(readout, PredictedValues)
    network = partial(PredictedLeaves, readout=readout, snapshot=training.snapshot())
    asked: list[list[torch.Tensor]] = []
    of = SubgameData.inputs_of

    def inputs_of(*arguments: object) -> torch.Tensor:
        inputs = of(*arguments)  # type: ignore[arg-type]
        asked[-1].append(inputs)
        return inputs

    class Asked(Leaves):
        """Exact values, and what a network is asked beside."""

        def __init__(self, rivers: Rivers) -> None:
            super().__init__(rivers)
            self.exact, self.network = Solved(rivers), network(rivers)

        def estimated(self, player: int, mode: int, how: Rule, opening: np.ndarray) -> np.ndarray:
            self.network.estimated(player, mode, how, opening)
            return self.exact.estimated(player, mode, how, opening)

    solver = DepthLimitedSolver(turn_of(GROUP), SolverConfig(), Asked)
    with monkeypatch.context() as patched:
        patched.setattr(SubgameData, "inputs_of", inputs_of)
        for _ in range(met.ITERATIONS):
            asked.append([])
            solver.iterate()
    _, iterations, _ = met._moments(SEED, GROUP, SMALL)
    data = training.data
    for river, iteration in zip(rivers_of(GROUP), iterations, strict=True):
        board = np.array([river.board])
        ranges, bucket = torch.from_numpy(river.ranges[None]).float(), torch.from_numpy(data.buckets_of(board))
        inputs = data.inputs_of(board, np.array([river.pot]), ranges, bucket)
        # Of an iteration's two questions the first is asked before anything is learned.
        assert (asked[iteration][0] - inputs).abs().amax(1).min() < 1e-5


def test_numbers_decide_them():
    one, other = (recipe().subgame(2 * met.GROUP + 7) for _ in range(2))
    assert one.board == other.board
    np.testing.assert_array_equal(one.ranges, other.ranges)
    numbers = range(3 * met.GROUP)
    np.testing.assert_array_equal(recipe().boards(numbers), [recipe().subgame(n).board for n in numbers])
    assert len({recipe().subgame(n).board for n in numbers}) > met.GROUP


def test_a_share_of_them_is_met():
    half, none = recipe(0.5), recipe(0.0)
    of_half = [met.is_met(SEED, n, 0.5) for n in range(2000)]
    assert 0.3 < np.mean(of_half) < 0.7
    numbers = [of_half.index(True), of_half.index(False)]
    for number, of_all in zip(numbers, (recipe(), none), strict=True):
        np.testing.assert_array_equal(half.subgame(number).ranges, of_all.subgame(number).ranges)
    assert len({half.name, none.name, recipe().name}) == 3
    assert none.name == Recipe.of(RIVERS, SEED, SolverConfig(tolerance=0.02)).name


def test_they_are_solved_and_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    dataset = Dataset(tmp_path, recipe(least_pot=2_000.0))
    monkeypatch.setattr("repro.subgames.dataset._SHARD", {5: met.GROUP})
    samples = dataset.shard(0, 1)
    assert len(samples) == met.GROUP
    assert (samples.exploitability <= 0.02).all()
    assert (samples.pot >= 2_000).all()


def test_turns_are_not_met():
    with pytest.raises(ReproError, match=r"algorithm.met_in_play is 0.5 and game.name turn_subgames"):
        plan(["experiment=leaves_data", "game=turn_subgames", "algorithm.met_in_play=0.5"], multirun=False)
