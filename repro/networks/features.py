"""Features of infosets: cards one-hot by class, betting history as bits, chips as numbers.

SD-CFR, Sec. 6: "additional features such as the size of the pot and represent cards as concatenated one-hot vectors
without any higher level features". Our vector is smaller than that of the authors' code (26 numbers in Leduc, theirs
64), because it leaves out constants of the game such as the ante.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from repro.games.betting import CALL, RAISE
from repro.games.game import Game


def infoset_features(game: Game) -> Tensor:
    """`[infosets, features]` float32.

    Columns: round one-hot; per round and position in its betting sequence two bits (called, raised); chips that the
    acting player and the opponent have put in, as fractions of the most that one player can put in; hand class
    one-hot; board class one-hot (all zeros before a board is dealt).
    """
    tree = game.tree
    node = game.infoset_node
    hand_classes = int(game.cards.hand_class.max()) + 1
    board_classes = max(int(c.max()) for c in game.cards.board_class) + 1
    has_board = torch.tensor([count > 0 for count in game.cards.board_cards], device=game.device)
    board = one_hot(game.infoset_board, board_classes) * has_board[tree.round[node], None]
    own = game.infoset_player[:, None]
    chips = torch.cat([tree.chips[node].gather(1, own), tree.chips[node].gather(1, 1 - own)], 1) / tree.chips.max()
    columns = [
        one_hot(tree.round[node], tree.rounds),
        _history_bits(game)[node],
        chips,
        one_hot(game.infoset_hand, hand_classes),
    ]
    if has_board.any():
        columns.append(board)
    return torch.cat([c.float() for c in columns], 1)


def _history_bits(game: Game) -> Tensor:
    """`[nodes, rounds * positions * 2]`: at each position of each round's betting, was it called, was it raised."""
    tree = game.tree
    positions = max(len(actions) for history in tree.histories for actions in history)
    bits = torch.zeros(tree.nodes, tree.rounds, positions, 2)
    for node, history in enumerate(tree.histories):
        for r, actions in enumerate(history):
            for i, action in enumerate(actions):
                bits[node, r, i, 0] = action == CALL
                bits[node, r, i, 1] = action == RAISE
    return bits.flatten(1).to(game.device)
