"""The cards of a poker game as integer tensors: private hands, boards, blocking, hand strength, deals.

Cards are numbered `rank * suits + suit`. A *board* is what is public in a round; round 0 usually has the one empty
board. Boards are indexed per round, hands once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cards:
    """Everything about the deal that the engines need (here: one private card each, at most one board card).

    Attributes:
        ranks, suits: the deck has `ranks * suits` cards.
        blocked: per round `[boards, hands]` bool, True where the hand shares a card with the board.
        board_parent: per round `[boards]` index of the board in the round before (round 0: zeros).
        strength: `[boards of the last round, hands]`, higher wins, equal splits.
        hand_class: `[hands]` what tells hands apart: the card, or only its rank under suit isomorphism.
        board_class: per round `[boards]`, likewise.
        board_cards: public cards per round (cumulative), 0 or 1.
        pair_probability: per round, the probability of one (hand, hand, board) triple that shares no card.
    """

    ranks: int
    suits: int
    blocked: tuple[Tensor, ...]
    board_parent: tuple[Tensor, ...]
    strength: Tensor
    hand_class: Tensor
    board_class: tuple[Tensor, ...]
    board_cards: tuple[int, ...]
    pair_probability: tuple[float, ...]

    @property
    def hands(self) -> int:
        return self.ranks * self.suits

    def boards(self, round_: int) -> int:
        """Number of boards of a round."""
        return len(self.board_parent[round_])

    def to(self, device: torch.device | str) -> Cards:
        """The same cards with their tensors on `device`."""

        def move(value: object) -> object:
            if isinstance(value, Tensor):
                return value.to(device)
            if isinstance(value, tuple):
                return tuple(move(v) for v in value)
            return value

        return Cards(**{f.name: move(getattr(self, f.name)) for f in fields(self)})  # type: ignore[arg-type]

    def deal(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
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


def one_card_each(ranks: int, suits: int, board_cards: tuple[int, ...], suit_isomorphism: bool) -> Cards:
    """Cards of Kuhn- and Leduc-like games: one private card each; pairing the board wins, then the higher rank.

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
    for count in board_cards:
        blocked.append(deck[:, None] == deck[None, :] if count else torch.zeros(1, len(deck), dtype=torch.bool))
        parents.append(torch.zeros(len(deck), dtype=torch.int64) if count else empty_board)
        classes.append(identity if count else empty_board)
    strength = rank[None, :] + ranks * (rank[:, None] == rank[None, :]) if board_cards[-1] else rank[None, :]
    dealt = [len(deck) * (len(deck) - 1) * (len(deck) - 2 if count else 1) for count in board_cards]
    return Cards(
        ranks=ranks,
        suits=suits,
        blocked=tuple(blocked),
        board_parent=tuple(parents),
        strength=strength,
        hand_class=identity,
        board_class=tuple(classes),
        board_cards=board_cards,
        pair_probability=tuple(1.0 / d for d in dealt),
    )
