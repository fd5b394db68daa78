"""Subgames as networks see them, and what predictions are measured against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Subgames as a network sees them; `b` is the number of buckets, or of the deck's hands where there are none.

    Attributes:
        inputs: `[n, inputs]` both players' ranges over buckets, the pot as a share of stacks, and without buckets a 1
            for each card of the board.
        target: `[n, 2, b]` values in pots, averaged over buckets.
        occupied: `[n, 1, b]` whether the board leaves any hand of the bucket.
    """

    inputs: Tensor
    target: Tensor
    occupied: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same on a device; Lightning calls this."""
        return Batch(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})


@dataclass(frozen=True)
class Truth:
    """What predictions are measured against, `n` subgames.

    Attributes:
        cfv, matchup, ranges: `[n, 2, hands]` in pots, and probabilities.
        bucket: `[n, hands]` int64.
    """

    cfv: Tensor
    matchup: Tensor
    ranges: Tensor
    bucket: Tensor

    def to(self, device: torch.device) -> Truth:
        """The same on a device."""
        return Truth(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})


BatchOrTruth = TypeVar("BatchOrTruth", Batch, Truth)


def parts_of(whole: BatchOrTruth, rows: Tensor | slice) -> BatchOrTruth:
    """Some of the subgames."""
    return type(whole)(**{f.name: getattr(whole, f.name)[rows] for f in fields(whole)})


def joined(parts: Sequence[BatchOrTruth]) -> BatchOrTruth:
    """All of them, in order."""
    return type(parts[0])(**{f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(parts[0])})
