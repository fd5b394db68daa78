"""Not in the paper: labels of turns from networks of rivers, beside exact ones and what networks of turns make of few.

All read-outs of a seed label the same turns, and those of another seed others.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN, UNIT, ZERO_SUM
from paper_figures.devn_sweeps import PART_2, SMALL_DECK_TURNS
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, mean_ci
from repro.figures.claims import Claim
from repro.figures.frame import curves

TITLE, GAME = "DEVN, ours", "turn subgames"
SHOWS = "labels of turns from DCVN's and DEVN's values of rivers, beside exact labels"

_MEASURED = "seed=range(5) evaluation=[turn_values] evaluation.turn_values.truth=0.0005"
_FEW = {"night": "evaluation.turn_values.turns=10", "smoke": "evaluation.turn_values.turns=2 seed=0"}
_EXACT = 3000
"""Turns, of exact labels, that networks of turns learn from."""
_LEAVES, _REFERENCE, _TURNS = "leaves", "reference", "turns"
SWEEPS = (
    # Networks of rivers, their rivers, and turns, of figure 13.
    Sweep(
        "rivers", "experiment=leaves_data seed=0",
        {"laptop": "algorithm.first=0,40", "night": "algorithm.first=0,100"},
    ),
    Sweep(_LEAVES, f"experiment=leaves algorithm=dcvn,devn {_MEASURED}", _FEW),
    Sweep(
        _REFERENCE,
        "experiment=leaves_reference evaluation.turn_values.readouts=[exact,oracle_dcvn,oracle_devn,checked_down] "
        f"{_MEASURED}", _FEW,
    ),
    # At scale smoke dataset 2 is of rivers, too.
    Sweep(PART_2.name, PART_2.overrides, PART_2.at, only=("laptop",)),
    Sweep(
        _TURNS,
        f"experiment=devn algorithm=dcvn,devn algorithm.dataset=1 algorithm.learn_from={_EXACT} "
        f"algorithm.batch_size=250 network.layers=3 {_MEASURED}",
        {
            "laptop": f"{SMALL_DECK_TURNS} algorithm.subgames=5000 algorithm.iterations=100 "
            "algorithm.snapshot_every=10 network.width=256 evaluation=[value_errors,turn_values]",
        },
        only=("laptop",),
    ),
)  # fmt: skip

ROWS = {
    "exact": "rivers solved along",
    "oracle_dcvn": "buckets' exact CFVs of rivers",
    "oracle_devn": "buckets' exact EVs of rivers",
    DCVN: "DCVN of rivers",
    DEVN: "DEVN of rivers",
    ZERO_SUM: "DEVN of rivers, made zero-sum",
    "checked_down": "checking down",
    "turns_dcvn": f"DCVN of turns, from {_EXACT:,} exact labels",
    "turns_devn": f"DEVN of turns, from {_EXACT:,} exact labels",
}
"""What turns are valued by. The last two are networks that value turns themselves."""


def select(data: pd.DataFrame) -> pd.DataFrame:
    """Errors of values of turns, and what networks of turns err on their validation turns."""
    values = data.metric.isin(("turn_error", "zero_error"))
    networks = data[data.sweep == _TURNS]
    best = [devn.best_epochs(networks), devn.bucketed_losses(networks)] if len(networks) else []
    return pd.concat([data[values], *best], ignore_index=True)


def error_of(data: pd.DataFrame, row: str, metric: str = "turn_error") -> pd.Series:
    """The error of a row's values of turns, by seed; empty where it was not measured."""
    sweep = _TURNS if row.startswith("turns_") else _LEAVES if row in (DCVN, DEVN, ZERO_SUM) else _REFERENCE
    found = curves(data, metric, sweep=sweep, readout=row.removeprefix("turns_"))
    return pd.Series(dtype=float) if found.empty else found.iloc[:, -1]


def measured(data: pd.DataFrame) -> dict[str, Estimate]:
    """Rows that were measured."""
    found = {row: error_of(data, row) for row in ROWS}
    return {row: mean_ci(errors) for row, errors in found.items() if len(errors)}


def draw(data: pd.DataFrame) -> Figure:
    """Errors of values of turns."""
    found = measured(data)
    figure = Figure(figsize=(8.0, 1.2 + 0.38 * len(found)), layout="constrained")
    axes = figure.subplots()
    assert isinstance(axes, Axes)
    for y, (row, estimate) in enumerate(found.items()):
        spread = [[estimate.mean - estimate.low], [estimate.high - estimate.mean]] if estimate.n > 1 else None
        colour = devn.COLOURS.get(row.removeprefix("turns_"), "#666666")
        filled = "white" if row.startswith("turns_") else colour
        axes.errorbar(estimate.mean, y, xerr=spread, fmt="o", color=colour, capsize=3, markerfacecolor=filled)
    axes.set_yticks(range(len(found)), [ROWS[row] for row in found])
    axes.invert_yaxis()
    axes.set(xlabel=f"error of values of turns: RMSE ({UNIT})", xscale="log")
    devn.plain_numbers(axes.xaxis)
    figure.suptitle(devn.title(data, "Turns labelled by values of rivers"))
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """None of the paper's: whether labels from networks of rivers would do for networks of turns."""
    judged = []
    for method in (DCVN, DEVN):
        name = devn.NAMES[method]
        nearer = f"Labels by {name}'s values of rivers are nearer than by checking down"
        judged.append(_nearer(data, f"{method}_checked", nearer, "checked_down", method))
        if len(error_of(data, f"turns_{method}")):
            statement = (
                f"Labels by {name}'s values of rivers are nearer to exact ones than what a {name} of turns says that "
                f"learned from {_EXACT:,} exact ones"
            )
            judged.append(_nearer(data, f"{method}_exact", statement, f"turns_{method}", method))
    for name, better in (("devn", DEVN), ("zero_sum", ZERO_SUM)):
        statement = f"Labels by {ROWS[better]} are nearer than by {ROWS[DCVN]}"
        judged.append(_nearer(data, name, statement, DCVN, better))
    return judged


def _nearer(data: pd.DataFrame, name: str, statement: str, worse: str, better: str) -> Claim:
    gain = mean_ci(error_of(data, worse) - error_of(data, better))
    note = f"error by {ROWS[worse]} minus that by {ROWS[better]}, on the same turns"
    return devn.claim_above_zero(data, name, statement, gain, "points of the pot", note)


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Errors by what turns are valued by."""
    lines = ["| turns are valued by | error |", "|---|---|"]
    lines += [f"| {ROWS[row]} | {estimate} |" for row, estimate in measured(data).items()]
    lines.append(f"| 0 for every hand | {mean_ci(error_of(data, 'exact', 'zero_error'))} |")
    note = (
        f"Of counterfactual values, in {UNIT}, RMSE over a player's hands, the mean over turns and players, with 95% "
        "intervals over seeds, each of which has turns of its own; all rows of a seed have the same."
    )
    if not (data.sweep == _TURNS).any():
        return "\n".join([*lines, "", note])
    how_far = [
        "| lowest losses on validation turns: DCVN | DEVN | " + f"{devn.LEARNED} |", "|---" * 8 + "|",
        f"| {' | '.join(str(mean_ci(devn.values(data, _TURNS, m))) for m in (DCVN, DEVN))} | "
        f"{devn.learned(data, _TURNS)} |",
    ]  # fmt: skip
    return "\n".join([*lines, "", note, "", "Networks of turns:", "", *how_far, "", devn.HOW_FAR])
