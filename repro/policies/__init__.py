"""Policies: given infosets, return action probabilities."""

from repro.policies.base import Policy, TabularPolicy, deterministic_policy, random_policy, table_of, uniform
from repro.policies.files import load_strategy, save_strategy

__all__ = [
    "Policy",
    "TabularPolicy",
    "deterministic_policy",
    "load_strategy",
    "random_policy",
    "save_strategy",
    "table_of",
    "uniform",
]
