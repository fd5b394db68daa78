"""The look that all figures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from repro.evaluation.statistics import bands

mpl.use("Agg")
mpl.rcParams.update(
    {
        "figure.dpi": 110,
        "savefig.dpi": 160,
        "savefig.bbox": "tight",
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "pdf.fonttype": 42,
    }
)

COLOURS = {"sd_cfr": "#0072B2", "deep_cfr": "#D55E00"}
"""Colour-blind safe, one per algorithm, the same in every figure."""

NAMES = {"sd_cfr": "SD-CFR", "deep_cfr": "Deep CFR"}


def curve(
    axes: Axes,
    x: Sequence[float],
    runs: NDArray[Any],
    *,
    colour: Any,
    label: str,
    dash: str = "-",
    floor: float = 1e-12,
) -> None:
    """Mean of `runs` `[seeds, points]`, as a line of style `dash`, with its 95% interval; every seed as a thin line.

    An interval that reaches below zero has no lower edge to draw on logarithmic axes: it is drawn down to `floor`.
    """
    # A line needs two points.
    marker = "o" if len(x) == 1 else None
    for run in runs:
        axes.plot(x, run, color=colour, linewidth=0.5, alpha=0.45, marker=marker, markersize=3)
    band = bands(list(runs))
    axes.plot(x, band["mean"], dash, color=colour, linewidth=1.8, label=label, marker=marker)
    if len(runs) > 1:
        axes.fill_between(x, np.maximum(band["low"], floor), band["high"], color=colour, alpha=0.18, linewidth=0)
