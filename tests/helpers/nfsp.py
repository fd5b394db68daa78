"""An NFSP configuration that takes milliseconds per iteration, and transitions for its memories."""

from __future__ import annotations

from typing import Any

import torch

from repro.algorithms.nfsp import NFSP, NFSPConfig, Player
from repro.algorithms.nfsp_strategies import ListedPlayer
from repro.algorithms.replay import Transitions
from repro.config import NetworkConfig, ReadoutConfig
from repro.games import Game
from repro.networks.inputs import network_inputs
from repro.policies import TabularPolicy
from tests.helpers.draws import seeded
from tests.helpers.training import config_of, tables_of

ONE_LAYER = NetworkConfig("fc", 32, 1)


def small_config(**changes: Any) -> NFSPConfig:
    values: dict[str, Any] = {
        "name": "nfsp",
        "iterations": 8,
        "snapshot_every": 2,
        "readouts": {"nfsp": ReadoutConfig("average_network")},
        "hands": 60,
        "eta": 0.3,
        "epsilon": 0.1,
        "replay_capacity": 500,
        "reservoir_capacity": 150,
        "steps_per_update": 16,
        "batch_size": 32,
        "target_every": 5,
        "value_learning_rate": 0.05,
        "average_learning_rate": 0.05,
    }
    return NFSPConfig(**{**values, **changes})


def small_model(game: Game, seed: int = 0, **changes: Any) -> NFSP:
    return NFSP(game, small_config(**changes), ONE_LAYER, seed)


def played(model: NFSP) -> TabularPolicy:
    """The average strategy now, as it is read out, in a game with an exact engine."""
    return tables_of(model.game, config_of(model.algorithm, ONE_LAYER, model.seed), model)["nfsp"]


def small_player(game: Game, player: int = 0, **changes: Any) -> Player:
    return Player(game, player, small_config(**changes), ONE_LAYER, *network_inputs(game), seed=0)


def listed(player: Player) -> ListedPlayer:
    """The player's strategies, in a game with few infosets."""
    assert isinstance(player.strategies, ListedPlayer)
    return player.strategies


def made_up(start: int, n: int, first: int, infosets: int) -> Transitions:
    """Transitions that can be told apart by their rewards."""
    draw = seeded(start)
    following = torch.randint(-1, infosets, (n,), generator=draw)
    return Transitions(
        infosets=first + torch.randint(infosets, (n,), generator=draw),
        actions=torch.randint(3, (n,), generator=draw),
        rewards=torch.arange(start, start + n).float(),
        following=torch.where(following < 0, -1, first + following),
        best_response=torch.rand(n, generator=draw) < 0.5,
    )
