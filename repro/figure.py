"""Make figures: `python -m repro.figure figure1 --scale laptop`, several at once, or `figures` for all of them.

A target's sweeps are command lines in its module (`SWEEPS`). The trainings that all targets ask for are planned
once, so that what they share is done once; then each target is drawn from what its runs left. `--seeds` runs the first
seeds of each sweep only; `--published` takes what is published of a target's runs and runs the rest, so that published
results grow seed by seed, on whatever machine. `--sweep` runs one sweep alone, or several, on this machine, and draws
them beside what is exported, or published, of the others. `--draw` draws again from the exported CSV alone and touches
nothing else. `--on` has the runs done by a cluster's jobs, and `--collect` takes in what these have
finished, and draws what is complete.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.common.arguments import Parser
from repro.common.errors import ReproError, StorageError
from repro.common.faults import faults_told
from repro.common.importing import quicker_imports
from repro.common.stopping import CAN_BE_REPEATED, stoppable
from repro.figures.targets import (
    ALL,
    SCALES,
    Options,
    PlannedSweep,
    check_made_at,
    check_options,
    check_target,
    targets,
)
from repro.jobs.elsewhere import Elsewhere, add_options, elsewhere
from repro.shown.commands import make_ui_command, show_target

if TYPE_CHECKING:
    import pandas as pd

    from repro.config.schema import Config
    from repro.figures.drawing import Exported
    from repro.figures.growing import Planned
    from repro.plans.planned import Run


def make(names: Sequence[str], options: Options, where: Elsewhere | None = None) -> int:
    """Run what is not finished of all targets together, then draw each; returns the exit status.

    Args:
        where: the runs are done, or are collected from; None: here.
    """
    with quicker_imports():
        from repro.figures.growing import planned  # noqa: PLC0415  (imports pandas, which takes a second)

    started = time.monotonic()
    plans = {target: planned(target, options) for target in names}
    _tell_parts(plans, options)
    runs = [run for plan in plans.values() for run in plan.new_runs]
    if where is None or where.is_here or not runs:
        status = _run(runs, [sweep for plan in plans.values() for sweep in plan.new_sweeps], options)
    elif where.collects:
        status = _elsewhere(names, runs, options, where)
    else:
        return _elsewhere(names, runs, options, where)
    for target, plan in plans.items():
        missing = _missing(plan.new_sweeps)
        if missing:
            what = "are not there yet" if where is not None and where.collects else "did not finish"
            print(f"error: {missing} training(s) of {target} {what}; repeat the command to continue.", file=sys.stderr)
            status = status or 1
            continue
        _show(target, plan, _collect_and_draw(target, plan, options), options)
        print(f"{target} at scale {options.scale}: done after {(time.monotonic() - started) / 60:.1f} minutes")
    return status


def _tell_parts(plans: Mapping[str, Planned], options: Options) -> None:
    """Print what is taken of published results, and what is left out because it was not asked for."""
    for target, plan in plans.items():
        if options.published:
            plan.tell_taken(target, options.scale)
        if plan.unasked:
            print(f"{target}: left out unless asked for, by SWEEP='{' '.join(plan.unasked)}'")


def make_sweeps(target: str, names: Sequence[str], options: Options) -> int:
    """Run some of a target's sweeps, and draw it with what is exported, or published, of the others.

    Raises:
        ReproError: it has no such sweep, or there are no older data that can be drawn beside them.
    """
    with quicker_imports():
        from repro.figures.drawing import exported  # noqa: PLC0415  (as above)
        from repro.figures.growing import planned_sweeps  # noqa: PLC0415

    plan = planned_sweeps(target, names, options)
    exported(target, options)  # That there is such is known before hours of work.
    status = _run(plan.new_runs, plan.new_sweeps, options)
    if missing := _missing(plan.new_sweeps):
        print(
            f"error: {missing} training(s) of {target} did not finish; repeat the command to continue.", file=sys.stderr
        )
        return status or 1
    # As they are now: others may have made other sweeps meanwhile.
    _draw_beside(target, plan, exported(target, options), options)
    return status


def _elsewhere(names: Sequence[str], runs: Sequence[Run], options: Options, where: Elsewhere) -> int:
    """Have runs done by jobs, do a part of them, or collect them; returns the exit status."""
    from repro.jobs import cluster  # noqa: PLC0415
    from repro.plans.planned import union  # noqa: PLC0415

    output = [] if options.output == Path("outputs").absolute() else ["--output", str(options.output)]
    store = [] if options.tracking_uri is None else ["--tracking-uri", options.tracking_uri]
    device = [] if options.device == "cpu" else ["--device", options.device]
    about = ["--scale", options.scale, *output, *store, *device]
    fewer = [] if options.seeds is None else ["--seeds", str(options.seeds)]
    beside = ["--published"] if options.published else []
    again = f"python -m repro.figure {shlex.join([*names, *about, *fewer, *beside])}"
    if where.collects:
        return 1 if cluster.collect(runs, again) else 0
    runs = _forced(runs, options)
    together = _batched(union(runs))
    if where.part is not None:
        return cluster.do_part(together, where.part, options.jobs, again)
    return cluster.submit(together, where, options.jobs, again)


def _forced(runs: Sequence[Run], options: Options) -> Sequence[Run]:
    if not options.force:
        return runs
    return [replace(run, configs=[replace(config, force=True) for config in run.configs]) for run in runs]


def _run(runs: Sequence[Run], sweeps: Sequence[PlannedSweep], options: Options) -> int:
    from repro.jobs.launching import Command  # noqa: PLC0415
    from repro.jobs.needs import check_here, lacking_a_gpu  # noqa: PLC0415
    from repro.plans.planned import stages, union  # noqa: PLC0415
    from repro.stored.output import prepare_output  # noqa: PLC0415

    runs = _forced(runs, options)
    distinct = _batched(union(runs))
    due = [run for run in distinct if options.force or any(not _is_done(config) for config in run.configs)]
    if options.device == "cpu" and (lacking := lacking_a_gpu(due)):
        raise ReproError(f"{lacking} (docs/runs.md): take another scale, or with --sweep sweeps that need none.")
    check_here(due)
    for sweep in sweeps:
        print(f"$ {sweep.command}", flush=True)
    print(f"{len(runs)} run(s) asked for, {len(distinct)} different trainings, {len(due)} to be done", flush=True)
    _tell_reused([run for run in distinct if run not in due])
    output = prepare_output(str(options.output))
    if not due:
        return 0
    launcher = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={options.jobs}"]
    command = Command(output, due[0].config.tracking_uri, launcher)
    return command.do(stages(due))


def _tell_reused(runs: Sequence[Run]) -> None:
    """Say with which code trainings were made that are not done again."""
    from repro.stored.trained import folder_of  # noqa: PLC0415
    from repro.tracking import record as records  # noqa: PLC0415
    from repro.tracking.staleness import made_at  # noqa: PLC0415

    finished = [(config, records.read(folder_of(config))) for run in runs for config in run.configs]
    for sentence, count in Counter(made_at(finished)).items():
        print(f"{count} finished training(s) skipped, {sentence}", flush=True)


def _is_done(config: Config) -> bool:
    """Whether a training is finished and measured as asked."""
    from repro.stored.results import is_done  # noqa: PLC0415

    return is_done(config)


def _missing(sweeps: Sequence[PlannedSweep]) -> int:
    """How many trainings of sweeps, which may share some, are not finished."""
    return sum(not _is_done(config) for config in _keys(sweeps).values())


def _keys(sweeps: Sequence[PlannedSweep]) -> dict[str, Config]:
    """The different trainings of sweeps by their keys."""
    from repro.config.keys import training_key  # noqa: PLC0415

    return {training_key(config): config for sweep in sweeps for config in sweep.configs}


def _collect_and_draw(target: str, plan: Planned, options: Options) -> pd.DataFrame:
    from repro.figures.collecting import beside, collect, provenance_of  # noqa: PLC0415  (--draw needs none of this)
    from repro.figures.drawing import draw  # noqa: PLC0415

    sources: list[Mapping[str, Any]] = [provenance_of(sweep) for sweep in plan.new_sweeps]
    if plan.reused is None:
        data = collect(target, options.scale, plan.sweeps)
    else:
        data = beside(target, options.scale, plan.sweeps, plan.new_sweeps, plan.reused.data)
        sources = [*plan.reused.provenance, *sources]
    draw(target, data, {"drawn_on": time.strftime("%Y-%m-%d"), "sweeps": sources}, options.folder(target))
    return data


def _draw_beside(target: str, plan: Planned, older: Exported, options: Options) -> None:
    """Draw a target from sweeps that were run now, and older data of the others."""
    from repro.figures.collecting import beside, provenance_beside  # noqa: PLC0415
    from repro.figures.drawing import draw  # noqa: PLC0415

    then, made_with = older
    others = then[~then.sweep.isin([sweep.name for sweep in plan.new_sweeps])]
    data = beside(target, options.scale, plan.sweeps, plan.new_sweeps, others)
    sources = provenance_beside(plan.new_sweeps, made_with["sweeps"], then)
    draw(target, data, {**made_with, "drawn_on": time.strftime("%Y-%m-%d"), "sweeps": sources}, options.folder(target))


def _show(target: str, plan: Planned, data: pd.DataFrame, options: Options) -> None:
    """Leave in MLflow what shows a target's runs together, and print links to it."""
    from mlflow.exceptions import MlflowException  # noqa: PLC0415  (MLflow takes seconds)

    from repro.tracking.store import default_uri, open_store  # noqa: PLC0415

    try:
        client = open_store(plan.runs[0].config.tracking_uri or default_uri(options.output))
        links = show_target(client, target, options.scale, (plan.sweeps, plan.runs), data, options.folder(target))
    except (StorageError, MlflowException) as error:  # The figure is drawn.
        print(f"warning: the MLflow UI lacks a view of {target}: {error}", file=sys.stderr)
        return
    serve = make_ui_command(options.output, target, options.scale)
    for link in links:
        print(f"compare its runs in the MLflow UI ({serve}): {link}")


def _batched(runs: Sequence[Run]) -> list[Run]:
    """Runs on a GPU that differ by their seed alone as one, where their algorithm can: together they fill it.

    Those of other labels, which seeds that only some of several targets ask for have, are by themselves.
    """
    from repro.config.keys import hyperparameters  # noqa: PLC0415
    from repro.plans.planned import Run  # noqa: PLC0415

    groups: dict[str, list[Run]] = {}
    for run in runs:
        alike = json.dumps([hyperparameters(run.config), dict(run.labels)], sort_keys=True)
        together = run.config.device == "cuda" and run.config.algorithm.trains_together(run.config)
        alone = "" if together else run.key
        groups.setdefault(alike + alone, []).append(run)
    seeds = [sorted((c for run in group for c in run.configs), key=lambda c: c.seed) for group in groups.values()]
    return [
        Run(configs, group[0].labels, group[0].title) for configs, group in zip(seeds, groups.values(), strict=True)
    ]


def foresee(names: Sequence[str], options: Options, sweeps: Sequence[str] = ()) -> int:
    """Print what making these targets would do, without doing it; returns the exit status.

    Args:
        sweeps: of the only target, names of those that are to be made; empty: all.

    Raises:
        ReproError: it has no such sweep.
    """
    with quicker_imports():
        from repro.estimates.outlook import outlooks, show  # noqa: PLC0415
        from repro.figures.growing import planned, planned_sweeps  # noqa: PLC0415  (as above)
        from repro.jobs.needs import lacking_a_gpu  # noqa: PLC0415

    print(f"{', '.join(names)} at scale {options.scale}:")
    if sweeps:
        plans = {target: planned_sweeps(target, sweeps, options) for target in names}
    else:
        plans = {target: planned(target, options) for target in names}
        _tell_parts(plans, options)
    runs = [run for plan in plans.values() for run in plan.new_runs]
    show(outlooks(_forced(runs, options), options.output), options.jobs)
    if lacking := lacking_a_gpu(runs):
        print(lacking)
    return 0


@stoppable(CAN_BE_REPEATED)
@faults_told
def main() -> int:
    """Entry point; exit status 2 for a faulty request, 1 if a run failed."""
    parser = Parser(prog="python -m repro.figure", description=__doc__)
    parser.add_argument("targets", nargs="+", metavar="target", help=f"targets, '{ALL}', or 'list'")
    parser.add_argument("--scale", default="laptop", help=f"{', '.join(SCALES)} (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once (default: cores)")
    parser.add_argument(
        "--device", default="cpu", choices=("cpu", "cuda"),
        help="where runs are trained whose sweep does not say it itself (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="output folder")
    parser.add_argument("--tracking-uri", help="MLflow store, such as a server's (default: in the output folder)")
    parser.add_argument("--force", action="store_true", help="run again what is finished")
    parser.add_argument(
        "--plan", "--dry-run", action="store_true", help="say what would be done and how long it may take, do nothing"
    )
    parser.add_argument("--draw", action="store_true", help="draw again from the exported CSV, run nothing")
    parser.add_argument("--publish", action="store_true", help="copy a drawn figure to paper_figures/results")
    parser.add_argument("--seeds", type=int, help="run so many seeds of every sweep, the first ones (default: all)")
    parser.add_argument(
        "--published", action="store_true", help="take what is published of a target's runs, and run the rest only"
    )
    parser.add_argument(
        "--sweep",
        action="append",
        help="run this sweep of one target alone, drawn beside the others' data; may be repeated",
    )
    add_options(parser)
    arguments = parser.parse_args()
    options = Options(
        arguments.scale, arguments.output.absolute(), arguments.jobs, arguments.device, arguments.force,
        arguments.tracking_uri, arguments.seeds, arguments.published,
    )  # fmt: skip
    return _answer(arguments, options)


def _answer(arguments: argparse.Namespace, options: Options) -> int:
    if arguments.targets == ["list"]:
        from repro.figures.listing import print_targets  # noqa: PLC0415

        print_targets()
        return 0
    names = targets() if arguments.targets == [ALL] else arguments.targets
    for target in names:
        check_target(target)
    if arguments.output == Path():
        raise ReproError("--output is ''; it must be the name of a folder.")
    check_options(options)
    where = elsewhere(arguments)
    if not where.is_here and (arguments.plan or arguments.draw or arguments.publish):
        raise ReproError("--plan, --draw and --publish do no runs; leave out what says where these are done.")
    if options.published and options.force:
        raise ReproError("--published and --force cannot be given together: what is published is not done again.")
    if where.collects and options.force:
        raise ReproError("--collect and --force cannot be given together: nothing is done again.")
    alone = _alone(arguments, names, where) if arguments.sweep else None
    if (arguments.publish or arguments.draw) and not arguments.plan:
        return _draw_alone(names, options, arguments.publish)
    for target in names:
        check_made_at(target, options.scale)
    if arguments.plan:
        return foresee(names, options, arguments.sweep or ())
    return make(names, options, where) if alone is None else make_sweeps(alone, arguments.sweep, options)


def _draw_alone(names: Sequence[str], options: Options, publishes: bool) -> int:
    """Draw targets again, or publish what is drawn, and run nothing; returns the exit status.

    Raises:
        ReproError: what to run was said, or a target cannot be drawn.
    """
    from repro.figures.drawing import draw_again, publish  # noqa: PLC0415  (as above)
    from repro.report.readme import refresh_readme  # noqa: PLC0415  (as above)

    if options.seeds is not None or options.published:
        raise ReproError("--seeds and --published say which runs are made; --draw and --publish make none.")
    for target in names:
        (publish if publishes else draw_again)(target, options)
    if publishes:
        refresh_readme()
        print("README.md says the same, in its table and its picture")
    return 0


def _alone(arguments: argparse.Namespace, names: Sequence[str], where: Elsewhere) -> str:
    """The target of which sweeps are run alone.

    Raises:
        ReproError: `--sweep` is given with what it cannot be.
    """
    if len(names) != 1:
        raise ReproError(f"--sweep is {arguments.sweep[0]!r}, of one target; {len(names)} are given.")
    if not where.is_here or arguments.draw or arguments.publish or arguments.published:
        raise ReproError(
            "--sweep runs and draws here, beside what is published; leave out --draw, --publish, --published, and what "
            "says where runs are done."
        )
    return names[0]


if __name__ == "__main__":
    sys.exit(main())
