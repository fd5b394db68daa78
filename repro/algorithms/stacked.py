"""SGD steps of several networks of one architecture at once, in a form that a CUDA device can replay as one graph.

A network 64 units wide cannot fill a GPU, and the launches of its hundred small kernels take longer than the kernels.
So the parameters of several runs are rows of one matrix, and a step reads and writes only buffers that never move.
On a CUDA device the step is captured once and then replayed; elsewhere the same function is called.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.optim.adam import adam

from repro.algorithms.minibatches import Minibatch
from repro.algorithms.regression import is_read, mean_loss, rate_at
from repro.networks.inputs import Inputs
from repro.networks.losses import importance
from repro.networks.muon import NO_MATRICES, matrices_at, move
from repro.networks.optimizers import average_share

_WARM_UP = 3
"""Steps before a capture, as torch's documentation asks for."""


@cache
def can_compile() -> bool:
    """Whether there is a C compiler, which torch needs to compile for a GPU; a warning where there is none."""
    found = any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))
    if not found:
        warnings.warn("there is no C compiler (gcc), so that SGD steps are not compiled, and take longer", stacklevel=2)
    return found


class StackedAdam:
    """Adam (and Muon) on the weighted squared error of `count` networks, each with its own minibatches and clipping.

    Args:
        network: the architecture; its parameters are not used.
        inputs: features and legal masks of infosets; the same operations whatever the infosets, or they cannot be
            captured.
        count: networks.
        batch_size: rows of each network's minibatch.
        clip_norm: largest Euclidean norm of a network's gradient.
        precision: of products of matrices on a CUDA device: `fp32`, or with its tensor cores `tf32` or `bf16`.
        averaging: as of `repro.networks.optimizers.FlatAdam`.
        focus: as of `repro.networks.losses.importance`; None: all errors count the same.
        matrices, muon_over_adam: as of `FlatAdam`; without, Adam moves all.
        compiled: let torch compile the step, which takes half a minute and gives the same to rounding.
        parts: gradients are of so many parts of a minibatch, a divisor of `batch_size`, and then summed: products of
            several networks' matrices are otherwise over all rows of a minibatch at once, one row after the other.

    Attributes:
        flat: `[count, parameters]`, each row in the order of `network.parameters()`.
    """

    def __init__(
        self, network: nn.Module, inputs: Inputs, count: int, batch_size: int, clip_norm: float,
        precision: str = "fp32", averaging: float | None = None, focus: float | None = None,
        matrices: NDArray[np.int64] = NO_MATRICES, muon_over_adam: float = 0.0, compiled: bool = False,
        parts: int = 1,
    ) -> None:  # fmt: skip
        first = next(network.parameters())
        device, rows = first.device, (count, batch_size)
        self._network, self._inputs, self._clip_norm, self._precision = network, inputs, clip_norm, precision
        self._averaging, self._focus, self._taken, self._parts = averaging, focus, 0, parts
        self._matrices, self._muon_over_adam = matrices_at(matrices), muon_over_adam
        self.flat = torch.zeros(count, sum(p.numel() for p in network.parameters()), device=device)
        self._gradient, self._mean, self._square = (torch.zeros_like(self.flat) for _ in range(3))
        self._average = None if averaging is None else torch.zeros_like(self.flat)
        self._step_number, self._rate = torch.zeros((), device=device), torch.zeros((), device=device)
        self._share = torch.zeros((), device=device)
        # One network alone is called as it is, which takes half as many operations.
        self._parameters: dict[str, Tensor] = {}
        begin, counts = 0, () if count * parts == 1 else (count,)
        for name, p in network.named_parameters():
            part = slice(begin, begin := begin + p.numel())
            self._parameters[name] = self.flat[:, part].view(*counts, *p.shape)
        infosets = torch.zeros(rows, dtype=torch.int64, device=device)
        actions = inputs(infosets[0, :1])[1].shape[1]
        self._infosets = infosets
        self._weight = torch.zeros(*rows, 1, device=device)
        self._target, self._output = (torch.zeros(*rows, actions, device=device) for _ in range(2))
        self._take: Callable[[], object] = torch.compile(self._step, dynamic=False) if compiled else self._step
        self._run: Callable[[], object] = self._capture() if device.type == "cuda" else self._take

    def load(self, parameters: Sequence[Tensor]) -> None:
        """Start from one vector per network, with fresh moments."""
        self.flat.copy_(torch.stack(list(parameters)))
        averages = [] if self._average is None else [self._average]
        for buffer in (self._mean, self._square, self._step_number, *averages):
            buffer.zero_()
        self._taken = 0

    def finish(self) -> None:
        """Put the average of the weights since `load` in their place, where one is kept."""
        if self._average is not None:
            self.flat.copy_(self._average)

    def step(self, minibatches: Sequence[Minibatch], learning_rate: float) -> None:
        """One step, with a minibatch for each network; all of `batch_size` rows."""
        for i, batch in enumerate(minibatches):
            assert batch.infosets is not None
            self._infosets[i].copy_(batch.infosets)
            self._weight[i].copy_(batch.weight)
            self._target[i].copy_(batch.target)
        self._rate.fill_(learning_rate)
        self._taken += 1
        if self._averaging is not None:
            self._share.fill_(average_share(self._averaging, self._taken))
        self._run()

    def losses(self) -> Tensor:
        """`[count]` weighted squared errors that the last step met."""
        return ((self._output - self._target).square() * self._weight).sum((1, 2))

    def _outputs(self, parameters: dict[str, Tensor], x: Tensor, legal: Tensor) -> Tensor:
        """`[count, batch_size, actions]` of all rows, network by network."""
        groups = len(self.flat) * self._parts
        if groups == 1:
            return functional_call(self._network, parameters, (x, legal))[None]
        own = parameters
        if self._parts > 1:
            own = {name: p.repeat_interleave(self._parts, 0) for name, p in parameters.items()}
        rows = (part.unflatten(0, (groups, -1)) for part in (x, legal))
        outputs = vmap(lambda p, *its: functional_call(self._network, p, its))(own, *rows)
        return outputs.reshape(self._output.shape)

    def _step(self) -> None:
        count = len(self.flat)
        x, legal = self._inputs(self._infosets.flatten())
        bf16 = self._precision == "bf16"
        with torch.autocast(self.flat.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            output, pull, *_ = vjp(lambda p: self._outputs(p, x, legal), self._parameters)
        with torch.no_grad():
            self._output.copy_(output)
            # The squared error's gradient, as the minibatch's weights have it.
            error = 2 * self._weight * (self._output - self._target)
            if self._focus is not None:
                error *= importance(self._output, self._focus)
            gradients = pull(error.to(output.dtype))[0].values()
            self._gradient.copy_(torch.cat([g.reshape(count, -1) for g in gradients], 1))
            norm = torch.linalg.vector_norm(self._gradient, dim=1, keepdim=True)
            self._gradient.div_(norm.div_(self._clip_norm).clamp_(min=1.0))
            before = self.flat.clone() if len(self._matrices) else None
            # Its fused kernel cannot be compiled, and need not be: what is compiled is fused.
            compiling = torch.compiler.is_compiling()
            adam(
                [self.flat], [self._gradient], [self._mean], [self._square], [], [self._step_number],
                lr=self._rate, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False,
                fused=not compiling, foreach=False, capturable=compiling,
            )  # fmt: skip
            if before is not None:
                rate = self._rate * self._muon_over_adam
                move(self.flat, self._matrices, before, self._gradient, self._mean, rate)
            if self._average is not None:
                self._average.lerp_(self.flat, self._share)

    def _capture(self) -> Callable[[], object]:
        """Record the step as a graph. What it does to parameters and moments meanwhile, `load` undoes."""
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        # The graph keeps the kernels that are chosen here.
        with _products("high" if self._precision == "tf32" else "highest"):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UP):
                    self._take()
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(graph):
                self._take()
        return graph.replay


@contextmanager
def _products(precision: str) -> Iterator[None]:
    """Products of float32 matrices in a precision, as torch names it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def fit_together(
    adam: StackedAdam,
    minibatches: Iterable[Sequence[Minibatch]],
    steps: int,
    learning_rate: float,
    schedule: str = "constant",
) -> list[float]:
    """Take one step per group of minibatches: what `repro.algorithms.regression.fit` does to one network.

    Returns:
        Each network's loss, averaged over the second half of the training.

    Raises:
        FloatingPointError: a loss or the parameters are no longer finite.
    """
    losses: list[Tensor] = []
    for i, group in enumerate(minibatches, start=1):
        adam.step(group, rate_at(i, steps, learning_rate, schedule))
        if is_read(i, steps):
            losses.append(adam.losses())
    adam.finish()
    return [mean_loss(list(each), row) for each, row in zip(torch.stack(losses, 1), adam.flat, strict=True)]
