"""What a command would do, without doing it: the state of each training, and what it may take.

Nothing is run, made or written. Minutes are of training alone, evaluations beside, and come from what is most like a
training among finished ones in the output folder, and then among published ones: the same at another seed or length, or
else the one of the same kind that differs in the fewest hyperparameters. One that trains more, as Deep CFR has an
average network beside SD-CFR's value networks, says what it takes at the most. They are of the machine that made those,
and of what else it did. Where it has other values of keys that multiply work, such as steps, nobody knows how much of
its time went there: minutes are then a span, from none of it to all of it. What evaluations take is told where the same
ones of the same training, at another seed perhaps, were timed. Disk is what the folder of a training takes when it is
finished, of those in the output folder or, where that is recorded, of published ones. Where none is known that is like
it, it is told what the folder takes at the most while it is trained, if the algorithm says what it leaves
(`repro.disk`).
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from paper_figures import page
from repro import catalogue, leftovers, staleness
from repro.config.keys import (
    SCHEMA,
    added_defaults,
    flatten,
    hyperparameters,
    multiplying,
    training_config,
    training_key,
)
from repro.config.schema import Config
from repro.disk import most_bytes
from repro.measuring import evaluation_of, evaluation_seconds, is_done, is_measured
from repro.planned import Run, labels, union
from repro.tracking import checkpoints
from repro.tracking import record as records
from repro.tracking.rows import TrainingRows
from repro.trained import folder_bytes, folder_of

FINISHED, BUSY, NEW, ANEW = "finished", "being done by another command", "new", "to begin anew"
TO_MEASURE, TO_COLLECT = "trained, to be measured", "finished, to be collected"
_LENGTHS = ("algorithm.iterations", "algorithm.snapshot_every", "algorithm.snapshots")
"""Hyperparameters that leave alone what an iteration does."""
_SAME = ("game.name", "device", "threads")
_UNKNOWN = "?"

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
    """

    name: str
    kind: str
    flat: Mapping[str, Any]
    seconds: Callable[[], Mapping[int, float]]
    folder: Path | None = None
    runs: Mapping[str, float] = field(default_factory=dict)
    evaluating: Callable[[Config], float | None] = lambda _: None
    published_bytes: float | None = None

    @property
    def bytes(self) -> float | None:
        """That its folder takes."""
        return self.published_bytes if self.folder is None else folder_bytes(self.folder)

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


_AS_ABOVE = "as above"

_ALIKE = Likeness((), 0, (1.0, 1.0))
"""Of the same training, at another seed perhaps."""


@dataclass(frozen=True)
class Outlook:
    """One training that is asked for.

    Attributes:
        state: one of the constants above, or "to continue from iteration k".
        minutes: of training that are left; None: unknown.
        bytes: that its folder will take when it is finished; None: unknown.
        source: what these come from; empty where nothing is to be trained or known.
        most_bytes: where `bytes` is unknown, those that its folder takes at the most at any moment; None: unknown, too.
        evaluating: minutes of all its evaluations, those among them that are made; 0 if all are; None: unknown.
    """

    key: str
    label: str
    state: str
    minutes: Span | None
    bytes: float | None
    source: str
    most_bytes: float | None = None
    evaluating: float | None = None


def outlooks(runs: Sequence[Run], output: Path) -> list[Outlook]:
    """Of each different training that runs ask for, in their order; nothing is written.

    What is there and cannot be read is told and left out.
    """
    different = union(runs)
    configs = [
        (label, config) for run, label in zip(different, labels(different), strict=True) for config in run.configs
    ]
    examples = list(_examples(output))
    return [_outlook(label, config, examples) for label, config in configs]


def _outlook(label: str, config: Config, examples: Sequence[Example]) -> Outlook:
    state, begun = _state(config)
    folder = folder_of(config)
    if state in (FINISHED, TO_COLLECT):
        return Outlook(training_key(config), label, state, (0.0, 0.0), folder_bytes(folder), "", evaluating=0.0)
    alike = _nearest(config, examples)
    evaluating = _evaluating(config, alike)
    if state == TO_MEASURE:
        held = folder_bytes(folder)
        return Outlook(training_key(config), label, state, (0.0, 0.0), held, "", evaluating=evaluating)
    if not alike:
        return Outlook(training_key(config), label, state, None, None, "", _most_bytes(config, state))
    iterations, work = config.algorithm.iterations, config.algorithm.work
    share = 1 - work(begun) / work(iterations)
    spans = [[factor * example.taken(config) / 60 for factor in likeness.factors] for example, likeness in alike]
    least, most = (share * sum(ends) / len(alike) for ends in zip(*spans, strict=True))
    folders = ((example, example.bytes) for example, likeness in alike if not likeness.more)
    sizes = [size * iterations / max(example.known) for example, size in folders if size is not None]
    disk = sum(sizes) / len(sizes) if sizes else None
    bound = None if sizes else _most_bytes(config, state)
    first, likeness = alike[0]
    more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
    source = f"{first.name}{more}{likeness.told}"
    return Outlook(training_key(config), label, state, (least, most), disk, source, bound, evaluating)


def _evaluating(config: Config, alike: Sequence[tuple[Example, Likeness]]) -> float | None:
    """Minutes that the same evaluations took of the same training, whatever its seed; None where none was timed."""
    same = [example for example, likeness in alike if likeness.rank == _ALIKE.rank]
    seconds = [took for example in same if (took := example.evaluating(config)) is not None]
    return statistics.mean(seconds) / 60 if seconds else None


def _most_bytes(config: Config, state: str) -> float | None:
    """What the folder of a training that is not finished takes at the most."""
    most = most_bytes(config)
    # What there is of a training that begins anew is kept until it is finished.
    return most if most is None or state not in (NEW, ANEW) else most + folder_bytes(folder_of(config))


# -- states ----------------------------------------------------------------------------------------------------------


def _state(config: Config) -> tuple[str, int]:
    """What is to be done of a training, and the iteration that it goes on after."""
    folder = folder_of(config)
    record = records.read(folder)
    if leftovers.is_held(folder):
        return BUSY, record.iteration
    if config.force or records.is_asked_anew(folder):
        return (ANEW if record.iteration else NEW), 0
    if is_done(config):
        return FINISHED, config.algorithm.iterations
    if record.trained:
        return (TO_COLLECT if is_measured(config) else TO_MEASURE), config.algorithm.iterations
    iteration = _checkpointed(folder.parent / (record.checkpoints or folder.name))
    return (f"to continue from iteration {iteration}", iteration) if iteration else (NEW, 0)


def _checkpointed(place: Path) -> int:
    """The iteration of the newest checkpoint that can be read; 0 where there is none."""
    if not any(place.glob("*.ckpt")):
        return 0
    return checkpoints.newest(place) or 0


# -- what is known of others -----------------------------------------------------------------------------------------


def _examples(output: Path) -> Iterator[Example]:
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
            sizes = sweep.get("megabytes", [])
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
                    runs=dict(zip(page.names_of_runs(sweep), took, strict=True)),
                    evaluating=partial(_published_time, sweep),
                    published_bytes=1e6 * sizes[0] if sizes else None,
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


def _nearest(config: Config, examples: Sequence[Example]) -> list[tuple[Example, Likeness]]:
    """The examples that are most like a training.

    None of another kind of algorithm, game, device or number of threads, and none that trains less. Where there are
    some in the output folder, none that are only published and no nearer.
    """
    flat, multiplies = hyperparameters(config), set(multiplying(config.algorithm, "algorithm."))
    before = dict(added_defaults(config.algorithm, "algorithm."))
    by_rank: dict[tuple[float, ...], list[tuple[Example, Likeness]]] = {}
    kind, name = training_config(config)["algorithm"][SCHEMA], config.algorithm.name
    of_kind = (e for e in examples if e.kind == kind or e.flat.get("algorithm.name") == name)
    comparable = (e for e in of_kind if all(e.flat.get(key) == flat.get(key) for key in _SAME))
    for example in (e for e in comparable if not _left_out(e.flat, flat)):
        is_this = training_key(config) in example.runs
        # What an earlier version left does not name keys that were added since.
        known = replace(example, flat={**before, **example.flat})
        likeness = _ALIKE if is_this else Likeness.of(flat, known, multiplies)
        by_rank.setdefault((*likeness.rank, example.folder is None), []).append((example, likeness))
    return by_rank[min(by_rank)] if by_rank else []


# -- shown -----------------------------------------------------------------------------------------------------------


def show(planned: Sequence[Outlook], jobs: int) -> None:
    """Print a line per training, and the totals as the last line."""
    from rich.table import Table  # noqa: PLC0415

    from repro.tracking.progress import console  # noqa: PLC0415

    if planned:
        table = Table("key", "training", "state", "minutes left", "MB", "by", box=None)
        above = ""
        for each in planned:
            source = _AS_ABOVE if each.source and each.source == above else each.source
            table.add_row(each.key, each.label, each.state, _number(each.minutes), _megabytes(each), source)
            above = each.source
        console(sys.stdout).print(table)
    print(totals(planned, jobs))


def totals(planned: Sequence[Outlook], jobs: int) -> str:
    """One line: how many are in which state, and what all that is left takes."""
    if not planned:
        return "no training is to be done"
    states: dict[str, int] = {}
    for each in planned:
        state = each.state.partition(" from iteration")[0]
        states[state] = states.get(state, 0) + 1
    if set(states) == {FINISHED}:
        held = sum(each.bytes or 0.0 for each in planned) / 1e9
        return f"{len(planned)} training(s): all are finished, nothing is to be done; they take {held:.2f} GB of disk"
    counted = ", ".join(f"{count} {state}" for state, count in states.items())
    known = [each.minutes for each in planned if each.minutes is not None]
    all_left, at_once = _sum(known, 1), _sum(known, jobs)
    unknown = len(planned) - len(known)
    left = f"about {_long(all_left)} of training left, {_long(at_once)} with {jobs} at once, and {_beside(planned)}"
    lengths = [*([left] if known or not unknown else []), *([f"{unknown} of unknown length"] if unknown else [])]
    return f"{len(planned)} training(s): {counted}; {', and '.join(lengths)}; {_disk(planned)}"


def _beside(planned: Sequence[Outlook]) -> str:
    """What evaluations take, if that is known of all."""
    minutes = [each.evaluating for each in planned if each.evaluating is not None]
    if len(minutes) < len(planned):
        return "evaluations beside"
    total = sum(minutes)
    return f"{_long((total, total))} of evaluations in all"


def _disk(planned: Sequence[Outlook]) -> str:
    """What all take: measured of finished ones, bounded, or unknown; bounds are never added to what is measured."""
    sizes = [each.bytes for each in planned if each.bytes is not None]
    bounds = [each.most_bytes for each in planned if each.bytes is None and each.most_bytes is not None]
    unknown = len(planned) - len(sizes) - len(bounds)
    parts = []
    if sizes:
        at_least = "at least " if unknown and not bounds else ""
        parts.append(f"{at_least}{sum(sizes) / 1e9:.2f} GB of disk when all are done")
    if bounds:
        of = f"at most {sum(bounds) / 1e9:.2f} GB"
        parts.append(f"{of} for {len(bounds)} other(s)" if sizes else f"{of} of disk")
        if unknown:
            parts.append(f"unknown for {unknown}")
    return ", ".join(parts) or "disk unknown"


def _sum(spans: Sequence[Span], jobs: int) -> Span:
    """What several take, so many at once."""
    least, most = (
        (max(max(ends, default=0.0), sum(ends) / jobs) for ends in zip(*spans, strict=True)) if spans else (0, 0)
    )
    return least, most


def _number(minutes: Span | None) -> str:
    if minutes is None:
        return _UNKNOWN
    return " to ".join(dict.fromkeys(f"{end:.1f}" for end in minutes))


def _long(minutes: Span) -> str:
    """A span of minutes, or where these are many, of hours or days."""
    per, unit = next(
        (p, u) for p, u in ((1440, "days"), (60, "hours"), (1, "minutes")) if minutes[0] >= 2 * p or p == 1
    )
    return f"{_number((minutes[0] / per, minutes[1] / per))} {unit}"


def _megabytes(planned: Outlook) -> str:
    if planned.bytes is None and planned.most_bytes is not None:
        return f"< {planned.most_bytes / 1e6:,.1f}"
    return _UNKNOWN if planned.bytes is None else f"{planned.bytes / 1e6:,.1f}"
