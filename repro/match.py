"""Play two strategies against each other: `python -m repro.match leduc uniform strategy.csv --hands 1000000`.

Prints what A wins per game against B, the mean over both seatings: as played, every deal once in each seating, and, in
games with one private card each, exactly.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.seeding import generator
from repro.common.stopping import stoppable
from repro.common.suggestions import did_you_mean
from repro.config.checks import MOST_WHOLE, game_for_checks
from repro.evaluation.averages import tabulated
from repro.evaluation.head_to_head import MatchResult, exact, play_match
from repro.evaluation.units import milli_units, unit_name
from repro.games import Game, load
from repro.inside.agent import no_player
from repro.policies.network import Uniform
from repro.policies.readout import Seat
from repro.stored.trained import FileReadout, Trained, load_portable
from repro.tracking.folders import PORTABLE, full_key, is_of_a_run, run_folder
from repro.tracking.progress import console

BothSeats = Sequence[Seat]
"""What a command line can name: a player for each seat."""

_LONGEST_NAME = 255
"""Of files on common file systems."""

_MOST_HANDS = 10**12
"""More than a year of them."""

_WORDS: dict[str, bool] = {"true": True, "false": False}


# -- before any work -------------------------------------------------------------------------------------------------


def read_game(text: str) -> Game:
    """The game of `NAME` or `NAME:KEY=VALUE:KEY=VALUE`, for example `leduc:ranks=4:bet_sizes=1,2`.

    Raises:
        ReproError: there is no such game.
    """
    name, *settings = text.split(":")
    parameters: dict[str, object] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ReproError(f"GAME is {text!r}; after the name must come KEY=VALUE, with a colon before each.")
        if key in ("name", "device") or key in parameters:
            raise ReproError(f"GAME is {text!r}; {key} is no parameter of a game, or is given twice.")
        parameters[key] = tuple(map(_value, value.split(","))) if "," in value else _value(value)
    try:
        return load(name, device="cpu", **parameters)
    except ReproError as error:
        raise ReproError(f"GAME is {text!r}: {error}") from error


def _value(text: str) -> object:
    """`text` as true or false, a whole number or a number if it is one."""
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_player(game: Game, argument: str, text: str, output: str = "outputs") -> BothSeats:
    """The player that A or B names: `uniform`, a `strategy.csv`, `snapshot.pt[:READOUT]`, or a run's `KEY[/READOUT]`.

    Raises:
        ReproError: it is none of these, or for another game.
    """
    if text == "uniform":
        return Uniform(game), Uniform(game)
    try:
        path = _path(text)
        if path.suffix in (".csv", ".pt"):
            return FileReadout(game, path, text.partition(":")[2]).seats()
        key, _, readout = text.partition("/")
        if is_of_a_run(run_folder(output, full_key(output, key))):
            return Trained.open(output, key).other(game, readout).seats()
    except ReproError as error:
        raise ReproError(f"{argument}: {error}") from error
    raise ReproError(
        f"{argument} is {text!r}{did_you_mean(text, ['uniform'])}; it must be uniform, a strategy.csv, a {PORTABLE} "
        f"(with :READOUT), or the key of a run in {output}/runs (with /READOUT)."
    )


def _path(text: str) -> Path:
    path = Path(text.partition(":")[0])
    if len(path.name) > _LONGEST_NAME:
        raise ReproError(f"{text!r} is no name of a file or a run.")
    return path


def game_of_players(texts: Sequence[str], output: str) -> Game:
    """The game that the first of these players is of that says so: a run, or a snapshot.

    Raises:
        ReproError: none does, or it plays none.
    """
    for argument, text in zip(("A", "B"), texts, strict=True):
        path = _path(text)
        if path.suffix == ".pt" and path.is_file():
            config = load_portable(path)[0]
        elif is_of_a_run(run_folder(output, full_key(output, text.partition("/")[0]))):
            config = Trained.open(output, text.partition("/")[0]).config
        else:
            continue
        game = game_for_checks(config)
        if isinstance(game, Game):
            return game
        raise ReproError(f"{argument} {no_player(text, config, game.name)}")
    raise ReproError(f"GAME is missing; of {' and '.join(texts)}, none is a run or a {PORTABLE} that names it.")


def _whole_number(option: str, text: str, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ReproError(f"{option} is {text!r}; it must be a whole number from {least} to {most}.")
    return number


def _hands(text: str) -> int:
    hands = _whole_number("--hands", text, 4, _MOST_HANDS)
    if hands % 2:
        raise ReproError(f"--hands is {hands}; it must be even, because every deal is played in both seatings.")
    return hands


# -- the match -------------------------------------------------------------------------------------------------------


def _bars() -> Progress:
    """Progress bars on stderr, gone when they are full; nothing where output goes to a file."""
    shown = console(sys.stderr)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal)


def _sampled(game: Game, a: BothSeats, b: BothSeats, hands: int, seed: int, bars: Progress) -> MatchResult:
    task = bars.add_task("hands", total=hands)

    def advance(match: MatchResult) -> None:
        half = milli_units(game, match.interval[1] - match.mean)
        so_far = f"{milli_units(game, match.mean):.1f} ± {half:.1f} {unit_name(game)}"
        bars.update(task, completed=match.hands, description=f"hands, {so_far}")

    return play_match(game, a, b, hands, generator(seed, "match"), progress=advance)


def run(arguments: argparse.Namespace) -> None:
    """Check everything, play, print.

    Raises:
        ReproError: the request is at fault.
    """
    hands, seed = _hands(arguments.hands), _whole_number("--seed", arguments.seed, 0, MOST_WHOLE)
    players = [arguments.A, arguments.B]
    game = read_game(arguments.game) if arguments.game else game_of_players(players, arguments.output)
    a, b = (read_player(game, name, getattr(arguments, name), arguments.output) for name in ("A", "B"))
    print(f"{arguments.game or game.name}: what {arguments.A} wins against {arguments.B}, mean over both seatings")
    with _bars() as bars:
        match = _sampled(game, a, b, hands, seed, bars)
    low, high = (milli_units(game, bound) for bound in match.interval)
    # As many digits as the interval makes known, and one more.
    digits = max(0, 2 - math.floor(math.log10(high - low))) if high > low else 1
    mean, unit = milli_units(game, match.mean), unit_name(game)
    print(f"sampled  {mean:.{digits}f} {unit}, 95% CI [{low:.{digits}f}, {high:.{digits}f}], {match.hands} hands")
    if game.exact != "sequence_form":
        return
    value = exact(game, tabulated(game, a), tabulated(game, b))
    print(f"exact    {milli_units(game, value):.3f} {unit}")


@stoppable("")
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, or 2 if the request was at fault."""
    player = f"uniform, a strategy.csv, a {PORTABLE}[:READOUT], or the KEY[/READOUT] of a finished run"
    parser = Parser(prog="python -m repro.match", description="Play A against B.")
    named = "name of a game, with :KEY=VALUE for each parameter to change (default: that of a run among A and B)"
    parser.add_argument("game", metavar="GAME", nargs="?", help=named)
    parser.add_argument("A", help=player)
    parser.add_argument("B", help="likewise")
    parser.add_argument("--hands", default="1000000", help="hands to play, an even number (default: %(default)s)")
    parser.add_argument("--seed", default="0", help="names all random draws (default: %(default)s)")
    parser.add_argument("--output", default="outputs", help="where runs are (default: %(default)s)")
    run(parser.parse_args(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
