"""SD-CFR Table 1: how far the average strategies of SD-CFR and Deep CFR are apart in 5-FHP, by depth."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import style
from paper_figures.exploitability_curves import is_smoke, unless_smoke
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, above

TITLE, GAME = "SD-CFR Table 1", "5-FHP"
SHOWS = "disagreement of the two average strategies by depth"
SWEEPS = (
    # Figure 2's runs, which at scale paper go on after the table's iteration; 200,000 rollouts per player.
    Sweep(
        "",
        "experiment=figure2 seed=range(3) evaluation=[exploitability,disagreement,disagreement_as_collected] "
        "evaluation.disagreement.at=last evaluation.disagreement.rollouts=200000 "
        "evaluation.disagreement_as_collected.at=last evaluation.disagreement_as_collected.rollouts=200000",
        {
            "paper": "evaluation.disagreement.at=snapshots evaluation.disagreement_as_collected.at=snapshots",
            "smoke": "seed=range(2) evaluation.disagreement.rollouts=500 "
            "evaluation.disagreement_as_collected.rollouts=500",
        },
    ),
)


PAPER_STEP = 90
"""The paper's table is at its iteration 180, of one player: the 90th of both."""


@cache
def paper() -> pd.DataFrame:
    """The published table: depth, round, mean, std, decisions."""
    return pd.read_csv(Path(__file__).parent / "reference" / "table1.csv").set_index("depth")


def measured(data: pd.DataFrame, statistic: str, readout: str = "sd_cfr") -> pd.DataFrame:
    """`mean`, `std` or number of `decisions`: `[seeds, depths]`, at the paper's iteration or, before it, the last."""
    pattern = rf"disagreement/(\d+)/{statistic}$"
    depth = data.metric.str.extract(pattern)[0]
    rows = data.assign(depth=depth)[depth.notna() & (data.readout == readout)]
    rows = rows[rows.step == min(PAPER_STEP, rows.step.max())]
    # A depth that some run never reached says nothing about the others.
    return rows.astype({"depth": int}).pivot(index="seed", columns="depth", values="value").dropna(axis=1)


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """The table's means as points, with intervals over runs, beside the paper's."""
    figure = Figure(figsize=(6.0, 4.0))
    axes: Axes = figure.subplots()
    ours = measured(data, "mean")
    estimates = [mean_ci(ours[depth]) for depth in ours.columns]
    mean = np.array([e.mean for e in estimates])
    error = np.array([[e.mean - e.low, e.high - e.mean] for e in estimates]).T
    x = np.array([float(str(c)) for c in ours.columns])
    for where, fill, game_part in ((x < 2, "none", "before the board: tables"), (x >= 2, "full", "on the board")):
        axes.errorbar(
            x[where] - 0.06, mean[where], yerr=np.nan_to_num(error[:, where]), fmt="o", capsize=3, fillstyle=fill,
            color=style.COLOURS["sd_cfr"], label=f"ours, mean of {len(ours)} runs with 95% CI; {game_part}",
        )  # fmt: skip
    published = paper()
    if not is_smoke(data):
        axes.plot(published.index + 0.06, published["mean"], "kx", label="paper")
    axes.set(
        yscale="log",
        xlabel="depth: actions before the decision",
        ylabel="mean absolute difference, summed over actions",
    )
    axes.set_xticks(published.index, [f"{d}\n{r}" for d, r in published["round"].items()])
    axes.set_title(f"SD-CFR and Deep CFR in 5-FHP, scale: {data.scale.iloc[0]}")
    axes.legend(fontsize=8)
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the table and its text, judged."""
    return [_good_early(data), _worse_later(data)]


def _good_early(data: pd.DataFrame) -> Claim:
    early = mean_ci(measured(data, "mean")[[0, 1]].mean(axis=1))
    return Claim(
        "good_early", "Deep CFR's approximation is good on early levels of the tree (depths 0 and 1)", "Sec. 6.2.1",
        NOT_TESTABLE, early, "", float(paper()["mean"].loc[[0, 1]].mean()),
        "both are before the board, where Deep CFR's average is a table here and no network",
    )  # fmt: skip


def _worse_later(data: pd.DataFrame) -> Claim:
    ours, published = measured(data, "mean"), paper()["mean"]
    last = max(depth for depth in ours.columns if depth in published.index)
    ratio = mean_ci(ours[last] / ours[2])
    return Claim(
        "worse_later", "It has a larger error where several decisions came before", "Sec. 6.2.1, Table 1",
        unless_smoke(data, above(ratio, 1)), ratio, "ratio", float(published[last] / published[2]),
        f"depth {last} over depth 2, the first on the board, paired by run; holds if above 1",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The paper's table with our numbers beside its own, as Markdown."""
    lines = [
        "| depth | round | mean, ours | from what S-hat is to learn | mean, paper | std, ours | std, paper | "
        "decisions per run, ours | paper |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    mean, std, count = (measured(data, s) for s in ("mean", "std", "decisions"))
    late = measured(data, "mean", "as_collected")
    for depth in mean.columns:
        if depth not in paper().index:
            continue
        p = paper().loc[depth]
        lines.append(
            f"| {depth} | {p['round']} | {mean_ci(mean[depth])} | {mean_ci(late[depth])} | {p['mean']:.3f} | "
            f"{std[depth].mean():.3f} | {p['std']:.3f} | {count[depth].mean():,.0f} | {p['decisions']:,.0f} |"
        )
    return "\n".join(lines)
