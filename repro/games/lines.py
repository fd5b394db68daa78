"""Betting as people say it: `check bet / call` to a node of the tree and back, and what a player may do with chips."""

from __future__ import annotations

from repro.common.errors import ReproError
from repro.games.betting import ALL_IN, CALL, FOLD, RAISE
from repro.games.game import Game

_WORDS = {
    "fold": FOLD, "f": FOLD, "call": CALL, "c": CALL, "check": CALL, "k": CALL, "x": CALL, "raise": RAISE, "r": RAISE,
    "bet": RAISE, "b": RAISE, "all-in": ALL_IN, "allin": ALL_IN, "a": ALL_IN,
}  # fmt: skip
_CHECKS = ("check", "k", "x")


def owed(game: Game, node: int) -> float:
    """Chips that the player to act needs for a call; 0: it is a check."""
    player = int(game.tree.player[node])
    return float(game.tree.chips[node, 1 - player] - game.tree.chips[node, player])


def legal_actions(game: Game, node: int) -> list[int]:
    """What the player to act may do, the most passive first."""
    return [action for action in range(game.num_actions) if bool(game.tree.legal[node, action])]


def action_of(game: Game, node: int, word: str) -> int | None:
    """The action that a word names at a node; None if it names none that is legal there."""
    action = _WORDS.get(word.lower())
    if action is None or action not in legal_actions(game, node):
        return None
    return None if word.lower() in _CHECKS and owed(game, node) > 0 else action


def action_word(game: Game, node: int, action: int) -> str:
    """What an action is called at a node: `check` or `call`, `bet` or `raise`, `fold`, `all-in`."""
    if action == CALL:
        return "call" if owed(game, node) > 0 else "check"
    if action == RAISE:
        return "raise" if owed(game, node) > 0 or _put_in(game, node) > 0 else "bet"
    return "fold" if action == FOLD else "all-in"


def action_with_chips(game: Game, node: int, action: int) -> str:
    """`action_word` with its chips: `call 50`, `bet 100`, `raise to 300`, counted from where the round began."""
    word, player = action_word(game, node, action), int(game.tree.player[node])
    if action == CALL and owed(game, node) > 0:
        return f"{word} {owed(game, node):g}"
    if action in (RAISE, ALL_IN):
        after = float(game.tree.chips[int(game.tree.child[node, action]), player]) - _at_start(game, node)
        return f"{word} {'' if word == 'bet' else 'to '}{after:g}"
    return word


def _at_start(game: Game, node: int) -> float:
    """Chips of each player that bets of the round come on top of: blinds are bets, antes are not."""
    tree, round_ = game.tree, int(game.tree.round[node])
    while int(tree.parent[node]) >= 0 and int(tree.round[tree.parent[node]]) == round_:
        node = int(tree.parent[node])
    first, second = tree.chips[node].tolist()
    return float(first) if first == second else 0.0


def _put_in(game: Game, node: int) -> float:
    """Chips that have been bet in the round: those of the player who bet most."""
    return float(game.tree.chips[node].max()) - _at_start(game, node)


def path_to(game: Game, node: int) -> list[tuple[int, int]]:
    """The (node, action) pairs that lead to a node, the first one first."""
    path = []
    while int(game.tree.parent[node]) >= 0:
        before = int(game.tree.parent[node])
        path.append((before, game.tree.child[before].tolist().index(node)))
        node = before
    return path[::-1]


def line_in_words(game: Game, node: int) -> str:
    """The betting that leads to a node, `check bet call / check`; before any, `the first action`."""
    words, round_ = list[str](), 0
    for before, action in path_to(game, node):
        if int(game.tree.round[before]) > round_:
            words.append("/")
            round_ = int(game.tree.round[before])
        words.append(action_word(game, before, action))
    return " ".join([*words, *["/"] * (int(game.tree.round[node]) > round_)]) or "the first action"


def place_in_words(game: Game, node: int) -> str:
    """Where in a hand a node is: `after 'check bet'`, or `first to act`."""
    return f"after {line_in_words(game, node)!r}" if int(game.tree.parent[node]) >= 0 else "first to act"


def read_line(game: Game, key: str, text: str) -> int:
    """The decision node that a line of betting leads to; slashes between rounds may be left out.

    Raises:
        ReproError: a word is no legal action where it stands, or the hand is over.
    """
    node = 0
    for word in text.replace("/", " ").replace(",", " ").split():
        action = action_of(game, node, word)
        if action is None:
            place = place_in_words(game, node)
            allowed = ", ".join(action_word(game, node, each) for each in legal_actions(game, node))
            fault = f"{place} {word!r} is none of {allowed}" if allowed else f"the hand is over {place}"
            raise ReproError(f"{key} is {text!r}; {fault}.")
        node = int(game.tree.child[node, action])
    if int(game.tree.player[node]) < 0:
        raise ReproError(f"{key} is {text!r}; the hand is over after {line_in_words(game, node)!r}, and nobody acts.")
    return node
