"""The cards of Kuhn- and Leduc-like games: one private card each and at most one on the board.

A *board* is what is public in a round; round 0 usually has the one empty board. Boards are indexed per round, hands
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from repro.games.card_names import RANKS, card_names, rank_names
from repro.games.cards import Cards, Deals, NamedDeal


@dataclass(frozen=True)
class OneCard(Cards):
    """Every hand and board, listed.

    Attributes:
        blocked: per round `[boards, hands]` bool, True where the hand shares a card with the board.
        board_parent: per round `[boards]` index of the board in the round before (round 0: zeros).
        strength: `[boards of the last round, hands]`, higher wins, equal splits.
        hand_class: `[hands]` what tells hands apart: the card, or only its rank under suit isomorphism.
        board_class: per round `[boards]`, likewise.
        pair_probability: per round, the probability of one (hand, hand, board) triple that shares no card.
        cell: per round `[boards, hands]`, -1 where they share a card.
        cell_hand, cell_board: per round `[cells]` hand class and board class.
    """

    blocked: tuple[Tensor, ...]
    board_parent: tuple[Tensor, ...]
    strength: Tensor
    hand_class: Tensor
    board_class: tuple[Tensor, ...]
    pair_probability: tuple[float, ...]
    cell: tuple[Tensor, ...]
    cell_hand: tuple[Tensor, ...]
    cell_board: tuple[Tensor, ...]

    @property
    def hands(self) -> int:
        """Number of hands, which is that of cards."""
        return self.ranks * self.suits

    @property
    def cells(self) -> tuple[int, ...]:
        return tuple(len(hand) for hand in self.cell_hand)

    @property
    def exact(self) -> Literal["sequence_form"]:
        return "sequence_form"

    @property
    def unit(self) -> Literal["mA/g"]:
        return "mA/g"

    @property
    def exploitability_is_mean(self) -> bool:
        return True

    @property
    def features(self) -> Literal["classes"]:
        return "classes"

    def boards(self, round_: int) -> int:
        """Number of boards of a round."""
        return len(self.board_parent[round_])

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Deal `n` times without replacement.

        Returns:
            hands `[n, 2]` (one hand index per player) and boards `[n, rounds]` (board index per round), int64, on the
            generator's device.
        """
        device = generator.device
        drawn: list[Tensor] = []
        for i in range(2 + self.board_cards[-1]):
            card = torch.randint(self.hands - i, (n,), generator=generator, device=device)
            # The draw ranks the cards that are left; step over each card already dealt, lowest first.
            for earlier in torch.stack(drawn).sort(0).values if drawn else ():
                card = card + (card >= earlier)
            drawn.append(card)
        nothing = torch.zeros_like(drawn[0])
        boards = [drawn[2] if count else nothing for count in self.board_cards]
        return torch.stack(drawn[:2], 1), torch.stack(boards, 1)

    def deal(self, n: int, generator: torch.Generator) -> Deals:
        hands, boards = self.draw(n, generator)
        return self.dealt(hands, boards)

    def dealt(self, hands: Tensor, boards: Tensor) -> Deals:
        """The deals of given cards, as `draw` returns them."""
        cells = [self.cell[r].take(boards[:, r : r + 1] * self.hands + hands) for r in range(len(self.cell))]
        strength = self.strength[boards[:, -1:], hands]
        return Deals(torch.stack(cells, 2), (strength[:, 0] - strength[:, 1]).sign().float())

    def describe(self, round_: int, cell: int) -> str:
        return self._described(round_, cell, self.class_names)

    def numbered(self, round_: int, cell: int) -> str:
        return self._described(round_, cell, [str(number) for number in range(self.hands)])

    def _described(self, round_: int, cell: int, names: Sequence[str]) -> str:
        board = f", board {names[int(self.cell_board[round_][cell])]}" if self.board_cards[round_] else ""
        return f"hand {names[int(self.cell_hand[round_][cell])]}{board}"

    @property
    def names(self) -> list[str]:
        """Of the cards; where there is one suit, their ranks'."""
        return card_names(self.ranks, self.suits, self._highest) if self.suits > 1 else self._rank_names

    @property
    def class_names(self) -> list[str]:
        """Of what tells hands, and boards, apart: cards, or only their ranks."""
        by_rank = int(self.hand_class.max()) + 1 == self.ranks
        return self._rank_names if by_rank else self.names

    @property
    def _rank_names(self) -> list[str]:
        return rank_names(self.ranks, self._highest)

    @property
    def _highest(self) -> str:
        # Decks of fewer than 13 ranks end with the king, as Kuhn's and Leduc's do.
        return "K" if self.ranks < len(RANKS) else "A"

    def deal_named(self, generator: torch.Generator) -> NamedDeal:
        hands, boards = self.draw(1, generator)
        own = [[self.names[int(hand)]] * len(self.board_cards) for hand in hands[0]]
        public = [self.names[int(b)] if count else "" for b, count in zip(boards[0], self.board_cards, strict=True)]
        return NamedDeal(self.dealt(hands, boards), (own[0], own[1]), public)


def one_card_each(ranks: int, suits: int, board_cards: tuple[int, ...], suit_isomorphism: bool) -> OneCard:
    """Cards of Kuhn- and Leduc-like games: pairing the board wins, then the higher rank.

    Args:
        board_cards: public cards per round, cumulative, each 0 or 1; e.g. `(0, 1)` for Leduc.
        suit_isomorphism: tell hands and boards apart by rank only. No rule of these games looks at suits, so values
            are unchanged.
    """
    deck = torch.arange(ranks * suits)
    rank = deck // suits
    identity = rank if suit_isomorphism else deck
    empty_board = torch.zeros(1, dtype=torch.int64)
    blocked, parents, classes = [], [], []
    for before, count in zip((0, *board_cards), board_cards, strict=False):
        blocked.append(deck[:, None] == deck[None, :] if count else torch.zeros(1, len(deck), dtype=torch.bool))
        # The board that there was, or none.
        parents.append(deck if before else torch.zeros(len(deck), dtype=torch.int64) if count else empty_board)
        classes.append(identity if count else empty_board)
    strength = rank[None, :] + ranks * (rank[:, None] == rank[None, :]) if board_cards[-1] else rank[None, :]
    dealt = [len(deck) * (len(deck) - 1) * (len(deck) - 2 if count else 1) for count in board_cards]
    listed = [_list_cells(b, c, identity) for b, c in zip(blocked, classes, strict=True)]
    return OneCard(
        ranks=ranks,
        suits=suits,
        board_cards=board_cards,
        blocked=tuple(blocked),
        board_parent=tuple(parents),
        strength=strength,
        hand_class=identity,
        board_class=tuple(classes),
        pair_probability=tuple(1.0 / d for d in dealt),
        cell=tuple(cell for cell, _, _ in listed),
        cell_hand=tuple(hand for _, hand, _ in listed),
        cell_board=tuple(board for _, _, board in listed),
    )


def _list_cells(blocked: Tensor, board_class: Tensor, hand_class: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cells `[boards, hands]` of a round in the order of board class and hand class, and both classes per cell."""
    classes = int(hand_class.max()) + 1
    key = torch.where(blocked, -1, board_class[:, None] * classes + hand_class)
    listed, cell = key.unique(return_inverse=True)
    collide = int(listed[0] < 0)
    listed = listed[collide:]
    return cell - collide, listed % classes, listed // classes
