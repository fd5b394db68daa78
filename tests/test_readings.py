"""Every way to read the encoding error is what its name says: beside plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from repro.common.compiled import Array
from repro.common.errors import ReproError
from repro.plans.planning import plan
from repro.subgames import buckets, dataset
from repro.subgames.encoding import CFV, EV
from repro.subgames.readings import READINGS, TEXT, Sample
from repro.subgames.subgames import Deck, matchups
from tests.helpers.commands import executed, results

SMALL, HANDS, BLOCKED = Deck(4), math.comb(12, 2), math.comb(16, 2) - math.comb(12, 2)
POTS = np.array([2500.0, 3000.0, 5000.0, 30000.0])
COUNT = 7
BOARDS = np.array([[0, 5, 10, 15], [1, 2, 3, 4], [0, 1, 2, 3], [7, 9, 11, 13]])

Weight = Callable[[float, float], float]


def drawn() -> tuple[Array, Array, Array]:
    """`[4, 2, hands]` values and ranges, a third of whose hands are rare, and `[4, hands]` buckets."""
    draw = np.random.default_rng(3)
    ranges = draw.random((len(POTS), 2, HANDS)) ** 3
    ranges[:, :, ::3] *= 1e-9
    ranges /= ranges.sum(2, keepdims=True)
    return draw.normal(size=ranges.shape), ranges, draw.integers(0, COUNT, (len(POTS), HANDS))


CFVS, RANGES, BUCKETS = drawn()
MATCHUPS, OWN = (matchups(SMALL, BOARDS, r) for r in (RANGES, RANGES[:, ::-1]))
SAMPLE = Sample(
    torch.from_numpy(CFVS), torch.from_numpy(RANGES.astype(np.float32)), torch.from_numpy(MATCHUPS),
    torch.from_numpy(OWN), torch.from_numpy(BUCKETS), COUNT, BLOCKED, torch.from_numpy(POTS),
)  # fmt: skip


def one(probability: float, met: float) -> float:
    return 1.0


def plain(
    target: str, n: int, player: int, mean: Weight = one, count: Weight = one, blocked: int = 0, own: bool = False,
    compared: str = CFV, into: int = 0,
) -> float:  # fmt: skip
    """The mean squared error of one subgame and player, a hand at a time."""
    met, true_met = (OWN if own else MATCHUPS)[n, player], MATCHUPS[n, player]
    ev = [CFVS[n, player, h] / true_met[h] for h in range(HANDS)]
    cfv = [e * m for e, m in zip(ev, met, strict=True)]
    values = ev if target == EV else cfv
    weights = [mean(RANGES[n, player, h], met[h]) for h in range(HANDS)]
    wrong, total = 0.0, 0.0
    for h in range(HANDS):
        alike = [g for g in range(HANDS) if BUCKETS[n, g] == BUCKETS[n, h]]
        weight = sum(weights[g] for g in alike) + (blocked if BUCKETS[n, h] == into else 0)
        back = sum(weights[g] * values[g] for g in alike) / weight if weight else 0.0
        if compared == EV:
            apart = ev[h] - (back if target == EV else back / met[h])
        else:
            apart = cfv[h] - (back * met[h] if target == EV else back)
        counts = count(RANGES[n, player, h], met[h])
        wrong, total = wrong + counts * apart**2, total + counts
    return wrong / total


def probable(probability: float, met: float) -> float:
    return probability


def meeting(probability: float, met: float) -> float:
    return met


def often(probability: float, met: float) -> float:
    return float(probability >= 1e-4)


def in_16_bits(probability: float, met: float) -> float:
    return float(np.float16(probability) > 0)


def roots(target: str, **how: Any) -> Array:
    """`[4, 2]`"""
    found = [plain(target, n, player, **how) for n, player in product(range(len(POTS)), range(2))]  # type: ignore[arg-type]
    return np.sqrt(found).reshape(-1, 2)


def expected_of(name: str, target: str) -> float:
    """What a reading should give, in % of the pot."""
    hands: dict[str, dict[str, Any]] = {
        "errors_by_range": {"count": probable}, "errors_by_matchup": {"count": meeting},
        "means_by_range": {"mean": probable}, "means_by_matchup": {"mean": meeting},
        "both_by_range": {"mean": probable, "count": probable},
        "both_by_matchup": {"mean": meeting, "count": meeting},
        "half_precision": {"count": in_16_bits}, "not_rare": {"mean": often, "count": often},
        "diluted": {"blocked": BLOCKED}, "diluted_last": {"blocked": BLOCKED, "into": COUNT - 1},
        "own_matchups": {"own": True}, "expected_values": {"compared": EV},
        "predicted_values": {"compared": target},
    }  # fmt: skip
    found = roots(target, **hands.get(name, {}))
    together = np.sqrt((found**2).mean(1))
    by_average = {
        "players_together": together.mean(), "all_together": np.sqrt((found**2).mean()),
        "median": np.sort(found.ravel())[3], "in_chips": (found * POTS[:, None]).mean() / POTS.mean(),
        "pots_to_4000": found[:2].mean(), "pots_to_12000": found[2].mean(), "pots_above": found[3].mean(),
    }  # fmt: skip
    return 100 * float(by_average.get(name, found.mean()))


@pytest.mark.parametrize("target", [CFV, EV])
def test_every_reading_is_what_plain_loops_give(target: str):
    found = {}
    for name, reading in READINGS.items():
        found[name] = reading.error(reading.squares(SAMPLE, target), SAMPLE.pot)
        assert found[name] == pytest.approx(expected_of(name, target), rel=1e-5), name
    # They differ from each other but for what is compared, which for one of the two is the text's.
    assert len({round(value, 6) for value in found.values()}) == len(found) - 1


@pytest.mark.parametrize(("cards", "strong"), [(4, 0), (5, -1)])
def test_buckets_are_sorted_by_strength(monkeypatch: pytest.MonkeyPatch, cards: int, strong: int):
    """Of turns from strong to weak, of rivers from weak to strong, as the two diluted readings are called."""
    monkeypatch.setattr(buckets, "_BOARDS", 10)
    deck = Deck(6)
    found = buckets.find(buckets.BucketRecipe(deck.ranks, deck.suits, cards, seed=0, buckets=8))
    two_aces = (20, 21, 0, 5, 10)[:cards]
    every = deck.hands(two_aces).tolist()
    of = dict(zip(map(tuple, every), found.of_board(two_aces).tolist(), strict=True))
    assert of[22, 23] == range(8)[strong], "four of a kind, of the highest cards"


def test_a_run_measures_all_of_its_subgames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dataset, "_SHARD", {4: 1, 5: 3})
    monkeypatch.setattr(buckets, "_BOARDS", 10)
    asked = (
        "game=river_subgames", "game.ranks=4", "game.least_pot=2000", "algorithm=encoding_error", "algorithm.buckets=8",
        "algorithm.iterations=4", "evaluation=[encoding_error,encoding_readings]",
    )  # fmt: skip
    assert executed(*asked, f"output_dir={tmp_path}") == "finished"
    found = results(tmp_path, asked)
    for readout in ("dcvn", "devn"):
        mine = found[(found.readout == readout) & (found.step == 4)].set_index("metric").value
        assert mine[f"reading/{TEXT}"] == pytest.approx(mine["encoding_error"], rel=1e-5)
        assert {name for name in mine.index if name.startswith("reading/")} <= {f"reading/{name}" for name in READINGS}


def test_only_runs_with_buckets_have_readings():
    with pytest.raises(ReproError, match="measures no buckets"):
        plan(["game=river_subgames", "algorithm=solved_subgames", "evaluation=[encoding_readings]"], False)
