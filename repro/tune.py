"""Tune hyperparameters: `python -m repro.tune NAME [KEY=VALUE ...]`, where NAME is a file in `conf/tune`.

Trials are drawn by Optuna and done in processes of their own, `jobs` at once. Each is one training per seed, worth the
mean of its metric where the budget is spent, and pruned at points of the budget by what evaluations found. The study is
in `output_dir`/tune/<study>/: a command that was stopped, by Ctrl-C or by force, continues when it is repeated. At the
end the best trial and the default are trained on fresh seeds, and the study's page says what was gained
(`repro.tuning.page`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from repro.common.arguments import Parser
from repro.common.faults import faults_told
from repro.common.stopping import CAN_BE_REPEATED, stoppable


@stoppable(CAN_BE_REPEATED)
@faults_told
def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status: 0, 1 if a trial did not end or failed, 2 if the request was at fault."""
    parser = Parser(prog="python -m repro.tune", description=__doc__)
    parser.add_argument("words", metavar="NAME | KEY=VALUE", nargs="*", help="a file in conf/tune, and changes of it")
    parser.add_argument("--config-dir", "-cd", help="a folder of further configurations, as for repro.run")
    parser.add_argument("--dry-run", action="store_true", help="say what is left of the study; do nothing")
    options = parser.parse_intermixed_args(arguments)
    from repro.tuning.request import run  # noqa: PLC0415  (imports torch and Optuna, which takes seconds)

    return run(options.words, options.config_dir, options.dry_run)


if __name__ == "__main__":
    sys.exit(main())
