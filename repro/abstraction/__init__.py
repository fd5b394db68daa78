"""Card abstractions of Hold'em games: hands in the same *bucket* are played alike, so that a table can hold the game.

The first betting round is never abstracted.
"""

from repro.abstraction.abstract_game import Abstraction, abstract_infosets, abstraction, check_buckets
from repro.abstraction.blueprint import Blueprint

__all__ = ["Abstraction", "Blueprint", "abstract_infosets", "abstraction", "check_buckets"]
