"""The networks, built from torch's own modules and the few that torch lacks.

A network maps features `[n, features]` and a legal mask `[n, actions]` to `[n, actions]`: a `body` (a Sequential)
and a `head` that knows about legal actions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from repro.config import NetworkConfig
from repro.networks.features import FeatureColumns

_MASKED = -1e9

_DNET_LAYERS = 7
"""Of D2CFR's value network, on its longer way, and of its policy network; both counted with the output."""


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


class Merge(nn.Module):
    """Branches that each see some of the columns; their outputs side by side go through one linear layer.

    Args:
        columns: per branch, the columns that it sees.
        branches: each ends in `inputs` features.
        inputs, outputs: width of one branch's output, and of the layer's.
    """

    def __init__(self, columns: Sequence[slice], branches: Sequence[nn.Sequential], inputs: int, outputs: int) -> None:
        super().__init__()
        self.columns, self.inputs = tuple(columns), inputs
        self.branches = nn.ModuleList(branches)
        self.linear = nn.Linear(len(branches) * inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.cat([b(x[:, c]) for c, b in zip(self.columns, self.branches, strict=True)], 1))


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


class StateAndAdvantages(nn.Module):
    """Head of D2CFR's DNet: `r = Q - V` per action, zero where illegal, and V, times `state_scale`, as one more column.

    Q has two hidden layers of its own and V one: the longer and the shorter branch [Li et al., Sec. III].

    Attributes:
        state_scale: 1, but for while the network is fitted, where it decides what an error in V counts.
    """

    def __init__(self, width: int, actions: int) -> None:
        super().__init__()
        self.action = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, actions)
        )
        self.state = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.state_scale = 1.0

    def forward(self, x: Tensor, legal: Tensor) -> Tensor:
        value = self.state(x)
        return torch.cat([(self.action(x) - value) * legal, self.state_scale * value], -1)


class Network(nn.Module):
    """Features and legal mask in, one number per action out (zero where illegal)."""

    def __init__(self, body: nn.Sequential, head: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward(self, x: Tensor, legal: Tensor) -> Tensor:
        return self.head(self.body(x), legal)


def value_network(config: NetworkConfig, columns: FeatureColumns, actions: int) -> Network:
    """The advantage network: the configured body with a dueling head, or with none for `fc` and `deep_cfr`.

    `dnet` has one output more: the state's value.
    """
    if config.architecture == "fc":
        return fc(columns.count, config.width, actions, config.layers or 0, MaskedLinear())
    if config.architecture == "dnet":
        return dnet(columns, config.width, actions)
    if config.architecture == "deep_cfr":
        return deep_cfr(columns, config.width, config.card_width or config.width, actions, MaskedLinear())
    return Network(_body(config, columns), Dueling(config.width, actions))


def average_network(config: NetworkConfig, columns: FeatureColumns, actions: int) -> Network:
    """The average-strategy network: the configured body, one more layer (but for `fc`, `deep_cfr`), masked softmax.

    That of `dnet` is fully connected, of as many layers.
    """
    if config.architecture == "fc":
        return fc(columns.count, config.width, actions, config.layers or 0, MaskedSoftmax())
    if config.architecture == "dnet":
        return fc(columns.count, config.width, actions, _DNET_LAYERS - 1, MaskedSoftmax())
    if config.architecture == "deep_cfr":
        return deep_cfr(columns, config.width, config.card_width or config.width, actions, MaskedSoftmax())
    width = config.width
    body = _body(config, columns)
    body.extend([nn.Linear(width, width), nn.ReLU(), nn.Linear(width, actions)])
    return Network(body, MaskedSoftmax())


def dnet(columns: FeatureColumns, width: int, actions: int) -> Network:
    """D2CFR's value network [Li et al., Sec. III]: a shared trunk, then the two branches of `StateAndAdvantages`."""
    body = nn.Sequential()
    for i in range(_DNET_LAYERS - 3):
        body.extend([nn.Linear(width if i else columns.count, width), nn.ReLU()])
    return Network(body, StateAndAdvantages(width, actions))


def fc(features: int, width: int, actions: int, layers: int, head: nn.Module) -> Network:
    """`layers` fully-connected ReLU layers of `width` units and a linear output."""
    body = nn.Sequential()
    for i in range(layers):
        body.extend([nn.Linear(width if i else features, width), nn.ReLU()])
    body.append(nn.Linear(width if layers else features, actions))
    return Network(body, head)


def deep_cfr(columns: FeatureColumns, width: int, card_width: int, actions: int, head: nn.Module) -> Network:
    """Deep CFR's network [Brown et al. 2018, Fig. 1]: seven layers, embeddings and output not counted.

    Cards: an embedding per set (see `repro.networks.holdem_features`), then three layers, which the later paper makes
    3 `width` wide (`card_width`). Bets: two layers. Together: three, normalised, and a linear output. Skip connections
    are on the layers of equal width.
    """
    cards = slice(columns.cards[0].start, columns.cards[-1].stop)
    sets = [slice(c.start - cards.start, c.stop - cards.start) for c in columns.cards]
    # Weights start as those of torch's linear layers do: as large as `nn.Embedding`'s are, they make networks memorise.
    embeddings = [nn.Sequential(nn.Linear(c.stop - c.start, width, bias=False)) for c in sets]
    last = Residual(width) if card_width == width else nn.Linear(card_width, width)
    card_branch = nn.Sequential(
        Merge(sets, embeddings, width, card_width), nn.ReLU(), Residual(card_width), nn.ReLU(), last, nn.ReLU()
    )
    bets = columns.state.stop - columns.state.start
    bet_branch = nn.Sequential(nn.Linear(bets, width), nn.ReLU(), Residual(width), nn.ReLU())
    body = nn.Sequential(Merge([cards, columns.state], [card_branch, bet_branch], width, width), nn.ReLU())
    for _ in range(2):
        body.extend([Residual(width), nn.ReLU()])
    body.extend([Normalise(), nn.Linear(width, actions)])
    return Network(body, head)


def _body(config: NetworkConfig, columns: FeatureColumns) -> nn.Sequential:
    """Features to `width` normalised ones; the last layers are the same in both architectures."""
    width = config.width
    if config.architecture == "brown":
        first: nn.Module = _branches(columns, width, config.card_width or width)
    else:
        first = nn.Linear(columns.count, width)
    return nn.Sequential(first, nn.ReLU(), Residual(width), nn.ReLU(), Normalise())


def _branches(columns: FeatureColumns, width: int, card_width: int) -> Merge:
    """The two branches of Brown et al. [2018, Fig. 1], as in the SD-CFR authors' code, and the layer that joins them.

    Cards: each set (private hand, board) has a layer of its own, where the paper sums embeddings of its cards; then
    three layers, of which the last is as wide as the rest of the network. Everything else: two layers. Skip
    connections are on the layers of equal width.
    """
    cards = slice(columns.cards[0].start, columns.cards[-1].stop)
    sets = [slice(c.start - cards.start, c.stop - cards.start) for c in columns.cards]
    card_branch = nn.Sequential(
        Merge(sets, [nn.Sequential(nn.Linear(c.stop - c.start, width), nn.ReLU()) for c in sets], width, card_width),
        nn.ReLU(), Residual(card_width), nn.ReLU(), nn.Linear(card_width, width), nn.ReLU(),
    )  # fmt: skip
    features = columns.state.stop - columns.state.start
    state_branch = nn.Sequential(nn.Linear(features, width), nn.ReLU(), Residual(width), nn.ReLU())
    return Merge([cards, columns.state], [card_branch, state_branch], width, width)


def parameter_count(network: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(p.numel() for p in network.parameters())
