"""How accurate labels of subgames are, beside what DEVN asks of its own (Sec. 6).

`repro.subgames.labels` measures them, in how many subgames they are below the paper's limits, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from repro.evaluation.statistics import digits

ASKED = (90, 98)
"""Percent of subgames whose labels are to be less than 0.5% and 1% of the pot off [DEVN, Sec. 6]."""


def table(data: pd.DataFrame, called: Mapping[str, str]) -> str:
    """Labels beside the same subgames solved further, a row per sweep and tolerance; what the paper asks is first.

    Args:
        data: of one seed of each of these sweeps, with the column `solver_tolerance`.
        called: sweeps that measure labels, and what their subgames are called.
    """
    lines = [
        "| subgames | exploitability at most [%] | compared | with solutions to [%] | below 0.5% of the pot [%] | "
        "below 1% [%] | mean | median | most |",
        "|---|---|---|---|---|---|---|---|---|",
        f"| paper, turns: what it asks of its labels | not given | – | 0.01 | {ASKED[0]} | {ASKED[1]} | – | – | – |",
    ]
    of_labels = data[data.sweep.isin(list(called)) & (data.readout == "labels")]
    of_labels = of_labels.sort_values(["sweep", "solver_tolerance"], ascending=[True, False])
    for (sweep, _), rows in of_labels.groupby(["sweep", "solver_tolerance"], sort=False):
        tolerance, found = float(rows.solver_tolerance.iloc[0]), rows.set_index("metric").value
        of_errors = ("/below_0.5", "/below_1", "", "/median", "/most")
        cells = " | ".join(digits(found[f"label_error{metric}"]) for metric in of_errors)
        lines.append(
            f"| {called[str(sweep)]} | {digits(100 * tolerance)} | {found['compared']:.0f} | "
            f"{digits(found['truth/most'])} | {cells} |"
        )
    note = (
        "Root mean square errors of the CFVs of both players' hands, a number per subgame, in % of the pot, beside "
        "the same subgames solved further; the paper names no unit, and is taken to mean the same."
    )
    return "\n".join([*lines, "", note])
