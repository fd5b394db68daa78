"""DEVN's margin over DCVN taken apart: what it gains in the error of buckets, and what in the network's own.

In squares, a loss is the encoding error and the rest: `loss² = encoding error² + own²`, which says what a network's
*own* error is here. In one subgame's counterfactual values (DCVN) it is that of the predicted buckets, over hands,
since hands differ from the mean of their bucket by amounts that sum to 0. In expected values these are multiplied by
matchups, and a loss is a mean of roots: there it is nearly so.

With `share = (encoding error / loss)²` of DCVN, and DEVN's gains in the encoding error and in the network's own, its
gain in the loss is `1 - sqrt(share (1 - buckets)² + (1 - share) (1 - own)²)`. So who has other networks, with another
share, can still be compared with the paper: by what the same two gains would make of its share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN, Setting

Numbers = Any
"""A number, or a series of numbers by seed."""


@dataclass(frozen=True)
class Margin:
    """Shares of 1, not in per cent.

    Attributes:
        share: of DCVN's squared loss, that which buckets make.
        buckets: by how much DEVN's encoding error is lower, of DCVN's.
        own: by how much its network's own error is lower; below 0 if it is higher.
    """

    share: Numbers
    buckets: Numbers
    own: Numbers

    @classmethod
    def of(cls, losses: tuple[Numbers, Numbers], errors: tuple[float, float]) -> Margin:
        """From unbucketed losses and encoding errors, DCVN's and DEVN's.

        Raises:
            ValueError: a loss is not above the error of buckets alone, so that none is left for the network.
        """
        squares = [loss**2 - error**2 for loss, error in zip(losses, errors, strict=True)]
        if any(np.any(np.asarray(square) <= 0) for square in squares):
            raise ValueError(f"losses of {losses} must be above the encoding errors, {errors}")
        dcvn, devn_ = squares
        return cls((errors[0] / losses[0]) ** 2, 1 - errors[1] / errors[0], 1 - (devn_ / dcvn) ** 0.5)

    def gain(self, share: Numbers | None = None) -> Numbers:
        """By how much DEVN's loss is lower than DCVN's, of that; with the same gains and another share, if given."""
        of_buckets = self.share if share is None else share
        return 1 - (of_buckets * (1 - self.buckets) ** 2 + (1 - of_buckets) * (1 - self.own) ** 2) ** 0.5


def ours(data: pd.DataFrame, setting: Setting, hidden: int) -> Margin:
    """That of our networks, by seed."""
    dcvn, devn_ = (devn.by_seed(data, setting, method, hidden) for method in (DCVN, DEVN))
    return Margin.of(
        (dcvn, devn_), (devn.encoding_error(data, setting, DCVN), devn.encoding_error(data, setting, DEVN))
    )


def paper(setting: Setting, hidden: int) -> Margin:
    """That of the paper's."""
    return Margin.of(setting.paper[hidden], (setting.paper_error(DCVN), setting.paper_error(DEVN)))


def at_the_papers_share(data: pd.DataFrame, setting: Setting, hidden: int) -> pd.Series:
    """In %, by seed, what our two gains would make of the paper's share: a margin to compare with the paper's."""
    predicted: pd.Series = 100 * ours(data, setting, hidden).gain(paper(setting, hidden).share)
    return predicted
