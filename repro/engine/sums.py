"""Sums that vector instructions add up in one and the same order, whatever a compiler makes of them."""

from __future__ import annotations

from typing import Any

from repro.engine.compiled import compiled_sums

LANES = 16
"""Partial sums side by side, which one vector instruction adds to without changing the order of any."""


@compiled_sums
def sum_of_products(x: Any, y: Any, lanes: Any) -> Any:
    """Of two `[n]` arrays; `lanes` `[LANES]` is overwritten."""
    lanes[:] = 0
    whole = len(x) // LANES * LANES
    for start in range(0, whole, LANES):
        for lane in range(LANES):
            lanes[lane] += x[start + lane] * y[start + lane]
    for i in range(whole, len(x)):
        lanes[i - whole] += x[i] * y[i]
    total = lanes[0]
    for lane in range(1, LANES):
        total += lanes[lane]
    return total
