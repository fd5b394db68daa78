"""The loss of value networks in which errors below zero count less than above it: this suite's own option.

Regret matching plays advantages above zero in proportion and none below it, where there is one above. But the largest
that networks have to fit are below it: of actions that lose a pot, by as much as that. So an error in an output x below
zero has a smaller importance here, `1 - (1 - LEAST) s / (1 + s)` with `s = (x / focus)^2`, for 1 above zero.

The importance depends on the output, not on the target, and multiplies the squared error's gradient, `x - target`. The
loss is therefore the Bregman divergence of a convex function whose second derivative it is, and as for the squared
error an infoset's best output is the mean of its targets [Banerjee, Guo and Wang 2005, On the optimality of conditional
expectation as a Bregman predictor]. What changes is where a network that cannot have all of them, or has not yet, errs.
An output far below zero whose target is above it comes back slowly.
"""

from __future__ import annotations

from torch import Tensor

LEAST = 0.02
"""What errors far below zero count, for 1 above it."""


def importance(output: Tensor, focus: float) -> Tensor:
    """What an error in each output counts.

    Args:
        output: advantages, of any shape.
        focus: how far below zero importance has fallen half of the way to `LEAST`, in the targets' unit.
    """
    square = (output.clamp(max=0) / focus).square()
    return 1 - (1 - LEAST) * square / (1 + square)


def focus_gradient(output: Tensor, target: Tensor, weight: Tensor, focus: float) -> Tensor:
    """`[n, actions]` what is to be added to the gradient at the output of `sum of weight * |output - target|^2`.

    Args:
        output, target: `[n, actions]`.
        weight: `[n, 1]`.
        focus: as of `importance`.
    """
    return 2 * weight * (output - target) * (importance(output, focus) - 1)
