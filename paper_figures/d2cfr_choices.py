"""What D2CFR's text leaves open: how much the outcome depends on each value that had to be chosen for it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.claims import NOT_TESTABLE, Claim, below
from paper_figures.d2cfr_curves import UNIT, curves, late
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, mean_ci

TITLE, GAME = "D2CFR, ours", "Leduc"
SHOWS = "what D2CFR's text leaves open: sensitivity to traversals, SGD steps, loss weights"


def _choice(name: str, overrides: str, smoke: str) -> Sweep:
    """What a choice is held against; at laptop scale in fewer iterations than figure 6."""
    return Sweep(
        name, f"experiment=d2cfr_leduc {overrides} seed=range(5)",
        {"laptop": "algorithm.iterations=60", "smoke": f"{smoke} seed=0"},
    )  # fmt: skip


SWEEPS = (
    # The weight of the policy loss's divergence: none, as printed, and ten times as much; its sign, at the last.
    _choice("divergence", "algorithm.kl_weight=0,0.05,0.5", "algorithm.kl_weight=0,0.05"),
    _choice("divergence_sign", "algorithm.kl_weight=0.5 algorithm.kl_sign=minus,plus", ""),
    # SGD steps of the policy networks, which the text does not give.
    _choice("policy_steps", "algorithm.average.steps=400,800", "algorithm.average.steps=10,20"),
    # The weight of the state value's error, which the text does not give.
    _choice("state_loss", "algorithm.state_loss=0.25,1,4", "algorithm.state_loss=1,4"),
    # Traversals per player and iteration, K, which the text does not give.
    _choice("traversals", "algorithm.traversals=100,200", ""),
    # SGD steps of the value networks, which the text does not give.
    _choice("value_steps", "algorithm.value.steps=200,400", "algorithm.value.steps=10,20"),
)


@dataclass(frozen=True)
class Choice:
    """One value that was chosen, and the others that were tried.

    Attributes:
        part: the sweep.
        name: of the key, for readers.
        chosen: variant with our choice.
        expected: what one would expect, and the variants (lower, higher) whose exploitabilities tell.
    """

    part: str
    name: str
    chosen: str
    expected: str
    lower: str
    higher: str


CHOICES = (
    Choice(
        "traversals", "traversals K", "algorithm.traversals=100", "More traversals make D2CFR less exploitable",
        "algorithm.traversals=200", "algorithm.traversals=100",
    ),
    Choice(
        "value_steps", "SGD steps, value networks", "algorithm.value.steps=200",
        "More SGD steps of the value networks make D2CFR less exploitable",
        "algorithm.value.steps=400", "algorithm.value.steps=200",
    ),
    Choice(
        "policy_steps", "SGD steps, policy networks", "algorithm.average.steps=400",
        "More SGD steps of the policy networks make D2CFR less exploitable",
        "algorithm.average.steps=800", "algorithm.average.steps=400",
    ),
    Choice(
        "state_loss", "weight of the state value's error", "algorithm.state_loss=1.0",
        "Weighing the state value's error more makes D2CFR less exploitable",
        "algorithm.state_loss=4.0", "algorithm.state_loss=0.25",
    ),
    Choice(
        "divergence", "weight of the divergence", "algorithm.kl_weight=0.05",
        "The divergence as printed makes D2CFR less exploitable than none",
        "algorithm.kl_weight=0.05", "algorithm.kl_weight=0.0",
    ),
    Choice(
        "divergence_sign", "sign of it, weight 0.5", "algorithm.kl_sign=minus",
        "The divergence's printed sign makes D2CFR less exploitable than the other",
        "algorithm.kl_sign=minus", "algorithm.kl_sign=plus",
    ),
)  # fmt: skip


def _level(data: pd.DataFrame, part: str, variant: str) -> pd.Series | None:
    """Exploitability over the last quarter of the evaluations, by seed; None if it was not run."""
    table = curves(data, "d2cfr", variant=variant, part=part)
    return late(table) if table.shape[1] else None


def _variants(data: pd.DataFrame, part: str) -> list[str]:
    """The variants of a sweep, numbers ascending."""
    found = data[data.part == part].variant.fillna("").unique()
    return sorted(found, key=lambda variant: (len(_short(variant).split(".")[0]), _short(variant)))


def _short(variant: str) -> str:
    return variant.rsplit("=", 1)[-1]


def difference(data: pd.DataFrame, part: str, variant: str, against: str) -> Estimate | None:
    """Exploitability of a variant minus that of another, paired by seed."""
    first, second = _level(data, part, variant), _level(data, part, against)
    return None if first is None or second is None else mean_ci(first - second)


def draw(data: pd.DataFrame) -> Figure:
    """Exploitability of every variant, a panel for each choice."""
    figure = Figure(figsize=(12.0, 3.4))
    panels = figure.subplots(1, len(CHOICES), sharey=True)
    highest = 0.0
    for axes, choice in zip(panels, CHOICES, strict=True):
        assert isinstance(axes, Axes)
        variants = _variants(data, choice.part)
        for x, variant in enumerate(variants):
            level = _level(data, choice.part, variant)
            assert level is not None
            estimate = mean_ci(level)
            spread = [[estimate.mean - estimate.low], [estimate.high - estimate.mean]] if estimate.n > 1 else None
            colour = "#D55E00" if variant == choice.chosen else "#0072B2"
            axes.errorbar(x, estimate.mean, yerr=spread, fmt="o", color=colour, capsize=3)
            highest = max(highest, level.max(), estimate.high if estimate.n > 1 else 0.0)
            axes.plot([x] * len(level), level, "_", color=colour, alpha=0.5)
        axes.set_xticks(range(len(variants)), [_short(v) for v in variants])
        axes.set_xlabel(choice.name, fontsize=8)
        axes.margins(x=0.2)
    panels[0].set_ylabel(f"exploitability = NashConv / 2 ({UNIT})", fontsize=8)
    panels[0].set_ylim(0, 1.15 * highest)
    runs, scale = data.seed.nunique(), data.scale.iloc[0]
    figure.suptitle(f"D2CFR in Leduc: what the text leaves open (ours in orange), {runs} runs each, scale: {scale}")
    figure.tight_layout()
    return figure


# -- claims ----------------------------------------------------------------------------------------------------------


def claims(data: pd.DataFrame) -> list[Claim]:
    """Expectations of our own, judged; none is the paper's."""
    return [_less_exploitable(data, choice) for choice in CHOICES]


def _less_exploitable(data: pd.DataFrame, choice: Choice) -> Claim:
    measured = difference(data, choice.part, choice.lower, choice.higher)
    if measured is None:
        return Claim(choice.part, choice.expected, "ours", NOT_TESTABLE, None, UNIT, note="not both were run")
    return Claim(
        choice.part, choice.expected, "ours", unless_smoke(data, below(measured, 0)), measured, UNIT,
        note=f"{_short(choice.lower)} minus {_short(choice.higher)}, over the last quarter of the evaluations, paired "
        "by seed; holds if below 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Exploitability of every variant, and its difference from our choice, as Markdown."""
    lines = [
        f"| choice | value | exploitability [{UNIT}] | minus that of our choice | nodes touched | minutes |",
        "|---|---|---|---|---|---|",
    ]
    for choice in CHOICES:
        for variant in _variants(data, choice.part):
            level = _level(data, choice.part, variant)
            assert level is not None
            own = variant == choice.chosen
            apart = "ours" if own else difference(data, choice.part, variant, choice.chosen) or "–"
            nodes, seconds = (
                curves(data, "d2cfr", m, variant, choice.part).iloc[:, -1].mean()
                for m in ("nodes_touched", "wall_seconds")
            )
            lines.append(
                f"| {choice.name} | {_short(variant)} | {mean_ci(level)} | {apart} | {nodes:.3g} | {seconds / 60:.1f} |"
            )
    return "\n".join(lines)
