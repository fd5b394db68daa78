"""DEVN Table 3 and Supplement Table 6: unbucketed losses of DCVN and DEVN, with buckets and without."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paper_figures import devn_runs as devn
from paper_figures.claims import Claim, above
from paper_figures.devn_runs import DCVN, DEVN, Setting
from paper_figures.devn_sweeps import sweeps
from paper_figures.exploitability_curves import unless_smoke
from repro.evaluation.statistics import digits, mean_ci

TITLE, GAME = "DEVN Table 3 and Supplement Table 6", "river and turn subgames"
SHOWS = "unbucketed losses of DCVN and DEVN, settings I to VII"

SETTINGS = (*devn.BUCKETED, *devn.UNABSTRACTED)
SWEEPS = sweeps((1, 2), ("i", "ii", "iii", "iv", "v", "vi", "vii"))


def select(data: pd.DataFrame) -> pd.DataFrame:
    """The networks at their best, and what is known of the subgames."""
    networks = data[data.sweep.str.startswith("setting")]
    parts = (devn.best_epochs(networks), devn.bucketed_losses(networks), devn.subgames(data))
    return pd.concat(parts, ignore_index=True)


def paper_improvement(setting: Setting, hidden: int) -> float:
    """DEVN's over DCVN in the paper, in %."""
    lower: float = devn.lower_by(*(setting.paper_loss(method, hidden) for method in (DCVN, DEVN)))
    return lower


def draw(data: pd.DataFrame) -> Figure:
    """DEVN's improvement over DCVN, by setting and number of layers, beside the paper's."""
    figure = Figure(figsize=(10.0, 4.4))
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, metric in ((left, "unbucketed"), (right, "pooled")):
        for i, setting in enumerate(SETTINGS):
            depths = devn.layers(data, setting)
            for j, hidden in enumerate(depths):
                estimate = mean_ci(devn.improvement(data, setting, hidden, metric))
                x = i + (j - (len(depths) - 1) / 2) * 0.2
                first = i == j == 0
                devn.points(
                    axes, [x], [estimate], fmt="o", color=devn.COLOURS[DEVN], capsize=2, label="ours" if first else None
                )
                if metric == "unbucketed":
                    axes.plot(
                        x, paper_improvement(setting, hidden), "D", color="black", markerfacecolor="white",
                        markersize=4, label="paper, turn" if first else None,
                    )  # fmt: skip
                axes.annotate(
                    str(hidden), (x, 0), (x, 0.01), textcoords=("data", "axes fraction"), fontsize=6, ha="center"
                )
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xticks(np.arange(len(SETTINGS)), [str(s) for s in SETTINGS])
        axes.set(xlabel="setting (small numbers: hidden layers)", title=devn.LEGEND[metric])
        axes.legend(fontsize=7)
    left.set(ylabel="DEVN's error below DCVN's (%)")
    figure.suptitle(devn.title(data, "DEVN's improvement over DCVN in unbucketed loss"))
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """That DEVN's loss is lower in every setting and at every depth, and more so for larger networks."""
    judged = []
    for setting in SETTINGS:
        judged += [_lower(data, setting, hidden) for hidden in devn.layers(data, setting)]
        judged.append(_pooled(data, setting))
        judged.append(_larger(data, setting))
        judged.append(_zero_sum(data, setting))
    judged.append(_wider(data, *devn.BUCKETED[:2]))
    return judged


def _source(setting: Setting) -> str:
    return "Table 3" if setting in devn.BUCKETED else "Supplement Table 6"


def _lower(data: pd.DataFrame, setting: Setting, hidden: int) -> Claim:
    measured = mean_ci(devn.improvement(data, setting, hidden))
    return Claim(
        f"{setting.name}_{hidden}", f"DEVN's unbucketed loss is below DCVN's: setting {setting}, {hidden} layers",
        _source(setting), unless_smoke(data, above(measured, 0)), measured, "%", paper_improvement(setting, hidden),
        note="relative improvement, paired by seed; holds if above 0",
    )  # fmt: skip


def _pooled(data: pd.DataFrame, setting: Setting) -> Claim:
    improvements = (devn.improvement(data, setting, n, "pooled") for n in devn.layers(data, setting))
    measured = mean_ci(devn.mean_over(improvements))
    return Claim(
        f"{setting.name}_pooled", f"DEVN's error over all subgames at once is below DCVN's: setting {setting}", "ours",
        unless_smoke(data, above(measured, 0)), measured, "%",
        note="relative improvement, the mean over numbers of layers, paired by seed; holds if above 0",
    )  # fmt: skip


def _larger(data: pd.DataFrame, setting: Setting) -> Claim:
    few, many = devn.layers(data, setting)[0], devn.layers(data, setting)[-1]
    measured = mean_ci(devn.improvement(data, setting, many) - devn.improvement(data, setting, few))
    paper_value = paper_improvement(setting, many) - paper_improvement(setting, few)
    return Claim(
        f"{setting.name}_larger", f"The improvement is larger with {many} layers than with {few}: setting {setting}",
        "Sec. 7" if setting in devn.BUCKETED else _source(setting), unless_smoke(data, above(measured, 0)), measured,
        "percentage points", paper_value, note="paired by seed; holds if above 0",
    )  # fmt: skip


def _wider(data: pd.DataFrame, narrow: Setting, wide: Setting) -> Claim:
    depths = devn.layers(data, narrow)
    measured = mean_ci(
        devn.mean_over(devn.improvement(data, wide, n) - devn.improvement(data, narrow, n) for n in depths)
    )
    paper_value = float(np.mean([paper_improvement(wide, n) - paper_improvement(narrow, n) for n in depths]))
    return Claim(
        "wider", f"The improvement is larger with wider layers: setting {wide} against {narrow}", "Sec. 7",
        unless_smoke(data, above(measured, 0)), measured, "percentage points", paper_value,
        note="the mean over numbers of layers, paired by seed; holds if above 0",
    )  # fmt: skip


def _zero_sum(data: pd.DataFrame, setting: Setting) -> Claim:
    depths = devn.layers(data, setting)
    improvements = [
        devn.lower_by(devn.by_seed(data, setting, DEVN, n), devn.by_seed(data, setting, devn.ZERO_SUM, n))
        for n in depths
    ]
    measured = mean_ci(devn.mean_over(improvements))
    return Claim(
        f"{setting.name}_zero_sum", f"Making predictions zero-sum lowers DEVN's unbucketed loss: setting {setting}",
        "ours", unless_smoke(data, above(measured, 0)), measured, "%",
        note="the same training runs, each at its own best epoch; the mean over numbers of layers; holds if above 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The paper's table, with ours, and the labels' exploitability."""
    lines = [
        "| setting | layers | DCVN | DEVN | DEVN, zero-sum | improvement [%] | zero-sum [%] | over all: DCVN | DEVN | "
        "paper: DCVN, DEVN, improvement |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        for hidden in devn.layers(data, setting):
            losses = " | ".join(
                str(mean_ci(devn.by_seed(data, setting, m, hidden))) for m in (DCVN, DEVN, devn.ZERO_SUM)
            )
            pooled = " | ".join(str(mean_ci(devn.by_seed(data, setting, m, hidden, "pooled"))) for m in (DCVN, DEVN))
            paper_cells = ", ".join(str(setting.paper_loss(m, hidden)) for m in (DCVN, DEVN))
            shifted = devn.lower_by(*(devn.by_seed(data, setting, m, hidden) for m in (DCVN, devn.ZERO_SUM)))
            lines.append(
                f"| {setting} | {hidden} | {losses} | {mean_ci(devn.improvement(data, setting, hidden))} | "
                f"{mean_ci(shifted)} | {pooled} | "
                f"{paper_cells}, {paper_improvement(setting, hidden):.2f} |"
            )
        if setting in devn.BUCKETED:
            errors = [devn.encoding_error(data, setting, m) for m in (DCVN, DEVN)]
            published = setting.paper_row
            paper_cells = f"{published.dcvn}, {published.devn}, {published.improvement}"
            lines.append(
                f"| {setting} | encoding error | {digits(errors[0])} | {digits(errors[1])} | – | "
                f"{digits(devn.lower_by(*errors))} | – | – | – | {paper_cells} |"
            )
    note = (
        f"Errors in {devn.UNIT}, with 95% intervals over seeds. {devn.OF_PAPER} So are its encoding errors, with "
        "1,000 and 2,000 buckets. Its improvements follow from losses."
    )
    return "\n".join([*lines, "", note, "", *_learned(data), "", *_labels(data)])


def _learned(data: pd.DataFrame) -> list[str]:
    """How far the networks learned, and how much of that is by heart."""
    lines = [f"| setting | layers | {devn.LEARNED} |", "|---|---|---|---|---|---|---|---|"]
    lines += [
        f"| {setting} | {hidden} | {devn.learned(data, setting.sweep, hidden)} |"
        for setting in SETTINGS
        for hidden in devn.layers(data, setting)
    ]
    return [*lines, "", devn.HOW_FAR]


def _labels(data: pd.DataFrame) -> list[str]:
    """How exploitable the solutions are that the networks learn from, and how large the values."""
    sentences = []
    for sweep, rows in data[data.sweep.str.startswith("data")].groupby("sweep"):
        most = rows[rows.metric == "exploitability/most"].value.max()
        iterations = rows[rows.metric == "solver_iterations"].value.mean()
        number = str(sweep).removeprefix("data_")
        same = [setting.sweep for setting in SETTINGS if str(setting.dataset) == number]
        sentences.append(
            f"Dataset {number}: exploitability of every solution at most {digits(most)}% of the pot, "
            f"after {iterations:.0f} iterations on average; {devn.predicting_zero(data, same)}."
        )
    return sentences
