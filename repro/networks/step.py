"""One SGD step of weighted squared error, made cheap.

On games of a few hundred infosets a step is a dozen small matrix products, and most of its time goes to bookkeeping:
building the autograd graph, allocating, one optimiser and clipping call per parameter. Here all parameters share one
flat tensor, so that clipping and Adam are one call each, and on a CPU the networks built from the modules below are
differentiated by hand in NumPy on that same memory (`HandDifferentiated`; a NumPy call costs a fifth of a torch call).
Anything else goes through torch's autograd (`Autograd`). Both fill in the same gradients, to rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repro.networks.modules import Dueling, MaskedLinear, MaskedSoftmax, Merge, Network, Normalise, Residual

Array = NDArray[np.float32]


class FlatAdam(torch.optim.Optimizer):
    """Adam over one flat tensor that all parameters of a network are views of, with gradient-norm clipping.

    Args:
        network: its parameters and gradients become views of `flat` and `flat.grad`.
        learning_rate: Adam's; the other constants are torch's defaults.
        clip_norm: largest Euclidean norm of the whole gradient.
    """

    def __init__(self, network: nn.Module, learning_rate: float, clip_norm: float) -> None:
        self._parameters = list(network.parameters())
        self.flat = nn.Parameter(torch.cat([p.detach().flatten() for p in self._parameters]))
        self._gradient = torch.zeros_like(self.flat.data)
        self.clip_norm = clip_norm
        offset = 0
        for p in self._parameters:
            p.data = self.flat.data[offset : offset + p.numel()].view_as(p)
            offset += p.numel()
        super().__init__([self.flat], {"lr": learning_rate})
        self.reset()

    def reset(self) -> None:
        """Start afresh: no moments, and gradients where they belong (others may have set them to None meanwhile)."""
        self.state[self.flat] = {
            "exp_avg": torch.zeros_like(self.flat.data),
            "exp_avg_sq": torch.zeros_like(self.flat.data),
            "step": torch.zeros((), device=self.flat.device),
        }
        self.flat.grad = self._gradient
        offset = 0
        for p in self._parameters:
            p.grad = self._gradient[offset : offset + p.numel()].view_as(p)
            offset += p.numel()

    @torch.no_grad()
    def update(self) -> None:
        """Clip the gradient and take one Adam step, without the hooks and checks that `step` goes through."""
        gradient, state = self._gradient, self.state[self.flat]
        # The kernel of torch.optim.Adam(fused=True) divides by `grad_scale`: clipping costs no pass of its own.
        scale = torch.linalg.vector_norm(gradient).div_(self.clip_norm).clamp_(min=1.0)
        torch._fused_adam_(
            [self.flat.data], [gradient], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"].add_(1)],
            lr=self.param_groups[0]["lr"], beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, amsgrad=False,
            maximize=False, grad_scale=scale,
        )  # fmt: skip

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """`update`, in the form that Lightning calls."""
        loss = closure() if closure is not None else None
        self.update()
        return loss


class Gradients(Protocol):
    """Fills the gradients of `sum over rows of weight / 2 * |network(x) - target|^2`."""

    def prepare(self, x: Tensor, legal: Tensor) -> None:
        """Set a table of rows, all selected: features `[n, features]` and legal mask `[n, actions]` bool."""

    def select(self, rows: Tensor) -> None:
        """Set the rows `[m]` of the table that `compute` is about."""

    def compute(self, weight: Tensor, target: Tensor) -> Tensor:
        """Fill the gradients for `weight` `[m, 1]`, `target` `[m, actions]`; return the network's output."""
        ...


class Autograd:
    """`Gradients` of any network, by torch's autograd."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network

    def prepare(self, x: Tensor, legal: Tensor) -> None:
        self._table = self._x, self._legal = x, legal

    def select(self, rows: Tensor) -> None:
        self._x, self._legal = (part.index_select(0, rows) for part in self._table)

    def compute(self, weight: Tensor, target: Tensor) -> Tensor:
        for p in self._network.parameters():
            if p.grad is not None:
                p.grad.zero_()
        with torch.enable_grad():
            output = self._network(self._x, self._legal)
            output.backward(weight * (output.detach() - target))
        return output.detach()


class HandDifferentiated:
    """`Gradients` of a `Network` on the CPU whose modules all have a rule below.

    Raises:
        TypeError: a module has no rule.
    """

    def __init__(self, network: Network) -> None:
        self._layers = _rules(network.body)
        self._head = _head_rule(network.head)
        self._layers[0].mark_first()

    def prepare(self, x: Tensor, legal: Tensor) -> None:
        self._x = self._table = x.numpy()
        first = self._layers[0]
        self._merge = first if isinstance(first, _Merge) and first.tabulate(self._table) else None
        self._head.prepare(legal.numpy())

    def select(self, rows: Tensor) -> None:
        if self._merge is None:
            self._x = self._table.take(rows.numpy(), axis=0)
        else:
            self._merge.select(rows.numpy())
        self._head.select(rows.numpy())

    def compute(self, weight: Tensor, target: Tensor) -> Tensor:
        # A network that diverges is told by its loss, with more context than NumPy's warnings have.
        with np.errstate(over="ignore", invalid="ignore"):
            output = self._head.forward(_forward(self._layers, self._x))
            gradient = output - target.numpy()
            gradient *= weight.numpy()
            _backward(self._layers, self._head.backward(gradient))
        return torch.from_numpy(output)


def gradients_of(network: nn.Module) -> Gradients:
    """The cheapest correct way to differentiate `network`, whose parameters a `FlatAdam` must hold."""
    on_cpu = all(p.device.type == "cpu" for p in network.parameters())
    if isinstance(network, Network) and on_cpu:
        try:
            return HandDifferentiated(network)
        except TypeError:
            return Autograd(network)
    return Autograd(network)


def _forward(layers: list[_Layer], x: Array) -> Array:
    for layer in layers:
        x = layer.forward(x)
    return x


def _backward(layers: list[_Layer], dy: Array) -> Array:
    for layer in reversed(layers):
        dy = layer.backward(dy)
    return dy


def _grad(parameter: Tensor) -> Array:
    assert parameter.grad is not None, "the network's parameters must be held by a FlatAdam"
    return parameter.grad.numpy()


class _Layer(ABC):
    """A rule: `forward` may overwrite its own buffers only, `backward` may overwrite its argument."""

    is_first = False
    may_overwrite = False
    """Whether nothing but this layer needs what the layer below returned."""

    def mark_first(self) -> None:
        """Nobody needs the gradient with respect to this layer's input."""
        self.is_first = True

    @abstractmethod
    def forward(self, x: Array) -> Array: ...

    @abstractmethod
    def backward(self, dy: Array) -> Array: ...


class _Linear(_Layer):
    def __init__(self, module: nn.Linear) -> None:
        if module.bias is None:
            raise TypeError("no rule for a linear layer without bias")
        self.weight, self.bias = module.weight.data.numpy(), module.bias.data.numpy()
        self.weight_grad, self.bias_grad = _grad(module.weight), _grad(module.bias)
        self.matrix = self.weight
        """What the input is multiplied by."""
        self.rows = 0

    def _allocate(self, rows: int) -> None:
        self.rows = rows
        self.y = np.empty((rows, self.weight.shape[0]), np.float32)
        self.dx = np.empty((rows, self.weight.shape[1]), np.float32)
        self.ones = np.ones(rows, np.float32)

    def forward(self, x: Array) -> Array:
        if len(x) != self.rows:
            self._allocate(len(x))
        self.x = x
        y = np.matmul(x, self.matrix.T, out=self.y)
        y += self.bias
        return y

    def backward(self, dy: Array) -> Array:
        np.matmul(dy.T, self.x, out=self.weight_grad)
        np.dot(self.ones, dy, out=self.bias_grad)
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

    def forward(self, x: Array) -> Array:
        # x + W x = (1 + W) x, and one small matrix is cheaper to add to than all rows.
        np.add(self.weight, self.identity, out=self.matrix)
        return super().forward(x)


class _Merge(_Layer):
    """A branch sees part of a row, and few such parts are different: in Big Leduc's table of 13,188 infosets 156 hands
    with boards, and 98 betting nodes. Told the table, each branch and its share of the linear layer run on those alone.
    """

    def __init__(self, module: Merge) -> None:
        self.branches = [_rules(cast(nn.Sequential, b)) for b in module.branches]
        self.columns = module.columns
        self.bias, self.bias_grad = module.linear.bias.data.numpy(), _grad(module.linear.bias)
        # The product with the branches' outputs side by side is the sum of each one's product with its own columns.
        weight, weight_grad = module.linear.weight.data.numpy(), _grad(module.linear.weight)
        mine = [slice(i * module.inputs, (i + 1) * module.inputs) for i in range(len(self.branches))]
        self.weights, self.weight_grads = [weight[:, c] for c in mine], [weight_grad[:, c] for c in mine]
        self.distinct: list[tuple[Array, NDArray[np.int64]]] = []

    def mark_first(self) -> None:
        super().mark_first()
        for layers in self.branches:
            layers[0].mark_first()

    def tabulate(self, table: Array) -> bool:
        """Take rows from this table from now on, if it repeats itself enough for that to pay."""
        self.distinct = []
        for columns in self.columns:
            rows, which = torch.from_numpy(table[:, columns]).unique(dim=0, return_inverse=True)
            self.distinct.append((rows.numpy(), which.numpy()))
        if 4 * sum(len(rows) for rows, _ in self.distinct) > len(table):
            self.distinct = []
        self.which = [which for _, which in self.distinct]
        return bool(self.distinct)

    def select(self, rows: NDArray[np.int64]) -> None:
        """Set the rows of the table that `forward` and `backward` are about."""
        self.which = [which[rows] for _, which in self.distinct]

    def forward(self, x: Array) -> Array:
        self.features = x.shape[1]
        inputs = [rows for rows, _ in self.distinct] or [x[:, c] for c in self.columns]
        self.outputs = [_forward(layers, rows) for layers, rows in zip(self.branches, inputs, strict=True)]
        parts = [np.matmul(h, w.T) for h, w in zip(self.outputs, self.weights, strict=True)]
        parts[0] += self.bias
        if self.distinct:
            parts = [part.take(which, axis=0) for part, which in zip(parts, self.which, strict=True)]
        y = parts[0]
        for part in parts[1:]:
            y += part
        return y

    def backward(self, dy: Array) -> Array:
        np.dot(np.ones(len(dy), np.float32), dy, out=self.bias_grad)
        dx = None if self.is_first else np.zeros((len(dy), self.features), np.float32)
        for i, layers in enumerate(self.branches):
            mine = dy
            if self.distinct:
                mine = np.zeros((len(self.outputs[i]), dy.shape[1]), np.float32)
                torch.from_numpy(mine).index_add_(0, torch.from_numpy(self.which[i]), torch.from_numpy(dy))
            np.matmul(mine.T, self.outputs[i], out=self.weight_grads[i])
            below = _backward(layers, np.matmul(mine, self.weights[i]))
            if dx is not None:
                dx[:, self.columns[i]] += below
        return dy if dx is None else dx


class _ReLU(_Layer):
    def __init__(self, module: nn.ReLU) -> None:
        del module
        self.zeros = np.empty(0, np.float32)

    def forward(self, x: Array) -> Array:
        if self.zeros.shape != x.shape:
            self.zeros = np.zeros_like(x)
        # A scalar zero would take three times as long.
        self.y = np.maximum(x, self.zeros, out=x if self.may_overwrite else None)
        return self.y

    def backward(self, dy: Array) -> Array:
        dy *= self.y > 0
        return dy


class _Normalise(_Layer):
    def __init__(self, module: Normalise) -> None:
        self.eps = module.eps

    def forward(self, x: Array) -> Array:
        # A product with a vector is the cheapest way to a row mean.
        self.mean_of = np.full(x.shape[1], 1 / x.shape[1], np.float32)
        y = x - np.dot(x, self.mean_of)[:, None]
        variance = np.einsum("ij,ij->i", y, y) / np.float32(x.shape[1])
        self.rstd = 1 / np.sqrt(variance + np.float32(self.eps))[:, None]
        y *= self.rstd
        self.y = y
        return y

    def backward(self, dy: Array) -> Array:
        along = np.einsum("ij,ij->i", dy, self.y) / np.float32(dy.shape[1])
        mean = np.dot(dy, self.mean_of)
        dy -= self.y * along[:, None]
        dy -= mean[:, None]
        dy *= self.rstd
        return dy


class _Head(ABC):
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
    def forward(self, x: Array) -> Array: ...

    @abstractmethod
    def backward(self, dy: Array) -> Array: ...


class _MaskedLinear(_Head):
    def __init__(self, module: MaskedLinear) -> None:
        del module

    def forward(self, x: Array) -> Array:
        return x * self.legal

    def backward(self, dy: Array) -> Array:
        return dy * self.legal


class _MaskedSoftmax(_Head):
    def __init__(self, module: MaskedSoftmax) -> None:
        del module

    def mask(self, legal: NDArray[np.bool_]) -> Array:
        """To be added: 0 or minus infinity."""
        return np.where(legal, np.float32(0), np.float32(-np.inf))

    def forward(self, x: Array) -> Array:
        y = x + self.legal
        y -= reduce(np.maximum, y.T)[:, None]
        np.exp(y, out=y)
        y /= _sum(y)
        self.y = y
        return y

    def backward(self, dy: Array) -> Array:
        dy = dy * self.y
        dy -= self.y * _sum(dy)
        return dy


class _Dueling(_Head):
    def __init__(self, module: Dueling) -> None:
        self.advantage, self.value = _rules(module.advantage), _rules(module.value)

    def mask(self, legal: NDArray[np.bool_]) -> Array:
        return legal.astype(np.float32)

    def prepare(self, legal: NDArray[np.bool_]) -> None:
        super().prepare(legal)
        self.share = self.shares = self.legal / _sum(self.legal)

    def select(self, rows: NDArray[np.int64]) -> None:
        super().select(rows)
        self.share = self.shares.take(rows, axis=0)

    def forward(self, x: Array) -> Array:
        advantage, value = _forward(self.advantage, x), _forward(self.value, x)
        return (advantage + (value - _sum(advantage * self.share))) * self.legal

    def backward(self, dy: Array) -> Array:
        dy *= self.legal
        total = _sum(dy)
        dx = _backward(self.advantage, dy - total * self.share)
        dx += _backward(self.value, total)
        return dx


def _sum(x: Array) -> Array:
    """`[n, actions]` to `[n, 1]`; of short rows a product with a vector is the cheapest sum."""
    return x @ np.ones((x.shape[1], 1), np.float32)


def _rules(modules: nn.Sequential) -> list[_Layer]:
    layers = [_rule(module) for module in modules]
    for below, layer in pairwise(layers):
        # A linear layer's backward pass needs its input, not its output; a normalisation's needs its output.
        layer.may_overwrite = isinstance(below, _Linear | _Merge)
    return layers


def _rule(module: nn.Module) -> _Layer:
    rules: dict[type, Callable[[Any], _Layer]] = {
        nn.Linear: _Linear, Residual: _Residual, nn.ReLU: _ReLU, Normalise: _Normalise, Merge: _Merge,
    }  # fmt: skip
    if type(module) not in rules:
        raise TypeError(f"no rule to differentiate {type(module).__name__} by hand")
    return rules[type(module)](module)


def _head_rule(module: nn.Module) -> _Head:
    rules: dict[type, Callable[[Any], _Head]] = {
        MaskedLinear: _MaskedLinear, MaskedSoftmax: _MaskedSoftmax, Dueling: _Dueling,
    }  # fmt: skip
    if type(module) not in rules:
        raise TypeError(f"no rule to differentiate the head {type(module).__name__} by hand")
    return rules[type(module)](module)
