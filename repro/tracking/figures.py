"""A figure in MLflow: one run with its picture, data and verdicts, and one per curve, the mean over seeds."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow.entities import Experiment, Metric, Param

from paper_figures import frame
from repro.config.checks import TRAINING
from repro.evaluation.statistics import bands
from repro.tracking.mlflow_runs import COST, MEAN_TAG, METRICS_AT_ONCE, NODES
from repro.tracking.store import Store

FIGURE_TAG = "repro.figure"
"""Target and scale of a figure's run."""
_FILES_TAG = "repro.files"
_LONGEST_VALUE = 500


@dataclass(frozen=True)
class Mean:
    """A curve of a figure: what runs measured that differ by their seed alone.

    Attributes:
        name: of its run.
        params: of its run.
        curves: metric -> values by step. `<metric>/low` and `/high` bound the mean's 95% interval where there are
            several seeds.
    """

    name: str
    params: Mapping[str, Any]
    curves: Mapping[str, pd.Series]


def means(data: pd.DataFrame, metrics: Sequence[str]) -> Iterator[Mean]:
    """The means of a figure's data (`paper_figures.frame`), with what they cost, at steps that all seeds have.

    Args:
        metrics: those that are wanted; a read-out without any of them has no mean.
    """
    swept = [column for column in data.columns if column not in (*frame.LEADING, *frame.MEASURED)]
    several = data["sweep"].nunique() > 1
    wanted = data[data["metric"].isin([*metrics, NODES, COST]) & (data["readout"] != TRAINING)]
    for _, of_sweep in wanted.groupby(["sweep", "algorithm"], sort=False):
        differ = [column for column in swept if of_sweep[column].nunique(dropna=False) > 1]
        for _, group in of_sweep.groupby(["readout", *swept], sort=False, dropna=False):
            first = group.iloc[0]
            by_metric = dict(tuple(group.groupby("metric")))
            curves = {
                name: curve
                for metric in (*metrics, NODES, COST)
                if metric in by_metric
                for name, curve in _curves(metric, by_metric[metric], has_interval=metric in metrics).items()
            }
            if not curves.keys() & set(metrics):
                continue
            sweep = [f"({first['sweep']})"] if several else []
            name = " ".join([*(f"{c}={_plain(first[c])}" for c in differ), "mean", str(first["readout"]), *sweep])
            params = {
                "algorithm": first["readout"], "training": first["algorithm"], "readout": first["readout"],
                "sweep": first["sweep"], "seeds": group["seed"].nunique(), **{c: _plain(first[c]) for c in swept},
            }  # fmt: skip
            yield Mean(name, params, curves)


def _curves(metric: str, measured: pd.DataFrame, has_interval: bool) -> dict[str, pd.Series]:
    by_seed = measured.pivot(index="seed", columns="step", values="value").dropna(axis="columns")
    if by_seed.empty:
        return {}
    if not has_interval or len(by_seed) == 1:
        return {metric: by_seed.mean()}
    names = {"mean": metric, "low": f"{metric}/low", "high": f"{metric}/high"}
    return {names[k]: pd.Series(v, by_seed.columns) for k, v in bands(list(by_seed.to_numpy())).items()}


def _plain(value: Any) -> Any:
    """A cell as people write it: whole numbers without a point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def log(
    client: Store, experiment: Experiment, label: str, about: Mapping[str, str], files: Sequence[Path],
    curves: Sequence[Mean],
) -> str:  # fmt: skip
    """Make a figure's runs in place of earlier ones, unless these are of the same files; the id of the first.

    Args:
        label: target and scale.
        about: parameters of all of its runs.
    """
    digest = _digest(files, [mean.name for mean in curves])
    searched = (f"tags.`{tag}` = '{label}'" for tag in (FIGURE_TAG, MEAN_TAG))
    figures, before = (client.search_runs([experiment.experiment_id], search) for search in searched)
    for run in figures:
        if run.data.tags.get(_FILES_TAG) == digest:
            return str(run.info.run_id)
    for run in [*before, *figures]:
        client.delete_run(run.info.run_id)
    figure = client.create_run(experiment.experiment_id, run_name=f"{label} figure", tags={FIGURE_TAG: label})
    figure_id = str(figure.info.run_id)
    client.log_batch(figure_id, params=_params(about))
    for path in files:
        client.log_artifact(figure_id, str(path))
    for mean in curves:
        tags = {MEAN_TAG: label}
        run_id = client.create_run(experiment.experiment_id, run_name=mean.name, tags=tags).info.run_id
        client.log_batch(run_id, params=_params({**about, **mean.params}))
        points = _points(mean)
        for start in range(0, len(points), METRICS_AT_ONCE):
            client.log_batch(run_id, metrics=points[start : start + METRICS_AT_ONCE])
        client.set_terminated(run_id)
    # At last, so that what a kill left half made is made again.
    client.set_tag(figure_id, _FILES_TAG, digest)
    client.set_terminated(figure_id)
    return figure_id


def _digest(files: Sequence[Path], names: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(names).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _params(values: Mapping[str, Any]) -> list[Param]:
    return [Param(key, str(value)[:_LONGEST_VALUE]) for key, value in values.items()]


def _points(mean: Mean) -> list[Metric]:
    now = int(time.time() * 1000)
    return [
        Metric(name, float(value), now, int(step))
        for name, curve in mean.curves.items()
        for step, value in zip(curve.index.tolist(), curve.tolist(), strict=True)
        if np.isfinite(value)
    ]
