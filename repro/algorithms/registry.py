"""From a checked configuration to the module that does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from repro.algorithms.base import Algorithm
from repro.algorithms.d2cfr import D2CFR
from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.deep_cfr_holdem import HoldemDeepCFR
from repro.algorithms.kuhn_post import KuhnPost
from repro.algorithms.nfsp import NFSP
from repro.algorithms.replicates import Replicates
from repro.algorithms.tabular import BlueprintCFR, TabularCFR
from repro.config import Config, D2CFRConfig, DeepCFRConfig, KuhnPostConfig, MCCFRConfig, NFSPConfig, TabularCFRConfig
from repro.errors import ReproError
from repro.games.game import Game
from repro.games.holdem import HoldemCards
from repro.policies.base import Policy

_MODULES: dict[type, Callable[..., Algorithm]] = {
    DeepCFRConfig: DeepCFR,
    D2CFRConfig: D2CFR,
    TabularCFRConfig: TabularCFR,
    MCCFRConfig: TabularCFR,
    KuhnPostConfig: KuhnPost,
    NFSPConfig: NFSP,
}


def build(game: Game, config: Config, opponents: Mapping[str, Policy] | None = None) -> Algorithm:
    """The algorithm of a run.

    Args:
        opponents: what its read-outs play against, for algorithms that have such.

    Raises:
        ReproError: the algorithm does not go with the game.
    """
    if isinstance(config.algorithm, DeepCFRConfig):
        _check_evaluation(game, config.algorithm)
    needed: list[Any] = [game, config.algorithm]
    if config.algorithm.USES_NETWORK:
        needed.append(config.network)
    kind = type(config.algorithm)
    module = _MODULES[kind]
    if isinstance(game.cards, HoldemCards):
        if kind is DeepCFRConfig:
            module = HoldemDeepCFR
        elif kind is MCCFRConfig and not game.cards.one_board:
            module = BlueprintCFR
    return module(*needed, seed=config.seed, **({"opponents": opponents} if opponents else {}))


def together(models: Sequence[Algorithm]) -> Algorithm:
    """The runs of one or several seeds as one.

    Raises:
        ReproError: there are several, and they cannot be trained together.
    """
    networks = [model for model in models if isinstance(model, HoldemDeepCFR)]
    if len(networks) == len(models) and (len(models) > 1 or models[0].game.device.type == "cuda"):
        return Replicates(networks)
    if len(models) > 1:
        raise ReproError(
            f"seeds is {[model.seed for model in models]}; in the game {models[0].game.name} each is trained alone: "
            "leave seeds out, and use -m seed=0,1."
        )
    return models[0]


def _check_evaluation(game: Game, algorithm: DeepCFRConfig) -> None:
    """How the read-outs are measured must go with the game; keys without effect are refused."""
    if not isinstance(game.cards, HoldemCards):
        nothings: dict[str, Any] = {
            "evaluation_boards": None, "match_hands": 0, "disagreement_rollouts": 0, "opponents": {},
        }  # fmt: skip
        for key, nothing in nothings.items():
            if getattr(algorithm, key) != nothing:
                allowed = "null" if nothing is None else nothing
                raise ReproError(
                    f"algorithm.{key} is {getattr(algorithm, key)}; the game {game.name} is no Hold'em game and takes "
                    f"{allowed} only."
                )
        for which in ("value", "average"):
            precision = getattr(algorithm, which).precision
            if precision != "fp32":
                raise ReproError(
                    f"algorithm.{which}.precision is {precision}; the game {game.name} is no Hold'em game and takes "
                    "fp32 only."
                )
        return
    if algorithm.memory != "reservoir":
        raise ReproError(
            f"algorithm.memory is {algorithm.memory}; Hold'em games have too many infosets, use reservoir."
        )
    one_board = game.cards.one_board
    if one_board and algorithm.evaluation_boards is None and not game.listed:
        raise ReproError(
            f"algorithm.evaluation_boards is null, but the game {game.name} is too large to measure on all boards; a "
            "number is needed."
        )
    if not one_board and algorithm.evaluation_boards is not None:
        raise ReproError(
            f"algorithm.evaluation_boards is {algorithm.evaluation_boards}; the game {game.name} has more than one "
            "board and takes null only."
        )
