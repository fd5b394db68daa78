"""Policies: given infosets, return action probabilities."""

from repro.policies.base import Policy, TabularPolicy, deterministic_policy, random_policy, table_of, uniform

__all__ = ["Policy", "TabularPolicy", "deterministic_policy", "random_policy", "table_of", "uniform"]
