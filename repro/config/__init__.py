"""Configurations: their typed schema, their checks, and the keys of runs."""

from repro.config.checks import check, check_variant, settings
from repro.config.for_game import check_for_game
from repro.config.keys import flatten, hyperparameters, result_config, run_key, single_runs
from repro.config.schema import (
    AlgorithmConfig,
    Config,
    D2CFRConfig,
    DeepCFRConfig,
    KuhnPostConfig,
    MCCFRConfig,
    NetworkConfig,
    NFSPConfig,
    ReadoutConfig,
    RegressionConfig,
    TabularCFRConfig,
    register,
)

__all__ = [
    "AlgorithmConfig",
    "Config",
    "D2CFRConfig",
    "DeepCFRConfig",
    "KuhnPostConfig",
    "MCCFRConfig",
    "NFSPConfig",
    "NetworkConfig",
    "ReadoutConfig",
    "RegressionConfig",
    "TabularCFRConfig",
    "check",
    "check_for_game",
    "check_variant",
    "flatten",
    "hyperparameters",
    "register",
    "result_config",
    "run_key",
    "settings",
    "single_runs",
]
