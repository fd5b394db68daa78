"""Configurations: their typed schema, their checks, and the keys of runs."""

from repro.config.checks import check, check_variant, settings
from repro.config.for_game import check_for_game, game_of
from repro.config.keys import flatten, hyperparameters, result_config, run_key, single_runs
from repro.config.schema import (
    AlgorithmConfig,
    Config,
    D2CFRConfig,
    DeepCFRConfig,
    EncodingErrorConfig,
    KuhnPostConfig,
    MCCFRConfig,
    NetworkConfig,
    NFSPConfig,
    ReadoutConfig,
    RegressionConfig,
    SolverConfig,
    SubgamesConfig,
    TabularCFRConfig,
    register,
)

__all__ = [
    "AlgorithmConfig",
    "Config",
    "D2CFRConfig",
    "DeepCFRConfig",
    "EncodingErrorConfig",
    "KuhnPostConfig",
    "MCCFRConfig",
    "NFSPConfig",
    "NetworkConfig",
    "ReadoutConfig",
    "RegressionConfig",
    "SolverConfig",
    "SubgamesConfig",
    "TabularCFRConfig",
    "check",
    "check_for_game",
    "check_variant",
    "flatten",
    "game_of",
    "hyperparameters",
    "register",
    "result_config",
    "run_key",
    "settings",
    "single_runs",
]
