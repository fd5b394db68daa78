"""Sums in one and the same order, whatever a compiler makes of them: eight partial sums, which do not wait for each
other and are what a vector instruction adds to."""

from __future__ import annotations

from typing import Any

import numpy as np

from repro.common.compiled import compiled_unchecked


@compiled_unchecked
def sum_of_products(x: Any, y: Any) -> Any:
    """Of two float32 `[n]`."""
    a = b = c = d = e = f = g = h = np.float32(0)
    whole = len(x) // 8 * 8
    for i in range(0, whole, 8):
        a += x[i] * y[i]
        b += x[i + 1] * y[i + 1]
        c += x[i + 2] * y[i + 2]
        d += x[i + 3] * y[i + 3]
        e += x[i + 4] * y[i + 4]
        f += x[i + 5] * y[i + 5]
        g += x[i + 6] * y[i + 6]
        h += x[i + 7] * y[i + 7]
    for i in range(whole, len(x)):
        a += x[i] * y[i]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@compiled_unchecked
def row_sums(x: Any, out: Any) -> None:
    """Of each row of float32 `[rows, n]`."""
    whole = x.shape[1] // 8 * 8
    for row in range(len(x)):
        a = b = c = d = e = f = g = h = np.float32(0)
        for i in range(0, whole, 8):
            a += x[row, i]
            b += x[row, i + 1]
            c += x[row, i + 2]
            d += x[row, i + 3]
            e += x[row, i + 4]
            f += x[row, i + 5]
            g += x[row, i + 6]
            h += x[row, i + 7]
        for i in range(whole, x.shape[1]):
            a += x[row, i]
        out[row] = ((a + b) + (c + d)) + ((e + f) + (g + h))


@compiled_unchecked
def row_products(x: Any, y: Any, out: Any) -> None:
    """`sum_of_products` of each row of two."""
    whole = x.shape[1] // 8 * 8
    for row in range(len(x)):
        a = b = c = d = e = f = g = h = np.float32(0)
        for i in range(0, whole, 8):
            a += x[row, i] * y[row, i]
            b += x[row, i + 1] * y[row, i + 1]
            c += x[row, i + 2] * y[row, i + 2]
            d += x[row, i + 3] * y[row, i + 3]
            e += x[row, i + 4] * y[row, i + 4]
            f += x[row, i + 5] * y[row, i + 5]
            g += x[row, i + 6] * y[row, i + 6]
            h += x[row, i + 7] * y[row, i + 7]
        for i in range(whole, x.shape[1]):
            a += x[row, i] * y[row, i]
        out[row] = ((a + b) + (c + d)) + ((e + f) + (g + h))
