"""Subgames of no-limit Hold'em that begin after the last public card, or before it: what is known when they begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
import torch

from repro.common.compiled import Array, compiled
from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean
from repro.games import hand_strength
from repro.games.betting import BettingRound, BettingRules, BettingTree, compile_tree
from repro.games.isomorphism import cards_of, combination
from repro.games.registry import SUBGAMES

STACK = 20_000.0
"""Chips of each player before the first card [DEVN, Sec. 6: as DeepStack's]."""

POTS = ((100.0, 100.0), (200.0, 400.0), (400.0, 2_000.0), (2_000.0, 6_000.0), (6_000.0, 19_950.0))
"""What DeepStack draws pots from, in chips of each player: an interval, then a number in it."""

LEAST_POT, MOST_POT = 2 * POTS[0][0], 2 * POTS[-1][1]
"""Chips in the smallest and largest of them."""

EQUITY, MADE_HAND = "equity", "made_hand"
"""What hands are sorted by: the probability of beating a random one in the end; or what they make now."""

RANDOM, BY_CARD = "random", "by_card"
"""Orders of equally strong hands: as drawn; or by their cards, so that neighbours often share one."""

CHOICES = {"strength": (EQUITY, MADE_HAND), "ties": (RANDOM, BY_CARD)}
"""By what hands are sorted for random ranges, and how equally strong ones."""


@dataclass(frozen=True)
class Deck:
    """Cards are numbered `rank * suits + suit`; decks of fewer than 13 ranks keep the highest ones."""

    ranks: int = hand_strength.RANKS
    suits: int = hand_strength.SUITS

    @property
    def cards(self) -> int:
        return self.ranks * self.suits

    def hands(self, board: tuple[int, ...]) -> Array:
        """`[hands, 2]` what can be held beside a board, in colexicographic order."""
        every = _every_hand(self.cards)
        return every[~np.isin(every, board).any(1)]

    def numbers(self, hands: Array) -> Array:
        """`[hands]` numbers of hands `[hands, 2]` among all of the deck, in colexicographic order."""
        return combination(torch.from_numpy(hands)).numpy()

    def remaining_hands(self, boards: Array) -> Array:
        """`[n, cards]` boards -> `[n, hands]` numbers, among all of the deck, of the hands that each board leaves."""
        has = (_every_hand(self.cards)[:, :, None] == np.arange(self.cards)).any(1).T
        free = ~np.logical_or.reduce([has[column] for column in boards.T])
        return np.nonzero(free)[1].reshape(len(boards), -1)

    def strength(self, board: tuple[int, ...], hands: Array) -> Array:
        """`[hands]` strengths with the cards of a board as it is: a higher one wins a showdown, equal ones split."""
        cards = torch.from_numpy(np.concatenate([np.broadcast_to(board, (len(hands), len(board))), hands], 1))
        rank = cards // self.suits + hand_strength.RANKS - self.ranks
        return hand_strength.hand_strength(rank, cards % self.suits).numpy()

    def full_boards(self, board: tuple[int, ...]) -> list[tuple[int, ...]]:
        """All full boards that a board of four or five cards can become."""
        if len(board) == 5:
            return [board]
        return [(*board, card) for card in range(self.cards) if card not in board]


@lru_cache
def _every_hand(cards: int) -> Array:
    return cards_of(torch.arange(comb(cards, 2)), 2).numpy()


@dataclass(frozen=True)
class Subgame:
    """A situation in which the betting of a round begins; player 0 acts first.

    Attributes:
        board: four or five cards.
        pot: chips in the pot, half of them from each player.
        ranges: `[2, hands]` float64 weight of each hand in each player's range; hands as `Deck.hands` lists them.
        deck: the deck.
        stack: chips each player had before the first card.
    """

    board: tuple[int, ...]
    pot: float
    ranges: Array
    deck: Deck = Deck()
    stack: float = STACK

    def __post_init__(self) -> None:
        """Check.

        Raises:
            ReproError: what cannot be.
        """
        board, hands = self.board, comb(self.deck.cards - len(self.board), 2)
        if len(board) not in SUBGAMES.values() or len({*board} & {*range(self.deck.cards)}) < len(board):
            raise ReproError(
                f"a subgame's board is {board}; 4 or 5 different cards below {self.deck.cards} are needed."
            )
        if self.ranges.shape != (2, hands):
            raise ReproError(
                f"a subgame's ranges are {list(self.ranges.shape)}; its board leaves {hands} hands: [2, {hands}]."
            )
        if not (self.ranges >= 0).all():
            raise ReproError("a subgame's ranges must be weights of 0 or more.")
        if not 0 < self.pot <= 2 * self.stack:
            raise ReproError(
                f"a subgame's pot is {self.pot:g}; it must be above 0 and at most two stacks, {2 * self.stack:g}."
            )

    def betting(self) -> BettingTree:
        """All betting to the end of the game: fold, call, a bet of the pot, all-in."""
        rounds = (BettingRound(bet=None, max_raises=None),) * (6 - len(self.board))
        return compile_tree(BettingRules((self.pot / 2, self.pot / 2), rounds, self.stack, all_in=True))

    def matchups(self) -> Array:
        """`[2, hands]` probability that the opponent holds any hand that each hand can meet [DEVN, eq. 5]."""
        matchup: Array = matchups(self.deck, np.array([self.board]), self.ranges[None])[0]
        return matchup


@dataclass(frozen=True)
class Subgames:
    """A kind of subgames, as a run's `game` says.

    Attributes:
        name: one of `SUBGAMES`.
        deck: that they are drawn from.
        least_pot: chips in the pot, at the least.
        strength: by which hands are sorted for random ranges, `EQUITY` or `MADE_HAND`.
        ties: order of equally strong hands, `RANDOM` or `BY_CARD`.
    """

    name: str
    deck: Deck
    least_pot: float = LEAST_POT
    strength: str = EQUITY
    ties: str = RANDOM

    @property
    def board_cards(self) -> int:
        """Cards on the board when a subgame begins."""
        return SUBGAMES[self.name]

    @property
    def exact(self) -> None:
        """How exact values of strategies are computed: nobody plays these."""
        return None


def load_subgames(node: Mapping[str, object]) -> Subgames:
    """The kind of subgames of a configuration: its `name`, and the parameters that `Subgames` and `Deck` have.

    Raises:
        ReproError: a parameter is unknown or impossible.
    """
    name = str(node.get("name"))
    for key, low, high in (("ranks", 2, hand_strength.RANKS), ("suits", 1, hand_strength.SUITS)):
        value = node.get(key, high)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ReproError(f"game {name}: {key} is {value!r}; allowed are {low} to {high}.")
    parameters = ("ranks", "suits", "least_pot", *CHOICES)
    unknown = sorted(set(node) - {"name", *parameters})
    if unknown:
        hint = did_you_mean(unknown[0], parameters)
        raise ReproError(
            f"game {name} has no parameter {unknown[0]!r}{hint}; its parameters are {', '.join(parameters)}."
        )
    least_pot = node.get("least_pot", LEAST_POT)
    if not isinstance(least_pot, int | float) or isinstance(least_pot, bool) or not LEAST_POT <= least_pot < MOST_POT:
        raise ReproError(
            f"game {name}: least_pot is {least_pot!r}; allowed are {LEAST_POT:.0f} chips to below {MOST_POT:.0f}."
        )
    deck = Deck(**{str(key): int(str(node[key])) for key in ("ranks", "suits") if key in node})
    if deck.cards < 5 + 4:
        raise ReproError(f"game {name}: ranks * suits is {deck.cards} cards; 9 are dealt.")
    chosen = {key: str(node.get(key, options[0])) for key, options in CHOICES.items()}
    for key, options in CHOICES.items():
        if chosen[key] not in options:
            raise ReproError(f"game {name}: {key} is {chosen[key]!r}; it must be one of {', '.join(options)}.")
    return Subgames(name, deck, float(least_pot), **chosen)


def matchups(deck: Deck, boards: Array, ranges: Array) -> Array:
    """`[n, cards]` boards and `[n, 2, hands]` ranges of both players -> `[n, 2, hands]` matchups [DEVN, eq. 5].

    In O(hands): all of the opponent's range, less the hands with either card, and the hand itself, which has both.
    """
    boards, matchup = np.asarray(boards, np.int64), np.empty((len(boards), 2, comb(deck.cards - boards.shape[1], 2)))
    assert np.shape(ranges) == matchup.shape, f"ranges are {np.shape(ranges)}, not {matchup.shape}"
    _fill_matchups(boards, np.asarray(ranges, np.float64), deck.cards, matchup)
    return matchup


@compiled
def _fill_matchups(boards: Array, ranges: Array, cards: int, matchup: Array) -> None:
    """`matchups`, into `matchup`; hands in colexicographic order, as everywhere."""
    holds = np.zeros(cards)
    for n in range(len(boards)):
        free = np.ones(cards, np.bool_)
        for card in boards[n]:
            free[card] = False
        for player in range(2):
            opponent_range, own_matchup = ranges[n, 1 - player], matchup[n, player]
            holds[:] = 0.0
            for fill in range(2):
                hand, total = 0, opponent_range.sum()
                for high in range(cards):
                    for low in range(high):
                        if not (free[high] and free[low]):
                            continue
                        if fill:
                            met = total - holds[high] - holds[low] + opponent_range[hand]
                            # Where no hand can be met, subtraction leaves rounding errors.
                            own_matchup[hand] = met if met > 1e-12 * total else 0.0
                        else:
                            holds[high] += opponent_range[hand]
                            holds[low] += opponent_range[hand]
                        hand += 1
