"""The evaluations: exploitability, matches, disagreement, and small strategies themselves (conf/evaluation)."""

from __future__ import annotations

import hashlib
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from repro.common.seeding import generator
from repro.config.checks import NAME
from repro.config.fields import at_least, one_of
from repro.config.schema import AlgorithmConfig, register_evaluation
from repro.engine.holdem_form import HoldemForm, sample_boards
from repro.evaluation.averages import Averages, BoardRows, ListedRows, engine_rows
from repro.evaluation.base import FILE, METRIC_BYTES, Costs, Evaluation, Measured, Other, Subject
from repro.evaluation.disagreement import disagreement
from repro.evaluation.head_to_head import exact, play_match
from repro.evaluation.units import exploitability, milli_units, unit_name
from repro.games.game import Game
from repro.policies.base import Ensemble, Mixture, TabularPolicy
from repro.policies.readout import Seat

_REPLICATES = 100
"""Bootstrap samples of boards behind a standard error."""

_REFERENCE = re.compile(rf"[0-9a-f]{{12}}(/{NAME})?|/{NAME}")
"""A read-out of a training, or another one of the same training."""
_SHORTENED = re.compile(rf"([0-9a-f]{{1,11}})(?:/{NAME})?")
_BESIDE = re.compile(rf"/{NAME}")

_FEW_INFOSETS = 16
"""Infosets of the largest game whose strategies are metrics."""

_MOST_MATCHES = _MOST_READOUTS = 3
"""That a headline shows."""


@dataclass
class _Exact(Evaluation):
    """What is exact of strategies as tables: of all infosets, or of those of a sample of boards.

    The boards are drawn once per seed, so that iterations, and runs that differ in a hyperparameter, share them.

    Attributes:
        HEADLINE: the metric that matters most.
    """

    HEADLINE: ClassVar[str]

    # Hold'em games with one board: measure on so many random boards; null: on all, which is exact.
    boards: int | None = at_least(2, None)

    def __post_init__(self) -> None:
        self._rows: ListedRows | BoardRows | None = None
        self._tables: dict[str, Averages] = {}

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        yield from super().problems(game, algorithm)
        if game.exact is None:
            yield (
                "boards",
                self.boards,
                f"exploitability is exact, and the game {game.name} {game.why_not_exact}: leave it out",
            )
        elif game.exact != "boards" and self.boards is not None:
            yield "boards", self.boards, f"the game {game.name} has few boards, use null"
        elif not game.listed and self.boards is None:
            yield "boards", "null", f"the game {game.name} is too large to measure on all boards, a number is needed"

    def bytes_needed(self, game: Game) -> Iterator[tuple[str, float]]:
        if self.boards is not None:
            # A draw of a board is a number per card.
            yield "boards", 8.0 * game.cards.ranks * game.cards.suits * self.boards
        elif game.exact == "boards":
            # The strategy's table, and the infosets of its rows.
            yield "boards", 8.0 * game.infosets * (game.num_actions + 1)

    def measure(self, subject: Subject) -> Measured:
        rows = self._rows = self._rows or self._engine_rows(subject)
        measured = {}
        for name in self.each(subject):
            averages = self._tables.setdefault(name, Averages(rows))
            table = averages.table(subject.seats(name), subject.telling(name))
            if averages.is_large:
                subject.tell(f"{name}, best responses")
            measured[name] = self._of_table(subject, rows, table)
        return measured

    def _engine_rows(self, subject: Subject) -> ListedRows | BoardRows:
        game = subject.game
        if self.boards is None:
            return engine_rows(game)
        draw = generator(subject.seed, "evaluation boards", 0, 0, "cpu")
        return BoardRows(game, HoldemForm(game, sample_boards(game, self.boards, draw)))

    def headline(self, game: Game, measured: Measured) -> str:
        parts = [f"{name} {_rounded(m[self.HEADLINE])}" for name, m in measured.items() if self.HEADLINE in m]
        shown = parts if len(parts) <= _MOST_READOUTS else [*parts[: _MOST_READOUTS - 1], "..."]
        return f"{', '.join(shown)} {unit_name(game)}" if parts else ""

    @property
    def charted(self) -> list[str]:
        return [self.HEADLINE]

    @abstractmethod
    def _of_table(self, subject: Subject, rows: ListedRows | BoardRows, table: Tensor) -> dict[str, float]:
        """Metrics of a strategy, a table of `rows`."""


def _rounded(value: float, sign: Literal["", "+"] = "") -> str:
    """Whole where that has two digits, and otherwise with two: an exploitability of 0.02 is not 0.

    Args:
        sign: what stands before a number that is not negative.
    """
    return f"{value:{sign}.0f}" if abs(value) >= 10 else f"{value:{sign}.2g}"


@dataclass
class Exploitability(_Exact):
    """NashConv in chips, and exploitability in the papers' unit, exactly or on a sample of boards."""

    HEADLINE = "exploitability"

    def row_bytes(self, game: Game) -> float | None:
        return 4.0 * METRIC_BYTES

    def _of_table(self, subject: Subject, rows: ListedRows | BoardRows, table: Tensor) -> dict[str, float]:
        game = subject.game
        if self.boards is None:
            with torch.inference_mode():
                chips = float(rows.best_response_values(table).sum())
            return {"nash_conv": chips, "exploitability": exploitability(game, chips)}
        assert isinstance(rows, BoardRows)
        bootstrap = np.random.default_rng(subject.seed)
        chips, replicates = rows.form.nash_conv_replicates(table, _REPLICATES, bootstrap)
        # A sample's own spread is too small by this factor.
        error = float(replicates.std(ddof=1)) * math.sqrt(self.boards / (self.boards - 1))
        return {
            "nash_conv": chips,
            "nash_conv_standard_error": error,
            "exploitability": exploitability(game, chips),
            "exploitability_standard_error": exploitability(game, error),
        }


@dataclass
class Deviations(_Exact):
    """Where a strategy loses: what deviations are worth in parts of a Hold'em game with one board.

    Both players follow the strategy but for one part, in which one of them responds: everywhere, which is
    exploitability itself, before the board or on it alone, or after one line of betting alone. All are in the unit and
    convention of exploitability.
    """

    HEADLINE = "deviations/everywhere"

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        if game.exact != "boards":
            yield "", None, f"the game {game.name} is no Hold'em game with one board, leave it out"
        else:
            yield from super().problems(game, algorithm)

    def row_bytes(self, game: Game) -> float | None:
        decisions = (game.tree.player >= 0).nonzero().flatten().tolist()
        return 9.0 * METRIC_BYTES + sum(METRIC_BYTES + len(game.line(node)) for node in decisions)

    def _of_table(self, subject: Subject, rows: ListedRows | BoardRows, table: Tensor) -> dict[str, float]:
        game, measured = subject.game, {}
        assert isinstance(rows, BoardRows)
        players = [rows.form.deviations(table, player) for player in range(2)]
        for part in ("everywhere", "before_board", "on_board"):
            gains = [getattr(player, part) for player in players]
            measured[f"deviations/{part}"] = exploitability(game, sum(gains))
            measured |= {f"deviations/{part}/player_{p}": exploitability(game, gain) for p, gain in enumerate(gains)}
        for p, player in enumerate(players):
            for node, gain in player.at.items():
                line = _in_metrics(f"player {p} {game.line(node)}")
                measured[f"deviations/line/{line}"] = exploitability(game, gain)
        return measured


@dataclass
class Match(Evaluation):
    """What read-outs win per game against others, in thousandths of the game's unit, mean over both seatings."""

    # Name -> what is played against: KEY or KEY/READOUT, the key (folder in outputs/runs; the first digits do where no
    # other run has them) of a finished training in the same game, and which of its read-outs, where there are several;
    # /READOUT, another of the measured training itself; or a file, strategy.csv or snapshot.pt[:READOUT], which is met
    # as it is. ${run_key:"OVERRIDE",...} is the key of the run that these overrides ask for, with seed, device and
    # threads of this one.
    opponents: dict[str, str] = field(default_factory=dict)
    # Opponents as they were after the same iteration, or at their end.
    opponents_at: str = one_of("same", "last", default="last")
    # Hands to play, both seatings counted; 0: the exact value, in games with one private card each.
    hands: int = at_least(0, 0)

    def __post_init__(self) -> None:
        self._tables: dict[str, Averages] = {}

    @property
    def charted(self) -> list[str]:
        return [f"match/{opponent}/value" for opponent in self.opponents]

    @property
    def others(self) -> list[str]:
        return [reference for reference in self.opponents.values() if not _BESIDE.fullmatch(reference)]

    @property
    def beside(self) -> list[str]:
        return [reference[1:] for reference in self.opponents.values() if _BESIDE.fullmatch(reference)]

    def identity(self) -> dict[str, Any]:
        # What a file holds counts, wherever it lies.
        return {**super().identity(), "opponents": {name: _content(r) for name, r in self.opponents.items()}}

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        yield from super().problems(game, algorithm)
        if self.hands % 2:
            yield "hands", self.hands, "every deal is played twice, so it must be even"
        if not self.hands and game.exact != "sequence_form":
            yield (
                "hands",
                self.hands,
                f"the game {game.name} has no exact value of a match, a number of hands is needed",
            )
        if not self.opponents:
            yield "opponents", "empty", "at least one is needed"
        for name, reference in self.opponents.items():
            if not re.fullmatch(NAME, name):
                yield f"opponents.{name}", reference, "the name must be of a-z, 0-9 and _"
            if file := FILE.fullmatch(reference):
                if not Path(file["path"]).is_file():
                    yield f"opponents.{name}", reference, "there is no such file"
                elif self.opponents_at == "same":
                    yield "opponents_at", "same", f"opponents.{name} is a file, which is met as it is, use last"
            elif not _REFERENCE.fullmatch(reference):
                yield (
                    f"opponents.{name}",
                    repr(reference),
                    "it must be KEY, KEY/READOUT or /READOUT, where KEY is of 12 characters, 0-9 and a-f, or the first "
                    "ones of a run that is there, or a file, strategy.csv or snapshot.pt",
                )
            elif _BESIDE.fullmatch(reference) and reference[1:] not in algorithm.readouts:
                allowed = ", ".join(algorithm.readouts)
                yield f"opponents.{name}", reference, f"the read-outs of this run are {allowed}"

    def with_full_keys(self, full_key: Callable[[str], str]) -> Match:
        full = {}
        for name, reference in self.opponents.items():
            found = _SHORTENED.fullmatch(reference)
            full[name] = reference if found is None else full_key(found[1]) + reference[found.end(1) :]
        return replace(self, opponents=full)

    def problems_with(self, others: Mapping[str, Other], due: Sequence[int]) -> Iterator[str]:
        for name, reference in self.opponents.items() if self.opponents_at == "same" else ():
            lacking = sorted(set(due).difference(others[reference].iterations)) if reference in others else []
            if lacking:
                yield (
                    f"opponents.{name} is {reference}, which left no snapshot after iteration {lacking[0]}, and "
                    "opponents_at is same; give it the same algorithm.iterations and algorithm.snapshot_every, or use "
                    "opponents_at=last."
                )

    def row_bytes(self, game: Game) -> float | None:
        return sum(2.0 * (METRIC_BYTES + len(name)) for name in self.opponents)

    def measure(self, subject: Subject) -> Measured:
        measured: Measured = {name: {} for name in self.names(subject.readout_names)}
        for opponent, reference in self.opponents.items():
            seats = self._opponent(subject, reference)
            for name in (n for n in measured if reference != f"/{n}"):
                subject.tell(f"{name} against {opponent}")
                values = self._against(subject, name, opponent, seats)
                measured[name].update(
                    {f"match/{opponent}/{k}": milli_units(subject.game, v) for k, v in values.items()}
                )
        return measured

    def headline(self, game: Game, measured: Measured) -> str:
        parts = [
            f"{name} against {opponent} {_rounded(metrics[f'match/{opponent}/value'], '+')}"
            for name, metrics in measured.items()
            for opponent in self.opponents
            if f"match/{opponent}/value" in metrics
        ]
        return f"{', '.join(parts[-_MOST_MATCHES:])} {unit_name(game)}" if parts else ""

    def _opponent(self, subject: Subject, reference: str) -> Any:
        if _BESIDE.fullmatch(reference):
            return subject.seats(reference[1:])
        at = subject.snapshot.iteration if self.opponents_at == "same" else None
        return subject.others[reference].seats(at)

    def _against(self, subject: Subject, name: str, opponent: str, seats: Any) -> dict[str, float]:
        """In chips. All matches start from the same generator: in their first batch the cards are the same."""
        if self.hands:
            match = play_match(subject.game, subject.seats(name), seats, self.hands, subject.draws("match"))
            return {"value": match.mean, "standard_error": match.standard_error}
        ours = self._policy(subject, f"readout {name}", subject.seats(name))
        return {"value": exact(subject.game, ours, self._policy(subject, f"opponent {opponent}", seats))}

    def _policy(self, subject: Subject, whose: str, seats: Any) -> TabularPolicy:
        averages = self._tables.setdefault(whose, Averages(engine_rows(subject.game)))
        return TabularPolicy(averages.table(seats, subject.telling(whose)))


def _content(reference: str) -> str:
    """What determines an opponent: the reference itself, or of a file its SHA-256."""
    file = FILE.fullmatch(reference)
    if not file or not Path(file["path"]).is_file():
        return reference
    about = Path(file["path"]).stat()
    return f"sha256:{_sha256(file['path'], about.st_mtime_ns, about.st_size)}:{file['readout'] or ''}"


@lru_cache(maxsize=256)
def _sha256(path: str, changed: int, size: int) -> str:
    """Of a file, read once in each state of it."""
    del changed, size
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass
class Disagreement(Evaluation):
    """How far two read-outs' strategies are apart by depth, both players together [SD-CFR, Sec. 6.2.1, Table 1]."""

    # The one that is played, an ensemble, and the one that it is compared with.
    first: str = "sd_cfr"
    second: str = "deep_cfr"
    # Hands per player.
    rollouts: int = at_least(1, 200_000)

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        yield from super().problems(game, algorithm)
        for key in ("first", "second"):
            name = getattr(self, key)
            if name not in algorithm.readouts:
                yield key, repr(name), f"the read-outs of this run are {', '.join(algorithm.readouts)}"
            elif (key == "first") != algorithm.READOUTS[algorithm.readouts[name].kind].ENSEMBLE:
                yield key, name, "the first must be an ensemble, the second none"

    def bytes_needed(self, game: Game) -> Iterator[tuple[str, float]]:
        # Of every decision a difference is kept, and the player has one in most hands.
        yield "rollouts", float(self.rollouts)

    def row_bytes(self, game: Game) -> float | None:
        # Three metrics of each depth.
        return 3.0 * METRIC_BYTES * sum(map(len, game.tree.levels))

    @property
    def beside(self) -> list[str]:
        return [self.second]

    def names(self, readouts: Iterable[str]) -> list[str]:
        return [self.first]

    def measure(self, subject: Subject) -> Measured:
        by_depth: dict[int, list[Tensor]] = {}
        for player in range(2):
            played, compared = self._seat(subject, self.first, player), self._seat(subject, self.second, player)
            assert isinstance(played, Mixture)
            assert not isinstance(compared, Ensemble)
            draw = subject.draws("disagreement", player)
            apart = disagreement(subject.game, player, played, compared, self.rollouts, draw)
            for depth, differences in apart.items():
                by_depth.setdefault(depth, []).append(differences)
        metrics: dict[str, float] = {}
        for depth, parts in by_depth.items():
            both = torch.cat(parts)
            metrics[f"disagreement/{depth}/mean"] = float(both.mean())
            metrics[f"disagreement/{depth}/std"] = float(both.std(correction=0))
            metrics[f"disagreement/{depth}/decisions"] = float(len(both))
        return {self.first: metrics}

    def _seat(self, subject: Subject, readout: str, player: int) -> Seat:
        return subject.seats(readout)[player]


@dataclass
class Strategy(Evaluation):
    """In games as small as Kuhn poker, the strategy itself: a metric `strategy/<infoset>/<action>` for each action."""

    def __post_init__(self) -> None:
        self._tables: dict[str, Averages] = {}

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        yield from super().problems(game, algorithm)
        if game.infosets > _FEW_INFOSETS:
            yield "", None, f"the game {game.name} has more than {_FEW_INFOSETS} infosets, leave it out"

    def row_bytes(self, game: Game) -> float | None:
        cells = game.legal.nonzero().tolist()
        return float(sum(METRIC_BYTES + len(strategy_metric(game, i, a)) for i, a in cells))

    def measure(self, subject: Subject) -> Measured:
        game, measured = subject.game, {}
        cells = game.legal.nonzero().tolist()
        for name in self.each(subject):
            table = self._tables.setdefault(name, Averages(engine_rows(game))).table(
                subject.seats(name), subject.telling(name)
            )
            measured[name] = {strategy_metric(game, i, a): float(table[i, a]) for i, a in cells}
        return measured


def strategy_metric(game: Game, infoset: int, action: int) -> str:
    """Name of the metric of one probability, e.g. `strategy/player 0 hand 2 call raise/call`."""
    words = _in_metrics(game.describe(infoset, numbered=True).replace(",", "").replace("betting ", ""))
    return f"strategy/{words}/{game.actions[action]}"


def _in_metrics(words: str) -> str:
    """Without the slashes between betting rounds, which are for parts of a metric's name."""
    return words.replace(" / ", " - ").strip()


for _name, _kind in (
    ("exploitability", Exploitability), ("match", Match), ("deviations", Deviations), ("disagreement", Disagreement),
    ("strategy", Strategy), ("costs", Costs),
):  # fmt: skip
    register_evaluation(_name, _kind)
