"""From NashConv in chips to the units that papers plot. The only place where exploitability changes unit."""

from __future__ import annotations

from repro.games.game import Game


def milli_units(game: Game, chips: float) -> float:
    """Chips to thousandths of the game's unit: mA/g in Kuhn and Leduc, mbb/g in hold'em games."""
    return 1000.0 * chips / game.chips_per_unit


def sd_cfr_exploitability(game: Game, nash_conv_chips: float) -> float:
    """What SD-CFR's Figs. 1 and 3 plot: NashConv / 2, in mA/g.

    The paper's formula is the sum over players; the authors' code plots its half, the mean of the two players' losses
    against a best response.
    """
    return milli_units(game, nash_conv_chips) / 2
