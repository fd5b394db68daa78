"""Muon [Jordan et al. 2024] for the matrices of hidden layers, beside Adam for all else: this suite's own option.

A matrix is moved along about the nearest orthogonal one to its momentum, as found by five Newton-Schulz iterations, so
that directions in which gradients are small are learned nearly as fast as those in which they are large. It is
`torch.optim.Muon` without weight decay, in float32 where that multiplies in bfloat16; its momentum is 0.9, so that its
buffer is Adam's first moment. Adam's are embeddings, biases and the layers that give outputs; first layers with a bias,
such as that of the betting branch, are moved by Muon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import float32
from numpy.typing import NDArray
from torch import Tensor, nn

from repro.common.compiled import compiled_unchecked
from repro.networks.modules import Network

MOMENTUM = 0.9
NO_MATRICES: NDArray[np.int64] = np.empty((0, 3), np.int64)
"""Where Adam moves all."""
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5


def hidden_matrices(network: nn.Module) -> NDArray[np.int64]:
    """`[matrices, 3]`: where each begins among the parameters, in their own order, its rows and its columns."""
    begins, begin = dict[Tensor, int](), 0
    for parameter in network.parameters():
        begins[parameter] = begin
        begin += parameter.numel()
    parts = [network]
    if isinstance(network, Network):
        # What gives outputs: the branches of the head, or where that has no layers the body.
        parts = list(network.head.children()) or [network.body]
    outputs = {[m for m in part.modules() if isinstance(m, nn.Linear)][-1] for part in parts}
    layers = [m for m in network.modules() if isinstance(m, nn.Linear) and m.bias is not None and m not in outputs]
    found = [(begins[m.weight], m.out_features, m.in_features) for m in layers]
    return np.array(found, np.int64).reshape(-1, 3)


@compiled_unchecked
def stretch(rows: Any, columns: Any) -> Any:
    """What a matrix of this shape is moved by more than the rate."""
    return np.sqrt(max(1.0, rows / columns))


def _lies(matrix: Tensor) -> bool:
    return matrix.shape[-2] <= matrix.shape[-1]


def orthogonalised(matrices: Tensor) -> Tensor:
    """`[..., rows, columns]` likewise: about the nearest orthogonal ones. Singular values that are not nearly 0, beside
    the others, become about 1 (0.7 to 1.2); those that are stay smaller."""
    x = matrices if _lies(matrices) else matrices.mT
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * (gram @ gram)) @ x
    return x if _lies(matrices) else x.mT


def orthogonalised_together(matrices: Sequence[Tensor]) -> Iterator[Tensor]:
    """Each of `[..., rows, columns]` orthogonalised, all at once: lying, and with zeros around them, which stay zeros.

    On a GPU a product of many takes no longer than one; on a CPU the zeros take longer than they save.
    """
    lying = [matrix if _lies(matrix) else matrix.mT for matrix in matrices]
    most = [max(matrix.shape[side] for matrix in lying) for side in (-2, -1)]
    padded = [nn.functional.pad(m, (0, most[1] - m.shape[-1], 0, most[0] - m.shape[-2])) for m in lying]
    for matrix, found in zip(matrices, orthogonalised(torch.stack(padded)), strict=True):
        yield (found if _lies(matrix) else found.mT)[..., : matrix.shape[-2], : matrix.shape[-1]]


@dataclass(frozen=True)
class Matrix:
    """Where a hidden matrix is among the parameters, its rows and columns, and its `stretch`."""

    part: slice
    shape: tuple[int, int]
    stretch: float


def matrices_at(matrices: NDArray[np.int64]) -> list[Matrix]:
    """Those of `hidden_matrices`, one by one."""
    return [Matrix(slice(b, b + r * c), (r, c), float(stretch(r, c))) for b, r, c in matrices.tolist()]


def move(
    parameters: Tensor, matrices: Sequence[Matrix], before: Tensor, gradient: Tensor, momentum: Tensor,
    rate: Tensor | float,
) -> None:  # fmt: skip
    """Write what Muon's step makes of each matrix into the parameters, which Adam has moved from `before`.

    Args:
        parameters, before, gradient, momentum: `[..., parameters]`; the gradient is clipped, and in the momentum.
    """
    along = [gradient[..., m.part].lerp(momentum[..., m.part], MOMENTUM).unflatten(-1, m.shape) for m in matrices]
    directions = orthogonalised_together(along) if gradient.is_cuda and along else map(orthogonalised, along)
    for matrix, direction in zip(matrices, directions, strict=True):
        parameters[..., matrix.part] = before[..., matrix.part] - rate * matrix.stretch * direction.flatten(-2)


@compiled_unchecked
def move_matrices(matrices: Any, parameters: Any, before: Any, gradient: Any, mean: Any, scale: Any, rate: Any) -> None:
    """`move`, compiled: writes the hidden matrices of `parameters`, which Adam has moved from `before`.

    Args:
        gradient, mean: `[parameters]`; the gradient times `scale` is what was clipped, and is in the mean already.
    """
    for k in range(len(matrices)):
        begin, rows, columns = matrices[k]
        tall = rows > columns
        short, long = min(rows, columns), max(rows, columns)
        x = np.empty((short, long), np.float32)
        squares = float32(0)
        for i in range(rows):
            for j in range(columns):
                at = begin + i * columns + j
                along = float32(MOMENTUM) * mean[at] + float32(1 - MOMENTUM) * scale * gradient[at]
                squares += along * along
                if tall:
                    x[j, i] = along
                else:
                    x[i, j] = along
        x /= max(np.sqrt(squares), float32(1e-7))
        for _ in range(_ITERATIONS):
            gram = np.dot(x, x.T)
            polynomial = np.dot(gram, gram)
            for i in range(short):
                for j in range(short):
                    polynomial[i, j] = float32(_C) * polynomial[i, j] + float32(_B) * gram[i, j]
            more = np.dot(polynomial, x)
            for i in range(short):
                for j in range(long):
                    x[i, j] = float32(_A) * x[i, j] + more[i, j]
        length = float32(rate * stretch(rows, columns))
        for i in range(rows * columns):
            orthogonal = x[i % columns, i // columns] if tall else x[i // columns, i % columns]
            parameters[begin + i] = before[begin + i] - length * orthogonal
