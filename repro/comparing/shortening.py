"""Which runs repeat the beginning of a published target's, so that they can be compared with them (`repro.verify`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean
from repro.config.keys import training_config
from repro.figures import agreement
from repro.figures.drawing import results_of
from repro.figures.targets import Options, PlannedSweep, plan_target

if TYPE_CHECKING:
    from repro.config.schema import Config


@dataclass(frozen=True)
class Request:
    """What is to be verified.

    Attributes:
        target: which one.
        options: how; the output folder is the user's.
        iterations: repeat as many iterations as were measured in the published data up to this one; None: up to the
            first that was.
        seeds: how many of the published seeds, the first ones.
        sweeps: names of those to repeat; none: all.
        record: whether what is found is kept beside the published data.
    """

    target: str
    options: Options
    iterations: int | None = None
    seeds: int = 1
    sweeps: Sequence[str] = ()
    record: bool = False

    @property
    def published(self) -> Path:
        """The folder of the published data."""
        return results_of(self.target, self.options.scale)


@dataclass
class Shortened:
    """A target's sweeps, so far as their beginnings can be repeated.

    Attributes:
        sweeps: to be run.
        left_out: a sentence for each sweep, or part of one, that cannot be compared, and why.
    """

    sweeps: list[PlannedSweep] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def shortened(request: Request, published: pd.DataFrame, provenance: Sequence[Mapping[str, Any]]) -> Shortened:
    """The published sweeps of a target, ended early; one whose seeds were not all run together in as many parts.

    A training that is ended earlier is the same until there: no algorithm's iterations know how many will follow, and
    the last one, which leaves a snapshot wherever it is, is one that leaves a snapshot in the longer one, too.

    Raises:
        ReproError: it has no such sweep.
    """
    options = replace(request.options, output=request.options.output / "verify", force=True)
    planned, _ = plan_target(request.target, options)
    every = [config for sweep in planned for config in sweep.configs]
    names = [sweep.name or sweep.configs[0].algorithm.name for sweep in planned]
    for unknown in set(request.sweeps) - set(names):
        hint = did_you_mean(unknown, names)
        raise ReproError(f"--sweep is {unknown!r}; those of {request.target} are {', '.join(names)}{hint}.")
    short = Shortened()
    for sweep, name in zip(planned, names, strict=True):
        if name not in (request.sweeps or names):
            continue
        first = sweep.configs[0]
        rows = agreement.of_sweep(published, sweep.name, first.algorithm.name)
        others = [other for other in every if first.algorithm.waits_for(other.algorithm)]
        if rows.empty:
            short.left_out.append(f"{name} is not compared: it is not in the published data.")
        elif others:
            left = others[0].algorithm.name
            short.left_out.append(f"{name} is not compared: it learns from all that runs of {left} leave.")
        else:
            _shorten(sweep, name, rows, request, provenance, short)
    return short


def parts(
    sweep: PlannedSweep, seeds: Sequence[int], provenance: Sequence[Mapping[str, Any]]
) -> Sequence[Sequence[int]]:
    """Seeds of a sweep by the published runs that they were made with: those of a part were run together."""
    together: dict[int, list[int]] = {}
    for seed in seeds:
        config = next(config for config in sweep.configs if config.seed == seed)
        then = agreement.provenance_of(sweep.name, training_config(config), provenance)
        together.setdefault(id(then), []).append(seed)
    return list(together.values())


def _shorten(
    sweep: PlannedSweep, name: str, rows: pd.DataFrame, request: Request, provenance: Sequence[Mapping[str, Any]],
    short: Shortened,
) -> None:  # fmt: skip
    """Add what can be repeated of one sweep, and what cannot."""
    seeds = sorted({config.seed for config in sweep.configs} & set(rows.seed))
    if not seeds:
        short.left_out.append(f"{name} is not compared: it has none of the published seeds today.")
        return
    by_part = [together[: request.seeds] for together in parts(sweep, seeds, provenance)]
    configs, unmeasured, others = [], set[str](), set[str]()
    for config in (config for config in sweep.configs if any(config.seed in some for some in by_part)):
        end = _end(config, rows, request.iterations)
        alone = {n: e for n, e in config.evaluation.items() if all(other.startswith("/") for other in e.others)}
        others |= alone.keys()
        unmeasured |= config.evaluation.keys() - alone.keys()
        if end is not None and alone:
            algorithm = replace(config.algorithm, iterations=end)
            configs.append(replace(config, algorithm=algorithm, evaluation=alone, target="verify", force=True))
    if configs:
        together = [[config for config in configs if config.seed in some] for some in by_part]
        short.sweeps += [replace(sweep, configs=of_part) for of_part in together if of_part]
        if unmeasured:
            needs = f"{', '.join(sorted(unmeasured))}, which needs other trainings."
            short.left_out.append(f"{name} is compared without {needs}")
    elif not others:
        short.left_out.append(f"{name} is not compared: all that is measured of it needs other trainings.")
    elif request.iterations is None:
        short.left_out.append(f"{name} is not compared: nothing was measured of it where a shorter run could end.")
    else:
        short.left_out.append(
            f"{name} is not compared: it was not measured in its first {request.iterations} iterations."
        )


def _end(config: Config, rows: pd.DataFrame, most: int | None) -> int | None:
    """The iteration to end with, at which the published run was measured, and which leaves a snapshot in it."""
    length, leaves_snapshot = config.algorithm.iterations, config.algorithm.leaves_snapshot
    steps = sorted({int(step) for step in rows.step if step <= length and leaves_snapshot(int(step))})
    if most is None:
        return steps[0] if steps else None
    return max((step for step in steps if step <= most), default=None)
