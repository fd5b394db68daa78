"""Strategies as files. Tables are CSV files that a person can read: what a run leaves behind as `strategy.csv`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pandas as pd
import torch

from repro.common.durable import write
from repro.common.errors import ReproError
from repro.games.game import Game
from repro.games.lines import line_in_words
from repro.policies.base import TabularPolicy

_ROUNDING = 1e-4
"""How far from 1 the probabilities of an infoset may sum, for files written by others with few digits."""


def check_same_game(path: Path | str, kind: str, stored: Game, game: Game) -> None:
    """Refuse a file that was made for another game.

    Raises:
        ReproError: `stored`, the file's game, is not `game`.
    """
    if (stored.name, stored.parameters) != (game.name, game.parameters):
        raise ReproError(
            f"{path} holds {kind} for game {stored.name} with {stored.parameters}, not for {game.name} with "
            f"{game.parameters}."
        )


def _descriptions(game: Game) -> list[str]:
    """What a person knows an infoset by: `player 1, hand K, betting check bet`, or `player 0, hand K, first to act`."""
    nodes = game.infoset_node.tolist()
    betting = {node: f"betting {line_in_words(game, node)}" if node else "first to act" for node in set(nodes)}
    return [
        ", ".join([game.describe(infoset).rpartition(", betting ")[0], betting[node]])
        for infoset, node in enumerate(nodes)
    ]


def save_strategy(game: Game, policy: TabularPolicy, path: Path | str) -> None:
    """Write one row per infoset: its number, a readable description, and a probability per action."""
    frame = pd.DataFrame(policy.table.cpu().numpy(), columns=list(game.actions))
    frame.insert(0, "description", _descriptions(game))
    write(Path(path), frame.to_csv(index_label="infoset").encode())


def load_strategy(game: Game, path: Path | str) -> TabularPolicy:
    """Read what `save_strategy` wrote for the same game.

    Raises:
        ReproError: the file cannot be read, is for another game, or holds something else than probabilities.
    """
    try:
        frame = pd.read_csv(path, index_col="infoset", dtype={"description": str})
        table = torch.tensor(frame[list(game.actions)].to_numpy(dtype=float), device=game.device)
    except Exception as error:  # A file of another kind fails in as many ways as there are bytes.
        raise ReproError(f"{path} cannot be read as a strategy.csv.") from error
    found = frame.get("description", pd.Series(dtype=str)).tolist()
    # Files of earlier versions name actions by their columns, and even earlier ones have numbers instead of cards.
    earlier = ([game.describe(i, numbered) for i in range(game.infosets)] for numbered in (False, True))
    if not any(found == known for known in chain([_descriptions(game)], earlier)):
        raise ReproError(f"{path} is not a strategy for game {game.name} with {game.parameters}.")
    # A file may have been edited: an action that is not legal would lead out of the tree.
    proper = (table >= 0).all(1) & (table * ~game.legal == 0).all(1) & ((table.sum(1) - 1).abs() < _ROUNDING)
    if not proper.all():
        bad = int((~proper).nonzero()[0])
        raise ReproError(
            f"{path} has {table[bad].tolist()} at infoset {bad}; needed are probabilities of the legal actions that "
            "sum to 1."
        )
    return TabularPolicy(table)
