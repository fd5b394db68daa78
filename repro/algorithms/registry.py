"""From a checked configuration to the module that does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from repro.algorithms.base import Algorithm
from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR
from repro.algorithms.kuhn_post import KuhnPost
from repro.algorithms.nfsp import NFSP
from repro.algorithms.tabular import TabularCFR
from repro.config import Config, DeepCFRConfig, KuhnPostConfig, MCCFRConfig, NFSPConfig, TabularCFRConfig
from repro.games.game import Game
from repro.games.holdem import HoldemCards

_MODULES: dict[type, Callable[..., Algorithm]] = {
    DeepCFRConfig: DeepCFR,
    TabularCFRConfig: TabularCFR,
    MCCFRConfig: TabularCFR,
    KuhnPostConfig: KuhnPost,
    NFSPConfig: NFSP,
}


def build(game: Game, config: Config) -> Algorithm:
    """The algorithm of a run."""
    needed: list[Any] = [game, config.algorithm]
    if config.algorithm.USES_NETWORK:
        needed.append(config.network)
    kind = type(config.algorithm)
    module = _MODULES[kind]
    if kind is DeepCFRConfig and isinstance(game.cards, HoldemCards):
        module = HoldemDeepCFR
    return module(*needed, seed=config.seed)
