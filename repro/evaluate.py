"""Measure finished runs again, or otherwise: `python -m repro.evaluate KEY [KEY ...] evaluation=... [KEY=VALUE ...]`.

Trains nothing: a read-out (`+algorithm.readouts.sd_cfr_20={kind: ensemble, capacity: 20}`), an opponent
(`evaluation=match +evaluation.match.opponents.nfsp=KEY`) or more boards (`evaluation.exploitability.boards=null`) are
measured on the snapshots that the runs left. KEY is the folder of a run in `outputs/runs/`. `tracking_uri=...` as for
`python -m repro.run`. KEY may also be a `snapshot.pt`: what is measured of it is printed, and kept nowhere.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import CAN_BE_REPEATED, stoppable
from repro.tracking.folders import existing_folder, keys_in, refuse_output_dir


@stoppable(CAN_BE_REPEATED)
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, 1 if a run could not be measured, 2 if the request was at fault."""
    parser = Parser(prog="python -m repro.evaluate", description=__doc__)
    parser.add_argument(
        "keys", metavar="KEY | KEY=VALUE", nargs="*", help="finished runs or snapshots, and what to measure"
    )
    parser.add_argument("--output", default="outputs", help="output folder (default: %(default)s)")
    parser.add_argument("--config-dir", "-cd", help="a folder of further configurations, as for repro.run")
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    # Options may stand between keys and overrides.
    options = parser.parse_intermixed_args(arguments)
    return run(options.keys, options.output, options.config_dir)


def run(words: Sequence[str], output: str, config_dir: str | None = None) -> int:
    """Measure, and report; returns the exit status.

    Args:
        words: keys of finished runs, and overrides.
        output: the output folder.
        config_dir: a folder of further configurations.

    Raises:
        ReproError: the request is at fault.
    """
    files = [word for word in keys_in(words) if word.endswith(".pt")]
    words = [word for word in words if word not in files]
    keys, overrides = keys_in(words), [w for w in words if "=" in w]
    refuse_output_dir(overrides)
    for file in files:
        measure_file(Path(file), overrides, output, config_dir)
    if files and not keys:
        return 0
    if not keys:
        raise ReproError(f"KEY is missing in {' '.join(words)!r}; name a finished run, a folder in {output}/runs.")
    for key in keys:
        existing_folder(output, key)
    return measure(keys, overrides, output, config_dir)


def measure(keys: Sequence[str], overrides: Sequence[str], output: str, config_dir: str | None = None) -> int:
    """Measure finished runs, and report; returns the exit status.

    Raises:
        ReproError: the request is at fault.
    """
    from repro.jobs.launching import Command  # noqa: PLC0415  (imports torch, which takes seconds)
    from repro.plans.planned import Run, union  # noqa: PLC0415
    from repro.plans.planning import measured_otherwise  # noqa: PLC0415
    from repro.stored.output import prepare_output  # noqa: PLC0415
    from repro.stored.results import check_others  # noqa: PLC0415
    from repro.stored.trained import Trained  # noqa: PLC0415

    runs = []
    for key in keys:
        trained = Trained.open(output, key)
        trained.check_finished()
        config = replace(measured_otherwise(trained.config, overrides, config_dir), output_dir=output)
        check_others(config)
        runs.append(Run([config], trained.record.labels, trained.record.title))
    command = Command(prepare_output(output), runs[0].config.tracking_uri, None)
    status = command.do([union(runs)])
    command.show(runs)
    return status


def measure_file(path: Path, overrides: Sequence[str], output: str, config_dir: str | None = None) -> None:
    """Measure the read-outs of a `snapshot.pt`, and print what is found.

    Args:
        output: where runs are that it is measured against.

    Raises:
        ReproError: the file is none, or the request is at fault.
    """
    if not path.is_file():
        raise ReproError(f"there is no file {path}.")
    import torch  # noqa: PLC0415  (as above)
    from rich.table import Table  # noqa: PLC0415

    from repro.config.checks import game_of  # noqa: PLC0415
    from repro.evaluation.base import Subject  # noqa: PLC0415
    from repro.plans.planning import measured_otherwise  # noqa: PLC0415
    from repro.stored.results import open_other  # noqa: PLC0415
    from repro.stored.trained import load_portable, readout_objects  # noqa: PLC0415
    from repro.tracking.progress import console  # noqa: PLC0415

    stored, snapshot = load_portable(path)
    config = replace(measured_otherwise(stored, overrides, config_dir), output_dir=output)
    torch.set_num_threads(config.threads)
    game = game_of(config)
    readouts = readout_objects(game, config)
    table = Table("read-out", "metric", "value", box=None)
    for name, evaluation in config.evaluation.items():
        others = {reference: open_other(config, game, name, reference) for reference in evaluation.others}
        for problem in evaluation.problems_with(others, [snapshot.iteration]):
            raise ReproError(f"evaluation.{name}: {problem}")
        subject = Subject(game, config.seed, snapshot, readouts, others)
        for readout, metrics in evaluation.measure(subject).items():
            for metric, value in metrics.items():
                table.add_row(readout, metric, f"{value:.6g}")
    print(f"{config.game['name']}, {path} after iteration {snapshot.iteration}")
    console(sys.stdout).print(table)


if __name__ == "__main__":
    sys.exit(main())
