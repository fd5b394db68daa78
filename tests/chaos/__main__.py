"""`python -m tests.chaos`, or `make chaos`; `--help` lists its options."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from repro.tracking.store import default_uri
from tests.chaos.campaign import PROBLEMS, Report, Trials, undisturbed
from tests.chaos.kinds import KINDS

_WIDTH = 160
"""Columns of the table at least, so that a log has it whole, too."""


def main() -> int:
    """Disturb runs, and report; exit status 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="at least so many (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=40.0, help="stop after so many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of what is done when (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help="each disturbance on one kind of run, not on every one")
    parser.add_argument("--only", action="append", choices=sorted(KINDS), help="this kind of run (may be repeated)")
    parser.add_argument("--report", type=Path, help="JSON file to write")
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="repro-chaos-"))
    report = campaign(given.only or list(KINDS), given.kills, given.minutes, given.seed, folder, given.once)
    show(report, folder)
    if not report.problems:
        shutil.rmtree(folder)
    if given.report is not None:
        given.report.parent.mkdir(parents=True, exist_ok=True)
        given.report.write_text(json.dumps(summary(report), indent=2) + "\n")
    return 1 if report.problems else 0


def campaign(names: list[str], kills: int, minutes: float, seed: int, folder: Path, once: bool = False) -> Report:
    """Disturb all kinds in turns until there are enough kills and nothing is undone, or time is over.

    Args:
        names: of the kinds.
        kills: that are enough.
        minutes: that it may take.
        seed: of what is done when.
        folder: a new one, to work in.
        once: whether a disturbance is done when it was done to one kind, and not only when to every one.
    """
    started, report, dice = time.monotonic(), Report(), random.Random(seed)
    database = empty_database(folder)
    trials = []
    for name in names:
        place = folder / name.replace(" ", "-").replace("'", "").replace(",", "")
        trials.append(Trials(undisturbed(name, place, database), place, report, dice))
    for one, disturbance in _turns(trials):
        enough, undone = report.count("kill") >= kills, report.undone(once)
        if (enough and not undone) or time.monotonic() - started > 60 * minutes:
            break
        if not enough or (one.name, disturbance) in undone:
            known = len(report.problems)
            one.disturbances[disturbance]()
            for name, how, kind, what in report.problems[known:]:
                print(f"\n- {name}, {how}, {kind}: {what}", file=sys.stderr, flush=True)
            _progress(report, started)
    report.minutes = (time.monotonic() - started) / 60
    return report


def _turns(trials: list[Trials]) -> Iterator[tuple[Trials, str]]:
    """For ever: of each kind of run a kill, then another disturbance; of both what it had least, then all had least."""
    had: Counter[tuple[str, str]] = Counter()
    had_by_all: Counter[str] = Counter()
    for one in cycle(trials):
        kills = [name for name in one.disturbances if name.startswith("kill")]
        others = [name for name in one.disturbances if not name.startswith("kill")]
        for names in (kills, others):
            least = min(names, key=lambda name: (had[one.name, name], had_by_all[name]))
            had[one.name, least] += 1
            had_by_all[least] += 1
            yield one, least


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
        "minutes": round(report.minutes, 1),
        "kills": report.count("kill"),
        "disturbances": {f"{kind}: {what}": report.done[kind, what] for kind, what in report.due},
        "not done": [f"{kind}: {what}" for kind, what in report.undone()],
        "kinds of problems": _found(report),
        "problems": [list(problem) for problem in report.problems],
    }


def _found(report: Report) -> dict[str, int]:
    """How many there are of every kind of problem."""
    found = Counter(kind for _, _, kind, _ in report.problems)
    return {kind: found[kind] for kind in PROBLEMS}


def show(report: Report, folder: Path) -> None:
    """Print the table, what was not done, and every problem in a line."""
    ways = sorted({what for _, what in report.due})
    table = Table("kind of run", *ways, "problems", box=None)
    failed = Counter(kind for kind, *_ in report.problems)
    for kind in dict.fromkeys(kind for kind, _ in report.due):
        # Empty is what cannot be done to it; 0 is what was not.
        times = (str(report.done[kind, what]) if (kind, what) in report.due else "" for what in ways)
        table.add_row(kind, *times, str(failed[kind]))
    Console(width=max(_WIDTH, Console().width)).print(table)
    print(f"{report.count('kill')} kills, {sum(report.done.values())} disturbances in {report.minutes:.0f} minutes.")
    print("Found:", ", ".join(f"{n} {kind}" for kind, n in _found(report).items()))
    if undone := report.undone():
        print("NOT DONE:", "; ".join(f"{kind}: {what}" for kind, what in undone))
    for name, disturbance, kind, what in report.problems:
        print(f"- {name}, {disturbance}, {kind}: {what}")
    if report.problems:
        print(f"what they left is in {folder}")


if __name__ == "__main__":
    sys.exit(main())
