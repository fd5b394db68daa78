"""Networks judged by play: their values at leaves, the evaluation, and figure 13."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from paper_figures import figure13, leaves_played
from repro.common.errors import ReproError
from repro.config import Config, NetworkConfig, ReadoutConfig
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE
from repro.plans.planning import plan
from repro.subgames import buckets
from repro.subgames.dataset import SubgameSamples
from repro.subgames.depth_limited import DepthLimitedSolver
from repro.subgames.encoded import Truth
from repro.subgames.kernels import BEST
from repro.subgames.networks import PredictedValues, ValueNetwork, ValueNetworkConfig, zero_sum
from repro.subgames.play import Play, PredictedLeaves, ReferenceLeavesConfig, turn
from repro.subgames.solver import AS_IS, SolverConfig, solve_subgame
from repro.subgames.subgames import Deck, Subgames, matchups
from repro.subgames.turn_values import TurnValues
from tests.helpers.devn import expect, judged
from tests.helpers.training import config_of, measured, readouts_of

SMALL = Deck(ranks=4)
RIVERS = Subgames("river_subgames", SMALL)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(buckets, "_BOARDS", 10)


def network(folder: Path, kinds: tuple[str, ...] = ("ev",), count: int | None = 6) -> tuple[Config, ValueNetwork]:
    """One that has learned nothing."""
    algorithm = ValueNetworkConfig(
        name="network", iterations=1, snapshot_every=1, subgames=12, buckets=count, batch_size=4,
        predicts="cfv" if "cfv" in kinds else "ev", readouts={kind: ReadoutConfig(kind) for kind in kinds},
    )  # fmt: skip
    config = config_of(algorithm, NetworkConfig("prelu", 16, 2), 0, output_dir=str(folder))
    return config, ValueNetwork(RIVERS, algorithm, config)


@pytest.mark.parametrize("count", [6, None])
@pytest.mark.parametrize("kind", ["cfv", "ev", "ev_zero_sum"])
def test_leaves_are_what_the_network_says_of_each_river(tmp_path: Path, kind: str, count: int | None):
    config, training = network(tmp_path, (kind,), count)
    (readout,) = readouts_of(RIVERS, config).values()
    assert isinstance(readout, PredictedValues)
    snapshot = training.snapshot()
    solver = DepthLimitedSolver(turn(RIVERS, 0, 1), SolverConfig(), lambda r: PredictedLeaves(r, readout, snapshot))
    for _ in range(3):
        solver.iterate()
    rivers, data = solver.rivers, training.data
    board, entry = 2, int(np.flatnonzero(~rivers.over)[-1])
    cards = rivers.full_boards()[[board]]
    openings = [solver.opening(player) for player in range(2)]
    # Both players' reach at one leaf, in the order of the deck.
    reach = np.zeros((1, 2, rivers.shape[2]))
    reach[0, 0, rivers.order()[board]] = openings[1][board, 2 * entry]
    reach[0, 1, rivers.order()[board]] = openings[0][board, 2 * entry + 1]
    ranges = reach / reach.sum(2, keepdims=True)
    bucket = torch.from_numpy(data.buckets_of(cards))
    matchup, shares = (torch.from_numpy(x).float() for x in (matchups(SMALL, cards, ranges), ranges))
    truth = Truth(torch.empty(0), matchup, shares, bucket)
    inputs = data.inputs_of(cards, rivers.chips[[entry]], truth.ranges, bucket)
    with torch.no_grad():
        cfv = readout.predicted(training.network, inputs, truth).numpy()[0]
    for player in range(2):
        values = solver.leaves.values(player, BEST, AS_IS, openings[player])[board, entry]
        expected = cfv[player] * rivers.chips[entry] * openings[player][board, 2 * entry + 1 - player].sum()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(values / scale, expected[rivers.order()[board]] / scale, atol=2e-4)


def test_ranges_that_cannot_meet_are_not_made_zero_sum():
    ranges = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.5, 0.5], [0.25, 0.75]]])
    matchup = torch.tensor([[[0.0, 0.5], [0.0, 1.0]], [[0.75, 0.5], [0.5, 0.75]]])
    cfv = torch.tensor([[[0.0, 3.0], [0.0, 2.0]], [[1.0, 2.0], [3.0, 4.0]]])
    shifted = zero_sum(cfv, matchup, ranges)
    assert torch.equal(shifted[0], cfv[0])
    assert (shifted[1] * ranges[1]).sum().item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("kind", ["cfv", "ev", "ev_zero_sum"])
def test_rivers_to_which_a_player_brings_no_hand_are_valued_with_the_range_before_the_betting(
    tmp_path: Path, kind: str
):
    config, training = network(tmp_path, (kind,))
    (readout,) = readouts_of(RIVERS, config).values()
    assert isinstance(readout, PredictedValues)
    snapshot = training.snapshot()
    solver = DepthLimitedSolver(turn(RIVERS, 0, 1), SolverConfig(), lambda r: PredictedLeaves(r, readout, snapshot))
    opening = solver.opening(0)
    for rows in (slice(0, None, 2), slice(1, None, 2)):
        empty, before = opening.copy(), opening.copy()
        empty[:, rows] = 0
        before[:, ::2] = 1
        values = [solver.leaves.values(0, BEST, AS_IS, o)[:, ~solver.rivers.over] for o in (empty, before)]
        if rows.start == 0:
            np.testing.assert_allclose(values[0], values[1], rtol=1e-3, atol=1e-3 * np.abs(values[1]).max())
        else:
            # Nobody is met.
            assert not values[0].any()


def test_play_is_measured_on_the_turns_of_the_seed(tmp_path: Path):
    evaluation = Play(turns=2, iterations=15, resolving=15)
    kinds = ("exact", "oracle_cfv", "oracle_ev", "checked_down", "uniform")
    algorithm = ReferenceLeavesConfig(
        name="reference_leaves", iterations=1, snapshot_every=1, buckets=4,
        readouts={kind: ReadoutConfig(kind) for kind in kinds},
    )  # fmt: skip
    found = []
    for seed in (0, 1):
        config = config_of(algorithm, None, seed, output_dir=str(tmp_path))
        found.append(measured(RIVERS, config, algorithm.build(RIVERS, config), evaluation))
    for metrics in found[0].values():
        for name in ("unsafe", "safe", "error/hand", "error/met", "error/matchup", "error/rare"):
            each = [metrics[f"{name}/turn_{n:03}"] for n in range(2)]
            assert metrics[name] == pytest.approx(np.mean(each))
            assert each[0] != each[1]
    play = {kind: found[0][kind]["unsafe"] for kind in kinds}
    assert max(play["exact"], play["oracle_cfv"], play["oracle_ev"]) < play["checked_down"] < play["uniform"]
    assert len(set(play.values())) == len(kinds)
    assert found[1]["exact"]["unsafe"] != play["exact"]
    # A network that has learned nothing plays the same turns, worse than exact leaves, and the first ones alike.
    config, training = network(tmp_path, ("ev", "ev_zero_sum"))
    both = measured(RIVERS, config, training, evaluation)
    assert play["exact"] < min(both["ev"]["unsafe"], both["ev_zero_sum"]["unsafe"])
    first = measured(RIVERS, config, training, Play(turns=1, iterations=15, resolving=15))
    assert first["ev"]["safe"] == both["ev"]["safe/turn_000"]


def test_labels_of_turns_are_the_better_the_better_the_leaves(tmp_path: Path):
    algorithm = ReferenceLeavesConfig(
        name="reference_leaves", iterations=1, snapshot_every=1, buckets=4,
        readouts={kind: ReadoutConfig(kind) for kind in ("exact", "checked_down", "uniform")},
    )  # fmt: skip
    config = config_of(algorithm, None, 0, output_dir=str(tmp_path))
    evaluation = TurnValues(turns=2, iterations=100, truth=1e-4)
    found = measured(RIVERS, config, algorithm.build(RIVERS, config), evaluation)
    errors = {kind: metrics["turn_error"] for kind, metrics in found.items()}
    # Exact leaves leave what the turn's own iterations do not reach.
    assert errors["exact"] < 2.0 < errors["checked_down"] < errors["uniform"]
    for metrics in found.values():
        assert metrics["turn_error"] == pytest.approx(np.mean([metrics[f"turn_error/turn_{n:03}"] for n in range(2)]))
    assert len({metrics["zero_error"] for metrics in found.values()}) == 1
    network_, training = network(tmp_path, ("ev",))
    learned_nothing = measured(RIVERS, network_, training, evaluation)["ev"]
    assert learned_nothing["turn_error"] > errors["exact"]
    assert learned_nothing["zero_error"] == found["exact"]["zero_error"]


def test_a_network_of_turns_says_what_they_are_worth_itself(tmp_path: Path):
    turns = Subgames("turn_subgames", SMALL)
    algorithm = ValueNetworkConfig(
        name="network", iterations=1, snapshot_every=1, subgames=12, buckets=None, batch_size=4, predicts="ev",
        readouts={"ev": ReadoutConfig("ev")},
    )  # fmt: skip
    config = config_of(algorithm, NetworkConfig("prelu", 16, 2), 0, output_dir=str(tmp_path))
    training = ValueNetwork(turns, algorithm, config)
    found = measured(turns, config, training, TurnValues(turns=2, truth=1e-4))["ev"]
    (readout,) = readouts_of(turns, config).values()
    assert isinstance(readout, PredictedValues)
    for number in range(2):
        subgame = turn(turns, 0, number)
        exact = solve_subgame(subgame, SolverConfig(), 1e-4)
        samples = SubgameSamples(
            np.array([subgame.board], np.int8), np.array([subgame.pot]), subgame.ranges[None].astype(np.float32),
            exact.cfv[None].astype(np.float32), np.array([exact.exploitability]), np.array([exact.iterations]),
        )  # fmt: skip
        batch, truth = training.data.encoded(samples)
        with torch.no_grad():
            predicted = readout.predicted(training.network, batch.inputs, truth)[0].numpy()
        wrong = np.sqrt(((predicted - exact.cfv) ** 2).mean(1)).mean()
        assert found[f"turn_error/turn_{number:03}"] == pytest.approx(100 * wrong, rel=1e-3)
    # The turns are those that networks of rivers label.
    config, training = network(tmp_path, ("ev",))
    assert (
        measured(RIVERS, config, training, TurnValues(turns=2, truth=1e-4))["ev"]["zero_error"] == found["zero_error"]
    )


def test_values_that_are_not_solved_to_the_tolerance_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("repro.subgames.turn_values.MOST_ITERATIONS", 3)
    config, training = network(tmp_path, ("ev",))
    with pytest.raises(ReproError, match=r"evaluation.turn_values.truth is 1e-06; a turn is exploitable by"):
        measured(RIVERS, config, training, TurnValues(turns=1, iterations=1, truth=1e-6))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algorithm=devn", "game=turn_subgames", "evaluation=play"], "leaves are rivers, the game is turn_subgames"),
        (["algorithm=solved_subgames", "evaluation=play"], "the algorithm solved_subgames values no rivers"),
        (["algorithm=reference_leaves", "evaluation.play.turns=0"], r"evaluation.play.turns is 0"),
    ],
)
def test_what_cannot_be_played_is_refused(overrides: list[str], message: str):
    with pytest.raises(ReproError, match=message):
        plan(overrides, multirun=False)


# -- figure 13 -------------------------------------------------------------------------------------------------------

PLAYED = {
    ("reference", "exact"): 1.0, ("reference", "oracle_dcvn"): 2.0, ("reference", "oracle_devn"): 1.5,
    ("reference", "checked_down"): 10.0, ("reference", "uniform"): 60.0, ("networks", "dcvn"): 4.0,
    ("networks", "devn"): 5.0, ("networks", "devn_zero_sum"): 4.5, ("few_buckets", "dcvn"): 6.0,
    ("few_buckets", "devn"): 5.5, ("few_buckets", "devn_zero_sum"): 5.0, ("own_step", "devn_own_step"): 4.8,
    ("sharp", "dcvn"): 3.5, ("sharp", "devn"): 4.4, ("sharp", "devn_zero_sum"): 4.0,
    ("met", "dcvn"): 3.0, ("met", "devn"): 2.5, ("met", "devn_zero_sum"): 3.5,
}  # fmt: skip
"""Exploitability, unsafe; safe, a half."""


def figures_data(scale: str = "laptop") -> pd.DataFrame:
    """Turns differ more than leaves do: who does not pair them finds nothing."""
    rows = []
    for (sweep, readout), level in PLAYED.items():
        algorithm = "reference_leaves" if sweep == "reference" else readout[:4]
        for seed in range(3):
            lost = 8.0 if readout == "dcvn" else 7.0 if sweep == "sharp" else 7.2
            measured_ = {"unbucketed": lost, "predicting_zero": 40.0}
            for n in range(2 if sweep == "few_buckets" else 4):
                hard = 20.0 * n + 3 * seed
                turn_ = {"unsafe": level + hard, "safe": (level + hard) / 2, "error/met": level + hard}
                turn_["error/hand"] = (-1) ** n * (level + hard)
                turn_ |= {"error/matchup": level + hard, "error/rare": -level - hard}
                measured_ |= {f"{metric}/turn_{n:03}": value for metric, value in turn_.items()}
            common = {"target": "figure13", "scale": scale, "sweep": sweep, "algorithm": algorithm, "seed": seed}
            rows += [{**common, "readout": readout, "metric": m, "step": 1, "value": v} for m, v in measured_.items()]
            rows.append({**common, "readout": readout, "metric": "unbucketed", "step": 0, "value": 99.0})
    labels = {"label_error": 0.9, "label_error/below_0.5": 40.0, "label_error/below_1": 80.0}
    about = {"target": "figure13", "scale": scale, "sweep": "data", "algorithm": "solved_subgames", "seed": 0}
    rows += [{**about, "readout": "labels", "metric": m, "step": 1, "value": v} for m, v in labels.items()]
    return pd.DataFrame(rows)


@pytest.mark.exhaustive
def test_figure13_judges_play_turn_by_turn():
    found = judged(figure13, figures_data())
    expect(found["loss"], HELD, 10.0)
    expect(found["devn_unsafe"], DID_NOT_HOLD, -1.0)
    expect(found["devn_safe"], DID_NOT_HOLD, -0.5)
    expect(found["zero_sum_unsafe"], HELD, 0.5)
    expect(found["dcvn_checked_unsafe"], HELD, 6.0)
    expect(found["devn_oracle_unsafe"], HELD, 3.5)
    expect(found["dcvn_exact_safe"], HELD, 0.5)
    # On the turns that both play.
    expect(found["dcvn_buckets_unsafe"], HELD, 2.0)
    expect(found["few_devn_unsafe"], HELD, 0.5)
    assert found["devn_safer"][0] == HELD
    expect(found["zero_sum_dcvn_unsafe"], DID_NOT_HOLD, -0.5)
    expect(found["met_devn_unsafe"], HELD, 0.5)
    expect(found["met_zero_sum_dcvn_unsafe"], DID_NOT_HOLD, -0.5)
    expect(found["dcvn_met_safe"], HELD, 0.5)
    expect(found["devn_met_unsafe"], HELD, 2.5)
    expect(found["dcvn_sharp_unsafe"], HELD, 0.5)
    expect(found["sharp_devn_unsafe"], DID_NOT_HOLD, -0.9)
    expect(found["sharp_loss"], HELD, 2.5)
    assert found["which_error"][0] == found["which_rare"][0] == HELD
    expect(found["which_matchup"], DID_NOT_HOLD, 0.0)
    # Errors by matchup are as those met in play; those per hand and of all rivers alike say less, or the opposite.
    suggested = {name for name in found if name.startswith("matchup_or_")}
    assert {found[name][0] for name in suggested} == {NOT_TESTABLE}, "by these data"
    at_night = judged(figure13, figures_data("night"))
    for metric in ("unsafe", "safe"):
        assert at_night[f"matchup_or_hand_{metric}"][0] == at_night[f"matchup_or_rare_{metric}"][0] == HELD
    expect(at_night["matchup_or_met_safe"], DID_NOT_HOLD, 0.0)
    assert len(suggested) == 5
    assert {verdict for verdict, _ in judged(figure13, figures_data("smoke")).values()} == {NOT_TESTABLE}
    night = figures_data("night")
    without = judged(figure13, night[~night.sweep.isin(["met", "sharp", "own_step"])])
    others = {name for name in found if ("met_" in name or "sharp_" in name) and not name.startswith("matchup_")}
    assert found.keys() - without.keys() == others
    # What is made only if it is asked for: neither its rows nor its claims.
    only = judged(figure13, night[night.sweep.isin(["data", "networks", "reference"])])
    of_buckets = {name for name in found if name.startswith("few_") or "_buckets_" in name}
    assert without.keys() - only.keys() == of_buckets


def with_fresh_seeds(data: pd.DataFrame) -> pd.DataFrame:
    """And networks of other seeds: DEVN plays worse where it errs more by matchup, and less per hand."""
    fresh = data[data.sweep == "networks"].assign(sweep="fresh", seed=lambda d: d.seed + 5)
    turn_ = fresh.metric.str.extract(r"turn_(\d+)")[0].astype(float)
    sign = fresh.metric.str.contains("hand").map({True: -1.0, False: 1.0})
    worse = (fresh.readout == "devn") & turn_.notna()
    fresh.loc[worse, "value"] += (1 + turn_ * sign)[worse]
    return pd.concat([data, fresh], ignore_index=True)


def test_figure13_judges_by_fresh_seeds_what_the_others_suggested():
    data = figures_data()
    before, after = judged(figure13, data), judged(figure13, with_fresh_seeds(data))
    assert after.keys() - before.keys() == {
        f"fresh_{name}_{metric}" for name in ("devn", "zero_sum_dcvn", "apart") for metric in ("unsafe", "safe")
    }
    expect(after["fresh_devn_unsafe"], DID_NOT_HOLD, -1.0 - 2.5)
    expect(after["fresh_zero_sum_dcvn_unsafe"], DID_NOT_HOLD, -0.5)
    expect(after["fresh_apart_unsafe"], HELD, 1.8)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in before if name.startswith("matchup_or_")}
    assert after["matchup_or_hand_unsafe"][0] == after["matchup_or_rare_safe"][0] == HELD
    longer = data[data.sweep == "networks"].assign(sweep="longer")
    more = judged(figure13, pd.concat([data, longer], ignore_index=True))
    expect(more["longer_devn_unsafe"], DID_NOT_HOLD, -1.0)
    assert len(more) == len(before) + 4


def test_rows_of_fewer_turns_say_of_how_many():
    names = {leaves: shown.name for leaves, shown in leaves_played.present(figures_data()).items()}
    assert names["devn"] == "DEVN"
    assert names["few_devn"] == "DEVN, fewer buckets (2 of 4 turns)"
    data = figures_data()
    as_many = data[~data.metric.str.endswith(("turn_002", "turn_003"))]
    assert leaves_played.present(as_many)["few_devn"].name == "DEVN, fewer buckets"


@pytest.mark.exhaustive
def test_figure13_is_drawn_and_tabulated():
    data = figure13.select(figures_data())
    assert len(figure13.draw(data).axes) == 3
    text = figure13.table(data)
    each = ("unsafe; median difference 1", "safe; median difference 0.5")
    assert " and ".join(f"12 of 12 turns ({of}) are more exploitable" for of in each) in text
    night = data[~data.sweep.isin(["met", "sharp", "own_step"])]
    assert len(figure13.draw(night).axes) == 3
    assert "rivers of play" in text
    assert "| random | 0.9 | 40 | 80 |\n| the paper's criterion" in text
    assert "rivers of play" not in figure13.table(night)
    (row,) = (line.split(" | ") for line in text.splitlines() if line.startswith("| DCVN |"))
    assert row[1].startswith("37 [")
    assert row[-1] == "8 [8, 8] |"


def test_figure13_tells_what_is_hard_from_what_a_network_gets_wrong():
    """Hard turns are so for both networks; of what DEVN plays worse, errors per hand say the opposite of the others."""
    data = figure13.select(figures_data())
    more = data.metric.str.extract(r"turn_(\d+)")[0].astype(float).fillna(0) ** 2
    devn = (data.readout == "devn") & data.metric.str.contains("unsafe/turn|error/")
    data.loc[devn, "value"] += np.where(data.metric.str.contains("error/hand"), -more, more)[devn]
    for error, alone, apart in (("error/matchup", 1.0, 1.0), ("error/rare", -1.0, 1.0)):
        assert leaves_played.correlations(data, error, ["dcvn"]).to_list() == pytest.approx([alone] * 3)
        found = leaves_played.correlations_apart(data, error, "devn", "dcvn", "unsafe")
        assert found.to_list() == pytest.approx([apart] * 3)
    cells = next(line.split(" | ") for line in figure13.table(data).splitlines() if line.startswith("| by matchup"))
    assert [cells[2], *cells[5:7]] == ["1 [1, 1]"] * 3
    assert cells[7].startswith("–")
