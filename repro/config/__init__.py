"""Configurations: their typed schema. Those of algorithms and evaluations are in the files of what they configure."""

from repro.config.schema import AlgorithmConfig, Config, NetworkConfig, ReadoutConfig, RegressionConfig

__all__ = ["AlgorithmConfig", "Config", "NetworkConfig", "ReadoutConfig", "RegressionConfig"]
