"""The inner loops of `repro.engine.holdem_form`, compiled: everything between the deal of the board and the showdown.

One board at a time: all betting nodes of a round, for all hands at once, in buffers that fit the cache. Per hand, a
terminal node costs a few additions: hands are sorted by strength, a running sum of the opponent's reach says how much
of it is weaker, and running sums per card take out the hands that share a card. The sums are float64, because tiny
reaches cancel.

Strategies differ only between *cells* (suit-isomorphism classes of hands); reach and values live on cells, and are
spread over the hands of a cell at terminal nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from repro.common.compiled import Array, compiled

DECISION, FOLDED, SHOWN = 0, 1, 2
MEAN, BEST = 0, 1

_CARDS = 64

_NOBODY = 1e-9
"""Fewer hands than this are the rounding error of none."""


class Subtrees(NamedTuple):
    """The last round's betting, one subtree per way to get there (*entry*), parents before children.

    Attributes:
        start: `[entries + 1]` nodes of each entry.
        kind: `[nodes]` `DECISION`, `FOLDED` or `SHOWN`.
        actor: `[nodes]` player to act.
        pay: `[nodes]` chips that player 0 wins after a fold, or that the better hand wins.
        child: `[nodes, actions]` counted from the entry's first node; -1 where illegal.
        row: `[nodes]` table row of the decision node's first cell.
        slot: `[nodes, 2]` number of each player's last own (node, action) in the entry, 0 for none: where the reach is.
    """

    start: Array
    kind: Array
    actor: Array
    pay: Array
    child: Array
    row: Array
    slot: Array


class Boards(NamedTuple):
    """Boards with the hands that they leave, weakest first.

    Attributes:
        start: `[boards + 1]` first cell of each board.
        first, second: `[boards, hands]` the hands' cards.
        tie: `[boards, hands]` one past the last hand that is as strong.
        cell: `[boards, hands]` cell, counted from the board's first.
        weight: `[boards]` probability of one pair of hands and any board isomorphic to this one.
        members: `[cells]` hands per cell.
        before: `[cells]` cell of the same hand before the board.
    """

    start: Array
    first: Array
    second: Array
    tie: Array
    cell: Array
    weight: Array
    members: Array
    before: Array


@compiled
def terminal_value(kind: int, pay: float, reach: Array, boards: Boards, b: int, r: Array, value: Array) -> None:
    """`value` `[cells]` of a player's hands at a terminal node, against the opponent's `reach` `[cells]`.

    `pay` is signed for that player; `r` `[hands]` is a buffer.
    """
    first, second, tie, cell = boards.first[b], boards.second[b], boards.tie[b], boards.cell[b]
    hands = len(first)
    total = 0.0
    of_card = np.zeros(_CARDS)
    if kind == FOLDED:
        for h in range(hands):
            x = reach[cell[h]]
            r[h] = x
            total += x
            of_card[first[h]] += x
            of_card[second[h]] += x
        for h in range(hands):
            value[cell[h]] = pay * (total - of_card[first[h]] - of_card[second[h]] + r[h])
        return
    # weaker + (weaker or equal) - all = weaker - stronger, each without the hands that share a card.
    won = np.empty(hands)
    h = 0
    while h < hands:
        end = tie[h]
        for i in range(h, end):
            won[i] = total - of_card[first[i]] - of_card[second[i]]
            r[i] = reach[cell[i]]
        for i in range(h, end):
            x = r[i]
            total += x
            of_card[first[i]] += x
            of_card[second[i]] += x
        for i in range(h, end):
            # The hand itself is in both its cards' sums, and in the total.
            won[i] += total - of_card[first[i]] - of_card[second[i]] + r[i]
        h = end
    for h in range(hands):
        value[cell[h]] = pay * (won[h] - (total - of_card[first[h]] - of_card[second[h]] + r[h]))


@compiled
def _read_strategies(trees: Subtrees, entry: int, first_cell: int, cells: int, table: Array, sigma: Array) -> None:
    """Fill `sigma` `[nodes, cells, actions]` at the entry's decision nodes from `table` `[rows, actions]`."""
    begin = trees.start[entry]
    for i in range(trees.start[entry + 1] - begin):
        if trees.kind[begin + i] == DECISION:
            row = trees.row[begin + i] + first_cell
            sigma[i, :cells] = table[row : row + cells]


@compiled
def _reach_down(
    trees: Subtrees, entry: int, boards: Boards, b: int, opening: Array, sigma: Array, reach: Array
) -> None:
    """Fill `reach` `[2, slots, cells]` from the players' reach before the board, `opening` `[2, entries, cells]`."""
    first_cell, cells = boards.start[b], boards.start[b + 1] - boards.start[b]
    for p in range(2):
        for c in range(cells):
            reach[p, 0, c] = opening[p, entry, boards.before[first_cell + c]]
    begin = trees.start[entry]
    for i in range(trees.start[entry + 1] - begin):
        if trees.kind[begin + i] != DECISION:
            continue
        p = trees.actor[begin + i]
        slot = trees.slot[begin + i, p]
        for a in range(trees.child.shape[1]):
            to = trees.child[begin + i, a]
            if to >= 0:
                child_slot = trees.slot[begin + to, p]
                for c in range(cells):
                    reach[p, child_slot, c] = reach[p, slot, c] * sigma[i, c, a]


@compiled
def _values_at_end(
    trees: Subtrees, entry: int, boards: Boards, b: int, player: int, reach: Array, r: Array, value: Array
) -> None:
    """Fill `value` `[nodes, cells]` at the entry's terminal nodes, for `player`."""
    begin = trees.start[entry]
    for i in range(trees.start[entry + 1] - begin):
        kind, pay = trees.kind[begin + i], trees.pay[begin + i]
        if kind != DECISION:
            opponent_reach = reach[1 - player, trees.slot[begin + i, 1 - player]]
            # A showdown pays whoever wins it.
            signed = -pay if kind == FOLDED and player == 1 else pay
            terminal_value(kind, signed, opponent_reach, boards, b, r, value[i])


@compiled
def _value_of_node(
    trees: Subtrees, begin: int, i: int, cells: int, player: int, mode: int, sigma: Array, value: Array
) -> None:
    """`value[i]` from its children's, for `player`."""
    acts, actions = trees.actor[begin + i] == player, trees.child.shape[1]
    for c in range(cells):
        v = -np.inf if acts and mode == BEST else 0.0
        for a in range(actions):
            to = trees.child[begin + i, a]
            if to >= 0:
                x = value[to, c]
                if not acts:
                    # The opponent's probabilities are in the reach already.
                    v += x
                elif mode == BEST:
                    v = max(v, x)
                else:
                    v += sigma[i, c, a] * x
        value[i, c] = v


@compiled
def _to_opening(boards: Boards, b: int, value: Array, below: Array) -> None:
    """Add a board's values per hand, `value` `[cells]`, to those of the hands before it, `below` `[opening cells]`."""
    first_cell = boards.start[b]
    for c in range(boards.start[b + 1] - first_cell):
        cell = first_cell + c
        below[boards.before[cell]] += value[c] * boards.members[cell] * boards.weight[b]


@compiled
def _most_nodes(trees: Subtrees) -> int:
    most = 0
    for e in range(len(trees.start) - 1):
        most = max(most, trees.start[e + 1] - trees.start[e])
    return most


@compiled
def _buffers(trees: Subtrees, boards: Boards) -> tuple[Array, Array, Array, Array]:
    nodes, actions, cells = _most_nodes(trees), trees.child.shape[1], boards.first.shape[1]
    slots = trees.slot.max() + 1
    sigma, reach = np.zeros((nodes, cells, actions)), np.zeros((2, slots, cells))
    return sigma, reach, np.zeros((nodes, cells)), np.zeros(cells)


@compiled
def evaluate(
    trees: Subtrees, boards: Boards, begin: int, end: int, table: Array, opening: Array, player: int, mode: int,
    below: Array, action_values: Array,
) -> None:  # fmt: skip
    """Values of boards `begin..end` for `player`, who follows `table` (`MEAN`) or responds to it (`BEST`).

    Args:
        table: `[rows, actions]` strategies of both players.
        opening: `[2, entries, opening cells]` reach before the board.
        below: `[boards, entries, opening cells]`, to be filled: values of the hands before the board, per board.
        action_values: `[rows, actions]`, filled at the player's rows; empty if not wanted.
    """
    sigma, reach, value, r = _buffers(trees, boards)
    for b in range(begin, end):
        first_cell, cells = boards.start[b], boards.start[b + 1] - boards.start[b]
        for entry in range(len(trees.start) - 1):
            top = trees.start[entry]
            nodes = trees.start[entry + 1] - top
            _read_strategies(trees, entry, first_cell, cells, table, sigma)
            _reach_down(trees, entry, boards, b, opening, sigma, reach)
            _values_at_end(trees, entry, boards, b, player, reach, r, value)
            for i in range(nodes - 1, -1, -1):
                if trees.kind[top + i] == DECISION:
                    _value_of_node(trees, top, i, cells, player, mode, sigma, value)
                    if len(action_values) and trees.actor[top + i] == player:
                        row = trees.row[top + i] + first_cell
                        for a in range(trees.child.shape[1]):
                            to = trees.child[top + i, a]
                            if to >= 0:
                                for c in range(cells):
                                    scale = boards.members[first_cell + c] * boards.weight[b]
                                    action_values[row + c, a] = value[to, c] * scale
            _to_opening(boards, b, value[0], below[b, entry])


@compiled
def own_reach(
    trees: Subtrees, boards: Boards, begin: int, end: int, table: Array, opening: Array, arrival: Array
) -> None:
    """Fill `arrival` `[rows]`: probability that the acting player's own actions lead to each infoset."""
    sigma, reach, _, _ = _buffers(trees, boards)
    for b in range(begin, end):
        first_cell, cells = boards.start[b], boards.start[b + 1] - boards.start[b]
        for entry in range(len(trees.start) - 1):
            top = trees.start[entry]
            nodes = trees.start[entry + 1] - top
            _read_strategies(trees, entry, first_cell, cells, table, sigma)
            _reach_down(trees, entry, boards, b, opening, sigma, reach)
            for i in range(nodes):
                if trees.kind[top + i] == DECISION:
                    row, p = trees.row[top + i] + first_cell, trees.actor[top + i]
                    arrival[row : row + cells] = reach[p, trees.slot[top + i, p], :cells]


@compiled
def others_reach(
    trees: Subtrees, boards: Boards, begin: int, end: int, table: Array, opening: Array, player: int, arrival: Array
) -> None:
    """Fill `arrival` `[rows]` at the player's: probability that chance and the opponent allow each infoset."""
    sigma, reach, met, r = _buffers(trees, boards)
    for b in range(begin, end):
        first_cell, cells = boards.start[b], boards.start[b + 1] - boards.start[b]
        for entry in range(len(trees.start) - 1):
            top = trees.start[entry]
            nodes = trees.start[entry + 1] - top
            _read_strategies(trees, entry, first_cell, cells, table, sigma)
            _reach_down(trees, entry, boards, b, opening, sigma, reach)
            for i in range(nodes):
                if trees.kind[top + i] == DECISION and trees.actor[top + i] == player:
                    # What a fold for 1 chip would win counts the opponent's hands that there are beside one's own.
                    of_opponent = reach[1 - player, trees.slot[top + i, 1 - player]]
                    terminal_value(FOLDED, 1.0, of_opponent, boards, b, r, met[i])
                    row = trees.row[top + i] + first_cell
                    for c in range(cells):
                        scale = boards.members[first_cell + c] * boards.weight[b]
                        arrival[row + c] = max(met[i, c], 0.0) * scale


@compiled
def equity(trees: Subtrees, boards: Boards, begin: int, end: int, strongest: int, share: Array) -> None:
    """`share` `[cells]`: how many of the `strongest` hands of each board a hand beats, ties counting half.

    Where equal hands are at the border of the strongest, each of them counts in part.
    """
    hands = boards.first.shape[1]
    member, beaten, met, r = np.zeros(hands), np.zeros(hands), np.zeros(hands), np.zeros(hands)
    for b in range(begin, end):
        h = 0
        while h < hands:
            stop = boards.tie[b, h]
            for i in range(h, stop):
                member[boards.cell[b, i]] = min(max((stop - (hands - strongest)) / (stop - h), 0.0), 1.0)
            h = stop
        # Against one hand each, a showdown for 1 is worth the hands beaten minus those that win, a fold all those met.
        terminal_value(SHOWN, 1.0, member, boards, b, r, beaten)
        terminal_value(FOLDED, 1.0, member, boards, b, r, met)
        first_cell = boards.start[b]
        for c in range(boards.start[b + 1] - first_cell):
            share[first_cell + c] = (met[c] + beaten[c]) / (2 * met[c]) if met[c] > _NOBODY else 0.0


@compiled
def match_regrets(regrets: Array, child: Array, sigma: Array) -> None:
    """`sigma` `[n, actions]` in proportion to positive `regrets`; uniform over legal actions where there are none."""
    actions = len(child)
    legal = 0
    for a in range(actions):
        legal += child[a] >= 0
    for c in range(len(regrets)):
        total = 0.0
        for a in range(actions):
            total += max(regrets[c, a], 0.0)
        for a in range(actions):
            if child[a] < 0:
                sigma[c, a] = 0.0
            elif total > 0:
                sigma[c, a] = max(regrets[c, a], 0.0) / total
            else:
                sigma[c, a] = 1.0 / legal


@compiled
def discounted(regret: float, positive: float, negative: float, floor: bool) -> float:
    """A regret after an iteration of Discounted CFR, or of CFR+ (`floor`)."""
    if regret > 0:
        return regret * positive
    return 0.0 if floor else regret * negative


@compiled
def discount_in_place(regrets: Array, positive: float, negative: float, floor: bool) -> None:
    """`discounted`, in place."""
    flat = regrets.reshape(-1)
    for i in range(len(flat)):
        flat[i] = discounted(flat[i], positive, negative, floor)


@compiled
def cfr(
    trees: Subtrees, boards: Boards, begin: int, end: int, regrets: Array, sums: Array, opening: Array,
    players: tuple[bool, bool], share: float, positive: float, negative: float, floor: bool, below: Array,
) -> None:  # fmt: skip
    """One update of `players` on boards `begin..end`: regrets, summed strategies, and what the hands before them win.

    Args:
        regrets, sums: `[rows, actions]`, updated in place.
        share: weight of this iteration in the average strategy.
        positive, negative: factors of regrets after the update; `floor` sets negative ones to zero.
        below: `[2, boards, entries, opening cells]`, to be filled for `players`; the others as for `evaluate`.
    """
    sigma, reach, value, r = _buffers(trees, boards)
    actions = trees.child.shape[1]
    for b in range(begin, end):
        first_cell, cells = boards.start[b], boards.start[b + 1] - boards.start[b]
        for entry in range(len(trees.start) - 1):
            top = trees.start[entry]
            nodes = trees.start[entry + 1] - top
            for i in range(nodes):
                if trees.kind[top + i] == DECISION:
                    row = trees.row[top + i] + first_cell
                    match_regrets(regrets[row : row + cells], trees.child[top + i], sigma[i])
            _reach_down(trees, entry, boards, b, opening, sigma, reach)
            for player in range(2):
                if not players[player]:
                    continue
                _values_at_end(trees, entry, boards, b, player, reach, r, value)
                for i in range(nodes - 1, -1, -1):
                    if trees.kind[top + i] != DECISION:
                        continue
                    _value_of_node(trees, top, i, cells, player, MEAN, sigma, value)
                    if trees.actor[top + i] != player:
                        continue
                    row, arrival = trees.row[top + i] + first_cell, reach[player, trees.slot[top + i, player]]
                    for c in range(cells):
                        scale = boards.members[first_cell + c] * boards.weight[b]
                        for a in range(actions):
                            to = trees.child[top + i, a]
                            if to >= 0:
                                sums[row + c, a] += share * arrival[c] * sigma[i, c, a]
                                after = regrets[row + c, a] + scale * (value[to, c] - value[i, c])
                                regrets[row + c, a] = discounted(after, positive, negative, floor)
                _to_opening(boards, b, value[0], below[player, b, entry])
