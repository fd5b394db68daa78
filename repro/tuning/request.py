"""What `repro.tune` is asked for: checked before any work, and foreseen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from repro.common.errors import ReproError
from repro.config.composed import CONF
from repro.config.lightning import processes_of
from repro.config.schema import Config
from repro.jobs.needs import check_sizes, lacking_a_gpu
from repro.plans.planned import Run
from repro.tuning.config import NOT_TUNED, StudyConfig, parameters, read, runs


def run(words: Sequence[str], config_dir: str | None, dry_run: bool = False) -> int:
    """Do a study as words of a command line ask, or say what that would be.

    Returns:
        The exit status: 0, or 1 if something did not end.

    Raises:
        ReproError: the request is at fault.
    """
    names, overrides = [w for w in words if "=" not in w], [w for w in words if "=" in w]
    if len(names) != 1:
        given = f"is {' '.join(names)!r}" if names else "is missing"
        told = f"NAME {given}; it must be one of the studies in conf/tune, or in tune/ of --config-dir:"
        raise ReproError("\n  ".join([told, *_studies(config_dir)]))
    _check_keys(overrides)
    study = read([f"tune={names[0]}", *overrides], config_dir)
    default = runs(study, [], study.seeds, config_dir)
    _check_space(study, config_dir)
    if dry_run:
        return _foresee(study, default, config_dir)
    from repro.tuning.search import tune  # noqa: PLC0415  (imports Optuna and MLflow, which takes seconds)

    return tune(study, default[0], config_dir)


def _check_keys(overrides: Sequence[str]) -> None:
    """Refuse a key of runs, which says what all trials have.

    Raises:
        ReproError: there is one.
    """
    of_runs = {each.name for each in fields(Config)} - {each.name for each in fields(StudyConfig)} - set(NOT_TUNED)
    for override in overrides:
        if override.lstrip("+~").partition("=")[0].partition(".")[0] in of_runs:
            raise ReproError(
                f"{override} is of the runs, not of the study: give what all trials have in overrides (docs/tuning.md)."
            )


def _studies(config_dir: str | None) -> list[str]:
    """A line per study that there is: its name, and the first comment of its file, which says what it is."""
    folders = [CONF, *([] if config_dir is None else [Path(config_dir)])]
    files = {path.stem: path for folder in folders for path in sorted(folder.glob("tune/*.yaml"))}
    lines = []
    for name, path in files.items():
        comments = [line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#")]
        about = [comment for comment in comments if comment and not comment.startswith("@package")]
        lines.append(": ".join([name, *about[:1]]))
    return lines


def _check_space(study: StudyConfig, config_dir: str | None) -> None:
    """Compose the corners of a space, so that what cannot be is refused before any work.

    Raises:
        ReproError: a key is unknown, or a value impossible.
    """
    space = list(parameters(study.space))
    for last in (0, -1):
        changes = [p.override((p.choices or [p.low, p.high])[last]) for p in space]
        corner = runs(study, changes, study.seeds[:1], config_dir)
        check_sizes([Run([config], {}) for config in corner])
        for count in (count for config in corner if (count := processes_of(config)) > 1):
            raise ReproError(f"trainer.devices is {count}; a trial is done by one process, and jobs=... does several.")


def _foresee(config: StudyConfig, default: Sequence[Config], config_dir: str | None) -> int:
    """Print what is left of a study, without doing or writing anything; returns the exit status."""
    from repro.estimates.outlook import outlooks, show  # noqa: PLC0415  (imports more, which takes seconds)
    from repro.tuning.study import counts  # noqa: PLC0415

    ended, begun = counts(config)
    left, fresh = max(0, config.trials - ended), config.fresh_seeds
    compared = runs(config, [], fresh, config_dir) if fresh else []
    print(f"study {config.study}: {ended} of {config.trials} trial(s) ended, {begun} begun")
    then = f", and what is not done of the best and the default on {len(fresh)} fresh seed(s)" if fresh else ""
    print(f"left: {left} trial(s) of {len(config.seeds)} training(s) each{then}.")
    print("Of these it is not known how long they take; the default's trainings alone, which need not take as long:")
    trainings = [Run([each], {}) for each in [*default, *compared]]
    show(outlooks(trainings, Path(config.output_dir).absolute()), config.jobs)
    if lacking := lacking_a_gpu(trainings):
        print(lacking)
    return 0
