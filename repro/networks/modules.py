"""The networks, built from torch's own modules and the few that torch lacks.

A network maps features `[n, features]` and a legal mask `[n, actions]` to `[n, actions]`: a `body` (a Sequential)
and a `head` that knows about legal actions.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import layer_norm

_MASKED = -1e9


class Residual(nn.Module):
    """`x + linear(x)`: the skip connection on a layer of equal width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x)


class Normalise(nn.Module):
    """Each sample's features to zero mean and unit variance, without learned scale or shift."""

    eps = 1e-5

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, x.shape[-1:], eps=self.eps)


class MaskedLinear(nn.Module):
    """Head: zero on illegal actions, otherwise the body's output as it is."""

    def forward(self, x: Tensor, legal: Tensor) -> Tensor:
        return x * legal


class MaskedSoftmax(nn.Module):
    """Head: probabilities over the legal actions."""

    def forward(self, x: Tensor, legal: Tensor) -> Tensor:
        return x.masked_fill(~legal, _MASKED).softmax(-1)


class Dueling(nn.Module):
    """Head: `V + A - mean of legal A`, zero on illegal actions; V and A each have a hidden layer of their own."""

    def __init__(self, width: int, actions: int) -> None:
        super().__init__()
        self.advantage = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, actions))
        self.value = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x: Tensor, legal: Tensor) -> Tensor:
        advantage = self.advantage(x) * legal
        mean = advantage.sum(-1, keepdim=True) / legal.sum(-1, keepdim=True)
        return (self.value(x) + advantage - mean) * legal


class Network(nn.Module):
    """Features and legal mask in, one number per action out (zero where illegal)."""

    def __init__(self, body: nn.Sequential, head: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, x: Tensor, legal: Tensor) -> Tensor:
        return self.head(self.body(x), legal)


def sd_cfr_value(features: int, width: int, actions: int) -> Network:
    """The advantage network of the SD-CFR code for Leduc: FC, FC with skip, normalisation, dueling head."""
    return Network(_sd_cfr_body(features, width), Dueling(width, actions))


def sd_cfr_average(features: int, width: int, actions: int) -> Network:
    """The average-strategy network of the SD-CFR code for Leduc: the same body, one more layer, masked softmax."""
    body = _sd_cfr_body(features, width)
    body.extend([nn.Linear(width, width), nn.ReLU(), nn.Linear(width, actions)])
    return Network(body, MaskedSoftmax())


def _sd_cfr_body(features: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, width), nn.ReLU(), Residual(width), nn.ReLU(), Normalise())


def fc(features: int, width: int, actions: int, layers: int, head: nn.Module) -> Network:
    """`layers` fully-connected ReLU layers of `width` units and a linear output."""
    body = nn.Sequential()
    for i in range(layers):
        body.extend([nn.Linear(width if i else features, width), nn.ReLU()])
    body.append(nn.Linear(width if layers else features, actions))
    return Network(body, head)


def value_network(architecture: str, features: int, width: int, layers: int | None, actions: int) -> Network:
    """The advantage network of an architecture name: `sd_cfr`, or `fc` with `layers` hidden layers."""
    if architecture == "sd_cfr":
        return sd_cfr_value(features, width, actions)
    return fc(features, width, actions, layers or 0, MaskedLinear())


def average_network(architecture: str, features: int, width: int, layers: int | None, actions: int) -> Network:
    """The average-strategy network of an architecture name: `sd_cfr`, or `fc` with `layers` hidden layers."""
    if architecture == "sd_cfr":
        return sd_cfr_average(features, width, actions)
    return fc(features, width, actions, layers or 0, MaskedSoftmax())


def parameter_count(network: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(p.numel() for p in network.parameters())
