"""The exact engine of Hold'em games with one board (FHP, 5-FHP): every betting node with a vector over all hands.

Boards that differ by suits only are solved once and weighted: 1,755 flops stand for 22,100. The work on a board is in
`repro.engine.board_kernels`, with O(hands) showdowns; before the board there are 169 hands and a few betting nodes,
which are done here in NumPy. Boards are spread over torch's number of CPU threads; results do not depend on it.

On a sample of boards the same engine estimates the same values. The sample's infosets are then the rows of its tables.

As in `repro.engine.sequence_form`, all chance probability sits in the payoffs: values are counterfactual ones, those of
an infoset are summed over the deals in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from math import comb
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repro.common.compiled import Floats
from repro.common.errors import ReproError
from repro.engine import board_kernels as kernels
from repro.engine.board_kernels import Boards, Subtrees
from repro.games.betting import SHOWDOWN
from repro.games.game import Game
from repro.games.holdem import HoldemCards, board_with_hands
from repro.games.isomorphism import Coding, canonical_boards, cards_of

_AT_ONCE = 128
"""Boards prepared in one go: some hundred thousand pairs of board and hand."""


@dataclass(frozen=True)
class BoardSample:
    """Some boards, one of each isomorphism class that occurs.

    Attributes:
        boards: `[boards, cards]`, canonical, in the order of their codes.
        share: `[boards]` float64, adding up to 1: how much each counts.
        size: how many were drawn; None if these are all.
    """

    boards: Tensor
    share: Tensor
    size: int | None = None


def all_boards(game: Game) -> BoardSample:
    """Every board of a game with one board."""
    cards = _one_board(game)
    boards, count = canonical_boards(cards.ranks, cards.suits, cards.board_cards[-1])
    return BoardSample(boards, count.double() / count.sum())


def sample_boards(game: Game, size: int, generator: torch.Generator) -> BoardSample:
    """`size` boards, drawn independently."""
    cards = _one_board(game)
    k = cards.board_cards[-1]
    drawn = torch.rand(size, cards.ranks * cards.suits, generator=generator, dtype=torch.float64).topk(k).indices
    coding = Coding(cards.ranks, cards.suits, (k,), private=0)
    codes, count = coding.encode(drawn).unique(return_counts=True)
    return BoardSample(coding.decode(codes), count.double() / size, size)


def _one_board(game: Game) -> HoldemCards:
    cards = game.cards
    if not isinstance(cards, HoldemCards) or not cards.one_board:
        raise ReproError(f"game is {game.name}; exact values of Hold'em games are for those with one board.")
    return cards


@dataclass(frozen=True)
class Deviations:
    """What a player gains, in chips per game, by a best response in a part of the game, playing on as before elsewhere.

    Attributes:
        everywhere: the best response proper.
        before_board, on_board: in one betting round only. Not a sum: each can pay by what the other leaves undone.
        at: decision node of the player -> at this node only, all hands and boards together.
    """

    everywhere: float
    before_board: float
    on_board: float
    at: dict[int, float]


class HoldemForm:
    """Exact values, best responses and counterfactual values of one game, over all boards or a sample of them.

    Tables are `[rows, actions]` float64; the rows are the game's infosets, or those of the sample's boards in the same
    order. The work is done on the CPU, and answers are on the table's device.

    Args:
        game: a Hold'em game with one board.
        sample: the boards; default all.

    Attributes:
        infosets: `[rows]` the game's infoset of each row.
        first_row: `[nodes]` row of the first infoset of a decision node.
        player_slice: per player, the slice of its rows.
        trees, boards: what the kernels run on.
        opening: the round before the board.
        histories: of the whole game, decision and terminal ones.
    """

    def __init__(self, game: Game, sample: BoardSample | None = None) -> None:
        # The kernels are for the CPU, wherever the game's tensors are.
        game = game.to("cpu")
        self.sample = all_boards(game) if sample is None else sample
        cards = _one_board(game)
        self.boards, cells = _prepare(cards, self.sample)
        self.actions, self.suits = game.num_actions, cards.suits
        first, infosets = np.zeros(game.tree.nodes, np.int64), []
        player, round_ = game.tree.player.tolist(), game.tree.round.tolist()
        self._player = np.array(player)
        rows, ends = 0, [0, 0]
        for p in range(2):
            for node in (n for n, owner in enumerate(player) if owner == p):
                first[node] = rows
                node_cells = cells if round_[node] else torch.arange(cards.cells[0])
                infosets.append(int(game.first_infoset[node]) + node_cells)
                rows += len(node_cells)
            ends[p] = rows
        self.rows = rows
        self.infosets = torch.cat(infosets)
        self.player_slice = (slice(0, ends[0]), slice(ends[0], rows))
        self.first_row = first
        self.opening = Opening(game, first)
        self.trees = _subtrees(game, first, self.opening.entries)
        boards = comb(cards.ranks * cards.suits - 4, cards.board_cards[-1])
        self.histories = sum(self.opening.histories * (boards if r else 1) for r in round_)

    def over_boards(self, kernel: Callable[..., None], *arguments: Any) -> None:
        """Call `kernel(trees, boards, begin, end, *arguments)` for all boards, on as many threads as torch uses."""
        threads, count = torch.get_num_threads(), len(self.boards.weight)
        if threads == 1:
            kernel(self.trees, self.boards, 0, count, *arguments)
            return
        # Boards have different numbers of cells, so each thread takes many small shares.
        edges = np.linspace(0, count, min(count, 8 * threads) + 1).astype(int).tolist()
        with ThreadPoolExecutor(threads) as pool:
            work = [pool.submit(kernel, self.trees, self.boards, b, e, *arguments) for b, e in pairwise(edges)]
            for job in work:
                job.result()

    # -- questions about a policy --------------------------------------------------------------------------------

    def evaluate(
        self, table: Tensor, player: int, best_response: bool = False, action_values: Floats | None = None
    ) -> tuple[float, Floats]:
        """The player's chips per game, under `table` or responding to the opponent's part of it.

        Args:
            action_values: `[rows, actions]`, if given filled at the player's rows.

        Returns:
            the chips, and `[boards, entries, opening cells]`: the values before the board, by board.
        """
        strategies = table.cpu().numpy()
        sigma = self.opening.rows(strategies)
        opening = self.opening.reach(sigma)
        below = np.zeros((len(self.boards.weight), len(self.opening.entries), self.opening.cells))
        q = np.zeros((0, self.actions)) if action_values is None else action_values
        mode = kernels.BEST if best_response else kernels.MEAN
        self.over_boards(kernels.evaluate, strategies, self.opening.at_entries(opening), player, mode, below, q)
        values = self.opening.values(player, opening, below.sum(0), sigma, best_response)
        if action_values is not None:
            self.opening.write_action_values(player, values, action_values)
        return float(values[0].sum()), below

    def expected_values(self, table: Tensor) -> Tensor:
        """`[2]` chips each player wins per game under `table`."""
        return torch.tensor([self.evaluate(table, player)[0] for player in range(2)], dtype=torch.float64)

    def best_response_values(self, table: Tensor) -> Tensor:
        """`[2]` chips each player wins with a best response to the opponent's part of `table`."""
        values = [self.evaluate(table, player, best_response=True)[0] for player in range(2)]
        return torch.tensor(values, dtype=torch.float64)

    def best_response(self, table: Tensor, player: int) -> tuple[float, Tensor]:
        """Value in chips of `player`'s best response, and `table` with the player's part replaced by it."""
        q, rows = np.full(table.shape, -np.inf), self.player_slice[player]
        value, _ = self.evaluate(table, player, best_response=True, action_values=q)
        response = table.clone()
        best = torch.from_numpy(q[rows]).argmax(1)
        response[rows] = torch.nn.functional.one_hot(best, self.actions).to(table)
        return value, response

    def deviations(self, table: Tensor, player: int) -> Deviations:
        """What the player gains by responding in parts of the game to `table`, which both play elsewhere."""
        q = np.full(table.shape, -np.inf)
        value, below = self.evaluate(table, player, action_values=q)
        best, below_best = self.evaluate(table, player, best_response=True)
        sigma = self.opening.rows(table.cpu().numpy())
        reach = self.opening.reach(sigma)

        def of_round(values: Floats, best_response: bool) -> float:
            return float(self.opening.values(player, reach, values.sum(0), sigma, best_response)[0].sum())

        strategies, own_reach = table.cpu().numpy(), self.own_reach(table).cpu().numpy()
        nodes = np.flatnonzero(self._player == player).tolist()
        edges = [*self.first_row[nodes].tolist(), self.player_slice[player].stop]
        gains = {}
        # Node by node: all of a game's rows take gigabytes.
        for node, first, end in zip(nodes, edges, edges[1:], strict=False):
            values = q[first:end]
            as_played = (np.where(np.isfinite(values), values, 0.0) * strategies[first:end]).sum(1)
            gains[node] = float((own_reach[first:end] * (values.max(1) - as_played)).sum())
        return Deviations(
            best - value,
            of_round(below, best_response=True) - value,
            of_round(below_best, best_response=False) - value,
            gains,
        )

    def own_reach(self, table: Tensor) -> Tensor:
        """`[rows]` probability that the owner's own actions allow the infoset: `pi_i(I)` of SD-CFR eq. 6."""
        strategies, arrival = table.cpu().numpy(), np.zeros(self.rows)
        opening = self.opening.reach(self.opening.rows(strategies))
        self.opening.arrival(opening, arrival)
        self.over_boards(kernels.own_reach, strategies, self.opening.at_entries(opening), arrival)
        return torch.from_numpy(arrival).to(table.device)

    def others_reach(self, table: Tensor, player: int) -> Tensor:
        """`[rows]`, at the player's: probability that chance and the opponent allow the infoset.

        Of one board of a sample it is that of all boards that it stands for.
        """
        strategies, arrival = table.cpu().numpy(), np.zeros(self.rows)
        opening = self.opening.reach(self.opening.rows(strategies))
        self.opening.others_arrival(player, opening, arrival)
        self.over_boards(kernels.others_reach, strategies, self.opening.at_entries(opening), player, arrival)
        return torch.from_numpy(arrival).to(table.device)

    def action_values(self, table: Tensor) -> Tensor:
        """`[rows, actions]` counterfactual value of each action under `table`, 0 where illegal."""
        q = np.zeros(table.shape)
        for player in range(2):
            self.evaluate(table, player, action_values=q)
        return torch.from_numpy(q).to(table.device)

    def nash_conv_replicates(
        self, table: Tensor, replicates: int, generator: np.random.Generator
    ) -> tuple[float, Floats]:
        """NashConv in chips on these boards, and `[replicates]` on samples drawn anew from them (the bootstrap)."""
        assert self.sample.size is not None, "all boards leave nothing to estimate"
        size = self.sample.size
        share = self.sample.share.numpy()
        factor = generator.multinomial(size, share / share.sum(), replicates) / (size * share)
        strategies, exact, estimates = table.cpu().numpy(), 0.0, np.zeros(replicates)
        sigma = self.opening.rows(strategies)
        opening = self.opening.reach(sigma)
        for player in range(2):
            value, below = self.evaluate(table, player, best_response=True)
            exact += value
            for i, f in enumerate(factor):
                mixed = np.tensordot(f, below, 1)
                estimates[i] += self.opening.values(player, opening, mixed, sigma, best_response=True)[0].sum()
        return exact, estimates


Reach = dict[int, tuple[Floats, Floats]]
"""Betting node -> both players' reach `[opening cells]`."""


class Opening:
    """The betting before the board: few enough nodes and hands for NumPy.

    Attributes:
        cells: number of hands, 169 with a full deck.
        entries: betting nodes of the next round that follow directly.
        decisions: nodes of this round at which a player acts, parents first.
        player: `[nodes]` who acts, -1 at terminal nodes.
        histories: pairs of hands that two players can have, ordered.
    """

    def __init__(self, game: Game, first_row: NDArray[np.int64]) -> None:
        tree, cards = game.tree, _one_board(game)
        self._child, self.player = tree.child.tolist(), tree.player.tolist()
        self._row = first_row.tolist()
        self.cells = cards.cells[0]
        start, stop = tree.round_slice[0]
        self.decisions = [n for n in range(start, stop) if self.player[n] >= 0]
        self._folds = {n: (1.0 if tree.winner[n] == 0 else -1.0) * float(tree.stake[n])
                       for n in range(start, stop) if self.player[n] < 0}  # fmt: skip
        self.entries = [to for n in self.decisions for to in self._child[n] if to >= stop]
        hands = cards_of(torch.arange(comb(cards.ranks * cards.suits, 2)), 2)
        apart = (hands[:, None, :, None] != hands[None, :, None, :]).flatten(2).all(2).double()
        of = torch.nn.functional.one_hot(cards.cell(0, hands), self.cells).double()
        pairs = of.t() @ apart @ of
        self.histories = int(pairs.sum())
        self._pairs = (pairs / pairs.sum()).numpy()

    def rows(self, table: NDArray[Any]) -> dict[int, NDArray[Any]]:
        """Per decision node, a view `[opening cells, ...]` of its rows."""
        return {n: table[self._row[n] : self._row[n] + self.cells] for n in self.decisions}

    def reach(self, sigma: dict[int, NDArray[Any]]) -> Reach:
        """Both players' reach of every node of this round and of the entries to the next, from strategies per node."""
        reach: Reach = {0: (np.ones(self.cells), np.ones(self.cells))}
        for node in self.decisions:
            at_node = reach[node]
            for a, to in self.children(node):
                after = at_node[self.player[node]] * sigma[node][:, a]
                reach[to] = (after, at_node[1]) if self.player[node] == 0 else (at_node[0], after)
        return reach

    def children(self, node: int) -> list[tuple[int, int]]:
        """Pairs (action, node that it leads to)."""
        return [(a, to) for a, to in enumerate(self._child[node]) if to >= 0]

    def at_entries(self, reach: Reach) -> Floats:
        """`[2, entries, opening cells]`."""
        return np.stack([np.stack([reach[e][p] for e in self.entries]) for p in range(2)])

    def arrival(self, reach: Reach, into: Floats) -> None:
        """Write the acting players' own reach of the decision nodes to their rows of `into`."""
        for node, rows in self.rows(into).items():
            rows[:] = reach[node][self.player[node]]

    def others_arrival(self, player: int, reach: Reach, into: Floats) -> None:
        """Write the probability that chance and the opponent allow the player's decision nodes to their rows."""
        for node, rows in self.rows(into).items():
            if self.player[node] == player:
                rows[:] = self._pairs @ reach[node][1 - player]

    def values(
        self, player: int, reach: Reach, below: Floats, sigma: dict[int, NDArray[Any]], best_response: bool = False
    ) -> dict[int, Floats]:
        """The player's counterfactual values `[opening cells]` of all nodes.

        Args:
            below: `[entries, opening cells]` values of the entries.
        """
        sign = 1.0 if player == 0 else -1.0
        value = {n: sign * pay * (self._pairs @ reach[n][1 - player]) for n, pay in self._folds.items()}
        value |= dict(zip(self.entries, below, strict=True))
        for node in reversed(self.decisions):
            children = self.children(node)
            if self.player[node] != player:
                value[node] = np.sum([value[to] for _, to in children], 0)
            elif best_response:
                value[node] = np.max([value[to] for _, to in children], 0)
            else:
                value[node] = np.sum([sigma[node][:, a] * value[to] for a, to in children], 0)
        return value

    def write_action_values(self, player: int, values: dict[int, Floats], into: Floats) -> None:
        """Write what `values` found to the player's rows of `into` `[rows, actions]`."""
        for node, rows in self.rows(into).items():
            if self.player[node] == player:
                for a, to in self.children(node):
                    rows[:, a] = values[to]


def _prepare(cards: HoldemCards, sample: BoardSample) -> tuple[Boards, Tensor]:
    """The kernels' boards, and the game's cell of each of their cells."""
    deck, k = cards.ranks * cards.suits, cards.board_cards[-1]
    hands = cards_of(torch.arange(comb(deck, 2)), 2)
    parts: list[list[Tensor]] = []
    for boards in sample.boards.split(_AT_ONCE):
        pairs = board_with_hands(boards, hands)
        strength = cards.strength(pairs).view(len(boards), -1)
        strength, order = strength.sort(1)
        tie = torch.searchsorted(strength, strength, right=True)
        inside = pairs[:, k:].view(len(boards), -1, 2)
        first, second = (inside[:, :, i].gather(1, order) for i in range(2))
        code = cards.codings[1].encode(pairs).view(len(boards), -1).gather(1, order)
        parts.append([first.to(torch.uint8), second.to(torch.uint8), tie.short(), code])
    first, second, tie, code = (torch.cat(p) for p in zip(*parts, strict=True))
    codes, cell, count = code.unique(return_inverse=True, return_counts=True)
    # Boards come in the order of their codes, which lead the codes of their hands: a board's cells are contiguous.
    start = torch.cat([cell.amin(1), torch.tensor([len(codes)])])
    assert bool((cell.amax(1) + 1 == start[1:]).all()), "boards must be canonical and in order"
    weight = sample.share / (comb(deck, 2) * comb(deck - 2, 2)) / _share_that_fits(deck, k)
    opening = cards.cell(0, cards.codings[1].decode(codes)[:, k:])
    listed = cards.codes[1]
    return Boards(
        start=start.numpy(),
        first=first.numpy(),
        second=second.numpy(),
        tie=tie.numpy(),
        cell=(cell - start[:-1, None]).short().numpy(),
        weight=weight.numpy(),
        members=count.double().numpy(),
        before=opening.short().numpy(),
    ), codes if listed is None else torch.searchsorted(listed, codes)


def _share_that_fits(deck: int, board: int) -> float:
    """Share of all boards that share no card with two given hands."""
    return comb(deck - 4, board) / comb(deck, board)


def _subtrees(game: Game, first_row: NDArray[np.int64], entries: Sequence[int]) -> Subtrees:
    tree = game.tree
    player, child = tree.player.tolist(), tree.child.tolist()
    start, kind, actor, pay, children, row, slot = [0], [], [], [], [], [], []
    for entry in entries:
        nodes, last = [entry], {entry: (0, 0)}
        for node in nodes:
            for a, to in enumerate(child[node]):
                if to >= 0:
                    actor_slot = 1 + a + game.num_actions * nodes.index(node)
                    before = last[node]
                    last[to] = (actor_slot, before[1]) if player[node] == 0 else (before[0], actor_slot)
                    nodes.append(to)
        local = {n: i for i, n in enumerate(nodes)}
        for node in nodes:
            winner = int(tree.winner[node])
            decision = player[node] >= 0
            kind.append(kernels.DECISION if decision else kernels.SHOWN if winner == SHOWDOWN else kernels.FOLDED)
            actor.append(player[node])
            pay.append(float(tree.stake[node]) * (-1.0 if winner == 1 else 1.0))
            children.append([local.get(to, -1) for to in child[node]])
            row.append(int(first_row[node]))
            slot.append(last[node])
        start.append(start[-1] + len(nodes))
    begin, kinds, actors, below, rows, slots = (
        np.array(values, np.int64) for values in (start, kind, actor, children, row, slot)
    )
    return Subtrees(begin, kinds, actors, np.array(pay), below, rows, slots)
