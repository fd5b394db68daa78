"""Deep CFR Fig. 3: Flop Hold'em, by traversals per iteration and by SGD steps per iteration; tabular Linear CFR."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import fhp_limit, style
from paper_figures.exploitability_curves import is_smoke, label_axis, unless_smoke
from paper_figures.fhp_curves import LABEL, UNIT, draw_references, reference, sampling_error
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, as_ratio, contrast, difference, mean_ci
from repro.figures import frame
from repro.figures.claims import NOT_TESTABLE, Claim, above, all_of, below, within
from repro.figures.frame import column_of, curves, values

TITLE, GAME = "Deep CFR Fig. 3", "FHP"
SHOWS = "exploitability by traversals and by SGD steps per iteration; tabular Linear CFR"
_AS_MANY = "algorithm.iterations=100 algorithm.value.more_steps=0"
"""SGD steps in every iteration, as published and as is swept; night's own fits grow, for twice as many iterations."""

SWEEPS = (
    # Tabular Linear CFR without sampling, the floor. Nothing in it is random, so one seed is all. At laptop scale
    # shorter: a hundred iterations are below every other curve.
    Sweep(
        "linear_cfr", "game=fhp algorithm=linear_cfr algorithm.iterations=450 seed=range(1)",
        {
            "laptop": "algorithm.iterations=100 algorithm.snapshot_every=5", "night": "algorithm.iterations=100",
            "smoke": "game.ranks=6 game.suits=3 algorithm.iterations=5 algorithm.snapshot_every=1",
        },
    ),
    # The values swept are lost in the text; these are the later version's. At the shorter scales the most of both, as
    # much as the time allows, is what the other is swept with, so that neither starves the other.
    Sweep(
        "steps", "experiment=fhp_deep_cfr algorithm.value.steps=1000,2000,4000,8000,16000,32000 seed=range(3)",
        {
            "laptop": "algorithm.value.steps=50,200,800", "night": f"algorithm.value.steps=200,600,2000 {_AS_MANY}",
            "smoke": "algorithm.value.steps=5,10 seed=range(1)",
        },
    ),
    Sweep(
        "traversals",
        "experiment=fhp_deep_cfr algorithm.traversals=3000,10000,30000,100000,300000,1000000 seed=range(3)",
        {
            "laptop": "algorithm.traversals=1000,10000,100000",
            "night": f"algorithm.traversals=3000,30000,100000 algorithm.value.steps=2000 {_AS_MANY}",
            "smoke": "algorithm.traversals=300,600 seed=range(1)",
        },
    ),
)  # fmt: skip


LENGTH = 450
"""Iterations of the published curves."""

SAME = math.log(1.25)
"""Log of the factor up to which two exploitabilities are the same level; no number is the paper's, this is ours."""

_RESULTS = Path(__file__).parent / "results"

_WITHIN = "is within log 1.25 of 0, does not if it is outside of that"
_WELCH = "Welch's interval"


@dataclass(frozen=True)
class Panel:
    """A panel of the figure: one of the sweeps of Deep CFR.

    Attributes:
        sweep: its name, and in claims' identities that of the swept key.
        key: the swept key; `column` is the data's.
        name: of the key, in words.
    """

    sweep: str
    key: str
    name: str

    @property
    def column(self) -> str:
        """Of the swept key."""
        return column_of(self.key)

    def settings(self, data: pd.DataFrame) -> list[int]:
        """The values of the swept key, ascending."""
        return values(data[data.sweep == self.sweep], self.column)

    def curves(self, data: pd.DataFrame, setting: int, metric: str = "exploitability") -> pd.DataFrame:
        """A metric of Deep CFR with a value of the swept key, exploitability in mbb/g: `[seeds, iterations]`."""
        return curves(data, metric, sweep=self.sweep, readout="deep_cfr", **{self.column: setting})

    def label(self, setting: int) -> str:
        """A setting as one would give it on the command line."""
        return f"{self.key}={setting}"


PANELS = (
    Panel("traversals", "algorithm.traversals", "traversals per iteration"),
    Panel("steps", "algorithm.value.steps", "SGD steps per iteration"),
)


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """The paper's two panels; beside them the later version's limit game, where it is published at this scale."""
    limit = limit_game(data.scale.iloc[0])
    figure = Figure(figsize=(10.5, 4.4) if limit is None else (15.5, 5.4))
    panels = figure.subplots(1, 2 if limit is None else 3)
    panels[1].sharey(panels[0])
    for axes, panel in zip(panels, PANELS, strict=False):
        axes.set(xscale="log", yscale="log", xlabel="CFR iteration (both players)", title=f"By {panel.name}")
        _draw_sweep(axes, data, panel)
        axes.legend(fontsize=8, title=panel.name, title_fontsize=8, loc="lower left")
        label_axis(axes.xaxis, data.step)
    panels[0].set_ylabel(LABEL)
    # Intervals of few seeds reach far down; the runs themselves say how far the axis must.
    values = data.value[data.metric == "exploitability"]
    panels[0].set_ylim(0.8 * values.min(), 1.3 * max(values.max(), 0 if is_smoke(data) else reference("uniform")))
    label_axis(panels[0].yaxis, values)
    panels[1].tick_params(labelleft=False)
    if limit is not None:
        fhp_limit.draw_curves(panels[2], limit)
        panels[2].set_title("The later version's game, with limit bets")
    error = sampling_error(data)
    sampled = f"\nDeep CFR is {error}." if error else ""
    figure.suptitle(
        f"Flop Hold'em, Deep CFR, scale: {data.scale.iloc[0]}. Mean with 95% CI, thin lines are runs.{sampled}"
    )
    figure.tight_layout()
    return figure


def beside(scale: str) -> list[str]:
    """Published results that this figure is drawn beside."""
    return [] if limit_game(scale) is None else [f"fhp_limit-{scale}"]


def limit_game(scale: str) -> pd.DataFrame | None:
    """The published data of the limit game at a scale; None where there are none."""
    path = frame.data_file(_RESULTS / f"fhp_limit-{scale}")
    return frame.read(path) if path.is_file() else None


def _linear_cfr(data: pd.DataFrame) -> pd.DataFrame:
    """Exploitability of tabular Linear CFR in mbb/g: `[seeds, iterations]`."""
    return curves(data, "exploitability", readout="linear_cfr")


def _draw_sweep(axes: Axes, data: pd.DataFrame, panel: Panel) -> None:
    settings = panel.settings(data)
    colours = mpl.colormaps["viridis"](np.linspace(0.9, 0.05, len(settings)))
    for colour, setting in zip(colours, settings, strict=True):
        runs = panel.curves(data, setting)
        steps = [int(x) for x in runs.columns]
        style.curve(axes, steps, runs.to_numpy(), colour=colour, label=f"{setting:,}", floor=1.0)
    floor = _linear_cfr(data)
    axes.plot(floor.columns, floor.to_numpy()[0], "k--", linewidth=1.2, label="Linear CFR, exact")
    draw_references(axes, data)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Every claim of the figure and its text, judged."""
    judged = []
    for panel in PANELS:
        judged += [_more_is_better(data, panel), _diminishing(data, panel), _at_first(data, panel)]
        judged.append(_level(data, panel))
    return [*judged, *(_beats(data, name) for name in ("uniform", "call-only")), _above_floor(data)]


def _logs(data: pd.DataFrame, panel: Panel, setting: int, evaluation: int = -1) -> pd.Series:
    """Logarithm of exploitability at an evaluation, by seed."""
    return np.log(panel.curves(data, setting).iloc[:, evaluation])


def _more_is_better(data: pd.DataFrame, panel: Panel) -> Claim:
    settings = panel.settings(data)
    least, most = min(settings), max(settings)
    ratio = as_ratio(difference(_logs(data, panel, most), _logs(data, panel, least)))
    return Claim(
        f"more_{panel.sweep}", f"More {panel.name} end less exploitable ({most:,} over {least:,})",
        "Fig. 3",
        unless_smoke(data, below(ratio, 1)), ratio, "ratio",
        note=f"of means of logarithms, {_WELCH}; holds if it is below 1",
    )  # fmt: skip


def _diminishing(data: pd.DataFrame, panel: Panel) -> Claim:
    """Per factor of the setting, less is gained between the last two values than between the first two."""
    settings = panel.settings(data)
    statement, source = f"Diminishing returns in {panel.name}", "Sec. 6, Fig. 3"
    identity = f"diminishing_{panel.sweep}"
    if len(settings) < 3:
        return Claim(identity, statement, source, NOT_TESTABLE, None, "", note="needs three settings")
    weights = dict.fromkeys(settings, 0.0)
    for sign, (fewer, more) in ((1, settings[:2]), (-1, settings[-2:])):
        weights[fewer] += sign / math.log(more / fewer)
        weights[more] -= sign / math.log(more / fewer)
    less = contrast([(weight, _logs(data, panel, setting)) for setting, weight in weights.items()])
    return Claim(
        identity, statement, source, unless_smoke(data, above(less, 0)), less, "",
        note=f"fall of log exploitability per unit of log {panel.name}: between {settings[0]:,} and {settings[1]:,}, "
        f"minus between {settings[-2]:,} and {settings[-1]:,}; {_WELCH}; holds if it is above 0",
    )  # fmt: skip


def _ratio_of_least(data: pd.DataFrame, panel: Panel, evaluation: int) -> tuple[Estimate, str]:
    """The log of exploitability with the least of a setting over that with the most, at an evaluation; and in words."""
    least, *_, most = panel.settings(data)
    iteration = panel.curves(data, least).columns[evaluation]
    ratio = difference(_logs(data, panel, least, evaluation), _logs(data, panel, most, evaluation))
    return ratio, f"exploitability with {least:,} over {most:,} at iteration {iteration}"


def _at_first(data: pd.DataFrame, panel: Panel) -> Claim:
    """What the later version says of the beginning: fewer traversals are slower there, fewer steps are not."""
    ratio, words = _ratio_of_least(data, panel, 0)
    if panel.sweep == "traversals":
        statement, verdict, rule = "Fewer traversals converge more slowly", above(ratio, 0), "is above 0"
    else:
        statement, verdict, rule = "Fewer SGD steps converge as fast", within(ratio, -SAME, SAME), _WITHIN
    return Claim(
        f"first_{panel.sweep}", statement, "Fig. 3, later version", unless_smoke(data, verdict), ratio, "log ratio",
        note=f"{words}; {_WELCH}; holds if it {rule}",
    )  # fmt: skip


def _level(data: pd.DataFrame, panel: Panel) -> Claim:
    """Where fewer end, of traversals and of steps; said of plateaus, which only curves of the published length may
    have."""
    ratio, words = _ratio_of_least(data, panel, -1)
    verdict: str
    if panel.sweep == "traversals":
        identity, statement = "same_level", "Fewer traversals converge to the same level"
        verdict, rule = within(ratio, -SAME, SAME), _WITHIN
    else:
        identity, statement = "higher_level", "Fewer SGD steps converge to a higher level"
        verdict, rule = above(ratio, 0), "is above 0"
    note = f"{words}; {_WELCH}; holds if it {rule}"
    if data.step[data.readout == "deep_cfr"].max() < LENGTH:
        note += f"; judged after the published {LENGTH} iterations only, for before that it says who is faster"
        verdict = NOT_TESTABLE
    source = "Fig. 3, later version"
    return Claim(identity, statement, source, unless_smoke(data, verdict), ratio, "log ratio", note=note)


def _settings(data: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Exploitability of Deep CFR by setting: `[seeds, iterations]` each."""
    return {panel.label(setting): panel.curves(data, setting) for panel in PANELS for setting in panel.settings(data)}


def _beats(data: pd.DataFrame, name: str) -> Claim:
    if is_smoke(data):
        statement = f"Every setting ends less exploitable than the {name} policy"
        return Claim(f"beats_{name.replace('-', '_')}", statement, "ours", NOT_TESTABLE, None, "", note="another deck")
    # The setting whose interval reaches highest stands for all of them.
    ratios = {label: mean_ci(runs.iloc[:, -1] / reference(name)) for label, runs in _settings(data).items()}
    worst = max(ratios, key=lambda label: (ratios[label].high, ratios[label].mean))
    ratio = ratios[worst]
    return Claim(
        f"beats_{name.replace('-', '_')}", f"Every setting ends less exploitable than the {name} policy", "ours",
        all_of([below(each, 1) for each in ratios.values()]), ratio, f"of {name}'s",
        note=f"{name}: {reference(name):,.0f} {UNIT}, exact; of {worst}, whose interval reaches highest",
    )  # fmt: skip


def _above_floor(data: pd.DataFrame) -> Claim:
    floor = _linear_cfr(data)
    ratios: dict[str, Estimate] = {}
    for label, runs in _settings(data).items():
        ratios[label] = mean_ci(runs.iloc[:, -1] / floor.loc[:, floor.columns <= runs.columns[-1]].to_numpy()[0, -1])
    best = min(ratios, key=lambda label: (ratios[label].low, ratios[label].mean))
    return Claim(
        "above_linear_cfr", "Deep CFR ends above tabular Linear CFR after the same number of iterations", "Fig. 3",
        unless_smoke(data, all_of([above(each, 1) for each in ratios.values()])), ratios[best], "of Linear CFR's",
        note=f"of {best}, whose interval reaches lowest"
        + ("; Deep CFR is measured on random flops, which is a little too high" if sampling_error(data) else ""),
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Exploitability at the last iteration, and what it cost, as Markdown."""
    lines = [
        f"| setting | iterations | exploitability [{UNIT}] | nodes touched | time per run |",
        "|---|---|---|---|---|",
    ]
    metrics = ("exploitability", "nodes_touched", "wall_seconds")
    rows = {
        f"`{panel.label(setting)}`": [panel.curves(data, setting, metric) for metric in metrics]
        for panel in PANELS
        for setting in panel.settings(data)
    }
    rows["Linear CFR on tables, exact"] = [curves(data, metric, readout="linear_cfr") for metric in metrics]
    for name, tables in rows.items():
        exploitability, nodes, seconds = (table_.iloc[:, -1] for table_ in tables)
        lines.append(
            f"| {name} | {tables[0].columns[-1]} | {mean_ci(exploitability)} | {nodes.mean():.2e} | "
            f"{seconds.mean():.0f} s |"
        )
    return "\n".join(lines)
