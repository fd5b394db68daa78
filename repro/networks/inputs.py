"""What networks see of infosets, whatever the game."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from torch import Tensor

from repro.games.game import Game
from repro.networks.features import FeatureColumns, feature_columns, infoset_features
from repro.networks.holdem_features import HoldemFeatures

Inputs = Callable[[Tensor], tuple[Tensor, Tensor]]
"""`[n]` infosets -> features `[n, features]` and legal mask `[n, actions]` bool."""


def network_inputs(game: Game) -> tuple[Inputs, FeatureColumns]:
    """How to make a network's inputs, and what their columns are."""
    if game.cards.features == "cards":
        features = holdem_features(game)
        return features, features.columns
    return _looked_up(game), feature_columns(game)


def network_columns(game: Game) -> FeatureColumns:
    """What the columns of a network's inputs are, without making any."""
    return holdem_features(game).columns if game.cards.features == "cards" else feature_columns(game)


def fixed_inputs(game: Game) -> Inputs:
    """The same, by operations that do not depend on the infosets, so that a CUDA graph can replay them."""
    return holdem_features(game).fixed_rows if game.cards.features == "cards" else _looked_up(game)


@lru_cache(maxsize=2)
def holdem_features(game: Game) -> HoldemFeatures:
    """Those of a game, listed once: a training and its read-outs share them."""
    return HoldemFeatures(game)


def _looked_up(game: Game) -> Inputs:
    features = infoset_features(game)

    def looked_up(infosets: Tensor) -> tuple[Tensor, Tensor]:
        return features.index_select(0, infosets), game.legal.index_select(0, infosets)

    return looked_up
