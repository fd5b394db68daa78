"""`python -m tests.chaos [--kills 200] [--minutes 40] [--seed 0] [--only KIND] [--report FILE]`; `make chaos`."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import cycle
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from repro.tracking.store import default_uri
from tests.chaos.campaign import Report, Trials, undisturbed
from tests.chaos.kinds import KINDS

_KILLS_PER_OTHER = 3
"""Of four trials three kill; kills are what must never cost anything."""


def main() -> int:
    """Disturb runs until enough kills are done or time is over; exit status 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="stop after so many (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=40.0, help="stop after so many, too (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what is done when (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=sorted(KINDS), help="this kind of run (may be repeated)")
    parser.add_argument("--report", type=Path, help="JSON file to write")
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="repro-chaos-"))
    report = campaign(given.only or list(KINDS), given.kills, given.minutes, given.seed, folder)
    show(report, folder)
    if given.report is not None:
        given.report.parent.mkdir(parents=True, exist_ok=True)
        given.report.write_text(json.dumps(summary(report), indent=2) + "\n")
    return 1 if report.problems else 0


def campaign(names: list[str], kills: int, minutes: float, seed: int, folder: Path) -> Report:
    """All kinds in turns, each disturbed in every way in turns."""
    started, report, dice = time.monotonic(), Report(), random.Random(seed)
    database = empty_database(folder)
    trials = []
    for name in names:
        place = folder / name.replace(" ", "-").replace("'", "").replace(",", "")
        trials.append(Trials(undisturbed(name, place, database), place, report, dice))
    plans = [cycle(_order(one)) for one in trials]
    for one, plan in cycle(zip(trials, plans, strict=True)):
        if report.count("kill") >= kills or time.monotonic() - started > 60 * minutes:
            return report
        one.disturbances[next(plan)]()
        _progress(report, started)
    return report


def _order(trials: Trials) -> list[str]:
    """One round: kills, and after every few of them one of the other disturbances."""
    killing = [name for name in trials.disturbances if name.startswith("kill")]
    others = [name for name in trials.disturbances if not name.startswith("kill")]
    kills = cycle(killing)
    return [name for other in others for name in (*(next(kills) for _ in range(_KILLS_PER_OTHER)), other)]


def empty_database(folder: Path) -> Path:
    """An MLflow database without runs; made in another process, because connections must not be forked."""
    code = "import sys; from repro.tracking.store import open_store; open_store(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, default_uri(folder)], check=True)
    return folder / "mlflow.db"


def _progress(report: Report, started: float) -> None:
    minutes = (time.monotonic() - started) / 60
    done, kills, problems = sum(report.done.values()), report.count("kill"), len(report.problems)
    text = f"\r{done} disturbances, {kills} kills, {problems} problems, {minutes:.1f} min"
    print(text, end="", file=sys.stderr, flush=True)


def summary(report: Report) -> dict[str, object]:
    """The report as plain Python."""
    return {
        "kills": report.count("kill"),
        "disturbances": {f"{kind}: {what}": n for (kind, what), n in sorted(report.done.items())},
        "kinds of problems": Counter(kind for _, _, kind, _ in report.problems),
        "problems": [list(problem) for problem in report.problems],
    }


def show(report: Report, folder: Path) -> None:
    """Print the table, and every problem in a line."""
    console = Console()
    ways = sorted({what for _, what in report.done})
    table = Table("kind of run", *ways, "problems", box=None)
    failed = Counter(kind for kind, *_ in report.problems)
    for kind in dict.fromkeys(kind for kind, _ in report.done):
        table.add_row(kind, *(str(report.done[kind, what]) for what in ways), str(failed[kind]))
    console.print(table)
    kinds = Counter(kind for _, _, kind, _ in report.problems)
    print(f"{report.count('kill')} kills, {sum(report.done.values())} disturbances in all.", end=" ")
    print(", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "No problem.")
    for name, disturbance, kind, what in report.problems:
        print(f"- {name}, {disturbance}, {kind}: {what}")
    if report.problems:
        print(f"what they left is in {folder}")


if __name__ == "__main__":
    sys.exit(main())
