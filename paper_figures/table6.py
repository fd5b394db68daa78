"""DEVN Table 3 and Supplement Table 6: unbucketed losses of DCVN and DEVN, with buckets and without."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_labels
from paper_figures import devn_margin as margin
from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN, Setting
from paper_figures.devn_sweeps import DATA, LABELS, OWN_STEP, sweeps
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.table4 import MARGIN
from repro.evaluation.statistics import digits, mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, below, within
from repro.figures.page import folded

TITLE, GAME = "DEVN Table 3 and Supplement Table 6", "river and turn subgames"
SHOWS = "unbucketed losses of DCVN and DEVN, settings I to VII"

SETTINGS = (*devn.BUCKETED, *devn.UNABSTRACTED)
SWEEPS = (*sweeps((1, 2), ("i", "ii", "iii", "iv", "v", "vi", "vii")), *OWN_STEP.values(), *LABELS)

PAPER_SPREAD = {
    DCVN: {2: 0.010, 3: 0.001, 5: 0.001, 7: 0.002}, DEVN: {2: 0.000037, 3: 0.006, 5: 0.004, 7: 0.006},
}  # fmt: skip
"""Standard deviations of the paper's two runs of each network of setting II, Table 3, in % of the pot."""


_LABELS = tuple(sweep.name for sweep in LABELS)
"""Sweeps that measure labels."""


def select(data: pd.DataFrame) -> pd.DataFrame:
    """The networks at their best, and what is known of the subgames."""
    networks = devn.networks_of_settings(data)
    labels = data[data.sweep.isin(_LABELS) & (data.readout == "labels")]
    parts = (devn.best_epochs(networks), devn.bucketed_losses(networks), devn.subgames(data), labels)
    return pd.concat(parts, ignore_index=True)


def paper_improvement(setting: Setting, hidden: int) -> float:
    """DEVN's over DCVN in the paper, in %."""
    lower: float = devn.lower_by(*(setting.paper_loss(method, hidden) for method in (DCVN, DEVN)))
    return lower


def draw(data: pd.DataFrame) -> Figure:
    """DEVN's improvement over DCVN by setting and number of layers, beside the paper's, and by the share of buckets."""
    data = devn.of_all_seeds(data)
    figure = Figure(figsize=(16.0, 5.0))
    left, right, explained = figure.subplots(1, 3, width_ratios=(1, 1, 0.9))
    for axes, metric in ((left, "unbucketed"), (right, "pooled")):
        assert isinstance(axes, Axes)
        _by_setting(axes, data, metric)
    right.sharey(left)
    assert isinstance(explained, Axes)
    _by_share(explained, data)
    left.set(ylabel="DEVN's error below DCVN's (%)")
    figure.suptitle(devn.title(data, "DEVN's improvement over DCVN in unbucketed loss"))
    figure.tight_layout()
    return figure


def _by_setting(axes: Axes, data: pd.DataFrame, metric: str) -> None:
    for i, setting in enumerate(SETTINGS):
        depths = devn.layers(data, setting)
        for j, hidden in enumerate(depths):
            estimate = mean_ci(devn.improvement(data, setting, hidden, metric))
            x = i + (j - (len(depths) - 1) / 2) * 0.2
            first = i == j == 0
            devn.points(
                axes, [x], [estimate], fmt="o", color=devn.COLOURS[DEVN], capsize=2, label="ours" if first else None
            )
            if metric == "unbucketed":
                axes.plot(
                    x, paper_improvement(setting, hidden), "D", color="black", markerfacecolor="white",
                    markersize=4, label="paper, turn" if first else None,
                )  # fmt: skip
            axes.annotate(str(hidden), (x, 0), (x, 0.01), textcoords=("data", "axes fraction"), fontsize=6, ha="center")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(np.arange(len(SETTINGS)), [devn.stacked(devn.named(data, s)) for s in SETTINGS], fontsize=6)
    axes.set(xlabel="setting (small numbers: hidden layers)", title=devn.LEGEND[metric])
    axes.legend(fontsize=7)


_OF_DATASET = {1: ("#0072B2", "-"), 2: ("#009E73", "--")}
"""Colours of points, and lines of what their gains make of other shares."""


def _by_share(axes: Axes, data: pd.DataFrame) -> None:
    """Gains over the share of buckets in DCVN's squared loss; on a line, gains in both parts are the same."""
    shares = np.linspace(0, 1, 101)
    for number, (colour, line) in _OF_DATASET.items():
        settings = [setting for setting in devn.BUCKETED if setting.dataset == number]
        networks = [(setting, hidden) for setting in settings for hidden in devn.layers(data, setting)]
        found = [margin.ours(data, setting, hidden) for setting, hidden in networks]
        names = f"{settings[0]} {'and' if len(settings) == 2 else 'to'} {settings[-1]}"
        devn.points(
            axes, [float(each.share.mean()) for each in found], [mean_ci(100 * each.gain()) for each in found],
            fmt="o", color=colour, capsize=2, label=f"{names}: ours",
        )  # fmt: skip
        # Of each network first: settings may have different seeds.
        typical = margin.Margin(
            0.0, *(float(np.mean([np.mean(getattr(m, part)) for m in found])) for part in ("buckets", "own"))
        )
        axes.plot(
            shares, 100 * typical.gain(shares), line, color=colour, linewidth=1,
            label=f"{names}: our mean gains, buckets {100 * typical.buckets:.0f}%, network {100 * typical.own:.0f}%",
        )  # fmt: skip
        published = [margin.paper(setting, hidden) for setting, hidden in networks]
        axes.plot(
            [each.share for each in published], [100 * each.gain() for each in published], "D", color=colour,
            markerfacecolor="white", markersize=4, label=f"{names}: paper, turn",
        )  # fmt: skip
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(
        xlabel="share of buckets in DCVN's squared loss", xlim=(0, 1), title="by the share of buckets, I to V",
        ylabel="DEVN's loss below DCVN's (%)",
    )  # fmt: skip
    axes.legend(fontsize=6.5, loc="upper left")


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """That DEVN's loss is lower in every setting and at every depth, by how much, and more so for larger networks.

    One that did not hold with networks that would have learned more is not testable.
    """
    first, data = data, devn.judging(data)
    # Of all settings or of none, so that how many claims there are does not depend on how far runs have got.
    own_step = all((data[data.sweep == s.sweep].readout == devn.OWN_STEP).any() for s in devn.BUCKETED)
    judged = []
    for setting in SETTINGS:
        judged += [_lower(data, setting, hidden) for hidden in devn.layers(data, setting)]
        judged.append(_about(data, setting))
        if setting in devn.BUCKETED:
            judged.append(_explained(data, setting))
        judged.append(_pooled(data, setting))
        judged.append(_larger(data, setting))
        judged.append(_zero_sum(data, setting, devn.ZERO_SUM))
        if own_step and setting in devn.BUCKETED:
            judged.append(_zero_sum(data, setting, devn.OWN_STEP))
    judged.append(_wider(data, *devn.BUCKETED[:2]))
    # Those without buckets have the first seeds alone.
    judged += [_needs_buckets(first, without) for without in devn.UNABSTRACTED]
    judged.append(_spread(data, devn.BUCKETED[1]))
    return judged


def _source(setting: Setting) -> str:
    return "Table 3" if setting in devn.BUCKETED else "Supplement Table 6"


def _networks(data: pd.DataFrame, *settings: Setting, layers: Sequence[int] = ()) -> list[devn.Network]:
    """Of settings, of both methods: all, or those with so many layers."""
    return [
        (setting.sweep, method, hidden)
        for setting in settings
        for method in (DCVN, DEVN)
        for hidden in layers or devn.layers(data, setting)
    ]


def _lower(data: pd.DataFrame, setting: Setting, hidden: int) -> Claim:
    measured = mean_ci(devn.improvement(data, setting, hidden))
    claim = devn.claim_above_zero(
        data, f"{setting.name}_{hidden}",
        f"DEVN's unbucketed loss is below DCVN's: setting {devn.named(data, setting)}, {hidden} layers", measured, "%",
        "relative improvement, paired by seed", _source(setting), paper_improvement(setting, hidden),
    )  # fmt: skip
    return devn.unless_unfinished(data, claim, _networks(data, setting, layers=[hidden]))


def _about(data: pd.DataFrame, setting: Setting) -> Claim:
    depths = devn.layers(data, setting)
    measured = mean_ci(devn.mean_over(devn.improvement(data, setting, n) for n in depths))
    paper_value = float(np.mean([paper_improvement(setting, n) for n in depths]))
    claim = Claim(
        f"{setting.name}_margin",
        f"DEVN's unbucketed loss is below DCVN's by about the paper's margin: setting {devn.named(data, setting)}",
        _source(setting), unless_smoke(data, within(measured, paper_value - MARGIN, paper_value + MARGIN)), measured,
        "%", paper_value,
        note="relative improvement, the mean over numbers of layers, paired by seed; holds if the interval is within "
        f"{MARGIN:.0f} points of the paper's, did not if outside",
    )  # fmt: skip
    return devn.unless_unfinished(data, claim, _networks(data, setting))


def _explained(data: pd.DataFrame, setting: Setting) -> Claim:
    depths = devn.layers(data, setting)
    measured = mean_ci(devn.mean_over(margin.at_the_papers_share(data, setting, n) for n in depths))
    paper_value = float(np.mean([paper_improvement(setting, n) for n in depths]))
    return Claim(
        f"{setting.name}_explained",
        "Our gains in the errors of buckets and of networks would, with the paper's share of buckets, make about the "
        f"paper's margin: setting {devn.named(data, setting)}",
        "ours", unless_smoke(data, within(measured, paper_value - MARGIN, paper_value + MARGIN)), measured, "%",
        paper_value,
        note="the mean over numbers of layers, paired by seed; holds if the interval is within "
        f"{MARGIN:.0f} points of the paper's, did not if outside",
    )  # fmt: skip


def _pooled(data: pd.DataFrame, setting: Setting) -> Claim:
    improvements = (devn.improvement(data, setting, n, "pooled") for n in devn.layers(data, setting))
    measured = mean_ci(devn.mean_over(improvements))
    claim = devn.claim_above_zero(
        data, f"{setting.name}_pooled",
        f"DEVN's error over all subgames at once is below DCVN's: setting {devn.named(data, setting)}", measured, "%",
        "relative improvement, the mean over numbers of layers, paired by seed",
    )  # fmt: skip
    return devn.unless_unfinished(data, claim, _networks(data, setting))


_OF_DEPTH = {"vi": "Supplement Fig. 2", "vii": "ours; in Supplement Fig. 2 both gain alike"}
"""Where it is said that the improvement grows with depth: that DEVN gains more from layers than DCVN is the same."""


def _larger(data: pd.DataFrame, setting: Setting) -> Claim:
    few, many = devn.layers(data, setting)[0], devn.layers(data, setting)[-1]
    measured = mean_ci(devn.improvement(data, setting, many) - devn.improvement(data, setting, few))
    paper_value = paper_improvement(setting, many) - paper_improvement(setting, few)
    claim = devn.claim_above_zero(
        data, f"{setting.name}_larger",
        f"The improvement is larger with {many} layers than with {few}: setting {devn.named(data, setting)}", measured,
        "percentage points", "paired by seed", _OF_DEPTH.get(setting.name, "Sec. 7"), paper_value,
    )  # fmt: skip
    return devn.unless_unfinished(data, claim, _networks(data, setting, layers=[few, many]))


def _wider(data: pd.DataFrame, narrow: Setting, wide: Setting) -> Claim:
    depths = devn.layers(data, narrow)
    measured = mean_ci(
        devn.mean_over(devn.improvement(data, wide, n) - devn.improvement(data, narrow, n) for n in depths)
    )
    paper_value = float(np.mean([paper_improvement(wide, n) - paper_improvement(narrow, n) for n in depths]))
    claim = devn.claim_above_zero(
        data, "wider",
        f"The improvement is larger with wider layers: setting {devn.named(data, wide)} against "
        f"{devn.named(data, narrow)}", measured, "percentage points",
        "the mean over numbers of layers, paired by seed", "Sec. 7", paper_value,
    )  # fmt: skip
    return devn.unless_unfinished(data, claim, _networks(data, narrow, wide))


def _needs_buckets(data: pd.DataFrame, without: Setting) -> Claim:
    """Against the setting of the same dataset and width that has the paper's fewer buckets."""
    coarse = next(s for s in devn.BUCKETED[1:] if s.dataset == without.dataset)
    networks = [(method, n) for method in (DCVN, DEVN) for n in devn.layers(data, without)]
    verdict, least = devn.all_above(
        (-devn.lower_by(*(devn.by_seed(data, s, method, n) for s in (coarse, without))) for method, n in networks), 0
    )
    return Claim(
        f"{without.name}_worse",
        f"Without buckets both methods' losses are higher at every depth: setting {devn.named(data, without)} against "
        f"{devn.named(data, coarse)}", "Supplement", unless_smoke(data, verdict), least, "%",
        min(-devn.lower_by(*(s.paper_loss(method, n) for s in (coarse, without))) for method, n in networks),
        note="in % of the loss with buckets, the method and number of layers that decide, paired by seed; holds if all "
        "are above 0",
    )  # fmt: skip


def spread(data: pd.DataFrame, setting: Setting) -> list[float]:
    """Standard deviations over seeds in % of the loss, of the networks of both methods, as in `PAPER_SPREAD`."""
    found = (devn.by_seed(data, setting, method, n) for method in (DCVN, DEVN) for n in devn.layers(data, setting))
    return [float(100 * losses.std() / losses.mean()) for losses in found]


def _spread(data: pd.DataFrame, setting: Setting) -> Claim:
    published = [
        100 * sd / setting.paper_loss(m, n) for m, by_depth in PAPER_SPREAD.items() for n, sd in by_depth.items()
    ]
    several = data[data.sweep == setting.sweep].seed.nunique() > 1
    measured = mean_ci(spread(data, setting)) if several else None
    claim = Claim(
        "spread", f"Runs differ as little as the paper's: setting {devn.named(data, setting)}", "Table 3",
        unless_smoke(data, below(measured, max(published))) if measured else NOT_TESTABLE, measured, "% of the loss",
        float(np.mean(published)),
        note="standard deviation over seeds, the mean over both methods and numbers of layers, and its interval over "
        f"these; holds if below {digits(max(published))}, the paper's largest of two runs each",
    )  # fmt: skip
    return devn.unless_unfinished(data, claim, _networks(data, setting))


_STEPS = {devn.ZERO_SUM: ("zero_sum", ""), devn.OWN_STEP: ("own_step", " by DCVN's own step")}
"""Of the ways to make predictions zero-sum, how claims are named, and what they say."""


def _zero_sum(data: pd.DataFrame, setting: Setting, step: str) -> Claim:
    depths, (name, by) = devn.layers(data, setting), _STEPS[step]
    improvements = [
        devn.lower_by(devn.by_seed(data, setting, DEVN, n), devn.by_seed(data, setting, step, n)) for n in depths
    ]
    measured = mean_ci(devn.mean_over(improvements))
    return devn.claim_above_zero(
        data, f"{setting.name}_{name}",
        f"Making predictions zero-sum{by} lowers DEVN's unbucketed loss: setting {devn.named(data, setting)}", measured,
        "%", "the same training runs, each at its own best epoch; the mean over numbers of layers",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """DEVN's margin taken apart; the paper's table, with ours; how far networks learned; how exact the labels are."""
    data = devn.of_all_seeds(data)
    parts = [
        "\n".join(_apart(data)),
        folded("losses of every network, beside the paper's", "\n".join(_losses(data))),
        folded("how losses without buckets change with more layers", "\n".join(_deeper(data)), always=True),
        folded("how far each network learned", "\n".join(_learned(data))),
        "\n".join(_labels(data)),
        folded("how accurate the labels are", devn_labels.table(data, _labels_of(data)), always=True),
    ]
    return "\n\n".join(parts)


def _deeper(data: pd.DataFrame) -> list[str]:
    """By how much losses without buckets are below those with three layers [DEVN, Supplement Fig. 2]."""
    lines = [
        "By how much losses are lower, in %, beside the paper's Supplement Fig. 2.",
        "",
        "| setting | layers | DCVN | paper | DEVN | paper |",
        "|---|---|---|---|---|---|",
    ]
    for setting in devn.UNABSTRACTED:
        few, *more = devn.layers(data, setting)
        for hidden in more:
            cells = [f"{devn.named(data, setting)} | {hidden} against {few}"]
            for method in (DCVN, DEVN):
                losses_ = (devn.by_seed(data, setting, method, n) for n in (few, hidden))
                published = devn.lower_by(*(setting.paper_loss(method, n) for n in (few, hidden)))
                cells += [str(mean_ci(devn.lower_by(*losses_))), digits(published)]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _apart(data: pd.DataFrame) -> list[str]:
    """DEVN's margin by the share of buckets: a row per setting, of the least and the most of its numbers of layers."""
    lines = [
        "| setting | share of buckets [%] | paper | gain in their error [%] | paper | gain in the network's own [%] | "
        "paper | improvement [%] | at the paper's share [%] | paper |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for setting in devn.BUCKETED:
        depths = devn.layers(data, setting)
        mine = [margin.ours(data, setting, n) for n in depths]
        published = [margin.paper(setting, n) for n in depths]
        columns: list[list[float]] = []
        for part in ("share", "buckets", "own"):
            columns += [[float(np.mean(getattr(m, part))) for m in each] for each in (mine, published)]
        columns += [
            [float(m.gain().mean()) for m in mine],
            [float(margin.at_the_papers_share(data, setting, n).mean()) / 100 for n in depths],
            [m.gain() for m in published],
        ]
        cells_ = " | ".join(_range([100 * x for x in column]) for column in columns)
        lines.append(f"| {devn.named(data, setting)} | {cells_} |")
    note = (
        "From the least to the most of a setting's numbers of layers, means over seeds. The share is that of the "
        "squared encoding error in DCVN's squared loss; the network's own error is what is left, its root."
    )
    return [*lines, "", note]


def _range(values: Sequence[float]) -> str:
    low, high = (f"{end(values):.1f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _losses(data: pd.DataFrame) -> list[str]:
    """The paper's table, with ours."""
    lines = [
        "| setting | layers | DCVN | DEVN | DEVN, zero-sum | improvement [%] | zero-sum [%] | over all: DCVN | DEVN | "
        "paper: DCVN, DEVN, improvement |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        for hidden in devn.layers(data, setting):
            losses = " | ".join(
                str(mean_ci(devn.by_seed(data, setting, m, hidden))) for m in (DCVN, DEVN, devn.ZERO_SUM)
            )
            pooled = " | ".join(str(mean_ci(devn.by_seed(data, setting, m, hidden, "pooled"))) for m in (DCVN, DEVN))
            paper_cells = ", ".join(str(setting.paper_loss(m, hidden)) for m in (DCVN, DEVN))
            shifted = devn.lower_by(*(devn.by_seed(data, setting, m, hidden) for m in (DCVN, devn.ZERO_SUM)))
            lines.append(
                f"| {devn.named(data, setting)} | {hidden} | {losses} | "
                f"{mean_ci(devn.improvement(data, setting, hidden))} | {mean_ci(shifted)} | {pooled} | "
                f"{paper_cells}, {paper_improvement(setting, hidden):.2f} |"
            )
        if setting in devn.BUCKETED:
            errors = [devn.encoding_error(data, setting, m) for m in (DCVN, DEVN)]
            published = setting.paper_row
            paper_cells = f"{published.dcvn}, {published.devn}, {published.improvement}"
            lines.append(
                f"| {devn.named(data, setting)} | encoding error | {digits(errors[0])} | {digits(errors[1])} | – | "
                f"{digits(devn.lower_by(*errors))} | – | – | – | {paper_cells} |"
            )
    note = (
        f"Errors in {devn.UNIT}, with 95% intervals over seeds. {devn.OF_PAPER} So are its encoding errors, with "
        "1,000 and 2,000 buckets. Its improvements follow from its printed losses; its printed improvements differ "
        "from these by up to 0.02 points."
    )
    return [*lines, "", note]


def _learned(data: pd.DataFrame) -> list[str]:
    """How far the networks learned, and how much of that is by heart."""
    lines = [f"| setting | layers | {devn.LEARNED} |", "|---|---|---|---|---|---|---|---|"]
    lines += [
        f"| {devn.named(data, setting)} | {hidden} | {devn.learned(data, setting.sweep, hidden)} |"
        for setting in SETTINGS
        for hidden in devn.layers(data, setting)
    ]
    return [*lines, "", devn.HOW_FAR]


def _labels(data: pd.DataFrame) -> list[str]:
    """How exploitable the solutions are that the networks learn from, and how large the values."""
    sentences = []
    for sweep, rows in data[data.sweep.str.startswith("data")].groupby("sweep"):
        most = rows[rows.metric == "exploitability/most"].value.max()
        iterations = rows[rows.metric == "solver_iterations"].value.mean()
        number = str(sweep).removeprefix("data_")
        same = [setting.sweep for setting in SETTINGS if str(setting.dataset) == number]
        sentences.append(
            f"Dataset {number}: exploitability of every solution at most {digits(most)}% of the pot, "
            f"after {iterations:.0f} iterations on average; {devn.predicting_zero(data, same)}."
        )
    return sentences


def _labels_of(data: pd.DataFrame) -> dict[str, str]:
    """The sweeps that measure labels, and what datasets these are of at the data's scale."""
    reduced = devn.AT.get(str(data.scale.iloc[0]))
    numbered = zip(_LABELS, DATA, strict=True)
    return {sweep: f"dataset {n}, {reduced.subgames[n] if reduced else 'turns'}" for sweep, n in numbered}
