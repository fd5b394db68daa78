"""How large networks are in a game, told without making them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from repro.config.schema import NetworkConfig
from repro.games.game import Game
from repro.networks.inputs import network_columns
from repro.networks.modules import average_network, value_network


class NetworkSize(NamedTuple):
    """Of all that a network's `state_dict` holds.

    Attributes:
        bytes: of its tensors together.
        tensors: how many there are.
    """

    bytes: float
    tensors: int


def size_of(network: nn.Module) -> NetworkSize:
    """Of a network, which may be on torch's device `meta`."""
    state = list(network.state_dict().values())
    return NetworkSize(float(sum(tensor.numel() * tensor.element_size() for tensor in state)), len(state))


def network_sizes(network: NetworkConfig, game: Game) -> tuple[NetworkSize, NetworkSize]:
    """Of a value network and of an average network."""
    columns = network_columns(game)
    with torch.device("meta"):  # Which knows shapes and allocates nothing.
        made = (make(network, columns, game.num_actions) for make in (value_network, average_network))
        value, average = map(size_of, made)
    return value, average
