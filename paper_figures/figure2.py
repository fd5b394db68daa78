"""SD-CFR Fig. 2: one-on-one performance of SD-CFR against Deep CFR in 5-FHP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import style
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.matches import QUANTILE, UNIT, draw_runs, errors, winnings
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import mean_ci
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED, Claim, above
from repro.figures.frame import curves

TITLE, GAME = "SD-CFR Fig. 2", "5-FHP"
SHOWS = "SD-CFR against Deep CFR, one-on-one"
SWEEPS = (
    Sweep(
        "",
        "experiment=figure2 seed=range(3) evaluation=[exploitability,match] evaluation.match.hands=3000000 "
        "evaluation.match.readouts=[sd_cfr,as_collected] +evaluation.match.opponents.deep_cfr=/deep_cfr",
        {"smoke": "seed=range(2) evaluation.match.hands=2000"},
    ),
)


AS_COLLECTED = "as_collected"
"""The average that S-hat learns, with player 1's strategies an iteration late as in B^s."""


def full_from(data: pd.DataFrame) -> float:
    """First iteration after which B^s of no run grows any more; nan if one still does at the end."""
    size = curves(data, "memory/strategy")
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
    draw_runs(
        axes,
        winnings(data, "deep_cfr", readout="sd_cfr"),
        errors(data, "deep_cfr", readout="sd_cfr"),
        style.COLOURS["sd_cfr"],
    )
    on_time = winnings(data, "deep_cfr", readout=AS_COLLECTED).mean(axis=0)
    axes.plot(on_time.index, on_time, color="#555555", linestyle=":", marker="s", markersize=4,
              label="what S-hat is to learn against it, mean")  # fmt: skip
    full = full_from(data)
    if np.isfinite(full):
        axes.axvline(full, color="grey", linestyle=":", label="memories of strategies full")
    axes.set(xlabel="CFR iteration (both players)", ylabel=f"SD-CFR's winnings against Deep CFR ({UNIT})")
    axes.set_title(f"5-FHP, scale: {data.scale.iloc[0]}")
    axes.set_ylim(top=1.4 * axes.get_ylim()[1])  # Room for the legend.
    axes.legend(fontsize=8, loc="upper right")
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    return [_wins(data), _at_every_point(data), _after_full(data), _beyond_the_lag(data), _precise(data)]


def _wins(data: pd.DataFrame) -> Claim:
    measured = mean_ci(winnings(data, "deep_cfr", readout="sd_cfr").mean(axis=1))
    return Claim(
        "wins", "SD-CFR defeats Deep CFR (mean over all evaluations)", "Sec. 6.2, Fig. 2",
        unless_smoke(data, above(measured, 0)), measured, UNIT, note="interval over runs; holds if above 0",
    )  # fmt: skip


def _at_every_point(data: pd.DataFrame) -> Claim:
    won, half = (
        winnings(data, "deep_cfr", readout="sd_cfr").to_numpy(),
        QUANTILE * errors(data, "deep_cfr", readout="sd_cfr").to_numpy(),
    )
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
    later = winnings(data, "deep_cfr", readout="sd_cfr")
    later = later[[c for c in later.columns if np.isfinite(full) and float(str(c)) > full]]
    if later.empty or not len(later.columns):
        return Claim(**parts, verdict=NOT_TESTABLE, measured=None, note="no evaluation after the memories were full")
    measured = mean_ci(later.mean(axis=1))
    note = f"mean over the evaluations after iteration {full:.0f}; interval over runs; holds if above 0"
    return Claim(**parts, verdict=unless_smoke(data, above(measured, 0)), measured=measured, note=note)


def _beyond_the_lag(data: pd.DataFrame) -> Claim:
    measured = mean_ci(winnings(data, "deep_cfr", readout=AS_COLLECTED).mean(axis=1))
    return Claim(
        "beyond_the_lag", "What S-hat is to learn defeats Deep CFR, too: the lead is more than player 1's lag", "ours",
        unless_smoke(data, above(measured, 0)), measured, UNIT,
        note="the networks' average with player 1's an iteration late, as in B^s; mean over all evaluations, interval "
        "over runs; holds if above 0",
    )  # fmt: skip


def _precise(data: pd.DataFrame) -> Claim:
    widest = mean_ci([QUANTILE * float(errors(data, "deep_cfr", readout="sd_cfr").to_numpy().max())])
    return Claim(
        "precise", "Every match has a 95% interval of at most ±7 mbb/g (the paper's are ±5.4 to ±6.51)", "ours",
        unless_smoke(data, HELD if widest.mean <= 7 else DID_NOT_HOLD), widest, UNIT, 6.51, "the widest half-width",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Winnings by iteration, as Markdown."""
    lines = [
        f"| iteration | SD-CFR's winnings [{UNIT}], mean over runs | what S-hat is to learn | half-width of a match |",
        "|---|---|---|---|",
    ]
    won, error = winnings(data, "deep_cfr", readout="sd_cfr"), errors(data, "deep_cfr", readout="sd_cfr")
    late = winnings(data, "deep_cfr", readout=AS_COLLECTED)
    lines += [
        f"| {step} | {mean_ci(won[step])} | {mean_ci(late[step])} | ±{QUANTILE * error[step].mean():.1f} |"
        for step in won.columns
    ]
    return "\n".join(lines)
