"""Deviations in parts of a Hold'em game, against tables in which exactly that part is replaced."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from repro.engine.holdem_form import HoldemForm, sample_boards
from repro.evaluation.measures import Deviations, Exploitability
from repro.games import Game, load
from tests.helpers.commands import configs
from tests.helpers.draws import random_table
from tests.helpers.holdem import small_game, trained
from tests.helpers.reference_holdem import game_of
from tests.helpers.training import metrics_of


def rows_of(form: HoldemForm, game: Game, node: int) -> slice:
    first = int(form.first_row[node])
    later = [int(form.first_row[n]) for n in range(game.tree.nodes) if form.first_row[n] > first]
    return slice(first, min(later, default=form.rows))


def greedy(form: HoldemForm, table: Tensor, rows: list[slice], playing: Tensor | None = None) -> Tensor:
    """What is played (default: the table) with the best actions at some rows; the table's positive ones are legal."""
    playing = table if playing is None else playing
    q = torch.where(table > 0, form.action_values(playing), -torch.inf)
    improved = playing.clone()
    for part in rows:
        improved[part] = torch.nn.functional.one_hot(q[part].argmax(1), table.shape[1]).to(table)
    return improved


def win(form: HoldemForm, table: Tensor, player: int) -> float:
    return float(form.expected_values(table)[player])


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("key", ["fhp", "limit"])
def test_equal_what_a_table_wins_in_which_that_part_is_replaced(key, sampled):
    game = game_of(key)
    boards = sample_boards(game, 5, torch.Generator().manual_seed(3)) if sampled else None
    form = HoldemForm(game, boards)
    table = random_table(game, 1)[form.infosets]
    for player in range(2):
        found, before = form.deviations(table, player), win(form, table, player)
        nodes = [n for n in range(game.tree.nodes) if game.tree.player[n] == player]
        assert list(found.at) == nodes
        for node in nodes:
            replaced = greedy(form, table, [rows_of(form, game, node)])
            assert win(form, replaced, player) - before == pytest.approx(found.at[node], abs=1e-9)
        by_round = [[rows_of(form, game, n) for n in nodes if game.tree.round[n] == r] for r in range(2)]
        for parts, gain in zip(by_round, (found.before_board, found.on_board), strict=True):
            response = table
            # Improved until nothing improves: later decisions first change what earlier ones are worth.
            for _ in range(4):
                response = greedy(form, table, parts, response)
            assert win(form, response, player) - before == pytest.approx(gain, abs=1e-9)
        assert found.everywhere == pytest.approx(form.best_response(table, player)[0] - before, abs=1e-9)
        assert found.everywhere > max(found.before_board, found.on_board) > max(found.at.values())


def test_a_best_response_gains_nothing_by_deviating():
    game = game_of("fhp")
    form = HoldemForm(game)
    response = form.best_response(random_table(game, 2), 0)[1]
    found = form.deviations(response, 0)
    gains = torch.tensor([found.everywhere, found.before_board, found.on_board, *found.at.values()])
    assert gains.abs().max() < 1e-9


def test_metrics_add_up_to_exploitability():
    model = trained(small_game(), 2)
    game, found = model.game, metrics_of(model, Exploitability(), Deviations())["sd_cfr"]
    for part in ("everywhere", "before_board", "on_board"):
        both = [found[f"deviations/{part}/player_{player}"] for player in range(2)]
        assert sum(both) == pytest.approx(found[f"deviations/{part}"])
    assert found["deviations/everywhere"] == pytest.approx(found["exploitability"])
    lines = [name for name in found if name.startswith("deviations/line/")]
    assert len(lines) == int((game.tree.player >= 0).sum())
    assert "deviations/line/player 0" in lines


def test_games_without_one_board_are_refused():
    config = configs("game=leduc", "algorithm=linear_cfr")[0]
    ((key, _, allowed),) = Deviations().problems(load("leduc"), config.algorithm)
    assert (key, allowed) == ("", "the game leduc is no Hold'em game with one board, leave it out")
