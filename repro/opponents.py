"""What runs are measured against: the strategies that other finished runs left behind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import Run

from repro.algorithms.base import Algorithm
from repro.algorithms.tabular import BlueprintCFR
from repro.config import Config, DeepCFRConfig
from repro.errors import ReproError
from repro.evaluation.head_to_head import Opponent
from repro.games import Game
from repro.games.holdem import HoldemCards
from repro.policies.blueprint import load_blueprint
from repro.policies.ensemble import load_average_networks, load_networks
from repro.policies.record import STRATEGIES, StrategyRecord, load_records
from repro.tracking.store import find_finished

T = TypeVar("T")


def opponents_of(client: MlflowClient, game: Game, checked: Config) -> dict[str, Opponent]:
    """The opponents that a configuration names, from the runs that left them.

    Raises:
        ReproError: there is no such run, or it left nothing that can be played.
    """
    algorithm = checked.algorithm
    if not isinstance(algorithm, DeepCFRConfig):
        return {}
    # A file in a folder beside is no download.
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    found: dict[str, Opponent] = {}
    for name, given in algorithm.opponents.items():
        asked = f"algorithm.opponents.{name} is {given}"
        key, _, readout = given.partition("/")
        run = find_finished(client, key)
        if run is None:
            raise ReproError(
                f"{asked}; in {checked.output_dir} there is no finished run with this key (seed {checked.seed}). Make "
                "the opponents first, with the same device and threads."
            )
        try:
            found[name] = _opponent(client, game, run, readout)
        except ReproError as error:
            raise ReproError(f"{asked}: {error}") from error
        _check_iterations(asked, found[name], algorithm)
    return found


def _opponent(client: MlflowClient, game: Game, run: Run, readout: str) -> Opponent:
    left = {file.path for file in client.list_artifacts(run.info.run_id)}

    def fetched(name: str) -> Path:
        return Path(client.download_artifacts(run.info.run_id, name))

    if BlueprintCFR.ARTIFACT in left:
        if readout:
            raise ReproError(f"a {BlueprintCFR.ARTIFACT} is one strategy; leave out /{readout}.")
        return load_blueprint(game, fetched(BlueprintCFR.ARTIFACT))
    if STRATEGIES in left:
        return _named(load_records(game, fetched(STRATEGIES)), readout)
    if Algorithm.ARTIFACT in left and isinstance(game.cards, HoldemCards):
        path, kind = fetched(Algorithm.ARTIFACT), _named(_kinds_of(run), readout)
        return load_networks(game, path) if kind == "ensemble" else load_average_networks(game, path)
    raise ReproError(
        f"that run left none of {STRATEGIES} (algorithm.keep_strategies=true, one-card games), {Algorithm.ARTIFACT} "
        f"(Hold'em games) and {BlueprintCFR.ARTIFACT} (es_mccfr on hunl_pot)."
    )


def _kinds_of(run: Run) -> dict[str, str]:
    """The kinds of a run's read-outs; not those whose networks `load_networks` would not pick."""
    params, before, after = run.data.params, "algorithm.readouts.", ".kind"
    names = [k[len(before) : -len(after)] for k in params if k.startswith(before) and k.endswith(after)]
    whole = [name for name in names if params.get(f"{before}{name}.capacity", "None") == "None"]
    return {name: params[f"{before}{name}{after}"] for name in whole}


def _named(found: Mapping[str, T], readout: str) -> T:
    if not readout and len(found) == 1:
        return next(iter(found.values()))
    if readout not in found:
        raise ReproError(f"its read-out is {readout!r}; that run has {', '.join(found)}: add /READOUT to the key.")
    return found[readout]


def _check_iterations(asked: str, opponent: Opponent, algorithm: DeepCFRConfig) -> None:
    """Before any work: `opponents_at=same` needs a strategy for every evaluation to come."""
    if algorithm.opponents_at != "same" or not isinstance(opponent, StrategyRecord):
        return
    due = {*range(algorithm.evaluate_every, algorithm.iterations + 1, algorithm.evaluate_every), algorithm.iterations}
    lacking = sorted(due.difference(opponent.iterations))
    if lacking:
        raise ReproError(
            f"{asked}, which was not evaluated after iteration {lacking[0]}, and algorithm.opponents_at is same; give "
            "it the same algorithm.iterations and algorithm.evaluate_every, or use opponents_at=last."
        )
