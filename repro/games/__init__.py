"""Games: a public betting tree times cards."""

from repro.games.game import Game
from repro.games.registry import GAMES, load

__all__ = ["GAMES", "Game", "load"]
