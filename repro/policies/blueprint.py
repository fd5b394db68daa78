"""A strategy for a card abstraction, played in the full game."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from repro.abstraction import Abstraction, abstraction
from repro.errors import ReproError
from repro.games.game import Game
from repro.games.registry import load_game
from repro.policies.files import NOT_SUCH_A_FILE, check_same_game
from repro.policies.regret_matching import normalised


class Blueprint:
    """Per infoset of the full game, the weights of its row in proportion; uniform where they are all 0.

    Args:
        weights: `[infosets of the abstract game, actions]`, zero where illegal.
    """

    def __init__(self, abstraction: Abstraction, weights: Tensor) -> None:
        self._abstraction, self._weights = abstraction, weights

    def probabilities(self, infosets: Tensor) -> Tensor:
        legal = self._abstraction.game.legal_at(infosets)
        weights = self._weights.index_select(0, self._abstraction.rows(infosets))
        return normalised(weights, legal / legal.sum(1, keepdim=True, dtype=weights.dtype))


def load_blueprint(game: Game, path: Path | str) -> Blueprint:
    """What a finished run of MCCFR left as `blueprint.pt`.

    Raises:
        ReproError: the file is not of that kind, or is for another game.
    """
    try:
        stored: dict[str, Any] = dict(torch.load(path, map_location="cpu", mmap=True, weights_only=True))
        weights, config = stored["weights"], stored["config"]
        buckets, solved = config["algorithm"]["buckets"], load_game(config["game"])
    except NOT_SUCH_A_FILE as error:
        raise ReproError(f"{path} is not the blueprint.pt of a finished run.") from error
    check_same_game(path, "a strategy", solved, game)
    try:
        found = abstraction(game, buckets, stored["centres"])
        fits = weights.shape == (found.abstract.infosets, game.num_actions) and bool(
            ((weights >= 0) & weights.isfinite()).all()
        )
    except NOT_SUCH_A_FILE as error:
        raise ReproError(f"{path} holds no such buckets as its algorithm.buckets says ({error}).") from error
    if not fits:
        raise ReproError(f"{path} does not hold one weight, none below 0, for each action at each node and bucket.")
    return Blueprint(found, weights.to(game.device))


def is_blueprint(path: Path | str) -> bool:
    """Whether a file looks like what `load_blueprint` reads, rather than like stored networks."""
    try:
        return "centres" in torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except NOT_SUCH_A_FILE:
        return False
