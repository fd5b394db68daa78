"""Small networks of every architecture, regression problems for them, and their gradients by autograd in float64."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from repro.config import NetworkConfig
from repro.networks.features import FeatureColumns
from repro.networks.modules import Network, average_network, value_network
from tests.helpers.draws import seeded

BUILDERS = {"value": value_network, "average": average_network}
ARCHITECTURES = [("deep_cfr", None), ("brown", None), ("sd_cfr", None), ("fc", 0), ("fc", 1), ("fc", 3)]
EVERY_NETWORK = [(kind, *architecture) for kind in BUILDERS for architecture in ARCHITECTURES]
SHAPES = [(1, 5, 8, 3), (7, 26, 64, 3), (40, 3, 4, 2), (144, 11, 16, 4)]
"""Rows, features, width, actions."""


def build(kind: str, architecture: str, layers: int | None, shape: tuple[int, int, int, int], seed: int = 0) -> Network:
    _, features, width, actions = shape
    card_width = width + 2 if architecture in ("deep_cfr", "brown") else None
    torch.manual_seed(seed)
    return BUILDERS[kind](NetworkConfig(architecture, width, layers, card_width), columns(features), actions)


def columns(features: int) -> FeatureColumns:
    """One column of private cards, two of the board where there are that many, the rest state."""
    if features == 3:
        return FeatureColumns(slice(0, 2), (slice(2, 3),))
    return FeatureColumns(slice(0, features - 3), (slice(features - 3, features - 2), slice(features - 2, features)))


def problem(shape: tuple[int, int, int, int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, legal mask with at least one legal action per row, weights (some of them zero) and targets."""
    rows, features, _, actions = shape
    draw = seeded(seed)
    x = torch.randn(rows, features, generator=draw)
    legal = torch.rand(rows, actions, generator=draw) < 0.5
    legal[torch.arange(rows), torch.randint(actions, (rows,), generator=draw)] = True
    weight = torch.rand(rows, 1, generator=draw)
    if rows > 1:
        weight[0] = 0.0
    # Targets at illegal actions are not zero here; they must have no influence.
    return x, legal, weight, torch.randn(rows, actions, generator=draw)


def exact_gradients(
    network: Network, x: Tensor, legal: Tensor, weight: Tensor, target: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Output and gradients in float64 from the loss written down in `Gradients`, by torch's autograd."""
    exact = copy.deepcopy(network).double()
    exact.zero_grad()
    output = exact(x.double(), legal)
    ((output - target.double()).square() * weight.double() / 2).sum().backward()
    return output.detach(), [p.grad for p in exact.parameters() if p.grad is not None]
