"""Look inside a trained agent: `python -m repro.inspect KEY --line "check bet" --hand K`.

Shows what a read-out plays at a betting line, with every hand or one of them, and in games with one private card each,
and in Flop Hold'em once the board is dealt, what each action is worth, exactly. Other options: all infosets of a small
game, a picture of the range in Hold'em, and the lines of play at which most is lost.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch
from rich.table import Table
from torch import Tensor

from repro.common import tables
from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import stoppable
from repro.config.checks import MOST_WHOLE
from repro.evaluation.units import milli_units, unit_name
from repro.games.game import Game
from repro.games.holdem import HoldemCards
from repro.games.lines import action_with_chips, action_word, legal_actions, line_in_words, place_in_words, read_line
from repro.games.one_card import OneCard
from repro.inside.agent import Agent
from repro.inside.strategies import Hands, Played, hands_at, infosets_of, played_at, read_hand
from repro.inside.values import ActionValues, BoardValues, Loss, OneCardValues, board_losses
from repro.tracking.folders import PORTABLE
from repro.tracking.progress import console

_PICTURES = (".png", ".pdf", ".svg")

MOST_LISTED = 100_000
"""Infosets of the largest game whose infosets are all listed."""
_FEW_HANDS = 60
"""Hands that are shown one by one; of more, their mean."""
_NEVER_MET = "never met"
_AS_PLAYED, _AT_BEST, _AGAINST_BEST = "as played", "at best", "against a best response"


# -- one betting line ------------------------------------------------------------------------------------------------


def show_position(agent: Agent, line: str, board: str, hand: str) -> None:
    """Print what is played at a betting line, and what it is worth, with every hand or one."""
    game = agent.game
    node = read_line(game, "--line", line)
    hands = hands_at(game, node, board)
    if hand:
        hands = read_hand(hands, hand, game)
    played = played_at(game, agent.seats, node, hands)
    _say_where(agent, node, board)
    values, why_not = _values_at(agent, node, hands)
    if hand:
        _show_actions(game, node, hands, played, values)
    elif len(hands) <= _FEW_HANDS:
        _show_hands(game, node, hands, played, values)
    else:
        _show_range(game, node, hands, played)
    if why_not:
        print(why_not)


def _say_where(agent: Agent, node: int, board: str) -> None:
    game, player = agent.game, int(agent.game.tree.player[node])
    parts = [f"player {player} {place_in_words(game, node)}"]
    if board:
        parts.append(f"board {board}")
    pot = float(game.tree.chips[node].sum())
    others = f"; other read-outs, for --readout: {', '.join(agent.others)}" if agent.others else ""
    print(f"{game.name}, {agent.name}{others}\n{', '.join(parts)}, {pot:g} chips in the pot")


def _values_at(agent: Agent, node: int, hands: Hands) -> tuple[ActionValues | None, str]:
    """Values `[hands, actions]`, or why there are none."""
    game = agent.game
    if game.exact == "sequence_form":
        return OneCardValues(game, agent.seats).values.at(infosets_of(game, node, hands)), ""
    if game.exact is None:
        return None, f"Exact values are not available: the game {game.name} {game.why_not_exact}."
    if not int(game.tree.round[node]):
        return None, "Exact values are shown once the board is dealt: before it, they are a sum over all boards."
    assert hands.board is not None
    return BoardValues(game, agent.seats, hands.board).at(node, hands), ""


def _show_actions(game: Game, node: int, hands: Hands, played: Played, values: ActionValues | None) -> None:
    """One hand: a row per action."""
    print(f"hand {hands.names[0]}, which its own actions bring here with probability {float(played.arrival[0]):.4g}")
    columns = (_AS_PLAYED, _AT_BEST, _AGAINST_BEST) if values else ()
    table = Table("action", "probability", *(f"chips, {name}" for name in columns), box=None)
    probabilities = played.probabilities[0]
    for action in legal_actions(game, node):
        cells = [_chips(v[0, action]) for v in _three(values)]
        table.add_row(action_with_chips(game, node, action), f"{float(probabilities[action]):.4f}", *cells)
    if values:
        whole = [_mean(values.played[0], probabilities), values.at_best[0].nan_to_num(-torch.inf).max(),
                 _mean(values.against_best[0], probabilities)]  # fmt: skip
        table.add_row("all of it", "", *map(_chips, whole))
    console(sys.stdout).print(table)
    if values:
        _explain_never(torch.stack(_three(values))[:, :, legal_actions(game, node)])


def _three(values: ActionValues | None) -> tuple[Tensor, ...]:
    return (values.played, values.at_best, values.against_best) if values else ()


def _mean(values: Tensor, probabilities: Tensor) -> Tensor:
    """Of legal actions; nan where the values are."""
    legal = probabilities > 0
    return (values[legal] * probabilities[legal]).sum()


def _chips(value: Tensor) -> str:
    number = float(value)
    return f"{number:+.4f}" if abs(number) < float("inf") else _NEVER_MET


def _show_hands(game: Game, node: int, hands: Hands, played: Played, values: ActionValues | None) -> None:
    """A row per hand."""
    actions = legal_actions(game, node)
    words = [action_word(game, node, action) for action in actions]
    worth = [f"{word}, chips" for word in words] if values else []
    table = Table("hand", "comes here", *words, *worth, box=None)
    for i, name in enumerate(hands.names):
        shares = [f"{float(played.probabilities[i, action]):.4f}" for action in actions]
        chips = [_chips(values.played[i, action]) for action in actions] if values else []
        table.add_row(name, f"{float(played.arrival[i]):.4f}", *shares, *chips)
    console(sys.stdout).print(table)
    if values:
        print("Chips: what an action wins from here on, both playing as the agent after it; --hand shows more.")
        _explain_never(values.played[:, actions])


def _explain_never(shown: Tensor) -> None:
    """Say what "never met" means, where it is shown."""
    if not shown.isfinite().all():
        print(f"{_NEVER_MET}: no hand of an opponent who plays so comes here, so that there is nothing to win or lose.")


def _show_range(game: Game, node: int, hands: Hands, played: Played) -> None:
    weight = played.arrival / played.arrival.sum() if float(played.arrival.sum()) else played.arrival
    shares = (weight[:, None] * played.probabilities).sum(0)
    words = [f"{action_with_chips(game, node, a)} {float(shares[a]):.1%}" for a in legal_actions(game, node)]
    print(f"over its range ({float(played.arrival.mean()):.1%} of {len(hands)} hands come here): {', '.join(words)}")
    print("--hand AhKd shows one hand, --grid FILE.png draws all of them.")


# -- all infosets ----------------------------------------------------------------------------------------------------


def every_infoset(agent: Agent) -> pd.DataFrame:
    """A row per infoset of a game with one private card each: who, what is known, probabilities, and values in chips.

    Raises:
        ReproError: the game is another one, or has too many.
    """
    game = agent.game
    if game.exact != "sequence_form" or not isinstance(game.cards, OneCard) or game.infosets > MOST_LISTED:
        raise ReproError(f"--all is for games with one private card each and at most {MOST_LISTED:,} infosets.")
    found = OneCardValues(game, agent.seats)
    nodes = game.infoset_node.tolist()
    names = game.cards.class_names
    dealt = [game.cards.board_cards[int(game.tree.round[node])] for node in nodes]
    boards = zip(game.infoset_board.tolist(), dealt, strict=True)
    lines = {node: line_in_words(game, node) if node else "" for node in set(nodes)}
    columns: dict[str, object] = {
        "player": game.infoset_player.tolist(),
        "hand": [names[hand] for hand in game.infoset_hand.tolist()],
        "board": [names[board] if is_dealt else "" for board, is_dealt in boards],
        "betting": [lines[node] for node in nodes],
    }
    words = game.actions
    columns |= {word: found.table[:, a].tolist() for a, word in enumerate(words)}
    for label, values in zip(("played", "at_best", "against_best"), _three(found.values), strict=True):
        columns |= {f"{word}_{label}": values[:, a].tolist() for a, word in enumerate(words)}
    return pd.DataFrame(columns)


def show_all(agent: Agent, path: Path | None) -> None:
    """Print all infosets, or write them to a CSV file."""
    data = every_infoset(agent)
    if path is not None:
        tables.write(data, path)
        print(f"{len(data)} infosets in {path}")
        return
    print(f"{agent.game.name}, {agent.name}; values are chips, both playing as the agent after the action")
    shown = [c for c in data.columns if not c.endswith("best")]
    texts = data[shown].map(lambda value: f"{value:.4f}" if isinstance(value, float) else str(value))
    table = Table(*shown, box=None)
    for row in texts.replace("nan", "").itertuples(index=False):
        table.add_row(*row)
    console(sys.stdout).print(table)


# -- pictures, and where most is lost --------------------------------------------------------------------------------


def show_grid(agent: Agent, line: str, board: str, path: Path) -> None:
    """Draw the range at a betting line.

    Raises:
        ReproError: the game is no Hold'em.
    """
    from repro.inside import grid  # noqa: PLC0415  (imports Matplotlib, which takes a second)

    game = agent.game
    if not isinstance(game.cards, HoldemCards):
        raise ReproError(f"--grid is for Hold'em, whose hands are two cards; {game.name} has one (leave it out).")
    node = read_line(game, "--line", line)
    hands = hands_at(game, node, board)
    grid.draw(game, node, hands, played_at(game, agent.seats, node, hands),
              grid.title_of(agent.name, game, node, board), path)  # fmt: skip
    print(f"{path} shows what player {int(game.tree.player[node])} plays, {place_in_words(game, node)}")


def show_losses(agent: Agent, most: int, boards: int | None, seed: int) -> None:
    """Print the betting lines at which most is lost, by acting otherwise there alone.

    Raises:
        ReproError: the game has no exact values.
    """
    game = agent.game
    if game.exact is None:
        raise ReproError(f"--lost needs exact values, and the game {game.name} {game.why_not_exact}.")
    one_card = OneCardValues(game, agent.seats) if game.exact == "sequence_form" else None
    losses = board_losses(game, agent.seats, boards, seed) if one_card is None else one_card.losses()
    how = "" if one_card or boards is None else f", estimated on {boards} random boards"
    print(f"{game.name}, {agent.name}: what acting otherwise after one line alone would gain{how}")
    table = Table("player", "betting", unit_name(game), *(["most at"] if one_card else []), box=None)
    for loss in losses[:most]:
        most_at = [_worst(game, one_card, loss)] if one_card else []
        where = str(int(game.tree.player[loss.node])), line_in_words(game, loss.node)
        table.add_row(*where, f"{milli_units(game, loss.chips):.3f}", *most_at)
    console(sys.stdout).print(table)


def _worst(game: Game, found: OneCardValues, loss: Loss) -> str:
    """The infoset of a line at which most is lost: `hand K, board Q (1.2): raise is best, played 3.0%`."""
    if not loss.infosets:
        return ""
    (infoset, chips), node = loss.infosets[0], loss.node
    cards = game.cards.describe(int(game.tree.round[node]), infoset - int(game.first_infoset[node]))
    best = int(found.values.played[infoset].nan_to_num(-torch.inf).argmax())
    share = float(found.table[infoset, best])
    return f"{cards} ({milli_units(game, chips):.3f}): {action_word(game, node, best)} is best, played {share:.1%}"


# -- the command -----------------------------------------------------------------------------------------------------


def _boards(text: str) -> int | None:
    """A number of boards, or all of them.

    Raises:
        ReproError: it is neither.
    """
    if text == "all":
        return None
    if not text.isdecimal() or not 2 <= int(text) <= 10**6:
        raise ReproError(f"--boards is {text!r}; it must be all, or a whole number from 2 to 1000000.")
    return int(text)


def run(options: argparse.Namespace) -> None:
    """Answer.

    Raises:
        ReproError: the request is at fault.
    """
    boards = _boards(options.boards)
    if options.lost is not None and options.lost < 1:
        raise ReproError(f"--lost is {options.lost}; it must be at least 1.")
    if not 0 <= options.seed <= MOST_WHOLE:
        raise ReproError(f"--seed is {options.seed}; it must be a whole number from 0 to {MOST_WHOLE}.")
    if options.csv is not None and not options.all:
        raise ReproError("--csv goes with --all, which it writes.")
    if options.csv is not None:
        tables.check("--csv", options.csv)
    if options.grid is not None:
        tables.check("--grid", options.grid, _PICTURES)
    if options.hand and (options.all or options.grid or options.lost):
        raise ReproError(f"--hand is {options.hand!r}; it goes with --line and --board alone.")
    if (options.line or options.board) and (options.all or options.lost):
        raise ReproError("--line and --board go with one position or --grid, not with --all or --lost.")
    agent = Agent.open(options.key, options.output, options.readout, options.iteration)
    print(f"looking inside {options.key}: seconds, in a game as large as Big Leduc a minute or two", file=sys.stderr)
    if options.all:
        show_all(agent, options.csv)
    if options.grid is not None:
        show_grid(agent, options.line, options.board, options.grid)
    if options.lost is not None:
        show_losses(agent, options.lost, boards, options.seed)
    if not (options.all or options.grid or options.lost):
        show_position(agent, options.line, options.board, options.hand)


def parser() -> Parser:
    """Of the command line."""
    made = Parser(prog="python -m repro.inspect", description=__doc__)
    made.add_argument("key", metavar="KEY", help=f"a run, a folder in OUTPUT/runs, or a {PORTABLE}")
    made.add_argument("--readout", default="", help="how it is played (default: its first read-out)")
    made.add_argument("--iteration", type=int, help="after which (default: the last snapshot)")
    made.add_argument(
        "--line", default="", help="betting until there, such as 'check bet call / check' (default: none)"
    )
    made.add_argument("--board", default="", help="public cards, such as 'Ah Kd 2c'")
    made.add_argument("--hand", default="", help="one hand, such as K, Kd or AhKd (default: all)")
    made.add_argument("--all", action="store_true", help="all infosets of a game with one private card each")
    made.add_argument("--csv", type=Path, help="with --all: write them to this file")
    made.add_argument("--grid", type=Path, metavar="FILE.png", help="draw the range, in Hold'em")
    made.add_argument("--lost", type=int, nargs="?", const=10, help="the lines at which most is lost (default: 10)")
    made.add_argument(
        "--boards", default="100", help="with --lost in Hold'em: on so many boards, or all (default: 100)"
    )
    made.add_argument("--seed", type=int, default=0, help="names the draw of boards (default: 0)")
    made.add_argument("--output", default="outputs", help="where runs are (default: %(default)s)")
    return made


@stoppable("")
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, or 2 if the request was at fault."""
    run(parser().parse_args(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
