"""The benchmark runs and writes what it promises. Nothing here judges a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from repro.bench.deep_cfr import products, step_operations
from repro.networks.modules import MaskedLinear, fc
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
        "leduc_cfr",
        "leduc_es_mccfr_1000",
        "leduc_nfsp",
        "leduc_d2cfr_iteration",
        "leduc_play_outs",
        "flop_showdown",
        "seven_card_strength",
        "fhp_sgd_step",
        "fhp_sgd_step_products",
        "bfloat16_products_64",
        "bfloat16_products_192",
        "fhp_limit_answers",
    }
    assert names <= {row["name"] for row in rows}
    for row in rows:
        assert row.keys() == {"name", "ours", "peer", "unit", "ratio"}
        assert row["ours"] > 0
        assert row["peer"] > 0
        assert max(row["ours"] / row["peer"], row["peer"] / row["ours"]) == pytest.approx(
            max(row["ratio"], 1 / row["ratio"]), rel=1e-6
        )


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
    assert done.stderr.startswith("AGAINST is 'nosuch', of which git has no files: ")


def test_products_are_those_that_operations_are_counted_of():
    network = fc(5, 7, 3, 2, MaskedLinear())
    assert step_operations(network, 11) == 2 * 11 * (3 * (5 * 7 + 7 * 7 + 7 * 3) - 5 * 7)
    multiplied = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "dot", lambda a, b, out: multiplied.append((*a.shape, *b.shape, *out.shape)))
        products(network, 11)()
    assert sum(2 * rows * inner * columns for rows, inner, _, columns, *_ in multiplied) == step_operations(network, 11)
    assert all(inner == same and out == [rows, columns] for rows, inner, same, columns, *out in multiplied)
