"""What an agent plays at infosets of one betting node, in a game of any size: only the way there is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from repro.common.errors import ReproError
from repro.games.card_names import read_cards
from repro.games.game import Game
from repro.games.holdem import HoldemCards
from repro.games.isomorphism import cards_of
from repro.games.lines import path_to
from repro.games.one_card import OneCard
from repro.policies.base import Ensemble, Mixture
from repro.policies.ensemble import Average
from repro.policies.readout import Seat


@dataclass(frozen=True)
class Hands:
    """Hands that a player may hold at a node of the betting tree, with the public cards that are dealt until then.

    Attributes:
        names: of each hand, as people write it.
        cells: per round up to the node's, `[hands]` what the player sees.
        count: `[hands]` hands that each stands for, where suits are not told apart.
        cards: `[hands, 2]` of Hold'em; None for games with one card.
        board: `[cards]` of Hold'em, all that are public; of other games the cell of the board is in `cells`.
    """

    names: Sequence[str]
    cells: Sequence[Tensor]
    count: Tensor
    cards: Tensor | None = None
    board: Tensor | None = None

    def __len__(self) -> int:
        return len(self.names)

    def only(self, wanted: Tensor) -> Hands:
        """Some of them, by their numbers."""
        return Hands(
            [self.names[i] for i in wanted.tolist()], [cell[wanted] for cell in self.cells], self.count[wanted],
            None if self.cards is None else self.cards[wanted], self.board,
        )  # fmt: skip


def hands_at(game: Game, node: int, board: str) -> Hands:
    """All hands that can be held at a node with a board, `Ah Kd 2c`, of as many cards as the node's round has.

    Raises:
        ReproError: the board is none for this node, or the game's cards are not known here.
    """
    cards, round_ = game.cards, int(game.tree.round[node])
    if isinstance(cards, OneCard):
        return _one_card_hands(cards, round_, board)
    if isinstance(cards, HoldemCards):
        return _holdem_hands(cards, round_, board)
    raise ReproError(f"game is {game.name}; hands can be listed of games with one card each and of Hold'em.")


def _one_card_hands(cards: OneCard, round_: int, board: str) -> Hands:
    if not cards.board_cards[round_]:
        read_cards("--board", board, cards.names, 0)
        return Hands(cards.class_names, [torch.arange(cards.cells[0])] * (round_ + 1), cards.hand_class.bincount())
    # A rank stands for any card of it, where suits are not told apart.
    ranks = {name: card for card, name in reversed(list(enumerate(_class_of_cards(cards))))}
    (public,) = [ranks[board.upper()]] if board.upper() in ranks else read_cards("--board", board, cards.names, 1)
    cell = cards.cell[round_][public]
    listed, first, count = _first_of_each(cell[cell >= 0])
    hands = cards.hand_class[(cell >= 0).nonzero().flatten()[first]]
    cells = [listed if dealt else hands for dealt in cards.board_cards[: round_ + 1]]
    return Hands([cards.class_names[int(hand)] for hand in hands], cells, count)


def _class_of_cards(cards: OneCard) -> list[str]:
    return [cards.class_names[int(number)] for number in cards.hand_class]


def _first_of_each(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Different values, where each is first, and how often it is there."""
    listed, which, count = values.unique(return_inverse=True, return_counts=True)
    first = torch.stack([(which == i).nonzero()[0, 0] for i in range(len(listed))])
    return listed, first, count


def _holdem_hands(cards: HoldemCards, round_: int, board: str) -> Hands:
    public = torch.tensor(read_cards("--board", board, cards.names, cards.board_cards[round_]), dtype=torch.int64)
    deck = cards.ranks * cards.suits
    every = cards_of(torch.arange(deck * (deck - 1) // 2), 2)
    held = every[~torch.isin(every, public).any(1)]
    cells: list[Tensor] = []
    for dealt in cards.board_cards[: round_ + 1]:
        cells.append(cards.cell(len(cells), torch.cat([public[:dealt].expand(len(held), -1), held], 1)))
    names = [cards.names[high] + cards.names[low] for low, high in held.tolist()]
    return Hands(names, cells, torch.ones(len(held), dtype=torch.int64), held, public)


def read_hand(hands: Hands, text: str, game: Game) -> Hands:
    """The one hand that is named, `K`, `Kd` or `AhKd`, among those that can be held.

    Raises:
        ReproError: it is not among them.
    """
    if isinstance(game.cards, OneCard):
        by_card = dict(zip(map(str.lower, game.cards.names), _class_of_cards(game.cards), strict=True))
        wanted = {name: i for i, name in enumerate(hands.names)}
        name = text if text in wanted else by_card.get(text.lower(), text.upper())
        if name in wanted:
            return hands.only(torch.tensor([wanted[name]]))
        raise ReproError(f"--hand is {text!r}; here it must be one of {', '.join(hands.names)}.")
    assert isinstance(game.cards, HoldemCards)
    assert hands.cards is not None
    chosen = torch.tensor(sorted(read_cards("--hand", text, game.cards.names, 2)))
    found = (hands.cards == chosen).all(1).nonzero().flatten()
    if not len(found):
        raise ReproError(f"--hand is {text!r}; a card of it is on the board.")
    return hands.only(found)


@dataclass(frozen=True)
class Played:
    """What an agent plays with each of some hands at a node.

    Attributes:
        probabilities: `[hands, actions]`.
        arrival: `[hands]` probability that the agent's own actions lead there.
    """

    probabilities: Tensor
    arrival: Tensor


def infosets_of(game: Game, node: int, hands: Hands) -> Tensor:
    """`[hands]` infosets of the player to act."""
    return game.first_infoset[node] + hands.cells[int(game.tree.round[node])].to(game.device)


@torch.no_grad()
def played_at(game: Game, seats: Sequence[Seat], node: int, hands: Hands) -> Played:
    """What the player to act plays; of an ensemble its average strategy [SD-CFR, eq. 5], by the members' own reach.

    Raises:
        ReproError: it is an ensemble whose average cannot be taken.
    """
    player = int(game.tree.player[node])
    seat, here = seats[player], infosets_of(game, node, hands)
    before = [(infosets_of(game, n, hands), a) for n, a in path_to(game, node) if int(game.tree.player[n]) == player]
    legal = game.legal_at(here)
    uniform = legal.double() / legal.sum(1, keepdim=True)
    if not isinstance(seat, Ensemble):
        arrival = torch.ones_like(uniform[:, 0])
        for infosets, action in before:
            arrival = arrival * seat.probabilities(infosets)[:, action].double()
        return Played(_proper(seat.probabilities(here).double() * legal), arrival)
    if not isinstance(seat, Mixture):
        raise ReproError("this read-out draws its strategies in a way whose average cannot be taken.")
    average, arrival = Average(uniform), torch.zeros_like(uniform[:, 0])
    for position, weight in enumerate((seat.weight / seat.weight.sum()).tolist()):
        reach = torch.ones_like(arrival)
        for infosets, action in before:
            reach = reach * seat.strategy(position, infosets)[:, action].double()
        average.add(weight, reach, seat.strategy(position, here).double())
        arrival += weight * reach
    return Played(_proper(average.strategy()), arrival)


def _proper(probabilities: Tensor) -> Tensor:
    return probabilities / probabilities.sum(1, keepdim=True)
