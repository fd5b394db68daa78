"""An agent: a read-out of a run, or of its `snapshot.pt`, with the game that it plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean
from repro.config.checks import game_for_checks
from repro.config.schema import Config
from repro.games.game import Game
from repro.policies.readout import Seat
from repro.stored.trained import Trained, load_portable, portable_readout


def no_player(text: str, config: Config, game: str) -> str:
    """What is said of a run that plays no game, after the name of the argument."""
    return (
        f"is {text}, a run of {config.algorithm.name} about {game}, which plays no game; python -m repro.predict shows "
        "what it predicts."
    )


@dataclass(frozen=True)
class Agent:
    """What can sit in a seat.

    Attributes:
        name: of whom, for headings.
        game: that it plays.
        seats: a player for each seat.
        others: read-outs of the same training that are not this one.
    """

    name: str
    game: Game
    seats: Sequence[Seat]
    others: Sequence[str] = ()

    @classmethod
    def open(cls, text: str, output: str, readout: str = "", iteration: int | None = None) -> Agent:
        """The agent of a run's `KEY` (of its folder in `output`/runs) or of a `snapshot.pt`.

        Args:
            readout: its name; empty: the first one.
            iteration: after which it is met; None: the newest snapshot, also of a training that is not finished.

        Raises:
            ReproError: there is none, or it does not play.
        """
        path = Path(text)
        if path.suffix == ".pt":
            return cls._of_file(path, readout, iteration)
        trained = Trained.open(output, text)
        # On the CPU, wherever it was trained.
        name, game = _chosen(trained.config, readout), game_for_checks(trained.config)
        if not isinstance(game, Game):
            raise ReproError(f"KEY {no_player(text, trained.config, game.name)}")
        number = max(trained.snapshots.iterations, default=0) if iteration is None else iteration
        seats = trained.read_out(game, name).seats(number)
        title = f"{name} of {trained.folder.name} after iteration {number}"
        return cls(title, game, seats, _others(trained.config, name))

    @classmethod
    def _of_file(cls, path: Path, readout: str, iteration: int | None) -> Agent:
        if not path.is_file():
            raise ReproError(f"there is no file {path}.")
        config, snapshot = load_portable(path)
        if iteration not in (None, snapshot.iteration):
            raise ReproError(f"--iteration is {iteration}; {path} holds that of iteration {snapshot.iteration} alone.")
        name, game = _chosen(config, readout), game_for_checks(config)
        if not isinstance(game, Game):
            raise ReproError(f"{path} is about {game.name}, which nobody plays.")
        title = f"{name} of {path} after iteration {snapshot.iteration}"
        return cls(title, game, portable_readout(game, path, name), _others(config, name))


def _chosen(config: Config, readout: str) -> str:
    """A read-out's name; the first one's where none is named."""
    readouts: dict[str, Any] = config.algorithm.readouts
    if readout and readout not in readouts:
        hint = did_you_mean(readout, readouts)
        raise ReproError(f"--readout is {readout!r}; {config.algorithm.name} has {', '.join(readouts)}{hint}.")
    if not readouts:
        raise ReproError(f"the algorithm {config.algorithm.name} has no read-outs: it leaves nothing that plays.")
    return readout or next(iter(readouts))


def _others(config: Config, name: str) -> list[str]:
    return [other for other in config.algorithm.readouts if other != name]
