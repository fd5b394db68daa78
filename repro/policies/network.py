"""Policies that ask a network about the infosets they are given: for games with more infosets than one would tabulate.

The first betting round is a table beside the network ("at most a few thousand infosets", Deep CFR, Sec. 5.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor, nn

from repro.common.errors import ReproError
from repro.games.game import Game
from repro.networks.answers import answers
from repro.networks.features import FeatureColumns
from repro.networks.inputs import Inputs, network_inputs
from repro.networks.modules import average_network
from repro.policies.base import Policy
from repro.policies.readout import Readout
from repro.policies.snapshot import Snapshot

Reading = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`[n]` infosets, a network's output for them and the legal mask, `[n, actions]` each -> probabilities."""


def as_they_are(infosets: Tensor, output: Tensor, legal: Tensor) -> Tensor:
    """Of a network whose outputs are probabilities."""
    del infosets, legal
    return output


def opening_infosets(game: Game, player: int) -> int:
    """How many infosets the player has in the first betting round; they are the first of hers."""
    tree = game.tree
    start, stop = tree.round_slice[0]
    return int((tree.player[start:stop] == player).sum()) * game.cards.cells[0]


class NetworkPolicy:
    """One player's strategy; infosets of the other must not be asked about.

    Args:
        network: maps features and legal mask to `[n, actions]`.
        inputs: makes the network's inputs.
        read: turns the network's output into probabilities.
        opening: `[opening infosets, actions]` probabilities in the first betting round.
        first: the player's first infoset.
    """

    def __init__(self, network: nn.Module, inputs: Inputs, read: Reading, opening: Tensor, first: int) -> None:
        self._network, self._inputs, self._read = network, inputs, read
        self._opening, self._first = opening, first

    @torch.no_grad()
    def probabilities(self, infosets: Tensor) -> Tensor:
        probabilities = torch.empty(len(infosets), self._opening.shape[1], device=infosets.device)
        row = infosets - self._first
        is_early = row < len(self._opening)
        early, late = is_early.nonzero().flatten(), (~is_early).nonzero().flatten()
        probabilities.index_copy_(0, early, self._opening.index_select(0, row.index_select(0, early)).float())
        asked = infosets.index_select(0, late)
        for rows, output, legal in answers(self._network, self._inputs, asked):
            read = self._read(asked.index_select(0, rows), output, legal)
            probabilities.index_copy_(0, late.index_select(0, rows), read)
        return probabilities


class Seats:
    """A policy of each player's own: infosets are asked of the player that they belong to."""

    def __init__(self, game: Game, first: Policy, second: Policy) -> None:
        self._border, self._policies = game.player_slice[1].start, (first, second)

    def probabilities(self, infosets: Tensor) -> Tensor:
        second = infosets >= self._border
        parts = [(~second).nonzero().flatten(), second.nonzero().flatten()]
        answers = [
            p.probabilities(infosets.index_select(0, rows)) for p, rows in zip(self._policies, parts, strict=True)
        ]
        probabilities = torch.empty(len(infosets), answers[0].shape[1], dtype=answers[0].dtype, device=infosets.device)
        for rows, answer in zip(parts, answers, strict=True):
            probabilities.index_copy_(0, rows, answer.to(probabilities.dtype))
        return probabilities


class Uniform:
    """Every legal action with equal probability, in a game of any size."""

    def __init__(self, game: Game) -> None:
        self._game = game

    def probabilities(self, infosets: Tensor) -> Tensor:
        legal = self._game.legal_at(infosets).float()
        return legal / legal.sum(1, keepdim=True)


class AverageNetwork(Readout):
    """The networks that were trained on average strategies: Deep CFR's S-hat, D2CFR's policy networks, NFSP's.

    Of a snapshot's state it needs `average`, per player a network's state; `average_opening`, if networks leave the
    first betting round to tables, `[infosets, actions]` probabilities per player; and `loss/policy`, if that is known.
    """

    @cached_property
    def _inputs(self) -> tuple[Inputs, FeatureColumns]:
        return network_inputs(self.game)

    def seats(self, snapshot: Snapshot) -> list[NetworkPolicy]:
        if "average" not in snapshot.state:
            raise ReproError("the training has no average networks: algorithm.average is null.")
        return [self._seat(snapshot, player) for player in range(2)]

    def _seat(self, snapshot: Snapshot, player: int) -> NetworkPolicy:
        game, architecture, (inputs, columns) = self.game, self.config.network, self._inputs
        assert architecture is not None
        network = average_network(architecture, columns, game.num_actions).to(game.device)
        try:
            network.load_state_dict(snapshot.state["average"][player])
        except RuntimeError as error:
            raise ReproError("the training's average networks have another shape than this architecture.") from error
        openings = snapshot.state.get("average_opening")
        opening = torch.zeros(0, game.num_actions) if openings is None else openings[player]
        first = game.player_slice[player].start
        return NetworkPolicy(network, inputs, as_they_are, opening.to(game.device), first)

    def notes(self, snapshot: Snapshot) -> dict[str, float]:
        return {"loss/policy": snapshot.state["loss/policy"]} if "loss/policy" in snapshot.state else {}
