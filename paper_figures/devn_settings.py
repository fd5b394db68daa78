"""Not in the paper: its settings I to V and VII, trained as the text says and as the authors' code does."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_runs as devn
from paper_figures.devn_pipelines import (
    CODE,
    LAYER,
    LAYERS,
    PIPELINES,
    TEXT,
    Pipeline,
    improvement,
    loss,
    select,
    unless_unfinished,
)
from paper_figures.devn_runs import DCVN, DEVN, Setting
from paper_figures.devn_sweeps import PART_1, PART_2, in_all_ways
from repro.evaluation.statistics import Estimate, mean_ci
from repro.figures.claims import Claim

__all__ = ["SWEEPS", "claims", "draw", "select", "table"]

TITLE, GAME = "DEVN, ours", "river and turn subgames"
SHOWS = "DEVN's improvement in the paper's settings, trained as in the text and as in the authors' code"

SETTINGS = (*devn.BUCKETED, devn.UNABSTRACTED[1])
"""All but VI, which is on the page of `paper_figures.devn_pipelines`."""

SWEEPS = (
    PART_1,
    PART_2,
    *(sweep for setting in SETTINGS for sweep in in_all_ways(setting.name, setting.dataset)),
)


def of_setting(pipeline: Pipeline, setting: Setting) -> Pipeline:
    """A pipeline, of the networks of a setting."""
    return replace(pipeline, sweeps={method: f"{setting.name}_{sweep}" for method, sweep in pipeline.sweeps.items()})


def gain(data: pd.DataFrame, pipeline: Pipeline, setting: Setting) -> pd.Series:
    """By how much DEVN's loss is lower than DCVN's, in % of that, the mean over both depths, by seed."""
    own = of_setting(pipeline, setting)
    return devn.mean_over([improvement(data, own, hidden) for hidden in LAYERS])


def paper_gain(setting: Setting, hidden: int) -> float:
    """The paper's, of full-deck turns."""
    lower: float = devn.lower_by(*(setting.paper_loss(method, hidden) for method in (DCVN, DEVN)))
    return lower


def draw(data: pd.DataFrame) -> Figure:
    """The improvement by setting and pipeline, beside the paper's; a panel per number of layers."""
    figure = Figure(figsize=(10.0, 4.4))
    ticks = list(range(len(SETTINGS)))
    for axes, hidden in zip(figure.subplots(1, len(LAYERS), sharey=True), LAYERS, strict=True):
        assert isinstance(axes, Axes)
        for number, pipeline in enumerate(PIPELINES):
            gains = [mean_ci(improvement(data, of_setting(pipeline, setting), hidden)) for setting in SETTINGS]
            x = [tick + 0.2 * (number - 1) for tick in ticks]
            devn.points(axes, x, gains, fmt="o", color=pipeline.colour, label=pipeline.title)
        axes.plot(
            ticks, [paper_gain(setting, hidden) for setting in SETTINGS], "D", color="black", markerfacecolor="white",
            label="paper, full-deck turns",
        )  # fmt: skip
        axes.axhline(0, color="grey", linewidth=0.8)
        axes.set_xticks(ticks, [devn.stacked(devn.named(data, setting)) for setting in SETTINGS], fontsize=6)
        axes.set_title(f"{hidden} layers", fontsize=9)
    figure.axes[0].legend(fontsize=7, loc="lower left")
    figure.axes[0].set_ylabel("DEVN's loss below DCVN's (%)")
    figure.suptitle(devn.title(data, "DCVN and DEVN, trained in three ways"))
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Of each setting, whether DEVN is better in each pipeline, and what the authors' code and its layer change."""
    judged = []
    for setting in SETTINGS:
        judged += [_lower(data, pipeline, setting) for pipeline in PIPELINES]
        judged += [
            _more(
                data, setting, TEXT, "code_gains",
                "DEVN's improvement is larger in the authors' pipeline than in the text's",
            ),
            _more(data, setting, LAYER, "layer_gains", "DEVN's improvement is larger if DCVN has no zero-sum layer"),
        ]  # fmt: skip
    return judged


def _lower(data: pd.DataFrame, pipeline: Pipeline, setting: Setting) -> Claim:
    measured, named = mean_ci(gain(data, pipeline, setting)), devn.named(data, setting)
    claim = devn.claim_above_zero(
        data, f"{pipeline.name}_{setting.name}", f"DEVN's loss is below DCVN's: setting {named}, {pipeline.title}",
        measured, "%", "relative improvement, mean of both depths, paired by seed; the paper's is of turns",
        "Table 3, Supplement Table 6", sum(paper_gain(setting, hidden) for hidden in LAYERS) / len(LAYERS),
    )  # fmt: skip
    networks = [(method, hidden) for method in (DCVN, DEVN) for hidden in LAYERS]
    return unless_unfinished(data, claim, of_setting(pipeline, setting), networks)


def _more(data: pd.DataFrame, setting: Setting, before: Pipeline, name: str, text: str) -> Claim:
    measured, named = mean_ci(gain(data, CODE, setting) - gain(data, before, setting)), devn.named(data, setting)
    return devn.claim_above_zero(
        data, f"{name}_{setting.name}", f"{text}: setting {named}", measured, "percentage points",
        "mean of both depths, paired by seed",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Lowest losses and improvements by setting, pipeline and number of layers, as Markdown."""
    columns = [
        f"{name}, {hidden} layers" for hidden in LAYERS for name in ("DCVN", "DEVN", "improvement [%]", "paper's")
    ]
    lines = [f"| setting | trained | {' | '.join(columns)} |", "|---" * (2 + len(columns)) + "|"]
    for setting in SETTINGS:
        for pipeline in PIPELINES:
            own = of_setting(pipeline, setting)
            cells: list[Estimate | str] = []
            for hidden in LAYERS:
                cells += [mean_ci(loss(data, own, method, hidden)) for method in (DCVN, DEVN)]
                cells += [mean_ci(improvement(data, own, hidden)), f"{paper_gain(setting, hidden):.1f}"]
            lines.append(f"| {devn.named(data, setting)} | {pipeline.title} | {' | '.join(map(str, cells))} |")
    note = f"Lowest losses of any epoch that was measured, in {devn.UNIT}, the mean over subgames."
    return "\n".join([*lines, "", note])
