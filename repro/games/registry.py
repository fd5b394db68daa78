"""The games by name. A game is a dataclass of its parameters that builds a `Game`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields

import torch

from repro.errors import ReproError
from repro.games.betting import BettingRound, BettingRules
from repro.games.one_card import one_card_each
from repro.games.game import Game

MAX_DECK = 104
"""Largest deck of a one-card game; the dense showdown matrices grow with its cube."""

MAX_RAISES = 12


@dataclass(frozen=True)
class Kuhn:
    """Kuhn poker: one card each from `ranks` cards, ante 1, one bet of 1 [Kuhn 1950]."""

    ranks: int = 3
    suit_isomorphism: bool = True

    def build(self, name: str) -> Game:
        _check_deck(name, self.ranks, 1, dealt=2)
        rules = BettingRules((1, 1), (BettingRound(bet=1, max_raises=1),))
        return Game(name, asdict(self), rules, one_card_each(self.ranks, 1, (0,), self.suit_isomorphism), 1.0)


@dataclass(frozen=True)
class Leduc:
    """Leduc poker [Southey et al. 2005; rules in SD-CFR, App. B] with any deck, raise cap and bet sizes.

    One private card each and one public card after the first round. A pair with the public card wins, then the higher
    rank; equal ranks split. `bet_sizes` are the chips that a bet or raise adds in each round.
    """

    ranks: int = 3
    suits: int = 2
    max_raises: int = 2
    bet_sizes: tuple[float, float] = (2.0, 4.0)
    ante: float = 1.0
    suit_isomorphism: bool = True

    def build(self, name: str) -> Game:
        _check_deck(name, self.ranks, self.suits, dealt=3)
        if not 0 <= self.max_raises <= MAX_RAISES:
            raise ReproError(f"game {name}: max_raises is {self.max_raises}; allowed are 0 to {MAX_RAISES}.")
        if min(self.bet_sizes) <= 0:
            raise ReproError(f"game {name}: bet_sizes is {self.bet_sizes}; two positive numbers of chips are needed.")
        if self.ante <= 0:
            raise ReproError(f"game {name}: ante is {self.ante}; a positive number of chips is needed.")
        rounds = tuple(BettingRound(bet=bet, max_raises=self.max_raises) for bet in self.bet_sizes)
        cards = one_card_each(self.ranks, self.suits, (0, 1), self.suit_isomorphism)
        return Game(name, asdict(self), BettingRules((self.ante, self.ante), rounds), cards, self.ante)


@dataclass(frozen=True)
class BigLeduc(Leduc):
    """Leduc with 12 ranks and at most 6 raises per round [SD-CFR, App. C]."""

    ranks: int = 12
    max_raises: int = 6


GAMES: dict[str, Callable[..., Kuhn | Leduc]] = {"kuhn": Kuhn, "leduc": Leduc, "big_leduc": BigLeduc}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "int": (lambda v: isinstance(v, int) and not isinstance(v, bool), "a whole number"),
    "float": (_is_number, "a finite number"),
    "bool": (lambda v: isinstance(v, bool), "true or false"),
    "tuple[float, float]": (
        lambda v: isinstance(v, tuple) and len(v) == 2 and all(_is_number(x) for x in v),
        "two positive numbers",
    ),
}
"""What a parameter of each annotated type accepts, and how to say so."""


def load(name: str, *, device: torch.device | str = "cpu", **parameters: object) -> Game:
    """Build a game by name, e.g. `load("leduc", ranks=4, max_raises=3)`.

    Raises:
        ReproError: unknown game, unknown parameter or impossible value.
    """
    if name not in GAMES:
        raise ReproError(f"game {name!r} is unknown; the games are {', '.join(sorted(GAMES))}.")
    known = {f.name: f.type for f in fields(GAMES[name])}  # type: ignore[arg-type]
    for key, value in parameters.items():
        if key not in known:
            raise ReproError(f"game {name} has no parameter {key!r}; its parameters are {', '.join(known)}.")
        if isinstance(value, list):
            value = parameters[key] = tuple(value)  # noqa: PLW2901
        fits, needed = _KINDS[str(known[key])]
        if not fits(value):
            raise ReproError(f"game {name}: {key} is {value!r}; {needed} is needed.")
    return GAMES[name](**parameters).build(name).to(device)


def load_game(node: Mapping[str, object], device: torch.device | str = "cpu") -> Game:
    """Build the game of a configuration: its `name`, and parameters under their own keys.

    Raises:
        ReproError: as `load`.
    """
    if "device" in node:
        raise ReproError(f"game.device is {node['device']!r}; a game has no such parameter.")
    parameters = {key: value for key, value in node.items() if key != "name"}
    return load(str(node.get("name", "")), device=device, **parameters)


def _check_deck(name: str, ranks: int, suits: int, dealt: int) -> None:
    if ranks < 2:
        raise ReproError(f"game {name}: ranks is {ranks}; at least 2 are needed for one hand to beat another.")
    if suits < 1:
        raise ReproError(f"game {name}: suits is {suits}; at least 1 is needed.")
    if not dealt <= ranks * suits <= MAX_DECK:
        raise ReproError(
            f"game {name}: ranks * suits is {ranks * suits} cards; allowed are {dealt} (what is dealt) to {MAX_DECK}."
        )
