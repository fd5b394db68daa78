"""SD-CFR Fig. 1: exploitability in Leduc of (a) SD-CFR and Deep CFR, (b) SD-CFR with reservoir sampling on B^M."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import style
from paper_figures.exploitability_curves import (
    LAGS_AT,
    UNIT,
    exploitability,
    falls,
    gap,
    is_smoke,
    label_axes,
    points,
    unless_smoke,
)
from paper_figures.matches import as_large
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, above, within

TITLE = "SD-CFR Fig. 1a, 1b"
GAME = "Leduc"
SHOWS = "exploitability of SD-CFR and Deep CFR; reservoir sampling on B^M"
_BESIDE = ("fresh", "aggregated", "linear_cfr", "start")
"""Sweeps of ours, beside the published one."""
SWEEPS = (
    Sweep("published", "experiment=figure1 seed=range(5)", {"smoke": "seed=range(2)"}),
    # Ran after the rule on the x-axis had been settled, for that claim alone.
    Sweep("fresh", "experiment=figure1 seed=range(5,10)", only=("paper",)),
    # Every sample ever drawn, summed per infoset, where the published memory holds a million of them.
    Sweep(
        "aggregated", "experiment=figure1 algorithm.memory=aggregated seed=range(5)", {"smoke": "seed=0"},
        only=("smoke", "paper"),
    ),
    # A reading of Deep CFR's curve has a point at x = 10, before the paper's code evaluates for the first time.
    Sweep(
        "start", "experiment=figure1 algorithm.iterations=10 algorithm.snapshot_every=5 seed=range(5)",
        only=("laptop", "paper"),
    ),
    Sweep(
        "linear_cfr",
        "game=leduc algorithm=linear_cfr algorithm.iterations=2490 algorithm.snapshot_every=5 seed=range(1)",
        {"laptop": "algorithm.iterations=150", "smoke": "algorithm.iterations=20 algorithm.snapshot_every=2"},
    ),
)  # fmt: skip

CAPACITIES = (10, 50, 100, 500, 1000)
_DASHES = {500: "--", 1000: ":"}
"""Of capacities whose curves lie on that of all networks."""

_FRESH_SEEDS = "seeds that ran after the rule was settled"
TOLERANCE = 1.3
"""By which factor ours may differ from a digitised value, either way."""

_REFERENCE = Path(__file__).parent / "reference" / "figure1a.csv"
_OTHERS = Path(__file__).parent / "reference" / "figure1a_others.csv"


def reference() -> pd.DataFrame:
    """Paper values by `player_updates`: columns `sd_cfr`, `deep_cfr` in mA/g, as digitised by a third party."""
    return pd.read_csv(_REFERENCE, index_col="player_updates")


def select(data: pd.DataFrame) -> pd.DataFrame:
    """Exploitability, and what is known of the trainings where it was measured; of every iteration it is much."""
    evaluated = data.step.isin(data[data.metric == "exploitability"].step.unique())
    return data[evaluated & ((data.metric == "exploitability") | (data.readout == "training"))]


# -- drawing ---------------------------------------------------------------------------------------------------------


def published(data: pd.DataFrame) -> pd.DataFrame:
    """What is of the runs of the published setting."""
    return data[~data.sweep.isin(_BESIDE)]


def from_the_start(data: pd.DataFrame, readout: str) -> pd.DataFrame:
    """`exploitability` of the published setting, with points before its first evaluation where they were measured."""
    start, rest = data[data.sweep == "start"], exploitability(published(data), readout)
    return rest if start.empty else pd.concat([exploitability(start, readout), rest], axis=1, join="inner")


def draw(data: pd.DataFrame) -> Figure:
    """Both panels, log-log, as in the paper, and in the left one our own curves."""
    every, data = data, published(data)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), sharey=True)
    seeds = data.seed.nunique()
    _draw_algorithms(left, every)
    _draw_beside(left, every)
    _draw_capacities(right, data)
    left.set_title(f"(a) SD-CFR and Deep CFR, {seeds} runs")
    right.set_title(f"(b) Reservoir sampling on $B^M$, {seeds} runs")
    left.set_ylabel("exploitability = NashConv / 2 (mA/g)")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="updates of one player (two per iteration)")
        axes.legend(fontsize=8)
        label_axes(axes, every)
    figure.suptitle(
        f"Leduc, scale: {data.scale.iloc[0]}. Mean with 95% CI over runs, thin lines are single runs.", y=1.0
    )
    figure.tight_layout()
    return figure


def _draw_algorithms(axes: Axes, data: pd.DataFrame) -> None:
    paper = reference()
    last = 0.0
    for readout, marker in (("sd_cfr", "o"), ("deep_cfr", "s")):
        curves = from_the_start(data, readout)
        colour, name = style.COLOURS[readout], style.NAMES[readout]
        style.curve(axes, points(curves), curves.to_numpy(), colour=colour, label=f"{name}, ours")
        last = max(last, *points(curves))
        within = paper[paper.index <= last * 1.02]
        axes.plot(
            within.index, within[readout], marker, color=colour, markerfacecolor="none", markersize=6,
            label=f"{name}, paper (digitised by a third party)",
        )  # fmt: skip


def _draw_beside(axes: Axes, data: pd.DataFrame) -> None:
    aggregated, exact = (data[data.sweep == name] for name in ("aggregated", "linear_cfr"))
    if len(aggregated):
        for readout, dash in (("sd_cfr", "--"), ("deep_cfr", ":")):
            curves = exploitability(aggregated, readout)
            axes.plot(
                points(curves), curves.mean(), dash, color="#009E73", linewidth=1.2,
                label=f"{style.NAMES[readout]}, memory of all samples (ours, mean)",
            )  # fmt: skip
    if len(exact):
        curve = exploitability(exact, "linear_cfr")
        axes.plot(points(curve), curve.iloc[0], color="black", linewidth=0.9, label="Linear CFR, exact, on tables")


def _draw_capacities(axes: Axes, data: pd.DataFrame) -> None:
    colours = plt.get_cmap("viridis_r")(np.linspace(0.1, 0.85, len(CAPACITIES)))
    never_full: list[str] = []
    for capacity, colour in zip(CAPACITIES, colours, strict=True):
        curves = exploitability(data, f"sd_cfr_{capacity}")
        if capacity >= max(points(curves)) / 2:
            never_full.append(str(capacity))
            continue
        label, dash = f"$|B^M|$ = {capacity}", _DASHES.get(capacity, "-")
        style.curve(axes, points(curves), curves.to_numpy(), colour=colour, label=label, dash=dash)
    curves = exploitability(data, "sd_cfr")
    label = f"all networks (also {' and '.join(never_full)}: never full)" if never_full else "all networks"
    style.curve(axes, points(curves), curves.to_numpy(), colour=style.COLOURS["sd_cfr"], label=label)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    fresh, data = data[data.sweep == "fresh"], published(data)
    judged = [*_gaps(data), _reading(data), _reading(fresh, unseen=True)]
    # By seeds that ran after these rules were written; it was added after their values had been seen.
    judged += [_of_fresh_seeds(claim) for claim in _gaps(fresh)] if len(fresh) else []
    judged += [falls(data, readout, "Fig. 1a", reference()[readout]) for readout in ("sd_cfr", "deep_cfr")]
    judged += [_value(data, readout, x) for x in reference().index for readout in ("sd_cfr", "deep_cfr")]
    judged += [claim for capacity in CAPACITIES for claim in _of_capacity(data, capacity)]
    return judged


def _gaps(data: pd.DataFrame) -> list[Claim]:
    """Sign and size of the gap between both algorithms, in the mean over the curve and at the last evaluation."""
    return [_sd_below_deep(data), _as_large(data), *_at_the_end(data)]


def _of_fresh_seeds(claim: Claim) -> Claim:
    """A claim that was judged by the seeds of the sweep `fresh`."""
    return replace(claim, id=f"{claim.id}_unseen", statement=f"{claim.statement} ({_FRESH_SEEDS})")


def _sd_below_deep(data: pd.DataFrame) -> Claim:
    paired, paper = gap(data), reference()
    # S-hat is of the iterations so far, the average of B^M has one more: at the first point an eighth of the weight.
    common = [x for x in points(paired) if x in paper.index and x > LAGS_AT]
    difference = mean_ci(paired[common or points(paired)].mean(axis=1))
    paper = paper.loc[common]
    return Claim(
        "sd_below_deep", "SD-CFR minimises exploitability better than Deep CFR (mean gap over the digitised points)",
        "Sec. 6.1, Fig. 1a", unless_smoke(data, above(difference, 0)), difference, UNIT,
        float((paper.deep_cfr - paper.sd_cfr).mean()) if len(paper) else None,
        f"Deep CFR minus SD-CFR, paired by seed, after x = {LAGS_AT}; holds if the interval is above 0",
    )  # fmt: skip


def _as_large(data: pd.DataFrame) -> Claim:
    """That the mean gap is as large as the paper's, either way."""
    below_deep = _sd_below_deep(data)
    return Claim(
        id="gap_as_large",
        statement="SD-CFR is below Deep CFR by as much as in the paper (mean gap over the digitised points)",
        **_size(data, below_deep, f"paired by seed, after x = {LAGS_AT}"),
    )


def _size(data: pd.DataFrame, below_deep: Claim, how: str) -> dict[str, Any]:
    """What a claim of the size of a gap has of the claim of its sign."""
    ours, paper = below_deep.measured, below_deep.paper
    assert ours is not None
    # Digitised values have no interval.
    verdict, note = (NOT_TESTABLE, "no digitised point was met") if paper is None else as_large(ours, paper, 0.0)
    return {
        "source": "Fig. 1a, digitised by a third party", "verdict": unless_smoke(data, verdict), "measured": ours,
        "unit": UNIT, "paper": paper, "note": f"{how}; {note}",
    }  # fmt: skip


def _at_the_end(data: pd.DataFrame) -> list[Claim]:
    """Sign and size of the gap at the last evaluation."""
    paired = gap(data)
    last = max(points(paired))
    difference = mean_ci(paired[last])
    paper = reference()
    below_deep = Claim(
        "sd_below_deep_at_the_end", f"SD-CFR is below Deep CFR at the last evaluation (x = {last})", "Fig. 1a",
        unless_smoke(data, above(difference, 0)), difference, UNIT,
        float(paper.deep_cfr[last] - paper.sd_cfr[last]) if last in paper.index else None,
        "paired by seed; holds if the interval is above 0",
    )  # fmt: skip
    statement = f"SD-CFR is below Deep CFR by as much as in the paper at the last evaluation (x = {last})"
    size = _size(data, below_deep, "paired by seed")
    return [below_deep, Claim(id="gap_at_the_end_as_large", statement=statement, **size)]


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
    note = (
        f"{ours.mean / paper:.2f} times the paper's; holds if the interval is within a factor of {TOLERANCE:g}, and "
        "does not if it is wholly outside"
    )
    return Claim(**parts, verdict=within(ours, paper / TOLERANCE, paper * TOLERANCE), measured=ours, note=note)


def _reading(data: pd.DataFrame, unseen: bool = False) -> Claim:
    """Which reading of the x-axis the digitised points support; a run decides by its own fit to them.

    The other reading may have the paper's formula, the sum over players, for its unit: twice ours.

    Args:
        unseen: `data` are of seeds that ran after this rule was settled.
    """
    parts: dict[str, Any] = {
        "id": "x_counts_player_updates_unseen" if unseen else "x_counts_player_updates",
        "statement": "The x-axis counts updates of one player, and not iterations that update both"
        + (f" ({_FRESH_SEEDS})" if unseen else ""),
        "source": "App. A; Fig. 1a, digitised by a third party",
        "unit": "log ratio, root mean square",
    }
    if data.empty:
        return Claim(**parts, verdict=NOT_TESTABLE, measured=None, note="no such seeds at this scale")
    own = points(exploitability(data, "sd_cfr"))
    common = [x for x in reference().index if x in own and 2 * x in own]
    if is_smoke(data) or not common:
        return Claim(**parts, verdict=NOT_TESTABLE, measured=None, note=f"runs end at x = {max(own)}")
    ours = _misfit(data, common, 1, 1)
    _, unit, other = min((rival.mean(), unit, rival) for unit in (1, 2) for rival in [_misfit(data, common, 2, unit)])
    difference = mean_ci(other - ours)
    note = (
        f"how much worse the points at x = {', '.join(map(str, common))} of both algorithms fit if they are "
        f"iterations, and exploitability the {'sum' if unit == 2 else 'mean'} over players (what fits better): "
        f"{other.mean():.2f} less {ours.mean():.2f}; holds if the interval is above 0"
    )
    return Claim(**parts, verdict=above(difference, 0), measured=difference, note=note)


def _misfit(data: pd.DataFrame, common: list[int], updates: int, unit: int) -> pd.Series:
    """Per seed, the root mean square of log(ours / paper's), taking x for so many `updates` of one player, and the
    paper's exploitability for `unit` times ours."""
    squares = [
        np.log(unit * exploitability(data, readout)[updates * x] / float(reference()[readout][x])) ** 2
        for x in common
        for readout in ("sd_cfr", "deep_cfr")
    ]
    return np.sqrt(pd.concat(squares, axis=1).mean(axis=1))


def _of_capacity(data: pd.DataFrame, capacity: int) -> list[Claim]:
    """What is said of a capped B^M, judged from where it is full."""
    capped, full = exploitability(data, f"sd_cfr_{capacity}"), exploitability(data, "sd_cfr")
    testable = capacity <= data.step.max() / 2 and not is_smoke(data)
    once_full = [x for x in points(capped) if x >= 2 * capacity]
    claims = []
    for name, statement, unit, bound, measure, note in (
        ("ends_above", "ends above the full B^M", UNIT, 0, _gap_at_the_end, "capped minus full at the last evaluation"),
        (
            "plateaus", "flattens: it falls more slowly than the full B^M", "difference of slopes", 0, _gap_of_slopes,
            "slope in log-log (all evaluations weigh alike) once B^M is full, less the full B^M's",
        ),
        (
            "oscillates", "oscillates more than the full B^M", "ratio", 1, _ratio_of_swings,
            "spread about a straight line in log-log once B^M is full, over the full B^M's, geometric mean",
        ),
    ):  # fmt: skip
        measured = measure(capped[once_full], full[once_full]) if testable else None
        how = f"{note}, paired by seed; holds if the interval is above {bound}"
        claims.append(
            Claim(
                f"capacity_{capacity}_{name}", f"B^M capped at {capacity} networks {statement}", "Sec. 6.1, Fig. 1b",
                above(measured, bound) if measured else NOT_TESTABLE, measured, unit,
                note=how if testable else "needs at least twice as many iterations as networks kept",
            )
        )  # fmt: skip
    return claims


def _gap_at_the_end(capped: pd.DataFrame, full: pd.DataFrame) -> Estimate:
    last = max(points(capped))
    return mean_ci(capped[last] - full[last])


def _gap_of_slopes(capped: pd.DataFrame, full: pd.DataFrame) -> Estimate:
    return mean_ci(_slope(capped) - _slope(full))


def _ratio_of_swings(capped: pd.DataFrame, full: pd.DataFrame) -> Estimate:
    log_ratio = mean_ci(np.log(_swing(capped) / _swing(full)))
    mean, low, high = np.exp([log_ratio.mean, log_ratio.low, log_ratio.high]).tolist()
    return Estimate(mean, low, high, log_ratio.n)


def _slope(curves: pd.DataFrame) -> pd.Series:
    """Per seed, the slope of log exploitability over log x."""
    x = np.log(points(curves))
    return curves.apply(lambda values: float(np.polyfit(x, np.log(values.to_numpy(dtype=float)), 1)[0]), axis=1)


def _swing(curves: pd.DataFrame) -> pd.Series:
    """Per seed, the standard deviation of log exploitability about its straight-line trend in log x."""
    x = np.log(points(curves))

    def residual(values: pd.Series) -> float:
        y = np.log(values.to_numpy(dtype=float))
        return float(np.std(y - np.polyval(np.polyfit(x, y, 1), x)))

    return curves.apply(residual, axis=1)


# -- the page --------------------------------------------------------------------------------------------------------


_ROWS = 20
_NEAR = 1.1
"""By which factor the x of two numbers may differ that stand beside each other."""


def table(data: pd.DataFrame) -> str:
    """Ours beside the paper's, and beside what others have, as Markdown."""
    return f"{_beside_the_papers(data)}\n\n{_beside_others(data)}"


def _beside_the_papers(data: pd.DataFrame) -> str:
    paper = reference()
    columns = {f"{style.NAMES[a]} ours": from_the_start(data, a) for a in ("sd_cfr", "deep_cfr")}
    aggregated, exact = (data[data.sweep == name] for name in ("aggregated", "linear_cfr"))
    if len(aggregated):
        for readout in ("sd_cfr", "deep_cfr"):
            columns[f"{style.NAMES[readout]}, memory of all samples"] = exploitability(aggregated, readout)
    if len(exact):
        columns["Linear CFR, exact"] = exploitability(exact, "linear_cfr")
    header = ["x (updates of one player)", *columns, "SD-CFR paper", "Deep CFR paper"]
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for x in _shown(points(columns["SD-CFR ours"])):
        ours = [str(mean_ci(column[x])) if x in column else "–" for column in columns.values()]
        papers = [f"{paper[readout][x]:g}" if x in paper.index else "–" for readout in ("sd_cfr", "deep_cfr")]
        lines.append(f"| {x} | {' | '.join([*ours, *papers])} |")
    return "\n".join(lines)


def _beside_others(data: pd.DataFrame) -> str:
    """What others measured or read, each with ours at the nearest x."""
    lines = ["| x | whose | | theirs | ours | at x |", "|---|---|---|---|---|---|"]
    for _, theirs in pd.read_csv(_OTHERS).iterrows():
        ours = from_the_start(data, theirs.algorithm)
        apart = np.abs(np.log(np.array(points(ours)) / theirs.player_updates))
        if apart.min() > np.log(_NEAR):
            continue
        nearest = points(ours)[int(apart.argmin())]
        spread = "" if np.isnan(theirs.plus_minus) else f" ± {theirs.plus_minus:g}"
        lines.append(
            f"| {theirs.player_updates} | {theirs.source} | {style.NAMES[theirs.algorithm]} | {theirs.value:g}{spread} "
            f"| {mean_ci(ours[nearest])} | {nearest} |"
        )
    return "\n".join(lines)


def _shown(every: list[int]) -> list[int]:
    """The digitised points, and some beside them where there are few."""
    return every if len(every) <= _ROWS else [x for x in every if x in reference().index or x in (every[0], every[-1])]
