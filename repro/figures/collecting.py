"""What is drawn: everything that was measured of a target's runs, and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from repro.common.errors import ReproError
from repro.config.keys import hyperparameters, measurements_key, training_config, training_key
from repro.figures import frame
from repro.figures.targets import PlannedSweep, anywhere, composed, module_of
from repro.stored.results import evaluated_with, evaluation_of, evaluation_seconds, measured_rows
from repro.stored.trained import folder_bytes, folder_of, rerun_command
from repro.tracking import record as records


def collect(target: str, scale: str, sweeps: Sequence[PlannedSweep]) -> pd.DataFrame:
    """What a target is drawn from: everything that was measured of its runs, or what its module's `select` takes."""
    return _selected(target, measured(target, scale, sweeps))


def measured(target: str, scale: str, sweeps: Sequence[PlannedSweep]) -> pd.DataFrame:
    """Everything that was measured of a target's runs, as `repro.figures.frame` describes it."""
    return _measured(target, scale, sweeps, _columns(target, sweeps))


def _selected(target: str, data: pd.DataFrame) -> pd.DataFrame:
    module = module_of(target)
    return module.select(data) if hasattr(module, "select") else data


def _columns(target: str, sweeps: Sequence[PlannedSweep]) -> list[list[dict[str, Any]]]:
    """Of each sweep, of each run: its columns: swept keys, and those that the target asks for (`KEYS`)."""
    runs = [[hyperparameters(config) for config in sweep.configs] for sweep in sweeps]
    return frame.swept_columns(runs, getattr(module_of(target), "KEYS", ()))


def _measured(
    target: str, scale: str, sweeps: Sequence[PlannedSweep], columns: Sequence[Sequence[dict[str, Any]]]
) -> pd.DataFrame:
    parts = []
    for sweep, swept in zip(sweeps, columns, strict=True):
        runs = [
            pd.DataFrame(measured_rows(config), columns=["readout", *frame.MEASURED]).assign(
                target=target, scale=scale, algorithm=config.algorithm.name, seed=config.seed
            )
            for config in sweep.configs
        ]
        parts.append(frame.of_sweep(sweep.name, runs, swept))
    return pd.concat(parts, ignore_index=True)


# -- beside older data -----------------------------------------------------------------------------------------------


def beside(
    target: str, scale: str, planned: Sequence[PlannedSweep], new: Sequence[PlannedSweep], kept: pd.DataFrame
) -> pd.DataFrame:
    """What a target is drawn from where some of its runs were made now: theirs, beside older data of the others.

    Args:
        planned: all of its sweeps.
        new: those that were run now, or the part of them that was.
        kept: older data of the other runs.

    Raises:
        ReproError: runs of a sweep of older data differ today in a key in which they did not.
    """
    columns: dict[str, dict[str, dict[str, Any]]] = {
        sweep.name: {training_key(config): of_run for config, of_run in zip(sweep.configs, of_sweep, strict=True)}
        for sweep, of_sweep in zip(planned, _columns(target, planned), strict=True)
    }
    older = kept.copy()
    for sweep in planned:
        mine, of_sweep = older.sweep == sweep.name, columns[sweep.name]
        runs = [{**of_sweep[training_key(c)], "algorithm": c.algorithm.name} for c in sweep.configs]
        for column in (column for column in runs[0] if mine.any() and column not in kept.columns):
            if column not in older.columns:
                older[column] = pd.Series(math.nan, older.index, dtype=object)
            older.loc[mine, column] = _of_runs_alike(kept[mine], runs, column, sweep.name)
    older = older.infer_objects()
    swept = [[columns[sweep.name][training_key(config)] for config in sweep.configs] for sweep in new]
    parts = [older, *([_selected(target, _measured(target, scale, new, swept))] if new else [])]
    data = pd.concat(parts, ignore_index=True)
    return _in_order(data[[*frame.LEADING, *sorted(frame.swept(data)), *frame.MEASURED]], planned)


def _of_runs_alike(rows: pd.DataFrame, runs: Sequence[Mapping[str, Any]], column: str, sweep: str) -> list[Any]:
    """A column that older rows of a sweep lack: its value in the runs that are like them in all other columns."""
    known = [name for name in runs[0] if name in rows.columns]
    values: dict[tuple[Any, ...], set[Any]] = {}
    for run in runs:
        values.setdefault(frame.setting(run[name] for name in known), set()).add(run[column])
    # Older rows may have values that no run has today.
    every = set().union(*values.values())
    found = [values.get(frame.setting(row), every) for row in rows[known].itertuples(index=False)]
    if any(len(one) > 1 for one in found):
        raise ReproError(f"older data of the sweep {sweep} are of one {column}, and it has several; run it, too.")
    return [next(iter(one)) for one in found]


def _in_order(data: pd.DataFrame, planned: Sequence[PlannedSweep]) -> pd.DataFrame:
    """Rows sweep by sweep, and those of a sweep in order of what tells its runs apart."""
    position = {sweep.name: at for at, sweep in enumerate(planned)}
    keys = ["sweep", "algorithm", *frame.swept(data), "readout", "seed", "metric", "step"]
    comparable = {key: data[key] if is_numeric_dtype(data[key]) else data[key].astype(str) for key in keys}
    order = pd.DataFrame({**comparable, "sweep": data.sweep.map(position)}).sort_values(keys, kind="stable").index
    return data.loc[order].reset_index(drop=True)


def provenance_beside(
    new: Sequence[PlannedSweep], older: Sequence[Mapping[str, Any]], data: pd.DataFrame
) -> list[Mapping[str, Any]]:
    """Where the sweeps that were run now come from, after those of older data that were not.

    Args:
        older: sweeps of the older data's `provenance.json`.
        data: the older data.

    Raises:
        ReproError: it has a sweep that was run now, and which one its provenance, of an earlier version, does not say.
    """
    named = {each.get("sweep") for each in older}
    for name in (sweep.name for sweep in new if (data.sweep == sweep.name).any() and sweep.name not in named):
        raise ReproError(f"the older data's provenance does not say which of its sweeps is {name}; run all of them.")
    names = {sweep.name for sweep in new}
    return [*(each for each in older if each.get("sweep") not in names), *map(provenance_of, new)]


# -- where it comes from ---------------------------------------------------------------------------------------------


def provenance_of(sweep: PlannedSweep) -> dict[str, Any]:
    """What a sweep's runs were made with, and how they depart from the published setting."""
    run_records = [records.read(folder_of(c)) for c in sweep.configs]
    facts = sorted({fact for record in run_records for fact in record.made_with})
    published = [config for run in composed(sweep.published) for config in run.configs]
    first = training_config(sweep.configs[0])
    del first["seed"]
    return {
        "command": anywhere(sweep.command),
        "rerun": rerun_command([training_key(config) for config in sweep.configs]),
        **{fact: sorted({v for record in run_records for v in record.made_with.get(fact, [])}) for fact in facts},
        "commits": [record.made_with.get("git_commit", []) for record in run_records],
        "evaluated_with": sorted({commit for config in sweep.configs for commit in evaluated_with(config)}),
        "sweep": sweep.name,
        "seeds": sorted({config.seed for config in sweep.configs}),
        "wall_seconds": [round(record.wall_seconds, 1) for record in run_records],
        "megabytes": [round(folder_bytes(folder_of(config)) / 1e6, 3) for config in sweep.configs],
        # Of runs of earlier versions what follows is not known.
        "cpu_seconds": [round(r.cpu_seconds, 1) if r.cpu_seconds else None for r in run_records],
        "evaluation_seconds": [
            None if each is None else round(each, 1) for each in map(evaluation_seconds, sweep.configs)
        ],
        "config": first,
        "evaluation": evaluation_of(sweep.configs[0]),
        "measurements": [measurements_key(config) for config in sweep.configs],
        "deviations_from_paper": deviations(
            [hyperparameters(c) for c in published], [hyperparameters(c) for c in sweep.configs]
        ),
    }


def deviations(paper: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Keys in which a sweep differs from the published one: `{key: [paper, here]}`; of swept keys all values."""
    paper_values, our_values = _values(paper), _values(ours)
    return {
        key: [paper_values.get(key), our_values.get(key)]
        for key in sorted(paper_values.keys() | our_values.keys())
        if paper_values.get(key) != our_values.get(key)
    }


def _values(flat: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Every key with its value, or, where runs differ, with all of them in order of the runs, as text."""
    together = {}
    for key in flat[0]:
        values = list(dict.fromkeys(str(f.get(key)) for f in flat))
        together[key] = flat[0][key] if len(values) == 1 else ", ".join(values)
    return together
