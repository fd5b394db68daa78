"""How `repro.compare` tells what `differences` finds."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.markup import escape
from rich.table import Table

from repro.comparing import differences
from repro.config.checks import TRAINING
from repro.plans.naming import labels
from repro.plans.planned import Run
from repro.stored.catalogue import Entry
from repro.tracking.progress import console

_STRATEGY = "strategy/"


def compare(a: Sequence[Entry], b: Sequence[Entry], every: bool) -> int:
    """Print everything; returns the exit status.

    Args:
        every: show metrics of the training itself, and each probability of a strategy, too.
    """
    for name, side in (("A", a), ("B", b)):
        run = Run([entry.config for entry in side], {}, side[0].record.title)
        ended = "; ".join(headline for entry in side if (headline := entry.record.headline))
        print(f"{name}: {labels([run])[0]}{f': {ended}' if ended else ''}")
    of_a, of_b = (side[0].config.game["name"] for side in (a, b))
    if of_a != of_b:
        print(f"results: not compared, for A is of {of_a} and B of {of_b}")
    _print_settings(differences.settings(a, b))
    _print_part("code", list(differences.code(a, b)))
    _print_part("versions and hardware", _facts(*(differences.made_with(side) for side in (a, b))))
    stored = [differences.data(side[0]) for side in (a, b)]
    if any(stored):
        _print_part("data", [] if stored[0] == stored[1] else [" | ".join(each or "none" for each in stored)])
    if others := list(differences.opponents(a, b)):
        _print_part("opponents that are called alike, and are not the same for all", others)
    if of_a != of_b:
        return 1
    return _compare_results(*differences.with_lone_read_outs(a, b), every)


def _facts(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """A line per fact, but those of the code, in which what trained the sides differs."""
    names = sorted((a.keys() | b.keys()) - set(differences.CODE))
    return [f"{name}: {a.get(name, '?')} | {b.get(name, '?')}" for name in names if a.get(name) != b.get(name)]


def _print_settings(found: pd.DataFrame) -> None:
    both = found[(found.a != differences.NO_KEY) & (found.b != differences.NO_KEY)]
    print(f"configuration: {'' if len(found) else 'the same'}".rstrip())
    table = Table("", "A", "B", box=None)
    for row in both.to_dict("records"):
        table.add_row(*(escape(row[column]) for column in ("key", "a", "b")))
    _print_table(table)
    for side, other in (("a", "b"), ("b", "a")):
        if len(alone := found[found[other] == differences.NO_KEY]):
            print(f"  keys of {side.upper()} alone: {', '.join(alone.key + '=' + alone[side])}")


def _print_part(title: str, lines: Sequence[str]) -> None:
    print(f"{title}: {'' if lines else 'the same'}".rstrip())
    for line in lines:
        print(f"  {line}")


def _compare_results(a: pd.DataFrame, b: pd.DataFrame, every: bool) -> int:
    """Print the results of two sides; returns the exit status."""
    seeds = set(a.seed) & set(b.seed)
    same = differences.number_by_number(a, b) if seeds else pd.DataFrame()
    at_ends = differences.ends(a, b)
    measured, in_common = (_of_readouts(table) for table in (a, same))
    elsewhere, at_the_end = measured and not in_common, _of_readouts(at_ends)
    names = [sorted(set(side.readout) - {TRAINING}) for side in (a, b)]
    nothing_alike = (
        f"no read-out was measured in the same way on both sides; A has {differences.listed(names[0])}, "
        f"B has {differences.listed(names[1])}"
    )
    status = int(bool(seeds))
    if same.empty:
        why = "nothing was measured of the same seed at the same iteration" if seeds else "there is no seed in common"
        print(f"results: {why if set(names[0]) & set(names[1]) else nothing_alike}")
    elif elsewhere and not at_the_end:
        print(f"results: {nothing_alike}")
    else:
        _print_number_by_number(same, every, seeds, {"A": set(a.seed) - seeds, "B": set(b.seed) - seeds})
        status = int(same.same.sum() < same.numbers.sum() or elsewhere or at_the_end)
    _print_ends(at_ends, every)
    several = min(a.seed.nunique(), b.seed.nunique()) > 1
    if several or not seeds:
        _print_means(_seen(differences.means(a, b), every), several)
    return status


def _print_number_by_number(
    table: pd.DataFrame, every: bool, seeds: Collection[int], alone: Mapping[str, Collection[int]]
) -> None:
    """How many numbers of the same seeds are equal; `alone`, the seeds that only one side has."""
    seen = _seen(table, every)
    hidden = int(table.numbers.sum() - seen.numbers.sum())
    beside = f" ({hidden} of the trainings themselves or of strategies one by one, which --all shows)" if hidden else ""
    equal = f"{int(table.same.sum())} of {int(table.numbers.sum())} numbers are equal"
    print(f"results of {_named(seeds)}, at iterations that both have: {equal}{beside}")
    for name, left_out in alone.items():
        if left_out:
            print(f"  left out there: {_named(left_out)}, of {name} alone")
    shown = Table("read-out", "metric", "equal", "digits alike", "unequal from", "at iteration", "A", "B", box=None)
    for row in _in_order(seen):
        digits = "all" if row["digits"] == differences.ALL_DIGITS else str(row["digits"])
        first = "" if pd.isna(row["first"]) else str(int(row["first"]))
        at_last = str(row["last"]), f"{row['a']:.8g}", f"{row['b']:.8g}"
        shown.add_row(row["readout"], row["metric"], f"{row['same']} of {row['numbers']}", digits, first, *at_last)
    _print_table(shown)


def _print_means(averages: pd.DataFrame, several: bool) -> None:
    """Means over seeds and how far apart they are; of `several` seeds a side with an interval."""
    interval = "with 95% intervals" if several else "(an interval takes several seeds a side, as KEY,KEY)"
    table = Table("read-out", "metric", "at iteration", "A", "B", "B - A", *(["interval"] * several), box=None)
    for row in _in_order(averages):
        shown = f"{row['a']:.4g}", f"{row['b']:.4g}", str(row["apart"]), *([row["interval"]] * several)
        table.add_row(row["readout"], row["metric"], str(row["last"]), *shown)
    if table.row_count:
        print(f"means over seeds, and B minus A {interval}:")
        _print_table(table)


def _seen(table: pd.DataFrame, every: bool) -> pd.DataFrame:
    """The rows that are shown: all, or those of read-outs, but for the many probabilities of a strategy."""
    if every or table.empty:
        return table
    return table[(table.readout != TRAINING) & ~table.metric.str.startswith(_STRATEGY)]


def _in_order(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """Its rows, of each read-out exploitability first and the many numbers of a strategy last."""
    rows = table.to_dict("records")
    return sorted(
        rows,
        key=lambda r: (r["readout"], r["metric"].startswith(_STRATEGY), not r["metric"].startswith("exploitability")),
    )


def _of_readouts(table: pd.DataFrame) -> bool:
    """Whether there is a row that is not of the training itself."""
    return len(table) > 0 and bool((table.readout != TRAINING).any())


def _print_ends(at_ends: pd.DataFrame, every: bool) -> None:
    table = Table("read-out", "metric", "A's last iteration", "A", "B's last iteration", "B", box=None)
    for row in _in_order(_seen(at_ends, every)):
        at = [str(row["last_a"]), f"{row['a']:.4g}", str(row["last_b"]), f"{row['b']:.4g}"]
        table.add_row(row["readout"], row["metric"], *at)
    if table.row_count:
        print("measured at no common iteration; at the ends, means over seeds:")
        _print_table(table)


def _print_table(table: Table) -> None:
    if table.row_count:
        console(sys.stdout).print(table)


def _named(seeds: Collection[int]) -> str:
    """`seed 0`, or `seeds 0, 1`."""
    return f"seed{'s' if len(seeds) > 1 else ''} {differences.listed(sorted(seeds))}"
