"""What the MLflow UI shows of a command's or a target's runs: an experiment's saved views, links to them, its note.

MLflow keeps a saved view (its picker is beside "Runs") as a tag of the experiment that holds the state of the page:
search, grouping, columns and charts. A link that names the view opens the page in that state. The names of the state's
keys are those of MLflow 3's page; a page that does not know them shows the runs without grouping and charts.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

from mlflow.entities import Experiment
from mlflow.utils.validation import MAX_EXPERIMENT_TAG_VAL_LENGTH

from repro.config.checks import TRAINING
from repro.tracking.mlflow_runs import (
    COST,
    CURVE_OF_TARGET,
    CURVE_TAG,
    FIGURE_TAG,
    INVOCATION_TAG,
    MEAN_TAG,
    NODES,
    READOUT_TAG,
    SWEEP,
)
from repro.tracking.store import Store

VIEW_TAG = "mlflow.sharedViewState."
"""MLflow's, followed by the view's key."""

_NOTE_TAG, _OUR_NOTE_TAG, _KIND_TAG = "mlflow.note.content", "repro.note", "mlflow.experimentKind"
_TRAINING_KIND = "custom_model_development"
_MOST_METRICS = 3
_MOST_OF_COMMANDS = 20
"""Views of single commands that an experiment keeps."""
_OF_COMMANDS = "command-"
_X_AXES = {"step": "iteration", NODES: "nodes touched", COST: "seconds"}
"""What is charted against, and how a chart says it."""


@dataclass(frozen=True)
class View:
    """A page of an experiment's runs.

    Attributes:
        key: names it in links.
        name: as the UI lists it.
        search: MLflow's search expression.
        group_by: a tag; runs that are equal in it are one curve, their mean with its range. Empty: each is one.
        metrics: those that are charted, the most important first; several of one chart are separated by "|".
        curves: values of the tag whose runs the page hides at first, so that the curves fit on it.
        columns: parameters that the table has beside the first metric.
    """

    key: str
    name: str
    search: str
    group_by: str
    metrics: Sequence[str]
    curves: Sequence[str] = ()
    columns: Sequence[str] = ("seed",)

    def state(self) -> dict[str, Any]:
        """The page's, as MLflow names it."""
        metrics = list(self.metrics)[:_MOST_METRICS]
        ids = [str(uuid.uuid4()) for _ in metrics]
        # MLflow titles a chart by all its metrics, which takes the room of another column.
        columns = len(_X_AXES) - 1 if any("|" in metric for metric in metrics) else len(_X_AXES)
        sections = [
            {
                "uuid": section, "name": metric.partition("|")[0], "display": True, "isReordered": True,
                "columns": columns,
            }
            for section, metric in zip(ids, metrics, strict=True)
        ]  # fmt: skip
        charts = [
            _chart(metric.split("|"), x, section) for section, metric in zip(ids, metrics, strict=True) for x in _X_AXES
        ]
        charts += [
            _left_out(beside, section)
            for section, metric in zip(ids, metrics, strict=True)
            for beside in metric.split("|")[1:]
        ]
        shown = [*(metric.partition("|")[0] for metric in metrics), NODES, COST]
        keys = [{"mode": "tag", "groupByData": self.group_by}]
        return {
            "searchFilter": self.search,
            "orderByKey": "attributes.start_time",
            "orderByAsc": False,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": [
                *(f"metrics.`{metric}`" for metric in shown), *(f"params.`{column}`" for column in self.columns),
            ],
            "runsHiddenMode": "FIRST_20_RUNS",
            "compareRunCharts": charts,
            "compareRunSections": sections,
            "isAccordionReordered": True,
            "useGroupedValuesInCharts": True,
            "hideEmptyCharts": True,
            "groupBy": {"aggregateFunction": "average", "groupByKeys": keys} if self.group_by else None,
            "groupsExpanded": {f"tag.{self.group_by}.{curve}": False for curve in self.curves},
        }  # fmt: skip


def _chart(metrics: Sequence[str], x: str, section: str) -> dict[str, Any]:
    """Metrics by iteration, on logarithmic axes, or by another metric, whose axis MLflow leaves linear."""
    is_step = x == "step"
    return {
        "type": "LINE",
        "uuid": str(uuid.uuid4()),
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        "displayName": f"{metrics[0]} by {_X_AXES[x]}",
        "metricKey": metrics[0],
        "selectedMetricKeys": list(metrics),
        "xAxisKey": x if is_step else "metric",
        "selectedXAxisMetricKey": "" if is_step else x,
        "xAxisScaleType": "log",
        "scaleType": "log",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "lineSmoothness": 0,
        "range": {},
        "ignoreOutliers": False,
        "useGlobalXaxisKey": False,
        "useGlobalLineSmoothing": False,
    }


def _left_out(metric: str, section: str) -> dict[str, Any]:
    """In place of the chart that the page adds of its own accord of a metric which it finds in no section."""
    return {**_chart([metric], "step", section), "isGenerated": True, "deleted": True}


def of_command(invocation: str, metrics: Sequence[str], curves: Sequence[str] = ()) -> View:
    """The read-outs of the runs that a command has taken up last."""
    search = f"tags.`{INVOCATION_TAG}` = '{invocation}' AND tags.`{READOUT_TAG}` != '{TRAINING}'"
    name = f"command of {time.strftime('%Y-%m-%d %H:%M:%S')}"
    return View(f"{_OF_COMMANDS}{invocation[:12]}", name, search, CURVE_TAG, metrics, curves)


def of_command_means(invocation: str, metrics: Sequence[str]) -> View:
    """Means over seeds of the read-outs of a command's runs, with their intervals."""
    search = f"tags.`{INVOCATION_TAG}` = '{invocation}' AND tags.`{MEAN_TAG}` LIKE '{SWEEP} %'"
    name = f"command of {time.strftime('%Y-%m-%d %H:%M:%S')}, means"
    # A training has no read-out's metrics to chart.
    search += f" AND params.readout != '{TRAINING}'"
    return View(f"{_OF_COMMANDS}{invocation[:12]}-means", name, search, "", _with_bounds(metrics), columns=("seeds",))


def of_target(target: str, scale: str, metrics: Sequence[str], curves: Sequence[str]) -> View:
    """The read-outs of a target's runs."""
    search = f"tags.`target.{target}` = '{scale}' AND tags.`{READOUT_TAG}` != '{TRAINING}'"
    return View(f"{target}-{scale}", f"{target} {scale}", search, CURVE_OF_TARGET + target, metrics, curves)


def of_means(target: str, scale: str, metrics: Sequence[str]) -> View:
    """Means over seeds of a target's runs, with their intervals."""
    search = f"tags.`{MEAN_TAG}` = '{target} {scale}'"
    charted = _with_bounds(metrics)
    return View(f"{target}-{scale}-means", f"{target} {scale}, means", search, "", charted, columns=("seeds",))


def _with_bounds(metrics: Sequence[str]) -> list[str]:
    """Means and the bounds of their intervals, a chart each."""
    return ["|".join((metric, f"{metric}/low", f"{metric}/high")) for metric in metrics]


def save(client: Store, experiment: Experiment, view: View) -> None:
    """Keep a view with its experiment, in place of an earlier one of this key; of commands, the newest few."""
    content = _content(view)
    # Of hundreds of curves not all names fit into a tag; those of the last are shown unfolded.
    while len(content) > MAX_EXPERIMENT_TAG_VAL_LENGTH and view.curves:
        view = replace(view, curves=view.curves[: len(view.curves) // 2])
        content = _content(view)
    client.set_experiment_tag(experiment.experiment_id, f"{VIEW_TAG}{view.key}", content)
    of_commands = {k: v for k, v in experiment.tags.items() if k.startswith(f"{VIEW_TAG}{_OF_COMMANDS}")}
    oldest = sorted(of_commands, key=lambda key: _made_at(of_commands[key]))
    for key in oldest[: max(0, len(oldest) - _MOST_OF_COMMANDS + 1)]:
        client.delete_experiment_tag(experiment.experiment_id, key)


def _content(view: View) -> str:
    now = int(time.time() * 1000)
    return json.dumps({"name": view.name, "createdAt": now, "updatedAt": now, "state": json.dumps(view.state())})


def newest(experiment: Experiment) -> str | None:
    """The view of an experiment that was saved last; None if it has none."""
    saved = {k.removeprefix(VIEW_TAG): _made_at(v) for k, v in experiment.tags.items() if k.startswith(VIEW_TAG)}
    return max(saved, key=lambda view: saved[view], default=None)


def _made_at(content: str) -> float:
    """When a view was saved; 0 if it does not say."""
    try:
        return float(json.loads(content)["createdAt"])
    except (ValueError, TypeError, LookupError):
        return 0.0


def describe(client: Store, experiment: Experiment, note: str) -> None:
    """Give an experiment a note, unless somebody else has written one, and mark it as one of model training."""
    tags = {_KIND_TAG: _TRAINING_KIND}
    now, ours = experiment.tags.get(_NOTE_TAG, ""), experiment.tags.get(_OUR_NOTE_TAG, "")
    # Earlier versions kept the whole note, which the list of experiments showed twice.
    if ours in (now, _digest(now)):
        tags |= {_NOTE_TAG: note, _OUR_NOTE_TAG: _digest(note)}
    for key, value in tags.items():
        if experiment.tags.get(key) != value:
            client.set_experiment_tag(experiment.experiment_id, key, value)


def _digest(note: str) -> str:
    return hashlib.sha256(note.encode()).hexdigest()[:12]


def link(server: str, experiment: Experiment, view: str) -> str:
    """Where a server shows a view, on the page of model training, as charts."""
    query = {"viewStateShareKey": view, "workflowType": "machine_learning", "compareRunsMode": "CHART"}
    return f"{server}/#/experiments/{experiment.experiment_id}/runs?{urlencode(query, quote_via=quote)}"


def pictures(client: Store, experiment: Experiment) -> dict[str, str]:
    """Where a server shows the pictures of an experiment's figures, from its root, by target and scale."""
    runs = client.search_runs([experiment.experiment_id], f"tags.`{FIGURE_TAG}` LIKE '%'")
    folder = f"/#/experiments/{experiment.experiment_id}/runs"
    labels = {run.info.run_id: run.data.tags[FIGURE_TAG] for run in runs}
    return {
        label: f"{folder}/{run}/artifacts/{label.split()[0]}.png?workflowType=machine_learning"
        for run, label in labels.items()
    }


def front_page(server: str) -> str:
    """Where a server lists its experiments, for model training."""
    return f"{server}/#/experiments?workflowType=machine_learning"
