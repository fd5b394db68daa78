"""What an evaluation is: a measurement of read-outs of one training, with a key of its own.

An evaluation is a dataclass of its configuration (conf/evaluation) that measures. It meets the training's snapshots one
after the other, while they are made or later, and trains nothing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import torch

from repro.common.seeding import generator
from repro.config.checks import NAME
from repro.config.fields import one_of
from repro.config.schema import AlgorithmConfig
from repro.games.game import Game
from repro.policies.readout import Readout, Seat
from repro.policies.snapshot import Snapshot

FILE = re.compile(rf"(?P<path>.+\.csv|.+\.pt(?=$|:))(:(?P<readout>{NAME}))?")
"""A file as what is measured against: `strategy.csv`, or `snapshot.pt`, perhaps with `:READOUT`."""

METRIC_BYTES = 64
"""Of a metric and its name in JSON, at the most; what a user or the game decides of the name aside."""

Measured = dict[str, dict[str, float]]
"""Name of a read-out -> name of a metric -> value."""


class Other(Protocol):
    """A read-out of another training, finished, that this one is measured against."""

    @property
    def iterations(self) -> Sequence[int]:
        """After which it can be played."""
        ...

    def seats(self, iteration: int | None = None) -> Sequence[Seat]:
        """A player for each seat, as after an iteration; None: the last."""
        ...


@dataclass
class Subject:
    """One snapshot of one training, and how it can be played.

    Attributes:
        game: the training's game.
        seed: the training's; draws of evaluations follow from it, so that a repeated evaluation gives the same.
        snapshot: what is measured.
        readouts: those of the training, by name.
        others: by reference (`KEY` or `KEY/READOUT`), what evaluations named in `others`.
        only: names of the read-outs to measure; None: all.
        tell: takes words that say how far a measurement is, for whoever waits for it.
    """

    game: Game
    seed: int
    snapshot: Snapshot
    readouts: Mapping[str, Readout]
    others: Mapping[str, Other] = field(default_factory=dict)
    only: Sequence[str] | None = None
    tell: Callable[[str], None] = field(default=lambda _: None)

    @property
    def readout_names(self) -> list[str]:
        """Names of the read-outs to measure."""
        return [name for name in self.readouts if self.only is None or name in self.only]

    def __post_init__(self) -> None:
        self._seats: dict[str, Sequence[Seat]] = {}

    def seats(self, readout: str) -> Sequence[Seat]:
        """A player for each seat."""
        if readout not in self._seats:
            self._seats[readout] = self.readouts[readout].seats(self.snapshot)
        return self._seats[readout]

    def telling(self, what: str) -> Callable[[str], None]:
        """`tell` for a part of a measurement that says how far it is itself."""
        return lambda words: self.tell(f"{what}, {words}")

    def draws(self, purpose: str, player: int = 0) -> torch.Generator:
        """The generator of this snapshot for a purpose and player, on the game's device."""
        return generator(self.seed, purpose, self.snapshot.iteration, player, self.game.device)


@dataclass
class Evaluation(ABC):
    """A measurement of read-outs.

    Attributes:
        OF_PLAYERS: whether read-outs must play.
    """

    OF_PLAYERS: ClassVar[bool] = True

    # Of which read-outs, by name; null: of all.
    readouts: list[str] | None = None
    # After every snapshot, or after the last only.
    at: str = one_of("snapshots", "last", default="snapshots")

    @abstractmethod
    def measure(self, subject: Subject) -> Measured:
        """Metrics of the read-outs that this is about."""

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        """What is wrong with these values for a training: key, value and what is allowed, each a part of a sentence.

        Without a key it is the evaluation itself that cannot be.
        """
        for name in self.readouts or []:
            if name not in algorithm.readouts:
                yield "readouts", self.readouts, f"the read-outs of this run are {', '.join(algorithm.readouts)}"
        play = [algorithm.READOUTS[readout.kind].PLAYS for readout in algorithm.readouts.values()]
        if self.OF_PLAYERS and not all(play):
            yield "", None, f"the read-outs of {algorithm.name} play no game, leave it out"

    def bytes_needed(self, game: Game) -> Iterator[tuple[str, float]]:
        """Keys, and the bytes that their values take at the least; see `repro.config.memory`."""
        del game
        return iter(())

    def row_bytes(self, game: Game) -> float | None:
        """Bytes that the metrics of a read-out after one iteration take in JSON at the most; None: nobody has said."""
        return None

    def recall(self, readout: str, rows: Mapping[int, Mapping[str, float]]) -> None:
        """Take in what was measured of a read-out before, by iteration: for metrics that are of all snapshots so far.

        Later iterations than the one that is measured next are to be left aside.
        """
        del readout, rows

    def is_like(self, other: Evaluation) -> bool:
        """Whether both measure the same of a read-out."""
        return type(self) is type(other) and self.identity() == other.identity()

    def joined(self, other: Evaluation) -> Evaluation:
        """This evaluation where it or another one of the same identity is made."""
        some = None if self.readouts is None or other.readouts is None else [*self.readouts, *other.readouts]
        return replace(self, readouts=some, at="last" if self.at == other.at == "last" else "snapshots")

    def headline(self, game: Game, measured: Measured) -> str:
        """The newest of what matters most, in a few words, for progress; empty where there is nothing.

        `measured` has the metrics of all of a training's evaluations, of which this may have measured none just now.
        """
        return ""

    @property
    def charted(self) -> list[str]:
        """Names of the metrics that matter most, the first most of all: what is charted of runs."""
        return []

    @property
    def others(self) -> list[str]:
        """References (`KEY` or `KEY/READOUT`, or a `FILE`) to what this needs beside the measured training."""
        return []

    def with_full_keys(self, full_key: Callable[[str], str]) -> Self:
        """The same with the keys of other trainings in full, as `full_key` says them: they are part of its identity."""
        del full_key
        return self

    def problems_with(self, others: Mapping[str, Other], due: Sequence[int]) -> Iterator[str]:
        """What is wrong with other trainings for measuring after these iterations, a sentence each."""
        return iter(())

    def names(self, readouts: Iterable[str]) -> list[str]:
        """Which of a training's read-outs this is about."""
        return [name for name in readouts if self.readouts is None or name in self.readouts]

    def each(self, subject: Subject) -> Iterator[str]:
        """Names of the read-outs to measure, each told when its turn comes."""
        for name in self.names(subject.readout_names):
            subject.tell(name)
            yield name

    @property
    def beside(self) -> list[str]:
        """Names of the training's own read-outs that the measured one is compared with."""
        return []

    def identity(self) -> dict[str, Any]:
        """What determines the result, beside training and read-out; part of the evaluation's key."""
        return {k: v for k, v in asdict(self).items() if k not in ("readouts", "at")}


@dataclass
class Costs(Evaluation):
    """Nothing is played: what a snapshot cost, and what the training said of it, are all that is noted."""

    OF_PLAYERS = False

    def row_bytes(self, game: Game) -> float | None:
        return 0.0

    def measure(self, subject: Subject) -> Measured:
        return {name: {} for name in self.names(subject.readout_names)}
