"""Hold'em games by a short name and their deals; Deep CFR on decks so small that every strategy fits a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from repro.abstraction import Abstraction
from repro.abstraction.one_board import OneBoardBuckets
from repro.algorithms.deep_cfr import DeepCFR
from repro.config import NetworkConfig, ReadoutConfig
from repro.games import Game, load
from repro.games.holdem import HoldemCards
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.modules import value_network
from repro.policies.ensemble import Average
from repro.policies.regret_matching import regret_matching
from tests.helpers.deep_cfr import small_config
from tests.helpers.draws import seeded
from tests.helpers.training import advanced

HOLDEM = ("fhp", "fhp_limit", "fhp5", "hunl_pot")
"""Names of games."""

GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "fhp": ("fhp", {}),
    "fhp5": ("fhp5", {}),
    "fhp_limit": ("fhp_limit", {}),
    "hunl_pot": ("hunl_pot", {}),
    "small_fhp": ("fhp", {"ranks": 5, "suits": 2}),
    "small_limit": ("fhp_limit", {"ranks": 3, "suits": 3, "flop_cards": 4}),
    "small_hunl": ("hunl_pot", {"ranks": 4, "suits": 3, "stack": 1050.0}),
}

NETWORK = NetworkConfig("deep_cfr", 8, None, 12)
READOUTS = {
    "sd_cfr": ReadoutConfig("ensemble"),
    "deep_cfr": ReadoutConfig("average_network"),
    "sd_cfr_2": ReadoutConfig("ensemble", 2),
}


def game_of(key: str) -> Game:
    name, parameters = GAMES[key]
    return load(name, **parameters)


def cards_in(game: Game) -> HoldemCards:
    assert isinstance(game.cards, HoldemCards)
    return game.cards


def random_deals(n: int, cards: HoldemCards, seed: int) -> Tensor:
    """`[n, 4 + board]` hands and board."""
    draw = torch.rand(n, cards.ranks * cards.suits, generator=seeded(seed))
    return draw.topk(4 + cards.board_cards[-1], 1).indices


def board_buckets(grouped: Abstraction) -> Tensor:
    """`[cells]` the bucket of each cell on the one board."""
    assert isinstance(grouped.buckets, OneBoardBuckets)
    return grouped.buckets.of_cells(1, torch.arange(grouped.game.cards.cells[1]))


def drawn_infosets(game: Game, n: int, seed: int) -> tuple[Tensor, list[int], list[list[int]]]:
    """Infosets of random nodes and random deals, the rounds mixed; their nodes, and the cards as they were dealt."""
    cards, draw = cards_in(game), seeded(seed)
    decisions = (game.tree.player >= 0).nonzero().flatten()
    # As many of every round as of any other: most nodes are late.
    rounds = game.tree.round[decisions]
    each = torch.bincount(rounds)[rounds]
    nodes = decisions[torch.multinomial(1 / each.double(), n, replacement=True, generator=draw)]
    dealt, infosets, seen = cards.draw(n, draw), [], []
    for node, deal in zip(nodes.tolist(), dealt, strict=True):
        round_, player = int(game.tree.round[node]), int(game.tree.player[node])
        mine = torch.cat([deal[4 : 4 + cards.board_cards[round_]], deal[2 * player : 2 * player + 2]])
        infosets.append(int(game.first_infoset[node]) + int(cards.cell(round_, mine[None])))
        seen.append(mine.tolist())
    return torch.tensor(infosets), nodes.tolist(), seen


def small_game(**changes: Any) -> Game:
    return load("fhp", **{"ranks": 4, "suits": 2, **changes})


def holdem_model(game: Game, seed: int = 0, **changes: Any) -> DeepCFR:
    given = {"strategies": "asked", "traversals": 300, "readouts": dict(READOUTS), "regret_unit": 100.0, **changes}
    return DeepCFR(game, small_config(**given), NETWORK, seed)


def trained(game: Game, iterations: int = 6, seed: int = 0, **changes: Any) -> DeepCFR:
    return advanced(holdem_model(game, seed, iterations=iterations, **changes), iterations)


def every(game: Game) -> Tensor:
    """All infosets."""
    return torch.arange(game.infosets)


def opening_rows(game: Game, player: int) -> Tensor:
    """Bool: which of a player's infosets are before the board."""
    mine = game.player_slice[player]
    return game.tree.round[game.infoset_node[mine]] == 0


def advantages(model: DeepCFR, player: int) -> list[Tensor]:
    """Per iteration `[the player's infosets, actions]`, what the stored networks say, by torch."""
    game = model.game
    network = value_network(NETWORK, model.strategies.columns, 3)
    features, legal = HoldemFeatures(game).rows(every(game)[game.player_slice[player]])
    found = []
    for parameters in model.history["value"][player]:
        vector_to_parameters(parameters, network.parameters())
        with torch.no_grad():
            found.append(network(features, legal))
    return found


def tables(model: DeepCFR, player: int) -> list[Tensor]:
    """Per iteration `[the player's infosets, actions]` float64, from the stored networks and opening strategies."""
    game = model.game
    early, legal = opening_rows(game, player), game.legal_at(every(game)[game.player_slice[player]])
    found = []
    for said, opening in zip(advantages(model, player), model.history["opening"][player], strict=True):
        table = regret_matching(said, legal, model.algorithm.when_no_positive).double()
        table[early] = opening.double()
        found.append(table / table.sum(1, keepdim=True))
    return found


def average_strategy(uniform: Tensor, members: Iterable[tuple[float, Tensor, Tensor]]) -> Tensor:
    """The `Average` of strategies given by weight, reach and probabilities."""
    average = Average(uniform)
    for weight, reach, strategy in members:
        average.add(weight, reach, strategy)
    return average.strategy()
