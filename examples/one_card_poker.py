"""One-card poker: each player gets one of `ranks` cards, antes 1, and there is one round of bets of a chosen size."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from repro.games import Game
from repro.games.betting import BettingRound, BettingRules
from repro.games.one_card import one_card_each
from repro.games.registry import register_game


@register_game("one_card_poker")
@dataclass(frozen=True)
class OneCardPoker:
    """Kuhn poker with more cards, a bet of `bet` antes and `max_raises` bets."""

    ranks: int = 13
    bet: float = 2.0
    max_raises: int = 2

    def build(self, name: str) -> Game:
        rules = BettingRules((1, 1), (BettingRound(bet=self.bet, max_raises=self.max_raises),))
        return Game(name, asdict(self), rules, one_card_each(self.ranks, 1, (0,), True), 1.0)
