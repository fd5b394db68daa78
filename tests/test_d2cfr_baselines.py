"""The page of D2CFR's baselines on made-up data: who wins against whom, what it costs, and verdicts."""

from __future__ import annotations

import pandas as pd
import pytest

from paper_figures import d2cfr_baselines as module
from paper_figures.claims import DID_NOT_HOLD, HELD, UNDECIDED
from paper_figures.d2cfr_baselines import BY_KEY, PLAYERS, Player
from tests.helpers.figures import verdicts

STEPS = (10, 20)


def made_up(strength: dict[str, float], spread: float = 1.0, scale: str = "laptop") -> pd.DataFrame:
    """Every player wins the difference of two strengths against another; the middle one of three runs exactly."""
    rows = []
    for number, player in enumerate(PLAYERS):
        for seed in range(3):
            own = (player.sweep, player.where.get("passed_up", "mean"), player.readout, seed)
            for step in STEPS:
                rows += [(*own, metric, step, float(step)) for metric in ("exploitability", "nodes_touched")]
                rows.append((*own, "wall_seconds", step, 60.0))
                if player.readout == "d2cfr":
                    rows.append((*own, "nodes_played_out", step, 1000.0 * step))
            for other in PLAYERS[:number]:
                if other.sweep != player.sweep:
                    value = strength.get(player.key, 0.0) - strength.get(other.key, 0.0) + spread * (seed - 1)
                    rows.append((*own, f"match/{other.key}/value", STEPS[-1], value))
    columns = ["sweep", "passed_up", "readout", "seed", "metric", "step", "value"]
    return pd.DataFrame(rows, columns=columns).assign(target="d2cfr_baselines", scale=scale, algorithm="")


def winnings(data: pd.DataFrame, first: Player, second: Player) -> list[float]:
    found = module.won(data, first, second)
    assert found is not None
    return [float(value) for value in found]


def test_what_one_wins_the_other_loses():
    data = made_up({"d2cfr_warm": 50.0, "openspiel": -20.0})
    strong, weak = BY_KEY["d2cfr_warm"], BY_KEY["openspiel"]
    assert winnings(data, strong, weak) == [69.0, 70.0, 71.0]
    assert winnings(data, weak, strong) == [-69.0, -70.0, -71.0]


@pytest.mark.parametrize("pair", [("deep_cfr_warm", "sd_cfr_warm"), ("openspiel", "openspiel_maximum")])
def test_players_of_one_sweep_are_not_measured_against_each_other(pair):
    first, second = (BY_KEY[key] for key in pair)
    assert module.won(made_up({}), first, second) is None


def test_play_outs_count_as_histories():
    data = made_up({})
    assert module.cost(data, BY_KEY["d2cfr_warm"]).iloc[0].tolist() == [10_010.0, 20_020.0]
    assert module.cost(data, BY_KEY["deep_cfr_warm"]).iloc[0].tolist() == [10.0, 20.0]


def test_that_it_wins_and_how_much_are_two_claims():
    data = made_up({"d2cfr_warm": 100.0, "openspiel": -200.0, "sd_cfr_warm": 400.0, "deep_cfr_warm": 100.0})
    found = verdicts(module, data)
    assert len(found) == 2 * len(module.D2CFR) * len(module.OTHERS)
    assert found["d2cfr_warm_beats_openspiel"] == found["d2cfr_warm_margin_over_openspiel"] == HELD
    assert found["d2cfr_warm_beats_deep_cfr_scratch"] == HELD
    assert found["d2cfr_warm_margin_over_deep_cfr_scratch"] == DID_NOT_HOLD
    assert found["d2cfr_warm_beats_deep_cfr_warm"] == UNDECIDED
    assert found["d2cfr_warm_beats_sd_cfr_warm"] == found["d2cfr_warm_margin_over_sd_cfr_warm"] == DID_NOT_HOLD


def test_the_picture_and_the_table_show_every_player():
    data = made_up({"d2cfr_warm": 100.0})
    matrix, *curves = module.draw(data).axes
    measured = sum(first.sweep != second.sweep for first in PLAYERS for second in PLAYERS)
    assert len(matrix.texts) == measured
    assert all(len(axes.lines) == len(axes.texts) == len(PLAYERS) for axes in curves)
    text = module.table(data)
    assert all(player.name in text for player in PLAYERS)
