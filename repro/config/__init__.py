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
    SolvedSubgamesConfig,
    SolverConfig,
    SubgamesConfig,
    TabularCFRConfig,
    ValueNetworkConfig,
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
    "SolvedSubgamesConfig",
    "SolverConfig",
    "SubgamesConfig",
    "TabularCFRConfig",
    "ValueNetworkConfig",
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
