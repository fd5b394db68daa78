"""The strategies of a run's evaluations, one after the other, as the file `strategies.pt`.

Runs leave it behind (`algorithm.keep_strategies`) for others that are measured against what they played after the same
iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from repro.errors import ReproError
from repro.games.game import Game
from repro.games.registry import load_game
from repro.policies.base import TabularPolicy
from repro.policies.files import NOT_SUCH_A_FILE, check_same_game

STRATEGIES = "strategies.pt"


@dataclass(frozen=True)
class StrategyRecord:
    """A read-out's average strategies.

    Attributes:
        iterations: after which each was found, ascending.
        tables: `[evaluations, infosets, actions]`.
    """

    iterations: Sequence[int]
    tables: Tensor

    def at(self, iteration: int) -> TabularPolicy:
        """The strategy found after an iteration.

        Raises:
            ReproError: there was no evaluation then.
        """
        if iteration not in self.iterations:
            known = ", ".join(map(str, self.iterations))
            raise ReproError(f"there is no strategy of iteration {iteration}; there are those of {known}.")
        return self._policy(self.iterations.index(iteration))

    def last(self) -> TabularPolicy:
        """The strategy found at the end."""
        return self._policy(-1)

    def with_one(self, iteration: int, policy: TabularPolicy) -> StrategyRecord:
        """The record with the strategy of an iteration, which is its newest: again, or for the first time."""
        known = len(self.iterations) - (iteration in self.iterations)
        table = policy.table.float().cpu()[None]
        return StrategyRecord([*self.iterations[:known], iteration], torch.cat([self.tables[:known], table]))

    def _policy(self, index: int) -> TabularPolicy:
        table = self.tables[index].double()
        # Stored in single precision, rows sum to one only nearly.
        return TabularPolicy(table / table.sum(1, keepdim=True))


def save_records(path: Path, config: Mapping[str, Any], records: Mapping[str, StrategyRecord]) -> None:
    """Write the read-outs of a run whose resolved configuration is `config`."""
    readouts = {
        name: {"iterations": list(record.iterations), "tables": record.tables.float().cpu()}
        for name, record in records.items()
    }
    torch.save({"config": dict(config), "readouts": readouts}, path)


def load_records(game: Game, path: Path | str) -> dict[str, StrategyRecord]:
    """What `save_records` wrote, by name of read-out.

    Raises:
        ReproError: the file is not of that kind, or is for another game.
    """
    try:
        stored: dict[str, Any] = dict(torch.load(path, map_location="cpu", weights_only=True))
        solved = load_game(stored["config"]["game"])
        shape = (game.infosets, game.num_actions)
        found = {
            str(name): StrategyRecord([int(i) for i in given["iterations"]], given["tables"].to(game.device))
            for name, given in stored["readouts"].items()
        }
    except NOT_SUCH_A_FILE as error:
        raise ReproError(f"{path} is not the {STRATEGIES} of a finished run.") from error
    check_same_game(path, "strategies", solved, game)
    for record in found.values():
        if record.tables.shape != (len(record.iterations), *shape) or not record.iterations:
            raise ReproError(f"{path} does not hold a probability for each action at each infoset.")
    return found
