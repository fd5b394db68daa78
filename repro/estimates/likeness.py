"""What is known of trainings like one: finished ones, and published ones, and by how much these differ from it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from repro.config.keys import (
    SCHEMA,
    added_defaults,
    declared_so,
    flatten,
    hyperparameters,
    training_config,
    training_key,
)
from repro.config.schema import Config
from repro.figures import page
from repro.stored import catalogue
from repro.stored.results import evaluation_of, evaluation_seconds, is_measured
from repro.stored.trained import folder_bytes
from repro.tracking import staleness
from repro.tracking.rows import TrainingRows

_LENGTHS = ("algorithm.iterations", "algorithm.snapshot_every", "algorithm.snapshots")
"""Hyperparameters that leave alone what an iteration does."""
_SAME = ("game.name", "device", "threads")

Span = tuple[float, float]
"""The least and the most of something; twice the same where one number is known."""


@dataclass(frozen=True)
class Example:
    """A finished training, by which others are judged.

    Attributes:
        name: what is said of where it is.
        flat: its hyperparameters, dotted.
        kind: the name that the schema of its algorithm is registered by, which SD-CFR and Deep CFR share; empty: not
            recorded, as by earlier versions.
        seconds: iteration -> seconds of training until there.
        folder: None if it is only published.
        runs: key -> seconds of the trainings of its sweep, itself among them, where their keys are known.
        evaluating: the seconds that evaluations of it took, those that a configuration of the same training asks for;
            None: not recorded, as by earlier versions, or not made.
        published_bytes: that its folder took, if it is only published; None: not recorded, as by earlier versions.
        bytes_of_runs: as `runs`, of folders of those that are only published.
    """

    name: str
    kind: str
    flat: Mapping[str, Any]
    seconds: Callable[[], Mapping[int, float]]
    folder: Path | None = None
    runs: Mapping[str, float] = field(default_factory=dict)
    evaluating: Callable[[Config], float | None] = lambda _: None
    published_bytes: float | None = None
    bytes_of_runs: Mapping[str, float] = field(default_factory=dict)

    def bytes(self, config: Config) -> float | None:
        """That its folder takes, or, where it is of the same sweep, that of a training."""
        if self.folder is not None:
            return folder_bytes(self.folder)
        return self.bytes_of_runs.get(training_key(config), self.published_bytes)

    @cached_property
    def known(self) -> Mapping[int, float]:
        return self.seconds()

    def taken(self, config: Config) -> float:
        """Seconds that a training took as far as another one goes.

        Beyond its end they grow in proportion to the work, by what iterations after the first one took, where that is
        known: in the first one programs are compiled.
        """
        if training_key(config) in self.runs:
            return self.runs[training_key(config)]
        iterations, last = config.algorithm.iterations, max(self.known)
        if iterations in self.known:
            return self.known[iterations]
        work, first = config.algorithm.work, min(self.known)
        if first == last or iterations < last:
            return self.known[last] * work(iterations) / work(last)
        per_work = (self.known[last] - self.known[first]) / (work(last) - work(first))
        return self.known[last] + per_work * (work(iterations) - work(last))


@dataclass(frozen=True)
class Likeness:
    """How an example is like a training.

    Attributes:
        settings: the dotted keys in which it differs, lengths aside.
        lengths: how many of those that say how long it is.
        ratios: by which its seconds are multiplied, at the least and at the most: a key's ratio is that of a part of
            the work, which may be none or all of it.
        more: dotted keys of what it trains and the other does not, such as an average network.
    """

    settings: tuple[str, ...]
    lengths: int
    ratios: Span
    more: tuple[str, ...] = ()

    @classmethod
    def of(cls, flat: Mapping[str, Any], example: Example, multiplying: Collection[str]) -> Likeness:
        # A key that only one of them has was added, or is of another version.
        differing = sorted(key for key in flat.keys() & example.flat.keys() if flat[key] != example.flat[key])
        settings = tuple(key for key in differing if key not in _LENGTHS)
        ratios: dict[str, float] = {}
        for key in flat.keys() & example.flat.keys() & set(multiplying):
            ours, theirs = (_mean_of_iterations(each, key, flat) for each in (flat, example.flat))
            if ours and theirs:
                # Keys of the same fit multiply its work; fits, and all else, are parts of which each takes a share.
                part = key.rpartition(".")[0]
                ratios[part] = ratios.get(part, 1.0) * ours / theirs
        span = min([1.0, *ratios.values()]), max([1.0, *ratios.values()])
        return cls(settings, len(differing) - len(settings), span, tuple(_left_out(flat, example.flat)))

    @property
    def factors(self) -> Span:
        """As `ratios`; nobody knows how much of an example's time went into what it trains beside."""
        least, most = self.ratios
        return 0.0 if self.more else least, most

    @property
    def rank(self) -> tuple[float, ...]:
        """The lower, the nearer."""
        least, most = self.ratios
        return len(self.settings) + len(self.more), most / least, self.lengths

    @property
    def told(self) -> str:
        """What is said of it after the example's name."""
        differs = f", different in {', '.join(self.settings)}" if self.settings else ""
        return differs + (f", and training {', '.join(self.more)}, too: at the most" if self.more else "")


def _left_out(flat: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Dotted keys of the parts, such as fits, that another training has and this one has not."""
    none = [key for key, value in flat.items() if value is None]
    return [key for key in none if any(each.startswith(f"{key}.") for each in other)]


def _mean_of_iterations(flat: Mapping[str, Any], key: str, length: Mapping[str, Any]) -> float:
    """The value of a key that multiplies work, mean over the iterations of a training: SGD steps may become more."""
    value, more = flat[key] or 0, flat.get(f"{key.rpartition('.')[0]}.more_steps") or 0
    if not key.endswith(".steps") or not more:
        return float(value)
    return float(value + more * (length["algorithm.iterations"] - 1) / 2)


ALIKE = Likeness((), 0, (1.0, 1.0))
"""Of the same training, at another seed perhaps."""


def examples(output: Path) -> Iterator[Example]:
    """Finished trainings of an output folder, and then published ones."""
    finished = [entry for entry in catalogue.entries(output) if entry.is_finished] if output.is_dir() else []
    for entry in catalogue.readable(finished):
        yield Example(
            f"run {entry.key}", str(entry.plain["algorithm"].get(SCHEMA, "")), entry.hyperparameters, _clock(entry),
            entry.folder, evaluating=partial(_timed, entry),
        )  # fmt: skip
    for folder in staleness.results():
        for sweep in json.loads((folder / "provenance.json").read_text())["sweeps"]:
            flat = {key: value for key, value in flatten(sweep["config"]).items() if key != "seed"}
            # Of what is swept beside seeds the recorded configuration is the first one.
            # The clock has other work in it, and the processor's time is that of all threads: the lesser of both.
            took = [min(both) for both in zip(sweep["wall_seconds"], page.training_seconds(sweep), strict=True)]
            names, sizes = page.names_of_runs(sweep), [1e6 * size for size in sweep.get("megabytes", [])]
            if len(took) == len(sweep["seeds"]):
                # Of the clock's seconds some are of a machine that slept, or did other work.
                took = [statistics.median(took)] * len(took)
            last = flat.get("algorithm.iterations")
            # What only evaluates takes no time as a training.
            if isinstance(last, int):
                yield Example(
                    f"published {folder.name}", str(flat.get(f"algorithm.{SCHEMA}", "")), _settings(flat),
                    partial(dict, {last: took[0]}),
                    # Where keys were not recorded yet, no training has such a name.
                    runs=dict(zip(names, took, strict=True)),
                    evaluating=partial(_published_time, sweep),
                    published_bytes=sizes[0] if sizes else None,
                    bytes_of_runs=dict(zip(names, sizes, strict=True)) if sizes else {},
                )  # fmt: skip


def _timed(entry: catalogue.Entry, config: Config) -> float | None:
    same = replace(config, seed=entry.config.seed, output_dir=entry.config.output_dir)
    return evaluation_seconds(same) if is_measured(same) else None


def _published_time(sweep: Mapping[str, Any], config: Config) -> float | None:
    """Of a sweep's run of this key, or the mean over runs that differ by their seed alone; None where something else
    was measured."""
    if sweep.get("evaluation") != evaluation_of(config) or "evaluation_seconds" not in sweep:
        return None
    seconds = dict(zip(page.names_of_runs(sweep), sweep["evaluation_seconds"], strict=True))
    if len(seconds) > len(sweep["seeds"]):
        return seconds.get(training_key(config))
    known = [each for each in seconds.values() if each is not None]
    return statistics.mean(known) if known else None


def _clock(entry: catalogue.Entry) -> Callable[[], Mapping[int, float]]:
    def seconds() -> Mapping[int, float]:
        rows = TrainingRows(entry.folder).read()
        known = {step: metrics["wall_seconds"] for step, metrics in rows.items() if metrics.get("wall_seconds")}
        return {**known, entry.config.algorithm.iterations: entry.record.wall_seconds}

    return seconds


def _settings(flat: Mapping[str, Any]) -> dict[str, Any]:
    without = ("algorithm.readouts.", "algorithm.module", "algorithm.schema", "game.module")
    return {key: value for key, value in flat.items() if not key.startswith(without)}


def nearest(config: Config, examples: Sequence[Example]) -> list[tuple[Example, Likeness]]:
    """The examples that are most like a training.

    None of another kind of algorithm, work, game, device or number of threads, and none that trains less. Where there
    are some in the output folder, none that are only published and no nearer.
    """
    flat, multiplies = hyperparameters(config), set(declared_so(config.algorithm, "multiplies", "algorithm."))
    sorting = list(declared_so(config.algorithm, "sorts", "algorithm."))
    before = dict(added_defaults(config.algorithm, "algorithm."))
    by_rank: dict[tuple[float, ...], list[tuple[Example, Likeness]]] = {}
    kind, name = training_config(config)["algorithm"][SCHEMA], config.algorithm.name
    of_kind = (e for e in examples if e.kind == kind or e.flat.get("algorithm.name") == name)
    comparable = (
        e
        for e in of_kind
        if all(e.flat.get(key) == flat.get(key) for key in _SAME)
        and all((e.flat.get(key) is None) == (flat.get(key) is None) for key in sorting)
    )
    for example in (e for e in comparable if not _left_out(e.flat, flat)):
        is_this = training_key(config) in example.runs
        # What an earlier version left does not name keys that were added since.
        known = replace(example, flat={**before, **example.flat})
        likeness = ALIKE if is_this else Likeness.of(flat, known, multiplies)
        by_rank.setdefault((*likeness.rank, example.folder is None), []).append((example, likeness))
    return by_rank[min(by_rank)] if by_rank else []
