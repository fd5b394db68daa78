"""Means over seeds and their confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

_WRITTEN_OUT = 1e6
"""Numbers from here on have their power of ten beside them."""


def digits(number: float) -> str:
    """Three significant digits of a number, as people write them: 0.0131, 45.4, 1,130; from a million on 1.13e+06."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if 1000 <= abs(rounded) < _WRITTEN_OUT else f"{number:.3g}"


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` independent runs with a 95% confidence interval; the bounds are nan for a single run.

    Attributes:
        freedom: degrees of freedom of the interval's Student's t; None: `n - 1`.
    """

    mean: float
    low: float
    high: float
    n: int
    freedom: float | None = None

    def __str__(self) -> str:
        if self.n == 1:
            return digits(self.mean)
        return f"{digits(self.mean)} [{digits(self.low)}, {digits(self.high)}]"


def mean_ci(values: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Mean of `[runs]` values with Student's t interval, which is right for the few runs that figures have."""
    x = np.asarray(values, dtype=float)
    if x.ndim != 1 or len(x) == 0:
        raise ValueError(f"need a non-empty list of numbers, one per run, got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"need finite numbers, one per run, got {x.tolist()}")
    if len(x) == 1:
        return Estimate(float(x[0]), float("nan"), float("nan"), 1)
    half = _quantile((1 + confidence) / 2, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))
    return Estimate(float(x.mean()), float(x.mean() - half), float(x.mean() + half), len(x))


@cache
def _quantile(share: float, freedom: int) -> float:
    """Student's t below which this share lies; a curve asks for the same at each of its points, and it takes long."""
    return float(stats.t.ppf(share, freedom))


def difference(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Mean of `a` minus mean of `b`, which are independent runs, with Welch's interval; `n` is the smaller number."""
    return contrast([(1, a), (-1, b)], confidence)


def contrast(groups: Sequence[tuple[float, ArrayLike]], confidence: float = 0.95) -> Estimate:
    """Weighted sum of the means of groups of independent runs, with Welch's interval; `n` is the smallest number.

    Args:
        groups: weight and values `[runs]` of each.
    """
    weights = np.array([weight for weight, _ in groups], dtype=float)
    runs = [np.asarray(values, dtype=float) for _, values in groups]
    mean, n = float(sum(w * x.mean() for w, x in zip(weights, runs, strict=True))), min(map(len, runs))
    if n == 1:
        return Estimate(mean, float("nan"), float("nan"), 1)
    variances = weights**2 * [x.var(ddof=1) / len(x) for x in runs]
    if not variances.any():
        return Estimate(mean, mean, mean, n)
    freedom = float(variances.sum() ** 2 / (variances**2 / [len(x) - 1 for x in runs]).sum())
    half = float(stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(variances.sum()))
    return Estimate(mean, mean - half, mean + half, n, freedom)


def as_ratio(logarithms: Estimate) -> Estimate:
    """The estimate of a difference of logarithms, as that of a ratio; its interval is lopsided."""
    mean, low, high = (math.exp(value) for value in (logarithms.mean, logarithms.low, logarithms.high))
    return Estimate(mean, low, high, logarithms.n, logarithms.freedom)


def bands(rows: Sequence[ArrayLike]) -> dict[str, Any]:
    """Mean and interval at each point of curves `[runs, points]`, as arrays `mean`, `low`, `high` `[points]`."""
    estimates = [mean_ci(column) for column in np.asarray(rows, dtype=float).T]
    return {name: np.array([getattr(e, name) for e in estimates]) for name in ("mean", "low", "high")}


def p_value(estimate: Estimate, value: float) -> float | None:
    """Two-sided p-value of the mean being `value`, from an estimate's own interval; None for one run or equal ones.

    It is below 0.05 just where the 95% interval excludes `value`, whatever the interval was made of; further out it is
    that of Student's t with the estimate's degrees of freedom. An interval that is not symmetric is taken for one of
    logarithms.
    """
    mean, low, high = estimate.mean, estimate.low, estimate.high
    if estimate.n < 2 or not np.isfinite([mean, low, high, value]).all():
        return None
    lopsided = abs(high + low - 2 * mean) > 1e-6 * (high - low)
    if lopsided and min(low, value) > 0:
        mean, low, high, value = np.log([mean, low, high, value]).tolist()
    half = mean - low if value < mean else high - mean
    if high == low:
        # Runs that are all the same say nothing of how far another may be.
        return None
    freedom = estimate.n - 1 if estimate.freedom is None else estimate.freedom
    distance = abs(mean - value) / half * stats.t.ppf(0.975, freedom)
    return float(2 * stats.t.sf(distance, freedom))


def holm(p_values: Sequence[float], error: float = 0.05) -> list[bool]:
    """Which of several tests reject by Holm's method: any at all wrongly with a probability of `error` at the most."""
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    bounds = error / (count - np.arange(count))
    passed = np.logical_and.accumulate(np.asarray(p_values)[order] <= bounds)
    rejected = np.empty(count, dtype=bool)
    rejected[order] = passed
    return rejected.tolist()
