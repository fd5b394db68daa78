"""A study's page: `index.html`, which needs no network, and beside it Markdown and CSV.

It begins with what was gained: the best trial and the default on seeds that nothing was tuned on, their means with 95%
intervals, and Welch's interval of the difference. Then come Optuna's pictures (importance, parallel coordinates, how
the best came down, learning curves) and a table of all trials.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
import optuna
import pandas as pd
from optuna import visualization
from optuna.trial import TrialState

from repro.common import durable
from repro.common.errors import ReproError
from repro.config.keys import training_key
from repro.config.schema import Config
from repro.evaluation.statistics import Estimate, difference, mean_ci
from repro.stored.results import is_done
from repro.tuning.study import KEYS, Study, folder_of
from repro.tuning.trials import value_of

_LEAST_TRIALS = 2
"""Of different values, without which nothing is important."""

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ study }}</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto }
th, td { padding: .2em .8em; text-align: left; border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums }
h2 { margin-top: 1.8em } code { background: #f3f3f3; padding: 0 .2em }
@media print { .js-plotly-plot { break-inside: avoid } }
</style>{% if pictures %}<script>{{ plotly | safe }}</script>{% endif %}</head><body>
<h1>{{ study }}</h1>
{% for sentence in findings %}<p>{{ sentence }}</p>{% endfor %}
{% for title, table in tables %}<h2>{{ title }}</h2>{{ table | safe }}{% endfor %}
{% for title, picture in pictures %}<h2>{{ title }}</h2>{{ picture | safe }}{% endfor %}
<h2>All trials</h2>{{ trials | safe }}
</body></html>
"""


def write(study: Study, fresh: Mapping[str, Sequence[Config]]) -> Path:
    """Write a study's page, and return its path.

    Args:
        fresh: `default` and `best` -> their trainings on fresh seeds; those that are not finished are left out.
    """
    folder = folder_of(study.config)
    trials, seeds = trials_table(study), fresh_table(study, fresh)
    found, chosen = findings(study, seeds), choices(study)
    pictures = list(_pictures(study))
    html = jinja2.Environment(autoescape=True).from_string(_TEMPLATE)
    compared = [("On fresh seeds", _html(seeds))] if len(seeds) else []
    rendered = html.render(
        study=study.config.study, findings=found, tables=[("Best and default", _html(chosen)), *compared],
        pictures=pictures, plotly=_plotly() if pictures else "", trials=_html(trials),
    )  # fmt: skip
    durable.write(folder / "trials.csv", trials.to_csv(index=False).encode(), sync=False)
    durable.write(folder / "fresh.csv", seeds.to_csv(index=False).encode(), sync=False)
    durable.write(folder / "study.md", _markdown(study, found, chosen, seeds).encode(), sync=False)
    durable.write(folder / "index.html", rendered.encode(), sync=False)
    print("\n".join(found))
    return folder / "index.html"


# -- what was found --------------------------------------------------------------------------------------------------


def trials_table(study: Study) -> pd.DataFrame:
    """A row per trial: its number, state, value, hyperparameters, and the keys of its trainings."""
    rows = [
        {
            "trial": trial.number, "state": trial.state.name.lower(), study.config.objective.metric: trial.value,
            **trial.params, "keys": " ".join(trial.user_attrs.get(KEYS, [])),
        }
        for trial in study.trials()
    ]  # fmt: skip
    return pd.DataFrame(rows)


def fresh_table(study: Study, fresh: Mapping[str, Sequence[Config]]) -> pd.DataFrame:
    """A row per finished training on a fresh seed: `what` (default or best), `seed`, `value`, `key`.

    One that was not evaluated where the budget is spent has none.
    """
    config, rows = study.config, []
    for name, run in ((name, run) for name, runs in fresh.items() for run in runs if is_done(run)):
        with suppress(ReproError):  # `repro.tune` tells it.
            rows.append((name, run.seed, value_of(run, config.objective, config.budget), training_key(run)))
    return pd.DataFrame(rows, columns=["what", "seed", "value", "key"])


def choices(study: Study) -> pd.DataFrame:
    """A row per hyperparameter: its value in the best trial, and the default's if the space has it."""
    best = study.best
    default = study.default
    return pd.DataFrame(
        [(key, default.get(key, "outside of the space"), best.params[key] if best else "") for key in study.space],
        columns=["hyperparameter", "default", "best"],
    )


def gain(study: Study, seeds: pd.DataFrame) -> tuple[Estimate, Estimate, Estimate] | None:
    """Means of default and best on fresh seeds, and best minus default; None where one has none."""
    values = [seeds[seeds.what == name].value.to_numpy() for name in ("default", "best")]
    if not all(len(each) for each in values):
        return None
    return mean_ci(values[0]), mean_ci(values[1]), difference(values[1], values[0])


def findings(study: Study, seeds: pd.DataFrame) -> list[str]:
    """Three sentences: what was searched, what was found, and what it is worth on fresh seeds."""
    config, best = study.config, study.best
    counts = {state: len(study.trials(state)) for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)}
    told = ", ".join(f"{count} {state.name.lower()}" for state, count in counts.items())
    objective, budget = config.objective, config.budget
    searched = (
        f"{sum(counts.values())} trials ({told}) of {len(study.space)} hyperparameters were to {objective.direction} "
        f"{objective.metric} of {objective.readout} at {budget.metric} = {budget.limit:,.0f}."
    )
    if best is None:
        return [searched, "No trial was completed, so there is no best one."]
    found = f"The best is trial {best.number}, {best.value:.4g} on the seeds that it was tuned on."
    if best.params == study.default:
        return [searched, found, "It is the default itself: nothing was gained."]
    worth = gain(study, seeds)
    if worth is None:
        return [searched, found, "It was not trained on fresh seeds, so that this is not what it is worth."]
    default, tuned, apart = worth
    better = apart.high < 0 if objective.direction == "minimize" else apart.low > 0
    worse = apart.low > 0 if objective.direction == "minimize" else apart.high < 0
    verdict = "better than" if better else "worse than" if worse else "not surely different from"
    return [
        searched, found,
        f"On {tuned.n} fresh seeds it is {verdict} the default: {tuned} against {default} (means with 95% intervals), "
        f"a difference of {apart} by Welch's interval.",
    ]  # fmt: skip


# -- how it is shown -------------------------------------------------------------------------------------------------


def _pictures(study: Study) -> Iterator[tuple[str, str]]:
    """Optuna's pictures of a study, those that there are enough trials for."""
    values = {trial.value for trial in study.trials(TrialState.COMPLETE)}
    if not values:
        return
    name, shown = study.config.objective.metric, _with_short_names(study)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if len(values) >= _LEAST_TRIALS:
            yield "Which hyperparameters matter", _picture(visualization.plot_param_importances(shown))
            coordinates = visualization.plot_parallel_coordinate(shown, target_name=name)
            yield "Which values are good", _picture(coordinates)
        history = visualization.plot_optimization_history(shown, target_name=name)
        yield "How the best was found", _picture(history)
        points = visualization.plot_intermediate_values(shown)
        yield "At the points of the budget, seed after seed", _picture(points)


def _with_short_names(study: Study) -> optuna.Study:
    """The same in memory, with as few parts of hyperparameters' names as tell them apart: pictures cut long ones."""
    short = {key: _shortest(key, study.space) for key in study.space}
    copy = optuna.create_study(direction=study.study.direction)
    for trial in study.trials(TrialState.COMPLETE, TrialState.PRUNED):
        copy.add_trial(
            optuna.trial.create_trial(
                state=trial.state, value=trial.value, intermediate_values=trial.intermediate_values,
                params={short[key]: value for key, value in trial.params.items()},
                distributions={short[key]: value for key, value in trial.distributions.items()},
            )
        )  # fmt: skip
    return copy


def _shortest(key: str, keys: Iterable[str]) -> str:
    parts = key.split(".")
    ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
    return next(end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1)


def _picture(figure: Any) -> str:
    figure.update_layout(title=None, margin={"t": 30}, template="plotly_white")
    return str(figure.to_html(full_html=False, include_plotlyjs=False))


def _plotly() -> str:
    """The library itself, so that the page needs no network."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415

    return str(get_plotlyjs())


def _html(table: pd.DataFrame) -> str:
    return str(table.to_html(index=False, border=0, float_format="{:.5g}".format, na_rep=""))


def _markdown(study: Study, found: Sequence[str], chosen: pd.DataFrame, seeds: pd.DataFrame) -> str:
    parts = [f"# {study.config.study}", *found, _markdown_table(chosen)]
    return "\n\n".join([*parts, *([_markdown_table(seeds)] if len(seeds) else [])]) + "\n"


def _markdown_table(table: pd.DataFrame) -> str:
    rows = [list(table.columns), ["---"] * len(table.columns), *table.astype(object).to_numpy().tolist()]
    cells = [[f"{value:.5g}" if isinstance(value, float) else str(value) for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
