"""Tabular policies as CSV files that a person can read: what a run leaves behind as `strategy.csv`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

from repro.errors import ReproError
from repro.games.game import Game
from repro.policies.base import TabularPolicy


def save_strategy(game: Game, policy: TabularPolicy, path: Path | str) -> None:
    """Write one row per infoset: its number, a readable description, and a probability per action."""
    frame = pd.DataFrame(policy.table.cpu().numpy(), columns=list(game.actions))
    frame.insert(0, "description", [game.describe(i) for i in range(game.infosets)])
    frame.to_csv(path, index_label="infoset")


def load_strategy(game: Game, path: Path | str) -> TabularPolicy:
    """Read what `save_strategy` wrote for the same game.

    Raises:
        ReproError: the file is for another game.
    """
    frame = pd.read_csv(path, index_col="infoset", dtype={"description": str})
    described = [game.describe(i) for i in range(game.infosets)]
    if frame.get("description", pd.Series(dtype=str)).tolist() != described:
        raise ReproError(f"{path} is not a strategy for game {game.name} with {game.parameters}.")
    return TabularPolicy(torch.tensor(frame[list(game.actions)].to_numpy(dtype=float), device=game.device))
