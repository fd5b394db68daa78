"""Iterations of Deep CFR on Leduc, with figure 1's settings, beside those of another commit of this repository."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from repro.bench import iterations
from repro.bench.measure import Effort, Row, interleaved
from repro.common.errors import ReproError
from repro.tracking.provenance import REPOSITORY


def rows(effort: Effort, commit: str) -> list[Row]:
    """All benchmarks of this module.

    Raises:
        ReproError: git does not know the commit, or this benchmark does not run on it.
    """
    return [leduc_iterations(effort, commit)]


def leduc_iterations(effort: Effort, commit: str) -> Row:
    """Iterations of both players from the first one on, without evaluation, in a process per side.

    Both sides do the same iterations, in turns; the note says how far their losses were apart. A difference by rounding
    grows, since units that are near zero switch on one side and not on the other.
    """
    with checked_out(commit) as other, Side(REPOSITORY) as mine, Side(other) as theirs:
        for side in (mine, theirs):
            # What is done once: compiling.
            side.rate(1)
        count = effort.iterations
        ours, peer = interleaved(lambda: mine.rate(count), lambda: theirs.rate(count), effort.repetitions)
        first, *later = (abs(a - b) / abs(b) for a, b in zip(mine.losses, theirs.losses, strict=True))
    note = f"peer: commit {commit}; losses differ by {first:.1g} of them at first, {max(later):.1g} at most later"
    return Row("leduc_iterations", ours, peer, "iterations/s", ours / peer, note)


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The commit's files, in a folder that is removed again.

    Raises:
        ReproError: git does not know it.
    """
    command = ["git", "-C", str(REPOSITORY), "archive", "--format=zip", commit]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        raise ReproError(f"AGAINST is {commit!r}, of which git has no files: {archive.stderr.decode().strip()}")
    with TemporaryDirectory() as folder:
        with zipfile.ZipFile(io.BytesIO(archive.stdout)) as files:
            files.extractall(folder)
        yield Path(folder)


class Side:
    """A process that does iterations with the code in a folder.

    Attributes:
        losses: of the last iteration of each turn.
    """

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.losses: list[float] = []

    def __enter__(self) -> Side:
        # -P: modules beside the script do not hide others of the same name.
        command = [sys.executable, "-P", str(Path(iterations.__file__))]
        environment = os.environ | {"PYTHONPATH": str(self.tree)}
        self._process = subprocess.Popen(
            command, cwd=self.tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def rate(self, count: int) -> float:
        """Iterations per second, over the next so many.

        Raises:
            ReproError: the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(count, file=self._process.stdin, flush=True)
            seconds, loss = self._process.stdout.readline().split()
        except (BrokenPipeError, ValueError) as error:
            raise ReproError(
                f"this benchmark does not run with the code in {self.tree}; its error is above."
            ) from error
        self.losses.append(float.fromhex(loss))
        return count / float(seconds)
