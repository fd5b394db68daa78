"""SGD steps of Deep CFR's network as one compiled loop, on minibatches of cards and betting nodes, not of features.

Of the products that a step on features takes, these are not needed: a set's cards pick rows of its embedding, and no
non-linearity stands between embeddings and the first layer, so that a row of the minibatch adds up a handful of rows of
one small table (*first*, one row per card and set, a product per step); and the betting branch sees as many different
inputs as there are betting nodes, each of which goes through it once. Gradients take the same ways back. What is left
of a step are the layers of the card branch after its first, half of the layer that joins the branches, and the trunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float32

from repro.common.compiled import Array, compiled_unchecked
from repro.networks.steps import (
    INPUTS,
    MASKED_LINEAR,
    OUTPUTS,
    PLACE,
    add_to_average,
    apply_head,
    backward,
    forward,
    part,
    update,
)

_BLOCK = 256
"""Rows of a minibatch that go through the network together, so that all their layers fit a core's cache."""


class CardNetwork(NamedTuple):
    """Where the parts of a network are; parameters are counted in the order of the network's own.

    Attributes:
        layers: table as in `repro.networks.steps`: a GIVEN layer that takes the cards, the rest of their branch, a
            GIVEN layer that joins the branches, and the trunk.
        bets: table of the betting branch.
        joining: number of the layer that joins.
        head: `[3]`, as in `repro.networks.steps`.
        embeddings: `[sets]` where each set's `[width, columns]` weights begin.
        first_weights, join_weights: where the weights `[outputs, inputs]` begin of the layers after the embeddings and
            after both branches; the biases follow.
        columns: `[cards, 3]` the columns of a set that each card has: itself, its rank and its suit.
    """

    layers: Array
    bets: Array
    joining: int
    head: Array
    embeddings: Array
    first_weights: int
    join_weights: int
    columns: Array


@compiled_unchecked
def take_card_steps(
    network: Any, states: Any, node_legal: Any, parameters: Any, gradient: Any, mean: Any, square: Any, average: Any,
    done: Any, rates: Any, clip_norm: Any, decay: Any, matrices: Any, muon_over_adam: Any, focus: Any, cards: Any,
    nodes: Any, weights: Any, targets: Any, updates: Any, losses: Any,
) -> None:  # fmt: skip
    """Take steps, and write each one's loss before it was taken.

    Args:
        network: a `CardNetwork`.
        states, node_legal: `[nodes, ...]` float32, the betting branch's inputs, and the legal mask.
        parameters, gradient, mean, square, average, done, rates, clip_norm, decay, matrices, muon_over_adam, focus,
            updates, losses: as of `steps.take_steps`.
        cards: `[minibatches, rows, most]`: rows of the table *first*, `set * cards + card`; -1 where there is none.
        nodes: `[minibatches, rows]`.
        weights, targets: `[minibatches, rows]`, `[minibatches, rows, actions]`.
    """
    rows, table, bets = nodes.shape[1], network.layers, network.bets
    last_bets, width = len(bets) - 1, bets[-1, OUTPUTS]
    outputs, slopes, matrix, scratch = _buffers(table, min(rows, _BLOCK))
    bet_outputs, bet_slopes, bet_matrix, bet_scratch = _buffers(bets, len(states))
    of_bets, d_bets = part(bet_outputs, bets, last_bets, len(states)), part(bet_slopes, bets, last_bets, len(states))
    embedded = np.empty((len(network.embeddings), len(network.columns), width), np.float32)
    first = np.empty((len(network.embeddings) * len(network.columns), table[0, OUTPUTS]), np.float32)
    joined, d_first, d_joined = np.empty_like(of_bets), np.empty_like(first), np.empty_like(of_bets)
    of_block = np.zeros_like(gradient)
    for step in range(len(rates)):
        which = min(step, len(weights) - 1)
        _first_of_cards(network, parameters, embedded, first)
        for layer in range(len(bets)):
            forward(bets, layer, states, parameters, bet_outputs, bet_matrix, bet_scratch[layer])
        _joined_bets(network, parameters, of_bets, joined)
        gradient[:] = 0
        d_first[:] = 0
        d_joined[:] = 0
        losses[step] = 0
        for begin in range(0, rows, _BLOCK):
            block = slice(begin, begin + _BLOCK)
            losses[step] += _gradient_of_block(
                network, node_legal, parameters, of_block, first, joined, focus, cards[which, block],
                nodes[which, block], weights[which, block], targets[which, block], outputs, slopes, matrix, scratch,
                d_first, d_joined,
            )  # fmt: skip
            gradient += of_block
        _joined_bets_back(network, parameters, gradient, of_bets, d_joined, d_bets)
        for layer in range(last_bets, -1, -1):
            backward(bets, layer, states, parameters, gradient, bet_outputs, bet_slopes, bet_matrix, bet_scratch[layer])
        _first_of_cards_back(network, parameters, gradient, embedded, d_first)
        if step < updates:
            update(
                parameters, gradient, mean, square, done + step + 1, rates[step], clip_norm, matrices, muon_over_adam
            )
            add_to_average(average, parameters, decay, done + step + 1)


@compiled_unchecked
def _gradient_of_block(
    network: Any, node_legal: Any, parameters: Any, gradient: Any, first: Any, joined: Any, focus: Any, cards: Any,
    nodes: Any, weight: Any, target: Any, outputs: Any, slopes: Any, matrix: Any, scratch: Any, d_first: Any,
    d_joined: Any,
) -> Any:  # fmt: skip
    """The loss of some rows; its gradient is written, or, of the two tables that rows share, added to theirs."""
    table, joining, rows = network.layers, network.joining, len(nodes)
    blank, legal = np.empty((rows, 0), np.float32), np.empty((rows, node_legal.shape[1]), np.float32)
    for row in range(rows):
        legal[row] = node_legal[nodes[row]]
    taken, d_taken = part(outputs, table, 0, rows), part(slopes, table, 0, rows)
    of_cards, d_cards = part(outputs, table, joining - 1, rows), part(slopes, table, joining - 1, rows)
    together, d_together = part(outputs, table, joining, rows), part(slopes, table, joining, rows)
    _forward_block(network, parameters, first, joined, cards, nodes, outputs, matrix, scratch)
    loss = apply_head(table, network.head, float32(1), focus, legal, legal, weight, target, outputs, slopes)
    for layer in range(len(table) - 1, joining, -1):
        backward(table, layer, blank, parameters, gradient, outputs, slopes, matrix, scratch[layer])
    for row in range(rows):
        for j in range(together.shape[1]):
            slope = d_together[row, j] if together[row, j] > 0 else float32(0)
            d_together[row, j] = slope
            d_joined[nodes[row], j] += slope
    _write_weights(network, gradient, 0, np.dot(d_together.T, of_cards))
    np.dot(d_together, _weights(network, parameters, 0), d_cards)
    for layer in range(joining - 1, 0, -1):
        backward(table, layer, blank, parameters, gradient, outputs, slopes, matrix, scratch[layer])
    _take_cards_back(cards, taken, d_taken, d_first)
    return loss


@compiled_unchecked
def _forward_block(
    network: Any, parameters: Any, first: Any, joined: Any, cards: Any, nodes: Any, outputs: Any, matrix: Any,
    scratch: Any,
) -> None:  # fmt: skip
    """All layers of some rows, each with cards and a betting node of its own."""
    table, joining, rows = network.layers, network.joining, len(nodes)
    blank = np.empty((rows, 0), np.float32)
    _take_cards(cards, first, part(outputs, table, 0, rows))
    for layer in range(1, joining):
        forward(table, layer, blank, parameters, outputs, matrix, scratch[layer])
    together = part(outputs, table, joining, rows)
    np.dot(part(outputs, table, joining - 1, rows), _weights(network, parameters, 0).T, together)
    for row in range(rows):
        for j in range(together.shape[1]):
            total = together[row, j] + joined[nodes[row], j]
            # What is not a number stays so.
            together[row, j] = float32(0) if total < 0 else total
    for layer in range(joining + 1, len(table)):
        forward(table, layer, blank, parameters, outputs, matrix, scratch[layer])


@compiled_unchecked
def _buffers(table: Any, rows: Any) -> Any:
    """Outputs of all layers, their slopes, a scratch matrix, and `[layers, rows]`."""
    width = table[-1, PLACE] + table[-1, OUTPUTS]
    largest = 0
    for layer in range(len(table)):
        largest = max(largest, table[layer, INPUTS] * max(table[layer, OUTPUTS], rows))
    return (
        np.empty(rows * width, np.float32), np.empty(rows * width, np.float32), np.empty(largest, np.float32),
        np.empty((len(table), rows), np.float32),
    )  # fmt: skip


@compiled_unchecked
def _columns(matrix: Any, begin: Any, width: Any) -> Any:
    """`[rows, width]` columns of a matrix from `begin` on, side by side in memory."""
    found = np.empty((len(matrix), width), np.float32)
    for i in range(len(matrix)):
        for j in range(width):
            found[i, j] = matrix[i, begin + j]
    return found


@compiled_unchecked
def card_outputs(network: Any, states: Any, node_legal: Any, parameters: Any, cards: Any, out: Any) -> None:
    """The network's answers at all betting nodes for all sets of cards: `out` `[nodes, cells, actions]`.

    Args:
        network, states, node_legal, parameters: as for `take_card_steps`.
        cards: `[cells, most]`, a row of cards per cell; each goes through its branch once.
    """
    table, joining, nodes = network.layers, network.joining, len(states)
    per_block = max(1, _BLOCK // nodes)
    outputs, _, matrix, scratch = _buffers(table, per_block * nodes)
    branch, _, branch_matrix, branch_scratch = _buffers(table, per_block)
    first, joined = _shared(network, states, parameters)
    of_branch = _weights(network, parameters, 0).T.copy()
    for begin in range(0, len(cards), per_block):
        some = cards[begin : begin + per_block]
        cells = len(some)
        blank, blanks = np.empty((cells, 0), np.float32), np.empty((cells * nodes, 0), np.float32)
        _take_cards(some, first, part(branch, table, 0, cells))
        for layer in range(1, joining):
            forward(table, layer, blank, parameters, branch, branch_matrix, branch_scratch[layer])
        of_cards, together = (
            np.dot(part(branch, table, joining - 1, cells), of_branch),
            part(outputs, table, joining, cells * nodes),
        )
        for cell in range(cells):
            for node in range(nodes):
                for j in range(together.shape[1]):
                    total = of_cards[cell, j] + joined[node, j]
                    together[cell * nodes + node, j] = float32(0) if total < 0 else total
        for layer in range(joining + 1, len(table)):
            forward(table, layer, blanks, parameters, outputs, matrix, scratch[layer])
        last = part(outputs, table, network.head[1], cells * nodes)
        for cell in range(cells):
            for node in range(nodes):
                _answer(network.head[0], last[cell * nodes + node], node_legal[node], out[node, begin + cell])


@compiled_unchecked
def card_rows(network: Any, states: Any, node_legal: Any, parameters: Any, cards: Any, nodes: Any, out: Any) -> None:
    """The network's answers for rows of cards and betting nodes: `out` `[rows, actions]`; the rest as above."""
    table = network.layers
    first, joined = _shared(network, states, parameters)
    outputs, _, matrix, scratch = _buffers(table, min(len(nodes), _BLOCK))
    for begin in range(0, len(nodes), _BLOCK):
        some = nodes[begin : begin + _BLOCK]
        _forward_block(
            network, parameters, first, joined, cards[begin : begin + _BLOCK], some, outputs, matrix, scratch
        )
        last = part(outputs, table, network.head[1], len(some))
        for row in range(len(some)):
            _answer(network.head[0], last[row], node_legal[some[row]], out[begin + row])


@compiled_unchecked
def _shared(network: Any, states: Any, parameters: Any) -> Any:
    """What rows have in common: the table *first* of cards, and what the joining layer makes of each betting node."""
    bets, nodes = network.bets, len(states)
    bet_outputs, _, bet_matrix, bet_scratch = _buffers(bets, nodes)
    embedded = np.empty((len(network.embeddings), len(network.columns), bets[-1, OUTPUTS]), np.float32)
    first = np.empty((len(network.embeddings) * len(network.columns), network.layers[0, OUTPUTS]), np.float32)
    _first_of_cards(network, parameters, embedded, first)
    for layer in range(len(bets)):
        forward(bets, layer, states, parameters, bet_outputs, bet_matrix, bet_scratch[layer])
    joined = np.empty((nodes, bets[-1, OUTPUTS]), np.float32)
    _joined_bets(network, parameters, part(bet_outputs, bets, len(bets) - 1, nodes), joined)
    return first, joined


@compiled_unchecked
def _answer(head: Any, x: Any, legal: Any, y: Any) -> None:
    """What a head makes of one row."""
    if head == MASKED_LINEAR:
        for a in range(len(x)):
            y[a] = x[a] * legal[a]
        return
    highest, total = float32(-np.inf), float32(0)
    for a in range(len(x)):
        if legal[a] > 0:
            highest = max(highest, x[a])
    for a in range(len(x)):
        y[a] = np.exp(x[a] - highest) if legal[a] > 0 else float32(0)
        total += y[a]
    for a in range(len(x)):
        y[a] /= total


# -- the layer that joins the branches -------------------------------------------------------------------------------


@compiled_unchecked
def _weights(network: Any, parameters: Any, branch: Any) -> Any:
    """`[width, width]`, of one of the branches."""
    width = network.bets[-1, OUTPUTS]
    matrix = parameters[network.join_weights : network.join_weights + 2 * width * width].reshape(width, 2 * width)
    return _columns(matrix, branch * width, width)


@compiled_unchecked
def _write_weights(network: Any, gradient: Any, branch: Any, slopes: Any) -> None:
    width = len(slopes)
    matrix = gradient[network.join_weights : network.join_weights + 2 * width * width].reshape(width, 2 * width)
    matrix[:, branch * width : (branch + 1) * width] = slopes


@compiled_unchecked
def _joined_bets(network: Any, parameters: Any, of_bets: Any, joined: Any) -> None:
    """`joined` `[nodes, width]`: what the layer makes of the betting branch alone, with its bias."""
    width = joined.shape[1]
    begin = network.join_weights + 2 * width * width
    np.dot(of_bets, _weights(network, parameters, 1).T, joined)
    joined += parameters[begin : begin + width]


@compiled_unchecked
def _joined_bets_back(network: Any, parameters: Any, gradient: Any, of_bets: Any, d_joined: Any, d_bets: Any) -> None:
    width = d_joined.shape[1]
    begin = network.join_weights + 2 * width * width
    bias = gradient[begin : begin + width]
    for node in range(len(d_joined)):
        for j in range(width):
            bias[j] += d_joined[node, j]
    _write_weights(network, gradient, 1, np.dot(d_joined.T, of_bets))
    np.dot(d_joined, _weights(network, parameters, 1), d_bets)


# -- embeddings and the layer after them -----------------------------------------------------------------------------


@compiled_unchecked
def _first_of_cards(network: Any, parameters: Any, embedded: Any, first: Any) -> None:
    """`embedded` `[sets, cards, width]`, each card's embedding, and `first`, what the next layer makes of it.

    A hand is in every row, so that the bias can be half of each of its cards'.
    """
    sets, deck, width = embedded.shape
    outputs, columns = first.shape[1], network.columns[-1, 2] + 1
    end = network.first_weights + outputs * width * sets
    layer = parameters[network.first_weights : end].reshape(outputs, width * sets)
    for s in range(sets):
        begin = network.embeddings[s]
        weight = parameters[begin : begin + width * columns].reshape(width, columns)
        for card in range(deck):
            for i in range(width):
                embedded[s, card, i] = float32(0)
                for c in range(3):
                    embedded[s, card, i] += weight[i, network.columns[card, c]]
        np.dot(embedded[s], _columns(layer, s * width, width).T, first[s * deck : (s + 1) * deck])
    for card in range(deck):
        for j in range(outputs):
            first[card, j] += float32(0.5) * parameters[end + j]


@compiled_unchecked
def _first_of_cards_back(network: Any, parameters: Any, gradient: Any, embedded: Any, d_first: Any) -> None:
    sets, deck, width = embedded.shape
    outputs, columns = d_first.shape[1], network.columns[-1, 2] + 1
    end = network.first_weights + outputs * width * sets
    bias = gradient[end : end + outputs]
    for card in range(deck):
        for j in range(outputs):
            bias[j] += float32(0.5) * d_first[card, j]
    layer = parameters[network.first_weights : end].reshape(outputs, width * sets)
    into = gradient[network.first_weights : end].reshape(outputs, width * sets)
    for s in range(sets):
        of_set = d_first[s * deck : (s + 1) * deck]
        into[:, s * width : (s + 1) * width] = np.dot(of_set.T, embedded[s])
        slopes = np.dot(of_set, _columns(layer, s * width, width))
        begin = network.embeddings[s]
        weight = gradient[begin : begin + width * columns].reshape(width, columns)
        for card in range(deck):
            for i in range(width):
                for c in range(3):
                    weight[i, network.columns[card, c]] += slopes[card, i]


@compiled_unchecked
def _take_cards(cards: Any, first: Any, y: Any) -> None:
    """`y` `[rows, outputs]`: of each row the sum over its cards, and the ReLU."""
    for row in range(len(y)):
        y[row] = 0
        for k in range(cards.shape[1]):
            card = cards[row, k]
            if card >= 0:
                for j in range(y.shape[1]):
                    y[row, j] += first[card, j]
        for j in range(y.shape[1]):
            y[row, j] = float32(0) if y[row, j] < 0 else y[row, j]


@compiled_unchecked
def _take_cards_back(cards: Any, y: Any, dy: Any, d_first: Any) -> None:
    for row in range(len(y)):
        for j in range(y.shape[1]):
            dy[row, j] = dy[row, j] if y[row, j] > 0 else float32(0)
        for k in range(cards.shape[1]):
            card = cards[row, k]
            if card >= 0:
                for j in range(y.shape[1]):
                    d_first[card, j] += dy[row, j]
