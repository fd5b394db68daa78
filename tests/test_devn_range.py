"""The range of counterfactual values is judged as its page says it is."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from paper_figures import devn_range as module
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE
from tests.helpers.figures import cells, number, verdicts


def made_up(
    least: float, most: float, subgames: float = 5000.0, scale: str = "laptop", sharp: float | None = None
) -> pd.DataFrame:
    """Of each sample extremes that half of the subgames have come half as far to; `sharp`: another least with sharp
    labels."""
    rows = []
    for sweep in (sample.sweep for sample in module.SAMPLES):
        for step, share in ((10, 0.5), (20, 1.0)):
            lowest = sharp if sweep == "range_turn_sharp" and sharp is not None else least
            values = {
                "subgames": share * subgames, "cfv/least": share * lowest, "cfv/most": share * most,
                "cfv/least/median": least / 10, "cfv/most/median": most / 10,
            }  # fmt: skip
            rows += [
                {"target": "t", "scale": scale, "sweep": sweep, "algorithm": "solved_subgames", "readout": "labels",
                 "seed": 0, "solver_tolerance": 0.001 if "sharp" in sweep else 0.005, "metric": metric, "step": step,
                 "value": value}
                for metric, value in values.items()
            ]  # fmt: skip
    return pd.DataFrame(rows)


NAMES = ("inside", "least", "highest")


@pytest.mark.parametrize(
    ("least", "most", "inside", "lower", "upper"),
    [
        (-0.52, 9.6, HELD, HELD, HELD),
        (-0.49, 10.4, HELD, HELD, HELD),
        (-0.6, 9.6, DID_NOT_HOLD, DID_NOT_HOLD, HELD),
        (-0.5, 12.0, DID_NOT_HOLD, HELD, DID_NOT_HOLD),
        # What has not come to an end may yet: of so few subgames it says nothing.
        (-0.4, 7.0, HELD, NOT_TESTABLE, NOT_TESTABLE),
    ],
)
def test_both_ends_are_judged_on_both_sides(least: float, most: float, inside: str, lower: str, upper: str):
    found = verdicts(module, made_up(least, most))
    rough = module.SAMPLES[0]
    assert not any(name.removeprefix(f"{rough.sweep}_") in NAMES for name in found), "there are sharper labels"
    for sample in module.SAMPLES[1:]:
        expected = dict(zip(NAMES, (inside, lower, upper), strict=True))
        # With small pots the paper's range is not expected to be reached exactly.
        names = NAMES if sample.as_paper else NAMES[:1]
        assert {name: found[f"{sample.sweep}_{name}"] for name in names} == {name: expected[name] for name in names}
    assert len(found) == 2 * 3 + 1 + 1


def test_as_many_subgames_as_the_papers_refute_an_end_from_inside():
    found = verdicts(module, made_up(-0.5, 7.0, subgames=module.PAPER_SUBGAMES))
    assert (found["range_river_inside"], found["range_river_highest"]) == (HELD, DID_NOT_HOLD)


def test_the_value_shown_is_the_one_that_is_furthest_out():
    shown = {c.id: (c.measured.mean, c.paper) for c in module.claims(made_up(-0.6, 9.9)) if c.measured}
    assert shown["range_river_inside"] == (-0.6, -0.5)
    shown = {c.id: (c.measured.mean, c.paper) for c in module.claims(made_up(-0.5, 50.0)) if c.measured}
    assert shown["range_river_small_pots_inside"] == (50.0, 10.0)
    assert all(c.measured and math.isnan(c.measured.low) and c.p is None for c in module.claims(made_up(-0.5, 10.0)))


def test_that_none_is_outside_bounds_how_many_are():
    notes = [module.claims(made_up(-0.5, most))[0].note for most in (10.0, 50.0)]
    # The rule of three: with a share of 3 / n, none of n has it once in 20.
    assert ["up to 0.06% of subgames" in note for note in notes] == [True, False]
    assert 0.049 < (1 - 3 / 5000) ** 5000 < 0.051


def test_what_was_not_run_is_not_judged():
    data = made_up(-0.5, 10.0)
    assert {c.id.rpartition("_")[0] for c in module.claims(data[data.sweep == "range_river"])} == {"range_river"}
    sharp = module.claims(data[data.sweep == "range_turn_sharp"])
    assert [c.id.removeprefix("range_turn_sharp_") for c in sharp] == list(NAMES), "nothing to compare with"
    (alone, *_) = module.claims(data[data.sweep == "range_turn"])
    assert alone.id == "range_turn_inside", "without sharper labels rough ones are judged"
    others = data.assign(sweep="turn")
    assert module.claims(others) == []
    assert module.table(others) == ""
    assert set(verdicts(module, made_up(-0.5, 10.0, scale="smoke")).values()) == {NOT_TESTABLE}


@pytest.mark.parametrize(
    ("sharp", "nearer"), [(-0.52, HELD), (-0.45, HELD), (-0.7, DID_NOT_HOLD), (-0.6, DID_NOT_HOLD)]
)
def test_sharper_labels_are_held_against_rougher_ones_of_the_same_subgames(sharp: float, nearer: str):
    data = made_up(-0.6, 9.0, sharp=sharp)
    # Those with sharp labels are fewer.
    fewer = data[(data.sweep != "range_turn_sharp") | (data.step == 10)]
    data.loc[(data.sweep == "range_turn_sharp") & (data.step == 10) & (data.metric == "cfv/least"), "value"] = sharp
    found = {c.id: c for c in module.claims(data)}["range_turn_sharp_nearer"]
    assert (found.verdict, found.measured and found.measured.mean) == (nearer, sharp)
    assert "-0.6 with the rougher labels of the same 5,000 subgames" in found.note
    early = {c.id: c for c in module.claims(fewer)}["range_turn_sharp_nearer"]
    assert "-0.3 with the rougher labels of the same 2,500 subgames" in early.note


def test_the_table_shows_how_extremes_grow():
    _, _, *listed = cells(module.table(made_up(-0.5, 8.0)))
    assert [row[0] for row in listed] == [
        "turn, labels to 0.5%", "turn, labels to 0.1%", "river (ours), labels to 0.5%",
        "river, all pots (ours), labels to 0.5%",
    ]  # fmt: skip
    for row in listed:
        assert [number(cell) for cell in row[1:]] == [5000, -0.5, 8, 2500, -0.25, 4, -0.05, 0.8]
