"""Muon [Jordan et al. 2024] for the matrices of hidden layers, beside Adam for all else: this suite's own option.

A matrix is moved along the nearest orthogonal one to its momentum, as found by five Newton-Schulz iterations, so that
directions in which gradients are small are learned as fast as those in which they are large. It is `torch.optim.Muon`
without weight decay, in float32 where that multiplies in bfloat16; its momentum is 0.9, so that its buffer is Adam's
first moment. Embeddings, biases and outputs are Adam's, as its authors advise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import float32
from numpy.typing import NDArray
from torch import Tensor, nn

from repro.engine.compiled import compiled_unchecked

MOMENTUM = 0.9
_FEWEST = 8
"""Rows and columns that a hidden layer's matrix has at the least: an output has one row per action."""
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5


def hidden_matrices(network: nn.Module) -> NDArray[np.int64]:
    """`[matrices, 3]`: where each begins among the parameters, in their own order, its rows and its columns."""
    begins, begin = dict[Tensor, int](), 0
    for parameter in network.parameters():
        begins[parameter] = begin
        begin += parameter.numel()
    layers = [m for m in network.modules() if isinstance(m, nn.Linear) and m.bias is not None]
    found = [(begins[m.weight], m.out_features, m.in_features) for m in layers]
    return np.array([each for each in found if min(each[1:]) >= _FEWEST], np.int64).reshape(-1, 3)


def stretch(rows: int, columns: int) -> float:
    """What a matrix of this shape is moved by more than the rate."""
    return math.sqrt(max(1.0, rows / columns))


def orthogonalised(matrix: Tensor) -> Tensor:
    """About the nearest orthogonal matrix: its singular values are between 0.5 and 1.5."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / torch.linalg.matrix_norm(x).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.T
        x = _A * x + (_B * gram + _C * (gram @ gram)) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


@compiled_unchecked
def move_matrices(matrices: Any, parameters: Any, before: Any, gradient: Any, mean: Any, scale: Any, rate: Any) -> None:
    """Take Muon's step with the hidden matrices, whose gradients are in `mean` already.

    Args:
        matrices: as of `hidden_matrices`.
        parameters, before: `[parameters]`, of which Adam has moved all, and as they were before.
        gradient, mean: `[parameters]`; the gradient times `scale` is what was clipped.
    """
    for k in range(len(matrices)):
        begin, rows, columns = matrices[k]
        tall, size = rows > columns, rows * columns
        short, long = min(rows, columns), max(rows, columns)
        x = np.empty((short, long), np.float32)
        squares = float32(0)
        for i in range(rows):
            for j in range(columns):
                at = begin + i * columns + j
                update = float32(MOMENTUM) * mean[at] + float32(1 - MOMENTUM) * scale * gradient[at]
                squares += update * update
                if tall:
                    x[j, i] = update
                else:
                    x[i, j] = update
        x /= max(np.sqrt(squares), float32(1e-7))
        for _ in range(_ITERATIONS):
            gram = np.dot(x, x.T)
            polynomial = np.dot(gram, gram)
            for i in range(short):
                for j in range(short):
                    polynomial[i, j] = float32(_C) * polynomial[i, j] + float32(_B) * gram[i, j]
            moved = np.dot(polynomial, x)
            for i in range(short):
                for j in range(long):
                    x[i, j] = float32(_A) * x[i, j] + moved[i, j]
        length = float32(rate * np.sqrt(max(1.0, rows / columns)))
        for i in range(size):
            orthogonal = x[i % columns, i // columns] if tall else x[i // columns, i % columns]
            parameters[begin + i] = before[begin + i] - length * orthogonal
