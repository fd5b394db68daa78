"""Evaluation: exact exploitability and values, units, statistics."""

from repro.evaluation.exploitability import best_response, expected_value, nash_conv

__all__ = ["best_response", "expected_value", "nash_conv"]
