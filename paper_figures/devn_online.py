"""Not in the paper: networks that learn from subgames drawn and solved meanwhile, beside stored ones at equal cost."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN
from paper_figures.devn_sweeps import DATA
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, bands, digits, mean_ci
from repro.figures.claims import Claim
from repro.figures.frame import curves

TITLE, GAME = "DEVN, ours", "river subgames"
SHOWS = "DEVN and DCVN learn from subgames that are drawn and solved meanwhile, or from stored ones, at equal cost"

_NETWORKS = "experiment=devn algorithm=dcvn,devn network.layers=3 seed=range(5)"
# 24-card rivers, which take some 9 ms of a processor each to solve where a pass over one takes 0.04.
_LAPTOP = "game.ranks=6 algorithm.subgames=20000"
_OFTEN, _SELDOM, _STORED = "online_often", "online_seldom", "stored"
SWEEPS = (
    Sweep(
        DATA[1].name, DATA[1].overrides,
        {"laptop": "algorithm.first=0 game.ranks=6 algorithm.iterations=80 algorithm.snapshot_every=80"},
    ),
    Sweep(_STORED, _NETWORKS, {"laptop": f"{_LAPTOP} algorithm.iterations=20", "smoke": "seed=0"}),
    # At laptop scale some 18,000 subgames as there, and 360,000 passes over one: most are in 25 iterations.
    Sweep(
        _OFTEN, f"{_NETWORKS} algorithm.fresh=2000 algorithm.pool=900000 algorithm.iterations=4000",
        {
            "paper": "algorithm.snapshot_every=100",
            "laptop": f"{_LAPTOP} algorithm.fresh=144 algorithm.pool=3600 algorithm.iterations=100 "
            "algorithm.snapshot_every=5",
            "smoke": "algorithm.fresh=100 algorithm.pool=200 algorithm.iterations=4 seed=0",
        },
    ),
    # More of them, 19,440, most in five iterations, so that there are 82,800 passes.
    Sweep(
        _SELDOM, f"{_NETWORKS} algorithm.fresh=180000 algorithm.pool=900000 algorithm.iterations=50",
        {
            "paper": "algorithm.snapshot_every=1",
            "laptop": f"{_LAPTOP} algorithm.fresh=720 algorithm.pool=3600 algorithm.iterations=23",
            "smoke": "algorithm.fresh=200 algorithm.pool=200 algorithm.iterations=2 seed=0",
        },
    ),
)  # fmt: skip

WAYS = {
    _STORED: "stored",
    _OFTEN: "fresh, as many, as often",
    _SELDOM: "fresh, more, less often",
}
"""The sweeps of networks, and what these learn from."""
_LINES = {_STORED: "-", _OFTEN: "--", _SELDOM: ":"}


def select(data: pd.DataFrame) -> pd.DataFrame:
    """The lowest losses so far, losses at the best, and what was solved meanwhile."""
    networks = data[data.sweep.isin(list(WAYS))]
    meanwhile = networks[networks.metric.isin(("best", "subgames"))]
    return pd.concat([meanwhile, devn.best_epochs(networks), devn.bucketed_losses(networks)], ignore_index=True)


def ways(data: pd.DataFrame) -> list[str]:
    """The sweeps that were run."""
    return [way for way in WAYS if (data.sweep == way).any()]


def lower(data: pd.DataFrame, way: str, method: str) -> Estimate:
    """By how much a way's loss is below that with stored subgames, in % of that, paired by seed."""
    return mean_ci(devn.lower_by(*(devn.values(data, sweep, method) for sweep in (_STORED, way))))


def improvement(data: pd.DataFrame, way: str) -> Estimate:
    """By how much DEVN's loss is below DCVN's, in % of that, paired by seed."""
    return mean_ci(devn.lower_by(*(devn.values(data, way, method) for method in (DCVN, DEVN))))


def _best(data: pd.DataFrame, way: str, method: str) -> pd.DataFrame:
    """The lowest loss so far: `[seeds, share of the training that is over, in %]`."""
    lowest = curves(data, "best", readout=method, **devn.of_network(way, method))
    steps = [int(step) for step in lowest.columns]
    return lowest.set_axis([100 * step / steps[-1] for step in steps], axis="columns")


def draw(data: pd.DataFrame) -> Figure:
    """Losses of both while they learn, and in the end."""
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert isinstance(left, Axes)
    assert isinstance(right, Axes)
    for method in (DCVN, DEVN):
        for way in ways(data):
            lowest = _best(data, way, method)
            band = bands(list(lowest.to_numpy()))
            label = f"{devn.NAMES[method]}, {WAYS[way]}"
            left.plot(lowest.columns, band["mean"], _LINES[way], color=devn.COLOURS[method], label=label)
            if len(lowest) > 1:
                left.fill_between(
                    lowest.columns, band["low"], band["high"], color=devn.COLOURS[method], alpha=0.15, linewidth=0
                )
        estimates = [mean_ci(devn.values(data, way, method)) for way in ways(data)]
        beside = -0.06 if method == DCVN else 0.06
        places = [i + beside for i in range(len(estimates))]
        devn.points(right, places, estimates, fmt="o", color=devn.COLOURS[method], label=devn.NAMES[method])
    left.set(
        xlabel="share of the training (%); stored subgames are solved before it",
        ylabel=f"lowest loss so far: RMSE ({devn.UNIT})",
        xlim=(0, 100),
    )
    right.set(ylabel=f"lowest loss: RMSE ({devn.UNIT})", ylim=(0, None))
    right.set_xticks(range(len(ways(data))), [WAYS[way].replace(", ", ",\n") for way in ways(data)])
    left.legend(fontsize=7)
    right.legend(fontsize=7)
    figure.suptitle(devn.title(data, "Networks that learn from stored subgames and from fresh ones"))
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """None of the paper's: whether fresh subgames leave lower losses at equal cost, and what DEVN gains then.

    What it gains with stored ones is judged on the page of figure 13, whose networks learn the same.
    """
    judged = []
    for way in [way for way in ways(data) if way != _STORED]:
        networks = [(way, method, None) for method in (DCVN, DEVN)]
        claim = devn.claim_above_zero(
            data, f"devn_{way}", f"DEVN's unbucketed loss is below DCVN's: {WAYS[way]}", improvement(data, way), "%",
            "relative improvement, paired by seed",
        )  # fmt: skip
        judged.append(devn.unless_unfinished(data, claim, networks))
        for method in (DCVN, DEVN):
            claim = devn.claim_above_zero(
                data, f"{way}_{method}",
                f"{devn.NAMES[method]}'s loss is lower than with the stored subgames: {WAYS[way]}",
                lower(data, way, method), "%", "relative difference, paired by seed",
            )  # fmt: skip
            judged.append(devn.unless_unfinished(data, claim, [(way, method, None)]))
    return judged


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Losses by what networks learn from."""
    lines = [
        "| | solved while it learns | DCVN | DEVN | DEVN, zero-sum | improvement [%] |",
        "|---|---|---|---|---|---|",
    ]
    for way in ways(data):
        solved = curves(data, "subgames", readout=DEVN, **devn.of_network(way, DEVN))
        meanwhile = "–" if solved.empty else digits(solved.iloc[:, -1].mean())
        losses = " | ".join(str(mean_ci(devn.values(data, way, m))) for m in (DCVN, DEVN, devn.ZERO_SUM))
        lines.append(f"| {WAYS[way]} | {meanwhile} | {losses} | {improvement(data, way)} |")
    how_far = [f"| | {devn.LEARNED} |", "|---|---|---|---|---|---|---|"]
    how_far += [f"| {WAYS[way]} | {devn.learned(data, way)} |" for way in ways(data)]
    note = f"Lowest losses in {devn.UNIT}, the mean over subgames, with 95% intervals over seeds."
    told = f"{devn.HOW_FAR} Of fresh subgames an epoch is an iteration, over those that are in the pool."
    return "\n".join([*lines, "", note, "", *how_far, "", told])
