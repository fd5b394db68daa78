"""State values of Hold'em infosets by play-outs, against enumeration of all hands and boards on a small deck."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from torch import Tensor

from repro.engine.beliefs import Beliefs
from repro.engine.sampling import SamplingEngine
from repro.games import Game, load
from repro.games.betting import SHOWDOWN
from repro.games.cards import Deals
from repro.games.holdem import HoldemCards
from repro.policies.base import Policy

DECK = 10


def small_game() -> Game:
    return load("hnlh", ranks=5, suits=2, stack=500.0)


class Scrambled:
    """Probabilities that differ from infoset to infoset; where `pure`, a single action each."""

    def __init__(self, game: Game, pure: bool) -> None:
        self._game, self._pure = game, pure

    def probabilities(self, infosets: Tensor) -> Tensor:
        legal = self._game.legal_at(infosets)
        noise = torch.stack([((infosets * (7919 + 2 * a)) % 97 + 1).float() for a in range(legal.shape[1])], 1) * legal
        if self._pure:
            return torch.nn.functional.one_hot(noise.argmax(1), legal.shape[1]).float()
        return noise / noise.sum(1, keepdim=True)


def value_of(game: Game, policy: Policy, node: int, deals: Deals) -> float:
    """Expected chips of player 0 from a history on, by recursion."""
    tree = game.tree
    if tree.player[node] < 0:
        winner = int(tree.winner[node])
        won = float(deals.sign[0]) if winner == SHOWDOWN else 1.0 - 2.0 * winner
        return won * float(tree.stake[node])
    infoset = SamplingEngine(game).infosets(torch.tensor([node]), torch.tensor([0]), deals)
    chances = policy.probabilities(infoset)[0].tolist()
    children = tree.child[node].tolist()
    return sum(p * value_of(game, policy, c, deals) for p, c in zip(chances, children, strict=True) if p)


def arrival(game: Game, policy: Policy, node: int, player: int, deals: Deals) -> float:
    """Probability that a player's own actions lead to a node, walking down from the root."""
    tree, at, found = game.tree, 0, 1.0
    for action in [a for betting in tree.histories[node] for a in betting]:
        if tree.player[at] == player:
            infoset = SamplingEngine(game).infosets(torch.tensor([at]), torch.tensor([0]), deals)
            found *= float(policy.probabilities(infoset)[0, action])
        at = int(tree.child[at, action])
    assert at == node
    return found


def enumerated(game: Game, policy: Policy, infoset: int) -> float:
    """The state value, over every hand of the opponent and every rest of the board."""
    assert isinstance(game.cards, HoldemCards)
    (node,), cell = (x.tolist() for x in game.locate(torch.tensor([infoset])))
    round_, player = int(game.tree.round[node]), int(game.tree.player[node])
    seen = game.cards.cards_of_cells(round_, torch.tensor(cell))[0].tolist()
    board, mine = seen[:-2], seen[-2:]
    total = weight = 0.0
    rest = [card for card in range(DECK) if card not in seen]
    for drawn in permutations(rest, 2 + 5 - len(board)):
        hands = [mine, list(drawn[:2])][:: 1 - 2 * player]
        deals = game.cards.dealt(torch.tensor([[*hands[0], *hands[1], *board, *drawn[2:]]]))
        counts = arrival(game, policy, node, 1 - player, deals)
        total += counts * value_of(game, policy, node, deals) * (1 - 2 * player) if counts else 0.0
        weight += counts
    return total / weight


def some_infosets(game: Game, policy: Policy, round_: int) -> Tensor:
    """Infosets of both players that play under the policy gets to."""
    met = []
    for traverser in range(2):
        draw = torch.Generator().manual_seed(round_)
        found = SamplingEngine(game).external_sampling(policy, traverser, 200, draw).advantages.infosets
        found = found[game.tree.round[game.locate(found)[0]] == round_].unique()
        met.append(found[torch.randperm(len(found), generator=draw)[:2]])
    return torch.cat(met)


@pytest.mark.slow
@pytest.mark.parametrize("pure", [False, True])
def test_play_outs_tend_to_the_enumerated_value(pure):
    game = small_game()
    policy, beliefs = Scrambled(game, pure), Beliefs(SamplingEngine(game))
    infosets = torch.cat([some_infosets(game, policy, 1)[:1], *(some_infosets(game, policy, r) for r in (2, 3))])
    expected = torch.tensor([enumerated(game, policy, i) for i in infosets.tolist()])
    assert expected.unique().numel() > 2
    draw = torch.Generator().manual_seed(5)
    batches = torch.stack([beliefs.played_out(policy, infosets, 1500, draw) for _ in range(12)])
    error = batches.std(0) / 12**0.5
    assert ((batches.mean(0) - expected).abs() <= 4 * error + 1e-6).all(), (batches.mean(0), expected, error)


def test_a_single_play_out_is_the_return_of_a_hand():
    game = small_game()
    policy, beliefs = Scrambled(game, False), Beliefs(SamplingEngine(game))
    infosets = some_infosets(game, policy, 1)
    found = beliefs.played_out(policy, infosets, 1, torch.Generator().manual_seed(1))
    stakes = {*game.tree.stake.tolist(), *(-game.tree.stake).tolist()}
    assert set(found.tolist()) <= stakes
    assert len(beliefs.played_out(policy, infosets[:0], 3, torch.Generator())) == 0


def test_where_the_opponent_never_gets_to_there_is_a_value_as_well():
    """The opponent folds whenever she can: facing her raise is impossible, and still has a value."""

    class Folding(Scrambled):
        def probabilities(self, infosets: Tensor) -> Tensor:
            legal = self._game.legal_at(infosets)
            chosen = torch.where(legal[:, 0], 0, 1)
            return torch.nn.functional.one_hot(chosen, legal.shape[1]).float()

    game = small_game()
    policy = Folding(game, False)
    raised = [
        i for i in some_infosets(game, Scrambled(game, False), 3).tolist()
        if bool(game.legal_at(torch.tensor([i]))[0, 0])
    ]  # fmt: skip
    assert raised
    # Whoever faces the raise folds: all hands give up the same chips.
    node = game.locate(torch.tensor(raised))[0]
    expected = -game.tree.stake[game.tree.child[node, 0]]
    found = Beliefs(SamplingEngine(game)).played_out(policy, torch.tensor(raised), 50, torch.Generator())
    torch.testing.assert_close(found, expected.double())
