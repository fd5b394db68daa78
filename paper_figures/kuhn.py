"""The Kuhn tutorial: what it reports, a win rate, beside what it should have reported.

`draw`, `claims` and `table` are pure functions of the figure's data (see `repro.figures.frame`). The strategies
themselves are in it (metrics `strategy/...`), so that values and win rates are computed here, exactly.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import style
from paper_figures.sweeps import Sweep
from repro.algorithms.kuhn_post import Greedy, KuhnPostConfig, strategy_network
from repro.common.seeding import initialisation
from repro.evaluation import expected_value, nash_conv
from repro.evaluation.measures import strategy_metric
from repro.evaluation.statistics import Estimate, mean_ci
from repro.evaluation.units import milli_units, sd_cfr_exploitability
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, Claim, below, within
from repro.figures.frame import curves
from repro.games import Game, load
from repro.games.betting import RAISE, SHOWDOWN
from repro.policies import TabularPolicy, uniform

TITLE, GAME = "Kuhn tutorial", "Kuhn"
SHOWS = "win rate, game value, exploitability and strategies of the tutorial's Deep CFR"
SWEEPS = (
    Sweep("corrected", "experiment=kuhn algorithm=kuhn_post_corrected seed=range(5)", {"smoke": "seed=range(2)"}),
    Sweep("deep_cfr", "experiment=kuhn_deep_cfr seed=range(5)", {"smoke": "seed=range(2)"}),
    # On tables, without sampling: what an exact method reaches. Nothing in it is random, so one seed is all.
    Sweep(
        "linear_cfr", "experiment=kuhn algorithm=linear_cfr algorithm.snapshot_every=20 seed=range(1)",
        {"smoke": "algorithm.iterations=20"},
    ),
    Sweep("post", "experiment=kuhn seed=range(5)", {"smoke": "seed=range(2)"}),
)  # fmt: skip

UNIT = "mA/g"
REPORTED, REPORTED_GAMES = 0.496, 10_000
"""Player 0's win rate as the tutorial reports it, and over how many games."""
NEARLY = 10.0
"""Exploitability up to which a strategy is called an equilibrium here: a hundredth of the ante."""

NEAR_HALF = 0.05
"""How far from one half a win rate may be to be called near it."""

NAMES = {
    "post": "tutorial, as printed",
    "post_greedy": "tutorial, as printed, most probable actions",
    "corrected": "tutorial, errors corrected",
    "corrected_greedy": "tutorial, errors corrected, most probable actions",
    "deep_cfr": "Deep CFR (this suite)",
    "sd_cfr": "SD-CFR (this suite)",
    "linear_cfr": "Linear CFR, exact",
}
COLOURS = {
    "post": "#CC79A7", "post_greedy": "#CC79A7", "corrected": "#009E73", "corrected_greedy": "#009E73",
    "linear_cfr": "#555555", **style.COLOURS,
}  # fmt: skip
CARDS = "JQK"


# -- Kuhn poker, exactly ---------------------------------------------------------------------------------------------


@cache
def kuhn() -> Game:
    """The game that all of this is about."""
    return load("kuhn")


def equilibrium(alpha: float) -> TabularPolicy:
    """The equilibria of Kuhn poker [Kuhn 1950]: player 0 has one free parameter in [0, 1/3], player 1 none."""
    game = kuhn()
    aggressive = {
        (): (alpha, 0, 3 * alpha),
        (1,): (1 / 3, 0, 1),
        (1, 2): (0, alpha + 1 / 3, 1),
        (2,): (0, 1 / 3, 1),
    }
    table = torch.zeros_like(game.uniform)
    for i in range(game.infosets):
        history = game.tree.histories[int(game.infoset_node[i])][0]
        passive, active = game.legal[i].nonzero().flatten().tolist()
        table[i, active] = aggressive[history][int(game.infoset_hand[i])]
        table[i, passive] = 1 - table[i, active]
    return TabularPolicy(table)


ALPHAS = np.linspace(0, 1 / 3, 41)


@cache
def _infoset(node: int, card: int) -> int:
    return int(kuhn().infoset(torch.tensor(node), torch.tensor(0), torch.tensor(card)))


def win_rate(policy: TabularPolicy) -> float:
    """Probability that player 0 ends a game with more chips than before."""
    game = kuhn()
    tree = game.tree

    def wins(node: int, cards: tuple[int, ...]) -> float:
        winner, player = int(tree.winner[node]), int(tree.player[node])
        if winner == SHOWDOWN:
            return float(cards[0] > cards[1])
        if player < 0:
            return float(winner == 0)
        row = policy.table[_infoset(node, cards[player])]
        return sum(float(row[a]) * wins(int(tree.child[node, a]), cards) for a in tree.legal[node].nonzero().flatten())

    deals = list(permutations(range(game.cards.ranks), 2))
    return sum(wins(0, cards) for cards in deals) / len(deals)


FRESH_NETWORKS = 400


@cache
def never_trained(networks: int = FRESH_NETWORKS) -> tuple[int, float, float]:
    """Of strategy networks with fresh weights, played greedily, as the README of the post's code evaluates one: how
    many have a win rate of exactly one half, the lowest rate, and the highest."""
    rates: dict[bytes, float] = {}
    found = []
    for seed in range(networks):
        with initialisation(seed, "strategy network"):
            policy = Greedy.policy(kuhn(), strategy_network(KuhnPostConfig.width))
        played = policy.table.numpy().tobytes()
        if played not in rates:
            rates[played] = win_rate(policy)
        found.append(rates[played])
    return sum(rate == 0.5 for rate in found), min(found), max(found)


def _calling_station() -> TabularPolicy:
    """Checks and calls, always."""
    table = torch.zeros_like(kuhn().uniform)
    table[:, 1] = 1
    return TabularPolicy(table)


# -- from the data ---------------------------------------------------------------------------------------------------


def final_policies(data: pd.DataFrame, readout: str) -> list[TabularPolicy]:
    """The last strategy of each seed."""
    game = kuhn()
    rows = data[(data.readout == readout) & data.metric.str.startswith("strategy/")]
    last = rows[rows.step == rows.step.max()].pivot_table(index="seed", columns="metric", values="value")
    policies = []
    for _, row in last.iterrows():
        table = torch.zeros_like(game.uniform)
        for i, a in game.legal.nonzero().tolist():
            table[i, a] = float(row[strategy_metric(game, i, a)])
        policies.append(TabularPolicy(table / table.sum(1, keepdim=True)))
    return policies


def _estimate(data: pd.DataFrame, readout: str, measure: str) -> Estimate:
    """Mean over seeds of the final strategy's "exploitability" [mA/g], "value" [mA/g of player 0] or "win rate"."""
    game = kuhn()
    of = {
        "exploitability": lambda p: sd_cfr_exploitability(game, nash_conv(game, p)),
        "value": lambda p: milli_units(game, expected_value(game, p)[0]),
        "win rate": win_rate,
    }[measure]
    return mean_ci([of(p) for p in final_policies(data, readout)])


def _present(data: pd.DataFrame) -> list[str]:
    return [readout for readout in NAMES if readout in set(data.readout)]


# -- the picture -----------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """Exploitability over nodes touched; strategies beside the equilibria; win rate against exploitability."""
    figure = Figure(figsize=(12.5, 7.8))
    grid = figure.add_gridspec(
        2, 2, height_ratios=(1, 0.9), hspace=0.42, wspace=0.2, width_ratios=(1, 0.85), right=0.86
    )
    _draw_exploitability(figure.add_subplot(grid[0, 0]), data)
    _draw_win_rates(figure.add_subplot(grid[0, 1]), data)
    _draw_strategies(figure.add_subplot(grid[1, :]), data)
    figure.suptitle(
        f"Kuhn poker: the tutorial's Deep CFR and what it is to be compared with (scale: {data.scale.iloc[0]})", y=0.96
    )
    return figure


def _draw_exploitability(axes: Axes, data: pd.DataFrame) -> None:
    for readout in _present(data):
        if readout.endswith("_greedy"):
            continue
        runs, nodes = (curves(data, metric, readout=readout) for metric in ("exploitability", "nodes_touched"))
        x, seeds = nodes.mean().tolist(), len(runs)
        style.curve(
            axes, x, runs.to_numpy(), colour=COLOURS[readout],
            label=f"{NAMES[readout]} ({f'{seeds} seeds' if seeds > 1 else '1 run'})",
        )  # fmt: skip
    chance = sd_cfr_exploitability(kuhn(), nash_conv(kuhn(), uniform(kuhn())))
    axes.axhline(chance, color="black", linewidth=0.8, linestyle=":", label="uniform strategy")
    axes.set(xscale="log", yscale="log", xlabel="nodes touched", ylabel=f"exploitability: NashConv / 2 [{UNIT}]")
    # Intervals of few seeds reach below zero; the means say how far down the axis must go.
    axes.set_ylim(0.5 * data[data.metric == "exploitability"].value.min(), 5e4)
    axes.set_title("(a) exploitability of the strategy as it is learned, 95% CI, thin: seeds", fontsize=9)
    axes.legend(fontsize=6.5, loc="upper left", ncols=2)


def _draw_win_rates(axes: Axes, data: pd.DataFrame) -> None:
    game = kuhn()
    rates = [win_rate(equilibrium(a)) for a in ALPHAS]
    axes.plot(
        rates, np.zeros(len(rates)), color="black", linewidth=5, label="all equilibria", solid_capstyle="butt",
        zorder=0.9,
    )  # fmt: skip
    axes.axvspan(
        *_reported_interval(), color="grey", alpha=0.3,
        label="reported win rate, 95% CI of 10,000 games (paper)",
    )  # fmt: skip
    for readout in _present(data):
        policies = final_policies(data, readout)
        greedy = readout.endswith("_greedy")
        axes.scatter(
            [win_rate(p) for p in policies], [sd_cfr_exploitability(game, nash_conv(game, p)) for p in policies],
            s=34, marker="x" if greedy else "o", color=COLOURS[readout], alpha=0.8, label=NAMES[readout],
        )  # fmt: skip
    for policy, marker, label in ((uniform(game), "^", "uniform strategy"), (_calling_station(), "s", "always call")):
        y = sd_cfr_exploitability(game, nash_conv(game, policy))
        axes.scatter([win_rate(policy)], [y], marker=marker, s=40, color="black", label=label)
    axes.set(xlabel="player 0's win rate (exact)", ylabel=f"exploitability: NashConv / 2 [{UNIT}]")
    axes.set_title("(b) a win rate near one half says little (a mark per seed)", fontsize=9)
    axes.legend(fontsize=6.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_strategies(axes: Axes, data: pd.DataFrame) -> None:
    game = kuhn()
    cells = [(i, int(game.legal[i].nonzero().flatten()[-1])) for i in range(game.infosets)]
    family = np.array([[float(equilibrium(a).table[c]) for c in cells] for a in ALPHAS])
    for x, (low, high) in enumerate(zip(family.min(0), family.max(0), strict=True)):
        label = "equilibria, α in [0, 1/3]" if x == 0 else None
        axes.bar(x, max(high - low, 0.012), bottom=low, width=0.86, color="black", alpha=0.25, label=label)
    shown = [a for a in _present(data) if not a.endswith("_greedy")]
    for k, readout in enumerate(shown):
        values = np.array([[float(p.table[c]) for c in cells] for p in final_policies(data, readout)])
        estimates = [mean_ci(column) for column in values.T]
        middle = np.array([e.mean for e in estimates])
        spread = np.array([[e.mean - e.low, e.high - e.mean] for e in estimates]).T
        at = np.arange(len(cells)) + (k - (len(shown) - 1) / 2) * 0.14
        error = spread if np.isfinite(spread).all() else None
        axes.errorbar(
            at, middle, yerr=error, fmt="o", markersize=3.5, linewidth=1, color=COLOURS[readout],
            label=NAMES[readout],
        )  # fmt: skip
    axes.set_xticks(range(len(cells)), [_name(i, a) for i, a in cells], fontsize=7)
    axes.set(ylabel="probability", ylim=(-0.05, 1.05))
    axes.set_title("(c) probability of betting, or of calling a bet, at the end: mean over seeds, 95% CI", fontsize=9)
    axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.22))


def _name(infoset: int, action: int) -> str:
    """E.g. "P0 K\\nafter check, bet\\ncall"."""
    game = kuhn()
    player, card = int(game.infoset_player[infoset]), CARDS[int(game.infoset_hand[infoset])]
    words = {1: "check", 2: "bet"}
    before = "-".join(words[a] for a in game.tree.histories[int(game.infoset_node[infoset])][0])
    situation = f"after\n{before}" if before else "first\nto act"
    return f"P{player} with {card}\n{situation}\n{'bet' if action == RAISE else 'call'}"


# -- the claims ------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """What the tutorial reports and concludes, judged."""
    smoke = bool((data.scale == "smoke").all())
    judged = [_reported_rate(data, readout, smoke) for readout in ("post_greedy", "corrected_greedy")]
    judged += [_half_at_equilibrium(), _symmetric(), _half_means_equilibrium(data, smoke)]
    judged += [_is_equilibrium(data, readout, smoke) for readout in NAMES]
    judged += [_value(data, readout, smoke) for readout in ("post", "corrected", "deep_cfr", "sd_cfr")]
    return judged


def _reported_interval() -> tuple[float, float]:
    half_width = 1.96 * (REPORTED * (1 - REPORTED) / REPORTED_GAMES) ** 0.5
    return REPORTED - half_width, REPORTED + half_width


def _reported_rate(data: pd.DataFrame, readout: str, smoke: bool) -> Claim:
    low, high = _reported_interval()
    rates = [win_rate(p) for p in final_policies(data, readout)]
    inside = sum(low <= r <= high for r in rates)
    verdict = HELD if 2 * inside > len(rates) else DID_NOT_HOLD
    return Claim(
        f"{readout}_win_rate", f"{NAMES[readout]}: player 0 wins 49.6% of 10,000 games", "post, Results",
        NOT_TESTABLE if smoke else verdict, mean_ci(rates), "win rate", REPORTED,
        f"exact win rates, by seed: {', '.join(f'{r:.3f}' for r in rates)}; holds if most lie in the 95% interval of "
        f"the reported one, [{low:.3f}, {high:.3f}]",
    )  # fmt: skip


def _half_at_equilibrium() -> Claim:
    rates = [win_rate(equilibrium(a)) for a in ALPHAS]
    holds = max(abs(r - 0.5) for r in rates) <= NEAR_HALF
    return Claim(
        "half_at_equilibrium", "A win rate near one half is what we expect at a Nash equilibrium", "post, Results",
        HELD if holds else DID_NOT_HOLD,
        Estimate(float(np.mean(rates)), min(rates), max(rates), len(rates)), "win rate, exact range", REPORTED,
        "the bracket is the exact range over all equilibria, α in [0, 1/3], not a confidence interval; holds if all "
        f"are within {NEAR_HALF:g} of one half",
    )  # fmt: skip


def _symmetric() -> Claim:
    """The value is a theorem's, computed here all the same."""
    value = milli_units(kuhn(), expected_value(kuhn(), equilibrium(0.0))[0])
    return Claim(
        "symmetric", "... exactly as we expect in a symmetric zero-sum game: neither seat has an advantage",
        "post, Results", HELD if abs(value) < NEARLY else DID_NOT_HOLD,
        Estimate(value, float("nan"), float("nan"), 1), UNIT, 0.0,
        f"player 0's value at equilibrium; holds if within {NEARLY:g} of 0. Which win rate goes with it depends on the "
        "equilibrium",
    )  # fmt: skip


def _half_means_equilibrium(data: pd.DataFrame, smoke: bool) -> Claim:
    game = kuhn()
    low, high = _reported_interval()
    learned = [p for a in _present(data) for p in final_policies(data, a)]
    near = [p for p in (*learned, uniform(game), _calling_station()) if low <= win_rate(p) <= high]
    worst = max(sd_cfr_exploitability(game, nash_conv(game, p)) for p in near)
    verdict = DID_NOT_HOLD if worst > NEARLY else HELD
    return Claim(
        "half_means_equilibrium", "A win rate near one half shows that the strategy is an equilibrium (implied)",
        "post, Results", NOT_TESTABLE if smoke else verdict, Estimate(worst, float("nan"), float("nan"), 1), UNIT,
        None, f"the most exploitable of the {len(near)} strategies of panel (b) whose win rate lies in the reported "
        f"interval; holds if at most {NEARLY:g}",
    )  # fmt: skip


def _is_equilibrium(data: pd.DataFrame, readout: str, smoke: bool) -> Claim:
    measured = _estimate(data, readout, "exploitability")
    note = f"exploitability at the end; holds if the interval is below {NEARLY:g}"
    verdict: str = below(measured, NEARLY)
    if readout == "linear_cfr":
        # Nothing in it is random: there is no interval, and the number is compared as it is.
        note = f"exploitability at the end; holds if below {NEARLY:g}"
        verdict = HELD if measured.mean < NEARLY else DID_NOT_HOLD
    return Claim(
        f"{readout}_is_equilibrium", f"{NAMES[readout]}: the learned strategy is an equilibrium",
        "post, Results" if readout in ("post", "post_greedy") else "control",
        NOT_TESTABLE if smoke else verdict, measured, UNIT, 0.0 if readout == "post_greedy" else None,
        note,
    )  # fmt: skip


def _value(data: pd.DataFrame, readout: str, smoke: bool) -> Claim:
    measured = _estimate(data, readout, "value")
    true = -1000 / 18
    verdict = within(measured, true - NEARLY, true + NEARLY)
    return Claim(
        f"{readout}_value", f"{NAMES[readout]}: player 0 gets the value of the game, -1/18", "Kuhn (1950)",
        NOT_TESTABLE if smoke else verdict, measured, UNIT, true,
        f"of the strategy against itself; holds if the interval is within {NEARLY:g} of it, and does not if wholly "
        "outside",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Every strategy's numbers, as Markdown."""
    lines = [
        f"| strategy | exploitability [{UNIT}] | player 0's value [{UNIT}] | player 0's win rate |",
        "|---|---|---|---|",
        "| tutorial, as reported | – | – | 0.496 |",
    ]
    for readout in _present(data):
        cells = [str(_estimate(data, readout, m)) for m in ("exploitability", "value", "win rate")]
        lines.append(f"| {NAMES[readout]} | {' | '.join(cells)} |")
    rates = [win_rate(equilibrium(a)) for a in ALPHAS]
    lines.append(f"| equilibria, exact | 0 | -55.6 | {min(rates):.3f} to {max(rates):.3f} |")
    half, low, high = never_trained()
    others = f"exactly 0.5 of {half}, the others' from {low:.3g} to {high:.3g}"
    lines.append(f"| {FRESH_NETWORKS} networks, never trained, most probable actions | – | – | {others} |")
    return "\n".join(lines)
