"""Read-outs: the ways to play what a training left.

A read-out maps a snapshot to a player for each seat. It is found by its name in `algorithm.readouts` and made by its
kind from the algorithm's `READOUTS`; it trains nothing and changes nothing, so that one can be added to a finished
training. It may keep what it computed of earlier snapshots of the same training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from repro.config.schema import Config, ReadoutConfig
from repro.games.game import Game
from repro.policies.base import Ensemble, Policy
from repro.policies.snapshot import Snapshot

Seat = Policy | Ensemble
"""What can sit in a seat: a policy, or an ensemble, which draws one strategy per hand."""


class Readout(ABC):
    """One read-out of one training.

    Args:
        game: the training's.
        config: its configuration.
        readout: which kind, and its own keys.

    Attributes:
        PLAYS: whether it gives players; others predict values.
        ENSEMBLE: whether they are mixtures, whose average strategy can be taken.
    """

    PLAYS: ClassVar[bool] = True
    ENSEMBLE: ClassVar[bool] = False

    def __init__(self, game: Game, config: Config, readout: ReadoutConfig) -> None:
        self.game, self.config, self.readout = game, config, readout

    @abstractmethod
    def seats(self, snapshot: Snapshot) -> Sequence[Seat]:
        """A player for each seat."""

    def notes(self, snapshot: Snapshot) -> dict[str, float]:
        """What the training said of what is played, such as the loss of S-hat, as metrics."""
        return {}
