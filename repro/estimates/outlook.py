"""What a command would do, without doing it: the state of each training, and what it may take.

Nothing is run, and nothing is left anywhere. Minutes are of training alone, evaluations beside, and come from what is
most like a training among finished ones in the output folder, and then among published ones: the same at another seed
or length, or else the one of the same kind that differs in the fewest hyperparameters. One that trains more, as Deep
CFR has an average network beside SD-CFR's value networks, says what it takes at the most. They are of the machine that
made those, and of what else it did. Where it has other values of keys that multiply work, such as steps, nobody knows
how much of its time went there: minutes are then a span, from none of it to all of it. What evaluations take is told
where the same ones of the same training, at another seed perhaps, were timed. Disk is what the folder of a training
takes when it is finished, of those in the output folder or, where that is recorded, of published ones. Where none is
known that is like it, it is told what the folder takes at the most while it is trained, if the algorithm says what it
leaves (`repro.estimates.disk`). What trainings store beside their folders, such as solved subgames, is named and not
counted.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from repro.config.keys import training_key
from repro.config.schema import Config
from repro.estimates.disk import most_bytes
from repro.estimates.likeness import ALIKE, Example, Likeness, Span, examples, nearest
from repro.plans.naming import labels
from repro.plans.planned import Run, union
from repro.stored import leftovers
from repro.stored.output import check_output
from repro.stored.results import is_done, is_measured
from repro.stored.trained import folder_bytes, folder_of
from repro.tracking import checkpoints
from repro.tracking import record as records

FINISHED, BUSY, NEW, ANEW = "finished", "being done by another command", "new", "to begin anew"
TO_MEASURE, TO_COLLECT = "trained, to be measured", "finished, to be collected"
_UNKNOWN = "?"
_AS_ABOVE = "as above"
_SHOWN = 0.1
"""Of minutes, the least that is told."""
_LEAST_IN_GB = 1e9
"""Fewer bytes are told in MB."""
_LEAST_BYTES = 1e5
"""The least that is told."""


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
        store: the folder of stored data that it reads or adds to; None: it has none.
    """

    key: str
    label: str
    state: str
    minutes: Span | None
    bytes: float | None
    source: str
    most_bytes: float | None = None
    evaluating: float | None = None
    store: Path | None = None


def outlooks(runs: Sequence[Run], output: Path) -> list[Outlook]:
    """Of each different training that runs ask for, in their order; nothing is left in the output folder.

    What is there and cannot be read is told and left out.

    Raises:
        ReproError: something is to be done, and that folder could not be made, or written.
    """
    different = union(runs)
    known = list(examples(output))
    found = [
        # Seeds that are trained together have one label.
        _outlook(f"{label}: seed {config.seed}" if len(run.configs) > 1 else label, config, known)
        for run, label in zip(different, labels(different), strict=True)
        for config in run.configs
    ]
    if any(each.state != FINISHED for each in found):
        check_output(output)
    return found


def _outlook(label: str, config: Config, examples: Sequence[Example]) -> Outlook:
    state, begun = _state(config)
    folder = folder_of(config)
    outlook = partial(Outlook, training_key(config), label, state, store=config.algorithm.stored_data(config))
    if state in (FINISHED, TO_COLLECT):
        return outlook((0.0, 0.0), folder_bytes(folder), "", evaluating=0.0)
    alike = nearest(config, examples)
    evaluating = _evaluating(config, alike)
    if state == TO_MEASURE:
        held = folder_bytes(folder)
        return outlook((0.0, 0.0), held, "", evaluating=evaluating)
    if not alike:
        return outlook(None, None, "", _most_bytes(config, state))
    iterations, work = config.algorithm.iterations, config.algorithm.work
    share = 1 - work(begun) / work(iterations)
    spans = [[factor * example.taken(config) / 60 for factor in likeness.factors] for example, likeness in alike]
    least, most = (share * sum(ends) / len(alike) for ends in zip(*spans, strict=True))
    bound = _most_bytes(config, state)
    # One of another deck, or of fewer buckets, may be off by any factor.
    of_size = (e for e, likeness in alike if not likeness.more and not likeness.settings)
    folders = ((example, example.bytes(config)) for example in of_size)
    sizes = [size * iterations / max(example.known) for example, size in folders if size is not None]
    disk = min(sum(sizes) / len(sizes), math.inf if bound is None else bound) if sizes else None
    first, likeness = alike[0]
    more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
    source = f"{first.name}{more}{likeness.told}"
    known = None if sizes else bound
    return outlook((least, most), disk, source, known, evaluating)


def _evaluating(config: Config, alike: Sequence[tuple[Example, Likeness]]) -> float | None:
    """Minutes that the same evaluations took of the same training, whatever its seed; None where none was timed."""
    same = [example for example, likeness in alike if likeness.rank == ALIKE.rank]
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


# -- shown -----------------------------------------------------------------------------------------------------------


def show(planned: Sequence[Outlook], jobs: int) -> None:
    """Print a line per training, and the totals as the last line."""
    from rich.table import Table  # noqa: PLC0415

    from repro.tracking.progress import console  # noqa: PLC0415

    if planned:
        table = Table("key", "training", "state", "minutes left", "MB", "estimated from", box=None)
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
        held = f"{_size(sum(each.bytes or 0.0 for each in planned))} of disk{_stores(planned)}"
        return f"{len(planned)} training(s): all are finished, nothing is to be done; they take {held}"
    counted = ", ".join(f"{count} {state}" for state, count in states.items())
    known = [each.minutes for each in planned if each.minutes is not None]
    all_left, at_once = _sum(known, 1), _sum(known, jobs)
    unknown = len(planned) - len(known)
    about = "by estimate " if _has_no_least(all_left) else "about "
    several = f", {_long(at_once)} with {jobs} at once" if jobs > 1 else ""
    left = f"{about}{_long(all_left)} of training left{several}, and {_beside(planned)}"
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
    at_least = "at least " if unknown and not bounds else ""
    if sizes and (sum(sizes) >= _LEAST_BYTES or not at_least):
        parts.append(f"{at_least}{_size(sum(sizes))} of disk when all are done")
    if bounds:
        of = f"at most {_size(sum(bounds))}"
        parts.append(f"{of} for {len(bounds)} other(s)" if sizes else f"{of} of disk")
        if unknown:
            parts.append(f"unknown for {unknown}")
    return (", ".join(parts) or "disk unknown") + _stores(planned)


def _stores(planned: Sequence[Outlook]) -> str:
    """Names what is not counted. All stores of one kind are in one folder."""
    stores = sorted({str(each.store.parent) for each in planned if each.store is not None})
    return f" (without what is stored in {', '.join(stores)})" if stores else ""


def _size(size: float) -> str:
    if size < _LEAST_BYTES:
        return f"less than {_LEAST_BYTES / 1e6} MB"
    return f"{size / 1e9:.2f} GB" if size >= _LEAST_IN_GB else f"{size / 1e6:.1f} MB"


def _sum(spans: Sequence[Span], jobs: int) -> Span:
    """What several take, so many at once."""
    least, most = (
        (max(max(ends, default=0.0), sum(ends) / jobs) for ends in zip(*spans, strict=True)) if spans else (0, 0)
    )
    return least, most


def _number(minutes: Span | None, less: str = "<") -> str:
    if minutes is None:
        return _UNKNOWN
    if _has_no_least(minutes):
        # Up, but for what a float adds to 4.9.
        return f"{less} {math.ceil(round(minutes[1] / _SHOWN, 6)) * _SHOWN:.1f}"
    return " to ".join(dict.fromkeys(f"{end:.1f}" for end in minutes))


def _has_no_least(minutes: Span) -> bool:
    """Whether it goes from what rounds to nothing to something."""
    return minutes[0] < _SHOWN / 2 and minutes[1] > 0


def _long(minutes: Span) -> str:
    """A span of minutes, or where these are many, of hours or days."""
    decides = minutes[1] if _has_no_least(minutes) else minutes[0]
    per, unit = next((p, u) for p, u in ((1440, "days"), (60, "hours"), (1, "minutes")) if decides >= 2 * p or p == 1)
    return f"{_number((minutes[0] / per, minutes[1] / per), 'less than')} {unit}"


def _megabytes(planned: Outlook) -> str:
    if planned.bytes is None and planned.most_bytes is not None:
        return f"< {planned.most_bytes / 1e6:,.1f}"
    return _UNKNOWN if planned.bytes is None else f"{planned.bytes / 1e6:,.1f}"
