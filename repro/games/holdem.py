"""The cards of Hold'em: two private cards each, a board dealt street by street, the best five cards of all win.

A cell is the suit-isomorphism class of (board, hand), so that a strategy cannot tell apart what the rules do not. Cells
of rounds with few of them (169 hands before the flop, 1,286,792 with one of three cards) are numbered without gaps in
the order of their codes, board first; in other rounds the code itself is the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from repro.games import hand_strength
from repro.games.card_names import card_names
from repro.games.cards import Cards, Deals, NamedDeal
from repro.games.isomorphism import Coding, canonical_boards, cards_of

_MOST_LISTED = 1 << 25
"""Pairs of board and hand of the largest round whose cells are listed; isomorphism leaves some twentieth of them."""


@dataclass(frozen=True)
class HoldemCards(Cards):
    """Decks of fewer than 13 ranks keep the highest ones.

    Attributes:
        streets: public cards dealt before each round, e.g. `(0, 3, 1, 1)`.
        codes: per round, the codes of its cells, ascending; None where the code itself is the cell.
    """

    streets: tuple[int, ...]
    codes: tuple[Tensor | None, ...]

    @property
    def cells(self) -> tuple[int, ...]:
        pairs = zip(self.codes, self.codings, strict=True)
        return tuple(coding.codes if codes is None else len(codes) for codes, coding in pairs)

    @property
    def one_board(self) -> bool:
        """Whether all public cards are dealt at once, after the first betting round."""
        return len(self.streets) == 2

    @property
    def exact(self) -> Literal["boards"] | None:
        return "boards" if self.one_board else None

    @property
    def unit(self) -> Literal["mbb/g"]:
        return "mbb/g"

    @property
    def exploitability_is_mean(self) -> bool:
        return False

    @property
    def features(self) -> Literal["cards"]:
        return "cards"

    @property
    def codings(self) -> tuple[Coding, ...]:
        """Per round."""
        return _codings(self.ranks, self.suits, self.streets)

    def cell(self, round_: int, cards: Tensor) -> Tensor:
        """`[n, cards]` board street by street, then the hand -> `[n]` cells of a round."""
        code, codes = self.codings[round_].encode(cards), self.codes[round_]
        return code if codes is None else torch.searchsorted(codes, code)

    def cards_of_cells(self, round_: int, cells: Tensor) -> Tensor:
        """`[n]` cells of a round -> `[n, cards]` canonical board street by street, then the hand."""
        codes = self.codes[round_]
        return self.codings[round_].decode(cells if codes is None else codes.take(cells))

    def strength(self, cards: Tensor) -> Tensor:
        """`[..., cards]` five to seven cards -> `[...]` strengths: a higher one wins, equal ones split."""
        rank = cards // self.suits + hand_strength.RANKS - self.ranks
        return hand_strength.hand_strength(rank, cards % self.suits)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Deal `n` times: `[n, 4 + board]` cards, player 0's hand, player 1's, and the board in the order dealt."""
        key = torch.rand(n, self.ranks * self.suits, generator=generator, device=generator.device, dtype=torch.float64)
        return key.topk(4 + self.board_cards[-1]).indices

    def deal(self, n: int, generator: torch.Generator) -> Deals:
        return self.dealt(self.draw(n, generator))

    def dealt(self, cards: Tensor) -> Deals:
        """The deals of given cards, as `draw` returns them."""
        board = cards[:, 4:]
        seen = [torch.cat([board, cards[:, 2 * p : 2 * p + 2]], 1) for p in range(2)]
        cells = []
        for r, public in enumerate(self.board_cards):
            # Both players' in one call: these are many small operations.
            both = torch.cat([torch.cat([board[:, :public], s[:, -2:]], 1) for s in seen])
            cells.append(self.cell(r, both).view(2, -1).t())
        first, second = self.strength(torch.stack(seen)).long()
        return Deals(torch.stack(cells, 2), (first - second).sign().float())

    def describe(self, round_: int, cell: int) -> str:
        cards = self.cards_of_cells(round_, torch.tensor([cell], device=self._device))[0].tolist()
        words = [self.names[card] for card in cards]
        board, hand = "".join(words[:-2]), "".join(words[-2:])
        return f"hand {hand}" + (f", board {board}" if board else "")

    @property
    def _device(self) -> torch.device:
        return next((c.device for c in self.codes if c is not None), torch.device("cpu"))

    @property
    def names(self) -> list[str]:
        """Of the cards."""
        return card_names(self.ranks, self.suits)

    def deal_named(self, generator: torch.Generator) -> NamedDeal:
        cards = self.draw(1, generator)
        words = [self.names[card] for card in cards[0].tolist()]
        hands = [[" ".join(words[2 * p : 2 * p + 2])] * len(self.board_cards) for p in range(2)]
        boards = [" ".join(words[4 : 4 + public]) for public in self.board_cards]
        return NamedDeal(self.dealt(cards), (hands[0], hands[1]), boards)


def holdem_cards(ranks: int, suits: int, streets: tuple[int, ...]) -> HoldemCards:
    """The cards of a Hold'em game; `streets` are the public cards dealt before each round, none before the first."""
    assert streets[0] == 0
    board_cards = tuple(sum(streets[: r + 1]) for r in range(len(streets)))
    codes = tuple(_list_codes(ranks, suits, streets[1 : r + 1]) for r in range(len(streets)))
    return HoldemCards(ranks=ranks, suits=suits, board_cards=board_cards, streets=streets, codes=codes)


@lru_cache
def _codings(ranks: int, suits: int, streets: tuple[int, ...]) -> tuple[Coding, ...]:
    return tuple(Coding(ranks, suits, streets[1 : r + 1]) for r in range(len(streets)))


@lru_cache
def _list_codes(ranks: int, suits: int, streets: tuple[int, ...]) -> Tensor | None:
    """The codes of a round that has at most one street, unless they are too many."""
    coding = Coding(ranks, suits, streets)
    if len(streets) > 1 or coding.codes > _MOST_LISTED:
        return None
    hands = cards_of(torch.arange(coding.sizes[-1]), 2)
    boards = canonical_boards(ranks, suits, streets[0])[0] if streets else hands.new_zeros(1, 0)
    codes = [coding.encode(board_with_hands(part, hands)).unique() for part in boards.split(512)]
    return torch.cat(codes).unique()


def board_with_hands(boards: Tensor, hands: Tensor) -> Tensor:
    """`[pairs, cards]` every board `[boards, k]` with every hand `[hands, 2]` that shares no card with it."""
    pairs = torch.cat([boards[:, None].expand(-1, len(hands), -1), hands.expand(len(boards), -1, -1)], 2).flatten(0, 1)
    k = boards.shape[1]
    return pairs[(pairs[:, :k, None] != pairs[:, None, k:]).flatten(1).all(1)]
