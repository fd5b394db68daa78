"""A study's trials in MLflow: in an experiment of the study's name, a run for each, beside those of its trainings.

A trial's run has its values as parameters, and as metrics what it was worth at points of the budget and, unless it was
pruned, in the end; it is FINISHED, KILLED (pruned) or FAILED. Trials themselves are in Optuna's database: their runs
are made of that, once they have ended, and where MLflow does not work a study goes on without them.
"""

from __future__ import annotations

import math
import sys
import time
from datetime import datetime
from pathlib import Path

from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from optuna.trial import FrozenTrial, TrialState

from repro.common.errors import ReproError
from repro.config.schema import LATER
from repro.shown.views import describe
from repro.tracking.mlflow_runs import MOST_RUNS
from repro.tracking.store import Store, as_params, default_uri, experiment_id, open_store
from repro.tuning.config import StudyConfig
from repro.tuning.study import ENDED, KEYS, Study

STUDY_TAG, TRIAL_TAG = "repro.study", "repro.trial"
"""Of a trial's run: of which study it is (`Study.identity`); and, once it is whole, its trial's number."""
AT_POINTS = "at_points"
_SHOWN = {TrialState.COMPLETE: "FINISHED", TrialState.PRUNED: "KILLED", TrialState.FAIL: "FAILED"}


class TrackedTrials:
    """The runs of the trials of a study, in the store that it names."""

    def __init__(self, study: Study) -> None:
        self._study, self._config = study, study.config
        self._is_told = study.config.tracking_uri != LATER
        self._store: tuple[Store, str] | None = None
        self._known = set[int]()

    def catch_up(self) -> None:
        """Make the runs of trials that have ended and have none; where that fails, warn, once."""
        if not self._is_told:
            return
        try:
            client, experiment = self._store = self._store or self._opened()
            for trial in self._study.trials(*ENDED):
                if trial.number not in self._known:
                    self._log(client, experiment, trial)
                    self._known.add(trial.number)
        except (ReproError, MlflowException) as error:
            self._is_told = False
            print(f"warning: the MLflow UI lacks trials of {self._config.study}: {error}", file=sys.stderr, flush=True)

    def _opened(self) -> tuple[Store, str]:
        output = Path(self._config.output_dir).absolute()
        client = open_store(self._config.tracking_uri or default_uri(output))
        experiment = experiment_id(client, f"tune {self._config.study}", output / "artifacts")
        describe(client, client.get_experiment(experiment), _note(self._config))
        own = f"tags.`{STUDY_TAG}` = '{self._study.identity}'"
        for run in client.search_runs([experiment], own, max_results=MOST_RUNS):
            if TRIAL_TAG in run.data.tags:
                self._known.add(int(run.data.tags[TRIAL_TAG]))
            else:  # A kill left it half made.
                client.delete_run(run.info.run_id)
        return client, experiment

    def _log(self, client: Store, experiment: str, trial: FrozenTrial) -> None:
        label, metric = f"trial-{trial.number}", self._config.objective.metric
        tags = {
            STUDY_TAG: self._study.identity, f"target.tune.{self._config.study}": label,
            "repro.keys": " ".join(trial.user_attrs.get(KEYS, [])),
        }  # fmt: skip
        began, ended = _milliseconds(trial.datetime_start), _milliseconds(trial.datetime_complete)
        run_id = str(client.create_run(experiment, began, tags, label).info.run_id)
        worth = {(f"{metric}/{AT_POINTS}", step): value for step, value in trial.intermediate_values.items()}
        if trial.value is not None and trial.state is TrialState.COMPLETE:
            worth[metric, max(trial.intermediate_values, default=0)] = trial.value
        metrics = [Metric(name, value, ended, step) for (name, step), value in worth.items() if math.isfinite(value)]
        client.log_batch(run_id, metrics=metrics, params=as_params(trial.params))
        client.set_terminated(run_id, _SHOWN[trial.state], ended)
        client.set_tag(run_id, TRIAL_TAG, str(trial.number))


def _milliseconds(when: datetime | None) -> int:
    """As MLflow has times; of a trial that does not say, now."""
    return int(1000 * (time.time() if when is None else when.timestamp()))


def _note(config: StudyConfig) -> str:
    objective, budget, seeds = config.objective, config.budget, ", ".join(map(str, config.seeds))
    over = f"in the mean over seeds {seeds}" if len(config.seeds) > 1 else f"with seed {seeds}"
    at_points = f"{objective.metric}/{AT_POINTS}"
    return (
        f"Trials of the study `{config.study}`, which tunes `{' '.join(config.overrides)}`: `{objective.metric}` is "
        f"what `{objective.readout}` has after {budget.limit:g} `{budget.metric}`, {over}, and "
        f"`{at_points}` what each has at {budget.points} equal parts of that; a trial that was pruned has the latter "
        "only. Its trainings are the runs with its tag in the game's experiment."
    )
