"""Not in the paper: how DEVN's gain over DCVN depends on the number of samples that both learn from."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN
from paper_figures.devn_sweeps import DATA
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, mean_ci
from repro.figures.claims import Claim

TITLE, GAME = "DEVN, ours", "river subgames"
SHOWS = "DEVN against DCVN by the number of samples"

SHARES = {
    "samples_hundredth": "1/100",
    "samples_thirtieth": "1/30",
    "samples_tenth": "1/10",
    "samples_third": "1/3",
    "samples_all": "all",
}
"""The sweeps, and what share of the training subgames they learn from."""


def _learning_from(name: str, paper: tuple[int, int, int], laptop: tuple[int, int, int], smoke: int) -> Sweep:
    """Setting I's networks of three layers that learn from a share of the training subgames.

    Args:
        name: of the sweep.
        paper, laptop: how many subgames; epochs, so that there are as many SGD steps as with all of them; and after how
            many a network is measured.
        smoke: how many subgames.
    """
    at = {
        scale: f"algorithm.learn_from={of} algorithm.iterations={epochs} algorithm.snapshot_every={every}"
        for scale, (of, epochs, every) in (("paper", paper), ("laptop", laptop))
    }
    return Sweep(name, _NETWORKS, {**at, "smoke": f"algorithm.learn_from={smoke} algorithm.batch_size=8 seed=0"})


_NETWORKS = "experiment=devn algorithm=dcvn,devn network.layers=3 seed=range(3)"
SWEEPS = (
    DATA[1],
    _learning_from("samples_hundredth", (90_000, 37_500, 938), (900, 900, 90), 8),
    _learning_from("samples_thirtieth", (300_000, 11_538, 289), (3_000, 300, 30), 26),
    _learning_from("samples_tenth", (900_000, 3_947, 99), (9_000, 100, 10), 80),
    _learning_from("samples_third", (3_000_000, 1_200, 30), (30_000, 30, 3), 266),
    Sweep("samples_all", _NETWORKS, {"smoke": "seed=0"}),
)


def select(data: pd.DataFrame) -> pd.DataFrame:
    """Of each run the measurements at the epoch of its best network."""
    networks = data[data.sweep.isin(list(SHARES))]
    return pd.concat([devn.best_epochs(networks), devn.bucketed_losses(networks)], ignore_index=True)


def improvement(data: pd.DataFrame, sweep: str, metric: str = "unbucketed") -> Estimate:
    """By how much DEVN's loss is below DCVN's, in % of that, paired by seed."""
    return mean_ci(devn.lower_by(devn.values(data, sweep, DCVN, metric), devn.values(data, sweep, DEVN, metric)))


def draw(data: pd.DataFrame) -> Figure:
    """Losses of both, and the improvement, by the share of samples."""
    figure = Figure(figsize=(10.0, 4.0))
    left, right = figure.subplots(1, 2)
    assert isinstance(left, Axes)
    assert isinstance(right, Axes)
    x = range(len(SHARES))
    for method in (DCVN, DEVN):
        for metric, line in (("unbucketed", "o-"), ("pooled", "s:")):
            estimates = [mean_ci(devn.values(data, sweep, method, metric)) for sweep in SHARES]
            label = f"{devn.NAMES[method]}, {devn.LEGEND[metric]}"
            devn.points(left, x, estimates, fmt=line, color=devn.COLOURS[method], label=label)
    # Beside each other, so that intervals can be told apart.
    for metric, line, colour, beside in (("unbucketed", "o-", "#009E73", -0.06), ("pooled", "s:", "#999999", 0.06)):
        estimates = [improvement(data, sweep, metric) for sweep in SHARES]
        devn.points(right, [i + beside for i in x], estimates, fmt=line, color=colour, label=devn.LEGEND[metric])
    right.axhline(0, color="black", linewidth=0.8)
    left.set(ylabel=f"error ({devn.UNIT})", ylim=(0, None))
    right.set(ylabel="DEVN's error below DCVN's (%)")
    for axes in (left, right):
        axes.set_xticks(x, list(SHARES.values()))
        axes.set(xlabel="share of the training subgames")
        axes.legend(fontsize=7)
    figure.suptitle(devn.title(data, "What networks learn from fewer samples"))
    figure.tight_layout()
    return figure


def claims(data: pd.DataFrame) -> list[Claim]:
    """None of the paper's: at which shares DEVN is better, and whether more samples favour it."""
    judged = []
    for sweep, share in SHARES.items():
        measured = improvement(data, sweep)
        judged.append(
            devn.claim_above_zero(
                data, sweep, f"DEVN's unbucketed loss is below DCVN's: {share} of the samples", measured, "%",
                "relative improvement, paired by seed",
            )
        )  # fmt: skip
    few, many = (
        devn.lower_by(devn.values(data, sweep, DCVN), devn.values(data, sweep, DEVN))
        for sweep in ("samples_hundredth", "samples_all")
    )
    measured = mean_ci(many - few)
    judged.append(
        devn.claim_above_zero(
            data, "more_samples", "DEVN's improvement is larger with all samples than with 1/100 of them", measured,
            "percentage points", "paired by seed",
        )
    )  # fmt: skip
    return judged


def table(data: pd.DataFrame) -> str:
    """Losses by share."""
    lines = [
        "| share | DCVN | DEVN | DEVN, zero-sum | improvement [%] | over all: DCVN | DEVN | improvement [%] |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for sweep, share in SHARES.items():
        losses = " | ".join(str(mean_ci(devn.values(data, sweep, m))) for m in (DCVN, DEVN, devn.ZERO_SUM))
        pooled = " | ".join(str(mean_ci(devn.values(data, sweep, m, "pooled"))) for m in (DCVN, DEVN))
        lines.append(
            f"| {share} | {losses} | {improvement(data, sweep)} | {pooled} | {improvement(data, sweep, 'pooled')} |"
        )
    note = f"Errors in {devn.UNIT}, the mean over subgames and over all of them at once, with 95% intervals over seeds."
    how_far = [f"| share | {devn.LEARNED} |", "|---|---|---|---|---|---|---|"]
    how_far += [f"| {share} | {devn.learned(data, sweep)} |" for sweep, share in SHARES.items()]
    return "\n".join([*lines, "", note, "", *how_far, "", devn.HOW_FAR])
