"""From chips to the units that papers plot. The only place where exploitability and winnings change unit."""

from __future__ import annotations

from repro.games.game import Game


def milli_units(game: Game, chips: float) -> float:
    """Chips per game to what `unit_name` names: thousandths of the game's unit, which is its ante or big blind."""
    return 1000.0 * chips / game.chips_per_unit


def unit_name(game: Game) -> str:
    """`mA/g` (milli-antes per game), or `mbb/g` (milli-big-blinds per game): `Game.unit`."""
    return game.unit


def sd_cfr_exploitability(game: Game, nash_conv_chips: float) -> float:
    """What SD-CFR's Figs. 1 and 3 plot: NashConv / 2, in mA/g.

    The paper's formula is the sum over players; the authors' code plots its half, the mean of the two players' losses
    against a best response.
    """
    return milli_units(game, nash_conv_chips) / 2


def exploitability(game: Game, nash_conv_chips: float) -> float:
    """NashConv in the unit and convention of the papers on this kind of game.

    Hold'em: *total* exploitability, the sum over players, in mbb/g [Deep CFR]. Others: `sd_cfr_exploitability`.
    `Game.exploitability_is_mean` tells which.
    """
    if game.exploitability_is_mean:
        return sd_cfr_exploitability(game, nash_conv_chips)
    return milli_units(game, nash_conv_chips)
