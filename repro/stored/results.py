"""What is stored of what was measured of a training: whether anything lacks, and its numbers."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.common.errors import ReproError
from repro.config.checks import TRAINING, game_for_checks
from repro.config.keys import evaluation_key, flatten
from repro.config.schema import LATER, Config
from repro.evaluation.base import FILE, Evaluation, Measured, Other
from repro.games.game import Game
from repro.policies.snapshot import SnapshotFolder
from repro.stored.trained import FileReadout, Trained, damaged_tables, folder_of, snapshots_of
from repro.tracking import record as records
from repro.tracking.rows import EvaluationRows, Metrics, TrainingRows, stored_evaluations

if TYPE_CHECKING:
    from repro.stored.catalogue import Entry


class Results:
    """What is stored of what is to be measured of one training: rows of every read-out by every evaluation.

    Args:
        config: what is trained and measured.
        folder: the training's.
    """

    def __init__(self, config: Config, folder: Path) -> None:
        self.config, self.folder = config, folder
        self.evaluations: Mapping[str, Evaluation] = config.evaluation
        # Evaluations of one key share their rows, whatever they are called.
        files: dict[str, EvaluationRows] = {}
        self._rows: dict[tuple[str, str], EvaluationRows] = {}
        for name, evaluation in self.evaluations.items():
            for readout in evaluation.names(config.algorithm.readouts):
                rows = evaluation_rows(folder, config, name, readout)
                self._rows[name, readout] = files.setdefault(rows.key, rows)

    def lost(self) -> Iterator[tuple[EvaluationRows, list[int]]]:
        """Damaged files, and the iterations of which they held what cannot be measured again."""
        stored = snapshots_of(self.folder).iterations
        for (name, _), rows in self._rows.items():
            done = {i for i in self.due(self.evaluations[name]) if i <= max(stored, default=0)}
            lost = sorted(done - rows.rows.keys() - set(stored)) if rows.damaged else []
            if lost:
                yield rows, lost

    def due(self, evaluation: Evaluation) -> list[int]:
        """The iterations after which an evaluation measures."""
        algorithm = self.config.algorithm
        return [algorithm.iterations] if evaluation.at == "last" else algorithm.snapshot_iterations()

    def lacking(self, snapshots: SnapshotFolder) -> dict[int, dict[str, list[str]]]:
        """Of a finished training: stored iteration -> evaluation -> read-outs that it has not measured there."""
        stored = set(snapshots.iterations)
        lacking: dict[int, dict[str, list[str]]] = {}
        for (name, readout), rows in self._rows.items():
            for iteration in stored & set(self.due(self.evaluations[name])) - set(rows.rows):
                lacking.setdefault(iteration, {}).setdefault(name, []).append(readout)
        return dict(sorted(lacking.items()))

    def tell_what_is_gone(self, snapshots: SnapshotFolder) -> None:
        """Of a finished training, tell where both a measurement and the snapshot for it are lacking."""
        lacking = [set(self.due(self.evaluations[name])) - set(rows.rows) for (name, _), rows in self._rows.items()]
        gone = snapshots.lost(set().union(*lacking))
        if gone:
            which = ", ".join(map(str, gone))
            print(
                f"warning: {snapshots.folder} lacks the snapshots of iterations {which}; what is measured lacks them, "
                "too (force=true trains again).", file=sys.stderr, flush=True,
            )  # fmt: skip

    @property
    def made_with(self) -> set[str]:
        """The commits that measured it."""
        return {commit for stored in self._rows.values() for commit in stored.made_with}

    @property
    def seconds(self) -> float | None:
        """What making these evaluations took; None if some of it was not recorded."""
        taken: dict[tuple[str, int], float | None] = {}
        for (name, _), stored in self._rows.items():
            made = stored.rows.keys() & set(self.due(self.evaluations[name]))
            taken |= {(stored.key, iteration): stored.seconds.get(iteration) for iteration in made}
        known = [seconds for seconds in taken.values() if seconds is not None]
        return sum(known) if len(known) == len(taken) else None

    def rows(self) -> dict[str, Metrics]:
        """Per read-out, everything that is known of the evaluations asked for."""
        together: dict[str, Metrics] = {}
        for (_, readout), stored in self._rows.items():
            for step, metrics in stored.rows.items():
                together.setdefault(readout, {}).setdefault(step, {}).update(metrics)
        return together

    def newest(self) -> Measured:
        """Per read-out, of each metric of the evaluations asked for what was found last."""
        return {
            readout: {name: value for step in sorted(rows) for name, value in rows[step].items()}
            for readout, rows in self.rows().items()
        }


def open_other(config: Config, game: Game, evaluation: str, reference: str) -> Other:
    """What an evaluation of a training measures against: a read-out of a finished training, or of a file.

    Raises:
        ReproError: it is not there, or cannot be measured against.
    """
    if file := FILE.fullmatch(reference):
        found = FileReadout(game, Path(file["path"]), file["readout"] or "")
        try:
            found.seats()
        except ReproError as error:
            raise ReproError(f"evaluation.{evaluation} needs {reference}: {error}") from error
        return found
    key, _, readout = reference.partition("/")
    advice = " Make it first, with the same device and threads."
    try:
        other = Trained.open(config.output_dir, key)
        other.check_finished()
        advice = ""
        return other.other(game, readout)
    except ReproError as error:
        raise ReproError(f"evaluation.{evaluation} needs {reference} (seed {config.seed}): {error}{advice}") from error


def check_others(config: Config, keys: Collection[str] | None = None) -> None:
    """Refuse to measure a training against others that are not there, before anything is noted of it.

    Args:
        keys: of those to look for, or the beginnings of their files' names; None: all. Evaluations that also need
            others are not checked further: those may yet be made.

    Raises:
        ReproError: one is not there, or cannot be measured against.
    """
    game, results = game_for_checks(config), Results(config, folder_of(config))
    for name, evaluation in config.evaluation.items():
        looked_for = [each for each in evaluation.others if keys is None or each.partition("/")[0] in keys]
        others = {reference: open_other(config, game, name, reference) for reference in looked_for}
        if len(others) < len(evaluation.others):
            continue
        for problem in evaluation.problems_with(others, results.due(evaluation)):
            raise ReproError(f"evaluation.{name}: {problem}")


def evaluation_rows(folder: Path, config: Config, evaluation: str, readout: str) -> EvaluationRows:
    """The file of what an evaluation measured of a read-out."""
    measured, readout_config = config.evaluation[evaluation], config.algorithm.readouts.get(readout)
    about = {
        "evaluation": {"name": evaluation, **measured.identity()},
        "readout": {"name": readout, **(asdict(readout_config) if readout_config else {})},
    }
    return EvaluationRows(folder, evaluation_key(config, evaluation, readout), about)


def is_measured(config: Config) -> bool:
    """Whether a training is finished, is not to begin anew, and is measured as asked; MLflow may not know of it yet.

    Opens no other training.
    """
    folder = folder_of(config)
    if not records.read(folder).trained or records.is_asked_anew(folder):
        return False
    results = Results(config, folder)
    return not (results.lacking(snapshots_of(folder)) or any(results.lost()))


def is_done(config: Config) -> bool:
    """Whether nothing is left to do of a training: it is measured, and its files and MLflow are as it left them.

    With `tracking_uri=later`, these are left to whoever collects it.
    """
    folder = folder_of(config)
    if config.tracking_uri == LATER:
        return is_measured(config)
    return records.read(folder).exported and is_measured(config) and not damaged_tables(folder, config)


def headline_value(config: Config) -> float | None:
    """What a finished run is worth: the last value of what its first evaluation charts first, of its first read-out.

    None where no evaluation has one.
    """
    results = Results(config, folder_of(config))
    for evaluation in config.evaluation.values():
        for readout in evaluation.names(config.algorithm.readouts):
            rows = results.rows().get(readout, {})
            found = [(step, m[name]) for name in evaluation.charted[:1] for step, m in rows.items() if name in m]
            if found:
                return max(found)[1]
    return None


def evaluation_of(config: Config) -> dict[str, Any]:
    """What is measured of a run, dotted key -> value, as provenance has it."""
    return flatten({name: evaluation.identity() for name, evaluation in config.evaluation.items()})


def evaluated_with(config: Config) -> set[str]:
    """The commits that made the evaluations that a run asks for."""
    return Results(config, folder_of(config)).made_with


def evaluation_seconds(config: Config) -> float | None:
    """What making the evaluations took that a run asks for; None if some of it was not recorded."""
    return Results(config, folder_of(config)).seconds


def measured_rows(config: Config) -> list[tuple[str, str, int, float]]:
    """Everything that is stored of a run and asked for: read-out (or "training"), metric, iteration, value."""
    folder = folder_of(config)
    results = Results(config, folder)
    results.tell_what_is_gone(snapshots_of(folder))
    together = {TRAINING: TrainingRows(folder).read(is_finished=True), **results.rows()}
    return [
        (readout, metric, step, value)
        for readout, rows in together.items()
        for step, metrics in rows.items()
        for metric, value in metrics.items()
    ]


def measurements(entry: Entry) -> Iterator[tuple[str, str, str, str, int, float]]:
    """Every number that is stored of a training: read-out, evaluation, its key, metric, iteration, value."""
    for step, metrics in TrainingRows(entry.folder).read().items():
        for metric, value in metrics.items():
            yield TRAINING, TRAINING, "", metric, step, value
    for stored in stored_evaluations(entry.folder):
        readout, evaluation = (str(stored.about[part]["name"]) for part in ("readout", "evaluation"))
        for step, metrics in sorted(stored.rows.items()):
            for metric, value in metrics.items():
                yield readout, evaluation, stored.key, metric, step, value
