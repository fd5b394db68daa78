"""What D2CFR's text leaves open: how much the outcome depends on each value that had to be chosen for it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figures.d2cfr_curves import UNIT, apart, how, late
from paper_figures.exploitability_curves import unless_smoke
from paper_figures.sweeps import Sweep
from repro.evaluation.statistics import Estimate, digits, mean_ci
from repro.figures.claims import NOT_TESTABLE, Claim, below
from repro.figures.frame import curves, values

TITLE, GAME = "D2CFR, ours", "Leduc"
SHOWS = "what D2CFR's text leaves open: sensitivity to traversals, SGD steps, starts of fits, loss weights"


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
    # None is the loss of Algorithm 1, under which nothing trains what rectification mixes with.
    _choice("state_loss", "algorithm.state_loss=0,0.25,1,4", "algorithm.state_loss=0,1"),
    # Traversals per player and iteration, K, which the text does not give.
    _choice("traversals", "algorithm.traversals=100,200", ""),
    # SGD steps of the value networks, which the text does not give.
    _choice("value_steps", "algorithm.value.steps=200,400", "algorithm.value.steps=10,20"),
    # Where a fit of the value networks starts: from the last network, or from random weights, as Algorithm 1 has it.
    _choice("value_start", "algorithm.value.start=random,previous", ""),
)


@dataclass(frozen=True)
class Choice:
    """One value that was chosen, and the others that were tried.

    Attributes:
        sweep: in which others were tried.
        column: of the swept key.
        name: of the key, for readers.
        chosen: our value, at scale `paper`.
        expected: what one would expect, and the values (lower, higher) whose exploitabilities tell.
        same_values: whether runs of a seed have the same value networks for all of them; they are paired then.
    """

    sweep: str
    column: str
    name: str
    chosen: float | str
    expected: str
    lower: float | str
    higher: float | str
    same_values: bool = False

    def curves(self, data: pd.DataFrame, value: float | str, metric: str = "exploitability") -> pd.DataFrame:
        """A metric of D2CFR with a value of the key: `[seeds, iterations]`."""
        return curves(data, metric, readout="d2cfr", sweep=self.sweep, **{self.column: value})

    def was_run(self, data: pd.DataFrame) -> bool:
        """Whether there are runs of it; published data may be older than a choice."""
        return bool((data.sweep == self.sweep).any())

    def tried(self, data: pd.DataFrame) -> list[float | str]:
        """The values that were run: numbers ascending, of words the one with the higher exploitability first."""
        run_values = values(data[data.sweep == self.sweep], self.column)
        if not isinstance(self.higher, str):
            return run_values
        return sorted(run_values, key=lambda value: value != self.higher)


CHOICES = (
    Choice(
        "traversals", "traversals", "traversals K", 100, "More traversals make D2CFR less exploitable", 200, 100,
    ),
    Choice(
        "value_steps", "value_steps", "SGD steps, value networks", 200,
        "More SGD steps of the value networks make D2CFR less exploitable", 400, 200,
    ),
    Choice(
        "value_start", "value_start", "start of value networks' fits", "previous",
        "Value networks that start from the last ones make D2CFR less exploitable than from random weights, at as many "
        "SGD steps", "previous", "random",
    ),
    Choice(
        "policy_steps", "average_steps", "SGD steps, policy networks", 400,
        "More SGD steps of the policy networks make D2CFR less exploitable", 800, 400, same_values=True,
    ),
    Choice(
        "state_loss", "state_loss", "weight of the state value's error", 1.0,
        "Weighing the state value's error more makes D2CFR less exploitable", 4.0, 0.25,
    ),
    Choice(
        "divergence", "kl_weight", "weight of the divergence", 0.05,
        "The divergence as printed makes D2CFR less exploitable than none", 0.05, 0.0, same_values=True,
    ),
    Choice(
        "divergence_sign", "kl_sign", "sign of it, weight 0.5", "minus",
        "The divergence's printed sign makes D2CFR less exploitable than the other", "minus", "plus",
        same_values=True,
    ),
)  # fmt: skip


def _level(data: pd.DataFrame, choice: Choice, value: float | str) -> pd.Series | None:
    """Exploitability over the last quarter of the evaluations, by seed; None if it was not run."""
    if not choice.was_run(data):
        return None
    table = choice.curves(data, value)
    return late(table) if table.shape[1] else None


def difference(data: pd.DataFrame, choice: Choice, value: float | str, against: float | str) -> Estimate | None:
    """Exploitability with a value minus that with another; None if they were not both run."""
    first, second = _level(data, choice, value), _level(data, choice, against)
    return None if first is None or second is None else apart(first, second, paired=choice.same_values)


def draw(data: pd.DataFrame) -> Figure:
    """Exploitability with every value, a panel for each choice that was run."""
    shown = [choice for choice in CHOICES if choice.was_run(data)]
    figure = Figure(figsize=(2.0 * len(shown), 3.4))
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    highest = 0.0
    for axes, choice in zip(panels, shown, strict=True):
        assert isinstance(axes, Axes)
        tried = choice.tried(data)
        for x, value in enumerate(tried):
            level = late(choice.curves(data, value))
            estimate = mean_ci(level)
            spread = [[estimate.mean - estimate.low], [estimate.high - estimate.mean]] if estimate.n > 1 else None
            colour = "#D55E00" if value == choice.chosen else "#0072B2"
            axes.errorbar(x, estimate.mean, yerr=spread, fmt="o", color=colour, capsize=3)
            highest = max(highest, level.max(), estimate.high if estimate.n > 1 else 0.0)
            axes.plot([x] * len(level), level, "_", color=colour, alpha=0.5)
        axes.set_xticks(range(len(tried)), [str(value) for value in tried])
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
    measured = difference(data, choice, choice.lower, choice.higher)
    if measured is None:
        return Claim(choice.sweep, choice.expected, "ours", NOT_TESTABLE, None, UNIT, note="not both were run")
    return Claim(
        choice.sweep, choice.expected, "ours", unless_smoke(data, below(measured, 0)), measured, UNIT,
        note=f"{choice.lower} minus {choice.higher}, over the last quarter of the evaluations, "
        f"{how(paired=choice.same_values)}; holds if below 0",
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------------------------


def table(data: pd.DataFrame) -> str:
    """Exploitability with every value, and its difference from our choice, as Markdown."""
    lines = [
        f"| choice | value | exploitability [{UNIT}] | minus that of our choice | nodes touched |",
        "|---|---|---|---|---|",
    ]
    for choice in CHOICES:
        if not choice.was_run(data):
            lines.append(f"| {choice.name} | not run yet | – | – | – |")
            continue
        for value in choice.tried(data):
            level = mean_ci(late(choice.curves(data, value)))
            apart = "ours" if value == choice.chosen else difference(data, choice, value, choice.chosen) or "–"
            nodes = digits(choice.curves(data, value, "nodes_touched").iloc[:, -1].mean())
            lines.append(f"| {choice.name} | {value} | {level} | {apart} | {nodes} |")
    return "\n".join(lines)
