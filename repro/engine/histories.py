"""Every history of a game with one private card each, as a matrix of betting nodes and deals.

Deals that no player can tell apart, with the same winner, are one column. Small games only: Leduc has 24 columns. What
it gives are *state values*, an infoset's expected chips when both players follow a policy, where the opponent's hand is
as likely as the deal and the opponent's own actions make it: exactly, or as means of play-outs.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from repro.engine.sampling import SamplingEngine, split_counts
from repro.games.betting import SHOWDOWN
from repro.games.cards import Deals
from repro.games.game import Game
from repro.policies.base import TabularPolicy


class Histories:
    """The histories of one game.

    Attributes:
        engine: what plays hands out.
        deals: every distinct deal; `probability` `[deals]` of each.
        infoset: `[nodes, deals]` infoset of the player to act; -1 at terminal nodes.
    """

    def __init__(self, game: Game) -> None:
        self.game, self.engine = game, SamplingEngine(game)
        self.deals, self.probability = _all_deals(game)
        tree, count = game.tree, len(self.deals)
        nodes = torch.arange(tree.nodes, device=game.device)
        decision = (tree.player >= 0).nonzero().flatten()
        self.infoset = torch.full((tree.nodes, count), -1, device=game.device)
        rows = torch.cartesian_prod(decision, torch.arange(count, device=game.device))
        self.infoset[decision] = self.engine.infosets(rows[:, 0], rows[:, 1], self.deals).view(-1, count)
        # Which action of the node before leads to a node; of the root, any.
        parent = tree.parent.clamp(min=0)
        self._action = (tree.child[parent] == nodes[:, None]).long().argmax(1)
        self._generations = _generations(tree.parent)

    def reach(self, table: Tensor) -> Tensor:
        """`[2, nodes, deals]` product of each player's own probabilities on the way, under `table`."""
        tree = self.game.tree
        reach = table.new_ones(2, tree.nodes, len(self.deals))
        for nodes in self._generations[1:]:
            before = tree.parent[nodes]
            probability = table[self.infoset[before], self._action[nodes][:, None]]
            for player in range(2):
                acting = (tree.player[before] == player)[:, None]
                reach[player, nodes] = reach[player, before] * torch.where(acting, probability, 1.0)
        return reach

    def values(self, table: Tensor) -> Tensor:
        """`[nodes, deals]` expected chips of player 0 from each history on, when both follow `table`."""
        tree = self.game.tree
        sign = torch.where(tree.winner == 0, 1.0, -1.0).to(table.dtype)
        shown = torch.where(tree.winner[:, None] == SHOWDOWN, self.deals.sign.to(table.dtype), sign[:, None])
        values = tree.stake[:, None].to(table.dtype) * shown * (tree.player < 0)[:, None]
        for nodes in reversed(self._generations[1:]):
            before = tree.parent[nodes]
            probability = table[self.infoset[before], self._action[nodes][:, None]]
            values.index_add_(0, before, probability * values[nodes])
        return values

    def state_values(self, table: Tensor) -> Tensor:
        """`[infosets]` expected chips of the player to act, exact."""
        weight, infoset, sign = self._beliefs(table)
        return _mean(infoset, weight, sign * self.values(table).double(), self.game.infosets)

    def action_values(self, table: Tensor) -> Tensor:
        """`[infosets, actions]` expected chips of the player to act when both follow `table` after the action, exact.

        nan at illegal actions. At infosets that the opponent never gets to, she holds any hand that the deal allows.
        """
        weight, infoset, sign = self._beliefs(table)
        tree, won = self.game.tree, self.values(table).double()
        values = weight.new_full((self.game.infosets, self.game.num_actions), torch.nan)
        for action in range(self.game.num_actions):
            nodes = tree.legal[:, action].nonzero().flatten()
            after = sign[nodes] * won[tree.child[nodes, action]]
            mean = _mean(infoset[nodes], weight[nodes], after, self.game.infosets)
            values[:, action] = torch.where(self.game.legal[:, action], mean, torch.nan)
        return values

    def is_met(self, table: Tensor) -> Tensor:
        """`[infosets]` whether the opponent's own actions ever lead there."""
        first_reach, second_reach = self.reach(table.double())
        reach = torch.where((self.game.tree.player == 1)[:, None], first_reach, second_reach)
        met = torch.zeros(self.game.infosets, dtype=torch.bool, device=self.game.device)
        met[self.infoset[(self.infoset >= 0) & (reach > 0)]] = True
        return met

    def played_out(self, table: Tensor, simulations: int, generator: torch.Generator) -> Tensor:
        """`[infosets]` mean chips of the player to act in so many independent play-outs from each infoset.

        Play-outs that are in the same history are moved on together: what is drawn is how many take which action.
        """
        weight, infoset, sign = self._beliefs(table)
        counts = _allot(infoset, weight, simulations, self.game.infosets, generator)
        node, deal = counts.nonzero().t()
        started = counts[node, deal]
        won = self.engine.play_outs(TabularPolicy(table), node, deal, self.deals, started, generator)
        total = torch.zeros(self.game.infosets, dtype=torch.float64, device=self.game.device)
        total.index_add_(0, infoset[node, deal], won * sign[node, 0])
        return total / simulations

    def _beliefs(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of all histories `[nodes, deals]`: their weight within their infoset, 0 at terminal nodes; the infoset; and
        `[nodes, 1]` 1 or -1, for chips of player 0 or 1."""
        tree = self.game.tree
        decides, second = (tree.player >= 0)[:, None], (tree.player == 1)[:, None]
        first_reach, second_reach = self.reach(table.double())
        chance = self.probability * decides
        weight = chance * torch.where(second, first_reach, second_reach)
        infoset = self.infoset.clamp(min=0)
        # Where the opponent never gets to, any of her hands will do.
        met = weight.new_zeros(self.game.infosets).index_add_(0, infoset.flatten(), weight.flatten())
        weight = torch.where(met[infoset] > 0, weight, chance)
        return weight, infoset, torch.where(second, -1.0, 1.0).double()


def _all_deals(game: Game) -> tuple[Deals, Tensor]:
    cards = game.one_card
    dealt = [
        (first, second, board)
        for first, second, board in product(range(cards.hands), range(cards.hands), range(cards.boards(-1)))
        if first != second and not (cards.blocked[-1][board, first] or cards.blocked[-1][board, second])
    ]
    every = torch.tensor(dealt, device=game.device)
    boards = [every[:, 2] if count else torch.zeros_like(every[:, 2]) for count in cards.board_cards]
    deals = cards.dealt(every[:, :2], torch.stack(boards, 1))
    signatures = torch.cat([deals.cells.flatten(1), deals.sign[:, None].long()], 1)
    kinds, count = signatures.unique(dim=0, return_counts=True)
    cells = kinds[:, :-1].unflatten(1, deals.cells.shape[1:])
    return Deals(cells, kinds[:, -1].float()), count / count.sum(dtype=torch.float64)


def _generations(parent: Tensor) -> list[Tensor]:
    """Nodes by the number of actions before them."""
    depth = torch.zeros_like(parent)
    # Parents are numbered before their children.
    for node, before in enumerate(parent.tolist()):
        if before >= 0:
            depth[node] = depth[before] + 1
    return [(depth == d).nonzero().flatten() for d in range(int(depth.max()) + 1)]


def _mean(group: Tensor, weight: Tensor, values: Tensor, groups: int) -> Tensor:
    sums = [weight.new_zeros(groups).index_add_(0, group.flatten(), x.flatten()) for x in (weight * values, weight)]
    return sums[0] / sums[1]


def _allot(group: Tensor, weight: Tensor, draws: int, groups: int, generator: torch.Generator) -> Tensor:
    """How many of `draws` independent draws from each group fall on each of its members, in proportion to `weight`."""
    flat, owner = weight.flatten(), group.flatten()
    member = (flat > 0).nonzero().flatten()
    order = member[owner[member].argsort(stable=True)]
    group_of = owner[order]
    # The place of each member in its group.
    size = group_of.bincount(minlength=groups)
    place = torch.arange(len(order), device=order.device) - (size.cumsum(0) - size)[group_of]
    padded = flat.new_zeros(groups, int(size.max()))
    padded[group_of, place] = flat[order]
    counts = split_counts(torch.full((groups,), float(draws), device=flat.device), padded, generator)
    allotted = torch.zeros_like(flat)
    allotted[order] = counts[group_of, place].to(allotted.dtype)
    return allotted.view_as(weight)
