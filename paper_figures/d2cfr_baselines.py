"""What D2CFR's margins are against: it and its baselines in Leduc, by whose hyperparameters; who wins against whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import matches
from paper_figures.d2cfr_curves import LABEL, UNIT
from paper_figures.exploitability_curves import label_axis, unless_smoke
from paper_figures.sweeps import Sweep, against
from repro.evaluation.statistics import Estimate, as_ratio, difference, digits, mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, above, below
from repro.figures.frame import curves, values
from repro.figures.page import folded

TITLE, GAME = "D2CFR, ours", "Leduc"
SHOWS = "what D2CFR's margins come from: its baselines with whose hyperparameters, and who wins against whom"

STEPS, MORE_STEPS = 1000, 4000
"""SGD steps of a fit from random weights, as Algorithm 1 has it: what trials suggested, and what are enough."""


@dataclass(frozen=True)
class Player:
    """What a training plays at its end.

    Attributes:
        key: of metrics and claims.
        name: for readers.
        sweep: of its trainings.
        overrides: that ask for one of them.
        readout: of the training.
    """

    key: str
    name: str
    sweep: str
    overrides: str
    readout: str

    def curves(self, data: pd.DataFrame, metric: str) -> pd.DataFrame:
        """A metric: `[seeds, iterations]`."""
        return curves(data, metric, sweep=self.sweep, readout=self.readout)


_OPENSPIEL = "experiment=openspiel_leduc"
_MAXIMUM = f"{_OPENSPIEL} algorithm.passed_up=maximum algorithm.when_no_positive=uniform"
_RANDOM = "algorithm.value.start=random"
_SCRATCH = f"experiment=deep_cfr_leduc {_RANDOM} algorithm.value.steps={STEPS}"
_ENOUGH = f"experiment=deep_cfr_leduc {_RANDOM} algorithm.value.steps={MORE_STEPS}"
_WARM = "experiment=deep_cfr_leduc algorithm.value.start=previous"
_D2CFR_SCRATCH = f"experiment=d2cfr_leduc {_RANDOM} algorithm.value.steps={STEPS}"
_D2CFR_ENOUGH = f"experiment=d2cfr_leduc {_RANDOM} algorithm.value.steps={MORE_STEPS}"
_D2CFR_WARM = "experiment=d2cfr_leduc algorithm.value.start=previous"
_PUBLISHED = "experiment=sd_cfr_leduc"

PLAYERS = (
    Player(
        "openspiel_maximum", "Deep CFR, OpenSpiel's example, maximum passed up", "openspiel_maximum", _MAXIMUM,
        "deep_cfr",
    ),
    Player("openspiel", "Deep CFR, OpenSpiel's example", "openspiel", _OPENSPIEL, "deep_cfr"),
    Player("deep_cfr_scratch", f"Deep CFR, from scratch, {STEPS:,} steps", "scratch", _SCRATCH, "deep_cfr"),
    Player("sd_cfr_scratch", f"SD-CFR, from scratch, {STEPS:,} steps", "scratch", _SCRATCH, "sd_cfr"),
    Player("deep_cfr_warm", "Deep CFR, warm start", "warm", _WARM, "deep_cfr"),
    Player("sd_cfr_warm", "SD-CFR, warm start", "warm", _WARM, "sd_cfr"),
    Player("deep_cfr_published", "Deep CFR, values of SD-CFR's paper", "published", _PUBLISHED, "deep_cfr"),
    Player("sd_cfr_published", "SD-CFR, values of its paper", "published", _PUBLISHED, "sd_cfr"),
    Player("d2cfr_scratch", f"D2CFR, from scratch, {STEPS:,} steps", "d2cfr_scratch", _D2CFR_SCRATCH, "d2cfr"),
    Player("d2cfr_warm", "D2CFR, warm start", "d2cfr_warm", _D2CFR_WARM, "d2cfr"),
    Player("deep_cfr_enough", f"Deep CFR, from scratch, {MORE_STEPS:,} steps", "enough", _ENOUGH, "deep_cfr"),
    Player("sd_cfr_enough", f"SD-CFR, from scratch, {MORE_STEPS:,} steps", "enough", _ENOUGH, "sd_cfr"),
    Player("d2cfr_enough", f"D2CFR, from scratch, {MORE_STEPS:,} steps", "d2cfr_enough", _D2CFR_ENOUGH, "d2cfr"),
)  # fmt: skip
BY_KEY = {player.key: player for player in PLAYERS}
D2CFR = tuple(player for player in PLAYERS if player.readout == "d2cfr")
OTHERS = tuple(player for player in PLAYERS if player.readout != "d2cfr")


OPPONENTS: dict[str, Sequence[Player]] = {
    sweep: PLAYERS[:first] for first, sweep in reversed(list(enumerate(player.sweep for player in PLAYERS)))
}
"""Whom a sweep's trainings are measured against: players of the sweeps before."""

PAIRS = tuple((b, a) for a, b in pairwise(PLAYERS) if a.sweep == b.sweep)
"""SD-CFR and Deep CFR of the same trainings."""


def _sweep(name: str, overrides: str, smoke: str = "seed=range(2)") -> Sweep:
    """Trainings, measured against their opponents, and their SD-CFR against their Deep CFR."""
    named = [against(player.key, player.overrides, player.readout) for player in OPPONENTS[name]]
    named += [f"+evaluation.match.opponents.{deep.key}=/{deep.readout}" for _, deep in PAIRS if deep.sweep == name]
    measured = ["evaluation=[exploitability,match]", "evaluation.match.at=last", *named] if named else []
    at = {"laptop": "seed=range(3)", "smoke": smoke}
    return Sweep(name, " ".join([overrides, "seed=range(5)", *measured]), at)


_SHORT = f"algorithm.snapshot_every=10 {_RANDOM}"


def _by_steps(name: str, experiment: str, measured: str = "") -> Sweep:
    """How far fits from random weights get in 60 iterations, by their SGD steps."""
    return Sweep(
        name, f"experiment={experiment} algorithm.iterations=60 {_SHORT} "
        f"algorithm.value.steps=200,500,1000,2000,4000,8000 seed=range(3) {measured}",
        {"smoke": "algorithm.iterations=10 algorithm.value.steps=10,200 seed=0"},
    )  # fmt: skip


_BY_STEPS = {"deep_cfr": "steps_deep_cfr", "d2cfr": "steps_d2cfr"}
"""Of a read-out, the sweep that tells how many SGD steps it needs from scratch."""

_AS_MANY = (
    f"experiment=deep_cfr_leduc algorithm.iterations=${{algorithm.iterations}} {_SHORT} "
    "algorithm.value.steps=${algorithm.value.steps}"
)
"""The Deep CFR that a D2CFR with any number of steps is measured against."""

SWEEPS = (
    _sweep("openspiel_maximum", _MAXIMUM),
    _sweep("openspiel", _OPENSPIEL),
    _sweep("scratch", _SCRATCH),
    _sweep("warm", _WARM),
    _sweep("published", _PUBLISHED),
    _sweep("d2cfr_scratch", _D2CFR_SCRATCH),
    _sweep("d2cfr_warm", _D2CFR_WARM),
    # Only to see that everything works: long fits are made of one seed, and what nobody is measured against is short.
    _sweep("enough", _ENOUGH, smoke="seed=0"),
    _sweep("d2cfr_enough", _D2CFR_ENOUGH, smoke="seed=0 algorithm.iterations=10"),
    _by_steps(_BY_STEPS["deep_cfr"], "deep_cfr_leduc"),
    _by_steps(
        _BY_STEPS["d2cfr"],
        "d2cfr_leduc",
        f"evaluation=[exploitability,match] evaluation.match.at=last {against('as_many_steps', _AS_MANY, 'deep_cfr')}",
    ),
)

PAPER = {"deep_cfr": (276.1, 47.2), "sd_cfr": (40.85, 9.2)}
"""Table I, Leduc: what D2CFR wins, mean and half of the 95% interval over 10,000 games."""


# -- from the data ---------------------------------------------------------------------------------------------------


def players(data: pd.DataFrame) -> list[Player]:
    """Those with trainings: what is published grows, and may not have the last ones yet."""
    return [player for player in PLAYERS if (data.sweep == player.sweep).any()]


def won(data: pd.DataFrame, first: Player, second: Player) -> pd.Series | None:
    """What the first wins against the second at their ends, by seed; None where they were not measured."""
    if PLAYERS.index(first) > PLAYERS.index(second):
        return _won(data, first, second)
    other = _won(data, second, first)
    return None if other is None else -other


def _won(data: pd.DataFrame, measured: Player, opponent: Player) -> pd.Series | None:
    metric = f"match/{opponent.key}/value"
    if not (data.metric == metric).any():
        return None
    table = matches.winnings(data, opponent.key, sweep=measured.sweep, readout=measured.readout)
    return table.iloc[:, -1] if table.size else None


# -- drawing ---------------------------------------------------------------------------------------------------------

_COLOURS = dict(zip(PLAYERS, (
    "#777777", "#000000", "#56B4E9", "#0072B2", "#E69F00", "#D55E00", "#CC79A7", "#7A4E9B", "#66C2A5", "#009E73",
    "#A6761D", "#6B4C12", "#00441B",
), strict=True))  # fmt: skip


def select(data: pd.DataFrame) -> pd.DataFrame:
    """What was measured of read-outs; of the trainings' iterations it is much, and nothing here is drawn from them."""
    return data[data.readout != "training"]


def draw(data: pd.DataFrame) -> Figure:
    """Who wins what against whom; exploitability by iteration and by histories visited. Numbers name the players."""
    figure = Figure(figsize=(15.0, 5.2))
    matrix, by_iteration, by_nodes = figure.subplots(1, 3, width_ratios=(1.15, 1, 1))
    assert isinstance(matrix, Axes)
    _draw_matrix(matrix, data)
    for number, player in enumerate(players(data), start=1):
        colour = _COLOURS[player]
        exploitability = player.curves(data, "exploitability")
        steps = [float(str(step)) for step in exploitability.columns]
        for axes, x in ((by_iteration, steps), (by_nodes, cost(data, player).mean().tolist())):
            means = exploitability.mean().tolist()
            axes.plot(x, means, color=colour, linewidth=1.6)
            beside = (3 + 9 * (number % 3), -3)  # Not one on the other where curves end alike.
            axes.annotate(str(number), (x[-1], means[-1]), xytext=beside, textcoords="offset points", color=colour)
    by_iteration.set(xscale="log", xlabel="CFR iteration (both players)")
    by_nodes.set(xscale="log", xlabel="histories visited, play-outs included")
    label_axis(by_iteration.xaxis, data.step[data.metric == "exploitability"])
    for axes in (by_iteration, by_nodes):
        axes.set(yscale="log", ylabel=LABEL, title="means over runs")
        label_axis(axes.yaxis, data.value[data.metric == "exploitability"])
    runs = data[data.sweep.isin([player.sweep for player in PLAYERS])].groupby("sweep").seed.nunique()
    each = " to ".join(dict.fromkeys(f"{count}" for count in (runs.min(), runs.max())))
    figure.suptitle(f"D2CFR and its baselines in Leduc, {each} runs each, scale: {data.scale.iloc[0]}")
    figure.tight_layout()
    return figure


def cost(data: pd.DataFrame, player: Player) -> pd.DataFrame:
    """Histories visited by traversals and play-outs: `[seeds, iterations]`."""
    traversed = player.curves(data, "nodes_touched")
    return traversed + player.curves(data, "nodes_played_out") if player in D2CFR else traversed


def _draw_matrix(axes: Axes, data: pd.DataFrame) -> None:
    shown = players(data)
    means = np.full((len(shown), len(shown)), np.nan)
    for i, first in enumerate(shown):
        for j, second in enumerate(shown):
            winnings = won(data, first, second) if i != j else None
            if winnings is None:
                continue
            estimate = mean_ci(winnings)
            means[i, j] = estimate.mean
            half = f"\n±{estimate.high - estimate.mean:.0f}" if estimate.n > 1 else ""
            axes.text(j, i, f"{estimate.mean:+.0f}{half}", ha="center", va="center", fontsize=6)
    most = float(np.nanmax(np.abs(means), initial=1.0))
    axes.imshow(means, cmap="RdBu", vmin=-most, vmax=most, alpha=0.55)
    names = [f"{number}  {player.name}" for number, player in enumerate(shown, start=1)]
    axes.set_xticks(range(len(shown)), [str(number) for number in range(1, len(shown) + 1)])
    axes.set_yticks(range(len(shown)), names, fontsize=7)
    for label, player in zip(axes.get_yticklabels(), shown, strict=True):
        label.set_color(_COLOURS[player])
    axes.grid(visible=False)
    axes.set_title(f"what rows win against columns ({UNIT}, 95% CI over runs)", fontsize=9)


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """For D2CFRs and the baselines they met: whether they win, and as much as the paper says; at equal cost; and by
    steps. For SD-CFRs: whether they beat the Deep CFR of their own trainings."""
    by_player = [claim for ours in D2CFR for other in OTHERS for claim in _claims(data, ours, other)]
    return [*by_player, *_claims_at_equal_cost(data), *_claims_of_pairs(data), *_claims_by_steps(data)]


def _claims_of_pairs(data: pd.DataFrame) -> Iterator[Claim]:
    """Nothing where they have not met."""
    for ours, other in PAIRS:
        winnings = won(data, ours, other)
        if winnings is not None:
            yield _beats(data, ours, other, "the Deep CFR of its own trainings", "ours", mean_ci(winnings))


def _beats(data: pd.DataFrame, ours: Player, other: Player, whom: str, source: str, measured: Estimate) -> Claim:
    return Claim(
        f"{ours.key}_beats_{other.key}", f"{ours.name}, beats {whom}", source,
        unless_smoke(data, above(measured, 0)), measured, UNIT, note="winnings at the end, exact; holds if above 0",
    )  # fmt: skip


def _claims_at_equal_cost(data: pd.DataFrame) -> Iterator[Claim]:
    """Whether D2CFR is the less exploitable where play-outs count, after what costs a baseline the most."""
    shown = players(data)
    visited = {player: float(cost(data, player).mean().iloc[-1]) for player in OTHERS if player in shown}
    costly = [player for player, most in visited.items() if most == max(visited.values())]
    for ours, other in ((ours, other) for ours in D2CFR for other in costly if ours in shown):
        reached = _after(data, ours, visited[other])
        ratio, note = None, "has no evaluation so early"
        if reached is not None:
            last = other.curves(data, "exploitability").iloc[:, -1]
            ratio = as_ratio(difference(np.log(reached), np.log(last)))
            note = (
                f"exploitabilities within {digits(visited[other])} histories, where the latter ends, of D2CFR at "
                f"iteration {reached.name}, Welch's interval; holds if below 1"
            )
        yield Claim(
            f"{ours.key}_below_{other.key}_at_equal_cost",
            f"Within as many histories, play-outs counted, {ours.name}, gets below {other.name}", "ours",
            unless_smoke(data, below(ratio, 1)) if ratio else NOT_TESTABLE, ratio, "ratio", note=note,
        )  # fmt: skip


def _after(data: pd.DataFrame, player: Player, allowed: float) -> pd.Series | None:
    """A player's exploitability, by seed, at its last evaluation within so many histories; None if there is none."""
    last = _last_within(cost(data, player).mean(), allowed)
    return None if last is None else player.curves(data, "exploitability")[last]


def _last_within(work: pd.Series, allowed: float) -> int | None:
    """The last iteration with so much work at the most."""
    within = work.index[work <= allowed]
    return int(within[-1]) if len(within) else None


def _claims_by_steps(data: pd.DataFrame) -> Iterator[Claim]:
    for steps, winnings in _won_by_steps(data).items():
        measured = mean_ci(winnings)
        yield Claim(
            f"beats_as_many_steps_{steps}", f"From scratch D2CFR beats Deep CFR with as many SGD steps: {steps:,}",
            "ours", unless_smoke(data, above(measured, 0)), measured, UNIT,
            note="winnings at the end of the sweeps by steps, exact; holds if above 0",
        )  # fmt: skip


def _claims(data: pd.DataFrame, ours: Player, other: Player) -> Iterator[Claim]:
    """Nothing where they have not met."""
    winnings = won(data, ours, other)
    if winnings is None:
        return
    measured = mean_ci(winnings)
    paper, half = PAPER[other.readout]
    verdict, note = matches.as_large(measured, paper, half)
    yield _beats(data, ours, other, other.name, "after Table I", measured)
    if data.scale.iloc[0] != "paper":
        verdict = NOT_TESTABLE
    yield Claim(
        f"{ours.key}_margin_over_{other.key}", f"{ours.name}, wins as much as the paper says, against {other.name}",
        "after Table I", verdict, measured, UNIT, paper, note,
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Every player at its end and at equal lengths, the matrix, and fits from scratch by steps, as Markdown."""
    return "\n\n".join("\n".join(part) for part in (_table_of_players(data), _matrix(data), _table_of_steps(data)))


def _table_of_players(data: pd.DataFrame) -> list[str]:
    """At the ends; where the shortest ends; and at equal work, without play-outs and with them.

    Without, it is what the player that touches the fewest nodes ends with; with them, what the one whose first
    evaluation comes last has visited then, and what the most costly baseline ends with. Players that end with fewer
    are marked so.
    """
    shown = players(data)
    levels = {player: player.curves(data, "exploitability") for player in shown}
    nodes = {player: player.curves(data, "nodes_touched").mean() for player in shown}
    visited = {player: cost(data, player).mean() for player in shown}
    shortest = min(int(table.columns[-1]) for table in levels.values())
    fewest = min(float(touched.iloc[-1]) for touched in nodes.values())
    first = max(float(histories.iloc[0]) for histories in visited.values())
    most = max(float(visited[player].iloc[-1]) for player in shown if player in OTHERS)
    lines = [
        f"| player | iterations | exploitability [{UNIT}] | at iteration {shortest} | at {digits(fewest)} nodes of "
        f"traversals | at {digits(first)} histories, play-outs counted | at {digits(most)} | histories visited, at "
        "the first evaluation | at the end |",
        "|---" * 9 + "|",
    ]
    for player in shown:
        level, histories = levels[player], visited[player]
        lines.append(
            f"| {player.name} | {level.columns[-1]} | {mean_ci(level.iloc[:, -1])} | {mean_ci(level[shortest])} "
            f"| {_reached(level, nodes[player], fewest)} | {_reached(level, histories, first)} "
            f"| {_reached(level, histories, most)} | {digits(histories.iloc[0])} | {digits(histories.iloc[-1])} |"
        )
    return lines


def _reached(level: pd.DataFrame, work: pd.Series, allowed: float) -> str:
    """Exploitability `[seeds, iterations]` after the last iteration with so much work."""
    last = _last_within(work, allowed)
    if last is None:
        return "–"
    ends = last == work.index[-1] and work[last] < allowed
    return f"{mean_ci(level[last])} ({f'ends at t = {last}' if ends else f't = {last}'})"


def _matrix(data: pd.DataFrame) -> list[str]:
    """What D2CFR wins; folded, what each wins."""
    shown = players(data)
    ours, others = ({p.name: p for p in shown if p in group} for group in (D2CFR, OTHERS))
    with_d2cfr = _won_by(data, ours, others)
    by_number = {str(number): player for number, player in enumerate(shown, start=1)}
    everyone = _won_by(data, by_number, {f"{number}: {player.name}": player for number, player in by_number.items()})
    summary = "who wins what against whom, by the players' numbers"
    return [*with_d2cfr, "", folded(summary, "\n".join(everyone), always=True)]


def _won_by(data: pd.DataFrame, winners: Mapping[str, Player], others: Mapping[str, Player]) -> list[str]:
    """A column per winner and a row per other, by what they are called."""
    lines = [f"| wins [{UNIT}] | {' | '.join(winners)} |", "|---" * (1 + len(winners)) + "|"]
    for name, other in others.items():
        winnings = [None if player is other else won(data, player, other) for player in winners.values()]
        cells = ["–" if each is None else str(mean_ci(each)) for each in winnings]
        lines.append(f"| against {name} | {' | '.join(cells)} |")
    return lines


def _by_steps_reached(data: pd.DataFrame, readout: str) -> dict[int, pd.Series]:
    """Exploitabilities from scratch at the ends, by SGD steps of a fit; numbers that both algorithms were run with."""
    both = [set(values(data[data.sweep == sweep], "value_steps")) for sweep in _BY_STEPS.values()]
    of = {"sweep": _BY_STEPS[readout], "readout": readout}
    return {
        steps: curves(data, "exploitability", value_steps=steps, **of).iloc[:, -1]
        for steps in sorted(set.intersection(*both))
    }


def _won_by_steps(data: pd.DataFrame) -> dict[int, pd.Series]:
    """What D2CFR wins from scratch against Deep CFR with as many SGD steps, by their number; empty if not measured."""
    metric = "match/as_many_steps/value"
    of = {"sweep": _BY_STEPS["d2cfr"], "readout": "d2cfr"}
    measured = values(data[data.metric == metric], "value_steps")
    return {steps: curves(data, metric, value_steps=steps, **of).iloc[:, -1] for steps in measured}


def enough(reached: Mapping[int, pd.Series]) -> int | None:
    """The fewest steps after which no number tried is a tenth lower in the mean; None if that is the largest tried."""
    if not reached:
        return None
    means = {steps: each.mean() for steps, each in reached.items()}
    first = min(steps for steps, mean in means.items() if mean * 0.9 <= min(means.values()))
    return None if first == max(means) else first


def _table_of_steps(data: pd.DataFrame) -> list[str]:
    """What either reaches by SGD steps, D2CFR's exploitability to Deep CFR's, and how many steps are enough."""
    reached = {readout: _by_steps_reached(data, readout) for readout in _BY_STEPS}
    iterations = data[data.sweep == _BY_STEPS["d2cfr"]].step.max()
    won = _won_by_steps(data)
    lines = [
        f"| SGD steps of a fit from scratch | Deep CFR, after {iterations} iterations [{UNIT}] | D2CFR | ratio "
        f"| D2CFR wins [{UNIT}] |",
        "|---" * 5 + "|",
    ]
    for steps, deep in reached["deep_cfr"].items():
        other = reached["d2cfr"][steps]
        ratio = as_ratio(difference(np.log(other), np.log(deep)))
        wins = mean_ci(won[steps]) if steps in won else "–"
        lines.append(f"| {steps:,} | {mean_ci(deep)} | {mean_ci(other)} | {ratio} | {wins} |")
    found = {readout: enough(each) for readout, each in reached.items()}
    said = {readout: "not found" if steps is None else f"{steps:,}" for readout, steps in found.items()}
    return [
        *lines, "",
        "Steps that are enough, the fewest after which no number tried ends a tenth lower in the mean: "
        f"{said['deep_cfr']} for Deep CFR, {said['d2cfr']} for D2CFR.",
    ]  # fmt: skip
