"""Configurations: their typed schema, their checks, and the keys of runs."""

from repro.config.checks import check
from repro.config.schema import AlgorithmConfig, Config, NetworkConfig, ReadoutConfig, RegressionConfig

__all__ = ["AlgorithmConfig", "Config", "NetworkConfig", "ReadoutConfig", "RegressionConfig", "check"]
