"""The MLflow UI: `python -m repro.ui [TARGET] [--scale SCALE]` starts it, and prints a link to a target's runs.

What is to be seen in it commands leave there at their ends (`repro.shown.commands`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import stoppable, stopped_by_signals
from repro.figures.targets import SCALES, Options, check_scale, check_target
from repro.shown.commands import DEFAULT_PORT, HOST, links_to, server_of
from repro.tracking.folders import DATABASE, run_folder

_SERVER = ("--workers", "1", "--uvicorn-opts", "--log-level warning")
_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""One process that answers, and none that runs jobs, which are about language models."""
_UNLESS_SET = {"PYTHONWARNINGS": "ignore"}
"""Without warnings to whoever develops MLflow."""


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
            tried.bind((HOST, port))
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
    # The registry's store is the same unless it is named, which MLflow would say.
    where = ["--backend-store-uri", uri, "--registry-store-uri", uri, "--host", HOST, "--port", str(port)]
    return [sys.executable, "-m", "mlflow", "server", *where, *_SERVER], {**_UNLESS_SET, **os.environ, **_ENVIRONMENT}


def _looked_up(target: str | None, options: Options, port: int) -> tuple[str, list[str]]:
    """The store in an output folder, and links to what is to be seen in its UI.

    Raises:
        ReproError: as `links_to`.
    """
    from repro.shown import views  # noqa: PLC0415
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
