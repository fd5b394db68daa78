"""What the figures and tables of DEVN against DCVN share: the runs, their losses, and the paper's numbers.

All losses are root mean square errors in % of the pot, of the network that did best on the validation subgames. A
comparison of two networks is paired by seed, which names the initial weights and the order of the samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from matplotlib.axis import Axis
from matplotlib.ticker import StrMethodFormatter

from repro.evaluation.statistics import Estimate, mean_ci

DCVN, DEVN, ZERO_SUM = "dcvn", "devn", "devn_zero_sum"
NAMES = {DCVN: "DCVN", DEVN: "DEVN", ZERO_SUM: "DEVN, made zero-sum"}
COLOURS = {DCVN: "#0072B2", DEVN: "#D55E00", ZERO_SUM: "#CC79A7"}
UNIT = "% of the pot"
GAME = "river and turn subgames"

PAPER_ERRORS = {("i", DCVN): 2.782, ("i", DEVN): 1.944, ("ii", DCVN): 2.782, ("ii", DEVN): 1.944,
                ("iii", DCVN): 2.634, ("iii", DEVN): 1.796, ("iv", DCVN): 4.006, ("iv", DEVN): 2.842,
                ("v", DCVN): 3.887, ("v", DEVN): 2.726}  # fmt: skip
"""Encoding errors by setting and method, DEVN Table 1."""


@dataclass(frozen=True)
class Setting:
    """One of the paper's settings.

    Attributes:
        name: its Roman number, small.
        dataset: 1 or 2.
        paper: unbucketed losses of DCVN and of DEVN by number of hidden layers, DEVN Table 3 and Supplement Table 6.
    """

    name: str
    dataset: int
    paper: dict[int, tuple[float, float]]

    @property
    def part(self) -> str:
        """Of the figures' data."""
        return f"setting_{self.name}"

    def __str__(self) -> str:
        return self.name.upper()


BUCKETED = (
    Setting("i", 1, {2: (4.161, 3.679), 3: (3.919, 3.448), 5: (3.745, 3.264), 7: (3.679, 3.204)}),
    Setting("ii", 1, {2: (3.934, 3.449), 3: (3.700, 3.212), 5: (3.554, 3.054), 7: (3.513, 2.994)}),
    Setting("iii", 1, {2: (3.795, 3.317), 3: (3.578, 3.080), 5: (3.419, 2.905), 7: (3.368, 2.839)}),
    Setting("iv", 2, {2: (6.316, 5.729), 3: (5.982, 5.380), 5: (5.821, 5.150), 7: (5.772, 5.021)}),
    Setting("v", 2, {2: (6.375, 5.790), 3: (6.035, 5.389), 5: (5.793, 5.095), 7: (5.724, 4.939)}),
)
UNABSTRACTED = (
    Setting("vi", 1, {3: (5.309, 5.046), 5: (4.150, 3.801), 7: (3.808, 3.497)}),
    Setting("vii", 2, {3: (8.770, 8.461), 5: (7.183, 6.941), 7: (6.905, 6.620)}),
)


def runs(settings: Iterable[Setting]) -> tuple[str, ...]:
    """The experiments of some settings, after those that solve their subgames."""
    wanted = list(settings)
    return (
        *(f"devn/data_{number}" for number in sorted({s.dataset for s in wanted})),
        *(f"devn/{s.part}" for s in wanted),
    )


def best_epochs(data: pd.DataFrame) -> pd.DataFrame:
    """Of each read-out of each network, errors at the epoch at which it was best."""
    found = data[data.metric.isin(("unbucketed", "typical", "encoding_error"))]
    each = ["part", "variant", "algorithm", "seed"]
    losses = found[found.metric == "unbucketed"]
    best = losses.loc[losses.groupby(each).value.idxmin(), [*each, "step"]]
    return found.merge(best, on=[*each, "step"])


def final(data: pd.DataFrame) -> pd.DataFrame:
    """What the tables need: the networks at their best, and what is known of the subgames."""
    networks = data[data.part.str.startswith("setting")]
    return pd.concat([best_epochs(networks), subgames(data)], ignore_index=True)


def subgames(data: pd.DataFrame) -> pd.DataFrame:
    """What is known of the solved subgames: how exploitable, and after how many iterations."""
    return data[data.part.str.startswith("data") & data.metric.isin(("exploitability/most", "solver_iterations"))]


def layers(data: pd.DataFrame, setting: Setting) -> list[int]:
    """The numbers of hidden layers that were run."""
    variants = data[data.part == setting.part].variant.unique()
    return sorted({int(found.group(1)) for v in variants if (found := re.search(r"network\.layers=(\d+)", v))})


def by_seed(data: pd.DataFrame, setting: Setting, method: str, hidden: int, metric: str = "unbucketed") -> pd.Series:
    """A measurement of a read-out at the epoch of its best network, by seed."""
    network = DCVN if method == DCVN else DEVN
    rows = data[
        (data.part == setting.part) & (data.algorithm == method) & (data.metric == metric)
        & (data.variant == f"algorithm.name={network}, network.layers={hidden}")
    ]  # fmt: skip
    return rows.set_index("seed").value.sort_index()


def improvement(
    data: pd.DataFrame, setting: Setting, hidden: int, metric: str = "unbucketed", of: tuple[str, str] = (DCVN, DEVN)
) -> pd.Series:
    """By how much the second read-out's error is lower than the first's, in % of that, by seed."""
    before, after = (by_seed(data, setting, method, hidden, metric) for method in of)
    return 100 * (1 - after / before)


def encoding_error(data: pd.DataFrame, setting: Setting, method: str) -> float:
    """Of the validation subgames; all networks of a setting have the same."""
    return float(by_seed(data, setting, method, layers(data, setting)[0], "encoding_error").iloc[0])


def over_layers(data: pd.DataFrame, setting: Setting, metric: str = "unbucketed") -> Estimate:
    """DEVN's improvement over DCVN in %, the mean over numbers of layers."""
    found = [improvement(data, setting, n, metric) for n in layers(data, setting)]
    return mean_ci(pd.concat(found, axis=1).mean(axis=1))


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis with numbers like 0.02."""
    for set_formatter in (axis.set_major_formatter, axis.set_minor_formatter):
        set_formatter(StrMethodFormatter("{x:g}"))


def title(data: pd.DataFrame, what: str) -> str:
    """A figure's title, with what is averaged and the scale."""
    seeds = data[data.part.str.startswith("setting")].seed.nunique()
    over = f"mean and 95% CI over {seeds} seeds" if seeds > 1 else "one seed"
    return f"{what}, {over}, scale: {data.scale.iloc[0]}"
