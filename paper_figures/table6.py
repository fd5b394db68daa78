"""DEVN Table 3 and Supplement Table 6: unbucketed losses of DCVN and DEVN, with buckets and without."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paper_figures.claims import Claim, above
from paper_figures.devn_runs import (
    BUCKETED,
    COLOURS,
    DCVN,
    DEVN,
    GAME,
    UNABSTRACTED,
    UNIT,
    ZERO_SUM,
    Setting,
    by_seed,
    encoding_error,
    final,
    improvement,
    layers,
    over_layers,
    runs,
    title,
)
from paper_figures.exploitability_curves import unless_smoke
from repro.evaluation.statistics import mean_ci

__all__ = ["GAME", "RUNS", "SHOWS", "TITLE", "claims", "draw", "select", "table"]

TITLE = "DEVN Table 3 and Supplement Table 6"
SHOWS = "unbucketed losses of DCVN and DEVN, settings I to VII"

SETTINGS = (*BUCKETED, *UNABSTRACTED)
RUNS = runs(SETTINGS)
select = final


def draw(data: pd.DataFrame) -> Figure:
    """DEVN's improvement over DCVN, by setting and number of layers, beside the paper's."""
    figure = Figure(figsize=(10.0, 4.4))
    upper, lower = figure.subplots(1, 2, sharey=True)
    for axes, metric, name in ((upper, "unbucketed", "all subgames (RMSE)"), (lower, "typical", "median subgame")):
        for i, setting in enumerate(SETTINGS):
            depths = layers(data, setting)
            for j, hidden in enumerate(depths):
                found = mean_ci(improvement(data, setting, hidden, metric))
                x = i + (j - (len(depths) - 1) / 2) * 0.2
                spread = [[found.mean - found.low], [found.high - found.mean]] if found.n > 1 else None
                first = i == j == 0
                axes.errorbar(
                    x, found.mean, yerr=spread, fmt="o", color=COLOURS[DEVN], capsize=2, markersize=4,
                    label="ours" if first else None,
                )  # fmt: skip
                if metric == "unbucketed" and hidden in setting.paper:
                    theirs, mine = setting.paper[hidden]
                    axes.plot(
                        x, 100 * (1 - mine / theirs), "D", color="black", markerfacecolor="white", markersize=4,
                        label="paper" if first else None,
                    )  # fmt: skip
                axes.annotate(str(hidden), (x, 0), (x, 0.01), textcoords=("data", "axes fraction"), fontsize=6)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(np.arange(len(SETTINGS)), [str(s) for s in SETTINGS])
        axes.set(xlabel="setting (small numbers: hidden layers)", title=f"{name}")
        axes.legend(fontsize=7)
    upper.set(ylabel="DEVN's error below DCVN's (%)")
    figure.suptitle(title(data, "DEVN's improvement over DCVN in unbucketed loss"))
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """That DEVN's loss is lower in every setting and at every depth, and more so for larger networks."""
    found = []
    for setting in SETTINGS:
        found += [_lower(data, setting, hidden) for hidden in layers(data, setting)]
        found.append(_typical(data, setting))
        found.append(_larger(data, setting))
        found.append(_zero_sum(data, setting))
    return found


def _source(setting: Setting) -> str:
    return "Table 3" if setting in BUCKETED else "Supplement Table 6"


def _lower(data: pd.DataFrame, setting: Setting, hidden: int) -> Claim:
    measured = mean_ci(improvement(data, setting, hidden))
    theirs, mine = setting.paper[hidden]
    return Claim(
        f"{setting.name}_{hidden}", f"DEVN's unbucketed loss is below DCVN's: setting {setting}, {hidden} layers",
        _source(setting), unless_smoke(data, above(measured, 0)), measured, "%", 100 * (1 - mine / theirs),
        note="relative improvement, paired by seed; holds if above 0",
    )  # fmt: skip


def _typical(data: pd.DataFrame, setting: Setting) -> Claim:
    measured = over_layers(data, setting, "typical")
    return Claim(
        f"{setting.name}_typical", f"So it is in the median subgame: setting {setting}", "ours",
        unless_smoke(data, above(measured, 0)), measured, "%",
        note="relative improvement, the mean over numbers of layers, paired by seed; holds if above 0",
    )  # fmt: skip


def _larger(data: pd.DataFrame, setting: Setting) -> Claim:
    few, many = layers(data, setting)[0], layers(data, setting)[-1]
    measured = mean_ci(improvement(data, setting, many) - improvement(data, setting, few))
    theirs = [100 * (1 - mine / before) for before, mine in (setting.paper[few], setting.paper[many])]
    return Claim(
        f"{setting.name}_larger", f"The improvement is larger with {many} layers than with {few}: setting {setting}",
        "Sec. 7" if setting in BUCKETED else _source(setting), unless_smoke(data, above(measured, 0)), measured,
        "percentage points", theirs[1] - theirs[0], note="paired by seed; holds if above 0",
    )  # fmt: skip


def _zero_sum(data: pd.DataFrame, setting: Setting) -> Claim:
    found = [improvement(data, setting, n, of=(DEVN, ZERO_SUM)) for n in layers(data, setting)]
    measured = mean_ci(pd.concat(found, axis=1).mean(axis=1))
    return Claim(
        f"{setting.name}_zero_sum", f"Making predictions zero-sum lowers DEVN's unbucketed loss: setting {setting}",
        "ours", unless_smoke(data, above(measured, 0)), measured, "%",
        note="the same networks; the mean over numbers of layers; holds if above 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The paper's table, with ours, and the labels' exploitability."""
    lines = [
        "| setting | layers | DCVN | DEVN | DEVN, zero-sum | improvement [%] | median subgame: DCVN | DEVN | "
        "paper: DCVN, DEVN, improvement |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        for hidden in layers(data, setting):
            losses = " | ".join(str(mean_ci(by_seed(data, setting, m, hidden))) for m in (DCVN, DEVN, ZERO_SUM))
            typical = " | ".join(str(mean_ci(by_seed(data, setting, m, hidden, "typical"))) for m in (DCVN, DEVN))
            theirs, mine = setting.paper[hidden]
            lines.append(
                f"| {setting} | {hidden} | {losses} | {mean_ci(improvement(data, setting, hidden))} | {typical} | "
                f"{theirs}, {mine}, {100 * (1 - mine / theirs):.2f} |"
            )
        if setting in BUCKETED:
            errors = [encoding_error(data, setting, m) for m in (DCVN, DEVN)]
            lines.append(
                f"| {setting} | encoding error | {errors[0]:.3g} | {errors[1]:.3g} | – | "
                f"{100 * (1 - errors[1] / errors[0]):.3g} | – | – | see table 4 |"
            )
    return "\n".join([*lines, "", f"Errors in {UNIT}, with 95% intervals over seeds.", "", *_labels(data)])


def _labels(data: pd.DataFrame) -> list[str]:
    """How exploitable the solutions are that the networks learn from."""
    found = []
    for part, rows in data[data.part.str.startswith("data")].groupby("part"):
        most = rows[rows.metric == "exploitability/most"].value.max()
        iterations = rows[rows.metric == "solver_iterations"].value.mean()
        number = str(part).removeprefix("data_")
        found.append(
            f"Dataset {number}: exploitability of every solution at most {most:.3g}% of the pot, "
            f"after {iterations:.0f} iterations on average."
        )
    return found
