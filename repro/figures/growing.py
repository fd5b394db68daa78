"""What is to be done for a target: all that it asks for, some of its sweeps, or what is not published of it yet.

Published results grow by seeds: those of a target's runs that are published, trained and measured as they are asked for
today, are taken from there, and only the others are made.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean
from repro.figures.drawing import of_folder, results_of
from repro.figures.page import names_of_runs
from repro.figures.targets import Options, PlannedSweep, module_of, plan_target

if TYPE_CHECKING:
    from repro.config.schema import Config
    from repro.plans.planned import Run


@dataclass(frozen=True)
class Planned:
    """What is to be done for a target.

    Attributes:
        sweeps, runs: all that it asks for.
        new_sweeps: those that are to be drawn from runs made now, or the part of them that is.
        new_runs: their runs, with those that these need.
        reused: what is taken from what is published; None: nothing is to be.
        unasked: sweeps that are made only if they are asked for, and of which something is neither taken nor there.
    """

    sweeps: Sequence[PlannedSweep]
    runs: Sequence[Run]
    new_sweeps: Sequence[PlannedSweep]
    new_runs: Sequence[Run]
    reused: Reused | None = None
    unasked: Sequence[str] = ()

    def tell_taken(self, target: str, scale: str) -> None:
        """Print which of the published runs are taken, and which are not, and why."""
        if self.reused is None:
            print(f"{target}: nothing is taken: nothing is published of it at scale {scale}")
            return
        from repro.tracking.staleness import staleness  # noqa: PLC0415

        for part in self.reused.provenance:
            seeds, changed = ", ".join(map(str, part["seeds"])), staleness(part)
            print(
                f"{target}: {part['sweep'] or 'its sweep'}, seed {seeds}, is taken; code has changed since: {changed}"
            )
        for sentence in self.reused.left:
            print(f"{target}: not taken: {sentence}")
        needed = {run.key for run in self.new_runs} - {run.key for run in _runs_of(self.new_sweeps, self.runs)}
        if needed:
            print(
                f"{target}: {len(needed)} run(s) that are taken are made all the same, because others need what they "
                "leave"
            )


def planned(target: str, options: Options) -> Planned:
    """A target's plan.

    Raises:
        ReproError: a sweep cannot be composed, or published files, which are to be used, are damaged.
    """
    sweeps, runs = plan_target(target, options)
    folder = results_of(target, options.scale)
    reused, new = None, sweeps
    if options.published and (folder / "provenance.json").is_file():
        data, provenance = of_folder(folder, target, options)
        reused = reusable(sweeps, data, provenance["sweeps"])
        new, _ = plan_target(target, options, but=reused.seeds)
    unasked = _unasked(target, options.scale, new)
    taken = reused.seeds if reused is not None else {}
    kept = [sweep for sweep in sweeps if sweep.name not in unasked or sweep.name in taken]
    if unasked:
        runs, new = _with_needed(kept, runs), [sweep for sweep in new if sweep.name not in unasked]
    new_runs = runs if reused is None else _with_needed(new, runs)
    return Planned(kept, runs, new, new_runs, reused, unasked)


def _unasked(target: str, scale: str, new: Sequence[PlannedSweep]) -> list[str]:
    """Names of sweeps that are made only if they are asked for, and of which not all that is new is there."""
    from repro.stored.results import is_done  # noqa: PLC0415  (imports torch, which takes seconds)

    optional = {sweep.name for sweep in module_of(target).SWEEPS if scale in sweep.if_asked}
    return [sweep.name for sweep in new if sweep.name in optional and not all(map(is_done, sweep.configs))]


def planned_sweeps(target: str, names: Sequence[str], options: Options) -> Planned:
    """The plan of some of a target's sweeps.

    Raises:
        ReproError: it has no such sweep, or one of it cannot be composed.
    """
    sweeps, runs = plan_target(target, options)
    known = [sweep.name for sweep in sweeps]
    if known == [""]:
        raise ReproError(f"--sweep is {names[0]!r}; {target} has one sweep, leave it out.")
    for unknown in set(names) - set(known):
        hint = did_you_mean(unknown, known)
        raise ReproError(f"--sweep is {unknown!r}; those of {target} are {', '.join(known)}{hint}.")
    new = [sweep for sweep in sweeps if sweep.name in names]
    return Planned(sweeps, runs, new, _with_needed(new, runs))


def _with_needed(sweeps: Sequence[PlannedSweep], runs: Sequence[Run]) -> list[Run]:
    """Those of runs that are of sweeps, with those that they need."""
    from repro.plans.planned import with_needed  # noqa: PLC0415  (imports torch, which takes seconds)

    return with_needed(_runs_of(sweeps, runs), runs)


def _runs_of(sweeps: Sequence[PlannedSweep], runs: Sequence[Run]) -> list[Run]:
    """Those of runs that are of sweeps; not those of others that measure the same trainings otherwise."""
    from repro.config.keys import measurements_key, training_key  # noqa: PLC0415  (as above)

    def done(config: Config) -> tuple[str, str]:
        return training_key(config), measurements_key(config)

    wanted = {done(config) for sweep in sweeps for config in sweep.configs}
    return [run for run in runs if any(done(config) in wanted for config in run.configs)]


# -- what is published -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reused:
    """What older data of a target have of the runs that it asks for.

    Attributes:
        seeds: of sweeps, by their names, the seeds whose runs they have.
        data: the rows of these runs.
        provenance: where these come from, sweeps of a `provenance.json`.
        left: a sentence for each part of the older data that is not taken, and why.
    """

    seeds: Mapping[str, Collection[int]]
    data: pd.DataFrame
    provenance: Sequence[Mapping[str, Any]]
    left: Sequence[str]


def reusable(planned: Sequence[PlannedSweep], data: pd.DataFrame, provenance: Sequence[Mapping[str, Any]]) -> Reused:
    """The parts of older data that are of runs that are asked for, trained and measured in the same way.

    Args:
        planned: all sweeps that are asked for.
        data, provenance: the older ones.
    """
    by_name = {sweep.name: sweep for sweep in planned}
    taken, left = [], []
    for part in provenance:
        why = _why_not(part, by_name)
        if why:
            left.append(f"{part.get('sweep') or 'its sweep'}, seed {', '.join(map(str, part['seeds']))}: {why}")
        else:
            taken.append(part)
    seeds: dict[str, list[int]] = {}
    for part in taken:
        seeds.setdefault(part["sweep"], []).extend(part["seeds"])
    mine = pd.Series([seed in seeds.get(name, ()) for name, seed in zip(data.sweep, data.seed, strict=True)])
    return Reused(seeds, data[mine.to_numpy(bool)], taken, left)


def _why_not(part: Mapping[str, Any], planned: Mapping[str, PlannedSweep]) -> str:
    """Why runs of a sweep of a `provenance.json` are not taken; empty if they are."""
    if "sweep" not in part or "rerun" not in part:
        return "which runs these are was not recorded yet when they were made"
    sweep = planned.get(part["sweep"])
    if sweep is None:
        return "no such sweep is asked for"
    from repro.config.keys import training_key  # noqa: PLC0415  (as above)

    configs = [config for config in sweep.configs if config.seed in part["seeds"]]
    if {config.seed for config in configs} != set(part["seeds"]):
        return "seeds that were run together are taken together, and some of them are not asked for"
    if sorted(names_of_runs(part)) != sorted(training_key(config) for config in configs):
        return "other trainings are asked for today"
    return "" if _measures_alike(part, configs) else "something else is measured today"


def _measures_alike(part: Mapping[str, Any], configs: Sequence[Config]) -> bool:
    """Whether the same was measured of published runs as of these, which are the same trainings."""
    from repro.config.keys import measurements_key, training_config, training_key  # noqa: PLC0415
    from repro.stored.results import evaluation_of  # noqa: PLC0415  (as above)

    if "measurements" in part:
        then = dict(zip(names_of_runs(part), part["measurements"], strict=True))
        return then == {training_key(config): measurements_key(config) for config in configs}
    # Earlier files have what was measured of the first run, and its read-outs.
    first = next(config for config in configs if training_key(config) == names_of_runs(part)[0])
    now = {"evaluation": evaluation_of(first), "readouts": training_config(first)["algorithm"]["readouts"]}
    then = {"evaluation": part["evaluation"], "readouts": part["config"]["algorithm"]["readouts"]}
    return bool(then == json.loads(json.dumps(now)))
