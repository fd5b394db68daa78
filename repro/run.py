"""Train and evaluate: `python -m repro.run [-m] KEY=VALUE ...`.

Before any work every run that the command line asks for is composed and checked (`repro.planning`) and the output
folder and the tracking store are tried. Then `repro.launching.execute` does each, with `-m` through Hydra's launcher:
skip what is finished, continue what is not, train, measure, and leave a record for the table at the end.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from repro.config.composed import one_sentence
from repro.config.keys import register_schemas
from repro.errors import ReproError
from repro.faults import disk_faults_told
from repro.launching import Command, prepare_output
from repro.planned import stages
from repro.planning import CONF, Sweep, check_scale, check_sizes, is_about_launching, plan
from repro.stopping import CAN_BE_REPEATED, stoppable


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def _show(config: DictConfig) -> None:
    """Only reached by Hydra's own questions, such as --cfg job, which it answers itself."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--config-dir", "-cd")
    return parser


@stoppable(CAN_BE_REPEATED)
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, 1 if a run failed, 2 if the request was at fault."""
    # With this set, Hydra hands its exceptions on instead of printing and exiting.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    words = list(sys.argv[1:] if arguments is None else arguments)
    options, overrides = _parser().parse_known_args(words)
    try:
        if any(text.startswith("-") for text in overrides):
            _ask_hydra()
            return 0
        return run(plan(overrides, options.multirun, options.config_dir))
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        print(f"error: {one_sentence(error)}", file=sys.stderr)
        return 2
    except ReproError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _ask_hydra() -> None:
    """Let Hydra answer what is about it: --help, --cfg, --info, --hydra-help, shell completion."""
    register_schemas()
    _show()


@disk_faults_told()
def run(sweep: Sweep) -> int:
    """Do the runs of a command line; returns the exit status."""
    check_scale(sweep)
    check_sizes(sweep.runs)
    first = sweep.runs[0].config
    output = prepare_output(first.output_dir)
    launcher = [line for line in sweep.overrides if is_about_launching(line)]
    command = Command(output, first.tracking_uri, launcher if sweep.multirun else None)
    return command.do(stages(sweep.runs))


if __name__ == "__main__":
    sys.exit(main())
