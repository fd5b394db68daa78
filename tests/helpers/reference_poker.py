"""Poker in plain Python over explicit deals: slow, obvious, and sharing no code with the project."""

from collections import defaultdict
from itertools import groupby, permutations
from types import SimpleNamespace
from typing import Any

import pytest

from repro.games import Game

# Small enough for plain Python. Odd numbers of everything: one suit, no raises, a first bet that is larger than the
# second, fractions of chips, two cards left in the deck.
TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "kuhn": ("kuhn", {}),
    "kuhn_2": ("kuhn", {"ranks": 2}),
    "kuhn_4": ("kuhn", {"ranks": 4}),
    "leduc": ("leduc", {}),
    "three_cards": ("leduc", {"suits": 1, "max_raises": 1}),
    "no_raises": ("leduc", {"ranks": 4, "suits": 1, "max_raises": 0, "ante": 2.0}),
    "two_ranks": ("leduc", {"ranks": 2, "suits": 3, "max_raises": 1, "bet_sizes": (5.0, 0.5), "ante": 0.25}),
    "three_raises": ("leduc", {"ranks": 2, "suits": 2, "max_raises": 3, "bet_sizes": (1.0, 3.0), "ante": 3.0}),
    "big_leduc": ("big_leduc", {"ranks": 2, "max_raises": 1}),
}
TINY_GAMES = [pytest.param(name, {**kw, "suit_isomorphism": iso}, id=f"{key}-{'ranks' if iso else 'cards'}")
              for key, (name, kw) in TINY.items() for iso in (True, False)]  # fmt: skip

LEDUC_SHAPE: dict[str, Any] = {"ranks": 3, "suits": 2, "max_raises": 2, "bet_sizes": (2, 4), "ante": 1}
SHAPES = {
    "kuhn": {"ranks": 3, "suits": 1, "max_raises": 1, "bet_sizes": (1,), "ante": 1},
    "leduc": LEDUC_SHAPE,
    "big_leduc": {**LEDUC_SHAPE, "ranks": 12, "max_raises": 6},
}


class Reference:
    """Poker in plain Python, one explicit deal after the other; shares no code with the package.

    A history is a string such as "rc/cr" (fold, call or check, raise or bet; rounds divided by "/"). An infoset is
    (player, hand, board or None, history); a strategy maps infosets to {action: probability}.
    """

    def __init__(self, name, suit_isomorphism=True, **parameters):
        shape = {**SHAPES[name], **parameters}
        self.ranks, self.suits, self.max_raises = shape["ranks"], shape["suits"], shape["max_raises"]
        self.bets, self.ante, self.by_rank = shape["bet_sizes"], shape["ante"], suit_isomorphism

    def deals(self):
        """Every ordered (card of player 0, card of player 1[, board card]); all are equally likely."""
        return list(permutations(range(self.ranks * self.suits), 1 + len(self.bets)))

    def options(self, history, spent):
        raises = history.split("/")[-1].count("r")
        return "f" * (spent[0] != spent[1]) + "c" + "r" * (raises < self.max_raises)

    def act(self, history, spent, action):
        """History and chips spent after an action."""
        rounds = history.split("/")
        if action == "f":
            return history + "f", spent
        me, bet = len(rounds[-1]) % 2, self.bets[len(rounds) - 1]
        paid = spent[1 - me] + (bet if action == "r" else 0)
        spent = (paid, spent[1]) if me == 0 else (spent[0], paid)
        goes_on = action == "c" and rounds[-1] and len(rounds) < len(self.bets)
        return history + action + "/" * bool(goes_on), spent

    def finished(self, history):
        *before, last = history.split("/")
        return last.endswith("f") or (len(before) == len(self.bets) - 1 and len(last) > 1 and last.endswith("c"))

    def payoff(self, deal, history, spent):
        """Chips of player 0."""
        if history.endswith("f"):
            return -spent[0] if len(history.split("/")[-1]) % 2 == 1 else spent[1]
        ours, theirs = (self.strength(card, deal[2:]) for card in deal[:2])
        return spent[0] * ((ours > theirs) - (ours < theirs))

    def strength(self, card, board):
        rank = card // self.suits
        return any(b // self.suits == rank for b in board), rank

    def infoset(self, deal, history):
        shown = [card // self.suits if self.by_rank else card for card in deal]
        player = len(history.split("/")[-1]) % 2
        return player, shown[player], shown[2] if "/" in history else None, history

    def histories(self):
        """{history: chips spent} of decisions and endings."""
        found, waiting = {}, [("", (self.ante, self.ante))]
        while waiting:
            history, spent = waiting.pop()
            found[history] = spent
            if not self.finished(history):
                waiting.extend(self.act(history, spent, a) for a in self.options(history, spent))
        return found

    def infosets(self):
        decisions = [h for h in self.histories() if not self.finished(h)]
        return {self.infoset(deal, history) for deal in self.deals() for history in decisions}

    def sweep(self, strategy):
        """Everything there is to know about a strategy.

        value: chips of player 0. Per infoset: own_reach, the owner's probability; action_values, {action: value}
        counterfactual; visits_as_traverser and visits_as_other, how often a traversal that explores all of the
        traverser's actions comes by. touched: histories that such a traversal meets, per traverser.
        """
        deals = self.deals()
        out = SimpleNamespace(
            chance=1 / len(deals), value=0.0, own_reach={}, touched=[0.0, 0.0],
            action_values=defaultdict(lambda: defaultdict(float)),
            visits_as_traverser=defaultdict(float), visits_as_other=defaultdict(float),
        )  # fmt: skip
        for deal in deals:
            out.value += out.chance * self._descend(strategy, deal, ("", (self.ante,) * 2), (1.0, 1.0), out)
        return out

    def _descend(self, strategy, deal, at, reach, out):
        (history, spent), chance = at, out.chance
        for player in range(2):
            out.touched[player] += chance * reach[1 - player]
        if self.finished(history):
            return self.payoff(deal, history, spent)
        infoset = self.infoset(deal, history)
        me, value = infoset[0], 0.0
        out.own_reach[infoset] = reach[me]
        out.visits_as_traverser[infoset] += chance * reach[1 - me]
        out.visits_as_other[infoset] += chance * reach[me]
        for action in self.options(history, spent):
            p = strategy[infoset][action]
            onward = (reach[0] * p, reach[1]) if me == 0 else (reach[0], reach[1] * p)
            below = self._descend(strategy, deal, self.act(history, spent, action), onward, out)
            out.action_values[infoset][action] += chance * reach[1 - me] * (below if me == 0 else -below)
            value += p * below
        return value

    def best_response_value(self, strategy, player):
        """By backward induction: the longest histories are decided first."""
        strategy = dict(strategy)
        mine = sorted((i for i in strategy if i[0] == player), key=lambda i: len(i[3]), reverse=True)
        for _, infosets in groupby(mine, key=lambda i: len(i[3])):
            values = self.sweep(strategy).action_values
            for infoset in infosets:
                best = max(values[infoset], key=values[infoset].get)
                strategy[infoset] = {action: float(action == best) for action in values[infoset]}
        value = self.sweep(strategy).value
        return value if player == 0 else -value


def betting_of(game: Game) -> list[str]:
    """Per betting node, its history as the references write it."""
    return ["/".join("".join("fcr"[a] for a in actions) for actions in history) for history in game.tree.histories]


def infosets_of(game):
    """The infosets of a game, in its order, as `Reference` names them."""
    betting = betting_of(game)
    columns = (game.infoset_player, game.infoset_hand, game.infoset_board, game.infoset_node)
    for player, hand, board, node in zip(*(c.tolist() for c in columns), strict=True):
        history = betting[node]
        yield player, hand, board if "/" in history else None, history


def strategy_of(game, table):
    """A table as a strategy of `Reference`."""
    return {
        infoset: {a: p for a, p, legal in zip("fcr", row, allowed, strict=True) if legal}
        for infoset, row, allowed in zip(infosets_of(game), table.tolist(), game.legal.tolist(), strict=True)
    }
