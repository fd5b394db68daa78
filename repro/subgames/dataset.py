"""Solved random subgames, stored in shards that can be made in any order, by several processes, and in several goes.

A dataset is a folder named after its recipe, with `recipe.json` and, for each shard, two files:

- `shard-00000.npz`, arrays of NumPy's with a row per subgame: `board` `[n, cards]` int8; `pot` `[n]` float64 chips;
  `ranges` `[n, 2, hands]` float32 that sum to 1; `cfv` `[n, 2, hands]` float32 counterfactual values as fractions of
  the pot [DEVN, eq. 3]; `exploitability` `[n]` float32 fractions of the pot [DEVN, eq. 2]; `iterations` `[n]` int32.
  Hands are those that the board leaves, in colexicographic order. Where the recipe says so, ranges (times 2^15, to sum
  to 1 again when they are read) and values are float16.
- `shard-00000.json`, its seal (see `repro.common.durable`): recipe, the shard's number and size, and a checksum; and by
  which commit and run it was made, which earlier versions did not write.

Which subgames these are depends on the recipe and their numbers alone. On a GPU another program solves them than on a
CPU: to the same exploitability, with sums in another order, so that values differ as roundings make them.

A shard that is damaged, or lies under the name of another one, is made again by whoever needs it, and never read.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from repro.common import durable
from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.config.jobs import quoted
from repro.config.keys import flatten
from repro.games.registry import SUBGAMES
from repro.subgames.batched import solve_batched
from repro.subgames.met import is_met, met_board, met_subgame
from repro.subgames.sampling import random_board, random_subgame
from repro.subgames.solver import Solution, SolverConfig, solve_all
from repro.subgames.stored import Stored
from repro.subgames.subgames import Deck, Subgame, Subgames, load_subgames, matchups
from repro.tracking.provenance import commit

FLOAT32, FLOAT16 = "float32", "float16"
"""How ranges and values are stored."""

_RANGES_TIMES = 2.0**15
"""In float16: certainty is below its largest number, and what is rarer than 2e-9 loses digits only then."""

_SHARD = {4: 10, 5: 250}
"""Subgames in a shard, by the cards on the board: seconds of work."""

_OF_THE_GAME = ("ranks", "suits", "least_pot", "strength", "ties")
"""Of a recipe, what is the game's."""

MOST_ITERATIONS = 20_000
"""After which a subgame is given up."""


@dataclass(frozen=True)
class Recipe(Stored):
    """What decides a dataset's contents; its length does not.

    Attributes:
        least_pot, strength, ties: as in `repro.subgames.sampling.random_subgame`.
        solver: how the subgames are solved.
        precision: `FLOAT32` or `FLOAT16`, in which ranges and values are stored.
        met_in_play: share of the rivers that are as play meets them (`repro.subgames.met`).
    """

    FORMAT = 1

    least_pot: float
    strength: str
    ties: str
    solver: SolverConfig
    precision: str = FLOAT32
    met_in_play: float = 0.0

    @classmethod
    def of(
        cls, subgames: Subgames, seed: int, solver: SolverConfig, precision: str = FLOAT32, met_in_play: float = 0.0
    ) -> Recipe:
        """The recipe of a kind of subgames."""
        return cls(
            subgames.deck.ranks, subgames.deck.suits, subgames.board_cards, seed, subgames.least_pot,
            subgames.strength, subgames.ties, solver, precision, float(met_in_play),
        )  # fmt: skip

    @property
    def plain(self) -> dict[str, Any]:
        # Datasets of earlier versions, which knew no other, keep their names.
        before = {"precision": FLOAT32, "met_in_play": 0.0}
        return {key: value for key, value in super().plain.items() if key not in before or value != before[key]}

    @property
    def name(self) -> str:
        """Of the folder."""
        street = {4: "turn", 5: "river"}[self.board_cards]
        return f"{street}-{self.ranks * self.suits}-{self.key}"

    def overrides(self) -> list[str]:
        """What asks a run for this dataset; what a run has by default is left out."""
        name = next(name for name, cards in SUBGAMES.items() if cards == self.board_cards)
        default = flatten(asdict(Recipe.of(load_subgames({"name": name}), self.seed, SolverConfig())))
        own = {key: value for key, value in flatten(asdict(self)).items() if value != default[key]}
        keys = {key: f"{'game' if key in _OF_THE_GAME else 'algorithm'}.{key}" for key in own}
        changed = [f"{keys[key]}={str(value).lower()}" for key, value in own.items()]
        return [f"game={name}", "algorithm=solved_subgames", f"seed={self.seed}", *changed]

    @property
    def shard(self) -> int:
        """Subgames in a shard."""
        return _SHARD[self.board_cards]

    def subgame(self, number: int) -> Subgame:
        """The subgame of that number, unsolved."""
        deck = Deck(self.ranks, self.suits)
        if is_met(self.seed, number, self.met_in_play):
            return met_subgame(self.seed, number, deck, self.least_pot, self.strength, self.ties)
        return random_subgame(self.seed, number, self.board_cards, deck, self.least_pot, self.strength, self.ties)

    def boards(self, numbers: Sequence[int]) -> Array:
        """`[n, cards]` int8 boards of the subgames of these numbers."""
        deck = Deck(self.ranks, self.suits)
        return np.array([self._board(number, deck) for number in numbers], np.int8)

    def _board(self, number: int, deck: Deck) -> tuple[int, ...]:
        if is_met(self.seed, number, self.met_in_play):
            return met_board(self.seed, number, deck)
        return random_board(self.seed, number, self.board_cards, deck)[0]


@dataclass(frozen=True)
class SubgameSamples:
    """Solved subgames; the arrays are described above. In memory ranges and values are float32."""

    board: Array
    pot: Array
    ranges: Array
    cfv: Array
    exploitability: Array
    iterations: Array

    def __len__(self) -> int:
        return len(self.pot)

    def matchups(self, deck: Deck) -> Array:
        """`[n, 2, hands]` float64 probabilities that the opponent holds a hand that each hand can meet."""
        return matchups(deck, self.board, self.ranges)

    @staticmethod
    def stored(content: bytes) -> SubgameSamples:
        """Those of a file's content."""
        with np.load(io.BytesIO(content)) as arrays:
            columns = {name: arrays[name] for name in arrays.files}
        if columns["ranges"].dtype == np.float16:
            columns |= {name: columns[name].astype(np.float32) for name in ("ranges", "cfv")}
            columns["ranges"] /= columns["ranges"].sum(2, keepdims=True)
        return SubgameSamples(**columns)

    def content(self, precision: str) -> bytes:
        """Of a file that stores them."""
        columns = dict(vars(self))
        if precision == FLOAT16:
            columns |= {"ranges": (_RANGES_TIMES * self.ranges).astype(np.float16), "cfv": self.cfv.astype(np.float16)}
        content = io.BytesIO()
        np.savez(content, **columns)
        return content.getvalue()

    @staticmethod
    def joined(parts: Iterable[SubgameSamples]) -> SubgameSamples:
        """All of them, in order."""
        rows = [vars(part) for part in parts]
        return SubgameSamples(**{name: np.concatenate([row[name] for row in rows]) for name in rows[0]})


class Dataset:
    """The stored subgames of a recipe.

    Args:
        root: folder of all datasets.
        recipe: what this one holds.
        device: where subgames are solved.
        run: key of the training that solves them; None: whoever reads them makes what is damaged.
    """

    def __init__(self, root: Path, recipe: Recipe, device: str = "cpu", run: str | None = None) -> None:
        self.recipe, self.folder, self._device, self._run = recipe, root / recipe.name, device, run

    def shard(self, number: int, threads: int) -> SubgameSamples:
        """A shard, made first if it is missing or damaged, with so many subgames solved at a time.

        Raises:
            ReproError: a subgame could not be solved to the tolerance.
        """
        holds = {**self.recipe.plain, "shard": number, "subgames": self.recipe.shard}
        content = durable.kept(self._path(number), holds, lambda: self._make(number, threads), self._made_by)
        return SubgameSamples.stored(content)

    def load(self, subgames: int, threads: int = 1) -> SubgameSamples:
        """The first so many subgames, which must be stored.

        Raises:
            ReproError: some are missing.
        """
        return SubgameSamples.joined(self.shards(subgames, threads))

    def shards(self, subgames: int, threads: int = 1) -> Iterator[SubgameSamples]:
        """`load`, a shard at a time; damaged ones are made again. Nothing is read if one was never made."""
        for number in self.check(subgames):
            samples, last = self.shard(number, threads), subgames - number * self.recipe.shard
            yield SubgameSamples(**{name: column[:last] for name, column in vars(samples).items()})

    def check(self, subgames: int) -> range:
        """Shards of the first so many subgames, which must be stored; whether they are damaged is not looked at.

        Raises:
            ReproError: some are missing.
        """
        shards = range(-(-subgames // self.recipe.shard))
        missing = [number for number in shards if not durable.is_kept(self._path(number))]
        if missing:
            raise self._lacking(missing, len(shards))
        return shards

    def some(self, numbers: Sequence[int], threads: int) -> Iterator[SubgameSamples]:
        """Subgames by their ascending numbers, a shard at a time; shards that are missing or damaged are made."""
        for shard, group in groupby(numbers, key=lambda number: number // self.recipe.shard):
            rows = [number % self.recipe.shard for number in group]
            yield SubgameSamples(**{name: column[rows] for name, column in vars(self.shard(shard, threads)).items()})

    def _lacking(self, numbers: Sequence[int], shards: int) -> ReproError:
        return ReproError(
            f"{len(numbers)} of the {shards} shards of subgames in {self.folder} are not solved yet, the first of them "
            f"{numbers[0]}; solve them first: `{self.solving_command(shards)}` (with force=true if that run is "
            "finished already)."
        )

    def solving_command(self, shards: int) -> str:
        """What solves the first shards, as it can be typed where this process was started."""
        output = self.folder.absolute().parents[1]
        where = [] if output == Path("outputs").absolute() else [f"output_dir={quoted(str(output))}"]
        about = [*self.recipe.overrides(), f"algorithm.iterations={shards}", *where]
        return "python -m repro.run " + shlex.join(about)

    def _numbers(self, shard: int) -> range:
        return range(shard * self.recipe.shard, (shard + 1) * self.recipe.shard)

    def _path(self, shard: int) -> Path:
        return self.folder / f"shard-{shard:05d}.npz"

    def _made_by(self) -> dict[str, str | None]:
        return {"git_commit": commit(), "run": self._run}

    def _make(self, shard: int, threads: int) -> bytes:
        """Solve; returns the file's content."""
        recipe = {key: value for key, value in self.recipe.plain.items() if key != "format"}
        durable.write(self.folder / "recipe.json", json.dumps(recipe, indent=2).encode())
        return self.solved(self._numbers(shard), threads).content(self.recipe.precision)

    def solved(self, numbers: Sequence[int], threads: int) -> SubgameSamples:
        """Subgames by their numbers, solved now.

        Raises:
            ReproError: one could not be solved to the tolerance.
        """
        recipe, subgames = self.recipe, list(map(self.recipe.subgame, numbers))
        tolerance, solutions = recipe.solver.tolerance, list[Solution]()
        if self._device == "cpu":
            solutions += solve_all(subgames, recipe.solver, tolerance, threads, MOST_ITERATIONS)
        else:
            solutions += solve_batched(subgames, recipe.solver, tolerance, self._device, MOST_ITERATIONS)
        for number, solution in zip(numbers, solutions, strict=True):
            if not (solution.exploitability <= tolerance and np.isfinite(solution.cfv).all()):
                raise ReproError(
                    f"subgame {number} is exploitable by {solution.exploitability:.2%} of the pot after "
                    f"{solution.iterations:,} iterations, which is more than algorithm.solver.tolerance, "
                    f"{tolerance:.2%}; allow more, or use another CFR."
                )
        return SubgameSamples(
            board=np.array([s.board for s in subgames], np.int8), pot=np.array([s.pot for s in subgames]),
            ranges=np.array([s.ranges for s in subgames], np.float32),
            cfv=np.array([s.cfv for s in solutions], np.float32),
            exploitability=np.array([s.exploitability for s in solutions], np.float32),
            iterations=np.array([s.iterations for s in solutions], np.int32),
        )  # fmt: skip
