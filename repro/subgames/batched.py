"""Solve many subgames at a time with torch, on a GPU or (slower than `repro.subgames.solver`) on a CPU.

Subgames whose betting trees have the same shape, which depends on the pot, go through the tree together, pots apart.
The sum over the hands that another beats is that over all weaker ones less those with either of its cards: differences
of cumulative sums over hands in order of strength, of all hands and of those with each card. What goes into the tree
is the compiled solver's: betting, order of strength, matchups, discounts. What happens in it is not.

Tables are float32, cumulative sums float64.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.subgames.kernels import BEST, DECISION, FOLDED, MEAN, UPDATE, Part, Rule
from repro.subgames.solver import AS_IS, FIRST_LOOK, LOOKS, Solution, Variant, full_boards, parts, rule
from repro.subgames.subgames import Deck, Subgame

_ENTRIES = 500_000_000
"""Pairs of an action and a hand in a batch, at the most. Their tables take 8 bytes each, what is computed on the way
some ten times as much at terminal nodes."""


@dataclass(frozen=True)
class Places:
    """Where hands are among those with each card, hands in order of strength; `n` subgames or boards.

    Attributes:
        cards: `[n, hands, 2]` numbers of both cards among those that are left.
        holders: `[n, cards left, hands of a card]` the hands with each card, weakest first.
        begin, end: `[n, hands]` hands that are weaker, and that are not stronger.
        card_begin, card_end: `[n, hands, 2]` the same among the hands with each of its cards.
    """

    cards: Tensor
    holders: Tensor
    begin: Tensor
    end: Tensor
    card_begin: Tensor
    card_end: Tensor

    def met(self, reach: Tensor) -> Tensor:
        """`[n, rows, hands]` -> the same, of all hands that each can meet."""
        of_card = self._of_cards(reach).sum(3)
        return reach.sum(2, keepdim=True) - self._both(of_card, self.cards) + reach

    def won(self, reach: Tensor, met: Tensor) -> Tensor:
        """`[n, rows, hands]` -> the same, of those that each hand beats less those that beat it."""
        sums, of_card = _cumulative(reach), _cumulative(self._of_cards(reach)).flatten(2)
        span = self.holders.shape[2] + 1
        weaker = _at(sums, self.begin) - self._both(of_card, self.cards * span + self.card_begin)
        # The hand itself is among those with either card.
        so_far = _at(sums, self.end) - self._both(of_card, self.cards * span + self.card_end) + reach
        return weaker + so_far - met

    def _of_cards(self, reach: Tensor) -> Tensor:
        """`[n, rows, cards left, hands of a card]`."""
        index = self.holders.flatten(1)
        return _at(reach, index).unflatten(2, self.holders.shape[1:])

    def _both(self, table: Tensor, index: Tensor) -> Tensor:
        return _at(table, index[..., 0]) + _at(table, index[..., 1])


def _at(table: Tensor, index: Tensor) -> Tensor:
    """`[n, rows, x]` at `[n, y]` -> `[n, rows, y]`."""
    return table.gather(2, index[:, None].expand(-1, table.shape[1], -1))


def _cumulative(values: Tensor) -> Tensor:
    """Cumulative sums along the last dimension, from 0."""
    return torch.nn.functional.pad(values.cumsum(-1), (1, 0))


def _places(first: Array, second: Array, tie: Array, device: torch.device) -> Places:
    """Of `[n, hands]` cards, weakest hand first, and one past the last hand that is as strong."""
    n = len(first)
    cards = np.stack([first, second], 2)
    number = np.stack([np.searchsorted(np.unique(row), row) for row in cards])
    num_cards = int(number.max()) + 1
    begin = np.stack([np.searchsorted(row, row, side="left") for row in tie])
    # `counts[h]`: how many of the first h hands have each card.
    holds = (number[..., None] == np.arange(num_cards)).any(2)
    counts = np.concatenate([np.zeros((n, 1, num_cards), int), holds.cumsum(1)], 1)
    holders = np.argsort(~holds.transpose(0, 2, 1), axis=2, kind="stable")[:, :, : num_cards - 1]
    row = np.arange(n)[:, None, None]
    indices = (
        number, holders, begin, tie, counts[row, begin[:, :, None], number], counts[row, tie[:, :, None], number],
    )  # fmt: skip
    return Places(*(torch.from_numpy(np.ascontiguousarray(x)).long().to(device) for x in indices))


class _Round:
    """One round of betting in all subgames.

    Args:
        part: its shape.
        pay: `[n, nodes]` what the terminal nodes pay.
        places: of the hands.
        showdowns: whether hands are shown in it.

    Attributes:
        regrets, sums: `[edges, n, hands]`.
    """

    def __init__(self, part: Part, pay: Tensor, places: Places, showdowns: bool) -> None:
        self.part, self.pay, self.places, self._showdowns = part, pay, places, showdowns
        shape = (len(part.child), *places.begin.shape)
        self.regrets, self.sums = (torch.zeros(shape, device=pay.device) for _ in range(2))
        self._kind, self._edges = part.kind.tolist(), part.edges.tolist()

    def keep(self, rows: Tensor) -> None:
        """Go on with some of them only."""
        self.pay, self.regrets, self.sums = self.pay[rows], self.regrets[:, rows], self.sums[:, rows]
        self.places = Places(**{name: value[rows] for name, value in vars(self.places).items()})

    def down(self, reach: list[Tensor], mode: int) -> list[Tensor]:
        """The strategy of each edge; `reach`, at first that of the entries, becomes that of all rows."""
        table, part = self.regrets if mode == UPDATE else self.sums, self.part
        strategies: list[Tensor] = []
        for i, kind in enumerate(self._kind):
            if kind == DECISION:
                strategy = _normalised(table[self._edges[i] : self._edges[i + 1]])
                strategies += strategy
                reach += strategy * reach[part.slot[i, part.actor[i]]]
        return strategies

    def up(
        self, player: int, mode: int, how: Rule, reach: list[Tensor],
        strategies: list[Tensor], dealt: dict[int, Tensor],
    ) -> list[Tensor]:  # fmt: skip
        """`[n, hands]` what the player's hands win at each node, from what they win where the round ends."""
        values = dealt | self._terminals(player, reach)
        for i in range(len(self._kind) - 1, -1, -1):
            if self._kind[i] != DECISION:
                continue
            edges = range(self._edges[i], self._edges[i + 1])
            below = torch.stack([values[int(self.part.child[e])] for e in edges])
            if self.part.actor[i] != player:
                values[i] = below.sum(0)
            elif mode == BEST:
                values[i] = below.amax(0)
            else:
                strategy = torch.stack([strategies[e] for e in edges])
                values[i] = (strategy * below).sum(0)
                if mode == UPDATE:
                    arrival = reach[self.part.slot[i, player]]
                    self._learn(slice(edges.start, edges.stop), below - values[i], strategy * arrival, how)
        return [values[i] for i in range(len(self._kind))]

    def _terminals(self, player: int, reach: list[Tensor]) -> dict[int, Tensor]:
        rows = self.part.opponent_rows[player]
        opponent_reach = torch.stack([reach[row] for row in rows.tolist()], 1).double()
        met = self.places.met(opponent_reach)
        won = self.places.won(opponent_reach, met) if self._showdowns else met
        values = {}
        for node, column in self.part.ends[player].tolist():
            folded = self._kind[node] == FOLDED
            pay = self.pay[:, node, None] * (1 - 2 * player if folded else 1)
            values[node] = (pay * (met if folded else won)[:, column]).float()
        return values

    def _learn(self, edges: slice, regret: Tensor, played: Tensor, how: Rule) -> None:
        after = self.regrets[edges] + regret
        self.regrets[edges] = after * torch.where(after > 0, how.positive, how.negative)
        self.sums[edges] += how.weight * played


def _normalised(table: Tensor) -> Tensor:
    positive = table.clamp(min=0)
    total = positive.sum(0)
    return torch.where(total > 0, positive / total.where(total > 0, 1.0), 1 / len(table))


class BatchedSolver:
    """CFR on many subgames whose betting trees have the same shape.

    Args:
        subgames: to solve, of one deck and street.
        variant: which CFR.
        device: where.

    Attributes:
        iterations: so far.
        matchup: `[n, 2, hands]` probability that the opponent holds a hand that can be met.
    """

    def __init__(self, subgames: Sequence[Subgame], variant: Variant, device: torch.device | str = "cpu") -> None:
        self.variant, self.iterations, self._device = variant, 0, torch.device(device)
        deck, trees = subgames[0].deck, [parts(s.betting()) for s in subgames]
        if len({(s.deck, len(s.board), _shape(tree)) for s, tree in zip(subgames, trees, strict=True)}) > 1:
            raise ReproError("subgames that are solved together must have one deck, street and shape of betting tree.")
        # None merged with others, so that all subgames have as many.
        boards = [full_boards(s, deck.hands(s.board), merge=False) for s in subgames]
        before, last = trees[0][:-1], trees[0][-1]
        self._cards = len(boards[0].first)
        ranges = np.stack([s.ranges / s.ranges.sum(1, keepdims=True) for s in subgames])
        matchup = np.stack([s.matchups() / s.ranges.sum(1)[::-1, None] for s in subgames])
        self._ranges, self.matchup = self._tensor(ranges), self._tensor(matchup)
        if not bool(((self._ranges * self.matchup).sum((1, 2)) > 0).all()):
            raise ReproError("a subgame's ranges must have some two hands that can meet.")
        self._pot = self._tensor(np.array([s.pot for s in subgames]))
        self._hand = self._tensor(np.stack([b.hand[:, 0] for b in boards])).long()
        self._chance = boards[0].chance
        pay = self._tensor(np.stack([tree[-1].pay for tree in trees]))
        first, second, tie = (np.concatenate([getattr(b, name) for b in boards]) for name in ("first", "second", "tie"))
        places = _places(first, second, tie, self._device)
        self._river = _Round(last, pay.repeat_interleave(self._cards, 0), places, showdowns=True)
        self._turn = None
        if before:
            pay = self._tensor(np.stack([tree[0].pay for tree in trees]))
            self._turn = _Round(before[0], pay, _unordered(deck, subgames, self._device), showdowns=False)

    def iterate(self) -> None:
        """One iteration: player 0's update, then player 1's."""
        self.iterations += 1
        for player in range(2):
            self._sweep(player, UPDATE, rule(self.variant, self.iterations))

    def values(self, mode: int = MEAN) -> Tensor:
        """`[n, 2, hands]` as `SubgameSolver.values`, of all subgames."""
        return torch.stack([self._sweep(player, mode, AS_IS) for player in range(2)], 1).double()

    def exploitability(self) -> Tensor:
        """`[n]` as `SubgameSolver.exploitability`."""
        met = (self._ranges[:, 0] * self.matchup[:, 0]).sum(1)
        return (self._ranges * self.values(BEST)).sum((1, 2)) / (2 * met * self._pot)

    def keep(self, rows: Tensor) -> None:
        """Go on with some of the subgames only: `[n]` booleans."""
        self._river.keep(rows.repeat_interleave(self._cards))
        if self._turn:
            self._turn.keep(rows)
        for name in ("_ranges", "matchup", "_pot", "_hand"):
            setattr(self, name, getattr(self, name)[rows])

    def solutions(self, exploitability: Tensor) -> list[Solution]:
        """The values now."""
        cfv = (self.values() / self._pot[:, None, None]).cpu().numpy()
        rest = zip(cfv, self.matchup.cpu().numpy(), exploitability.tolist(), strict=True)
        return [Solution(values, matchup, reached, self.iterations) for values, matchup, reached in rest]

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _sweep(self, player: int, mode: int, how: Rule) -> Tensor:
        opponent_range = self._ranges[:, 1 - player].float()
        own_reach = torch.ones_like(opponent_range)
        opening = [own_reach, opponent_range] if player == 0 else [opponent_range, own_reach]
        if self._turn is None:
            return self._on_boards(player, mode, how, opening)[0]
        strategies = self._turn.down(opening, mode)
        dealt, slot = self._turn.part.dealt.tolist(), self._turn.part.slot
        entries = [opening[slot[node, p]] for node in dealt for p in range(2)]
        below = dict(zip(dealt, self._on_boards(player, mode, how, entries), strict=True))
        return self._turn.up(player, mode, how, opening, strategies, below)[0]

    def _on_boards(self, player: int, mode: int, how: Rule, opening: list[Tensor]) -> list[Tensor]:
        """`[n, hands]` what is won at each entry of the last round, whose opening reach is given."""
        reach = []
        for row, before in enumerate(opening):
            # Chance is in the opponent's reach.
            factor = 1.0 if row % 2 == player else self._chance
            reach.append(factor * before.gather(1, self._hand.flatten(1)).view(-1, self._hand.shape[2]))
        strategies = self._river.down(reach, mode)
        values = self._river.up(player, mode, how, reach, strategies, {})
        entry_values = []
        for entry in range(self._river.part.entries):
            value = values[entry].view(len(self._hand), -1)
            entry_values.append(torch.zeros_like(opening[0]).scatter_add_(1, self._hand.flatten(1), value))
        return entry_values


def _unordered(deck: Deck, subgames: Sequence[Subgame], device: torch.device) -> Places:
    """Of the hands before the last card, which have no strength."""
    hands = np.stack([deck.hands(s.board) for s in subgames])
    return _places(hands[..., 0], hands[..., 1], np.full(hands.shape[:2], hands.shape[1]), device)


def solve_batched(
    subgames: Sequence[Subgame], variant: Variant, tolerance: float, device: torch.device | str, most: int = 10_000
) -> list[Solution]:
    """`repro.subgames.solver.solve_subgame` of many, in order."""
    groups = defaultdict(list)
    for number, subgame in enumerate(subgames):
        groups[_shape(parts(subgame.betting()))].append(number)
    solutions: dict[int, Solution] = {}
    for numbers in groups.values():
        first = subgames[numbers[0]]
        edges, hands = len(parts(first.betting())[-1].child), first.ranges.shape[1]
        most_at_a_time = max(1, _ENTRIES // (edges * hands * len(first.deck.full_boards(first.board))))
        for begin in range(0, len(numbers), most_at_a_time):
            some = numbers[begin : begin + most_at_a_time]
            solved = _solved([subgames[n] for n in some], variant, tolerance, device, most)
            solutions.update((some[place], solution) for place, solution in solved)
    return [solutions[number] for number in range(len(subgames))]


def _shape(tree: Sequence[Part]) -> tuple[bytes, ...]:
    """Of a betting tree, whatever it pays."""
    return tuple(array.tobytes() for part in tree for array in (part.kind, part.actor, part.edges))


def _solved(
    subgames: Sequence[Subgame], variant: Variant, tolerance: float, device: torch.device | str, most: int
) -> Iterator[tuple[int, Solution]]:
    """(Place, solution) of each, in the order in which they are found."""
    solver, look, places = BatchedSolver(subgames, variant, device), FIRST_LOOK, list(range(len(subgames)))
    while places:
        while solver.iterations < min(look, most):
            solver.iterate()
        reached = solver.exploitability()
        stopped = reached <= tolerance
        if solver.iterations >= most:
            stopped[:] = True
        if bool(stopped.any()):
            for place, solution, finished in zip(places, solver.solutions(reached), stopped.tolist(), strict=True):
                if finished:
                    yield place, solution
            places = [place for place, finished in zip(places, stopped.tolist(), strict=True) if not finished]
            solver.keep(~stopped)
        look = int(np.ceil(look * LOOKS))
