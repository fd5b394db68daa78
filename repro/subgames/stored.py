"""Stored files about subgames are named after what decides their contents."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Stored:
    """What decides the contents of stored subgames or buckets.

    Attributes:
        ranks, suits: of the deck.
        board_cards: 4 for the turn, 5 for the river.
        seed: names the draws.
    """

    FORMAT: ClassVar[int]
    """To be raised when the same recipe leads to other contents, so that stored ones are not taken for them."""

    ranks: int
    suits: int
    board_cards: int
    seed: int

    @property
    def plain(self) -> dict[str, Any]:
        """Recipe and format, as JSON can hold them."""
        return {"format": self.FORMAT, **asdict(self)}

    @property
    def key(self) -> str:
        """Twelve hexadecimal digits, different for every recipe and format."""
        text = json.dumps(self.plain, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
