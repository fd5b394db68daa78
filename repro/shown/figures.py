"""A figure in MLflow: one run with its picture, data and verdicts, and one per curve (`repro.shown.means`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mlflow.entities import Experiment

from repro.shown import means
from repro.tracking.mlflow_runs import FIGURE_TAG, MEAN_TAG
from repro.tracking.store import Store, as_params

_FILES_TAG = "repro.files"


def log(
    client: Store, experiment: Experiment, label: str, about: Mapping[str, str], files: Sequence[Path],
    curves: Sequence[means.Mean],
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
    client.log_batch(figure_id, params=as_params(about))
    for path in files:
        client.log_artifact(figure_id, str(path))
    for mean in curves:
        means.make(client, experiment, replace(mean, params={**about, **mean.params}), {MEAN_TAG: label})
    # At last, so that what a kill left half made is made again.
    client.set_tag(figure_id, _FILES_TAG, digest)
    client.set_terminated(figure_id)
    return figure_id


def _digest(files: Sequence[Path], names: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(names).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()
