"""Claims on a page: how sure each is, and Holm's correction for many."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from paper_figures import devn_runs
from repro.evaluation.statistics import Estimate, difference, holm, mean_ci, p_value
from repro.figures import claims as claims_of
from repro.figures.claims import DID_NOT_HOLD, HELD, NOT_TESTABLE, UNDECIDED, Claim, Verdict, above, below, within

VALUES = np.array([1.0, 3.0, 2.5, 4.0, 2.0])


def claim(name: str, verdict: str) -> Claim:
    return Claim(name, "", "", verdict, None, "")


@pytest.mark.parametrize("threshold", [-3.0, 0.0, 0.9, 2.0, 2.5, 3.1, 8.0])
def test_a_p_value_is_that_of_the_t_test(threshold):
    expected = stats.ttest_1samp(VALUES, threshold).pvalue
    assert p_value(mean_ci(VALUES), threshold) == pytest.approx(expected, rel=1e-9)
    assert above(mean_ci(VALUES), threshold).p == below(mean_ci(VALUES), threshold).p == pytest.approx(expected)


def test_a_ratio_is_tested_on_logarithms():
    logs = mean_ci(np.log(VALUES))
    ratio = Estimate(np.exp(logs.mean), np.exp(logs.low), np.exp(logs.high), logs.n)
    assert p_value(ratio, 1) == pytest.approx(stats.ttest_1samp(np.log(VALUES), 0).pvalue)


@pytest.mark.parametrize("edge", ["low", "high"])
def test_the_edge_of_any_interval_has_five_percent(edge):
    for estimate in (Estimate(2, 1, 3, 4), Estimate(2, 1, 7, 4), Estimate(-2, -3, 5, 9)):
        assert p_value(estimate, getattr(estimate, edge)) == pytest.approx(0.05)


def test_a_single_run_and_equal_runs():
    assert p_value(mean_ci([1.0]), 0) is None
    assert above(mean_ci([1.0]), 0).p is None
    assert [p_value(mean_ci([1.0, 1.0]), value) for value in (0, 1)] == [None, None]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-5, 9, HELD), (2, 9, UNDECIDED), (-5, 2, UNDECIDED), (9, 12, DID_NOT_HOLD), (-9, -1, DID_NOT_HOLD)],
)
def test_a_range_is_as_sure_as_its_nearer_end(low, high, verdict):
    judged, estimate = within(mean_ci(VALUES), low, high), mean_ci(VALUES)
    assert judged == verdict
    nearer = min((low, high), key=lambda end: abs(end - estimate.mean))
    assert judged.p == p_value(estimate, nearer)
    assert judged.p is not None
    assert (judged.p < 0.05) == (verdict != UNDECIDED)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm([0.04]) == [True]
    # The second fails, so the third is not looked at, though it is below its own bound.
    assert holm([0.045, 0.03, 0.001]) == [False, False, True]


def test_verdicts_are_counted_and_corrected():
    claims = [
        claim("sure", Verdict(HELD, 0.001)), claim("weak", Verdict(HELD, 0.04)), claim("counted", HELD),
        claim("not", Verdict(DID_NOT_HOLD, 0.01)), claim("open", Verdict(UNDECIDED, 0.3)), claim("short", NOT_TESTABLE),
    ]  # fmt: skip
    assert claims_of.tally(claims) == (
        "Judged one by one, 3 held, 1 did not hold, 1 undecided, 1 not testable at this scale. 4 of these claims have "
        "a p-value; with Holm's correction, which bounds the probability of any error among them by 5%, 1 held, 1 did "
        "not hold, 2 undecided."
    )
    table = claims_of.markdown(claims).splitlines()[2:]
    assert [i for i, line in enumerate(table) if "**, undecided after Holm's correction |" in line] == [1]
    one = claims_of.tally(claims[1:3])
    assert one.startswith("Judged one by one, 2 held. 1 of these claims has a p-value; with Holm's")
    assert one.endswith("by 5%, 1 held.")
    assert claims_of.tally([claim("counted", HELD)]) == (
        "Judged one by one, 1 held. None of these claims has a p-value, so there is nothing to correct for their "
        "number."
    )


def test_a_test_counts_among_many_however_it_came_out():
    weak, other = claim("weak", Verdict(HELD, 0.04)), claim("other", Verdict(DID_NOT_HOLD, 0.2))
    lost = replace(other, verdict=NOT_TESTABLE)
    assert claims_of.after_holm([weak]) == [HELD]
    assert claims_of.after_holm([weak, other]) == [UNDECIDED, UNDECIDED]
    assert claims_of.after_holm([weak, lost]) == [UNDECIDED, NOT_TESTABLE]
    assert claims_of.tally([weak, lost]).endswith(
        "2 of these claims have a p-value; with Holm's correction, which bounds the probability of any error among "
        "them by 5%, 1 undecided, 1 not testable at this scale."
    )
    assert "1 of these claims has a p-value" in claims_of.tally([lost])
    assert claims_of.after_holm([weak, claim("short", NOT_TESTABLE)]) == [HELD, None]


def test_a_check_of_the_runs_is_not_counted_among_many():
    weak = claim("weak", Verdict(HELD, 0.04))
    check = Claim("check", "", "", Verdict(HELD, 0.04), None, "", check=True)
    assert "2 undecided" in claims_of.tally([weak, claim("other", Verdict(HELD, 0.04))])
    told = claims_of.tally([weak, check])
    assert told.startswith(
        "Judged one by one, 1 held. 1 of these claims has a p-value (checks of the runs are not count"
    )
    assert told.endswith("by 5%, 1 held.")


OTHERS = np.array([0.5, 9.0, -4.0])


@pytest.mark.parametrize("threshold", [-2.0, 0.0, 1.5, 20.0])
def test_the_p_value_of_independent_runs_is_welchs(threshold):
    measured = difference(VALUES, OTHERS)
    expected = stats.ttest_ind(VALUES - threshold, OTHERS, equal_var=False)
    assert p_value(measured, threshold) == pytest.approx(expected.pvalue, rel=1e-9)
    assert measured.freedom == pytest.approx(expected.df)
    interval = stats.ttest_ind(VALUES, OTHERS, equal_var=False).confidence_interval()
    assert (measured.low, measured.high) == pytest.approx((interval.low, interval.high))


def test_a_claim_of_several_intervals():
    held, sure, no, undecided = Verdict(HELD, 0.02), Verdict(HELD, 0.001), Verdict(DID_NOT_HOLD, 0.01), UNDECIDED
    both = claims_of.all_of([held, sure])
    assert (both, both.p) == (HELD, 0.02)
    fails = claims_of.all_of([held, no, Verdict(DID_NOT_HOLD, 0.03)])
    assert (fails, fails.p) == (DID_NOT_HOLD, 0.03)
    open_ = claims_of.all_of([held, Verdict(undecided, 0.3), Verdict(undecided, 0.2)])
    assert (open_, open_.p) == (UNDECIDED, 0.3)
    assert claims_of.all_of([held, Verdict(HELD)]).p is None


def test_claims_in_a_file_keep_how_sure_they_are(tmp_path):
    before = Claim("a", "b", "c", above(mean_ci(VALUES), 0), mean_ci(VALUES), "mA/g")
    welch = difference(VALUES, OTHERS)
    check = Claim("d", "b", "c", above(welch, 0), welch, "mA/g", check=True)
    claims_of.write([before, check], tmp_path / "claims.json")
    after, other = claims_of.read(tmp_path / "claims.json")
    assert after == before
    assert other == check
    assert after.p == before.p is not None
    assert asdict(before)["p"]
    assert copy.deepcopy(above(mean_ci(VALUES), 0)).p == before.p


def test_the_least_of_several_counts_how_many_there_were():
    series = [VALUES, VALUES + 1, VALUES - 9]
    verdict, least = devn_runs.all_above(map(pd.Series, series), 0)
    assert (verdict, least.mean) == (DID_NOT_HOLD, mean_ci(VALUES - 9).mean)
    assert verdict.p == pytest.approx(3 * stats.ttest_1samp(VALUES - 9, 0).pvalue)
    verdict, _ = devn_runs.all_above(map(pd.Series, series[:2]), 0)
    assert verdict.p == pytest.approx(stats.ttest_1samp(VALUES, 0).pvalue)
