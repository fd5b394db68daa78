"""Solve a turn whose rivers are only valued, re-solve the rivers that result, and measure the whole exactly.

What stands at the leaves of the turn's betting is a value for every hand on every river, for both players' ranges
there: `Leaves`. The turn's average strategy is then kept, and each river is solved by itself from the ranges that it
leads to, as a program does that meets the river in play:

- *unsafe*: both players' ranges are taken for what they are;
- *safe*: CFR-D's gadget [Burch, Johanson and Bowling 2014]. Each player's river strategy comes from a game of its own,
  in which every hand of the opponent may first decline the river for the value that the leaves gave it. The opponent's
  range there is what that choice makes of all hands, so that a range that was guessed wrong cannot be exploited beyond
  what the leaves promised.

Turn and river strategies together are a strategy of the whole game, and its exploitability is that of
`SubgameSolver`, which this solver is: the same tables, sweeps and variants of CFR.

Arrays of rivers are `[boards, entries, hands]`: full boards, ways in which the turn's betting can end (*entries*), and
hands that the board leaves, weakest first. Values are chips times the opponent's reach, chance included, as in the
kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.subgames import kernels
from repro.subgames.kernels import BEST, DECISION, MEAN, SHOWN, UPDATE, FullBoards, Part, Rule
from repro.subgames.solver import AS_IS, SubgameSolver, Variant, rule
from repro.subgames.subgames import Subgame


class Rivers:
    """All rivers that a turn can become.

    Args:
        subgame: the turn.
        part: the betting of the river.
        boards: all full boards, none merged with another.

    Attributes:
        chips: `[entries]` in the pot when the river begins.
        over: `[entries]` whether all chips are in the pot: nothing is left but to show the hands.
        ranges: `[2, boards, hands]` float32 both players' ranges before the turn's betting.
        holds: `[boards, hands, cards]` 1 for a hand's cards.
        shape: boards, entries, hands.
    """

    def __init__(self, subgame: Subgame, part: Part, boards: FullBoards) -> None:
        self.subgame, self.part, self.boards = subgame, part, boards
        self.chips = 2 * _least_stake(part)[: part.entries]
        self.over = part.kind[: part.entries] == SHOWN
        self._hand = boards.hand[:, 0]
        ranges = subgame.ranges / subgame.ranges.sum(1, keepdims=True)
        self.ranges = ranges[:, self._hand].astype(np.float32)
        every = np.arange(subgame.deck.cards)
        self.holds = sum((cards[:, :, None] == every).astype(float) for cards in (boards.first, boards.second))
        self.shape = (len(boards.first), part.entries, boards.first.shape[1])
        self._space = kernels.buffers(part, self.shape[2])
        self._all_hands = subgame.ranges.shape[1]

    def full_boards(self) -> Array:
        """`[boards, 5]` cards."""
        return np.array(self.subgame.deck.full_boards(self.subgame.board), np.int64)

    def order(self) -> Array:
        """`[boards, hands]` of each hand its place among those that the board leaves in colexicographic order."""
        return np.argsort(np.argsort(self._hand, axis=1), axis=1)

    def tables(self) -> tuple[Array, Array]:
        """Regrets and summed strategies, `[boards, edges, hands]`."""
        shape = (self.shape[0], len(self.part.child), self.shape[2])
        return np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def opening(self, player: int, reach: Array) -> Array:
        """`[boards, 2 * entries, hands]` reach at each river, chance in the opponent's, from `[2 * entries, hands of
        the turn]` at the turn's end."""
        opening = reach[:, self._hand].transpose(1, 0, 2).copy()
        opening[:, 1 - player :: 2] *= np.float32(self.boards.chance)
        return opening

    def shares(self, player: int, opening: Array) -> Array:
        """`[2, boards, entries, hands]` float64 both players' ranges, which sum to 1, from `player`'s opening.

        Where a player's strategy brings no hand to a river, which has values nevertheless, the range is that before the
        turn's betting.
        """
        own, opponent = opening[:, player::2] * self.ranges[player][:, None], opening[:, 1 - player :: 2]
        shares = np.empty((2, *self.shape))
        for of, reach in ((player, own), (1 - player, opponent)):
            before = np.broadcast_to(self.ranges[of][:, None], reach.shape)
            range_ = np.where(reach.sum(2, keepdims=True) > 0, reach, before).astype(float)
            shares[of] = range_ / np.maximum(range_.sum(2, keepdims=True), np.finfo(float).tiny)
        return shares

    def total(self, values: Array) -> Array:
        """`[entries, hands of the turn]` over all boards."""
        total = np.zeros((self.shape[1], self._all_hands), np.float32)
        for board, hands in enumerate(self._hand):
            total[:, hands] += values[board]
        return total

    def sweep(self, player: int, mode: int, tables: tuple[Array, Array], how: Rule, opening: Array) -> Array:
        """One sweep of the rivers' betting: what `player`'s hands win."""
        return self._swept(self.part, player, mode, tables, how, opening)

    def checked_down(self, player: int, opening: Array) -> Array:
        """What `player`'s hands win if nobody bets."""
        none = np.zeros((self.shape[0], 0, self.shape[2]), np.float32)
        return self._swept(_shown(self.part, self.chips), player, MEAN, (none, none), AS_IS, opening)

    def met(self, reach: Array) -> Array:
        """`[boards, entries, hands]` reach of one player -> that of hands that each hand can meet [DEVN, eq. 5]."""
        reach = reach.astype(float)
        total = reach.sum(2, keepdims=True)
        met = total + reach - reach @ self.holds @ self.holds.transpose(0, 2, 1)
        # Where no hand can be met, subtraction leaves rounding errors.
        return np.where(met > 1e-12 * total, met, 0.0)

    def _swept(
        self, part: Part, player: int, mode: int, tables: tuple[Array, Array], how: Rule, opening: Array
    ) -> Array:  # fmt: skip
        values = np.empty(self.shape, np.float32)
        kernels.sweep_boards(part, self.boards, player, mode, *tables, how, opening, values, self._space)
        return values


def _least_stake(part: Part) -> Array:
    """`[nodes]` chips that each player has in the pot at least wherever a node leads."""
    least = np.abs(part.pay).astype(float)
    for i in range(len(part.kind) - 1, -1, -1):
        if part.kind[i] == DECISION:
            least[i] = min(least[part.child[e]] for e in range(part.edges[i], part.edges[i + 1]))
    return least


def _shown(part: Part, chips: Array) -> Part:
    """A round that ends with the showdown as it begins."""
    n = part.entries
    ends = [np.stack([np.arange(n), np.arange(n)], 1) for _ in range(2)]
    rows = [2 * np.arange(n) + 1 - player for player in range(2)]
    return Part(
        np.full(n, SHOWN), np.zeros(n, part.actor.dtype), chips / 2, np.zeros(n + 1, np.int64), np.zeros(0, np.int64),
        part.slot[:n], n, np.zeros(0, np.int64), (rows[0], rows[1]), (ends[0], ends[1]),
    )  # fmt: skip


# -- leaves ----------------------------------------------------------------------------------------------------------


class Leaves(ABC):
    """What rivers are worth.

    Args:
        rivers: of a turn.
    """

    def __init__(self, rivers: Rivers) -> None:
        self.rivers = rivers

    def values(self, player: int, mode: int, how: Rule, opening: Array) -> Array:
        """`[boards, entries, hands]` what `player`'s hands win, for the reach of both with which rivers begin.

        Where all chips are in the pot the value is known: that of the showdown.

        Args:
            mode: `UPDATE` in an iteration of the turn's solver; then `BEST`, what the hands win at best, or `MEAN`,
                what they win by the average strategies. It matters only to rivers that are solved.
            how: the iteration's rule.
            opening: as `Rivers.opening` has it.

        Raises:
            ReproError: a value is not finite.
        """
        values = self.estimated(player, mode, how, opening)
        over = self.rivers.over
        values[:, over] = self.rivers.checked_down(player, opening)[:, over]
        if not np.isfinite(values).all():
            raise ReproError("the values at a turn's leaves are not finite numbers.")
        return values

    @abstractmethod
    def estimated(self, player: int, mode: int, how: Rule, opening: Array) -> Array:
        """`values`, whatever it says where all chips are in the pot."""


class CheckedDown(Leaves):
    """Nobody bets on the river."""

    def estimated(self, player: int, mode: int, how: Rule, opening: Array) -> Array:
        return self.rivers.checked_down(player, opening)


class Solved(Leaves):
    """Exact values: rivers are solved by CFR along with the turn.

    Args:
        bucket: `[boards, hands]` int64, or None. With buckets, what the turn is told of a hand is the mean over its
            bucket's hands: the values that a network without error of its own would give. Rivers themselves are solved
            without buckets.
        expected: whether the means are of expected values, as DEVN's, instead of counterfactual ones.
    """

    def __init__(self, rivers: Rivers, bucket: Array | None = None, expected: bool = False) -> None:
        super().__init__(rivers)
        self._tables, self._expected = rivers.tables(), expected
        self._bucket: Array | None = None
        if bucket is not None:
            # Another number for each board's buckets.
            self._bucket = bucket + (bucket.max() + 1) * np.arange(len(bucket))[:, None]
            self._held = np.bincount(self._bucket.ravel())

    def estimated(self, player: int, mode: int, how: Rule, opening: Array) -> Array:
        values = self.rivers.sweep(player, mode, self._tables, how, opening)
        if self._bucket is None:
            return values
        if not self._expected:
            return self._averaged(values)
        matchup = self.rivers.met(opening[:, 1 - player :: 2])
        ev = np.divide(values, matchup, out=np.zeros_like(values), where=matchup > 0)
        return (self._averaged(ev) * matchup).astype(np.float32)

    def _averaged(self, values: Array) -> Array:
        assert self._bucket is not None
        bucket, size = self._bucket.ravel(), len(self._held)
        means = np.empty_like(values)
        for entry in range(values.shape[1]):
            total = np.bincount(bucket, values[:, entry].ravel(), size)
            means[:, entry] = (total / np.maximum(self._held, 1))[self._bucket]
        return means


# -- the turn --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeafErrors:
    """How far leaves are from the re-solved rivers' values at the ranges that the average turn strategy leads to.

    Attributes:
        hand: root mean square error of counterfactual values over a river's and player's hands, as the losses of
            networks are, averaged over rivers and players, as a fraction of the river's pot.
        met: mean absolute error of expected values, over hands, rivers and players by the probability that they are
            met in play, as a fraction of the turn's pot.
        matchup: the same by the probability that the opponent brings a hand that they can meet, whether their own
            player brings them or not.
        rare: the same by the probability that they are met once the river is reached: rivers to which the strategies
            rarely lead count as much as others.
    """

    hand: float
    met: float
    matchup: float
    rare: float


class DepthLimitedSolver(SubgameSolver):
    """CFR on the turn's betting, with values at its leaves; then rivers that are re-solved.

    `iterate` solves the turn. `resolve` and `resolve_safely` solve the rivers from the average turn strategy; then
    `exploitability` is that of the whole, which before takes rivers to be played uniformly.

    Args:
        subgame: a turn.
        variant: which CFR, of the turn and of the rivers.
        leaves: what values rivers.
    """

    def __init__(self, subgame: Subgame, variant: Variant, leaves: Callable[[Rivers], Leaves]) -> None:
        super().__init__(subgame, variant, merge=False)
        assert self._turn is not None, "a turn is needed"
        self._betting: Part = self._turn
        self.rivers = Rivers(subgame, self._river, self._boards)
        self.leaves = leaves(self.rivers)

    def iterate(self) -> None:
        """One iteration of the turn: player 0's update, then player 1's."""
        self.iterations += 1
        how = rule(self.variant, self.iterations)
        for player in range(2):
            opening = self._opening(player, self._on_turn[0])
            below = self.rivers.total(self.leaves.values(player, UPDATE, how, opening))
            kernels.up_turn(
                self._betting, self._hands, player, UPDATE, *self._on_turn, how, below,
                np.empty(len(self._hands[0]), np.float32), self._turn_space,
            )  # fmt: skip

    def valued(self) -> Array:
        """`[2, hands]` float64 as `values`, of the average turn strategy and what the leaves say of rivers then.

        Nothing is re-solved: these are the values of the turn for a program that looks no further. What a network says
        is of the ranges that the average strategy leads to; of rivers that were solved along, it is what their average
        strategies win.
        """
        values = np.empty((2, len(self._hands[0])), np.float32)
        for player in range(2):
            below = self.rivers.total(self.leaves.values(player, MEAN, AS_IS, self.opening(player)))
            kernels.up_turn(
                self._betting, self._hands, player, MEAN, *self._on_turn, AS_IS, below, values[player],
                self._turn_space,
            )  # fmt: skip
        return values.astype(float)

    def opening(self, player: int) -> Array:
        """`[boards, 2 * entries, hands]` reach under the average turn strategy; the player's own without the range."""
        return self._opening(player, self._on_turn[1])

    def shares(self) -> Array:
        """`[2, boards, entries, hands]` both players' ranges at the rivers, by the turn's strategies of the moment."""
        return self.rivers.shares(0, self._opening(0, self._on_turn[0]))

    def resolve(self, iterations: int) -> None:
        """Solve the rivers, unsafe."""
        openings = [self.opening(player) for player in range(2)]
        for player in range(2):
            # River strategies are of all hands, however rarely the turn's leads to them.
            openings[player][:, player::2] = 1.0
        tables = self.rivers.tables()
        for t in range(1, iterations + 1):
            for player in range(2):
                self.rivers.sweep(player, UPDATE, tables, rule(self.variant, t), openings[player])
        self._on_river = tables

    def resolve_safely(self, iterations: int, promised: tuple[Array, Array] | None = None) -> None:
        """Solve the rivers with CFR-D's gadget.

        Args:
            iterations: of each of the two games.
            promised: per player, `[boards, entries, hands]` what its hands may decline the river for; None: what the
                leaves say at the average turn strategy.
        """
        if promised is None:
            promised = self.promised()
        actor = np.repeat(self._river.actor, np.diff(self._river.edges))
        regrets, sums = self.rivers.tables()
        for player in range(2):
            of_player = actor == player
            sums[:, of_player] = self._protected(player, promised[1 - player], iterations)[:, of_player]
        self._on_river = regrets, sums

    def promised(self) -> tuple[Array, Array]:
        """Per player, `[boards, entries, hands]` what the leaves say at the average turn strategy.

        Of rivers that were solved along with the turn the best response's values, as CFR-D's theorem has them: those
        of the average strategies are too low for hands that the turn's strategy does not bring here.
        """
        one, other = (self.leaves.values(p, BEST, AS_IS, self.opening(p)) for p in range(2))
        return one, other

    def errors(self) -> LeafErrors:
        """Of the leaves, after `resolve`."""
        hand, rare, absolute, probability = [], [], np.zeros(2), np.zeros(2)
        live = ~self.rivers.over
        chips = self.rivers.chips[live]
        for player, promised in enumerate(self.promised()):
            opening = self.opening(player)
            wrong = (promised - self.rivers.sweep(player, MEAN, self._on_river, AS_IS, opening))[:, live].astype(float)
            matchup = self.rivers.met(opening[:, 1 - player :: 2])[:, live]
            opponent = opening[:, 1 - player :: 2][:, live].sum(2, dtype=float) * chips
            own = (opening[:, player::2] * self.rivers.ranges[player][:, None])[:, live].astype(float)
            hand.append((np.sqrt(np.square(wrong).mean(2))[opponent > 0] / opponent[opponent > 0]).mean())
            # An expected value is the counterfactual one over the probability that the opponent is there.
            at_river, reached = (own * np.abs(wrong)).sum(2), (own * matchup).sum(2)
            rare.append((at_river[reached > 0] / reached[reached > 0]).mean())
            absolute += at_river.sum(), np.abs(wrong).sum()
            probability += reached.sum(), matchup.sum()
        met, by_matchup = absolute / probability / self.subgame.pot
        return LeafErrors(float(np.mean(hand)), float(met), float(by_matchup), float(np.mean(rare)) / self.subgame.pot)

    def _opening(self, player: int, table: Array) -> Array:
        reach = np.empty((2 * self.rivers.shape[1], len(self._hands[0])), np.float32)
        kernels.down_turn(self._betting, player, table, self._opponent_ranges[player], self._turn_space, reach)
        return self.rivers.opening(player, reach)

    def _protected(self, player: int, promised: Array, iterations: int) -> Array:
        """`[boards, edges, hands]` summed strategies, of which the player's are safe.

        Args:
            promised: what the opponent's hands may decline the river for.
        """
        tables, opponent = self.rivers.tables(), 1 - player
        followed, declined = np.zeros(self.rivers.shape, np.float32), np.zeros(self.rivers.shape, np.float32)
        of_opponent, of_player = self.opening(opponent), self.opening(player)
        of_player[:, player::2] = 1.0
        for t in range(1, iterations + 1):
            how = rule(self.variant, t)
            follows = _share(followed, declined)
            of_opponent[:, opponent::2] = follows
            values = self.rivers.sweep(opponent, UPDATE, tables, how, of_opponent)
            mean = follows * values + (1 - follows) * promised
            followed = _learned(followed, values - mean, how)
            declined = _learned(declined, promised - mean, how)
            of_player[:, opponent::2] = _share(followed, declined)
            self.rivers.sweep(player, UPDATE, tables, how, of_player)
        return tables[1]


def _learned(regrets: Array, more: Array, how: Rule) -> Array:
    after = regrets + more
    return after * np.where(after > 0, np.float32(how.positive), np.float32(how.negative))


def _share(one: Array, other: Array) -> Array:
    """Regret matching's probability of the first of two; a half where neither has a positive regret."""
    positive = np.maximum(one, 0)
    total = positive + np.maximum(other, 0)
    return np.divide(positive, total, out=np.full_like(one, 0.5), where=total > 0)
