"""Means over seeds in MLflow: one run per curve of a figure, and per group of a command's runs that differ by seed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from mlflow.entities import Experiment, Metric

from repro.config.checks import TRAINING
from repro.config.keys import evaluation_key, hyperparameters, training_key
from repro.config.schema import Config
from repro.evaluation.statistics import bands
from repro.figures import frame
from repro.plans.naming import mean_name, name_of, params_of
from repro.plans.planned import Run, union
from repro.stored.results import is_measured, measured_rows
from repro.tracking.mlflow_runs import COST, INVOCATION_TAG, MEAN_TAG, NODES, SWEEP
from repro.tracking.store import Store, as_params

_CONTENT_TAG = "repro.content"
"""Of the mean of a command's runs: a hash of all that it holds."""


@dataclass(frozen=True)
class Mean:
    """A curve: what runs measured that differ by their seed alone.

    Attributes:
        name: of its run.
        params: of its run.
        curves: metric -> values by step. `<metric>/low` and `/high` bound the mean's 95% interval where there are
            several seeds.
    """

    name: str
    params: Mapping[str, Any]
    curves: Mapping[str, pd.Series]


# -- of a figure -----------------------------------------------------------------------------------------------------


def of_figure(data: pd.DataFrame, metrics: Sequence[str]) -> Iterator[Mean]:
    """The means of a figure's data (`repro.figures.frame`), with what they cost, at steps that all seeds have.

    What a training cost is what its read-outs did, where these have no such rows of their own.

    Args:
        metrics: those that are wanted; a read-out without any of them has no mean.
    """
    swept = [column for column in data.columns if column not in (*frame.LEADING, *frame.MEASURED)]
    several = data["sweep"].nunique() > 1
    of_training, is_cost = data["readout"] == TRAINING, data["metric"].isin([NODES, COST])
    wanted = data[(data["metric"].isin(metrics) | is_cost) & ~of_training]
    same = ["sweep", "algorithm", "seed", "step", *swept]
    costs = data.loc[of_training & is_cost, [*same, "metric", "value"]]
    for _, of_sweep in wanted.groupby(["sweep", "algorithm"], sort=False):
        differ = [column for column in swept if of_sweep[column].nunique(dropna=False) > 1]
        for _, measured in of_sweep.groupby(["readout", *swept], sort=False, dropna=False):
            lacking = costs[~costs["metric"].isin(measured["metric"])]
            group = pd.concat([measured, lacking.merge(measured[same].drop_duplicates())])
            curves = _all_curves(group, {NODES, COST} - set(metrics))
            if not curves.keys() & set(metrics):
                continue
            first = group.iloc[0]
            telling = [f"{c}={_plain(first[c])}" for c in differ]
            sweep = [f"sweep={first['sweep']}"] if several else []
            name = name_of(telling, str(first["readout"]), "mean", sweep)
            params = {
                "algorithm": first["readout"], "training": first["algorithm"], "readout": first["readout"],
                "sweep": first["sweep"], "seeds": group["seed"].nunique(), **{c: _plain(first[c]) for c in swept},
            }  # fmt: skip
            yield Mean(name, params, curves)


def _all_curves(measured: pd.DataFrame, plain: Collection[str]) -> dict[str, pd.Series]:
    """Of what runs of several seeds measured: the mean of every metric, and its interval.

    Args:
        plain: metrics that get no interval.
    """
    return {
        name: curve
        for metric, rows in measured.groupby("metric", sort=False)
        for name, curve in _curves(str(metric), rows, has_interval=metric not in plain).items()
    }


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


# -- of a command ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Runs of a command that differ by their seed alone; there are several.

    Attributes:
        configs: of the trainings, one per seed.
        title: of the runs.
    """

    configs: Sequence[Config]
    title: str

    @property
    def label(self) -> str:
        """What its means are found by: the same for the same runs, measured in the same ways."""
        keys = [
            [training_key(config), *(
                evaluation_key(config, name, readout)
                for name, evaluation in config.evaluation.items()
                for readout in evaluation.names(config.algorithm.readouts)
            )]
            for config in self.configs
        ]  # fmt: skip
        return f"{SWEEP} {hashlib.sha256(json.dumps(sorted(map(sorted, keys))).encode()).hexdigest()[:12]}"

    def means(self) -> Iterator[Mean]:
        """Of the training and of every read-out, of all that was noted by step, at steps that all seeds have."""
        first = self.configs[0]
        runs = [
            pd.DataFrame(measured_rows(config), columns=["readout", *frame.MEASURED]).assign(seed=config.seed)
            for config in self.configs
        ]
        for readout, measured in pd.concat(runs, ignore_index=True).groupby("readout", sort=False):
            name = str(readout)
            about = {key: value for key, value in params_of(first, name).items() if key != "seed"}
            curves = _all_curves(measured, (NODES, COST))
            yield Mean(mean_name(self.title, first, name), {**about, "seeds": len(self.configs)}, curves)


def groups(runs: Sequence[Run]) -> list[Group]:
    """The groups of a command's runs that have several seeds, each training once."""
    alike: dict[str, list[tuple[Config, str]]] = {}
    for run in union(runs):
        for config in run.configs:
            settings = json.dumps(hyperparameters(config), sort_keys=True)
            alike.setdefault(settings, []).append((config, run.title))
    several = (found for found in alike.values() if len(found) > 1)
    return [Group([config for config, _ in found], found[0][1]) for found in several]


def is_complete(group: Group) -> bool:
    """Whether all of a group's runs are finished and measured."""
    return all(map(is_measured, group.configs))


def log_group(client: Store, experiment: Experiment, group: Group, invocation: str) -> None:
    """Make the runs of a group's means, in place of such as hold anything else; those that there are stay.

    Args:
        invocation: of the command that asks for them.
    """
    label, means = group.label, {_content(mean): mean for mean in group.means()}
    tags = {MEAN_TAG: label, INVOCATION_TAG: invocation}
    for run in client.search_runs([experiment.experiment_id], f"tags.`{MEAN_TAG}` = '{label}'"):
        if means.pop(run.data.tags.get(_CONTENT_TAG, ""), None) is None:
            client.delete_run(run.info.run_id)
        else:
            client.set_tag(run.info.run_id, INVOCATION_TAG, invocation)
    for content, mean in means.items():
        run_id = make(client, experiment, mean, tags)
        # At last, so that what a kill left half made is made again.
        client.set_tag(run_id, _CONTENT_TAG, content)


def _content(mean: Mean) -> str:
    """A hash of all that a mean holds."""
    digest = hashlib.sha256(json.dumps([mean.name, dict(mean.params)], sort_keys=True, default=str).encode())
    for name, curve in mean.curves.items():
        digest.update(f"\n{name} {list(curve.index)} {list(curve)}".encode())
    return digest.hexdigest()


# -- in MLflow -------------------------------------------------------------------------------------------------------


def make(client: Store, experiment: Experiment, mean: Mean, tags: Mapping[str, str]) -> str:
    """Make the run of a mean; its id."""
    run_id = str(client.create_run(experiment.experiment_id, run_name=mean.name, tags=dict(tags)).info.run_id)
    given, points = as_params(mean.params), _points(mean)
    client.log_batch(run_id, metrics=points, params=given)
    client.set_terminated(run_id)
    return run_id


def _points(mean: Mean) -> list[Metric]:
    now = int(time.time() * 1000)
    return [
        Metric(name, float(value), now, int(step))
        for name, curve in mean.curves.items()
        for step, value in zip(curve.index.tolist(), curve.tolist(), strict=True)
        if np.isfinite(value)
    ]
