"""Gradients of a loss over the rows of a minibatch, made cheap.

On a CPU the networks built from `repro.networks.modules` are differentiated by hand (`HandDifferentiated`), which saves
building the autograd graph. Anything else goes through torch's autograd (`Autograd`). Both fill in the same gradients,
to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from repro.networks.modules import MaskedSoftmax, Network
from repro.networks.rules import MergeRule, backward, forward, head_rule_of, rules_of

Extra = Callable[[Tensor], Tensor]


class Gradients(Protocol):
    """Fills the gradients of a loss: `sum over rows of weight / 2 * |network(x) - target|^2`, or the log loss,
    `-sum over rows of weight * sum over actions of target * log network(x)`.

    The log loss is for networks whose head is a `MaskedSoftmax`, and for targets that sum to one.
    """

    def prepare(self, x: Tensor, legal: Tensor) -> None:
        """Set a table of rows, all selected: features `[n, features]` and legal mask `[n, actions]` bool."""

    def select(self, rows: Tensor) -> None:
        """Set the rows `[m]` of the table that `compute` is about."""

    def rows(self, x: Tensor, legal: Tensor) -> None:
        """Set rows of no table: features `[m, features]` and legal mask `[m, actions]` bool."""

    def compute(self, weight: Tensor, target: Tensor, extra: Extra | None = None) -> Tensor:
        """Fill the gradients for `weight` `[m, 1]`, `target` `[m, actions]`; return the network's output.

        `extra` takes that output and returns the gradient there, `[m, actions]`, of what the loss has in addition.
        """
        ...


class Autograd:
    """`Gradients` of any network, by torch's autograd."""

    def __init__(self, network: nn.Module, log_loss: bool = False) -> None:
        self._network, self._log_loss = network, log_loss

    def prepare(self, x: Tensor, legal: Tensor) -> None:
        self._table = self._x, self._legal = x, legal

    def select(self, rows: Tensor) -> None:
        self._x, self._legal = (part.index_select(0, rows) for part in self._table)

    def rows(self, x: Tensor, legal: Tensor) -> None:
        self._x, self._legal = x, legal

    def compute(self, weight: Tensor, target: Tensor, extra: Extra | None = None) -> Tensor:
        for p in self._network.parameters():
            if p.grad is not None:
                p.grad.zero_()
        with torch.enable_grad():
            if self._log_loss:
                assert isinstance(self._network, Network)
                logits = self._network.body(self._x)
                output = self._network.head(logits.detach(), self._legal)
                logits.backward(weight * (output - target))
            else:
                output = self._network(self._x, self._legal)
                gradient = weight * (output.detach() - target)
                output.backward(gradient if extra is None else gradient + extra(output.detach()))
        return output.detach()


class HandDifferentiated:
    """`Gradients` of a `Network` on the CPU whose modules all have a rule.

    Raises:
        TypeError: a module has no rule.
    """

    def __init__(self, network: Network, log_loss: bool = False) -> None:
        self._log_loss = log_loss
        self._layers = rules_of(network.body)
        self._head = head_rule_of(network.head)
        self._layers[0].mark_first()

    def prepare(self, x: Tensor, legal: Tensor) -> None:
        self._x = self._table = x.numpy()
        first = self._layers[0]
        self._merge = first if isinstance(first, MergeRule) and first.tabulate(self._table) else None
        self._head.prepare(legal.numpy())

    def rows(self, x: Tensor, legal: Tensor) -> None:
        self._x = x.numpy()
        if isinstance(self._layers[0], MergeRule):
            self._layers[0].forget()
        self._merge = None
        self._head.prepare(legal.numpy())

    def select(self, rows: Tensor) -> None:
        if self._merge is None:
            self._x = self._table.take(rows.numpy(), axis=0)
        else:
            self._merge.select(rows.numpy())
        self._head.select(rows.numpy())

    def compute(self, weight: Tensor, target: Tensor, extra: Extra | None = None) -> Tensor:
        # A network that diverges is told by its loss, with more context than NumPy's warnings have.
        with np.errstate(over="ignore", invalid="ignore"):
            output = self._head.forward(forward(self._layers, self._x))
            gradient = output - target.numpy()
            gradient *= weight.numpy()
            if extra is not None:
                gradient += extra(torch.from_numpy(output)).numpy()
            # At the logits of a softmax, that is the log loss's gradient already.
            backward(self._layers, gradient if self._log_loss else self._head.backward(gradient))
        return torch.from_numpy(output)


def gradients_of(network: nn.Module, log_loss: bool = False) -> Gradients:
    """The cheapest correct way to differentiate `network`, whose parameters a `FlatOptimizer` must hold."""
    if log_loss and not (isinstance(network, Network) and isinstance(network.head, MaskedSoftmax)):
        raise TypeError("the log loss needs a network that ends in a MaskedSoftmax")
    on_cpu = all(p.device.type == "cpu" for p in network.parameters())
    if isinstance(network, Network) and on_cpu:
        try:
            return HandDifferentiated(network, log_loss)
        except TypeError:
            return Autograd(network, log_loss)
    return Autograd(network, log_loss)
