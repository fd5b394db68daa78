"""A game: its betting tree, its cards, and the numbering of its infosets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from repro.common.errors import ReproError
from repro.games.betting import ACTIONS, SHOWDOWN, BettingRules, BettingTree, compile_tree
from repro.games.cards import Cards, ExactForm, Unit
from repro.games.one_card import OneCard

MOST_LISTED = 1 << 27
"""Infosets of the largest game of which every infoset can be listed."""


class Game:
    """Betting tree times cards.

    An infoset is a plain integer in `[0, infosets)`: player 0's come first, then player 1's, each ordered by betting
    node and cell (what the player sees of the cards). Memories, tables and policies all speak in these integers. In
    games that are too large to list not every such integer is an infoset.

    Attributes:
        name: as given to `load`.
        parameters: the parameters it was loaded with, defaults included.
        chips_per_unit: chips in the unit that results are quoted in (the ante, or the big blind).
        first_infoset: `[nodes]` number of the first infoset of a decision node, 0 at terminal ones.
        player_slice: per player, the slice of its infosets.
    """

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, object],
        rules: BettingRules,
        cards: Cards,
        chips_per_unit: float,
        device: torch.device | str = "cpu",
    ) -> None:
        self.name = name
        self.parameters = dict(parameters)
        self.rules = rules
        self.chips_per_unit = chips_per_unit
        self.tree: BettingTree = compile_tree(rules).to(device)
        self.cards = cards.to(device)
        self.device = torch.device(device)
        self._number_infosets()

    @property
    def actions(self) -> tuple[str, ...]:
        """What the columns of `[..., actions]` tensors are."""
        return self.rules.actions

    @property
    def num_actions(self) -> int:
        return len(self.rules.actions)

    @cached_property
    def exact(self) -> ExactForm | None:
        """What exact values of strategies are computed on, or None where they cannot be; sampled play always can."""
        return None if self.why_not_exact else self.cards.exact

    @cached_property
    def why_not_exact(self) -> str:
        """What keeps exact values from being computed, a clause about the game; empty if nothing does."""
        if self.cards.exact is None:
            return "deals public cards in more than one round"
        shown_early = (self.tree.winner == SHOWDOWN) & (self.tree.round < self.tree.rounds - 1)
        # The exact engines have showdowns in the last round alone.
        return "shows hands before its last round, where both players are all-in" if bool(shown_early.any()) else ""

    @property
    def unit(self) -> Unit:
        """What results are quoted in: `mA/g`, or `mbb/g` in Hold'em and where the players' antes differ (blinds)."""
        first, second = self.rules.ante
        return self.cards.unit if first == second else "mbb/g"

    @property
    def exploitability_is_mean(self) -> bool:
        """Whether exploitability is quoted as the mean over players, NashConv / 2 [SD-CFR]; else it is the sum, total
        exploitability [Deep CFR]."""
        return self.cards.exploitability_is_mean

    def _number_infosets(self) -> None:
        player, round_ = self.tree.player.tolist(), self.tree.round.tolist()
        nodes = [n for p in range(2) for n, owner in enumerate(player) if owner == p]
        first, size, ends = torch.zeros(self.tree.nodes, dtype=torch.int64), 0, [0, 0]
        for node in nodes:
            first[node] = size
            size += self.cards.cells[round_[node]]
            ends[player[node]] = size
        self.first_infoset = first.to(self.device)
        self.player_slice = (slice(0, ends[0]), slice(ends[0], size))
        self._decisions = torch.tensor(nodes, device=self.device)
        self._starts = self.first_infoset[self._decisions]

    @property
    def infosets(self) -> int:
        """Number of infosets of both players together (an upper bound in games that are too large to list)."""
        return self.player_slice[1].stop

    @property
    def listed(self) -> bool:
        """Whether every infoset can be listed, as tables and the properties below need."""
        return self.infosets <= MOST_LISTED

    def check_listed(self) -> None:
        """Refuse what needs a table of all infosets.

        Raises:
            ReproError: there are too many.
        """
        if not self.listed:
            raise ReproError(
                f"game {self.name} has {self.infosets:,} infosets; tables can list {MOST_LISTED:,} at most (in "
                "Hold'em with a flop of three cards, algorithm.buckets makes fewer)."
            )

    def locate(self, infosets: Tensor) -> tuple[Tensor, Tensor]:
        """`[n]` infosets -> their betting nodes and cells, `[n]` each."""
        which = torch.bucketize(infosets, self._starts, right=True) - 1
        return self._decisions.take(which), infosets - self._starts.take(which)

    def legal_at(self, infosets: Tensor) -> Tensor:
        """`[n]` infosets -> `[n, actions]` bool."""
        return self.tree.legal.index_select(0, self.locate(infosets)[0])

    def pots_at(self, infosets: Tensor) -> Tensor:
        """`[n]` chips that both players have put in when the decision at an infoset is made, float64."""
        return self.tree.chips.sum(1).take(self.locate(infosets)[0])

    def infoset(self, node: Tensor, board: Tensor, hand: Tensor) -> Tensor:
        """Infosets of decision nodes `node` in games with one card each.

        `board` is indexed in the node's round. The three broadcast. Where hand and board share a card: -1.
        """
        cards = self.one_card
        infosets = torch.full(torch.broadcast_shapes(node.shape, board.shape, hand.shape), -1, device=self.device)
        for r, table in enumerate(cards.cell):
            in_round = (self.tree.round.take(node) == r).expand(infosets.shape)
            # Of a board that this round does not have, any will do where another round is asked for.
            cell = table.take(board.clamp(max=len(table) - 1) * cards.hands + hand).expand(infosets.shape)
            infosets = torch.where(in_round & (cell >= 0), self.first_infoset.take(node) + cell, infosets)
        return infosets

    @property
    def one_card(self) -> OneCard:
        """The cards, of a game with one private card each.

        Raises:
            ReproError: it is not such a game.
        """
        if not isinstance(self.cards, OneCard):
            raise ReproError(f"game is {self.name}; this works for games with one private card each.")
        return self.cards

    # -- lists of all infosets ------------------------------------------------------------------------------------

    @cached_property
    def _located(self) -> tuple[Tensor, Tensor]:
        self.check_listed()
        return self.locate(torch.arange(self.infosets, device=self.device))

    @property
    def infoset_node(self) -> Tensor:
        """`[infosets]` betting node."""
        return self._located[0]

    @property
    def infoset_cell(self) -> Tensor:
        """`[infosets]` cell."""
        return self._located[1]

    @cached_property
    def infoset_player(self) -> Tensor:
        """`[infosets]` player."""
        return self.tree.player.take(self.infoset_node)

    @cached_property
    def infoset_hand(self) -> Tensor:
        """`[infosets]` hand class, in games with one card each."""
        return self._of_cells(self.one_card.cell_hand)

    @cached_property
    def infoset_board(self) -> Tensor:
        """`[infosets]` board class, in games with one card each."""
        return self._of_cells(self.one_card.cell_board)

    def _of_cells(self, per_round: tuple[Tensor, ...]) -> Tensor:
        classes = torch.zeros_like(self.infoset_cell)
        for r, values in enumerate(per_round):
            in_round = self.tree.round.take(self.infoset_node) == r
            classes[in_round] = values[self.infoset_cell[in_round]]
        return classes

    @cached_property
    def legal(self) -> Tensor:
        """`[infosets, actions]` bool."""
        return self.tree.legal.index_select(0, self.infoset_node)

    @cached_property
    def uniform(self) -> Tensor:
        """`[infosets, actions]` float64, every legal action with equal probability."""
        return self.legal / self.legal.sum(1, keepdim=True, dtype=torch.float64)

    def to(self, device: torch.device | str) -> Game:
        """The same game with its tensors on `device`."""
        if torch.device(device) == self.device:
            return self
        return Game(self.name, self.parameters, self.rules, self.cards, self.chips_per_unit, device)

    def describe(self, infoset: int, numbered: bool = False) -> str:
        """A readable name, e.g. `player 0, hand K, board Q, betting call raise / `; see `Cards.numbered`."""
        node, cell = (int(x) for x in self.locate(torch.tensor([infoset], device=self.device)))
        player, round_ = int(self.tree.player[node]), int(self.tree.round[node])
        cards = self.cards.numbered(round_, cell) if numbered else self.cards.describe(round_, cell)
        return f"player {player}, {cards}, betting {self.line(node)}"

    def line(self, node: int) -> str:
        """The betting that leads to a node of the tree, e.g. `call raise / `."""
        return " / ".join(" ".join(ACTIONS[a] for a in r) for r in self.tree.histories[node])
