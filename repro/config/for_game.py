"""What of a configuration must go with the game. As with the other checks: before any work, in one sentence each."""

from __future__ import annotations

from typing import Any

from repro.config.schema import (
    AlgorithmConfig,
    Config,
    D2CFRConfig,
    DeepCFRConfig,
    MCCFRConfig,
    SubgamesConfig,
    TabularCFRConfig,
)
from repro.errors import ReproError
from repro.games.game import Game
from repro.games.holdem import HoldemCards
from repro.games.registry import load_game
from repro.subgames.subgames import SUBGAMES, Subgames, load_subgames


def game_of(config: Config, device: str = "cpu") -> Game | Subgames:
    """The game, or the kind of subgames, that a run is about.

    Raises:
        ReproError: it is unknown or impossible, or does not go with the algorithm.
    """
    name, about_subgames = config.game.get("name"), isinstance(config.algorithm, SubgamesConfig)
    if (name in SUBGAMES) != about_subgames:
        allowed = f"one of {', '.join(SUBGAMES)}" if about_subgames else "a whole game"
        raise ReproError(f"game is {name}; the algorithm {config.algorithm.name} takes {allowed}.")
    if about_subgames:
        return load_subgames(config.game)
    game = load_game(config.game, device)
    check_for_game(game, config.algorithm)
    return game


def check_for_game(game: Game, algorithm: AlgorithmConfig) -> None:
    """Refuse keys that have no effect in this game, and values that it cannot do.

    Raises:
        ReproError: names the key, the value and what is allowed.
    """
    if isinstance(algorithm, TabularCFRConfig) or (isinstance(algorithm, MCCFRConfig) and algorithm.buckets is None):
        game.check_listed()
    if isinstance(game.cards, HoldemCards):
        _refuse_unless_nothing(game, algorithm, "a Hold'em game", {"keep_strategies": False, "opponents_at": "last"})
        if isinstance(algorithm, DeepCFRConfig):
            _check_holdem(game, game.cards, algorithm)
    elif isinstance(algorithm, DeepCFRConfig):
        nothing = {"evaluation_boards": None, "match_hands": 0, "disagreement_rollouts": 0}
        _refuse_unless_nothing(game, algorithm, "no Hold'em game", nothing)
        for which in ("value", "average"):
            precision = getattr(algorithm, which).precision
            if precision != "fp32":
                raise ReproError(
                    f"algorithm.{which}.precision is {precision}; the game {game.name} is no Hold'em game and takes "
                    "fp32 only."
                )


def _refuse_unless_nothing(game: Game, algorithm: AlgorithmConfig, kind: str, nothings: dict[str, Any]) -> None:
    for key, nothing in nothings.items():
        if getattr(algorithm, key, nothing) != nothing:
            allowed = "null" if nothing is None else str(nothing).lower()
            raise ReproError(
                f"algorithm.{key} is {getattr(algorithm, key)}; the game {game.name} is {kind} and takes {allowed} "
                "only."
            )


def _check_holdem(game: Game, cards: HoldemCards, algorithm: DeepCFRConfig) -> None:
    if algorithm.memory != "reservoir":
        raise ReproError(
            f"algorithm.memory is {algorithm.memory}; Hold'em games have too many infosets, use reservoir."
        )
    if algorithm.opponents and not algorithm.match_hands:
        raise ReproError(
            f"algorithm.match_hands is 0, but algorithm.opponents are {', '.join(algorithm.opponents)}; a number of "
            "hands is needed."
        )
    if isinstance(algorithm, D2CFRConfig) and algorithm.rectification == "exact":
        raise ReproError(
            f"algorithm.rectification is exact; the game {game.name} has too many infosets, use play_outs or none."
        )
    if cards.one_board and algorithm.evaluation_boards is None and not game.listed:
        raise ReproError(
            f"algorithm.evaluation_boards is null, but the game {game.name} is too large to measure on all boards; a "
            "number is needed."
        )
    if not cards.one_board and algorithm.evaluation_boards is not None:
        raise ReproError(
            f"algorithm.evaluation_boards is {algorithm.evaluation_boards}; the game {game.name} has more than one "
            "board and takes null only."
        )
