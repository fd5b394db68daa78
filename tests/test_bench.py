"""The benchmark runs and writes what it promises. Nothing here judges a time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
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
        "leduc_cfr",
        "leduc_es_mccfr_1000",
        "leduc_nfsp",
        "leduc_d2cfr_iteration",
        "leduc_play_outs",
        "flop_showdown",
        "seven_card_strength",
        "fhp_sgd_step",
    }
    assert names <= {row["name"] for row in rows}
    for row in rows:
        assert row.keys() == {"name", "ours", "peer", "unit", "ratio"}
        assert row["ours"] > 0
        assert row["peer"] > 0
        assert max(row["ours"] / row["peer"], row["peer"] / row["ours"]) == pytest.approx(
            max(row["ratio"], 1 / row["ratio"]), rel=1e-6
        )
