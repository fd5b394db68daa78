"""The evaluations of one training: which are asked for, what is measured already, and measuring what is not.

The same object is used while a training goes on, with the snapshots as they are made, and later, with those that are
stored; so that adding a read-out, an opponent or more boards to a finished training trains nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from repro.common.errors import ReproError
from repro.config.schema import Config
from repro.evaluation.base import Measured, Other, Subject
from repro.policies.snapshot import Snapshot, SnapshotFolder
from repro.stored.results import Results, open_other
from repro.stored.trained import readout_objects


class Measuring(Results):
    """Measures what is to be measured of one training.

    Args:
        game: the training's.
        config: what is trained and measured.
        folder: the training's.
        begins_anew: whether nothing is known yet of what is to be measured, whatever the files say, which will go.

    Attributes:
        on_words: told what is being measured.
    """

    def __init__(self, game: Any, config: Config, folder: Path, begins_anew: bool = False) -> None:
        super().__init__(config, folder)
        self.game = game
        self.readouts = readout_objects(game, config)
        self._others: dict[str, Other] = {}
        self.on_words: Callable[[str], None] = lambda _: None
        if begins_anew:
            for rows in self._rows.values():
                rows.forget()
        self._check_rows()
        for (name, readout), stored in self._rows.items():
            self.evaluations[name].recall(readout, stored.rows)

    def _check_rows(self) -> None:
        """Refuse to go on where a damaged file held what cannot be measured again.

        Raises:
            ReproError: it did.
        """
        for rows, lost in self.lost():
            raise ReproError(
                f"{rows.path} is damaged, and of the {len(lost)} iterations whose measurements it lacks, the first "
                f"of them {lost[0]}, the snapshots are not kept: remove the file to go on without them, or train "
                "again with force=true."
            )

    def open_others(self, finished: SnapshotFolder | None = None) -> None:
        """Open the other trainings that will be measured against.

        Args:
            finished: the snapshots of a finished training, of which only those evaluations are made that lack.

        Raises:
            ReproError: one is not there, or cannot be measured against.
        """
        if finished is not None:
            self.tell_what_is_gone(finished)
        lacking = {} if finished is None else self.lacking(finished)
        for name, evaluation in self.evaluations.items():
            if finished is not None and not any(name in by_evaluation for by_evaluation in lacking.values()):
                continue
            for reference in evaluation.others:
                if reference not in self._others:
                    self._others[reference] = open_other(self.config, self.game, name, reference)
            for problem in evaluation.problems_with(self._others, self.due(evaluation)):
                raise ReproError(f"evaluation.{name}: {problem}")

    def measure(self, snapshot: Snapshot) -> Measured:
        """Measure a snapshot, and store what was found: per read-out its metrics, costs among them."""
        return self._measure(snapshot, {name: list(self.readouts) for name in self.evaluations})

    def complete(self, snapshots: SnapshotFolder) -> Iterator[Measured]:
        """Measure what lacks, yielding what was measured of each snapshot."""
        for iteration, by_evaluation in self.lacking(snapshots).items():
            yield self._measure(snapshots.read(iteration), by_evaluation)

    def _measure(self, snapshot: Snapshot, by_evaluation: Mapping[str, list[str]]) -> Measured:
        """Make evaluations of some read-outs each, where they are due."""
        together: Measured = {}
        for name, readouts in by_evaluation.items():
            evaluation = self.evaluations[name]
            if snapshot.iteration not in self.due(evaluation):
                continue
            tell = partial(self._tell, name)
            subject = Subject(self.game, self.config.seed, snapshot, self.readouts, self._others, readouts, tell)
            began = time.monotonic()
            found = evaluation.measure(subject)
            share = (time.monotonic() - began) / max(1, len(found))
            for readout, metrics in found.items():
                noted = self.readouts[readout].notes(snapshot) if readout in self.readouts else {}
                everything = {**snapshot.counts, **noted, **metrics}
                self._rows[name, readout].add(snapshot.iteration, everything, share)
                together.setdefault(readout, {}).update(everything)
        return together

    def _tell(self, evaluation: str, words: str) -> None:
        self.on_words(f"{evaluation} of {words}")

    def headline(self, measured: Measured) -> str:
        """The newest of what matters most, in a few words."""
        parts = {name: evaluation.headline(self.game, measured) for name, evaluation in self.evaluations.items()}
        said = {name: part for name, part in parts.items() if part}
        return "; ".join(f"{name}: {part}" if len(said) > 1 else part for name, part in said.items())

    def forget_after(self, iteration: int) -> None:
        """Drop what was measured of later iterations, which training will come to again."""
        for rows in self._rows.values():
            rows.forget_after(iteration)
