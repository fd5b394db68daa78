"""The exact ("vector") engine: each player's strategies in sequence form, terminal nodes valued for all hands at once.

A *sequence* of a player is an own (infoset, action) pair, or the empty one; its *reach* is the product of the player's
own probabilities up to and including it [von Stengel 1996]. By perfect recall an infoset has one sequence that leads
to it, its *parent*. So a strategy's reach is one product per level of own decisions; a terminal betting node takes the
opponent's reach of all hands through one matrix per board to values for all own hands; and values climb back over the
player's own decisions only. The number of tensor operations is that of levels and does not grow with the game.

Hands and boards that the rules do not distinguish (`suit_isomorphism`) are one row here, with their joint probability.
All chance probability sits in the payoffs: a value is *counterfactual*, weighted by chance and the opponent's reach.
Everything is float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from repro.games.betting import SHOWDOWN
from repro.games.game import Game

_Last = dict[int, tuple[int, int] | None]
"""Betting node -> the player's last decision before it: (node, action)."""


class Treeplex:
    """One player's decisions: the buffers of a strategy, its reach and its values, and the steps between them.

    Attributes:
        strategy: `[infosets, actions]` of this player, to be written by the caller.
        reach: `[1 + infosets * actions]` of the sequences; entry 0 is the empty sequence.
        plan: `[infosets, actions]`, the rest of `reach`: probability of the player's own actions up to this one.
        arrival: `[infosets]` reach of each infoset's parent.
        q: `[infosets, actions]` counterfactual value of each action.
        v: `[infosets]` counterfactual value of each infoset.
    """

    def __init__(self, game: Game, parents: list[Tensor]) -> None:
        counts = [len(p) for p in parents]
        infosets, actions = sum(counts), game.num_actions
        table, column = game.uniform.new_zeros(infosets, actions), game.uniform.new_zeros(infosets)
        self.strategy = table.clone()
        self.reach = game.uniform.new_ones(1 + infosets * actions)
        self.plan = self.reach[1:].view(infosets, actions)
        self.arrival = column.clone()
        self.values = torch.zeros_like(self.reach)
        self.q = self.values[1:].view(infosets, actions)
        self.v = column.clone()
        weighted = table.clone()
        # Views per level are made once: making one costs as much as an operation on a small level.
        self._levels = list(
            zip(
                parents, self.strategy.split(counts), self.plan.split(counts), self.arrival.split(counts),
                self.arrival[:, None].split(counts), self.q.split(counts), self.v.split(counts),
                weighted.split(counts), strict=True,
            )
        )  # fmt: skip

    def strategy_to_reach(self) -> None:
        """Fill `arrival`, `reach` and `plan` from `strategy`."""
        for parent, strategy, plan, arrival, column, _, _, _ in self._levels:
            torch.take(self.reach, parent, out=arrival)
            torch.mul(strategy, column, out=plan)

    def values_to_root(self, best_response: bool) -> Tensor:
        """Add every infoset's value to its parent's, and return that of the empty sequence (a scalar).

        `values` must hold the terminal nodes' contributions; for a best response, -inf at illegal actions.
        """
        for parent, strategy, _, _, _, q, v, weighted in reversed(self._levels):
            if best_response:
                torch.amax(q, 1, out=v)
            else:
                torch.mul(q, strategy, out=weighted)
                torch.sum(weighted, 1, out=v)
            self.values.index_add_(0, parent, v)
        return self.values[0]


@dataclass(frozen=True)
class _Terminals:
    """Terminal nodes of one round and kind (fold or showdown).

    Attributes:
        sequence: per player `[boards, nodes, hands]` index of the last sequence into that player's `reach`.
        stake: `[nodes, 1]` chips won by player 0: after a fold, or with the better hand at a showdown.
        payoff: `[boards, hands, hands]` probability of the deal, signed by who wins a showdown (rows: player 0).
    """

    sequence: tuple[Tensor, Tensor]
    stake: Tensor
    payoff: Tensor


class SequenceForm:
    """Exact values, best responses and counterfactual values of one game.

    The two `players` hold buffers that every call overwrites; what calls return is the caller's own.
    """

    def __init__(self, game: Game) -> None:
        # The game itself is not kept: engines are cached for as long as their game lives.
        self._slices, self._actions = game.player_slice, game.num_actions
        layout = _Layout(game)
        self.players = tuple(Treeplex(game, layout.parents(p)) for p in range(2))
        self._terminals = [t for r in range(game.tree.rounds) for t in layout.terminals(r)]
        illegal = torch.where(game.legal, 0.0, -torch.inf).double().flatten()
        zero = illegal.new_zeros(1)
        a = game.num_actions
        self._start = [torch.cat([zero, illegal[s.start * a : s.stop * a]]) for s in game.player_slice]

    # -- building blocks, for solvers ----------------------------------------------------------------------------

    def evaluate(self, player: int, best_response: bool = False) -> Tensor:
        """Fill `player`'s `q` and `v` from the opponent's `reach`; return the player's chips per game (a scalar).

        The player follows `strategy`, or responds as well as possible (`q` is then -inf at illegal actions).
        """
        me, opponent = self.players[player], self.players[1 - player]
        if best_response:
            me.values.copy_(self._start[player])
        else:
            me.values.zero_()
        for t in self._terminals:
            stakes = opponent.reach.take(t.sequence[1 - player]).mul_(t.stake)
            # `payoff` is player 0's with her hands in rows; the transposed of minus it is player 1's.
            if player == 0:
                won = torch.bmm(stakes, t.payoff.mT)
                me.values.index_add_(0, t.sequence[0].flatten(), won.flatten())
            else:
                won = torch.bmm(stakes, t.payoff)
                me.values.index_add_(0, t.sequence[1].flatten(), won.flatten(), alpha=-1)
        return me.values_to_root(best_response)

    def _load(self, table: Tensor) -> None:
        for treeplex, rows in zip(self.players, self._slices, strict=True):
            treeplex.strategy.copy_(table[rows])
            treeplex.strategy_to_reach()

    # -- questions about a policy --------------------------------------------------------------------------------

    def own_reach(self, table: Tensor) -> Tensor:
        """`[infosets]` probability that the owner's own actions allow the infoset: `pi_i(I)` of SD-CFR eq. 6."""
        self._load(table)
        return torch.cat([treeplex.arrival for treeplex in self.players])

    def expected_values(self, table: Tensor) -> Tensor:
        """`[2]` chips each player wins per game under `table` `[infosets, actions]`."""
        self._load(table)
        return torch.stack([self.evaluate(player) for player in range(2)])

    def best_response_values(self, table: Tensor) -> Tensor:
        """`[2]` chips each player wins with a best response to the opponent's part of `table`."""
        self._load(table)
        return torch.stack([self.evaluate(player, best_response=True) for player in range(2)])

    def best_response(self, table: Tensor, player: int) -> tuple[float, Tensor]:
        """Value in chips of `player`'s best response, and `table` with the player's part replaced by it."""
        self._load(table)
        value = float(self.evaluate(player, best_response=True))
        best = self.players[player].q.argmax(1)
        response = table.clone()
        response[self._slices[player]] = torch.nn.functional.one_hot(best, self._actions).to(table)
        return value, response

    def action_values(self, table: Tensor) -> Tensor:
        """`[infosets, actions]` counterfactual value of each action under `table`, 0 where illegal.

        The value of an infoset is the `table`-weighted mean of its row; regrets are the differences to it.
        """
        self._load(table)
        for player in range(2):
            self.evaluate(player)
        return torch.cat([treeplex.q for treeplex in self.players])


class _Layout:
    """The index tensors of a game's sequence form, made once."""

    def __init__(self, game: Game) -> None:
        self._game, tree = game, game.tree
        self._grid = [_infosets_by_class(game, r) for r in range(tree.rounds)]
        self._column = {
            node: column
            for levels in tree.levels
            for column, node in enumerate(n for level in levels for n in range(level.start, level.stop))
        }
        self._last = [_last_decisions(game, p) for p in range(2)]

    def parents(self, player: int) -> list[Tensor]:
        """Per level of the player's decisions, `[infosets]` index of the parent into `reach`."""
        parents: list[Tensor] = []
        next_infoset = self._game.player_slice[player].start
        for r, levels in enumerate(self._game.tree.levels):
            for level in levels:
                if level.player != player:
                    continue
                nodes = list(range(level.start, level.stop))
                listed = torch.stack([self._grid[r][self._column[n]] for n in nodes])
                parent = torch.stack([self._sequences(player, n, r) for n in nodes])
                infosets, parent = listed[listed >= 0], parent[listed >= 0]
                # Infosets are numbered by node, and nodes by (round, depth): a level is contiguous.
                assert sorted(infosets.tolist()) == list(range(next_infoset, next_infoset + len(infosets)))
                parents.append(parent[infosets.argsort()])
                next_infoset += len(infosets)
        return parents

    def _sequences(self, player: int, node: int, round_: int) -> Tensor:
        """`[boards, hands]` index of the player's last sequence before a node of `round_`, for boards of that round."""
        last = self._last[player][node]
        if last is None:
            return torch.zeros_like(self._grid[round_][0])
        before, action = last
        earlier = int(self._game.tree.round[before])
        infosets = self._grid[earlier][self._column[before]]
        for r in range(earlier + 1, round_ + 1):
            infosets = infosets[_class_parent(self._game, r)]
        first = self._game.player_slice[player].start
        # Where hand and board collide the payoffs are 0, and the empty sequence serves as well as any.
        return torch.where(infosets < 0, 0, 1 + (infosets - first) * self._game.num_actions + action)

    def terminals(self, r: int) -> list[_Terminals]:
        """The round's terminal nodes after a fold, and those at a showdown."""
        tree = self._game.tree
        start, stop = tree.round_slice[r]
        compatible, wins = _payoffs(self._game, r)
        terminals = []
        for showdown, payoff in ((False, compatible), (True, wins)):
            nodes = [
                n for n in range(start, stop) if tree.winner[n] != -2 and (int(tree.winner[n]) == SHOWDOWN) == showdown
            ]
            if nodes:
                sequence = [torch.stack([self._sequences(p, n, r) for n in nodes], 1) for p in range(2)]
                sign = torch.where(tree.winner[nodes] == 1, -1.0, 1.0)
                stake = (sign * tree.stake[nodes])[:, None].double()
                terminals.append(_Terminals((sequence[0], sequence[1]), stake, payoff))
        return terminals


def _last_decisions(game: Game, player: int) -> _Last:
    tree = game.tree
    last: _Last = {0: None}
    acting, child = tree.player.tolist(), tree.child.tolist()
    # Children have higher numbers than their parents.
    for node, children in enumerate(child):
        for action, to in enumerate(children):
            if to >= 0:
                last[to] = (node, action) if acting[node] == player else last[node]
    return last


def _infosets_by_class(game: Game, r: int) -> Tensor:
    """`[decision nodes, board classes, hand classes]` infosets of a round, -1 where no hand fits the board."""
    cards = game.one_card
    boards, hands = int(cards.board_class[r].max()) + 1, int(cards.hand_class.max()) + 1
    cell = torch.full((boards * hands,), -1, device=game.device)
    cell[cards.cell_board[r] * hands + cards.cell_hand[r]] = torch.arange(cards.cells[r], device=game.device)
    nodes = [n for level in game.tree.levels[r] for n in range(level.start, level.stop)]
    grid = torch.where(cell < 0, -1, game.first_infoset[nodes][:, None] + cell)
    return grid.view(len(nodes), boards, hands)


def _class_parent(game: Game, r: int) -> Tensor:
    """`[board classes]` class of the board in the round before."""
    cards = game.one_card
    parent = torch.zeros(int(cards.board_class[r].max()) + 1, dtype=torch.int64, device=game.device)
    parent[cards.board_class[r]] = cards.board_class[r - 1][cards.board_parent[r]]
    return parent


def _payoffs(game: Game, r: int) -> tuple[Tensor, Tensor]:
    """Two tensors `[board classes, hand classes of player 0, of player 1]`: probability of the deal, and the same
    signed by whether player 0 wins a showdown (zero before the last round)."""
    cards = game.one_card
    free = ~cards.blocked[r]
    different = ~torch.eye(cards.hands, dtype=torch.bool, device=game.device)
    compatible = (free[:, :, None] & free[:, None, :] & different).double() * cards.pair_probability[r]
    wins = torch.zeros_like(compatible)
    if r + 1 == game.tree.rounds:
        wins = compatible * (cards.strength[:, :, None] - cards.strength[:, None, :]).sign()
    return _sum_by_class(game, r, compatible), _sum_by_class(game, r, wins)


def _sum_by_class(game: Game, r: int, joint: Tensor) -> Tensor:
    for dimension, classes in enumerate(
        (game.one_card.board_class[r], game.one_card.hand_class, game.one_card.hand_class)
    ):
        shape = list(joint.shape)
        shape[dimension] = int(classes.max()) + 1
        joint = joint.new_zeros(shape).index_add_(dimension, classes, joint)
    return joint
