"""The exact engine: at each (betting node, board) a vector over private hands. Reach goes down, values come up.

Layout: per round, tensors `[boards, nodes, 2, hands]` in float64, the third dimension being the player. All chance
probability sits in the terminal payoffs, so a node's value is *counterfactual*: weighted by chance and the opponent's
reach, not by one's own. Both players are swept together. Within a round, reach is a gather and a product along each
node's path, so the number of tensor operations does not grow with the tree; values need one step per level.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from repro.games.betting import SHOWDOWN, BettingTree, Level
from repro.games.game import Game

# Two more "nodes" stand in for illegal actions while values come up. The acting player of the level picks by maximum
# and needs -inf there; the other player's values are summed and need 0. One such node per acting player.
_PADDING = 2


@dataclass(frozen=True)
class _LevelPlan:
    """A level in round-local node numbers: `children` `[nodes * actions]`, illegal ones pointing at the padding."""

    start: int
    stop: int
    player: int
    children: Tensor
    first_cell: int


@dataclass(frozen=True)
class _RoundPlan:
    """Index tensors of one round; nodes are local to the round, `probs` rows are decision node * actions + action.

    Attributes:
        infosets, valid: `[boards, decision nodes, hands]` infoset of a cell, and whether its cards do not collide.
        table_index: `[boards, decision nodes * actions + 1, hands]` into the flat policy table, 1 past its end
            standing for the constant 1.
        path: `[steps, (nodes + exits) * 2]` rows of each player's own actions since the round began. An *exit* is a
            betting line that goes on to the next round; exits are in the order of that round's first nodes.
        line: `[nodes + exits]` which exit of the previous round led here.
        end_path, end_line: the part of `path` and `line` for terminal nodes, then exits.
        lines: number of betting lines that enter this round.
        terminal: local numbers of the terminal nodes.
        stake: `[terminal nodes, 2, 2, 1]` by the *opponent's* player number, chips won after a fold (0 at showdowns),
            and chips at stake for the better hand at a showdown (0 after folds).
        payoff: see `_payoff`.
        board_parent: `[boards]` board of the round before.
    """

    nodes: int
    infosets: Tensor
    valid: Tensor
    table_index: Tensor
    path: Tensor
    line: Tensor
    end_path: Tensor
    end_line: Tensor
    lines: int
    terminal: Tensor
    stake: Tensor
    payoff: Tensor
    levels: tuple[_LevelPlan, ...]
    board_parent: Tensor


class PublicTree:
    """Exact values, best responses and counterfactual values of tabular policies of one game."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self._rounds = [_plan_round(game, r) for r in range(game.tree.rounds)]
        self._one = torch.ones(1, dtype=torch.float64, device=game.device)

    # -- reach ---------------------------------------------------------------------------------------------------

    def _probabilities(self, table: Tensor) -> list[Tensor]:
        """Per round `[boards, decision nodes * actions + 1, hands]`; the last row is the constant 1."""
        flat = torch.cat([table.flatten(), self._one])
        return [flat.take(plan.table_index) for plan in self._rounds]

    def _reach(self, probabilities: list[Tensor], ends_only: bool) -> list[Tensor]:
        """Per round `[boards, nodes + exits, 2, hands]`: each player's own contribution to reaching a node.

        With `ends_only` for terminal nodes and exits only, in this order: all that values need.
        """
        reach: list[Tensor] = []
        for plan, probs in zip(self._rounds, probabilities, strict=True):
            path, line = (plan.end_path, plan.end_line) if ends_only else (plan.path, plan.line)
            here = probs.index_select(1, path[0])
            for rows in path[1:]:
                here *= probs.index_select(1, rows)
            here = here.view(len(probs), len(line), 2, -1)
            if reach:
                entry = reach[-1][:, -plan.lines :].index_select(0, plan.board_parent)
                here *= entry.index_select(1, line)
            reach.append(here)
        return reach

    def own_reach(self, table: Tensor) -> Tensor:
        """`[infosets]` probability that the owner's own actions allow the infoset: `pi_i(I)` of SD-CFR eq. 6."""
        result = torch.zeros(self.game.infosets, dtype=torch.float64, device=self.game.device)
        for plan, reach in zip(self._rounds, self._reach(self._probabilities(table), False), strict=True):
            own = torch.cat([reach[:, level.start : level.stop, level.player] for level in plan.levels], 1)
            # Perfect recall: every cell of an infoset has the same own reach, so any may be kept.
            result[plan.infosets[plan.valid]] = own[plan.valid]
        return result

    # -- values --------------------------------------------------------------------------------------------------

    def _sweep(
        self, table: Tensor, best_response: tuple[bool, bool], visit: dict[int, list[Tensor]] | None = None
    ) -> Tensor:
        """Bring values up the tree.

        A player's counterfactual values stand where the opponent's reach stood: at index `1 - player`.

        Args:
            best_response: per player, whether that player's value at own nodes is the maximum over actions (the
                opponent keeping to `table`) or the mean under `table`.
            visit: if given, collects per round (key) the child values of each level's acting player,
                `[boards, nodes, actions, hands]`, last level first.

        Returns:
            `[2]` each player's expected chips.
        """
        probabilities = self._probabilities(table)
        reach = self._reach(probabilities, ends_only=True)
        actions = self.game.num_actions
        later: Tensor | None = None
        for r in reversed(range(len(self._rounds))):
            plan, probs = self._rounds[r], probabilities[r]
            boards, _, hands = probs.shape
            exits = len(plan.line) - plan.nodes
            values = probs.new_zeros(boards, plan.nodes + _PADDING + exits, 2, hands)
            for player in range(2):
                if best_response[player]:
                    values[:, plan.nodes + player, 1 - player] = -torch.inf
            # Stakes on the left, chance and winners on the right: one batched product values all terminal nodes.
            ends = reach[r][:, : len(plan.terminal), :, None] * plan.stake
            ended = torch.bmm(ends.flatten(3).flatten(1, 2), plan.payoff)
            values.index_copy_(1, plan.terminal, ended.view(boards, -1, 2, hands))
            if later is not None:
                values[:, -exits:].index_add_(0, self._rounds[r + 1].board_parent, later)
            for level in reversed(plan.levels):
                acting, n = 1 - level.player, level.stop - level.start
                child = values.index_select(1, level.children).view(boards, n, actions, 2, hands)
                own, other = child[..., acting, :], child[..., 1 - acting, :]
                here = values[:, level.start : level.stop]
                torch.sum(other, 2, out=here[:, :, 1 - acting])
                if best_response[level.player]:
                    torch.amax(own, 2, out=here[:, :, acting])
                else:
                    sigma = probs[:, level.first_cell * actions : (level.first_cell + n) * actions]
                    torch.sum(sigma.view(own.shape) * own, 2, out=here[:, :, acting])
                if visit is not None:
                    visit.setdefault(r, []).append(own)
            later = values[:, : plan.lines]
        assert later is not None
        return later[0, 0].sum(1).flip(0)

    def expected_values(self, table: Tensor) -> Tensor:
        """`[2]` chips each player wins per game under `table` `[infosets, actions]`."""
        return self._sweep(table, (False, False))

    def best_response_values(self, table: Tensor) -> Tensor:
        """`[2]` chips each player wins with a best response to the opponent's part of `table`."""
        return self._sweep(table, (True, True))

    def best_response(self, table: Tensor, player: int) -> tuple[float, Tensor]:
        """Value in chips of `player`'s best response, and `table` with the player's part replaced by it."""
        visit: dict[int, list[Tensor]] = {}
        value = self._sweep(table, (player == 0, player == 1), visit)[player]
        per_action = self._gather_actions(visit)
        best = per_action.masked_fill(~self.game.legal, -torch.inf).argmax(1)
        response = table.clone()
        mine = self.game.player_slice[player]
        response[mine] = torch.nn.functional.one_hot(best[mine], self.game.num_actions).to(table.dtype)
        return float(value), response

    def action_values(self, table: Tensor) -> Tensor:
        """`[infosets, actions]` counterfactual value of each action under `table`, 0 where illegal.

        The value of an infoset is the `table`-weighted mean of its row; regrets are the differences to it.
        """
        visit: dict[int, list[Tensor]] = {}
        self._sweep(table, (False, False), visit)
        return self._gather_actions(visit)

    def _gather_actions(self, visit: dict[int, list[Tensor]]) -> Tensor:
        out = torch.zeros(self.game.legal.shape, dtype=torch.float64, device=self.game.device)
        for r, plan in enumerate(self._rounds):
            own = torch.cat(visit[r][::-1], 1).movedim(2, 3)
            # Padding is -inf for a responder; such entries are illegal and would turn sums into nan.
            out.index_add_(0, plan.infosets[plan.valid], own[plan.valid].nan_to_num(neginf=0.0))
        return out


def _plan_round(game: Game, r: int) -> _RoundPlan:
    tree = game.tree
    start, stop = tree.round_slice[r]
    infosets = game.infoset_grid(r).transpose(0, 1)
    path, line, lines = _paths(tree, r)
    terminal = torch.nonzero(tree.winner[start:stop] != -2).flatten()
    winner, stake = tree.winner[start + terminal], tree.stake[start + terminal]
    fold_gain = torch.where(winner == SHOWDOWN, 0.0, torch.where(winner == 0, stake, -stake))
    at_showdown = torch.where(winner == SHOWDOWN, stake, 0.0)
    by_opponent = [torch.stack([sign * fold_gain, at_showdown], 1) for sign in (-1, 1)]
    ends = torch.cat([terminal, torch.arange(stop - start, len(line), device=game.device)])
    return _RoundPlan(
        nodes=stop - start,
        infosets=infosets,
        valid=infosets >= 0,
        table_index=_table_index(game, infosets),
        path=path.flatten(1),
        line=line,
        end_path=path[:, ends].flatten(1),
        end_line=line[ends],
        lines=lines,
        terminal=terminal,
        stake=torch.stack(by_opponent, 1)[..., None],
        payoff=_payoff(game, r),
        levels=_plan_levels(tree, r),
        board_parent=game.cards.board_parent[r],
    )


def _table_index(game: Game, infosets: Tensor) -> Tensor:
    """`[boards, decision nodes * actions + 1, hands]` flat positions in the policy table, then the constant 1.

    Where hand and board collide there is no infoset; the payoffs give such cells no weight, and row 0 of the table
    serves as well as any.
    """
    actions = torch.arange(game.num_actions, device=game.device)
    index = infosets.clamp(min=0)[:, :, None] * game.num_actions + actions[:, None]
    one = torch.full((len(infosets), 1, game.cards.hands), game.infosets * game.num_actions, device=game.device)
    return torch.cat([index.flatten(1, 2), one], 1)


def _decision_column(tree: BettingTree, r: int) -> dict[int, int]:
    """Global decision node -> its row among the round's decision nodes."""
    nodes = [n for level in tree.levels[r] for n in range(level.start, level.stop)]
    return {node: row for row, node in enumerate(nodes)}


def _paths(tree: BettingTree, r: int) -> tuple[Tensor, Tensor, int]:
    """`path` (as `[steps, nodes + exits, 2]`), `line` and `lines` of a round's plan."""
    start, stop = tree.round_slice[r]
    column = _decision_column(tree, r)
    actions = tree.legal.shape[1]
    one = len(column) * actions
    exits = range(stop, stop + _entering(tree, r + 1))
    paths: list[list[list[int]]] = []
    line: list[int] = []
    for node in (*range(start, stop), *exits):
        steps: list[list[int]] = [[], []]
        at = node
        while (before := int(tree.parent[at])) >= start:
            action = int((tree.child[before] == at).nonzero())
            steps[int(tree.player[before])].append(column[before] * actions + action)
            at = before
        line.append(at - start)
        paths.append(steps)
    longest = max(1, *(len(p) for steps in paths for p in steps))
    padded = [[p + [one] * (longest - len(p)) for p in steps] for steps in paths]
    device = tree.child.device
    return torch.tensor(padded, device=device).movedim(2, 0), torch.tensor(line, device=device), _entering(tree, r)


def _entering(tree: BettingTree, r: int) -> int:
    """Number of betting lines that enter a round; their first nodes are the round's first ones, in the same order."""
    if r == tree.rounds:
        return 0
    start, stop = tree.round_slice[r]
    return sum(int(tree.parent[node]) < start for node in range(start, stop))


def _payoff(game: Game, r: int) -> Tensor:
    """`[boards, 2 * opponent hand, own hand]`: probability of the deal, then the same signed by who wins a showdown."""
    cards = game.cards
    free = ~cards.blocked[r]
    different = ~torch.eye(cards.hands, dtype=torch.bool, device=game.device)
    compatible = (free[:, :, None] & free[:, None, :] & different).to(torch.float64) * cards.pair_probability[r]
    if r + 1 < game.tree.rounds:
        return torch.cat([compatible, torch.zeros_like(compatible)], 1)
    wins = (cards.strength[:, None, :] - cards.strength[:, :, None]).sign().to(torch.float64)
    return torch.cat([compatible, compatible * wins], 1)


def _plan_levels(tree: BettingTree, r: int) -> tuple[_LevelPlan, ...]:
    start = tree.round_slice[r][0]
    plans, cell = [], 0
    for level in tree.levels[r]:
        plans.append(_LevelPlan(level.start - start, level.stop - start, level.player, _children(tree, r, level), cell))
        cell += level.stop - level.start
    return tuple(plans)


def _children(tree: BettingTree, r: int, level: Level) -> Tensor:
    """Local child numbers; children of the next round follow the padding in the order of that round's lines."""
    start, stop = tree.round_slice[r]
    nodes = stop - start
    child = tree.child[level.start : level.stop]
    local = torch.where(child < 0, nodes + level.player, child - start)
    crossing = child >= stop
    # The next round's first nodes are numbered in the order in which they are entered.
    return torch.where(crossing, nodes + _PADDING + child - stop, local).flatten()
