"""What differs between runs of two sides, and whether their results do, as tables; `told` prints them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from repro.common.errors import ReproError, told_of
from repro.config.checks import TRAINING
from repro.config.keys import training_config
from repro.evaluation.statistics import difference, mean_ci
from repro.figures.agreement import CLOCKS
from repro.plans.naming import written
from repro.stored import catalogue
from repro.stored.catalogue import Entry
from repro.stored.results import measurements
from repro.subgames.data import SubgameDataConfig
from repro.tracking import staleness
from repro.tracking.rows import stored_evaluations

ALL_DIGITS = 17
"""That tell any float64 from any other one."""
CODE = ("git_commit", "git_dirty")
"""What is told of the code, as facts of a record are called."""
NO_KEY = "no such key"
"""What a table of settings has where a side has none."""
_FIRST = ("algorithm.name", "game.name")
_RUN = ["readout", "asked", "metric"]
_SHORT = 12


def side_of(output: Path, name: str, text: str) -> list[Entry]:
    """The runs of one side, of one configuration.

    Raises:
        ReproError: they are of several, or there are none.
    """
    with told_of(name):
        found = catalogue.chosen(output, text.split(","))
    first = found[0].hyperparameters
    for entry in found:
        own = entry.hyperparameters
        if keys := sorted(key for key in own.keys() | first.keys() if own.get(key) != first.get(key)):
            raise ReproError(
                f"{name} is {text}; its runs must differ in their seeds alone, and {entry.key} differs from "
                f"{found[0].key} in {listed(keys)}, too."
            )
    return sorted(found, key=lambda entry: entry.config.seed)


def listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values)) or "?"


# -- what they are made of -------------------------------------------------------------------------------------------


def settings(a: Sequence[Entry], b: Sequence[Entry]) -> pd.DataFrame:
    """What differs of the configuration: the algorithm and the game, the seeds, and then by the alphabet.

    Returns:
        A row per `key`, with its values, `a` and `b`, as on a command line; `NO_KEY` where a side has none.
    """
    flat = [
        {"seed": listed(sorted(e.config.seed for e in side)), **written(side[0].hyperparameters)} for side in (a, b)
    ]
    keys = sorted(flat[0].keys() | flat[1].keys(), key=lambda key: (key not in _FIRST, key != "seed", key))
    rows = [(key, *(str(of_side.get(key, NO_KEY)) for of_side in flat)) for key in keys]
    return pd.DataFrame([row for row in rows if row[1] != row[2]], columns=["key", "a", "b"])


def made_with(side: Sequence[Entry]) -> dict[str, str]:
    """What trained these runs, fact by fact; several values where there are."""
    facts = sorted({fact for entry in side for fact in entry.record.made_with})
    return {f: listed(sorted({v for e in side for v in e.record.made_with.get(f, [])})) for f in facts}


def code(a: Sequence[Entry], b: Sequence[Entry]) -> Iterator[str]:
    """The commits, and what of the code that determines these runs differs between them, and has changed since."""
    commits = [_commits(side) for side in (a, b)]
    if commits[0] == commits[1]:
        yield f"commit: {listed(commits[0])}, the same"
    else:
        yield f"commit: {listed(commits[0])} | {listed(commits[1])}"
        yield f"code that determines them differs: {_between(a, b)}"
    since = [str(staleness.staleness(_sweep(side))) for side in (a, b)]
    which = {"them": since[0]} if since[0] == since[1] else dict(zip("AB", since, strict=True))
    for sides, changed in which.items():
        yield f"code that determines {sides} has changed since: {changed}"


def _between(a: Sequence[Entry], b: Sequence[Entry]) -> str:
    """Whether what two sides' runs can reach differs between their commits."""
    sides = [{commit for e in side for commit in e.record.made_with.get("git_commit", [])} for side in (a, b)]
    if not all(sides):
        return "unknown: no commit is recorded"
    if any(len(commits) > 1 for commits in sides):
        return "unknown: one of them was made with several commits"
    return str(staleness.staleness(_sweep(a), *sides[1]))


def _sweep(side: Sequence[Entry]) -> dict[str, Any]:
    """What `repro.tracking.staleness` asks of runs."""
    facts = {name: sorted({v for e in side for v in e.record.made_with.get(name, [])}) for name in CODE}
    return {**facts, "config": training_config(side[0].config)}


def _commits(side: Sequence[Entry]) -> list[str]:
    return sorted({_commit(entry, commit) for entry in side for commit in entry.record.made_with.get("git_commit", [])})


def _commit(entry: Entry, commit: str) -> str:
    return commit[:_SHORT] + ("-dirty" if "true" in entry.record.made_with.get("git_dirty", []) else "")


def data(entry: Entry) -> str | None:
    """The stored data that a run learned from; None where it makes its own."""
    algorithm = entry.config.algorithm
    if not isinstance(algorithm, SubgameDataConfig):
        return None
    stored = f"{algorithm.subgames} subgames of {algorithm.stored_data(entry.config).name}"
    return stored if algorithm.fresh is None else f"fresh subgames, measured on a share of {stored}"


# -- results ---------------------------------------------------------------------------------------------------------


def results(side: Sequence[Entry]) -> pd.DataFrame:
    """Every number of runs: `seed`, `readout`, `evaluation`, `evaluation_key`, `asked`, `metric`, `step`, `value`.

    `evaluation_key` names what was measured to the last opponent, and `asked` what runs of different seeds have alike:
    how it was measured, and what opponents were called, of which each seed may have its own.
    """
    rows = [(entry.config.seed, *row) for entry in side for row in measurements(entry)]
    columns = ["seed", "readout", "evaluation", "evaluation_key", "metric", "step", "value"]
    table = pd.DataFrame(rows, columns=columns)
    asked = {key: json.dumps([about["readout"], _called(about)], sort_keys=True) for key, about in _about(side).items()}
    table["asked"] = table.evaluation_key.map(asked).fillna("")
    return table[~table.metric.isin(CLOCKS)]


def with_lone_read_outs(a: Sequence[Entry], b: Sequence[Entry]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every number of both sides; a read-out that is a side's only one bears both names if the other has one only, too.

    What is measured of these two is alike where the evaluation is, whatever kind of read-out it is of.
    """
    tables = [results(side) for side in (a, b)]
    names = [sorted(set(table.readout) - {TRAINING}) for table in tables]
    if names[0] != names[1] and all(len(alone) == 1 for alone in names):
        both, abouts = f"{names[0][0]} | {names[1][0]}", {**_about(a), **_about(b)}
        asked = {key: json.dumps(_called(about), sort_keys=True) for key, about in abouts.items()}
        key = {key: json.dumps(about["evaluation"], sort_keys=True) for key, about in abouts.items()}
        for table in tables:
            alone = table.readout != TRAINING
            table.loc[alone, "asked"] = table.evaluation_key[alone].map(asked)
            table.loc[alone, "evaluation_key"] = table.evaluation_key[alone].map(key)
            table.loc[alone, "readout"] = both
    _tell_namesakes_apart(tables)
    return tables[0], tables[1]


def _tell_namesakes_apart(tables: Sequence[pd.DataFrame]) -> None:
    """Where a training of either side met several opponents by one name, only the same opponents are alike."""
    met = [table[table.readout != TRAINING] for table in tables]
    several = {asked for each in met for asked in each.asked[each.duplicated(["seed", *_RUN, "step"])]}
    for table in tables:
        table["asked"] = table.asked.mask(table.asked.isin(several), table.evaluation_key)


def opponents(a: Sequence[Entry], b: Sequence[Entry]) -> Iterator[str]:
    """A line per name by which the sides' trainings met different opponents."""
    met: list[dict[str, set[str]]] = [{}, {}]
    for side, names in zip((a, b), met, strict=True):
        for about in _about(side).values():
            for name, opponent in about["evaluation"].get("opponents", {}).items():
                names.setdefault(name, set()).add(str(opponent))
    for name in sorted(met[0].keys() & met[1].keys()):
        if met[0][name] != met[1][name]:
            yield f"{name}: {listed(sorted(met[0][name]))} | {listed(sorted(met[1][name]))}"


def _about(side: Sequence[Entry]) -> dict[str, dict[str, Any]]:
    """By an evaluation's key what was measured, and of what."""
    return {stored.key: dict(stored.about) for entry in side for stored in stored_evaluations(entry.folder)}


def _called(about: Mapping[str, Any]) -> dict[str, Any]:
    """How it was measured, and what opponents are called, whoever they are."""
    evaluation = dict(about["evaluation"])
    return {**evaluation, "opponents": sorted(evaluation["opponents"])} if "opponents" in evaluation else evaluation


def equal_digits(a: float, b: float) -> int:
    """In how many significant digits two numbers agree; 17, which is all, where they are the same."""
    if a == b:
        return ALL_DIGITS
    largest = max(abs(a), abs(b))
    return max(0, min(ALL_DIGITS - 1, math.floor(-math.log10(abs(a - b) / largest))))


def number_by_number(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Of each metric of each read-out, how alike same seeds are at common iterations.

    Returns:
        A row per `readout` and `metric`: `numbers`, `same` in all digits, `digits` in which the rest agrees at least,
        `first` iteration at which they differ, `last` common one, and the values there, `a` and `b`, means over seeds.
    """
    both = a.merge(b, on=["seed", *_RUN, "evaluation_key", "step"], suffixes=("_a", "_b"))
    both["digits"] = [equal_digits(x, y) for x, y in zip(both.value_a, both.value_b, strict=True)]
    rows = []
    for (readout, _, metric), group in both.groupby(_RUN, sort=True):
        differ, last = group[group.digits < ALL_DIGITS], group[group.step == group.step.max()]
        rows.append({
            "readout": readout, "metric": metric, "numbers": len(group), "same": len(group) - len(differ),
            "digits": int(group.digits.min()), "first": int(differ.step.min()) if len(differ) else None,
            "last": int(group.step.max()), "a": last.value_a.mean(), "b": last.value_b.mean(),
            "evaluation": group.evaluation_a.iloc[0],
        })  # fmt: skip
    return _told_once(pd.DataFrame(rows))


def _told_once(table: pd.DataFrame) -> pd.DataFrame:
    """What several evaluations noted alike in one row, such as nodes touched; what they did not, with their names."""
    if table.empty:
        return table
    told = table.drop(columns="evaluation")
    # As it is shown: of one seed an interval has no bounds, which equal nothing.
    told = told.assign(apart=told.apart.astype(str)) if "apart" in told else told
    once = table[~told.duplicated()].reset_index(drop=True)
    several = once.duplicated(["readout", "metric"], keep=False)
    once.loc[several, "metric"] += " (" + once.evaluation[several] + ")"
    return once.drop(columns="evaluation")


def _by_metric(a: pd.DataFrame, b: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]]:
    """Of each metric that both measured alike, whoever opponents were: whose and what it is, and the rows of either."""
    for key, of_a in a.groupby(_RUN, sort=True):
        of_b = b[(b[_RUN] == list(key)).all(axis=1)]
        if len(of_b):
            yield {"readout": key[0], "metric": key[2], "evaluation": of_a.evaluation.iloc[0]}, of_a, of_b


def means(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Of each metric that differs, the means over seeds at the last common iteration, and B minus A.

    Metrics that are the same on both sides, seed by seed or throughout, are left out.

    Returns:
        A row per `readout` and `metric`: `last`, `a`, `b`, `apart`, an `Estimate`, and `interval`, its kind: `paired`
        where both sides have the same seeds, which are then compared one by one, and Welch's otherwise,
        which takes the sides as independent also if they share some seeds.
    """
    rows = []
    for metric, of_a, of_b in _by_metric(a, b):
        if common := set(of_a.step) & set(of_b.step):
            last = max(common)
            x, y = (side[side.step == last].set_index("seed").value.sort_index() for side in (of_a, of_b))
            paired = x.index.equals(y.index)
            alike = x.equals(y) if paired else pd.concat([x, y]).nunique() == 1
            if not alike:
                in_pairs = paired and bool(np.isfinite(y - x).all())
                apart, interval = (mean_ci(y - x), "paired") if in_pairs else (difference(y, x), "Welch's")
                found = {"last": last, "a": x.mean(), "b": y.mean(), "apart": apart, "interval": interval}
                rows.append({**metric, **found})
    return _told_once(pd.DataFrame(rows))


def ends(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Of each metric that both measured, but at no common iteration: each side's last one, the mean over seeds there.

    Returns:
        A row per `readout` and `metric`: `last_a`, `a`, `last_b`, `b`.
    """
    rows = []
    for metric, of_a, of_b in _by_metric(a, b):
        if not set(of_a.step) & set(of_b.step):
            last_a, last_b = of_a.step.max(), of_b.step.max()
            at_a, at_b = of_a.value[of_a.step == last_a].mean(), of_b.value[of_b.step == last_b].mean()
            rows.append({**metric, "last_a": int(last_a), "a": at_a, "last_b": int(last_b), "b": at_b})
    return _told_once(pd.DataFrame(rows))
