"""What a training's folder takes on the disk at the most, told from its configuration alone.

An algorithm says which tensors it leaves (`AlgorithmConfig.leaves`), an evaluation how long its rows are
(`Evaluation.row_bytes`). Here is what files take beside, and which of them are there at once.
"""

from __future__ import annotations

from itertools import pairwise

from repro.config.checks import game_for_checks
from repro.config.lightning import is_plain, processes_of
from repro.config.schema import AlgorithmConfig, Config, Leaves
from repro.evaluation.base import METRIC_BYTES
from repro.games.game import Game
from repro.policies.snapshot import MOST_KEPT_BYTES
from repro.stored.trained import leaves_tables

_FILE, _TENSOR = 1 << 14, 1 << 10
"""Of a tensor file, and of each tensor in it, at the most: what there is beside the tensors' own bytes."""
_TEXTS = 1 << 17
"""Of a training's configuration, record and lock, at the most, while one is replaced by another."""
_LINE = 1 << 10
"""Of an epoch's line in `metrics.jsonl`, at the most."""
_COSTS = 10
"""Metrics that a row of an evaluation has beside what was measured, and what its iteration and seconds take."""
_MADE_WITH = 1 << 13
"""Of what a file of an evaluation says beside its rows, at the most."""
_CHECKPOINTS = 3
"""The last one, the one before it, and the one that is being written: one comes at the end of an epoch at most."""


def most_bytes(config: Config) -> float | None:
    """Bytes that the folder of a training takes at the most, at any moment from its beginning until it is measured.

    So this is the peak, which has to fit, and not what is there in the end: three checkpoints are there while the third
    is written, and none when the training is finished. Seeds that are trained together have their checkpoints in one
    folder; of these, this counts the training's share. What a damaged file makes the suite set aside comes on top.

    Args:
        config: checked.

    Returns:
        None where no bound is known: an algorithm or an evaluation says none, or a callback, a logger or an option of
        the Trainer's may write what it likes.
    """
    if not is_plain(config) or not _is_said(type(config.algorithm)):
        return None
    game = game_for_checks(config)
    left = config.algorithm.leaves(config, game)
    if left is None:
        return None
    noted = _noted_bytes(config, game)
    if noted is None:
        return None
    algorithm, (snapshots, apart) = config.algorithm, _snapshots(config.algorithm)
    history = algorithm.iterations * left.row
    # Rows of the history are in checkpoints until a snapshot stores them.
    checkpoint = _file_bytes(left.checkpoint + apart * left.row, left.tensors)
    if (processes := processes_of(config)) > 1:
        # Each has a part of its own, with its share of the memories.
        checkpoint += processes * _file_bytes(0, left.tensors)
    portable = _file_bytes(left.snapshot + history, left.tensors)
    return (
        _TEXTS
        # Files of rows are written anew when a training goes on: the old one and the new one are there.
        + 2 * (left.epochs * _LINE + noted)
        + _snapshot_bytes(left, snapshots)
        + (history + snapshots * _FILE if left.row else 0.0)
        # When the portable snapshot and tables are written, checkpoints are gone.
        + max(min(_CHECKPOINTS, left.epochs) * checkpoint, portable + _table_bytes(config, game))
    )


def _is_said(algorithm: type[AlgorithmConfig]) -> bool:
    """Whether the bound is of what the algorithm builds, and not of what another one does that it derives from."""
    says, builds = (
        next(i for i, kind in enumerate(algorithm.__mro__) if name in vars(kind)) for name in ("leaves", "build")
    )
    return says <= builds


def _snapshots(algorithm: AlgorithmConfig) -> tuple[int, int]:
    """How many snapshots there are in the end, and how many iterations apart at the most."""
    if algorithm.snapshots == "even":  # There may be too many to be listed.
        return -(-algorithm.iterations // algorithm.snapshot_every), min(algorithm.snapshot_every, algorithm.iterations)
    after = [0, *algorithm.snapshot_iterations()]
    return len(after) - 1, max(b - a for a, b in pairwise(after))


def _file_bytes(tensor_bytes: float, tensors: int) -> float:
    return tensor_bytes + tensors * _TENSOR + _FILE


def _snapshot_bytes(left: Leaves, snapshots: int) -> float:
    """Of all snapshots' states: of large ones only the newest is kept, beside the one that is being written."""
    size = _file_bytes(left.snapshot, left.tensors)
    if size <= MOST_KEPT_BYTES:
        return snapshots * size
    are_large = left.snapshot_is_exact and left.snapshot > MOST_KEPT_BYTES
    return max(2 * size, 0.0 if are_large else snapshots * min(size, MOST_KEPT_BYTES))


def _noted_bytes(config: Config, game: Game) -> float | None:
    """Of all rows of evaluations; None where one of these does not say how long its rows are."""
    snapshots, _ = _snapshots(config.algorithm)
    total = 0.0
    for evaluation in config.evaluation.values():
        row = evaluation.row_bytes(game)
        if row is None:
            return None
        rows = 1 if evaluation.at == "last" else snapshots
        readouts = len(evaluation.names(config.algorithm.readouts))
        total += readouts * (_MADE_WITH + rows * (row + _COSTS * METRIC_BYTES))
    return total


def _table_bytes(config: Config, game: Game) -> float:
    """Of the read-outs' strategies that people can read, where these are left."""
    if not leaves_tables(game):
        return 0.0
    # A row has the infoset's number, who sees which cards, the betting, and a number per action.
    betting = max(len(game.line(node)) for node in range(game.tree.nodes))
    row = METRIC_BYTES + betting + METRIC_BYTES // 2 * game.num_actions
    return float(len(config.algorithm.readouts) * game.infosets * row)
