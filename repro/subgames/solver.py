"""Solve subgames: counterfactual values and expected values of all hands, and how exploitable the strategies are.

Exploitability is no bound on the error of a single hand's value: a hand that a player hardly ever holds hardly counts.

The variants of CFR are those of `repro.algorithms.tabular`, with alternating updates. Tables are float32; a hand's
average strategy is weighted by what the player did in the subgame, not by the hand's place in the range, so that hands
outside the range have values, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from repro.algorithms.solver import MOST_EXPONENT, Discounts, discount_factor
from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.config.fields import above, between, maybe_infinite
from repro.games.betting import SHOWDOWN, BettingTree
from repro.subgames import kernels
from repro.subgames.kernels import BEST, DEALT, DECISION, FOLDED, MEAN, SHOWN, UPDATE, FullBoards, Part, Rule
from repro.subgames.subgames import Subgame

FIRST_LOOK, LOOKS = 24, 1.15
"""Exploitability is measured after so many iterations, and again each time that they have grown by this factor."""


@dataclass
class SolverConfig:
    """How subgames are solved; the exponents and the floor are those of `TabularCFRConfig`."""

    # Most exploitability of a solution, as a fraction of the pot.
    tolerance: float = above(0, 0.005)
    alpha: float = maybe_infinite(1.25)
    beta: float = maybe_infinite(0.5)
    gamma: float = between(0, MOST_EXPONENT, 4.0)
    floor: bool = False


Variant = Discounts
"""Which CFR."""


@dataclass(frozen=True)
class Solution:
    """What both players' hands win under the average strategies.

    Attributes:
        cfv: `[2, hands]` float64 counterfactual values [DEVN, eq. 3], as fractions of the pot.
        matchup: `[2, hands]` probability that the opponent holds a hand that can be met [DEVN, eq. 5].
        exploitability: of the strategies [DEVN, eq. 2], as a fraction of the pot.
        iterations: that it took.
    """

    cfv: Array
    matchup: Array
    exploitability: float
    iterations: int

    @property
    def ev(self) -> Array:
        """`[2, hands]` expected values [DEVN, eq. 4], as fractions of the pot; 0 for hands that meet none."""
        met = self.matchup > 0
        return np.divide(self.cfv, self.matchup, out=np.zeros_like(self.cfv), where=met)


AS_IS = Rule(0.0, 1.0, 1.0)
"""Where nothing is updated."""


def rule(variant: Variant, t: int) -> Rule:
    """What iteration `t` does to the tables."""
    negative = 0.0 if variant.floor else discount_factor(t, variant.beta)
    # Any unit will do for weights; this one keeps them within float32.
    return Rule((t / 1000) ** variant.gamma, discount_factor(t, variant.alpha), negative)


class SubgameSolver:
    """CFR on one subgame.

    Args:
        subgame: to solve.
        variant: which CFR.
        merge: False to have all full boards, also those that renaming suits makes equal.

    Raises:
        ReproError: the players cannot meet.

    Attributes:
        iterations: so far.
        matchup: `[2, hands]` probability that the opponent holds a hand that can be met.
        entries: pairs of a legal action and a hand that may take it.
    """

    def __init__(self, subgame: Subgame, variant: Variant, merge: bool = True) -> None:
        self.subgame, self.variant, self.iterations = subgame, variant, 0
        deck, board = subgame.deck, subgame.board
        hands = deck.hands(board)
        *before, self._river = parts(subgame.betting())
        self._turn = before[0] if before else None
        self._boards = full_boards(subgame, hands, merge)
        self._hands = (hands[:, 0].copy(), hands[:, 1].copy())
        matchup = subgame.matchups()
        if not (subgame.ranges * matchup).sum() > 0:
            raise ReproError("a subgame's ranges must have some two hands that can meet.")
        # Ranges are probabilities in here.
        self._ranges = subgame.ranges / subgame.ranges.sum(1, keepdims=True)
        self._opponent_ranges = self._ranges[::-1].astype(np.float32)
        self.matchup = matchup / subgame.ranges.sum(1)[::-1, None]
        boards, hands_per_board = self._boards.first.shape
        # Regrets and summed strategies.
        self._on_river = _pair(boards, len(self._river.child), hands_per_board)
        self._space = kernels.buffers(self._river, hands_per_board)
        if self._turn:
            self._on_turn = _pair(len(self._turn.child), len(hands))
            self._turn_space = kernels.buffers(self._turn, len(hands))
            entries = self._river.entries
            self._between = _floats(2 * entries, len(hands)), _floats(entries, len(hands))
        self.entries = self._on_river[0].size + (self._on_turn[0].size if self._turn else 0)

    def iterate(self) -> None:
        """One iteration: player 0's update, then player 1's."""
        self.iterations += 1
        for player in range(2):
            self._sweep(player, UPDATE, rule(self.variant, self.iterations))

    def values(self, mode: int = MEAN) -> Array:
        """`[2, hands]` float64 chips that each hand wins under the average strategies, or (`BEST`) a best response to
        the opponent's, times the probability that the opponent holds a hand that can be met."""
        return np.stack([self._sweep(player, mode, AS_IS) for player in range(2)]).astype(float)

    def exploitability(self) -> float:
        """Mean of what both best responses win [DEVN, eq. 2], as a fraction of the pot."""
        met = self._ranges[0] @ self.matchup[0]
        return float((self._ranges * self.values(BEST)).sum() / (2 * met * self.subgame.pot))

    def solution(self, exploitability: float | None = None) -> Solution:
        """The values now; `exploitability`, if it is known already."""
        if exploitability is None:
            exploitability = self.exploitability()
        return Solution(self.values() / self.subgame.pot, self.matchup, exploitability, self.iterations)

    def _sweep(self, player: int, mode: int, how: Rule) -> Array:
        value, opponent_range = _floats(len(self._hands[0])), self._opponent_ranges[player]
        river, boards = self._river, self._boards
        if self._turn is None:
            kernels.sweep_river(river, boards, player, mode, *self._on_river, how, opponent_range, value, self._space)
        else:
            kernels.sweep_turn(
                self._turn, river, self._hands, boards, player, mode, (*self._on_turn, *self._on_river), how,
                opponent_range, value, self._turn_space, self._space, *self._between,
            )  # fmt: skip
        return value


def solve_subgame(subgame: Subgame, variant: Variant, tolerance: float, most: int = 10_000) -> Solution:
    """Iterate until the exploitability is at most `tolerance` (a fraction of the pot), or `most` times.

    The solution says what was reached.
    """
    solver, look = SubgameSolver(subgame, variant), FIRST_LOOK
    while True:
        while solver.iterations < min(look, most):
            solver.iterate()
        reached = solver.exploitability()
        if solver.iterations >= most or reached <= tolerance:
            return solver.solution(reached)
        look = int(np.ceil(look * LOOKS))


def solve_all(
    subgames: Iterable[Subgame], variant: Variant, tolerance: float, threads: int, most: int = 10_000
) -> Iterator[Solution]:
    """`solve_subgame` of many, so many at a time, in order."""
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(lambda subgame: solve_subgame(subgame, variant, tolerance, most), subgames)


def _floats(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def _pair(*shape: int) -> tuple[Array, Array]:
    return _floats(*shape), _floats(*shape)


# -- compilation -----------------------------------------------------------------------------------------------------


def parts(tree: BettingTree) -> list[Part]:
    """A betting tree of one or two rounds as the kernels want it, a part per round."""
    rounds, entries = [], [0]
    for round_ in range(tree.rounds):
        part, entries = _part(tree, round_, entries, last=round_ == tree.rounds - 1)
        rounds.append(part)
    return rounds


def _part(tree: BettingTree, round_: int, entries: list[int], last: bool) -> tuple[Part, list[int]]:
    """One round, and the nodes of the tree with which the next begins."""
    child, actor, winner = (t.tolist() for t in (tree.child, tree.player, tree.winner))
    nodes, kind, edges = list(entries), list[int](), [0]
    to: list[int] = []
    slot = [(2 * i, 2 * i + 1) for i in range(len(entries))]
    for i, node in enumerate(nodes):
        # Grows as it is read: a node's children come after it.
        kind.append(_kind(tree, node, round_, last))
        if kind[-1] == DECISION:
            for after in child[node]:
                if after >= 0:
                    row = 2 * len(entries) + len(to)
                    slot.append((row, slot[i][1]) if actor[node] == 0 else (slot[i][0], row))
                    to.append(len(nodes))
                    nodes.append(after)
        edges.append(len(to))
    stake = tree.stake.numpy()[nodes]
    pay = np.where(np.array(winner)[nodes] == 1, -stake, stake)
    dealt = [i for i, k in enumerate(kind) if k == DEALT]
    part = Part(
        np.array(kind), np.array(actor)[nodes], pay, np.array(edges), np.array(to, np.int64), np.array(slot),
        len(entries), np.array(dealt, np.int64), *_ends(kind, slot),
    )  # fmt: skip
    return part, [nodes[i] for i in dealt]


def _ends(kind: list[int], slot: list[tuple[int, int]]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """`Part.opponent_rows` and `Part.ends`."""
    nodes = [i for i, k in enumerate(kind) if k in (FOLDED, SHOWN)]
    opponent_rows, ends = [], []
    for player in range(2):
        rows, which = np.unique(np.array([slot[i][1 - player] for i in nodes], np.int64), return_inverse=True)
        opponent_rows.append(rows)
        ends.append(np.stack([np.array(nodes, np.int64), which], 1))
    return (opponent_rows[0], opponent_rows[1]), (ends[0], ends[1])


def _kind(tree: BettingTree, node: int, round_: int, last: bool) -> int:
    winner = int(tree.winner[node])
    if winner >= 0:
        return FOLDED
    if not last and (int(tree.round[node]) > round_ or winner == SHOWDOWN):
        return DEALT
    return SHOWN if winner == SHOWDOWN else DECISION


def full_boards(subgame: Subgame, hands: Array, merge: bool = True) -> FullBoards:
    """The full boards, with their hands in order of strength; of those that renaming suits makes equal, one.

    Args:
        subgame: whose boards.
        hands: that its board leaves.
        merge: False to have all boards.
    """
    deck, sorted_hands, copies = subgame.deck, [], []
    full, renamings = deck.full_boards(subgame.board), _symmetries(subgame, hands)[: None if merge else 1]
    for board in full:
        last = board[-1]
        images: dict[int, Array] = {}
        for cards, place in renamings:
            images.setdefault(int(cards[last]), place)
        if min(images) < last:
            # It is the image of a board before.
            continue
        remaining = np.flatnonzero(~np.isin(hands, board).any(1))
        strength = deck.strength(board, hands[remaining])
        order = np.argsort(strength, kind="stable")
        tie = np.searchsorted(strength[order], strength[order], side="right")
        sorted_hands.append((*hands[remaining[order]].T, tie))
        # The board itself comes first.
        copies.append(np.stack([place[remaining[order]] for place in images.values()]))
    first, second, tie = (np.stack(column) for column in zip(*sorted_hands, strict=True))
    most = max(len(c) for c in copies)
    hand = np.stack([np.pad(c, ((0, most - len(c)), (0, 0))) for c in copies])
    # Two hands leave all of them but those with one of their cards.
    chance = 1.0 / max(len(full) - 4, 1)
    return FullBoards(first, second, tie, hand, np.array([len(c) for c in copies]), chance)


def _symmetries(subgame: Subgame, hands: Array) -> list[tuple[Array, Array]]:
    """Renamings of the suits that change neither the board nor a range: `[cards]` new cards, `[hands]` new hands.

    The first one renames nothing.
    """
    deck, every, renamings = subgame.deck, np.arange(subgame.deck.cards), []
    if len(subgame.board) == 5:
        # No card is to come that could be spared.
        return [(every, np.arange(len(hands)))]
    number = np.zeros((deck.cards, deck.cards), np.int64)
    number[hands[:, 0], hands[:, 1]] = number[hands[:, 1], hands[:, 0]] = np.arange(len(hands))
    for names in permutations(range(deck.suits)):
        cards = every // deck.suits * deck.suits + np.array(names)[every % deck.suits]
        if {int(cards[c]) for c in subgame.board} != set(subgame.board):
            continue
        place = number[cards[hands[:, 0]], cards[hands[:, 1]]]
        if np.array_equal(subgame.ranges[:, place], subgame.ranges):
            renamings.append((cards, place))
    return renamings
