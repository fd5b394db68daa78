"""From a checked configuration to the module that does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.algorithms.base import Algorithm, Tracked
from repro.algorithms.d2cfr import D2CFR
from repro.algorithms.d2cfr_holdem import HoldemD2CFR
from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR
from repro.algorithms.kuhn_post import KuhnPost
from repro.algorithms.nfsp import NFSP
from repro.algorithms.nfsp_holdem import HoldemNFSP
from repro.algorithms.replicates import Replicates
from repro.algorithms.tabular import BlueprintCFR, TabularCFR
from repro.config import (
    Config,
    D2CFRConfig,
    DeepCFRConfig,
    EncodingErrorConfig,
    KuhnPostConfig,
    MCCFRConfig,
    NFSPConfig,
    TabularCFRConfig,
    ValueNetworkConfig,
    check_for_game,
)
from repro.errors import ReproError
from repro.evaluation.head_to_head import Opponent
from repro.games.game import Game
from repro.games.holdem import HoldemCards
from repro.subgames.networks import ValueNetwork
from repro.subgames.runs import EncodingErrors, SolvedSubgames
from repro.subgames.subgames import Subgames

_MODULES: dict[type, Callable[..., Algorithm]] = {
    DeepCFRConfig: DeepCFR,
    D2CFRConfig: D2CFR,
    TabularCFRConfig: TabularCFR,
    MCCFRConfig: TabularCFR,
    KuhnPostConfig: KuhnPost,
    NFSPConfig: NFSP,
}


def build(game: Game, config: Config, opponents: Mapping[str, Opponent] | None = None) -> Algorithm:
    """The algorithm of a run.

    Args:
        opponents: what its read-outs play against, for algorithms that have such.

    Raises:
        ReproError: the algorithm does not go with the game.
    """
    check_for_game(game, config.algorithm)
    needed: list[Any] = [game, config.algorithm]
    if config.algorithm.USES_NETWORK:
        needed.append(config.network)
    kind = type(config.algorithm)
    module = _MODULES[kind]
    if isinstance(game.cards, HoldemCards):
        if kind is DeepCFRConfig:
            module = HoldemDeepCFR
        elif kind is D2CFRConfig:
            module = HoldemD2CFR
        elif kind is NFSPConfig:
            module = HoldemNFSP
        elif kind is MCCFRConfig and not game.cards.one_board:
            module = BlueprintCFR
    return module(*needed, seed=config.seed, **({"opponents": opponents} if opponents else {}))


def build_for_subgames(subgames: Subgames, config: Config) -> Tracked:
    """What a run about subgames does."""
    algorithm, folder = config.algorithm, Path(config.output_dir).absolute() / "subgames"
    if isinstance(algorithm, ValueNetworkConfig):
        assert config.network is not None
        return ValueNetwork(subgames, algorithm, config.network, config.seed, folder)
    kind = EncodingErrors if isinstance(algorithm, EncodingErrorConfig) else SolvedSubgames
    return kind(subgames, algorithm, config.seed, folder, config.threads, config.device)


def together(models: Sequence[Algorithm]) -> Algorithm:
    """The runs of one or several seeds as one.

    Raises:
        ReproError: there are several, and they cannot be trained together.
    """
    networks = [model for model in models if type(model) is HoldemDeepCFR]
    if len(networks) == len(models) and (len(models) > 1 or models[0].game.device.type == "cuda"):
        return Replicates(networks)
    if len(models) > 1:
        raise ReproError(
            f"seeds is {[model.seed for model in models]}; in the game {models[0].game.name} each is trained alone: "
            "leave seeds out, and use -m seed=0,1."
        )
    return models[0]
