"""The sampling engine: many deals walk down the betting tree at once, level by level.

A frontier holds one row per history: (deal, betting node). Each level asks the policy once, in one batch. In
`external_sampling` the traverser's rows branch over all legal actions and the others sample one; in `play` every row
samples one. Values come back up by index arithmetic. Everything runs on the device of the game's tensors.

Rows are picked with `index_select`, which on a CPU is much cheaper than indexing with brackets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from repro.games.betting import SHOWDOWN
from repro.games.cards import Deals
from repro.games.game import Game
from repro.policies.base import Ensemble, HandStrategies, Policy

_ILLEGAL, _ENDED, _GOING = 0, 1, 2

BYTES_PER_DEAL = 100
"""What a deal that is traversed or played with others takes at the least: its cells, its place, what is won."""


class MostMet(NamedTuple):
    """Decisions that one walk down the betting tree meets at most.

    Attributes:
        own, others: the traverser's and the opponent's.
    """

    own: int
    others: int


@lru_cache(maxsize=8)
def most_met(game: Game, traverser: int, explores: bool = True) -> MostMet:
    """The most decisions that one deal brings.

    Args:
        explores: whether all of the traverser's actions are followed, as in external sampling, or one, as in a hand.
    """
    player, children = game.tree.player.tolist(), game.tree.child.tolist()
    own, others = [0] * len(player), [0] * len(player)
    # Children have higher numbers than their parents.
    for node in range(len(player) - 1, -1, -1):
        below = [child for child in children[node] if child >= 0]
        if not below:
            continue
        together = sum if explores and player[node] == traverser else max
        own[node] = together(own[child] for child in below) + (player[node] == traverser)
        others[node] = together(others[child] for child in below) + (player[node] != traverser)
    return MostMet(own[0], others[0])


@dataclass(frozen=True)
class InfosetSamples:
    """Rows collected at one player's infosets: `infosets` `[n]` int64 and `targets` `[n, actions]` float32."""

    infosets: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Traversals:
    """What `external_sampling` returns.

    Attributes:
        advantages: at the traverser's infosets, sampled instantaneous regrets in chips, `v(a) - v`, 0 where illegal.
        opponent_strategies: at the opponent's infosets, the opponent's action probabilities: what is added to the
            opponent's average strategy.
        state_values: `[n]` at the infosets of `advantages`, sampled chips of the traverser from there on, `v`.
        values: `[traversals]` sampled chips of the traverser.
        nodes_touched: histories visited, decision and terminal ones.
    """

    advantages: InfosetSamples
    opponent_strategies: InfosetSamples
    state_values: Tensor
    values: Tensor
    nodes_touched: int


@dataclass(frozen=True)
class Trajectories:
    """What `outcome_sampling` returns.

    Attributes:
        advantages, values, nodes_touched: as of `Traversals`.
        own_strategies: at the traverser's infosets, her action probabilities times her own reach over the probability
            of the sample: what is added to her own average strategy.
    """

    advantages: InfosetSamples
    own_strategies: InfosetSamples
    values: Tensor
    nodes_touched: int


@dataclass(frozen=True)
class _Visited:
    """One level on the way down, kept for the way up.

    Attributes:
        traverser, opponent: `[t]`, `[o]` frontier rows at which the traverser / the opponent acts.
        slots: number of child slots: one per `opponent` row, then `actions` per `traverser` row.
        finished: slots that are terminal, with their `payoff`; `going`: slots that form the next frontier, in order.
        legal: `[t, actions]` bool, at the traverser's rows.
    """

    traverser: Tensor
    opponent: Tensor
    slots: int
    finished: Tensor
    payoff: Tensor
    going: Tensor
    legal: Tensor
    infosets: Tensor
    probabilities: Tensor


@dataclass(frozen=True)
class _Decisions:
    """The traverser's decisions of one level of `outcome_sampling`, a row each.

    Attributes:
        legal, sigma: `[rows, actions]` legal mask and probabilities; `action` `[rows, 1]` what was sampled, and `q`
            with which probability.
        regret_weight, strategy_weight: `[rows, 1]` the opponent's and the traverser's reach of the infoset over the
            probability of the sample (the deal's left out of the latter: it is the same for all samples of an infoset).
    """

    deal: Tensor
    infosets: Tensor
    legal: Tensor
    sigma: Tensor
    action: Tensor
    q: Tensor
    regret_weight: Tensor
    strategy_weight: Tensor


class SamplingEngine:
    """Sampled play of one game. The tree's tensors are prepared once; calls are independent of each other, but for
    `played_out`.

    Attributes:
        played_out: histories visited by all `play_outs` so far, each as often as hands were in it; a scalar.
    """

    def __init__(self, game: Game) -> None:
        self.game = game
        tree = game.tree
        # For node numbers from -1 (an illegal action) on.
        going = torch.where(tree.winner == -2, _GOING, _ENDED)
        self._kind = torch.cat([torch.full_like(going[:1], _ILLEGAL), going]).to(torch.uint8)
        sign = torch.where(tree.winner == 0, 1.0, -1.0)
        # Chips of player 0 at a terminal node are `fold + showdown * sign(strength difference)`.
        self._fold = torch.where(tree.winner >= 0, sign * tree.stake, 0.0).float()
        self._showdown = torch.where(tree.winner == SHOWDOWN, tree.stake, 0.0).float()
        # Where in a deal's cells the player to act at a node finds hers.
        self._columns = 2 * tree.rounds
        self._column = tree.player * tree.rounds + tree.round
        self.played_out = torch.zeros((), dtype=torch.float64, device=tree.player.device)

    def deal(self, n: int, generator: torch.Generator) -> Deals:
        """Deal `n` times, each time from a full deck."""
        return self.game.cards.deal(n, generator)

    def infosets(self, node: Tensor, deal: Tensor, deals: Deals) -> Tensor:
        """Infosets of the players to act at decision nodes `node` of deals number `deal`."""
        cell = deals.cells.flatten().index_select(0, deal * self._columns + self._column.index_select(0, node))
        return self.game.first_infoset.index_select(0, node) + cell

    @torch.no_grad()
    def external_sampling(
        self, policy: Policy, traverser: int, traversals: int, generator: torch.Generator, passes_maximum: bool = False
    ) -> Traversals:
        """Traverse the tree `traversals` times, all at once [Lanctot et al. 2009; Deep CFR, Alg. 2].

        Args:
            policy: the current strategies of both players.
            traverser: the player whose actions are all explored.
            traversals: number of deals.
            generator: source of all randomness, on the game's device.
            passes_maximum: of a decision of the traverser, what counts further up is the highest value of an action
                and not their mean under her strategy: an error, for comparison with code that had it. `values` and
                `state_values` then take her to play best from her next decision on, knowing what will be sampled.
        """
        tree, actions = self.game.tree, self.game.num_actions
        children = tree.child.flatten()
        deals = self.deal(traversals, generator)
        sign = deals.sign if traverser == 0 else -deals.sign
        fold = self._fold if traverser == 0 else -self._fold
        deal = torch.arange(traversals, device=generator.device)
        node = torch.zeros_like(deal)
        every_action = torch.arange(actions, device=generator.device)
        visited: list[_Visited] = []
        touched = traversals
        while len(node):
            infosets = self.infosets(node, deal, deals)
            probabilities = policy.probabilities(infosets).float()
            is_traverser = tree.player.index_select(0, node) == traverser
            t, o = is_traverser.nonzero().flatten(), (~is_traverser).nonzero().flatten()
            action = sample_actions(probabilities.index_select(0, o), generator)
            sampled = node.index_select(0, o) * actions + action
            explored = (node.index_select(0, t)[:, None] * actions + every_action).flatten()
            slot_node = children.index_select(0, torch.cat([sampled, explored]))
            slot_deal = torch.cat([deal.index_select(0, o), deal.index_select(0, t).repeat_interleave(actions)])
            kind = self._kind.index_select(0, slot_node + 1)
            finished, going = (kind == _ENDED).nonzero().flatten(), (kind == _GOING).nonzero().flatten()
            end = slot_node.index_select(0, finished)
            luck = sign.index_select(0, slot_deal.index_select(0, finished))
            payoff = fold.index_select(0, end) + self._showdown.index_select(0, end) * luck
            legal = tree.legal.index_select(0, node.index_select(0, t))
            visited.append(_Visited(t, o, len(slot_node), finished, payoff, going, legal, infosets, probabilities))
            touched += len(finished) + len(going)
            node, deal = slot_node.index_select(0, going), slot_deal.index_select(0, going)
        values, advantages, state_values = self._values_up(visited, passes_maximum)
        visited.reverse()
        return Traversals(
            advantages=InfosetSamples(
                torch.cat([v.infosets.index_select(0, v.traverser) for v in visited]), torch.cat(advantages)
            ),
            opponent_strategies=InfosetSamples(
                torch.cat([v.infosets.index_select(0, v.opponent) for v in visited]),
                torch.cat([v.probabilities.index_select(0, v.opponent) for v in visited]),
            ),
            state_values=torch.cat(state_values),
            values=values,
            nodes_touched=touched,
        )

    def _values_up(self, visited: list[_Visited], passes_maximum: bool) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Root values `[traversals]` and, last level first, the traverser's advantages `[rows, actions]` and values."""
        actions = self.game.num_actions
        values = torch.zeros(0, device=self.game.device)
        advantages: list[Tensor] = []
        state_values: list[Tensor] = []
        for level in reversed(visited):
            slots = torch.zeros(level.slots, device=self.game.device)
            slots.index_copy_(0, level.finished, level.payoff)
            slots.index_copy_(0, level.going, values)
            opponent_slots = len(level.opponent)
            per_action = slots[opponent_slots:].view(-1, actions)
            sigma = level.probabilities.index_select(0, level.traverser)
            value = (sigma * per_action).sum(1)
            advantages.append((per_action - value[:, None]) * level.legal)
            state_values.append(value)
            if passes_maximum:
                value = per_action.masked_fill(~level.legal, -torch.inf).amax(1)
            values = torch.empty(len(level.infosets), device=self.game.device)
            values.index_copy_(0, level.opponent, slots[:opponent_slots])
            values.index_copy_(0, level.traverser, value)
        return values, advantages, state_values

    @torch.no_grad()
    def outcome_sampling(
        self, policy: Policy, traverser: int, traversals: int, exploration: float, generator: torch.Generator
    ) -> Trajectories:
        """Sample `traversals` single trajectories, all at once [Lanctot et al. 2009, Sec. 4.1].

        Args:
            policy, traverser, generator: as for `external_sampling`.
            exploration: the traverser acts uniformly with this probability, by `policy` otherwise. Actions that are
                not sampled count as if they won nothing.
        """
        tree, actions = self.game.tree, self.game.num_actions
        deals = self.deal(traversals, generator)
        deal = torch.arange(traversals, device=generator.device)
        node = torch.zeros_like(deal)
        won = torch.empty(traversals, device=generator.device)
        weights = [torch.ones(traversals, 1, device=generator.device) for _ in range(2)]
        visited: list[_Decisions] = []
        touched = 0
        while len(node):
            touched += len(node)
            player = tree.player.index_select(0, node)
            self._settle(won, node, deal, player, deals)
            next_nodes, next_deals = [node[:0]], [deal[:0]]
            for seat in range(2):
                rows = (player == seat).nonzero().flatten()
                at, hand = node.index_select(0, rows), deal.index_select(0, rows)
                infosets = self.infosets(at, hand, deals)
                sigma = policy.probabilities(infosets).float()
                legal = tree.legal.index_select(0, at)
                mixture = _explore(legal.float(), sigma, exploration) if seat == traverser else sigma
                action = sample_actions(mixture, generator)[:, None]
                chosen, q = sigma.gather(1, action), mixture.gather(1, action)
                regret_weight, strategy_weight = (w.index_select(0, hand) for w in weights)
                if seat == traverser:
                    visited.append(_Decisions(hand, infosets, legal, sigma, action, q, regret_weight, strategy_weight))
                    weights[0].index_copy_(0, hand, regret_weight / q)
                    weights[1].index_copy_(0, hand, strategy_weight * chosen / q)
                else:
                    weights[1].index_copy_(0, hand, strategy_weight / q)
                next_nodes.append(tree.child.flatten().index_select(0, at * actions + action[:, 0]))
                next_deals.append(hand)
            node, deal = torch.cat(next_nodes), torch.cat(next_deals)
        return self._outcomes(visited, won if traverser == 0 else -won, touched)

    def _outcomes(self, visited: list[_Decisions], won: Tensor, touched: int) -> Trajectories:
        """From the traverser's decisions, in order, and `[traversals]` what she won."""
        values = won.clone()
        advantages: list[Tensor] = []
        for level in reversed(visited):
            child = values.index_select(0, level.deal)[:, None] / level.q
            value = child * level.sigma.gather(1, level.action)
            regrets = torch.zeros_like(level.sigma).scatter_(1, level.action, child) - value
            advantages.append(regrets * level.legal * level.regret_weight)
            values.index_copy_(0, level.deal, value[:, 0])
        visited.reverse()
        infosets = torch.cat([level.infosets for level in visited])
        regret_samples = InfosetSamples(infosets, torch.cat(advantages))
        strategies = torch.cat([level.sigma * level.strategy_weight for level in visited])
        return Trajectories(regret_samples, InfosetSamples(infosets, strategies), values, touched)

    @torch.no_grad()
    def play(self, policies: Sequence[Policy | Ensemble], hands: int | Deals, generator: torch.Generator) -> Tensor:
        """Play complete hands.

        Args:
            policies: one per seat. An ensemble first draws one strategy per hand and keeps to it until the hand ends.
            hands: how many to deal and play, or cards dealt before: playing them again with the policies in each
                other's seats takes most of the luck out of a comparison.
            generator: source of all randomness, on the game's device.

        Returns:
            `[hands]` chips won by player 0.
        """
        tree, actions = self.game.tree, self.game.num_actions
        deals = self.deal(hands, generator) if isinstance(hands, int) else hands
        seated = [_for_every_hand(policy, len(deals), generator) for policy in policies]
        deal = torch.arange(len(deals), device=generator.device)
        node = torch.zeros_like(deal)
        won = torch.empty(len(deals), device=generator.device)
        while len(node):
            player = tree.player.index_select(0, node)
            self._settle(won, node, deal, player, deals)
            next_nodes, next_deals = [node[:0]], [deal[:0]]
            for seat, strategies in enumerate(seated):
                rows = (player == seat).nonzero().flatten()
                if not len(rows):
                    continue
                at, hand = node.index_select(0, rows), deal.index_select(0, rows)
                action = sample_actions(strategies(self.infosets(at, hand, deals), hand).float(), generator)
                next_nodes.append(tree.child.flatten().index_select(0, at * actions + action))
                next_deals.append(hand)
            node, deal = torch.cat(next_nodes), torch.cat(next_deals)
        return won

    @torch.no_grad()
    def play_outs(
        self, policy: Policy, node: Tensor, deal: Tensor, deals: Deals, count: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Play hands to their end from histories in the middle of them.

        Hands in the same history are moved on together: how many of them take which action is drawn at once, so that
        the work grows with the number of histories and hardly with that of hands.

        Args:
            policy: of both players.
            node, deal: `[n]` betting nodes, and numbers of `deals`.
            count: `[n]` hands from each, whole numbers of a floating type.
            generator: source of all randomness, on the game's device.

        Returns:
            `[n]` float64 chips of player 0, summed over the hands.
        """
        tree, actions = self.game.tree, self.game.num_actions
        won = torch.zeros(len(node), dtype=torch.float64, device=self.game.device)
        start = torch.arange(len(node), device=self.game.device)
        while len(node):
            self.played_out += count.sum(dtype=torch.float64)
            ended = (tree.player.index_select(0, node) < 0).nonzero().flatten()
            at, luck = node[ended], deals.sign.index_select(0, deal[ended])
            won.index_add_(0, start[ended], count[ended].double() * (self._fold[at] + self._showdown[at] * luck))
            rows = (tree.player.index_select(0, node) >= 0).nonzero().flatten()
            at, hand = node[rows], deal[rows]
            probabilities = policy.probabilities(self.infosets(at, hand, deals)).to(count.dtype)
            action_counts = split_counts(count[rows], probabilities, generator)
            row, action = action_counts.nonzero().t()
            node = tree.child.flatten().index_select(0, at[row] * actions + action)
            deal, start, count = hand[row], start[rows][row], action_counts[row, action]
        return won

    def _settle(self, won: Tensor, node: Tensor, deal: Tensor, player: Tensor, deals: Deals) -> None:
        """Enter into `won` what player 0 gets where hands have ended (`player` is -1)."""
        rows = (player < 0).nonzero().flatten()
        end, ended = node.index_select(0, rows), deal.index_select(0, rows)
        fold, showdown = self._fold.index_select(0, end), self._showdown.index_select(0, end)
        won[ended] = fold + showdown * deals.sign.index_select(0, ended)


def _explore(legal: Tensor, sigma: Tensor, exploration: float) -> Tensor:
    return sigma * (1 - exploration) + legal * (exploration / legal.sum(1, keepdim=True))


def _for_every_hand(policy: Policy | Ensemble, hands: int, generator: torch.Generator) -> HandStrategies:
    if isinstance(policy, Ensemble):
        return policy.per_hand(hands, generator)
    return lambda infosets, hand: policy.probabilities(infosets)


def split_counts(counts: Tensor, weights: Tensor, generator: torch.Generator) -> Tensor:
    """`[n]` counts and `[n, k]` weights -> `[n, k]` multinomial draws; of rows whose weights are all 0, none."""
    # Nothing is left after the last positive weight: there its share of the rest is exactly 1.
    rest = weights.flip(1).cumsum(1).flip(1)
    drawn, remaining = torch.zeros_like(weights), counts.to(weights.dtype)
    for i in range(weights.shape[1]):
        share = torch.where(rest[:, i] > 0, weights[:, i] / rest[:, i], 0.0).clamp(max=1.0)
        drawn[:, i] = torch.binomial(remaining, share, generator=generator)
        remaining = remaining - drawn[:, i]
    return drawn


def sample_actions(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """`[n, actions]` probabilities -> `[n]` sampled actions; an action of probability zero is never drawn."""
    cumulative = probabilities.cumsum(1)
    draw = torch.rand(len(probabilities), 1, generator=generator, device=probabilities.device)
    # Scaling by the row's own sum keeps rounding from reaching past the last possible action.
    return (cumulative <= draw * cumulative[:, -1:]).sum(1)
