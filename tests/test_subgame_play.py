"""Networks judged by play: their values at leaves, the evaluation, and figure 13."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from paper_figures import figure13
from paper_figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE
from repro.config import Config, NetworkConfig, ReadoutConfig
from repro.errors import ReproError
from repro.planning import plan
from repro.policies.snapshot import Snapshot
from repro.subgames import buckets
from repro.subgames.data import Truth
from repro.subgames.depth_limited import DepthLimitedSolver
from repro.subgames.kernels import BEST
from repro.subgames.networks import PredictedValues, ValueNetwork, ValueNetworkConfig
from repro.subgames.play import Play, PredictedLeaves, ReferenceLeavesConfig, turn
from repro.subgames.solver import AS_IS, SolverConfig
from repro.subgames.subgames import Deck, Subgames, matchups
from tests.helpers.devn import expect, judged
from tests.helpers.training import config_of, measured, readouts_of

SMALL = Deck(ranks=4)
RIVERS = Subgames("river_subgames", SMALL)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(buckets, "_BOARDS", 10)


def network(folder: Path, kinds: tuple[str, ...] = ("ev",), count: int | None = 6) -> tuple[Config, ValueNetwork]:
    """One that has learned nothing."""
    algorithm = ValueNetworkConfig(
        name="network", iterations=1, snapshot_every=1, subgames=12, buckets=count, batch_size=4,
        predicts="cfv" if "cfv" in kinds else "ev", readouts={kind: ReadoutConfig(kind) for kind in kinds},
    )  # fmt: skip
    config = config_of(algorithm, NetworkConfig("prelu", 16, 2), 0, output_dir=str(folder))
    return config, ValueNetwork(RIVERS, algorithm, config)


@pytest.mark.parametrize("count", [6, None])
@pytest.mark.parametrize("kind", ["cfv", "ev", "ev_zero_sum"])
def test_leaves_are_what_the_network_says_of_each_river(tmp_path: Path, kind: str, count: int | None):
    config, training = network(tmp_path, (kind,), count)
    (readout,) = readouts_of(RIVERS, config).values()
    assert isinstance(readout, PredictedValues)
    snapshot = training.snapshot()
    solver = DepthLimitedSolver(turn(RIVERS, 0, 1), SolverConfig(), lambda r: PredictedLeaves(r, readout, snapshot))
    for _ in range(3):
        solver.iterate()
    rivers, data = solver.rivers, training.data
    board, entry = 2, int(np.flatnonzero(~rivers.over)[-1])
    cards = rivers.full_boards()[[board]]
    openings = [solver.opening(player) for player in range(2)]
    # Both players' reach at one leaf, in the order of the deck.
    reach = np.zeros((1, 2, rivers.shape[2]))
    reach[0, 0, rivers.order()[board]] = openings[1][board, 2 * entry]
    reach[0, 1, rivers.order()[board]] = openings[0][board, 2 * entry + 1]
    ranges = reach / reach.sum(2, keepdims=True)
    bucket = torch.from_numpy(data.buckets_of(cards))
    truth = Truth(
        torch.empty(0), *(torch.from_numpy(x).float() for x in (matchups(SMALL, cards, ranges), ranges)), bucket
    )
    inputs = data.inputs_of(cards, rivers.chips[[entry]], truth.ranges, bucket)
    with torch.no_grad():
        cfv = readout.predicted(training.network, inputs, truth).numpy()[0]
    for player in range(2):
        values = solver.leaves.values(player, BEST, AS_IS, openings[player])[board, entry]
        expected = cfv[player] * rivers.chips[entry] * openings[player][board, 2 * entry + 1 - player].sum()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(values / scale, expected[rivers.order()[board]] / scale, atol=2e-4)
