"""Not in the paper: DEVN against DCVN without buckets, trained as the text says and as the authors' code does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures import devn_runs as devn
from paper_figures.devn_runs import DCVN, DEVN
from paper_figures.devn_sweeps import PART_1, WAYS
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import mean_ci
from repro.figures.claims import DID_NOT_HOLD, Claim
from repro.figures.frame import curves

TITLE, GAME = "DEVN, ours", "river subgames"
SHOWS = "DEVN against DCVN without buckets, trained as in the text and as in the authors' code"
SETTING = devn.UNABSTRACTED[0]

LAYERS = (3, 7)


def _networks(name: str, methods: str, pipeline: str) -> Sweep:
    """At laptop scale a quarter of table 6's rivers, and twice as many epochs."""
    return Sweep(
        name, f"experiment=devn algorithm={methods} algorithm.buckets=null network.layers=3,7 seed=range(3) {pipeline}",
        {
            "paper": "network.width=1024",
            "laptop": "network.width=256 algorithm.subgames=25000 algorithm.iterations=20",
            "smoke": "network.width=8 seed=0",
        },
    )  # fmt: skip


SWEEPS = (PART_1, *(_networks(name, methods, how) for name, (methods, how) in WAYS.items()))


@dataclass(frozen=True)
class Pipeline:
    """How networks are trained.

    Attributes:
        title: in words.
        sweeps: of DCVN's networks and of DEVN's.
        colour: of its points.
    """

    name: str
    title: str
    sweeps: dict[str, str]
    colour: str


TEXT = Pipeline("text", "as in the text", {DCVN: "text", DEVN: "text"}, "#0072B2")
CODE = Pipeline("code", "as in the authors' code", {DCVN: "code_dcvn", DEVN: "code_devn"}, "#D55E00")
LAYER = Pipeline(
    "layer", "as in the code, with DCVN's zero-sum layer", {DCVN: "code_dcvn_layer", DEVN: "code_devn"}, "#009E73"
)
PIPELINES = (TEXT, CODE, LAYER)


def select(data: pd.DataFrame) -> pd.DataFrame:
    """The lowest losses so far over the epochs, and losses in training."""
    metrics = ("best", "predicting_zero", "loss/train", "loss/validation")
    return data[~data.sweep.str.startswith("data") & data.metric.isin(metrics)]


def loss(data: pd.DataFrame, pipeline: Pipeline, method: str, hidden: int) -> pd.Series:
    """The lowest unbucketed loss of any epoch, by seed, in % of the pot."""
    sweep = pipeline.sweeps[DCVN if method == DCVN else DEVN]
    return curves(data, "best", readout=method, **devn.of_network(sweep, method, hidden)).iloc[:, -1]


def improvement(data: pd.DataFrame, pipeline: Pipeline, hidden: int) -> pd.Series:
    """By how much DEVN's loss is lower than DCVN's, in % of that, by seed."""
    lower: pd.Series = devn.lower_by(*(loss(data, pipeline, method, hidden) for method in (DCVN, DEVN)))
    return lower


def paper_improvement(hidden: int) -> float:
    """The paper's, of turn subgames, setting VI."""
    lower: float = devn.lower_by(*(SETTING.paper_loss(method, hidden) for method in (DCVN, DEVN)))
    return lower


def draw(data: pd.DataFrame) -> Figure:
    """Losses of both methods, and the improvement, by pipeline and number of layers."""
    figure = Figure(figsize=(10.0, 4.4))
    left, right = figure.subplots(1, 2)
    assert isinstance(left, Axes)
    assert isinstance(right, Axes)
    ticks = list(range(len(LAYERS)))
    for number, pipeline in enumerate(PIPELINES):
        x = [tick + 0.2 * (number - 1) for tick in ticks]
        for method, marker, beside in ((DCVN, "s", -0.03), (DEVN, "o", 0.03)):
            if method == DEVN and pipeline is LAYER:
                continue  # The same networks.
            losses = [mean_ci(loss(data, pipeline, method, hidden)) for hidden in LAYERS]
            label = f"{devn.NAMES[method]}, {pipeline.title}"
            devn.points(left, [at + beside for at in x], losses, fmt=marker, color=pipeline.colour, label=label)
        gains = [mean_ci(improvement(data, pipeline, hidden)) for hidden in LAYERS]
        devn.points(right, x, gains, fmt="o", color=pipeline.colour, label=pipeline.title)
    right.plot(
        ticks, [paper_improvement(hidden) for hidden in LAYERS], "D", color="black", markerfacecolor="white",
        label="paper, turn, setting VI",
    )  # fmt: skip
    right.axhline(0, color="grey", linewidth=0.8)
    left.set(ylabel=f"lowest loss ({devn.UNIT})")
    right.set(ylabel="DEVN's loss below DCVN's (%)")
    for axes in (left, right):
        axes.set_xticks(ticks, [f"{hidden} layers" for hidden in LAYERS])
        axes.set_xlim(-0.5, len(ticks) - 0.5)
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    figure.suptitle(devn.title(data, "DCVN and DEVN without buckets"))
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Whether DEVN is better in each pipeline, and what the authors' code changes."""
    judged = [_lower(data, pipeline, hidden) for pipeline in PIPELINES for hidden in LAYERS]
    for hidden in LAYERS:
        judged += [
            _more(
                data,
                hidden,
                TEXT,
                "code_gains",
                "DEVN's improvement is larger in the authors' pipeline than in the text's",
            ),
            _more(data, hidden, LAYER, "layer_gains", "DEVN's improvement is larger if DCVN has no zero-sum layer"),
        ]
    judged += [_deeper(data, pipeline, method) for pipeline in (TEXT, CODE) for method in (DCVN, DEVN)]
    return judged + [_depth_costs_less(data, method) for method in (DCVN, DEVN)]


def unless_unfinished(
    data: pd.DataFrame, claim: Claim, pipeline: Pipeline, networks: Sequence[tuple[str, int]]
) -> Claim:
    """A claim that did not hold is not testable if more than half of its networks were best at the last epoch."""
    last = []
    for method, hidden in networks:
        where = devn.of_network(pipeline.sweeps[method], method, hidden)
        lowest = curves(data, "best", readout=method, **where)
        last.append(lowest.iloc[:, -1] < lowest.iloc[:, -2])
    if claim.verdict != DID_NOT_HOLD or pd.concat(last).mean() <= 0.5:
        return claim
    return devn.not_testable(claim, devn.LEARN_MORE)


def _lower(data: pd.DataFrame, pipeline: Pipeline, hidden: int) -> Claim:
    measured = mean_ci(improvement(data, pipeline, hidden))
    claim = devn.claim_above_zero(
        data, f"{pipeline.name}_{hidden}",
        f"DEVN's loss is below DCVN's without buckets: {hidden} layers, {pipeline.title}", measured, "%",
        "relative improvement, paired by seed; the paper's is of turn subgames", "Supplement Table 6",
        paper_improvement(hidden),
    )  # fmt: skip
    return unless_unfinished(data, claim, pipeline, [(method, hidden) for method in (DCVN, DEVN)])


def _more(data: pd.DataFrame, hidden: int, before: Pipeline, name: str, text: str) -> Claim:
    measured = mean_ci(improvement(data, CODE, hidden) - improvement(data, before, hidden))
    return devn.claim_above_zero(
        data, f"{name}_{hidden}", f"{text}: {hidden} layers", measured, "percentage points", "paired by seed"
    )


def _gain_of_depth(data: pd.DataFrame, pipeline: Pipeline, method: str) -> pd.Series:
    """By how much the loss is lower with more layers, in % of that with fewer, by seed."""
    lower: pd.Series = devn.lower_by(*(loss(data, pipeline, method, hidden) for hidden in LAYERS))
    return lower


def _depth_costs_less(data: pd.DataFrame, method: str) -> Claim:
    few, many = LAYERS
    measured = mean_ci(_gain_of_depth(data, CODE, method) - _gain_of_depth(data, TEXT, method))
    return devn.claim_above_zero(
        data, f"{method}_depth_costs_less",
        f"{many} layers instead of {few} cost less in the authors' pipeline than in the text's: {devn.NAMES[method]}",
        measured, "percentage points",
        "the relative change of the loss, text less code, paired by seed; networks that would have learned more are "
        "among them",
    )  # fmt: skip


def _deeper(data: pd.DataFrame, pipeline: Pipeline, method: str) -> Claim:
    few, many = LAYERS
    measured = mean_ci(_gain_of_depth(data, pipeline, method))
    claim = devn.claim_above_zero(
        data, f"{pipeline.name}_{method}_deeper",
        f"{many} layers have a lower loss than {few}: {devn.NAMES[method]}, {pipeline.title}", measured, "%",
        "relative improvement, paired by seed; the paper's is of turn subgames", "Supplement Table 6",
        devn.lower_by(*(SETTING.paper_loss(method, hidden) for hidden in LAYERS)),
    )  # fmt: skip
    return unless_unfinished(data, claim, pipeline, [(method, hidden) for hidden in LAYERS])


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Lowest losses by pipeline and number of layers, and how much of them is learned by heart."""
    lines = [
        "| trained | layers | DCVN | DEVN | DEVN, zero-sum | improvement [%] | validation loss / training loss at the "
        "end: DCVN | DEVN |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for pipeline in PIPELINES:
        for hidden in LAYERS:
            losses = " | ".join(str(mean_ci(loss(data, pipeline, m, hidden))) for m in (DCVN, DEVN, devn.ZERO_SUM))
            ratios = " | ".join(str(mean_ci(_by_heart(data, pipeline, m, hidden))) for m in (DCVN, DEVN))
            gains = mean_ci(improvement(data, pipeline, hidden))
            lines.append(f"| {pipeline.title} | {hidden} | {losses} | {gains} | {ratios} |")
    note = (
        f"Lowest losses of any epoch in {devn.UNIT}, the mean over subgames, with 95% intervals over seeds; "
        f"{devn.predicting_zero(data, ['text'])}."
    )
    return "\n".join([*lines, "", note])


def _by_heart(data: pd.DataFrame, pipeline: Pipeline, method: str, hidden: int) -> pd.Series:
    where = {"readout": "training", **devn.of_network(pipeline.sweeps[method], method, hidden)}
    ratio: pd.DataFrame = curves(data, "loss/validation", **where) / curves(data, "loss/train", **where)
    return ratio.iloc[:, -1]
