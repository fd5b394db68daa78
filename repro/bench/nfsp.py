"""NFSP on Leduc beside OpenSpiel's PyTorch one: hands per second, learning included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from repro.bench.measure import Effort, Row, interleaved, per_second
from repro.games import load
from repro.plans.planning import plan

_WARM_UP = 2_000
"""Hands before measuring: by then both sides learn from both of their memories."""


def rows(effort: Effort) -> list[Row]:
    """All benchmarks of this module."""
    return [leduc_nfsp(effort)]


def leduc_nfsp(effort: Effort) -> Row:
    """Self-play and the SGD steps due after it: `algorithm=nfsp` as it is, OpenSpiel as in its Leduc example.

    Both have networks of one hidden layer of 128 units, and take a step on 128 rows after 64 of a player's own steps.
    """
    config = plan(["game=leduc", "algorithm=nfsp"], multirun=False).runs[0].config
    ours = config.algorithm.build(load("leduc"), config)

    def iterate() -> None:
        ours.iteration += 1
        ours.advance()

    play = open_spiel_hand()
    hands = config.algorithm.hands
    for _ in range(_WARM_UP // hands):
        iterate()
    for _ in range(_WARM_UP):
        play()
    our_rate, peer_rate = interleaved(
        lambda: hands * per_second(iterate, effort.tabular_seconds),
        lambda: per_second(play, effort.tabular_seconds),
        effort.repetitions,
    )
    return Row("leduc_nfsp", our_rate, peer_rate, "hands/s", our_rate / peer_rate, "peer: OpenSpiel's PyTorch NFSP")


def open_spiel_hand() -> Callable[[], None]:
    """A function that lets OpenSpiel's NFSP play one hand, and learn."""
    from open_spiel.python import rl_environment  # noqa: PLC0415
    from open_spiel.python.pytorch import nfsp  # noqa: PLC0415

    environment = rl_environment.Environment("leduc_poker")
    size, actions = environment.observation_spec()["info_state"][0], environment.action_spec()["num_actions"]
    settings_: dict[str, Any] = {
        "replay_buffer_capacity": 200_000, "reservoir_buffer_capacity": 2_000_000, "min_buffer_size_to_learn": 128,
        "anticipatory_param": 0.1, "batch_size": 128, "learn_every": 64, "rl_learning_rate": 0.01,
        "sl_learning_rate": 0.01, "optimizer_str": "sgd", "loss_str": "mse", "update_target_network_every": 19_200,
        "discount_factor": 1.0, "epsilon_decay_duration": 20_000_000, "epsilon_start": 0.06, "epsilon_end": 0.001,
    }  # fmt: skip
    agents = [nfsp.NFSP(player, size, actions, [128], **settings_) for player in range(2)]

    def play() -> None:
        step = environment.reset()
        while not step.last():
            acting = agents[step.observations["current_player"]].step(step)
            step = environment.step([acting.action])
        for agent in agents:
            agent.step(step)

    return play
