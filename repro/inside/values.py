"""What actions are worth, exactly: in games with one private card each, and in Hold'em with one board once it is dealt.

Three numbers of an action, in chips of the player who acts, from the situation on, the opponent's hand being as likely
as the deal and her own actions before make it:

- *as played*: both follow the agent's strategy after the action;
- *at best*: the player responds as well as possible to that strategy after the action;
- *against a best response*: the player follows the strategy after the action, and the opponent, who knows it, plays as
  well as possible. In Hold'em she does so from the board on, and came there by the strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from repro.common.seeding import generator
from repro.engine.histories import Histories
from repro.engine.holdem_form import BoardSample, HoldemForm, all_boards, sample_boards
from repro.engine.sequence_form import SequenceForm
from repro.evaluation.averages import Averages, BoardRows, engine_rows
from repro.games.game import Game
from repro.games.holdem import HoldemCards
from repro.games.isomorphism import Coding
from repro.inside.strategies import Hands, infosets_of
from repro.policies.readout import Seat

_ROUNDING = 1e-12
"""Relative to the largest, reach that is none."""


@dataclass(frozen=True)
class ActionValues:
    """Chips by action `[infosets, actions]`; nan where an action is illegal, or such an opponent never comes there."""

    played: Tensor
    at_best: Tensor
    against_best: Tensor

    def at(self, infosets: Tensor) -> ActionValues:
        """Those of some infosets."""
        return ActionValues(self.played[infosets], self.at_best[infosets], self.against_best[infosets])


@dataclass(frozen=True)
class Loss:
    """What a player would gain, in chips per game, by acting otherwise after one line of betting alone.

    Attributes:
        node: of the line.
        chips: all hands and boards together.
        infosets: numbers of those at which most is lost, and what, most first; empty where they are too many.
    """

    node: int
    chips: float
    infosets: Sequence[tuple[int, float]] = ()


# -- one card each ---------------------------------------------------------------------------------------------------


class OneCardValues:
    """Values of what an agent plays in a game with one private card each.

    Attributes:
        table: `[infosets, actions]` what both seats play.
        values: of every infoset.
    """

    def __init__(self, game: Game, seats: Sequence[Seat]) -> None:
        rows = engine_rows(game)
        assert isinstance(rows.engine, SequenceForm)  # type: ignore[union-attr]
        self.game, self.engine = game, rows.engine  # type: ignore[union-attr]
        self.table = Averages(rows).table(seats)
        histories = Histories(game)
        responses = [self.engine.best_response(self.table, player)[1] for player in range(2)]
        met, played = histories.is_met(self.table), histories.action_values(self.table)
        at_best, against = torch.empty_like(played), torch.empty_like(played)
        for player, own in enumerate(game.player_slice):
            at_best[own] = histories.action_values(responses[player])[own]
            against[own] = histories.action_values(responses[1 - player])[own]
            against[own][~histories.is_met(responses[1 - player])[own]] = torch.nan
        for values in (played, at_best):
            values[~met] = torch.nan
        self.values = ActionValues(played, at_best, against)

    def losses(self) -> list[Loss]:
        """Of every decision node, most first."""
        q, game = self.engine.action_values(self.table), self.game
        best = q.masked_fill(~game.legal, -torch.inf).amax(1)
        gain = self.engine.own_reach(self.table) * (best - (q * self.table).sum(1))
        found = []
        for node in range(game.tree.nodes):
            if int(game.tree.player[node]) >= 0:
                first = int(game.first_infoset[node])
                of_node = gain[first : first + game.cards.cells[int(game.tree.round[node])]]
                most = of_node.argsort(descending=True)
                infosets = [(first + int(i), float(of_node[i])) for i in most if of_node[i] > 0]
                found.append(Loss(node, float(of_node.sum()), infosets))
        return sorted(found, key=lambda loss: -loss.chips)


# -- Hold'em with one board ------------------------------------------------------------------------------------------


class BoardValues:
    """Values of what an agent plays on one board of a Hold'em game with one board.

    Args:
        board: `[cards]` any of its isomorphism class.
    """

    def __init__(self, game: Game, seats: Sequence[Seat], board: Tensor) -> None:
        cards = game.cards
        assert isinstance(cards, HoldemCards)
        coding = Coding(cards.ranks, cards.suits, (len(board),), private=0)
        canonical = coding.decode(coding.encode(board[None]))
        self._form = HoldemForm(game, BoardSample(canonical, torch.ones(1, dtype=torch.float64)))
        self.table = Averages(BoardRows(game, self._form)).table(seats)
        self._game = game

    def at(self, node: int, hands: Hands) -> ActionValues:
        """`[hands, actions]` of the player to act at a node after the board."""
        form, player = self._form, int(self._game.tree.player[node])
        rows = torch.searchsorted(form.infosets[form.player_slice[player]], infosets_of(self._game, node, hands))
        rows = rows + form.player_slice[player].start
        opponent = 1 - player
        response = self.table.clone()
        on_board = torch.zeros(form.rows, dtype=torch.bool)
        for n, first in enumerate(form.first_row.tolist()):
            if int(self._game.tree.player[n]) == opponent and int(self._game.tree.round[n]):
                on_board[first : first + len(form.boards.before)] = True
        best = form.best_response(self.table, opponent)[1]
        response[on_board] = best[on_board]
        legal = self._game.legal_at(infosets_of(self._game, node, hands))

        def per_game(table: Tensor, best_response: bool) -> Tensor:
            q, everywhere = np.zeros(table.shape), form.others_reach(table, player)
            form.evaluate(table, player, best_response, action_values=q)
            reach = everywhere[rows, None]
            # Where no hand can be met, subtraction leaves rounding errors.
            met = reach > _ROUNDING * everywhere.max()
            return torch.where(legal & met, torch.from_numpy(q)[rows] / reach, torch.nan)

        return ActionValues(per_game(self.table, False), per_game(self.table, True), per_game(response, False))


def board_losses(game: Game, seats: Sequence[Seat], boards: int | None, seed: int) -> list[Loss]:
    """Of every decision node of a Hold'em game with one board, most first, by `HoldemForm.deviations`.

    Args:
        boards: so many random ones, by which it is estimated; None: all.
        seed: names the draw.
    """
    drawn = all_boards(game) if boards is None else sample_boards(game, boards, generator(seed, "evaluation boards"))
    form = HoldemForm(game, drawn)
    table = Averages(BoardRows(game, form)).table(seats)
    by_node = {node: chips for player in range(2) for node, chips in form.deviations(table, player).at.items()}
    return sorted((Loss(node, chips) for node, chips in by_node.items()), key=lambda loss: -loss.chips)
