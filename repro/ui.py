"""The MLflow UI: `python -m repro.ui [TARGET] [--scale SCALE]` starts it, and prints a link to a target's runs.

At their ends, commands leave in MLflow what makes their runs easy to compare there: a saved view of them, grouped and
charted (`repro.tracking.views`), a note of the experiment, a figure's picture
(`repro.tracking.figures`) and means over seeds (`repro.tracking.means`).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repro.arguments import Parser
from repro.errors import ReproError
from repro.faults import faults_told
from repro.folders import DATABASE, run_folder
from repro.stopping import stoppable, stopped_by_signals
from repro.targets import SCALES, Options, PlannedSweep, check_scale, check_target, module_of, plan_target, targets

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.entities import Experiment

    from repro.config.schema import Config
    from repro.planned import Run
    from repro.tracking.store import Store

Plan = tuple[Sequence["PlannedSweep"], Sequence["Run"]]
"""A target's sweeps, and their runs."""

_HOST, DEFAULT_PORT = "127.0.0.1", 5000
_MOST_CURVES = 100
_SERVER = ("--workers", "1", "--uvicorn-opts", "--log-level warning")
_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""One process that answers, and none that runs jobs, which are about language models."""


# -- what commands leave ---------------------------------------------------------------------------------------------


def show_command(client: Store, invocation: str, runs: Sequence[Run]) -> list[str]:
    """Save views of the runs that a command has taken up; links to them, one per game.

    Raises:
        StorageError: the store does not work now.
    """
    from repro.tracking import views  # noqa: PLC0415  (imports MLflow, which takes seconds)

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
    from repro.tracking import means, views  # noqa: PLC0415  (imports MLflow, which takes seconds)

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
    from paper_figures import frame  # noqa: PLC0415
    from repro.tracking import figures, means, views  # noqa: PLC0415  (imports MLflow, which takes seconds)

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
    from repro.one_seed import readout_names  # noqa: PLC0415
    from repro.planned import curve_name, run_name  # noqa: PLC0415
    from repro.tracking import mlflow_runs, views  # noqa: PLC0415

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
    from repro.one_seed import readout_names  # noqa: PLC0415
    from repro.planned import curve_name  # noqa: PLC0415

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
    from repro.tracking import views  # noqa: PLC0415

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
    return f"http://{_HOST}:{port}"


def command(output: Path, target: str = "", scale: str = "laptop") -> str:
    """What serves the UI of an output folder, and opens it on a target's view, as a user types it."""
    words = ["make ui", *([f"TARGET={target}"] if target else []), *([f"SCALE={scale}"] if scale != "laptop" else [])]
    if output.absolute() != Path("outputs").absolute():
        words.append(f"OUTPUT={shlex.quote(str(output))}")
    return " ".join(words)


# -- make ui ---------------------------------------------------------------------------------------------------------


def links_to(client: Store, target: str, options: Options, port: int) -> list[str]:
    """Links to a target's views; those that an older version of the suite has not left are saved.

    Raises:
        ReproError: there is no run of it.
    """
    from repro.tracking import views  # noqa: PLC0415

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


def _check_port(port: int) -> None:
    """Refuse a port that cannot be listened on.

    Raises:
        ReproError: it cannot.
    """
    if not 1 <= port <= 65535:
        raise ReproError(f"--port is {port}; it must be from 1 to 65535.")
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((_HOST, port))
        except OSError as error:
            raise ReproError(
                f"--port is {port}, which cannot be used ({error.strerror}); take another, as `make ui PORT=5001` does."
            ) from error


def _check_output(output: Path) -> None:
    """Refuse a folder that nothing was ever run in, before a store is made there.

    Raises:
        ReproError: it is one.
    """
    if not ((output / DATABASE).exists() or run_folder(output, "").is_dir()):
        raise ReproError(
            f"--output (OUTPUT of make ui) is {str(output)!r}, where nothing was ever run; it must be the output "
            "folder of a run."
        )


def server_command(uri: str, port: int) -> tuple[list[str], Mapping[str, str]]:
    """The command that serves the UI of a store on this machine alone, and its environment."""
    where = ["--backend-store-uri", uri, "--host", _HOST, "--port", str(port)]
    return [sys.executable, "-m", "mlflow", "server", *where, *_SERVER], {**os.environ, **_ENVIRONMENT}


def _looked_up(target: str | None, options: Options, port: int) -> tuple[str, list[str]]:
    """The store in an output folder, and links to what is to be seen in its UI.

    Raises:
        ReproError: as `links_to`.
    """
    from repro.tracking import views  # noqa: PLC0415
    from repro.tracking.store import default_uri, open_store  # noqa: PLC0415

    uri = default_uri(options.output)
    client = open_store(uri)
    server = server_of(None, port)
    if target is not None:
        links, means = links_to(client, target, options, port), views.of_means(target, options.scale, ()).key
        having = [e for e in client.search_experiments() if views.VIEW_TAG + means in e.tags]
        return uri, [*links, *(f"means with their intervals: {views.link(server, e, means)}" for e in having)]
    newest = [(experiment, views.newest(experiment)) for experiment in client.search_experiments()]
    latest = [f"{e.name}, the newest: {views.link(server, e, view)}" for e, view in newest if view is not None]
    return uri, [views.front_page(server), *latest]


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.target is not None:
        check_target(arguments.target)
    check_scale(arguments.scale)
    _check_port(arguments.port)
    _check_output(arguments.output)
    options = Options(arguments.scale, arguments.output.absolute(), 1, "cpu", False)
    if arguments.links:
        print(json.dumps(_looked_up(arguments.target, options, arguments.port)))
        return 0
    # By a process of its own: what MLflow takes of memory is not kept as long as the UI runs.
    command = [sys.executable, "-m", "repro.ui", *sys.argv[1:], "--links"]
    looked_up = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stderr.write(looked_up.stderr)
    if looked_up.returncode:
        return looked_up.returncode
    uri, links = json.loads(looked_up.stdout)
    print("in some seconds, and until Ctrl-C, the MLflow UI is at", *links, sep="\n  ", flush=True)
    return _until_stopped(*server_command(uri, arguments.port))


def _until_stopped(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Serve until a signal stops it, which ends all of the server's processes without a word; the exit status."""
    # What Ctrl-C sends to a terminal's processes, which the server's answer with tracebacks, is not sent to a session
    # of their own.
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    with stopped_by_signals():
        try:
            return server.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            server.wait()


@stoppable("")
@faults_told
def main() -> int:
    """Entry point; exit status 2 for a faulty request."""
    parser = Parser(prog="python -m repro.ui", description=__doc__)
    parser.add_argument("target", nargs="?", help="a target, to whose runs a link is printed")
    parser.add_argument("--scale", default="laptop", help=f"the target's: {', '.join(SCALES)} (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="output folder")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="(default: %(default)s)")
    parser.add_argument("--links", action="store_true", help="print the store and the links as JSON, and serve nothing")
    return _serve(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
