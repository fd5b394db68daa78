"""Train and evaluate: `python -m repro.run [-m] [--dry-run] KEY=VALUE ...`.

Before any work every run that the command line asks for is composed and checked (`repro.plans.planning`) and the output
folder and the tracking store are tried. Then `repro.running.executing.execute` does each, with `-m` through Hydra's
launcher: skip what is finished, continue what is not, train, measure, and leave a record for the table at the end.
`--dry-run` says instead what would be done, and how long it may take; `--on` has a cluster's jobs do it, and
`--collect` takes in what these have finished.
"""

from __future__ import annotations

import os
import sys
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from repro.common.arguments import Parser
from repro.common.errors import ReproError
from repro.common.faults import disk_faults_told, faults_told
from repro.common.importing import quicker_imports
from repro.common.stopping import CAN_BE_REPEATED, stoppable
from repro.common.suggestions import did_you_mean
from repro.config.composed import CONF, check_first_words, choices_of, one_sentence
from repro.config.declared import check_early
from repro.config.jobs import is_about_launching
from repro.jobs.elsewhere import Elsewhere, add_options, elsewhere

if TYPE_CHECKING:
    from repro.plans.planning import Sweep


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def _job(config: DictConfig) -> float | None:
    """A run that a sweeper of Hydra's asks for; returns its headline metric (`repro.stored.results.headline_value`).

    Hydra's own questions, such as --cfg job, it answers itself.

    Raises:
        _UnfinishedError: the run did not finish.
    """
    from repro.plans.planning import planned_job  # noqa: PLC0415
    from repro.stored.results import headline_value  # noqa: PLC0415  (imports torch, which takes seconds)

    del config  # Composed without what a game wants by default (`repro.config.game_defaults`).
    job = HydraConfig.get()
    folders = [source.path for source in job.runtime.config_sources if source.provider == "command-line"]
    sweep = planned_job(list(job.overrides.task), *folders)
    if _here(sweep):
        raise _UnfinishedError(f"the run {sweep.runs[0].key} did not finish.")
    return headline_value(sweep.runs[0].config)


def _has_sweeper(overrides: Sequence[str]) -> bool:
    """Whether a sweeper is asked for that decides by results what comes next; a plain sweep is expanded here."""
    return any(line.startswith("hydra/sweeper=") and line != "hydra/sweeper=basic" for line in overrides)


def _parser() -> Parser:
    parser = Parser(add_help=False)
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--config-dir", "-cd")
    # Hydra's. If it were not named here, -c would be read as -cd.
    parser.add_argument("--cfg", "-c")
    parser.add_argument("--info", "-i", nargs="?", const="all")
    parser.add_argument("--dry-run", action="store_true")
    add_options(parser)
    return parser


_HYDRAS = (
    "--cfg", "--config-dir", "--config-name", "--config-path", "--experimental-rerun", "--help", "--hydra-help",
    "--info", "--multirun", "--package", "--resolve", "--run", "--shell-completion", "--version",
)  # fmt: skip


def _check_options(words: Sequence[str]) -> None:
    """Refuse options that neither this command nor Hydra has.

    Raises:
        ReproError: there is one.
    """
    known = [*_HYDRAS, *_parser().options()]
    for word in (word.partition("=")[0] for word in words if word.startswith("--")):
        if word not in known:
            # As other commands have it.
            hint = " (a run's is output_dir=FOLDER)" if word == "--output" else did_you_mean(word, known)
            raise ReproError(f"{word} is unknown{hint}; --help and --hydra-help list what there is.")


@stoppable(CAN_BE_REPEATED)
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, 1 if a run failed, 2 if the request was at fault."""
    # With this set, Hydra hands its exceptions on instead of printing and exiting.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    words = list(sys.argv[1:] if arguments is None else arguments)
    options, overrides = _parser().parse_known_args(words)
    try:
        where = elsewhere(options)
        _check_options(overrides)
        asked = options.cfg is not None or options.info is not None
        if asked and options.multirun:
            raise ReproError("--cfg and --info do not go with -m; leave it out, and give each key one value.")
        if asked:
            from repro.plans.composing import before_hydra  # noqa: PLC0415  (as above)

            told = [word for word in overrides if not word.startswith("-") and ("=" in word or word.startswith("~"))]
            # Hydra takes its overrides in one row.
            first = words.index(told[0]) if told else len(words)
            sys.argv[1:] = [*words[:first], *before_hydra(told, options.config_dir), *words[first:]]
            return _ask_hydra()
        if any(text.startswith("-") for text in overrides) or (options.multirun and _has_sweeper(overrides)):
            return _ask_hydra()
        check_first_words(overrides)
        if options.config_dir is None:
            check_early(overrides, options.multirun)
        with quicker_imports():
            from repro.config.keys import register_schemas  # noqa: PLC0415  (as above)
            from repro.plans.planning import plan  # noqa: PLC0415  (as above)

            register_schemas()
        sweep = plan(overrides, options.multirun, options.config_dir)
        if options.dry_run:
            if where.on:
                from repro.jobs.cluster_settings import settings_of  # noqa: PLC0415  (as above)

                settings_of(where, options.config_dir)  # Refused as if it were to do the runs.
            return foresee(sweep)
        return _here(sweep) if where.is_here else _elsewhere(sweep, where, options.config_dir)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        print(f"error: {one_sentence(error)}", file=sys.stderr)
        return 2
    except ReproError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


class _UnfinishedError(Exception):
    """A run that a sweeper of Hydra's asked for did not finish."""


def _ask_hydra() -> int:
    """Let Hydra do what is about it: --help, --cfg, --info, --hydra-help, shell completion, sweepers of its own.

    Returns:
        The exit status.
    """
    from repro.config.keys import register_schemas  # noqa: PLC0415  (as above)

    register_schemas()
    OmegaConf.register_new_resolver("choices_of", _listed, replace=True)
    try:
        _job()
    except _UnfinishedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _listed(group: str) -> str:
    """`${choices_of:GROUP}`, for the text of --help (conf/config.yaml), whose lines begin with 15 characters."""
    return textwrap.fill(", ".join(choices_of(group)), 105, subsequent_indent=15 * " ")


def _here(sweep: Sweep) -> int:
    from repro.jobs.sweeps import do_sweep  # noqa: PLC0415  (as above)

    return do_sweep(sweep)


@disk_faults_told()
def _elsewhere(sweep: Sweep, where: Elsewhere, config_dir: str | None) -> int:
    """Have the runs of a command line done by jobs, do a part of them, or collect them; returns the exit status."""
    from repro.jobs import cluster  # noqa: PLC0415  (as above)
    from repro.jobs.launching import Command  # noqa: PLC0415
    from repro.plans.planning import check_scale  # noqa: PLC0415

    check_scale(sweep)
    for note in sweep.notes:
        print(note, file=sys.stderr)
    again = "the same command with"
    if where.collects:
        missing = cluster.collect(sweep.runs, again)
        first = sweep.runs[0].config
        Command(Path(first.output_dir).absolute(), first.tracking_uri, None, closes=False).show_means(sweep.runs)
        return 1 if missing else 0
    if where.part is not None:
        return cluster.do_part(sweep.runs, where.part, _at_once(sweep), again)
    return cluster.submit(sweep.runs, where, _said_at_once(sweep), again, config_dir)


def _at_once(sweep: Sweep) -> int:
    """How many runs are to go on at once here: what is said of joblib, or as many as there are cores."""
    return _said_at_once(sweep) or os.cpu_count() or 1


def _said_at_once(sweep: Sweep) -> int | None:
    """How many runs are to go on at once; None if nothing is said of that, or -1."""
    given = [line.partition("=")[2] for line in sweep.overrides if "hydra.launcher.n_jobs=" in line]
    jobs = int(given[-1]) if given else -1
    return None if jobs < 1 else jobs


def foresee(sweep: Sweep) -> int:
    """Print what a command line would do, without doing it; returns the exit status."""
    from repro.estimates.outlook import outlooks, show  # noqa: PLC0415  (as above)
    from repro.jobs.needs import check_needed, check_sizes, lacking_a_gpu  # noqa: PLC0415
    from repro.plans.planning import check_scale  # noqa: PLC0415

    check_scale(sweep)
    check_sizes(sweep.runs)
    check_needed(sweep.runs)
    for note in sweep.notes:
        print(note, file=sys.stderr)
    joblib = any("joblib" in line for line in sweep.overrides if is_about_launching(line))
    jobs = _at_once(sweep) if joblib and sweep.multirun else 1
    show(outlooks(sweep.runs, Path(sweep.runs[0].config.output_dir).absolute()), jobs)
    if lacking := lacking_a_gpu(sweep.runs):
        print(lacking)
    return 0


if __name__ == "__main__":
    sys.exit(main())
