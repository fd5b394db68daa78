"""Regret matching, on generated advantages and legal masks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from repro.policies.regret_matching import regret_matching

RULES = ("argmax", "uniform")
# Sizes that advantages in chips can have; in float32 the ratio of any two is still a normal number.
MAGNITUDE = st.floats(2.0**-20, 2.0**20, width=32)
NOT_POSITIVE = st.one_of(MAGNITUDE.map(lambda x: -x), st.just(0.0))
ADVANTAGE = st.one_of(MAGNITUDE, NOT_POSITIVE)


@st.composite
def problems(draw: st.DrawFn, advantage: st.SearchStrategy[float] = ADVANTAGE) -> tuple[Tensor, Tensor]:
    """Advantages and legal masks `[n, actions]`, every row with a legal action."""
    n, actions = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    values = draw(st.lists(advantage, min_size=n * actions, max_size=n * actions))
    legal = torch.tensor(draw(st.lists(st.booleans(), min_size=n * actions, max_size=n * actions))).view(n, actions)
    legal[torch.arange(n), draw(st.lists(st.integers(0, actions - 1), min_size=n, max_size=n))] = True
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    return torch.tensor(values, dtype=dtype).view(n, actions), legal


repeatable = settings(derandomize=True, deadline=None, max_examples=150)


@pytest.mark.parametrize("rule", RULES)
@repeatable
@given(problem=problems())
def test_rows_are_probabilities_over_legal_actions(rule, problem):
    advantages, legal = problem
    given_advantages, given_legal = advantages.clone(), legal.clone()
    strategy = regret_matching(advantages, legal, rule)
    assert strategy.shape == advantages.shape
    assert strategy.dtype == advantages.dtype
    assert bool((strategy >= 0).all())
    assert bool((strategy[~legal] == 0).all())
    torch.testing.assert_close(strategy.sum(1), torch.ones(len(legal), dtype=strategy.dtype), rtol=1e-6, atol=0)
    assert torch.equal(advantages, given_advantages)
    assert torch.equal(legal, given_legal)


@pytest.mark.parametrize("rule", RULES)
@repeatable
@given(problem=problems())
def test_positive_advantages_are_played_in_proportion(rule, problem):
    advantages, legal = problem
    strategy = regret_matching(advantages, legal, rule)
    for row in range(len(legal)):
        positive = [max(0.0, a) if ok else 0.0 for a, ok in zip(advantages[row].tolist(), legal[row], strict=True)]
        if sum(positive) > 0:
            expected = [p / sum(positive) for p in positive]
            assert strategy[row].tolist() == pytest.approx(expected, rel=1e-5, abs=0)


@repeatable
@given(problem=problems(NOT_POSITIVE))
def test_without_positive_advantages_the_highest_legal_one_is_played(problem):
    advantages, legal = problem
    strategy = regret_matching(advantages, legal, "argmax")
    assert strategy.max(1).values.tolist() == [1.0] * len(legal)
    best = advantages.masked_fill(~legal, -torch.inf).max(1).values
    assert torch.equal(advantages[strategy == 1.0], best)


@repeatable
@given(problem=problems(NOT_POSITIVE))
def test_without_positive_advantages_all_legal_actions_are_played_alike(problem):
    advantages, legal = problem
    strategy = regret_matching(advantages, legal, "uniform")
    expected = legal.to(advantages.dtype) / legal.sum(1, keepdim=True)
    torch.testing.assert_close(strategy, expected, rtol=1e-6, atol=0)


@repeatable
@given(problem=problems(), value=MAGNITUDE)
def test_advantages_of_illegal_actions_do_not_matter(problem, value):
    advantages, legal = problem
    for rule in RULES:
        expected = regret_matching(advantages, legal, rule)
        assert torch.equal(regret_matching(advantages.masked_fill(~legal, value), legal, rule), expected)


@pytest.mark.parametrize("rule", RULES)
@repeatable
@given(problem=problems(), factor=st.sampled_from([0.25, 0.5, 2.0, 1024.0]))
def test_the_unit_of_advantages_does_not_matter(rule, problem, factor):
    advantages, legal = problem
    torch.testing.assert_close(
        regret_matching(advantages * factor, legal, rule), regret_matching(advantages, legal, rule), rtol=1e-6, atol=0
    )


def test_by_hand():
    advantages = torch.tensor([[1.0, 3.0, 5.0], [-2.0, -1.0, 9.0], [0.0, 0.0, -1.0]])
    legal = torch.tensor([[True, True, False], [True, True, False], [True, True, True]])
    argmax = torch.tensor([[0.25, 0.75, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    uniform = torch.tensor([[0.25, 0.75, 0.0], [0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    torch.testing.assert_close(regret_matching(advantages, legal, "argmax"), argmax)
    torch.testing.assert_close(regret_matching(advantages, legal, "uniform"), uniform)
