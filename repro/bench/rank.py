"""One process of a training, which answers with times: `python -m repro.bench.rank RANK COUNT OVERRIDE ...`.

Each line of its input names a part of Deep CFR, a number of ranks, and how often it is to be done, `steps 2 100`. With
COUNT above 1 there are so many such processes, in one group, and all must be asked the same. A process that is alone
takes the part of rank 0 of any number of ranks, without the reductions.

- `traversals`: player 0's of an iteration, and storing their samples;
- `steps`: SGD steps of a fit of her value network, drawing the minibatches included;
- `reduce`: all-reduces of as many numbers as that network has parameters, one after another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.distributed
from threadpoolctl import threadpool_limits
from torch import Tensor

from repro.algorithms.deep_cfr import DeepCFR
from repro.algorithms.ranks import Ranks
from repro.bench.measure import seconds
from repro.config.checks import game_of
from repro.config.schema import Config
from repro.games.game import Game
from repro.plans.planning import plan

_STEPS = 8
"""Of the first fits, so that traversals meet strategies that are not uniform."""


class Silent(Ranks):
    """One of several ranks of which there are no others: what is reduced stays as it is."""

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def each(self, number: int) -> list[int]:
        return [number] * self.count


def prepared(game: Game, config: Config, ranks: Ranks) -> DeepCFR:
    """A rank's part, after an iteration with a few steps."""
    first = replace(config.algorithm, value=replace(config.algorithm.value, start="previous"), average=None)
    model: DeepCFR = first.build_rank(game, config, ranks)
    model.iteration = 1
    for player in range(2):
        model.collect(player)
        fit(model, player)
        model.renew_strategy(player)
    return model


def traverse(model: DeepCFR, repeated: int) -> None:
    """Player 0's traversals of so many iterations."""
    for _ in range(repeated):
        model.iteration += 1
        model.collect(0)


def fit(model: DeepCFR, player: int, steps: int = _STEPS) -> None:
    """So many SGD steps of the player's value network."""
    model.algorithm = replace(model.algorithm, value=replace(model.algorithm.value, steps=steps, more_steps=0))
    learner, batches = model.learner("value", player), model.begin_fit("value", player)
    model.strategies.fit_to(learner.network, learner.optimizer, batches, player, steps=steps, ranks=model.ranks)


def reduce(model: DeepCFR, repeated: int) -> None:
    """So many all-reduces of a gradient."""
    for _ in range(repeated):
        model.ranks.mean(model.learner("value", 0).optimizer.gradient)


PARTS: dict[str, Callable[[DeepCFR, int], None]] = {
    "traversals": traverse, "steps": lambda model, steps: fit(model, 0, steps), "reduce": reduce,
}  # fmt: skip


def main() -> None:
    """Answer until the input ends, each line with the seconds and the number of the network's parameters."""
    torch.set_num_threads(1)
    rank, count, *overrides = sys.argv[1:]
    config = plan(overrides, multirun=False).runs[0].config
    if int(count) > 1:
        torch.distributed.init_process_group("gloo", rank=int(rank), world_size=int(count))
    models: dict[int, DeepCFR] = {}
    with threadpool_limits(1):
        game = game_of(config)
        for line in sys.stdin:
            what, share, repeated = line.split()
            if int(share) not in models:
                ranks = Ranks(int(rank), int(count)) if int(count) > 1 else Silent(0, int(share))
                models[int(share)] = prepared(game, config, ranks)
            model = models[int(share)]
            took = seconds(partial(PARTS[what], model, int(repeated)))
            print(took, model.learner("value", 0).optimizer.gradient.numel(), flush=True)


if __name__ == "__main__":
    main()
