"""DEVN Fig. 3: how much unbucketed losses gain from more layers, in DEVN and DCVN."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN, Setting
from paper_figures.devn_sweeps import sweeps
from paper_figures.exploitability_curves import unless_smoke
from repro.evaluation.statistics import mean_ci
from repro.figures.claims import HELD, Claim, above

TITLE, GAME = "DEVN Fig. 3", "river and turn subgames"
SHOWS = "what more layers gain, DEVN and DCVN, settings I to V"
SWEEPS = sweeps((1, 2), ("i", "ii", "iii", "iv", "v"))
select = devn.of_settings

AS_GOOD = 0.5
"""A loss is not worse than another if it is higher by less than so many per cent; the number is ours."""

_PLACE = {DCVN: -0.06, DEVN: 0.06}
"""Beside the number of layers, so that intervals can be told apart."""


def gain(data: pd.DataFrame, setting: Setting, method: str, hidden: int) -> pd.Series:
    """By how much the loss is lower than that of the network with the fewest layers, in % of that, by seed."""
    fewest = devn.layers(data, setting)[0]
    lower: pd.Series = devn.lower_by(
        devn.by_seed(data, setting, method, fewest), devn.by_seed(data, setting, method, hidden)
    )
    return lower


def paper_gain(setting: Setting, method: str, hidden: int, fewest: int) -> float:
    """The same of the paper's numbers."""
    lower: float = devn.lower_by(setting.paper_loss(method, fewest), setting.paper_loss(method, hidden))
    return lower


def draw(data: pd.DataFrame) -> Figure:
    """The paper's five plots."""
    data = devn.of_all_seeds(data)
    figure = Figure(figsize=(13.0, 3.8))
    for axes, setting in zip(figure.subplots(1, len(devn.BUCKETED), sharey=True), devn.BUCKETED, strict=True):
        assert isinstance(axes, Axes)
        depths = devn.layers(data, setting)
        for method in (DCVN, DEVN):
            estimates = [mean_ci(gain(data, setting, method, n)) for n in depths]
            x = [n + _PLACE[method] for n in depths]
            devn.points(axes, x, estimates, fmt="o-", color=devn.COLOURS[method], label=devn.NAMES[method])
            axes.plot(
                depths, [paper_gain(setting, method, n, depths[0]) for n in depths], "D:", color=devn.COLOURS[method],
                markerfacecolor="white", markersize=4, linewidth=1, label=f"{devn.NAMES[method]}, paper",
            )  # fmt: skip
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_title(devn.stacked(devn.named(data, setting)), fontsize=8)
        axes.set(xlabel="hidden layers", xticks=depths)
    first, *_ = figure.axes
    first.set(ylabel=f"loss below that of {devn.layers(data, devn.BUCKETED[0])[0]} layers (%)")
    first.legend(fontsize=7)
    figure.suptitle(devn.title(data, "Gain in unbucketed loss from more layers"))
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """That DEVN gains more than DCVN, and that a small DEVN is as good as a large DCVN, and as the best."""
    data, judged = devn.judging(data), []
    for setting in devn.BUCKETED:
        few, *more = devn.layers(data, setting)
        differences = [gain(data, setting, DEVN, n) - gain(data, setting, DCVN, n) for n in more]
        verdict, least = devn.all_above(differences, 0)
        paper_value = min(paper_gain(setting, DEVN, n, few) - paper_gain(setting, DCVN, n, few) for n in more)
        judged.append(
            Claim(
                f"{setting.name}_gain",
                f"DEVN gains more from more layers than DCVN, at every depth: setting {devn.named(data, setting)}",
                "Fig. 3",
                unless_smoke(data, verdict), least, "percentage points", paper_value,
                note="DEVN's gain minus DCVN's, the number of layers that decides, paired by seed; "
                "holds if all are above 0",
            )
        )  # fmt: skip
        judged += [_small_is_enough(data, setting, few, more[-1]), _small_is_as_good_as_the_best(data, setting, few)]
    return judged


def _small_is_enough(data: pd.DataFrame, setting: Setting, few: int, many: int) -> Claim:
    """Not testable if it holds of DCVN with few layers, too: then it says nothing of DEVN."""
    measured = mean_ci(devn.lower_by(devn.by_seed(data, setting, DCVN, many), devn.by_seed(data, setting, DEVN, few)))
    paper_value = devn.lower_by(setting.paper_loss(DCVN, many), setting.paper_loss(DEVN, few))
    claim = Claim(
        f"{setting.name}_small",
        f"DEVN with {few} layers is not worse than DCVN with {many}: setting {devn.named(data, setting)}",
        "Sec. 7: in four of five" if paper_value >= 0 else "ours; Sec. 7 excepts it",
        unless_smoke(data, above(measured, -AS_GOOD)), measured, "%", paper_value,
        note=f"relative improvement, paired by seed; holds if above -{AS_GOOD:g}, a limit of ours",
    )  # fmt: skip
    small = mean_ci(-gain(data, setting, DCVN, many))
    if claim.verdict != HELD or above(small, -AS_GOOD) != HELD:
        return claim
    return devn.not_testable(claim, f"DCVN with {few} layers is not worse than with {many} either, by {small} %")


def best_depth(data: pd.DataFrame, setting: Setting, method: str) -> int:
    """The number of layers with the lowest loss, in the mean over seeds."""
    return min(devn.layers(data, setting), key=lambda n: float(devn.by_seed(data, setting, method, n).mean()))


def _small_is_as_good_as_the_best(data: pd.DataFrame, setting: Setting, few: int) -> Claim:
    best = best_depth(data, setting, DCVN)
    measured = mean_ci(devn.lower_by(devn.by_seed(data, setting, DCVN, best), devn.by_seed(data, setting, DEVN, few)))
    lowest = min(setting.paper, key=lambda n: setting.paper_loss(DCVN, n))
    paper_value = devn.lower_by(setting.paper_loss(DCVN, lowest), setting.paper_loss(DEVN, few))
    return Claim(
        f"{setting.name}_small_best",
        f"DEVN with {few} layers is not worse than the best DCVN of any depth: setting {devn.named(data, setting)}",
        "ours", unless_smoke(data, above(measured, -AS_GOOD)), measured, "%", paper_value,
        note=f"relative improvement, paired by seed; ours is best with {best} layers, the paper's with {lowest}; holds "
        f"if above -{AS_GOOD:g}, a limit of ours",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Gains by setting, method and number of layers."""
    data = devn.of_all_seeds(data)
    lines = ["| setting | layers | DCVN [%] | DEVN [%] | paper: DCVN, DEVN |", "|---|---|---|---|---|"]
    for setting in devn.BUCKETED:
        few, *more = devn.layers(data, setting)
        for hidden in more:
            our_cells = " | ".join(str(mean_ci(gain(data, setting, m, hidden))) for m in (DCVN, DEVN))
            paper_cells = ", ".join(f"{paper_gain(setting, m, hidden, few):.2f}" for m in (DCVN, DEVN))
            lines.append(f"| {devn.named(data, setting)} | {hidden} | {our_cells} | {paper_cells} |")
    note = f"In % of the loss with the fewest layers, with 95% intervals over seeds. {devn.OF_PAPER}"
    return "\n".join([*lines, "", note])
