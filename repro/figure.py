"""Make figures: `python -m repro.figure figure1 --scale laptop`, several at once, or `figures` for all of them.

A target's sweeps are command lines in its module (`SWEEPS`). The trainings that all targets ask for are planned
once, so that what they share is done once; then each target is drawn from what its runs left. `--draw` draws again from
the exported CSV alone and touches nothing else.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd

from paper_figures import claims as claims_of
from paper_figures import frame, page
from repro import durable
from repro.errors import ReproError
from repro.faults import disk_faults_told
from repro.stopping import CAN_BE_REPEATED, stoppable
from repro.suggestions import did_you_mean

if TYPE_CHECKING:
    from repro.config.schema import Config
    from repro.planned import Run

ROOT = Path(__file__).resolve().parents[1]
SCALES = ("smoke", "laptop", "night", "paper")
ALL = "figures"
"""Names all targets."""


@dataclass(frozen=True)
class Options:
    """How targets are made.

    Attributes:
        scale: which departures from the published settings.
        output: the output folder.
        jobs: runs at once.
        device: cpu or cuda.
        force: run again what is finished.
    """

    scale: str
    output: Path
    jobs: int
    device: str
    force: bool

    def folder(self, target: str) -> Path:
        """Where a target is drawn."""
        return self.output / "figures" / f"{target}-{self.scale}"


@dataclass(frozen=True)
class PlannedSweep:
    """One sweep of a target at a scale.

    Attributes:
        name: of the sweep within the target; empty where there is only one.
        command: as a user could type it.
        configs: of its runs.
        published: overrides that ask for the published setting.
    """

    name: str
    command: str
    configs: Sequence[Config]
    published: tuple[str, ...]


# -- targets ---------------------------------------------------------------------------------------------------------


def targets() -> list[str]:
    """Names of all targets: those that have a page."""
    return sorted(path.stem for path in (ROOT / "paper_figures").glob("*.md"))


def module_of(target: str) -> ModuleType:
    """The module that draws a target and judges its claims.

    Raises:
        ReproError: unknown target.
    """
    if target not in targets():
        hint = did_you_mean(target, [*targets(), ALL, "list"])
        raise ReproError(f"target {target!r} is unknown{hint}; the targets are {', '.join(targets())}.")
    module = importlib.import_module(f"paper_figures.{target}")
    needed = ("TITLE", "GAME", "SHOWS", "SWEEPS", "draw", "claims", "table")
    lacking = [name for name in needed if not hasattr(module, name)]
    if lacking:
        raise ReproError(f"paper_figures/{target}.py lacks {', '.join(lacking)}.")
    return module


def list_targets() -> None:
    """Print every target with what it shows."""
    from rich.table import Table  # noqa: PLC0415

    from repro.tracking.progress import console  # noqa: PLC0415

    table = Table("make target", "paper item", "game", "what it shows", box=None)
    for target in targets():
        module = module_of(target)
        table.add_row(target, module.TITLE, module.GAME, module.SHOWS)
    console(sys.stdout).print(table)


# -- planning --------------------------------------------------------------------------------------------------------


def plan_target(target: str, options: Options) -> tuple[list[PlannedSweep], list[Run]]:
    """A target's sweeps, and the runs that they ask for.

    Raises:
        ReproError: a sweep cannot be composed.
    """
    planned: list[PlannedSweep] = []
    runs: list[Run] = []
    for sweep in (s for s in module_of(target).SWEEPS if options.scale in (s.only or (options.scale,))):
        overrides = [*sweep.arguments(options.scale), f"target={target}", *_where(options)]
        sweep_runs = _planned(tuple(overrides))
        configs = [config for run in sweep_runs for config in run.configs]
        command = "python -m repro.run -m " + shlex.join([*overrides, "hydra/launcher=joblib"])
        planned.append(PlannedSweep(sweep.name, command, configs, tuple(sweep.arguments("paper"))))
        runs += sweep_runs
    return planned, runs


def _where(options: Options) -> list[str]:
    """What is about the machine."""
    from repro.planning import quoted  # noqa: PLC0415

    output = [] if options.output == Path("outputs").absolute() else [f"output_dir={quoted(str(options.output))}"]
    return [*output, *([] if options.device == "cpu" else [f"device={options.device}"])]


def _planned(overrides: tuple[str, ...]) -> Sequence[Run]:
    from repro.planning import plan  # noqa: PLC0415  (--draw needs none of this)

    return plan(overrides, multirun=True).runs


def _batched(runs: Sequence[Run]) -> list[Run]:
    """Runs that differ by their seed alone as one, where their algorithm can: together they fill a GPU.

    Those of other labels, which seeds that only some of several targets ask for have, are by themselves.
    """
    from repro.config.keys import hyperparameters  # noqa: PLC0415
    from repro.planned import Run  # noqa: PLC0415

    groups: dict[str, list[Run]] = {}
    for run in runs:
        alike = json.dumps([hyperparameters(run.config), dict(run.labels)], sort_keys=True)
        alone = "" if run.config.algorithm.trains_together(run.config) else run.key
        groups.setdefault(alike + alone, []).append(run)
    seeds = [sorted((c for run in group for c in run.configs), key=lambda c: c.seed) for group in groups.values()]
    return [Run(configs, group[0].labels) for configs, group in zip(seeds, groups.values(), strict=True)]


# -- making ----------------------------------------------------------------------------------------------------------


def make(names: Sequence[str], options: Options) -> int:
    """Run what is not finished of all targets together, then draw each; returns the exit status."""
    started = time.monotonic()
    planned = {target: plan_target(target, options) for target in names}
    status = _run([run for _, runs in planned.values() for run in runs], planned, options)
    for target, (sweeps, _) in planned.items():
        missing = _missing(sweeps)
        if missing:
            print(
                f"error: {missing} run(s) of {target} did not finish; repeat the command to continue.", file=sys.stderr
            )
            status = status or 1
            continue
        _collect_and_draw(target, sweeps, options)
        print(f"{target} at scale {options.scale}: done, {(time.monotonic() - started) / 60:.1f} minutes so far")
    return status


def _run(runs: Sequence[Run], planned: dict[str, tuple[list[PlannedSweep], list[Run]]], options: Options) -> int:
    from repro.launching import Command, prepare_output  # noqa: PLC0415
    from repro.planned import stages, union  # noqa: PLC0415
    from repro.planning import check_sizes  # noqa: PLC0415

    if options.force:
        runs = [replace(run, configs=[replace(config, force=True) for config in run.configs]) for run in runs]
    for sweeps, _ in planned.values():
        for sweep in sweeps:
            print(f"$ {sweep.command}", flush=True)
    distinct = union(runs) if options.device == "cpu" else _batched(union(runs))
    due = [run for run in distinct if options.force or any(not _is_done(config) for config in run.configs)]
    print(f"{len(runs)} run(s) asked for, {len(distinct)} different trainings, {len(due)} to be done", flush=True)
    output = prepare_output(str(options.output))
    if not due:
        return 0
    check_sizes(due)
    launcher = ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={options.jobs}"]
    command = Command(output, due[0].config.tracking_uri, launcher)
    return command.do(stages(due))


def _is_done(config: Config) -> bool:
    """Whether a training is finished and measured as asked."""
    from repro.measuring import is_done  # noqa: PLC0415

    return is_done(config)


def _missing(sweeps: Sequence[PlannedSweep]) -> int:
    return sum(not _is_done(config) for sweep in sweeps for config in sweep.configs)


# -- collecting ------------------------------------------------------------------------------------------------------


def _collect_and_draw(target: str, sweeps: Sequence[PlannedSweep], options: Options) -> None:
    module, folder = module_of(target), options.folder(target)
    data = collect(target, options.scale, sweeps)
    if hasattr(module, "select"):
        data = module.select(data)
    provenance = {"drawn_on": time.strftime("%Y-%m-%d"), "sweeps": [provenance_of(sweep) for sweep in sweeps]}
    files, claims = _drawn(module, data)
    folder.mkdir(parents=True, exist_ok=True)
    # Written last, so that whoever finds them finds what belongs to them.
    (folder / "claims.json").unlink(missing_ok=True)
    frame.write(data, folder / "data.csv")
    durable.write(folder / "provenance.json", (json.dumps(provenance, indent=2) + "\n").encode())
    _write_drawn(files, claims, folder, target)


def collect(target: str, scale: str, sweeps: Sequence[PlannedSweep]) -> pd.DataFrame:
    """Everything that was measured of a target's runs, as `paper_figures.frame` describes it."""
    from repro.config.keys import hyperparameters  # noqa: PLC0415
    from repro.measuring import measured_rows  # noqa: PLC0415

    columns = frame.swept_columns([[hyperparameters(config) for config in sweep.configs] for sweep in sweeps])
    parts = []
    for sweep, swept in zip(sweeps, columns, strict=True):
        runs = [
            pd.DataFrame(measured_rows(config), columns=["readout", *frame.MEASURED]).assign(
                target=target, scale=scale, algorithm=config.algorithm.name, seed=config.seed
            )
            for config in sweep.configs
        ]
        parts.append(frame.of_sweep(sweep.name, runs, swept))
    return pd.concat(parts, ignore_index=True)


def provenance_of(sweep: PlannedSweep) -> dict[str, Any]:
    """What a sweep's runs were made with, and how they depart from the published setting."""
    from repro.config.keys import flatten, hyperparameters, training_config  # noqa: PLC0415
    from repro.measuring import evaluated_with  # noqa: PLC0415
    from repro.tracking import record as records  # noqa: PLC0415
    from repro.trained import folder_of  # noqa: PLC0415

    run_records = [records.read(folder_of(c)) for c in sweep.configs]
    facts = sorted({fact for record in run_records for fact in record.made_with})
    published = [config for run in _planned(sweep.published) for config in run.configs]
    first = training_config(sweep.configs[0])
    del first["seed"]
    return {
        "command": sweep.command,
        **{fact: sorted({v for record in run_records for v in record.made_with.get(fact, [])}) for fact in facts},
        "evaluated_with": sorted({commit for config in sweep.configs for commit in evaluated_with(config)}),
        "sweep": sweep.name,
        "seeds": sorted({config.seed for config in sweep.configs}),
        "wall_seconds": [round(record.wall_seconds, 1) for record in run_records],
        "config": first,
        "evaluation": flatten({n: e.identity() for n, e in sweep.configs[0].evaluation.items()}),
        "deviations_from_paper": deviations(
            [hyperparameters(c) for c in published], [hyperparameters(c) for c in sweep.configs]
        ),
    }


def deviations(paper: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Keys in which a sweep differs from the published one: `{key: [paper, here]}`; of swept keys all values."""
    paper_values, our_values = _values(paper), _values(ours)
    return {
        key: [paper_values.get(key), our_values.get(key)]
        for key in sorted(paper_values.keys() | our_values.keys())
        if paper_values.get(key) != our_values.get(key)
    }


def _values(flat: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Every key with its value, or, where runs differ, with all of them in order of the runs, as text."""
    together = {}
    for key in flat[0]:
        values = list(dict.fromkeys(str(f.get(key)) for f in flat))
        together[key] = flat[0][key] if len(values) == 1 else ", ".join(values)
    return together


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw(module: ModuleType, data: pd.DataFrame, folder: Path, target: str) -> None:
    """Write png and pdf, `claims.json`, and print the verdicts."""
    _write_drawn(*_drawn(module, data), folder, target)


def _drawn(module: ModuleType, data: pd.DataFrame) -> tuple[dict[str, bytes], Sequence[claims_of.Claim]]:
    """The picture's files by their endings, and the verdicts."""
    figure, files = module.draw(data), dict[str, bytes]()
    for ending in ("png", "pdf"):
        content = io.BytesIO()
        # No creation date in the file: the same data gives the same bytes.
        figure.savefig(content, format=ending, metadata={"CreationDate": None} if ending == "pdf" else None)
        files[ending] = content.getvalue()
    return files, module.claims(data)


def _write_drawn(files: dict[str, bytes], claims: Sequence[claims_of.Claim], folder: Path, target: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for ending, content in files.items():
        durable.write(folder / f"{target}.{ending}", content)
    claims_of.write(claims, folder / "claims.json")
    _print_claims(claims)
    print(f"figure, data and verdicts: {folder}")


def _print_claims(claims: Sequence[claims_of.Claim]) -> None:
    from rich.table import Table  # noqa: PLC0415

    from repro.tracking.progress import console  # noqa: PLC0415

    table = Table("claim", "paper", "ours, mean [95% CI]", "verdict", box=None)
    testable = [c for c in claims if c.verdict != claims_of.NOT_TESTABLE]
    for c in testable:
        paper = "" if c.paper is None else f"{c.paper:.3g}"
        table.add_row(c.statement, paper, f"{c.measured} {c.unit}" if c.measured else "", c.verdict)
    if testable:
        console(sys.stdout).print(table)
    if len(testable) < len(claims):
        print(f"{len(claims) - len(testable)} of {len(claims)} claims are not testable at this scale (see claims.json)")


def draw_again(target: str, options: Options) -> None:
    """Draw from the exported CSV alone.

    Raises:
        ReproError: there is none, or it does not hold what the target is drawn from.
    """
    folder, module = options.folder(target), module_of(target)
    path = folder / "data.csv"
    if not path.exists():
        raise ReproError(f"{path} does not exist; make the figure first.")
    data = frame.read(path)
    for column, needed in (("target", target), ("scale", options.scale)):
        others = sorted(set(data[column]) - {needed})
        if others:
            raise ReproError(f"{path} holds data of {column} {others[0]!r}, not of {needed!r}.")
    try:
        files, claims = _drawn(module, data)
    except Exception as error:  # What draws runs' results can fail in any way on what is none.
        raise ReproError(
            f"{path} does not hold what {target} is drawn from ({type(error).__name__}); make the figure again, which "
            "repeats no finished run."
        ) from error
    _write_drawn(files, claims, folder, target)


def publish(target: str, options: Options) -> None:
    """Copy a drawn figure to `paper_figures/results/` and bring its page up to date.

    Raises:
        ReproError: it is not drawn, or data, verdicts or provenance are damaged, or its page has no place for it.
    """
    source, results = options.folder(target), ROOT / "paper_figures" / "results" / f"{target}-{options.scale}"
    if not (source / "claims.json").exists():
        raise ReproError(
            f"{source} holds no finished figure; make it first with `make {target} SCALE={options.scale}`."
        )
    names = (f"{target}.png", f"{target}.pdf", "data.csv", "claims.json", "provenance.json")
    for name in (name for name in names if not (source / name).is_file()):
        raise ReproError(
            f"{source / name} does not exist; draw it again with `make draw TARGET={target} SCALE={options.scale}`."
        )
    text = page.filled_in(target, options.scale, module_of(target), source)
    results.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy(source / name, results / name)
    durable.write(page.page_of(target), text.encode())
    print(f"published to {results} and paper_figures/{target}.md")


# -- the command -----------------------------------------------------------------------------------------------------


@stoppable(CAN_BE_REPEATED)
def main() -> int:
    """Entry point; exit status 2 for a faulty request, 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m repro.figure", description=__doc__)
    parser.add_argument("targets", nargs="+", metavar="target", help=f"targets, '{ALL}', or 'list'")
    parser.add_argument("--scale", default="laptop", help=f"{', '.join(SCALES)} (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once (default: cores)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="output folder")
    parser.add_argument("--force", action="store_true", help="run again what is finished")
    parser.add_argument("--draw", action="store_true", help="draw again from the exported CSV, run nothing")
    parser.add_argument("--publish", action="store_true", help="copy a drawn figure to paper_figures/results")
    arguments = parser.parse_args()
    options = Options(arguments.scale, arguments.output.absolute(), arguments.jobs, arguments.device, arguments.force)
    try:
        return _answer(arguments, options)
    except ReproError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _check(options: Options) -> None:
    from repro.planned import MOST_AT_ONCE  # noqa: PLC0415  (`list` needs none of this)

    if options.scale not in SCALES:
        hint = did_you_mean(options.scale, SCALES)
        raise ReproError(f"--scale is {options.scale!r}; it must be one of {', '.join(SCALES)}{hint}.")
    if not 1 <= options.jobs <= MOST_AT_ONCE:
        raise ReproError(f"--jobs is {options.jobs}; it must be from 1 to {MOST_AT_ONCE}.")


@disk_faults_told()
def _answer(arguments: argparse.Namespace, options: Options) -> int:
    if arguments.targets == ["list"]:
        list_targets()
        return 0
    names = targets() if arguments.targets == [ALL] else arguments.targets
    for target in names:
        module_of(target)
    if arguments.output == Path():
        raise ReproError("--output is ''; it must be the name of a folder.")
    _check(options)
    each: Callable[[str, Options], None] | None = None
    if arguments.publish or arguments.draw:
        each = publish if arguments.publish else draw_again
    if each is None:
        return make(names, options)
    for target in names:
        each(target, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
