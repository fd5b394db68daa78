"""The loss of value networks in which errors below zero count less than above it: an option of this suite's own.

Regret matching looks at advantages above zero alone, and in Flop Hold'em nearly all of their squares is of actions that
are worse by several blinds, of which it makes no difference by how many. So an error in an output x below zero is given
a smaller importance here, `1 - (1 - LEAST) s / (1 + s)` with `s = (x / focus)^2`, and 1 above zero.

The importance depends on the output, not on the target, and multiplies the squared error's gradient, `x - target`. What
is minimised is therefore a Bregman divergence, whose second derivative it is, and as for the squared error the best
output is the mean of the targets [Banerjee, Guo and Wang 2005, On the optimality of conditional expectation as a
Bregman predictor]: Deep CFR's fits aim at the same advantages as without it.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 0.02
"""What errors far below zero count, for 1 above it."""


def importance(output: Tensor, focus: float) -> Tensor:
    """What an error in each output counts.

    Args:
        output: advantages, of any shape.
        focus: how far below zero importance has fallen half of the way to `LEAST`, in the targets' unit.
    """
    square = (output / focus).square()
    return torch.where(output < 0, 1 - (1 - LEAST) * square / (1 + square), 1.0)


def focus_gradient(output: Tensor, target: Tensor, weight: Tensor, focus: float) -> Tensor:
    """`[n, actions]` what is to be added to the gradient at the output of `sum of weight * |output - target|^2`.

    Args:
        output, target: `[n, actions]`.
        weight: `[n, 1]`.
        focus: as of `importance`.
    """
    return 2 * weight * (output - target) * (importance(output, focus) - 1)
