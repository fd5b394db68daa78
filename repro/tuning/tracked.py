"""A study's trials in MLflow: in an experiment of the study's own, a run for each, beside those of its trainings.

A trial's run has its values as parameters, and as metrics what it was worth at points of the budget and, unless it was
pruned, in the end; it is FINISHED, KILLED (pruned) or FAILED. Trials themselves are in Optuna's database: their runs
are made of that, once they have ended.
"""

from __future__ import annotations

import time
from pathlib import Path

from mlflow.entities import Metric
from optuna.trial import FrozenTrial, TrialState

from repro.config.schema import LATER
from repro.tracking.means import as_params
from repro.tracking.mlflow_runs import MOST_RUNS
from repro.tracking.store import Store, default_uri, experiment_id, open_store
from repro.tracking.views import describe
from repro.tuning.config import StudyConfig
from repro.tuning.study import ENDED, KEYS, Study

TRIAL_TAG = "repro.trial"
"""Of a trial's run that is whole: its number."""
AT_POINTS = "at_points"
_SHOWN = {TrialState.COMPLETE: "FINISHED", TrialState.PRUNED: "KILLED", TrialState.FAIL: "FAILED"}


class TrackedTrials:
    """The runs of a study's trials, in a store that this process may write."""

    def __init__(self, client: Store, config: StudyConfig) -> None:
        self._client, self._config = client, config
        self._experiment = experiment_id(client, f"tune {config.study}", _output(config) / "artifacts")
        describe(client, client.get_experiment(self._experiment), _note(config))
        self._known = set[int]()
        for run in client.search_runs([self._experiment], max_results=MOST_RUNS):
            if TRIAL_TAG in run.data.tags:
                self._known.add(int(run.data.tags[TRIAL_TAG]))
            else:  # A kill left it half made.
                client.delete_run(run.info.run_id)

    @classmethod
    def opened(cls, config: StudyConfig) -> TrackedTrials | None:
        """Those of a study, in the store that it names; None where MLflow is told nothing."""
        if config.tracking_uri == LATER:
            return None
        return cls(open_store(config.tracking_uri or default_uri(_output(config))), config)

    def catch_up(self, study: Study) -> None:
        """Make the runs of trials that have ended and have none."""
        for trial in study.trials(*ENDED):
            if trial.number not in self._known:
                self._log(trial)
                self._known.add(trial.number)

    def _log(self, trial: FrozenTrial) -> None:
        client, metric = self._client, self._config.objective.metric
        label = f"trial-{trial.number}"
        run_id = str(client.create_run(self._experiment, run_name=label).info.run_id)
        now, last = int(time.time() * 1000), max(trial.intermediate_values, default=0)
        metrics = [
            Metric(f"{metric}/{AT_POINTS}", value, now, step) for step, value in trial.intermediate_values.items()
        ]
        if trial.value is not None and trial.state is TrialState.COMPLETE:
            metrics.append(Metric(metric, trial.value, now, last))
        client.log_batch(run_id, metrics=metrics, params=as_params(trial.params))
        client.set_tag(run_id, f"target.tune.{self._config.study}", label)
        client.set_tag(run_id, "repro.keys", " ".join(trial.user_attrs.get(KEYS, [])))
        client.set_terminated(run_id, _SHOWN[trial.state])
        client.set_tag(run_id, TRIAL_TAG, str(trial.number))


def _output(config: StudyConfig) -> Path:
    return Path(config.output_dir).absolute()


def _note(config: StudyConfig) -> str:
    objective, budget, seeds = config.objective, config.budget, ", ".join(map(str, config.seeds))
    at_points = f"{objective.metric}/{AT_POINTS}"
    return (
        f"Trials of the study `{config.study}`, which tunes `{' '.join(config.overrides)}`: `{objective.metric}` is "
        f"what `{objective.readout}` has after {budget.limit:g} `{budget.metric}`, in the mean over seeds {seeds}, and "
        f"`{at_points}` what each has at {budget.points} equal parts of that; a trial that was pruned has the latter "
        "only. Its trainings are the runs with its tag in the game's experiment."
    )
