"""SGD steps of a network as one compiled loop: forward, backward, clipping and Adam, without a call of Python's.

It is for networks of linear layers with ReLU, normalisations, and any of the four heads; on so few rows as a game like
Leduc has, calls would take more time than the arithmetic. The matrix products are those of BLAS. What a network is made
of is a table with one row per layer (`repro.networks.programs`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Numba's products are by SciPy's BLAS, a library beside NumPy's: limits on threads hold for those that are loaded.
import scipy.linalg.cython_blas  # noqa: F401
from numba import float32

from repro.common.compiled import compiled_unchecked
from repro.common.sums import row_products, row_sums, sum_of_products
from repro.networks.losses import LEAST
from repro.networks.muon import move_matrices

# Columns of a network's table: what a layer is, the layer that it takes its input from (-1: the features), its width,
# where its weights begin among the parameters (the bias follows), where its output begins among all outputs, per row;
# whether it ends in a ReLU, and whether a later layer has the same input.
KIND, SOURCE, INPUTS, OUTPUTS, WEIGHTS, PLACE, RELU, SHARES = range(8)
# GIVEN: its outputs are the caller's, who reads their slopes.
LINEAR, RESIDUAL, NORMALISE, GIVEN = range(4)
MASKED_LINEAR, MASKED_SOFTMAX, DUELING, STATE_AND_ADVANTAGES = range(4)


@compiled_unchecked
def take_steps(
    table: Any, head: Any, state_scale: Any, features: Any, legal: Any, parameters: Any, gradient: Any, mean: Any,
    square: Any, average: Any, done: Any, rates: Any, clip_norm: Any, decay: Any, matrices: Any, muon_over_adam: Any,
    focus: Any, weights: Any, targets: Any, updates: Any, losses: Any,
) -> None:  # fmt: skip
    """Take steps, and write each one's loss before it was taken.

    Args:
        table: `[layers, 8]`.
        head: `[3]`, its kind, and the layers that it reads; one of them twice if it reads one.
        state_scale: of `StateAndAdvantages`.
        features, legal: `[rows, ...]` float32.
        parameters, gradient, mean, square: `[parameters]` float32; Adam's moments, after `done` steps.
        average: `[parameters]`, of the weights after these steps, with this `decay`; of length 0: none is kept.
        rates: `[steps]` learning rates.
        matrices, muon_over_adam: as of `FlatAdam`.
        focus: as of `repro.networks.losses.importance`, float32; infinite: all errors count the same.
        weights, targets: `[minibatches, rows]`, `[minibatches, rows, actions]`; the last is used for all steps left.
        updates: how many of the steps are taken; of the others only the gradient is left.
        losses: `[steps]` float64, overwritten.
    """
    rows = len(features)
    width = table[-1, PLACE] + table[-1, OUTPUTS]
    outputs, slopes = np.empty(rows * width, np.float32), np.empty(rows * width, np.float32)
    largest = 0
    for layer in range(len(table)):
        largest = max(largest, table[layer, INPUTS] * max(table[layer, OUTPUTS], rows))
    matrix, scratch = np.empty(largest, np.float32), np.empty((len(table), rows), np.float32)
    share = legal.copy()
    for row in range(rows):
        share[row] /= legal[row].sum()
    for step in range(len(rates)):
        which = min(step, len(weights) - 1)
        for layer in range(len(table)):
            forward(table, layer, features, parameters, outputs, matrix, scratch[layer])
        losses[step] = apply_head(
            table, head, state_scale, focus, legal, share, weights[which], targets[which], outputs, slopes
        )
        for layer in range(len(table) - 1, -1, -1):
            backward(table, layer, features, parameters, gradient, outputs, slopes, matrix, scratch[layer])
        if step < updates:
            update(
                parameters, gradient, mean, square, done + step + 1, rates[step], clip_norm, matrices, muon_over_adam
            )
            add_to_average(average, parameters, decay, done + step + 1)


@compiled_unchecked
def part(flat: Any, table: Any, layer: Any, rows: Any) -> Any:
    """`[rows, width]`, a layer's part of the outputs, or of their gradient."""
    begin, width = rows * table[layer, PLACE], table[layer, OUTPUTS]
    return flat[begin : begin + rows * width].reshape(rows, width)


@compiled_unchecked
def _input(features: Any, outputs: Any, table: Any, layer: Any) -> Any:
    return features if table[layer, SOURCE] < 0 else part(outputs, table, table[layer, SOURCE], len(features))


@compiled_unchecked
def forward(table: Any, layer: Any, features: Any, parameters: Any, outputs: Any, matrix: Any, spread: Any) -> None:
    if table[layer, KIND] == GIVEN:
        return
    x, y = _input(features, outputs, table, layer), part(outputs, table, layer, len(features))
    if table[layer, KIND] == NORMALISE:
        _normalise(x, y, spread)
        return
    n, m, begin = table[layer, INPUTS], table[layer, OUTPUTS], table[layer, WEIGHTS]
    weight = parameters[begin : begin + n * m].reshape(m, n)
    # A product with a matrix in its own order is a quarter faster than with a transposed one.
    transposed = matrix[: n * m].reshape(n, m)
    for i in range(m):
        for j in range(n):
            transposed[j, i] = weight[i, j]
    if table[layer, KIND] == RESIDUAL:
        for i in range(m):
            transposed[i, i] += float32(1)
    np.dot(x, transposed, y)
    bias = parameters[begin + n * m : begin + n * m + m]
    if table[layer, RELU]:
        for i in range(len(y)):
            for j in range(m):
                total = y[i, j] + bias[j]
                # What is not a number stays so.
                y[i, j] = float32(0) if total < 0 else total
    else:
        for i in range(len(y)):
            for j in range(m):
                y[i, j] += bias[j]


@compiled_unchecked
def backward(
    table: Any, layer: Any, features: Any, parameters: Any, gradient: Any, outputs: Any, slopes: Any, matrix: Any,
    spread: Any,
) -> None:  # fmt: skip
    if table[layer, KIND] == GIVEN:
        return
    rows, source = len(features), table[layer, SOURCE]
    x, y = _input(features, outputs, table, layer), part(outputs, table, layer, rows)
    dy = part(slopes, table, layer, rows)
    if table[layer, KIND] == NORMALISE:
        _normalise_back(dy, y, spread, part(slopes, table, source, rows))
        return
    n, m, begin = table[layer, INPUTS], table[layer, OUTPUTS], table[layer, WEIGHTS]
    _backward_to_the_sum(dy, y, table[layer, RELU], gradient[begin + n * m : begin + n * m + m])
    np.dot(dy.T, x, gradient[begin : begin + n * m].reshape(m, n))
    if source < 0:
        return
    weight, dx = parameters[begin : begin + n * m].reshape(m, n), part(slopes, table, source, rows)
    if not table[layer, SHARES]:
        np.dot(dy, weight, dx)
    else:
        # A branch that comes later has been there.
        more = matrix[: rows * n].reshape(rows, n)
        np.dot(dy, weight, more)
        for i in range(rows):
            for j in range(n):
                dx[i, j] += more[i, j]
    if table[layer, KIND] == RESIDUAL:
        for i in range(rows):
            for j in range(n):
                dx[i, j] += dy[i, j]


@compiled_unchecked
def _backward_to_the_sum(dy: Any, y: Any, relu: Any, bias: Any) -> None:
    """Through the ReLU, if there is one, and into the bias."""
    bias[:] = 0
    if relu:
        for i in range(len(dy)):
            for j in range(len(bias)):
                slope = dy[i, j] if y[i, j] > 0 else float32(0)
                dy[i, j] = slope
                bias[j] += slope
    else:
        for i in range(len(dy)):
            for j in range(len(bias)):
                bias[j] += dy[i, j]


@compiled_unchecked
def _normalise(x: Any, y: Any, spread: Any) -> None:
    share = float32(1) / float32(x.shape[1])
    row_sums(x, spread)
    for i in range(len(x)):
        mean = spread[i] * share
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] - mean
    row_products(y, y, spread)
    for i in range(len(x)):
        spread[i] = float32(1) / np.sqrt(spread[i] * share + float32(1e-5))
        for j in range(x.shape[1]):
            y[i, j] *= spread[i]


@compiled_unchecked
def _normalise_back(dy: Any, y: Any, spread: Any, dx: Any) -> None:
    share = float32(1) / float32(y.shape[1])
    totals, alongs = np.empty_like(spread), np.empty_like(spread)
    row_sums(dy, totals)
    row_products(dy, y, alongs)
    for i in range(len(y)):
        total, along = totals[i] * share, alongs[i] * share
        for j in range(y.shape[1]):
            dx[i, j] = (dy[i, j] - y[i, j] * along - total) * spread[i]


@compiled_unchecked
def apply_head(
    table: Any, head: Any, state_scale: Any, focus: Any, legal: Any, share: Any, weight: Any, target: Any, outputs: Any,
    slopes: Any,
) -> Any:  # fmt: skip
    """The weighted squared error's sum; the loss's gradient is left where the head's inputs came from."""
    rows = len(legal)
    x, dx = part(outputs, table, head[1], rows), part(slopes, table, head[1], rows)
    v, dv = part(outputs, table, head[2], rows), part(slopes, table, head[2], rows)
    if head[0] == MASKED_LINEAR:
        return _masked_linear(x, dx, legal, focus, weight, target)
    if head[0] == MASKED_SOFTMAX:
        return _masked_softmax(x, dx, legal, weight, target)
    if head[0] == DUELING:
        return _dueling(x, dx, v, dv, legal, share, focus, weight, target)
    return _state_and_advantages(x, dx, v, dv, legal, state_scale, weight, target)


@compiled_unchecked
def _importance(output: Any, focus: Any) -> Any:
    """`repro.networks.losses.importance`."""
    if not output < 0:
        return float32(1)
    square = (output / focus) * (output / focus)
    return float32(1) - float32(1 - LEAST) * square / (float32(1) + square)


@compiled_unchecked
def _masked_linear(x: Any, dx: Any, legal: Any, focus: Any, weight: Any, target: Any) -> Any:
    loss = float32(0)
    for i in range(len(x)):
        for a in range(x.shape[1]):
            error = x[i, a] * legal[i, a] - target[i, a]
            dx[i, a] = float32(2) * weight[i] * error * legal[i, a] * _importance(x[i, a], focus)
            loss += weight[i] * error * error
    return loss


@compiled_unchecked
def _masked_softmax(x: Any, dx: Any, legal: Any, weight: Any, target: Any) -> Any:
    loss = float32(0)
    for i in range(len(x)):
        highest, total, along = float32(-np.inf), float32(0), float32(0)
        for a in range(x.shape[1]):
            if legal[i, a] > 0:
                highest = max(highest, x[i, a])
        for a in range(x.shape[1]):
            x[i, a] = np.exp(x[i, a] - highest) if legal[i, a] > 0 else float32(0)
            total += x[i, a]
        for a in range(x.shape[1]):
            x[i, a] /= total
            error = x[i, a] - target[i, a]
            loss += weight[i] * error * error
            dx[i, a] = float32(2) * weight[i] * error * x[i, a]
            along += dx[i, a]
        for a in range(x.shape[1]):
            dx[i, a] -= x[i, a] * along
    return loss


@compiled_unchecked
def _dueling(
    x: Any, dx: Any, v: Any, dv: Any, legal: Any, share: Any, focus: Any, weight: Any, target: Any
) -> Any:  # fmt: skip
    loss = float32(0)
    for i in range(len(x)):
        mean, total = float32(0), float32(0)
        for a in range(x.shape[1]):
            mean += x[i, a] * share[i, a]
        for a in range(x.shape[1]):
            output = x[i, a] + (v[i, 0] - mean)
            error = output * legal[i, a] - target[i, a]
            dx[i, a] = float32(2) * weight[i] * error * legal[i, a] * _importance(output, focus)
            total += dx[i, a]
            loss += weight[i] * error * error
        for a in range(x.shape[1]):
            dx[i, a] -= total * share[i, a]
        dv[i, 0] = total
    return loss


@compiled_unchecked
def _state_and_advantages(
    x: Any, dx: Any, v: Any, dv: Any, legal: Any, state_scale: Any, weight: Any, target: Any
) -> Any:
    loss = float32(0)
    for i in range(len(x)):
        twice = float32(2) * weight[i]
        error = state_scale * v[i, 0] - target[i, x.shape[1]]
        slope = twice * error * state_scale
        loss += weight[i] * error * error
        for a in range(x.shape[1]):
            error = (x[i, a] - v[i, 0]) * legal[i, a] - target[i, a]
            dx[i, a] = twice * error * legal[i, a]
            slope -= dx[i, a]
            loss += weight[i] * error * error
        dv[i, 0] = slope
    return loss


@compiled_unchecked
def update(
    parameters: Any, gradient: Any, mean: Any, square: Any, step: Any, rate: Any, clip_norm: Any, matrices: Any,
    muon_over_adam: Any,
) -> None:  # fmt: skip
    """One step of Adam and, with the `matrices`, of Muon instead."""
    before = parameters.copy() if len(matrices) > 0 else parameters
    scale = _adam(parameters, gradient, mean, square, step, rate, clip_norm)
    move_matrices(matrices, parameters, before, gradient, mean, scale, rate * muon_over_adam)


@compiled_unchecked
def _adam(parameters: Any, gradient: Any, mean: Any, square: Any, step: Any, rate: Any, clip_norm: Any) -> Any:
    """One step of Adam, the gradient's norm clipped; `step` counts from 1. torch's constants. Returns by what the
    gradient was multiplied."""
    squares = sum_of_products(gradient, gradient)
    scale = float32(1 / max(np.sqrt(squares) / clip_norm, 1.0))
    length, root = float32(rate / (1 - 0.9**step)), float32(1 / np.sqrt(1 - 0.999**step))
    for i in range(len(gradient)):
        g = gradient[i] * scale
        mean[i] = float32(0.9) * mean[i] + float32(0.1) * g
        square[i] = float32(0.999) * square[i] + float32(0.001) * (g * g)
        parameters[i] -= length * mean[i] / (np.sqrt(square[i]) * root + float32(1e-8))
    return scale


@compiled_unchecked
def add_to_average(average: Any, parameters: Any, decay: Any, step: Any) -> None:
    """`repro.networks.optimizers.average_share`, with an average of length 0 for none."""
    share = float32(1 / step if decay == 1 else (1 - decay) / (1 - decay**step))
    for i in range(len(average)):
        average[i] += share * (parameters[i] - average[i])
