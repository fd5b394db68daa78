"""The plain way to solve a subgame: recursion down the tree, and a matrix of all pairs of hands at terminal nodes.

For tests and for comparison. Shares the betting tree, the strengths of hands and the discounts with
`repro.subgames.solver`, none of its loops, and is float64 throughout.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from repro.algorithms.solver import discount_factor
from repro.common.compiled import Array
from repro.games.betting import SHOWDOWN
from repro.subgames.solver import Variant
from repro.subgames.subgames import Subgame


class PlainSolver:
    """CFR on one subgame.

    Args:
        subgame: to solve.
        variant: which CFR.

    Attributes:
        regrets, sums: per betting node and full board (-1 before the last card), `[actions, hands]`.
    """

    def __init__(self, subgame: Subgame, variant: Variant) -> None:
        self.subgame, self.variant, self.iterations = subgame, variant, 0
        deck, self._tree = subgame.deck, subgame.betting()
        hands = deck.hands(subgame.board)
        holds = np.zeros((len(hands), deck.cards))
        np.put_along_axis(holds, hands, 1.0, 1)
        apart = np.equal(holds @ holds.T, 0).astype(float)
        self._apart, self._wins, self._possible = apart, list[Array](), list[Array]()
        boards = deck.full_boards(subgame.board)
        for board in boards:
            possible = np.isin(hands, board, invert=True).all(1)
            strength = np.zeros(len(hands), int)
            strength[possible] = deck.strength(board, hands[possible])
            better = np.sign(strength[:, None] - strength[None])
            self._wins.append(better * apart * np.outer(possible, possible))
            self._possible.append(possible.astype(float))
        self._chance = 1 / max(len(boards) - 4, 1)
        self._ranges = subgame.ranges / subgame.ranges.sum(1, keepdims=True)
        shape = (self._tree.child.shape[1], len(hands))
        self.regrets: dict[tuple[int, int], Array] = defaultdict(lambda: np.zeros(shape))
        self.sums: dict[tuple[int, int], Array] = defaultdict(lambda: np.zeros(shape))

    def iterate(self) -> None:
        """One iteration: player 0's update, then player 1's."""
        self.iterations += 1
        for player in range(2):
            self._values(player, "update")

    def values(self, best: bool = False) -> Array:
        """As `SubgameSolver.values`."""
        return np.stack([self._values(player, "best" if best else "mean") for player in range(2)])

    def _values(self, player: int, mode: str) -> Array:
        reach = [np.ones_like(r) if p == player else r for p, r in enumerate(self._ranges)]
        return self._value(0, -1 if self._tree.rounds == 2 else 0, reach, player, mode)

    def _value(self, node: int, board: int, reach: list[Array], player: int, mode: str) -> Array:
        """`[hands]` value of a node to `player`."""
        tree, winner = self._tree, int(self._tree.winner[node])
        if winner >= 0:
            pay = float(tree.stake[node]) * (1 if winner == player else -1)
            return pay * self._seen(board) * (self._apart @ reach[1 - player])
        if winner == SHOWDOWN:
            wins = self._wins[board] if board >= 0 else self._chance * np.sum(self._wins, axis=0)
            return float(tree.stake[node]) * (wins @ reach[1 - player])
        if board < 0 and tree.round[node] == 1:
            return np.sum([
                self._value(node, b, [r * self._possible[b] * (self._chance if p != player else 1.0)
                                      for p, r in enumerate(reach)], player, mode)
                for b in range(len(self._possible))
            ], axis=0)  # fmt: skip
        return self._decision(node, board, reach, player, mode)

    def _seen(self, board: int) -> Array | float:
        return self._possible[board] if board >= 0 else 1.0

    def _decision(self, node: int, board: int, reach: list[Array], player: int, mode: str) -> Array:
        child, actor = self._tree.child[node].tolist(), int(self._tree.player[node])
        legal, key = [a for a, c in enumerate(child) if c >= 0], (node, board)
        strategy = _normalised((self.regrets if mode == "update" else self.sums)[key], legal)
        below = {
            a: self._value(
                child[a], board, [r * strategy[a] if p == actor else r for p, r in enumerate(reach)], player, mode
            )
            for a in legal
        }
        if actor != player:
            return np.sum(list(below.values()), axis=0)
        if mode == "best":
            return np.max(list(below.values()), axis=0)
        mean: Array = np.sum([strategy[a] * below[a] for a in legal], axis=0)
        if mode == "update":
            self._learn(key, {a: below[a] - mean for a in legal}, strategy * reach[player])
        return mean

    def _learn(self, key: tuple[int, int], regret: dict[int, Array], played: Array) -> None:
        t, how = self.iterations, self.variant
        for a, more in regret.items():
            self.regrets[key][a] += more
        table = self.regrets[key]
        negative = 0.0 if how.floor else discount_factor(t, how.beta)
        table *= np.where(table > 0, discount_factor(t, how.alpha), negative)
        self.sums[key] += t**how.gamma * played


def _normalised(table: Array, legal: list[int]) -> Array:
    positive = np.maximum(table, 0.0)
    total, uniform = positive.sum(0), np.zeros_like(table)
    uniform[legal] = 1 / len(legal)
    return np.where(total > 0, positive / np.where(total > 0, total, 1.0), uniform)
