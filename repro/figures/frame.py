"""A figure's data: one row per measurement, with a typed column per swept key, and the accessor of its curves.

Columns, in this order:

- `target`, `scale`;
- `sweep`: which of the target's sweeps a run is of, empty where there is only one;
- `algorithm`: its name, as `algorithm.name` of the configuration (`d2cfr`, `sd_cfr_and_deep_cfr`);
- `readout`: what was measured, a read-out of the run (`sd_cfr`, `devn_zero_sum`) or the run itself (`training`);
- `seed`;
- one column per swept key, named after it without a leading `algorithm.` and with underscores for dots (`traversals`,
  `value_steps`, `network_width`). A run of another sweep has the value of its configuration there, or none (NaN) if it
  has no such key. In a column of numbers null, which is no limit (`buckets`: lossless), is infinity;
- `metric`, `step` (CFR iteration, epoch, or shard of subgames), `value`.

Files are CSV, those that are published compressed with gzip. Whole numbers are read as int where no value is missing or
infinite, and otherwise as float.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype, is_integer_dtype

from repro.common import durable
from repro.common.errors import ReproError

DATA = "data.csv"
"""Name of the file in a figure's folder."""

LEADING = ("target", "scale", "sweep", "algorithm", "readout", "seed")
"""The columns before those of swept keys."""

MEASURED = ("metric", "step", "value")
"""The columns after them."""

_APART = ("algorithm.name", "algorithm.opponents.", "algorithm.readouts.", "seed")
"""Keys that are no swept keys: they have a column of their own, or follow from the seed."""


# -- from runs -------------------------------------------------------------------------------------------------------


def column_of(key: str) -> str:
    """The column of a swept key: `algorithm.value.steps` -> `value_steps`."""
    return key.removeprefix("algorithm.").replace(".", "_")


def swept_columns(
    sweeps: Sequence[Sequence[Mapping[str, Any]]], also: Iterable[str] = ()
) -> list[list[dict[str, Any]]]:
    """The columns of swept keys, run by run, of a target's sweeps.

    A key is swept if runs of one sweep that have it differ in it.

    Args:
        sweeps: of each sweep its runs' configurations, dotted key -> value.
        also: keys that are wanted whether they are swept or not.

    Returns:
        Of each sweep, of each run: column -> value, the same columns in the same order everywhere.
    """
    return hyperparameter_columns(sweeps, {*also, *(key for runs in sweeps for key in _swept_keys(runs))})


def hyperparameter_columns(sweeps: Sequence[Sequence[Mapping[str, Any]]], wanted: Iterable[str]) -> list[Any]:
    """`swept_columns` of the keys that are wanted, whether runs differ in them or not."""
    keys = sorted(wanted, key=column_of)
    numeric = {key: _is_numeric([run[key] for runs in sweeps for run in runs if key in run]) for key in keys}
    return [[{column_of(key): _cell(run, key, numeric[key]) for key in keys} for run in runs] for runs in sweeps]


def _swept_keys(runs: Sequence[Mapping[str, Any]]) -> set[str]:
    """The keys in which runs of a sweep differ."""
    keys = {key for run in runs for key in run if not key.startswith(_APART)}
    return {key for key in keys if len({repr(run[key]) for run in runs if key in run}) > 1}


def _is_numeric(values: Sequence[Any]) -> bool:
    given = [value for value in values if value is not None]
    return bool(given) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in given)


def _cell(run: Mapping[str, Any], key: str, numeric: bool) -> Any:
    """A run's value of a swept key, as the column has it."""
    value = run.get(key, math.nan)
    if value is None:
        return math.inf if numeric else math.nan
    # Lists, such as bet sizes, are text.
    return value if isinstance(value, int | float | str) else str(value)


def of_sweep(name: str, runs: Sequence[pd.DataFrame], columns: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows of a sweep's runs, as a figure's data.

    Args:
        name: of the sweep, or empty.
        runs: of each run its measurements, all columns but `sweep` and those of swept keys.
        columns: of each run its columns of swept keys, of `swept_columns`.
    """
    frames = [run.assign(sweep=name, **swept) for run, swept in zip(runs, columns, strict=True)]
    swept = list(columns[0])
    data = pd.concat(frames, ignore_index=True)[[*LEADING, *swept, *MEASURED]]
    return data.sort_values([*LEADING[:4], *swept, "readout", "seed", "metric", "step"], ignore_index=True)


# -- files -----------------------------------------------------------------------------------------------------------


def data_file(folder: Path) -> Path:
    """The file of a figure's data in its folder; as published, compressed, where there is no other."""
    plain, compressed = folder / DATA, folder / f"{DATA}.gz"
    return compressed if compressed.is_file() and not plain.is_file() else plain


def publish(folder: Path, results: Path) -> None:
    """Copy a figure's data from its folder, compressed there or not, to that of what is published."""
    file = data_file(folder)
    content = file.read_bytes()
    # Without the time: the same data gives the same bytes.
    durable.write(results / f"{DATA}.gz", content if file.suffix == ".gz" else gzip.compress(content, mtime=0))
    (results / DATA).unlink(missing_ok=True)


def read(path: Path) -> pd.DataFrame:
    """A figure's data from a CSV file, compressed or not.

    Raises:
        ReproError: the file cannot be read, or holds something else.
    """
    text = {column: str for column in LEADING if column != "seed"}
    try:
        # Words like "none" and "null" are values; only nothing at all is missing.
        data = pd.read_csv(path, dtype=text, keep_default_na=False, na_values=[""])
    except Exception as error:  # A file of another kind fails in as many ways as there are bytes.
        raise ReproError(f"{path} cannot be read as a figure's data ({type(error).__name__}).") from error
    data = data.fillna({"sweep": ""})
    problem = _problem(data)
    if problem:
        raise ReproError(f"{path} is not a figure's data: {problem}.")
    return data


def _problem(data: pd.DataFrame) -> str:
    """What is wrong with the columns that every figure's data have; empty if nothing is."""
    lacking = [column for column in (*LEADING, *MEASURED) if column not in data.columns]
    if lacking:
        return f"it lacks the columns {', '.join(lacking)}"
    if data.empty:
        return "it has no rows"
    for column in (*LEADING, *MEASURED):
        if data[column].isna().any():
            return f"in row {int(data[column].isna().argmax()) + 1}, {column} is empty"
    for column in ("seed", "step"):
        if not is_integer_dtype(data[column]):
            return f"the column {column} must be of whole numbers"
    numbers = is_integer_dtype(data.value) or is_float_dtype(data.value)
    if not numbers or not np.isfinite(data.value.astype(float)).all():
        return "the column value must be of finite numbers"
    return ""


def write(data: pd.DataFrame, path: Path) -> None:
    """A figure's data to a CSV file, numbers with ten significant digits, so that differences of them keep six.

    Columns of swept keys that no row has a value of are left out: those of sweeps of which nothing was kept.
    """
    empty = [column for column in swept(data) if data[column].isna().all()]
    durable.write(path, data.drop(columns=empty).to_csv(index=False, float_format="%.10g").encode())


# -- access ----------------------------------------------------------------------------------------------------------


def swept(data: pd.DataFrame) -> list[str]:
    """The columns of swept keys."""
    return [column for column in data.columns if column not in (*LEADING, *MEASURED)]


def curves(data: pd.DataFrame, metric: str, **where: Any) -> pd.DataFrame:
    """A metric of one read-out of one run per seed.

    Args:
        where: columns of the data and the values they must have, e.g. `readout="d2cfr", traversals=100`.

    Returns:
        `[seeds, steps]`; without any row or column if nothing of the kind was measured.

    Raises:
        ValueError: `where` names a column that the data does not have, or does not tell runs of a seed apart.
    """
    # One mask, and only the columns that are needed: figures ask this thousands of times.
    chosen = (data.metric == metric).to_numpy(dtype=bool, na_value=False)
    for column, value in where.items():
        chosen = chosen & (_column(data, column) == value).to_numpy(dtype=bool, na_value=False)
    rows = data.loc[chosen, ["seed", "step", "value"]]
    repeated = rows.duplicated(["seed", "step"], keep=False)
    if repeated.any():
        raise ValueError(_not_told_apart(data[chosen][repeated.to_numpy()], metric, where))
    return rows.pivot(index="seed", columns="step", values="value")


def _not_told_apart(repeated: pd.DataFrame, metric: str, where: dict[str, Any]) -> str:
    """In what the rows differ that have the same seed, step and metric."""
    setting_columns = [column for column in repeated.columns if column not in ("seed", *MEASURED)]
    differ = [column for column in setting_columns if repeated[column].nunique(dropna=False) > 1]
    named = ", ".join(differ) or "nothing: rows are repeated"
    asked = "".join(f", {column}={value!r}" for column, value in where.items())
    return f"{metric}{asked}: more than one run of a seed has this; they differ in {named}."


def values(data: pd.DataFrame, column: str) -> list[Any]:
    """The values of a column, ascending: infinity last, what is missing left out.

    Whole numbers are int also where a missing value or infinity makes the column one of floats.
    """
    distinct = _column(data, column).dropna().unique().tolist()
    if all(isinstance(value, float) and (math.isinf(value) or value.is_integer()) for value in distinct):
        distinct = [value if math.isinf(value) else int(value) for value in distinct]
    return sorted(distinct)


def setting(cells: Iterable[Any]) -> tuple[Any, ...]:
    """What tells settings apart, to be compared: None for NaN, which is not equal to itself."""
    return tuple(None if pd.isna(cell) else cell for cell in cells)


def _column(data: pd.DataFrame, column: str) -> pd.Series:
    if column not in data.columns:
        raise ValueError(f"the data has no column {column!r}; its columns are {', '.join(data.columns)}.")
    return data[column]
