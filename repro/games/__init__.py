"""Games: a public betting tree times cards."""

from repro.games.game import Game
from repro.games.registry import GAMES, load, load_game, register_game

__all__ = ["GAMES", "Game", "load", "load_game", "register_game"]
