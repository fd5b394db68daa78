"""A game: its betting tree, its cards, and the numbering of its infosets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from repro.games.betting import ACTIONS, BettingRules, BettingTree, compile_tree
from repro.games.cards import Cards


class Game:
    """Betting tree times cards, with every infoset listed.

    An infoset is a plain integer in `[0, infosets)`: player 0's come first, then player 1's, each ordered by betting
    node, board class and hand class. Memories, tables and policies all speak in these integers.

    Attributes:
        name: as given to `load`.
        parameters: the parameters it was loaded with, defaults included.
        chips_per_unit: chips in the unit that results are quoted in (the ante).
        infoset_player, infoset_node, infoset_hand, infoset_board: `[infosets]` player, betting node, hand class and
            board class.
        legal: `[infosets, actions]` bool.
        player_slice: per player, the slice of its infosets.
    """

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, object],
        rules: BettingRules,
        cards: Cards,
        chips_per_unit: float,
        device: torch.device | str = "cpu",
    ) -> None:
        self.name = name
        self.parameters = dict(parameters)
        self.rules = rules
        self.chips_per_unit = chips_per_unit
        self.tree: BettingTree = compile_tree(rules).to(device)
        self.cards = cards.to(device)
        self.device = torch.device(device)
        self._number_infosets()

    actions = ACTIONS
    num_actions = len(ACTIONS)

    def _number_infosets(self) -> None:
        tree, cards = self.tree, self.cards
        offsets, keys, owners = torch.zeros(tree.nodes, dtype=torch.int64), [], []
        hand_classes = int(cards.hand_class.max()) + 1
        board_classes = max(int(c.max()) for c in cards.board_class) + 1
        size = 0
        for r, levels in enumerate(tree.levels):
            cell = cards.board_class[r][:, None] * hand_classes + cards.hand_class
            cell = torch.where(cards.blocked[r], -1, cell)
            for level in levels:
                for node in range(level.start, level.stop):
                    offsets[node] = size
                    size += cell.numel()
                    key = node * board_classes * hand_classes + cell
                    keys.append(torch.where(cell < 0, -1, key).flatten())
                    owners.append(torch.full((cell.numel(),), level.player, device=self.device))
        key, owner = torch.cat(keys), torch.cat(owners)
        # Sorting by (player, key) numbers player 0's infosets first; blocked cells get -1.
        span = int(key.max()) + 1
        listed, rank = torch.where(key < 0, -1, owner * span + key).unique(return_inverse=True)
        has_blocked = int(listed[0] < 0)
        self._cell_offset = offsets.to(self.device)
        self._cell_infoset = rank - has_blocked
        listed = listed[has_blocked:]
        self.infoset_player = listed // span
        inner = listed % span
        self.infoset_node = inner // (board_classes * hand_classes)
        self.infoset_board = inner // hand_classes % board_classes
        self.infoset_hand = inner % hand_classes
        self.legal = self.tree.legal[self.infoset_node]
        first = int((self.infoset_player == 0).sum())
        self.player_slice = (slice(0, first), slice(first, len(listed)))

    @property
    def infosets(self) -> int:
        """Number of infosets of both players together."""
        return len(self.infoset_node)

    def infoset(self, node: Tensor, board: Tensor, hand: Tensor) -> Tensor:
        """Infosets of decision nodes `node`, with `board` indexed in the node's round, and hand index `hand`.

        The three broadcast. Cells where hand and board share a card give -1.
        """
        return self._cell_infoset.take(self._cell_offset.take(node) + board * self.cards.hands + hand)

    def infoset_grid(self, round_: int) -> Tensor:
        """`[decision nodes of the round, boards, hands]` infosets of a round (-1 where cards collide)."""
        nodes = torch.cat([torch.arange(lv.start, lv.stop, device=self.device) for lv in self.tree.levels[round_]])
        boards = torch.arange(self.cards.boards(round_), device=self.device)
        hands = torch.arange(self.cards.hands, device=self.device)
        return self.infoset(nodes[:, None, None], boards[:, None], hands)

    @cached_property
    def uniform(self) -> Tensor:
        """`[infosets, actions]` float64, every legal action with equal probability."""
        return self.legal / self.legal.sum(1, keepdim=True, dtype=torch.float64)

    def to(self, device: torch.device | str) -> Game:
        """The same game with its tensors on `device`."""
        if torch.device(device) == self.device:
            return self
        return Game(self.name, self.parameters, self.rules, self.cards, self.chips_per_unit, device)

    def describe(self, infoset: int) -> str:
        """A readable name, e.g. `player 0, hand 2, board 1, betting call raise / `."""
        history = " / ".join(
            " ".join(ACTIONS[a] for a in r) for r in self.tree.histories[int(self.infoset_node[infoset])]
        )
        round_ = int(self.tree.round[self.infoset_node[infoset]])
        board = f", board {int(self.infoset_board[infoset])}" if self.cards.board_cards[round_] else ""
        player, hand = int(self.infoset_player[infoset]), int(self.infoset_hand[infoset])
        return f"player {player}, hand {hand}{board}, betting {history}"
