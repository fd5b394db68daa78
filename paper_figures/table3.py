"""D2CFR Table I: Leduc and no-limit Hold'em, D2CFR against Deep CFR, SD-CFR and NFSP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from paper_figures import matches
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.matches import QUANTILE
from paper_figures.sweeps import Sweep, against
from repro.evaluation.statistics import Estimate, digits, mean_ci
from repro.evaluation.units import milli_units
from repro.figures.claims import NOT_TESTABLE, Claim, Verdict, above
from repro.figures.frame import curves
from repro.games import load

TITLE, GAME = "D2CFR Table I", "Leduc, HNLH"
SHOWS = "D2CFR against Deep CFR, SD-CFR and NFSP"


def _against(game: str) -> str:
    """What D2CFR is measured against: what the others play at the end."""
    return " ".join((
        "evaluation.match.at=last",
        against("deep_cfr", f"experiment=deep_cfr_{game}", "deep_cfr"),
        against("sd_cfr", f"experiment=deep_cfr_{game}", "sd_cfr"),
        against("nfsp", f"experiment=nfsp_{game}", "nfsp"),
    ))  # fmt: skip


_FEW_SEEDS = {"smoke": "seed=range(2)"}
# NFSP as long as it is usually trained, not only for D2CFR's nodes.
_LONG_NFSP = "experiment=nfsp_leduc algorithm.iterations=10000 algorithm.snapshot_every=500"
# The published length takes weeks on two cores.
_SHORT = ("smoke", "laptop")
SWEEPS = (
    Sweep("baselines_hnlh", "experiment=deep_cfr_hnlh seed=range(5)", _FEW_SEEDS, only=_SHORT),
    Sweep("baselines_hnlh_nfsp", "experiment=nfsp_hnlh seed=range(5)", _FEW_SEEDS, only=_SHORT),
    Sweep("baselines_leduc", "experiment=deep_cfr_leduc seed=range(5)", _FEW_SEEDS),
    Sweep("baselines_leduc_nfsp", "experiment=nfsp_leduc seed=range(5)", _FEW_SEEDS),
    Sweep("baselines_leduc_nfsp_long", f"{_LONG_NFSP} seed=range(5)", only=("paper",)),
    Sweep(
        "d2cfr_hnlh",
        f"experiment=d2cfr_hnlh seed=range(5) evaluation=match evaluation.match.hands=10000 {_against('hnlh')}",
        # More hands, for narrower intervals.
        {"laptop": "evaluation.match.hands=200000", "smoke": "seed=range(2) evaluation.match.hands=2000"},
        only=_SHORT,
    ),
    Sweep(
        "d2cfr_leduc",
        f"experiment=d2cfr_leduc seed=range(5) evaluation=[exploitability,match] {_against('leduc')}",
        {**_FEW_SEEDS, "paper": against("nfsp_long", _LONG_NFSP, "nfsp")},
    ),
)

GAMES = {"leduc": ("Leduc", "mA/g"), "hnlh": ("HNLH", "mbb/g")}
OPPONENTS = {"deep_cfr": "Deep CFR", "sd_cfr": "SD-CFR", "nfsp": "NFSP", "nfsp_long": "NFSP of 5,000,000 hands"}


@dataclass(frozen=True)
class Cell:
    """One cell of the paper's table: a mean and half its 95% interval, in thousandths of the big blind per game."""

    game: str
    opponent: str
    mean: float
    half: float

    @property
    def name(self) -> str:
        """Of its row in tables."""
        return f"{GAMES[self.game][0]}, {OPPONENTS[self.opponent]}"


PAPER = (
    Cell("leduc", "deep_cfr", 276.1, 47.2),
    Cell("leduc", "sd_cfr", 40.85, 9.2),
    Cell("leduc", "nfsp", 219.0, 28.33),
    # For how long the paper trained it is not in the text.
    Cell("leduc", "nfsp_long", 219.0, 28.33),
    Cell("hnlh", "deep_cfr", 75.52, 16.0),
    Cell("hnlh", "sd_cfr", 64.08, 15.7),
    Cell("hnlh", "nfsp", 119.44, 27.48),
)


def _cells(data: pd.DataFrame) -> list[Cell]:
    """Those that have been run."""
    measured = data[["sweep", "metric"]].drop_duplicates()
    met = set(measured.sweep + "/" + measured.metric)
    return [cell for cell in PAPER if f"d2cfr_{cell.game}/match/{cell.opponent}/value" in met]


def _won(data: pd.DataFrame, cell: Cell, statistic: str = "value") -> pd.Series:
    """What D2CFR wins after its last iteration, or the standard error of that, by seed."""
    metric = f"match/{cell.opponent}/{statistic}"
    return curves(data, metric, readout="d2cfr", sweep=f"d2cfr_{cell.game}").iloc[:, -1]


def measured(data: pd.DataFrame, cell: Cell) -> Estimate:
    """What D2CFR wins, mean over seeds."""
    return mean_ci(_won(data, cell))


def draw(data: pd.DataFrame) -> Figure:
    """The table as a picture, a panel per game: ours and the paper's, with intervals."""
    by_game = {game: list(cells) for game, cells in groupby(_cells(data), key=attrgetter("game"))}
    figure = Figure(figsize=(max(6.4, 4.8 * len(by_game)), 3.4), layout="constrained")
    same_rows = len({len(cells) for cells in by_game.values()}) == 1
    panels = figure.subplots(1, len(by_game), sharey=same_rows, squeeze=False).flat
    for axes, (game, cells) in zip(panels, by_game.items(), strict=True):
        name, unit = GAMES[game]
        drawn = [_draw_cell(axes, row, cell, _won(data, cell)) for row, cell in enumerate(cells)]
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(cells)), [f"against {OPPONENTS[cell.opponent]}" for cell in cells])
        axes.set(xlabel=f"winnings of D2CFR ({unit})", title=name, ylim=(len(cells) - 0.5, -0.5))
    figure.legend(handles=drawn[0], fontsize=8, loc="outside lower center", ncols=2)
    figure.suptitle(f"D2CFR against others, scale: {data.scale.iloc[0]}")
    return figure


def _draw_cell(axes: Axes, row: int, cell: Cell, won: pd.Series) -> list[ErrorbarContainer]:
    ours = mean_ci(won)
    spread = [[ours.mean - ours.low], [ours.high - ours.mean]] if ours.n > 1 else None
    axes.plot(won, [row - 0.15] * ours.n, "|", color="#0072B2", alpha=0.5)
    return [
        axes.errorbar(
            ours.mean, row - 0.15, xerr=spread, fmt="o", color="#0072B2", capsize=3,
            label=f"ours, 95% CI over {ours.n} runs",
        ),
        axes.errorbar(
            cell.mean, row + 0.15, xerr=cell.half, fmt="D", color="black", markerfacecolor="white", capsize=3,
            label="paper, 95% CI over 10,000 games",
        ),
    ]  # fmt: skip


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """For every cell of the table: that D2CFR wins, and as much as the paper says."""
    return [claim for cell in _cells(data) for claim in _claims(data, cell)]


@cache
def folding(game: str) -> float:
    """The most that a player loses who folds every hand, in thousandths of the game's unit: her blind, or ante, in the
    mean over both seats."""
    loaded = load(game)
    return milli_units(loaded, float(np.mean(loaded.rules.ante)))


def _unlearned(data: pd.DataFrame, cell: Cell) -> str:
    """Why a match says nothing: one of the two plays worse than who folds every hand; empty if neither does."""
    lost = folding(cell.game)
    folds = f"more than by folding every hand, {lost:g} {GAMES[cell.game][1]}"
    if abs(measured(data, cell).mean) > lost:
        return f"One of the two loses {folds}: it has not learned to play"
    if any(measured(data, other).mean < -lost for other in _cells(data) if other.game == cell.game):
        return f"D2CFR loses {folds}, to another: it has not learned to play"
    return ""


def _claims(data: pd.DataFrame, cell: Cell) -> Iterator[Claim]:
    (game, unit), opponent = GAMES[cell.game], OPPONENTS[cell.opponent]
    name, ours, why_not = f"{cell.game}_{cell.opponent}", measured(data, cell), _unlearned(data, cell)
    wins = above(ours, 0)
    note = "after the last iteration, mean over runs"
    large, how_much = matches.as_large(ours, cell.mean, cell.half)
    if cell.game == "hnlh":
        note += (
            f"; a match's own 95% interval is at most ±{digits(QUANTILE * _won(data, cell, 'standard_error').max())}"
        )
    note += "; holds if above 0"
    if data.scale.iloc[0] != "paper":
        large, how_much = NOT_TESTABLE, f"{how_much}; judged at the paper's length only"
    if why_not:
        wins, note, how_much = Verdict(NOT_TESTABLE, wins.p), f"{note}. {why_not}", f"{how_much}. {why_not}"
        large = Verdict(NOT_TESTABLE, large.p if isinstance(large, Verdict) else None)
    # The paper has one NFSP, and does not say for how long it was trained.
    source = "after Table I" if cell.opponent == "nfsp_long" else "Table I"
    yield Claim(
        name, f"D2CFR beats {opponent} on {game}", source, unless_smoke(data, wins), ours, unit, cell.mean, note
    )
    yield Claim(
        f"{name}_margin", f"D2CFR wins as much as the paper says, against {opponent} on {game}", source,
        unless_smoke(data, large), ours, unit, cell.mean, how_much,
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """The paper's table beside ours; how exploitable every algorithm is, and the nodes that it touched."""
    lines = ["| game, opponent | paper, 95% CI | ours, mean over runs |", "|---|---|---|"]
    for cell in _cells(data):
        ours = measured(data, cell)
        lines.append(f"| {cell.name} | {cell.mean} ± {cell.half} | {ours} {GAMES[cell.game][1]} |")
    work = ["| run | exploitability [mA/g] | nodes touched in traversals or hands |", "|---|---|---|"]
    return "\n".join([*lines, "", *work, *_work(data)])


def _work(data: pd.DataFrame) -> Iterator[str]:
    runs = {
        "Leduc, D2CFR": ("d2cfr_leduc", "d2cfr"), "Leduc, Deep CFR": ("baselines_leduc", "deep_cfr"),
        "Leduc, SD-CFR": ("baselines_leduc", "sd_cfr"), "Leduc, NFSP": ("baselines_leduc_nfsp", "nfsp"),
        "Leduc, NFSP of 5,000,000 hands": ("baselines_leduc_nfsp_long", "nfsp"),
        "HNLH, D2CFR": ("d2cfr_hnlh", "d2cfr"), "HNLH, Deep CFR": ("baselines_hnlh", "deep_cfr"),
        "HNLH, SD-CFR": ("baselines_hnlh", "sd_cfr"), "HNLH, NFSP": ("baselines_hnlh_nfsp", "nfsp"),
    }  # fmt: skip
    for name, (sweep, readout) in runs.items():
        if sweep not in set(data.sweep):
            continue
        exploitable = curves(data, "exploitability", sweep=sweep, readout=readout)
        level = mean_ci(exploitable.iloc[:, -1]) if exploitable.shape[1] else "–"
        nodes = curves(data, "nodes_touched", sweep=sweep, readout=readout).iloc[:, -1].mean()
        yield f"| {name} | {level} | {digits(nodes)} |"
