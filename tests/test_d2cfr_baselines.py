"""The page of D2CFR's baselines on made-up data: who wins against whom, what it costs, and verdicts."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from paper_figures import d2cfr_baselines as module
from paper_figures.d2cfr_baselines import BY_KEY, PLAYERS, Player
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED
from tests.helpers.figures import cells, verdicts

STEPS = (10, 20)


def made_up(strength: dict[str, float], spread: float = 1.0, scale: str = "laptop") -> pd.DataFrame:
    """Every player wins the difference of two strengths against another; the middle one of three runs exactly."""
    rows: list[tuple[Any, ...]] = []
    for player in PLAYERS:
        for seed in range(3):
            own = (player.sweep, player.readout, seed)
            for step in STEPS:
                rows += [(*own, metric, step, float(step)) for metric in ("exploitability", "nodes_touched")]
                rows.append((*own, "wall_seconds", step, 60.0))
                if player.readout == "d2cfr":
                    rows.append((*own, "nodes_played_out", step, 1000.0 * step))
            for other in PLAYERS[: PLAYERS.index(player)]:
                value = strength.get(player.key, 0.0) - strength.get(other.key, 0.0) + spread * (seed - 1)
                rows.append((*own, f"match/{other.key}/value", STEPS[-1], value))
    for sweep, readout in (("steps_deep_cfr", "deep_cfr"), ("steps_d2cfr", "d2cfr")):
        for sgd_steps in (200, 500):
            for seed in range(3):
                rows += [
                    (sweep, readout, seed, "exploitability", at, float(sgd_steps + at + seed), sgd_steps)
                    for at in STEPS
                ]
                if readout == "d2cfr":
                    won = 300.0 - sgd_steps + seed
                    rows.append((sweep, readout, seed, "match/as_many_steps/value", STEPS[-1], won, sgd_steps))
    columns = ["sweep", "readout", "seed", "metric", "step", "value", "value_steps"]
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


def test_players_of_one_training_are_measured_against_each_other():
    deep, single = BY_KEY["deep_cfr_warm"], BY_KEY["sd_cfr_warm"]
    assert (single, deep) in module.PAIRS
    data = made_up({"sd_cfr_warm": 5.0, "sd_cfr_published": -5.0})
    assert winnings(data, single, deep) == [4.0, 5.0, 6.0]
    found = verdicts(module, data)
    pairs = {f"{single.key}_beats_{deep.key}": found[f"{single.key}_beats_{deep.key}"] for single, deep in module.PAIRS}
    assert list(pairs.values()) == [UNDECIDED, HELD, DID_NOT_HOLD, UNDECIDED]
    (sweep,) = (sweep for sweep in module.SWEEPS if sweep.name == "warm")
    assert "+evaluation.match.opponents.deep_cfr_warm=/deep_cfr" in sweep.arguments("laptop")


def test_of_trainings_that_did_not_measure_it_nothing_is_said():
    data = made_up({})
    earlier = data[~((data.sweep == "warm") & (data.metric == "match/deep_cfr_warm/value"))]
    assert module.won(earlier, BY_KEY["sd_cfr_warm"], BY_KEY["deep_cfr_warm"]) is None
    assert "sd_cfr_warm_beats_deep_cfr_warm" not in verdicts(module, earlier)


def test_play_outs_count_as_histories():
    data = made_up({})
    assert module.cost(data, BY_KEY["d2cfr_warm"]).iloc[0].tolist() == [10_010.0, 20_020.0]
    assert module.cost(data, BY_KEY["deep_cfr_warm"]).iloc[0].tolist() == [10.0, 20.0]


def test_that_it_wins_and_how_much_are_two_claims():
    strength = {"d2cfr_warm": 276.0, "openspiel": -500.0, "sd_cfr_warm": 400.0, "deep_cfr_warm": 276.0}
    found = verdicts(module, made_up(strength, scale="paper"))
    # Two more with few steps, and here all baselines cost the same.
    assert len(found) == 3 * len(module.D2CFR) * len(module.OTHERS) + len(module.PAIRS) + 2
    assert (found["beats_as_many_steps_200"], found["beats_as_many_steps_500"]) == (HELD, DID_NOT_HOLD)
    wins, margin = (lambda other: found[f"d2cfr_warm_beats_{other}"]), (lambda o: found[f"d2cfr_warm_margin_over_{o}"])
    assert (wins("openspiel"), margin("openspiel")) == (HELD, DID_NOT_HOLD), "much more than the paper says"
    assert (wins("deep_cfr_scratch"), margin("deep_cfr_scratch")) == (HELD, HELD)
    assert (wins("deep_cfr_warm"), margin("deep_cfr_warm")) == (UNDECIDED, DID_NOT_HOLD)
    assert (wins("sd_cfr_warm"), margin("sd_cfr_warm")) == (DID_NOT_HOLD, DID_NOT_HOLD)
    noisy = verdicts(module, made_up({"d2cfr_warm": 276.0}, spread=60.0, scale="paper"))
    assert noisy["d2cfr_warm_margin_over_deep_cfr_scratch"] == UNDECIDED
    shorter = verdicts(module, made_up(strength))
    assert {verdict for name, verdict in shorter.items() if "_margin_" in name} == {NOT_TESTABLE}


def test_the_picture_and_the_table_show_every_player():
    data = made_up({"d2cfr_warm": 100.0})
    matrix, *curves = module.draw(data).axes
    assert len(matrix.texts) == len(PLAYERS) * (len(PLAYERS) - 1)
    assert all(len(axes.lines) == len(axes.texts) == len(PLAYERS) for axes in curves)
    text = module.table(data)
    assert all(player.name in text for player in PLAYERS)
    assert re.search(r"\| 500 \| 521 \[519, 523\] \| 521 \[519, 523\] \| 1 \[.*\] \| -199 \[", text)
    assert text.endswith("ends a tenth lower in the mean: 200 for Deep CFR, 200 for D2CFR.")
    listed = cells(text)
    who, whom = BY_KEY["d2cfr_warm"], BY_KEY["openspiel"]
    number = {player: str(PLAYERS.index(player) + 1) for player in (who, whom)}
    (header,) = (row for row in listed if row[0].startswith("wins") and row[1] == "1")
    won = {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in listed if len(row) == len(header)}
    assert won[f"against {number[whom]}: {whom.name}"][number[who]] == "100 [97.5, 102]"
    assert won[f"against {number[who]}: {who.name}"][number[whom]] == "-100 [-102, -97.5]"
    assert won[f"against {number[who]}: {who.name}"][number[who]] == "–"


def test_players_are_compared_at_equal_iterations_and_at_equal_nodes():
    data = made_up({})
    long = BY_KEY["sd_cfr_published"]
    mine = (data.sweep == long.sweep) & (data.readout == long.readout)
    # It goes on for longer, and touches twice the nodes.
    later = data[mine & (data.step == STEPS[-1])].assign(step=30, value=lambda rows: rows.value + 10)
    data.loc[mine & (data.metric == "nodes_touched"), "value"] *= 2
    text = module.table(pd.concat([data, later], ignore_index=True))
    rows = {row[0]: row[1:] for row in cells(text) if len(row) == 9}
    headings = ["at iteration 20", "at 20 nodes of traversals", "at 10,000 histories, play-outs counted", "at 30"]
    assert rows["player"][2:6] == headings
    assert rows[BY_KEY["d2cfr_warm"].name][4:6] == ["10 [10, 10] (t = 10)", "–"], "its first evaluation"
    ended = "20 [20, 20] (ends at t = 20)"
    assert {tuple(row[4:6]) for name, row in rows.items() if BY_KEY["openspiel"].name in name} == {(ended, ended)}
    assert rows[long.name][:4] == ["30", "30 [30, 30]", "20 [20, 20]", "10 [10, 10] (t = 10)"]
    assert rows[BY_KEY["openspiel"].name][:4] == ["20", "20 [20, 20]", "20 [20, 20]", "20 [20, 20] (t = 20)"]


def test_at_equal_cost_d2cfr_is_judged_where_the_most_costly_baseline_ends():
    data = made_up({})
    costly = (data.sweep == "published") & (data.metric == "nodes_touched")
    data.loc[costly, "value"] = 1000 * data.step[costly].astype(float)

    def judged(at_first: float) -> dict[str, str]:
        first = (data.readout == "d2cfr") & (data.metric == "exploitability") & (data.step == STEPS[0])
        found = verdicts(module, data.assign(value=data.value.where(~first, at_first + data.seed)))
        return {name: verdict for name, verdict in found.items() if name.endswith("_at_equal_cost")}

    names = {
        f"{d2cfr.key}_below_{kind}_published_at_equal_cost" for d2cfr in module.D2CFR for kind in ("deep_cfr", "sd_cfr")
    }
    # After 20,000 histories D2CFR is in its first evaluation, at 10,010; the baseline ends at 20.
    assert judged(10.0) == dict.fromkeys(names, HELD)
    assert judged(30.0) == dict.fromkeys(names, DID_NOT_HOLD)
    data.loc[costly, "value"] /= 10
    assert judged(10.0) == dict.fromkeys(names, NOT_TESTABLE)


def test_enough_steps_are_the_fewest_that_no_number_tried_beats_by_a_tenth():
    """Of means: 200 steps are not enough, 400 are within a tenth of the lowest; the most that were tried never are."""
    reached = {
        steps: pd.Series([level - 1.0, level + 1.0]) for steps, level in ((200, 112.0), (400, 109.0), (800, 100.0))
    }
    assert module.enough(reached) == 400
    assert module.enough({**reached, 1600: pd.Series([50.0])}) is None
    assert module.enough({}) is None


def test_the_title_tells_how_many_runs_there_are_where_they_differ():
    data = made_up({})
    figure = module.draw(data[(data.seed < 2) | (data.sweep != "enough")])
    assert figure.get_suptitle().startswith("D2CFR and its baselines in Leduc, 2 to 3 runs each")


def test_players_that_are_not_trained_yet_are_left_out():
    data = made_up({})
    data = data[~data.sweep.isin(["enough", "d2cfr_enough"])]
    shown = module.players(data)
    assert shown == [player for player in PLAYERS if not player.key.endswith("_enough")]
    matrix, *curves = module.draw(data).axes
    assert len(matrix.get_yticklabels()) == len(curves[0].lines) == len(shown)
    assert "4,000 steps" not in module.table(data)
    assert not [name for name in verdicts(module, data) if "_enough" in name]
