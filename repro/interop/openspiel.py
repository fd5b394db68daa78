"""Games and policies to and from OpenSpiel [Lanctot et al. 2019], which is needed only when one of these is called.

The correspondence comes from walking OpenSpiel's game tree and our betting tree side by side. Both number cards
`rank * suits + suit`, and both list legal actions from the most passive to the most aggressive one (our fold, call,
raise; Kuhn's pass, bet), so the k-th legal action here is the k-th legal action there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from repro.common.errors import ReproError
from repro.games.betting import BettingRound, BettingRules
from repro.games.game import Game
from repro.policies.base import Policy, TabularPolicy, table_of

if TYPE_CHECKING:
    import pyspiel

# What the two hand-written OpenSpiel games play: (ranks, suits, public cards per round, rules).
_KUHN = (3, 1, (0,), BettingRules((1, 1), (BettingRound(1, 1),)))
_LEDUC = (3, 2, (0, 1), BettingRules((1, 1), (BettingRound(2, 2), BettingRound(4, 2))))

# Outside these limits universal_poker ends the process instead of raising an exception.
_MAX_RANKS, _MAX_SUITS = 13, 4
_MAX_CHIPS = 1_000_000


def openspiel_game(game: Game) -> pyspiel.Game:
    """The same game in OpenSpiel: `kuhn_poker`, `leduc_poker`, or `universal_poker` for other parameters.

    Suits are always told apart on OpenSpiel's side, whatever `suit_isomorphism` is here.

    Raises:
        ReproError: OpenSpiel is not installed, or has no such game.
    """
    spiel = _pyspiel()
    cards, rules = game.one_card, game.rules
    shape = (cards.ranks, cards.suits, cards.board_cards, rules)
    if shape == _KUHN:
        return spiel.load_game("kuhn_poker")
    if shape == _LEDUC:
        return spiel.load_game("leduc_poker")
    bets = [r.bet for r in rules.rounds if r.bet is not None]
    chips = [*rules.ante, *bets]
    whole = all(float(c).is_integer() and c <= _MAX_CHIPS for c in chips)
    supported = "kuhn with ranks=3 and leduc with ranks=3, suits=2, max_raises=2, bet_sizes=(2, 4) and ante=1"
    universal = "universal_poker" in spiel.registered_names()
    if universal:
        supported = f"at most {_MAX_RANKS} ranks, {_MAX_SUITS} suits, and chips that are whole and at most {_MAX_CHIPS}"
    if not universal or cards.ranks > _MAX_RANKS or cards.suits > _MAX_SUITS or not whole:
        parameters = ", ".join(f"{key}={value}" for key, value in game.parameters.items())
        raise ReproError(
            f"game {game.name} with {parameters} does not exist in this OpenSpiel; supported are {supported}."
        )
    public = [now - before for before, now in zip((0, *cards.board_cards), cards.board_cards, strict=False)]
    return spiel.load_game(
        "universal_poker",
        {
            "betting": "limit",
            # In limit betting the "bet" of this abstraction is the one raise that the rules allow.
            "bettingAbstraction": "fcpa",
            "numPlayers": 2,
            "numRounds": len(rules.rounds),
            "blind": _joined(rules.ante),
            "raiseSize": _joined(bets),
            "maxRaises": _joined(r.max_raises for r in rules.rounds),
            "firstPlayer": _joined(r.first_player + 1 for r in rules.rounds),
            "numRanks": cards.ranks,
            "numSuits": cards.suits,
            "numHoleCards": 1,
            "numBoardCards": _joined(public),
        },
    )


def to_openspiel(game: Game, policy: Policy) -> pyspiel.TabularPolicy:
    """A policy as an OpenSpiel table over every information state of both players of `openspiel_game(game)`.

    Raises:
        ReproError: OpenSpiel is not installed, or has no such game.
        ValueError: `policy` gives no probabilities at some infoset.
    """
    situations = _situations(game, openspiel_game(game))
    rows = table_of(game, policy)[_infosets(game, situations)].tolist()
    table = {
        s.state.information_state_string(): [(spiel_action, row[action]) for action, spiel_action in s.actions]
        for s, row in zip(situations, rows, strict=True)
    }
    return _pyspiel().TabularPolicy(table)


def from_openspiel(game: Game, policy: Any) -> TabularPolicy:
    """An OpenSpiel policy as a table `[infosets, actions]`, float64, on the game's device.

    Args:
        policy: a `pyspiel.Policy` or an `open_spiel.python.policy.Policy` for `openspiel_game(game)`.

    Raises:
        ReproError: OpenSpiel is not installed or has no such game; `policy` is one for another game; or it plays
            differently at states that are one and the same infoset of `game`.
    """
    situations = _situations(game, openspiel_game(game))
    rows = torch.zeros(len(situations), game.num_actions, dtype=torch.float64)
    for row, s in zip(rows, situations, strict=True):
        probabilities = _action_probabilities(policy, s.state)
        for action, spiel_action in s.actions:
            row[action] = probabilities.get(spiel_action, 0.0)
        if not abs(float(row.sum()) - 1) < 1e-3:
            raise ReproError(
                f"the OpenSpiel policy has probabilities {probabilities} at the state "
                f"{s.state.information_state_string()!r}; a policy for {s.state.get_game()} is needed, whose legal "
                "actions there sum to 1."
            )
    rows = rows.to(game.device)
    infosets = _infosets(game, situations)
    table = torch.zeros(game.legal.shape, dtype=torch.float64, device=game.device)
    table[infosets] = rows
    differs = (table[infosets] - rows).abs().amax(1) > 1e-9
    if differs.any():
        infoset = int(infosets[differs][0])
        raise ReproError(
            f"the OpenSpiel policy plays differently at states that are one infoset here ({game.describe(infoset)}); "
            f"use load({game.name!r}, ..., suit_isomorphism=False) to tell suits apart."
        )
    return TabularPolicy(table)


class _Situation(NamedTuple):
    """A decision state of OpenSpiel, where it is in our game, and the pairs (our action, OpenSpiel's action)."""

    state: Any
    node: int
    board: int
    hand: int
    actions: list[tuple[int, int]]


def _situations(game: Game, openspiel: pyspiel.Game) -> list[_Situation]:
    """At least one state of every information state of both players."""
    tree, cards = game.tree, game.one_card
    player, round_, child = tree.player.tolist(), tree.round.tolist(), tree.child.tolist()
    situations: list[_Situation] = []
    stack: list[tuple[Any, int, tuple[int, ...]]] = [(openspiel.new_initial_state(), 0, ())]
    while stack:
        state, node, dealt = stack.pop()
        if state.is_terminal():
            continue
        outcomes = state.legal_actions()
        if state.is_chance_node():
            if len(dealt) == 1:
                # An information state does not contain the opponent's card, so not every pair of hands is needed:
                # two opponents per hand leave, between them, every possible board card in the deck.
                outcomes = [card for card in outcomes if (card - dealt[0]) % cards.hands in (1, 2)]
            stack.extend((state.child(card), node, (*dealt, card)) for card in outcomes)
            continue
        legal = [(action, to) for action, to in enumerate(child[node]) if to >= 0]
        if state.current_player() != player[node] or len(legal) != len(outcomes):
            raise RuntimeError(f"OpenSpiel's {openspiel} and our betting tree disagree after {tree.histories[node]}")
        board = dealt[2] if cards.board_cards[round_[node]] else 0
        moves = [(action, to, outcome) for (action, to), outcome in zip(legal, outcomes, strict=True)]
        actions = [(action, spiel_action) for action, _, spiel_action in moves]
        situations.append(_Situation(state, node, board, dealt[player[node]], actions))
        stack.extend((state.child(spiel_action), to, dealt) for _, to, spiel_action in moves)
    return situations


def _infosets(game: Game, situations: list[_Situation]) -> torch.Tensor:
    where = torch.tensor([(s.node, s.board, s.hand) for s in situations], device=game.device)
    return game.infoset(*where.unbind(1))


def _action_probabilities(policy: Any, state: Any) -> dict[int, float]:
    try:
        return dict(policy.action_probabilities(state))
    except KeyError:
        # How OpenSpiel's Python tables say that they do not know the state; its C++ tables return nothing.
        return {}


def _joined(numbers: Any) -> str:
    return " ".join(str(int(n)) for n in numbers)


def _pyspiel() -> Any:
    try:
        import pyspiel  # noqa: PLC0415
    except ImportError:
        raise ReproError("OpenSpiel is not installed; `pip install open_spiel` installs it.") from None
    return pyspiel
