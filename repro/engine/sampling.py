"""The sampling engine: many deals walk down the betting tree at once, level by level.

A frontier holds one row per history: (deal, betting node). Each level asks the policy once, in one batch. In
`external_sampling` the traverser's rows branch over all legal actions and the others sample one; in `play` every row
samples one. Values come back up by index arithmetic. Everything runs on the device of the game's tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from repro.games.betting import SHOWDOWN
from repro.games.game import Game
from repro.policies.base import Policy


@dataclass(frozen=True)
class Samples:
    """Rows collected at one player's infosets: `infosets` `[n]` int64 and `targets` `[n, actions]` float32."""

    infosets: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Traversals:
    """What `external_sampling` returns.

    Attributes:
        advantages: at the traverser's infosets, sampled instantaneous regrets in chips, `v(a) - v`, 0 where illegal.
        strategies: at the opponent's infosets, the opponent's action probabilities.
        values: `[traversals]` sampled chips of the traverser.
        nodes_touched: histories visited, decision and terminal ones.
    """

    advantages: Samples
    strategies: Samples
    values: Tensor
    nodes_touched: int


@dataclass(frozen=True)
class _Visited:
    """One level on the way down, kept for the way up.

    Attributes:
        traverser, other: `[t]`, `[o]` frontier rows at which the traverser / the opponent acts.
        slots: number of child slots: one per `other` row, then `actions` per `traverser` row.
        finished: slots that are terminal, with their `payoff`; `going`: slots that form the next frontier, in order.
    """

    traverser: Tensor
    other: Tensor
    slots: int
    finished: Tensor
    payoff: Tensor
    going: Tensor
    infosets: Tensor
    probabilities: Tensor


class SamplingEngine:
    """Sampled play of one game. The tree's tensors are prepared once; calls are independent of each other."""

    def __init__(self, game: Game) -> None:
        self.game = game
        tree = game.tree
        self._terminal = tree.winner != -2
        sign = torch.where(tree.winner == 0, 1.0, -1.0)
        # Chips of player 0 at a terminal node are `fold + showdown * sign(strength difference)`.
        self._fold = torch.where(tree.winner >= 0, sign * tree.stake, 0.0).float()
        self._showdown = torch.where(tree.winner == SHOWDOWN, tree.stake, 0.0).float()

    def _deal(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """hands `[n, 2]`, boards `[n, rounds]`, and the showdown's sign for player 0, `[n]` float32."""
        hands, boards = self.game.cards.deal(n, generator)
        strength = self.game.cards.strength[boards[:, -1:], hands]
        return hands, boards, (strength[:, 0] - strength[:, 1]).sign().float()

    def _infosets(self, node: Tensor, deal: Tensor, hands: Tensor, boards: Tensor) -> Tensor:
        board = boards[deal, self.game.tree.round[node]]
        hand = hands[deal, self.game.tree.player[node]]
        return self.game.infoset(node, board, hand)

    @torch.no_grad()
    def external_sampling(
        self, policy: Policy, traverser: int, traversals: int, generator: torch.Generator
    ) -> Traversals:
        """Traverse the tree `traversals` times, all at once [Lanctot et al. 2009; Deep CFR, Alg. 2].

        Args:
            policy: the current strategies of both players.
            traverser: the player whose actions are all explored.
            traversals: number of deals.
            generator: source of all randomness, on the game's device.
        """
        tree, actions = self.game.tree, self.game.num_actions
        hands, boards, sign = self._deal(traversals, generator)
        if traverser == 1:
            sign = -sign
        fold = self._fold if traverser == 0 else -self._fold
        deal = torch.arange(traversals, device=generator.device)
        node = torch.zeros_like(deal)
        visited: list[_Visited] = []
        touched = traversals
        while len(node):
            infosets = self._infosets(node, deal, hands, boards)
            probabilities = policy.probabilities(infosets).float()
            mine = tree.player[node] == traverser
            t, o = mine.nonzero().flatten(), (~mine).nonzero().flatten()
            action = sample_actions(probabilities[o], generator)
            slot_node = torch.cat([tree.child[node[o], action], tree.child[node[t]].flatten()])
            slot_deal = torch.cat([deal[o], deal[t].repeat_interleave(actions)])
            exists = slot_node >= 0
            terminal = exists & self._terminal[slot_node]
            finished, going = terminal.nonzero().flatten(), (exists & ~terminal).nonzero().flatten()
            end = slot_node[finished]
            payoff = fold[end] + self._showdown[end] * sign[slot_deal[finished]]
            visited.append(_Visited(t, o, len(slot_node), finished, payoff, going, infosets, probabilities))
            touched += len(finished) + len(going)
            node, deal = slot_node[going], slot_deal[going]
        values, advantages = self._values_up(visited)
        visited.reverse()
        return Traversals(
            advantages=Samples(torch.cat([v.infosets[v.traverser] for v in visited]), torch.cat(advantages)),
            strategies=Samples(
                torch.cat([v.infosets[v.other] for v in visited]),
                torch.cat([v.probabilities[v.other] for v in visited]),
            ),
            values=values,
            nodes_touched=touched,
        )

    def _values_up(self, visited: list[_Visited]) -> tuple[Tensor, list[Tensor]]:
        """Root values `[traversals]` and, last level first, the traverser's advantages `[rows, actions]`."""
        actions = self.game.num_actions
        values = torch.zeros(0, device=self.game.device)
        advantages: list[Tensor] = []
        for level in reversed(visited):
            slots = torch.zeros(level.slots, device=self.game.device)
            slots[level.finished] = level.payoff
            slots[level.going] = values
            others = len(level.other)
            per_action = slots[others:].view(-1, actions)
            sigma = level.probabilities[level.traverser]
            mine = (sigma * per_action).sum(1)
            legal = self.game.legal[level.infosets[level.traverser]]
            advantages.append((per_action - mine[:, None]) * legal)
            values = torch.empty(len(level.infosets), device=self.game.device)
            values[level.other] = slots[:others]
            values[level.traverser] = mine
        return values, advantages

    @torch.no_grad()
    def play(self, policies: Sequence[Policy], hands: int, generator: torch.Generator) -> Tensor:
        """Play `hands` complete hands.

        Args:
            policies: one per seat. A policy with a `per_trajectory` method (an ensemble) first draws one strategy per
                hand and keeps to it until the hand ends.

        Returns:
            `[hands]` chips won by player 0.
        """
        tree = self.game.tree
        cards, boards, sign = self._deal(hands, generator)
        seated = [p.per_trajectory(hands, generator) if hasattr(p, "per_trajectory") else p for p in policies]
        deal = torch.arange(hands, device=generator.device)
        node = torch.zeros_like(deal)
        result = torch.zeros(hands, device=generator.device)
        while len(node):
            infosets = self._infosets(node, deal, cards, boards)
            action = torch.empty_like(node)
            for seat, policy in enumerate(seated):
                rows = (tree.player[node] == seat).nonzero().flatten()
                if hasattr(policy, "trajectory_probabilities"):
                    probabilities = policy.trajectory_probabilities(infosets[rows], deal[rows])
                else:
                    probabilities = policy.probabilities(infosets[rows])
                action[rows] = sample_actions(probabilities.float(), generator)
            node = tree.child[node, action]
            done = self._terminal[node]
            end, ended = node[done], deal[done]
            result[ended] = self._fold[end] + self._showdown[end] * sign[ended]
            node, deal = node[~done], deal[~done]
        return result


def sample_actions(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """`[n, actions]` probabilities -> `[n]` sampled actions; an action of probability zero is never drawn."""
    cumulative = probabilities.cumsum(1)
    draw = torch.rand(len(probabilities), 1, generator=generator, device=probabilities.device)
    # Scaling by the row's own sum keeps rounding from reaching past the last possible action.
    return (cumulative <= draw * cumulative[:, -1:]).sum(1)
