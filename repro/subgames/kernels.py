"""The inner loops of `repro.subgames.solver`, compiled: one subgame at a time, all its hands at once.

Tables have a row per legal action (*edge*) and a column per hand, so that what is done per hand runs over neighbouring
numbers. Before the last card hands are in the order of their numbers, and on each full board in the order of their
strength: a terminal node then costs a few additions per hand. Running sums are float64, because tiny ranges cancel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from repro.common.compiled import Array, compiled

DECISION, FOLDED, SHOWN, DEALT = 0, 1, 2, 3
UPDATE, MEAN, BEST = 0, 1, 2

_CARDS = 52

_LANES = 8
"""Loops over so many columns, or a multiple, are vector instructions without a rest."""

_COLUMNS = 7 * _LANES
"""Terminal nodes at a time, few enough for their buffers to stay in the cache: a pass over the hands costs nearly as
much for one of them as for many."""


class Part(NamedTuple):
    """The betting of one round, from every way to get there (*entry*), parents before children.

    A player's reach changes at her own actions only. It has rows: two for each entry, player 0's and player 1's, then
    one for each edge, for who acts there.

    Attributes:
        kind: `[nodes]` `DECISION`, `FOLDED`, `SHOWN`, or `DEALT` where the round ends; the first nodes are the entries.
        actor: `[nodes]` player to act.
        pay: `[nodes]` chips that player 0 wins after a fold, or that the better hand wins.
        edges: `[nodes + 1]` first edge of each node.
        child: `[edges]` node that an edge leads to.
        slot: `[nodes, 2]` row of each player's reach.
        entries: how many.
        dealt: nodes of kind `DEALT`, in the order of the next round's entries.
        opponent_rows: per player, rows of the opponent's reach that terminal nodes need, each once.
        ends: per player, `[terminal nodes, 2]` the node and which of those rows it needs.
    """

    kind: Array
    actor: Array
    pay: Array
    edges: Array
    child: Array
    slot: Array
    entries: int
    dealt: Array
    opponent_rows: tuple[Array, Array]
    ends: tuple[Array, Array]


class FullBoards(NamedTuple):
    """Full boards, each with the hands that it leaves, weakest first.

    Attributes:
        first, second: `[boards, hands]` the hands' cards.
        tie: `[boards, hands]` one past the last hand that is as strong.
        hand: `[boards, copies, hands]` number of the hand in the subgame; then, where renaming the suits turns the
            board into others of the same value, the numbers of the renamed hand.
        copies: `[boards]` how many boards each one stands for, itself included.
        chance: probability of each board that it stands for, given two hands that it leaves.
    """

    first: Array
    second: Array
    tie: Array
    hand: Array
    copies: Array
    chance: float


class Rule(NamedTuple):
    """What an iteration does to the tables.

    Attributes:
        weight: of the iteration in the average strategy.
        positive, negative: factors of regrets after the update.
    """

    weight: float
    positive: float
    negative: float


class Buffers(NamedTuple):
    """Space for one part.

    Attributes:
        strategy: `[edges, hands]`; `reach` `[rows, hands]`; `value` `[nodes, hands]`; `sum` `[hands]`.
        met, won: `[hands, columns]`, for so many terminal nodes at a time; `total` `[columns]`; `of_card`
            `[cards, columns]`.
    """

    strategy: Array
    reach: Array
    value: Array
    sum: Array
    met: Array
    won: Array
    total: Array
    of_card: Array


@compiled
def buffers(part: Part, hands: int) -> Buffers:
    """Space for a part."""
    edges = len(part.child)
    return Buffers(
        np.zeros((edges, hands), np.float32), np.zeros((2 * part.entries + edges, hands), np.float32),
        np.zeros((len(part.kind), hands), np.float32), np.zeros(hands, np.float32),
        np.zeros((hands, _COLUMNS), np.float32), np.zeros((hands, _COLUMNS), np.float32), np.zeros(_COLUMNS),
        np.zeros((_CARDS, _COLUMNS)),
    )  # fmt: skip


# -- strategies ------------------------------------------------------------------------------------------------------


@compiled
def _normalised(table: Array, begin: int, end: int, strategy: Array, total: Array) -> None:
    """`strategy` in proportion to the positive entries of `table`; uniform for hands without one. Rows `begin..end`."""
    hands, uniform = table.shape[1], np.float32(1.0 / (end - begin))
    total[:] = 0.0
    for e in range(begin, end):
        row = table[e]
        for h in range(hands):
            total[h] += max(row[h], np.float32(0.0))
    for e in range(begin, end):
        row, into = table[e], strategy[e]
        for h in range(hands):
            into[h] = max(row[h], np.float32(0.0)) / total[h] if total[h] > 0 else uniform


@compiled
def _down(part: Part, table: Array, space: Buffers) -> None:
    """Fill `strategy` from `table` and `reach` from that of the entries."""
    hands = table.shape[1]
    for i in range(len(part.kind)):
        if part.kind[i] != DECISION:
            continue
        _normalised(table, part.edges[i], part.edges[i + 1], space.strategy, space.sum)
        actor_reach = space.reach[part.slot[i, part.actor[i]]]
        for e in range(part.edges[i], part.edges[i + 1]):
            row, into = space.strategy[e], space.reach[2 * part.entries + e]
            for h in range(hands):
                into[h] = actor_reach[h] * row[h]


# -- terminal nodes --------------------------------------------------------------------------------------------------


@compiled
def _gather(reach: Array, rows: Array, begin: int, end: int, x: Array) -> None:
    """`x` `[hands, columns]`: rows `begin..end` of those listed, as columns."""
    for h in range(len(x)):
        into = x[h]
        for t in range(end - begin):
            into[t] = reach[rows[begin + t], h]


@compiled
def _accumulate(first: Array, second: Array, x: Array, columns: int, total: Array, of_card: Array) -> None:
    """`total` `[columns]` of all hands, and `of_card` `[cards, columns]` of those with a card."""
    total[:] = 0.0
    of_card[:] = 0.0
    for h in range(len(first)):
        hand_reach, one, other = x[h], of_card[first[h]], of_card[second[h]]
        for t in range(columns):
            total[t] += hand_reach[t]
            one[t] += hand_reach[t]
            other[t] += hand_reach[t]


@compiled
def _not_weaker(
    first: Array, second: Array, tie: Array, x: Array, columns: int, won: Array, total: Array, of_card: Array
) -> None:
    """`won` `[hands, columns]`: twice the weaker and once the equal hands; `total` and `of_card` as `_accumulate`."""
    total[:] = 0.0
    of_card[:] = 0.0
    begin = 0
    while begin < len(first):
        end = tie[begin]
        for h in range(begin, end):
            into, one, other = won[h], of_card[first[h]], of_card[second[h]]
            for t in range(columns):
                into[t] = total[t] - one[t] - other[t]
        for h in range(begin, end):
            hand_reach, one, other = x[h], of_card[first[h]], of_card[second[h]]
            for t in range(columns):
                total[t] += hand_reach[t]
                one[t] += hand_reach[t]
                other[t] += hand_reach[t]
        for h in range(begin, end):
            hand_reach, into, one, other = x[h], won[h], of_card[first[h]], of_card[second[h]]
            for t in range(columns):
                # The hand itself is in the sums of both its cards.
                into[t] += total[t] - one[t] - other[t] + hand_reach[t]
        begin = end


@compiled
def _met(first: Array, second: Array, x: Array, columns: int, total: Array, of_card: Array) -> None:
    """Turn `x` into all hands that each can meet."""
    for h in range(len(first)):
        hand_reach, one, other = x[h], of_card[first[h]], of_card[second[h]]
        for t in range(columns):
            hand_reach[t] += total[t] - one[t] - other[t]


@compiled
def _beaten(met: Array, columns: int, won: Array) -> None:
    """Turn `won` from twice the weaker and once the equal hands into the weaker minus the stronger ones."""
    for h in range(len(won)):
        hand_met, into = met[h], won[h]
        for t in range(columns):
            into[t] -= hand_met[t]


@compiled
def _terminals(
    part: Part, player: int, first: Array, second: Array, tie: Array, showdowns: bool, space: Buffers
) -> None:
    """Fill `value` of `player`'s hands at the terminal nodes.

    Many nodes are done at a time: what takes time is to find the sums of a hand's two cards, not to add to them.
    """
    rows, ends = part.opponent_rows[player], part.ends[player]
    sign = np.float32(1 - 2 * player)
    for begin in range(0, len(rows), _COLUMNS):
        end = min(begin + _COLUMNS, len(rows))
        # Those beyond the end are of earlier nodes, and not read.
        columns = (end - begin + _LANES - 1) // _LANES * _LANES
        _gather(space.reach, rows, begin, end, space.met)
        if showdowns:
            _not_weaker(first, second, tie, space.met, columns, space.won, space.total, space.of_card)
        else:
            _accumulate(first, second, space.met, columns, space.total, space.of_card)
        _met(first, second, space.met, columns, space.total, space.of_card)
        if showdowns:
            _beaten(space.met, columns, space.won)
        for k in range(len(ends)):
            node, column = ends[k, 0], ends[k, 1] - begin
            if not 0 <= column < end - begin:
                continue
            value = space.value[node]
            if part.kind[node] == FOLDED:
                factor = sign * np.float32(part.pay[node])
                for h in range(len(value)):
                    value[h] = factor * space.met[h, column]
            elif part.kind[node] == SHOWN:
                # A showdown pays whoever wins it.
                factor = np.float32(part.pay[node])
                for h in range(len(value)):
                    value[h] = factor * space.won[h, column]


# -- values of decisions ---------------------------------------------------------------------------------------------


@compiled
def _sum(part: Part, i: int, space: Buffers) -> None:
    """Value of an opponent's node, whose probabilities are in the reach already."""
    value = space.value[i]
    value[:] = 0.0
    for e in range(part.edges[i], part.edges[i + 1]):
        below = space.value[part.child[e]]
        for h in range(len(value)):
            value[h] += below[h]


@compiled
def _mean(part: Part, i: int, space: Buffers) -> None:
    """Value of an own node under `strategy`."""
    value = space.value[i]
    value[:] = 0.0
    for e in range(part.edges[i], part.edges[i + 1]):
        below, strategy = space.value[part.child[e]], space.strategy[e]
        for h in range(len(value)):
            value[h] += strategy[h] * below[h]


@compiled
def _best(part: Part, i: int, space: Buffers) -> None:
    """Value of an own node under the best action."""
    value = space.value[i]
    value[:] = -np.inf
    for e in range(part.edges[i], part.edges[i + 1]):
        below = space.value[part.child[e]]
        for h in range(len(value)):
            value[h] = max(value[h], below[h])


@compiled
def _learn(part: Part, i: int, player: int, regrets: Array, sums: Array, rule: Rule, space: Buffers) -> None:
    """Update the tables at an own node whose value is known."""
    value, arrival = space.value[i], space.reach[part.slot[i, player]]
    weight, positive, negative = np.float32(rule.weight), np.float32(rule.positive), np.float32(rule.negative)
    for e in range(part.edges[i], part.edges[i + 1]):
        below, strategy, regret, total = space.value[part.child[e]], space.strategy[e], regrets[e], sums[e]
        for h in range(len(value)):
            after = regret[h] + (below[h] - value[h])
            regret[h] = after * (positive if after > 0 else negative)
            total[h] += weight * arrival[h] * strategy[h]


@compiled
def _up(part: Part, player: int, mode: int, regrets: Array, sums: Array, rule: Rule, space: Buffers) -> None:
    """Fill `value` of decision nodes from the others, and update the tables if that is the `mode`."""
    for i in range(len(part.kind) - 1, -1, -1):
        if part.kind[i] != DECISION:
            continue
        if part.actor[i] != player:
            _sum(part, i, space)
        elif mode == BEST:
            _best(part, i, space)
        else:
            _mean(part, i, space)
            if mode == UPDATE:
                _learn(part, i, player, regrets, sums, rule, space)


# -- a whole subgame -------------------------------------------------------------------------------------------------


@compiled
def _on_board(
    part: Part, boards: FullBoards, b: int, player: int, mode: int, regrets: Array, sums: Array, rule: Rule,
    space: Buffers,
) -> None:  # fmt: skip
    """One sweep of the last round on board `b`, from the reach of the entries in `space` to their values there.

    Args:
        regrets, sums: `[edges, hands]`.
    """
    _down(part, regrets if mode == UPDATE else sums, space)
    _terminals(part, player, boards.first[b], boards.second[b], boards.tie[b], True, space)
    _up(part, player, mode, regrets, sums, rule, space)


@compiled
def sweep_boards(
    part: Part, boards: FullBoards, player: int, mode: int, regrets: Array, sums: Array, rule: Rule, opening: Array,
    value: Array, space: Buffers,
) -> None:  # fmt: skip
    """One sweep of the last round on every board by itself.

    Args:
        regrets, sums: `[boards, edges, hands]`, updated if that is the mode.
        opening: `[boards, 2 * entries, hands]` reach of both players at each entry, chance in the opponent's.
        value: `[boards, entries, hands]`, to be filled: what `player`'s hands win there.
    """
    for b in range(len(boards.first)):
        space.reach[: 2 * part.entries] = opening[b]
        _on_board(part, boards, b, player, mode, regrets[b], sums[b], rule, space)
        value[b] = space.value[: part.entries]


@compiled
def _on_boards(
    part: Part, boards: FullBoards, player: int, mode: int, regrets: Array, sums: Array, rule: Rule, opening: Array,
    below: Array, space: Buffers,
) -> None:  # fmt: skip
    """One sweep of the last round, over all boards.

    Args:
        regrets, sums: `[boards, edges, hands]`.
        opening: `[2 * entries, hands of the subgame]` reach of both players at each entry.
        below: `[entries, hands of the subgame]`, what `player`'s hands win there is added to it.
    """
    for b in range(len(boards.first)):
        hand, chance = boards.hand[b, 0], np.float32(boards.chance)
        for row in range(2 * part.entries):
            into, before = space.reach[row], opening[row]
            # Chance is in the opponent's reach; the player's own is what average strategies are weighted with.
            factor = np.float32(1.0) if row % 2 == player else chance
            for h in range(len(hand)):
                into[h] = factor * before[hand[h]]
        _on_board(part, boards, b, player, mode, regrets[b], sums[b], rule, space)
        for copy in range(boards.copies[b]):
            place = boards.hand[b, copy]
            for entry in range(part.entries):
                into, value = below[entry], space.value[entry]
                for h in range(len(place)):
                    into[place[h]] += value[h]


@compiled
def sweep_river(
    part: Part, boards: FullBoards, player: int, mode: int, regrets: Array, sums: Array, rule: Rule,
    opponent_range: Array, value: Array, space: Buffers,
) -> None:  # fmt: skip
    """One pass over a river subgame for `player`: an update, or the value of the average strategy or the best response.

    Args:
        regrets, sums: `[1, edges, hands]`, updated if that is the mode.
        opponent_range: `[hands]` the opponent's range.
        value: `[hands]`, to be filled: what each of the player's hands wins, in chips, times the probability that the
            opponent holds any hand that it can meet.
    """
    opening = np.ones((2, len(opponent_range)), np.float32)
    opening[1 - player] = opponent_range
    value[:] = 0.0
    _on_boards(part, boards, player, mode, regrets, sums, rule, opening, value.reshape(1, -1), space)


@compiled
def sweep_turn(
    turn: Part, river: Part, hands: tuple[Array, Array], boards: FullBoards, player: int, mode: int,
    tables: tuple[Array, Array, Array, Array], rule: Rule, opponent_range: Array, value: Array, before: Buffers,
    after: Buffers, opening: Array, below: Array,
) -> None:  # fmt: skip
    """The same for a turn subgame.

    Args:
        hands: cards of the hands before the river.
        tables: regrets and sums of the turn, `[edges, hands]`, then those of the river, `[boards, edges, hands]`.
        opening, below: space, as `_on_boards` has it.
    """
    down_turn(turn, player, tables[0] if mode == UPDATE else tables[1], opponent_range, before, opening)
    below[:] = 0.0
    _on_boards(river, boards, player, mode, tables[2], tables[3], rule, opening, below, after)
    up_turn(turn, hands, player, mode, tables[0], tables[1], rule, below, value, before)


@compiled
def down_turn(turn: Part, player: int, table: Array, opponent_range: Array, space: Buffers, opening: Array) -> None:
    """Fill `opening`, the reach with which the next round begins, from the strategies of `table` `[edges, hands]`."""
    space.reach[player] = 1.0
    space.reach[1 - player] = opponent_range
    _down(turn, table, space)
    for k in range(len(turn.dealt)):
        for p in range(2):
            opening[2 * k + p] = space.reach[turn.slot[turn.dealt[k], p]]


@compiled
def up_turn(
    turn: Part, hands: tuple[Array, Array], player: int, mode: int, regrets: Array, sums: Array, rule: Rule,
    below: Array, value: Array, space: Buffers,
) -> None:  # fmt: skip
    """Fill `value` from `below`, what `player`'s hands win where the next round begins; after `down_turn`."""
    for k in range(len(turn.dealt)):
        space.value[turn.dealt[k]] = below[k]
    # Before the last card there are folds only.
    _terminals(turn, player, hands[0], hands[1], hands[0], False, space)
    _up(turn, player, mode, regrets, sums, rule, space)
    value[:] = space.value[0]
