"""What `docs/scaling.md` says of several processes: the model, the blocks that are written anew, the measurement."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from repro.bench.scaling import RANKS, Setting, curves_block, measured, measured_block, with_block
from repro.bench.scaling_model import Link, Work
from repro.common.errors import ReproError
from tests.helpers.commands import SMALL


def test_a_ring_reduces_in_messages_one_after_another():
    link = Link("slow", latency=1.0, bandwidth=100.0)
    assert link.reduction(800, 2) == 2 * (1 + 4)
    assert link.reduction(800, 8) == 14 * (1 + 1)


def test_where_more_ranks_stop_paying():
    traversing = {ranks: 8.0 / ranks for ranks in (1, 2, 4, 8)}
    work = Work(100, 64, 10, 25, traversing, {ranks: 4.0 / ranks for ranks in traversing})
    free, slow = Link("free", 0.0, math.inf), Link("slow", 0.5, 100.0)
    assert work.reduced_bytes == 100
    assert work.predicted(1, slow) == 2 * (8 + 40)
    assert work.predicted(2, slow) == 2 * (4 + 10 * (2 + 2 * (0.5 + 0.5)))
    assert work.speed_up(8, free) == 8
    assert (work.fastest(free), work.efficient(free)) == (8, 8)
    assert (work.fastest(slow), work.efficient(slow)) == (2, 2)


def test_a_block_of_the_page_is_written_anew():
    page = "before\n<!-- measured -->\nold\n<!-- end measured -->\nafter\n"
    assert with_block(page, "measured", ["new", "lines"]) == page.replace("old", "new\nlines")
    with pytest.raises(ReproError, match="the page has no block '<!-- curves -->'"):
        with_block(page, "curves", [])


def test_the_curves_tell_one_process_from_two():
    rows = [
        (count, seed, "sd_cfr", iteration, 100.0 * count + seed)
        for count in (1, 2) for seed in range(3) for iteration in (5, 10)
    ]  # fmt: skip
    data = pd.DataFrame(rows, columns=["processes", "seed", "readout", "iteration", "exploitability"])
    lines = curves_block(data, "here")
    assert sum("| sd_cfr, iteration" in line for line in lines) == 2
    assert any(line.startswith("| sd_cfr, mean of the curve | 101 [") and "| 100 [" in line for line in lines)
    assert lines[-1] == "Of 3 intervals of a difference, 3 exclude 0."


@pytest.mark.exhaustive
def test_parts_of_an_iteration_are_measured_by_one_process_and_by_two():
    setting = Setting("Kuhn", SMALL, 3)
    found = measured(setting, repetitions=1)
    assert found.work.stepping.keys() == found.work.traversing.keys() == set(RANKS)
    assert found.together.keys() == {"traversals", "steps", "reduce"}
    assert min(*found.together.values(), *found.work.stepping.values()) > 0
    assert found.work.parameters == 1092
    lines = measured_block([found], 1, "here")
    assert sum(line.startswith("| Kuhn |") for line in lines) == 2
    assert sum(line.startswith("| 64 ranks |") for line in lines) == 2
