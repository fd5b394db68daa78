"""What several processes gain, for docs/scaling.md: `python -m repro.bench.scaling [--quick] [--curves]`.

Measured is Deep CFR with 1 and 2 processes of this machine, on Leduc with figure 1's settings and on Flop Hold'em with
those of figure 4: the parts of an iteration (`repro.bench.rank`), in turns, so that all see the same state of the
machine; numbers are medians. The model (`repro.bench.scaling_model`) says from these what more processes would do. With
`--curves` it is instead whether two processes learn the same: trainings of 20 seeds each are done in the output
folder, where finished ones are not repeated, and the differences of their exploitability are told.

Either way a block of the page is written anew. The rest of the page is not touched.
"""

from __future__ import annotations

import os
import re
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.progress import track

from repro.bench.scaling_model import Link, Work
from repro.common import durable
from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import faults_told
from repro.common.stopping import stoppable
from repro.config.lightning import processes_of
from repro.evaluation.statistics import difference, mean_ci
from repro.plans.planning import plan
from repro.stored.results import measured_rows
from repro.stored.trained import folder_of
from repro.tracking import provenance
from repro.tracking import record as records

PAGE = provenance.REPOSITORY / "docs" / "scaling.md"
MEASURED, CURVES = "measured", "curves"
"""Names of the blocks."""

LINKS = (
    Link("10 Gb/s Ethernet, 50 µs a message", 50e-6, 1.25e9),
    Link("100 Gb/s InfiniBand, 5 µs a message", 5e-6, 12.5e9),
)
"""What is assumed to connect the processes of the model, each on a core of its own."""
RANKS = (1, 2, 4, 8, 16, 32, 64)
REDUCTIONS = 200
"""In one measurement."""

RUNS = (
    "game=leduc", "algorithm=sd_cfr_and_deep_cfr", "seed=range(20,40)", "trainer.devices=1,2",
    "algorithm.iterations=40", "algorithm.snapshot_every=10", "algorithm.traversals=400",
    "algorithm.value_capacity=20000", "algorithm.strategy_capacity=20000",
    "algorithm.value.steps=100", "algorithm.value.batch_size=256",
    "algorithm.average.steps=300", "algorithm.average.batch_size=256",
)  # fmt: skip
"""Of `--curves`; memories are full after a few iterations."""


@dataclass(frozen=True)
class Setting:
    """What is measured on a game: `steps` SGD steps at a time."""

    name: str
    overrides: Sequence[str]
    steps: int


SETTINGS = (
    Setting("Leduc, figure 1's settings", ("experiment=figure1",), 200),
    Setting("Flop Hold'em, figure 4's settings", ("experiment=fhp_deep_cfr",), 4),
)


# -- measuring -------------------------------------------------------------------------------------------------------


class Group:
    """Processes that do parts of an iteration together, and answer how long that took.

    Attributes:
        parameters: of a value network.
    """

    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self._processes = processes
        self.parameters = 0

    @classmethod
    @contextmanager
    def of(cls, count: int, overrides: Sequence[str]) -> Iterator[Group]:
        """So many processes, which end with this."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        with ExitStack() as stack:
            processes = []
            for rank in range(count):
                command = [sys.executable, "-m", "repro.bench.rank", str(rank), str(count), *overrides]
                process = subprocess.Popen(
                    command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                processes.append(stack.enter_context(process))
                stack.callback(process.kill)
            yield cls(processes)

    def ask(self, what: str, ranks: int, repeated: int = 1) -> float:
        """Seconds that the slowest one takes, each time.

        Raises:
            ReproError: one has ended.
        """
        for process in self._processes:
            assert process.stdin is not None
            print(what, ranks, repeated, file=process.stdin, flush=True)
        answers = []
        for process in self._processes:
            assert process.stdout is not None
            answer = process.stdout.readline().split()
            if not answer:
                raise ReproError("a process that was measured has ended; its error is above.")
            answers.append(float(answer[0]))
            self.parameters = int(answer[1])
        return max(answers) / repeated


@dataclass(frozen=True)
class Measured:
    """Medians on one setting.

    Attributes:
        work: what one process takes for the shares of ranks.
        together: seconds that two processes take of `traversals`, `steps` and `reduce`, each time.
    """

    setting: Setting
    work: Work
    together: Mapping[str, float]


def measured(setting: Setting, repetitions: int) -> Measured:
    """Measure one process and two in turns."""
    algorithm = plan(list(setting.overrides), multirun=False).runs[0].config.algorithm
    asked = {"traversals": 1, "steps": setting.steps, "reduce": REDUCTIONS}
    one: dict[tuple[str, int], list[float]] = {(w, r): [] for w in ("traversals", "steps") for r in RANKS}
    two: dict[str, list[float]] = {what: [] for what in asked}
    with Group.of(1, setting.overrides) as alone, Group.of(2, setting.overrides) as together:
        # What is done once: compiling, and first touches of memory.
        for what, ranks in one:
            alone.ask(what, ranks)
        for what in two:
            together.ask(what, 2)
        for _ in track(range(repetitions), setting.name):
            for (what, ranks), times in one.items():
                times.append(alone.ask(what, ranks, asked[what]))
            for what, times in two.items():
                times.append(together.ask(what, 2, asked[what]))
    median = {key: statistics.median(times) for key, times in one.items()}
    work = Work(
        algorithm.traversals, algorithm.value.batch_size, algorithm.value.steps, alone.parameters,
        {ranks: median["traversals", ranks] for ranks in RANKS}, {ranks: median["steps", ranks] for ranks in RANKS},
    )  # fmt: skip
    return Measured(setting, work, {what: statistics.median(times) for what, times in two.items()})


# -- the page --------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table of Markdown; all columns but the first are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def measured_block(every: Sequence[Measured], repetitions: int, where: str) -> list[str]:
    """The block of what is measured and predicted.

    Args:
        where: the commit and the machine.
    """
    lines = [f"Measured: {where}; medians of {repetitions} repetitions, in turns.", ""]
    head = [
        "measured", "processes", "traversals each", "they take", "rows each", "a step takes", "of it, reducing",
        "bytes reduced a step", "iteration", "speed-up",
    ]  # fmt: skip
    rows = [row for each in every for row in (_one_process(each), _two_processes(each))]
    lines += table(head, rows)
    for each in every:
        for link in LINKS:
            lines += ["", *predicted_table(each, link)]
    return lines


def _one_process(each: Measured) -> list[str]:
    work = each.work
    seconds = work.iteration(1, 0.0)
    return [
        each.setting.name, "1", f"{work.traversals:,}", _time(work.traversing[1]), f"{work.rows:,}",
        _time(work.stepping[1]), "–", "–", _time(seconds), "1",
    ]  # fmt: skip


def _two_processes(each: Measured) -> list[str]:
    work, both = each.work, each.together
    seconds = 2 * (both["traversals"] + work.steps * both["steps"])
    return [
        each.setting.name, "2", f"{work.traversals // 2:,}", _time(both["traversals"]), f"{work.rows // 2:,}",
        _time(both["steps"]), _time(both["reduce"]), f"{work.reduced_bytes:,}", _time(seconds),
        f"{work.iteration(1, 0.0) / seconds:.2f}",
    ]  # fmt: skip


def predicted_table(each: Measured, link: Link) -> list[str]:
    """Lines of what the model predicts of one setting and link."""
    work = each.work
    head = [
        f"predicted: {each.setting.name}; {link.name}", "traversals each", "rows each", "a step computes (measured)",
        "it reduces (predicted)", "iteration (predicted)", "speed-up (predicted)",
    ]  # fmt: skip
    rows = [
        [
            f"{ranks} ranks", f"{work.traversals // ranks:,}", f"{work.rows // ranks:,}", _time(work.stepping[ranks]),
            _time(link.reduction(work.reduced_bytes, ranks)), _time(work.predicted(ranks, link)),
            f"{work.speed_up(ranks, link):.2f}",
        ]
        for ranks in RANKS[1:]
    ]  # fmt: skip
    return [*table(head, rows), "", f"Predicted: {_where_it_ends(work, link)}."]


def _where_it_ends(work: Work, link: Link) -> str:
    fastest = work.fastest(link)
    if fastest == 1:
        return "it does not pay, one process is fastest"
    half = f"with more than {work.efficient(link)}, each does less than half of what one does alone"
    if fastest == RANKS[-1] == work.efficient(link):
        return f"it pays well with {fastest} ranks, the most that were looked at"
    if fastest == RANKS[-1]:
        return f"it still pays with {fastest} ranks, the most that were looked at; {half}"
    return f"it stops paying after {fastest} ranks; {half}"


def _time(seconds: float) -> str:
    """In words that fit a column."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def with_block(page: str, name: str, lines: Sequence[str]) -> str:
    """A page's text with one of its blocks written anew.

    Raises:
        ReproError: it has no such block.
    """
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not block.search(page):
        raise ReproError(f"the page has no block '<!-- {name} -->' ... '<!-- end {name} -->' to fill in.")
    return block.sub(lambda match: match.group(1) + "\n".join(lines) + "\n" + match.group(2), page)


def text_of(page: Path) -> str:
    """A page.

    Raises:
        ReproError: it cannot be read.
    """
    try:
        return page.read_text()
    except OSError as error:
        raise ReproError(f"--page {page} cannot be read ({error.strerror}).") from error


# -- curves ----------------------------------------------------------------------------------------------------------


def exploitabilities(output: Path) -> tuple[pd.DataFrame, list[str]]:
    """Do the runs of `RUNS`.

    Returns:
        What they measured, `processes`, `seed`, `readout`, `iteration`, `exploitability`, and the commits that they
        were made with.

    Raises:
        ReproError: one did not finish.
    """
    from repro.jobs.sweeps import do_sweep  # noqa: PLC0415  (MLflow takes seconds)

    sweep = plan([*RUNS, f"output_dir={output}"], multirun=True)
    if do_sweep(sweep):
        raise ReproError("not all runs have finished; repeat the command to continue.")
    configs = [config for run in sweep.runs for config in run.configs]
    commits = {commit for config in configs for commit in records.read(folder_of(config)).made_with["git_commit"]}
    rows = [
        (processes_of(config), config.seed, readout, iteration, value)
        for config in configs
        for readout, metric, iteration, value in measured_rows(config)
        if metric == "exploitability"
    ]
    columns = ["processes", "seed", "readout", "iteration", "exploitability"]
    return pd.DataFrame(rows, columns=columns), sorted(commits)


def curves_block(data: pd.DataFrame, where: str) -> list[str]:
    """The block of whether two processes learn what one does, from `exploitabilities`."""
    seeds = data.seed.nunique()
    lines = [
        f"Measured: {where}; {seeds} seeds of each, exploitability in mA/g, means with 95% intervals (Student's t) and "
        "their difference (Welch's).", "", "    python -m repro.run -m " + " ".join(map(_quoted, RUNS)), "",
    ]  # fmt: skip
    rows, excluded = [], 0
    whole = data.groupby(["processes", "seed", "readout"], as_index=False).exploitability.mean()
    points = [(i, data[data.iteration == i]) for i in sorted(data.iteration.unique())]
    for at, part in [*((f"iteration {i}", part) for i, part in points), ("mean of the curve", whole)]:
        for readout, group in part.groupby("readout"):
            one, two = (group[group.processes == count].exploitability for count in (1, 2))
            apart = difference(two, one)
            excluded += apart.low > 0 or apart.high < 0
            rows.append([f"{readout}, {at}", str(mean_ci(one)), str(mean_ci(two)), str(apart)])
    lines += table(["", "1 process", "2 processes", "2 processes minus 1"], rows)
    lines += ["", f"Of {len(rows)} intervals of a difference, {excluded} exclude 0."]
    return lines


def _quoted(override: str) -> str:
    return f"'{override}'" if "(" in override else override


# -- the command -----------------------------------------------------------------------------------------------------


def where(commits: Sequence[str]) -> str:
    """Commits and the machine, in words."""
    machine = provenance.hardware()
    return f"commit {' and '.join(commit[:12] for commit in commits)}, {machine['cpu']}, {machine['cores']} cores"


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


@faults_told
@stoppable("")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; returns the exit status."""
    parser = Parser(prog="python -m repro.bench.scaling", description="Measure several processes.")
    parser.add_argument("--page", type=Path, default=PAGE, help="file whose block is written anew")
    parser.add_argument("--quick", action="store_true", help="three repetitions instead of nine, less reliable")
    parser.add_argument("--curves", action="store_true", help="do the runs that compare what is learned instead")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder of these runs")
    options = parser.parse_args(arguments)
    name = CURVES if options.curves else MEASURED
    with_block(text_of(options.page), name, [])  # Before minutes of work.
    if options.curves:
        data, commits = exploitabilities(options.output)
        lines = curves_block(data, where(commits))
    else:
        repetitions = 3 if options.quick else 9
        before, found = _load(), [measured(setting, repetitions) for setting in SETTINGS]
        load = f"load average {before} before and {_load()} after, of which this command's processes are at most 2"
        commit = provenance.code()["git_commit"]
        lines = measured_block(found, repetitions, f"{where([commit])}, {load}")
    durable.write(options.page, with_block(text_of(options.page), name, lines).encode())
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
