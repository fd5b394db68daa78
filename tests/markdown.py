"""Markdown tables, taken apart: tests compare cells and numbers, not how a row is laid out."""

from __future__ import annotations

import re


def cells(text: str) -> list[list[str]]:
    """The rows of all tables in a text, headers too and rules not, cell by cell."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if any(row) and set("".join(row)) != {"-"}]


def number(cell: str) -> float:
    """The first number of a cell: an estimate's mean."""
    found = re.search(r"-?\d[\d,]*\.?\d*(e[+-]?\d+)?", cell)
    assert found is not None, cell
    return float(found.group().replace(",", ""))
