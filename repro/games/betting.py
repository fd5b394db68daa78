"""The public betting tree of a two-player poker game, compiled once into integer tensors.

The tree does not depend on the cards. Nodes are numbered by (round, depth in the round), so that every level of a
round is one contiguous slice; the player to act is the same for a whole level, because two players alternate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

FOLD, CALL, RAISE, ALL_IN = 0, 1, 2, 3
ACTIONS = ("fold", "call", "raise", "all-in")
"""Column order of every `[..., actions]` tensor; most games have the first three. "call" also means check, "raise" also
means bet."""

SHOWDOWN = -1
"""`BettingTree.winner` of a terminal node that the cards decide."""


@dataclass(frozen=True)
class BettingRound:
    """Rules of one betting round.

    Attributes:
        bet: chips that a bet or raise adds to a call; None: as many as are in the pot after the call.
        max_raises: most bets and raises; None: any number that the stacks allow.
        first_player: who acts first.
    """

    bet: float | None
    max_raises: int | None
    first_player: int = 0


@dataclass(frozen=True)
class BettingRules:
    """Rules of the whole game.

    Attributes:
        ante: chips each player puts in before the first round.
        rounds: the rounds in order.
        stack: chips each player has. A bet or raise of more is one of all that is left; there is no betting after it.
        may_open_with_call: whether the first action of the game may be a call.
        all_in: whether all that is left may be bet at any time, as an action of its own; a raise must then leave some.
    """

    ante: tuple[float, float]
    rounds: tuple[BettingRound, ...]
    stack: float = math.inf
    may_open_with_call: bool = True
    all_in: bool = False

    @property
    def actions(self) -> tuple[str, ...]:
        """What the columns of `[..., actions]` tensors are."""
        return ACTIONS if self.all_in else ACTIONS[:ALL_IN]


class Level(NamedTuple):
    """The decision nodes `start..stop` of one round at one depth; `player` acts at all of them."""

    start: int
    stop: int
    player: int


@dataclass(frozen=True)
class _State:
    """A betting situation during compilation; `history` holds the actions of every round so far."""

    round: int
    player: int
    chips: tuple[float, float]
    raises: int
    acted: int
    history: tuple[tuple[int, ...], ...]
    parent: int
    folded: int | None = None
    showdown: bool = False

    @property
    def owed(self) -> float:
        return self.chips[1 - self.player] - self.chips[self.player]


@dataclass(frozen=True)
class BettingTree:
    """Integer tensors over the `nodes` of the betting tree (decision and terminal nodes; chance is implicit).

    Attributes:
        player: `[nodes]` player to act, -1 at terminal nodes.
        round: `[nodes]` betting round, from 0.
        parent: `[nodes]` node before, -1 at the root.
        legal: `[nodes, actions]` bool.
        child: `[nodes, actions]` next node, -1 where the action is illegal. A child of a later round means that
            board cards are dealt in between.
        chips: `[nodes, 2]` chips each player has put in.
        winner: `[nodes]` the player who wins after a fold, `SHOWDOWN` where the cards decide, -2 at decision nodes.
        stake: `[nodes]` chips that the loser pays at a terminal node, 0 elsewhere.
        histories: per node, the actions of every round.
        levels: per round, its levels in order of depth.
        round_slice: per round, `(start, stop)` of its nodes.
    """

    player: Tensor
    round: Tensor
    parent: Tensor
    legal: Tensor
    child: Tensor
    chips: Tensor
    winner: Tensor
    stake: Tensor
    histories: tuple[tuple[tuple[int, ...], ...], ...]
    levels: tuple[tuple[Level, ...], ...]
    round_slice: tuple[tuple[int, int], ...]

    @property
    def nodes(self) -> int:
        return len(self.histories)

    @property
    def rounds(self) -> int:
        return len(self.levels)

    def to(self, device: torch.device | str) -> BettingTree:
        """The same tree with its tensors on `device`."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})


def _next_round(state: _State, rules: BettingRules) -> _State:
    if state.round + 1 == len(rules.rounds) or max(state.chips) == rules.stack:
        return replace(state, showdown=True)
    first = rules.rounds[state.round + 1].first_player
    return replace(state, round=state.round + 1, player=first, raises=0, acted=0, history=(*state.history, ()))


def _legal_actions(state: _State, rules: BettingRules) -> list[int]:
    if state.showdown or state.folded is not None:
        return []
    actions = [FOLD] if state.owed > 0 else []
    if rules.may_open_with_call or state.acted or state.round:
        actions.append(CALL)
    most = rules.rounds[state.round].max_raises
    if (most is None or state.raises < most) and max(state.chips) < rules.stack:
        if not rules.all_in:
            actions.append(RAISE)
        else:
            leaves_some = state.chips[state.player] + _raise(state, rules) < rules.stack
            actions += [RAISE, ALL_IN] if leaves_some else [ALL_IN]
    return actions


def _raise(state: _State, rules: BettingRules) -> float:
    """Chips that a raise puts in, if the stack covers it."""
    bet = rules.rounds[state.round].bet
    return state.owed + (sum(state.chips) + state.owed if bet is None else bet)


def _act(state: _State, action: int, rules: BettingRules) -> _State:
    me = state.player
    history = (*state.history[:-1], (*state.history[-1], action))
    if action == FOLD:
        return replace(state, folded=me, history=history)
    # A call is to the opponent's chips, a raise at most to the stack: exactly, though chips may be fractions.
    after_raise = rules.stack if action == ALL_IN else min(state.chips[me] + _raise(state, rules), rules.stack)
    put_in = after_raise if action >= RAISE else state.chips[1 - me]
    chips = (put_in, state.chips[1]) if me == 0 else (state.chips[0], put_in)
    after = replace(
        state, player=1 - me, chips=chips, history=history, acted=state.acted + 1,
        raises=state.raises + (action >= RAISE),
    )  # fmt: skip
    round_is_over = action == CALL and state.acted > 0
    return _next_round(after, rules) if round_is_over else after


def compile_tree(rules: BettingRules) -> BettingTree:
    """Enumerate the betting of `rules` round by round, depth by depth."""
    ante = (float(rules.ante[0]), float(rules.ante[1]))
    starts = [_State(0, rules.rounds[0].first_player, ante, 0, 0, ((),), -1)]
    states: list[_State] = []
    children: dict[tuple[int, int], int] = {}
    levels: list[tuple[Level, ...]] = []
    slices: list[tuple[int, int]] = []
    # States wait with the (parent node, action) that leads to them, so that children can be linked when numbered.
    frontier: list[tuple[_State, int, int]] = [(s, -1, -1) for s in starts]
    for _ in rules.rounds:
        round_start, round_levels = len(states), []
        later: list[tuple[_State, int, int]] = []
        while frontier:
            # Decision nodes first, so that a level's decision nodes are contiguous.
            frontier.sort(key=lambda entry: not _legal_actions(entry[0], rules))
            start = len(states)
            deeper: list[tuple[_State, int, int]] = []
            for state, parent, action in frontier:
                node = len(states)
                states.append(replace(state, parent=parent))
                children[parent, action] = node
                for a in _legal_actions(state, rules):
                    after = _act(state, a, rules)
                    (deeper if after.round == state.round else later).append((after, node, a))
            decisions = [s for s in states[start:] if _legal_actions(s, rules)]
            if decisions:
                round_levels.append(Level(start, start + len(decisions), decisions[0].player))
            frontier = deeper
        levels.append(tuple(round_levels))
        slices.append((round_start, len(states)))
        frontier = later
    return _to_tensors(states, children, levels, slices, rules)


def _to_tensors(
    states: list[_State],
    children: dict[tuple[int, int], int],
    levels: list[tuple[Level, ...]],
    slices: list[tuple[int, int]],
    rules: BettingRules,
) -> BettingTree:
    legal = torch.zeros(len(states), len(rules.actions), dtype=torch.bool)
    child = torch.full((len(states), len(rules.actions)), -1, dtype=torch.int64)
    for node, state in enumerate(states):
        for a in _legal_actions(state, rules):
            legal[node, a] = True
            child[node, a] = children[node, a]
    terminal = ~legal.any(1)
    winner = [
        -2 if not t else SHOWDOWN if s.folded is None else 1 - s.folded for s, t in zip(states, terminal, strict=True)
    ]
    stake = [min(s.chips) if t else 0.0 for s, t in zip(states, terminal, strict=True)]
    return BettingTree(
        player=torch.tensor([-1 if t else s.player for s, t in zip(states, terminal, strict=True)]),
        round=torch.tensor([s.round for s in states]),
        parent=torch.tensor([s.parent for s in states]),
        legal=legal,
        child=child,
        chips=torch.tensor([s.chips for s in states], dtype=torch.float64),
        winner=torch.tensor(winner),
        stake=torch.tensor(stake, dtype=torch.float64),
        histories=tuple(s.history for s in states),
        levels=tuple(levels),
        round_slice=tuple(slices),
    )
