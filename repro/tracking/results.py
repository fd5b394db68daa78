"""From MLflow to one tidy DataFrame."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from mlflow import MlflowClient

from repro.tracking.store import READOUT_TAG, TRAINING, find_runs

COLUMNS = ["target", "scale", "algorithm", "readout", "seed", "metric", "step", "value"]


def tidy(client: MlflowClient, experiment: str, keys: Iterable[str]) -> pd.DataFrame:
    """All metrics of the read-outs of finished runs, and of the runs themselves (read-out "training").

    Args:
        experiment: MLflow experiment id.
        keys: run keys; other runs of the experiment are left alone.

    Returns:
        Columns `COLUMNS`; step is the CFR iteration. Where a resumed run logged a step twice, one value is kept (they
        are equal, times aside).
    """
    frames = [pd.DataFrame(columns=COLUMNS)]
    for key in keys:
        for run in find_runs(client, experiment, key).values():
            if run.info.status != "FINISHED":
                continue
            params = run.data.params
            for metric in run.data.metrics:
                history = client.get_metric_history(run.info.run_id, metric)
                frame = pd.DataFrame({"step": [m.step for m in history], "value": [m.value for m in history]})
                frames.append(
                    frame.assign(
                        target=params["target"], scale=params["scale"], seed=int(params["seed"]), metric=metric,
                        algorithm=params["algorithm.name"],
                        readout="training" if run.data.tags[READOUT_TAG] == TRAINING else params["algorithm"],
                    )
                )  # fmt: skip
    data = pd.concat([f for f in frames if len(f)] or frames, ignore_index=True)[COLUMNS]
    keys_of_a_value = COLUMNS[:-1]
    return data.drop_duplicates(keys_of_a_value, keep="last").sort_values(keys_of_a_value, ignore_index=True)
