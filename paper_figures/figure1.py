"""SD-CFR Fig. 1: exploitability in Leduc of (a) SD-CFR and Deep CFR, (b) SD-CFR with reservoir sampling on B^M."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import style
from paper_figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, Claim, above
from paper_figures.exploitability_curves import (
    UNIT,
    exploitability,
    falls,
    gap,
    is_smoke,
    label_axes,
    points,
    unless_smoke,
)
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, mean_ci

TITLE = "SD-CFR Fig. 1a, 1b"
GAME = "Leduc"
SHOWS = "exploitability of SD-CFR and Deep CFR; reservoir sampling on B^M"
SWEEPS = (Sweep("", "experiment=figure1 seed=range(5)", {"smoke": "seed=range(2)"}),)

CAPACITIES = (10, 50, 100, 500, 1000)
TOLERANCE = 0.3
"""How far above the digitised value ours may be; below it there is no limit, less exploitability being better."""

_REFERENCE = Path(__file__).parent / "reference" / "figure1a.csv"


def reference() -> pd.DataFrame:
    """Paper values by `player_updates`: columns `sd_cfr`, `deep_cfr` in mA/g, as digitised by a third party."""
    return pd.read_csv(_REFERENCE, index_col="player_updates")


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """Both panels, log-log, as in the paper."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), sharey=True)
    seeds = data.seed.nunique()
    _draw_algorithms(left, data)
    _draw_capacities(right, data)
    left.set_title(f"(a) SD-CFR and Deep CFR, {seeds} runs")
    right.set_title(f"(b) Reservoir sampling on $B^M$, {seeds} runs")
    left.set_ylabel("exploitability = NashConv / 2 (mA/g)")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="updates of one player (two per iteration)")
        axes.legend(fontsize=8)
        label_axes(axes, data)
    figure.suptitle(
        f"Leduc, scale: {data.scale.iloc[0]}. Mean with 95% CI over runs, thin lines are single runs.", y=1.0
    )
    figure.tight_layout()
    return figure


def _draw_algorithms(axes: Axes, data: pd.DataFrame) -> None:
    paper = reference()
    last = 0.0
    for readout, marker in (("sd_cfr", "o"), ("deep_cfr", "s")):
        curves = exploitability(data, readout)
        colour, name = style.COLOURS[readout], style.NAMES[readout]
        style.curve(axes, points(curves), curves.to_numpy(), colour=colour, label=f"{name}, ours")
        last = max(last, *points(curves))
        within = paper[paper.index <= last * 1.02]
        axes.plot(
            within.index, within[readout], marker, color=colour, markerfacecolor="none", markersize=6,
            label=f"{name}, paper (digitised by a third party)",
        )  # fmt: skip


def _draw_capacities(axes: Axes, data: pd.DataFrame) -> None:
    colours = plt.get_cmap("viridis_r")(np.linspace(0.1, 0.85, len(CAPACITIES)))
    never_full: list[str] = []
    for capacity, colour in zip(CAPACITIES, colours, strict=True):
        curves = exploitability(data, f"sd_cfr_{capacity}")
        if capacity >= max(points(curves)) / 2:
            never_full.append(str(capacity))
            continue
        style.curve(axes, points(curves), curves.to_numpy(), colour=colour, label=f"$|B^M|$ = {capacity}")
    curves = exploitability(data, "sd_cfr")
    label = f"all networks (also {' and '.join(never_full)}: never full)" if never_full else "all networks"
    style.curve(axes, points(curves), curves.to_numpy(), colour=style.COLOURS["sd_cfr"], label=label)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    judged = [_sd_below_deep(data), _sd_below_deep_at_the_end(data)]
    judged += [falls(data, readout, "Fig. 1a", reference()[readout]) for readout in ("sd_cfr", "deep_cfr")]
    judged += [_value(data, readout, x) for x in reference().index for readout in ("sd_cfr", "deep_cfr")]
    judged += [_plateaus(data, capacity) for capacity in CAPACITIES]
    judged += [_oscillates(data, capacity) for capacity in CAPACITIES]
    return judged


def _sd_below_deep(data: pd.DataFrame) -> Claim:
    paired, paper = gap(data), reference()
    common = [x for x in points(paired) if x in paper.index]
    difference = mean_ci(paired[common or points(paired)].mean(axis=1))
    paper = paper.loc[common]
    return Claim(
        "sd_below_deep", "SD-CFR minimises exploitability better than Deep CFR (mean gap over the digitised points)",
        "Sec. 6.1, Fig. 1a", unless_smoke(data, above(difference, 0)), difference, UNIT,
        float((paper.deep_cfr - paper.sd_cfr).mean()) if len(paper) else None,
        "Deep CFR minus SD-CFR, paired by seed; holds if the interval is above 0",
    )  # fmt: skip


def _sd_below_deep_at_the_end(data: pd.DataFrame) -> Claim:
    paired = gap(data)
    last = max(points(paired))
    difference = mean_ci(paired[last])
    paper = reference()
    return Claim(
        "sd_below_deep_at_the_end", f"SD-CFR is below Deep CFR at the last evaluation (x = {last})", "Fig. 1a",
        unless_smoke(data, above(difference, 0)), difference, UNIT,
        float(paper.deep_cfr[last] - paper.sd_cfr[last]) if last in paper.index else None,
        "paired by seed; holds if the interval is above 0",
    )  # fmt: skip


def _value(data: pd.DataFrame, readout: str, x: int) -> Claim:
    name, paper = style.NAMES[readout], float(reference()[readout][x])
    parts: dict[str, Any] = {
        "id": f"{readout}_at_{x}",
        "statement": f"{name}'s exploitability at x = {x}",
        "source": "Fig. 1a, digitised by a third party",
        "unit": UNIT,
        "paper": paper,
    }
    curves = exploitability(data, readout)
    if is_smoke(data) or x not in points(curves):
        return Claim(**parts, verdict=NOT_TESTABLE, measured=None, note=f"runs end at x = {max(points(curves))}")
    ours = mean_ci(curves[x])
    note = f"{ours.mean / paper:.2f} times the paper's; holds if at most {1 + TOLERANCE:g} times"
    return Claim(
        **parts, verdict=HELD if ours.mean <= (1 + TOLERANCE) * paper else DID_NOT_HOLD, measured=ours, note=note
    )


def _capped(data: pd.DataFrame, capacity: int) -> tuple[pd.DataFrame, pd.DataFrame, bool]:
    """Curves of the capped and of the full B^M, and whether the cap is ever reached well before the end."""
    capped, full = exploitability(data, f"sd_cfr_{capacity}"), exploitability(data, "sd_cfr")
    return capped, full, capacity <= data.step.max() / 2 and not is_smoke(data)


def _plateaus(data: pd.DataFrame, capacity: int) -> Claim:
    capped, full, testable = _capped(data, capacity)
    last = max(points(capped))
    difference = mean_ci(capped[last] - full[last])
    return Claim(
        f"capacity_{capacity}_plateaus", f"B^M capped at {capacity} networks ends above the full B^M",
        "Sec. 6.1, Fig. 1b",
        above(difference, 0) if testable else NOT_TESTABLE, difference if testable else None, UNIT,
        note="capped minus full at the last evaluation, paired by seed; holds if the interval is above 0"
        if testable else "needs at least twice as many iterations as networks kept",
    )  # fmt: skip


def _oscillates(data: pd.DataFrame, capacity: int) -> Claim:
    capped, full, testable = _capped(data, capacity)
    parts: dict[str, Any] = {
        "id": f"capacity_{capacity}_oscillates",
        "statement": f"B^M capped at {capacity} networks oscillates more than the full B^M",
        "source": "Sec. 6.1, Fig. 1b",
        "unit": "ratio",
    }
    if not testable:
        note = "needs at least twice as many iterations as networks kept"
        return Claim(**parts, verdict=NOT_TESTABLE, measured=None, note=note)
    once_full = [x for x in points(capped) if x >= 2 * capacity]
    log_ratio = mean_ci(np.log(_swing(capped[once_full]) / _swing(full[once_full])))
    mean, low, high = np.exp([log_ratio.mean, log_ratio.low, log_ratio.high]).tolist()
    ratio = Estimate(mean, low, high, log_ratio.n)
    note = (
        "spread about a straight line in log-log once B^M is full, over the full B^M's, geometric mean; "
        "holds if the interval is above 1"
    )
    return Claim(**parts, verdict=above(ratio, 1), measured=ratio, note=note)


def _swing(curves: pd.DataFrame) -> pd.Series:
    """Per seed, the standard deviation of log exploitability about its straight-line trend in log x."""
    x = np.log(points(curves))

    def residual(values: pd.Series) -> float:
        y = np.log(values.to_numpy(dtype=float))
        return float(np.std(y - np.polyval(np.polyfit(x, y, 1), x)))

    return curves.apply(residual, axis=1)


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Ours beside the paper's, as Markdown."""
    paper = reference()
    lines = [
        "| x (updates of one player) | SD-CFR ours | SD-CFR paper | Deep CFR ours | Deep CFR paper |",
        "|---|---|---|---|---|",
    ]
    curves = {a: exploitability(data, a) for a in ("sd_cfr", "deep_cfr")}
    for x in points(curves["sd_cfr"]):
        cells = []
        for readout in ("sd_cfr", "deep_cfr"):
            cells.append(str(mean_ci(curves[readout][x])))
            cells.append(f"{paper[readout][x]:g}" if x in paper.index else "–")
        lines.append(f"| {x} | {' | '.join(cells)} |")
    return "\n".join(lines)
