"""How each module of `repro.networks.modules` is differentiated by hand, in NumPy on the parameters' own memory.

A NumPy call costs a fraction of a torch call, which is what counts where the matrices are small. Where a fit's rows are
grouped and the network has no branches, no call at all is cheaper still (`repro.networks.steps`). Here are the steps of
minibatches that name their rows or bring their inputs, of networks with branches, and with a term added to the loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repro.networks.modules import Dueling, MaskedLinear, MaskedSoftmax, Merge, Normalise, Residual, StateAndAdvantages

Float32Array = NDArray[np.float32]


def forward(layers: list[Layer], x: Float32Array) -> Float32Array:
    for layer in layers:
        x = layer.forward(x)
    return x


def backward(layers: list[Layer], dy: Float32Array) -> Float32Array:
    for layer in reversed(layers):
        dy = layer.backward(dy)
    return dy


def _grad(parameter: Tensor) -> Float32Array:
    assert parameter.grad is not None, "the network's parameters must be held by a FlatOptimizer"
    return parameter.grad.numpy()


class Layer(ABC):
    """A rule: `forward` may overwrite its own buffers only, `backward` may overwrite its argument."""

    is_first = False
    may_overwrite = False
    """Whether nothing but this layer needs what the layer below returned."""

    def mark_first(self) -> None:
        """Nobody needs the gradient with respect to this layer's input."""
        self.is_first = True

    @abstractmethod
    def forward(self, x: Float32Array) -> Float32Array: ...

    @abstractmethod
    def backward(self, dy: Float32Array) -> Float32Array: ...


class _Linear(Layer):
    def __init__(self, module: nn.Linear) -> None:
        self.weight, self.weight_grad = module.weight.data.numpy(), _grad(module.weight)
        # mypy thinks that a Linear always has a bias.
        bias = cast("nn.Parameter | None", module.bias)
        self.bias = None if bias is None else (bias.data.numpy(), _grad(bias))
        self.matrix = self.weight
        """What the input is multiplied by."""
        self.rows = 0

    def _allocate(self, rows: int) -> None:
        self.rows = rows
        self.y = np.empty((rows, self.weight.shape[0]), np.float32)
        self.dx = np.empty((rows, self.weight.shape[1]), np.float32)
        self.ones = np.ones(rows, np.float32)

    def forward(self, x: Float32Array) -> Float32Array:
        if len(x) != self.rows:
            self._allocate(len(x))
        self.x = x
        y = np.matmul(x, self.matrix.T, out=self.y)
        if self.bias is not None:
            y += self.bias[0]
        return y

    def backward(self, dy: Float32Array) -> Float32Array:
        np.matmul(dy.T, self.x, out=self.weight_grad)
        if self.bias is not None:
            np.dot(self.ones, dy, out=self.bias[1])
        if self.is_first:
            return dy
        # NumPy has no fast product of a column with a row.
        product = np.multiply if dy.shape[1] == 1 else np.matmul
        return product(dy, self.matrix, out=self.dx)


class _Residual(_Linear):
    def __init__(self, module: Residual) -> None:
        super().__init__(module.linear)
        self.identity = np.eye(len(self.weight), dtype=np.float32)
        self.matrix = np.empty_like(self.weight)

    def forward(self, x: Float32Array) -> Float32Array:
        # x + W x = (1 + W) x, and one small matrix is cheaper to add to than all rows.
        np.add(self.weight, self.identity, out=self.matrix)
        return super().forward(x)


class MergeRule(Layer):
    """A branch sees part of a row, and few such parts are different: in Big Leduc's table of 13,188 infosets 156 hands
    with boards, and 98 betting nodes. Told the table, each branch and its share of the linear layer run on those alone.
    """

    def __init__(self, module: Merge) -> None:
        self.branches = [rules_of(cast(nn.Sequential, b)) for b in module.branches]
        self.columns = module.columns
        self.bias, self.bias_grad = module.linear.bias.data.numpy(), _grad(module.linear.bias)
        # The product with the branches' outputs side by side is the sum of each one's product with its own columns.
        weight, weight_grad = module.linear.weight.data.numpy(), _grad(module.linear.weight)
        branch_columns = [slice(i * module.inputs, (i + 1) * module.inputs) for i in range(len(self.branches))]
        self.weights = [weight[:, c] for c in branch_columns]
        self.weight_grads = [weight_grad[:, c] for c in branch_columns]
        self.distinct: list[tuple[Float32Array, NDArray[np.int64]]] = []

    def mark_first(self) -> None:
        super().mark_first()
        for layers in self.branches:
            layers[0].mark_first()

    def tabulate(self, table: Float32Array) -> bool:
        """Take rows from this table from now on, if it repeats itself enough for that to pay."""
        self.distinct = []
        for columns in self.columns:
            rows, which = torch.from_numpy(table[:, columns]).unique(dim=0, return_inverse=True)
            self.distinct.append((rows.numpy(), which.numpy()))
        if 4 * sum(len(rows) for rows, _ in self.distinct) > len(table):
            self.distinct = []
        self.which = [which for _, which in self.distinct]
        return bool(self.distinct)

    def forget(self) -> None:
        """Take rows as they come."""
        self.distinct, self.which = [], []

    def select(self, rows: NDArray[np.int64]) -> None:
        """Set the rows of the table that `forward` and `backward` are about."""
        self.which = [which[rows] for _, which in self.distinct]

    def forward(self, x: Float32Array) -> Float32Array:
        self.features = x.shape[1]
        inputs = [rows for rows, _ in self.distinct] or [x[:, c] for c in self.columns]
        self.outputs = [forward(layers, rows) for layers, rows in zip(self.branches, inputs, strict=True)]
        parts = [np.matmul(h, w.T) for h, w in zip(self.outputs, self.weights, strict=True)]
        parts[0] += self.bias
        if self.distinct:
            parts = [part.take(which, axis=0) for part, which in zip(parts, self.which, strict=True)]
        y = parts[0]
        for part in parts[1:]:
            y += part
        return y

    def backward(self, dy: Float32Array) -> Float32Array:
        np.dot(np.ones(len(dy), np.float32), dy, out=self.bias_grad)
        dx = None if self.is_first else np.zeros((len(dy), self.features), np.float32)
        for i, layers in enumerate(self.branches):
            branch_dy = dy
            if self.distinct:
                branch_dy = np.zeros((len(self.outputs[i]), dy.shape[1]), np.float32)
                torch.from_numpy(branch_dy).index_add_(0, torch.from_numpy(self.which[i]), torch.from_numpy(dy))
            np.matmul(branch_dy.T, self.outputs[i], out=self.weight_grads[i])
            below = backward(layers, np.matmul(branch_dy, self.weights[i]))
            if dx is not None:
                dx[:, self.columns[i]] += below
        return dy if dx is None else dx


class _ReLU(Layer):
    def __init__(self, module: nn.ReLU) -> None:
        del module
        self.zeros = np.empty(0, np.float32)

    def forward(self, x: Float32Array) -> Float32Array:
        if self.zeros.shape != x.shape:
            self.zeros = np.zeros_like(x)
        # A scalar zero would take three times as long.
        self.y = np.maximum(x, self.zeros, out=x if self.may_overwrite else None)
        return self.y

    def backward(self, dy: Float32Array) -> Float32Array:
        dy *= self.y > 0
        return dy


class _Normalise(Layer):
    def __init__(self, module: Normalise) -> None:
        self.eps = module.eps

    def forward(self, x: Float32Array) -> Float32Array:
        # A product with a vector is the cheapest way to a row mean.
        self.mean_of = np.full(x.shape[1], 1 / x.shape[1], np.float32)
        y = x - np.dot(x, self.mean_of)[:, None]
        variance = np.einsum("ij,ij->i", y, y) / np.float32(x.shape[1])
        self.rstd = 1 / np.sqrt(variance + np.float32(self.eps))[:, None]
        y *= self.rstd
        self.y = y
        return y

    def backward(self, dy: Float32Array) -> Float32Array:
        along = np.einsum("ij,ij->i", dy, self.y) / np.float32(dy.shape[1])
        mean = np.dot(dy, self.mean_of)
        dy -= self.y * along[:, None]
        dy -= mean[:, None]
        dy *= self.rstd
        return dy


class Head(ABC):
    def prepare(self, legal: NDArray[np.bool_]) -> None:
        """Set the table's legal mask `[n, actions]`, all selected."""
        self.legal = self.table = self.mask(legal)

    def select(self, rows: NDArray[np.int64]) -> None:
        """Set the rows of the table that `forward` and `backward` are about."""
        self.legal = self.table.take(rows, axis=0)

    def mask(self, legal: NDArray[np.bool_]) -> Any:
        """The legal mask in the form that the rule needs."""
        return legal

    @abstractmethod
    def forward(self, x: Float32Array) -> Float32Array: ...

    @abstractmethod
    def backward(self, dy: Float32Array) -> Float32Array: ...


class _MaskedLinear(Head):
    def __init__(self, module: MaskedLinear) -> None:
        del module

    def forward(self, x: Float32Array) -> Float32Array:
        return x * self.legal

    def backward(self, dy: Float32Array) -> Float32Array:
        return dy * self.legal


class _MaskedSoftmax(Head):
    def __init__(self, module: MaskedSoftmax) -> None:
        del module

    def mask(self, legal: NDArray[np.bool_]) -> Float32Array:
        """To be added: 0 or minus infinity."""
        return np.where(legal, np.float32(0), np.float32(-np.inf))

    def forward(self, x: Float32Array) -> Float32Array:
        y = x + self.legal
        y -= reduce(np.maximum, y.T)[:, None]
        np.exp(y, out=y)
        y /= _sum(y)
        self.y = y
        return y

    def backward(self, dy: Float32Array) -> Float32Array:
        dy = dy * self.y
        dy -= self.y * _sum(dy)
        return dy


class _Dueling(Head):
    def __init__(self, module: Dueling) -> None:
        self.advantage, self.value = rules_of(module.advantage), rules_of(module.value)

    def mask(self, legal: NDArray[np.bool_]) -> Float32Array:
        return legal.astype(np.float32)

    def prepare(self, legal: NDArray[np.bool_]) -> None:
        super().prepare(legal)
        self.share = self.shares = self.legal / _sum(self.legal)

    def select(self, rows: NDArray[np.int64]) -> None:
        super().select(rows)
        self.share = self.shares.take(rows, axis=0)

    def forward(self, x: Float32Array) -> Float32Array:
        advantage, value = forward(self.advantage, x), forward(self.value, x)
        return (advantage + (value - _sum(advantage * self.share))) * self.legal

    def backward(self, dy: Float32Array) -> Float32Array:
        dy *= self.legal
        total = _sum(dy)
        dx = backward(self.advantage, dy - total * self.share)
        dx += backward(self.value, total)
        return dx


class _StateAndAdvantages(Head):
    def __init__(self, module: StateAndAdvantages) -> None:
        self.action, self.state = rules_of(module.action), rules_of(module.state)
        self.state_scale = np.float32(module.state_scale)

    def forward(self, x: Float32Array) -> Float32Array:
        action, value = forward(self.action, x), forward(self.state, x)
        return np.concatenate([(action - value) * self.legal, self.state_scale * value], 1)

    def backward(self, dy: Float32Array) -> Float32Array:
        advantages = dy[:, :-1] * self.legal
        dx = backward(self.action, advantages)
        dx += backward(self.state, self.state_scale * dy[:, -1:] - _sum(advantages))
        return dx


def _sum(x: Float32Array) -> Float32Array:
    """`[n, actions]` to `[n, 1]`; of short rows a product with a vector is the cheapest sum."""
    return x @ np.ones((x.shape[1], 1), np.float32)


def rules_of(modules: nn.Sequential) -> list[Layer]:
    layers = [_rule(module) for module in modules]
    for below, layer in pairwise(layers):
        # A linear layer's backward pass needs its input, not its output; a normalisation's needs its output.
        layer.may_overwrite = isinstance(below, _Linear | MergeRule)
    return layers


def _rule(module: nn.Module) -> Layer:
    rules: dict[type, Callable[[Any], Layer]] = {
        nn.Linear: _Linear, Residual: _Residual, nn.ReLU: _ReLU, Normalise: _Normalise, Merge: MergeRule,
    }  # fmt: skip
    if type(module) not in rules:
        raise TypeError(f"no rule to differentiate {type(module).__name__} by hand")
    return rules[type(module)](module)


def head_rule_of(module: nn.Module) -> Head:
    rules: dict[type, Callable[[Any], Head]] = {
        MaskedLinear: _MaskedLinear, MaskedSoftmax: _MaskedSoftmax, Dueling: _Dueling,
        StateAndAdvantages: _StateAndAdvantages,
    }  # fmt: skip
    if type(module) not in rules:
        raise TypeError(f"no rule to differentiate the head {type(module).__name__} by hand")
    return rules[type(module)](module)
