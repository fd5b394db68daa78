"""Files that are named after what decides their contents, and written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar


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
    def key(self) -> str:
        """Twelve hexadecimal digits, different for every recipe and format."""
        text = json.dumps({"format": self.FORMAT, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under another name, then rename it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)
