"""SD-CFR Fig. 2: one-on-one performance of SD-CFR against Deep CFR in 5-FHP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import style
from paper_figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED, Claim, above
from paper_figures.exploitability_curves import unless_smoke
from repro.evaluation.statistics import bands, mean_ci

TITLE, GAME = "SD-CFR Fig. 2", "5-FHP"
SHOWS = "SD-CFR against Deep CFR, one-on-one"

UNIT = "mbb/g"
_QUANTILE = 1.96


def _metric(data: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A metric of the runs' SD-CFR read-out: one row per seed, one column per iteration."""
    mine = data[(data.algorithm == "sd_cfr") & (data.metric == metric)]
    return mine.pivot(index="seed", columns="step", values="value")


def winnings(data: pd.DataFrame) -> pd.DataFrame:
    """What SD-CFR wins against Deep CFR."""
    return _metric(data, "match/value")


def errors(data: pd.DataFrame) -> pd.DataFrame:
    """Standard errors of `winnings`, from the hands played."""
    return _metric(data, "match/standard_error")


def full_from(data: pd.DataFrame) -> float:
    """First iteration after which B^s of no run grows any more; nan if one still does at the end."""
    size = data[data.metric == "memory/strategy"].pivot(index="seed", columns="step", values="value")
    still = (size.diff(axis=1).iloc[:, 1:] > 0).any(axis=0)
    growing = [float(str(step)) for step, grows in still.items() if grows]
    first, last = (float(str(size.columns[i])) for i in (0, -1))
    full = max(growing, default=first)
    return float("nan") if full == last else full


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """The paper's plot: single runs dashed, with the confidence interval of each match, and their mean."""
    figure = Figure(figsize=(6.4, 4.2))
    axes: Axes = figure.subplots()
    won, error = winnings(data), errors(data)
    x = np.array([float(str(c)) for c in won.columns])
    colour = style.COLOURS["sd_cfr"]
    # Runs side by side, so that their bars can be told apart.
    apart = 0.012 * (x.max() - x.min() if len(x) > 1 else 1.0)
    for i, seed in enumerate(won.index):
        axes.errorbar(
            x + apart * (i - (len(won) - 1) / 2), won.loc[seed], yerr=_QUANTILE * error.loc[seed], color=colour,
            alpha=0.45, linewidth=0.9, linestyle="--", capsize=2, label=None if i else "runs, 95% CI over hands",
        )  # fmt: skip
    axes.plot(x, won.mean(axis=0), color=colour, linewidth=2, marker="o", label=f"mean of {len(won)} runs")
    if len(won) > 1:
        band = bands(list(won.to_numpy()))
        axes.fill_between(x, band["low"], band["high"], color=colour, alpha=0.15, linewidth=0, label="95% CI over runs")
    axes.set_xticks(x)
    axes.axhline(0, color="black", linewidth=0.8)
    full = full_from(data)
    if np.isfinite(full):
        axes.axvline(full, color="grey", linestyle=":", label="memories of strategies full")
    axes.set(xlabel="CFR iteration (both players)", ylabel=f"SD-CFR's winnings against Deep CFR ({UNIT})")
    axes.set_title(f"5-FHP, scale: {data.scale.iloc[0]}")
    axes.legend(fontsize=8)
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    return [_wins(data), _at_every_point(data), _after_full(data), _precise(data)]


def _wins(data: pd.DataFrame) -> Claim:
    measured = mean_ci(winnings(data).mean(axis=1))
    return Claim(
        "wins", "SD-CFR defeats Deep CFR (mean over all evaluations)", "Sec. 6.2, Fig. 2",
        unless_smoke(data, above(measured, 0)), measured, UNIT, note="interval over runs; holds if above 0",
    )  # fmt: skip


def _at_every_point(data: pd.DataFrame) -> Claim:
    won, half = winnings(data).to_numpy(), _QUANTILE * errors(data).to_numpy()
    wins, losses = int((won - half > 0).sum()), int((won + half < 0).sum())
    verdict = HELD if wins == won.size else DID_NOT_HOLD if losses else UNDECIDED
    return Claim(
        "wins_everywhere", "SD-CFR wins clearly at every point", "Fig. 2", unless_smoke(data, verdict), None, "",
        note=f"of {won.size} matches {wins} have a 95% interval over hands above 0, {losses} below; holds if all are "
        "above, does not if any is below",
    )  # fmt: skip


def _after_full(data: pd.DataFrame) -> Claim:
    parts: dict[str, Any] = {
        "id": "wins_after_full", "statement": "SD-CFR wins also after B^s is full", "source": "Sec. 6.2", "unit": UNIT,
    }  # fmt: skip
    full = full_from(data)
    later = winnings(data)
    later = later[[c for c in later.columns if np.isfinite(full) and float(str(c)) > full]]
    if later.empty or not len(later.columns):
        return Claim(**parts, verdict=NOT_TESTABLE, measured=None, note="no evaluation after the memories were full")
    measured = mean_ci(later.mean(axis=1))
    note = f"mean over the evaluations after iteration {full:.0f}; interval over runs; holds if above 0"
    return Claim(**parts, verdict=unless_smoke(data, above(measured, 0)), measured=measured, note=note)


def _precise(data: pd.DataFrame) -> Claim:
    widest = mean_ci([_QUANTILE * float(errors(data).to_numpy().max())])
    return Claim(
        "precise", "Every match has a 95% interval of at most ±7 mbb/g (the paper's are ±5.4 to ±6.51)", "ours",
        unless_smoke(data, HELD if widest.mean <= 7 else DID_NOT_HOLD), widest, UNIT, 6.51, "the widest half-width",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Winnings by iteration, as Markdown."""
    lines = [f"| iteration | SD-CFR's winnings [{UNIT}], mean over runs | half-width of one match |", "|---|---|---|"]
    won, error = winnings(data), errors(data)
    lines += [f"| {step} | {mean_ci(won[step])} | ±{_QUANTILE * error[step].mean():.1f} |" for step in won.columns]
    return "\n".join(lines)
