"""Curves that a reader can explore: what published runs measured, by iteration, nodes touched and seconds.

A curve is of one metric and one setting, with one line per seed. A setting is whatever tells a target's runs apart:
read-out, sweep and swept keys. Long curves are thinned, both evenly and towards their beginnings, where most happens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from repro.figures import frame
from repro.figures.published import Result

AXES = {"iteration": "iteration", "nodes_touched": "nodes touched", "wall_seconds": "seconds"}
"""What curves can be drawn by, and what it is called; beside the iteration these are metrics of the data."""

_POINTS = 60
"""About as many points each are kept evenly, and towards the beginning."""
_FEWEST = 3
"""Measurements that make a curve."""

_NO_CURVES = ("encoding_error", "solved_subgames")
"""Algorithms whose steps are shards of subgames, between which nothing is learned."""

_BESIDE = (
    "nodes_touched", "wall_seconds", "player_updates", "nodes_played_out", "episodes", "infosets_seen", "nash_conv",
    "predicting_zero",
)  # fmt: skip
"""Metrics that count work, are another's in another unit, or do not change."""
_APART = ("memory/", "strategy/", "disagreement/")

TRAINING = "training"
"""The read-out that is none: what was measured of the run itself."""

_FIRST = ("exploitability", "match/", "best", "unbucketed", "loss/")
"""What readers look for first."""

_NAMES = {
    "sd_cfr": "SD-CFR", "deep_cfr": "Deep CFR", "d2cfr": "D2CFR", "nfsp": "NFSP", "linear_cfr": "Linear CFR",
    "es_mccfr": "external-sampling MCCFR", "dcvn": "DCVN", "devn": "DEVN", "devn_zero_sum": "DEVN, zero-sum",
    "sd_cfr_and_deep_cfr": "SD-CFR and Deep CFR",
}  # fmt: skip
_OF_THE_POT = {"best": "lowest unbucketed loss so far", "unbucketed": "unbucketed loss"}


def curves_of(result: Result) -> list[dict[str, Any]]:
    """Of each metric of a published result that makes curves, what a browser draws them from.

    Returns:
        Dicts with `metric`, `label` (with its unit) and `series`: dicts with `label`, `steps` `[points]`, `seeds`
        `[seeds]`, `values` `[seeds][points]`, and in the same form `nodes_touched` and `wall_seconds`, None where they
        were not measured; of single missing points None.
    """
    data = frame.read(frame.data_file(result.folder))
    data = data[~data.algorithm.isin(_NO_CURVES)]
    axes = {axis: _tables(data[data.metric == axis]) for axis in list(AXES)[1:]}
    metrics = [m for m in data.metric.unique() if m not in _BESIDE and not m.startswith(_APART) and "error" not in m]
    found = []
    for metric in sorted(metrics, key=_rank):
        series = list(_series(data[data.metric == metric], axes))
        if series:
            found.append({"metric": metric, "label": _label(metric, _unit(result)), "series": series})
    return found


def _rank(metric: str) -> tuple[int, str]:
    places = [place for place, first in enumerate(_FIRST) if metric.startswith(first)]
    return (places[0] if places else len(_FIRST)), metric


def _unit(result: Result) -> str:
    """What a target's claims on exploitability and winnings are quoted in; empty if in several units."""
    units = {claim.unit for claim in result.claims} & {"mA/g", "mbb/g"}
    return units.pop() if len(units) == 1 else ""


def _label(metric: str, unit: str) -> str:
    kind, _, rest = metric.partition("/")
    if kind == "loss":
        return f"{rest} loss"
    if kind in _OF_THE_POT:
        return f"{_OF_THE_POT[kind]} [% of the pot]"
    if kind not in ("exploitability", "match"):
        return metric.replace("_", " ")
    opponent = rest.removesuffix("/value")
    name = f"winnings against {_name(opponent)}" if kind == "match" else kind
    return f"{name} [{unit}]" if unit else name


def _name(name: str) -> str:
    """`sd_cfr_100` is SD-CFR with at most 100 networks kept."""
    stem, _, number = name.rpartition("_")
    if number.isdigit() and stem in _NAMES:
        return f"{_NAMES[stem]}, {number} networks"
    return _NAMES.get(name, name.replace("_", " "))


_Tables = dict[tuple[Any, ...], pd.DataFrame]
"""`[seeds, steps]` by setting: the values of `_columns`, None where one is missing."""


def _columns(rows: pd.DataFrame) -> list[str]:
    """What tells settings apart, the read-out last."""
    return ["sweep", "algorithm", *frame.swept(rows), "readout"]


def _tables(rows: pd.DataFrame) -> _Tables:
    """One metric's rows, by setting."""
    by_setting = rows.groupby(_columns(rows), dropna=False, sort=False)
    return {frame.setting(key): run.pivot(index="seed", columns="step", values="value") for key, run in by_setting}


def _series(rows: pd.DataFrame, axes: Mapping[str, _Tables]) -> Iterator[dict[str, Any]]:
    """The curves of one metric's rows."""
    columns = _columns(rows)
    # What a training and its read-out both have is shown once.
    is_read = rows.readout != TRAINING
    rows = rows[is_read | ~is_read.groupby([rows[column] for column in columns[:-1]], dropna=False).transform("any")]
    found: _Tables = {}
    for key, table in _tables(rows).items():
        values = table[table.notna().sum(axis=1) >= _FEWEST]
        if not values.empty:
            found[key] = values.iloc[:, thinned(values.shape[1])]
    labels = _labels([dict(zip(columns, key, strict=True)) for key in found], frame.swept(rows))
    for (key, values), label in zip(found.items(), labels, strict=True):
        yield {
            "label": label,
            "steps": [int(step) for step in values.columns],
            "seeds": [int(seed) for seed in values.index],
            "values": _rounded(values.to_numpy()),
            **{axis: _along(tables, key, values) for axis, tables in axes.items()},
        }


def thinned(points: int) -> NDArray[np.int_]:
    """Which of so many points of a curve are kept: the first and last among them, in order."""
    if points <= 2 * _POINTS:
        return np.arange(points)
    evenly, early = np.linspace(0, points - 1, _POINTS), np.geomspace(1, points, _POINTS) - 1
    return np.unique(np.round(np.concatenate([evenly, early])).astype(int))


def _along(tables: _Tables, key: tuple[Any, ...], values: pd.DataFrame) -> list[list[Any]] | None:
    """What a read-out's run had touched or taken at the same seeds and steps: of itself, or else of its training."""
    for readout in (key[-1], TRAINING):
        own = tables.get((*key[:-1], readout))
        if own is not None:
            there = own.reindex(values.index, columns=values.columns)
            return _rounded(there.to_numpy()) if there.notna().any(axis=None) else None
    return None


def _rounded(values: NDArray[Any]) -> list[list[Any]]:
    """Five significant digits, more than a screen shows."""
    return [[None if np.isnan(v) else float(f"{v:.5g}") for v in row] for row in values]


# -- names -----------------------------------------------------------------------------------------------------------


def _labels(settings: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> list[str]:
    """Names of settings in a legend: the read-out, its sweep where several have it, and what that varies."""
    varied = {
        setting["sweep"]: [
            c for c in swept if len({repr(s[c]) for s in settings if s["sweep"] == setting["sweep"]}) > 1
        ]
        for setting in settings
    }
    sweeps_of = {_read(s): {t["sweep"] for t in settings if _read(t) == _read(s)} for s in settings}
    labels = []
    for s in settings:
        sweep = _name(s["sweep"]) if len(sweeps_of[_read(s)]) > 1 else ""
        parts = [_read(s), sweep, *_values(s, varied[s["sweep"]])]
        labels.append(", ".join(part for part in dict.fromkeys(parts) if part))
    return labels


def _read(setting: Mapping[str, Any]) -> str:
    return _name(setting["algorithm"] if setting["readout"] == TRAINING else setting["readout"])


def _values(setting: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    there = {column: setting[column] for column in columns if not pd.isna(setting[column])}
    return [f"{column.replace('_', ' ')} {_value(value)}" for column, value in there.items()]


def _value(value: Any) -> str:
    """A swept key's value; infinity is no limit."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    return "∞" if math.isinf(value) else f"{value:,.0f}" if value >= 1000 else f"{value:g}"
