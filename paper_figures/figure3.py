"""SD-CFR Fig. 3 (App. C): exploitability of SD-CFR and Deep CFR in Big Leduc, early iterations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from paper_figures import style
from paper_figures.exploitability_curves import (
    LAGS_AT,
    UNIT,
    exploitability,
    falls,
    gap,
    label_axis,
    points,
    relative_gap,
    unless_smoke,
)
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, difference, mean_ci
from repro.figures import frame
from repro.figures.claims import NOT_TESTABLE, Claim, above, below

TITLE, GAME = "SD-CFR Fig. 3", "Big Leduc"
SHOWS = "exploitability of SD-CFR and Deep CFR, early iterations"
SWEEPS = (Sweep("", "experiment=figure3 seed=range(5)", {"smoke": "seed=range(2)"}),)

READOUTS = ("sd_cfr", "deep_cfr")
WELL = 0.1
"""How far above SD-CFR's exploitability Deep CFR's may be to "perform well"; no number is the paper's, this is ours."""

_LEDUC = Path(__file__).parent / "results" / "figure1-laptop"
_COLOURS = {"Big Leduc": "#009E73", "Leduc": "#777777"}


def beside(scale: str) -> list[str]:
    """Published results that this figure is drawn and judged beside, at whatever scale."""
    return [_LEDUC.name]


@cache
def leduc() -> pd.DataFrame:
    """Figure 1's published data: both algorithms in Leduc."""
    return frame.read(frame.data_file(_LEDUC))


# -- drawing ---------------------------------------------------------------------------------------------------------


_FEW_POINTS = 6
"""Up to so many evaluations each gets its own tick."""


def draw(data: pd.DataFrame) -> Figure:
    """The paper's plot; beside it the gap between its curves as a share of SD-CFR's, there and in Leduc."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2))
    _draw_exploitability(left, data)
    _draw_gaps(right, data)
    for axes in (left, right):
        axes.set(xscale="log", xlabel="updates of one player (two per iteration)")
        label_axis(axes.xaxis, data.step * 2)
        evaluated = points(exploitability(data, "sd_cfr"))
        if len(evaluated) <= _FEW_POINTS:
            axes.set_xticks(evaluated, [str(x) for x in evaluated])
            axes.minorticks_off()
        axes.legend(fontsize=8)
    figure.suptitle(
        f"Big Leduc, scale: {data.scale.iloc[0]}. Mean with 95% CI over runs, thin lines are single runs.", y=1.0
    )
    figure.tight_layout()
    return figure


def _draw_exploitability(axes: Axes, data: pd.DataFrame) -> None:
    for readout in READOUTS:
        curves = exploitability(data, readout)
        style.curve(
            axes, points(curves), curves.to_numpy(),
            colour=style.COLOURS[readout], label=f"{style.NAMES[readout]}, ours",
        )  # fmt: skip
    axes.set(yscale="log", ylabel=f"exploitability = NashConv / 2 ({UNIT})")
    values = data.value[(data.metric == "exploitability") & data.readout.isin(READOUTS)]
    label_axis(axes.yaxis, values)
    # Intervals of few seeds reach far down; the runs themselves say how far the axis must.
    axes.set_ylim(0.7 * values.min(), 1.4 * values.max())
    axes.set_title(f"Big Leduc, {data.seed.nunique()} runs")


def _draw_gaps(axes: Axes, data: pd.DataFrame) -> None:
    end = max(points(gap(data)))
    for game, runs in (("Big Leduc", data), ("Leduc", leduc())):
        curves = relative_gap(runs)
        shown = [x for x in points(curves) if x <= end]
        if shown:
            values = curves[shown].to_numpy()
            style.curve(axes, shown, values, colour=_COLOURS[game], label=game, floor=-np.inf)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylabel("(Deep CFR - SD-CFR) / SD-CFR")
    axes.set_title("How far Deep CFR is above SD-CFR")


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    return [
        *(_closer_than_in_leduc(data, sense) for sense in SENSES),
        _deep_performs_well(data),
        *(falls(data, readout, "Fig. 3") for readout in READOUTS),
    ]


@dataclass(frozen=True)
class Sense:
    """One of the senses in which two curves may be close; the appendix says none.

    Attributes:
        id: of its claim.
        name: for readers.
        relative: whether the gap is taken as a share of SD-CFR's exploitability.
        signed: whether Deep CFR below SD-CFR counts as less than no gap, or as a gap like any.
    """

    id: str
    name: str
    relative: bool
    signed: bool

    @property
    def unit(self) -> str:
        """Of its gaps."""
        return "of SD-CFR's" if self.relative else UNIT

    def gaps(self, data: pd.DataFrame) -> pd.DataFrame:
        """`[seeds, numbers of player updates]`."""
        signed = relative_gap(data) if self.relative else gap(data)
        return signed if self.signed else signed.abs()


SENSES = (
    Sense("relative_signed", "signed gap as a share of SD-CFR's", relative=True, signed=True),
    Sense("relative_size", "size of the gap as a share of SD-CFR's", relative=True, signed=False),
    Sense("milli_antes_signed", f"signed gap in {UNIT}", relative=False, signed=True),
    Sense("milli_antes_size", f"size of the gap in {UNIT}", relative=False, signed=False),
)


def _closer_than_in_leduc(data: pd.DataFrame, sense: Sense) -> Claim:
    big_leduc_gaps, leduc_gaps = sense.gaps(data), sense.gaps(leduc())
    common = [x for x in points(big_leduc_gaps) if x in points(leduc_gaps)]
    parts: dict[str, Any] = {
        "id": f"closer_than_in_leduc_{sense.id}",
        "statement": f"Deep CFR is closer to SD-CFR than in Leduc ({sense.name}: Leduc's minus Big Leduc's)",
        "source": "App. C",
        "unit": sense.unit,
    }
    if not common:
        note = "no evaluation at an x where our Leduc runs have one"
        return Claim(**parts, verdict=NOT_TESTABLE, measured=None, note=note)
    big_leduc_mean, leduc_mean = big_leduc_gaps[common].mean(axis=1), leduc_gaps[common].mean(axis=1)
    measured = difference(leduc_mean, big_leduc_mean)
    note = (
        f"mean over x = {', '.join(map(str, common))}: Big Leduc {mean_ci(big_leduc_mean)}, "
        f"Leduc {mean_ci(leduc_mean)}; Welch's interval; holds if it is above 0"
    )
    later = _later(common)
    if later:
        without = difference(leduc_gaps[later].mean(axis=1), big_leduc_gaps[later].mean(axis=1))
        note += f"; without x = {LAGS_AT}: {without}, {above(without, 0)}"
    return Claim(**parts, verdict=unless_smoke(data, above(measured, 0)), measured=measured, note=note)


def _later(evaluated: list[int]) -> list[int]:
    """The points after the one at which S-hat lags; none if it is not among them."""
    return [x for x in evaluated if x > LAGS_AT] if LAGS_AT in evaluated else []


def _deep_performs_well(data: pd.DataFrame) -> Claim:
    gaps = relative_gap(data)
    measured: Estimate = mean_ci(gaps.mean(axis=1))
    note = (
        "Deep CFR minus SD-CFR over SD-CFR, mean over all evaluations, paired by seed; holds if the interval is "
        f"below {WELL:g}, a margin of our own; above 0 it would mean that SD-CFR is the better one all the same"
    )
    later = _later(points(gaps))
    if later:
        without = mean_ci(gaps[later].mean(axis=1))
        note += f"; without x = {LAGS_AT}: {without}, {below(without, WELL)}"
    return Claim(
        "deep_performs_well", "Deep CFR performs well on early iterations: about as well as SD-CFR (relative gap)",
        "App. C, title", unless_smoke(data, below(measured, WELL)), measured, "of SD-CFR's", note=note,
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Both curves and their gap, in Big Leduc and in Leduc, as Markdown."""
    lines = [
        f"| x (updates of one player) | SD-CFR [{UNIT}] | Deep CFR [{UNIT}] | gap [%] | gap in Leduc [%] |",
        "|---|---|---|---|---|",
    ]
    curves = [exploitability(data, readout) for readout in READOUTS]
    big_leduc_gaps, leduc_gaps = 100 * relative_gap(data), 100 * relative_gap(leduc())
    for x in points(big_leduc_gaps):
        cells = [str(mean_ci(column[x])) for column in (*curves, big_leduc_gaps)]
        cells.append(str(mean_ci(leduc_gaps[x])) if x in points(leduc_gaps) else "–")
        lines.append(f"| {x} | {' | '.join(cells)} |")
    return "\n".join(lines)
