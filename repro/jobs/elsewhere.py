"""Options of commands about where their runs are done: by jobs of a cluster, in parts on several machines, or here."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass

from repro.common.errors import ReproError


@dataclass(frozen=True)
class Elsewhere:
    """What a command says of it.

    Attributes:
        on: name of a file in conf/cluster, whose jobs do the runs; empty: none does.
        cluster: `KEY=VALUE`, beside what that file asks for.
        part: k, n: this machine does the k-th of n parts of the runs, from 1 on; None: all of them.
        collects: whether what is finished is taken in, and nothing is done.
    """

    on: str = ""
    cluster: Sequence[str] = ()
    part: tuple[int, int] | None = None
    collects: bool = False

    @property
    def is_here(self) -> bool:
        """Whether nothing is said of it."""
        return not (self.on or self.part or self.collects)


def add_options(parser: ArgumentParser) -> None:
    """Let a command take them."""
    parser.add_argument("--on", metavar="CLUSTER", default="", help="submit its runs: slurm, local (conf/cluster)")
    parser.add_argument("--cluster", metavar="KEY=VALUE", action="append", default=[], help="asked of the cluster")
    parser.add_argument(
        "--part", metavar="K/N", default="", help="do one part of its runs, telling an MLflow server alone"
    )
    parser.add_argument("--collect", action="store_true", help="take in what jobs and parts have finished")


def elsewhere(options: Namespace) -> Elsewhere:
    """What was said.

    Raises:
        ReproError: it contradicts itself, or the part is none.
    """
    given = [f"--{name}" for name in ("on", "part", "collect") if getattr(options, name)]
    if len(given) > 1:
        raise ReproError(f"{given[0]} and {given[1]} cannot be given together.")
    if options.cluster and not options.on:
        raise ReproError(f"--cluster is {options.cluster[0]!r}; it says something of --on, which is not given.")
    return Elsewhere(options.on, options.cluster, _part(options.part), options.collect)


def _part(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    found = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ReproError(f"--part is {text!r}; it must be K/N, from 1/N to N/N.")
    return int(found[1]), int(found[2])
