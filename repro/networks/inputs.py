"""What networks see of infosets, whatever the game."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from repro.games.game import Game
from repro.networks.features import Columns, feature_columns, infoset_features
from repro.networks.holdem_features import HoldemFeatures

Inputs = Callable[[Tensor], tuple[Tensor, Tensor]]
"""`[n]` infosets -> features `[n, features]` and legal mask `[n, actions]` bool."""


def network_inputs(game: Game) -> tuple[Inputs, Columns]:
    """How to make a network's inputs, and what their columns are."""
    if game.cards.features == "cards":
        made = HoldemFeatures(game)
        return made.rows, made.columns
    features = infoset_features(game)

    def looked_up(infosets: Tensor) -> tuple[Tensor, Tensor]:
        return features.index_select(0, infosets), game.legal.index_select(0, infosets)

    return looked_up, feature_columns(game)
