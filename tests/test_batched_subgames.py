"""Many subgames at a time: the torch solver against the compiled and the plain one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from repro.algorithms.tabular import TabularCFRConfig
from repro.common.errors import ReproError
from repro.subgames import batched, dataset
from repro.subgames.batched import BatchedSolver, solve_batched
from repro.subgames.dataset import Dataset, Recipe
from repro.subgames.kernels import BEST, MEAN
from repro.subgames.plain import PlainSolver
from repro.subgames.sampling import random_subgame
from repro.subgames.solver import SolverConfig, SubgameSolver, Variant, solve_subgame
from repro.subgames.subgames import Deck, Subgame, Subgames

SMALL = Deck(ranks=4)
VARIANTS: dict[str, Variant] = {
    "cfr": TabularCFRConfig(),
    "cfr+": TabularCFRConfig(gamma=1.0, floor=True),
    "dcfr": SolverConfig(),
}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def subgames(board_cards: int, deck: Deck = SMALL, count: int = 3) -> list[Subgame]:
    """Of about the same pot, so that their trees have the same shape."""
    found = [random_subgame(5, number, board_cards, deck) for number in range(count)]
    return [Subgame(s.board, 900.0 + 10 * i, s.ranges, deck) for i, s in enumerate(found)]


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("board_cards", [4, 5])
def test_iterations_equal_the_plain_solvers(board_cards: int, name: str, device: str):
    some, how = subgames(board_cards), VARIANTS[name]
    together, alone = BatchedSolver(some, how, device), [PlainSolver(s, how) for s in some]
    # Few iterations: where two actions are worth the same, rounding decides which of them is played.
    for _ in range(3):
        together.iterate()
        for solver in alone:
            solver.iterate()
    for mode in (MEAN, BEST):
        expected = np.stack([solver.values(mode == BEST) for solver in alone])
        np.testing.assert_allclose(together.values(mode).cpu().numpy(), expected, rtol=1e-5, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("board_cards", "deck"), [(4, Deck(ranks=6)), (5, Deck())])
def test_larger_decks_equal_the_compiled_solvers(board_cards: int, deck: Deck, device: str):
    some = subgames(board_cards, deck, count=2)
    together, alone = BatchedSolver(some, SolverConfig(), device), [SubgameSolver(s, SolverConfig()) for s in some]
    for _ in range(3):
        together.iterate()
        for solver in alone:
            solver.iterate()
    found, reached = together.solutions(together.exploitability()), together.exploitability()
    for ours, exploitability, theirs in zip(found, reached.tolist(), alone, strict=True):
        expected = theirs.solution()
        np.testing.assert_allclose(ours.cfv, expected.cfv, atol=1e-4)
        np.testing.assert_allclose(ours.matchup, expected.matchup, rtol=1e-9)
        assert exploitability == pytest.approx(expected.exploitability, rel=1e-3)


@pytest.mark.slow
def test_those_that_are_left_go_on_as_if_alone():
    some = subgames(4)
    every, one = BatchedSolver(some, SolverConfig()), BatchedSolver(some[1:2], SolverConfig())
    for solver in (every, one):
        for _ in range(4):
            solver.iterate()
    every.keep(torch.tensor([False, True, False]))
    for solver in (every, one):
        for _ in range(4):
            solver.iterate()
    np.testing.assert_allclose(every.values().numpy(), one.values().numpy(), rtol=1e-5, atol=1e-3)


@pytest.mark.exhaustive
def test_solutions_are_in_order_whatever_their_trees(monkeypatch: pytest.MonkeyPatch):
    # Pots of all sizes, and small batches.
    some = [random_subgame(1, number, 5, SMALL) for number in range(7)]
    monkeypatch.setattr(batched, "_ENTRIES", 300_000)
    found = solve_batched(some, SolverConfig(), 0.01, "cpu")
    for ours, subgame in zip(found, some, strict=True):
        expected = solve_subgame(subgame, SolverConfig(), 0.01)
        assert ours.exploitability <= 0.01
        assert abs(ours.iterations - expected.iterations) <= 0.35 * expected.iterations
        np.testing.assert_allclose(ours.matchup, expected.matchup, rtol=1e-9)
        won, lost = ((subgame.ranges * solution.cfv).sum(1) for solution in (ours, expected))
        np.testing.assert_allclose(won, lost, atol=0.02)
        # Zero-sum.
        assert (subgame.ranges * ours.cfv).sum() == pytest.approx(0, abs=1e-5)


def test_the_most_iterations_end_it():
    found = solve_batched(subgames(5), SolverConfig(), 1e-9, "cpu", most=30)
    assert [solution.iterations for solution in found] == [30] * 3
    assert all(solution.exploitability > 1e-9 for solution in found)


def test_players_must_be_able_to_meet():
    subgame = subgames(5)[0]
    same = np.zeros_like(subgame.ranges)
    same[:, 0] = 1.0
    with pytest.raises(ReproError, match="two hands that can meet"):
        BatchedSolver([Subgame(subgame.board, subgame.pot, same, SMALL)], SolverConfig())


def test_trees_must_have_one_shape():
    small, large = (replace(subgames(5)[0], pot=pot) for pot in (200.0, 20_000.0))
    with pytest.raises(ReproError, match="shape of betting tree"):
        BatchedSolver([small, large], SolverConfig())


@pytest.mark.slow
def test_datasets_are_solved_on_another_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dataset, "_SHARD", {4: 2, 5: 4})
    recipe = Recipe.of(Subgames("river_subgames", Deck(4)), 0, SolverConfig(tolerance=0.01))
    here = Dataset(tmp_path / "here", recipe).shard(0, threads=1)
    # The torch device "cpu" by another name than the one that means the compiled solver.
    there = Dataset(tmp_path / "there", recipe, device="cpu:0").shard(0, threads=1)
    for name in ("board", "pot", "ranges"):
        assert np.array_equal(getattr(here, name), getattr(there, name))
    # In single precision, where roundings grow from iteration to iteration.
    assert np.abs(there.cfv - here.cfv).mean((1, 2)).max() < 0.005 < here.cfv.std() / 10
