"""How far two average strategies are apart along the hands that one of them plays [SD-CFR, Sec. 6.2.1, Table 1]."""

from __future__ import annotations

import torch
from torch import Tensor

from repro.engine.sampling import SamplingEngine, sample_actions
from repro.games.game import Game
from repro.policies.base import Mixture, Policy
from repro.policies.network import Uniform

_AT_ONCE = 1 << 14
"""Hands played together: each holds a reach per network."""


@torch.no_grad()
def disagreement(
    game: Game, player: int, ensemble: Mixture, other: Policy, rollouts: int, generator: torch.Generator
) -> dict[int, Tensor]:
    """Play `rollouts` hands as the average of `ensemble` against a uniform opponent, and compare with `other`.

    Args:
        player: whose strategies these are.
        ensemble: B^M; at each infoset its average is taken exactly, weighted by iteration and own reach (eq. 5).
        other: the strategy to compare with, Deep CFR's S-hat.

    Returns:
        By depth, the number of actions of both players before the decision: `[decisions]` sums over actions of the
        absolute differences of probabilities. Hands of the ensemble meet an infoset as often as its own reach says,
        so that the mean over decisions is the reach-weighted one that the paper defines.
    """
    differences: dict[int, list[Tensor]] = {}
    for start in range(0, rollouts, _AT_ONCE):
        _play(game, player, ensemble, other, min(_AT_ONCE, rollouts - start), generator, differences)
    return {depth: torch.cat(parts) for depth, parts in sorted(differences.items())}


def _play(
    game: Game, player: int, ensemble: Mixture, other: Policy, hands: int, generator: torch.Generator,
    differences: dict[int, list[Tensor]],
) -> None:  # fmt: skip
    tree, engine, uniform = game.tree, SamplingEngine(game), Uniform(game)
    deals = engine.deal(hands, generator)
    # How much each member counts, for its owner's actions so far: weight times reach.
    share = ensemble.weight.double().repeat(hands, 1)
    deal = torch.arange(hands, device=generator.device)
    node, depth = torch.zeros_like(deal), 0
    while len(node):
        infosets = engine.infosets(node, deal, deals)
        own_turn = tree.player.index_select(0, node) == player
        action = torch.empty_like(node)
        opponent_rows, own_rows = (~own_turn).nonzero().flatten(), own_turn.nonzero().flatten()
        opponent_infosets = infosets.index_select(0, opponent_rows)
        action[opponent_rows] = sample_actions(uniform.probabilities(opponent_infosets), generator)
        if len(own_rows):
            own_infosets, hand = infosets.index_select(0, own_rows), deal.index_select(0, own_rows)
            members = torch.stack([ensemble.strategy(m, own_infosets).double() for m in range(len(ensemble.weight))], 1)
            weight = share.index_select(0, hand)
            average = (weight[:, :, None] * members).sum(1) / weight.sum(1, keepdim=True)
            differences.setdefault(depth, []).append((average - other.probabilities(own_infosets)).abs().sum(1))
            drawn = sample_actions(average, generator)
            action[own_rows] = drawn
            chosen = members.gather(2, drawn[:, None, None].expand(-1, members.shape[1], 1))[:, :, 0]
            share.index_copy_(0, hand, weight * chosen)
        node = tree.child.flatten().index_select(0, node * game.num_actions + action)
        going = (tree.player.index_select(0, node) >= 0).nonzero().flatten()
        node, deal = node.index_select(0, going), deal.index_select(0, going)
        depth += 1
