"""What a network answers about many infosets, some at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from repro.networks.card_programs import CardAnswers
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.inputs import Inputs
from repro.networks.programs import if_compilable

_AT_ONCE = 1 << 15
"""Rows of one forward pass: what they need fits the cache."""

_ANSWERS_AT_ONCE = 1 << 21
"""Answers in memory at a time, where infosets are betting nodes times cells."""

Portion = tuple[Tensor, Tensor, Tensor]
"""Which of the infosets, `[m]` int64, and of these the network's output and the legal mask, `[m, ...]`."""


@torch.no_grad()
def answers(network: nn.Module, inputs: Inputs, infosets: Tensor) -> Iterator[Portion]:
    """What a network puts out for infosets `[n]`, in portions.

    Where it sees cards, and has a form for it, each row is made of tables of cards and betting nodes; infosets that are
    all pairs of some betting nodes and some cells, as an exact engine's are, take a fraction of that again.
    """
    if isinstance(inputs, HoldemFeatures) and infosets.device.type == "cpu":
        compiled = if_compilable(CardAnswers, network, inputs)
        if compiled is not None:
            yield from _of_cards(compiled, inputs, infosets)
            return
    for rows in torch.arange(len(infosets), device=infosets.device).split(_AT_ONCE):
        features, legal = inputs(infosets.index_select(0, rows))
        yield rows, network(features, legal), legal


def _of_cards(compiled: CardAnswers, inputs: HoldemFeatures, infosets: Tensor) -> Iterator[Portion]:
    pairs = _pairs(inputs, infosets)
    if pairs is not None:
        yield from _of_pairs(compiled, inputs, *pairs)
        return
    for rows in torch.arange(len(infosets)).split(_AT_ONCE):
        some = infosets.index_select(0, rows)
        yield rows, compiled.of_rows(some), inputs.game.legal_at(some)


def _pairs(inputs: HoldemFeatures, infosets: Tensor) -> tuple[Tensor, Tensor] | None:
    """Betting nodes and cells, if many infosets are all their pairs, node by node."""
    if len(infosets) < _AT_ONCE:
        return None
    node, cell = inputs.game.locate(infosets)
    nodes, count = node.unique_consecutive(return_counts=True)
    if len(nodes.unique()) < len(nodes) or bool((count != count[0]).any()):
        return None
    cells = cell.view(len(nodes), -1)
    rounds = inputs.game.tree.round[nodes]
    if bool((rounds != rounds[0]).any()) or bool((cells != cells[0]).any()):
        return None
    return nodes, cells[0]


def _of_pairs(compiled: CardAnswers, inputs: HoldemFeatures, nodes: Tensor, cells: Tensor) -> Iterator[Portion]:
    legal = inputs.game.tree.legal[nodes]
    first = torch.arange(len(nodes)) * len(cells)
    for some in torch.arange(len(cells)).split(max(1, _ANSWERS_AT_ONCE // len(nodes))):
        found = compiled.of_pairs(nodes, cells[some])
        rows = (first[:, None] + some).flatten()
        yield rows, found.flatten(0, 1), legal.repeat_interleave(len(some), 0)
