"""The games by name. A game is a dataclass of its parameters that builds a `Game`.

A module outside of this package adds a game with `register_game`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, ClassVar, Protocol, TypeVar, get_type_hints

import torch

from repro.common.errors import ReproError
from repro.common.importing import import_named
from repro.common.suggestions import did_you_mean
from repro.games.betting import BettingRound, BettingRules
from repro.games.game import Game
from repro.games.holdem import holdem_cards
from repro.games.one_card import one_card_each

MAX_DECK = 104
"""Largest deck of a one-card game; the dense showdown matrices grow with its cube."""

MAX_RAISES = 12

MAX_STACK = 500
"""Largest stack of no-limit games, in big blinds: the betting tree grows with it."""


MOST_CHIPS = 1e9
"""Largest number of chips that a parameter can be: products of more of them overflow."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST_CHIPS


_KINDS: dict[object, tuple[Callable[[object], bool], str]] = {
    int: (lambda v: isinstance(v, int) and not isinstance(v, bool), "a whole number"),
    float: (_is_number, "a finite number up to 1e9"),
    bool: (lambda v: isinstance(v, bool), "true or false"),
    str: (lambda v: isinstance(v, str), "text"),
    float | None: (lambda v: v is None or _is_number(v), "a number or null, up to 1e9"),
    tuple[float, float]: (
        lambda v: isinstance(v, tuple) and len(v) == 2 and all(_is_number(x) for x in v),
        "two positive numbers up to 1e9",
    ),
    tuple[int, int]: (
        lambda v: isinstance(v, tuple) and len(v) == 2 and all(type(x) is int for x in v),
        "two whole numbers",
    ),
}
"""What a parameter of each annotated type accepts, and how to say so."""


class GameParameters(Protocol):
    """A dataclass of a game's parameters. Their types are `int`, `float`, `bool`, `str`, `float | None` or pairs."""

    # Of every dataclass, for type checkers.
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def build(self, name: str) -> Game:
        """The game under the name that it was asked for by.

        Raises:
            ReproError: the parameters are impossible.
        """
        ...


Parameters = TypeVar("Parameters", bound=GameParameters)

GAMES: dict[str, type[GameParameters]] = {}
"""Every game by its name; `register_game` adds to them."""


def register_game(name: str) -> Callable[[type[Parameters]], type[Parameters]]:
    """Decorator that adds a game under a name, also from a module outside of this package.

        @register_game("my_kuhn")
        @dataclass(frozen=True)
        class MyKuhn:
            ranks: int = 3

            def build(self, name: str) -> Game: ...

    The module must be imported before `load` can know the name.

    Raises:
        ReproError: the name is another class's, or this class is no `GameParameters`.
    """

    def register(kind: type[Parameters]) -> type[Parameters]:
        registered = GAMES.get(name, kind)
        if registered is not kind:
            raise ReproError(f"game {name} is {_class_name(registered)}; {_class_name(kind)} needs another name.")
        parameter_types(name, kind)
        GAMES[name] = kind
        return kind

    return register


def parameter_types(name: str, kind: type[GameParameters]) -> dict[str, object]:
    """The type of each of a game's parameters, by the parameter's name.

    Raises:
        ReproError: it is no dataclass that builds a game, or a parameter is of a type that cannot be checked.
    """
    if not (is_dataclass(kind) and callable(getattr(kind, "build", None))):
        raise ReproError(f"game {name}: {_class_name(kind)} is no dataclass with a method build.")
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        raise ReproError(f"game {name}: the types of its parameters cannot be read, for {error}.") from error
    types = {field.name: hints[field.name] for field in fields(kind)}
    for key, annotation in types.items():
        if annotation not in _KINDS:
            raise ReproError(
                f"game {name}: the parameter {key} is of type {inspect.formatannotation(annotation)}; allowed are "
                f"{', '.join(map(inspect.formatannotation, _KINDS))}."
            )
    return types


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


@register_game("kuhn")
@dataclass(frozen=True)
class Kuhn:
    """Kuhn poker: one card each from `ranks` cards, ante 1, one bet of 1 [Kuhn 1950]."""

    ranks: int = 3
    suit_isomorphism: bool = True

    def build(self, name: str) -> Game:
        _check_deck(name, self.ranks, 1, dealt=2)
        rules = BettingRules((1, 1), (BettingRound(bet=1, max_raises=1),))
        return Game(name, asdict(self), rules, one_card_each(self.ranks, 1, (0,), self.suit_isomorphism), 1.0)


@register_game("leduc")
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


@register_game("big_leduc")
@dataclass(frozen=True)
class BigLeduc(Leduc):
    """Leduc with 12 ranks and at most 6 raises per round [SD-CFR, App. C]."""

    ranks: int = 12
    max_raises: int = 6


@register_game("fhp")
@dataclass(frozen=True)
class FHP:
    """Flop Hold'em as in the Deep CFR text [Brown et al. 2018, App. A]: one board, dealt at once, between two rounds.

    Pot-sized bets, at most one raise before the flop and two after it, and the first action of the game is no call.
    Player 0 has the small blind and acts first before the flop, player 1 after it.
    """

    ranks: int = 13
    suits: int = 4
    flop_cards: int = 3
    bet: float | None = None
    max_raises: tuple[int, int] = (1, 2)
    may_open_with_call: bool = False
    blinds: tuple[float, float] = (50.0, 100.0)

    def build(self, name: str) -> Game:
        if not 3 <= self.flop_cards <= 5:
            raise ReproError(f"game {name}: flop_cards is {self.flop_cards}; allowed are 3 to 5.")
        _check_holdem(name, self.ranks, self.suits, self.flop_cards, self.blinds)
        if self.bet is not None and self.bet <= 0:
            raise ReproError(
                f"game {name}: bet is {self.bet}; a positive number of chips is needed, or null (the pot)."
            )
        if not all(0 <= most <= MAX_RAISES for most in self.max_raises):
            raise ReproError(f"game {name}: max_raises is {self.max_raises}; allowed are two of 0 to {MAX_RAISES}.")
        if not (self.may_open_with_call or self.max_raises[0]):
            raise ReproError(
                f"game {name}: max_raises is {self.max_raises}; without an opening call the first must be 1."
            )
        rounds = tuple(BettingRound(self.bet, most, first) for first, most in enumerate(self.max_raises))
        rules = BettingRules(self.blinds, rounds, may_open_with_call=self.may_open_with_call)
        cards = holdem_cards(self.ranks, self.suits, (0, self.flop_cards))
        return Game(name, asdict(self), rules, cards, self.blinds[1])


@register_game("fhp_limit")
@dataclass(frozen=True)
class LimitFHP(FHP):
    """Flop Hold'em as in the later Deep CFR paper [Brown et al. 2019]: raises of 100, four bets per round.

    The big blind counts as the first bet. Deep CFR's published exploitabilities are of this game.
    """

    bet: float | None = 100.0
    max_raises: tuple[int, int] = (3, 4)
    may_open_with_call: bool = True


@register_game("fhp5")
@dataclass(frozen=True)
class FHP5(FHP):
    """5-FHP: FHP with five flop cards [SD-CFR, Sec. 6.2]."""

    flop_cards: int = 5


@register_game("hunl_pot")
@dataclass(frozen=True)
class PotHUNL:
    """Heads-up no-limit Hold'em of which every bet and raise is of the size of the pot [Deep CFR, Sec. 5].

    A raise that the stack does not cover is all-in.
    """

    ALL_IN: ClassVar[bool] = False

    ranks: int = 13
    suits: int = 4
    stack: float = 20_000.0
    blinds: tuple[float, float] = (50.0, 100.0)

    def build(self, name: str) -> Game:
        _check_holdem(name, self.ranks, self.suits, 5, self.blinds)
        if not max(self.blinds) < self.stack <= MAX_STACK * max(self.blinds):
            raise ReproError(
                f"game {name}: stack is {self.stack} with blinds {self.blinds}; it must be more than the big blind and "
                f"at most {MAX_STACK} times as much."
            )
        rounds = tuple(BettingRound(None, None, first) for first in (0, 1, 1, 1))
        cards = holdem_cards(self.ranks, self.suits, (0, 3, 1, 1))
        rules = BettingRules(self.blinds, rounds, stack=self.stack, all_in=self.ALL_IN)
        return Game(name, asdict(self), rules, cards, self.blinds[1])


@register_game("hnlh")
@dataclass(frozen=True)
class HNLH(PotHUNL):
    """No-limit Hold'em [D2CFR, Sec. V.A] with four actions: fold, call, a bet of the pot, all-in.

    The two sizes of bets are ours, and so are the stacks: the text leaves sizes to the player and names no stacks.
    """

    ALL_IN = True


def load(name: str, *, device: torch.device | str = "cpu", **parameters: object) -> Game:
    """Build a game by name, e.g. `load("leduc", ranks=4, max_raises=3)`.

    Raises:
        ReproError: unknown game, unknown parameter, impossible value, or a class that is no game's.
    """
    if name not in GAMES:
        hint = did_you_mean(name, GAMES)
        raise ReproError(f"game {name!r} is unknown{hint}; the games are {', '.join(sorted(GAMES))}.")
    types = parameter_types(name, GAMES[name])
    for key, value in parameters.items():
        if key not in types:
            hint = did_you_mean(key, types)
            raise ReproError(f"game {name} has no parameter {key!r}{hint}; its parameters are {', '.join(types)}.")
        if isinstance(value, list):
            value = parameters[key] = tuple(value)  # noqa: PLW2901
        fits, needed = _KINDS[types[key]]
        if not fits(value):
            raise ReproError(f"game {name}: {key} is {value!r}; {needed} is needed.")
    return GAMES[name](**parameters).build(name).to(device)


def load_game(node: Mapping[str, object], device: torch.device | str = "cpu") -> Game:
    """Build the game of a configuration: its `name`, and parameters under their own keys.

    `module` names the file that registers the game, if it is not of this package.

    Raises:
        ReproError: as `load`, or there is no such file.
    """
    if node.get("module"):
        import_named("game.module", str(node["module"]))
    if "device" in node:
        raise ReproError(f"game.device is {node['device']!r}; a game has no such parameter.")
    parameters = {key: value for key, value in node.items() if key not in ("name", "module")}
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


def _check_holdem(name: str, ranks: int, suits: int, board: int, blinds: tuple[float, float]) -> None:
    if not 2 <= ranks <= 13:
        raise ReproError(f"game {name}: ranks is {ranks}; allowed are 2 to 13.")
    if not 1 <= suits <= 4:
        raise ReproError(f"game {name}: suits is {suits}; allowed are 1 to 4.")
    if ranks * suits < 4 + board:
        raise ReproError(f"game {name}: ranks * suits is {ranks * suits} cards; {4 + board} are dealt.")
    if not 0 < blinds[0] <= blinds[1]:
        raise ReproError(f"game {name}: blinds is {blinds}; the small one must be positive and not above the big one.")


SUBGAMES = {"turn_subgames": 4, "river_subgames": 5}
"""Names of the kinds, and cards on the board when a subgame begins."""
