"""The evaluations of one training: which are asked for, what is measured already, and measuring what is not.

The same object is used while a training goes on, with the snapshots as they are made, and later, with those that are
stored; so that adding a read-out, an opponent or more boards to a finished training trains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from repro.config.checks import TRAINING
from repro.config.keys import evaluation_key, training_key
from repro.config.schema import Config
from repro.errors import ReproError
from repro.evaluation.base import Evaluation, Measured, Other, Subject
from repro.policies.snapshot import Snapshot, SnapshotFolder
from repro.tracking.rows import EvaluationRows, Metrics, TrainingRows
from repro.trained import Trained, readout_objects, run_folder


class Measuring:
    """What is measured of one training.

    Args:
        game: the training's.
        config: what is trained and measured.
        folder: the training's.

    Raises:
        ReproError: an evaluation needs another training that is not there.
    """

    def __init__(self, game: Any, config: Config, folder: Path) -> None:
        self.game, self.config, self.folder = game, config, folder
        self.readouts = readout_objects(game, config)
        self.evaluations: Mapping[str, Evaluation] = config.evaluation
        self._others = dict(self._open_others())
        # Evaluations of one key share their rows, whatever they are called.
        files: dict[str, EvaluationRows] = {}
        self._rows = {}
        for name, evaluation in self.evaluations.items():
            for readout in evaluation.names(self.readouts):
                rows = evaluation_rows(folder, config, name, readout)
                self._rows[name, readout] = files.setdefault(rows.key, rows)
        for (name, readout), stored in self._rows.items():
            self.evaluations[name].recall(readout, stored.rows)

    def _open_others(self) -> Iterator[tuple[str, Other]]:
        config = self.config
        for name, evaluation in self.evaluations.items():
            opened: dict[str, Other] = {}
            for reference in evaluation.others:
                key, _, readout = reference.partition("/")
                try:
                    opened[reference] = Trained.open(config.output_dir, key).other(self.game, readout)
                except ReproError as error:
                    raise ReproError(
                        f"evaluation.{name} needs {reference} (seed {config.seed}): {error} Make it first, with the "
                        "same device and threads."
                    ) from error
            for problem in evaluation.problems_with(opened, self.due(evaluation)):
                raise ReproError(f"evaluation.{name}: {problem}")
            yield from opened.items()

    def due(self, evaluation: Evaluation) -> list[int]:
        """The iterations after which an evaluation measures."""
        algorithm = self.config.algorithm
        last, every = algorithm.iterations, algorithm.snapshot_every
        return [last] if evaluation.at == "last" else sorted({*range(every, last + 1, every), last})

    def measure(self, snapshot: Snapshot) -> Measured:
        """Measure a snapshot, and store what was found: per read-out its metrics, costs among them."""
        return self._measure(snapshot, {name: list(self.readouts) for name in self.evaluations})

    def _measure(self, snapshot: Snapshot, by_evaluation: Mapping[str, list[str]]) -> Measured:
        """Make evaluations of some read-outs each, where they are due."""
        together: Measured = {}
        for name, readouts in by_evaluation.items():
            evaluation = self.evaluations[name]
            if snapshot.iteration not in self.due(evaluation):
                continue
            subject = Subject(self.game, self.config.seed, snapshot, self.readouts, self._others, readouts)
            for readout, metrics in evaluation.measure(subject).items():
                noted = self.readouts[readout].notes(snapshot) if readout in self.readouts else {}
                everything = {**snapshot.counts, **noted, **metrics}
                self._rows[name, readout].add(snapshot.iteration, everything)
                together.setdefault(readout, {}).update(everything)
        return together

    def headline(self, measured: Measured) -> str:
        """The newest of what matters most, in a few words."""
        parts = [evaluation.headline(self.game, measured) for evaluation in self.evaluations.values()]
        return ", ".join(part for part in parts if part)

    def forget_after(self, iteration: int) -> None:
        """Drop what was measured of later iterations, which training will come to again."""
        for rows in self._rows.values():
            rows.forget_after(iteration)

    def lacking(self, snapshots: SnapshotFolder) -> dict[int, dict[str, list[str]]]:
        """Of a finished training: stored iteration -> evaluation -> read-outs that it has not measured there."""
        stored = snapshots.iterations
        lacking: dict[int, dict[str, list[str]]] = {}
        for (name, readout), rows in self._rows.items():
            for iteration in set(self.due(self.evaluations[name])) & set(stored) - set(rows.rows):
                lacking.setdefault(iteration, {}).setdefault(name, []).append(readout)
        return dict(sorted(lacking.items()))

    def complete(self, snapshots: SnapshotFolder) -> Iterator[Measured]:
        """Measure what lacks, yielding what was measured of each snapshot."""
        for iteration, by_evaluation in self.lacking(snapshots).items():
            yield self._measure(snapshots.read(iteration), by_evaluation)

    def rows(self) -> dict[str, Metrics]:
        """Per read-out, everything that is known of the evaluations asked for."""
        together: dict[str, Metrics] = {}
        for (_, readout), stored in self._rows.items():
            for step, metrics in stored.rows.items():
                together.setdefault(readout, {}).setdefault(step, {}).update(metrics)
        return together


def evaluation_rows(folder: Path, config: Config, evaluation: str, readout: str) -> EvaluationRows:
    """The file of what an evaluation measured of a read-out."""
    measured, readout_config = config.evaluation[evaluation], config.algorithm.readouts.get(readout)
    about = {
        "evaluation": {"name": evaluation, **measured.identity()},
        "readout": {"name": readout, **(asdict(readout_config) if readout_config else {})},
    }
    return EvaluationRows(folder, evaluation_key(config, evaluation, readout), about)


def is_measured(config: Config, folder: Path) -> bool:
    """Whether a finished training lacks nothing of what a configuration asks for. Opens no other training."""
    stored = SnapshotFolder(folder / "snapshots").iterations
    algorithm = config.algorithm
    for name, evaluation in config.evaluation.items():
        due = set(stored) if evaluation.at != "last" else {algorithm.iterations} & set(stored)
        for readout in evaluation.names(algorithm.readouts):
            if due - set(evaluation_rows(folder, config, name, readout).rows):
                return False
    return True


def measured_rows(config: Config) -> list[tuple[str, str, int, float]]:
    """Everything that is stored of a run and asked for: read-out (or "training"), metric, iteration, value."""
    folder = run_folder(config.output_dir, training_key(config))
    together: dict[str, Metrics] = {TRAINING: TrainingRows(folder).read()}
    for name, evaluation in config.evaluation.items():
        for readout in evaluation.names(config.algorithm.readouts):
            for step, metrics in evaluation_rows(folder, config, name, readout).rows.items():
                together.setdefault(readout, {}).setdefault(step, {}).update(metrics)
    return [
        (readout, metric, step, value)
        for readout, rows in together.items()
        for step, metrics in rows.items()
        for metric, value in metrics.items()
    ]
