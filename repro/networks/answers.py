"""What a network answers about many infosets, some at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from repro.networks.card_programs import CardAnswers
from repro.networks.holdem_features import HoldemFeatures
from repro.networks.inputs import Inputs
from repro.networks.programs import NotCompilableError

_AT_ONCE = 1 << 15
"""Rows of one forward pass: what they need fits the cache."""

_ANSWERS_AT_ONCE = 1 << 21
"""Answers in memory at a time, where infosets are betting nodes times cells."""


@torch.no_grad()
def answers(network: nn.Module, inputs: Inputs, infosets: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Portions of `infosets` `[n]`: which of them, `[m]` int64, and of these the output and the legal mask.

    Infosets that are all pairs of some betting nodes and some cells, as an exact engine's are, take a fraction of the
    work, where the network has a form for it.
    """
    grid = _grid(inputs, infosets)
    if grid is not None and isinstance(inputs, HoldemFeatures):
        try:
            yield from _of_grid(CardAnswers(network, inputs), inputs, *grid)
            return
        except NotCompilableError:
            pass
    for rows in torch.arange(len(infosets), device=infosets.device).split(_AT_ONCE):
        features, legal = inputs(infosets.index_select(0, rows))
        yield rows, network(features, legal), legal


def _grid(inputs: Inputs, infosets: Tensor) -> tuple[Tensor, Tensor] | None:
    """Betting nodes and cells, if the infosets are all their pairs, node by node."""
    if not isinstance(inputs, HoldemFeatures) or infosets.device.type != "cpu" or len(infosets) < _AT_ONCE:
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


def _of_grid(
    of: CardAnswers, inputs: HoldemFeatures, nodes: Tensor, cells: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    legal = inputs.game.tree.legal[nodes]
    first = torch.arange(len(nodes)) * len(cells)
    for some in torch.arange(len(cells)).split(max(1, _ANSWERS_AT_ONCE // len(nodes))):
        found = of(nodes, cells[some])
        rows = (first[:, None] + some).flatten()
        yield rows, found.flatten(0, 1), legal.repeat_interleave(len(some), 0)
