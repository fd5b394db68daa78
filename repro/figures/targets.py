"""What a figure is made of: its module and page in `paper_figures`, and the sweeps that it asks for."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from repro.common.errors import ReproError
from repro.common.suggestions import did_you_mean

if TYPE_CHECKING:
    from repro.config.schema import Config
    from repro.plans.planned import Run

if TYPE_CHECKING:
    from repro.config.schema import Config
    from repro.plans.planned import Run

ROOT = Path(__file__).resolve().parents[2]
SCALES = ("smoke", "laptop", "gpu", "night", "paper")
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
        tracking_uri: of the MLflow store; None: the one in the output folder.
        seeds: of every sweep so many, the first ones in the order in which it names them; None: all.
        published: what is published of a target's runs is taken, and only the other seeds are run.
    """

    scale: str
    output: Path
    jobs: int
    device: str
    force: bool
    tracking_uri: str | None = None
    seeds: int | None = None
    published: bool = False

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


def targets() -> list[str]:
    """Names of all targets, those that have a page: figures first, tables then, in the order of their numbers."""
    return sorted((path.stem for path in (ROOT / "paper_figures").glob("*.md")), key=_order)


def _order(name: str) -> tuple[int, str, int]:
    kind, number = re.fullmatch(r"(.*?)(\d*)", name).groups()  # type: ignore[union-attr]
    return {"figure": 0, "table": 1}.get(kind, 2) if number else 2, kind, int(number or 0)


def check_target(target: str) -> None:
    """Refuse what is no target, before its module is imported, which takes seconds.

    Raises:
        ReproError: it is none.
    """
    if target not in targets():
        hint = did_you_mean(target, [*targets(), ALL, "list"])
        raise ReproError(f"target {target!r} is unknown{hint}; the targets are {', '.join(targets())}.")


def check_scale(scale: str) -> None:
    """Refuse a scale that nothing is made at.

    Raises:
        ReproError: it is one.
    """
    if scale not in SCALES:
        hint = did_you_mean(scale, SCALES)
        raise ReproError(f"--scale is {scale!r}; it must be one of {', '.join(SCALES)}{hint}.")


def check_made_at(target: str, scale: str) -> None:
    """Refuse a scale that a target is not made at: its page has no place for it, and it is not the one that judges
    nothing.

    Raises:
        ReproError: it is one.
    """
    text = (ROOT / "paper_figures" / f"{target}.md").read_text()
    scales = ["smoke", *re.findall(r"^<!-- results (\w+) -->$", text, re.MULTILINE)]
    if scale not in scales:
        raise ReproError(f"{target} has no scale {scale}; it has {', '.join(scales)}.")


def may_be_published(key: str) -> bool:
    """Whether published files have this key, which tells quickly of most texts that no run is named so."""
    files = (ROOT / "paper_figures" / "results").glob("*/provenance.json")
    return re.fullmatch("[0-9a-f]{12}", key) is not None and any(key in path.read_text() for path in files)


def anywhere(command: str) -> str:
    """A sweep's command without what is about one machine: where results were put, and who was told."""
    words = shlex.split(command)
    return shlex.join(word for word in words if not word.lstrip("+").startswith(("output_dir=", "tracking_uri=")))


def module_of(target: str) -> ModuleType:
    """The module that draws a target and judges its claims.

    Raises:
        ReproError: unknown target.
    """
    check_target(target)
    module = importlib.import_module(f"paper_figures.{target}")
    needed = ("TITLE", "GAME", "SHOWS", "SWEEPS", "draw", "claims", "table")
    lacking = [name for name in needed if not hasattr(module, name)]
    if lacking:
        raise ReproError(f"paper_figures/{target}.py lacks {', '.join(lacking)}.")
    return module


def plan_target(
    target: str, options: Options, but: Mapping[str, Collection[int]] | None = None
) -> tuple[list[PlannedSweep], list[Run]]:
    """A target's sweeps, and the runs that they ask for.

    Args:
        but: of sweeps, by their names, seeds that are left out; a sweep of which none is left is left out as a whole.

    Raises:
        ReproError: the target is not made at this scale, has fewer seeds, or a sweep of it cannot be composed.
    """
    from repro.plans.naming import titled_together  # noqa: PLC0415

    module = module_of(target)
    check_made_at(target, options.scale)

    planned: list[PlannedSweep] = []
    runs: list[Run] = []
    most = 0
    for sweep in (s for s in module.SWEEPS if options.scale in (s.only or (options.scale,))):
        asked = sweep.arguments(options.scale)
        settled = {override.partition("=")[0] for override in asked}
        # A sweep may say the device itself, where its algorithm or its scale has use for one alone.
        where = [override for override in _where(options) if override.partition("=")[0] not in settled]
        overrides = [*asked, f"target={target}", *where]
        sweep_runs = composed(tuple(overrides))
        every = list(dict.fromkeys(config.seed for run in sweep_runs for config in run.configs))
        most = max(most, len(every))
        seeds = [seed for seed in every[: options.seeds] if seed not in (but or {}).get(sweep.name, ())]
        if not seeds:
            continue
        if seeds != every:
            overrides = _with_seeds(overrides, seeds)
            sweep_runs = composed(tuple(overrides))
        configs = [config for run in sweep_runs for config in run.configs]
        command = "python -m repro.run -m " + shlex.join([*overrides, "hydra/launcher=joblib"])
        planned.append(PlannedSweep(sweep.name, command, configs, tuple(sweep.arguments("paper"))))
        runs += sweep_runs
    if options.seeds is not None and options.seeds > most:
        raise ReproError(f"--seeds is {options.seeds}; {target} has {most} at the most at scale {options.scale}.")
    return planned, titled_together(runs)


def _with_seeds(overrides: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """A sweep's overrides with other seeds; it has several of its own, so that they say which."""
    asked = f"seed={','.join(map(str, seeds))}"
    return [asked if override.startswith("seed=") else override for override in overrides]


def _where(options: Options) -> list[str]:
    """What is about the machine, and who is told."""
    from repro.config.jobs import quoted  # noqa: PLC0415

    output = [] if options.output == Path("outputs").absolute() else [f"output_dir={quoted(str(options.output))}"]
    store = [] if options.tracking_uri is None else [f"tracking_uri={quoted(options.tracking_uri)}"]
    return [*output, *store, *([] if options.device == "cpu" else [f"device={options.device}"])]


def composed(overrides: tuple[str, ...]) -> Sequence[Run]:
    """The runs that a command line asks for.

    Raises:
        ReproError: it cannot be composed.
    """
    from repro.plans.planning import plan  # noqa: PLC0415  (--draw needs none of this)

    return plan(overrides, multirun=True).runs


def check_options(options: Options) -> None:
    """Refuse options that nothing can be made with.

    Raises:
        ReproError: a scale that does not exist, or too many runs at once.
    """
    from repro.config.jobs import MOST_AT_ONCE  # noqa: PLC0415  (imports Hydra, which --help does not need)

    check_scale(options.scale)
    if not 1 <= options.jobs <= MOST_AT_ONCE:
        raise ReproError(f"--jobs is {options.jobs}; it must be from 1 to {MOST_AT_ONCE}.")
    if options.seeds is not None and options.seeds < 1:
        raise ReproError(f"--seeds is {options.seeds}; it must be at least 1.")
