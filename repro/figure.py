"""Make a figure: `python -m repro.figure figure1 --scale laptop`.

Runs the sweep of `conf/experiment/<target>/<scale>.yaml`, or those of `conf/experiment/<target>/<part>/<scale>.yaml`
one after the other (finished runs are skipped), then draws from what MLflow holds. Targets that draw from the same runs
name them in `RUNS`. `--draw` draws again from the exported CSV alone and touches nothing else.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from repro.errors import ReproError

ROOT = Path(__file__).resolve().parents[1]
INTERRUPTED = 130
"""Exit status after Ctrl-C."""

SCALES = ("smoke", "laptop", "paper")


def targets() -> list[str]:
    """Names of all targets: those that have a page."""
    return sorted(page.stem for page in (ROOT / "paper_figures").glob("*.md"))


def module_of(target: str) -> ModuleType:
    """The module that draws a target and judges its claims.

    Raises:
        ReproError: unknown target.
    """
    if target not in targets():
        raise ReproError(f"target {target!r} is unknown; the targets are {', '.join(targets())}.")
    module = importlib.import_module(f"paper_figures.{target}")
    lacking = [name for name in ("TITLE", "GAME", "SHOWS", "draw", "claims", "table") if not hasattr(module, name)]
    if lacking:
        raise ReproError(f"paper_figures/{target}.py lacks {', '.join(lacking)}.")
    return module


def experiments(target: str, scale: str) -> list[str]:
    """The experiments that a target consists of, as `+experiment=` takes them.

    They are made in the order of its `RUNS`, or else alphabetically: a part that refers to another's runs must come
    after it.
    """
    named = getattr(module_of(target), "RUNS", None)
    if named is not None:
        return [f"{part}/{scale}" for part in named]
    folder = ROOT / "conf" / "experiment"
    found = [*(folder / target).glob(f"{scale}.yaml"), *(folder / target).glob(f"*/{scale}.yaml")]
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in found)


def sweep_arguments(experiment: str, output: Path, jobs: int, device: str, force: bool) -> list[str]:
    """Arguments after `python -m repro.run`."""
    arguments = ["-m", f"+experiment={experiment}", "hydra/launcher=joblib", f"hydra.launcher.n_jobs={jobs}"]
    if output != Path("outputs").absolute():
        arguments.append(f"output_dir={output}")
    if device != "cpu":
        arguments += [f"device={device}", *_batched(experiment)]
    return [*arguments, "force=true"] if force else arguments


def _batched(experiment: str) -> list[str]:
    """Arguments that make one batched run of the seeds of a sweep, if its algorithm can: they fill a GPU together."""
    from repro.config import DeepCFRConfig, settings  # noqa: PLC0415  (--draw needs none of this)
    from repro.games import load_game  # noqa: PLC0415
    from repro.games.holdem import HoldemCards  # noqa: PLC0415
    from repro.run import plan, without_hydra  # noqa: PLC0415

    configs = [settings(without_hydra(c)) for c in plan([f"+experiment={experiment}"], multirun=True)]
    if type(configs[0].algorithm) is not DeepCFRConfig:
        return []
    if not isinstance(load_game(configs[0].game).cards, HoldemCards):
        return []
    return ["seed=0", f"seeds={sorted({c.seed for c in configs})}"]


def run_sweep(arguments: list[str]) -> int:
    """Do the sweep in a process of its own, as a user would; returns its exit status."""
    from repro.run import COMMAND_PROCESS  # noqa: PLC0415  (--draw needs none of this)

    print("$ python -m repro.run " + shlex.join(arguments), flush=True)
    ours = {COMMAND_PROCESS: f"{socket.gethostname()}:{os.getpid()}"}
    process = subprocess.Popen([sys.executable, "-m", "repro.run", *arguments], env=os.environ | ours)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The terminal sent it to the sweep as well, which closes its runs and says so.
            continue


def planned(arguments: list[str]) -> list[Any]:
    """Configurations of a sweep's runs, a run per seed."""
    from repro.config import single_runs  # noqa: PLC0415  (--draw needs none of this)
    from repro.run import plan, without_hydra  # noqa: PLC0415

    return [one for c in plan(arguments[1:], multirun=True) for one in single_runs(without_hydra(c))]


def stored(configs: list[Any], output: Path) -> tuple[Any, str, list[dict[str, Any]]]:
    """MLflow's client, the experiment, and of each run what is stored by read-out."""
    from repro.config import run_key  # noqa: PLC0415
    from repro.tracking.store import default_uri, experiment_id, find_runs, open_store  # noqa: PLC0415

    client = open_store(configs[0].tracking_uri or default_uri(output))
    experiment = experiment_id(client, configs[0].target, output / "artifacts")
    return client, experiment, [find_runs(client, experiment, run_key(c)) for c in configs]


def unfinished(configs: list[Any], found: list[dict[str, Any]]) -> int:
    """How many of the runs are not finished."""
    from repro.tracking.store import is_finished  # noqa: PLC0415

    return sum(not is_finished(f, c.algorithm.readouts) for f, c in zip(found, configs, strict=True))


def collect(
    arguments: list[str], configs: list[Any], swept: list[dict[str, Any]], output: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The sweep's data, and the provenance of its runs.

    Args:
        swept: of each run its columns of swept keys.

    Raises:
        ReproError: a run of the sweep is not finished.
    """
    from paper_figures import frame  # noqa: PLC0415
    from repro.config import result_config, run_key  # noqa: PLC0415
    from repro.tracking.results import tidy  # noqa: PLC0415
    from repro.tracking.store import TRAINING  # noqa: PLC0415

    client, experiment, found = stored(configs, output)
    missing = unfinished(configs, found)
    if missing:
        raise ReproError(f"{missing} of {len(configs)} runs are not finished; nothing is drawn.")
    finished = [f[TRAINING] for f in found]
    _, *name, _ = arguments[1].removeprefix("+experiment=").split("/")
    data = frame.of_sweep("".join(name), [tidy(client, experiment, [run_key(c)]) for c in configs], swept)
    tags = ("git_commit", "git_dirty", "cpu", "cores", "gpu", "platform", "python", "repro", "torch",
            "pytorch-lightning", "hydra-core", "mlflow", "pandas", "numpy", "matplotlib")  # fmt: skip
    provenance = {
        "command": "python -m repro.run " + shlex.join(arguments),
        **{tag: sorted({run.data.tags[tag] for run in finished}) for tag in tags},
        "experiment": arguments[1].removeprefix("+experiment="),
        "seeds": sorted({int(run.data.params["seed"]) for run in finished}),
        "wall_seconds": [round(run.data.metrics["wall_seconds"], 1) for run in finished],
        "config": {k: v for k, v in result_config(configs[0]).items() if k != "seed"},
        "deviations_from_paper": deviations(arguments[1].removeprefix("+experiment="), configs),
    }
    return data, provenance


def swept_columns(sweeps: list[list[Any]]) -> list[list[dict[str, Any]]]:
    """Of each run of each of a target's sweeps, the columns of swept keys, from the runs' configurations."""
    from paper_figures import frame  # noqa: PLC0415
    from repro.config import hyperparameters, result_config  # noqa: PLC0415  (--draw needs none of this)

    return frame.swept_columns([[hyperparameters(result_config(c)) for c in configs] for configs in sweeps])


def deviations(experiment: str, configs: list[Any]) -> dict[str, list[Any]]:
    """Keys in which a sweep differs from the published one: `{key: [paper, here]}`; of swept keys all values."""
    from repro.run import plan, without_hydra  # noqa: PLC0415  (--draw needs none of this)

    published = plan([f"+experiment={experiment.rsplit('/', 1)[0]}/paper"], multirun=True)
    theirs, ours = _values([without_hydra(c) for c in published]), _values(configs)
    return {
        k: [theirs.get(k), ours.get(k)]
        for k in sorted(theirs.keys() | ours.keys())
        if k != "scale" and theirs.get(k) != ours.get(k)
    }


def _values(configs: list[Any]) -> dict[str, Any]:
    """Every key with its value, or, where runs differ, with all of them in order of the runs, as text."""
    from repro.config import hyperparameters, result_config  # noqa: PLC0415

    flat = [hyperparameters(result_config(c)) for c in configs]
    found = {}
    for key in flat[0]:
        values = list(dict.fromkeys(str(f.get(key)) for f in flat))
        found[key] = flat[0][key] if len(values) == 1 else ", ".join(values)
    return found


def draw(module: ModuleType, data: pd.DataFrame, folder: Path, target: str) -> None:
    """Write png and pdf, `claims.json`, and print the verdicts."""
    from paper_figures import claims as claims_of  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    figure = module.draw(data)
    for ending in ("png", "pdf"):
        # No creation date in the file: the same data gives the same bytes.
        figure.savefig(folder / f"{target}.{ending}", metadata={"CreationDate": None} if ending == "pdf" else None)
    found = module.claims(data)
    claims_of.write(found, folder / "claims.json")
    _print_claims(found)
    print(f"figure, data and verdicts: {folder}")


def _print_claims(found: list[Any]) -> None:
    from rich.table import Table  # noqa: PLC0415

    from paper_figures import claims as claims_of  # noqa: PLC0415
    from repro.tracking.progress import console  # noqa: PLC0415

    table = Table("claim", "paper", "ours, mean [95% CI]", "verdict", box=None)
    testable = [c for c in found if c.verdict != claims_of.NOT_TESTABLE]
    for c in testable:
        paper = "" if c.paper is None else f"{c.paper:.3g}"
        table.add_row(c.statement, paper, f"{c.measured} {c.unit}" if c.measured else "", c.verdict)
    if testable:
        console(sys.stdout).print(table)
    if len(testable) < len(found):
        print(f"{len(found) - len(testable)} of {len(found)} claims are not testable at this scale (see claims.json)")


def publish(target: str, scale: str, output: Path) -> None:
    """Copy a drawn figure to `paper_figures/results/` and bring its page up to date."""
    from paper_figures import page  # noqa: PLC0415

    source, results = figure_folder(output, target, scale), ROOT / "paper_figures" / "results" / f"{target}-{scale}"
    if not (source / "claims.json").exists():
        raise ReproError(f"{source} holds no finished figure; make it first with `make {target} SCALE={scale}`.")
    page.check(target, scale)
    results.mkdir(parents=True, exist_ok=True)
    for name in (f"{target}.png", f"{target}.pdf", "data.csv", "claims.json", "provenance.json"):
        shutil.copy(source / name, results / name)
    page.update(target, scale, module_of(target))
    print(f"published to {results} and paper_figures/{target}.md")


def figure_folder(output: Path, target: str, scale: str) -> Path:
    """Where a target is drawn."""
    return output / "figures" / f"{target}-{scale}"


def list_targets() -> None:
    """Print every target with what it shows."""
    from rich.table import Table  # noqa: PLC0415

    from repro.tracking.progress import console  # noqa: PLC0415

    table = Table("make target", "paper item", "game", "what it shows", box=None)
    for target in targets():
        module = module_of(target)
        table.add_row(target, module.TITLE, module.GAME, module.SHOWS)
    console(sys.stdout).print(table)


def make(target: str, scale: str, output: Path, jobs: int, device: str, force: bool) -> int:
    """Run what is not finished, then draw."""
    from paper_figures import frame  # noqa: PLC0415

    module = module_of(target)
    started = time.monotonic()
    sweeps = [sweep_arguments(experiment, output, jobs, device, force) for experiment in experiments(target, scale)]
    configs = [planned(arguments) for arguments in sweeps]
    failed: list[int] = []
    for arguments, mine in zip(sweeps, configs, strict=True):
        *_, found = stored(mine, output)
        if not force and not unfinished(mine, found):
            print(f"{arguments[1].removeprefix('+experiment=')}: all {len(mine)} run(s) are finished", flush=True)
            continue
        status = run_sweep(arguments)
        # A failed sweep does not stop the others; an interrupted one does.
        failed += [status] if status else []
        if status == INTERRUPTED:
            break
    if failed:
        print(f"error: the runs of {target} did not all finish; repeat the command to continue.", file=sys.stderr)
        return failed[-1]
    collected = [
        collect(arguments, runs, swept, output)
        for arguments, runs, swept in zip(sweeps, configs, swept_columns(configs), strict=True)
    ]
    data = pd.concat([rows for rows, _ in collected], ignore_index=True)
    if hasattr(module, "select"):
        data = module.select(data)
    provenance = {"drawn_on": time.strftime("%Y-%m-%d"), "sweeps": [made_with for _, made_with in collected]}
    folder = figure_folder(output, target, scale)
    folder.mkdir(parents=True, exist_ok=True)
    frame.write(data, folder / "data.csv")
    (folder / "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n")
    draw(module, data, folder, target)
    minutes = (time.monotonic() - started) / 60
    print(f"{target} at scale {scale}: done in {minutes:.1f} minutes")
    return 0


def main() -> int:
    """Entry point; exit status 2 for a faulty request, the sweep's own if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m repro.figure", description=__doc__)
    parser.add_argument("target", help="a target, or 'list'")
    parser.add_argument("--scale", default="laptop", choices=SCALES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once (default: cores)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="output folder")
    parser.add_argument("--force", action="store_true", help="run again what is finished")
    parser.add_argument("--draw", action="store_true", help="draw again from the exported CSV, run nothing")
    parser.add_argument("--publish", action="store_true", help="copy a drawn figure to paper_figures/results")
    options = parser.parse_args()
    output = options.output.absolute()
    try:
        if options.target == "list":
            list_targets()
            return 0
        module = module_of(options.target)
        if options.jobs < 1:
            raise ReproError(f"--jobs is {options.jobs}; it must be at least 1.")
        if options.publish:
            publish(options.target, options.scale, output)
            return 0
        folder = figure_folder(output, options.target, options.scale)
        if options.draw:
            if not (folder / "data.csv").exists():
                raise ReproError(f"{folder / 'data.csv'} does not exist; make the figure first.")
            from paper_figures import frame  # noqa: PLC0415

            draw(module, frame.read(folder / "data.csv"), folder, options.target)
            return 0
        return make(options.target, options.scale, output, options.jobs, options.device, options.force)
    except ReproError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
