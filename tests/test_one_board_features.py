"""What hands on the one board are clustered by, against brute force."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from repro.abstraction.one_board import cell_features
from repro.engine.holdem_form import HoldemForm
from repro.games import Game, load
from tests.helpers.holdem import cards_in, game_of
from tests.helpers.reference_holdem import best_five


def hands_on(game: Game, board: tuple[int, ...]) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Strength of every hand that the board leaves."""
    cards = cards_in(game)
    deck = [c for c in range(cards.ranks * cards.suits) if c not in board]
    return {hand: best_five((*board, *hand), cards.suits, cards.ranks) for hand in combinations(deck, 2)}


def share_beaten(hand: tuple[int, int], others: dict[tuple[int, int], float], strength: dict[Any, Any]) -> float:
    """How many of the others that share no card with the hand it beats, ties counting half."""
    met = {o: part for o, part in others.items() if part and not set(o) & set(hand)}
    won = sum(
        part * ((strength[hand] > strength[o]) + 0.5 * (strength[hand] == strength[o])) for o, part in met.items()
    )
    return won / sum(met.values()) if met else 0.0


def strongest(strength: dict[Any, Any], count: int) -> dict[tuple[int, int], float]:
    """How far each hand is among the strongest: equal ones at the border share what is left."""
    above = {h: sum(s > strength[h] for s in strength.values()) for h in strength}
    equal = {h: sum(s == strength[h] for s in strength.values()) for h in strength}
    return {h: min(max((count - above[h]) / equal[h], 0.0), 1.0) for h in strength}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("fhp", {"ranks": 5, "suits": 2}),
        ("fhp", {"ranks": 3, "suits": 4}),
        ("fhp", {"ranks": 13, "suits": 1}),
        ("fhp5", {"ranks": 5, "suits": 2}),
    ],
)
def test_features_equal_brute_force(name, parameters):
    game = load(name, **parameters)
    cards, form = cards_in(game), HoldemForm(game)
    found = cell_features(form)
    assert found.shape == (cards.cells[1], 7)
    k, suits = cards.board_cards[1], cards.suits
    before: dict[int, list[float]] = {}
    seen: set[tuple[int, int]] = set()
    boards = list(combinations(range(cards.ranks * suits), k))
    # All boards tell how a hand does before the board; a part of them is enough for the rest.
    part = set(boards[:: max(1, len(boards) // 40)])
    for board in boards:
        strength = hands_on(game, board)
        hands = list(strength)
        cells = cards.cell(1, torch.tensor([[*board, *h] for h in hands])).tolist()
        opening = cards.cell(0, torch.tensor(hands)).tolist()
        everyone = dict.fromkeys(hands, 1.0)
        chosen = [strongest(strength, len(hands) // d) for d in (2, 8)] if board in part else []
        suited = max(sum(c % suits == s for c in board) for s in range(suits)) / k / 2
        paired = (len({c // suits for c in board}) < k) / 2
        mean_rank = sum(c // suits for c in board) / k / (cards.ranks - 1) / 4
        for hand, cell, early in zip(hands, cells, opening, strict=True):
            share = share_beaten(hand, everyone, strength)
            before.setdefault(early, []).append(share)
            assert found[cell, 0] == pytest.approx(share, abs=1e-12)
            assert found[cell, 4:] == pytest.approx([suited, paired, mean_rank], abs=1e-12)
            for column, others in enumerate(chosen, start=1):
                assert found[cell, column] == pytest.approx(share_beaten(hand, others, strength), abs=1e-9)
        seen.update(zip(cells, opening, strict=True))
    assert len({cell for cell, _ in seen}) == cards.cells[1]
    for cell, early in seen:
        assert found[cell, 3] == pytest.approx(float(np.mean(before[early])), abs=1e-12)


def test_features_are_between_0_and_1_and_differ():
    found = cell_features(HoldemForm(game_of("small_fhp")))
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert all(len(np.unique(column)) > 1 for column in found.T)
