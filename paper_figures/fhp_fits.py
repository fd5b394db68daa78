"""How well value networks fit in Flop Hold'em, where the right answer is known: what samples, steps and rows buy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from paper_figures.exploitability_curves import unless_smoke
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, difference, mean_ci
from repro.figures.claims import Claim, above, below
from repro.figures.frame import curves, values

TITLE, GAME = "Deep CFR, ours", "Flop Hold'em"
SHOWS = "how well value networks fit exact advantages, by traversals, SGD steps and how these are taken"


def _one_thing(name: str, overrides: str, smoke: str = "", laptop: str = "") -> Sweep:
    """What is varied alone; everything else is as the experiment has it."""
    few = {"smoke": f"{smoke} seed=0", "laptop": laptop}
    return Sweep(name, f"experiment=fhp_fits {overrides} seed=range(3)", few)


SWEEPS = (
    _one_thing(
        "grid", "algorithm.traversals=30000,100000,300000 algorithm.value.steps=200,1000,4000",
        "algorithm.traversals=100,300 algorithm.value.steps=5,10", "algorithm.traversals=30000,300000",
    ),
    _one_thing("start", "algorithm.value.start=random,previous algorithm.value.schedule=constant,cosine"),
    _one_thing(
        "rate", "algorithm.value.learning_rate=0.0003,0.001,0.003", "algorithm.value.learning_rate=0.001,0.003",
        "algorithm.value.learning_rate=0.001,0.003",
    ),
    _one_thing(
        "rows", "algorithm.value.batch_size=512,2048,8192", "algorithm.value.batch_size=32,64",
        "algorithm.value.batch_size=2048,8192",
    ),
    _one_thing("width", "network.card_width=64,192", "network.card_width=64,192"),
    _one_thing("average", "algorithm.value.schedule=constant algorithm.value.averaging=0.99,0.998"),
    _one_thing("boards", "algorithm.boards=300,1500", "algorithm.boards=2,5"),
    _one_thing("muon", "algorithm.value.muon=null,0.02 algorithm.value.focus=null,0.2"),
    # Longer, for what one fit after another gets wrong.
    _one_thing(
        "successive", "algorithm.value.start=previous,random",
        laptop="algorithm.iterations=8 algorithm.value_capacity=12000000",
    ),
)  # fmt: skip

ERRORS = {"strategy_errors_alike": "strategies", "errors_alike": "advantages"}
"""Metrics of how alike errors of one fit are to those of the fit before, and of what these are."""

STARTS = {"previous": "from the last network", "random": "from random weights"}
"""Where fits start."""

NAMES = {"start": "start and schedule", "rate": "learning rate", "rows": "rows of a minibatch", "width": "card width",
         "average": "weights averaged, constant rate", "boards": "boards, exactly",
         "muon": "Muon's rate, focus"}  # fmt: skip
"""Of what is varied alone."""

_COLOURS = {"grid": "#0072B2", "start": "#D55E00", "rate": "#009E73", "rows": "#CC79A7", "width": "#E69F00",
            "average": "#56B4E9", "boards": "#000000", "muon": "#7B3294"}  # fmt: skip

_BESIDE = {"0.99": (-5, -4), "0.998": (8, -3), "0.003": (5, -9), "0.02, none": (-5, -9), "0.02, 0.2": (-5, 3)}
"""Where labels stand that would lie on one another, in points from what they name."""


@dataclass(frozen=True)
class Setting:
    """Runs that differ by their seed alone.

    Attributes:
        sweep: in which they are.
        where: column -> value, what tells them apart there.
        unexplained: share of the exact advantages' variance, mean of the players, after the last iteration: `[seeds]`.
        at_first: the same after the first iteration.
        distance: of the strategies played from exact ones; likewise.
        exploitability: of the average of the networks' strategies, in mbb/g; likewise.
        seconds: per iteration after the first, mean of the runs.
    """

    sweep: str
    where: dict[str, float | str]
    unexplained: pd.Series
    at_first: pd.Series
    distance: pd.Series
    exploitability: pd.Series
    seconds: float

    @property
    def label(self) -> str:
        """Its values, for readers."""
        return ", ".join(map(_shown, self.where.values()))


def _shown(value: float | str) -> str:
    if value == math.inf:
        return "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


_COLUMNS = {
    "grid": ("traversals", "value_steps"), "start": ("value_start", "value_schedule"), "rate": ("value_learning_rate",),
    "rows": ("value_batch_size",), "width": ("network_card_width",), "average": ("value_averaging",),
    "boards": ("boards",), "muon": ("value_muon", "value_focus"),
}  # fmt: skip


def settings(data: pd.DataFrame, sweep: str) -> list[Setting]:
    """Those of a sweep, in the order of their values."""
    of_sweep = data[data.sweep == sweep]
    found = of_sweep[list(_COLUMNS[sweep])].drop_duplicates().sort_values(list(_COLUMNS[sweep]))
    wheres = ({str(key): value for key, value in row.items()} for row in found.to_dict("records"))
    return [_setting(of_sweep, sweep, where) for where in wheres]


def _setting(data: pd.DataFrame, sweep: str, where: dict[str, float | str]) -> Setting:
    # Whole numbers that share a row with others come as floats.
    exact = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in where.items()}

    def at(step: int, metric: str, readout: str = "training") -> pd.Series:
        return curves(data, metric, readout=readout, **exact).iloc[:, step]

    seconds = curves(data, "wall_seconds", readout="training", **exact).mean()
    errors = (
        at(-1, "unexplained"), at(0, "unexplained"), at(-1, "strategy_distance"), at(-1, "exploitability", "sd_cfr"),
    )  # fmt: skip
    # The first iteration may have compiled.
    return Setting(sweep, exact, *errors, float(seconds.diff().iloc[1:].mean()))


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """What is left unexplained by steps, a line per number of traversals; of all settings by what they cost; and how
    alike the errors of successive fits are, by iteration."""
    figure = Figure(figsize=(15.0, 4.4))
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1.25, 1))
    middle.sharey(left)
    _draw_grid(left, data)
    _draw_costs(middle, data)
    _draw_alike(right, data)
    last, runs, scale = _last(data), data.seed.nunique(), data.scale.iloc[0]
    for axes in (left, middle):
        axes.set_title(f"after iteration {last}", fontsize=9)
    figure.suptitle(f"Value networks in Flop Hold'em along exact Linear CFR, {runs} run(s) each, scale: {scale}")
    figure.tight_layout()
    return figure


def _last(data: pd.DataFrame) -> int:
    """The iteration after which fits are compared with each other."""
    return int(data.step[data.sweep == "grid"].max())


def alike(data: pd.DataFrame, metric: str, start: str) -> pd.DataFrame:
    """How alike errors are to those of the fit before, or another metric of successive fits: `[seeds, iterations]`."""
    return curves(data, metric, sweep="successive", readout="training", value_start=start)


def _draw_alike(axes: Axes, data: pd.DataFrame) -> None:
    for (start, name), colour in zip(STARTS.items(), ("#D55E00", "#0072B2"), strict=True):
        for (metric, of), line in zip(ERRORS.items(), ("-", "--"), strict=True):
            found = alike(data, metric, start)
            estimates = [mean_ci(found[step]) for step in found]
            bars = np.array([_spread(each) for each in estimates]).squeeze(-1).T if estimates[0].n > 1 else None
            axes.errorbar(
                [float(str(step)) for step in found], [each.mean for each in estimates], yerr=bars, color=colour,
                linestyle=line, marker=".", capsize=2, label=f"{of}, fits {name}",
            )  # fmt: skip
    axes.set(xlabel="CFR iteration (both players)", ylabel="cosine of errors with those of the fit before")
    axes.set_ylim(top=1)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("successive fits, 95% CI", fontsize=9)
    axes.legend(fontsize=7)


def _spread(estimate: Estimate) -> list[list[float]] | None:
    return [[estimate.mean - estimate.low], [estimate.high - estimate.mean]] if estimate.n > 1 else None


def _draw_grid(axes: Axes, data: pd.DataFrame) -> None:
    of_sweep = settings(data, "grid")
    many = values(data[data.sweep == "grid"], "traversals")
    for shade, traversals in zip(np.linspace(0.35, 1, len(many)), many, strict=True):
        line = [s for s in of_sweep if s.where["traversals"] == traversals]
        estimates = [mean_ci(s.unexplained) for s in line]
        x, y = [s.where["value_steps"] for s in line], [e.mean for e in estimates]
        bars = None
        if estimates[0].n > 1:
            bars = np.array([[e.mean - e.low for e in estimates], [e.high - e.mean for e in estimates]])
        axes.errorbar(
            x, y, yerr=bars, marker="o", capsize=3, color=(0, 0.447 * shade, 0.698 * shade), alpha=0.4 + 0.6 * shade,
            label=f"{traversals:,} traversals",
        )  # fmt: skip
    axes.axhline(1, color="grey", linestyle=":", label="the mean advantage")
    axes.set(xscale="log", yscale="log", xlabel="SGD steps per fit", ylabel="variance left unexplained (share)")
    axes.set_xticks(values(data[data.sweep == "grid"], "value_steps"))
    axes.get_xaxis().set_major_formatter("{x:,.0f}")
    axes.get_xaxis().set_tick_params(which="minor", bottom=False, labelbottom=False)
    axes.legend(fontsize=8)


def _each_once(data: pd.DataFrame) -> pd.DataFrame:
    """Without what the other sweeps share with the grid: the setting from which they vary one thing."""
    swept = [column for columns in _COLUMNS.values() for column in columns]
    of_grid = data.loc[data.sweep == "grid", swept].drop_duplicates()
    shared = data[swept].merge(of_grid, how="left", indicator="found")["found"] == "both"
    return data[(data.sweep == "grid") | ~shared.to_numpy()]


def _draw_costs(axes: Axes, data: pd.DataFrame) -> None:
    for sweep in _COLUMNS:
        for setting in settings(_each_once(data), sweep):
            estimate = mean_ci(setting.unexplained)
            axes.errorbar(
                setting.seconds, estimate.mean, yerr=_spread(estimate), fmt="o", color=_COLOURS[sweep], capsize=2
            )
            if sweep != "grid":
                beside = _BESIDE.get(setting.label, (5, 3))
                axes.annotate(
                    setting.label, (setting.seconds, estimate.mean), xytext=beside, textcoords="offset points",
                    fontsize=6.5, color=_COLOURS[sweep], ha="right" if beside[0] < 0 else "left",
                )  # fmt: skip
        axes.plot([], [], "o", color=_COLOURS[sweep], label=NAMES.get(sweep, "traversals and steps (left)"))
    axes.set(xscale="log", xlabel="seconds per iteration, one thread")
    for axis in (axes.get_xaxis(), axes.get_yaxis()):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.legend(fontsize=7, loc="upper left")


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Expectations of our own, judged; none is a paper's."""
    grid = settings(data, "grid")
    fewest, most = (edge(s.where["traversals"] for s in grid) for edge in (min, max))
    short, long = (edge(s.where["value_steps"] for s in grid) for edge in (min, max))

    def at(traversals: float | str, steps: float | str) -> pd.Series:
        (found,) = (s for s in grid if s.where == {"traversals": traversals, "value_steps": steps})
        return found.unexplained

    start = {s.label: s.unexplained for s in settings(data, "start")}
    falling, constant = start["previous, cosine"], start["previous, constant"]
    few, many = settings(data, "boards")
    both, muon, focus, adam = settings(data, "muon")
    averaged = settings(data, "average")[-1]
    pairs = (
        ("samples", "More traversals leave less unexplained", at(most, long), at(fewest, long),
         f"{most:,} minus {fewest:,} traversals, with {long:,} steps"),
        ("steps", "More steps leave less unexplained where there are many samples", at(most, long), at(most, short),
         f"{long:,} minus {short:,} steps, with {most:,} traversals"),
        ("by_heart", "Where there are few samples, more steps learn them by heart: they leave more unexplained",
         at(fewest, short), at(fewest, long), f"{short:,} minus {long:,} steps, with {fewest:,} traversals"),
        ("cosine", "A rate that falls to zero leaves less unexplained than a constant one", falling, constant,
         "fits from the last network"),
        ("previous", "Starting from the last network leaves less unexplained than from random weights",
         falling, start["random, cosine"], "rates that fall"),
        _larger(data, "rate", "A higher learning rate leaves less unexplained"),
        _larger(data, "rows", "Minibatches of more rows leave less unexplained"),
        _larger(data, "width", "A wider card branch leaves less unexplained"),
        ("averaged", "An average of a fit's weights leaves less unexplained than its last weights",
         averaged.unexplained, constant, f"a constant rate; decay {averaged.label}"),
        ("averaged_or_falling", "An average of a fit's weights leaves less unexplained than a rate that falls to zero",
         averaged.unexplained, falling, f"decay {averaged.label} with a constant rate, minus none with one that falls"),
        ("boards", "Exact samples of many boards leave less unexplained than as many samples of deals",
         many.unexplained, falling, f"{many.label} boards"),
        ("few_boards", "Exact samples of few boards leave more unexplained than as many samples of deals", falling,
         few.unexplained, f"{few.label} boards"),
        ("muon", "Fits with Muon leave less unexplained than with Adam", muon.unexplained, adam.unexplained,
         "at equal steps"),
    )  # fmt: skip
    nearer = (
        ("focus", "Errors that count less below zero bring the strategies nearer", focus, adam, "with Adam"),
        ("muon_nearer", "Muon brings the strategies nearer", muon, adam, "at equal steps"),
        ("both", "Muon brings them nearer where errors count less below zero, too", both, focus, "at equal steps"),
    )
    return [
        *(_less(data, *pair) for pair in pairs),
        *(
            _less(data, name, text, a.distance, b.distance, note, "of the probability")
            for name, text, a, b, note in nearer
        ),
        *(_more_alike(data, metric, of) for metric, of in ERRORS.items()),
    ]


def _more_alike(data: pd.DataFrame, metric: str, of: str) -> Claim:
    """At the end, where fits start from the last network."""
    previous, random = (alike(data, metric, start).iloc[:, -1] for start in STARTS)
    measured = difference(previous, random)
    return Claim(
        metric, f"Errors of {of} are more alike from fit to fit where fits start from the last network", "ours",
        unless_smoke(data, above(measured, 0)), measured, "of a cosine",
        note="last network minus random weights, after the last iteration; Welch's interval; holds if above 0",
    )  # fmt: skip


def _larger(data: pd.DataFrame, sweep: str, text: str) -> tuple[str, str, pd.Series, pd.Series, str]:
    """A claim that the larger of a sweep's two largest values leaves less unexplained."""
    smaller, larger = settings(data, sweep)[-2:]
    return sweep, text, larger.unexplained, smaller.unexplained, f"{larger.label} minus {smaller.label}"


def _less(
    data: pd.DataFrame, name: str, text: str, lower: pd.Series, higher: pd.Series, note: str,
    unit: str = "of the variance",
) -> Claim:  # fmt: skip
    measured = difference(lower, higher)
    return Claim(
        name, text, "ours", unless_smoke(data, below(measured, 0)), measured, unit,
        note=f"{note}; Welch's interval; holds if below 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """What every setting leaves unexplained, what it costs, and how alike successive errors are, as Markdown."""
    lines = [
        f"| varied | value | left unexplained at t = 1 | at t = {_last(data)} | strategies' distance | "
        "exploitability [mbb/g] | seconds per iteration |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {NAMES.get(sweep, 'traversals, steps')} | {s.label} | {mean_ci(s.at_first)} | {mean_ci(s.unexplained)} | "
        f"{mean_ci(s.distance)} | {mean_ci(s.exploitability)} | {s.seconds:.1f} |"
        for sweep in _COLUMNS
        for s in settings(data, sweep)
    ]
    return "\n".join([*lines, "", *_table_of_alike(data)])


def _table_of_alike(data: pd.DataFrame) -> list[str]:
    """How alike errors are from fit to fit, and how large: of both starts, as Markdown lines."""
    ends = {start: alike(data, "unexplained", start).iloc[:, -1] for start in STARTS}
    found = {(m, start): alike(data, m, start) for m in ERRORS for start in STARTS}
    first, last = (next(iter(found.values())).columns[end] for end in (0, -1))
    lines = [
        f"| errors of successive fits | fits start | cosine at t = {first} | at t = {last} | left unexplained there |",
        "|---" * 5 + "|",
    ]
    return lines + [
        f"| {ERRORS[metric]} | {STARTS[start]} | {mean_ci(runs[first])} | {mean_ci(runs[last])} "
        f"| {mean_ci(ends[start])} |"
        for (metric, start), runs in found.items()
    ]
