"""Measurements made up for figures, the claims that they decide, and tables of results in Markdown taken apart."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd


def rows(readout: str, metric: str, values: dict[int, float], *, seeds: int = 3, **columns: Any) -> pd.DataFrame:
    """`values` by iteration, a little different for each seed."""
    return pd.DataFrame(
        {"target": "t", "scale": "laptop", "readout": readout, **columns, "seed": seed, "metric": metric, "step": step,
         "value": value * (1 + 0.01 * seed)}
        for seed in range(seeds) for step, value in values.items()
    )  # fmt: skip


def verdicts(module: Any, data: pd.DataFrame) -> dict[str, str]:
    """What a figure or table says of each of its claims."""
    return {claim.id: claim.verdict for claim in module.claims(data)}


def cells(text: str) -> list[list[str]]:
    """The rows of all Markdown tables in a text, headers too and rules not, cell by cell.

    Tests compare these and not the text: how a row is laid out may change.
    """
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if any(row) and set("".join(row)) != {"-"}]


def number(cell: str) -> float:
    """The first number of a cell: an estimate's mean."""
    found = re.search(r"-?\d[\d,]*\.?\d*(e[+-]?\d+)?", cell)
    assert found is not None, cell
    return float(found.group().replace(",", ""))
