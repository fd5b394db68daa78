"""From regrets or predicted advantages to a strategy."""

from __future__ import annotations

import torch
from torch import Tensor


def regret_matching(advantages: Tensor, legal: Tensor, when_no_positive: str) -> Tensor:
    """Probabilities in proportion to positive advantages [SD-CFR eq. 4].

    Args:
        advantages: `[n, actions]`.
        legal: `[n, actions]` bool.
        when_no_positive: what to play where no legal advantage is positive: `argmax`, the highest one (Deep CFR's
            choice), or `uniform` (tabular CFR's).
    """
    positive = advantages.clamp(min=0) * legal
    if when_no_positive == "uniform":
        otherwise = legal / legal.sum(1, keepdim=True)
    else:
        best = advantages.masked_fill(~legal, -torch.inf).argmax(1)
        otherwise = torch.nn.functional.one_hot(best, advantages.shape[1])
    return normalised(positive, otherwise.to(positive.dtype))


def normalised(weights: Tensor, otherwise: Tensor) -> Tensor:
    """Rows in proportion to `weights`, none of them negative; those of `otherwise` where all are 0."""
    total = weights.sum(1, keepdim=True)
    # Where the total is 0 the quotient is nan and not chosen.
    return torch.where(total > 0, weights / total, otherwise)
