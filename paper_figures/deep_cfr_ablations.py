"""The later Deep CFR paper's ablations: what four of Deep CFR's parts are worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.d2cfr_curves import apart, draw_curves, late
from paper_figures.exploitability_curves import label_axis, unless_smoke
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, as_ratio, mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, above, below, within
from repro.figures.frame import curves

TITLE, GAME = "Deep CFR, later version", "Leduc"
SHOWS = "ablations: linear weights, fits from scratch, the highest advantage, reservoirs"

_SOURCE = "later version"

_LEDUC = "experiment=figure1 algorithm.value.start=random evaluation.exploitability.readouts=[sd_cfr,deep_cfr]"
"""SD-CFR's setting, with value networks from scratch. Memories hold about a quarter of what a run brings."""


def _setting(name: str, changed: str = "") -> Sweep:
    """Runs with `changed`; in the paper's game at scale `paper` only, where one takes days."""
    return Sweep(
        name,
        "experiment=fhp_limit algorithm.value_capacity=3600000 algorithm.strategy_capacity=5600000 "
        f"{changed} seed=range(5)",
        {
            "laptop": f"{_LEDUC} algorithm.iterations=120 algorithm.snapshot_every=10 algorithm.value_capacity=180000 "
            f"algorithm.strategy_capacity=280000 {changed}",
            "smoke": f"{_LEDUC} algorithm.value_capacity=2000 algorithm.strategy_capacity=3000 {changed} seed=range(2)",
        },
    )


SWEEPS = (
    _setting("base"),
    _setting("uniform_weights", "algorithm.loss_weight=uniform"),
    _setting("fine_tuned", "algorithm.value.start=previous"),
    _setting("uniform_play", "algorithm.when_no_positive=uniform"),
    _setting("window", "algorithm.memory=window"),
)


@dataclass(frozen=True)
class Setting:
    """What a sweep runs.

    Attributes:
        name: for readers.
        colour: of its curve.
    """

    name: str
    colour: str


SETTINGS = {
    "base": Setting("Deep CFR", "#D55E00"),
    "uniform_weights": Setting("no linear weights", "#0072B2"),
    "fine_tuned": Setting("networks fine-tuned", "#009E73"),
    "uniform_play": Setting("uniform without positive advantages", "#CC79A7"),
    "window": Setting("sliding window", "#56B4E9"),
}
"""By sweep, the first being what the others are held against."""

PRINTED = 1.5
"""How many times as exploitable the paper has fine-tuning, and uniform play without positive advantages."""

ABOUT = (1.25, 1.75)
"""What we take for "about 50% higher": half of that more or less."""

SAME = (1 / 1.2, 1.2)
"""What we take for "the same level", as a ratio."""

STOPPED = 0.9
"""A curve that ends below this part of what it was when memories were full has not stopped converging."""


def exploitability(data: pd.DataFrame, sweep: str, readout: str = "deep_cfr") -> pd.DataFrame:
    """Of a read-out of a sweep's runs, `[seeds, iterations]`, in `unit`; without columns if it was not measured."""
    return curves(data, "exploitability", sweep=sweep, readout=readout)


def unit(data: pd.DataFrame) -> str:
    """The unit of the game's exploitability: another game is played at scale `paper`."""
    return "mbb/g" if (data.scale == "paper").all() else "mA/g"


def full_at(data: pd.DataFrame, sweep: str) -> int | None:
    """The first evaluation at which all memories of a sweep's runs were full; None if they never were.

    A memory that is full grows no more, and before that it grows in every iteration.
    """
    values, strategies = (
        curves(data, f"memory/{kind}", sweep=sweep, readout="training") for kind in ("value", "strategy")
    )
    steps = [int(str(step)) for step in exploitability(data, sweep).columns]
    held = values[steps] + strategies[steps]
    return next((step for step in steps[:-1] if bool((held[step] == held[steps[-1]]).all())), None)


def select(data: pd.DataFrame) -> pd.DataFrame:
    """Exploitability, and what is known of the trainings where it was measured; of every iteration it is much."""
    evaluated = data.step.isin(data[data.metric == "exploitability"].step.unique())
    return data[evaluated & ((data.metric == "exploitability") | (data.readout == "training"))]


# -- what is compared ------------------------------------------------------------------------------------------------


def early(table: pd.DataFrame) -> pd.Series:
    """Mean over the first half of the evaluations, by seed."""
    return table.iloc[:, : max(1, table.shape[1] // 2)].mean(axis=1)


def ratio(first: pd.Series, second: pd.Series, *, paired: bool = False) -> Estimate:
    """Of levels by seed: the geometric mean of `first` over that of `second`."""
    return as_ratio(apart(np.log(first), np.log(second), paired=paired))


def higher(data: pd.DataFrame, sweep: str, readout: str = "deep_cfr") -> Estimate | None:
    """How many times as exploitable as the base a sweep's runs are at the end; None if that was not measured."""
    ours, base = (exploitability(data, name, readout) for name in (sweep, "base"))
    return None if ours.empty or base.empty else ratio(late(ours), late(base))


def since_full(data: pd.DataFrame, sweep: str) -> Estimate | None:
    """How many times as exploitable runs are at the end as when their memories were full; None if they never were."""
    full = full_at(data, sweep)
    if full is None:
        return None
    table = exploitability(data, sweep)
    after = [step for step in table.columns if int(str(step)) >= full]
    quarter = max(1, round(table.shape[1] / 4))
    if len(after) < 2 * quarter:
        return None
    return ratio(late(table), table[after[:quarter]].mean(axis=1), paired=True)


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """As in the paper: Deep CFR and three ablations, and beside them the two kinds of memory."""
    figure = Figure(figsize=(10.5, 4.2))
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, data, [name for name in SETTINGS if name != "window"])
    _draw(right, data, ["base", "window"])
    full = full_at(data, "window")
    if full is not None:
        right.axvline(full, color="grey", linestyle=":", linewidth=1)
        right.text(full, 0.97, " memories full", transform=right.get_xaxis_transform(), fontsize=8, va="top")
    left.set_title("What is learned, and how it is played")
    right.set_title("Which samples are kept")
    left.set_ylabel(f"exploitability of S-hat ({unit(data)})")
    every = data[(data.metric == "exploitability") & (data.readout == "deep_cfr")]
    label_axis(left.yaxis, every.value)
    game = "limit Flop Hold'em" if unit(data) == "mbb/g" else "Leduc"
    figure.suptitle(
        f"Deep CFR in {game}, {every.seed.nunique()} runs each, scale: {data.scale.iloc[0]}. "
        "Mean with 95% CI, thin lines are runs."
    )
    figure.tight_layout()
    return figure


def _draw(axes: Axes, data: pd.DataFrame, sweeps: list[str]) -> None:
    draw_curves(
        axes,
        {SETTINGS[name].name: exploitability(data, name) for name in sweeps},
        [SETTINGS[name].colour for name in sweeps],
    )
    axes.legend(fontsize=8)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """What the paper says of each ablation, of the game at hand."""
    return [*_weights(data), *_half_higher(data), *_memories(data)]


def _judged(
    data: pd.DataFrame, id_: str, statement: str, verdict: str, measured: Estimate | None, note: str,
    paper: float | None = None, source: str = _SOURCE,
) -> Claim:  # fmt: skip
    return Claim(id_, statement, source, unless_smoke(data, verdict), measured, "ratio", paper, note)


def _weights(data: pd.DataFrame) -> list[Claim]:
    ours, base = (exploitability(data, name) for name in ("uniform_weights", "base"))
    slower, end = ratio(early(ours), early(base)), ratio(late(ours), late(base))
    return [
        _judged(
            data, "uniform_weights_slower", "Without linear weights Deep CFR converges more slowly", above(slower, 1),
            slower, "to Deep CFR's mean over the first half of the evaluations; holds if above 1",
        ),
        _judged(
            data, "uniform_weights_same", "Without linear weights it ends at the same level", within(end, *SAME), end,
            "to Deep CFR's mean over the last quarter of the evaluations; holds if within a factor of 1.2, our margin",
        ),
    ]  # fmt: skip


def _half_higher(data: pd.DataFrame) -> list[Claim]:
    judged = []
    for sweep, what in (
        ("fine_tuned", "Value networks that go on from the last ones"),
        ("uniform_play", "Uniform play where no advantage is positive"),
    ):
        measured = higher(data, sweep)
        assert measured is not None
        end = "to Deep CFR's mean over the last quarter of the evaluations; holds if"
        judged += [
            _judged(
                data, f"{sweep}_higher", f"{what} end more exploitable" if sweep == "fine_tuned" else
                f"{what} ends more exploitable", above(measured, 1), measured, f"{end} above 1", PRINTED,
            ),
            _judged(
                data, f"{sweep}_half", f"{what}: by about 50%", within(measured, *ABOUT), measured,
                f"{end} from {ABOUT[0]:g} to {ABOUT[1]:g}, our reading of about", PRINTED,
            ),
        ]  # fmt: skip
    return judged


def _memories(data: pd.DataFrame) -> list[Claim]:
    untold = "memories were not full for half of the evaluations"
    window, base = since_full(data, "window"), since_full(data, "base")
    values = higher(data, "window", "sd_cfr")
    ends = higher(data, "window")
    assert ends is not None
    last = "mean over the last quarter of the evaluations to"
    when_full = f"{last} that over as many when memories were full, paired by seed; holds if"
    return [
        _judged(
            data, "window_stops", "With a sliding window it stops converging once that is full",
            NOT_TESTABLE if window is None else above(window, STOPPED), window,
            untold if window is None else f"{when_full} above {STOPPED:g}, our margin",
        ),
        _judged(
            data, "reservoir_continues", "With a reservoir it goes on converging when that is full",
            NOT_TESTABLE if base is None else below(base, STOPPED), base,
            untold if base is None else f"{when_full} below {STOPPED:g}, our margin",
        ),
        _judged(
            data, "window_higher", "A sliding window ends more exploitable than a reservoir of its size",
            above(ends, 1), ends, f"{last} Deep CFR's; holds if above 1",
        ),
        _judged(
            data, "window_values", "So does SD-CFR's average, which has no strategy memory",
            NOT_TESTABLE if values is None else above(values, 1), values,
            "not measured" if values is None else f"{last} SD-CFR's with a reservoir; holds if above 1", source="ours",
        ),
    ]  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Every setting's levels, those of the same networks read as SD-CFR, and what they took, as Markdown."""
    lines = [
        f"| | exploitability, last quarter [{unit(data)}] | of Deep CFR's | first half | of Deep CFR's | SD-CFR, last "
        "quarter | of SD-CFR's | memories full at iteration | minutes per run |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for sweep, setting in SETTINGS.items():
        ours, base = (exploitability(data, name) for name in (sweep, "base"))
        sd_cfr = exploitability(data, sweep, "sd_cfr")
        is_base = sweep == "base"
        cells = [
            mean_ci(late(ours)),
            "–" if is_base else ratio(late(ours), late(base)),
            mean_ci(early(ours)),
            "–" if is_base else ratio(early(ours), early(base)),
            "–" if sd_cfr.empty else mean_ci(late(sd_cfr)),
            "–" if is_base else higher(data, sweep, "sd_cfr") or "–",
            full_at(data, sweep) or "never",
            f"{_minutes(data, sweep):.1f}",
        ]
        lines.append(f"| {setting.name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _minutes(data: pd.DataFrame, sweep: str) -> float:
    return float(curves(data, "wall_seconds", sweep=sweep, readout="training").iloc[:, -1].mean()) / 60
