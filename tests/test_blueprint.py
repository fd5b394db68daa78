"""Blueprints: strategies of a card abstraction as policies of the full game, as runs, as files, as players."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from repro import match
from repro.abstraction import Abstraction, Blueprint, abstract_game, abstraction, blueprint, streets
from repro.algorithms.mccfr import AbstractMCCFR
from repro.algorithms.tables import TabularCFR
from repro.common.errors import ReproError
from repro.config import Config
from repro.config.checks import check_with_game
from repro.evaluation.base import Costs
from repro.evaluation.head_to_head import play_match
from repro.games import Game, load
from repro.games.holdem import HoldemCards
from repro.policies import Policy, TabularPolicy
from repro.policies.network import Uniform
from repro.policies.snapshot import SnapshotFolder
from tests.helpers.commands import configs
from tests.helpers.training import advanced, measured, readouts_of, subject_of

GAME = "hunl_pot:ranks=6:suits=3:stack=1000"
BUCKETS = 20


@lru_cache
def small_game() -> Game:
    return match.read_game(GAME)


def composed(*overrides: str) -> Config:
    """The configuration of a run on the small game."""
    name, *parameters = GAME.split(":")
    given = [f"game={name}", *(f"game.{p}" for p in parameters), "algorithm=es_mccfr", f"algorithm.buckets={BUCKETS}"]
    more = ["algorithm.linear=true", "algorithm.traversals=300", "algorithm.snapshot_every=5", "evaluation=costs"]
    (config,) = configs(*given, *more, *overrides, multirun=False)
    return config


def model_of(*overrides: str) -> TabularCFR:
    config = composed(*overrides)
    check_with_game(config, small_game())
    model = config.algorithm.build(small_game(), config)
    assert isinstance(model, TabularCFR)
    return model


def solver_in(model: TabularCFR) -> AbstractMCCFR:
    assert isinstance(model.solver, AbstractMCCFR)
    return model.solver


@lru_cache
def trained(iterations: int, buckets: int = BUCKETS) -> TabularCFR:
    model = model_of(f"algorithm.iterations={iterations}", f"algorithm.buckets={buckets}")
    advanced(model, model.steps)
    return model


def blueprint_of(model: TabularCFR) -> Blueprint:
    solver = solver_in(model)
    return Blueprint(solver.abstraction, solver.sums)


def dealt_infosets(game: Game, deals: int, seed: int = 0) -> Tensor:
    """Infosets of every decision of the tree, with dealt cards."""
    cells = game.cards.deal(deals, torch.Generator().manual_seed(seed)).cells
    node = (game.tree.player >= 0).nonzero().flatten()
    return (game.first_infoset[node] + cells[:, game.tree.player[node], game.tree.round[node]]).flatten()


def random_weights(made: Abstraction) -> Tensor:
    """Of some size, none where illegal, and none at all in some rows."""
    draw = torch.Generator().manual_seed(0)
    legal = made.abstract.legal
    some = torch.rand(len(legal), 1, generator=draw) < 0.7
    return torch.rand(legal.shape, generator=draw) * 1000 * legal * some


# -- the policy --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_probabilities_are_the_weights_of_the_row_in_proportion(monkeypatch):
    # In several pieces, the last one shorter.
    monkeypatch.setattr(blueprint, "_AT_ONCE", 7)
    game = small_game()
    made = abstraction(game, BUCKETS)
    weights = random_weights(made)
    infosets = dealt_infosets(game, 5)
    found = Blueprint(made, weights).probabilities(infosets)
    empty = 0
    for row, legal, probabilities in zip(made.rows(infosets), game.legal_at(infosets), found, strict=True):
        of_row = weights[row]
        expected = of_row / of_row.sum() if bool((of_row > 0).any()) else legal / legal.sum()
        empty += int(not bool((of_row > 0).any()))
        torch.testing.assert_close(probabilities, expected, rtol=0, atol=1e-6)
        assert bool((probabilities[~legal] == 0).all())
    assert 0.1 < empty / len(infosets) < 0.5
    assert len(infosets) > 7
    assert found.dtype == weights.dtype
    assert len(Blueprint(made, weights).probabilities(infosets[:0])) == 0


@pytest.mark.parametrize("round_", range(4))
def test_a_bucket_plays_alike_and_others_play_otherwise(round_):
    game = small_game()
    made = abstraction(game, BUCKETS)
    policy = Blueprint(made, random_weights(made) + 1.0 * made.abstract.legal)
    cells = game.cards.deal(400, torch.Generator().manual_seed(1)).cells[:, 0, round_]
    assert made.buckets is not None
    bucket = made.buckets.of_cells(round_, cells)
    nodes = ((game.tree.round == round_) & (game.tree.player >= 0)).nonzero().flatten().tolist()
    for node in nodes[:10]:
        played = policy.probabilities(game.first_infoset[node] + cells).double()
        together = torch.cat([bucket[:, None].double(), played], 1).unique(dim=0)
        assert len(together) == len(bucket.unique()) > 10
        # Rows without weights play one strategy, the others each its own.
        assert len(played.unique(dim=0)) > 5


def test_without_buckets_rows_are_infosets():
    game = load("fhp", ranks=4, suits=2)
    lossless = abstraction(game, None)
    weights = random_weights(lossless).double()
    found = Blueprint(lossless, weights).probabilities(torch.arange(game.infosets))
    total = weights.sum(1, keepdim=True)
    torch.testing.assert_close(found, torch.where(total > 0, weights / total, game.uniform))


# -- the run -----------------------------------------------------------------------------------------------------------


def test_what_is_read_out_is_a_blueprint_where_infosets_cannot_be_listed():
    model, config = trained(10), composed("algorithm.iterations=10")
    first, second = subject_of(small_game(), config, model).seats("es_mccfr")
    assert first is second
    assert isinstance(first, Blueprint)
    infosets = dealt_infosets(small_game(), 20)
    assert torch.equal(first.probabilities(infosets), blueprint_of(model).probabilities(infosets))
    listed, config = load("fhp", ranks=4, suits=2), composed("algorithm.buckets=5")
    first, _ = subject_of(listed, config, config.algorithm.build(listed, config)).seats("es_mccfr")
    assert isinstance(first, TabularPolicy)


@pytest.mark.exhaustive
def test_it_beats_who_knows_less():
    """The uniform policy, a blueprint that has hardly been trained, and one that does not look at the board."""
    game, best = small_game(), blueprint_of(trained(40))
    others: dict[str, Policy] = {
        "uniform": Uniform(game),
        "untrained": blueprint_of(trained(1)),
        "blind": blueprint_of(trained(40, 1)),
    }
    for name, other in others.items():
        against = play_match(game, best, other, 60_000, torch.Generator().manual_seed(0))
        assert against.interval[0] > 0, name
        if name == "uniform":
            assert against.interval[0] > 0.5 * game.chips_per_unit
    # In its own game it is no better than itself.
    itself = play_match(game, best, best, 20_000, torch.Generator().manual_seed(1))
    assert itself.interval[0] < 0 < itself.interval[1]


def test_what_a_run_measures():
    model, config = trained(40), composed("algorithm.iterations=40")
    seen = sum(bool((row > 0).any()) for row in solver_in(model).sums)
    assert 0 < seen < solver_in(model).abstraction.abstract.infosets
    assert model.metrics["infosets_seen"] == seen
    assert model.metrics["nodes_touched"] == solver_in(model).nodes_touched > 0
    assert measured(small_game(), config, model, Costs()) == {"es_mccfr": {}}
    with pytest.raises(ReproError, match="exploitability is exact, and the game hunl_pot deals public cards in more"):
        composed("evaluation=exploitability")


def test_a_stored_snapshot_is_the_summed_strategies_and_the_centres(tmp_path: Path):
    model = trained(40)
    solver, folder = solver_in(model), SnapshotFolder(tmp_path)
    folder.write(model.snapshot())
    state = folder.read().state
    assert torch.equal(state["sums"], solver.sums)
    assert state["sums"].shape == (solver.abstraction.abstract.infosets, 3)
    assert isinstance(solver.abstraction.buckets, streets.StreetBuckets)
    assert all(torch.equal(a, b) for a, b in zip(state["centres"], solver.abstraction.buckets.centres, strict=True))


def test_hands_are_in_the_buckets_of_the_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Clustered elsewhere they may come in another order: nothing is clustered where a snapshot is played."""
    model, config, folder = trained(40), composed("algorithm.iterations=40"), SnapshotFolder(tmp_path)
    folder.write(model.snapshot())
    monkeypatch.setattr(abstract_game, "find_buckets", lambda *_: pytest.fail("it clustered"))
    (readout,) = readouts_of(small_game(), config).values()
    policy, _ = readout.seats(folder.read())
    assert isinstance(policy, Blueprint)
    infosets = dealt_infosets(small_game(), 20)
    assert torch.equal(policy.probabilities(infosets), blueprint_of(model).probabilities(infosets))
    backwards = folder.read()
    backwards.state["centres"] = [c.flip(0) for c in backwards.state["centres"]]  # type: ignore[index]
    (readout,) = readouts_of(small_game(), config).values()
    other, _ = readout.seats(backwards)
    assert isinstance(other, Blueprint)
    assert not torch.equal(other.probabilities(infosets), policy.probabilities(infosets))


def test_a_resumed_run_equals_an_uninterrupted_one():
    straight = trained(10)
    half = model_of("algorithm.iterations=10")
    half.step()
    assert half.iteration == 5
    file = io.BytesIO()
    torch.save(half.saved(), file)
    # What goes on must not change what was saved.
    half.step()
    file.seek(0)
    resumed = model_of("algorithm.iterations=10")
    resumed.resume(torch.load(file, weights_only=True))
    assert resumed.iteration == 5
    resumed.step()
    for other in (half, resumed):
        assert torch.equal(solver_in(other).regrets, solver_in(straight).regrets)
        assert torch.equal(solver_in(other).sums, solver_in(straight).sums)
        assert torch.equal(other.state()["sums"], straight.state()["sums"])
        without_clock = ({**m.metrics, "wall_seconds": 0.0} for m in (other, straight))
        assert next(without_clock) == next(without_clock)
    assert not torch.equal(solver_in(straight).sums, solver_in(trained(40)).sums)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["+algorithm.readouts.now={kind: current}", "algorithm.buckets=14000"],
            r"algorithm\.readouts\.now\.kind is current; in the game hunl_pot it must be average\.",
        ),
        (["algorithm.buckets=null"], "game hunl_pot has 4,836,522,336 infosets; tables can list 134,217,728 at most"),
        (["algorithm.buckets=14641"], r"algorithm\.buckets is 14641; allowed are 1 to 14,640"),
        (
            ["algorithm.sampling=outcome", "algorithm.exploration=0.6"],
            "algorithm.sampling is outcome; on Hold'em games it must be external",
        ),
    ],
)
def test_runs_that_cannot_be_done_are_refused(overrides, said):
    with pytest.raises(ReproError, match=said):
        model_of(*overrides)


def test_the_small_game_has_buckets_to_make():
    """What the tests above assume: more cells than tables can hold, of four rounds."""
    game = small_game()
    assert isinstance(game.cards, HoldemCards)
    assert not game.listed
    assert not game.cards.one_board
    assert game.cards.cells[1] == 14_640


def test_a_resumed_run_keeps_its_buckets(monkeypatch):
    """Clustered elsewhere, the buckets may come in another order; the tables are of those they were made for."""
    first = model_of("algorithm.iterations=4", "algorithm.snapshot_every=1")
    advanced(first, 2)
    found = streets.find_buckets

    def reversed_buckets(cards: HoldemCards, buckets: int) -> streets.StreetBuckets:
        return streets.StreetBuckets(cards, [c.flip(0) for c in found(cards, buckets).centres])

    monkeypatch.setattr(abstract_game, "find_buckets", reversed_buckets)
    second = model_of("algorithm.iterations=4", "algorithm.snapshot_every=1")
    infosets = dealt_infosets(small_game(), 50)
    wanted = solver_in(first).abstraction.rows(infosets)
    assert not torch.equal(solver_in(second).abstraction.rows(infosets), wanted)
    second.resume(first.saved())
    assert torch.equal(solver_in(second).abstraction.rows(infosets), wanted)
    for model in (first, second):
        model.step()
    assert torch.equal(first.solver.regrets, second.solver.regrets)
