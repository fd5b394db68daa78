"""Hold'em with one board over explicit deals, in NumPy, and the small games that it is asked about.

`Explicit` goes through every two hands and every board, suits told apart. It shares no code with the package, which is
asked for one thing only: which row of its table a hand reads.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from repro.games import Game, load
from tests.helpers.reference_poker import betting_of

SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "fhp": ("fhp", {"ranks": 4, "suits": 2}),
    "three_suits": ("fhp", {"ranks": 3, "suits": 3}),
    "four_suits": ("fhp", {"ranks": 3, "suits": 4}),
    "one_suit": ("fhp", {"ranks": 13, "suits": 1}),
    "straights": ("fhp", {"ranks": 5, "suits": 2}),
    "flushes": ("fhp", {"ranks": 6, "suits": 2}),
    "no_raises": ("fhp_limit", {"ranks": 4, "suits": 2, "max_raises": (0, 0)}),
    "fractions": ("fhp_limit", {"ranks": 4, "suits": 2, "max_raises": (1, 2), "blinds": (0.3, 1.7), "bet": 0.25}),
    "equal_blinds": ("fhp", {"ranks": 4, "suits": 2, "blinds": (2.0, 2.0)}),
    "limit": ("fhp_limit", {"ranks": 4, "suits": 2}),
    "limit_four_cards": ("fhp_limit", {"ranks": 3, "suits": 3, "flop_cards": 4}),
    "nothing_left": ("fhp", {"ranks": 4, "suits": 2, "flop_cards": 4}),
    "fhp5": ("fhp5", {"ranks": 5, "suits": 2}),
    "fhp5_three_suits": ("fhp5", {"ranks": 3, "suits": 3}),
}


def game_of(key: str) -> Game:
    name, parameters = SMALL[key]
    return load(name, **parameters)


def best_five(cards, suits, ranks):
    """Strength of five to seven cards as a tuple; aces are high, and low only in A2345 of a full set of ranks."""
    return max(_five(five, suits, ranks) for five in combinations(cards, 5))


def _five(cards, suits, ranks):
    held = sorted((card // suits + 13 - ranks for card in cards), reverse=True)
    times = sorted(Counter(held).items(), key=lambda item: (-item[1], -item[0]))
    shape, kickers = tuple(n for _, n in times), tuple(rank for rank, _ in times)
    flush = len({card % suits for card in cards}) == 1
    top = held[0] if held == list(range(held[0], held[0] - 5, -1)) else 3 if held == [12, 3, 2, 1, 0] else None
    if top is not None:
        return (8 if flush else 4, (top,))
    category = {(4, 1): 7, (3, 2): 6, (3, 1, 1): 3, (2, 2, 1): 2, (2, 1, 1, 1): 1, (1,) * 5: 0}[shape]
    return (5 if flush else category, kickers)


class Explicit:
    """A game of the FHP family.

    Betting is a string such as "rc/cr" (fold, call or check, raise or bet; rounds divided by "/"). What a player knows
    at a decision is the betting and a *situation*: the number of the hand before the board, `hand * boards + board`
    after it. Strategies map betting to `[situations, 3]` probabilities of fold, call and raise.

    Args:
        infosets: `[rows]` what the rows of tables are, ascending; default all of the game.
        share: `{board: probability}` of boards, as ascending tuples, if not all are equally likely. Hands are dealt
            uniformly: before the board from the whole deck, with a board from what it leaves.
        rename: None, or a NumPy generator: every situation is looked up in the package's tables with its suits renamed
            at random.
    """

    def __init__(self, game, infosets=None, share=None, rename=None):
        p = game.parameters
        self.ranks, self.suits, k = p["ranks"], p["suits"], p["flop_cards"]
        self.blinds, self.bet, self.max_raises, self.open_call = (
            p["blinds"], p["bet"], p["max_raises"], p["may_open_with_call"],
        )  # fmt: skip
        deck = self.ranks * self.suits
        self.hands = list(combinations(range(deck), 2))
        self.boards = sorted(combinations(range(deck), k) if share is None else share)
        self._list_deals(deck, k, share)
        self.infosets = np.arange(game.infosets) if infosets is None else np.asarray(infosets)
        self._find_rows(game, rename)

    def _list_deals(self, deck, k, share):
        masks = np.array([(1 << a) | (1 << b) for a, b in self.hands])
        found = []
        for number, board in enumerate(self.boards):
            free = np.flatnonzero((masks & sum(1 << card for card in board)) == 0)
            strengths = [best_five(board + self.hands[h], self.suits, self.ranks) for h in free]
            order = {strength: i for i, strength in enumerate(sorted(set(strengths)))}
            value = np.array([order[strength] for strength in strengths])
            i, j = np.nonzero((masks[free][:, None] & masks[free]) == 0)
            found.append(np.stack([free[i], free[j], np.full(len(i), number), np.sign(value[i] - value[j])]))
        *self.hand, self.board, self.sign = np.concatenate(found, 1)
        deals = len(self.sign)
        pairs = comb(deck - k, 2) * comb(deck - k - 2, 2)
        weight = np.array([1 / len(self.boards) if share is None else share[b] for b in self.boards])
        # If not all boards are there, the pairs of hands before the board are not all listed either.
        complete = len(self.boards) == comb(deck, k)
        self.chance = (np.full(deals, 1 / deals if complete else np.nan), weight[self.board] / pairs)
        self.situation = (self.hand, [hand * len(self.boards) + self.board for hand in self.hand])

    def _find_rows(self, game, rename):
        """Per decision, `[situations]` row of the package's tables; -1 where there is none."""
        pairs = [(*board, *hand) for hand in self.hands for board in self.boards]
        cells = []
        for r, cards in enumerate((np.array(self.hands), np.array(pairs))):
            shown = cards
            if rename is not None:
                suit = rename.permuted(np.tile(np.arange(self.suits), (len(cards), 1)), axis=1)
                shown = cards - cards % self.suits + np.take_along_axis(suit, cards % self.suits, 1)
            distinct = np.array([len(set(row)) == len(row) for row in cards.tolist()])
            cell = np.full(len(cards), -1)
            cell[distinct] = game.cards.cell(r, torch.from_numpy(shown[distinct])).numpy()
            cells.append(cell)
        self.situations = tuple(len(cell) for cell in cells)
        self.row = {}
        for node, history in enumerate(betting_of(game)):
            if not self.ended(history):
                cell = cells["/" in history]
                wanted = int(game.first_infoset[node]) + cell
                row = np.minimum(np.searchsorted(self.infosets, wanted), len(self.infosets) - 1)
                self.row[history] = np.where((cell >= 0) & (self.infosets[row] == wanted), row, -1)
        assert set(self.row) == set(self.decisions())

    # -- betting ---------------------------------------------------------------------------------------------------

    def actor(self, history):
        *before, now = history.split("/")
        return (len(now) + len(before)) % 2

    def chips(self, history):
        put = list(self.blinds)
        for r, actions in enumerate(history.split("/")):
            for i, action in enumerate(actions):
                me = (i + r) % 2
                if action != "f":
                    put[me] = put[1 - me]
                if action == "r":
                    put[me] += sum(put) if self.bet is None else self.bet
        return put

    def options(self, history):
        *before, now = history.split("/")
        put = self.chips(history)
        calls = self.open_call or history != ""
        return "f" * (put[0] != put[1]) + "c" * calls + "r" * (now.count("r") < self.max_raises[len(before)])

    def ended(self, history):
        return history.endswith("f") or ("/" in history and _is_over(history.split("/")[1]))

    def after(self, history, action):
        goes_on = "/" not in history and action != "f" and _is_over(history + action)
        return history + action + "/" * goes_on

    def decisions(self):
        found, waiting = [], [""]
        for history in waiting:
            if not self.ended(history):
                found.append(history)
                waiting.extend(self.after(history, a) for a in self.options(history))
        return found

    def histories(self):
        """Number of histories: betting with what has been dealt by then."""
        before = len(set(zip(*self.hand, strict=True)))
        return sum(
            len(self.board) if "/" in history else before
            for history in {"", *(self.after(h, a) for h in self.decisions() for a in self.options(h))}
        )

    # -- strategies ------------------------------------------------------------------------------------------------

    def strategy(self, table):
        """Of the package's table."""
        rows = np.asarray(table)
        return {h: rows[np.maximum(row, 0)] for h, row in self.row.items()}

    def uniform(self):
        allowed = {h: [a in self.options(h) for a in "fcr"] for h in self.decisions()}
        return {h: np.full((self.situations["/" in h], 3), a) / sum(a) for h, a in allowed.items()}

    def sweep(self, strategy, player, best=False):
        """What there is to know about a player, who follows the strategy or responds to it.

        value: chips. Per own decision: q, `[situations, 3]` counterfactual values of the actions; reach, `[situations]`
        the player's own probability to get there, NaN in situations that are never dealt; met, `[situations]` chance's
        and the opponent's.
        """
        out = SimpleNamespace(value=0.0, q={}, reach={}, met={})
        ones = np.ones(len(self.board))
        out.value = float(self._descend("", strategy, player, best, ones, ones, out).sum())
        return out

    def _descend(self, history, strategy, player, best, own, theirs, out):
        """`[deals]` chips times chance times the opponent's reach."""
        if self.ended(history):
            return theirs * self.chance["/" in history] * self._payoff(history, player)
        me, r = self.actor(history), int("/" in history)
        situation = self.situation[r][me]
        sigma = strategy[history][situation]
        actions = {"fcr".index(a): self.after(history, a) for a in self.options(history)}
        if me != player:
            return sum(
                self._descend(to, strategy, player, best, own, theirs * sigma[:, a], out) for a, to in actions.items()
            )
        worth = {
            a: self._descend(to, strategy, player, best, own * sigma[:, a], theirs, out) for a, to in actions.items()
        }
        size = self.situations[r]
        q = np.full((size, 3), -np.inf)
        for a, w in worth.items():
            q[:, a] = np.bincount(situation, w, size)
        out.q[history] = np.where(np.isneginf(q), 0, q)
        out.met[history] = np.bincount(situation, theirs * self.chance[r], size)
        out.reach[history] = np.full(size, np.nan)
        out.reach[history][situation] = own
        assert (out.reach[history][situation] == own).all()
        if best:
            choice = q.argmax(1)[situation]
            return sum(np.where(choice == a, w, 0) for a, w in worth.items())
        return sum(sigma[:, a] * w for a, w in worth.items())

    def _payoff(self, history, player):
        put = self.chips(history)
        if history.endswith("f"):
            *before, now = history.split("/")
            folded = (len(now) - 1 + len(before)) % 2
            return -put[player] if folded == player else put[1 - player]
        return put[0] * (self.sign if player == 0 else -self.sign)

    def nash_conv(self, strategy):
        return sum(self.sweep(strategy, player, best=True).value for player in range(2))

    def in_rows(self, values, own=False):
        """`{betting: [situations, ...]}` -> `[rows, ...]` as the package lists them, and which rows were written.

        Summed over the situations of a row, or, if `own`, the same for all of them.
        """
        shape = next(iter(values.values())).shape[1:]
        found, written = np.zeros((len(self.infosets), *shape)), np.zeros(len(self.infosets), bool)
        for history, of in values.items():
            there = (self.row[history] >= 0) & (not own or ~np.isnan(of))
            row = self.row[history][there]
            written[row] = True
            if own:
                found[row] = of[there]
                assert (abs(found[row] - of[there]) < 1e-12).all()
            else:
                np.add.at(found, row, of[there])
        return found, written

    # -- CFR -------------------------------------------------------------------------------------------------------

    def cfr(self, start, iterations, alternating=True, alpha=np.inf, beta=np.inf, gamma=0.0, floor=False):
        """Discounted CFR's family with a regret per situation, suits told apart: yields average strategies.

        Args:
            start: `{betting: [situations, 3]}` regrets to begin with.
        """
        uniform = self.uniform()
        regrets = {h: start[h].copy() for h in uniform}
        sums = {h: np.zeros_like(u) for h, u in uniform.items()}
        for t in range(1, iterations + 1):
            for players in [(0,), (1,)] if alternating else [(0, 1)]:
                sigma = {h: normalised(np.maximum(regrets[h], 0), uniform[h]) for h in regrets}
                for player in players:
                    swept = self.sweep(sigma, player)
                    for h, q in swept.q.items():
                        regrets[h] += (q - (sigma[h] * q).sum(1, keepdims=True)) * (uniform[h] > 0)
                        regrets[h] = discounted(regrets[h], t, alpha, beta, floor)
                        sums[h] += t**gamma * swept.reach[h][:, None] * sigma[h]
            yield {h: normalised(sums[h], uniform[h]) for h in sums}


def normalised(weight, otherwise):
    total = weight.sum(1, keepdims=True)
    return np.where(total > 0, weight / np.where(total > 0, total, 1), otherwise)


def discounted(regrets, t, alpha, beta, floor):
    """Regrets after iteration `t` of Discounted CFR, or of CFR+."""
    positive, negative = (1.0 if np.isinf(e) else t**e / (t**e + 1) for e in (alpha, beta))
    return regrets * np.where(regrets > 0, positive, 0.0 if floor else negative)


def _is_over(actions):
    return len(actions) > 1 and actions.endswith("c")


def orbits(boards, suits):
    """`{board: its orbit's least one}`: a renaming of suits turns the boards of an orbit into each other."""
    least = {}
    for board in boards:
        same = {
            tuple(sorted(card - card % suits + order[card % suits] for card in board))
            for order in permutations(range(suits))
        }
        least[board] = min(same)
    return least


def assert_close(ours, theirs, atol=1e-9, rtol=0.0):
    """Faster than `pytest.approx` on arrays."""
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=rtol, atol=atol)
