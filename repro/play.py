"""Play against a trained agent in the terminal: `python -m repro.play KEY`.

Seats alternate from hand to hand. At a prompt an action is a word or its first letter; `?` shows what the agent plays
at its last decision with all hands that it may hold, and the exact value of your actions, in games with one private
card each and, once the flop is dealt, in Flop Hold'em; `q` or the end of the input quits. The seed names the cards and
the agent's draws.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.seeding import generator
from repro.common.stopping import stoppable
from repro.config.checks import MOST_WHOLE
from repro.engine.sampling import SamplingEngine, sample_actions
from repro.evaluation.units import milli_units, unit_name
from repro.games.cards import NamedDeal
from repro.games.game import Game
from repro.games.lines import action_of, action_with_chips, action_word, legal_actions
from repro.inside.agent import Agent
from repro.inside.strategies import hands_at, infosets_of, played_at
from repro.inside.values import BoardValues, OneCardValues
from repro.policies.base import Ensemble, HandStrategies
from repro.tracking.folders import PORTABLE

_MOST_SHOWN = 60
"""Hands that are shown one by one."""

Read = Callable[[], str | None]
"""Asks for a line; None at the end of the input."""


@dataclass
class Session:
    """Hands between a person and an agent.

    Args:
        agent: who is played against.
        seed: names all random draws.
        read: where the person's words come from.
        say: where lines go.

    Attributes:
        hands: that were finished.
        chips: that the person has won in them.
    """

    agent: Agent
    seed: int
    read: Read
    say: Callable[[str], None] = print
    hands: int = 0
    chips: float = 0.0
    _engine: SamplingEngine = field(init=False)
    _boards: dict[str, BoardValues] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._engine = SamplingEngine(self.agent.game)

    def play(self, most: int | None = None) -> None:
        """Play hands until the person quits, or so many."""
        usage = "type an action or its first letter, ? for what it plays, q to quit"
        self.say(f"{self.agent.game.name} against {self.agent.name}; {usage}")
        while (most is None or self.hands < most) and self._hand(self.hands):
            pass
        self.say(self.score())

    def score(self) -> str:
        """What the person has won so far, in the game's unit."""
        game = self.agent.game
        units = self.chips / game.chips_per_unit
        name = "big blinds" if game.unit == "mbb/g" else "antes"
        mean = f" ({milli_units(game, self.chips / self.hands):+.0f} {unit_name(game)})" if self.hands else ""
        return f"you: {units:+g} {name} after {self.hands} hand{'s' * (self.hands != 1)}{mean}"

    # -- one hand --------------------------------------------------------------------------------------------------

    def _hand(self, number: int) -> bool:
        """Play a hand; whether it came to its end, and the person did not quit."""
        game, you = self.agent.game, number % 2
        draw = generator(self.seed, "play", number)
        deal = game.cards.deal_named(draw)
        seat = self.agent.seats[1 - you]
        drawn = seat.per_hand(1, draw) if isinstance(seat, Ensemble) else None
        first = int(game.tree.player[0]) == you
        self.say(f"\nhand {number + 1}: you are player {you} and act {'first' if first else 'second'}")
        node, last, seen = 0, None, -1
        while int(game.tree.player[node]) >= 0:
            seen = self._deal_until(deal, node, seen, you)
            if int(game.tree.player[node]) == you:
                asked = self._ask(node, last, deal, you)
                if asked is None:
                    return False
                action = asked
            else:
                action, last = self._agent_acts(node, deal, drawn, draw), node
                self.say(f"  agent: {action_with_chips(game, node, action)}")
            node = int(game.tree.child[node, action])
        self._end(deal, node, you)
        return True

    def _deal_until(self, deal: NamedDeal, node: int, seen: int, you: int) -> int:
        """Say what is dealt up to a node's round; returns the round."""
        tree = self.agent.game.tree
        round_ = int(tree.round[node])
        if round_ > seen:
            board = f", board {deal.boards[round_]}" if deal.boards[round_] else ""
            self.say(
                f"  your hand {deal.hands[you][round_]}{board}, {float(tree.chips[node].sum()):g} chips in the pot"
            )
        return round_

    def _agent_acts(self, node: int, deal: NamedDeal, drawn: HandStrategies | None, draw: torch.Generator) -> int:
        seat = self.agent.seats[int(self.agent.game.tree.player[node])]
        here = torch.tensor([0])
        infosets = self._engine.infosets(torch.tensor([node]), here, deal.deals)
        with torch.no_grad():
            if drawn is not None:
                probabilities = drawn(infosets, here)
            else:
                assert not isinstance(seat, Ensemble)
                probabilities = seat.probabilities(infosets)
        return int(sample_actions(probabilities.float(), draw))

    def _end(self, deal: NamedDeal, node: int, you: int) -> None:
        tree = self.agent.game.tree
        folded = int(tree.winner[node])
        sign = float(deal.deals.sign[0]) if folded < 0 else 1.0 if folded == 0 else -1.0
        won = float(tree.stake[node]) * (sign if you == 0 else -sign)
        self.hands, self.chips = self.hands + 1, self.chips + won
        if folded < 0:
            board = f", board {deal.boards[-1]}" if deal.boards[-1] else ""
            self.say(f"  showdown: you have {deal.hands[you][-1]}, the agent {deal.hands[1 - you][-1]}{board}")
        result = f"you {'win' if won > 0 else 'lose'} {abs(won):g} chips" if won else "you split the pot"
        self.say(f"  {result}; {self.score()}")

    # -- the person ------------------------------------------------------------------------------------------------

    def _ask(self, node: int, last: int | None, deal: NamedDeal, you: int) -> int | None:
        """The person's action at a node; None if she quits."""
        game = self.agent.game
        actions = legal_actions(game, node)
        while True:
            options = ", ".join(action_with_chips(game, node, action) for action in actions)
            self.say(f"  you: {options}?")
            word = self.read()
            if word is None or word.strip().lower() in ("q", "quit"):
                return None
            word = word.strip()
            if word == "?":
                self._show(node, last, deal, you)
                continue
            action = action_of(game, node, word.split()[0]) if word else None
            if action is not None:
                self.say(f"  you: {action_with_chips(game, node, action)}")
                return action
            self.say(f"  {word!r} is none of these; {_short(game, node)}, ? and q do, too")

    def _show(self, node: int, last: int | None, deal: NamedDeal, you: int) -> None:
        """What the agent plays at its last decision, and what the person's actions are worth."""
        game = self.agent.game
        if last is None:
            self.say("    the agent has not acted in this hand yet")
        else:
            self._show_agent(last, deal.boards[int(game.tree.round[last])])
        values = self._worth(node, deal)
        if values is None:
            why = f"it {game.why_not_exact}" if game.why_not_exact else "only once the board is dealt"
            self.say(f"    the exact value of your actions is not available in {game.name}: {why}")
            return
        if bool(values[legal_actions(game, node)].isnan().all()):
            self.say("    the exact value of your actions is not known: the agent never plays like this")
            return
        words = [f"{action_with_chips(game, node, a)} {float(values[a]):+.3f}" for a in legal_actions(game, node)]
        self.say(f"    your actions, in chips from here, if you then play your best: {', '.join(words)}")

    def _worth(self, node: int, deal: NamedDeal) -> torch.Tensor | None:
        """`[actions]` chips from a node on for the person who then plays her best; None where that cannot be had."""
        game, round_ = self.agent.game, int(self.agent.game.tree.round[node])
        infosets = self._engine.infosets(torch.tensor([node]), torch.tensor([0]), deal.deals)
        if game.exact == "sequence_form":
            return self._values.values.at(infosets).at_best[0]
        if game.exact is None or not round_:
            return None
        board = deal.boards[round_]
        hands = hands_at(game, node, board)
        assert hands.board is not None
        if board not in self._boards:
            # Of this hand alone: a board's table has a row per hand and betting node.
            self._boards = {board: BoardValues(game, self.agent.seats, hands.board)}
        mine = int((infosets_of(game, node, hands) == infosets).nonzero()[0])
        return self._boards[board].at(node, hands).at_best[mine]

    def _show_agent(self, last: int, board: str) -> None:
        game = self.agent.game
        hands = hands_at(game, last, board)
        played = played_at(game, self.agent.seats, last, hands)
        actions = legal_actions(game, last)

        def shares(probabilities: torch.Tensor) -> str:
            return ", ".join(f"{action_with_chips(game, last, a)} {float(probabilities[a]):.1%}" for a in actions)

        if len(hands) <= _MOST_SHOWN:
            for name, probabilities in zip(hands.names, played.probabilities, strict=True):
                self.say(f"    with {name} the agent would {shares(probabilities)}")
            return
        weight = played.arrival / played.arrival.sum()
        self.say(f"    over all hands that it may hold the agent would {shares(weight @ played.probabilities)}")

    @cached_property
    def _values(self) -> OneCardValues:
        return OneCardValues(self.agent.game, self.agent.seats)


def _short(game: Game, node: int) -> str:
    """What may be typed at a node for each legal action: `c (check), b (bet)`."""
    words = [action_word(game, node, action) for action in legal_actions(game, node)]
    return ", ".join(f"{word[0]} ({word})" for word in words)


def _read_line() -> str | None:
    line = sys.stdin.readline()
    return line if line else None


@stoppable("")
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, or 2 if the request was at fault."""
    parser = Parser(prog="python -m repro.play", description=__doc__)
    parser.add_argument("key", metavar="KEY", help=f"a run, a folder in OUTPUT/runs, or a {PORTABLE}")
    parser.add_argument("--readout", default="", help="how it is played (default: its first read-out)")
    parser.add_argument("--iteration", type=int, help="after which (default: the last snapshot)")
    parser.add_argument("--hands", type=int, help="stop after so many (default: when you quit)")
    parser.add_argument("--seed", type=int, default=0, help="names the cards (default: %(default)s)")
    parser.add_argument("--output", default="outputs", help="where runs are (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.hands is not None and options.hands < 1:
        raise ReproError(f"--hands is {options.hands}; it must be at least 1.")
    if not 0 <= options.seed <= MOST_WHOLE:
        raise ReproError(f"--seed is {options.seed}; it must be a whole number from 0 to {MOST_WHOLE}.")
    agent = Agent.open(options.key, options.output, options.readout, options.iteration)
    Session(agent, options.seed, _read_line).play(options.hands)
    return 0


if __name__ == "__main__":
    sys.exit(main())
