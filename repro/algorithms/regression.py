"""Fit a network to a memory: the inner loop of every Deep CFR variant."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repro.algorithms.minibatches import Chunked, Minibatch
from repro.algorithms.ranks import ALONE, Ranks
from repro.networks.gradients import Gradients, gradients_of
from repro.networks.losses import focus_gradient
from repro.networks.optimizers import FlatAdam, FlatOptimizer
from repro.networks.programs import CompiledSteps, if_compilable

_LOSS_EVERY = 16
"""The training loss is the mean over every 16th step of the second half: a reading, at a hundredth of the cost."""


class Compiled(Protocol):
    """SGD steps of one network without calls between them, for minibatches that name their infosets or do not."""

    def take(
        self, weight: Tensor, target: Tensor, rates: NDArray[np.float64], updates: int, infosets: Tensor | None
    ) -> NDArray[np.float64]:
        """The losses of as many steps as there are learning rates, of which the first `updates` are taken.

        Args:
            weight, target, infosets: as of `ManySteps`.
        """
        ...


def fit(
    network: nn.Module,
    optimizer: FlatOptimizer,
    minibatches: Iterable[Minibatch],
    steps: int,
    features: Tensor | None = None,
    legal: Tensor | None = None,
    last_step: Callable[[], object] | None = None,
    log_loss: bool = False,
    schedule: str = "constant",
    penalty: Callable[[Minibatch, Tensor], Tensor] | None = None,
    compiled: Compiled | None = None,
    ranks: Ranks = ALONE,
    focus: float | None = None,
) -> float:
    """Take one SGD step per minibatch.

    Args:
        network, optimizer: the optimiser holds the network's parameters, starts from fresh moments, and decides which
            weights the fit leaves (`FlatOptimizer.finish`).
        features, legal: `[infosets of the player, ...]`; rows of a minibatch index into them. Not needed where
            minibatches bring their own `inputs`.
        last_step: takes the optimiser's last step instead of `optimizer.update`, so that a caller can route it through
            a framework that counts steps.
        log_loss: fit probabilities by the log loss, in nats, instead of by the squared error.
        penalty: gradient at the network's output, `[n, actions]` for a minibatch and that output, of what is added to
            the loss; not part of the loss returned.
        compiled: takes the steps of minibatches that name their infosets, where there is no penalty and no log loss,
            with this `focus`; of minibatches that do not, the compiled form is found here.
        schedule: `constant`, or `cosine`: the learning rate falls to 0 along half a cosine.
        ranks: the processes that take the steps together, each with a minibatch of its own; the minibatch of a step is
            all of these, and the loss their mean.
        focus: errors below zero count less (`repro.networks.losses`), in place of a penalty; None: all the same.

    Returns:
        The weighted mean squared error, also where not all errors count the same, averaged over the second half of the
        training; of each step's own weights, whatever the fit leaves.

    Raises:
        FloatingPointError: the loss or the parameters are no longer finite.
        ValueError: `compiled` or `focus` with a penalty or the log loss.
    """
    if (compiled is not None or focus is not None) and (log_loss or penalty is not None):
        raise ValueError("compiled steps, and errors that count less below zero, are of the squared error alone")
    optimizer.reset()
    chunked = minibatches if isinstance(minibatches, Chunked) and not log_loss and penalty is None else None
    if chunked is not None and not chunked.named:
        compiled = _compiled_steps(network, optimizer, features, legal, focus)
    if chunked is not None and compiled is not None:
        loss = _fit_compiled(compiled, optimizer, chunked, steps, last_step, schedule, ranks)
    else:
        gradients = gradients_of(network, log_loss)
        if features is not None and legal is not None:
            gradients.prepare(features, legal)
        if focus is not None:
            penalty = partial(_focus_penalty, focus)
        loss = _fit_one_by_one(gradients, optimizer, minibatches, steps, last_step, log_loss, schedule, penalty, ranks)
    optimizer.finish()
    return loss


def _focus_penalty(focus: float, batch: Minibatch, output: Tensor) -> Tensor:
    return focus_gradient(output, batch.target, batch.weight, focus)


def _fit_one_by_one(
    gradients: Gradients, optimizer: FlatOptimizer, minibatches: Iterable[Minibatch], steps: int,
    last_step: Callable[[], object] | None, log_loss: bool, schedule: str,
    penalty: Callable[[Minibatch, Tensor], Tensor] | None, ranks: Ranks,
) -> float:  # fmt: skip
    """`fit` in a loop over minibatches, with gradients that any network has."""
    losses: list[Tensor] = []
    group, rate = optimizer.param_groups[0], optimizer.param_groups[0]["lr"]
    for i, batch in enumerate(minibatches, start=1):
        if batch.inputs is not None:
            gradients.rows(*batch.inputs)
        elif batch.infosets is not None:
            gradients.select(batch.infosets)
        # The squared error's gradient rule is for half of it.
        extra = None if penalty is None else partial(penalty, batch)
        output = gradients.compute(batch.weight if log_loss else batch.weight * 2, batch.target, extra)
        if is_read(i, steps):
            if log_loss:
                losses.append(-(torch.xlogy(batch.target, output) * batch.weight).sum())
            else:
                losses.append(((output - batch.target).square() * batch.weight).sum() + batch.constant)
        group["lr"] = rate_at(i, steps, rate, schedule)
        ranks.mean(optimizer.gradient)
        if i == steps and last_step is not None:
            last_step()
        else:
            optimizer.update()
    group["lr"] = rate
    return mean_loss(losses, optimizer.flat, ranks)


def _compiled_steps(
    network: nn.Module, optimizer: FlatOptimizer, features: Tensor | None, legal: Tensor | None, focus: float | None
) -> CompiledSteps | None:
    """The network's compiled steps on the CPU, if there is such a form of it."""
    if features is None or legal is None or features.device.type != "cpu" or not isinstance(optimizer, FlatAdam):
        return None
    return if_compilable(CompiledSteps, network, optimizer, features, legal, focus)


def _fit_compiled(
    compiled: Compiled, optimizer: FlatOptimizer, minibatches: Chunked, steps: int,
    last_step: Callable[[], object] | None, schedule: str, ranks: Ranks,
) -> float:  # fmt: skip
    """`fit` in a compiled loop, but for a last step that is the caller's."""
    take = compiled.take if ranks.count == 1 else partial(_take_together, compiled, optimizer, ranks)
    group, rate = optimizer.param_groups[0], optimizer.param_groups[0]["lr"]
    rates = np.array([rate_at(i, steps, rate, schedule) for i in range(1, steps + 1)])
    losses: list[Tensor] = []
    for chunk in minibatches.chunks:
        begin = len(losses)
        updates = chunk.steps - (begin + chunk.steps == steps and last_step is not None)
        found = torch.from_numpy(
            take(chunk.weight, chunk.target, rates[begin : begin + chunk.steps], updates, chunk.infosets)
        )
        losses.extend(found + (chunk.constant if len(chunk.constant) == chunk.steps else chunk.constant[-1:]))
    if last_step is not None:
        group["lr"] = rates[-1]
        last_step()
        group["lr"] = rate
    return mean_loss([loss for i, loss in enumerate(losses, start=1) if is_read(i, steps)], optimizer.flat, ranks)


def _take_together(
    compiled: Compiled, optimizer: FlatOptimizer, ranks: Ranks, weight: Tensor, target: Tensor,
    rates: NDArray[np.float64], updates: int, infosets: Tensor | None,
) -> NDArray[np.float64]:  # fmt: skip
    """`Compiled.take` of several ranks: compiled gradients, whose mean each step is taken with."""
    group, losses = optimizer.param_groups[0], np.empty(len(rates))
    before = group["lr"]
    for step, rate in enumerate(rates):
        which = slice(min(step, len(weight) - 1), min(step, len(weight) - 1) + 1)
        named = None if infosets is None else infosets[which]
        losses[step] = compiled.take(weight[which], target[which], rates[step : step + 1], 0, named)[0]
        ranks.mean(optimizer.gradient)
        if step < updates:
            group["lr"] = float(rate)
            optimizer.update()
    group["lr"] = before
    return losses


def rate_at(step: int, steps: int, rate: float, schedule: str) -> float:
    """The learning rate of a step, from 1 to `steps`."""
    return rate if schedule == "constant" else rate * (1 + math.cos(math.pi * (step - 1) / steps)) / 2


def is_read(step: int, steps: int) -> bool:
    """Whether the loss of a step is part of the training loss."""
    return step == steps or (2 * step >= steps and step % _LOSS_EVERY == 0)


def mean_loss(losses: Sequence[Tensor], parameters: Tensor, ranks: Ranks = ALONE) -> float:
    """The training loss, of all ranks.

    Raises:
        FloatingPointError: it or the parameters are not finite.
    """
    loss = float(ranks.mean(torch.stack(list(losses)).mean()))
    if not (math.isfinite(loss) and bool(torch.isfinite(parameters).all())):
        raise FloatingPointError("the training loss is not finite")
    return loss
