"""Deep CFR Sec. 6 and Fig. 1: pot-size HUNL, Deep CFR against a blueprint of an abstraction; the network's size."""

from __future__ import annotations

from functools import cache

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from paper_figures import style
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.matches import QUANTILE, UNIT, draw_runs, errors, winnings
from paper_figures.sweeps import Sweep, against
from repro.config import NetworkConfig
from repro.evaluation.statistics import Estimate, digits, mean_ci
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, Claim, Verdict, above, below
from repro.figures.frame import values
from repro.games import Game, load
from repro.networks.inputs import network_inputs
from repro.networks.modules import Residual, parameter_count, value_network

TITLE, GAME = "Deep CFR Sec. 6, Fig. 1", "pot-size HUNL"
SHOWS = "Deep CFR against the blueprint of an abstraction; the network's layers and parameters"


def _against(coarse: int, fine: int) -> str:
    """Opponents by their buckets per round."""
    return " ".join(
        against(name, f"experiment=hunl_blueprint algorithm.buckets={buckets}", "es_mccfr")
        for name, buckets in (("coarse_blueprint", coarse), ("blueprint", fine))
    )


SWEEPS = (
    # The abstraction of 1,000 buckets is ours.
    Sweep(
        "blueprint", "experiment=hunl_blueprint algorithm.buckets=1000,30000 seed=range(3)",
        {"smoke": "algorithm.buckets=10,40 seed=range(2)"},
    ),
    Sweep(
        "deep_cfr",
        "experiment=hunl_deep_cfr seed=range(3) evaluation=match evaluation.match.hands=3000000 "
        + _against(1000, 30000),
        {
            "laptop": "evaluation.match.hands=400000",
            "smoke": f"seed=range(2) evaluation.match.hands=2000 {_against(10, 40)}",
        },
    ),
)  # fmt: skip

OPPONENTS = ("blueprint", "coarse_blueprint")
"""As the configurations name them; the first is the paper's."""

PAPER_PARAMETERS = (61_604, 98_948)
"""Of the text, and of the later version of the paper."""


def buckets(data: pd.DataFrame) -> dict[str, int]:
    """Buckets per round of each opponent."""
    coarse, fine = values(data, "buckets")
    return {"blueprint": fine, "coarse_blueprint": coarse}


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(data: pd.DataFrame) -> Figure:
    """Winnings by iteration against each blueprint, of both read-outs."""
    figure = Figure(figsize=(9.0, 4.0))
    both: list[Axes] = list(figure.subplots(1, 2, sharey=True))
    for axes, opponent in zip(both, OPPONENTS, strict=True):
        for name in ("deep_cfr", "sd_cfr"):
            won, error = winnings(data, opponent, readout=name), errors(data, opponent, readout=name)
            draw_runs(axes, won, error, style.COLOURS[name], style.NAMES[name])
        axes.set_title(f"against {buckets(data)[opponent]:,} buckets per round")
        axes.set(xlabel="CFR iteration (both players)")
    both[0].set(ylabel=f"winnings ({UNIT})")
    both[1].legend(fontsize=7)
    figure.suptitle(f"Pot-size HUNL against blueprints, scale: {data.scale.iloc[0]}")
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """The claim of the text, judged, and what it takes to judge it."""
    return [_beats_the_blueprint(data), _beats_the_coarse_one(data), _finer_is_stronger(data)]


def _won(data: pd.DataFrame, opponent: str) -> tuple[pd.Series, float]:
    """What S-hat wins after the last iteration, by seed; the widest half-width of a match."""
    won, error = winnings(data, opponent, readout="deep_cfr"), errors(data, opponent, readout="deep_cfr")
    return won.iloc[:, -1], float(QUANTILE * error.iloc[:, -1].max())


def _gap(data: pd.DataFrame) -> Estimate:
    """How much more Deep CFR wins against the finer abstraction than against the coarser one, paired by seed."""
    return mean_ci(_won(data, "blueprint")[0] - _won(data, "coarse_blueprint")[0])


def _beats(data: pd.DataFrame, opponent: str) -> tuple[str, Estimate, str]:
    """Whether Deep CFR wins, what it wins, and how that was judged.

    A loss of networks that are still getting better decides nothing.
    """
    won, half = _won(data, opponent)
    measured = mean_ci(won)
    test = above(measured, 0)
    verdict = unless_smoke(data, test)
    note = f"after the last iteration; a match's own 95% interval is at most ±{digits(half)}; holds if above 0"
    rise = _rise(data, opponent) if verdict == DID_NOT_HOLD else None
    if rise is not None and above(rise, 0) == HELD:
        verdict = Verdict(NOT_TESTABLE, test.p)
        note += f"; not testable, though it would not hold: still rising, by {rise} since the evaluation before"
    return verdict, measured, note


def _rise(data: pd.DataFrame, opponent: str) -> Estimate | None:
    """How much more S-hat wins after the last iteration than at the evaluation before, if any, paired by seed."""
    won = winnings(data, opponent, readout="deep_cfr")
    return mean_ci(won.iloc[:, -1] - won.iloc[:, -2]) if won.shape[1] > 1 else None


def _beats_the_blueprint(data: pd.DataFrame) -> Claim:
    fine = buckets(data)["blueprint"]
    verdict, measured, note = _beats(data, "blueprint")
    if verdict == HELD and above(_gap(data), 0) == HELD:
        verdict = Verdict(NOT_TESTABLE, above(measured, 0).p)
        note += (
            "; not testable, though it would hold: the coarser abstraction is the harder opponent, this one not solved"
        )
    return Claim(
        "beats_blueprint", f"Deep CFR beats the strategy from an abstraction of {fine:,} buckets per round", "Sec. 6",
        verdict, measured, UNIT, note=note,
    )  # fmt: skip


def _beats_the_coarse_one(data: pd.DataFrame) -> Claim:
    coarse = buckets(data)["coarse_blueprint"]
    verdict, measured, note = _beats(data, "coarse_blueprint")
    return Claim(
        "beats_coarse", f"Deep CFR beats the strategy from an abstraction of {coarse:,} buckets per round",
        "ours, after Sec. 6", verdict, measured, UNIT, note=note,
    )  # fmt: skip


def _finer_is_stronger(data: pd.DataFrame) -> Claim:
    gap = _gap(data)
    return Claim(
        "finer_is_stronger", "The finer abstraction is the harder opponent", "ours",
        unless_smoke(data, below(gap, 0)), gap, UNIT,
        note="what Deep CFR wins more against it than against the coarser one, paired by run; holds if below 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Winnings, work, and the network's layers and parameters, as Markdown."""
    return "\n\n".join([_winnings(data), _work(data), _layers(), _parameters()])


def _winnings(data: pd.DataFrame) -> str:
    lines = [
        f"| iteration | read-out | opponent | winnings [{UNIT}], mean over runs | widest half-width of a match |",
        "|---|---|---|---|---|",
    ]
    for opponent in OPPONENTS:
        for name in ("deep_cfr", "sd_cfr"):
            won, error = winnings(data, opponent, readout=name), errors(data, opponent, readout=name)
            lines += [
                f"| {step} | {style.NAMES[name]} | {buckets(data)[opponent]:,} buckets | {mean_ci(won[step])} | "
                f"±{digits(QUANTILE * error[step].max())} |"
                for step in won.columns
            ]
    return "\n".join(lines)


def _work(data: pd.DataFrame) -> str:
    """Nodes touched and time, per run."""
    runs = {"Deep CFR": data[data.readout == "deep_cfr"]}
    sizes = {}
    for count in values(data, "buckets"):
        name = f"MCCFR, {count:,} buckets"
        runs[name], sizes[name] = data[data.buckets == count], infosets(count)
    lines = [
        "| run | nodes touched | minutes of iterations and matches | infosets of the abstraction that were met |",
        "|---|---|---|---|",
    ]
    for name, rows in runs.items():
        last = rows[rows.step == rows.step.max()].groupby("metric").value.mean()
        met = f"{last['infosets_seen']:,.0f} of {sizes[name]:,}" if name in sizes else "–"
        lines.append(f"| {name} | {digits(last['nodes_touched'])} | {last['wall_seconds'] / 60:.1f} | {met} |")
    return "\n".join(lines)


def infosets(count: int) -> int:
    """Of an abstraction with so many buckets in each round but the first."""
    hunl = _game("hunl_pot")
    nodes = hunl.tree.round[hunl.tree.player >= 0].bincount()
    return int(nodes[0]) * hunl.cards.cells[0] + int(nodes[1:].sum()) * count


@cache
def _game(name: str) -> Game:
    return load(name)


@cache
def network(game: str, card_width: int) -> nn.Module:
    """The value network, 64 units wide, with a card branch of `card_width`."""
    loaded = _game(game)
    config = NetworkConfig(architecture="deep_cfr", width=64, card_width=card_width)
    return value_network(config, network_inputs(loaded)[1], loaded.num_actions)


def _layers() -> str:
    """Every layer of the network with a card branch of 64 units."""
    built = network("hunl_pot", 64)
    linear = [m for m in built.modules() if isinstance(m, nn.Linear)]
    skipped = {m.linear for m in built.modules() if isinstance(m, Residual)}
    sets = ["hole", "flop", "turn", "river"]
    names = [f"embedding of the {s} cards (card, rank, suit)" for s in sets] + [
        *(f"cards {i}" for i in (1, 2, 3)), "bets 1", "bets 2", *(f"joint {i}" for i in (1, 2, 3)), "output"
    ]  # fmt: skip
    lines = ["| layer | inputs | units | skip | parameters |", "|---|---|---|---|---|"]
    for name, layer in zip(names, linear, strict=True):
        skip = "yes" if layer in skipped else ""
        count = parameter_count(layer)
        lines.append(f"| {name} | {layer.in_features} | {layer.out_features} | {skip} | {count:,} |")
    lines.append(f"| all | | | | {parameter_count(built):,} |")
    return "\n".join(lines)


def _parameters() -> str:
    text, later = PAPER_PARAMETERS
    lines = [
        "| parameters | card branch of 64 units | of 192 | paper, text | paper, later version |",
        "|---|---|---|---|---|",
    ]
    for game, name in (("fhp", "Flop Hold'em"), ("hunl_pot", "pot-size HUNL")):
        ours = [parameter_count(network(game, width)) for width in (64, 192)]
        lines.append(f"| {name} | {ours[0]:,} | {ours[1]:,} | {text:,} | {later:,} |")
    return "\n".join(lines)
