"""Features of infosets: cards one-hot by class, betting history as bits, chips as numbers.

SD-CFR, Sec. 6: "additional features such as the size of the pot and represent cards as concatenated one-hot vectors
without any higher level features". Our vector is smaller than that of the authors' code (26 numbers in Leduc, theirs
64), because it leaves out constants of the game such as the ante.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from repro.games.betting import CALL, RAISE, BettingTree
from repro.games.game import Game


@dataclass(frozen=True)
class FeatureColumns:
    """What the columns of a feature matrix show.

    Attributes:
        state: everything but cards.
        cards: one range per set of cards, side by side: the private hand, and the board if the game has one.
    """

    state: slice
    cards: tuple[slice, ...]

    @property
    def count(self) -> int:
        """How many columns there are."""
        return max(c.stop for c in (self.state, *self.cards))


def feature_columns(game: Game) -> FeatureColumns:
    """The columns of `infoset_features`."""
    tree = game.tree
    state = tree.rounds + tree.rounds * _positions(tree) * 2 + 2
    hand = state + _hand_classes(game)
    private, board = slice(state, hand), slice(hand, hand + _board_classes(game))
    return FeatureColumns(slice(0, state), (private, board) if _has_board(game) else (private,))


def infoset_features(game: Game) -> Tensor:
    """`[infosets, features]` float32.

    Columns: round one-hot; per round and position in its betting sequence two bits (called, raised); chips that the
    acting player and the opponent have put in, as fractions of the most that one player can put in; hand class
    one-hot; board class one-hot (all zeros before a board is dealt).
    """
    tree = game.tree
    node = game.infoset_node
    is_dealt = torch.tensor([count > 0 for count in game.cards.board_cards], device=game.device)
    board = one_hot(game.infoset_board, _board_classes(game)) * is_dealt[tree.round[node], None]
    player = game.infoset_player[:, None]
    chips = tree.chips[node].gather(1, torch.cat([player, 1 - player], 1)) / tree.chips.max()
    columns = [
        one_hot(tree.round[node], tree.rounds),
        _history_bits(game)[node],
        chips,
        one_hot(game.infoset_hand, _hand_classes(game)),
    ]
    if _has_board(game):
        columns.append(board)
    return torch.cat([c.float() for c in columns], 1)


def _history_bits(game: Game) -> Tensor:
    """`[nodes, rounds * positions * 2]`: at each position of each round's betting, was it called, was it raised."""
    tree = game.tree
    bits = torch.zeros(tree.nodes, tree.rounds, _positions(tree), 2)
    for node, history in enumerate(tree.histories):
        for r, actions in enumerate(history):
            for i, action in enumerate(actions):
                bits[node, r, i, 0] = action == CALL
                bits[node, r, i, 1] = action == RAISE
    return bits.flatten(1).to(game.device)


def _positions(tree: BettingTree) -> int:
    return max(len(actions) for history in tree.histories for actions in history)


def _hand_classes(game: Game) -> int:
    return int(game.one_card.hand_class.max()) + 1


def _board_classes(game: Game) -> int:
    return max(int(c.max()) for c in game.one_card.board_class) + 1


def _has_board(game: Game) -> bool:
    return any(count > 0 for count in game.cards.board_cards)
