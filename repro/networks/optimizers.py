"""Optimisers over one flat tensor that all parameters of a network are views of.

On games of a few hundred infosets an SGD step is a dozen small matrix products, and most of its time would go to one
clipping and one optimiser call per parameter.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repro.networks.muon import NO_MATRICES, hidden_matrices, matrices_at, move

Float32: TypeAlias = NDArray[np.float32]


def average_share(decay: float, step: Any) -> Any:
    """What a step's weights, counted from 1, count in the moving average up to them: by it the first are all of it."""
    return 1 / step if decay == 1 else (1 - decay) / (1 - decay**step)


class FlatOptimizer(torch.optim.Optimizer):
    """The layout that the optimisers below share.

    Args:
        network: its parameters and gradients become views of `flat` and `flat.grad`.
        learning_rate: length of a step.
    """

    def __init__(self, network: nn.Module, learning_rate: float) -> None:
        self._parameters = list(network.parameters())
        self.flat = nn.Parameter(torch.cat([p.detach().flatten() for p in self._parameters]))
        self._gradient = torch.zeros_like(self.flat.data)
        offset = 0
        for p in self._parameters:
            p.data = self.flat.data[offset : offset + p.numel()].view_as(p)
            offset += p.numel()
        super().__init__([self.flat], {"lr": learning_rate})
        self.reset()

    def reset(self) -> None:
        """Put gradients where they belong (others may have set them to None), and forget past steps."""
        self.flat.grad = self._gradient
        offset = 0
        for p in self._parameters:
            p.grad = self._gradient[offset : offset + p.numel()].view_as(p)
            offset += p.numel()

    @property
    def gradient(self) -> Tensor:
        """`[parameters]`, what the parameters' gradients are views of."""
        return self._gradient

    @abstractmethod
    def update(self) -> None:
        """Take one step, without the hooks and checks that `step` goes through."""

    def finish(self) -> None:
        """Put what the steps since `reset` leave in the parameters' place, where that is not the last step's."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """`update`, in the form that Lightning calls."""
        loss = closure() if closure is not None else None
        self.update()
        return loss


class FlatAdam(FlatOptimizer):
    """Adam with clipping of the gradient's norm; of hidden layers' matrices, perhaps Muon instead.

    Args:
        network: as for `FlatOptimizer`.
        learning_rate: Adam's; the other constants are torch's defaults.
        clip_norm: largest Euclidean norm of the whole gradient.
        averaging: decay of the moving average of the weights that `finish` leaves; 1: their mean; None: none is kept.
        muon: rate of Muon (`repro.networks.muon`), at Adam's initial `learning_rate`, with which it changes; None: Adam
            moves all.

    Attributes:
        matrices: `[matrices, 3]`, as of `hidden_matrices`, those that Muon moves.
        muon_over_adam: the one's rate over the other's.
    """

    def __init__(
        self,
        network: nn.Module,
        learning_rate: float,
        clip_norm: float = math.inf,
        averaging: float | None = None,
        muon: float | None = None,
    ) -> None:
        self.clip_norm, self.averaging = clip_norm, averaging
        self.matrices = NO_MATRICES if muon is None else hidden_matrices(network)
        self._hidden = matrices_at(self.matrices)
        self.muon_over_adam = (muon or 0.0) / learning_rate
        super().__init__(network, learning_rate)

    def reset(self) -> None:
        super().reset()
        self.state[self.flat] = {
            "exp_avg": torch.zeros_like(self.flat.data),
            "exp_avg_sq": torch.zeros_like(self.flat.data),
            "step": torch.zeros((), device=self.flat.device),
        }
        self._average = torch.zeros_like(self.flat.data[: 0 if self.averaging is None else None])

    def arrays(self) -> tuple[Float32, Float32, Float32, Float32, Float32]:
        """Parameters, gradient, Adam's two moments and the average of weights (of length 0 where none is kept), as the
        memory that they are in; on the CPU only."""
        state = self.state[self.flat]
        moments = state["exp_avg"].numpy(), state["exp_avg_sq"].numpy()
        return self.flat.data.numpy(), self._gradient.numpy(), *moments, self._average.numpy()

    @torch.no_grad()
    def finish(self) -> None:
        if self.averaging is not None:
            self.flat.copy_(self._average)

    @torch.no_grad()
    def update(self) -> None:
        """Clip the gradient and take one Adam step."""
        gradient, state = self._gradient, self.state[self.flat]
        # The kernel of torch.optim.Adam(fused=True) divides by `grad_scale`: clipping costs no pass of its own.
        scale = torch.linalg.vector_norm(gradient).div_(self.clip_norm).clamp_(min=1.0)
        before = self.flat.data.clone() if len(self.matrices) else None
        torch._fused_adam_(
            [self.flat.data], [gradient], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"].add_(1)],
            lr=self.param_groups[0]["lr"], beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, amsgrad=False,
            maximize=False, grad_scale=scale,
        )  # fmt: skip
        if before is not None:
            # The kernel leaves the gradient as it was clipped.
            rate = self.param_groups[0]["lr"] * self.muon_over_adam
            move(self.flat.data, self._hidden, before, gradient, state["exp_avg"], rate)
        if self.averaging is not None:
            # As a tensor, which a GPU is not waited for to tell.
            share = average_share(self.averaging, state["step"].double())
            self._average.lerp_(self.flat.data, share.float())


class FlatSGD(FlatOptimizer):
    """Plain gradient descent: no moments, no clipping."""

    @torch.no_grad()
    def update(self) -> None:
        self.flat.add_(self._gradient, alpha=-self.param_groups[0]["lr"])
