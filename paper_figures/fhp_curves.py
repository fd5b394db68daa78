"""What the figures of Flop Hold'em share: units, what sampling flops adds, and policies for reference."""

from __future__ import annotations

from functools import cache

import pandas as pd
import torch
from matplotlib.axes import Axes

from paper_figures.exploitability_curves import is_smoke
from repro.evaluation import nash_conv
from repro.evaluation.units import exploitability as in_unit
from repro.games import Game, load
from repro.games.betting import CALL, RAISE
from repro.policies import TabularPolicy, uniform

UNIT = "mbb/g"
LABEL = f"total exploitability ({UNIT})"


def sampling_error(data: pd.DataFrame) -> str:
    """What measuring on a sample of boards adds to a run's last value, for a title; empty where all is exact."""
    errors = data[data.metric == "nash_conv_standard_error"]
    if errors.empty:
        return ""
    # Both are the same quantity in two units.
    per_chip = data[data.metric == "exploitability"].value.iloc[0] / data[data.metric == "nash_conv"].value.iloc[0]
    last = errors[errors.step == errors.step.max()].value * per_chip
    return f"measured on random flops: standard error of a run at the end {last.min():.0f} to {last.max():.0f} {UNIT}"


def what_is_drawn(data: pd.DataFrame) -> str:
    """What curves and bands are, for a title."""
    return "Mean with 95% CI, thin lines are runs." if data.seed.nunique() > 1 else "One run of each."


def draw_references(axes: Axes, data: pd.DataFrame) -> None:
    """Lines of the policies for reference; none at scale smoke, whose deck is another one."""
    for name, line in () if is_smoke(data) else (("uniform", ":"), ("call-only", "-.")):
        axes.axhline(reference(name), color="grey", linestyle=line, linewidth=1)
        axes.text(
            1, reference(name), name, fontsize=7, va="bottom", ha="right", color="grey",
            transform=axes.get_yaxis_transform(),
        )  # fmt: skip


@cache
def game() -> Game:
    """Flop Hold'em of the figures."""
    return load("fhp")


@cache
def reference(name: str) -> float:
    """Exploitability of a policy, in mbb/g: `uniform`, or `call-only`, which raises only where it may not call."""
    fhp = game()
    if name == "uniform":
        return in_unit(fhp, nash_conv(fhp, uniform(fhp)))
    may_call = fhp.legal[:, CALL]
    action = torch.where(may_call, CALL, RAISE)
    policy = TabularPolicy(torch.nn.functional.one_hot(action, fhp.num_actions).double())
    return in_unit(fhp, nash_conv(fhp, policy))
