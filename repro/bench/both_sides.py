"""Deep CFR on Leduc, ours and OpenSpiel's, with full memories: what benchmarks of its parts share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from repro.algorithms.deep_cfr import DeepCFR, DeepCFRConfig
from repro.algorithms.regression import fit
from repro.algorithms.strategies import Listed
from repro.bench.measure import Effort, open_spiel, seconds
from repro.common.seeding import generator
from repro.config import NetworkConfig, RegressionConfig
from repro.games import Game, load
from repro.networks.modules import Network
from repro.networks.optimizers import FlatAdam
from repro.policies import TabularPolicy
from repro.policies.regret_matching import regret_matching

TRAVERSALS = 1500


STEPS = 750


BATCH_SIZE = 2048


CAPACITY = 1_000_000


WIDTH, LAYERS = 64, 3


LEARNING_RATE, CLIP_NORM = 1e-3, 1.0


MATRIX = 1024


@dataclass(frozen=True)
class Setup:
    """What the benchmarks share, because filling memories takes longer than most of them.

    Attributes:
        trainer: our Deep CFR with 3x64 fully-connected value networks, memories full.
        solver: OpenSpiel's Deep CFR with the same hidden layers, memories full.
    """

    effort: Effort
    game: Game
    trainer: DeepCFR
    solver: Any
    pyspiel: Any


def prepare(effort: Effort) -> Setup:
    """Build both sides and fill their memories."""
    pyspiel, deep_cfr = open_spiel()
    game = load("leduc")
    regression = RegressionConfig(STEPS, BATCH_SIZE, LEARNING_RATE, CLIP_NORM, "previous")
    algorithm = DeepCFRConfig(
        name="bench", iterations=sys.maxsize, snapshot_every=sys.maxsize, traversals=TRAVERSALS,
        value_capacity=CAPACITY, strategy_capacity=CAPACITY, value=regression, average=regression,
    )  # fmt: skip
    trainer = DeepCFR(game, algorithm, NetworkConfig("fc", WIDTH, LAYERS), seed=0)
    fill_ours(trainer)
    solver = deep_cfr.DeepCFRSolver(
        pyspiel.load_game("leduc_poker"), policy_network_layers=(WIDTH,) * LAYERS,
        advantage_network_layers=(WIDTH,) * LAYERS, learning_rate=LEARNING_RATE, batch_size_advantage=BATCH_SIZE,
        memory_capacity=CAPACITY, advantage_network_train_steps=effort.peer_steps,
    )  # fmt: skip
    fill_peer(solver)
    return Setup(effort, game, trainer, solver, pyspiel)


def listed(trainer: DeepCFR) -> Listed:
    """The table of current strategies, and the features of all infosets."""
    assert isinstance(trainer.strategies, Listed)
    return trainer.strategies


def fill_ours(trainer: DeepCFR) -> None:
    """Fill every memory with samples of the uniform strategy, repeated until it is full."""
    for traverser in range(2):
        draw = generator(0, "bench fill", 0, traverser)
        policy = TabularPolicy(listed(trainer).table)
        traversals = trainer.engine.external_sampling(policy, traverser, 20_000, draw)
        destinations = (
            (trainer.value_memories[traverser], traversals.advantages),
            (trainer.strategy_memories[1 - traverser], traversals.opponent_strategies),
        )
        for memory, samples in destinations:
            while memory.size < CAPACITY:
                memory.add(samples, 1, draw)


def fill_peer(solver: Any) -> None:
    """Fill OpenSpiel's buffers with the entries of a few traversals, repeated; their contents do not affect speed."""
    for player in range(2):
        traverse_peer(solver, player, 50)
    for buffer in (*solver.advantage_buffers, solver.strategy_buffer):
        held = len(buffer)
        for column in buffer.experience:
            column[:] = column[np.arange(CAPACITY) % held]
        buffer.add_calls = np.array(CAPACITY)


@torch.no_grad()
def traverse_ours(setup: Setup, networks: Sequence[Network], player: int, draw: torch.Generator) -> None:
    """Our counterpart of 1,500 calls of OpenSpiel's `_traverse_game_tree`: evaluate the networks, sample, store."""
    game, trainer = setup.game, setup.trainer
    tables = []
    for network, player_rows in zip(networks, game.player_slice, strict=True):
        legal = game.legal[player_rows]
        tables.append(regret_matching(network(listed(trainer).features[player_rows], legal), legal, "argmax"))
    traversals = trainer.engine.external_sampling(TabularPolicy(torch.cat(tables)), player, TRAVERSALS, draw)
    trainer.value_memories[player].add(traversals.advantages, 1, draw)
    trainer.strategy_memories[1 - player].add(traversals.opponent_strategies, 1, draw)


def traverse_peer(solver: Any, player: int, traversals: int) -> None:
    """OpenSpiel's inner loop of `solve`."""
    for _ in range(traversals):
        solver._traverse_game_tree(solver._root_node, player)


def fit_seconds(setup: Setup, network: nn.Module, optimizer: FlatAdam, player: int, steps: int) -> float:
    """Wall time of our SGD steps as every training takes them, drawing the minibatches included."""
    trainer, player_rows = setup.trainer, setup.game.player_slice[player]
    draw = generator(0, "bench minibatches", 0, player)
    batches = trainer.value_memories[player].minibatches(steps, BATCH_SIZE, 1, 1.0, draw)
    features, legal = listed(trainer).features[player_rows], setup.game.legal[player_rows]
    return seconds(lambda: fit(network, optimizer, batches, steps, features, legal))
