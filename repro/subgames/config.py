"""What runs about random subgames have in common: their configuration, and read-outs that predict instead of play."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.algorithms.solver import exponent_problems
from repro.common.errors import ReproError
from repro.config.fields import added, between, one_of
from repro.config.schema import AlgorithmConfig, Config
from repro.games.registry import SUBGAMES
from repro.policies.readout import Readout, Seat
from repro.policies.snapshot import Snapshot
from repro.subgames.dataset import FLOAT16, FLOAT32, Recipe
from repro.subgames.solver import SolverConfig
from repro.subgames.subgames import Subgames, load_subgames


@dataclass
class SubgamesConfig(AlgorithmConfig):
    """What is about random subgames."""

    solver: SolverConfig = field(default_factory=SolverConfig)

    @classmethod
    def load(cls, game: Mapping[str, Any], device: str = "cpu") -> Subgames:
        """The kind of subgames; they live on the CPU, and are solved on the run's device."""
        del device
        if game.get("name") not in SUBGAMES:
            raise ReproError(f"game is {game.get('name')}; the algorithm takes one of {', '.join(SUBGAMES)}.")
        return load_subgames(game)

    def problems(self, config: Config, game: Subgames) -> Iterator[str]:
        yield from exponent_problems(self.solver, "algorithm.solver.")


@dataclass
class StoredSubgamesConfig(SubgamesConfig):
    """What solves random subgames, or learns from solved ones; the solutions are stored in `output_dir`/subgames."""

    # How their ranges and values are stored: in float16 they take half the room, and are another dataset.
    precision: str = added(one_of(FLOAT32, FLOAT16, default=FLOAT32))
    # Share of the rivers whose ranges and pots are not random, but what the betting of a random turn makes of such.
    met_in_play: float = added(between(0, 1, 0.0))

    def recipe(self, game: Subgames, seed: int) -> Recipe:
        """What decides the contents of a dataset of these subgames."""
        return Recipe.of(game, seed, self.solver, self.precision, self.met_in_play)

    def problems(self, config: Config, game: Subgames) -> Iterator[str]:
        yield from super().problems(config, game)
        if self.met_in_play and game.board_cards != 5:
            yield (
                f"algorithm.met_in_play is {self.met_in_play:g} and game.name {game.name}; a turn's betting leads to "
                "rivers, take game=river_subgames or leave it out."
            )


def folder_of(config: Config) -> Path:
    """Where the stored subgames of all runs are."""
    return Path(config.output_dir).absolute() / "subgames"


class SubgameReadout(Readout):
    """A read-out of a run about subgames: nothing that can sit in a seat."""

    PLAYS = False

    game: Subgames  # type: ignore[assignment]

    def seats(self, snapshot: Snapshot) -> Sequence[Seat]:
        name, kind = self.config.algorithm.name, self.game.name
        raise ReproError(f"the algorithm {name} is about {kind}: it leaves values, and nothing that plays.")
