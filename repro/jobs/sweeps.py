"""All that a command line asks for, from looking at what it needs to its report."""

from __future__ import annotations

import sys

from repro.common.faults import disk_faults_told
from repro.config.jobs import is_about_launching
from repro.jobs.launching import Command
from repro.jobs.needs import check_here, check_needed
from repro.plans.planned import stages
from repro.plans.planning import Sweep, check_scale
from repro.stored.output import prepare_output


@disk_faults_told()
def do_sweep(sweep: Sweep) -> int:
    """Do the runs of a command line; returns the exit status."""
    check_scale(sweep)
    check_here(sweep.runs)
    check_needed(sweep.runs)
    first = sweep.runs[0].config
    output = prepare_output(first.output_dir)
    launcher = [line for line in sweep.overrides if is_about_launching(line)]
    command = Command(output, first.tracking_uri, launcher if sweep.multirun else None)
    for note in sweep.notes:
        print(note, file=sys.stderr)
    status = command.do(stages(sweep.runs))
    command.show(sweep.runs)
    command.show_means(sweep.runs)
    return status
