"""The benchmark runs and writes what it promises. Nothing here judges a time."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from repro.algorithms.memory import Reservoir
from repro.bench import __main__ as bench
from repro.bench.measure import QUICK, Row
from repro.bench.sgd_steps import products, step_operations
from repro.bench.subgames import Turns, drawn_turns, multiplied_matchups, predictor, summed_matchups
from repro.bench.traversals import _rows_and_infosets, _saved, counted, open_spiel_solver
from repro.engine.sampling import InfosetSamples
from repro.games import load
from repro.networks.modules import MaskedLinear, fc
from repro.subgames.subgames import Deck
from repro.tracking.provenance import head

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_quick_benchmark_writes_every_row(tmp_path):
    pytest.importorskip("pyspiel")
    output = tmp_path / "bench.json"
    command = [sys.executable, "-m", "repro.bench", "--quick", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(output.read_text())
    names = {
        "leduc_traversals",
        "leduc_iteration",
        "leduc_sgd_overhead",
        "leduc_nash_conv",
        "leduc_sgd_step",
        "leduc_sgd_step_products",
        "leduc_sgd_step_floor",
        "leduc_sgd_step_autograd_grouped",
        "leduc_sgd_step_autograd_ungrouped",
        "big_leduc_gradients_by_hand",
        "leduc_cfr",
        "leduc_es_mccfr_1000",
        "leduc_nfsp",
        "leduc_d2cfr_iteration",
        "leduc_play_outs",
        "flop_showdown",
        "seven_card_strength",
        "fhp_sgd_step",
        "fhp_sgd_step_products",
        "fhp_sgd_step_muon",
        "bfloat16_products_64",
        "bfloat16_products_192",
        "fhp_sgd_step_bfloat16",
        "fhp_limit_answers",
        "fhp_limit_traversals",
        "fhp_limit_nodes",
        "fhp_limit_rows_alike",
        "river_subgame_iteration",
        "river_subgame_resets",
        "turn_subgame_traffic",
        "devn_inference_1000_500",
        "devn_inference_1000_1024",
        "devn_inference_2000_1024",
        "devn_inference_250_256",
    }
    assert names <= {row["name"] for row in rows}
    for row in rows:
        assert row.keys() == {"name", "ours", "peer", "unit", "ratio"}
        assert row["ours"] > 0
        assert row["peer"] > 0
        assert max(row["ours"] / row["peer"], row["peer"] / row["ours"]) == pytest.approx(
            max(row["ratio"], 1 / row["ratio"]), rel=1e-6
        )


def test_a_part_of_the_benchmark_is_run_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "PARTS", {name: lambda _, name=name: [row(name)] for name in bench.PARTS})
    output = tmp_path / "bench.json"
    assert bench.main(["--only", "subgames", "--only", "holdem", "--output", str(output)]) == 0
    assert [each["name"] for each in json.loads(output.read_text())] == ["subgames", "holdem"]
    assert bench.main(["--output", str(output)]) == 0
    assert len(json.loads(output.read_text())) == len(bench.PARTS)


def row(name: str) -> Row:
    return Row(name, 1.0, 1.0, "s", 1.0, "")


# -- traversals ------------------------------------------------------------------------------------------------------


def test_rows_of_an_infoset_are_those_that_merging_saves():
    memories = [Reservoir(100, first, 1000, 2, "cpu") for first in (0, 1000)]
    draw = torch.Generator().manual_seed(0)
    for first, memory in zip((0, 1000), memories, strict=True):
        for iteration, infosets in ((1, [5, 5, 7]), (2, [5, 8, 9, 9, 9])):
            samples = InfosetSamples(first + torch.tensor(infosets), torch.zeros(len(infosets), 2))
            memory.add(samples, iteration, draw)
    assert _rows_and_infosets(memories, 1) == (6, 4)
    assert _rows_and_infosets(memories, 2) == (10, 6)
    assert _rows_and_infosets(memories) == (16, 8), "an infoset of several iterations is merged, too"
    assert _saved(memories, 2) == 0.4


def test_openspiel_traverses_the_same_game():
    pytest.importorskip("pyspiel")
    solver, game = open_spiel_solver(QUICK), load("fhp_limit")
    kinds = {"decisions": 0, "ends": 0}
    stack = [solver._root_node]
    while stack:
        state = stack.pop()
        if state.is_chance_node():
            stack.append(state.child(state.legal_actions()[0]))
            continue
        kinds["ends" if state.is_terminal() else "decisions"] += 1
        stack += [] if state.is_terminal() else [state.child(action) for action in state.legal_actions()]
    decisions = int((game.tree.player >= 0).sum())
    assert kinds == {"decisions": decisions, "ends": game.tree.nodes - decisions}


def test_nodes_of_a_traversal_are_counted_without_cards():
    pytest.importorskip("pyspiel")
    solver, visits = open_spiel_solver(QUICK), []
    met, visit = counted(solver), solver._traverse_game_tree

    def visited(state: Any, player: int) -> Any:
        visits.append(state.is_chance_node())
        return visit(state, player)

    solver._traverse_game_tree = visited
    solver._traverse_game_tree(solver._root_node, 0)
    assert visits.count(True) >= 4, "cards are dealt one by one"
    assert met() == visits.count(False) > 3


# -- values of subgames ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def turns() -> Turns:
    return drawn_turns(drawn=3, times=2)


def test_matchups_are_the_same_either_way(turns):
    ours = summed_matchups(turns)
    assert np.allclose(ours, multiplied_matchups(turns)(turns), atol=1e-6)
    deck = Deck()
    hands = deck.hands(tuple(turns.boards[0].tolist()))
    met = [not set(hands[5]) & set(other) for other in hands]
    assert ours[0, 1, 5] == pytest.approx(turns.ranges[0, 0, met].sum(), abs=1e-6), "of the other player's range"


def test_values_that_are_timed_are_those_of_the_pipelines(turns):
    bucket = torch.randint(7, (len(turns.pot), turns.ranges.shape[2]), generator=torch.Generator().manual_seed(0))
    ranges = torch.from_numpy(turns.ranges)
    inputs = torch.zeros(len(turns.pot), 15)
    for n, player, hand in product(range(len(turns.pot)), range(2), range(ranges.shape[2])):
        inputs[n, 7 * player + bucket[n, hand]] += ranges[n, player, hand]
    inputs[:, -1] = torch.from_numpy(turns.pot / 40_000)
    for predicts in ("cfv", "ev"):
        network, predicted = predictor(predicts, 2, 7, 5, turns, bucket)
        found = predicted()
        with torch.no_grad():
            of_buckets = network(inputs)
        copied = torch.stack([of_buckets[n][:, bucket[n]] for n in range(len(bucket))])
        expected = copied * torch.from_numpy(summed_matchups(turns)) if predicts == "ev" else copied
        assert torch.allclose(found, expected, atol=1e-5)
        # DCVN ends in its zero-sum layer, DEVN does not.
        sums = (found * ranges).sum((1, 2)).abs()
        assert bool((sums < 1e-5).all()) == (predicts == "cfv")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_iterations_beside_another_commit(tmp_path):
    output = tmp_path / "against.json"
    command = [sys.executable, "-m", "repro.bench", "--quick", "--against", "HEAD", "--output", str(output)]
    if head() is None:
        pytest.skip("not a git checkout")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(output.read_text())
    assert row["name"] == "leduc_iterations"
    assert row["ratio"] == pytest.approx(row["ours"] / row["peer"])


def test_a_commit_that_git_does_not_know_is_refused_in_a_sentence(tmp_path):
    command = [sys.executable, "-m", "repro.bench", "--against", "nosuch", "--output", str(tmp_path / "against.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith("error: AGAINST is 'nosuch', of which git has no files: ")


def test_products_are_those_that_operations_are_counted_of():
    network = fc(5, 7, 3, 2, MaskedLinear())
    assert step_operations(network, 11) == 2 * 11 * (3 * (5 * 7 + 7 * 7 + 7 * 3) - 5 * 7)
    multiplied = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "dot", lambda a, b, out: multiplied.append((*a.shape, *b.shape, *out.shape)))
        products(network, 11)()
    assert sum(2 * rows * inner * columns for rows, inner, _, columns, *_ in multiplied) == step_operations(network, 11)
    assert all(inner == same and out == [rows, columns] for rows, inner, same, columns, *out in multiplied)
