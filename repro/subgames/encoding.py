"""What buckets do to ranges and values, and the error that they alone make [DEVN, Sec. 6].

Ranges are summed over the hands of a bucket, values averaged, each hand counting the same; back again, a hand has its
bucket's value. Arrays are tensors on any device; `n` subgames at a time, `bucket` `[n, hands]` int64 of each hand.

The paper's error is the root mean square (RMS) over hands; how subgames are averaged its text does not say. For losses
of networks its public code takes the root for each subgame and player, and then the mean, as `error` does; `pooled`
takes one root of the mean over all of them, in which a few subgames with large values weigh more.
"""

from __future__ import annotations

import torch
from torch import Tensor

CFV, EV = "cfv", "ev"
"""What a network predicts: counterfactual values (DCVN), or expected values (DEVN), which matchups make into those."""


def summed(ranges: Tensor, bucket: Tensor, buckets: int) -> Tensor:
    """`[n, 2, hands]` -> `[n, 2, buckets]` the sum over each bucket's hands."""
    sums = ranges.new_zeros(*ranges.shape[:2], buckets)
    return sums.scatter_add_(2, bucket[:, None].expand_as(ranges), ranges)


def sizes(bucket: Tensor, buckets: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """`[n, buckets]` how many hands are in each bucket."""
    counts = torch.zeros(len(bucket), buckets, dtype=dtype, device=bucket.device)
    return counts.scatter_add_(1, bucket, torch.ones_like(bucket, dtype=dtype))


def averaged(values: Tensor, bucket: Tensor, buckets: int) -> Tensor:
    """`[n, 2, hands]` -> `[n, 2, buckets]` the mean over each bucket's hands; 0 for a bucket without one."""
    return summed(values, bucket, buckets) / sizes(bucket, buckets, values.dtype).clamp(min=1)[:, None]


def inverse(bucketed: Tensor, bucket: Tensor) -> Tensor:
    """`[n, 2, buckets]` -> `[n, 2, hands]` each hand's bucket's value."""
    return bucketed.gather(2, bucket[:, None].expand(-1, 2, -1))


def expected(cfv: Tensor, matchup: Tensor) -> Tensor:
    """Expected values [DEVN, eq. 6] of counterfactual ones; 0 for hands that meet none."""
    return torch.where(matchup > 0, cfv / torch.where(matchup > 0, matchup, 1.0), 0.0)


def counterfactual(values: Tensor, matchup: Tensor, target: str) -> Tensor:
    """Counterfactual values from values of a `target`."""
    return values * matchup if target == EV else values


def squared_error(cfv: Tensor, predicted: Tensor) -> Tensor:
    """`[n, 2]` mean squared error over each player's hands, in pots squared if values are in pots."""
    return (cfv - predicted).square().mean(2)


def error(squares: Tensor) -> float:
    """The mean over subgames and players of their RMS errors, in % of the pot, from `[n, 2]` in pots squared."""
    return 100 * float(squares.sqrt().mean())


def pooled(squares: Tensor) -> float:
    """The RMS error over all subgames and players, in % of the pot, from `[n, 2]` in pots squared."""
    return 100 * float(squares.mean().sqrt())


def encoding_error(cfv: Tensor, matchup: Tensor, bucket: Tensor, buckets: int, target: str) -> Tensor:
    """`[n, 2]` mean squared errors of bucketing the true values, in pots, and undoing it; in pots squared."""
    values = expected(cfv, matchup) if target == EV else cfv
    back = inverse(averaged(values, bucket, buckets), bucket)
    return squared_error(cfv, counterfactual(back, matchup, target))
