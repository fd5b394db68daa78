"""Figures 6 and 9 on made-up data whose verdicts are known."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from paper_figures import d2cfr_curves, figure6, figure9
from paper_figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED
from repro.figure import experiments
from repro.run import plan


def rows(algorithm: str, metric: str, values: dict[int, float], variant: str = "", seeds: int = 5) -> pd.DataFrame:
    """`values` by iteration, a little different for each seed."""
    return pd.DataFrame(
        {"target": "t", "scale": "laptop", "algorithm": algorithm, "variant": variant, "seed": seed, "metric": metric,
         "step": step, "value": value * (1 + 0.01 * seed)}
        for seed in range(seeds) for step, value in values.items()
    )  # fmt: skip


def verdicts(module: Any, data: pd.DataFrame) -> dict[str, str]:
    return {claim.id: claim.verdict for claim in module.claims(data)}


def figure6_data(levels: dict[str, float], steps: range = range(10, 210, 10)) -> pd.DataFrame:
    frames = []
    for name, level in levels.items():
        frames.append(rows(name, "exploitability", {t: level * (1 + 100 / t) for t in steps}))
        frames += [rows(name, m, {t: float(t) for t in steps}) for m in ("nodes_touched", "wall_seconds")]
    return pd.concat(frames, ignore_index=True)


def test_figure6_claims():
    good = figure6_data({"d2cfr": 100.0, "deep_cfr": 300.0, "sd_cfr": 200.0})
    assert set(verdicts(figure6, good).values()) == {HELD}
    bad = figure6_data({"d2cfr": 300.0, "deep_cfr": 100.0, "sd_cfr": 200.0})
    assert set(verdicts(figure6, bad).values()) == {DID_NOT_HOLD}
    short = figure6_data({"d2cfr": 100.0, "deep_cfr": 300.0, "sd_cfr": 200.0}, range(10, 110, 10))
    assert verdicts(figure6, short)["sd_cfr_below"] == NOT_TESTABLE
    assert set(verdicts(figure6, good.assign(scale="smoke")).values()) == {NOT_TESTABLE}


def test_figure6_is_drawn_and_listed():
    data = figure6_data({"d2cfr": 100.0, "deep_cfr": 300.0, "sd_cfr": 200.0})
    (axes,) = figure6.draw(data).axes
    found = axes.get_legend()
    assert found is not None
    assert [text.get_text() for text in found.get_texts()] == ["D2CFR", "Deep CFR", "SD-CFR"]
    lines = figure6.table(data).splitlines()
    assert lines[2].startswith("| 20 | ")
    assert any(line.startswith("| 200 | 153 ") for line in lines)
    assert lines[-3].startswith("| D2CFR | 204 | 3.4 |")


@pytest.mark.parametrize(("lower_at", "expected"), [(20, HELD), (19, HELD), (17, DID_NOT_HOLD), (0, DID_NOT_HOLD)])
def test_nearly_everywhere(lower_at, expected):
    first = rows("a", "m", dict.fromkeys(range(20), 1.0))
    second = rows("b", "m", {t: 2.0 if t < lower_at else 0.5 for t in range(20)})
    tables = [d2cfr_curves.curves(d, n, "m") for d, n in ((first, "a"), (second, "b"))]
    share, verdict = d2cfr_curves.share_below(*tables)
    assert share == lower_at / 20
    assert verdict == expected


def test_nearly_everywhere_is_open_where_noise_decides():
    noisy = pd.DataFrame({t: [1.0, -1.2, 0.3, -0.2] for t in range(20)})
    assert d2cfr_curves.share_below(noisy, 0 * noisy) == (1.0, UNDECIDED)


def figure9_data(levels: dict[int, float]) -> pd.DataFrame:
    frames = []
    for n, level in levels.items():
        variant = f"algorithm.simulations={n}"
        for metric, scale in (("exploitability", 1.0), ("loss/policy", 1e-3), ("wall_seconds", 1.0)):
            frames.append(rows("d2cfr", metric, dict.fromkeys(range(10, 110, 10), level * scale), variant))
    return pd.concat(frames, ignore_index=True)


def test_figure9_claims():
    good = figure9_data({50: 500.0, 300: 100.0, 800: 90.0, 1000: 100.0})
    assert verdicts(figure9, good) == {
        "lowest_exploitability": HELD, "lowest_policy_loss": HELD, "more_is_better": HELD,
    }  # fmt: skip
    bad = figure9_data({50: 50.0, 300: 100.0, 800: 90.0, 1000: 100.0})
    assert verdicts(figure9, bad)["lowest_exploitability"] == DID_NOT_HOLD
    assert verdicts(figure9, bad)["more_is_better"] == DID_NOT_HOLD
    few = figure9_data({50: 500.0, 100: 100.0})
    assert verdicts(figure9, few)["lowest_exploitability"] == NOT_TESTABLE
    assert len(figure9.draw(good).axes) == 2
    assert figure9.table(good).splitlines()[2].startswith("| 50 | 510 [")


@pytest.mark.parametrize("scale", ["smoke", "laptop", "paper"])
def test_runs_that_are_compared_have_the_same_budget(scale):
    """Traversals, SGD steps, memories, seeds and evaluations of D2CFR and of what it is compared with."""
    found = []
    for experiment in experiments("figure6", scale):
        configs = plan([f"+experiment={experiment}"], multirun=True)
        a = configs[0].algorithm
        shared = ("iterations", "evaluate_every", "traversals", "value_capacity", "strategy_capacity", "loss_weight",
                  "divide_by_legal", "regret_unit", "when_no_positive", "value", "average")  # fmt: skip
        found.append(({k: a[k] for k in shared}, [c.seed for c in configs]))
    assert len(found) == 2
    assert found[0] == found[1]
