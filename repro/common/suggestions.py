"""What a misspelt word was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_ALIKE = 0.7
"""How much of two words must be the same: `forse` and `force` are alike, `tpu` and `cpu` are not."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like another one, or the shortest dotted key ending with it; None where none is."""
    words = list(known)
    ending = [each for each in words if word.isidentifier() and each.endswith(f".{word}")]
    return next(iter(get_close_matches(word, words, 1, _ALIKE)), None) or min(ending, key=len, default=None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)`, to be put after what is said of an unknown word; nothing where no known one is like it."""
    near = nearest(word, known)
    return "" if near in (None, word) else f" (did you mean {near}?)"
