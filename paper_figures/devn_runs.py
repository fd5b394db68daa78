"""What the figures and tables of DEVN against DCVN share: the runs, their losses, and the paper's numbers.

Unbucketed losses are root mean square errors (RMSE) of a subgame's and player's hands, averaged over both, in % of the
pot, of the network that did best on the validation subgames; `pooled` is one RMSE over all subgames.
A comparison of two networks is paired by seed, which names the initial weights and the order of the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from paper_figures.devn_sweeps import FRESH_SEEDS
from paper_figures.encoding_errors import PAPER as PAPER_ERRORS
from paper_figures.encoding_errors import Row
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.table4 import MEAN, OVER_ALL
from repro.evaluation.statistics import Estimate, digits, mean_ci
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED, Claim, Verdict, above, all_of
from repro.figures.frame import MEASURED, curves
from repro.figures.frame import values as values_of

DCVN, DEVN, ZERO_SUM, OWN_STEP = "dcvn", "devn", "devn_zero_sum", "devn_own_step"
NAMES = {DCVN: "DCVN", DEVN: "DEVN", ZERO_SUM: "DEVN, made zero-sum", OWN_STEP: "DEVN, by DCVN's own step"}
COLOURS = {DCVN: "#0072B2", DEVN: "#D55E00", ZERO_SUM: "#CC79A7", OWN_STEP: "#AA4499"}
UNIT = "% of the pot"
OF_PAPER = "The paper's are of full-deck turn subgames."
"""What pages add to its numbers."""
LEGEND = {"unbucketed": MEAN, "pooled": OVER_ALL}
"""What the two metrics are."""


@dataclass(frozen=True)
class Setting:
    """One of the paper's settings.

    Attributes:
        name: its Roman number, small.
        dataset: 1 or 2.
        buckets: how many in the paper, 0 for none.
        paper: unbucketed losses of DCVN and of DEVN by number of hidden layers, DEVN Table 3 and Supplement Table 6.
    """

    name: str
    dataset: int
    buckets: int
    paper: dict[int, tuple[float, float]]

    def paper_loss(self, method: str, hidden: int) -> float:
        """The paper's unbucketed loss."""
        dcvn, devn = self.paper[hidden]
        return dcvn if method == DCVN else devn

    @property
    def paper_row(self) -> Row:
        """The paper's encoding errors."""
        return next(row for row in PAPER_ERRORS if (row.dataset, row.buckets) == (self.dataset, self.buckets))

    def paper_error(self, method: str) -> float:
        """One of them."""
        return self.paper_row.dcvn if method == DCVN else self.paper_row.devn

    @property
    def sweep(self) -> str:
        """Of its networks."""
        return f"setting_{self.name}"

    def __str__(self) -> str:
        return self.name.upper()

    def at(self, scale: str) -> str:
        """The numeral, and what it stands for at a scale that is not the paper's."""
        if scale not in AT:
            return str(self)
        reduced = AT[scale]
        buckets = f"{reduced.buckets[self.buckets]} buckets" if self.buckets else "no buckets"
        neurons = reduced.narrow if self is BUCKETED[0] else reduced.wide
        return f"{self} ({reduced.subgames[self.dataset]}, {buckets}, {neurons} neurons)"


@dataclass(frozen=True)
class Reduced:
    """What the paper's settings are at a smaller scale.

    Attributes:
        subgames: of which each dataset is.
        buckets: how many, by how many the paper has.
        narrow, wide: neurons per layer, in setting I and in the others.
    """

    subgames: dict[int, str]
    buckets: dict[int, int]
    narrow: int
    wide: int


AT = {
    "laptop": Reduced({1: "rivers", 2: "24-card turns"}, {1000: 250, 2000: 500}, 128, 256),
    "smoke": Reduced(dict.fromkeys((1, 2), "16-card rivers"), {1000: 10, 2000: 20}, 4, 8),
}
"""By scale; `paper_figures.devn_sweeps` makes it so."""

BUCKETED = (
    Setting("i", 1, 1000, {2: (4.161, 3.679), 3: (3.919, 3.448), 5: (3.745, 3.264), 7: (3.679, 3.204)}),
    Setting("ii", 1, 1000, {2: (3.934, 3.449), 3: (3.700, 3.212), 5: (3.554, 3.054), 7: (3.513, 2.994)}),
    Setting("iii", 1, 2000, {2: (3.795, 3.317), 3: (3.578, 3.080), 5: (3.419, 2.905), 7: (3.368, 2.839)}),
    Setting("iv", 2, 1000, {2: (6.316, 5.729), 3: (5.982, 5.380), 5: (5.821, 5.150), 7: (5.772, 5.021)}),
    Setting("v", 2, 2000, {2: (6.375, 5.790), 3: (6.035, 5.389), 5: (5.793, 5.095), 7: (5.724, 4.939)}),
)
UNABSTRACTED = (
    Setting("vi", 1, 0, {3: (5.309, 5.046), 5: (4.150, 3.801), 7: (3.808, 3.497)}),
    Setting("vii", 2, 0, {3: (8.770, 8.461), 5: (7.183, 6.941), 7: (6.905, 6.620)}),
)


def best_epochs(data: pd.DataFrame) -> pd.DataFrame:
    """Of each read-out of each network, errors at the epoch at which it was best."""
    errors = data[data.metric.isin(("unbucketed", "pooled", "encoding_error", "predicting_zero"))]
    each = [column for column in data.columns if column not in MEASURED]
    unbucketed = errors[errors.metric == "unbucketed"]
    best = unbucketed.loc[unbucketed.groupby(each, dropna=False).value.idxmin(), [*each, "step"]]
    return errors.merge(best, on=[*each, "step"])


_OF_SETTINGS = r"^(?:setting|fresh|own_step)_"
"""Sweeps of the settings' networks: the first seeds, fresh ones, and what else is read out of these."""


def networks_of_settings(data: pd.DataFrame) -> pd.DataFrame:
    """What was measured of the settings' networks."""
    return data[data.sweep.str.contains(_OF_SETTINGS, regex=True)]


def of_settings(data: pd.DataFrame) -> pd.DataFrame:
    """The networks of the settings at their best."""
    return best_epochs(networks_of_settings(data))


def of_all_seeds(data: pd.DataFrame) -> pd.DataFrame:
    """Fresh seeds beside the first ones, in the sweeps of their settings."""
    return data.assign(sweep=data.sweep.str.replace(_OF_SETTINGS, "setting_", regex=True))


def judging(data: pd.DataFrame) -> pd.DataFrame:
    """What claims are judged by, in the sweeps of the settings: fresh seeds alone, once all networks of all settings
    with buckets have all of them; else the first ones alone."""
    first = data.sweep.str.startswith("setting_")
    if all(_has_fresh_seeds(data, setting) for setting in BUCKETED):
        return of_all_seeds(data[~data.sweep.isin([setting.sweep for setting in BUCKETED])])
    return data[first | ~data.sweep.str.contains(_OF_SETTINGS, regex=True)]


def _has_fresh_seeds(data: pd.DataFrame, setting: Setting) -> bool:
    """Whether every network that a setting has of the first seeds is there of every fresh one."""
    of_network_ = ["algorithm", "network_layers"]
    first = data[data.sweep == setting.sweep][of_network_].drop_duplicates()
    fresh = data[data.sweep == f"fresh_{setting.name}"][[*of_network_, "seed"]].drop_duplicates()
    there = fresh.merge(first, on=of_network_).seed.isin(FRESH_SEEDS).sum()
    return bool(there == len(first) * len(FRESH_SEEDS) > 0)


def bucketed_losses(data: pd.DataFrame) -> pd.DataFrame:
    """Bucketed losses of each network at the epoch at which it was best, not made zero-sum."""
    losses = data[data.metric.isin(("loss/train", "loss/validation"))]
    best = best_epochs(data)
    best = best[(best.metric == "unbucketed") & best.readout.isin((DCVN, DEVN))]
    each = [column for column in data.columns if column not in ("readout", "metric", "value")]
    return losses.merge(best[each], on=each)


def subgames(data: pd.DataFrame) -> pd.DataFrame:
    """What is known of the solved subgames: how exploitable, and after how many iterations."""
    return data[data.sweep.str.startswith("data") & data.metric.isin(("exploitability/most", "solver_iterations"))]


def layers(data: pd.DataFrame, setting: Setting) -> list[int]:
    """The numbers of hidden layers that were run."""
    return values_of(data[data.sweep == setting.sweep], "network_layers")


def of_network(sweep: str, method: str, hidden: int | None = None) -> dict[str, Any]:
    """Where a method's networks in a sweep are: all of them, if they have as many layers, or those with so many."""
    layers_ = {} if hidden is None else {"network_layers": hidden}
    return {"sweep": sweep, "algorithm": DCVN if method == DCVN else DEVN, **layers_}


def named(data: pd.DataFrame, setting: Setting) -> str:
    """A setting, and what it is at the data's scale."""
    return setting.at(str(data.scale.iloc[0]))


def stacked(name: str) -> str:
    """A name of `named` in lines, for a picture."""
    return name.replace(" (", "\n").replace(", ", "\n").removesuffix(")")


def by_seed(data: pd.DataFrame, setting: Setting, method: str, hidden: int, metric: str = "unbucketed") -> pd.Series:
    """A measurement of a read-out at the epoch of its best network, by seed."""
    return values(data, setting.sweep, method, metric, hidden)


def losses(data: pd.DataFrame, sweep: str, method: str, hidden: int | None = None) -> pd.DataFrame:
    """Bucketed losses at the epoch of the best network: a row per seed, columns `train` and `validation`."""
    where = of_network(sweep, method, hidden)
    tables = {which: curves(data, f"loss/{which}", readout="training", **where) for which in ("train", "validation")}
    return pd.DataFrame({which: _at_the_best(table) for which, table in tables.items()})


Network = tuple[str, str, int | None]
"""Networks of all seeds: their sweep, DCVN or DEVN, and hidden layers if their sweep has several."""


def unfinished(data: pd.DataFrame, networks: Iterable[Network]) -> bool:
    """Whether more than half of some networks were best at the last epoch, so that they would have learned more.

    The last epoch of a sweep is taken to be the latest at which one of its networks was best.
    """
    at_the_end = []
    for sweep, method, hidden in networks:
        rows = _of_best_networks(data[data.sweep == sweep])
        mine = rows[rows.algorithm == method]
        steps = mine if hidden is None else mine[mine.network_layers == hidden]
        at_the_end.append(steps.step == rows.step.max())
    return bool(pd.concat(at_the_end).mean() > 0.5)


def _of_best_networks(data: pd.DataFrame) -> pd.DataFrame:
    """A row of each network, at the epoch at which it was best."""
    losses = data[(data.metric == "unbucketed") & (data.readout == data.algorithm)]
    return losses if len(losses) else data[data.metric == "loss/validation"]


LEARN_MORE = "the networks would have learned more: most were best at their last epoch"
"""Why a claim that did not hold is not testable."""


def unless_unfinished(data: pd.DataFrame, claim: Claim, networks: Iterable[Network]) -> Claim:
    """The claim; if it did not hold, and its networks would have learned more, it is not testable.

    One that holds with such networks is left as it is.
    """
    if claim.verdict != DID_NOT_HOLD or not unfinished(data, networks):
        return claim
    return not_testable(claim, LEARN_MORE)


def not_testable(claim: Claim, why: str) -> Claim:
    """The claim with its number, and without a verdict on it."""
    return replace(claim, verdict=NOT_TESTABLE, note=f"{claim.note}; {why}")


LEARNED = "best epochs: DCVN | DEVN | training loss: DCVN | DEVN | validation loss / training loss: DCVN | DEVN"
"""Columns of `learned`."""


def learned(data: pd.DataFrame, sweep: str, hidden: int | None = None) -> str:
    """How far the networks of both methods learned, and how much of that is by heart: cells of a table's row."""
    epochs, training, ratios = [], [], []
    for method in (DCVN, DEVN):
        best = curves(data, "unbucketed", readout=method, **of_network(sweep, method, hidden)).stack().dropna()
        epochs.append(", ".join(f"{step:.0f}" for step in sorted(best.index.get_level_values("step"))))
        both = losses(data, sweep, method, hidden)
        training.append(f"{digits(both.train.mean())}")
        ratios.append(str(mean_ci(both.validation / both.train)))
    return " | ".join([*epochs, *training, *ratios])


HOW_FAR = (
    "Epochs at which the networks of the seeds were best, and there bucketed losses; a training loss is the mean over "
    "the epoch, while the network learns."
)


def values(
    data: pd.DataFrame, sweep: str, method: str, metric: str = "unbucketed", hidden: int | None = None
) -> pd.Series:
    """A measurement of a read-out in a sweep at the epoch of its best network, by seed."""
    return _at_the_best(curves(data, metric, readout=method, **of_network(sweep, method, hidden)))


def _at_the_best(table: pd.DataFrame) -> pd.Series:
    """Of `[seeds, epochs]` the only value that each seed has."""
    return pd.Series(table.stack().dropna().droplevel("step"))


def lower_by(before: pd.Series | pd.DataFrame | float, after: pd.Series | pd.DataFrame | float) -> Any:
    """By how much the second is lower, in % of the first."""
    return 100 * (1 - after / before)


def improvement(data: pd.DataFrame, setting: Setting, hidden: int, metric: str = "unbucketed") -> pd.Series:
    """By how much DEVN's error is lower than DCVN's, in % of that, by seed."""
    lower: pd.Series = lower_by(*(by_seed(data, setting, method, hidden, metric) for method in (DCVN, DEVN)))
    return lower


def encoding_error(data: pd.DataFrame, setting: Setting, method: str) -> float:
    """Of the validation subgames; all networks of a setting have the same."""
    return float(by_seed(data, setting, method, layers(data, setting)[0], "encoding_error").iloc[0])


def predicting_zero(data: pd.DataFrame, sweeps: Iterable[str]) -> str:
    """What the losses of sweeps with the same validation subgames are to be compared with, in words."""
    rows = data[data.sweep.isin(list(sweeps)) & (data.metric == "predicting_zero")]
    return f"who predicts 0 for every hand errs by {digits(rows.value.iloc[0])}{UNIT}"


def mean_over(series: Iterable[pd.Series]) -> pd.Series:
    """The mean of several numbers of each seed, such as those of networks with more and fewer layers."""
    return pd.concat(list(series), axis=1).mean(axis=1)


def claim_above_zero(
    data: pd.DataFrame,
    name: str,
    statement: str,
    measured: Estimate,
    unit: str,
    note: str,
    source: str = "ours",
    paper: float | None = None,
) -> Claim:
    """A claim that holds if `measured` is above 0; see `Claim`."""
    verdict = unless_smoke(data, above(measured, 0))
    return Claim(name, statement, source, verdict, measured, unit, paper, note=f"{note}; holds if above 0")


def all_above(series: Iterable[pd.Series], threshold: float) -> tuple[Verdict, Estimate]:
    """Whether each of several numbers is above a threshold, and the one that decides it.

    It holds if each one's interval is, and does not if one's is below; the lowest mean with that verdict decides. The
    least of each seed's numbers would be lower than all of them by chance.
    """
    judged = [(above(estimate, threshold), estimate) for estimate in map(mean_ci, series)]
    order = (DID_NOT_HOLD, UNDECIDED, HELD)
    _, least = min(judged, key=lambda each: (order.index(each[0]), each[1].mean))
    return all_of([verdict for verdict, _ in judged]), least


def points(axes: Axes, x: Sequence[float], estimates: Sequence[Estimate], **style: Any) -> None:
    """Means with their intervals, which single runs do not have."""
    mean = [e.mean for e in estimates]
    spread = [[e.mean - e.low for e in estimates], [e.high - e.mean for e in estimates]]
    several = all(e.n > 1 for e in estimates)
    axes.errorbar(x, mean, yerr=spread if several else None, **{"capsize": 3, "markersize": 4, **style})


def plain_numbers(axis: Axis, leading: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Label a logarithmic axis with numbers like 0.02, which begin with these digits."""
    axis.set_major_locator(LogLocator(subs=leading))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def title(data: pd.DataFrame, subject: str) -> str:
    """A figure's title, with what is averaged and the scale."""
    seeds = data[data.algorithm.isin((DCVN, DEVN))].groupby("sweep").seed.nunique()
    many = " to ".join(str(number) for number in sorted({seeds.min(), seeds.max()}))
    over = f"mean and 95% CI over {many} seeds" if seeds.max() > 1 else "one seed"
    return f"{subject}, {over}, scale: {data.scale.iloc[0]}"
