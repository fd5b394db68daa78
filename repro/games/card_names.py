"""Cards as people write them: `Ah` is the ace of hearts, `Kd` the king of diamonds, `T` a ten."""

from __future__ import annotations

from collections.abc import Sequence

from repro.common.errors import ReproError

RANKS, SUITS = "23456789TJQKA", "cdhs"


def rank_names(ranks: int, highest: str = "A") -> list[str]:
    """The ranks of a deck from the lowest to `highest`; numbers from 0 where there are more than there are names."""
    end = RANKS.index(highest) + 1
    return list(RANKS[end - ranks : end]) if ranks <= end else [str(rank) for rank in range(ranks)]


def card_names(ranks: int, suits: int, highest: str = "A") -> list[str]:
    """The name of each card, which is numbered `rank * suits + suit`; more than four suits have numbers."""
    of_suits = list(SUITS[:suits]) if suits <= len(SUITS) else [f".{suit}" for suit in range(suits)]
    return [rank + suit for rank in rank_names(ranks, highest) for suit in of_suits]


def read_cards(key: str, text: str, names: Sequence[str], count: int | None = None) -> list[int]:
    """Numbers of different cards, `Ah Kd 2c` or `AhKd2c`.

    Args:
        key: what the cards are, for the message.
        names: of all cards.
        count: how many are needed; None: any number.

    Raises:
        ReproError: there is no such card, one is there twice, or there are more or fewer.
    """
    number = {name.lower(): card for card, name in enumerate(names)}
    cards = [number.get(word, -1) for word in _words(text, number)]
    needed = {None: "different cards", 0: "empty", 1: "one card"}.get(count, f"{count} different cards")
    if -1 in cards or len(set(cards)) < len(cards) or (count is not None and len(cards) != count):
        of = f", from {names[0]} to {names[-1]}" if count != 0 else ""
        raise ReproError(f"{key} {f'is {text!r}' if text else 'is missing'}; it must be {needed}{of}.")
    return cards


def _words(text: str, number: dict[str, int]) -> list[str]:
    """What may be cards: separated words, and of those that are none the pairs of characters that they are made of."""
    words = []
    for word in text.lower().replace(",", " ").split():
        pairs = [word[i : i + 2] for i in range(0, len(word), 2)]
        words += [word] if word in number else pairs
    return words
