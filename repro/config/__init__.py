"""Configurations: their typed schema, their checks, and the keys of trainings and evaluations."""

from repro.config.schema import AlgorithmConfig, Config, NetworkConfig, ReadoutConfig, RegressionConfig

__all__ = ["AlgorithmConfig", "Config", "NetworkConfig", "ReadoutConfig", "RegressionConfig"]
