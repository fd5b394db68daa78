"""Networks judged by play: their values stand at the leaves of turns that are solved without the river.

The evaluation `play` draws turns of the deck that a network's rivers are of, solves each with the read-out's values at
the leaves, re-solves the rivers that result, and gives the exploitability of the whole: `repro.subgames.depth_limited`.
`algorithm=reference_leaves` trains nothing: its read-outs are leaves without a network, for comparison.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from repro.algorithms.base import Iterative
from repro.common.compiled import Array
from repro.config.fields import at_least
from repro.config.schema import AlgorithmConfig, Config, register_algorithm, register_evaluation
from repro.evaluation.base import Evaluation, Measured, Subject
from repro.games.game import Game
from repro.policies.readout import Readout
from repro.policies.snapshot import Snapshot
from repro.subgames import buckets
from repro.subgames.buckets import BucketRecipe
from repro.subgames.config import SubgameReadout, SubgamesConfig, folder_of
from repro.subgames.depth_limited import CheckedDown, DepthLimitedSolver, Leaves, Rivers, Solved
from repro.subgames.encoded import Truth
from repro.subgames.kernels import Rule
from repro.subgames.networks import PredictedValues, ValueNetworkConfig
from repro.subgames.sampling import random_subgame
from repro.subgames.solver import SolverConfig
from repro.subgames.subgames import Subgame, Subgames

FIRST_TURN = 10**9
"""Number of the first turn that is played: no dataset has so many subgames."""

LeavesOf = Callable[[Rivers], Leaves]

UNSAFE, SAFE = "unsafe", "safe"


def sorted_buckets(rivers: Rivers, bucket: Array) -> Array:
    """`[boards, hands]` int64 buckets of hands in the rivers' order, from those in colexicographic order."""
    return np.take_along_axis(bucket.astype(np.int64), rivers.order(), 1)


class PredictedLeaves(Leaves):
    """What a network's read-out predicts of rivers.

    Args:
        rivers: of a turn.
        readout: of a training of DCVN or DEVN on rivers of the same deck.
        snapshot: of it.
    """

    def __init__(self, rivers: Rivers, readout: PredictedValues, snapshot: Snapshot) -> None:
        super().__init__(rivers)
        self._readout, self._data = readout, readout.data()
        self._network = readout.network(snapshot, self._data)
        self._live = np.flatnonzero(~rivers.over)
        boards = rivers.full_boards()
        bucket = sorted_buckets(rivers, self._data.buckets_of(boards))
        self._boards, self._bucket = (np.repeat(x, len(self._live), 0) for x in (boards, bucket))
        self._chips = np.tile(rivers.chips[self._live], len(boards))

    def estimated(self, player: int, mode: int, how: Rule, opening: Array) -> Array:
        values = np.zeros(self.rivers.shape, np.float32)
        if len(self._live) == 0:
            return values
        shares = self.rivers.shares(player, opening)
        ranges = self._rows(*shares)
        matchup = self._rows(*(self.rivers.met(shares[1 - p]) for p in range(2)))
        bucket = torch.from_numpy(self._bucket)
        inputs = self._data.inputs_of(self._boards, self._chips, ranges, bucket)
        with torch.no_grad():
            cfv = self._readout.predicted(self._network, inputs, Truth(torch.empty(0), matchup, ranges, bucket))
        opponent = opening[:, 1 - player :: 2][:, self._live]
        reached = opponent.sum(2, dtype=float).reshape(-1, 1) * self._chips[:, None]
        boards, _, hands = self.rivers.shape
        values[:, self._live] = (cfv[:, player].numpy() * reached).reshape(boards, len(self._live), hands)
        return values

    def _rows(self, of_first: Array, of_second: Array) -> torch.Tensor:
        """`[n, 2, hands]` float32, a row for each board and entry with chips behind, from both players' arrays."""
        rows = np.stack([x[:, self._live].reshape(len(self._chips), -1) for x in (of_first, of_second)], 1)
        return torch.from_numpy(rows.astype(np.float32))


# -- leaves without a network ----------------------------------------------------------------------------------------


class ReferenceReadout(SubgameReadout):
    """Leaves that no network predicts.

    Attributes:
        SOLVES: whether the turn is solved with them; otherwise it is played uniformly.
    """

    SOLVES: ClassVar[bool] = True

    def leaves(self, rivers: Rivers) -> Leaves:
        """Exact values: the rivers are solved along with the turn."""
        return Solved(rivers)


class CheckedDownLeaves(ReferenceReadout):
    """Rivers without betting."""

    def leaves(self, rivers: Rivers) -> Leaves:
        return CheckedDown(rivers)


class Uniform(ReferenceReadout):
    """No leaves: turns are played uniformly."""

    SOLVES = False


class BucketedLeaves(ReferenceReadout):
    """The oracle: exact values of rivers as buckets leave them, what a network without error of its own predicts."""

    EXPECTED: ClassVar[bool] = False

    def leaves(self, rivers: Rivers) -> Leaves:
        algorithm, deck = self.config.algorithm, self.game.deck
        recipe = BucketRecipe(deck.ranks, deck.suits, 5, algorithm.dataset, algorithm.buckets)
        bucket = buckets.stored(folder_of(self.config), recipe).of_boards(rivers.full_boards())
        return Solved(rivers, sorted_buckets(rivers, bucket), self.EXPECTED)


class BucketedEVLeaves(BucketedLeaves):
    """The same of expected values, as DEVN's buckets leave them."""

    EXPECTED = True


@dataclass
class ReferenceLeavesConfig(SubgamesConfig):
    """Leaves without a network, to be measured by evaluations of turns; nothing is trained."""

    USES_NETWORK = False
    READOUTS: ClassVar[Mapping[str, type[Readout]]] = {
        "exact": ReferenceReadout, "oracle_cfv": BucketedLeaves, "oracle_ev": BucketedEVLeaves,
        "checked_down": CheckedDownLeaves, "uniform": Uniform,
    }  # fmt: skip

    # Whose buckets the oracles have: the number of a dataset, and how many.
    dataset: int = at_least(0, 0)
    buckets: int = at_least(1)

    def build(self, game: Subgames, config: Config) -> ReferenceLeaves:
        return ReferenceLeaves(self, config.seed)


register_algorithm("reference_leaves", ReferenceLeavesConfig)


class ReferenceLeaves(Iterative):
    """A training that has nothing to learn."""

    def advance(self) -> dict[str, float]:
        return {}

    def counts(self) -> dict[str, float]:
        return {}

    def progress(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back nothing."""


# -- the evaluation --------------------------------------------------------------------------------------------------


@dataclass
class OfTurns(Evaluation):
    """What is measured of turns, which may be solved with a read-out's values at their leaves.

    The turns are random ones of the rivers' deck, drawn by the training's seed: all read-outs of one seed have the
    same, those of another seed others.
    """

    OF_PLAYERS = False

    # How many turns.
    turns: int = at_least(1, 40)
    # Iterations of discounted CFR on the turn's betting.
    iterations: int = at_least(1, 100)

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        yield from super().problems(game, algorithm)
        if not isinstance(algorithm, ValueNetworkConfig | ReferenceLeavesConfig):
            yield "readouts", self.readouts, f"the algorithm {algorithm.name} values no rivers, leave it out"

    def measure(self, subject: Subject) -> Measured:
        return {name: self._of_readout(subject, name) for name in self.each(subject)}

    def _of_readout(self, subject: Subject, name: str) -> dict[str, float]:
        """Each metric of a turn, the mean over turns, and of each turn by itself."""
        readout = subject.readouts[name]
        assert isinstance(readout, SubgameReadout)
        turns = []
        for number in range(self.turns):
            subject.tell(f"{name}, turn {number + 1} of {self.turns}")
            turns.append(self.of_turn(turn(readout.game, subject.seed, number), readout, subject.snapshot))
        means = {metric: float(np.mean([measured[metric] for measured in turns])) for metric in turns[0]}
        each = {f"{m}/turn_{n:03}": value for n, measured in enumerate(turns) for m, value in measured.items()}
        return means | each

    def solved(self, subgame: Subgame, readout: Readout, snapshot: Snapshot) -> DepthLimitedSolver:
        """A turn, solved with a read-out's values of rivers at its leaves."""
        if isinstance(readout, ReferenceReadout):
            leaves: LeavesOf = readout.leaves
            iterations = self.iterations if readout.SOLVES else 0
        else:
            assert isinstance(readout, PredictedValues)
            leaves, iterations = partial(PredictedLeaves, readout=readout, snapshot=snapshot), self.iterations
        solver = DepthLimitedSolver(subgame, SolverConfig(), leaves)
        for _ in range(iterations):
            solver.iterate()
        return solver

    @abstractmethod
    def of_turn(self, subgame: Subgame, readout: Readout, snapshot: Snapshot) -> dict[str, float]:
        """The metrics of one turn."""


@dataclass
class Play(OfTurns):
    """Exploitability of play with a read-out's values at the leaves of turns, exact, in % of the pot.

    Metrics: `unsafe` and `safe`, the exploitability of turn and re-solved rivers together (half of what both best
    responses win), the mean over turns; `error/hand`, `error/met`, `error/matchup` and `error/rare`, of the leaves at
    the ranges that the average strategies lead to (`repro.subgames.depth_limited.LeafErrors`); and all of these of each
    turn, `unsafe/turn_000`.
    """

    # Iterations of discounted CFR on the rivers, and once more with the gadget.
    resolving: int = at_least(1, 100)

    def problems(self, game: Game, algorithm: AlgorithmConfig) -> Iterator[tuple[str, object, str]]:
        problems = list(super().problems(game, algorithm))
        yield from problems
        if not problems and isinstance(game, Subgames) and game.board_cards != 5:
            yield "readouts", self.readouts, f"leaves are rivers, the game is {game.name}; take game=river_subgames"

    @property
    def charted(self) -> list[str]:
        return [UNSAFE, SAFE]

    def headline(self, game: Game, measured: Measured) -> str:
        parts = [f"{name} {m[UNSAFE]:.2f}" for name, m in measured.items() if UNSAFE in m]
        return f"play {', '.join(parts)} % of the pot" if parts else ""

    def of_turn(self, subgame: Subgame, readout: Readout, snapshot: Snapshot) -> dict[str, float]:
        solver = self.solved(subgame, readout, snapshot)
        solver.resolve(self.resolving)
        unsafe, errors = solver.exploitability(), solver.errors()
        solver.resolve_safely(self.resolving)
        measured = {UNSAFE: unsafe, SAFE: solver.exploitability()}
        measured |= {f"error/{kind}": value for kind, value in asdict(errors).items()}
        return {metric: 100 * value for metric, value in measured.items()}


register_evaluation("play", Play)


def turn(rivers: Subgames, seed: int, number: int) -> Subgame:
    """The turn of that number that is played with rivers of a kind."""
    drawn = (rivers.deck, rivers.least_pot, rivers.strength, rivers.ties)
    return random_subgame(seed, FIRST_TURN + number, 4, *drawn)
