"""DEVN's margin taken apart: the squares add up, and of the paper's numbers it is what they say."""

from __future__ import annotations

import pytest
import torch

from paper_figures import devn_margin, table6
from paper_figures.devn_runs import BUCKETED
from repro.evaluation.statistics import mean_ci
from repro.subgames.encoding import CFV, EV, averaged, counterfactual, encoding_error, expected, inverse, squared_error
from tests.helpers.devn import OF_SEEDS, error, loss, runs
from tests.helpers.draws import seeded
from tests.helpers.figures import cells


@pytest.mark.parametrize("target", [CFV, EV])
def test_squares_of_buckets_and_of_networks_add_up(target: str):
    """To the loss, exactly in counterfactual values; in expected ones where a bucket's hands have equal matchups."""
    draw = seeded(0)
    cfv = torch.randn(4, 2, 30, generator=draw, dtype=torch.float64)
    bucket = torch.randint(6, (4, 30), generator=draw)
    alike = 0.2 + torch.rand(4, 2, 6, generator=draw, dtype=torch.float64)
    different = 0.2 + torch.rand(4, 2, 30, generator=draw, dtype=torch.float64)
    for matchup, exact in ((inverse(alike, bucket), True), (different, target == CFV)):
        values = expected(cfv, matchup) if target == EV else cfv
        mean = averaged(values, bucket, 6)
        predicted = mean + torch.randn(mean.shape, generator=draw, dtype=torch.float64)
        back, perfect = (counterfactual(inverse(x, bucket), matchup, target) for x in (predicted, mean))
        parts = encoding_error(cfv, matchup, bucket, 6, target) + squared_error(perfect, back)
        assert torch.allclose(parts, squared_error(cfv, back)) == exact


def test_a_margin_by_hand():
    # DCVN errs by 5: 3 of buckets, 4 of its own; DEVN's buckets by 2.4, its own error by 3.
    losses, errors = (5.0, (2.4**2 + 3.0**2) ** 0.5), (3.0, 2.4)
    found = devn_margin.Margin.of(losses, errors)
    assert (found.share, found.buckets, found.own) == pytest.approx((9 / 25, 0.2, 0.25))
    assert found.gain() == pytest.approx(1 - losses[1] / losses[0])
    assert (found.gain(0.0), found.gain(1.0)) == pytest.approx((0.25, 0.2))
    with pytest.raises(ValueError, match="above the encoding errors"):
        devn_margin.Margin.of((5.0, 2.4), errors)


def test_the_papers_margins_are_of_buckets():
    """In I to V its share of buckets is 37 to 63%, and its networks' own errors differ by less than 7%."""
    for setting in BUCKETED:
        for hidden in setting.paper:
            found = devn_margin.paper(setting, hidden)
            assert 0.37 < found.share < 0.63
            assert -0.07 < found.own < 0.03
            assert 100 * found.gain() == pytest.approx(table6.paper_improvement(setting, hidden))


def test_the_table_has_what_our_gains_make_of_the_papers_share():
    data = table6.select(runs())
    setting = BUCKETED[0]
    row = next(row for row in cells("\n".join(table6._apart(data))) if row[0].startswith("I ("))
    predicted = []
    for hidden in setting.paper:
        dcvn, devn = ([loss("i", method, hidden) * factor for factor in OF_SEEDS] for method in ("dcvn", "devn"))
        own = [
            ((b**2 - error("i", "devn") ** 2) / (a**2 - error("i", "dcvn") ** 2)) ** 0.5
            for a, b in zip(dcvn, devn, strict=True)
        ]
        share = (2.782 / setting.paper[hidden][0]) ** 2
        parts = [(share * (5 / 7) ** 2 + (1 - share) * x**2) ** 0.5 for x in own]
        predicted.append(mean_ci([100 * (1 - part) for part in parts]).mean)
    assert row[8] == f"{min(predicted):.1f} to {max(predicted):.1f}"
    assert row[4] == "30.1"
