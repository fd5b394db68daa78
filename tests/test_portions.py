"""Exact NashConv of games with one board whose infosets do not fit a table."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repro.engine.holdem_form import HoldemForm
from repro.evaluation import nash_conv
from repro.evaluation.exploitability import nash_conv_by_portions
from repro.games import Game, load
from repro.policies import random_policy


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("fhp", {"ranks": 5, "suits": 2}), ("fhp", {"ranks": 4, "suits": 3}), ("fhp5", {"ranks": 5, "suits": 2})],
)
@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_portions_add_up_to_the_whole(name, parameters, at_once):
    game = load(name, **parameters)
    policy = random_policy(game, torch.Generator().manual_seed(0))
    whole = float(HoldemForm(game).best_response_values(policy.table).sum())
    told: list[tuple[int, int]] = []
    found = nash_conv_by_portions(game, policy, at_once, lambda done, of: told.append((done, of)))
    assert found == pytest.approx(whole, abs=1e-9)
    boards = told[-1][1]
    assert told == [(min(d, boards), boards) for d in range(at_once, boards + at_once, at_once)]


def test_games_too_large_for_a_table_are_measured_so(monkeypatch):
    game = load("fhp5", ranks=5, suits=2)
    policy = random_policy(game, torch.Generator().manual_seed(1))
    whole = nash_conv(game, policy)
    asked: list[int] = []

    class Asked:
        def probabilities(self, infosets: Any) -> Any:
            asked.append(len(infosets))
            return policy.probabilities(infosets)

    monkeypatch.setattr(Game, "listed", False)
    assert nash_conv(game, Asked()) == pytest.approx(whole, abs=1e-9)
    assert sum(asked) >= game.infosets
