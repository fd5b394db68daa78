"""What commands leave in MLflow for whoever compares their runs there, and links to it.

At their ends they save a view of their runs, grouped and charted (`repro.shown.views`), a note of the experiment, a
figure's picture (`repro.shown.figures`) and means over seeds (`repro.shown.means`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from repro.common.errors import ReproError
from repro.figures.targets import SCALES, Options, PlannedSweep, module_of, plan_target, targets

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.entities import Experiment

    from repro.config.schema import Config
    from repro.plans.planned import Run
    from repro.tracking.store import Store

Plan = tuple[Sequence["PlannedSweep"], Sequence["Run"]]
"""A target's sweeps, and their runs."""

HOST, DEFAULT_PORT = "127.0.0.1", 5000
_MOST_CURVES = 100


def show_command(client: Store, invocation: str, runs: Sequence[Run]) -> list[str]:
    """Save views of the runs that a command has taken up; links to them, one per game.

    Raises:
        StorageError: the store does not work now.
    """
    from repro.shown import views  # noqa: PLC0415  (imports MLflow, which takes seconds)

    links = []
    curves = _read_out_curves(runs)
    for experiment, of_game in _by_experiment(client, [config for run in runs for config in run.configs]):
        view = views.of_command(invocation, _charted(of_game), curves)
        views.save(client, experiment, view)
        _describe(client, experiment)
        links.append(views.link(server_of(of_game[0].tracking_uri), experiment, view.key))
    return links


def show_means(client: Store, invocation: str, runs: Sequence[Run]) -> None:
    """Leave the means over seeds of a command's runs that differ by their seed alone, and a view of them.

    Means that there are already stay, and those of runs that are not finished are left to the command's repetition.

    Raises:
        StorageError: the store does not work now.
    """
    from repro.shown import means, views  # noqa: PLC0415  (imports MLflow, which takes seconds)

    complete = [group for group in means.groups(runs) if means.is_complete(group)]
    for experiment, of_game in _by_experiment(client, [config for group in complete for config in group.configs]):
        for group in (group for group in complete if group.configs[0].game["name"] == experiment.name):
            means.log_group(client, experiment, group, invocation)
        views.save(client, experiment, views.of_command_means(invocation, _charted(of_game)[:1]))


def show_target(client: Store, target: str, scale: str, plan: Plan, data: pd.DataFrame, folder: Path) -> list[str]:
    """Save views of a target's runs, and make the runs of its figure; links to the views, one per game.

    Args:
        data: what it is drawn from.
        folder: where it is drawn.

    Raises:
        StorageError: the store does not work now.
    """
    from repro.figures import frame  # noqa: PLC0415
    from repro.shown import figures, means, views  # noqa: PLC0415  (imports MLflow, which takes seconds)

    sweeps, runs = plan
    links = _save_views(client, target, scale, runs)
    names = (f"{target}.png", frame.data_file(folder).name, "claims.json", "provenance.json")
    files = [folder / name for name in names]
    for experiment, of_game in _by_experiment(client, [config for run in runs for config in run.configs]):
        game, metrics = experiment.name, _charted(of_game)
        of_sweeps = data["sweep"].isin([s.name for s in sweeps if any(c.game["name"] == game for c in s.configs)])
        here = data[of_sweeps & (data["game_name"] == game)] if "game_name" in data.columns else data[of_sweeps]
        about = {"target": target, "scale": scale, "game": game}
        figures.log(client, experiment, f"{target} {scale}", about, files, list(means.of_figure(here, metrics)))
        views.save(client, experiment, views.of_means(target, scale, metrics[:1]))
        _describe(client, experiment, {f"{target}-{scale}"})
    return links


def _save_views(client: Store, target: str, scale: str, runs: Sequence[Run]) -> list[str]:
    from repro.config.checks import TRAINING  # noqa: PLC0415
    from repro.config.keys import training_key  # noqa: PLC0415
    from repro.plans.naming import curve_name, readout_names, run_name  # noqa: PLC0415
    from repro.shown import views  # noqa: PLC0415
    from repro.tracking import mlflow_runs  # noqa: PLC0415

    curves = {
        (training_key(c), name): (curve_name(run.title, c, name), run_name(run.title, c, name))
        for run in runs
        for c in run.configs
        for name in (TRAINING, *readout_names(c))
    }
    links = []
    for experiment, of_game in _by_experiment(client, [config for run in runs for config in run.configs]):
        mlflow_runs.call_as(client, experiment.experiment_id, target, scale, curves)
        view = views.of_target(target, scale, _charted(of_game), _read_out_curves(runs))
        views.save(client, experiment, view)
        links.append(views.link(server_of(of_game[0].tracking_uri), experiment, view.key))
    return links


def _read_out_curves(runs: Sequence[Run]) -> list[str]:
    from repro.plans.naming import curve_name, readout_names  # noqa: PLC0415

    named = {curve_name(run.title, c, name): None for run in runs for c in run.configs for name in readout_names(c)}
    return list(named)[:_MOST_CURVES]


def _by_experiment(client: Store, configs: Iterable[Config]) -> list[tuple[Experiment, list[Config]]]:
    """Experiments, one per game, with the configurations of their runs; those that MLflow lacks are left out."""
    by_game: dict[str, list[Config]] = {}
    for config in configs:
        by_game.setdefault(config.game["name"], []).append(config)
    experiments = [(client.get_experiment_by_name(game), of_game) for game, of_game in by_game.items()]
    return [(e, of_game) for e, of_game in experiments if e is not None and e.lifecycle_stage == "active"]


def _charted(configs: Sequence[Config]) -> list[str]:
    """Metrics that are charted of runs."""
    metrics = [metric for c in configs for evaluation in c.evaluation.values() for metric in evaluation.charted]
    return list(dict.fromkeys(metrics)) or ["wall_seconds"]


def _describe(client: Store, experiment: Experiment, made: Iterable[str] = ()) -> None:
    """Write an experiment's note: what is in it, and links to views and pictures of the targets that were made."""
    from repro.shown import views  # noqa: PLC0415

    kept = {tag.removeprefix(views.VIEW_TAG) for tag in experiment.tags} | set(made)
    pictures = views.pictures(client, experiment)
    lines = [
        f"Runs in the game **{experiment.name}**", "",
        "There is one run per training and one per read-out, a way to play what was trained: those of one training "
        "have the same `repro.key`. The parameter `algorithm` of a read-out is its name; group by it to compare.", "",
    ]  # fmt: skip
    for target in targets():
        for scale in (scale for scale in SCALES if f"{target}-{scale}" in kept):
            module = module_of(target)
            link = views.link("", experiment, f"{target}-{scale}")
            picture = f"[picture]({pictures[label]}), " if (label := f"{target} {scale}") in pictures else ""
            lines.append(
                f"- [{label}]({link}): {module.SHOWS} ({module.TITLE}); {picture}page: paper_figures/{target}.md"
            )
    views.describe(client, experiment, "\n".join(lines))


def server_of(tracking_uri: str | None, port: int = DEFAULT_PORT) -> str:
    """Where the UI of a store is: the store's own address, or that of `make ui`."""
    if tracking_uri is not None and tracking_uri.startswith(("http://", "https://")):
        return tracking_uri.rstrip("/")
    return f"http://{HOST}:{port}"


def make_ui_command(output: Path, target: str = "", scale: str = "laptop") -> str:
    """What serves the UI of an output folder, and opens it on a target's view, as a user types it."""
    words = ["make ui", *([f"TARGET={target}"] if target else []), *([f"SCALE={scale}"] if scale != "laptop" else [])]
    if output.absolute() != Path("outputs").absolute():
        words.append(f"OUTPUT={shlex.quote(str(output))}")
    return " ".join(words)


def links_to(client: Store, target: str, options: Options, port: int) -> list[str]:
    """Links to a target's views; those that an older version of the suite has not left are saved.

    Raises:
        ReproError: there is no run of it.
    """
    from repro.shown import views  # noqa: PLC0415

    experiments = client.search_experiments()
    key, server = f"{target}-{options.scale}", server_of(None, port)
    found = [e for e in experiments if views.VIEW_TAG + key in e.tags]
    if not found:
        there = [scale for scale in SCALES if _has_runs(client, experiments, target, scale)]
        if options.scale not in there:
            has = f"; it has some of {' and '.join(f'SCALE={scale}' for scale in there)}" if there else ""
            raise ReproError(
                f"MLflow has no runs of {target} at scale {options.scale}{has}; make it first with `make {target} "
                f"SCALE={options.scale}`."
            )
        _save_views(client, target, options.scale, plan_target(target, options)[1])
        found = [e for e in client.search_experiments() if views.VIEW_TAG + key in e.tags]
        for experiment in found:
            _describe(client, experiment)
    return [views.link(server, experiment, key) for experiment in found]


def _has_runs(client: Store, experiments: Sequence[Experiment], target: str, scale: str) -> bool:
    tagged = f"tags.`target.{target}` = '{scale}'"
    return bool(client.search_runs([e.experiment_id for e in experiments], tagged, max_results=1))
